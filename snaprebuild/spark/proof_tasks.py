"""What tasks do with a replay that waits for later evidence (``engine.chunked_proof``): the steps of its proof in chunks, then its chunks.

In each round one task goes over the composed chunks of a partition. It sends the effect before each chunk at once. At the end it sends
the order of each chunk, with the effect of all segments and the snapshot that should prove them. So it holds a few effects only.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from snaprebuild.errors import ChangedFileError, SnaprebuildError
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, effect_of_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.chunked_proof import (
    ChunkEvidence,
    ProofPass,
    ProofStep,
    SettledReplay,
    SettledStart,
    WholeEvidence,
    chunk_evidence,
    next_step,
)
from snaprebuild.snapshots.engine.executor_tasks import SummaryStream, drain_summaries, joined
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayCheckpoint
from snaprebuild.snapshots.engine.partition_task import Job, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.engine.window_proof import readable_snapshot
from snaprebuild.spark.summary_rows import Row, rows_of_job

__all__ = ["AS_A_WHOLE", "NextStep", "Order", "order_rows", "replay_of", "stepped"]

AS_A_WHOLE = "as a whole"
"""In place of a step: a segment could not be read, and one task finds out what can be reported all the same."""

NextStep = ProofStep | str

Effects = tuple[SegmentEffect, SegmentEffect]

Compared = tuple[WholeEvidence | None, ChunkEvidence]

BEFORE, TOTAL, WITNESS = range(3)
"""Numbers of the states of an order."""


def replay_of(job: Job) -> PartitionReplay:
    """That of a job which can be split."""
    replay = job.replay()
    assert replay is not None
    return replay


@dataclass(frozen=True, slots=True)
class Order:
    """A chunk to compare with its snapshots, or to replay.

    Attributes:
        job: of the whole partition.
        step: of the proof; if it is settled, the chunk is replayed.
        start: index of the first segment.
        stop: that after the last one.
        replay: of the chunk, without effects; None if it is compared.
        whole: for the first chunk, the evidence of all.
        producers: in each of the states.
    """

    job: Job
    step: ProofStep
    start: int
    stop: int
    replay: SettledReplay | None = None
    whole: WholeEvidence | None = None
    producers: tuple[int, int, int] = (0, 0, 0)

    def run(self, states: Sequence[SegmentEffect], stream: SummaryStream) -> TaskOutcome | Compared:
        """Carries it out.

        Raises:
            SnaprebuildError: some of a state, or a segment that must be compared, did not arrive.
        """
        if tuple(map(len, states)) != self.producers:
            raise SnaprebuildError(f"{sum(map(len, states))} of {sum(self.producers)} producers of the states of a chunk arrived")
        if self.replay is not None:
            return self._replayed(self.replay, states, stream)
        if self.whole is not None and self.whole.fault is not None:
            return self.whole, ChunkEvidence()
        tasks = self.job.read_tasks(range(self.start, self.stop))
        return self.whole, chunk_evidence(replay_of(self.job), self.step, _summaries(self.start, tasks, stream), *states)

    def _replayed(self, replay: SettledReplay, states: Sequence[SegmentEffect], stream: SummaryStream) -> TaskOutcome:
        resume_from = replay.resume_from and replay.resume_from.with_state(states[BEFORE])
        part = replace(replay, resume_from=resume_from).with_effects(states[TOTAL], states[WITNESS])
        with self.job.started(part) as task:
            missing = drain_summaries(task, stream)
            assert not missing, "a chunk asks for its own segments alone"
            return task.outcome


def _summaries(start: int, tasks: Iterable[ReadTask], stream: SummaryStream) -> Iterator[tuple[int, SegmentSummary]]:
    for index, task in enumerate(tasks, start):
        outcome = stream.take(task.base_offset)
        if isinstance(outcome, list):
            outcome = joined(outcome, task)
        if outcome is None:
            raise SnaprebuildError("the summary of a segment did not arrive", path=task.path)
        if isinstance(outcome, Exception):
            raise outcome
        for summary in outcome:
            yield index, summary


# -------------------------------------------------------------------------------------------------------------- all of a partition


def order_rows(
    partition: int, job: Job, step: ProofStep, chunks: Sequence[tuple[int, int, int]], stream: SummaryStream
) -> Iterator[Row]:
    """The rows of the orders of all chunks.

    Args:
        partition: its number.
        job: of the whole partition.
        step: of its proof.
        chunks: base offset of the rows, first segment and the one after the last, of each.
        stream: all that ``composed`` gave of them.

    Raises:
        SnaprebuildError: a segment could not be read.
    """
    work = _HandOut(job, step) if isinstance(step, SettledStart) else _Comparing(job, step)
    orders: list[tuple[int, Order]] = []
    for base_offset, start, stop in chunks:
        begun = work.begin(start, stop)
        if begun is not None:
            order, before = begun
            orders.append((base_offset, dataclasses.replace(order, producers=(len(before), 0, 0))))
            yield from rows_of_job(partition, None, base_offset, before)
        work.take(_summaries(start, job.read_tasks(range(start, stop)), stream))
    evidence, (total_of_all, witness_of_all) = work.finish()
    if evidence is not None:
        orders[0] = orders[0][0], dataclasses.replace(orders[0][1], whole=evidence)
        if evidence.fault is not None:
            del orders[1:]
    for base_offset, order in orders:
        is_taken = order.replay is not None and order.replay.only_taken_from is not None
        total, witness = (IDENTITY, IDENTITY) if is_taken else (total_of_all, witness_of_all)
        whole = dataclasses.replace(order, producers=(order.producers[BEFORE], len(total), len(witness)))
        yield from rows_of_job(partition, pickle.dumps(whole), base_offset, total, TOTAL)
        yield from rows_of_job(partition, None, base_offset, witness, WITNESS)


class _Comparing:
    """Goes over all chunks of a step whose snapshots are compared."""

    def __init__(self, job: Job, step: ProofStep) -> None:
        self._job = job
        self._step = step
        self._proof = ProofPass(replay_of(job), step)

    def begin(self, start: int, stop: int) -> tuple[Order, SegmentEffect] | None:
        """The order of the next chunk and the effect before it; None if nothing is done with the chunk."""
        if start < self._step.start_index:
            return None
        before = self._proof.prefix.total() if start > self._step.start_index else IDENTITY
        return Order(self._job, self._step, start, stop), before

    def take(self, summaries: Iterable[tuple[int, SegmentSummary]]) -> None:
        """Takes the segments of that chunk, each with its index."""
        for index, summary in summaries:
            self._proof.take(index, summary)

    def finish(self) -> tuple[WholeEvidence | None, Effects]:
        """The evidence of all chunks, which those of a settled step do not have, and what the orders get besides."""
        self._proof.finish()
        evidence = self._proof.evidence
        if evidence.fault is not None:
            return evidence, (IDENTITY, IDENTITY)
        return evidence, (self._proof.total if self._step.is_window else IDENTITY, self._proof.witness)


class _HandOut:
    """Goes over all chunks of a settled step, which are replayed. As ``_Comparing``."""

    def __init__(self, job: Job, step: SettledStart) -> None:
        self._job = job
        self._step = step
        self._plain = SettledReplay.of(replay_of(job), step)
        self._witness = _witness(self._plain, step)
        self._whole = self._plain.with_effects(IDENTITY, self._witness)
        self._whole.begin()
        self._resume_from: ReplayCheckpoint | None = None
        self._total, self._has_ended = RunningEffect(), False

    def begin(self, start: int, stop: int) -> tuple[Order, SegmentEffect] | None:
        """See ``_Comparing.begin``."""
        step, resume_from = self._step, self._resume_from
        is_only_taken = start < step.start_index or (self._has_ended and start >= step.taken_from)
        if self._has_ended and not is_only_taken:
            return None
        if is_only_taken:
            resume_from = None
        before = IDENTITY if resume_from is None else resume_from.state
        small = None if resume_from is None else resume_from.with_state(IDENTITY)
        return Order(self._job, step, start, stop, self._plain.chunk(start, stop, small, is_only_taken=is_only_taken)), before

    def take(self, summaries: Iterable[tuple[int, SegmentSummary]]) -> None:
        """See ``_Comparing.take``."""
        state = None
        for index, summary in summaries:
            if index >= self._step.start_index:
                self._total = self._total.then(summary.effect)
                for state in self._whole.take(index, summary):  # noqa: B007  the last one is that after the chunk
                    pass
        self._has_ended |= self._whole.has_ended
        if state is not None and not self._has_ended:
            self._resume_from = self._whole.checkpoint(state)

    def finish(self) -> tuple[WholeEvidence | None, Effects]:
        """See ``_Comparing.finish``."""
        return None, (self._total.total() if self._step.is_window else IDENTITY, self._witness)


def _witness(replay: PartitionReplay, step: SettledStart) -> SegmentEffect:
    """The snapshot that proved the segments.

    Raises:
        ChangedFileError: it cannot be read any more.
    """
    if step.is_window and step.fault is None:
        offset = replay.witness_offset(step.start_index)
    else:
        offset = replay.directory.segments[0].base_offset if step.has_base else None
    if offset is None:
        return IDENTITY
    entries = readable_snapshot(replay.directory, offset)
    if entries is None:
        raise ChangedFileError(
            f"the snapshot at {offset} was there when it proved the replay, and is gone", path=replay.directory.path
        )
    return effect_of_entries(entries)


def stepped(job: Job, step: ProofStep, found: Iterable[Any]) -> tuple[NextStep, list[ReadTask]]:
    """The next step, and the segments that it needs besides.

    Args:
        job: of the partition.
        step: the last one.
        found: the results of the orders, in order.
    """
    results = list(found)
    if not all(isinstance(each, tuple) for each in results):
        return AS_A_WHOLE, []
    compared: list[Compared] = results
    whole = compared[0][0]
    assert whole is not None
    indices, following = next_step(replay_of(job), step, whole, [evidence for _, evidence in compared])
    return following, job.read_tasks(indices)
