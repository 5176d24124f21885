"""Time indexes, through the grammar and through numpy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fixture_files import each_broker_file
from hypothesis import given
from hypothesis import strategies as st
from manifests import FIXTURES

from formats.errors import BadLengthError, BadValueError, FormatError, TruncatedError
from formats.partition.index_entries import Index
from formats.partition.time_index import (
    TimeIndexEntry,
    last_timestamp_hint,
    read_time_index,
    read_time_index_reference,
    write_time_index,
)

Read = Callable[..., Index[TimeIndexEntry]]
ENGINES = pytest.mark.parametrize("read", [read_time_index, read_time_index_reference], ids=["fast", "reference"])
each_file = each_broker_file("*.timeindex", "*.timeindex.deleted")


@ENGINES
@each_file
def test_files_of_brokers_round_trip(path: Path, read: Read) -> None:
    data = path.read_bytes()
    index = read(data, file=path.name)
    assert len(index) * 12 + index.preallocated_bytes == len(data)
    assert write_time_index(index, preallocated_bytes=index.preallocated_bytes) == data


def _batches(log: bytes) -> list[tuple[int, int, int]]:
    """First offset, last offset and greatest timestamp of each batch; read without the package's own grammar."""
    batches, position = [], 0
    while position + 17 <= len(log):
        offset, length, _, magic = struct.unpack_from(">qiib", log, position)
        if length <= 0 or position + 12 + length > len(log):
            break
        if magic == 2:
            delta, _, timestamp = struct.unpack_from(">iqq", log, position + 23)
            batches.append((offset, offset + delta, timestamp))
        elif magic == 1:
            batches.append((offset, offset, struct.unpack_from(">q", log, position + 18)[0]))
        position += 12 + length
    return batches


@each_file
def test_entries_agree_with_the_batches_of_the_log(path: Path) -> None:
    base_offset = int(path.name[:20])
    batches = _batches(path.with_name(path.name.replace(".timeindex", ".log")).read_bytes())
    for entry in read_time_index(path.read_bytes()):
        offset = base_offset + entry.relative_offset
        assert [timestamp for first, last, timestamp in batches if first <= offset <= last] == [entry.timestamp]
        assert all(timestamp <= entry.timestamp for _, last, timestamp in batches if last < offset)


def test_the_fixtures_hold_preallocated_indexes() -> None:
    # 10 MiB rounded down to whole entries.
    path = FIXTURES / "damaged/logs/torn-tail-0/00000000000000002136.timeindex"
    index = read_time_index(path.read_bytes())
    assert len(index) > 0
    assert index.preallocated_bytes == 10485756 - 12 * len(index)


TWO = bytes.fromhex("000001a1fde20529 00000045  000001a1fde274c8 0000007e")


@ENGINES
def test_hand_computed_bytes(read: Read) -> None:
    index = read(TWO)
    assert list(index) == [TimeIndexEntry(0x01A1_FDE2_0529, 69), TimeIndexEntry(0x01A1_FDE2_74C8, 126)]
    assert index.column("relative_offset").tolist() == [69, 126]
    assert write_time_index(index) == TWO
    assert write_time_index(index, preallocated_bytes=24) == TWO + bytes(24)


@ENGINES
@pytest.mark.parametrize("preallocated", [0, 12, 65532, 65544, 300_000])
def test_zeros_behind_the_entries_are_no_entries(read: Read, preallocated: int) -> None:
    for entries in (b"", TWO, bytes.fromhex("0000000000000000 00000001"), bytes.fromhex("0100000000000000 00000000")):
        index = read(memoryview(entries + bytes(preallocated)))
        assert len(index) == len(entries) // 12
        assert index.preallocated_bytes == preallocated
        assert write_time_index(index, preallocated_bytes=preallocated) == entries + bytes(preallocated)


