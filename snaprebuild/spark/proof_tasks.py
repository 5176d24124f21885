"""What tasks do with a replay that waits for later evidence (``engine.chunked_proof``): the steps of its proof in chunks, then its chunks.

In each round one task goes over the composed chunks of a partition. It sends the effect before each chunk at once. At the end it sends
the order of each chunk, with the effect of all segments and the snapshot that should prove them. So it holds a few effects only.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
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
    producers: tuple[int, ...] = (0, 0, 0)

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
    orders: list[tuple[int, Order]] = []
    work = _hand_out if isinstance(step, SettledStart) else _compare
    effects = yield from work(partition, job, step, chunks, stream, orders)
    for base_offset, order in orders:
        is_taken = order.replay is not None and order.replay.only_taken_from is not None
        total, witness = (IDENTITY, IDENTITY) if is_taken else effects
        whole = dataclasses.replace(order, producers=(order.producers[BEFORE], len(total), len(witness)))
        yield from rows_of_job(partition, pickle.dumps(whole), base_offset, total, TOTAL)
        yield from rows_of_job(partition, None, base_offset, witness, WITNESS)


def _compare(
    partition: int,
    job: Job,
    step: ProofStep,
    chunks: Sequence[tuple[int, int, int]],
    stream: SummaryStream,
    orders: list[tuple[int, Order]],
) -> Generator[Row, None, Effects]:
    proof = ProofPass(replay_of(job), step)
    for base_offset, start, stop in chunks:
        if start >= step.start_index:
            before = proof.prefix.total() if start > step.start_index else IDENTITY
            orders.append((base_offset, Order(job, step, start, stop, producers=(len(before),))))
            yield from rows_of_job(partition, None, base_offset, before)
        for index, summary in _summaries(start, job.read_tasks(range(start, stop)), stream):
            proof.take(index, summary)
    proof.finish()
    orders[0] = orders[0][0], dataclasses.replace(orders[0][1], whole=proof.evidence)
    if proof.evidence.fault is not None:
        del orders[1:]
        return IDENTITY, IDENTITY
    return proof.total if step.is_window else IDENTITY, proof.witness


def _hand_out(
    partition: int,
    job: Job,
    step: ProofStep,
    chunks: Sequence[tuple[int, int, int]],
    stream: SummaryStream,
    orders: list[tuple[int, Order]],
) -> Generator[Row, None, Effects]:
    assert isinstance(step, SettledStart)
    plain = SettledReplay.of(replay_of(job), step)
    witness = _witness(plain, step)
    whole = plain.with_effects(IDENTITY, witness)
    whole.begin()
    resume_from: ReplayCheckpoint | None = None
    total, has_ended = RunningEffect(), False
    for base_offset, start, stop in chunks:
        is_only_taken = start < step.start_index or (has_ended and start >= step.taken_from)
        if is_only_taken or not has_ended:
            before = IDENTITY if resume_from is None or is_only_taken else resume_from.state
            small = None if resume_from is None or is_only_taken else resume_from.with_state(IDENTITY)
            part = plain.chunk(start, stop, small, is_only_taken=is_only_taken)
            orders.append((base_offset, Order(job, step, start, stop, part, producers=(len(before),))))
            yield from rows_of_job(partition, None, base_offset, before)
        state = None
        for index, summary in _summaries(start, job.read_tasks(range(start, stop)), stream):
            if index >= step.start_index:
                total = total.then(summary.effect)
                for state in whole.take(index, summary):  # noqa: B007  the last one is that after the chunk
                    pass
        has_ended |= whole.has_ended
        if state is not None and not has_ended:
            resume_from = whole.checkpoint(state)
    return total.total() if step.is_window else IDENTITY, witness


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
