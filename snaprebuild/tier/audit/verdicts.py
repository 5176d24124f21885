"""Takes the verdicts of a replay for the copies of one partition, and names what is wrong with them."""

from __future__ import annotations

from msgspec.structs import replace

from formats.limits import INT64_MAX
from formats.log.batch_headers import TailKind
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import write_entries
from snaprebuild.findings import FindingCause, Severity, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, VerifiedSnapshot, impossible_entries
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState
from snaprebuild.snapshots.verify import PartitionVerdict, VerifyOutcome
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.contradictions import is_certainly_young
from snaprebuild.tier.audit.copy_log import CopyLog, Stretch
from snaprebuild.tier.audit.result import WRONG, CopyAudit, PartitionAudit, ProvenSnapshots, SnapshotVerdict
from snaprebuild.tier.audit.window import WindowOutcome
from snaprebuild.tier.listing import unreadable_objects

__all__ = ["add_findings", "add_verdicts", "keep_proven", "leave_uncompared", "leave_unproven"]

_OF_OBJECTS = frozenset(
    (
        FindingCause.BAD_COPY,
        FindingCause.BROKEN_BATCHES,
        FindingCause.DAMAGED_FILE,
        FindingCause.REFUSED,
        FindingCause.SNAPSHOT_ABOVE_LOG_END,
        FindingCause.STORAGE_FAILED,
        FindingCause.TRANSACTION_INDEX,
        FindingCause.UNSOUND_BOUNDARY,
    )
)
"""Findings of ``verify`` that concern the objects, and not a broker's directory."""

_PROOF = "the log of a replica that begins below it, or snaprebuild follower check, may show which is wrong"


def add_verdicts(log: CopyLog, stretch: Stretch, verdict: PartitionVerdict, clock: Clock, *, is_from_zero: bool) -> None:
    """Adds what the replay of a stretch found to the result of the partition.

    Args:
        log: the copies.
        stretch: that was replayed, or a window of it.
        verdict: of the replay.
        clock: for expiry.
        is_from_zero: the replay began at offset 0.
    """
    audit = log.audit
    outcome = verdict.outcome
    audit.read_bytes += outcome.read_bytes
    audit.limit = audit.limit or outcome.limit
    for each in verdict.findings:
        if outcome.limit is not None and each.severity is Severity.REFUSED:
            continue  # one finding for the whole run
        if (
            each.severity > Severity.FINDING and each.cause is not FindingCause.BAD_COPY
        ):  # a segment next to a bad index proves what it holds
            audit.damaged(each.offset)
        if each.cause in _OF_OBJECTS and each.path != log.audit.remote.base.path:
            audit.findings.append(replace(each, message=f"{audit.name}: {each.message}"))
        elif each.cause in _OF_OBJECTS:
            audit.findings.append(replace(each, path=audit.remote.place))
    times = log.times()
    for snapshot in verdict.outcome.snapshots:
        copy = log.by_name.get(snapshot.name)
        if outcome.limit is not None and snapshot.snapshot_class is None and not snapshot.comparison.proven_wrong:
            continue  # the replay did not reach it
        if copy is not None:
            _settle(copy, snapshot, times.get(snapshot.offset), clock, is_from_zero=is_from_zero)
            if not stretch.is_from_zero:
                copy.unproven = "the copies do not begin at offset 0" if stretch.below is None else stretch.below.reason
    if isinstance(outcome, WindowOutcome):
        _add_standings(log, outcome)
    elif stretch.is_from_zero:
        _add_provable(log, outcome)


def _settle(copy: CopyAudit, snapshot: VerifiedSnapshot, time_ms: int | None, clock: Clock, *, is_from_zero: bool) -> None:
    comparison = snapshot.comparison
    copy.compared(comparison)
    proves_nothing = snapshot.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN)
    if copy.verdict is SnapshotVerdict.RIGHT and proves_nothing:
        assert snapshot.snapshot_class is not None
        copy.settle(
            SnapshotVerdict.UNPROVEN, f"{copy.reason}, and the replay is {snapshot.snapshot_class.value}: it proves nothing here"
        )
    elif copy.verdict is SnapshotVerdict.RIGHT and is_certainly_young(comparison.excused_timestamp, time_ms, clock.expiration_ms):
        # It was wrong when it was written, and no load at this moment shows it any more.
        why = "it differs in producers that had not expired when it was written, and have expired by now"
        copy.settle(SnapshotVerdict.SUSPECT, why)
    elif copy.verdict is SnapshotVerdict.UNPROVEN and is_from_zero and snapshot.snapshot_class is SnapshotClass.EXACT:
        copy.settle(
            SnapshotVerdict.CONSISTENT, "it differs from the replay only in what a producer loses that expires and comes back"
        )
    copy.is_from_zero = is_from_zero and copy.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)


def _add_provable(log: CopyLog, outcome: VerifyOutcome) -> None:
    """Marks the copies at whose end the replay has the exact state."""
    inexact = [each.offset for each in outcome.snapshots if each.snapshot_class not in (SnapshotClass.EXACT, None)]
    least = min(inexact, default=INT64_MAX)
    for each in log.members:
        each.is_provable = each.copy.next_offset in outcome.reached and each.copy.next_offset < least


def _add_standings(log: CopyLog, outcome: WindowOutcome) -> None:
    """Adds what the snapshots of a window show about each other."""
    for name, why in outcome.consistent.items():
        copy = log.by_name[name]
        if copy.verdict is SnapshotVerdict.UNPROVEN:
            copy.settle(SnapshotVerdict.CONSISTENT, why)
    for name, why in outcome.suspect.items():
        log.by_name[name].suspect(why)
    for name, why in outcome.noted.items():
        log.by_name[name].note = why


