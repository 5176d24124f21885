"""Reads segments for a ledger: one task for each, in the order in which they are due, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.thread_pool import ThreadPool

__all__ = ["OnRead", "SegmentRead", "SegmentReadTask", "single_segment"]

SegmentRead = tuple[SegmentSummary, ...] | SnaprebuildError | FormatError
"""The summaries of a segment, or why it could not be read."""

OnRead = Callable[[ReadTask, SegmentRead], None]
"""Called with each segment that was read."""


class _ReadOutcome(TaskOutcome):
    """The result of reading a segment.

    Attributes:
        pieces: its summaries.
        error: why there are none, or not all.
    """

    pieces: list[SegmentSummary] = msgspec.field(default_factory=list)
    error: SnaprebuildError | FormatError | None = None


def single_segment(source: PartitionSource, read: ReadTask, index: int) -> PartitionSource:
    """One segment of a partition, as a partition whose store can be sent to another process.

    Args:
        source: the partition.
        read: how the segment is read.
        index: of the segment in the directory.
    """
    directory = source.directory
    segments = (directory.segments[index],)
    return replace(source, directory=dataclasses.replace(directory, segments=segments, snapshots=(), store=read.store))


class SegmentReadTask(PartitionTask):
    """Reads one segment, and judges nothing."""

    outcome: _ReadOutcome

    def __init__(self, source: PartitionSource, read: ReadTask, on_read: OnRead) -> None:
        """Takes the segment.

        Args:
            source: from ``single_segment``.
            read: how it is read.
            on_read: called once, with the result.
        """
        super().__init__(source, _ReadOutcome(), lambda indices: [read] if indices else [])
        self._read = read
        self._on_read = on_read

    def take(self, summary: SegmentSummary) -> bool:
        """Takes its summary, or that of its next piece."""
        self.outcome.pieces.append(summary)
        return True

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Takes the error of a segment that could not be read."""
        self.outcome.error = error

    def settle(self) -> None:
        """Hands out the result."""
        self._hand_out()

    def stores(self) -> tuple[ReadStore, ...]:
        """The store of the segment."""
        return (self._read.store,)

    def needs(self) -> tuple[int, int] | None:
        """Zeros: the task needs nothing but its segment."""
        return 0, 0

    def job(self) -> _SegmentReadJob:
        """The task as a value."""
        return _SegmentReadJob(self.source, self._read)

    def adopt(self, outcome: _ReadOutcome) -> None:
        """Takes the result of a task that ran elsewhere."""
        self.outcome = outcome
        self._hand_out()

    def _hand_out(self) -> None:
        error = self.outcome.error
        self._on_read(self._read, tuple(self.outcome.pieces) if error is None else error)
        self.outcome.pieces = []


@dataclass(frozen=True, slots=True)
class _SegmentReadJob(Job):
    """The task of a segment as a value."""

    source: PartitionSource
    read: ReadTask

    @contextlib.contextmanager
    def started(
        self,
        replay: PartitionReplay | None = None,
        threads: ThreadPool | None = None,
    ) -> Iterator[SegmentReadTask]:
        assert replay is None, "nothing is replayed"
        yield _Elsewhere(self.source, self.read, _keep)


def _keep(_: ReadTask, __: SegmentRead) -> None:
    """The outcome is sent back."""


class _Elsewhere(SegmentReadTask):
    """The task in another process: its outcome keeps what was read."""

    def settle(self) -> None:
        """The outcome is what is sent."""
