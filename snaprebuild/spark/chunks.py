"""How the summaries of segments get to the tasks that replay them: which partitions are split into chunks, and which task gets what.

A partition with few rows is one piece of work. A larger one that can be split (``partition_jobs``) has one piece for each
chunk, once the state before the chunk is known.
Chunks are composed in parallel, and one task goes over the composed effects. It sends the states, as rows like any others, to the
tasks that replay. The driver has only sizes, bounds, and results.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark import replay_tasks, summary_rows
from snaprebuild.spark.arrow_tables import TaskFrame, data_frame, ddl
from snaprebuild.spark.packing import in_turns, pack, sent_to_tasks, tasks_for
from snaprebuild.spark.partition_jobs import chunk_starts
from snaprebuild.spark.replay_tasks import MERGED_FIRST, RESULT_SCHEMA, Division, WholeUnlessLarge
from snaprebuild.spark.summary_rows import JOB_PIECE, WHOLE, WITHHELD
from snaprebuild.spark.task_services import TaskServices

__all__ = [
    "CHUNK_BYTES",
    "END",
    "ChunkPlan",
    "RowRange",
    "collected",
    "is_splittable",
    "may_go_back",
    "rows_of_segments",
    "rows_sent",
    "run_read_jobs",
    "run_replays",
    "sent_bytes_of_segment",
    "tasks_of_pieces",
    "whole_unless_large",
]

CHUNK_BYTES = 128 << 20
"""Rows of summaries of a chunk: a state of a million producers takes 86 MB, and each chunk gets one."""

ROWS_OF_A_BYTE = 2
"""A batch of a producer takes at least 70 bytes; the same bytes of its log become at most a row of 86 bytes and a closed
transaction."""

SEGMENT_BYTES = 64 << 10
"""Cost of a boundary in addition to its rows, as bytes of rows."""

END = 2**63 - 1
"""The end of the last piece of a partition: the greatest base offset belongs to it, too."""

PLACE_SCHEMA = pa.schema([("of", pa.int32()), ("low", pa.int64()), ("high", pa.int64()), ("slot", pa.int32())])
"""Rows of a partition from one base offset on, up to another, and the task to which they are sent."""

SENT_SCHEMA = pa.schema([("partition", pa.int32()), ("job", pa.binary())])


COLLECT_BYTES = 256 << 20
"""Results that one query brings to the driver. Spark refuses more than 1 GiB unless it is set otherwise."""

PARTITIONS_AT_ONCE = 500
"""Partitions whose results fit into one query, also if every snapshot is wrong: a row then has a megabyte at most."""

PIECES_WRITTEN_OUT = 32
"""Up to this number, pieces are written into the query itself; a larger table is broadcast to all executors, by a job of its
own."""


class RowRange(NamedTuple):
    """One piece of work: the rows of a partition from a base offset on, up to another one."""

    partition: int
    low: int
    high: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The work of a round.

    Attributes:
        pieces: whole partitions and chunks, in order.
        divisions: of the partitions that are split into chunks.
    """

    pieces: list[RowRange]
    divisions: dict[int, Division]

    @classmethod
    def of(
        cls,
        jobs: Mapping[int, Job],
        tasks: Mapping[int, Sequence[ReadTask]],
        rows_bytes: Mapping[tuple[int, int], int],
        chunk_bytes: int,
        most: int,
    ) -> ChunkPlan:
        """Splits the partitions whose rows take more than a chunk.

        Args:
            jobs: by number of their partition.
            tasks: the segments of each, ascending.
            rows_bytes: by partition and base offset of a segment, the size of its rows.
            chunk_bytes: size of a chunk, which may be a little larger; less if there would be too many chunks.
            most: chunks of one partition, or one more.
        """
        pieces: list[RowRange] = []
        divisions = {}
        for number, each in tasks.items():
            job = jobs[number]
            sizes = [SEGMENT_BYTES + rows_bytes.get((number, task.base_offset), 0) for task in each]
            starts: tuple[int, ...] = (0,)
            replay = _splittable_replay(job) if sum(sizes) > chunk_bytes else None
            if replay is not None:
                bases = replay.directory.base_offsets
                first = bisect_left(bases, each[0].base_offset)
                starts = chunk_starts(sizes, max(chunk_bytes, -(-sum(sizes) // most)))
                if len(starts) > 1:
                    lows = (WHOLE, *(each[start].base_offset for start in starts[1:]))
                    firsts = tuple(first + start for start in starts)
                    divisions[number] = Division(job, firsts, lows, first + len(each))
            lows = (WHOLE, *(each[start].base_offset for start in starts[1:]))
            pieces += map(RowRange, repeat(number), lows, (*lows[1:], END), np.add.reduceat(sizes, starts).tolist())
        return cls(pieces, divisions)

    def composed_pieces(self) -> list[RowRange]:
        """The chunks of which the effect is needed: all but the last one of a partition."""
        return [each for each in self.pieces if each.partition in self.divisions and each.high != END]


def _splittable_replay(job: Job) -> PartitionReplay | None:
    """The replay of a job, if its boundaries do not wait for later segments: one that waits runs in one task.

    Such a replay does not go back either (``may_go_back``), so that one round reads all of its segments.
    """
    replay = job.replay()
    if replay is None or replay.resume_from is not None or not replay.hands_out_at_once():
        return None
    return replay


def is_splittable(job: Job, tasks: Sequence[ReadTask], chunk_bytes: int) -> bool:
    """Whether a partition may have enough rows to be split; called before they are read."""
    size_bytes = sum(SEGMENT_BYTES + ROWS_OF_A_BYTE * task.identity.size_bytes for task in tasks)
    return len(tasks) > 1 and size_bytes > chunk_bytes and _splittable_replay(job) is not None


def whole_unless_large(job: Job, tasks: Sequence[ReadTask], chunk_bytes: int) -> WholeUnlessLarge:
    """The job of a partition that may have enough rows to be split.

    Args:
        job: of the partition.
        tasks: that read its segments.
        chunk_bytes: of rows, of which one task replays no more if the partition is split.
    """
    return WholeUnlessLarge(job, chunk_bytes - SEGMENT_BYTES * len(tasks))


def may_go_back(job: Job) -> bool:
    """Whether the replay of a job may need further segments."""
    replay = job.replay()
    return replay is None or replay.may_go_back()


def sent_bytes_of_segment(tasks: Sequence[ReadTask], chunk_bytes: int) -> int:
    """Bytes of rows of one segment that are sent to the task that replays the whole partition.

    It is as much as each segment may have if all have as many, and the partition is not split. So a partition that must be split sends
    little more than a chunk for each range of a segment.

    Args:
        tasks: that read the segments of the partition, at least one.
        chunk_bytes: of rows, of which one task replays no more if the partition is split.
    """
    return SEGMENT_BYTES + chunk_bytes // len(tasks)


def rows_sent(read: DataFrame) -> DataFrame:
    """The rows without those that are withheld."""
    return read.where(f"slot IS NULL OR slot <> {WITHHELD}")


def rows_of_segments(read: DataFrame) -> DataFrame:
    """The rows without the jobs and the sizes that the tasks which read send with them."""
    return read.where(f"piece > {JOB_PIECE}")


def run_replays(
    session: SparkSession,
    jobs: Mapping[int, Job | WholeUnlessLarge],
    read: DataFrame,
    plan: ChunkPlan,
    tasks: int | None,
    services: TaskServices,
) -> Iterator[Any]:
    """Runs the jobs, with the rows of all segments that were read for them, and maybe for others.

    Args:
        session: Spark's.
        jobs: by number of their partition.
        read: of ``summary_rows.SCHEMA``.
        plan: how they are split.
        tasks: of each stage; None to follow the work.
        services: of the tasks.

    Returns:
        One row of ``RESULT_SCHEMA`` for each job.
    """
    whole = [
        row
        for number, job in jobs.items()
        if number not in plan.divisions
        for row in summary_rows.rows_of_job(number, pickle.dumps(job))
    ]
    rows = data_frame(session, pa.Table.from_batches([summary_rows.table_of(whole)])).unionByName(read)
    divided = _divided(session, plan) if plan.divisions else None
    if divided is not None:
        rows = rows.unionByName(_begun(session, divided, read, plan, tasks, services))
    placed = _placed(session, rows, plan.pieces, tasks)
    results = placed.rows.mapInArrow(services.wrap(replay_tasks.run_jobs, placed.tasks), ddl(RESULT_SCHEMA))
    if divided is not None:
        first = divided.selectExpr("partition", f"CAST({MERGED_FIRST} AS BIGINT) AS base_offset", "job")
        count = tasks_for(0, len(jobs), tasks)
        merged = results.unionByName(first, allowMissingColumns=True).repartition(count, "partition")
        ordered = merged.sortWithinPartitions("partition", "base_offset")
        results = ordered.mapInArrow(replay_tasks.merge_chunks, ddl(RESULT_SCHEMA))
    return collected(results, len(jobs), RESULT_SCHEMA)


def run_read_jobs(read: DataFrame, partitions: int, count: int, services: TaskServices) -> Iterator[Any]:
    """Runs jobs that the tasks which read send on with the rows, each row to the task in its column ``slot``.

    Args:
        read: of ``summary_rows.SCHEMA``.
        partitions: how many have a job.
        count: of tasks.
        services: of the tasks.

    Returns:
        One row of ``RESULT_SCHEMA`` for each job.
    """
    ordered = sent_to_tasks(read, count).sortWithinPartitions(*summary_rows.KEYS)
    results = ordered.mapInArrow(services.wrap(replay_tasks.run_jobs, count), ddl(RESULT_SCHEMA))
    return collected(results, partitions, RESULT_SCHEMA)


def tasks_of_pieces(pieces: Sequence[RowRange], tasks: int | None) -> tuple[list[int], int]:
    """The task of each piece, packed by bytes, and how many tasks there are.

    Args:
        pieces: of the work.
        tasks: the setting of the user; None to follow the work.
    """
    sizes = [piece.size_bytes for piece in pieces]
    count = tasks_for(sum(sizes), len(pieces), tasks)
    return pack(sizes, count), count


def _divided(session: SparkSession, plan: ChunkPlan) -> DataFrame:
    """The divisions, of ``SENT_SCHEMA``."""
    sent = {"partition": list(plan.divisions), "job": [pickle.dumps(each) for each in plan.divisions.values()]}
    return data_frame(session, pa.Table.from_pydict(sent, schema=SENT_SCHEMA))


def _begun(
    session: SparkSession, divided: DataFrame, read: DataFrame, plan: ChunkPlan, tasks: int | None, services: TaskServices
) -> DataFrame:
    """The rows of the job of each chunk, with the state before it."""
    pieces = plan.composed_pieces()
    places = _places(session, pieces, [0] * len(pieces))
    at_chunks = divided.crossJoin(places.hint("broadcast")).where("partition = of").select("partition", "low", "job")
    rows = read.unionByName(_job_rows(at_chunks), allowMissingColumns=True)
    placed = _placed(session, rows, pieces, tasks)
    chunks = placed.rows.mapInArrow(services.wrap(replay_tasks.compose_chunks, placed.tasks), ddl(summary_rows.SCHEMA))
    at_partitions = divided.selectExpr("*", f"CAST({WHOLE} AS BIGINT) AS low")
    rows = chunks.unionByName(_job_rows(at_partitions), allowMissingColumns=True)
    partitions = [RowRange(number, WHOLE, END, len(division.starts)) for number, division in plan.divisions.items()]
    return _placed(session, rows, partitions, tasks).rows.mapInArrow(replay_tasks.begin_chunks, ddl(summary_rows.SCHEMA))


def _job_rows(sent: DataFrame) -> DataFrame:
    """The rows of jobs without a state, at their base offset ``low``."""
    numbers = (f"CAST({JOB_PIECE} AS INT) AS piece", "CAST(0 AS INT) AS part")
    return sent.selectExpr("partition", "CAST(low AS BIGINT) AS base_offset", *numbers, "job")


def _placed(session: SparkSession, rows: DataFrame, pieces: Sequence[RowRange], tasks: int | None) -> TaskFrame:
    """The rows of these pieces and no others, packed by bytes into tasks, and in their order."""
    slots, count = tasks_of_pieces(pieces, tasks)
    rows = rows.drop("slot")
    if len(pieces) <= PIECES_WRITTEN_OUT:
        cases = " ".join(f"WHEN {_holds(*map(str, piece[:3]))} THEN {slot}" for piece, slot in zip(pieces, slots, strict=True))
        placed = rows.selectExpr("*", f"CASE {cases} END AS slot").where("slot IS NOT NULL")
        more = ["slot"]
    else:
        places = _places(session, pieces, slots)
        placed = rows.crossJoin(places.hint("broadcast")).where(_holds("of", "low", "high"))
        more = PLACE_SCHEMA.names
    # To drop these columns is one call to Java, and to select the others three for each of them.
    ordered = sent_to_tasks(placed, count).sortWithinPartitions(*summary_rows.KEYS).drop(*more)
    return TaskFrame(ordered, count)


def _holds(partition: str, low: str, high: str) -> str:
    """Whether a row is one of a piece, in SQL."""
    return f"partition = {partition} AND base_offset >= {low} AND (base_offset < {high} OR {high} = {END})"


def _places(session: SparkSession, pieces: Sequence[RowRange], slots: Sequence[int]) -> DataFrame:
    numbers, lows, highs, _ = zip(*pieces, strict=True)
    columns = dict(zip(PLACE_SCHEMA.names, (numbers, lows, highs, slots), strict=True))
    return data_frame(session, pa.Table.from_pydict(columns, schema=PLACE_SCHEMA))


def collected(rows: DataFrame, partitions: int, schema: pa.Schema) -> Iterator[Row]:
    """The rows of a frame that has one for each partition: in one query if they are small, else some at a time.

    Args:
        rows: with the column ``partition``; computed once, unless an executor is lost that holds some of it.
        partitions: how many there are.
        schema: of the rows.
    """
    if partitions <= PARTITIONS_AT_ONCE:
        yield from rows.collect()
        return
    size = " + ".join(f"coalesce(octet_length({field.name}), 0)" for field in schema if field.type == pa.binary())
    most = COLLECT_BYTES // partitions
    persisted = rows.persist()
    try:
        small = persisted.where(f"{size} <= {most}").collect()
        yield from small
        if len(small) == partitions:
            return
        # Rows that are computed again may have another size: each partition is taken by its number, and once.
        taken = {row.partition for row in small}
        del small
        all_sizes = persisted.selectExpr("partition", f"{size} AS size").collect()
        sizes = {row.partition: row.size for row in all_sizes if row.partition not in taken}
        for some in in_turns(sorted(sizes), COLLECT_BYTES, sizes.__getitem__):
            yield from persisted.where(persisted["partition"].isin(some)).collect()
    finally:
        persisted.unpersist()
