"""One checksum over many batches, compared with one for each by crcmod."""

import numpy as np
import pytest
from header_engines import read_fast, segment
from hypothesis import given
from hypothesis import strategies as st
from strategies import GeneratedLog, batch_of, header_of, message_of

from formats.checksum import crc32c_reference
from formats.log import batch_headers


def log_of(sizes: list[int]) -> GeneratedLog:
    pool = bytes(range(256)) * 8
    return GeneratedLog(
        tuple(batch_of(header_of(row, producer_id=row), pool[row % 256 :][:size]) for row, size in enumerate(sizes))
    )


def bad_by_crcmod(data: bytes, log: GeneratedLog) -> list[int]:
    """Positions of the batches whose stored checksum is not that of crcmod."""
    ends = [*log.positions[1:], len(data)]
    return [
        start
        for start, end in zip(log.positions, ends, strict=True)
        if crc32c_reference(data[start + 21 : end]) != int.from_bytes(data[start + 17 : start + 21], "big")
    ]


UNTOUCHED = (8, 9, 10, 11, 16, 22)
"""Length, magic, and the attribute that makes a batch a marker: on those a reader ends before it looks at a checksum."""

LOG = log_of([0, 1, 2, 3, 4, 5, 7, 8, 300, 0, 64, 1000])


@given(changes=st.dictionaries(st.integers(0, len(LOG.data) - 1), st.integers(1, 255), max_size=6))
def test_any_changed_bytes(changes: dict[int, int]) -> None:
    data = bytearray(LOG.data)
    for at, change in changes.items():
        inside = at - max(position for position in LOG.positions if position <= at)
        if inside not in UNTOUCHED:
            data[at] ^= change
    expected = bad_by_crcmod(bytes(data), LOG)
    for block_bytes in (700, 1 << 20):
        assert read_fast(segment(bytes(data)), check_crc=True, block_bytes=block_bytes).bad_crc == expected


def test_right_checksums_take_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the fast way would be right only because the plain way always follows."""
    monkeypatch.setattr(batch_headers, "_bad_one_by_one", lambda *_: pytest.fail("one by one"))
    assert read_fast(segment(LOG.data), check_crc=True).bad_crc == []


def test_old_messages_are_checked_one_by_one() -> None:
    mixed = GeneratedLog((*log_of([5, 6]).batches, message_of(1, 9, b"old"), message_of(0, 10, b"older")))
    assert read_fast(segment(mixed.data), check_crc=True).bad_crc == []
    data = bytearray(mixed.data)
    data[-1] ^= 1
    assert read_fast(segment(bytes(data)), check_crc=True).bad_crc == [mixed.positions[-1]]


def test_the_headers_are_those_of_the_file_after_the_check() -> None:
    """The check changes the bytes of the block."""
    data = bytearray(LOG.data)
    data[LOG.positions[3] + 30] ^= 1
    for changed in (LOG.data, bytes(data)):
        plain, checked = read_fast(segment(changed)), read_fast(segment(changed), check_crc=True)
        assert plain.headers == checked.headers
        assert np.array_equal(plain.positions, checked.positions)
