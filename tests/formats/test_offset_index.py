"""Offset indexes, through the grammar and through numpy."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from fixture_files import broker_files, each_broker_file
from hypothesis import given
from hypothesis import strategies as st
from manifests import FIXTURES

from formats import limits
from formats.errors import BadLengthError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.partition.index_entries import Index, used_bytes
from formats.partition.offset_index import (
    OffsetIndexEntry,
    positions_hint,
    read_offset_index,
    read_offset_index_reference,
    split_positions,
    write_offset_index,
)

Read = Callable[..., Index[OffsetIndexEntry]]
ENGINES = pytest.mark.parametrize("read", [read_offset_index, read_offset_index_reference], ids=["fast", "reference"])
each_file = each_broker_file("*.index", "*.index.deleted")


@ENGINES
@each_file
def test_files_of_brokers_round_trip(path: Path, read: Read) -> None:
    data = path.read_bytes()
    index = read(data, file=path.name)
    assert len(index) * 8 + index.preallocated_bytes == len(data)
    assert write_offset_index(index, preallocated_bytes=index.preallocated_bytes) == data


def _batches(log: bytes) -> dict[int, int]:
    """Last offset of each batch by its position; read without the package's own grammar."""
    batches, position = {}, 0
    while position + 17 <= len(log):
        offset, length, _, magic = struct.unpack_from(">qiib", log, position)
        if length <= 0 or position + 12 + length > len(log):
            break
        batches[position] = offset + (struct.unpack_from(">i", log, position + 23)[0] if magic == 2 else 0)
        position += 12 + length
    return batches


@each_file
def test_entries_point_at_batches_of_the_log(path: Path) -> None:
    base_offset = int(path.name[:20])
    batches = _batches(path.with_name(path.name.replace(".index", ".log")).read_bytes())
    index = read_offset_index(path.read_bytes())
    for entry in index:
        # Several batches appended at once get one entry: the position of the first and the offset of the last.
        appended = [last_offset for position, last_offset in batches.items() if position >= entry.position]
        assert entry.position in batches
        assert base_offset + entry.relative_offset in appended


def test_the_fixtures_hold_preallocated_indexes() -> None:
    sizes = {path.stat().st_size for path in broker_files("*.index")}
    assert 10485760 in sizes
    index = read_offset_index((FIXTURES / "damaged/logs/torn-tail-0/00000000000000002136.index").read_bytes())
    assert next(iter(index)) == OffsetIndexEntry(0x0A, 0x0563)
    assert index.preallocated_bytes == 10485760 - 8 * len(index)


THREE = bytes.fromhex("00000005 00000100  00000009 00001000  7fffffff 7fffffff")


@ENGINES
def test_hand_computed_bytes(read: Read) -> None:
    index = read(THREE)
    assert list(index) == [OffsetIndexEntry(5, 256), OffsetIndexEntry(9, 4096), OffsetIndexEntry(2**31 - 1, 2**31 - 1)]
    assert index.column("relative_offset").tolist() == [5, 9, 2**31 - 1]
    assert index.column("position").dtype == np.int64
    assert index.preallocated_bytes == 0
    assert write_offset_index(index) == THREE


@ENGINES
@pytest.mark.parametrize("preallocated", [0, 8, 4096, 65536 - 24, 65536, 65536 + 8, 200_000])
def test_zeros_behind_the_entries_are_no_entries(read: Read, preallocated: int) -> None:
    for entries in (b"", THREE, bytes.fromhex("00000001 00000100"), bytes.fromhex("00000000 01000000")):
        index = read(memoryview(entries + bytes(preallocated)))
        assert len(index) == len(entries) // 8
        assert index.preallocated_bytes == preallocated
        assert write_offset_index(index, preallocated_bytes=preallocated) == entries + bytes(preallocated)


