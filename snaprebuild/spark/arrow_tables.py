"""Arrow tables as DataFrames, and as the work of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql import DataFrame, SparkSession

from snaprebuild.spark.packing import SLOT, release_of, sent_to_tasks

__all__ = ["DataFrame", "SparkSession", "TaskFrame", "TaskFunction", "data_frame", "ddl", "mapped_in_tasks"]

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that ``mapInArrow`` runs in each task."""

WITH_FUNCTION_BYTES = 4 << 20
"""A table of at most this size is sent with the function of the tasks: some 3,000 partitions. Each task gets all of it."""

WITH_ARROW = (4, 0)
"""The first release of Spark whose ``createDataFrame`` takes a table."""

_NAMES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.int8(): "tinyint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
}


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark's DDL, for ``mapInArrow``."""
    return ", ".join(f"`{field.name}` {_name(field.type)}" for field in schema)


def _name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{_name(field.type)}' for field in kind)}>"
    return _NAMES[kind]


class TaskFrame(NamedTuple):
    """Rows that tasks make, and the number of these tasks."""

    rows: DataFrame
    tasks: int


def data_frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """A table of the driver as a DataFrame of the same types, in one partition: a task has more to start than to copy."""
    if release_of(pyspark.__version__) >= WITH_ARROW:
        return session.createDataFrame(table).coalesce(1)
    return session.createDataFrame(table.to_pylist(), ddl(table.schema)).coalesce(1)


@dataclass(frozen=True, slots=True)
class _WithRows:
    """The function of tasks that each take their own rows from a table. Spark gives a task the numbers of its slots."""

    function: TaskFunction
    table: pa.Table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = pa.concat_arrays([batch.column(0) for batch in batches] or [pa.array([], pa.int64())])
        rows = self.table.filter(pc.is_in(self.table[SLOT], slots.cast(pa.int32())))
        yield from self.function(rows.to_batches())


def mapped_in_tasks(session: SparkSession, table: pa.Table, tasks: int, function: TaskFunction, schema: pa.Schema) -> DataFrame:
    """The rows that tasks make of a table. A task gets the rows whose column ``slot`` has its number.

    A small table is sent with the function. That saves a stage with a shuffle, which takes some 50 ms of Java.

    Args:
        session: that runs the tasks.
        table: the work.
        tasks: how many there are.
        function: of each task.
        schema: of the rows that it makes.
    """
    if table.nbytes > WITH_FUNCTION_BYTES:
        return sent_to_tasks(data_frame(session, table), tasks).mapInArrow(function, ddl(schema))
    return session.range(0, tasks, 1, tasks).mapInArrow(_WithRows(function, table), ddl(schema))
