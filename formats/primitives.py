"""Big-endian integers and Kafka's variable-length ones, as construct grammars.

Source: ``org.apache.kafka.common.utils.ByteUtils`` (varint, varlong, unsigned varint) and the message protocol guide (compact
strings and arrays, tagged fields, uuid).
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import IO, Any, TypeVar

from construct import (
    Construct,
    ConstructError,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    StreamError,
)

from formats import limits
from formats.errors import BadLengthError, BadValueError, FormatError, TruncatedError

__all__ = [
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT16",
    "UINT32",
    "UNSIGNED_VARINT",
    "VARINT",
    "VARLONG",
    "parse_whole",
    "read_unsigned_varint",
]

T = TypeVar("T")

INT8 = Int8sb
INT16 = Int16sb
INT32 = Int32sb
INT64 = Int64sb
UINT16 = Int16ub
UINT32 = Int32ub


def _read_base128(stream: IO[bytes], bytes_max: int, path: str) -> int:
    """Little-endian groups of seven bits, high bit set on all but the last. ``bytes_max`` bounds the loop."""
    value = 0
    for index in range(bytes_max):
        byte = stream.read(1)
        if not byte:
            raise StreamError("varint ends early", path=path)
        value |= (byte[0] & 0x7F) << (7 * index)
        if byte[0] < 0x80:
            return value
    raise BadLengthError("varint", expected=f"at most {bytes_max} bytes", found="more")


def _write_base128(value: int, stream: IO[bytes]) -> None:
    while value >= 0x80:
        stream.write(bytes((value & 0x7F | 0x80,)))
        value >>= 7
    stream.write(bytes((value,)))


class _Base128(Construct):  # type: ignore[misc]
    """A varint of ``bits`` bits, zigzag coded when signed. Bits above the width are dropped, as Java's shifts do."""

    def __init__(self, bits: int, *, signed: bool) -> None:
        super().__init__()
        self._bits = bits
        self._signed = signed
        self._bytes_max = limits.VARINT_BYTES_MAX if bits == 32 else limits.VARLONG_BYTES_MAX

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        raw = _read_base128(stream, self._bytes_max, path) & ((1 << self._bits) - 1)
        return (raw >> 1) ^ -(raw & 1) if self._signed else raw

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        low, high = (-(1 << self._bits - 1), 1 << self._bits - 1) if self._signed else (0, 1 << self._bits)
        if not low <= obj < high:
            raise BadValueError("varint", expected=f"{low}..{high - 1}", found=obj)
        raw = (obj << 1) ^ (obj >> self._bits - 1) if self._signed else obj
        _write_base128(raw & ((1 << self._bits) - 1), stream)
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        from construct import SizeofError

        raise SizeofError("a varint has no fixed size", path=path)


VARINT = _Base128(32, signed=True)
VARLONG = _Base128(64, signed=True)
UNSIGNED_VARINT = _Base128(32, signed=False)


def parse_whole(grammar: Construct, data: bytes | memoryview, what: str, make: Callable[[Any], T], *, position: int = 0) -> T:
    """Parses ``data`` with ``grammar`` and turns the container into a value.

    Args:
        grammar: the construct grammar.
        data: the bytes.
        what: name of the structure for the message.
        make: builds the frozen value from construct's container.
        position: where ``data`` begins in its file, in bytes.

    Raises:
        FormatError: nothing else escapes, whatever the bytes are.
    """
    try:
        return make(grammar.parse(bytes(data)))
    except FormatError as error:
        raise error.shifted_by(position) from None
    except StreamError:
        raise TruncatedError(what, position=position, expected="more bytes", found=f"{len(data)} bytes") from None
    except (ConstructError, ValueError, OverflowError) as error:
        raise BadValueError(what, position=position, found=str(error).splitlines()[-1]) from None


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint, and the position after it.

    Args:
        data: the bytes that contain it.
        position: in bytes.

    Raises:
        TruncatedError: the data ends inside of it.
        BadLengthError: it has more than five bytes.
    """
    stream = BytesIO(data)
    stream.seek(position)
    try:
        return int(UNSIGNED_VARINT.parse_stream(stream)), stream.tell()
    except StreamError:
        raise TruncatedError("varint", position=position, expected="more bytes", found=len(data) - position) from None