@ENGINES
@pytest.mark.parametrize(
    ("data", "error", "position"),
    [
        ("00000005 00000100 00", TruncatedError, 8),
        ("00000005 000001", TruncatedError, 0),
        ("00000005 00000100 00000005 00000200", BadValueError, 8),
        ("00000005 00000100 00000006 00000100", BadValueError, 8),
        ("00000005 00000100 00000006 00000200 00000004 00000300 00000003 00000100", BadValueError, 16),
        ("00000005 00000100 00000000 00000000 00000006 00000200", BadValueError, 8),
        ("ffffffff 00000100", BadValueError, 0),
        ("00000005 ffffffff", BadValueError, 0),
        ("00000005 00000100 80000000 00000200", BadValueError, 8),
    ],
)
def test_faults(read: Read, data: str, error: type[FormatError], position: int) -> None:
    with pytest.raises(error) as caught:
        read(bytes.fromhex(data), file="00.index")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.position, caught.value.unit) == ("00.index", position, "byte")
    assert caught.value.expected is not None
    assert caught.value.found is not None


def test_a_fault_says_what_it_found() -> None:
    with pytest.raises(BadValueError, match=r"00\.index, byte 8: offset index position: expected more than 256, found 255"):
        read_offset_index(bytes.fromhex("00000005 00000100 00000006 000000ff"), file="00.index")


@ENGINES
def test_limit(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_BYTES_MAX", 24)
    assert len(read(THREE)) == 3
    with pytest.raises(LimitExceededError):
        read(THREE + bytes(8))
    with pytest.raises(LimitExceededError):
        write_offset_index([], preallocated_bytes=32)


@pytest.mark.parametrize(
    "entries",
    [
        [OffsetIndexEntry(-1, 1)],
        [OffsetIndexEntry(2**31, 1)],
        [OffsetIndexEntry(1, 2**31)],
        [OffsetIndexEntry(1, 1), OffsetIndexEntry(1, 2)],
        [OffsetIndexEntry(1, 1), OffsetIndexEntry(2, 1)],
    ],
)
def test_entries_that_could_not_be_read_back(entries: list[OffsetIndexEntry]) -> None:
    with pytest.raises(BadValueError):
        write_offset_index(entries)


@pytest.mark.parametrize("preallocated", [-8, 7])
def test_the_preallocated_tail_is_whole_entries(preallocated: int) -> None:
    with pytest.raises(BadLengthError):
        write_offset_index([], preallocated_bytes=preallocated)


def test_indexes_are_values() -> None:
    index = read_offset_index(THREE)
    assert index == read_offset_index_reference(THREE)
    assert hash(index) == hash(read_offset_index_reference(THREE))
    assert index != read_offset_index(THREE[:16])
    assert index != read_offset_index(THREE + bytes(8))
    assert index != THREE
    assert repr(index) == "Index(offset index, 3 entries, preallocated_bytes=0)"
    with pytest.raises(ValueError, match="read-only"):
        index.columns["position"][0] = 1


RISING = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5000)), max_size=40).map(
    lambda steps: [
        OffsetIndexEntry(sum(step[0] for step in steps[: at + 1]), sum(step[1] for step in steps[: at + 1]))
        for at in range(len(steps))
    ]
)
HOSTILE = (
    st.binary(max_size=80)
    | st.lists(st.binary(min_size=8, max_size=8), max_size=8).map(b"".join)
    | st.lists(
        st.sampled_from([b"\0" * 8, b"\0\0\0\1\0\0\0\1", b"\0\0\0\2\0\0\0\2", b"\0\0\0\3\0\0\0\2", b"\xff" * 8]), max_size=6
    ).map(b"".join)
)


@given(RISING, st.integers(0, 20))
def test_entries_round_trip(entries: list[OffsetIndexEntry], zeros: int) -> None:
    data = write_offset_index(entries, preallocated_bytes=8 * zeros)
    for read in (read_offset_index, read_offset_index_reference):
        index = read(data)
        assert list(index) == entries
        assert index.preallocated_bytes == 8 * zeros


@given(HOSTILE)
def test_both_engines_agree_on_any_bytes(data: bytes) -> None:
    outcomes = []
    for read in (read_offset_index, read_offset_index_reference):
        try:
            outcomes.append(read(data))
        except FormatError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], Index):
        assert write_offset_index(outcomes[0], preallocated_bytes=outcomes[0].preallocated_bytes) == data


