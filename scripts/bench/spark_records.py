#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark records
"""Records a second of the data source ``kafka_records`` on two cores, next to a source that yields ready batches of the same columns.

The ready batches have the same records, so that they show the limit of Spark itself. One large segment is split into tasks by its offset
index. All sources are measured in turn in one session; the least time of each counts, and the share is that of the limit.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from records import Mix

from snaprebuild.consume.arrow_batches import DEFAULT_COLUMNS, record_schema
from snaprebuild.library.record_stream import records
from snaprebuild.spark import register
from snaprebuild.spark.arrow_tables import ddl

INDEX_INTERVAL_BYTES = 4096
"""``index.interval.bytes`` of a broker."""

COLUMN_CHOICES = {
    "all of Spark's Kafka source": DEFAULT_COLUMNS,
    "without headers": DEFAULT_COLUMNS[:-1],
    "offset, timestamp": ("offset", "timestamp"),
}
READY_BYTES = 32 << 20
"""Ready batches that a task holds, and yields again and again."""


def write_log(directory: Path, codec: str, mebibytes: int) -> int:
    """A partition with one segment and its offset index. Returns how many records it has."""
    directory.mkdir(parents=True)
    mix = Mix()
    index = []
    offset = 0
    position = 0
    since_entry = 0
    with (directory / f"{0:020d}.log").open("wb") as file:
        while position < mebibytes << 20:
            count = mix.count()
            batch = bytearray(mix.batch(count, codec))
            struct.pack_into(">q", batch, 0, offset)  # which the checksum does not cover
            if since_entry > INDEX_INTERVAL_BYTES:
                index.append((offset + count - 1, position))
                since_entry = 0
            file.write(batch)
            offset += count
            position += len(batch)
            since_entry += len(batch)
    (directory / f"{0:020d}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in index))
    return offset


class _ReadyReader(DataSourceReader):
    def __init__(self, columns: list[str], directory: str, rows: int, tasks: int) -> None:
        self.columns = columns
        self.directory = directory
        self.rows = rows
        self.tasks = tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        path = Path(self.directory, f"ready-{'-'.join(self.columns)}.arrow")
        with pa.memory_map(str(path)) as file:
            ready = pa.ipc.open_file(file)
            batches = [ready.get_batch(number) for number in range(ready.num_record_batches)]
        left = self.rows // self.tasks + (partition.value < self.rows % self.tasks)
        while left:
            for batch in batches:
                part = batch.slice(0, left)
                yield part
                left -= len(part)
                if not left:
                    break


class Ready(DataSource):
    """Yields the same batches of records again and again."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return "ready"

    def schema(self) -> str:
        """The columns of the option."""
        return ddl(record_schema(self.options["columns"].split(",")))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader with the number of rows and tasks that the options name."""
        return _ReadyReader(schema.fieldNames(), self.options["directory"], int(self.options["rows"]), int(self.options["tasks"]))


def write_ready(logs: Path, directory: Path, columns: tuple[str, ...]) -> None:
    """The first batches of a log, as the reader gives them."""
    stream = records(logs, columns=columns)
    held_bytes = 0
    with pa.ipc.new_file(str(directory / f"ready-{'-'.join(columns)}.arrow"), stream.schema) as file:
        for batch in stream:
            file.write_batch(batch)
            held_bytes += batch.nbytes
            if held_bytes > READY_BYTES:
                break


def processor_seconds(session: SparkSession) -> float:
    """Processor time of Java and of all Python workers that it has started, those that ended included."""
    java = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    total = 0
    children = [java]
    while children:
        process = children.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            children += [
                int(each) for task in Path(f"/proc/{process}/task").iterdir() for each in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def measured(session: SparkSession, load: Callable[[], DataFrame]) -> tuple[float, float]:
    """Seconds, and processor seconds, of a read of all rows; a DataFrame plans its source once, so that each read has a new one."""
    before = processor_seconds(session)
    began = time.perf_counter()
    load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, processor_seconds(session) - before


def main() -> None:
    """Prints a row for each codec and choice of columns."""
    parser = argparse.ArgumentParser(prog="scripts/bench/spark_records.py", description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256, help="of the segment as it is stored (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each source (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=4, help="of each read (default: %(default)s)")
    options = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(session)
    session.dataSource.register(Ready)
    print("| records | columns | limit, 1,000 a second | kafka_records | share | by processor time | tasks |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-spark-records-") as scratch:
        for codec in ("none", "lz4"):
            logs = Path(scratch) / codec
            rows = write_log(logs / "orders-0", codec, options.mebibytes)
            for label, columns in COLUMN_CHOICES.items():
                write_ready(logs, Path(scratch), columns)
                names = ",".join(columns)
                ready = {"columns": names, "directory": scratch, "rows": rows, "tasks": options.tasks}
                reading = {"columns": names, "numPartitions": options.tasks}
                sources = {
                    "ready": partial(session.read.format("ready").options(**ready).load),
                    "kafka_records": partial(session.read.format("kafka_records").options(**reading).load, str(logs)),
                }
                tasks = sources["kafka_records"]().rdd.getNumPartitions()
                least = {name: (float("inf"), float("inf")) for name in sources}
                for _ in range(options.rounds):
                    for name, load in sources.items():
                        seconds, processor = measured(session, load)
                        least[name] = (min(least[name][0], seconds), min(least[name][1], processor))
                limit, own = least["ready"], least["kafka_records"]
                rates = f"{rows / limit[0] / 1000:,.0f} | {rows / own[0] / 1000:,.0f}"
                shares = f"{limit[0] / own[0]:.2f} | {limit[1] / own[1]:.2f}"
                print(f"| {codec}: {rows:,} | {label} | {rates} | {shares} | {tasks} |", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
