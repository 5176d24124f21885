"""Arrow tables as DataFrames."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

__all__ = ["data_frame", "ddl"]

_NAMES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.int8(): "tinyint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
}


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark's DDL, for ``mapInArrow``."""
    return ", ".join(f"`{field.name}` {_name(field.type)}" for field in schema)


def _name(kind: pa.DataType) -> str:
    return f"array<{_name(kind.value_type)}>" if pa.types.is_list(kind) else _NAMES[kind]


def data_frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """A table of the driver as a DataFrame of the same types."""
    if hasattr(session, "_create_from_arrow_table"):  # 4.0 and newer take tables as they are
        return session.createDataFrame(table)
    return session.createDataFrame(table.to_pylist(), ddl(table.schema))