@ENGINES
def test_equal_neighbours_go_not_backwards(read: Read) -> None:
    data = bytes.fromhex("0000000000000005 00000001 0000000000000005 00000001")
    assert list(read(data)) == [TimeIndexEntry(5, 1), TimeIndexEntry(5, 1)]


@ENGINES
@pytest.mark.parametrize(
    ("data", "error", "position"),
    [
        ("0000000000000005 00000001 00", TruncatedError, 12),
        ("0000000000000005 000000", TruncatedError, 0),
        ("0000000000000005 00000001 0000000000000004 00000002", BadValueError, 12),
        ("0000000000000005 00000002 0000000000000006 00000001", BadValueError, 12),
        ("0000000000000005 00000001 0000000000000000 00000000 0000000000000006 00000002", BadValueError, 12),
        ("ffffffffffffffff 00000001", BadValueError, 0),
        ("0000000000000005 ffffffff", BadValueError, 0),
    ],
)
def test_faults(read: Read, data: str, error: type[FormatError], position: int) -> None:
    with pytest.raises(error) as caught:
        read(bytes.fromhex(data), file="00.timeindex")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.position) == ("00.timeindex", position)


@pytest.mark.parametrize(
    "entries",
    [
        [TimeIndexEntry(-1, 0)],
        [TimeIndexEntry(2**63, 0)],
        [TimeIndexEntry(1, 2**31)],
        [TimeIndexEntry(2, 0), TimeIndexEntry(1, 1)],
        [TimeIndexEntry(1, 1), TimeIndexEntry(2, 0)],
    ],
)
def test_entries_that_could_not_be_read_back(entries: list[TimeIndexEntry]) -> None:
    with pytest.raises(BadValueError):
        write_time_index(entries)


def test_the_preallocated_tail_is_whole_entries() -> None:
    with pytest.raises(BadLengthError):
        write_time_index([], preallocated_bytes=8)


HOSTILE = (
    st.binary(max_size=80)
    | st.lists(st.binary(min_size=12, max_size=12), max_size=6).map(b"".join)
    | st.lists(
        st.sampled_from([bytes(12), bytes(7) + b"\1" + bytes(4), bytes(7) + b"\1" + bytes(3) + b"\1", bytes(7) + b"\2" + bytes(4)]),
        max_size=6,
    ).map(b"".join)
)


@given(HOSTILE)
def test_both_engines_agree_on_any_bytes(data: bytes) -> None:
    outcomes = []
    for read in (read_time_index, read_time_index_reference):
        try:
            outcomes.append(read(data))
        except FormatError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], Index):
        assert write_time_index(outcomes[0], preallocated_bytes=outcomes[0].preallocated_bytes) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", None),
        ("00" * 24, None),
        ("0000000000000005 00000001", 5),
        ("0000000000000005 00000001 0000000000000007 00000002", 7),
        ("0000000000000005 00000001 0000000000000007 00000002" + "00" * 36, 7),
        ("0000000000000005 00000001 0000000000000007 00000002 0000", 7),
        ("0000000000000005 00000001 0000000000000004 00000002 0000000000000009 00000003", 5),
        ("0000000000000005 00000002 0000000000000007 00000001", 5),
        ("ffffffffffffffff 00000001 0000000000000007 00000002", None),
        ("0000000000000005 ffffffff", None),
        ("000000000000", None),
    ],
)
def test_last_timestamp_hint(data: str, expected: int | None) -> None:
    assert last_timestamp_hint(bytes.fromhex(data)) == expected


@given(HOSTILE)
def test_last_timestamp_hint_never_raises(data: bytes) -> None:
    hint = last_timestamp_hint(memoryview(data))
    assert hint is None or 0 <= hint < 2**63


@each_file
def test_the_hint_of_a_sound_index_is_its_last_timestamp(path: Path) -> None:
    data = path.read_bytes()
    entries = list(read_time_index_reference(data))
    assert last_timestamp_hint(data) == (entries[-1].timestamp if entries else None)
