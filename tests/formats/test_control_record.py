"""Control records: markers under every attribute, everything on which a broker throws, and what brokers wrote."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from budgets import notices_broken_rules
from compressed_batches import packed
from control_records import build_control_record, build_end_transaction_marker
from fixture_files import broker_files
from header_engines import HEADER_ENGINES, MarkerRow, Reading, read_fast, segment
from hypothesis import example, given
from hypothesis import strategies as st
from memory_peak import measured
from strategies import (
    CONTROL,
    DELETE_HORIZON,
    INT16,
    INT32,
    INT64,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    GeneratedLog,
    batch_of,
    header_of,
)

from formats import limits
from formats.compression import CODECS
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.log.batch_headers import SegmentBytes, TailKind
from formats.log.control_record import (
    ControlRecord,
    ControlRecordType,
    Endpoint,
    EndTransactionMarker,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    Voters,
    parse_control_record,
)
from formats.log.record_batch import Record, build_record, parse_record

ReadHeaders = Callable[[SegmentBytes], Reading]

BEFORE = batch_of(header_of(0, producer_id=7, producer_epoch=0, base_sequence=0), b"data")
AFTER = batch_of(header_of(9, producer_id=7, producer_epoch=0, base_sequence=1), b"data")


def compressed(codec: int, data: bytes) -> bytes:
    """Compresses like Kafka's clients; codecs above 4 do not exist."""
    return packed(CODECS[codec], data) if 0 < codec < len(CODECS) else data


def log_with(payload: bytes | list[Record], **fields: int) -> GeneratedLog:
    """A control batch of producer 7 between two batches of data."""
    header = header_of(5, **{"attributes": CONTROL, "producer_id": 7, "producer_epoch": 3, **fields})
    return GeneratedLog((BEFORE, batch_of(header, payload), AFTER))


# ---------------------------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("unusual", [False, True], ids=["as-coordinators-write", "with-more-behind-it"])
def test_every_combination_of_attributes(read_headers: ReadHeaders, is_commit: bool, unusual: bool) -> None:
    """Only LogAppendTime and the codec matter. Brokers never compress a control batch, but their readers accept one."""
    record = build_end_transaction_marker(
        commit=is_commit, coordinator_epoch=17, version=2 * unusual, rest=b"more" * unusual, timestamp_delta=40 * unusual
    )
    for bits in itertools.product((0, TRANSACTIONAL), (0, LOG_APPEND_TIME), (0, DELETE_HORIZON), range(8)):
        payload = compressed(bits[3], build_record(record))
        log = log_with(payload, attributes=CONTROL | sum(bits), base_timestamp=500, max_timestamp=90_000)
        reading = read_headers(segment(log.data))
        if bits[3] > 4:
            assert reading.headers == log.headers[:1]
            assert reading.end == (TailKind.CORRUPT, log.positions[1], BadValueError)
            continue
        timestamp = 90_000 if bits[1] else 500 + 40 * unusual
        assert reading.markers == [MarkerRow(1, is_commit, 17, timestamp)]
        assert reading.headers == log.headers
        assert reading.end == (TailKind.CLEAN, len(log.data), None)


def test_snappy_without_the_stream_header_is_read_too(read_headers: ReadHeaders) -> None:
    record = build_record(build_end_transaction_marker(commit=True, coordinator_epoch=17))
    log = log_with(bytes(cramjam.snappy.compress_raw(record)), attributes=CONTROL | 2, base_timestamp=500, max_timestamp=500)
    assert read_headers(segment(log.data)).markers == [MarkerRow(1, True, 17, 500)]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damaged_compressed_data_is_a_clear_error(codec: int) -> None:
    whole = compressed(codec, build_record(build_end_transaction_marker(commit=True, coordinator_epoch=1)))
    at = 17 if codec == 2 else 9  # after the versions of a snappy stream, which may be any
    for payload in (b"", whole[:-3], b"junk" + whole, whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :]):
        log = log_with(payload, attributes=CONTROL | codec)
        tail = read_fast(segment(log.data)).tail
        assert isinstance(tail.error, FormatError), payload
        assert tail.kind is TailKind.CORRUPT
        assert log.positions[1] <= (tail.error.position or 0) <= len(log.data)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_small_batch_that_unpacks_to_much_is_refused_without_unpacking_it(codec: int) -> None:
    log = log_with(compressed(codec, bytes(40 << 20)), attributes=CONTROL | codec)
    with measured() as peak:
        error = read_fast(segment(log.data)).tail.error
    assert isinstance(error, LimitExceededError)
    assert peak.bytes < 24 << 20


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"record_count": 0}], ids=["no-producer", "no-records"])
def test_what_is_not_read_cannot_be_wrong(read_headers: ReadHeaders, fields: dict[str, int]) -> None:
    log = log_with(b"no record at all", **fields)
    reading = read_headers(segment(log.data))
    assert (reading.headers, reading.markers) == (log.headers, [])


