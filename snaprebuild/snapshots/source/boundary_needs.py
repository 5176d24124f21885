"""The boundaries of a partition that need a producer snapshot, and why a boundary gets none: every command counts by it.

A boundary is the base offset of each segment but the first, and the log end offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

import msgspec

from snaprebuild.errors import UsageError
from snaprebuild.findings import pluralize
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_names import TopicKind

__all__ = ["NO_NEEDS", "BoundaryNeeds", "LeftOut", "LeftOutReason", "NeedTotals", "boundary_needs", "reason_not_needed"]


class LeftOut(Enum):
    """The obstacle to a snapshot."""

    NOT_NEEDED = auto()
    """No broker uses a snapshot there."""
    MADE_BY_BROKER = auto()
    """The broker writes it itself, at its next stop or start."""
    MADE_BY_INSTALL = auto()
    """Only at the log end: `install` replays it from the staged state."""
    OLD_REPLICA = auto()
    """The next start deletes the partition, and no broker needs it."""
    LOST_END = auto()
    """Only at the log end, which is below the recovery point: the next start decides what the broker does there."""
    STOPPED_WITHOUT = auto()
    """Only at the log end: no broker writes it any more, and what is staged ends below it."""
    NO_BROKER_FILES = auto()
    """The directory is not a broker's."""
    CLEANER_UNKNOWN = auto()
    """Whether the topic is compacted is unknown."""
    IRREGULAR_NAME = auto()
    """A directory, link or pipe has the name."""
    TOPIC_ID_ZERO = auto()
    """Kafka would upload the segment under topic id zero."""
    DISTRUSTED = auto()
    """The verdict on the replica."""
    REMOVED_AT_START = auto()
    """The next start removes it, or writes it again."""
    NOT_WRITABLE = auto()
    """This process cannot write there."""
    UNSAFE_START = auto()
    """The next start loses the partition, or a part of it."""


_NEEDED_BY_NONE = frozenset((LeftOut.NOT_NEEDED, LeftOut.MADE_BY_BROKER, LeftOut.MADE_BY_INSTALL, LeftOut.OLD_REPLICA))


class LeftOutReason(msgspec.Struct, frozen=True):
    """Why a boundary gets no snapshot.

    Attributes:
        kind: that commands decide by.
        text: a sentence without its stop.
    """

    kind: LeftOut
    text: str

    @property
    def may_be_needed(self) -> bool:
        """Whether a broker may need the snapshot, and does not make it itself."""
        return self.kind not in _NEEDED_BY_NONE


class BoundaryNeeds(msgspec.Struct, frozen=True):
    """The boundaries of a partition that have no snapshot.

    Attributes:
        missing_offsets: of those that need one, ascending.
        not_needed: count of those where no broker uses one.
        made_by_broker: count of those that the broker writes itself, at its next stop or start.
    """

    missing_offsets: tuple[int, ...] = ()
    not_needed: int = 0
    made_by_broker: int = 0


NO_NEEDS = BoundaryNeeds()
"""The needs of a partition without boundaries."""


class NeedTotals(Part, frozen=True):
    """Selected boundaries without a snapshot in the log directories before the run, by need."""

    missing: Natural
    """Boundaries that need a snapshot and have none: the same number in scan, plan, rebuild, verify and report."""
    not_needed: Natural
    """Boundaries without a snapshot where no broker uses one."""
    made_by_broker: Natural
    """Boundaries without a snapshot that the broker writes itself, at its next stop or start."""

    @classmethod
    def of(cls, partitions: Iterable[BoundaryNeeds]) -> NeedTotals:
        """The sums."""
        needs = list(partitions)
        return cls(
            sum(len(each.missing_offsets) for each in needs),
            sum(each.not_needed for each in needs),
            sum(each.made_by_broker for each in needs),
        )


