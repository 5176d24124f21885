"""A partition whose segments are read: the task writes down everything that an engine shows it."""

from collections.abc import Sequence

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError, StorageError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.storage.partition_dir import PartitionDir


class RecordedTask(PartitionTask):
    """Asks for the segments of a partition.

    Args:
        rounds: indices of segments, by round; None for all of them, once.
        stop_after: this many summaries are enough.
        refuse_at: taking this summary fails, counted from 1.
    """

    def __init__(
        self,
        listing: PartitionDir,
        rounds: Sequence[Sequence[int]] | None = None,
        *,
        device: int = 0,
        stop_after: int | None = None,
        refuse_at: int | None = None,
        cuts: Sequence[int] = (),
        check_crc: bool = True,
    ) -> None:
        self.listing = listing
        self.rounds = [range(len(self.listing.segments))] if rounds is None else list(rounds)
        self.device = device
        self.stop_after, self.refuse_at = stop_after, refuse_at
        self.cuts, self.check_crc = cuts, check_crc
        self.summaries: list[SegmentSummary] = []
        self.error: Exception | None = None
        self.finished = 0

    @property
    def taken(self) -> list[int]:
        """Base offsets of the summaries."""
        return [summary.base_offset for summary in self.summaries]

    def tasks(self) -> list[ReadTask]:
        if not self.rounds:
            return []
        return read_tasks(self.listing, self.rounds.pop(0), check_crc=self.check_crc, cuts=self.cuts)

    def take(self, summary: SegmentSummary) -> bool:
        self.summaries.append(summary)
        if len(self.summaries) == self.refuse_at:
            raise StorageError("no space")
        return len(self.summaries) != self.stop_after

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        assert self.error is None
        self.error = error

    def finish(self) -> None:
        self.finished += 1