MARKERS = st.fixed_dictionaries(
    {
        "commit": st.booleans(),
        "coordinator_epoch": INT32,
        "version": st.integers(0, 2**15 - 1),
        "rest": st.binary(max_size=100),
        "timestamp_delta": st.integers(-(2**40), 2**40),
        "offset_delta": st.integers(0, 5),
    }
)


@notices_broken_rules
@given(fields=MARKERS, base=st.integers(-1, 2**42))
def test_any_marker(fields: dict[str, Any], base: int) -> None:
    log = log_with([build_end_transaction_marker(**fields)], base_timestamp=base)
    expected = MarkerRow(1, fields["commit"], fields["coordinator_epoch"], base + fields["timestamp_delta"])
    for read in HEADER_ENGINES.values():
        assert read(segment(log.data)).markers == [expected]


def test_only_the_first_record_counts(read_headers: ReadHeaders) -> None:
    abort = build_end_transaction_marker(commit=False, coordinator_epoch=1)
    commit = build_end_transaction_marker(commit=True, coordinator_epoch=2)
    log = log_with([abort, commit], record_count=2)
    assert read_headers(segment(log.data)).markers == [MarkerRow(1, False, 1, 1000)]
    log = log_with(build_record(abort) + b"not a record", record_count=2)
    assert read_headers(segment(log.data)).markers == [MarkerRow(1, False, 1, 1000)]


# ---------------------------------------------------------------------------------------------------------------- malformed

VALUE = bytes.fromhex("0000 00000007")
COMMIT_KEY = bytes.fromhex("0000 0001")
MARKER = build_record(Record(0, 0, COMMIT_KEY, VALUE))


def record_bytes(key: bytes | None, value: bytes | None) -> bytes:
    return build_record(Record(0, 0, key, value))


MALFORMED = {
    # Key: int16 version, int16 type.
    "key-null": (record_bytes(None, VALUE), TruncatedError),
    "key-of-3-bytes": (record_bytes(COMMIT_KEY[:3], VALUE), TruncatedError),
    "key-version-negative": (record_bytes(b"\xff\xff\0\1", VALUE), BadVersionError),
    "type-leader-change-and-its-value-is-none": (record_bytes(b"\0\0\0\2", b""), BadValueError),
    "type-minus-1": (record_bytes(b"\0\0\xff\xff", VALUE), BadValueError),
    "type-257": (record_bytes(b"\0\0\1\1", VALUE), BadValueError),
    # Value: int16 version, int32 coordinator epoch.
    "value-null": (record_bytes(COMMIT_KEY, None), TruncatedError),
    "value-of-5-bytes": (record_bytes(COMMIT_KEY, VALUE[:5]), TruncatedError),
    "value-version-negative": (record_bytes(COMMIT_KEY, b"\xff\xff" + VALUE[2:]), BadVersionError),
    # The record itself.
    "no-record-where-one-is-declared": (b"", TruncatedError),
    "record-longer-than-the-batch": (b"\x7e" + MARKER[1:], TruncatedError),
    "record-shorter-than-its-fields": (b"\x1e" + MARKER[1:], TruncatedError),
    "record-longer-than-its-fields": (b"\x22" + MARKER[1:] + b"\0", BadLengthError),
    "header-count-negative": (MARKER[:-1] + b"\x01", BadLengthError),
    "bytes-behind-the-only-record": (MARKER + b"\0", BadLengthError),
}


