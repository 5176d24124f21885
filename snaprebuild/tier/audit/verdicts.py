"""Takes the verdicts of a replay for the copies of one partition, and names what is wrong with them."""

from __future__ import annotations

from msgspec.structs import replace

from formats.log.batch_headers import TailKind
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import write_entries
from snaprebuild.findings import Severity, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, impossible_entries
from snaprebuild.snapshots.engine.boundary_state import BoundaryState
from snaprebuild.snapshots.verify import PartitionVerdict, SnapshotVerdict
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.readable_copies import BAD_COPY, CopyLog, PartitionCopies
from snaprebuild.tier.audit.result import WRONG, AuditedCopy, ProvenSnapshots, Verdict
from snaprebuild.tier.listing import unreadable_objects

__all__ = ["add_findings", "add_verdicts", "keep_proven"]

_OBJECT_CODES = frozenset(
    (
        *("damaged-segment", "damaged-file", "refused", "storage-failed", "unforeseen-error", "bad-checksum", "unsound-boundary"),
        *(BAD_COPY, "transaction-index-differs", "unreadable-transaction-index", "disordered-offsets", "snapshot-above-log-end"),
    )
)
"""Findings of ``verify`` that concern the objects, and not a broker's directory."""


def add_verdicts(log: CopyLog, verdict: PartitionVerdict) -> None:
    """Adds what a replay found to the result of the partition."""
    audited = log.audited
    audited.bytes_read = verdict.outcome.bytes_read
    for each in verdict.findings:
        if each.severity > Severity.FINDING and each.code != BAD_COPY:  # a segment next to a bad index proves what it holds
            audited.damaged(each.offset)
        if each.code in _OBJECT_CODES and each.path != log.files.root:
            audited.findings.append(replace(each, message=f"{audited.name}: {each.message}"))
        elif each.code in _OBJECT_CODES:
            audited.findings.append(replace(each, path=audited.place))
    for snapshot in verdict.snapshots:
        copy = log.by_name.get(snapshot.name)
        if copy is None:
            continue
        copy.compared(snapshot.comparison)
        if copy.verdict is Verdict.RIGHT and (why := _why_unproven(log, snapshot)) is not None:
            copy.settle(Verdict.UNPROVEN, f"{copy.why}, and {why}")
        if audited.replayed_from:
            copy.unproven = "the copies do not begin at offset 0"


def _why_unproven(log: CopyLog, snapshot: SnapshotVerdict) -> str | None:
    """Why the replay does not prove a snapshot that equals it; None where it does."""
    lost = _gap_below(log, snapshot.offset)
    if lost is not None:
        return f"the copy of offsets {lost.start_offset} to {lost.end_offset} is lost"
    if snapshot.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN):
        return f"the replay is {snapshot.snapshot_class.value}: it proves nothing here"
    return None


def _gap_below(log: CopyLog, offset: int) -> AuditedCopy | None:
    """A lost copy below an offset, some of whose offsets no other copy holds."""
    for lost in log.lost:
        assert lost.end_offset is not None
        parts = ((log.copies[part.number].copy.base_offset, part.until) for part in log.line.parts)
        held = sum(max(min(until, lost.end_offset + 1) - max(start, lost.start_offset), 0) for start, until in parts)
        if lost.start_offset < offset and held <= lost.end_offset - lost.start_offset:
            return lost
    return None


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


def add_findings(found: PartitionCopies, level: AuditLevel) -> None:
    """Adds the findings that follow from the verdicts."""
    audited = found.audited
    for copy in audited.copies:
        if copy.verdict is Verdict.SUSPECT:
            message = f"{copy.snapshot_name} is suspect: {copy.why}; --level full proves whether it is wrong"
            audited.add_finding("tier-suspect-snapshot", Severity.FINDING, message, copy.start_offset)
        if copy.verdict in WRONG:
            severity = Severity.DAMAGED if copy.verdict is Verdict.CORRUPT else Severity.FINDING
            message = f"{copy.snapshot_name} is {copy.verdict}: {copy.why}{_consequence(copy)}"
            audited.add_finding("tier-wrong-snapshot", severity, message, copy.start_offset, copy.verdict.value)
    for fault, copies in found.undecrypted.items():
        message = f"{pluralize(len(copies), 'copy', 'copies')} not read; the first, {uuid_to_text(copies[0].segment_id)}, {fault}"
        audited.add_finding("refused", Severity.REFUSED, message, copies[0].base_offset, is_unread=True)
    audited.findings += unreadable_objects(audited.place, iceberg=found.iceberg)
    if unknown := [each for each in audited.copies if each.verdict is Verdict.REACH_UNKNOWN]:
        message = f"{pluralize(len(unknown), 'snapshot')} not judged, because the first offset on the leader's disk is unknown: "
        message += f"add --local-log-start {audited.name}=OFFSET or --log-dir DIR, or use --level full"
        audited.add_finding("tier-reach-unknown", Severity.NOTE, message, unknown[0].start_offset)
    unread = [each for each in audited.copies if each.verdict is Verdict.NOT_READ]
    if unread and level is not AuditLevel.STRUCTURE:
        why = unread[0].why or "the replay did not reach it"
        message = f"{pluralize(len(unread), 'snapshot')} not read; the first: {why}"
        audited.add_finding("tier-not-audited", Severity.FINDING, message, unread[0].start_offset)


def _consequence(copy: AuditedCopy) -> str:
    """The consequence for a follower that starts from a wrong snapshot."""
    if not copy.differences:
        return ""
    first, more = copy.differences[0], copy.difference_count - 1
    others = f"; and {pluralize(more, 'producer')} more" if more else ""
    return f". A follower that starts from it, of producer {first.producer_id}: {first.consequence}{others}"
