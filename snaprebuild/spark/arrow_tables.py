"""Arrow tables as DataFrames."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from snaprebuild.spark.packing import release_of

__all__ = ["DataFrame", "SparkSession", "TaskFrame", "data_frame", "ddl"]

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
