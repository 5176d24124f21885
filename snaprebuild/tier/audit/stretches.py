"""Splits the log that copies make into stretches without a hole.

Offsets that no copy holds, or whose copy is lost or was not read, are a hole. What is above a hole does not follow from what is below, but
it is judged as in a store that begins there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_dir import ListedFile, SegmentFiles
from snaprebuild.tier.audit.result import CopyAudit
from snaprebuild.tier.remote_log_dir import RemoteLogDir

__all__ = ["Hole", "Stretch", "split_at_holes", "stretch_above"]


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
        """It begins at offset 0: a replay is complete."""
        return self.start_offset == 0

    def proof(self, start: int) -> str:
        """What would prove a snapshot that a replay from an offset on does not prove, in words."""
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


def split_at_holes(
    files: RemoteLogDir,
    parts: Sequence[tuple[SegmentFiles, int]],
    snapshots: Sequence[tuple[int, ListedFile]],
    unread: Sequence[CopyAudit],
) -> tuple[Stretch, ...]:
    """The stretches, ascending.

    Args:
        files: of the partition.
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
        directory = files.directory([segment for segment, _ in group], own, end)
        stretches.append(Stretch(files.source(directory), below, above))
    return tuple(stretches)


def _hole(first: int, last: int, unread: Sequence[CopyAudit]) -> Hole:
    for copy in unread:
        if copy.start_offset <= last and (copy.end_offset is None or copy.end_offset >= first):
            return Hole(first, last, f"the copy from {copy.start_offset} on was not read: {copy.reason}", is_recorded=True)
    return Hole(first, last, f"offsets {first} to {last} are in no copy", is_recorded=False)


def _hole_at_the_start(start: int, unread: Sequence[CopyAudit]) -> Hole | None:
    below = [copy for copy in unread if copy.start_offset < start]
    return _hole(min(copy.start_offset for copy in below), start - 1, below) if below else None


def _hole_at_the_end(end: int, unread: Sequence[CopyAudit]) -> Hole | None:
    above = [copy for copy in unread if copy.start_offset >= end]
    if not above:
        return None
    return _hole(end, max(max(copy.start_offset, copy.end_offset or 0) for copy in above), above)


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
