"""The grammar of batches and records: what brokers wrote is written back byte by byte. `inspect/test_dumped_lines` has Kafka's dumps."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from construct import Struct
from fixture_files import each_broker_file
from header_engines import HEADER_ENGINES, Reading, read_with, segment
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch_of,
    header_of,
    headers,
    message_of,
    payloads,
    records,
)

from formats import limits
from formats.checksum import crc32_reference, crc32c_reference
from formats.errors import BadChecksumError, BadLengthError, BadMagicError, BadValueError, FormatError, TruncatedError
from formats.log import batch_headers, record_batch
from formats.log.batch_headers import HeaderReader
from formats.log.record_batch import (
    MESSAGE_HEADERS,
    RECORD_BATCH_HEADER,
    BatchHeader,
    Record,
    RecordHeader,
    build_record,
    build_record_batch,
    check_batch,
    parse_batch_header,
    parse_record,
)

ReadHeaders = Callable[..., Reading]
each_log = each_broker_file("*.log", "*.checkpoint")

# One byte pattern for each field, so that a field in a wrong place cannot go unseen.
DISTINCT = BatchHeader(
    base_offset=0x0102030405060708,
    length=49,
    partition_leader_epoch=0x11121314,
    magic=2,
    crc=0,
    attributes=0x0010,
    last_offset_delta=0x21222324,
    base_timestamp=0x3132333435363738,
    max_timestamp=0x4142434445464748,
    producer_id=0x5152535455565758,
    producer_epoch=0x6162,
    base_sequence=0x71727374,
    record_count=0x11223344,
)
DISTINCT_HEX = (
    "0102030405060708 00000031 11121314 02 {crc:08x} 0010 21222324 "
    "3132333435363738 4142434445464748 5152535455565758 6162 71727374 11223344"
)


class TestHeaderLayout:
    def test_magic_2(self, read_headers: ReadHeaders) -> None:
        crc = crc32c_reference(bytes.fromhex(DISTINCT_HEX.format(crc=0))[21:])
        data = bytes.fromhex(DISTINCT_HEX.format(crc=crc))
        assert build_record_batch(DISTINCT, b"") == data
        reading = read_headers(segment(data))
        assert reading.headers == [replace(DISTINCT, crc=crc)]
        assert reading.positions == [0]

    @pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 0x3132333435363738)])
    def test_messages(self, read_headers: ReadHeaders, magic: int, timestamp: int) -> None:
        body = bytes((magic, 0x0B)) + (b"12345678" if magic else b"") + bytes.fromhex("ffffffff 00000002 6162")
        data = (
            bytes.fromhex("0102030405060708") + (len(body) + 4).to_bytes(4, "big") + crc32_reference(body).to_bytes(4, "big") + body
        )
        (header,) = read_headers(segment(data)).headers
        assert header.base_offset == header.last_offset == 0x0102030405060708
        assert (header.magic, header.length, header.size_bytes) == (magic, len(data) - 12, len(data))
        assert header.crc == zlib.crc32(body)
        assert header.base_timestamp == header.max_timestamp == timestamp
        assert (header.codec, header.is_log_append_time) == (3, True)
        absent = ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "record_count")
        assert {getattr(header, name) for name in absent} == {-1}
        assert check_batch(data) == header

    @pytest.mark.parametrize("magic", [0, 1])
    def test_bits_4_and_5_mean_nothing_in_a_message(self, read_headers: ReadHeaders, magic: int) -> None:
        batch = message_of(magic, 5, b"x", timestamp=7, attributes=TRANSACTIONAL | CONTROL | DELETE_HORIZON | 1)
        (header,) = read_headers(segment(batch.data)).headers
        assert (header.is_transactional, header.is_control, header.attributes) == (False, False, 1)

    def test_attributes(self) -> None:
        for bits in range(0x80):
            header = header_of(0, attributes=bits)
            assert header.codec == bits & 7
            assert header.is_log_append_time == bool(bits & LOG_APPEND_TIME)
            assert header.is_transactional == bool(bits & TRANSACTIONAL)
            assert header.is_control == bool(bits & CONTROL)

    @given(header=headers, payload=payloads)
    def test_any_header_comes_back(self, header: BatchHeader, payload: bytes) -> None:
        batch = batch_of(header, payload)
        for read in HEADER_ENGINES.values():
            assert read(segment(batch.data)).headers == [batch.header]
        assert check_batch(batch.data) == batch.header
        assert batch.header.size_bytes == len(batch.data)
        assert replace(batch.header, length=0, crc=0) == header


def _moved(first: str, second: str) -> Struct:
    """The grammar with two fields in each other's place."""
    fields = list(RECORD_BATCH_HEADER.subcons)
    index = {field.name: position for position, field in enumerate(fields)}
    fields[index[first]], fields[index[second]] = fields[index[second]], fields[index[first]]
    return Struct(*fields)


