"""Kafka's ``MemoryRecords`` and ours read the same records: of logs that Kafka writes, of ours, and of the bundled ones."""

import hashlib
import random
from pathlib import Path

import pytest
from fixture_files import broker_files
from kafka_classpath import KAFKA_VERSION, OTHER_VERSIONS, java_output
from log_dirs import batch, record, sized, varint
from odd_frames import ODD
from record_events import MARKS_OF_UTF_8
from strategies import batch_of, header_of

from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.log.record_batch import Record, RecordHeader
from formats.log.record_groups import record_groups
from snaprebuild.consume.arrow_batches import decoded_header_key
from snaprebuild.storage.local.pipe_reader import piped

pytestmark = pytest.mark.kafka

WRITTEN = 120
"""Segments of up to 40 batches, by Kafka's builder of batches."""

OURS = 40


def text(data: bytes | None) -> str:
    """Bytes in the form in which the Java program prints them."""
    if data is None:
        return "null"
    return f"x{data.hex()}" if len(data) <= 48 else f"{len(data)}:{hashlib.sha256(data).hexdigest()}"


def lines_of(path: Path, group_bytes: int) -> list[str]:
    """Lines in which the Java program prints the records of a segment."""
    data = path.read_bytes()
    lines = []

    def on_damage(row: int, error: FormatError) -> None:
        assert error.what == "checksum of a batch", error
        lines.append("bad checksum")

    source = BytesSegment(data)
    for block in HeaderReader(source, check_crc=True, read_markers=False):
        for group in record_groups(source, block, group_bytes=group_bytes, piped=piped, on_damage=on_damage):
            for each_record, kind in zip(group.records(), group.timestamp_type.tolist(), strict=True):
                headers = [f" {text(decoded_header_key(each.key).encode())}={text(each.value)}" for each in each_record.headers]
                numbers = f"{each_record.offset} {each_record.timestamp} {kind} {each_record.sequence}"
                lines.append(f"{numbers} {text(each_record.key)} {text(each_record.value)}{''.join(headers)}")
    return lines


def write_ours(path: Path, seed: int) -> None:
    """Batches with any header keys, which Kafka's builder takes from texts only."""
    chance = random.Random(seed)
    parts = []
    for number in range(30):
        made = []
        for delta in range(chance.randint(1, 5)):
            keys = [b"".join(chance.choices(MARKS_OF_UTF_8, k=chance.randint(0, 6))) for _ in range(chance.randint(0, 4))]
            headers = tuple(RecordHeader(key, chance.choice([None, b"", b"\xff"])) for key in keys)
            made.append(
                Record(chance.randint(-(2**40), 2**40), delta, chance.choice([None, b"", b"k"]), chance.randbytes(9), headers)
            )
        header = header_of(number * 10, record_count=len(made), attributes=chance.choice([0, 0x08]), max_timestamp=77)
        parts.append(batch_of(header, made).data)
    path.write_bytes(b"".join(parts))


NEGATIVE = (-1, -2, -7, -64, -65, -9000, -(2**31))
"""Lengths of keys, values and values of headers: null, however far below 0 they are."""


def write_negative(path: Path) -> None:
    """A record for each length of a key, a value and the value of a header, other records next to it."""
    records = [record(b"value")]
    for length in NEGATIVE:
        for key, value, header in ((length, 1, 1), (1, length, 1), (1, 1, length)):
            parts = (varint(each) + (b"x" if each == 1 else b"") for each in (key, value))
            body = b"\0\0" + varint(len(records)) + b"".join(parts) + varint(1) + sized(b"name")
            body += varint(header) + (b"y" if header == 1 else b"")
            records.append(sized(body))
    path.write_bytes(batch(0, records=records) + batch(len(records), records=[record(b"after")]))


def read_by_kafka(directory: Path, written: int, paths: list[Path], version: str) -> dict[str, list[str]]:
    """The lines of each segment; Kafka writes some first."""
    theirs: dict[str, list[str]] = {}
    for line in java_output("RecordReader", arguments=(directory, written), lines=paths, version=version):
        if line.startswith("file "):
            lines = theirs.setdefault(line.removeprefix("file "), [])
        else:
            lines.append(line)
    return theirs


@pytest.mark.parametrize("version", [*OTHER_VERSIONS, KAFKA_VERSION])
def test_kafka_reads_odd_frames_so(version: str, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{number}.log" for number, name in enumerate(ODD)}
    for name, path in paths.items():
        path.write_bytes(ODD[name][0])
    theirs = read_by_kafka(tmp_path, 0, list(paths.values()), version)
    for name, path in paths.items():
        lines = theirs[str(path)]
        if ODD[name][1] is None:
            assert lines[-1:] == ["error"], name
        else:
            assert lines == lines_of(path, 8 << 20), name
            assert len(lines) == ODD[name][1], name


@pytest.mark.parametrize("version", [KAFKA_VERSION, *(pytest.param(each, marks=pytest.mark.night) for each in OTHER_VERSIONS)])
def test_kafka_reads_the_same(version: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"written-{number}.log" for number in range(WRITTEN)]
    for number in range(OURS):
        paths.append(tmp_path / f"ours-{number}.log")
        write_ours(paths[-1], number)
    paths.append(tmp_path / "negative.log")
    write_negative(paths[-1])
    if version == KAFKA_VERSION:
        paths += [path for path in broker_files("*.log") if path.stat().st_size]
    theirs = read_by_kafka(tmp_path, WRITTEN, paths, version)
    compared = 0
    for path in paths:
        for group_bytes in (8 << 20, 5000):
            assert lines_of(path, group_bytes) == theirs[str(path)], f"{path}, in groups of {group_bytes} bytes"
        compared += len(theirs[str(path)])
    assert compared > 40_000
