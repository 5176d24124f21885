"""Transaction indexes, through the grammar and through numpy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fixture_files import broker_files, each_broker_file
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadValueError, BadVersionError, FormatError, TruncatedError
from formats.partition.index_entries import Index
from formats.partition.transaction_index import (
    AbortedTransaction,
    read_transaction_index,
    read_transaction_index_reference,
    write_transaction_index,
)

Read = Callable[..., Index[AbortedTransaction]]
ENGINES = pytest.mark.parametrize("read", [read_transaction_index, read_transaction_index_reference], ids=["fast", "reference"])
each_file = each_broker_file("*.txnindex")


@ENGINES
@each_file
def test_files_of_brokers_round_trip(path: Path, read: Read) -> None:
    data = path.read_bytes()
    index = read(data, file=path.name)
    assert len(index) * 34 == len(data)
    assert write_transaction_index(index) == data


def test_the_fixtures_hold_aborted_transactions() -> None:
    assert any(path.stat().st_size > 34 for path in broker_files("*.txnindex"))


@each_file
def test_entries_name_abort_markers_of_the_log(path: Path) -> None:
    log = path.with_name(path.name.replace(".txnindex", ".log")).read_bytes()
    markers, position = {}, 0
    while position + 61 <= len(log):
        offset, length = struct.unpack_from(">qi", log, position)
        attributes = struct.unpack_from(">h", log, position + 21)[0]
        if attributes & 0x20:
            markers[offset] = struct.unpack_from(">q", log, position + 43)[0]
        position += 12 + length
    for entry in read_transaction_index(path.read_bytes()):
        assert markers[entry.last_offset] == entry.producer_id


ONE = "0000 00000000000003f5 000000000000041a 0000000000000486 0000000000000415"
TWO = "0000 00000000000003f4 0000000000000423 0000000000000534 0000000000000415"


@ENGINES
def test_hand_computed_bytes(read: Read) -> None:
    data = bytes.fromhex(ONE + TWO)
    index = read(memoryview(data))
    assert list(index) == [AbortedTransaction(0, 1013, 1050, 1158, 1045), AbortedTransaction(0, 1012, 1059, 1332, 1045)]
    assert index.column("last_stable_offset").tolist() == [1045, 1045]
    assert index.preallocated_bytes == 0
    assert write_transaction_index(index) == data


@ENGINES
def test_an_empty_file_has_no_transactions(read: Read) -> None:
    assert list(read(b"")) == []
    assert write_transaction_index([]) == b""


@ENGINES
@pytest.mark.parametrize(
    ("data", "error", "position"),
    [
        (ONE + "00", TruncatedError, 34),
        (ONE[:-2], TruncatedError, 0),
        (TWO + ONE, BadValueError, 34),
        (ONE + ONE, BadValueError, 34),
        (ONE + "0001" + TWO[4:], BadVersionError, 34),
        ("ffff" + ONE[4:], BadVersionError, 0),
        ("0000 00000000000003f5 0000000000000487 0000000000000486 0000000000000415", BadValueError, 0),
        ("0000 00000000000003f5 ffffffffffffffff 0000000000000486 0000000000000415", BadValueError, 0),
        # The file is never allocated ahead: zeros behind the entries are damage.
        (ONE + "00" * 34, BadValueError, 34),
    ],
)
def test_faults(read: Read, data: str, error: type[FormatError], position: int) -> None:
    with pytest.raises(error) as caught:
        read(bytes.fromhex(data), file="00.txnindex")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.position) == ("00.txnindex", position)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (AbortedTransaction(1, 1, 0, 1, 0), BadVersionError),
        (AbortedTransaction(0, 2**63, 0, 1, 0), BadValueError),
        (AbortedTransaction(0, 1, 5, 4, 0), BadValueError),
        (AbortedTransaction(0, 1, 0, 2**63, 0), BadValueError),
    ],
)
def test_entries_that_could_not_be_read_back(entry: AbortedTransaction, error: type[FormatError]) -> None:
    with pytest.raises(error):
        write_transaction_index([entry])


ENTRIES = st.builds(
    lambda producer_id, length, last, stable: struct.pack(">hqqqq", 0, producer_id, last - length, last, stable),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 3),
    st.integers(0, 10),
    st.integers(-(2**63), 2**63 - 1),
)
HOSTILE = st.binary(max_size=110) | st.lists(st.binary(min_size=34, max_size=34) | ENTRIES, max_size=4).map(b"".join)


@given(HOSTILE)
def test_both_engines_agree_on_any_bytes(data: bytes) -> None:
    outcomes = []
    for read in (read_transaction_index, read_transaction_index_reference):
        try:
            outcomes.append(read(data))
        except FormatError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], Index):
        assert write_transaction_index(outcomes[0]) == data
