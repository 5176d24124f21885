"""CRC-32C of magic 2 batches and snapshots, CRC-32 of the messages of magic 0 and 1.

Two implementations of each. A hardware-accelerated wheel (and zlib) does the work. crcmod shares no code with them, and the tests
compare with it.

Source: ``org.apache.kafka.common.utils.Crc32C``, ``java.util.zip.CRC32``.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

from crc32c import crc32c as _crc32c

__all__ = ["crc32", "crc32_reference", "crc32c", "crc32c_reference"]

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``. ``crc32c(b"123456789")`` is 0xE3069283."""
    return _crc32c(data, value)


def crc32(data: Buffer, value: int = 0) -> int:
    """CRC-32 (IEEE 802.3) of ``data``, continuing from ``value``. ``crc32(b"123456789")`` is 0xCBF43926."""
    return zlib.crc32(data, value)


@functools.cache
def _crcmod_function(polynomial: int) -> Callable[[Buffer, int], int]:
    # Imported on demand: only the reference engine needs it.
    import crcmod

    function: Callable[[Buffer, int], int] = crcmod.mkCrcFun(polynomial, initCrc=0, rev=True, xorOut=0xFFFFFFFF)
    return function


def crc32c_reference(data: Buffer, value: int = 0) -> int:
    """CRC-32C by crcmod. Slow: 400 MB/s with its C extension, 17 MB/s without."""
    return _crcmod_function(0x11EDC6F41)(data, value)


def crc32_reference(data: Buffer, value: int = 0) -> int:
    """CRC-32 by crcmod."""
    return _crcmod_function(0x104C11DB7)(data, value)
