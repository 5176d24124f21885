"""Where to begin reading a segment, by an offset index that may be anything. The entries themselves: ``test_indexes``."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fixture_files import each_broker_file
from hypothesis import given
from hypothesis import strategies as st
from test_indexes import LIKELY, hostile

from formats import limits
from formats.partition.offset_index import positions_hint, read_offset_index, split_positions


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


@given(hostile(8, LIKELY["offset"]), st.integers(-10, 2**40))
def test_positions_hint_never_raises(data: bytes, segment_bytes: int) -> None:
    positions = positions_hint(memoryview(data), segment_bytes).tolist()
    assert all(0 < position < segment_bytes for position in positions)
    assert all(before < after for before, after in itertools.pairwise(positions))


@each_broker_file("*.index", "*.index.deleted")
def test_the_hint_of_a_sound_index_is_all_its_positions(path: Path) -> None:
    data = path.read_bytes()
    assert positions_hint(data, 2**31).tolist() == [entry.position for entry in read_offset_index(data)]


@pytest.mark.parametrize(
    ("hint", "size_bytes", "target_bytes", "expected"),
    [
        # A position at or after each third; at or after each half.
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
