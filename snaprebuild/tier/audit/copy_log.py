"""The log that the copies of one partition are copies of: joined where they share offsets, and split where it has holes.

Leaders roll their segments at different offsets, and a new leader uploads from where it takes remote storage to end, so that copies
overlap. If the leader epochs of two copies agree at an offset, the records there and all below agree (KIP-101). Therefore the part of a
copy that agrees with the leader epochs of the log belongs to the log. The rest is of another leader, and was truncated since.

Offsets that no copy holds, or whose copy is lost or was not read, are a hole. What is above a hole does not follow from what is below, but
it is judged as in a store that begins there.

Source: ``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``, which takes or leaves a copy as a whole.
"""

from __future__ import annotations

import bisect
import dataclasses
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.remote.object_names import LocalTierFile
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.verify import PartitionVerdict, VerifyOutcome, right_snapshot
from snaprebuild.storage.partition_dir import ListedFile, SegmentFiles
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, SnapshotVerdict
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.remote_partition import RemoteCopy, RemotePartition

if TYPE_CHECKING:
    from snaprebuild.tier.audit.window import WindowOutcome

__all__ = [
    "CopyLog",
    "CopySpan",
    "Hole",
    "LinePart",
    "RemoteLine",
    "Stretch",
    "agreed_end",
    "follow_one_another",
    "join_copies",
    "remote_line",
    "stretch_above",
]

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

Epochs = Sequence[tuple[int, int]]
"""Leader epochs with the first offset of each, ascending."""


# ------------------------------------------------------------------------------------------------ copies that share offsets


@dataclass(frozen=True, slots=True)
class CopySpan:
    """A copy.

    Attributes:
        start_offset: of the segment.
        end_offset: its last one.
        epochs: leader epochs of the segment; the first one begins at its start offset. None if unknown.
        rank: of copies that hold the same, the one with the greatest is taken.
    """

    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    rank: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LinePart:
    """The part of a copy that belongs to the log: it begins at the start offset of the copy.

    Attributes:
        number: of the copy.
        until: offset after the last one that is taken.
    """

    number: int
    until: int


@dataclass(frozen=True, slots=True)
class RemoteLine:
    """A log, joined from copies.

    Attributes:
        parts: ascending; each begins where the one before it ends, or after a gap.
        members: copies all of whose records are of this log, so that their ends are boundaries of it; by number, ascending.
        left_out: why each of the other copies is no member, by number.
    """

    parts: tuple[LinePart, ...] = ()
    members: tuple[int, ...] = ()
    left_out: dict[int, str] = field(default_factory=dict)


def follow_one_another(spans: Sequence[CopySpan]) -> bool:
    """Whether no two copies hold the same offset, and no leader epoch, as far as it is known, follows a later one."""
    reached = -1
    newest = -1
    for span in sorted(spans, key=lambda each: (each.start_offset, each.end_offset)):
        if span.start_offset <= reached or (span.epochs and span.epochs[0][0] < newest):
            return False
        reached = span.end_offset
        newest = span.epochs[-1][0] if span.epochs else newest
    return True


def agreed_end(span: CopySpan, epochs: Epochs) -> int:
    """Offset after the last one that a copy has in common with a log.

    Args:
        span: the copy.
        epochs: of the log. Offsets below the first of them are taken to agree: the log no longer has their epochs.
    """
    end = span.end_offset + 1
    if not epochs:
        return end
    first = epochs[0][1]
    marks = {max(start, span.start_offset) for _, start in (*span.epochs, *epochs) if start < end}
    for offset in sorted(marks):
        if offset >= first and _epoch_at(span.epochs, offset) != _epoch_at(epochs, offset):
            return offset
    return end


def _epoch_at(epochs: Epochs, offset: int) -> int | None:
    """Leader epoch of an offset. If several begin at one offset, the last counts: nothing was written in the others."""
    latest = None
    for epoch, start in epochs:
        if start > offset:
            break
        latest = epoch
    return latest


def remote_line(spans: Sequence[CopySpan], epochs: Epochs) -> RemoteLine:
    """Joins copies.

    Args:
        spans: the copies, in any order.
        epochs: leader epochs of the log that is meant; none if unknown. Without them, copies that share offsets are not joined: the line
            ends before the first that begins in the middle of another one.
    """
    if not epochs:
        return _without_epochs(spans)
    ends = [agreed_end(span, epochs) for span in spans]
    reasons = {
        number: _left_out_reason(spans[number], end, epochs) for number, end in enumerate(ends) if end <= spans[number].end_offset
    }
    members = tuple(number for number in range(len(spans)) if number not in reasons)
    taken = {*members, *_needed_parts(spans, ends, members)}
    usable = sorted(
        (number for number in taken if ends[number] > spans[number].start_offset),
        key=lambda number: (spans[number].start_offset, -ends[number], _preferred(spans[number])),
    )
    chosen = list(_joined(spans, ends, usable))
    following_starts = [*(spans[number].start_offset for number in chosen[1:]), sys.maxsize]
    parts = tuple(LinePart(number, min(ends[number], start)) for number, start in zip(chosen, following_starts, strict=False))
    return RemoteLine(parts, members, reasons)


