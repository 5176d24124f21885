"""Tasks that run where summaries arrive which were made elsewhere: a whole partition, or chunks of its segments in parallel.

A replay that hands out its boundaries at once needs nothing of later segments, and of earlier ones only the state and a few facts.
Therefore each chunk is composed to one effect (``composed``). One pass over these few effects finds the state before each chunk
(``chunk_start_states``). Each chunk is replayed from its state, exactly as if all before it had been read. The outcomes are merged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay import segment_effect
from snaprebuild.replay.segment_effect import IDENTITY
from snaprebuild.snapshots.engine.partition_replay import ReplayCheckpoint
from snaprebuild.snapshots.engine.partition_task import CachedSummary, Job, PartitionTask, TaskOutcome, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_segment
from snaprebuild.spark.segment_ranges import CachedRange, RangeSummary, WhyWhole, join_ranges

__all__ = [
    "Chunk",
    "Failure",
    "Outcome",
    "Ranges",
    "SkippedChunk",
    "SummaryStream",
    "chunk_start_states",
    "chunk_starts",
    "composed",
    "drain_summaries",
    "joined",
    "merged",
    "run_chunk",
    "run_job",
]

log = logging.getLogger(__name__)

Failure = SnaprebuildError | FormatError

Ranges = list[RangeSummary]
"""Ranges of a segment that were read in parallel."""

Outcome = Pieces | Ranges | SnaprebuildError | FormatError
"""The result of reading a segment."""


class SummaryStream:
    """Outcomes of the segments of one partition, by ascending base offset, as they arrive.

    An outcome that is asked for in this order is not kept. One that was passed over is kept until it is asked for.
    """

    def __init__(self, stream: Iterator[tuple[int, Outcome]]) -> None:
        """Takes the stream of base offsets and outcomes."""
        self._stream = stream
        self._passed: dict[int, Outcome] = {}
        self._ahead: tuple[int, Outcome] | None = None

    def take(self, base_offset: int) -> Outcome | None:
        """The outcome of a segment, once; None if it does not arrive."""
        if base_offset in self._passed:
            return self._passed.pop(base_offset)
        while True:
            ahead = self._ahead or next(self._stream, None)
            if ahead is None or ahead[0] > base_offset:
                self._ahead = ahead
                return None
            self._ahead = None
            if ahead[0] == base_offset:
                return ahead[1]
            self._passed[ahead[0]] = ahead[1]


def drain_summaries(task: PartitionTask, stream: SummaryStream) -> list[ReadTask]:
    """Gives a task the summaries that it asks for.

    Returns:
        The reads whose summaries did not arrive: they must be read, and the task begun anew. Empty when the task ended.
    """
    try:
        while tasks := task.tasks():
            for place, each in enumerate(tasks):
                outcome = stream.take(each.base_offset)
                if outcome is None:
                    return [each, *(other for other in tasks[place + 1 :] if stream.take(other.base_offset) is None)]
                if isinstance(outcome, list):
                    outcome = joined(outcome, each)
                if isinstance(outcome, Exception):
                    task.fail(outcome)
                    return []
                if not all(map(task.take, outcome)):
                    task.finish()
                    return []
        task.finish()
    except Exception as error:  # it ends this partition and no other
        task.fail(to_domain_error(error))
    return []


def joined(ranges: Ranges, task: ReadTask) -> Pieces:
    """The pieces of a segment from its ranges. If they do not fit together, the segment is read here.

    Raises:
        SnaprebuildError: it cannot be read (``read_segment``).
    """
    try:
        summaries = join_ranges(ranges, task.cuts, is_last=task.is_last)
    except ValueError as error:  # the index changed between the reads of the ranges
        log.warning("%s: read again: %s", task.path, error)
    else:
        if not isinstance(summaries, WhyWhole):
            *before, last = summaries  # a segment with cuts is not cached, so that there is only the last piece
            cached = sum(each.bytes_cached for each in ranges if isinstance(each, CachedRange))
            return (*before, CachedSummary(**asdict(last), bytes_cached=cached)) if cached else summaries
        log.warning("%s: read again as a whole: %s", task.path, summaries.value)
    return read_segment(task)


def run_job(job: Job, stream: SummaryStream) -> tuple[TaskOutcome | None, list[ReadTask]]:
    """Runs a whole partition with the segments that have arrived.

    Returns:
        The outcome and nothing; or None and the tasks that are wanted besides those that arrived.
    """
    with job.started() as task:
        missing = drain_summaries(task, stream)
        if missing:
            return None, missing
        task.settle()
        return task.outcome, []


# ------------------------------------------------------------------------------------------------------------------------ chunks


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive segments of a partition: from index ``start`` up to ``stop``.

    Attributes:
        resume_from: where their replay begins; None for the first segment of the partition.
    """

    start: int
    stop: int
    resume_from: ReplayCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class SkippedChunk:
    """A chunk that was not replayed because an earlier one failed to compose."""

    error: Failure