@pytest.mark.parametrize(("payload", "error"), MALFORMED.values(), ids=MALFORMED)
def test_a_broker_throws_at_it(read_headers: ReadHeaders, payload: bytes, error: type[FormatError]) -> None:
    """Batches before it stay readable; it and later ones do not. The position is inside the batch."""
    log = log_with(payload)
    reading = read_headers(segment(log.data))
    assert reading.headers == log.headers[:1]
    assert reading.markers == []
    assert reading.end == (TailKind.CORRUPT, log.positions[1], error)
    assert reading.tail.error is not None
    assert reading.tail.error.position is not None
    assert log.positions[1] <= reading.tail.error.position <= log.positions[2]


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_negative_count_of_records(read_headers: ReadHeaders, count: int) -> None:
    log = log_with(MARKER, record_count=count)
    assert read_headers(segment(log.data)).end == (TailKind.CORRUPT, log.positions[1], BadLengthError)


ACCEPTED = {
    "key-longer": (record_bytes(COMMIT_KEY + b"later", VALUE), 7),
    "value-version-newer": (record_bytes(COMMIT_KEY, b"\x7f\xff" + VALUE[2:]), 7),
    "value-newer-and-longer": (record_bytes(COMMIT_KEY, b"\0\1" + VALUE[2:] + b"later"), 7),
    "coordinator-epoch-negative": (record_bytes(COMMIT_KEY, b"\0\0" + b"\xff\xff\xff\xfe"), -2),
    "record-attributes": (MARKER[:1] + b"\x7f" + MARKER[2:], 7),
    "record-headers": (build_record(Record(0, 0, COMMIT_KEY, VALUE, (), 1)), 7),
}


@pytest.mark.parametrize(("payload", "epoch"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_broker_reads_over_it(read_headers: ReadHeaders, payload: bytes, epoch: int) -> None:
    log = log_with(payload)
    reading = read_headers(segment(log.data))
    assert reading.markers == [MarkerRow(1, True, epoch, 1000)]
    assert reading.end == (TailKind.CLEAN, len(log.data), None)


def test_the_first_of_two_faults_ends_the_segment(read_headers: ReadHeaders) -> None:
    good = log_with(MARKER).batches[1]
    bad = [log_with(MALFORMED[name][0]).batches[1] for name in ("type-257", "key-null")]
    log = GeneratedLog((good, BEFORE, bad[0], good, bad[1]))
    reading = read_headers(segment(log.data))
    assert reading.markers == [MarkerRow(0, True, 7, 1000)]
    assert reading.end == (TailKind.CORRUPT, log.positions[2], BadValueError)


# ---------------------------------------------------------------------------------------------------------------- values


texts = st.text(max_size=10)
voters = st.builds(
    Voter,
    voter_id=INT32,
    directory_id=st.binary(min_size=16, max_size=16),
    endpoints=st.lists(st.builds(Endpoint, texts, texts, st.integers(0, 2**16 - 1)), max_size=2).map(tuple),
    kraft_version_min=INT16,
    kraft_version_max=INT16,
)
NOT_NEGATIVE = st.integers(0, 2**15 - 1)
plain_voters = st.lists(st.builds(Voter, voter_id=INT32), max_size=3).map(tuple)
directory_voters = st.lists(st.builds(Voter, voter_id=INT32, directory_id=st.binary(min_size=16, max_size=16)), max_size=3).map(
    tuple
)
values: st.SearchStrategy[tuple[int, Any]] = st.one_of(
    st.tuples(st.sampled_from((0, 1)), st.builds(EndTransactionMarker, NOT_NEGATIVE, INT32, st.binary(max_size=9))),
    st.tuples(st.just(2), st.builds(LeaderChange, st.just(0), INT32, plain_voters, plain_voters)),
    st.tuples(st.just(2), st.builds(LeaderChange, st.integers(1, 9), INT32, directory_voters, directory_voters)),
    st.tuples(st.just(3), st.builds(SnapshotHeader, NOT_NEGATIVE, INT64)),
    st.tuples(st.just(4), st.builds(SnapshotFooter, NOT_NEGATIVE)),
    st.tuples(st.just(5), st.builds(KRaftVersion, NOT_NEGATIVE, INT16)),
    st.tuples(st.just(6), st.builds(Voters, NOT_NEGATIVE, st.lists(voters, max_size=3).map(tuple))),
    st.tuples(st.sampled_from((-1, 7, 99)), st.binary(max_size=20)),
)


def test_marker_layout() -> None:
    record = build_end_transaction_marker(commit=False, coordinator_epoch=0x01020304, timestamp_delta=3)
    assert (record.key, record.value, record.timestamp_delta) == (bytes(4), bytes.fromhex("0000 01020304"), 3)
    commit = build_end_transaction_marker(commit=True, coordinator_epoch=-1, version=1, rest=b"x")
    assert (commit.key, commit.value) == (bytes.fromhex("00000001"), bytes.fromhex("0001 ffffffff 78"))


@notices_broken_rules
@given(typed=values, key_version=NOT_NEGATIVE)
def test_every_type_comes_back(typed: tuple[int, Any], key_version: int) -> None:
    control = ControlRecord(key_version, *typed)
    record = build_control_record(control)
    assert parse_control_record(record) == control
    assert parse_record(build_record(record))[0] == record


@notices_broken_rules
@given(type_id=st.integers(-1, 8), key=st.none() | st.binary(max_size=8), value=st.none() | st.binary(max_size=60))
@example(type_id=6, key=None, value=bytes.fromhex("0000 ffffffff0f"))
@example(type_id=6, key=None, value=bytes.fromhex("0000 02 00000001") + bytes(16) + bytes.fromhex("02 02ff"))
def test_any_bytes(type_id: int, key: bytes | None, value: bytes | None) -> None:
    key = key if key is not None else b"\0\0" + type_id.to_bytes(2, "big", signed=True)
    error: FormatError | None = None
    try:
        control = parse_control_record(Record(0, 0, key, value), file="some.log", position=61)
        assert control.type_id == int.from_bytes(key[2:4], "big", signed=True)
    except FormatError as raised:
        error = raised
    assert error is None or (error.file, error.position) == ("some.log", 61)


VOTERS_ABOVE_THE_LIMIT = "0000 00000001 924e" + 10_001 * " 00000001 00" + " 01 00"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("0000 00000001 ff ff ff ff 07", TruncatedError),
        ("0000 00000001 00 00 00", BadLengthError),
        ("0000 00000001 924e 01 00", TruncatedError),
        (VOTERS_ABOVE_THE_LIMIT, BadLengthError),
        ("0000 00000001 01 01 ffffffff0f", LimitExceededError),
    ],
    ids=["voters-2^31", "voters-null", "voters-beyond-the-bytes", "voters-above-the-limit", "tags-above-the-limit"],
)
def test_counts_are_capped(value: str, error: type[FormatError]) -> None:
    assert limits.KRAFT_VOTERS_MAX == 10_000
    with pytest.raises(error, match="LeaderChangeMessage"):
        parse_control_record(Record(0, 0, b"\0\0\0\2", bytes.fromhex(value.replace(" ", ""))))


