"""The fast reader of records gives what the grammar gives, for what brokers wrote and for what no one would write."""

import contextlib
import gzip
import io
import itertools
import struct
import threading
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import cramjam
import odd_frames
import pytest
from compressed_batches import LZ4_BLOCK_BYTES, compressed, lz4_frame, packed
from fixture_files import each_broker_file
from header_engines import reference_headers, segment
from hypothesis import given
from hypothesis import strategies as st
from memory_peak import measured
from msgspec.structs import replace
from strategies import header_of, message_of, payloads, records

from formats import compression, limits
from formats.compression import CODECS, decompress, decompress_from
from formats.errors import BadLengthError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.log.record_batch import BatchHeader, Record, RecordHeader, build_record_batch, parse_batch_header, parse_record
from formats.log.record_columns import RecordColumns
from formats.log.records import (
    LogRecord,
    RecordWindow,
    incremented_sequence,
    next_record,
    read_record_columns,
    read_records,
    walk_piped,
)
from snaprebuild.storage.local.pipe_reader import piped

LOG_APPEND_TIME = 0x08


def by_grammar(header: BatchHeader, batch: bytes) -> list[LogRecord]:
    """The records of a batch of magic 2."""
    data = decompress(header.codec, batch[61:], bytes_max=1 << 24)
    found, at = [], 0
    while at < len(data):
        record, size = parse_record(data[at:])
        sequence = -1 if header.base_sequence < 0 else (header.base_sequence + record.offset_delta) % 2**31
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + record.timestamp_delta
        found.append(
            LogRecord(header.base_offset + record.offset_delta, timestamp, record.key, record.value, sequence, record.headers)
        )
        at += size
    assert len(found) == header.record_count
    return found


@each_broker_file("*.log", "*.checkpoint")
def test_every_bundled_batch(path: Path) -> None:
    data = path.read_bytes()
    headers, positions, _ = reference_headers(segment(data))
    for header, position in zip(headers, positions, strict=True):
        batch = data[position : position + header.size_bytes]
        found = list(read_records(header, batch, position=position))
        if header.magic == 2:
            # The grammar takes its time: the first and each tenth.
            if position % 10 == 0 or position == 0:
                assert found == by_grammar(header, batch)
            assert len(found) == header.record_count
        else:
            assert [each.offset for each in found] == list(range(header.last_offset - len(found) + 1, header.last_offset + 1))
            assert all(each.is_valid for each in found)
            assert max(each.timestamp for each in found) == header.max_timestamp


@given(
    st.lists(records.map(lambda each: replace(each, offset_delta=each.offset_delta & 0x7FFFFFFF)), max_size=5),
    st.sampled_from([-1, 0, 2**31 - 3]),
    st.booleans(),
)
def test_any_records(made: list[Record], base_sequence: int, appended: bool) -> None:
    attributes = LOG_APPEND_TIME if appended else 0
    header = header_of(100, attributes=attributes, base_sequence=base_sequence, record_count=len(made))
    batch = build_record_batch(header, made)
    header = parse_batch_header(batch)
    assert list(read_records(header, batch)) == by_grammar(header, batch)


@given(payloads, st.integers(-1, 4))
def test_any_bytes(payload: bytes, count: int) -> None:
    """Records or the error equal those of the grammar. Kafka's consumer does not look at the bytes of a batch without records."""
    header = parse_batch_header(build_record_batch(header_of(0, record_count=count), payload))
    if not count:
        assert list(read_records(header, bytes(61) + payload)) == []
        return
    try:
        expected = by_grammar(header, bytes(61) + payload)
    except (FormatError, AssertionError):
        with pytest.raises(FormatError):
            list(read_records(header, bytes(61) + payload))
    else:
        assert list(read_records(header, bytes(61) + payload)) == expected


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_batch_that_is_cut(made: list[Record], data: st.DataObject) -> None:
    batch = build_record_batch(header_of(0, record_count=len(made)), made)
    header = parse_batch_header(batch)
    end = data.draw(st.integers(61, len(batch) - 1))
    with pytest.raises((TruncatedError, BadLengthError)):
        list(read_records(header, batch[:end]))