def reason_not_needed(
    partition: PartitionSource, offset: int, *, is_log_end: bool, before_stop: bool = False
) -> LeftOutReason | None:
    """Why the log needs no snapshot from us at a boundary; None where it needs one.

    The reasons are the kind of topic, compaction and the log start offset, and in a broker's directory the recovery point and the log end.
    The age of the segments is none: an upload needs the file of each segment. Where a boundary is below the expiration, only the replay
    is another one (``snapshots.engine.partition_replay``).

    Args:
        partition: the partition.
        offset: the boundary.
        is_log_end: it is the log end offset.
        before_stop: answer for the time after the next clean stop, as for a broker that runs.
    """
    kind = partition.topic_kind
    if kind is not TopicKind.ORDINARY:
        if kind is TopicKind.CLUSTER_METADATA:
            return LeftOutReason(LeftOut.NOT_NEEDED, "the cluster metadata log keeps its own snapshots")
        return LeftOutReason(LeftOut.NOT_NEEDED, "an internal topic is never uploaded to tiered storage")
    if partition.is_compacted:
        return LeftOutReason(LeftOut.NOT_NEEDED, "a compacted topic is never uploaded to tiered storage")
    if offset <= partition.log_start_offset:
        text = f"a broker deletes snapshots at or below the log start offset {partition.log_start_offset}"
        return LeftOutReason(LeftOut.NOT_NEEDED, text)
    if not partition.log_dir.is_broker_directory:
        return None
    if before_stop or partition.is_broker_running:
        if offset <= partition.directory.segments[-1].base_offset:
            return None
        # ``UnifiedLog.close`` takes a snapshot at the log end.
        if partition.is_broker_running or not partition.log_dir.was_shut_down_cleanly:
            return LeftOutReason(
                LeftOut.MADE_BY_BROKER, "the log end moves while the broker runs, and the broker writes this one when it stops"
            )
        return LeftOutReason(
            LeftOut.STOPPED_WITHOUT,
            "the broker stopped cleanly without this one at the log end: it is not staged, and `before-start` writes it",
        )
    if is_log_end and offset < partition.recovery_point:
        return LeftOutReason(LeftOut.LOST_END, "the log ends below its recovery point: its last segment has lost its end")
    if partition.log_dir.was_shut_down_cleanly:
        return None
    if is_log_end:
        return LeftOutReason(
            LeftOut.MADE_BY_BROKER, "the broker was not shut down cleanly: it writes the one at the log end itself"
        )
    # ``LogLoader.recoverSegment`` takes a snapshot after each segment that it recovers.
    if offset > partition.recovery_point:
        text = f"the broker was not shut down cleanly: above its recovery point {partition.recovery_point} it regenerates snapshots"
        return LeftOutReason(LeftOut.MADE_BY_BROKER, text)
    return None


def boundary_needs(
    partition: PartitionSource,
    log_end: int | None,
    takes: Callable[[int], bool] | None = None,
) -> BoundaryNeeds:
    """The boundaries of a partition that have no snapshot, by what they need.

    The log end offset counts only where it needs a snapshot: elsewhere ``scan`` does not know it.

    Args:
        partition: the partition.
        log_end: log end offset; None where it cannot be known.
        takes: whether a boundary is selected; None for all.
    """
    directory = partition.directory
    present = set(directory.snapshot_offsets)
    missing = []
    counts = dict.fromkeys(LeftOut, 0)
    bases = directory.base_offsets
    ends = [log_end] if log_end is not None and bases and log_end > bases[-1] else []
    for offset in (*bases[1:], *ends):
        if offset in present or not (takes is None or takes(offset)):
            continue
        why_not = reason_not_needed(partition, offset, is_log_end=offset == log_end)
        if why_not is None:
            missing.append(offset)
        elif offset not in ends:
            counts[why_not.kind] += 1
    return BoundaryNeeds(tuple(missing), counts[LeftOut.NOT_NEEDED], counts[LeftOut.MADE_BY_BROKER])


def check_selected_boundaries(selection: Selection, partitions: Iterable[tuple[PartitionSource, int | None]]) -> None:
    """Makes sure that a range of offsets names at least one boundary or snapshot.

    Args:
        selection: what is asked for.
        partitions: those of it, with their log end offsets; None where it is not known.

    Raises:
        UsageError: it names none.
    """
    if selection.offset_from is None and selection.offset_to is None:
        return
    offsets: set[int] = set()
    count = 0
    for partition, log_end in partitions:
        directory = partition.directory
        offsets |= set(directory.base_offsets[1:]) | set(directory.snapshot_offsets)
        offsets |= set() if log_end is None else {log_end}
        count += 1
    if not count or any(map(selection.takes_boundary, offsets)):
        return
    there = f"they are from {min(offsets)} to {max(offsets)}" if offsets else "there is none"
    raise UsageError(f"--offsets: no boundary of {pluralize(count, 'selected partition')} is in this range; {there}")