def test_unknown_tagged_fields_are_read_over() -> None:
    value = bytes.fromhex("0000 0001 02 00 03 616263 05 00")
    assert parse_control_record(Record(0, 0, b"\0\0\0\5", value)).value == KRaftVersion(0, 1)


# ---------------------------------------------------------------------------------------------------------------- what brokers wrote


def _control_records(path: Path) -> dict[int, ControlRecord]:
    """By offset; every one must come back byte by byte."""
    data = path.read_bytes()
    reading = read_fast(segment(data))
    found = {}
    for header, position in zip(reading.headers, reading.positions, strict=True):
        at, end = position + 61, position + header.size_bytes
        for _ in range(header.record_count if header.is_control else 0):
            record, size = parse_record(data[at:end])
            control = parse_control_record(record)
            built = build_control_record(control, timestamp_delta=record.timestamp_delta, offset_delta=record.offset_delta)
            assert build_record(built) == data[at : at + size]
            found[header.base_offset + record.offset_delta] = control
            at += size
    return found


SEGMENTS = broker_files("*.log", "*.checkpoint")


def test_control_records_of_brokers_are_written_back_byte_by_byte() -> None:
    kinds = {(control.type_id, type(control.value)) for path in SEGMENTS for control in _control_records(path).values()}
    assert kinds == {
        (ControlRecordType.ABORT, EndTransactionMarker),
        (ControlRecordType.COMMIT, EndTransactionMarker),
        (ControlRecordType.LEADER_CHANGE, LeaderChange),
        (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeader),
        (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooter),
        (ControlRecordType.KRAFT_VERSION, KRaftVersion),
        (ControlRecordType.KRAFT_VOTERS, Voters),
    }