def run_chunk(job: Job, chunk: Chunk, stream: SummaryStream) -> TaskOutcome:
    """Runs one chunk with its segments. Like the whole it may be done more than once."""
    replay = job.replay()
    assert replay is not None
    with job.started(replay.part(chunk.stop, chunk.resume_from)) as task:
        missing = drain_summaries(task, stream)
        assert not missing, "a chunk asks for its own segments alone"
        return task.outcome


def merged(job: Job, chunks: Iterable[TaskOutcome | SkippedChunk | Failure]) -> TaskOutcome:
    """The outcome of the whole partition.

    Args:
        job: of the partition.
        chunks: the outcome of each chunk in order, or what replaces it. Chunks after the end of the replay are missing.
    """
    with job.started() as task:
        outcome = task.outcome
        for chunk in chunks:
            if isinstance(chunk, TaskOutcome):
                outcome.add(chunk)
            elif not isinstance(chunk, SkippedChunk):
                task.fail(chunk)
            elif outcome.ended is None:
                task.fail(chunk.error)
        task.settle()
        return outcome


def chunk_starts(sizes: Sequence[int], target: int) -> tuple[int, ...]:
    """Splits consecutive items into chunks.

    Args:
        sizes: of the items, in any unit.
        target: each chunk but the last reaches this, and exceeds it by less than its last item.

    Returns:
        The index of the first item of each chunk, beginning with 0.
    """
    starts = [0]
    size = 0
    for index, each in enumerate(sizes):
        if size >= target:
            starts.append(index)
            size = 0
        size += each
    return tuple(starts)


def composed(job: Job, indices: Sequence[int], stream: SummaryStream) -> Iterator[tuple[int, Pieces | Failure]]:
    """The summaries of a chunk with the effects of all its segments moved into the last one; the others have the identity.

    After the chunk the replay has the state that it would have without that; within the chunk it has not.

    Returns:
        Base offset and pieces of each segment. The last one is an error if there is one; the chunk has no effect then.
    """
    levels: segment_effect.Levels = ()
    waiting: tuple[int, Pieces] | None = None
    for task in job.read_tasks(indices):
        try:
            outcome = stream.take(task.base_offset)
            pieces = joined(outcome, task) if isinstance(outcome, list) else outcome
        except Exception as error:  # as when the chunk is replayed
            pieces = to_domain_error(error)
        if waiting is not None:
            yield waiting
        if not isinstance(pieces, tuple):
            yield task.base_offset, pieces or SnaprebuildError("the summary of a segment did not arrive", path=task.path)
            return
        for piece in pieces:
            levels = segment_effect.stacked(levels, piece.effect.without_closes())
        waiting = task.base_offset, tuple(piece.with_effect(IDENTITY) for piece in pieces)
    assert waiting is not None, "a chunk has segments"
    base_offset, (*before, last) = waiting
    yield base_offset, (*before, last.with_effect(segment_effect.joined(levels)))


def chunk_start_states(job: Job, starts: Sequence[int], stream: SummaryStream) -> Iterator[Chunk | SkippedChunk]:
    """The chunks that the replay reaches, each with the checkpoint where it begins.

    Args:
        job: of the partition.
        starts: of all its chunks, from ``chunk_starts``.
        stream: all that ``composed`` gave of all chunks but the last.

    Returns:
        The chunks in order, up to the last one of all, or the one in which the replay ends.
    """
    replay = job.replay()
    assert replay is not None
    stop_index = len(replay.begin())
    resume_from = None
    for start, stop in zip(starts, (*starts[1:], stop_index), strict=True):
        yield Chunk(start, stop, resume_from)
        if stop == stop_index:
            return
        state = None
        for index in range(start, stop):
            segment = replay.directory.segments[index]
            outcome = stream.take(segment.base_offset)
            if not isinstance(outcome, tuple):
                assert not isinstance(outcome, list), "ranges are joined"
                path = replay.directory.file_path(segment.log.name)
                yield SkippedChunk(outcome or SnaprebuildError("the summary of a chunk did not arrive", path=path))
                return
            for summary in outcome:
                for state in replay.take(index, summary):  # noqa: B007  the last one is that after the chunk
                    pass
            if replay.damage is not None:
                return
        assert state is not None, "a boundary is between two segments"
        resume_from = replay.checkpoint(state)
