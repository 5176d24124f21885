"""Reading partitions through: every segment that is wanted once and in order, what is damaged told, progress counted.

``verify``, ``inspect stats``, ``inspect explain`` and ``inspect transactions`` share this.
``rebuild`` and ``before-start`` ask for more segments as the evidence wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from formats.errors import FormatError
from snaprebuild.errors import GoneFileError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import BUSY_LOG, Finding, finding_of_error
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.crosscheck import segment_findings
from snaprebuild.snapshots.engine.remote_indexes import IndexTally
from snaprebuild.snapshots.engine.schedule import Engine, ReadTask, Work, run
from snaprebuild.snapshots.source.source import (
    LISTINGS_MAX,
    PartitionSource,
    check_segments_are_files,
    listed_now,
    without_files,
)
from snaprebuild.storage.store import Store

__all__ = ["PartitionWork", "Progress", "has_lost_a_file", "read_partitions", "run_partitions"]

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
        self._index_tally = IndexTally(source.directory)

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
        self._findings += self._index_tally.take(index, summary)
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


class _Result(Protocol):
    """What a verb has found in one partition."""

    @property
    def source(self) -> PartitionSource:
        """The partition."""

    @property
    def findings(self) -> list[Finding]:
        """About it."""


Result = TypeVar("Result", bound=_Result)


def read_partitions(
    sources: Sequence[PartitionSource],
    begin: Callable[[int, PartitionSource], Result],
    work_of: Callable[[int, Result], PartitionWork],
    jobs: int | None,
    engine: Engine | None = None,
) -> list[Result]:
    """Reads partitions as ``run_partitions``. One whose broker deleted a file meanwhile is listed and read again, from its new log start.

    Args:
        sources: the partitions.
        begin: makes an empty result for a place in ``sources``.
        work_of: reads a partition into its result; called again with a new result for each listing.
        jobs: as ``run_partitions``.
        engine: likewise.

    Returns:
        A result for each partition. That of one that is gone is empty, with a note; that of one whose files were deleted faster than they
        could be read, ``LISTINGS_MAX`` times, has the finding ``busy-log``.
    """
    results = [begin(place, source) for place, source in enumerate(sources)]
    due = list(range(len(results)))
    for _ in range(LISTINGS_MAX - 1):
        run_partitions([work_of(place, results[place]) for place in due], jobs, engine)
        due = [place for place in due if has_lost_a_file(results[place].findings) and _can_be_listed(results[place].source)]
        for place in due:
            old = results[place].source
            try:
                results[place] = begin(place, listed_now(old))
            except (GoneFileError, ReadFailedError) as error:
                results[place] = begin(place, without_files(old))
                results[place].findings.append(finding_of_error(error, old.directory.path))
        due = [place for place in due if not results[place].findings]
        if not due:
            return results
    run_partitions([work_of(place, results[place]) for place in due], jobs, engine)
    return results


def _can_be_listed(source: PartitionSource) -> bool:
    """Copies in remote storage make a log without a directory of its own."""
    return isinstance(source.directory.store, Store)


def has_lost_a_file(findings: Iterable[Finding]) -> bool:
    """Whether the work on a partition ended because its broker deleted a file of the listing."""
    return any(finding.code == BUSY_LOG for finding in findings)