def _needed_parts(spans: Sequence[CopySpan], ends: Sequence[int], members: Collection[int]) -> set[int]:
    """Copies of which only the beginning is of the log, and that have offsets there that no member has.

    A broker reads from a copy as a whole. Where members have the same offsets, it would go on with records that were truncated since.
    """
    whole = sorted((spans[number].start_offset, ends[number]) for number in members)
    needed = set()
    for number in {*range(len(spans))}.difference(members):
        reached = spans[number].start_offset
        for start, end in whole:
            if start <= reached:
                reached = max(reached, end)
        if reached < ends[number]:
            needed.add(number)
    return needed


def _joined(spans: Sequence[CopySpan], ends: Sequence[int], usable: Sequence[int]) -> Iterator[int]:
    """Copies that make a log: after each, of those that begin within it or right after it, the one that reaches farthest.

    Args:
        spans: all copies.
        ends: of each, offset after the last one that agrees.
        usable: numbers of those that agree in anything, ascending by start offset, and of those with one start the preferred one first.
    """
    reached = -1
    place = 0
    best: int | None = None
    while True:
        while place < len(usable) and (best is None or spans[usable[place]].start_offset <= reached):
            number = usable[place]
            place = place + 1
            key = -ends[number], spans[number].start_offset, _preferred(spans[number])
            if best is None or key < (-ends[best], spans[best].start_offset, _preferred(spans[best])):
                best = number
        if best is not None and ends[best] > reached:
            reached = ends[best]
            yield best
        elif place < len(usable):  # after a gap
            best = None
        else:
            return


def _preferred(span: CopySpan) -> tuple[int, ...]:
    """The key that sorts the copy of the newest leader first, and of its copies the newest."""
    return tuple(-number for number in span.rank)


def _left_out_reason(span: CopySpan, end: int, epochs: Epochs) -> str:
    own = _epoch_at(span.epochs, end)
    other = _epoch_at(epochs, end)
    if own is None:
        return f"the leader epoch of its records from {end} on is unknown, and other copies share offsets"
    what = f"from {end} on its records are of leader epoch {own}, and those of the log of {'none' if other is None else other}"
    return f"{what}: its snapshot belongs to another line of leaders"


def _without_epochs(spans: Sequence[CopySpan]) -> RemoteLine:
    order = sorted(range(len(spans)), key=lambda number: (spans[number].start_offset, _preferred(spans[number])))
    parts: list[LinePart] = []
    members: list[int] = []
    reasons: dict[int, str] = {}
    broken: int | None = None
    for number in order:
        span = spans[number]
        reached = parts[-1].until if parts else 0
        if broken is not None or (parts and span.start_offset < reached <= span.end_offset):
            broken = span.start_offset if broken is None else broken
            reasons[number] = f"it begins in the middle of another copy: from {broken} on copies are not joined"
            continue
        if span.end_offset < reached:
            reasons[number] = "other copies hold all of its offsets, and whether they are of the same leaders is unknown"
            continue
        members.append(number)
        parts.append(LinePart(number, span.end_offset + 1))
    return RemoteLine(tuple(parts), tuple(sorted(members)), reasons)


# -------------------------------------------------------------------------------------------------------------------- holes


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that are not replayed.

    Attributes:
        first_offset: of the hole.
        last_offset: of the hole.
        reason: in words.
        is_recorded: a copy of them is known, which has a finding of its own.
    """

    first_offset: int
    last_offset: int
    reason: str
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Copies that follow one another.

    Attributes:
        source: the copies as a partition directory.
        below: the hole below; None if the stretch begins at offset 0, or where retention has deleted everything below.
        above: the hole above; None for the newest copies.
    """

    source: PartitionSource
    below: Hole | None
    above: Hole | None

    @property
    def start_offset(self) -> int:
        """First offset."""
        return self.source.directory.segments[0].base_offset

    @property
    def is_from_zero(self) -> bool:
        """The log begins at offset 0: a replay is complete."""
        return self.start_offset == 0

    def proof(self, start: int) -> str:
        """The evidence that would prove a snapshot where a replay from an offset on does not, in words."""
        first = self.start_offset
        if first == 0:
            return "--level full replays the copies below, too, and proves it"
        below = f"--level full replays from {first} on, which may prove more; " if first < start else ""
        others = "the log of a replica that begins below (snapshots in it: snaprebuild verify), or snaprebuild follower check"
        what = f"records deleted below {first} are in no copy" if self.below is None else self.below.reason
        return f"{below}{what}: {others} would prove it"

    def holds_boundary(self, offset: int) -> bool:
        """Whether a boundary is in it."""
        end = self.source.directory.log_end_offset
        return self.start_offset < offset and (end is None or offset <= end)


