"""Records in columns are those of the reader of single records and of the grammar, and so are the errors and their places."""

import functools
from pathlib import Path

import numpy as np
import pytest
from compressed_batches import compressed, packed
from fixture_files import each_broker_file
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from record_events import as_in_java, by_records, in_columns
from strategies import LOG_APPEND_TIME, batch_of, header_of, message_of, payloads, records

from formats import limits
from formats.compression import CODECS
from formats.errors import BadChecksumError, FormatError, LimitExceededError, TruncatedError
from formats.log import record_decoder, record_groups
from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader
from formats.log.record_batch import Record, RecordHeader, build_record, build_record_batch, parse_record
from formats.log.record_groups import RecordGroup
from formats.log.records import LogRecord

SMALL = 300
"""Bytes of a group: most batches are larger."""


def block_of(data: bytes) -> HeaderBlock:
    (block,) = HeaderReader(BytesSegment(data), check_crc=True, read_markers=False)
    return block


def groups_of(data: bytes, **options: object) -> list[RecordGroup]:
    return list(record_groups.record_groups(BytesSegment(data), block_of(data), **options))  # type: ignore[arg-type]


@each_broker_file("*.log", "*.checkpoint")
def test_every_bundled_batch(path: Path) -> None:
    data = path.read_bytes()
    expected = by_records(data)
    assert in_columns(data) == expected
    if len(data) < 20_000:
        assert in_columns(data, group_bytes=SMALL) == expected


