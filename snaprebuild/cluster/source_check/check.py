"""``cluster source``: whether replicas may be sources, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.rule_result import RuleState, finding_of
from snaprebuild.cluster.scan_storage import start_concerns
from snaprebuild.cluster.source_check.evidence import LogEvidence, SourceEvidence
from snaprebuild.cluster.source_check.evidence_collector import Peers, SourceRequest, is_judged, read_peers
from snaprebuild.cluster.source_check.evidence_reader import log_evidence, peer_evidence
from snaprebuild.cluster.source_check.leading_losses import OtherReplica, leading_loss_findings
from snaprebuild.cluster.source_check.metadata_logs import BrokerMetadata, MetadataLogs
from snaprebuild.cluster.source_check.producer_ids import (
    foreign_producers,
    is_newer_than_log,
    producer_id_finding,
    read_newest_entries,
)
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.cluster.source_check.source_verdicts import JudgedReplica, ReadLogs, SourceReplica, judge_sources, replica_of
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.last_stable import stable_ends
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.broker_properties import expiration_of, log_dirs_online
from snaprebuild.snapshots.source.source import (
    check_segments_are_files,
    is_cleaner_at_work,
    open_source,
    partition_source,
    why_skipped,
)
from snaprebuild.storage.log_dir import Discovery, LogDirState, find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import absolute, is_object

__all__ = ["CheckedSource", "SourceCheck", "check_sources", "start_findings"]


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """One replica.

    Attributes:
        directory: the listing.
        state: the small files of its log directory.
        log: what its own files say.
        verdict: on it.
    """

    directory: PartitionDir
    state: LogDirState
    log: LogEvidence
    metadata: BrokerMetadata
    verdict: SourceVerdict


@dataclass(slots=True)
class SourceCheck:
    """All verdicts, by path, and the findings."""

    question: SourceQuestion
    replicas: list[CheckedSource] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_sources(question: SourceQuestion, run: Run) -> SourceCheck:
    """Judges every replica below the paths. A file of one replica that cannot be read does not affect the others.

    Args:
        question: the replicas and the evidence.
        run: its clock decides which snapshot at a first offset is trusted where the last stable offset is looked for.

    Raises:
        UsageError: a path does not exist, or the metadata log that was named is none.
        RefusedError: that one is damaged.
        StorageError: it cannot be read.
    """
    now_ms = run.clock.as_of_ms
    properties = run.facts.properties_if_given(question.server_properties)
    log_dirs, offline = ([], []) if properties is None else log_dirs_online(properties, question.server_properties)
    expiration_ms = DEFAULT_EXPIRATION_MS if properties is None else expiration_of(properties)
    discovery = find_partitions((*question.paths, *log_dirs), run.stores)
    result = SourceCheck(question, findings=offline)
    result.findings += [finding_of_error(error, error.path or "", may_vanish=True) for error in discovery.faults]
    logs_of_run = MetadataLogs(
        question.metadata, run, question.requested_offset, voters=question.voter_logs, voter_ids=question.voter_ids
    )
    logs_of_run.named()  # a fault of it is raised before the work
    states = [each.state for each in discovery.log_dirs]
    for state in states:
        result.findings += [
            Finding("unreadable-broker-file", Severity.FINDING, state.path, fault, is_unread=True) for fault in state.faults
        ]
    selected = [
        (directory, log_dir.state)
        for log_dir in discovery.log_dirs
        for directory in log_dir.partitions
        if question.selection.takes(directory) and is_judged(directory)
    ]
    notes = {directory.path: note for directory, _ in selected if (note := _reason_to_pass(directory, discovery)) is not None}
    result.findings += notes.values()
    pairs = [(directory, state) for directory, state in selected if directory.path not in notes]
    stable, damage = _stable_ends(question, pairs, run)
    peers = read_peers(question.peers, question.selection, run.stores)
    result.findings += damage
    request = SourceRequest(
        purpose=question.purpose,
        logs=logs_of_run,
        log_dirs=states,
        named=[absolute(path) for path in question.paths],
        properties=properties,
        peers=peers,
        broker_epoch=question.broker_epoch,
        i_am_the_leader=question.i_am_the_leader,
        accept_own_log=question.accept_own_log,
        locks=run.facts,
    )
    directories = {directory.path: directory for directory, _ in pairs}
    replicas = [replica_of(directory, state) for directory, state in pairs]
    logs = ReadLogs(lambda replica: _log_of(directories[replica.path], replica.log_dir, stable))
    verdicts = judge_sources(request, replicas, logs)
    result.findings += [finding_of_error(error, replica.path) for replica, error in verdicts.unread]
    for judged in verdicts.judged:
        state = judged.replica.log_dir
        directory = directories[judged.replica.path]
        checked = CheckedSource(directory, state, judged.evidence.log, judged.metadata, judged.verdict)
        result.replicas.append(checked)
        reported = [finding.message for finding in verdicts.findings]
        result.findings += _findings_of(checked, directory.path in discovery.named, reported)
        if question.requested_offset is None:  # at an earlier moment the next id was smaller
            result.findings += _foreign_producers(checked, judged.evidence, now_ms, expiration_ms)
        source = partition_source(directory, state, directory.path)
        others = _others(judged.replica, peers, verdicts.judged, directories)
        result.findings += leading_loss_findings(source, judged.evidence, others, now_ms, expiration_ms)
    result.findings += verdicts.findings
    result.findings += _nothing_found(result, discovery, log_dirs)
    return result


def _nothing_found(result: SourceCheck, found: Discovery, log_dirs: Sequence[str]) -> list[Finding]:
    """The finding of a selection without a replica, or of absent names; none if other findings explain it."""
    question = result.question
    directories = [partition for log_dir in found.log_dirs for partition in log_dir.partitions]
    path = absolute((*question.paths, *log_dirs)[0])
    if not result.replicas and not any(finding.severity for finding in result.findings):
        message = question.selection.why_nothing(directories)
        return [Finding("nothing-found", Severity.FINDING, path, message, cause=FindingCause.NOTHING_FOUND)]
    names = [directory.topic_partition for directory in directories]
    return question.selection.absent_findings(names, path, are_others_read=bool(result.replicas))


def start_findings(result: SourceCheck, run: Run) -> list[Finding]:
    """Findings on the next start of the brokers of the replicas. The rules judge a replica, and not whether its broker starts.

    A replica that is rejected has its finding already.
    """
    question = result.question
    if not result.replicas or any(map(is_object, question.paths)):
        return []
    source = open_source(question.paths, question.server_properties, question.selection, run)
    replicas = {replica.log.path for replica in result.replicas}
    reported = [finding for finding in result.findings if finding.severity is Severity.REFUSED or finding.path not in replicas]
    return start_concerns(source, reported)


def _reason_to_pass(directory: PartitionDir, found: Discovery) -> Finding | None:
    """Why a directory is no replica that anybody would take: its broker deletes or moves it. None for one that is judged."""
    if directory.name.form not in (DirectoryForm.DELETE, DirectoryForm.FUTURE) or directory.path in found.named:
        return None
    return why_skipped(directory, is_named=False)


def _others(
    replica: SourceReplica, peers: Peers, judged: Sequence[JudgedReplica], directories: Mapping[str, PartitionDir]
) -> list[OtherReplica]:
    """The other replicas of a partition: those that were named, and those of other brokers among the paths."""
    others = {}
    for evidence in peers.of(replica.topic_partition, replica.path):
        of_peer, state_of_peer = peers.replicas[evidence.path]
        others[evidence.path] = OtherReplica(of_peer, evidence, _high_watermark(of_peer, state_of_peer))
    node = replica.log_dir.node_id
    for each in judged:
        other = directories[each.replica.path]
        state_of_other = each.replica.log_dir
        is_other_broker = None not in (node, state_of_other.node_id) and node != state_of_other.node_id
        if is_other_broker and other.topic_partition == replica.topic_partition and other.name.form is DirectoryForm.PLAIN:
            others.setdefault(
                other.path, OtherReplica(other, peer_evidence(other, state_of_other), _high_watermark(other, state_of_other))
            )
    return list(others.values())


def _high_watermark(directory: PartitionDir, state: LogDirState) -> int | None:
    return (state.high_watermarks or {}).get(directory.topic_partition)


def _foreign_producers(checked: CheckedSource, evidence: SourceEvidence, now_ms: int, expiration_ms: int) -> list[Finding]:
    read = checked.metadata.read
    directory = checked.directory
    if read is None or not is_newer_than_log(evidence):
        return []
    try:
        entries = read_newest_entries(directory)
    except ReadFailedError as error:
        return [finding_of_error(error, directory.path)]
    foreign = foreign_producers(entries, read.image, now_ms, expiration_ms)
    if foreign is None:
        return []
    return [producer_id_finding(directory.path, [directory.topic_partition], [foreign], Severity.FINDING)]


def _log_of(directory: PartitionDir, state: LogDirState, stable: dict[str, int | None]) -> LogEvidence:
    is_asked = directory.path in stable
    return log_evidence(directory, state, last_stable_offset=stable.get(directory.path), asks_stable=is_asked)


def _stable_ends(
    question: SourceQuestion,
    pairs: Sequence[tuple[PartitionDir, LogDirState]],
    run: Run,
) -> tuple[dict[str, int | None], list[Finding]]:
    """The last stable offset of each replica, by path: for what leaves the replica the log is replayed. None if it cannot be."""
    if question.purpose is Purpose.REBUILD:
        return {}, []
    found: dict[str, int | None] = {}
    findings: list[Finding] = []
    marks = []
    for directory, state in pairs:
        source = partition_source(directory, state, directory.path)
        if (
            directory.name.form is not DirectoryForm.PLAIN
            or (directory.swapped and not is_cleaner_at_work(directory))
            or not directory.segments
            or not source.can_be_tiered
        ):
            continue
        found[directory.path] = None
        mark = (state.high_watermarks or {}).get(directory.topic_partition)
        if mark is None:
            continue
        try:
            check_segments_are_files(directory)
            marks.append((source, min(max(mark, source.log_start_offset), log_end_offset(directory))))
        except (SnaprebuildError, FormatError) as error:
            findings.append(finding_of_error(error, directory.path))
    ends, damage = stable_ends(marks, run)
    return found | ends, findings + damage


def _findings_of(checked: CheckedSource, is_named: bool, reported: list[str]) -> list[Finding]:
    verdict = checked.verdict
    path = checked.directory.path
    findings = [
        Finding("source-unreadable", Severity.FINDING, path, f"{fault}: its content is unknown", is_unread=True)
        for fault in checked.log.faults
    ]
    if verdict.is_rejected:
        rejected = verdict.rejection_finding(path)
        if checked.directory.name.form is not DirectoryForm.PLAIN and not is_named:  # it was left over
            rejected = Finding(rejected.code, Severity.FINDING, path, rejected.message)
        findings.append(rejected)
    elif verdict.outcome is VerdictOutcome.TRUSTED_BELOW:
        findings.append(Finding("source-trusted-below", Severity.NOTE, path, f"{verdict}: {verdict.reason}", verdict.trusted_below))
    reservations = (result for result in verdict.results if result.state is RuleState.HOLDS and result.grade is not None)
    findings += [
        finding_of(reservation, "source-warning", path) for reservation in reservations if reservation.rule is not verdict.rule
    ]
    reported = [*reported, *(finding.message for finding in findings if finding.severity)]
    if (unknown := verdict.unknown_finding(path, Severity.FINDING, reported)) is not None:
        findings.append(unknown)
    if (needed := verdict.confirmation_finding(path, Severity.FINDING)) is not None:
        findings.append(needed)
    findings += [Finding("source-on-operators-word", Severity.NOTE, path, each) for each in verdict.asserted_by_operator]
    return findings