def _split_at_holes(
    remote: RemotePartition,
    parts: Sequence[tuple[SegmentFiles, int]],
    snapshots: Sequence[tuple[int, ListedFile]],
    unread: Sequence[CopyAudit],
) -> tuple[Stretch, ...]:
    """The stretches, ascending.

    Args:
        remote: the partition.
        parts: segments in the order of the log, each with the offset after the last one that is taken of it.
        snapshots: of the log, by offset.
        unread: copies that are not among the parts, because they are lost or could not be read.
    """
    groups: list[list[tuple[SegmentFiles, int]]] = []
    for segment, until in parts:
        if groups and groups[-1][-1][1] == segment.base_offset:
            groups[-1].append((segment, until))
        else:
            groups.append([(segment, until)])
    bounds = [(group[0][0].base_offset, group[-1][1]) for group in groups]
    stretches = []
    for number, (group, (start, end)) in enumerate(zip(groups, bounds, strict=True)):
        below = _hole(bounds[number - 1][1], start - 1, unread) if number else _hole_at_the_start(start, unread)
        above = _hole(end, bounds[number + 1][0] - 1, unread) if number + 1 < len(bounds) else _hole_at_the_end(end, unread)
        own = [each for each in snapshots if start < each[0] <= end]
        directory = remote.directory([segment for segment, _ in group], own, end)
        stretches.append(Stretch(remote.source(directory), below, above))
    return tuple(stretches)


def _hole(first: int, last: int, unread: Sequence[CopyAudit]) -> Hole:
    for each in unread:
        start = each.copy.start_offset
        end = each.copy.end_offset
        if start <= last and (end is None or end >= first):
            return Hole(first, last, f"the copy from {start} on was not read: {each.reason}", is_recorded=True)
    return Hole(first, last, f"offsets {first} to {last} are in no copy", is_recorded=False)


def _hole_at_the_start(start: int, unread: Sequence[CopyAudit]) -> Hole | None:
    below = [each for each in unread if each.copy.start_offset < start]
    if below:
        return _hole(min(each.copy.start_offset for each in below), start - 1, below)
    return None


def _hole_at_the_end(end: int, unread: Sequence[CopyAudit]) -> Hole | None:
    above = [each for each in unread if each.copy.start_offset >= end]
    if not above:
        return None
    return _hole(end, max(max(each.copy.start_offset, each.copy.end_offset or 0) for each in above), above)


def stretch_above(stretch: Stretch, offset: int, reason: str) -> Stretch | None:
    """The part of a stretch above a damaged segment; None without any.

    Args:
        stretch: a replay of which ended.
        offset: segments that begin here or above are wanted.
        reason: in words, what is wrong below.
    """
    directory = stretch.source.directory
    rest = tuple(each for each in directory.segments if each.base_offset >= offset)
    if not rest or len(rest) == len(directory.segments):
        return None
    start = rest[0].base_offset
    snapshots = tuple(each for each in directory.snapshots if each[0] > start)
    source = replace(stretch.source, directory=dataclasses.replace(directory, segments=rest, snapshots=snapshots))
    return Stretch(
        source,
        Hole(min(offset, start - 1), start - 1, f"the copy below {start} is damaged: {reason}", is_recorded=True),
        stretch.above,
    )


# ------------------------------------------------------------------------------------------------------------------ the log