few_records = st.lists(
    st.one_of(records, records.map(lambda each: replace(each, offset_delta=each.offset_delta & 0xFF))), max_size=4
)


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Batches of magic 2 with any records, and messages and wrappers of magic 0 and 1."""
    parts = []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["batch", "batch", "batch", "message", "wrapper"]))
        if kind == "message":
            parts.append(message_of(draw(st.integers(0, 1)), number, draw(payloads), timestamp=draw(st.integers(-1, 9))).data)
        elif kind == "wrapper":
            codec = draw(st.sampled_from(["gzip", "snappy"]))
            parts.append(compressed(codec, draw(st.integers(0, 1)), draw(st.lists(payloads, min_size=1, max_size=3)))[1])
        else:
            made = draw(few_records)
            codec = draw(st.sampled_from(["none", "none", *CODECS[1:]]))
            attributes = CODECS.index(codec) | draw(st.sampled_from([0, LOG_APPEND_TIME, 0x30]))
            base_sequence = draw(st.sampled_from([-1, 0, 2**31 - 3]))
            header = header_of(
                draw(st.sampled_from([0, 100, 2**62, -(2**63)])),
                attributes=attributes,
                base_sequence=base_sequence,
                record_count=len(made) + draw(st.sampled_from([0, 0, 0, 0, 1, -1])),
            )
            payload = b"".join(map(build_record, made))
            parts.append(build_record_batch(header, payload if codec == "none" else packed(codec, payload)))
    return b"".join(parts)


@given(segments(), st.sampled_from([1, 70, SMALL, 1 << 20]))
def test_any_segment(data: bytes, group_bytes: int) -> None:
    assert in_columns(data, group_bytes=group_bytes) == by_records(data)


@given(st.lists(payloads, min_size=1, max_size=4), st.integers(-1, 3), st.sampled_from([70, 1 << 20]))
def test_any_bytes(made: list[bytes], count: int, group_bytes: int) -> None:
    data = b"".join(build_record_batch(header_of(7, record_count=count), each) for each in made)
    assert in_columns(data, group_bytes=group_bytes) == by_records(data)


@given(st.lists(records, min_size=1, max_size=3))
def test_the_grammar_reads_the_same(made: list[Record]) -> None:
    header = header_of(5, base_sequence=9, record_count=len(made))
    data = build_record_batch(header, made)
    expected = []
    at = 61
    while at < len(data):
        record, size = parse_record(data[at:])
        at += size
        sequence = 9 + record.offset_delta
        sequence -= 2**31 if sequence >= 2**31 else 0
        found = LogRecord(
            5 + record.offset_delta, 1000 + record.timestamp_delta, record.key, record.value, sequence, record.headers
        )
        expected.append(as_in_java(found))
    assert [each for group in groups_of(data) for each in group.records()] == expected


def many_batches(changed: bytes | None = None) -> bytes:
    """Enough batches of two records that they are decoded in lock-step, with another batch between them."""
    parts = list(usual_batches())
    if changed is not None:
        parts.insert(len(parts) // 2, changed)
    return b"".join(parts)


@functools.cache
def usual_batches() -> tuple[bytes, ...]:
    usual = [Record(0, 0, b"k", b"v" * 90), Record(1, 1, None, b"", (RecordHeader(b"h", None),))]
    headers = [header_of(10 * number, record_count=2) for number in range(record_decoder.LANES_MIN + 4)]
    return tuple(batch_of(header, usual).data for header in headers)


RICH = [
    Record(3, 0, b"key", b"value", (RecordHeader(b"a", b"1"), RecordHeader(b"a", None), RecordHeader(b"", b""))),
    Record(-70, 1, None, b"x" * 70),
    Record(1 << 40, 300, b"", None, (RecordHeader("ü".encode(), b"\xff"),)),
]


@pytest.mark.parametrize("value", [0x00, 0x7E, 0xFF])
@pytest.mark.parametrize("is_alone", [False, True], ids=["among others", "alone, cut into groups"])
def test_damage_anywhere_in_the_records_is_the_same_error(value: int, is_alone: bool) -> None:
    """The checksum is that of the damaged bytes."""
    payload = bytearray(b"".join(map(build_record, RICH)))
    header = header_of(9000, record_count=len(RICH))
    damaged = 0
    for at in range(len(payload)):
        before = payload[at]
        payload[at] = value
        batch = build_record_batch(header, bytes(payload))
        payload[at] = before
        data = batch if is_alone else many_batches(batch)
        expected = by_records(data)
        assert in_columns(data, group_bytes=64 if is_alone else 1 << 20) == expected
        damaged += any(isinstance(each, tuple) and not isinstance(each, LogRecord) for each in expected)
    assert damaged > 10


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damage_of_compressed_batches(codec: str) -> None:
    payload = packed(codec, b"".join(map(build_record, RICH)))
    header = header_of(9000, attributes=CODECS.index(codec), record_count=len(RICH))
    for at in range(0, len(payload), 3):
        batch = build_record_batch(header, payload[:at] + bytes([payload[at] ^ 0x55]) + payload[at + 1 :])
        data = batch + many_batches()[:500] + batch
        assert in_columns(data, check_crc=False) == by_records(data, check_crc=False)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [0x00, 0x7F, 0xFF])
def test_damage_anywhere_in_a_message(magic: int, value: int) -> None:
    """But for its length and magic, on which the header reader ends."""
    message = message_of(magic, 5, b"payload", timestamp=7).data
    good = message_of(magic, 4, b"good").data
    for at in [*range(8), 17, *range(18, len(message))]:
        data = good + message[:at] + bytes([value]) + message[at + 1 :] + good
        assert in_columns(data, check_crc=False) == by_records(data, check_crc=False)


@pytest.mark.parametrize("codec", range(8))
@pytest.mark.parametrize("count", [-1, 0, 1])
def test_batches_without_bytes(codec: int, count: int) -> None:
    """The cleaner leaves them with the count 0, not compressed."""
    data = many_batches(batch_of(header_of(1, attributes=codec, record_count=count), b"").data)
    found = in_columns(data)
    assert found == by_records(data)
    assert all(isinstance(each, LogRecord) for each in found) or (codec, count) != (0, 0)


def odd_varint(value: int) -> bytes:
    """A length in more bytes than it needs, as Kafka accepts it."""
    raw = value << 1
    return bytes([raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, raw >> 14 & 0x7F | 0x80, raw >> 21 & 0x7F | 0x80, 0])


@pytest.mark.parametrize("count", [1, 5])
def test_lengths_in_more_bytes_than_needed(count: int) -> None:
    body = b"\0\0\0" + odd_varint(3) + b"key" + odd_varint(1) + b"v\0"
    record = odd_varint(len(body)) + body
    batch = build_record_batch(header_of(5, record_count=count), record * count)
    for data in (batch, many_batches(batch)):
        for group_bytes in (30, SMALL, 1 << 20):
            found = in_columns(data, group_bytes=group_bytes)
            assert found == by_records(data)
            assert sum(isinstance(each, LogRecord) and each.key == b"key" for each in found) == count


def test_a_record_with_many_headers() -> None:
    many = tuple(RecordHeader(b"h%d" % number, None) for number in range(record_decoder.HEADERS_MAX + 1))
    made = [Record(0, 0, None, b"a"), Record(0, 1, None, b"b", many), Record(0, 2, None, b"c", many[1:])]
    data = many_batches(batch_of(header_of(0, record_count=3), made).data)
    for group_bytes in (100, 1 << 20):
        assert in_columns(data, group_bytes=group_bytes) == by_records(data)


def test_headers_bound_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_groups, "GROUP_HEADERS", 10)
    made = [Record(0, number, None, b"", (RecordHeader(b"a", b"b"),) * (number % 5)) for number in range(40)]
    data = batch_of(header_of(0, record_count=40), made).data
    groups = groups_of(data)
    assert len(groups) > 5
    assert max(int(group.header_count.sum()) for group in groups) <= 10
    assert [each for group in groups for each in group.records()] == by_records(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 100, 5000])
def test_large_batches_are_cut(codec: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is larger than a group, whose records are of every size in relation to it."""
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 512)
    monkeypatch.setattr(record_groups, "SINGLES_LEAST", 2)
    values = [bytes([number % 251]) * (size * (number % 3)) for number in range(200)]
    batch = b"".join(build_record(Record(0, number, b"k", value)) for number, value in enumerate(values))
    payload = batch if codec == "none" else packed(codec, batch)
    data = build_record_batch(header_of(0, attributes=CODECS.index(codec), record_count=200), payload)
    whole = by_records(data)
    assert len(whole) == 200
    for group_bytes in (1000, 1 << 20):
        assert in_columns(data, group_bytes=group_bytes) == whole
    for count in (199, 201):
        data = build_record_batch(header_of(0, attributes=CODECS.index(codec), record_count=count), payload)
        assert in_columns(data, group_bytes=1000) == by_records(data)