class TestOneDefinition:
    """A field that moves in the grammar moves in both readers."""

    @pytest.mark.parametrize("pair", [("producer_id", "base_sequence"), ("length", "partition_leader_epoch")], ids="-".join)
    def test_both_readers_move(self, pair: tuple[str, str]) -> None:
        grammar = _moved(*pair)
        header = replace(DISTINCT, length=100)
        data = bytes(grammar.build({name: getattr(header, name) for name in BatchHeader.__struct_fields__})) + bytes(112 - 61)
        fields = grammar.parse(data[:61])
        by_grammar = BatchHeader(**{name: fields[name] for name in BatchHeader.__struct_fields__})
        assert by_grammar == header
        assert read_with(HeaderReader(segment(data), grammar=grammar)).headers == [header]

    def test_reference_follows_a_patched_grammar(self, monkeypatch: pytest.MonkeyPatch) -> None:
        grammar = _moved("producer_id", "max_timestamp")
        data = bytes(grammar.build({name: getattr(DISTINCT, name) for name in BatchHeader.__struct_fields__}))
        assert parse_batch_header(data) != DISTINCT
        monkeypatch.setattr(record_batch, "RECORD_BATCH_HEADER", grammar)
        assert parse_batch_header(data) == DISTINCT

    def test_columns_are_those_of_the_grammar(self) -> None:
        batch = batch_of(DISTINCT, b"payload")
        (block,) = HeaderReader(segment(batch.data * 3))
        assert tuple(block.columns) == tuple(field.name for field in RECORD_BATCH_HEADER.subcons)
        for name in BatchHeader.__struct_fields__:
            column = block.column(name)
            assert column.dtype.isnative
            assert column.tolist() == [getattr(batch.header, name)] * 3


# ---------------------------------------------------------------------------------------------------------------- what brokers wrote


@each_log
def test_headers_of_brokers_are_written_back_byte_by_byte(path: Path) -> None:
    data = path.read_bytes()
    reading = HEADER_ENGINES["fast"](segment(data))
    assert reading.tail.position_bytes == (reading.positions[-1] + reading.headers[-1].size_bytes if reading.headers else 0)
    for header, position in zip(reading.headers, reading.positions, strict=True):
        if header.magic == 2:
            fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__}
            assert RECORD_BATCH_HEADER.build(fields) == data[position : position + 61]
        else:
            message = {"offset": header.base_offset, "size": header.length, "timestamp": header.max_timestamp}
            grammar = MESSAGE_HEADERS[header.magic]
            built = grammar.build({**message, "crc": header.crc, "magic": header.magic, "attributes": header.attributes})
            assert built == data[position : position + grammar.sizeof()]


def _records(payload: bytes) -> Iterator[Record]:
    at = 0
    while at < len(payload):
        record, size = parse_record(payload[at:])
        at += size
        yield record


@each_log
def test_uncompressed_batches_of_brokers_are_written_back_byte_by_byte(path: Path) -> None:
    data = path.read_bytes()
    reading = HEADER_ENGINES["fast"](segment(data))
    bad = [position for position, batch in _batches(data, reading) if not _is_valid(batch)]
    assert bad == ([6730] if path.parent.name == "bad-crc-0" and path.name == "00000000000000001598.log" else [])
    # The grammar takes its time: each tenth batch.
    for header, (position, batch) in list(zip(reading.headers, _batches(data, reading), strict=True))[::10]:
        if header.magic == 2 and not header.codec and position not in bad:
            parsed = list(_records(batch[61:]))
            assert len(parsed) == header.record_count
            assert build_record_batch(header, parsed) == batch


def _batches(data: bytes, reading: Reading) -> Iterator[tuple[int, bytes]]:
    for header, position in zip(reading.headers, reading.positions, strict=True):
        yield position, data[position : position + header.size_bytes]


