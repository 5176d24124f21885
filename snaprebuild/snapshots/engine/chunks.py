"""The replay of one partition in chunks of consecutive segments, which are replayed side by side.

A replay that hands out its boundaries at once needs nothing of what lies behind them, and of what lies before only the state and a few
facts. So each chunk is composed to one effect (``composed``); one pass over those, which are few, finds what stands before each chunk
(``beginnings``); each is replayed from there, exactly as if all before it had been read; and what they come to is merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay import running_effect
from snaprebuild.replay.segment_effect import IDENTITY
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayPoint
from snaprebuild.snapshots.engine.schedule import Pieces, ReadTask, told
from snaprebuild.snapshots.engine.summary_stream import Arrivals, joined

__all__ = ["Chunk", "DivisibleJob", "Failure", "Unreached", "beginnings", "composed", "failure_of", "starts_of_chunks"]

Failure = SnaprebuildError | FormatError


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive segments of a partition.

    Attributes:
        start: index of the first one.
        stop: index behind the last one.
        after: where their replay begins; None for the first segment of the partition.
    """

    start: int
    stop: int
    after: ReplayPoint | None = None


@dataclass(frozen=True, slots=True)
class Unreached:
    """A chunk behind one that could not be composed; if that one can be carried out all the same, this is what became of the next."""

    error: Failure


class DivisibleJob(ABC):
    """A ``schedule.Job`` whose replay can be carried out in chunks, where it hands out at once (``PartitionReplay``)."""

    __slots__ = ()

    @abstractmethod
    def replay(self) -> PartitionReplay:
        """Of the whole partition, not yet begun."""

    @abstractmethod
    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        """Those of its segments, as the work asks for them."""

    @abstractmethod
    def carry_out(self, arrivals: Arrivals) -> tuple[object, list[ReadTask]]:
        """As ``schedule.Job``."""

    @abstractmethod
    def carry_out_chunk(self, chunk: Chunk, arrivals: Arrivals) -> Any:
        """Carries out one chunk with the segments of it that have arrived; like the whole it may be done more than once."""

    @abstractmethod
    def merged(self, chunks: Iterable[Any]) -> object:
        """What ``carry_out`` would have given, of all that ``carry_out_chunk`` gave, in order.

        An error, or ``Unreached``, stands for a chunk that was not carried out. Chunks behind one in which the replay ended are missing.
        """


def failure_of(chunk: Unreached | Failure, reason: str | None) -> Failure | None:
    """The error that a chunk was not carried out for, as far as it is to be told.

    Args:
        chunk: what stands for it.
        reason: why the replay ended in an earlier one, or None.
    """
    if isinstance(chunk, Unreached):
        return chunk.error if reason is None else None
    return chunk


def starts_of_chunks(sizes: Sequence[int], target: int) -> tuple[int, ...]:
    """Cuts consecutive items into chunks.

    Args:
        sizes: of the items, in any unit.
        target: each chunk but the last comes to this, and to no more than its last item makes it.

    Returns:
        The index of the first item of each chunk, beginning with 0.
    """
    starts, size = [0], 0
    for index, each in enumerate(sizes):
        if size >= target:
            starts.append(index)
            size = 0
        size += each
    return tuple(starts)


def composed(job: DivisibleJob, indices: Sequence[int], arrivals: Arrivals) -> Iterator[tuple[int, Pieces | Failure]]:
    """The summaries of a chunk, with all that its segments do moved into the last one: the others have the identity.

    The replay stands behind the chunk where it would stand without that; within it, it does not.

    Returns:
        Base offset and pieces of each segment. The last one is an error where there is one; it has the effect of nothing then.
    """
    levels: running_effect.Levels = ()
    waiting: tuple[int, Pieces] | None = None
    for task in job.read_tasks(indices):
        try:
            outcome = arrivals.take(task.base_offset)
            pieces = joined(outcome, task) if isinstance(outcome, list) else outcome
        except Exception as error:  # as where the segment is taken in earnest
            pieces = told(error)
        if waiting is not None:
            yield waiting
        if not isinstance(pieces, tuple):
            yield task.base_offset, pieces or SnaprebuildError("the summary of a segment did not arrive", path=task.path)
            return
        for piece in pieces:
            levels = running_effect.stacked(levels, piece.effect.without_closes())
        waiting = task.base_offset, tuple(piece.with_effect(IDENTITY) for piece in pieces)
    assert waiting is not None, "a chunk has segments"
    base_offset, (*before, last) = waiting
    yield base_offset, (*before, last.with_effect(running_effect.joined(levels)))


def beginnings(job: DivisibleJob, starts: Sequence[int], arrivals: Arrivals) -> Iterator[Chunk | Unreached]:
    """The chunks as far as the replay comes, each with the point where it begins.

    Args:
        job: of the partition.
        starts: of all its chunks, from ``starts_of_chunks``.
        arrivals: all that ``composed`` gave of all chunks but the last.

    Returns:
        The chunks in order, up to the last one of all, or the one in which the replay ends.
    """
    replay = job.replay()
    stop_index = len(replay.begin())
    after = None
    for start, stop in zip(starts, (*starts[1:], stop_index), strict=True):
        yield Chunk(start, stop, after)
        if stop == stop_index:
            return
        state = None
        for index in range(start, stop):
            segment = replay.directory.segments[index]
            outcome = arrivals.take(segment.base_offset)
            if not isinstance(outcome, tuple):
                assert not isinstance(outcome, list), "ranges are joined"
                path = replay.directory.file_path(segment.log.name)
                yield Unreached(outcome or SnaprebuildError("the summary of a chunk did not arrive", path=path))
                return
            for summary in outcome:
                for state in replay.take(index, summary):  # noqa: B007  the last one is that behind the chunk
                    pass
            if replay.damage is not None:
                return
        assert state is not None, "a boundary lies between two segments"
        after = replay.point(state)
