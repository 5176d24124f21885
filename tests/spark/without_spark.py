"""The functions that run in Spark's tasks, driven as Spark drives them but without it, by any distribution of the rows."""

import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.spark import job, read_rows, replay_tasks, summary_rows
from snaprebuild.spark.chunks import END, ChunkPlan, RowRange
from snaprebuild.spark.packing import pack
from snaprebuild.spark.read_tasks import read_segments
from snaprebuild.spark.replay_tasks import MERGED_FIRST, TooManyRows
from snaprebuild.spark.summary_rows import JOB_PIECE, WHOLE, WITHHELD, rows_of_job


def batches_of(table: pa.Table, random: random.Random) -> Iterator[pa.RecordBatch]:
    """A table in batches of any sizes, empty ones between them."""
    at = 0
    while at < len(table):
        size = random.randrange(5)
        yield from table.slice(at, size).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        at += size


def dealt(items: Sequence[int], random: random.Random) -> list[list[int]]:
    """Places of items by the task that they were given to, by ``pack`` or by chance, in any order."""
    count = random.randrange(1, 8)
    placed = pack(items, count) if random.random() < 0.5 else [random.randrange(count) for _ in items]
    tasks = [[at for at, place in enumerate(placed) if place == task] for task in range(count)]
    for task in tasks:
        random.shuffle(task)
    return tasks


