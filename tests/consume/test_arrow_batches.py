"""Batches of Arrow have the values of the records, and the rules for values that a column cannot hold."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compressed_batches import packed
from fixture_files import each_broker_file
from strategies import LOG_APPEND_TIME, TRANSACTIONAL, batch_of, header_of, message_of

from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.log.record_batch import Record, RecordHeader
from formats.log.record_groups import record_groups
from snaprebuild.consume.arrow_batches import (
    COLUMN_TYPES,
    DEFAULT_COLUMNS,
    TRANSACTION_STATES,
    arrow_batch,
    decoded_header_key,
    record_schema,
)

EVERY = tuple(COLUMN_TYPES)


def skipped(row: int, error: FormatError) -> None:
    """Damaged batches are not of interest here."""


def batches_of(data: bytes, columns: Sequence[str] = EVERY, **options: object) -> list[pa.RecordBatch]:
    source = BytesSegment(data)
    found = []
    for block in HeaderReader(source, read_markers=False):
        for group in record_groups(source, block, on_damage=skipped):
            batch = arrow_batch(group, block, columns, topic="orders", partition=7, **options)  # type: ignore[arg-type]
            batch.validate(full=True)
            found.append(batch)
    return found


def rows_of(made: Sequence[Record], columns: Sequence[str] = EVERY, **fields: int) -> list[dict[str, object]]:
    data = batch_of(header_of(100, record_count=len(made), **fields), made).data
    (batch,) = batches_of(data, columns)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def test_the_columns_of_sparks_kafka_source() -> None:
    """Names and types of its page, *Structured Streaming + Kafka Integration Guide*, as Spark's Arrow types."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert record_schema() == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(header)),
        ]
    )
    assert EVERY[:8] == DEFAULT_COLUMNS
    with pytest.raises(KeyError):
        record_schema(["no such column"])


@each_broker_file("*.log")
def test_every_bundled_record(path: Path) -> None:
    data = path.read_bytes()
    source = BytesSegment(data)
    for block in HeaderReader(source, read_markers=False):
        for group in record_groups(source, block, on_damage=skipped):
            columns = arrow_batch(group, block, topic="orders", partition=7).to_pydict()
            records = group.records()
            assert columns["key"] == [each.key for each in records]
            assert columns["value"] == [each.value for each in records]
            assert columns["offset"] == [each.offset for each in records]
            headers = [[{"key": one.key.decode(), "value": one.value} for one in each.headers] or None for each in records]
            assert columns["headers"] == headers
            milliseconds = [each and round((each - EPOCH).total_seconds() * 1000) for each in columns["timestamp"]]
            assert milliseconds == [None if each.timestamp == -1 else each.timestamp for each in records]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_all_columns_of_a_record() -> None:
    made = [
        Record(5, 0, b"key", b"\0\0\0\1\2value", (RecordHeader(b"h", None), RecordHeader(b"h", b"x"), RecordHeader(b"", b""))),
        Record(-2, 3, None, None),
        Record(0, 4, b"", b""),
    ]
    fields = {"attributes": TRANSACTIONAL, "producer_id": 9, "producer_epoch": 2, "base_sequence": 2**31 - 2}
    data = batch_of(header_of(100, record_count=3, **fields), made).data
    states = np.array([TRANSACTION_STATES.index("aborted")])
    (batch,) = batches_of(data, transaction=states, segment_base_offset=90, source="/logs/orders-7")
    first, second, third = batch.to_pylist()
    shared = {"topic": "orders", "partition": 7, "timestampType": 0, "leader_epoch": 3, "producer_id": 9, "producer_epoch": 2}
    shared |= {"transactional": True, "transaction": "aborted", "segment_base_offset": 90, "position_bytes": 0}
    shared |= {"source": "/logs/orders-7", "control": False, "error": None}
    headers = [{"key": "h", "value": None}, {"key": "h", "value": b"x"}, {"key": "", "value": b""}]
    assert first == shared | {
        "key": b"key",
        "value": b"\0\0\0\1\2value",
        "offset": 100,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 5000, tzinfo=UTC),
        "headers": headers,
        "sequence": 2**31 - 2,
        "schema_id": 258,
    }
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 103)
    assert (third["key"], third["value"], third["headers"], third["offset"]) == (b"", b"", None, 104)
    assert (second["sequence"], third["sequence"]) == (1, 2)
    assert second["schema_id"] is third["schema_id"] is None