class Watched(BytesSegment, frozen=True):
    """Notes how much is read at once."""

    sizes: list[int] = []  # noqa: RUF012

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        self.sizes.append(len(buffer))
        return super().read_into(position_bytes, buffer)


def test_little_of_a_large_batch_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 1 << 10)
    made = [Record(0, number, b"k" * 10, b"v" * 90) for number in range(2000)]
    data = batch_of(header_of(0, record_count=2000), made).data
    source = Watched(data, sizes=[])
    groups = list(record_groups.record_groups(source, block_of(data), group_bytes=10_000))
    assert sum(map(len, groups)) == 2000
    assert max(source.sizes) <= 10_000
    assert sum(source.sizes) <= len(data)
    assert max(len(group.data) for group in groups) <= 10_000
    assert len(groups) <= 2 * len(data) // 10_000


def test_what_is_usual_is_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of ``record_groups`` by default."""

    def not_taken(*_: object, **__: object) -> None:
        raise AssertionError("the speed path was not taken")

    monkeypatch.setattr(record_groups, "read_records", not_taken)
    monkeypatch.setattr(record_groups, "next_record", not_taken)
    monkeypatch.setattr(record_groups, "BatchHeader", not_taken)
    lz4 = compressed("lz4", 2, [b"value" * 20] * 50)[1]
    data = many_batches(lz4) + batch_of(header_of(0, record_count=0), b"").data
    (group,) = groups_of(data)
    assert len(group) == 2 * (record_decoder.LANES_MIN + 4) + 50
    messages = [message_of(number % 2, number, b"v", timestamp=5) for number in range(9)]
    (group,) = groups_of(b"".join(each.data for each in messages))
    assert len(group) == 9


def test_the_rows_that_are_wanted() -> None:
    data = many_batches()
    block = block_of(data)
    rows = np.array([1, 2, 9])
    (group,) = record_groups.record_groups(BytesSegment(data), block, rows=rows)
    assert group.batch.tolist() == [1, 1, 2, 2, 9, 9]
    assert group.offset.tolist() == [10, 11, 20, 21, 90, 91]
    assert group.chosen(group.offset % 2 == 1).records() == [each for each in group.records() if each.offset % 2 == 1]
    (bare,) = record_groups.record_groups(BytesSegment(data), block, rows=rows, with_headers=False)
    assert bare.records() == [each._replace(headers=()) for each in group.records()]
    assert list(record_groups.record_groups(BytesSegment(data), block, rows=rows[:0])) == []


def test_damage_ends_the_records_unless_it_is_skipped() -> None:
    bad = bytearray(batch_of(header_of(500), [Record(0, 0, None, b"v")]).data)
    bad[-3] ^= 1
    data = many_batches(bytes(bad))
    reader = record_groups.record_groups(BytesSegment(data, "name.log"), block_of(data))
    count = record_decoder.LANES_MIN + 4
    assert len(next(reader)) == 2 * (count // 2)
    with pytest.raises(BadChecksumError, match=r"name\.log, byte \d+: checksum of a batch") as caught:
        next(reader)
    assert caught.value.position == data.index(bytes(bad))
    found = in_columns(data)
    assert len(found) == 2 * count + 1
    assert not isinstance(found[2 * (count // 2)], LogRecord)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_checksum_of_a_message_in_a_wrapper(magic: int) -> None:
    good = message_of(magic, 0, b"good").data
    bad = message_of(magic, 1, b"bad").data[:-1] + b"x"
    wrapper = message_of(magic, 11, packed("gzip", good + bad), attributes=1).data
    reader = record_groups.record_groups(BytesSegment(wrapper), block_of(wrapper))
    assert [each.value for each in next(reader).records()] == [b"good"]
    with pytest.raises(BadChecksumError, match="byte 0: checksum of a message in a wrapper: expected that of offset 1"):
        next(reader)


@pytest.mark.parametrize("is_piped", [False, True])
def test_limits(is_piped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless data stops at the limit while it is decompressed, in little memory."""
    _, bomb = compressed("zstd", 2, [bytes(10_000)] * 50)
    monkeypatch.setattr(limits, "DATA_BATCH_BYTES_MAX", 100_000)
    if is_piped:
        found = in_columns(bomb, group_bytes=4000)
        assert [isinstance(each, LogRecord) for each in found] == [True] * (len(found) - 1) + [False]
        assert found[-1][1] is LimitExceededError
    else:
        with pytest.raises(LimitExceededError, match="records: expected at most 100000 bytes"):
            groups_of(bomb, group_bytes=4000)
    plain = batch_of(header_of(0), [Record(0, 0, None, bytes(100_000))]).data
    with pytest.raises(LimitExceededError, match="batch: expected at most 100000 bytes, found 100072"):
        groups_of(plain, group_bytes=1000)
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 5_000)
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 500)
    with pytest.raises(LimitExceededError, match="record of a batch: expected at most 5000 bytes"):
        groups_of(batch_of(header_of(0), [Record(0, 0, None, bytes(90_000))]).data, group_bytes=1000)


