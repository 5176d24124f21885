"""Reading partitions through: every segment that is wanted once and in order, what is damaged told, progress counted.

``verify``, ``stats``, ``explain`` and ``transactions`` share this. ``rebuild`` and the hook ask for more segments as the evidence wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.operations.crosscheck import segment_findings
from snaprebuild.operations.findings import Finding, finding_of_error
from snaprebuild.operations.schedule import Engine, ReadTask, Work, run
from snaprebuild.operations.source import PartitionSource, check_segments_are_files
from snaprebuild.replay.segment_summary import SegmentSummary

__all__ = ["PartitionWork", "Progress", "run_partitions"]

Progress = Callable[[str, int], None]
"""Called with the partition and the bytes of a segment that was taken."""


class PartitionWork(Work):
    """One partition. Subclasses say which tasks it has, and what a summary means to them."""

    def __init__(self, source: PartitionSource, findings: list[Finding], progress: Progress | None) -> None:
        """Takes what all have.

        Args:
            source: the partition.
            findings: of its result; what goes wrong is added.
            progress: told of every segment.
        """
        self.device = source.directory.device
        self._source = source
        self._findings = findings
        self._progress = progress
        self._begun = False
        self._next = 0

    def tasks(self) -> list[ReadTask]:
        """All tasks, once."""
        if self._begun:
            return []
        self._begun = True
        return self.all_tasks()

    def all_tasks(self) -> list[ReadTask]:
        """Every segment that is read, ascending from the first on disk."""
        raise NotImplementedError

    def take(self, summary: SegmentSummary) -> bool:
        """Tells damage and progress around ``take_segment``."""
        index = self._next
        self._next += summary.cut_offset is None
        self._findings += segment_findings(self._source, index, summary)
        wants_more = self.take_segment(index, summary)
        if self._progress is not None:
            self._progress(self._source.topic_partition, summary.size_bytes)
        return wants_more

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Takes a segment, or a piece of it. False when no more are wanted."""
        raise NotImplementedError

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """The error is a finding."""
        self._findings.append(finding_of_error(error, self._source.directory.path))

    def check(self) -> bool:
        """Whether all segments are regular files; where one is not, the partition has failed."""
        try:
            check_segments_are_files(self._source.directory)
        except ReadFailedError as error:
            self.fail(error)
            return False
        return True


def run_partitions(works: Iterable[PartitionWork], jobs: int | None, engine: Engine | None = None) -> None:
    """Reads all of them, as ``schedule.run`` or ``engine``; one whose segments are no files fails without being read."""
    checked = [work for work in works if work.check()]
    run(checked, jobs) if engine is None else engine(checked)
