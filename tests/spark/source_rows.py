"""Rows of the data sources, as Spark's Python workers get them from a reader, and as the grammar gives them."""

import json
import re
import zlib
from pathlib import Path
from typing import Any

import crcmod.predefined
import pyarrow as pa
from header_engines import read_reference, segment
from log_dirs import (
    batch,
    batch_positions,
    write_partition,
)
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

from snaprebuild.spark.data_sources import BatchHeaders, ProducerSnapshots

Rows = list[dict[str, Any]]
AS_IN_THE_HEADER = (
    *("size_bytes", "base_offset", "last_offset", "last_offset_delta", "record_count", "partition_leader_epoch", "magic", "crc"),
    *("attributes", "is_transactional", "is_control", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence"),
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CRC32C = crcmod.predefined.mkCrcFun("crc-32c")


def reader_of(source: type[Any], *paths: Path, schema: pa.Schema | None = None, **options: str) -> Any:
    made = source(CaseInsensitiveDict(options | ({"paths": json.dumps([str(path) for path in paths])} if paths else {})))
    names = re.findall(r"`(\w+)`", made.schema())
    return made.reader(from_arrow_schema(schema or pa.schema([source.whole.field(name) for name in names])))


def rows_of(reader: Any, tasks: list[Any] | None = None) -> Rows:
    """Rows of the reader's own tasks, or of those of an earlier plan."""
    return [row for task in tasks or reader.partitions() for rows in reader.read(task) for row in rows.to_pylist()]


def headers(*paths: Path, **options: str) -> Rows:
    return rows_of(reader_of(BatchHeaders, *paths, **options))


def entries(*paths: Path, **options: str) -> Rows:
    return rows_of(reader_of(ProducerSnapshots, *paths, **options))


def files_of(reader: Any) -> set[str]:
    return {f"{Path(file.directory).name}/{file.name}" for task in reader.partitions() for file in task.value.files}


def expected_rows(path: Path) -> Rows:
    """The whole batches of a segment by the grammar (construct), their checksums by crcmod and zlib."""
    data = path.read_bytes()
    reading = read_reference(segment(data))
    markers = {each.row: each for each in reading.markers}
    topic, _, partition = path.parent.name.rpartition("-")
    rows = []
    for index, (header, position) in enumerate(zip(reading.headers, reading.positions, strict=True)):
        covered = data[position + (21 if header.magic == 2 else 16) : position + header.size_bytes]
        marker = markers.get(index)
        rows.append(
            {name: getattr(header, name) for name in AS_IN_THE_HEADER}
            | {
                "topic": topic,
                "partition": int(partition),
                "directory": str(path.parent),
                "segment_base_offset": int(path.stem),
                "position_bytes": position,
                "crc_ok": (CRC32C if header.magic == 2 else zlib.crc32)(covered) == header.crc,
                "codec": CODECS[header.attributes % 8],
                "timestamp_type": "NoTimestampType"
                if header.magic == 0
                else ("CreateTime", "LogAppendTime")[header.attributes // 8 % 2],
                "marker_type": None if marker is None else ("ABORT", "COMMIT")[marker.is_commit],
                "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
                "error": None,
            }
        )
    return rows


def three(root: Path) -> Path:
    """Two topics: ``a`` with segments at 0, 10 and 20, ``b`` with one."""
    for partition in (0, 1):
        pieces = {base: b"".join(batch(offset, count=2) for offset in range(base, base + 10, 2)) for base in (0, 10, 20)}
        write_partition(root / f"a-{partition}", pieces)
    write_partition(root / "b-0", {5: batch(5)})
    return root


A0 = {0: "a-0/00000000000000000000.log", 10: "a-0/00000000000000000010.log", 20: "a-0/00000000000000000020.log"}
A1 = {base: name.replace("a-0", "a-1") for base, name in A0.items()}
B0 = "b-0/00000000000000000005.log"


def damaged(root: Path) -> tuple[Path, int]:
    """The second segment of ``a-0`` has a batch of magic 9 in its middle. Returns its path and the position of that batch."""
    path = three(root) / A0[10]
    position = batch_positions(path)[2]
    data = bytearray(path.read_bytes())
    data[position + 16] = 9
    path.write_bytes(data)
    return path, position
