#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Rows a second of the data source ``kafka_batch_headers`` through Spark, next to a source that yields one constant batch.

The constant source has the same columns and costs nothing in Python, so it shows the limit of Spark itself. Both are measured with
Spark's own settings and with the two of docs/reference/spark-sql.md, each time in a Java process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from make_partition import Shape, make_partition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from snaprebuild.spark import header_rows, register
from snaprebuild.spark.arrow_tables import ddl

UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
COLUMNS = {
    "all columns": ", ".join(header_rows.SCHEMA.names),
    "six columns": "topic, partition, base_offset, producer_id, producer_epoch, max_timestamp",
}
WORDS = {"topic": "t", "directory": "/a/partition/directory/of/usual/length", "codec": "none", "timestamp_type": "CreateTime"}
TASKS = 4
BATCH_BYTES = 120
REPEAT = 4


class _ConstantReader(DataSourceReader):
    def __init__(self, columns: list[str], batches: int) -> None:
        self.columns = columns
        self.batches = batches

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([header_rows.SCHEMA.field(name) for name in self.columns])
        arrays = []
        for field in schema:
            value = pa.scalar(WORDS.get(field.name)) if pa.types.is_string(field.type) else pa.scalar(1)
            arrays.append(pa.repeat(value.cast(field.type), header_rows.ROWS_MIN))
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for _ in range(self.batches):
            yield batch


class Constant(DataSource):
    """Yields the same batch of rows again and again."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return "constant"

    def schema(self) -> str:
        """The columns of the option."""
        return ddl(pa.schema([header_rows.SCHEMA.field(name) for name in self.options["columns"].split(", ")]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader with the number of rows that the option names."""
        return _ConstantReader(schema.fieldNames(), int(self.options["rows"]) // TASKS // header_rows.ROWS_MIN)


def measure(directory: str, rows: int) -> dict[str, float]:
    """Million rows a second of each source and choice of columns, the best of several, in the Java of this process."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(session)
    session.dataSource.register(Constant)
    rates = {}
    for label, columns in COLUMNS.items():
        read = {
            "kafka_batch_headers": session.read.format("kafka_batch_headers").option("columns", columns).load(directory),
            "constant": session.read.format("constant").options(columns=columns, rows=rows).load(),
        }
        for name, frame in read.items():
            rates[f"{name}, {label}"] = rows / min(_seconds(frame) for _ in range(REPEAT)) / 1e6
    session.stop()
    return rates


def _seconds(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    """Prints the table."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as place:
        rows = make_partition(Path(place) / "logs" / "t-0", Shape(BATCH_BYTES, 240 << 20, 64 << 20))
        tables = []
        for java_options in ("", UNCHECKED):
            submit = f"--driver-memory 1g --driver-java-options '-Dnothing=1 {java_options}' pyspark-shell"
            command = [sys.executable, __file__, str(Path(place) / "logs"), str(rows)]
            variables = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit}
            tables.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout))
    print(f"{rows:,} batches of {BATCH_BYTES} bytes, local[2], million rows a second, the best of {REPEAT}")
    print(f"{'':34}{'as it is':>12}{'unchecked':>12}")
    for name in tables[0]:
        print(f"{name:34}" + "".join(f"{table[name]:>12.2f}" for table in tables))


if __name__ == "__main__":
    main()
