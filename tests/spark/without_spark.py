"""The two functions that run in Spark's tasks, driven as Spark drives them but without it, by any distribution of the rows."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import pyarrow as pa

from snaprebuild.operations.schedule import ReadTask, Work
from snaprebuild.spark import job, read_rows, summary_rows
from snaprebuild.spark.counts import Counts
from snaprebuild.spark.packing import pack


class _NoCounts:
    def add(self, **_: int) -> None:
        """Nobody looks."""


NO_COUNTS = cast(Counts, _NoCounts())


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
    """A ``schedule.Engine``. Everything that Spark leaves open follows from a seed."""

    def __init__(self, seed: int, attempts: int = 1) -> None:
        """Takes the seed, and how often each task is run before its rows count."""
        self.random = random.Random(seed)
        self.attempts = attempts
        self.rounds = 0
        self.read: list[str] = []

    def __call__(self, works: Sequence[Work]) -> None:
        wanted: dict[int, list[ReadTask]] = {}
        for number, work in enumerate(works):
            if tasks := work.tasks():
                wanted[number] = tasks
            else:
                work.finish()
        rows: list[pa.RecordBatch] = []
        while wanted:
            self.rounds += 1
            rows += self._read([(number, task) for number, tasks in wanted.items() for task in tasks])
            for number in wanted:
                one = [*summary_rows.rows_of_job(number, pickle.dumps(works[number].job()))]
                rows.append(summary_rows.table_of(one))
            found = list(self._carried_out(rows))
            assert sorted(row["partition"] for row in found) == sorted(wanted), "each once"
            rows = [each for each in rows if each.column("job").null_count]
            wanted = {row["partition"]: pickle.loads(row["wanted"]) for row in found if row["wanted"] is not None}
            for row in found:
                if row["done"] is not None:
                    works[row["partition"]].adopt(pickle.loads(row["done"]))

    def _read(self, tasks: list[tuple[int, ReadTask]]) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        self.read += [task.path for _, task in tasks]
        target_bytes = self.random.choice((1 << 10, 1 << 14, 1 << 30))
        rows = [row for number, task in tasks for row in read_rows.ranges_of(number, task, target_bytes)]
        for places in dealt([row.size_bytes for row in rows], self.random):
            table = read_rows.table_of([rows[at] for at in places], [0] * len(places))
            found += job._read_segments(batches_of(table, self.random), NO_COUNTS)
        assert all(len(each) <= summary_rows.ROWS_PER_BATCH for each in found)
        return found

    def _carried_out(self, rows: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
        table = pa.Table.from_batches(rows).sort_by([(key, "ascending") for key in summary_rows.KEYS])
        numbers = sorted(set(table.column("partition").to_pylist()))
        for places in dealt([1] * len(numbers), self.random):
            mine = {numbers[at] for at in places}
            which = pa.array([number in mine for number in table.column("partition").to_pylist()], type=pa.bool_())
            for _ in range(self.attempts):
                done = list(job._carry_out(batches_of(table.filter(which), self.random), NO_COUNTS))
            for found in done:
                yield from found.to_pylist()
