"""CRC-32C of magic 2 batches and snapshots, CRC-32 of the messages of magic 0 and 1.

Two implementations of each. A hardware-accelerated wheel (and zlib) does the work. crcmod shares no code with them, and the tests
compare with it.

Source: ``org.apache.kafka.common.utils.Crc32C``, ``java.util.zip.CRC32``.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["crc32", "crc32_reference", "crc32c", "crc32c_reference"]

Buffer = bytes | bytearray | memoryview


def _loaded_crc32c() -> Callable[[Buffer, int], int]:
    """The function of the package ``crc32c``. The package itself reads its own metadata, a tenth of the start of a command."""
    package = find_spec("crc32c")
    extension = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Callable[[Buffer, int], int] = module.crc32c
    return function


_crc32c = _loaded_crc32c()


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