def test_a_segment_that_became_shorter() -> None:
    data = many_batches()
    with pytest.raises(TruncatedError, match="batch: expected"):
        list(record_groups.record_groups(BytesSegment(data[:-1]), block_of(data)))


@pytest.mark.parametrize("overrun", [b"\xfe\x7f", b"\x02", b"\xfe\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_record_that_ends_in_another_batch(overrun: bytes, is_last: bool) -> None:
    """Its length leads behind its batch, and behind the segment."""
    bad = build_record_batch(header_of(3, record_count=2), build_record(Record(0, 0, None, b"v")) + overrun + bytes(9))
    data = many_batches(bad) if not is_last else many_batches() + bad
    found = in_columns(data)
    assert found == by_records(data)
    assert sum(not isinstance(each, LogRecord) for each in found) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_of_records_makes_no_work(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches that count as many records as a group may have: columns are made for those that they have room for."""
    rows = []
    decode = record_groups.decode_records

    def counted(buffer: np.ndarray, start: np.ndarray, end: np.ndarray) -> record_decoder.RecordFields:
        rows.append(len(start))
        return decode(buffer, start, end)

    monkeypatch.setattr(record_groups, "decode_records", counted)
    payload = build_record(Record(0, 0, None, b"v"))
    header = header_of(0, attributes=CODECS.index(codec), record_count=record_groups.GROUP_RECORDS)
    data = many_batches() + 20 * build_record_batch(header, payload if codec == "none" else packed(codec, payload))
    assert in_columns(data) == by_records(data)
    assert sum(rows) < 200


def test_errors_name_the_file() -> None:
    bad = build_record_batch(header_of(3, record_count=2), build_record(Record(0, 0, None, b"v")))
    with pytest.raises(FormatError, match=r"^name, byte 0: batch: expected 2 records, found 1$"):
        list(record_groups.record_groups(BytesSegment(bad, "name"), block_of(bad)))