class WithoutSpark:
    """A ``partition_task.Engine``. Everything that Spark leaves open follows from a seed."""

    def __init__(self, seed: int, attempts: int = 1, chunk_bytes: int | None = None) -> None:
        """Takes the seed, how often each task is run before its rows count, and the size of chunks, None for any."""
        self.random = random.Random(seed)
        self.attempts = attempts
        self.chunk_bytes = chunk_bytes
        self.rounds = self.chunks = 0
        self.read: list[str] = []

    def __call__(self, works: Sequence[PartitionTask]) -> None:
        wanted: dict[int, list[ReadTask]] = {}
        for number, work in enumerate(works):
            if tasks := work.tasks():
                wanted[number] = tasks
            else:
                work.finish()
                work.settle()
        rows: list[pa.RecordBatch] = []
        given: dict[int, dict[int, ReadTask]] = {}
        chunk_bytes = self.chunk_bytes or self.random.choice((1, 1 << 17, 1 << 18, 1 << 62))
        while wanted:
            self.rounds += 1
            for number, each in wanted.items():
                given.setdefault(number, {}).update((task.base_offset, task) for task in each)
            jobs = {number: works[number].job() for number in wanted}
            segments = {number: [given[number][at] for at in sorted(given[number])] for number in wanted}
            work = job.Round.of(jobs, segments, wanted, chunk_bytes)
            rows += self._read(work)
            found = self._run_replays(work, pa.Table.from_batches(rows))
            assert sorted(row["partition"] for row in found) == sorted(wanted), "each once"
            wanted = {}
            for row in found:
                number = row["partition"]
                if row["done"] is not None:
                    done = pickle.loads(row["done"])
                    if isinstance(done, Exception):
                        raise done
                    works[number].adopt(done)
                    continue
                wanted[number] = [each for each in pickle.loads(row["wanted"]) if each.base_offset not in given[number]]
                assert wanted[number], "it asks for nothing that it has"

    def _read(self, work: job.Round) -> list[pa.RecordBatch]:
        tasks = [(number, task) for number, each in work.requested.items() for task in each]
        found: list[pa.RecordBatch] = []
        self.read += [task.path for _, task in tasks]
        target_bytes = self.random.choice((1 << 10, 1 << 14, 1 << 30))
        rows = [row for number, task in tasks for row in read_rows.ranges_of(number, task, target_bytes)]
        for places in dealt([row.size_bytes for row in rows], self.random):
            table = read_rows.table_of([rows[at] for at in places], [0] * len(places))
            found += read_segments(batches_of(table, self.random), sent_bytes_max=work.sent_bytes_max)
        assert all(len(each) <= summary_rows.ROWS_PER_BATCH for each in found)
        return found

    def _run_replays(self, work: job.Round, read: pa.Table) -> list[dict[str, Any]]:
        """Replays like ``job.SparkEngine``: partitions with many rows come back, and are replayed in chunks."""
        whole = [row for number, each in work.sent_jobs().items() for row in rows_of_job(number, pickle.dumps(each))]
        sent = read.filter(pc.field("slot").is_null() | (pc.field("slot") != WITHHELD))
        results = self._mapped(
            replay_tasks.run_jobs, work.plan().pieces, [sent, as_table(whole)], replay_tasks.RESULT_SCHEMA
        ).to_pylist()
        large: dict[int, TooManyRows] = {}
        for row in results:
            done = None if row["done"] is None else pickle.loads(row["done"])
            if isinstance(done, TooManyRows):
                large[row["partition"]] = done
        found = [row for row in results if row["partition"] not in large]
        if large:
            jobs = {number: work.jobs[number] for number in sorted(large)}
            tasks = {number: work.segments[number] for number in jobs}
            sizes = {(number, at): size for number, each in large.items() for at, size in each.rows_bytes.items()}
            assert sizes.keys() == {(number, each.base_offset) for number in large for each in tasks[number]}
            most = self.random.randrange(1, 20) if self.chunk_bytes is None else sys.maxsize
            plan = ChunkPlan.of(jobs, tasks, sizes, work.chunk_bytes, most)
            found += self._run_chunks(jobs, plan, read.filter(pc.field("piece") > JOB_PIECE))
        return found

    def _run_chunks(self, jobs: dict[int, Job], plan: ChunkPlan, read: pa.Table) -> list[dict[str, Any]]:
        """Replays in chunks like ``chunks.run_replays``."""
        self.chunks += len(plan.pieces) - len(jobs)
        sent = {number: pickle.dumps(each) for number, each in plan.divisions.items()}
        before = plan.composed_pieces()
        at_chunks = [row for piece in before for row in rows_of_job(piece.partition, sent[piece.partition], piece.low)]
        composed = self._mapped(replay_tasks.compose_chunks, before, [read, as_table(at_chunks)], summary_rows.SCHEMA)
        partitions = [RowRange(number, WHOLE, END, 1) for number in sent]
        at_partitions = [row for number, each in sent.items() for row in rows_of_job(number, each)]
        begun = self._mapped(replay_tasks.begin_chunks, partitions, [composed, as_table(at_partitions)], summary_rows.SCHEMA)
        whole = [row for number, each in jobs.items() if number not in sent for row in rows_of_job(number, pickle.dumps(each))]
        results = self._mapped(replay_tasks.run_jobs, plan.pieces, [read, begun, as_table(whole)], replay_tasks.RESULT_SCHEMA)
        first = [{"partition": number, "base_offset": MERGED_FIRST, "job": each} for number, each in sent.items()]
        everywhere = [RowRange(number, MERGED_FIRST, END, 1) for number in jobs]
        tables = [results, pa.Table.from_pylist(first, schema=replay_tasks.RESULT_SCHEMA)]
        found: list[dict[str, Any]] = self._mapped(
            replay_tasks.merge_chunks, everywhere, tables, replay_tasks.RESULT_SCHEMA
        ).to_pylist()
        return found

    def _mapped(
        self,
        function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        pieces: list[RowRange],
        tables: list[pa.Table],
        schema: pa.Schema,
    ) -> pa.Table:
        """Tables with one schema, each piece of them sent to some task, as ``chunks._placed``; what the function makes of them."""
        table = pa.concat_tables(tables)
        table = table.sort_by([(key, "ascending") for key in summary_rows.KEYS if key in table.schema.names])
        places = list(zip(table.column("partition").to_pylist(), table.column("base_offset").to_pylist(), strict=True))
        found: list[pa.RecordBatch] = []
        for some in dealt([piece.size_bytes for piece in pieces], self.random):
            mine = [pieces[at] for at in some]
            which = [
                any(each.partition == number and each.low <= at and (at < each.high or each.high == END) for each in mine)
                for number, at in places
            ]
            for _ in range(self.attempts):
                done = list(function(batches_of(table.filter(pa.array(which, type=pa.bool_())), self.random)))
                end_own_parts()
            found += done
        return pa.Table.from_batches(found, schema=schema)


def as_table(rows: list[summary_rows.Row]) -> pa.Table:
    """Rows as a table."""
    return pa.Table.from_batches([summary_rows.table_of(rows)])
