"""Packing: every item once, tasks of nearly equal size, each task in a Spark partition of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.spark import packing
from snaprebuild.spark.packing import (
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    TASK_ITEMS,
    TASKS_MAX,
    pack,
    sent_to_tasks,
    slots,
    task_bytes,
    tasks_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def loads(sizes: list[int], placed: list[int], tasks: int) -> list[int]:
    return np.bincount(placed, weights=sizes, minlength=tasks).astype(int).tolist()


@given(st.lists(st.integers(0, 1 << 30), max_size=60), st.integers(1, 20))
def test_no_task_has_more_than_its_share_and_one_item(sizes: list[int], tasks: int) -> None:
    """The bound of list scheduling: the fullest one was the emptiest when its last item came. The last is no larger than the first."""
    placed = pack(sizes, tasks)
    assert len(placed) == len(sizes)
    assert set(placed) <= set(range(tasks))
    if sizes:
        used = min(tasks, len(sizes))
        assert max(loads(sizes, placed, tasks)) <= sum(sizes) / used + max(sizes)
        assert max(loads(sizes, placed, tasks)) <= max(*sizes, 4 / 3 * sum(sizes) / used + max(sizes) / 3)
        assert set(placed) == set(range(used)), "no task is idle, not even where items are empty"


def test_nothing_to_pack() -> None:
    assert pack([], 4) == []
    assert pack([0, 0, 0], 2) == [0, 1, 0]


@given(st.integers(1, 300))
def test_slots_are_distinct(tasks: int) -> None:
    found = slots(tasks)
    assert len(set(found)) == len(found) == tasks


@given(st.integers(0, 1 << 52), st.integers(1, 1 << 30))
def test_tasks_follow_the_work(size_bytes: int, items: int) -> None:
    """A task has at least so many bytes or items as its start is worth, and no more than a retry is worth."""
    tasks = tasks_for(size_bytes, items)
    assert 1 <= tasks <= items
    of_task = task_bytes(size_bytes)
    assert TASK_BYTES_MIN <= of_task <= TASK_BYTES_MAX
    if tasks < items:
        assert tasks * of_task >= size_bytes
        assert tasks >= min(items / TASK_ITEMS, TASKS_MAX)
    assert tasks == 1 or (tasks - 1) * of_task < size_bytes or (tasks - 1) * TASK_ITEMS < items


def test_tasks_grow_with_the_work() -> None:
    """256 MiB each, then 64 tasks, then 1 GiB each, then 4,096 tasks, then 4 GiB each."""
    gib = 1 << 30
    sizes = (gib, 16 * gib, 32 * gib, 64 * gib, 1024 * gib, 8192 * gib, 1 << 50)
    expected = (4, 64, 64, 64, 1024, 4096, 1 << 18)
    assert [-(-size // task_bytes(size)) for size in sizes] == list(expected)


def test_tasks_of_this_machine_are_as_many_as_its_cores() -> None:
    """The rule holds while each task has 256 MiB or 128 items, and no more than 1 GiB or 1,024 items."""
    gib = 1 << 30
    sizes = (gib >> 2, gib, 2 * gib, 4 * gib, 64 * gib, 8192 * gib)
    assert [-(-size // task_bytes(size, cores=2)) for size in sizes] == [1, 2, 2, 4, 64, 4096]
    assert [tasks_for(size, 10**6, cores=2, opened=1) for size in (0, gib)] == [977, 977]
    assert [tasks_for(0, items, cores=2) for items in (128, 256, 2048, 6000)] == [1, 2, 2, 6]
    assert [tasks_for(0, 2000, cores=2, opened=6000), tasks_for(0, 2000, opened=6000)] == [6, 47]


def test_tasks_that_the_user_sets() -> None:
    assert [tasks_for(1 << 40, 100, tasks) for tasks in (1, 7, 1000)] == [1, 7, 100]
    assert [task_bytes(100, tasks) for tasks in (1, 7, 1000)] == [100, 15, 1]
    assert tasks_for(0, 0) == 1


ROWS_OF_A_TASK = pa.schema([("task", pa.int64()), ("numbers", pa.list_(pa.int64()))])


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row: the task, and what it got."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
    yield pa.RecordBatch.from_pylist([{"task": context.partitionId(), "numbers": numbers}], schema=ROWS_OF_A_TASK)


@pytest.mark.spark
@pytest.mark.parametrize("most_bytes", [1 << 22, -1], ids=["with the function", "in a shuffle"])
def test_a_task_gets_its_rows_and_no_others(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """Also a task without any."""
    from snaprebuild.spark import arrow_tables  # the quick tier has no pyspark
    from snaprebuild.spark.arrow_tables import mapped_in_tasks

    monkeypatch.setattr(arrow_tables, "WITH_FUNCTION_BYTES", most_bytes)
    slots_of_rows = [2, 0, 2, 4, 0, 2]
    table = pa.table({"slot": pa.array(slots_of_rows, pa.int32()), "number": pa.array(range(6), pa.int64())})
    rows = mapped_in_tasks(spark, table, 5, numbers_of, ROWS_OF_A_TASK).collect()
    assert sorted((row.task, sorted(row.numbers)) for row in rows) == [(0, [1, 4]), (1, []), (2, [0, 2, 5]), (3, []), (4, [3])]


@pytest.mark.spark
@pytest.mark.parametrize("by_number", [True, False], ids=["by number", "by hash"])
def test_rows_are_sent_to_their_tasks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, by_number: bool) -> None:
    """Also as with Spark 3.5 and 4.0, which place rows by a hash only."""
    from pyspark.sql.functions import spark_partition_id

    if not by_number:
        monkeypatch.setattr(packing, "BY_NUMBER", (99, 0))
    frame = sent_to_tasks(spark.createDataFrame([(task,) for task in range(7)], "slot int"), 7)
    assert frame.columns == ["slot"]
    rows = frame.select("slot", spark_partition_id().alias("place")).collect()
    assert sorted((row.slot, row.place) for row in rows) == [(task, task) for task in range(7)]


@pytest.mark.spark
@pytest.mark.parametrize("tasks", [7, 200])
def test_spark_puts_each_slot_into_its_partition(spark: SparkSession, tasks: int) -> None:
    """Expected values come from Spark: its ``hash``, and the partition that a row is found in."""
    from pyspark.sql.functions import hash as spark_hash
    from pyspark.sql.functions import spark_partition_id

    found = spark.createDataFrame([(slot, task) for task, slot in enumerate(slots(tasks))], "slot bigint, task int")
    placed = found.repartition(tasks, "slot").select("task", spark_hash("slot").alias("hash"), spark_partition_id().alias("place"))
    rows = placed.collect()
    assert len(rows) == tasks
    for row in rows:
        assert row.hash % tasks == row.task == row.place
