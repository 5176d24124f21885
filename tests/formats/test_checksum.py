"""Both checksums, each by two implementations that share no code."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.checksum import crc32, crc32_reference, crc32c, crc32c_reference

Checksum = Callable[..., int]

CASTAGNOLI = pytest.mark.parametrize("checksum", [crc32c, crc32c_reference])
IEEE = pytest.mark.parametrize("checksum", [crc32, crc32_reference])
PAIRS = pytest.mark.parametrize(
    ("fast", "reference"), [(crc32c, crc32c_reference), (crc32, crc32_reference)], ids=["crc32c", "crc32"]
)


@CASTAGNOLI
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        # The body of an empty snapshot, as Kafka writes it: 0001 48674bc7 00000000.
        (bytes(4), 0x48674BC7),
    ],
    ids=["empty", "check", "zeros", "ones", "ascending", "descending", "empty-snapshot"],
)
def test_known_values_of_crc32c(checksum: Checksum, data: bytes, value: int) -> None:
    assert checksum(data) == value


@IEEE
@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0), (b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43), (b"The quick brown fox jumps over the lazy dog", 0x414FA339)],
)
def test_known_values_of_crc32(checksum: Checksum, data: bytes, value: int) -> None:
    assert checksum(data) == value


@PAIRS
@given(data=st.binary(max_size=2000))
def test_both_implementations_agree(fast: Checksum, reference: Checksum, data: bytes) -> None:
    assert fast(data) == reference(data)


@PAIRS
@given(
    data=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=4),
    kind=st.sampled_from((bytes, bytearray, memoryview)),
)
def test_a_value_continues(
    fast: Checksum, reference: Checksum, data: bytes, cuts: list[int], kind: Callable[[bytes], object]
) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for checksum in (fast, reference):
        value = 0
        for low, high in pairwise(edges):
            value = checksum(kind(data[low:high]), value)
        assert value == fast(data)


@PAIRS
@settings(max_examples=20)
@given(data=st.binary(min_size=1, max_size=200), bit=st.integers(0, 1599))
def test_one_flipped_bit_changes_it(fast: Checksum, reference: Checksum, data: bytes, bit: int) -> None:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    assert fast(changed) != fast(data)
    assert reference(changed) != reference(data)


def test_the_two_checksums_are_not_the_same() -> None:
    assert crc32(b"123456789") == zlib.crc32(b"123456789") != crc32c(b"123456789")