def test_columns_are_in_the_order_wanted() -> None:
    rows = rows_of([Record(0, 0, b"k", b"v")], ["offset", "key", "transaction"])
    assert list(rows[0].items()) == [("offset", 100), ("key", b"k"), ("transaction", None)]


YEAR_294247 = 9_223_372_036_854_775
"""The last millisecond whose microseconds fit into an int64."""


@pytest.mark.parametrize(
    ("base", "microseconds"),
    [
        (-1, None),
        (0, 0),
        (-2, -2000),
        (YEAR_294247, YEAR_294247 * 1000),
        (YEAR_294247 + 1, None),
        (-YEAR_294247, -YEAR_294247 * 1000),
        (-YEAR_294247 - 1, None),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_timestamps(base: int, microseconds: int | None) -> None:
    made = [Record(0, 0, None, b""), Record(1_000_000 - base, 1, None, b"")]
    data = batch_of(header_of(0, record_count=2, base_timestamp=base), made if -(2**62) < base < 2**62 else made[:1]).data
    column = pa.chunked_array([each["timestamp"] for each in batches_of(data)]).cast(pa.int64()).to_pylist()
    assert column[0] == microseconds
    assert column[1:] in ([], [1_000_000_000])


def test_types_of_timestamps() -> None:
    data = message_of(0, 0, b"none").data + message_of(1, 1, b"create", timestamp=5).data
    data += message_of(1, 2, b"append", timestamp=6, attributes=LOG_APPEND_TIME).data
    fields = {"attributes": LOG_APPEND_TIME, "max_timestamp": 7}
    data += batch_of(header_of(3, **fields), [Record(99, 0, None, b"append")]).data
    inside = message_of(1, 0, b"create", timestamp=1).data
    data += message_of(1, 4, packed("gzip", inside), timestamp=8, attributes=1 | LOG_APPEND_TIME).data
    names = ["timestamp", "timestampType"]
    found = [tuple(row.values()) for batch in batches_of(data, names) for row in batch.to_pylist()]
    moments = [None if ms is None else datetime.fromtimestamp(ms / 1000, UTC) for ms in (None, 5, 6, 7, 8)]
    assert found == list(zip(moments, [-1, 0, 1, 1, 1], strict=True))


@pytest.mark.parametrize(
    ("value", "schema_id"),
    [
        (None, None),
        (b"", None),
        (b"\0\0\0\1", None),
        (b"\0\0\0\0\1", 1),
        (b"\1\0\0\0\1", None),
        (b"\0\x7f\xff\xff\xff more", 2**31 - 1),
        (b"\0\xff\xff\xff\xff", -1),
    ],
)
def test_schema_ids(value: bytes | None, schema_id: int | None) -> None:
    rows = rows_of([Record(0, 0, b"key", value)], ["schema_id"])
    assert rows == [{"schema_id": schema_id}]


def test_header_keys_that_are_not_utf_8() -> None:
    keys = [b"plain", "ü".encode(), b"\xff", b"a\xe2\x82", b"\xed\xa0\x80b", b"\xf0\x90\x80"]
    made = [Record(0, 0, None, None, tuple(RecordHeader(each, b"\xff") for each in keys)), Record(0, 1, None, None)]
    rows = rows_of(made, ["headers"])
    expected = ["plain", "ü", "\ufffd", "a\ufffd", "\ufffdb", "\ufffd"]
    assert rows == [{"headers": [{"key": each, "value": b"\xff"} for each in expected]}, {"headers": None}]
    assert [decoded_header_key(each) for each in keys] == expected


def test_the_library_is_imported_without_arrow() -> None:
    code = "import snaprebuild, sys; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