def _is_valid(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except BadChecksumError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- faults


def _with(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


BATCH = batch_of(header_of(7, producer_id=1), b"payload").data
MESSAGES = [message_of(magic, 7, b"value", timestamp=5).data for magic in (0, 1)]


class TestFaults:
    @pytest.mark.parametrize(
        ("data", "error", "position"),
        [
            (b"", TruncatedError, 100),
            (BATCH[:60], TruncatedError, 100),
            (MESSAGES[0][:17], TruncatedError, 100),
            (MESSAGES[1][:25], TruncatedError, 100),
            (_with(BATCH, 16, b"\x03"), BadMagicError, 116),
            (_with(BATCH, 8, bytes(4)), BadLengthError, 108),
            (_with(BATCH, 8, b"\xff\xff\xff\xff"), BadLengthError, 108),
            (_with(BATCH, 8, b"\0\0\0\x30"), BadLengthError, 108),
            (_with(MESSAGES[1], 8, b"\0\0\0\x15"), BadLengthError, 108),
            # FileLogInputStream looks at the length before it looks at the magic.
            (_with(_with(BATCH, 8, bytes(4)), 16, b"\x09"), BadLengthError, 108),
        ],
    )
    def test_header(self, data: bytes, error: type[FormatError], position: int) -> None:
        with pytest.raises(error) as caught:
            parse_batch_header(memoryview(data), file="some.log", position=100)
        assert type(caught.value) is error
        assert (caught.value.file, caught.value.position) == ("some.log", position)

    def test_least_lengths_are_enough(self) -> None:
        assert parse_batch_header(build_record_batch(header_of(0), b"")).length == 49
        assert [parse_batch_header(message_of(magic, 0, b"").data).length for magic in (0, 1)] == [14, 22]

    def test_header_alone_is_enough(self) -> None:
        assert parse_batch_header(BATCH[:61]) == parse_batch_header(BATCH)
        with pytest.raises(TruncatedError):
            check_batch(BATCH[:-1])

    @pytest.mark.parametrize("data", [BATCH, *MESSAGES], ids=["magic2", "magic0", "magic1"])
    def test_checksum_covers_what_kafka_says(self, data: bytes) -> None:
        """Not offset and leader epoch, which a broker rewrites; and bytes after the batch are not looked at."""
        assert check_batch(data + b"next") == parse_batch_header(data)
        magic = data[16]
        for position in range(len(data)):
            changed = _with(data, position, bytes((data[position] ^ 0x40,)))
            if position < 8 or (magic == 2 and 12 <= position < 16):
                check_batch(changed)
            elif not 8 <= position < 12 and position != 16:
                with pytest.raises(BadChecksumError) as caught:
                    check_batch(changed, file="some.log", position=1000)
                assert (caught.value.file, caught.value.position) == ("some.log", 1000)


# ---------------------------------------------------------------------------------------------------------------- records

# length 20, attributes 0, timestamp delta 0, offset delta 1, key "k", null value, one header "h": b"v"
RECORD_HEX = "16 00 00 02 02 6b 01 02 02 68 02 76".replace(" ", "")


class TestRecords:
    def test_layout(self) -> None:
        record = Record(0, 1, b"k", None, (RecordHeader(b"h", b"v"),))
        assert build_record(record).hex() == RECORD_HEX
        assert parse_record(bytes.fromhex(RECORD_HEX) + b"next") == (record, 12)

    @given(record=records, rest=st.binary(max_size=5))
    def test_round_trip(self, record: Record, rest: bytes) -> None:
        data = build_record(record)
        assert parse_record(data + rest) == (record, len(data))

    def test_a_length_with_spare_bytes_is_counted_as_it_stands(self) -> None:
        """Kafka's varints need not be the shortest."""
        data = bytes.fromhex("9600") + bytes.fromhex(RECORD_HEX)[1:]
        assert parse_record(data + b"next")[1] == len(data) == 13

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            ("", TruncatedError),
            (RECORD_HEX[:-2], TruncatedError),
            # one byte more, or less, than the fields need
            ("18" + RECORD_HEX[2:] + "00", BadLengthError),
            ("14" + RECORD_HEX[2:], TruncatedError),
            # negative length of the record, of a header's key
            ("01" + RECORD_HEX[2:], BadValueError),
            ("10 00 00 00 01 01 02 01 01".replace(" ", ""), BadLengthError),
            # counts of headers: negative, more than the limit
            ("0c 00 00 00 01 01 01".replace(" ", ""), BadLengthError),
            ("12 00 00 00 01 01 80 b5 18".replace(" ", "") + "00" * 8, BadLengthError),
            # a key of 2^30 bytes in a record of 10
            ("14 00 00 00 80 80 80 80 08 01 00".replace(" ", ""), TruncatedError),
        ],
    )
    def test_faults(self, data: str, error: type[FormatError]) -> None:
        with pytest.raises(error) as caught:
            parse_record(bytes.fromhex(data), file="some.log", position=500)
        assert type(caught.value) is error
        assert caught.value.position == 500
        assert caught.value.file == "some.log"

    @pytest.mark.parametrize("length", ["01", "03", "7f", "ff7f", "ffffffff0f"])
    def test_every_negative_length_is_null(self, length: str) -> None:
        """The rule holds for a key, a value, and the value of a header; ``tests/broker/test_records_of_kafka.py`` asks Kafka."""
        for key, value, header in ((length, "01", "01"), ("01", length, "01"), ("01", "01", length)):
            body = bytes.fromhex(f"00 00 00 {key} {value} 02 02 68 {header}")
            record, end = parse_record(bytes((2 * len(body),)) + body)
            assert (record.key, record.value, record.headers, end) == (None, None, (RecordHeader(b"h", None),), len(body) + 1)

    def test_as_many_headers_as_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "RECORD_HEADERS_MAX", 3)
        headers = (RecordHeader(b"", None),) * 4
        assert parse_record(build_record(Record(0, 0, None, None, headers[:3])))[0].headers == headers[:3]
        with pytest.raises(BadLengthError):
            parse_record(build_record(Record(0, 0, None, None, headers)))


def test_a_batch_declares_what_it_is_given() -> None:
    header = header_of(9, record_count=5, last_offset_delta=4)
    data = build_record_batch(header, [Record(0, 4, None, b"last one left")])
    read = check_batch(data)
    assert (read.record_count, read.last_offset, read.length) == (5, 13, len(data) - 12)
    assert batch_headers.RECORD_BATCH_HEADER is RECORD_BATCH_HEADER