@pytest.mark.parametrize(
    ("data", "segment_bytes", "expected"),
    [
        ("", 100, []),
        ("00000005 00000010 00000006 00000020", 100, [16, 32]),
        ("00000005 00000010 00000006 00000020 0000", 100, [16, 32]),
        ("00000005 00000010 00000006 00000020", 32, [16]),
        ("00000005 00000010 00000006 00000020", 0, []),
        ("00000005 00000010 00000006 00000020", -1, []),
        # Offsets do not matter to a hint; positions that fall back, are negative, zero or too large are left out.
        (
            "00000005 00000010 00000005 00000020 00000004 00000018 00000000 00000000 ffffffff ffffffff 00000007 00000030",
            100,
            [16, 32, 48],
        ),
        ("00000005 7fffffff 00000006 00000020", 100, [32]),
        ("00000005 00000010 00000000 00000000 00000000 00000000", 100, [16]),
    ],
)
def test_positions_hint(data: str, segment_bytes: int, expected: list[int]) -> None:
    hint = positions_hint(bytes.fromhex(data), segment_bytes)
    assert hint.dtype == np.dtype("int64")
    assert hint.tolist() == expected


@given(HOSTILE, st.integers(-10, 2**40))
def test_positions_hint_never_raises(data: bytes, segment_bytes: int) -> None:
    positions = positions_hint(memoryview(data), segment_bytes).tolist()
    assert all(0 < position < segment_bytes for position in positions)
    assert all(before < after for before, after in itertools.pairwise(positions))


@each_file
def test_the_hint_of_a_sound_index_is_all_its_positions(path: Path) -> None:
    data = path.read_bytes()
    assert positions_hint(data, 2**31).tolist() == [entry.position for entry in read_offset_index(data)]


@pytest.mark.parametrize(
    ("hint", "size_bytes", "target_bytes", "expected"),
    [
        # A position at or behind each third; at or behind each half.
        (range(10, 90, 10), 90, 30, (30, 60)),
        (range(7, 90, 7), 90, 45, (49,)),
        # 91 bytes are more than three targets: four ranges, at 22, 44 and 66.
        (range(10, 90, 10), 91, 30, (30, 50, 70)),
        # One entry, or entries at the beginning only.
        ([40], 90, 30, (40,)),
        ([1, 2], 90, 30, (2,)),
        # Small enough, nothing, no index.
        (range(10, 90, 10), 90, 90, ()),
        ([], 90, 30, ()),
        (None, 90, 30, ()),
        ([], 0, 30, ()),
        # Of another file.
        ([100, 200], 90, 30, ()),
        ([-5, 0, 95], 90, 30, ()),
        ([95, -5, 50, 50], 90, 30, (50,)),
    ],
)
def test_split_positions(hint: Sequence[int] | None, size_bytes: int, target_bytes: int, expected: tuple[int, ...]) -> None:
    positions = None if hint is None else np.asarray(hint, dtype=np.int64)
    assert split_positions(positions, size_bytes, target_bytes) == expected


def test_a_segment_is_split_into_a_bounded_number_of_ranges() -> None:
    size_bytes = 2**31 - 1
    hint = np.arange(4096, size_bytes, 4096)
    positions = (0, *split_positions(hint, size_bytes, 1), size_bytes)
    assert len(positions) == limits.RANGES_MAX + 1
    positions = (0, *split_positions(hint, size_bytes, 64 << 20), size_bytes)
    assert len(positions) == 33
    assert max(after - before for before, after in itertools.pairwise(positions)) <= (64 << 20) + 4096


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_split_positions_are_of_the_hint_and_ascend(hint: list[int], size_bytes: int, target_bytes: int) -> None:
    for positions in (hint, sorted(set(hint))):
        found = split_positions(np.asarray(positions, dtype=np.int64), size_bytes, target_bytes)
        assert all(before < after for before, after in itertools.pairwise((0, *found, size_bytes))) or not found
        assert set(found) <= set(hint)


@pytest.mark.parametrize("entry_bytes", [8, 12])
@pytest.mark.parametrize("zeros", [0, 24, 65_520, 65_544, 3 * 65_536, 3 * 65_536 + 24, 6 * 65_536])
def test_used_bytes(entry_bytes: int, zeros: int) -> None:
    assert used_bytes(bytes(zeros), entry_bytes) == 0
    for at in range(entry_bytes):
        # One byte of the last entry is not zero, whichever it is.
        entry = bytes(at) + b"\1" + bytes(entry_bytes - at - 1)
        for used in (entry, bytes(entry_bytes) + entry, b"\xff" * 70 * entry_bytes + entry):
            assert used_bytes(used + bytes(zeros), entry_bytes) == len(used)