@dataclass(frozen=True, slots=True)
class CopyLog:
    """Copies of one partition, joined to the log that they are copies of.

    Attributes:
        audit: of the partition.
        copies: those that can be read.
        line: which of them, and how much of each.
        stretches: the log without its holes; none if no copy can be read.
        by_name: the copies, by name of the snapshot in that directory.
        by_end: copies without a snapshot, by the offset after their end.
    """

    audit: PartitionAudit
    copies: Sequence[CopyAudit]
    line: RemoteLine
    stretches: tuple[Stretch, ...]
    by_name: dict[str, CopyAudit]
    by_end: dict[int, CopyAudit]

    @property
    def parts(self) -> list[CopyAudit]:
        """The copies that are replayed, in the order of the log."""
        return [self.copies[part.number] for part in self.line.parts]

    @property
    def members(self) -> list[CopyAudit]:
        """The copies whose ends are boundaries of the log."""
        members = [self.copies[number] for number in self.line.members]
        return sorted(members, key=lambda each: (each.copy.next_offset, each.copy.start_offset))

    @property
    def begins_by_retention(self) -> bool:
        """Whether it has no hole, and retention has deleted what was below its first copy."""
        if len(self.stretches) != 1:
            return False
        (stretch,) = self.stretches
        return not stretch.is_from_zero and stretch.below is None and stretch.above is None

    def members_of(self, stretch: Stretch) -> list[CopyAudit]:
        """The members whose ends are in a stretch."""
        return [each for each in self.members if stretch.holds_boundary(each.copy.next_offset)]

    def parts_of(self, stretch: Stretch) -> list[CopyAudit]:
        """The copies of a stretch that are replayed."""
        bases = set(stretch.source.directory.base_offsets)
        return [each for each in self.parts if each.copy.start_offset in bases]

    def times(self) -> dict[int, int | None]:
        """Largest timestamp below the end of each member, by that end; None if one below is unknown."""
        times: dict[int, int | None] = {}
        largest: int | None = 0
        for each in self.members:
            timestamp_ms = each.copy.max_timestamp_ms
            largest = None if largest is None or timestamp_ms is None else max(largest, timestamp_ms)
            times[each.copy.next_offset] = largest
        return times

    def take_verdicts(self, stretch: Stretch, verdict: PartitionVerdict, clock: Clock, *, is_from_zero: bool) -> None:
        """Adds what the replay of a stretch found to the result of the partition.

        Args:
            stretch: that was replayed, or a window of it.
            verdict: of the replay.
            clock: for expiry.
            is_from_zero: the replay began at offset 0.
        """
        audit = self.audit
        outcome = verdict.outcome
        audit.read_bytes += outcome.read_bytes
        audit.limit = audit.limit or outcome.limit
        is_unread = any(each.is_unread for each in verdict.findings)
        audit.lost_file = audit.lost_file or outcome.lost_file or outcome.lost_snapshot or is_unread
        for each in verdict.findings:
            if outcome.limit is not None and each.severity is Severity.REFUSED:
                continue  # one finding for the whole run
            if (
                each.severity > Severity.FINDING and each.cause is not FindingCause.BAD_COPY
            ):  # a segment next to a bad index proves what it holds
                audit.damaged(each.offset)
            if each.cause in _OF_OBJECTS and each.severity is Severity.DAMAGED:
                audit.damaged_ids.add(self._concerned(each).segment_id)
            if each.cause in _OF_OBJECTS and each.path != self.audit.remote.base.path:
                audit.findings.append(replace(each, message=f"{audit.name}: {each.message}"))
            elif each.cause in _OF_OBJECTS:
                audit.findings.append(replace(each, path=audit.remote.place))
        times = self.times()
        for snapshot in verdict.outcome.snapshots:
            copy = self.by_name.get(snapshot.name)
            if outcome.limit is not None and snapshot.snapshot_class is None and not snapshot.comparison.proven_wrong:
                continue  # the replay did not reach it
            if copy is not None:
                copy.take_replayed(snapshot, times.get(snapshot.offset), clock, is_from_zero=is_from_zero)
                if not stretch.is_from_zero:
                    below = "the copies do not begin at offset 0" if stretch.below is None else stretch.below.reason
                    copy.unproven = f"{below}, and no two other snapshots confirm the state here"

    def _concerned(self, finding: Finding) -> RemoteCopy:
        """The copy that a finding of a replay is about: by the object, or by the offset where the finding names none."""
        remote = self.audit.remote
        for each in self.copies:
            if finding.path.startswith(remote.file_path(each.copy).removesuffix(LocalTierFile.LOG)):
                return each.copy
        parts = self.parts
        starts = [each.copy.start_offset for each in parts]
        return parts[max(bisect.bisect_right(starts, finding.offset or 0) - 1, 0)].copy

    def take_right(self, outcome: VerifyOutcome) -> None:
        """Takes the SHA-256 of the right snapshots of wrong copies, and why there is none."""
        for each in self.members:
            offset = each.copy.next_offset
            if each.verdict in WRONG and each.right_sha256 is None:
                each.right_sha256 = outcome.right_sha256.get(offset)
                each.unproven = outcome.unproven_reasons.get(offset, each.unproven)

    def take_proven(self, outcome: WindowOutcome, proven: ProvenSnapshots | None) -> None:
        """Marks the copies that a window was replayed on, and keeps the right snapshots that two others confirm, if they are wanted."""
        for each in self.members:
            offset = each.copy.next_offset
            each.is_exact = each.is_exact or offset in outcome.exact_bases
            if proven is not None and each.verdict in WRONG and offset in outcome.proven:
                each.proven = proven.add(SnapshotClass.EXACT.value, outcome.proven[offset])

    def take_standings(self, consistent: Mapping[str, str], suspect: Mapping[str, str], noted: Mapping[str, str]) -> None:
        """Adds what the snapshots of a window show about each other: reasons by name of the snapshot."""
        for name, why in consistent.items():
            copy = self.by_name[name]
            if copy.verdict is SnapshotVerdict.UNPROVEN:
                copy.settle(SnapshotVerdict.CONSISTENT, why)
        for name, why in suspect.items():
            self.by_name[name].suspect(why)
        for name, why in noted.items():
            self.by_name[name].note = why

    def leave_uncompared(self) -> None:
        """Makes snapshots unproven that were to be compared with others, and were not."""
        for each in self.members:
            if each.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT) and not each.is_from_zero:
                each.settle(SnapshotVerdict.UNPROVEN, f"{each.reason}, and it was not compared with all others: {self.audit.limit}")

    def leave_unproven(self) -> None:
        """Makes snapshots unproven that nothing but a suspect one next to them, or one like it, could prove."""
        for stretch in self.stretches:
            members = self.members_of(stretch)
            if not any(each.verdict is SnapshotVerdict.SUSPECT for each in members):
                continue
            for each in members:
                if each.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT) and not each.is_from_zero:
                    reason = f"{each.reason}, and another snapshot of the same copies is suspect"
                    each.settle(SnapshotVerdict.UNPROVEN, f"{reason}; {stretch.proof(stretch.start_offset)}")

    def keep_proven(
        self, proven: ProvenSnapshots, state: BoundaryState, listed: ListedFile | None, comparison: Comparison | None
    ) -> None:
        """Keeps the right snapshot of a boundary whose own is wrong, if the replay proves it."""
        copy = self.by_end.get(state.offset) if listed is None else self.by_name.get(listed.name)
        if copy is None or not (comparison is None or comparison.proven_wrong):
            return
        right = right_snapshot(state)
        if isinstance(right, bytes):
            copy.proven = proven.add(state.judgement.snapshot_class.value, right)