def test_what_came_before_a_fault_is_handed_out() -> None:
    good = Record(0, 0, b"k", b"v")
    batch = build_record_batch(header_of(7, record_count=2), [good, replace(good, offset_delta=1)])
    reader = read_records(parse_batch_header(batch), batch[:-1], position=1000)
    assert next(reader).offset == 7
    with pytest.raises(TruncatedError) as caught:
        next(reader)
    assert caught.value.position == 1000 + 61 + 9


@pytest.mark.parametrize(
    ("count", "reported"), [(1, "records of a batch that counts 1"), (3, "expected 3 records, found 2"), (-1, "count")]
)
def test_a_count_that_is_not_that_of_the_records(count: int, reported: str) -> None:
    good = Record(0, 0, None, b"v")
    batch = build_record_batch(header_of(0, record_count=count), [good, good])
    with pytest.raises(FormatError, match=reported):
        list(read_records(parse_batch_header(batch), batch))


@pytest.mark.parametrize(
    ("sequence", "increment", "following"), [(0, 5, 5), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 9, 7)]
)
def test_sequences_wrap(sequence: int, increment: int, following: int) -> None:
    assert incremented_sequence(sequence, increment) == following


# --- messages of magic 0 and 1 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("magic", "offsets", "expected"), [(0, (40, 41, 42), [40, 41, 42]), (1, (0, 1, 2), [40, 41, 42]), (1, (0, 1, 5), [37, 38, 42])]
)
@pytest.mark.parametrize("appended", [False, True])
def test_a_wrapper(magic: int, offsets: tuple[int, ...], expected: list[int], appended: bool) -> None:
    inside = b"".join(message_of(magic, offset, b"%d" % offset, timestamp=offset).data for offset in offsets)
    attributes = 1 | (LOG_APPEND_TIME if appended else 0)
    wrapper = message_of(magic, 42, bytes(cramjam.gzip.compress(inside)), attributes=attributes, timestamp=99).data
    found = list(read_records(parse_batch_header(wrapper), wrapper))
    assert [each.offset for each in found] == expected
    assert [each.value for each in found] == [b"%d" % offset for offset in offsets]
    if appended:
        assert {each.timestamp for each in found} == {99 if magic else -1}
    else:
        assert [each.timestamp for each in found] == [offset if magic else -1 for offset in offsets]


@pytest.mark.parametrize(
    ("inside", "reported"),
    [
        (b"", "expected at least one message"),
        (message_of(1, 0, b"x").data[:11], "expected at least one message"),
        (message_of(1, 0, b"x").data[:-1], "expected at least one message"),
        (message_of(1, 43, b"x").data, "offset of the last message in a wrapper: expected at most 42, found 43"),
        (message_of(1, 0, b"x", attributes=1).data, "codec of a message in a wrapper: expected 0, found 1"),
        (bytes(30), "size of a message in a wrapper"),
    ],
)
def test_a_wrapper_of_nonsense(inside: bytes, reported: str) -> None:
    wrapper = message_of(1, 42, bytes(cramjam.gzip.compress(inside)), attributes=1).data
    with pytest.raises(FormatError, match=reported):
        list(read_records(parse_batch_header(wrapper), wrapper))


