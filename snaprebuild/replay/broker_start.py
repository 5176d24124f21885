"""What a broker since 2.8 does with the snapshot files of a partition when it loads the log: removes, loads, writes.

A pure model: offsets in, offsets out. Each step of Kafka is a method of its own, so that it can be compared with Kafka step by step;
``broker_start`` puts them together as ``LogLoader.load`` does. It answers what becomes of a file that stands in the directory now, and
where a broker writes EMPTY snapshots by itself because it knows none after a clean stop.

Source: ``ProducerStateManager`` (``removeStraySnapshots``, ``truncateAndReload``, ``takeSnapshot``), ``UnifiedLog.rebuildProducerState``,
``LogLoader.load``, ``LogLoader.recoverLog``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "BrokerStart",
    "LoadedLog",
    "SnapshotFiles",
    "SnapshotOrigin",
    "broker_start",
    "loaded_log_start",
]


class SnapshotOrigin(Enum):
    """Where a file comes from that is there after the start."""

    KEPT = "kept"
    """It was there before."""
    EMPTY = "empty"
    """Written by the broker without a look at the log: no entries, whatever the log says."""
    REBUILT = "rebuilt"
    """Written by the broker from a replay, which began at the snapshot that it loaded, or at the log start."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A partition as a broker finds it.

    Attributes:
        base_offsets: of the segments, ascending; at least one.
        checkpointed_log_start: the log start offset of the broker's checkpoint, 0 where it has none.
        log_end: the log end offset.
        snapshots: offset of each snapshot file, and whether it parses.
        is_clean: whether the broker stopped cleanly.
        recovery_point: below this offset everything was flushed; counts after an unclean stop.
        without_index: base offsets of segments that have no ``.index``, which are recovered in any case.
        is_tiered: remote storage is on: the log start may lie below the first segment on disk.
    """

    base_offsets: tuple[int, ...]
    checkpointed_log_start: int
    log_end: int
    snapshots: Mapping[int, bool]
    is_clean: bool
    recovery_point: int = 0
    without_index: frozenset[int] = frozenset()
    is_tiered: bool = False

    @property
    def is_deleted_at_start(self) -> bool:
        """Whether the broker deletes all segments, because they end below the log start, and begins a log without records there."""
        return self.log_end < self.checkpointed_log_start


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """What a start does.

    Attributes:
        after: offset and origin of each snapshot file that is there afterwards, ascending.
        stray: offsets of files removed because no segment begins there.
        out_of_range: offsets of files removed because they are not between log start (excluded) and the end of what is being loaded.
        corrupt: offsets of files removed because they did not parse when they were to be loaded.
        loaded: offset of the snapshot that the state is taken from; None when it begins empty.
        replayed_from: where the final replay begins; None when there is none.
    """

    after: tuple[tuple[int, SnapshotOrigin], ...]
    stray: tuple[int, ...]
    out_of_range: tuple[int, ...]
    corrupt: tuple[int, ...]
    loaded: int | None
    replayed_from: int | None

    @property
    def written_empty(self) -> tuple[int, ...]:
        """Offsets at which the broker writes empty snapshots without a replay."""
        return tuple(offset for offset, origin in self.after if origin is SnapshotOrigin.EMPTY)

    @property
    def rebuilt(self) -> tuple[int, ...]:
        """Offsets at which the broker writes what its replay gave."""
        return tuple(offset for offset, origin in self.after if origin is SnapshotOrigin.REBUILT)


class SnapshotFiles:
    """The snapshot files of one directory, and a ``ProducerStateManager`` working on them.

    It works at the upper end: what is removed lies above the wanted offset (or once below the log start), what is written lies above all
    that is left. So each step costs no more than the files and segments that it changes.
    """

    def __init__(self, snapshots: Mapping[int, bool]) -> None:
        self.files: dict[int, SnapshotOrigin] = dict.fromkeys(snapshots, SnapshotOrigin.KEPT)
        self._offsets = sorted(snapshots)
        self._faulty = {offset for offset, parses in snapshots.items() if not parses}
        self.stray: list[int] = []
        self.out_of_range: list[int] = []
        self.corrupt: list[int] = []
        self.loaded: int | None = None
        self.replayed_from: int | None = None
        self._map_end = 0
        self._last_snapshot = 0

    def new_manager(self) -> None:
        """A new ``ProducerStateManager``: no producers, both offsets 0."""
        self._map_end = self._last_snapshot = 0
        self.loaded = self.replayed_from = None

    def remove_stray(self, base_offsets: Iterable[int]) -> None:
        """``removeStraySnapshots``: of those at no base offset only the largest may stay, where it is at or above the largest base offset.

        That one is what a clean stop wrote at the log end.
        """
        bases = set(base_offsets)
        stray = [offset for offset in self._offsets if offset not in bases]
        if stray and (not bases or stray[-1] >= max(bases)):
            stray.pop()
        gone = set(stray)
        self._offsets = [offset for offset in self._offsets if offset not in gone]
        self._forget(stray, self.stray)

    def truncate_and_reload(self, log_start: int, end: int) -> None:
        """``truncateAndReload``: drops what is out of range, then loads the newest file that parses."""
        self._remove(bisect_right(self._offsets, end), len(self._offsets), self.out_of_range)
        self._remove(0, bisect_right(self._offsets, log_start), self.out_of_range)
        if end != self._map_end:
            self._load(log_start)
        else:
            self._map_end = max(self._map_end, log_start)
            self._last_snapshot = self._offsets[-1] if self._offsets else log_start

    def _load(self, log_start: int) -> None:
        """``loadFromSnapshot``: a file that does not parse is deleted, and the next lower one is tried."""
        while self._offsets:
            newest = self._offsets[-1]
            if newest not in self._faulty:
                self.loaded = self._map_end = self._last_snapshot = newest
                return
            self._remove(len(self._offsets) - 1, len(self._offsets), self.corrupt)
        self.loaded = None
        self._map_end = self._last_snapshot = log_start

    def take(self, offset: int, origin: SnapshotOrigin) -> None:
        """``updateMapEndOffset`` and ``takeSnapshot``: writes only above the last one taken or loaded, so never at offset 0."""
        self._map_end = offset
        if offset > self._last_snapshot:
            assert not self._offsets or offset > self._offsets[-1]
            self.files[offset] = origin
            self._offsets.append(offset)
            self._last_snapshot = offset

    def rebuild(
        self, base_offsets: Sequence[int], log_start: int, end: int, *, trusts_stop: bool, segments: int | None = None
    ) -> None:
        """``rebuildProducerState``: brings the state to ``end``, from the newest snapshot or, where it trusts the stop, from nothing.

        Args:
            base_offsets: of the segments, ascending.
            log_start: the log start offset.
            end: the state is wanted at this offset.
            trusts_stop: after a clean stop: no snapshot known means no producer to know.
            segments: how many of them are loaded at this moment, None for all.
        """
        segments = len(base_offsets) if segments is None else segments
        wanted = [*base_offsets[max(segments - 2, 0) : segments], end]
        if trusts_stop and not self.files:
            for offset in wanted:
                self.take(offset, SnapshotOrigin.EMPTY)
            return
        was_empty = self._map_end >= end
        self.truncate_and_reload(log_start, end)
        if end > self._map_end and not was_empty:
            self.replayed_from = max(self._map_end, log_start)
            first = max(0, bisect_right(base_offsets, self._map_end, hi=segments) - 1)
            for base_offset in base_offsets[first : bisect_left(base_offsets, end, hi=segments)]:
                start = max(base_offset, self._map_end, log_start)
                if base_offset in wanted:
                    self.take(start, SnapshotOrigin.REBUILT)
                self._map_end = start
        self.take(end, SnapshotOrigin.REBUILT)

    def recover_segment(
        self, base_offsets: Sequence[int], log_start: int, base_offset: int, record_end: int, *, segments: int | None = None
    ) -> None:
        """``LogLoader.recoverSegment``: a state of its own up to the segment, the segment folded, a snapshot behind its last batch.

        This removes every snapshot above the segment, whoever wrote it.
        """
        self.new_manager()
        self.rebuild(base_offsets, log_start, base_offset, trusts_stop=False, segments=segments)
        self.take(record_end, SnapshotOrigin.REBUILT)

    def remove_all(self) -> None:
        """``truncateFullyAndStartAt``: where ``recoverLog`` deletes the segments, as they end below the log start."""
        self._remove(0, len(self._offsets), self.out_of_range)

    def _remove(self, first: int, stop: int, why: list[int]) -> None:
        """Those at ``first`` up to ``stop`` in their order."""
        if first < stop:
            self._forget(self._offsets[first:stop], why)
            del self._offsets[first:stop]

    def _forget(self, offsets: Iterable[int], why: list[int]) -> None:
        for offset in offsets:
            if self.files.pop(offset) is SnapshotOrigin.KEPT:
                # What the broker wrote itself a moment before is not the caller's concern.
                why.append(offset)
            self._faulty.discard(offset)


def loaded_log_start(checkpointed: int, first_base: int, *, is_tiered: bool) -> int:
    """The log start offset of a log once it is loaded (``LogLoader.load``).

    Only remote storage holds what lies below the first segment on disk.

    Args:
        checkpointed: the log start offset of the broker's checkpoint, 0 where it has none.
        first_base: base offset of the first segment.
        is_tiered: remote storage is on.
    """
    return checkpointed if is_tiered else max(checkpointed, first_base)


def broker_start(log: LoadedLog) -> BrokerStart:
    """What becomes of the snapshots of a partition at the next start of its broker.

    Raises:
        ValueError: a log without segments; a broker creates one before anything else.
    """
    if not log.base_offsets:
        raise ValueError("a log without segments")
    files = SnapshotFiles(log.snapshots)
    _recover(files, log)
    bases, end = log.base_offsets, log.log_end
    if log.is_deleted_at_start:
        files.remove_all()
        bases, end = (log.checkpointed_log_start,), log.checkpointed_log_start
    files.new_manager()
    files.remove_stray(bases)
    log_start = loaded_log_start(log.checkpointed_log_start, bases[0], is_tiered=log.is_tiered)
    files.rebuild(bases, log_start, end, trusts_stop=log.is_clean)
    return BrokerStart(
        after=tuple(sorted(files.files.items())),
        stray=tuple(sorted(files.stray)),
        out_of_range=tuple(sorted(files.out_of_range)),
        corrupt=tuple(sorted(files.corrupt)),
        loaded=files.loaded,
        replayed_from=files.replayed_from,
    )


def _recover(files: SnapshotFiles, log: LoadedLog) -> None:
    """Segments without an index (``loadSegmentFiles``), then after an unclean stop all from the recovery point on (``recoverLog``)."""
    ends = dict(zip(log.base_offsets, (*log.base_offsets[1:], log.log_end), strict=True))
    for at, base_offset in enumerate(log.base_offsets):
        if base_offset in log.without_index:
            # The segments are loaded one by one, and this one is recovered before it is added.
            files.recover_segment(log.base_offsets, log.checkpointed_log_start, base_offset, ends[base_offset], segments=at)
    if not log.is_clean:
        # The segment that holds the recovery point is recovered too (`LogSegments.values` begins with the floor segment).
        first = max(0, bisect_right(log.base_offsets, log.recovery_point) - 1)
        for base_offset in log.base_offsets[first:]:
            files.recover_segment(log.base_offsets, log.checkpointed_log_start, base_offset, ends[base_offset])
