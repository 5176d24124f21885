"""Snapshots: the table of what a broker accepts and rejects, row by row, through the grammar and through numpy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixture_files import each_broker_file
from hypothesis import example, given
from hypothesis import strategies as st
from kafka_vectors import VECTORS
from msgspec.structs import astuple
from snapshot_by_grammar import build_snapshot
from strategies import INT16, INT32, INT64

from formats import limits
from formats.checksum import crc32c_reference
from formats.errors import BadChecksumError, BadLengthError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.partition.producer_snapshot import (
    ENTRY_DTYPE,
    ProducerEntry,
    parse_snapshot,
    read_entries,
    write_entries,
)

Reader = Callable[..., list[tuple[int, ...]]]
Writer = Callable[[list[tuple[int, ...]]], bytes]


def _by_grammar(data: bytes, **options: Any) -> list[tuple[int, ...]]:
    return [astuple(entry) for entry in parse_snapshot(data, **options)]


def _by_numpy(data: bytes, **options: Any) -> list[tuple[int, ...]]:
    return read_entries(data, **options).tolist()


READERS = {"grammar": _by_grammar, "numpy": _by_numpy}
WRITERS: dict[str, Writer] = {
    "grammar": lambda rows: build_snapshot(ProducerEntry(*row) for row in rows),
    "numpy": lambda rows: write_entries(np.array(rows, dtype=ENTRY_DTYPE)),
}


@pytest.fixture(params=READERS.values(), ids=READERS)
def read(request: pytest.FixtureRequest) -> Reader:
    return request.param


@pytest.fixture(params=WRITERS.values(), ids=WRITERS)
def write(request: pytest.FixtureRequest) -> Writer:
    return request.param


# (producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open transaction)
ENTRY = (1000, 2, 9, 99, 4, 5000, 3, -1)
ENTRY_BYTES = bytes.fromhex("00000000000003e8 0002 00000009 0000000000000063 00000004 0000000000001388 00000003 ffffffffffffffff")


def snapshot_of(body: bytes, *, version: int = 1, count: int = 1, rest: bytes = b"", checksum_from: int = 6) -> bytes:
    """By hand, with a checksum that is right."""
    tail = count.to_bytes(4, "big", signed=True) + body + rest
    checksum = crc32c_reference(tail[checksum_from - 6 :])
    return version.to_bytes(2, "big") + checksum.to_bytes(4, "big") + tail


EMPTY = bytes.fromhex("000148674bc700000000")
GOOD = snapshot_of(ENTRY_BYTES)


def test_empty(read: Reader, write: Writer) -> None:
    assert read(EMPTY) == []
    assert write([]) == EMPTY


def test_one_entry(read: Reader, write: Writer) -> None:
    assert read(GOOD) == [ENTRY]
    assert write([ENTRY]) == GOOD
    assert len(GOOD) == 56


def test_every_field_has_its_place_and_width(read: Reader, write: Writer) -> None:
    widths = (8, 2, 4, 8, 4, 8, 4, 8)
    entry = tuple(-(index + 2) for index in range(8))
    body = b"".join(value.to_bytes(width, "big", signed=True) for value, width in zip(entry, widths, strict=True))
    assert read(snapshot_of(body)) == [entry]
    assert write([entry]) == snapshot_of(body)


REJECTED: dict[str, tuple[bytes, type[FormatError], int]] = {
    "zero-length": (b"", TruncatedError, 0),
    "header-cut": (GOOD[:9], TruncatedError, 0),
    "header-only": (GOOD[:10], TruncatedError, 10),
    "one-byte-short": (GOOD[:-1], TruncatedError, 55),
    "count-larger-than-the-bytes": (snapshot_of(ENTRY_BYTES, count=2), TruncatedError, 56),
    "count-huge": (snapshot_of(ENTRY_BYTES, count=2**31 - 1), TruncatedError, 56),
    "count-minus-one": (snapshot_of(b"", count=-1), BadLengthError, 6),
    "count-minimum": (snapshot_of(ENTRY_BYTES, count=-(2**31)), BadLengthError, 6),
    "version-0": (snapshot_of(ENTRY_BYTES, version=0), BadVersionError, 0),
    "version-2": (snapshot_of(ENTRY_BYTES, version=2), BadVersionError, 0),
    "bad-checksum": (GOOD[:5] + bytes((GOOD[5] ^ 1,)) + GOOD[6:], BadChecksumError, 2),
    "bad-entry": (GOOD[:-1] + b"\xfe", BadChecksumError, 2),
    "trailing-not-covered": (GOOD + b"\0", BadChecksumError, 2),
    "all-zeros": (bytes(56), BadVersionError, 0),
    "longer-file-overwritten-by-a-shorter-one": (EMPTY + ENTRY_BYTES, BadChecksumError, 2),
}


class TestReadingAsABroker:
    """``ProducerStateManager.readSnapshot``: version and structure first, then the checksum over bytes 6 to the end of the file."""

    @pytest.mark.parametrize("name", REJECTED)
    def test_rejected(self, read: Reader, name: str) -> None:
        data, error, position = REJECTED[name]
        with pytest.raises(error) as caught:
            read(data, file="00000000000000000100.snapshot")
        assert type(caught.value) is error
        assert caught.value.position == position
        assert str(caught.value).startswith("00000000000000000100.snapshot, byte ")

    def test_trailing_bytes_that_the_checksum_covers_are_ignored(self, read: Reader) -> None:
        assert read(snapshot_of(ENTRY_BYTES, rest=b"later versions")) == [ENTRY]
        assert read(snapshot_of(b"", count=0, rest=ENTRY_BYTES)) == []

    def test_structure_is_looked_at_before_the_checksum(self, read: Reader) -> None:
        wrong = bytearray(snapshot_of(ENTRY_BYTES, count=2))
        wrong[2] ^= 0xFF
        with pytest.raises(TruncatedError):
            read(bytes(wrong))

    @pytest.mark.parametrize(
        "entry",
        [
            (1000, 2, 77, -1, 5, 5000, 3, -1),
            (1000, 2, 9, 99, 4, 5000, 3, -7),
            (-5, -1, -1, -1, 0, -1, -1, -1),
            (2**63 - 1, 32767, 2**31 - 1, 2**63 - 1, 2**31 - 1, 2**63 - 1, 2**31 - 1, 2**63 - 1),
        ],
        ids=["no-batch-but-a-sequence", "negative-first-offset", "all-empty-and-negative-id", "all-maximum"],
    )
    def test_odd_values_are_values(self, read: Reader, write: Writer, entry: tuple[int, ...]) -> None:
        assert read(write([entry])) == [entry]

    def test_duplicates_are_all_there_in_file_order(self, read: Reader) -> None:
        twice = (ENTRY, (*ENTRY[:1], 3, *ENTRY[2:]), ENTRY)
        assert read(WRITERS["grammar"](list(twice))) == list(twice)

    def test_a_file_larger_than_any_broker_could_load(self, read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 55)
        with pytest.raises(LimitExceededError):
            read(GOOD)
        assert read(EMPTY) == []

    def test_no_cut_is_accepted(self, read: Reader) -> None:
        for cut in range(len(GOOD)):
            with pytest.raises(TruncatedError):
                read(GOOD[:cut])

    def test_no_flipped_bit_is_accepted(self, read: Reader) -> None:
        for bit in range(len(GOOD) * 8):
            data = bytearray(GOOD)
            data[bit // 8] ^= 0x80 >> bit % 8
            with pytest.raises(FormatError):
                read(bytes(data))


entries = st.lists(st.tuples(INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=8)


@given(rows=entries)
def test_both_writers_write_what_both_readers_read(rows: list[tuple[int, ...]]) -> None:
    written = {name: write(rows) for name, write in WRITERS.items()}
    assert written["grammar"] == written["numpy"]
    assert len(written["numpy"]) == 10 + 46 * len(rows)
    for read in READERS.values():
        assert read(written["grammar"]) == rows


@given(
    data=st.binary(max_size=120)
    | st.builds(lambda count, body: snapshot_of(body, count=count), st.integers(-2, 3), st.binary(max_size=140))
)
@example(data=GOOD)
def test_both_readers_give_one_answer_to_any_bytes(data: bytes) -> None:
    answers = []
    for read in READERS.values():
        try:
            answers.append((read(data), None))
        except FormatError as error:
            answers.append((None, (type(error), str(error))))
    assert answers[0] == answers[1]


@each_broker_file("*.snapshot")
def test_round_trip_of_what_brokers_wrote(path: Path, read: Reader, write: Writer) -> None:
    data = path.read_bytes()
    assert write(read(data, file=path.name)) == data


WRITTEN_BY_KAFKA = [vector for vector in VECTORS if "kafkaWrittenSnapshotHex" in vector]


@pytest.mark.parametrize("vector", WRITTEN_BY_KAFKA, ids=[vector["name"] for vector in WRITTEN_BY_KAFKA])
def test_snapshots_that_kafka_wrote_hold_the_entries_expected(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["kafkaWrittenSnapshotHex"])
    for read in READERS.values():
        rows = read(data)
        assert sorted(rows) == sorted(tuple(entry.values()) for entry in vector["expectedEntries"])
        for write in WRITERS.values():
            assert write(rows) == data
