"""Which snapshot files of a partition a broker since 2.8 removes, loads and writes when it loads the log.

A pure model: offsets in, offsets out. Each step of Kafka is a method, so that it can be compared with Kafka step by step; ``broker_start``
calls them as ``LogLoader.load`` does. It shows whether a file that is in the directory now will survive, and where a broker writes EMPTY
snapshots because it finds none after a clean stop. These steps are the same in each release, whose own code
``tests/broker/test_kept_snapshots.py`` runs. Which segments a release recovers is an input.

Source: ``ProducerStateManager`` (``removeStraySnapshots``, ``truncateAndReload``, ``takeSnapshot``), ``UnifiedLog.rebuildProducerState``,
``LogLoader.load``, ``LogLoader.recoverLog``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

__all__ = [
    "BrokerStart",
    "LoadedLog",
    "SnapshotFiles",
    "SnapshotOrigin",
    "broker_start",
    "loaded_log_start",
]


class SnapshotOrigin(Enum):
    """The origin of a file that is there after the start."""

    KEPT = "kept"
    """The file was there before."""
    EMPTY = "empty"
    """Written by the broker without reading the log: no entries, whatever the log has."""
    REBUILT = "rebuilt"
    """Written by the broker from a replay that began at the snapshot that it loaded, or at the log start."""


class LoadedLog(msgspec.Struct, frozen=True):
    """A partition as a broker finds it.

    Attributes:
        base_offsets: of the segments, ascending; at least one.
        checkpointed_log_start_offset: the log start offset of the broker's checkpoint, 0 if it has none.
        snapshots: offset of each snapshot file, and whether it parses.
        is_clean: whether the broker stopped cleanly.
        recovery_point: below this offset everything was flushed; used after an unclean stop.
        without_index: base offsets of segments without an ``.index``, which are always recovered.
        is_tiered: remote storage is on: the log start may be below the first segment on disk.
    """

    base_offsets: tuple[int, ...]
    checkpointed_log_start_offset: int
    log_end_offset: int
    snapshots: Mapping[int, bool]
    is_clean: bool
    recovery_point: int = 0
    without_index: frozenset[int] = frozenset()
    is_tiered: bool = False

    @property
    def is_deleted_at_start(self) -> bool:
        """Whether the broker deletes all segments, because they end below the log start, and creates an empty log there."""
        return self.log_end_offset < self.checkpointed_log_start_offset


class BrokerStart(msgspec.Struct, frozen=True):
    """The effect of a start on the snapshot files.

    Attributes:
        after: offset and origin of each snapshot file that exists after the start, ascending.
        stray: offsets of files removed because no segment begins there.
        out_of_range: offsets of files removed because they are not between log start (excluded) and the end of what is loaded.
        corrupt: offsets of files removed because they did not parse when the broker tried to load them.
        loaded: offset of the snapshot from which the state is loaded; None if it begins empty.
        replay_from_offset: where the final replay begins; None if there is none.
    """

    after: tuple[tuple[int, SnapshotOrigin], ...]
    stray: tuple[int, ...]
    out_of_range: tuple[int, ...]
    corrupt: tuple[int, ...]
    loaded: int | None
    replay_from_offset: int | None

    @property
    def written_empty(self) -> tuple[int, ...]:
        """Offsets at which the broker writes empty snapshots without a replay."""
        return tuple(offset for offset, origin in self.after if origin is SnapshotOrigin.EMPTY)

    @property
    def rebuilt(self) -> tuple[int, ...]:
        """Offsets at which the broker writes snapshots from its replay."""
        return tuple(offset for offset, origin in self.after if origin is SnapshotOrigin.REBUILT)


class SnapshotFiles:
    """The snapshot files of one directory, and a ``ProducerStateManager`` that works on them.

    It works at the upper end: what it removes is above a given offset (or once below the log start), what it writes is above everything
    that is left. So the cost of each step is that of the files and segments that it changes.
    """

    def __init__(self, snapshots: Mapping[int, bool]) -> None:
        self.files: dict[int, SnapshotOrigin] = dict.fromkeys(snapshots, SnapshotOrigin.KEPT)
        self._offsets = sorted(snapshots)
        self._faulty = {offset for offset, parses in snapshots.items() if not parses}
        self.stray: list[int] = []
        self.out_of_range: list[int] = []
        self.corrupt: list[int] = []
        self.loaded: int | None = None
        self.replay_from_offset: int | None = None
        self._map_end = 0
        self._last_snapshot = 0

    def new_manager(self) -> None:
        """A new ``ProducerStateManager``: no producers, both offsets 0."""
        self._map_end = self._last_snapshot = 0
        self.loaded = self.replay_from_offset = None

    def remove_stray(self, base_offsets: Iterable[int]) -> None:
        """``removeStraySnapshots``: of those at no base offset only the largest may stay, if it is at or above the largest base offset.

        A clean stop wrote that one at the log end.
        """
        bases = set(base_offsets)
        stray = [offset for offset in self._offsets if offset not in bases]
        if stray and (not bases or stray[-1] >= max(bases)):
            stray.pop()
        gone = set(stray)
        self._offsets = [offset for offset in self._offsets if offset not in gone]
        self._forget(stray, self.stray)

    def truncate_and_reload(self, log_start: int, end: int) -> None:
        """``truncateAndReload``: removes what is out of range, then loads the newest file that parses."""
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
        """``rebuildProducerState``: brings the state to ``end``, from the newest snapshot or, if it trusts the stop, from nothing.

        Args:
            base_offsets: of the segments, ascending.
            log_start: the log start offset.
            end: offset of the wanted state.
            trusts_stop: after a clean stop, no snapshot means that there were no producers.
            segments: how many of them are already loaded, None for all.
        """
        segments = len(base_offsets) if segments is None else segments
        offsets = [*base_offsets[max(segments - 2, 0) : segments], end]
        if trusts_stop and not self.files:
            for offset in offsets:
                self.take(offset, SnapshotOrigin.EMPTY)
            return
        was_empty = self._map_end >= end
        self.truncate_and_reload(log_start, end)
        if end > self._map_end and not was_empty:
            self.replay_from_offset = max(self._map_end, log_start)
            first = max(0, bisect_right(base_offsets, self._map_end, hi=segments) - 1)
            for base_offset in base_offsets[first : bisect_left(base_offsets, end, hi=segments)]:
                start = max(base_offset, self._map_end, log_start)
                if base_offset in offsets:
                    self.take(start, SnapshotOrigin.REBUILT)
                self._map_end = start
        self.take(end, SnapshotOrigin.REBUILT)

    def recover_segment(
        self, base_offsets: Sequence[int], log_start: int, base_offset: int, record_end: int, *, segments: int | None = None
    ) -> None:
        """``LogLoader.recoverSegment``: a new state up to the segment, a replay of the segment, a snapshot after its last batch.

        This removes every snapshot above the segment, also those of the broker.
        """
        self.new_manager()
        self.rebuild(base_offsets, log_start, base_offset, trusts_stop=False, segments=segments)
        self.take(record_end, SnapshotOrigin.REBUILT)

    def remove_all(self) -> None:
        """``truncateFullyAndStartAt``: ``recoverLog`` deletes segments that end below the log start."""
        self._remove(0, len(self._offsets), self.out_of_range)

    def _remove(self, first: int, stop: int, why: list[int]) -> None:
        """Removes those at ``first`` up to ``stop`` in ascending order."""
        if first < stop:
            self._forget(self._offsets[first:stop], why)
            del self._offsets[first:stop]

    def _forget(self, offsets: Iterable[int], why: list[int]) -> None:
        for offset in offsets:
            if self.files.pop(offset) is SnapshotOrigin.KEPT:
                # A file that the broker itself wrote during this start is not reported.
                why.append(offset)
            self._faulty.discard(offset)


def loaded_log_start(checkpointed: int, first_base: int, *, is_tiered: bool) -> int:
    """The log start offset of a log after it is loaded (``LogLoader.load``).

    Below the first segment on disk there are records only in remote storage.

    Args:
        checkpointed: the log start offset of the broker's checkpoint, 0 if it has none.
        first_base: base offset of the first segment.
        is_tiered: remote storage is on.
    """
    return checkpointed if is_tiered else max(checkpointed, first_base)


def broker_start(log: LoadedLog) -> BrokerStart:
    """The snapshots of a partition after the next start of its broker.

    Raises:
        ValueError: a log without segments; a broker creates one first.
    """
    if not log.base_offsets:
        raise ValueError("a log without segments")
    files = SnapshotFiles(log.snapshots)
    _recover(files, log)
    bases = log.base_offsets
    end = log.log_end_offset
    if log.is_deleted_at_start:
        files.remove_all()
        bases = (log.checkpointed_log_start_offset,)
        end = log.checkpointed_log_start_offset
    files.new_manager()
    files.remove_stray(bases)
    log_start = loaded_log_start(log.checkpointed_log_start_offset, bases[0], is_tiered=log.is_tiered)
    files.rebuild(bases, log_start, end, trusts_stop=log.is_clean)
    return BrokerStart(
        after=tuple(sorted(files.files.items())),
        stray=tuple(sorted(files.stray)),
        out_of_range=tuple(sorted(files.out_of_range)),
        corrupt=tuple(sorted(files.corrupt)),
        loaded=files.loaded,
        replay_from_offset=files.replay_from_offset,
    )


def _recover(files: SnapshotFiles, log: LoadedLog) -> None:
    """Segments without an index (``loadSegmentFiles``), then after an unclean stop all from the recovery point on (``recoverLog``)."""
    ends = dict(zip(log.base_offsets, (*log.base_offsets[1:], log.log_end_offset), strict=True))
    for at, base_offset in enumerate(log.base_offsets):
        if base_offset in log.without_index:
            # Segments are loaded one after the other, and this one is recovered before it is added.
            files.recover_segment(log.base_offsets, log.checkpointed_log_start_offset, base_offset, ends[base_offset], segments=at)
    if not log.is_clean:
        # The segment with the recovery point is recovered too (`LogSegments.values` begins with the floor segment).
        first = max(0, bisect_right(log.base_offsets, log.recovery_point) - 1)
        for base_offset in log.base_offsets[first:]:
            files.recover_segment(log.base_offsets, log.checkpointed_log_start_offset, base_offset, ends[base_offset])
