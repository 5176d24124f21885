"""A wrong checksum is shown with both values, wherever it is found: when a read fails, and when damage is passed."""

import crcmod.predefined
import pytest
from log_dirs import batch

from formats.errors import TruncatedError
from formats.log.batch_headers import BytesSegment
from formats.log.record_groups import bad_checksum

CRC32C = crcmod.predefined.mkCrcFun("crc-32c")


def test_both_values() -> None:
    first = len(batch(0))
    data = bytearray(batch(0) + batch(1))
    data[-1] ^= 1
    error = bad_checksum(BytesSegment(bytes(data)), first)
    assert (error.position, error.expected) == (first, f"{CRC32C(bytes(data[first + 21 :])):#010x}")
    assert error.found == f"{int.from_bytes(data[first + 17 : first + 21]):#010x}"


def test_a_segment_that_became_shorter() -> None:
    with pytest.raises(TruncatedError, match="expected 17 bytes, found 4 bytes"):
        bad_checksum(BytesSegment(batch(0)[:4]), 0)
