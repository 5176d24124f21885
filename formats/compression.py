"""Decompression of the records of one batch of magic 2, into a buffer of fixed size.

Only control batches come here: brokers never compress one, yet their readers accept it, and so does this library. The payload of data is
never decompressed.

Source: ``CompressionType``; for snappy the stream format of snappy-java (a header of 16 bytes, then blocks with an int32 length each).
"""

from __future__ import annotations

from formats.errors import BadLengthError, BadValueError, BadVersionError, LimitExceededError, TruncatedError

__all__ = ["CODECS", "decompress"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in the attributes of a batch."""

SNAPPY_STREAM_MAGIC = b"\x82SNAPPY\0"
SNAPPY_STREAM_HEADER_BYTES = 16


def decompress(codec: int, data: bytes, *, bytes_max: int, position: int = 0) -> bytes:
    """The records of a batch.

    Args:
        codec: 0 to 4.
        data: what follows the header of the batch.
        bytes_max: room for the result; nothing larger is ever allocated.
        position: of ``data`` in its file, for messages.

    Raises:
        BadValueError: an unknown codec.
        LimitExceededError: the result is larger than ``bytes_max``.
        FormatError: the data does not follow the format of its codec.
    """
    if codec == 0:
        return data
    if codec >= len(CODECS):
        raise BadValueError("codec of a batch", position=position, expected="0..4", found=codec)
    import cramjam  # imported on demand: no broker writes what needs it

    room = bytearray(bytes_max)
    try:
        if codec == CODECS.index("snappy"):
            count = _snappy(data, room, position)
        else:
            count = getattr(cramjam, CODECS[codec]).decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if "write whole buffer" in str(error) or "smaller than required" in str(error):
            raise LimitExceededError("records", position=position, expected=f"at most {bytes_max} bytes", found="more") from None
        raise BadValueError(f"{CODECS[codec]} data", position=position, found=str(error)) from None
    return bytes(room[:count])


def _snappy(data: bytes, room: bytearray, position: int) -> int:
    import cramjam

    if not data.startswith(SNAPPY_STREAM_MAGIC):
        return int(cramjam.snappy.decompress_raw_into(data, room))
    version = int.from_bytes(data[8:12], "big", signed=True)
    if version < 1:  # SnappyInputStream: MINIMUM_COMPATIBLE_VERSION
        raise BadVersionError("version of a snappy stream", position=position + 8, expected="1 or more", found=version)
    at, count = SNAPPY_STREAM_HEADER_BYTES, 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        block = data[at + 4 : at + 4 + max(length, 0)]
        if length <= 0:
            raise BadLengthError("length of a snappy block", position=position + at, expected="1 or more", found=length)
        if len(block) != length:
            raise TruncatedError("snappy block", position=position + at, expected=f"{length} bytes", found=f"{len(block)} bytes")
        piece = bytearray(len(room) - count)
        size = int(cramjam.snappy.decompress_raw_into(block, piece))
        room[count : count + size] = piece[:size]
        count += size
        at += 4 + length
    return count
