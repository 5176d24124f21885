"""Both checksums, each by two implementations that share no code."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.checksum import crc32, crc32_reference, crc32c, crc32c_reference

Checksum = Callable[..., int]

PAIRS = pytest.mark.parametrize(
    ("fast", "reference"), [(crc32c, crc32c_reference), (crc32, crc32_reference)], ids=["crc32c", "crc32"]
)


@pytest.mark.parametrize(
    ("fast", "reference", "data", "value"),
    [
        (crc32c, crc32c_reference, b"", 0),
        (crc32c, crc32c_reference, b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (crc32c, crc32c_reference, bytes(32), 0x8A9136AA),
        (crc32c, crc32c_reference, bytes(reversed(range(32))), 0x113FDB5C),
        # The body of an empty snapshot, as Kafka writes it: 0001 48674bc7 00000000.
        (crc32c, crc32c_reference, bytes(4), 0x48674BC7),
        (crc32, crc32_reference, b"", 0),
        (crc32, crc32_reference, b"123456789", 0xCBF43926),
        (crc32, crc32_reference, b"The quick brown fox jumps over the lazy dog", 0x414FA339),
    ],
)
def test_known_values(fast: Checksum, reference: Checksum, data: bytes, value: int) -> None:
    assert fast(data) == reference(data) == value


@PAIRS
@given(
    data=st.binary(max_size=2000),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
    kind=st.sampled_from((bytes, bytearray, memoryview)),
)
def test_both_implementations_agree_and_a_value_continues(
    fast: Checksum, reference: Checksum, data: bytes, cuts: list[int], kind: Callable[[bytes], object]
) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for checksum in (fast, reference):
        value = 0
        for low, high in pairwise(edges):
            value = checksum(kind(data[low:high]), value)
        assert value == fast(data) == reference(data)