def leave_uncompared(log: CopyLog) -> None:
    """Makes snapshots unproven that were to be compared with others, and were not."""
    for each in log.members:
        if each.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT) and not each.is_from_zero:
            each.settle(SnapshotVerdict.UNPROVEN, f"{each.reason}, and it was not compared with all others: {log.audit.limit}")


def leave_unproven(log: CopyLog) -> None:
    """Makes snapshots unproven that nothing but a suspect one next to them, or one like it, could prove."""
    for stretch in log.stretches:
        members = log.members_of(stretch)
        if not any(each.verdict is SnapshotVerdict.SUSPECT for each in members):
            continue
        for each in members:
            if each.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT) and not each.is_from_zero:
                reason = f"{each.reason}, and another snapshot of the same copies is suspect"
                each.settle(SnapshotVerdict.UNPROVEN, f"{reason}; {stretch.proof(stretch.start_offset)}")


def keep_proven(
    log: CopyLog, proven: ProvenSnapshots, state: BoundaryState, listed: ListedFile | None, comparison: Comparison | None
) -> None:
    """Keeps the right snapshot of a boundary whose own is wrong, if the replay proves it."""
    copy = log.by_end.get(state.offset) if listed is None else log.by_name.get(listed.name)
    if copy is None or not (comparison is None or comparison.proven_wrong):
        return
    if state.is_cut and state.segment.cut_batch_offset is not None:
        return  # the last copy below a gap ends with a batch, too, and its state is known
    judgement = state.judgement
    if judgement.snapshot_class is not SnapshotClass.EXACT:
        # What was deleted before the first copy may still be in a later snapshot alone.
        copy.unproven = f"the replay is {judgement.snapshot_class.value}: {judgement.reasons[0]}"
    elif state.segment.tail.kind is not TailKind.CLEAN:
        copy.unproven = f"its segment ends with bytes that are not a batch: {state.segment.tail.error}"
    elif (impossible := impossible_entries(state.entries, state.offset)) is not None:
        copy.unproven = f"the replay gives what no broker writes: {impossible}"
    else:
        copy.proven = proven.add(judgement.snapshot_class.value, write_entries(state.entries))


def add_findings(audit: PartitionAudit, level: AuditLevel) -> None:
    """Adds the findings that follow from the verdicts."""
    for copy in audit.copies:
        if copy.verdict is SnapshotVerdict.SUSPECT:
            decides = "--level full may show which" if level is AuditLevel.STRUCTURE else _PROOF
            message = f"{copy.snapshot_name} is suspect: {copy.reason}; {decides}"
            audit.add_finding("tier-suspect-snapshot", Severity.FINDING, message, copy.copy.start_offset)
        if copy.note:
            audit.add_finding("tier-expiry-unknown", Severity.NOTE, f"{copy.snapshot_name}: {copy.note}", copy.copy.start_offset)
        if copy.verdict in WRONG:
            severity = Severity.DAMAGED if copy.verdict is SnapshotVerdict.CORRUPT else Severity.FINDING
            message = f"{copy.snapshot_name} is {copy.verdict}: {copy.reason}{_consequence(copy)}"
            audit.add_finding(
                "tier-wrong-snapshot",
                severity,
                message,
                copy.copy.start_offset,
                copy.verdict.value,
                cause=FindingCause.WRONG_REMOTE_SNAPSHOT,
            )
    for fault, copies in audit.undecrypted.items():
        message = (
            f"{pluralize(len(copies), 'copy', 'copies')} not read; the first, {uuid_to_text(copies[0].copy.segment_id)}, {fault}"
        )
        audit.add_finding("refused", Severity.REFUSED, message, copies[0].copy.start_offset, is_unread=True)
    audit.findings += unreadable_objects(audit.remote.place, iceberg=audit.iceberg)
    if unknown := [each for each in audit.copies if each.verdict is SnapshotVerdict.REACH_UNKNOWN]:
        message = f"{pluralize(len(unknown), 'snapshot')} not judged, because the first offset on the leader's disk is unknown: "
        message += f"add --local-log-start {audit.name}=OFFSET or --log-dir DIR, or use --level full"
        audit.add_finding("tier-reach-unknown", Severity.NOTE, message, unknown[0].copy.start_offset)
    unproven = [each for each in audit.copies if each.verdict is SnapshotVerdict.UNPROVEN]
    if unproven and level is not AuditLevel.STRUCTURE:
        message = f"{pluralize(len(unproven), 'snapshot')} unproven; the first, {unproven[0].snapshot_name}: {unproven[0].reason}"
        audit.add_finding("tier-unproven", Severity.FINDING, message, unproven[0].copy.start_offset)
    unread = [each for each in audit.copies if each.verdict is SnapshotVerdict.NOT_READ]
    if (
        level is AuditLevel.STRUCTURE
    ):  # without a replay each fault of a copy has a finding of its own, but for objects that are missing
        reported = {each.offset for each in audit.findings}
        unread = [each for each in unread if each.copy.start_offset not in reported]
    if unread:
        reason = unread[0].reason or "the replay did not reach it"
        message = f"{pluralize(len(unread), 'snapshot')} not read; the first: {reason}"
        audit.add_finding("tier-not-audited", Severity.FINDING, message, unread[0].copy.start_offset)


def _consequence(copy: CopyAudit) -> str:
    """The consequence for a follower that starts from a wrong snapshot."""
    if not copy.differences:
        return ""
    first = copy.differences[0]
    more = copy.difference_count - 1
    others = f"; and {pluralize(more, 'producer')} more" if more else ""
    return f". A follower that starts from it, of producer {first.producer_id}: {first.consequence}{others}"
