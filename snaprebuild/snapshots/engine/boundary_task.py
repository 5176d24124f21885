"""What ``rebuild`` and the library's door share: the replay of one partition is given what it asks for, and hands out its boundaries."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.cache_hits import NONE_KEPT
from snaprebuild.snapshots.engine.crosscheck import CrossCheck
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay
from snaprebuild.snapshots.engine.read_tasks import read_tasks
from snaprebuild.snapshots.engine.schedule import ReadTask, Work
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["BoundaryWork"]


class BoundaryWork(Work):
    """One partition. Subclasses say what becomes of a boundary, and of an error.

    Attributes:
        source: the partition.
        replay: asks for segments, as the evidence wants more of them.
        cross: compares what is on disk with what the replay gives.
        bytes_read: of segments, so far.
        kept: what was not read, because an earlier run has kept what it gave.
    """

    def __init__(
        self,
        source: PartitionSource,
        replay: PartitionReplay,
        *,
        check_crc: bool,
        deadline: float | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        """Takes what is replayed.

        Args:
            source: the partition.
            replay: of it, not yet begun.
            check_crc: compute checksums.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            cuts: offsets inside of segments at which the state is handed out, too, ascending.
        """
        self.device = source.directory.device
        self.source = source
        self.replay = replay
        self.cross = CrossCheck(source, replay.clock)
        self.bytes_read = 0
        self.kept = NONE_KEPT
        self._check_crc = check_crc
        self._deadline = deadline
        self._cuts = cuts
        self._order: list[int] | None = None
        self._taken = 0

    def tasks(self) -> list[ReadTask]:
        """What the replay asks for next."""
        self._order = self.replay.begin() if self._order is None else self.replay.more()
        self._taken = 0
        self.asked(self._order)
        directory = self.source.directory
        return read_tasks(directory, self._order, check_crc=self._check_crc, deadline=self._deadline, cuts=self._cuts)

    def take(self, summary: SegmentSummary) -> bool:
        """Hands out the boundaries that a segment, or a piece of it, settles."""
        assert self._order is not None
        index = self._order[self._taken]
        self._taken += summary.cut_offset is None
        self.bytes_read += summary.bytes_read
        self.kept = self.kept.with_segment(summary)
        self.taken(index, summary)
        for state in self.replay.take(index, summary):
            self.boundary(state)
        return self.replay.damage is None

    def finish(self) -> None:
        """Hands out the boundaries that waited for what lies behind them."""
        for state in self.replay.finish():
            self.boundary(state)

    def asked(self, indices: list[int]) -> None:
        """Called with the segments that are to be read next, before they are; raises where that may not be."""

    def taken(self, index: int, summary: SegmentSummary) -> None:
        """Called with each segment, before its boundaries."""

    def boundary(self, state: BoundaryState) -> None:
        """Called with each boundary."""
        raise NotImplementedError