# --- compression -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("size", [0, 65536, 65537, 1_000_000])
def test_room_grows_to_what_comes_out(codec: str, size: int) -> None:
    data = b"ab" * (size // 2) + b"c" * (size % 2)
    assert decompress(CODECS.index(codec), packed(codec, data), bytes_max=1_000_000) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_compresses_best_is_not_taken_for_damaged(codec: str) -> None:
    """Zeros, which are what each codec makes the most of; large enough that headers do not count."""
    data = bytes(40 << 20)
    assert len(decompress(CODECS.index(codec), packed(codec, data), bytes_max=len(data))) == len(data)


def test_a_size_that_is_declared_gets_no_room() -> None:
    """Raw snappy begins with it: 200 MB, of twelve bytes that follow."""
    with measured() as peak, pytest.raises(BadValueError, match="snappy data"):
        decompress(2, bytes.fromhex("97a79a61") + bytes(12), bytes_max=256 << 20)
    assert peak.bytes < 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
def test_more_than_the_limit_is_refused(codec: str) -> None:
    with pytest.raises(LimitExceededError, match="expected at most 999999 bytes"):
        decompress(CODECS.index(codec), packed(codec, bytes(1_000_000)), bytes_max=999_999)


# --- as they are decompressed ---------------------------------------------------------------------------------------------


def read_both(header: BatchHeader, batch: bytes) -> tuple[object, object]:
    """The results of both ways of reading: records, or an error."""

    def outcome(read: Callable[[], list[LogRecord]]) -> object:
        try:
            return read()
        except FormatError as error:
            return type(error), error.message

    return outcome(lambda: list(read_records(header, batch))), outcome(lambda: list(read_records(header, batch, piped=piped)))


@pytest.mark.parametrize(
    ("codec", "magic"), [(codec, magic) for codec in CODECS[1:] for magic in (0, 1, 2) if magic == 2 or codec != "zstd"]
)
def test_records_are_the_same_as_they_are_decompressed(codec: str, magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for window_bytes in (1, 100, 4096):
        monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", window_bytes)
        for values in ([b""], [b"a" * 5000], [bytes([at]) * (7 * at) for at in range(200)], [b"x" * 100_000, b"", b"y" * 300]):
            whole, streamed = read_both(*compressed(codec, magic, values))
            assert isinstance(whole, list)
            assert streamed == whole
            assert len(whole) == len(values)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_faults_are_the_same_as_they_are_decompressed(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 64)
    values = [b"value"] * 50
    for count in (49, 51):
        whole, streamed = read_both(*compressed(codec, 2, values, count))
        assert streamed == whole != []
    header, batch = compressed(codec, 2, [b"value" * 5000])
    whole, streamed = read_both(header, batch[:-9])
    assert isinstance(whole, tuple)
    assert isinstance(streamed, tuple)
    monkeypatch.setattr(limits, "DATA_BATCH_BYTES_MAX", 10_000)
    whole, streamed = read_both(header, batch)
    assert whole == streamed == (LimitExceededError, whole[1])  # type: ignore[index]
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 5_000)
    with pytest.raises(LimitExceededError, match="record of a batch: expected at most 5000 bytes"):
        list(read_records(header, batch, piped=piped))


GZIP = CODECS.index("gzip")


class CountingDecompressor:
    """zlib's, with the sum of the bytes that it was given: it copies those that it does not need."""

    given_bytes = 0

    def __init__(self, *arguments: Any) -> None:
        self._decompressor = zlib.decompressobj(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decompressor, name)

    def decompress(self, data: bytes, bytes_max: int) -> bytes:
        CountingDecompressor.given_bytes += len(data)
        return self._decompressor.decompress(data, bytes_max)


@pytest.mark.parametrize("plain", [b"", Random(1).randbytes(200), Random(1).randbytes(300_000)], ids=len)
def test_members_of_gzip_are_not_copied_again_and_again(plain: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    member = packed("gzip", plain)
    data = member * (1_000_000 // len(member))
    count = len(data) // len(member)
    monkeypatch.setattr(CountingDecompressor, "given_bytes", 0)
    monkeypatch.setattr(compression, "zlib", SimpleNamespace(**{**vars(zlib), "decompressobj": CountingDecompressor}))
    assert decompress(GZIP, data + b"text", bytes_max=8 << 20) == plain * count
    least_bytes = len(plain) * count if plain else 1  # headers are not given, and empty members are passed over
    assert least_bytes <= CountingDecompressor.given_bytes < 4 * len(data)


def test_empty_members_of_gzip_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million of them are no more work than one, and take no memory."""
    used = []
    monkeypatch.setattr(
        compression,
        "zlib",
        SimpleNamespace(**{**vars(zlib), "decompressobj": lambda bits: used.append(bits) or zlib.decompressobj(bits)}),
    )
    data = packed("gzip", b"first") + gzip.compress(b"", mtime=7) * 500_000 + packed("gzip", b"last") + b"text"
    tracemalloc.start()
    try:
        assert decompress(GZIP, data, bytes_max=100) == b"firstlast"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert len(used) == 2


LZ4 = CODECS.index("lz4")


def unpacked_lz4(data: bytes, path: Path) -> tuple[bytes, str]:
    """The bytes that are written from frames as they are read, and the error."""
    path.write_bytes(b"")
    rest = io.BytesIO(data)
    message = ""
    try:
        decompress_from(LZ4, rest.read, str(path), position=7, magic=2)
    except FormatError as error:
        message = str(error)
    return path.read_bytes(), message


def whole_lz4(data: bytes) -> tuple[bytes, str]:
    """The bytes that cramjam gives for all of them at once."""
    try:
        return decompress(LZ4, data, bytes_max=1 << 24, position=7), ""
    except FormatError as error:
        return b"", str(error)


def test_frames_of_lz4_are_read_block_by_block(tmp_path: Path) -> None:
    """Frames of Kafka's clients, others, and all of them with damage: as a decoder of whole frames has it. What follows is not read."""
    random = Random(1)
    data = bytes(random.choices(b"abcdef", k=150_000)) + random.randbytes(70_000)
    of_kafka = lz4_frame(data)
    blocks = [data[at : at + LZ4_BLOCK_BYTES] for at in range(0, len(data), LZ4_BLOCK_BYTES)]
    frames = (
        of_kafka,
        odd_frames.lz4_frame(*blocks, checksum=1),
        odd_frames.lz4_frame(*blocks, size=3, checked=True),
        odd_frames.lz4_frame(*blocks, size=3, checksum=1),
    )
    for first, second in itertools.product(frames, (b"", *frames)):
        assert unpacked_lz4(first + second, tmp_path / "out") == (data, "") == whole_lz4(first + second)
    errors = Counter()
    for number in range(300):
        damaged = bytearray(of_kafka + frames[number % 4] * (number % 2))
        if number % 3 == 0:
            del damaged[random.randrange(len(damaged)) :]
        elif number % 3 == 1:
            damaged[random.choice([random.randrange(len(damaged)), random.randrange(12)])] ^= 1 << random.randrange(8)
        else:
            damaged += random.randbytes(random.randrange(1, 9))
        written, message = unpacked_lz4(bytes(damaged), tmp_path / "out")
        expected, expected_message = whole_lz4(bytes(damaged))
        assert message == expected_message
        assert written.startswith(expected)
        assert not expected or written == expected
        errors[message] += 1
    assert len(errors) > 5, errors


def test_a_block_of_lz4_that_declares_more_than_a_block_gets_no_room(tmp_path: Path) -> None:
    frame = lz4_frame(b"")[:7] + struct.pack("<I", 0x7FFF_FFFF) + bytes(100)
    with measured() as peak:
        assert unpacked_lz4(frame, tmp_path / "out") == whole_lz4(frame)
    assert peak.bytes < 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
def test_little_of_a_large_batch_is_in_memory(codec: str) -> None:
    """With lz4 and its blocks compressed data is read when it is needed; no other codec keeps more than one copy of it."""
    values = [Random(1).randbytes(100_000)] * 200
    header, batch = compressed(codec, 2, values)
    reading = io.BytesIO(batch[61:])
    most_bytes = 0

    def read(count: int) -> bytes:
        nonlocal most_bytes
        part = reading.read(count)
        most_bytes = max(most_bytes, len(part))
        return part

    def windows(window: RecordWindow) -> Iterator[int]:
        at = 0
        for number in range(header.record_count):
            _, at = next_record(header, window, at, number, 0)
            yield number

    assert sum(1 for _ in walk_piped(header, read, 61, piped, windows)) == len(values)
    assert most_bytes == (LZ4_BLOCK_BYTES if codec == "lz4" else len(batch) - 61)


def test_a_reader_that_stops_early_ends_the_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.enumerate()
    reader = read_records(*compressed("zstd", 2, [bytes(1000)] * 5_000), piped=piped)
    assert next(reader).offset == 100
    (other_end,) = [each for each in threading.enumerate() if each.name == "piped" and each not in before]
    reader.close()
    assert not other_end.is_alive()


ENDLESS = 12 << 20
"""Zeros after a record, which compress to some thousand bytes."""
OVERRUNNING = {
    "a value longer than its record": bytes.fromhex("0c 00 00 00 01 d00f 00"),
    "a record of no bytes": b"",
    "a header longer than its record": bytes.fromhex("0e 00 00 00 01 00 02 d00f"),
}


@pytest.mark.parametrize("record", OVERRUNNING.values(), ids=OVERRUNNING)
def test_a_record_that_is_longer_inside_is_not_searched_for_its_end(record: bytes) -> None:
    """Each window that was read was looked through again, with all before it: a batch of 100 kB took minutes."""
    batch = packed("gzip", record + bytes(ENDLESS))
    header = replace(header_of(0, attributes=CODECS.index("gzip"), record_count=1), length=49 + len(batch))
    read_bytes = 0

    @contextlib.contextmanager
    def counting(write: Callable[[str], None]) -> Iterator[Callable[[int], bytes]]:
        def read_and_count(count: int) -> bytes:
            nonlocal read_bytes
            data = read(count)
            read_bytes += len(data)
            return data

        with piped(write) as read:
            yield read_and_count

    with pytest.raises(TruncatedError, match="record: expected more bytes, found the end of its batch"):
        list(read_records(header, bytes(61) + batch, piped=counting))
    assert read_bytes <= limits.RECORD_WINDOW_BYTES


SHAPES = {
    "empty records": [b""] * 2_000,
    "small ones": [b"a" * 20] * 2_000,
    "larger than a window": [b"b" * (3 << 18), b"", b"c" * (2 << 18)],
}


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_the_work_grows_with_the_bytes(values: list[bytes], magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were joined in memory, whatever the shape of the records: a few times those that were decompressed."""
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 1 << 12)
    joined_bytes = 0
    more = RecordWindow.more

    def counted(window: RecordWindow, at: int, wanted: int = 1) -> bool:
        nonlocal joined_bytes
        has_more = more(window, at, wanted)
        joined_bytes += len(window.data)
        return has_more

    monkeypatch.setattr(RecordWindow, "more", counted)
    header, batch = compressed("zstd" if magic == 2 else "gzip", magic, values)
    assert len(list(read_records(header, batch, piped=piped))) == len(values)
    record_bytes = 40 if magic == 1 else 10
    assert joined_bytes <= (2 if magic == 1 else 1) * 3 * sum(len(value) + record_bytes for value in values)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_data_that_is_cut(codec: str) -> None:
    with pytest.raises(FormatError):
        decompress(CODECS.index(codec), packed(codec, bytes(range(256)) * 50)[:-9], bytes_max=1 << 20)


def test_an_unknown_codec() -> None:
    with pytest.raises(BadValueError, match=r"expected 0\.\.4, found 5"):
        decompress(5, b"", bytes_max=1)


@pytest.mark.parametrize(("data", "checksum"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_published_values_of_xxhash(data: bytes, checksum: int) -> None:
    assert compression._xxh32_of_few(data) == checksum


def test_lz4_of_magic_0_has_a_wrong_header_checksum_that_is_known() -> None:
    for frame, at in ((lz4_frame(b"hello"), 6), (odd_frames.lz4_frame(b"hello", size=5), 14)):
        wrong = frame[:at] + bytes((frame[at] ^ 0xFF,)) + frame[at + 1 :]
        assert decompress(LZ4, wrong, bytes_max=100, magic=0) == b"hello"
        with pytest.raises(FormatError):
            decompress(LZ4, wrong, bytes_max=100, magic=1)


def by_columns(header: BatchHeader, batch: bytes) -> list[tuple[Any, ...]]:
    """Numbers and keys of headers of the records."""
    return [row for part in columns_of_any(header, batch) for row in numbers_in(part)]


def columns_of_any(header: BatchHeader, batch: bytes) -> Iterator[RecordColumns | LogRecord]:
    """Reads columns also where a batch has few records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("formats.log.records.COLUMN_ROWS_MIN", 1)
        yield from read_record_columns(header, batch)


def numbers_in(part: RecordColumns | LogRecord) -> list[tuple[Any, ...]]:
    if isinstance(part, LogRecord):
        return [numbers_of(part)]
    columns = (part.offset, part.timestamp, part.key_size, part.value_size, part.sequence)
    keys = [()] * len(part) if part.header_keys is None else [tuple(each) for each in part.header_keys]
    return list(zip(*(column.tolist() for column in columns), keys, strict=True))


def numbers_of(record: LogRecord) -> tuple[Any, ...]:
    sizes = (-1 if each is None else len(each) for each in (record.key, record.value))
    return record.offset, record.timestamp, *sizes, record.sequence, tuple(each.key for each in record.headers)


plain = records.map(lambda each: replace(each, offset_delta=each.offset_delta & 0x7FFFFFF, headers=()))


@given(st.lists(st.one_of(plain, records), max_size=6), st.sampled_from([-1, 0, 2**31 - 3]), st.booleans())
def test_columns_are_those_of_the_records(made: list[Record], base_sequence: int, appended: bool) -> None:
    header = header_of(100, attributes=LOG_APPEND_TIME if appended else 0, base_sequence=base_sequence, record_count=len(made))
    batch = build_record_batch(header, made)
    header = parse_batch_header(batch)
    found = by_columns(header, batch)
    assert found == [numbers_of(each) for each in read_records(header, batch)]


@given(st.lists(st.one_of(plain, records), min_size=1, max_size=3), payloads, st.data())
def test_columns_and_records_fail_alike(made: list[Record], payload: bytes, data: st.DataObject) -> None:
    """Any bytes after some records, and any byte changed."""
    batch = bytearray(build_record_batch(header_of(0, record_count=len(made) + 1), made) + payload)
    batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = parse_batch_header(bytes(batch))
    ends = []
    for read in (read_records, columns_of_any):
        found: list[tuple[Any, ...]] = []
        try:
            for part in read(header, bytes(batch)):
                found += numbers_in(part)
        except FormatError as error:
            ends.append((found, type(error), str(error)))
        else:
            ends.append((found, None, ""))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("codec", [0, 1])
def test_usual_records_are_columns(codec: int) -> None:
    """Also where one with headers is between them, and where they are decompressed in windows."""
    usual = Record(5, 0, None, b"v" * 700)
    made = [replace(usual, offset_delta=number) for number in range(4000)]
    made[100] = replace(made[100], headers=(RecordHeader(b"h", None),) * 65)
    header = header_of(7, attributes=codec, record_count=len(made))
    plain_batch = build_record_batch(header, made)
    batch = plain_batch if codec == 0 else plain_batch[:61] + packed("gzip", plain_batch[61:])
    found: list[int] = []
    count = 0
    for part in read_record_columns(header, batch, piped=piped):
        if isinstance(part, LogRecord):
            found.append(part.offset)
        else:
            found += part.offset.tolist()
            count += len(part)
    assert found == [7 + number for number in range(4000)]
    assert count >= 3900, "the speed path was not taken"