def join_copies(audit: PartitionAudit, readable: Sequence[CopyAudit]) -> CopyLog:
    """Joins copies whose ends are known to one log."""
    epochs: tuple[tuple[int, int], ...] = ()
    if not follow_one_another([_span_of(each.copy) for each in readable]):
        for each in readable:
            audit.remote.try_read_epochs(each.copy)
        newest = max(readable, key=lambda each: (_last_epoch(each.copy), each.copy.next_offset, each.copy.event_timestamp_ms))
        entries = audit.remote.known_log_epochs(newest.copy) or newest.copy.leader_epochs
        epochs = tuple((each.epoch, each.start_offset) for each in entries)
    line = remote_line([_span_of(each.copy) for each in readable], epochs)
    for number, reason in line.left_out.items():
        readable[number].not_read(reason)
    log = CopyLog(audit, readable, line, (), {}, {})
    if not line.parts:
        return log
    segments = []
    for part in line.parts:
        copy = readable[part.number].copy
        segments.append((audit.remote.segment_files(copy, until=part.until if part.until < copy.next_offset else None), part.until))
    snapshots = []
    for each in log.members:
        listed = audit.remote.snapshot_file(each.copy)
        if listed is None:
            log.by_end[each.copy.next_offset] = each
        else:
            log.by_name[listed.name] = each
            snapshots.append((each.copy.next_offset, listed))
    there = {id(each) for each in readable}
    unread = [each for each in audit.copies if id(each) not in there]
    return dataclasses.replace(log, stretches=_split_at_holes(audit.remote, segments, snapshots, unread))


def _span_of(copy: RemoteCopy) -> CopySpan:
    """A copy whose end is known, for ``remote_line``."""
    epochs = tuple((each.epoch, each.start_offset) for each in copy.leader_epochs)
    return CopySpan(copy.start_offset, copy.next_offset - 1, epochs, (_last_epoch(copy), copy.event_timestamp_ms))


def _last_epoch(copy: RemoteCopy) -> int:
    """The last leader epoch of a copy; -1 if its epochs are unknown."""
    return copy.leader_epochs[-1].epoch if copy.leader_epochs else -1
