"""``source check``: may these replicas be sources, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.file_names import DirectoryForm
from snaprebuild.cluster.source_evidence import LogEvidence, Purpose
from snaprebuild.cluster.source_ruling import State
from snaprebuild.cluster.source_verdict import Outcome, SourceVerdict
from snaprebuild.errors import SnaprebuildError, UsageError
from snaprebuild.operations.broker_properties import log_dirs_online, read_server_properties
from snaprebuild.operations.evidence import Clock
from snaprebuild.operations.findings import Finding, Severity, finding_of_error
from snaprebuild.operations.last_stable import last_stable_offsets
from snaprebuild.operations.partition_view import view_partition
from snaprebuild.operations.source import PartitionSource, Selection
from snaprebuild.operations.verdict.cluster_truth import ClusterTruth, MetadataRead
from snaprebuild.operations.verdict.evidence import log_evidence
from snaprebuild.operations.verdict.judges import Judges, is_judged, rejection, word_needed
from snaprebuild.operations.verdict.peers import Peers, read_peers
from snaprebuild.replay.producer_state import DEFAULT_EXPIRATION_MS
from snaprebuild.storage.log_dir import LogDirState, find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import USUAL_S3, S3Settings, absolute

__all__ = ["CheckedSource", "SourceCheck", "SourceQuestion", "check_sources"]

EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class SourceQuestion:
    """What is asked.

    Attributes:
        paths: of log directories, or above them, or partition directories.
        purpose: what they are to be the source of.
        metadata: location of a metadata log, None for that of each broker itself.
        at: last offset of it that counts, None for all.
        peers: locations of other replicas.
        is_leader_by_word: the operator says that these replicas lead.
        broker_epoch: of a live broker, as the operator says.
        selection: of partitions.
        settings: of object stores.
        server_properties: path of the configuration of a broker, whose ``log.dirs`` are asked, too; None for none.
    """

    paths: tuple[str, ...]
    purpose: Purpose = Purpose.REBUILD
    metadata: str | None = None
    at: int | None = None
    peers: tuple[str, ...] = ()
    is_leader_by_word: bool = False
    broker_epoch: int | None = None
    selection: Selection = EVERYTHING
    settings: S3Settings = USUAL_S3
    server_properties: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """One replica.

    Attributes:
        directory: the listing.
        state: the small files of its log directory.
        log: what its own files say.
        metadata: the log that was asked, or why none was.
        verdict: on it.
    """

    directory: PartitionDir
    state: LogDirState
    log: LogEvidence
    metadata: MetadataRead | str
    verdict: SourceVerdict


@dataclass(slots=True)
class SourceCheck:
    """All of them, by path, and what is to be told."""

    question: SourceQuestion
    replicas: list[CheckedSource] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_sources(question: SourceQuestion, now_ms: int, jobs: int | None = None) -> SourceCheck:
    """Judges every replica below the paths. What cannot be read of one keeps no other from being judged.

    Args:
        question: what is asked.
        now_ms: the clock, for which snapshot at a first offset is trusted where the last stable offset is looked for.
        jobs: worker processes for that.

    Raises:
        UsageError: a path leads nowhere, or the metadata log that was named is none.
        RefusedError: that one is damaged.
        StorageError: it cannot be read.
    """
    properties = None if question.server_properties is None else read_server_properties(question.server_properties)
    log_dirs, offline = ([], []) if properties is None else log_dirs_online(properties, question.server_properties)
    found = find_partitions((*question.paths, *log_dirs), question.settings)
    result = SourceCheck(question, findings=offline)
    result.findings += [finding_of_error(error, error.path or "") for error in found.faults]
    truth = ClusterTruth(question.metadata, question.settings, question.at)
    truth.named()  # told before the work
    judges = Judges(question.purpose, truth, question.broker_epoch, question.is_leader_by_word)
    states = [each.state for each in found.log_dirs]
    named = [absolute(path) for path in question.paths]
    judges.meet(states, named, properties)
    for state in states:
        result.findings += [Finding("unreadable-broker-file", Severity.FINDING, state.path, fault) for fault in state.faults]
    pairs = [
        (directory, log_dir.state)
        for log_dir in found.log_dirs
        for directory in log_dir.partitions
        if question.selection.takes(directory) and is_judged(directory)
    ]
    stable = _stable_offsets(question, pairs, now_ms, jobs, result.findings)
    peers = read_peers(question.peers, question.selection, question.settings, result.findings)
    for directory, state in pairs:
        try:
            checked = _checked(judges, directory, state, stable.get(directory.path), peers)
        except UsageError:
            raise
        except (SnaprebuildError, FormatError) as error:
            result.findings.append(finding_of_error(error, directory.path))
            continue
        result.replicas.append(checked)
        result.findings += _findings_of(checked, directory.path in found.named)
    result.findings += [*truth.findings, *judges.findings]
    if not result.replicas and not any(each.severity for each in result.findings):
        message = "no partition was found here that the selection takes"
        result.findings.append(Finding("nothing-found", Severity.FINDING, absolute((*question.paths, *log_dirs)[0]), message))
    return result


def _checked(
    judges: Judges,
    directory: PartitionDir,
    state: LogDirState,
    last_stable: int | None,
    peers: Peers,
) -> CheckedSource:
    log = log_evidence(directory, state, last_stable=last_stable)
    known = judges.know(state, log, peers.of(directory))
    return CheckedSource(directory, state, log, judges.metadata_of(state), known.judge())


def _stable_offsets(
    question: SourceQuestion,
    pairs: Sequence[tuple[PartitionDir, LogDirState]],
    now_ms: int,
    jobs: int | None,
    findings: list[Finding],
) -> dict[str, int]:
    """The last stable offset of each replica, by path: for what leaves the replica the log is replayed."""
    if question.purpose is Purpose.REBUILD:
        return {}
    views = []
    for directory, state in pairs:
        if directory.name.form is not DirectoryForm.PLAIN or directory.swapped or not directory.segments:
            continue
        source = PartitionSource(directory, state, directory.path)
        if not source.can_be_tiered:
            continue
        try:
            view = view_partition(source)
        except (SnaprebuildError, FormatError) as error:
            findings.append(finding_of_error(error, directory.path))
            continue
        views.append((view, view.high_watermark))
    clock = Clock(now_ms, DEFAULT_EXPIRATION_MS)
    return {path: known.value for path, known in last_stable_offsets(views, clock, findings, jobs).items()}


def _findings_of(checked: CheckedSource, is_named: bool) -> list[Finding]:
    verdict, path = checked.verdict, checked.directory.path
    found = [
        Finding("source-unreadable", Severity.FINDING, path, f"{fault}: what it tells counts as not known")
        for fault in checked.log.faults
    ]
    if verdict.is_rejected:
        rejected = rejection(verdict, path)
        is_left_over = checked.directory.name.form is not DirectoryForm.PLAIN and not is_named
        found.append(Finding(rejected.code, Severity.FINDING, path, rejected.message) if is_left_over else rejected)
    elif verdict.outcome is Outcome.TRUSTED_BELOW:
        found.append(Finding("source-trusted-below", Severity.NOTE, path, f"{verdict}: {verdict.why}", verdict.offset))
    found += [
        Finding("source-warning", Severity.NOTE, path, f"{each.ruling.evidence} (rule {each.rule.name}, {each.rule.value})")
        for each in verdict.results
        if each.state is State.WARN and each.rule is not verdict.rule
    ]
    if (needed := word_needed(verdict, path, Severity.FINDING)) is not None:
        found.append(needed)
    found += [Finding("source-on-operators-word", Severity.NOTE, path, each) for each in verdict.on_word]
    return found
