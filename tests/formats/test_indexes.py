"""Offset, time and transaction indexes, each through the grammar and through numpy."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fixture_files import broker_files
from hypothesis import given
from hypothesis import strategies as st
from index_reference import (
    read_offset_index_reference,
    read_time_index_reference,
    read_transaction_index_reference,
    write_offset_index,
    write_time_index,
    write_transaction_index,
)

from formats import limits
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.partition.index_entries import Index
from formats.partition.offset_index import OffsetIndexEntry, read_offset_index
from formats.partition.time_index import TimeIndexEntry, read_time_index
from formats.partition.transaction_index import AbortedTransaction, read_transaction_index

Read = Callable[..., Index[Any]]


@dataclass(frozen=True)
class Kind:
    """One index format.

    Attributes:
        readers: the fast one and the reference.
        entry: layout of an entry, by hand.
        patterns: names of its files.
        sample, values: two entries as bytes, and what they say.
    """

    readers: tuple[Read, Read]
    write: Callable[..., bytes]
    entry: str
    patterns: tuple[str, ...]
    sample: bytes
    values: list[Any]

    @property
    def entry_bytes(self) -> int:
        return struct.calcsize(self.entry)


KINDS = {
    "offset": Kind(
        (read_offset_index, read_offset_index_reference),
        write_offset_index,
        ">ii",
        ("*.index", "*.index.deleted"),
        bytes.fromhex("00000005 00000100  7fffffff 7fffffff"),
        [OffsetIndexEntry(5, 256), OffsetIndexEntry(2**31 - 1, 2**31 - 1)],
    ),
    "time": Kind(
        (read_time_index, read_time_index_reference),
        write_time_index,
        ">qi",
        ("*.timeindex", "*.timeindex.deleted"),
        bytes.fromhex("000001a1fde20529 00000045  000001a1fde274c8 0000007e"),
        [TimeIndexEntry(0x01A1_FDE2_0529, 69), TimeIndexEntry(0x01A1_FDE2_74C8, 126)],
    ),
    "transaction": Kind(
        (read_transaction_index, read_transaction_index_reference),
        write_transaction_index,
        ">hqqqq",
        ("*.txnindex",),
        bytes.fromhex(
            "0000 00000000000003f5 000000000000041a 0000000000000486 0000000000000415"
            "0000 00000000000003f4 0000000000000423 0000000000000534 0000000000000415"
        ),
        [AbortedTransaction(0, 1013, 1050, 1158, 1045), AbortedTransaction(0, 1012, 1059, 1332, 1045)],
    ),
}
PREALLOCATED = ("offset", "time")
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@each_kind
def test_files_of_brokers_round_trip(kind: Kind) -> None:
    for path in broker_files(*kind.patterns):
        data = path.read_bytes()
        for read in kind.readers:
            index = read(data, file=path.name)
            zeros = index.preallocated_bytes
            assert len(index) * kind.entry_bytes + zeros == len(data), path
            assert kind.write(index, **({"preallocated_bytes": zeros} if zeros else {})) == data, path


@each_kind
def test_hand_computed_bytes(kind: Kind) -> None:
    for read in kind.readers:
        index = read(memoryview(kind.sample))
        assert list(index) == kind.values
        assert index.preallocated_bytes == 0
        for field in index.columns.dtype.names:
            assert index.column(field).dtype == np.int64
            assert index.column(field).tolist() == [getattr(each, field) for each in kind.values]
        assert list(read(b"")) == []
    assert kind.write(kind.values) == kind.sample
    assert kind.write([]) == b""


@pytest.mark.parametrize("name", PREALLOCATED)
@pytest.mark.parametrize("zeros", [0, 24, 65_520, 65_544, 200_016])
def test_zeros_behind_the_entries_are_no_entries(name: str, zeros: int) -> None:
    """Wherever the last byte is that is none."""
    kind = KINDS[name]
    nearly_zero = (struct.pack(kind.entry, 0, 1), struct.pack(kind.entry, 1 << 24, 0))
    for entries in (b"", kind.sample, *nearly_zero):
        for read in kind.readers:
            index = read(memoryview(entries + bytes(zeros)))
            assert len(index) == len(entries) // kind.entry_bytes
            assert index.preallocated_bytes == zeros
            assert kind.write(index, preallocated_bytes=zeros) == entries + bytes(zeros)


def entries(kind: str, *rows: tuple[int, ...]) -> bytes:
    return b"".join(struct.pack(KINDS[kind].entry, *row) for row in rows)


@pytest.mark.parametrize(
    ("kind", "data", "error", "position"),
    [
        ("offset", entries("offset", (5, 256)) + b"\0", TruncatedError, 8),
        ("offset", bytes(7), TruncatedError, 0),
        ("offset", entries("offset", (5, 256), (5, 512)), BadValueError, 8),
        ("offset", entries("offset", (5, 256), (6, 256)), BadValueError, 8),
        ("offset", entries("offset", (5, 256), (6, 512), (4, 768), (3, 256)), BadValueError, 16),
        ("offset", entries("offset", (5, 256), (0, 0), (6, 512)), BadValueError, 8),
        ("offset", entries("offset", (-1, 256)), BadValueError, 0),
        ("offset", entries("offset", (5, -1)), BadValueError, 0),
        ("offset", entries("offset", (5, 256), (-(2**31), 512)), BadValueError, 8),
        ("time", entries("time", (5, 1)) + b"\0", TruncatedError, 12),
        ("time", entries("time", (5, 1), (4, 2)), BadValueError, 12),
        ("time", entries("time", (5, 2), (6, 1)), BadValueError, 12),
        ("time", entries("time", (5, 1), (0, 0), (6, 2)), BadValueError, 12),
        ("time", entries("time", (-1, 1)), BadValueError, 0),
        ("time", entries("time", (5, -1)), BadValueError, 0),
        ("transaction", entries("transaction", (0, 7, 1, 2, 0)) + b"\0", TruncatedError, 34),
        ("transaction", entries("transaction", (0, 7, 3, 4, 0), (0, 7, 1, 2, 0)), BadValueError, 34),
        ("transaction", entries("transaction", (0, 7, 1, 2, 0), (0, 7, 1, 2, 0)), BadValueError, 34),
        ("transaction", entries("transaction", (0, 7, 1, 2, 0), (1, 7, 3, 4, 0)), BadVersionError, 34),
        ("transaction", entries("transaction", (-1, 7, 1, 2, 0)), BadVersionError, 0),
        ("transaction", entries("transaction", (0, 7, 3, 2, 0)), BadValueError, 0),
        ("transaction", entries("transaction", (0, 7, -1, 2, 0)), BadValueError, 0),
        # The file is never allocated ahead: zeros after the entries are damage.
        ("transaction", entries("transaction", (0, 7, 1, 2, 0)) + bytes(34), BadValueError, 34),
    ],
)
def test_faults(kind: str, data: bytes, error: type[FormatError], position: int) -> None:
    for read in KINDS[kind].readers:
        with pytest.raises(error) as caught:
            read(data, file="00.index")
        assert type(caught.value) is error
        assert (caught.value.file, caught.value.position, caught.value.unit) == ("00.index", position, "byte")
        assert caught.value.expected is not None
        assert caught.value.found is not None


def test_a_fault_says_what_it_found() -> None:
    with pytest.raises(BadValueError, match=r"00\.index, byte 8: offset index position: expected more than 256, found 255"):
        read_offset_index(entries("offset", (5, 256), (6, 255)), file="00.index")


def test_equal_neighbours_of_a_time_index_go_not_backwards() -> None:
    for read in KINDS["time"].readers:
        assert list(read(entries("time", (5, 1), (5, 1)))) == [TimeIndexEntry(5, 1), TimeIndexEntry(5, 1)]


@pytest.mark.parametrize(
    ("kind", "values", "error"),
    [
        ("offset", [OffsetIndexEntry(-1, 1)], BadValueError),
        ("offset", [OffsetIndexEntry(2**31, 1)], BadValueError),
        ("offset", [OffsetIndexEntry(1, 1), OffsetIndexEntry(1, 2)], BadValueError),
        ("time", [TimeIndexEntry(2**63, 0)], BadValueError),
        ("time", [TimeIndexEntry(2, 0), TimeIndexEntry(1, 1)], BadValueError),
        ("transaction", [AbortedTransaction(1, 1, 0, 1, 0)], BadVersionError),
        ("transaction", [AbortedTransaction(0, 2**63, 0, 1, 0)], BadValueError),
        ("transaction", [AbortedTransaction(0, 1, 5, 4, 0)], BadValueError),
    ],
)
def test_entries_that_could_not_be_read_back(kind: str, values: list[Any], error: type[FormatError]) -> None:
    with pytest.raises(error):
        KINDS[kind].write(values)


@pytest.mark.parametrize(("kind", "zeros"), [("offset", -8), ("offset", 7), ("time", 8)])
def test_the_preallocated_tail_is_whole_entries(kind: str, zeros: int) -> None:
    with pytest.raises(BadLengthError):
        KINDS[kind].write([], preallocated_bytes=zeros)


@pytest.mark.parametrize("read", KINDS["offset"].readers)
def test_limit(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = KINDS["offset"].sample
    monkeypatch.setattr(limits, "INDEX_BYTES_MAX", len(sample))
    assert len(read(sample)) == 2
    with pytest.raises(LimitExceededError):
        read(sample + bytes(8))
    with pytest.raises(LimitExceededError):
        write_offset_index([], preallocated_bytes=len(sample) + 8)


def test_indexes_are_values() -> None:
    sample = KINDS["offset"].sample
    index, reference = read_offset_index(sample), read_offset_index_reference(sample)
    assert (index, hash(index)) == (reference, hash(reference))
    assert index not in (read_offset_index(sample[:8]), read_offset_index(sample + bytes(8)), sample)
    assert repr(index) == "Index(offset index, 2 entries, preallocated_bytes=0)"
    with pytest.raises(ValueError, match="read-only"):
        index.columns["position"][0] = 1


def hostile(entry_bytes: int, likely: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, whole entries of any bytes, and entries that nearly are an index."""
    whole = st.binary(min_size=entry_bytes, max_size=entry_bytes)
    return st.binary(max_size=110) | st.lists(whole | st.sampled_from(likely), max_size=8).map(b"".join)


LIKELY = {
    "offset": [*(entries("offset", row) for row in ((0, 0), (1, 1), (2, 2), (3, 2))), b"\xff" * 8],
    "time": [entries("time", row) for row in ((0, 0), (1, 0), (1, 1), (2, 0))],
    "transaction": [entries("transaction", (0, 7, first, last, 0)) for first, last in ((0, 0), (0, 3), (2, 3), (4, 3), (4, 9))],
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_both_engines_agree_on_any_bytes(name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    given_bytes = data.draw(hostile(kind.entry_bytes, LIKELY[name]))
    outcomes = []
    for read in kind.readers:
        try:
            outcomes.append(read(given_bytes))
        except FormatError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], Index):
        zeros = {"preallocated_bytes": outcomes[0].preallocated_bytes} if name in PREALLOCATED else {}
        assert kind.write(outcomes[0], **zeros) == given_bytes
