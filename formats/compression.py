"""Decompression of the records of one batch or wrapper message, into a buffer that grows up to a limit.

Replay decompresses control batches only: brokers never compress one, yet their readers accept it, and so does this library. Other
batches are decompressed only by commands that show their data.

Bytes after compressed data are ignored where Kafka's consumer ignores them. These are bytes after a gzip member that begin no other
one, all after the first frame of lz4, and up to three after the last block of snappy.

Source: ``CompressionType``; ``GZIPInputStream``; for snappy the stream format of snappy-java (a header of 16 bytes, then blocks with an
int32 length each); for lz4 ``Lz4BlockInputStream``.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator

from formats import limits
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError

__all__ = ["CODECS", "decompress", "decompress_from", "decompress_into"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in the attributes of a batch."""

SNAPPY_STREAM_MAGIC = b"\x82SNAPPY\0"
SNAPPY_STREAM_HEADER_BYTES = 16
SNAPPY_LENGTH_BYTES = 4
SNAPPY_NEXT_STREAM = SNAPPY_STREAM_MAGIC[:SNAPPY_LENGTH_BYTES]
"""In place of the length of a block: the header of another stream follows."""

ROOM_BYTES_LEAST = 1 << 16
ROOM_GROWTH = 4
"""The buffer begins with 64 KiB or four times the data, and grows by a factor of four: the size of the result is not known."""

WRITTEN_AT_ONCE_BYTES = 1 << 16
"""Bytes that a pipe of Linux holds before a write to it waits."""

MOST_OF_A_BYTE = {"snappy": 22, "lz4": 256, "zstd": 44_000}
"""Largest growth of one byte. A copy of snappy makes 64 bytes of 3. A length of lz4 grows by 255 a byte, and a block of zstd makes
128 KiB of 3. Data that declares more is damaged, and gets no buffer for it."""


def decompress(codec: int, data: bytes | bytearray, *, bytes_max: int, position: int = 0, magic: int = 2) -> bytes:
    """The records of a batch.

    Args:
        codec: 0 to 4.
        data: what follows the header of the batch, or the value of a wrapper message.
        bytes_max: largest size of the result; nothing larger is ever allocated.
        position: of ``data`` in its file, for messages.
        magic: of the batch; in magic 0 the header checksum of an lz4 frame is wrong in a known way (KAFKA-3160) and is not checked.

    Raises:
        BadValueError: an unknown codec.
        LimitExceededError: the result is larger than ``bytes_max``.
        FormatError: the data does not follow the format of its codec.
    """
    if codec == 0:
        return bytes(data)
    if codec >= len(CODECS):
        raise _unknown_codec(codec, position)
    if CODECS[codec] == "gzip":
        return _joined(_gzip_parts(data, position), bytes_max, position)
    import cramjam  # imported on demand: replay of what brokers write needs none of it

    if CODECS[codec] == "lz4":
        data = _first_frame(data, magic, position)
    most_bytes = min(bytes_max, ROOM_BYTES_LEAST + MOST_OF_A_BYTE[CODECS[codec]] * len(data))
    room_bytes = min(max(ROOM_BYTES_LEAST, ROOM_GROWTH * len(data)), most_bytes)
    while True:
        room = bytearray(room_bytes)
        try:
            if CODECS[codec] == "snappy":
                count = _snappy(data, memoryview(room), position)
            else:
                count = getattr(cramjam, CODECS[codec]).decompress_into(data, room)
            return bytes(memoryview(room)[:count])
        except cramjam.DecompressionError as error:
            if not any(sign in str(error) for sign in _NO_ROOM):
                raise BadValueError(f"{CODECS[codec]} data", position=position, found=str(error)) from None
        if room_bytes == most_bytes < bytes_max:
            raise BadValueError(f"{CODECS[codec]} data", position=position, expected=f"at most {most_bytes} bytes", found="more")
        if room_bytes == bytes_max:
            raise _too_large(bytes_max, position)
        room_bytes = min(room_bytes * ROOM_GROWTH, most_bytes)


def _joined(parts: Iterable[bytes], bytes_max: int, position: int) -> bytes:
    room = bytearray()
    for part in parts:
        if len(room) + len(part) > bytes_max:
            raise _too_large(bytes_max, position)
        room += part
    return bytes(room)


def _too_large(bytes_max: int, position: int) -> LimitExceededError:
    return LimitExceededError("records", position=position, expected=f"at most {bytes_max} bytes", found="more")


def _unknown_codec(codec: int, position: int) -> BadValueError:
    return BadValueError("codec of a batch", position=position, expected="0..4", found=codec)


def decompress_into(codec: int, data: bytes, room: memoryview) -> int | None:
    """Writes the records of a batch of magic 2 to the beginning of a buffer.

    Args:
        codec: 1 to 4.
        data: what follows the header of the batch.
        room: the buffer. Nothing else is allocated.

    Returns:
        How many bytes they have; None if they do not fit, or if the data does not follow the format of its codec: ``decompress``
        raises the error.
    """
    import cramjam

    try:
        if CODECS[codec] == "gzip":
            return _written(_gzip_parts(data, 0), room)
        if CODECS[codec] == "snappy":
            return _snappy(data, room, 0)
        frame = _first_frame(data, 2, 0) if CODECS[codec] == "lz4" else data
        return int(getattr(cramjam, CODECS[codec]).decompress_into(frame, room))
    except (cramjam.DecompressionError, FormatError):
        return None


def _written(parts: Iterable[bytes], room: memoryview) -> int | None:
    count = 0
    for part in parts:
        end = count + len(part)
        if end > len(room):
            return None
        room[count:end] = part
        count = end
    return count


def decompress_from(codec: int, read: Callable[[int], bytes | bytearray], path: str, *, position: int, magic: int) -> None:
    """Writes the records of a batch while they are decompressed, so that few of them are in memory whatever their size.

    Of lz4 frames as Kafka's clients write them one block at a time is in memory, of other data all that is compressed.

    Args:
        codec: 1 to 7.
        read: gives the next bytes of the data, as many as requested unless they end there.
        path: of a file or pipe. If its reader closes the pipe, the rest is not written.
        position: of the data in its file, for messages.
        magic: of the batch; in magic 0 the header checksum of an lz4 frame is not checked.

    Raises:
        BadValueError: an unknown codec.
        FormatError: the data does not follow the format of its codec. What came before was written.
    """
    if codec >= len(CODECS):
        raise _unknown_codec(codec, position)
    if CODECS[codec] == "zstd":
        _decompress_zstd(read(limits.INT64_MAX), path, position)
        return
    if CODECS[codec] == "lz4":
        parts = _lz4_blocks(read, magic, position)
    elif CODECS[codec] == "gzip":
        parts = _gzip_parts(read(limits.INT64_MAX), position)
    else:
        parts = (_decompressed_block(block, position) for block in _snappy_blocks(read(limits.INT64_MAX), position))
    with open(path, "wb", buffering=WRITTEN_AT_ONCE_BYTES) as pipe:  # parts may have one byte each
        pipe.writelines(parts)


def _decompress_zstd(data: bytes | bytearray, path: str, position: int) -> None:
    import cramjam

    file = cramjam.File(path, read=False, write=True, truncate=False)
    try:
        cramjam.zstd.decompress_into(data, file)
    except cramjam.DecompressionError as error:
        if "Broken pipe" not in str(error):
            raise BadValueError("zstd data", position=position, found=str(error)) from None
    finally:
        del file  # closes it, also while an error is on its way


LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
LZ4_FRAME_HEADER_BYTES = 7
LZ4_HEAD_OF_CLIENTS = LZ4_FRAME_MAGIC + b"\x60\x40\x82"
"""The header that Kafka's clients write."""
LZ4_BLOCK_LENGTH_BYTES = 4
LZ4_BLOCK_CHECKSUM_BYTES = 4
LZ4_END_MARK = bytes(4)
LZ4_FLAGS_OF_KAFKA = 0x60
"""A frame of version 1 whose blocks do not refer to each other; the reader of Kafka refuses others, and those with a dictionary."""
LZ4_BLOCK_CHECKSUMS = 0x10
LZ4_CONTENT_SIZE = 0x08
LZ4_CONTENT_CHECKSUM = 0x04
LZ4_CONTENT_SIZE_BYTES = 8
LZ4_CONTENT_CHECKSUM_BYTES = 4
LZ4_DESCRIPTOR_POSITION = 4
"""Where the flags are, after the magic number."""
LZ4_LENGTH_MASK = 0x7FFF_FFFF
"""The highest bit of a length is that of a block which is not compressed."""
LZ4_BLOCK_BYTES_MAX = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
"""Largest block, by the byte after the flags."""


def _lz4_head(read: Callable[[int], bytes | bytearray], magic: int, position: int) -> bytes:
    """Reads the header of a frame, as far as it goes.

    Raises:
        BadValueError: Kafka's consumer refuses it.
    """
    head = bytes(read(LZ4_FRAME_HEADER_BYTES))
    if len(head) == LZ4_FRAME_HEADER_BYTES and head[LZ4_DESCRIPTOR_POSITION] & LZ4_CONTENT_SIZE:
        head += read(LZ4_CONTENT_SIZE_BYTES)
    if len(head) < LZ4_FRAME_HEADER_BYTES or not head.startswith(LZ4_FRAME_MAGIC):
        raise BadValueError("lz4 data", position=position, expected="a frame", found="other bytes")
    flags, block_size = head[LZ4_DESCRIPTOR_POSITION : LZ4_DESCRIPTOR_POSITION + 2]
    of_kafka = flags & ~(LZ4_BLOCK_CHECKSUMS | LZ4_CONTENT_SIZE | LZ4_CONTENT_CHECKSUM)
    if of_kafka != LZ4_FLAGS_OF_KAFKA or block_size not in LZ4_BLOCK_BYTES_MAX:
        raise BadValueError("flags of an lz4 frame", position=position, found=f"{flags:#x} {block_size:#x}")
    # The writers of magic 0 took the checksum over the magic number, too (KAFKA-3160).
    if magic and head[-1] != _header_checksum(head[LZ4_DESCRIPTOR_POSITION:-1]):
        raise BadValueError("checksum of an lz4 header", position=position, found=head[-1])
    return head


def _plain_head(head: bytes) -> bytes:
    """The header of a frame without the size and the checksum of its content, which Kafka ignores."""
    flags, block_size = head[LZ4_DESCRIPTOR_POSITION : LZ4_DESCRIPTOR_POSITION + 2]
    descriptor = bytes((flags & ~(LZ4_CONTENT_SIZE | LZ4_CONTENT_CHECKSUM), block_size))
    return LZ4_FRAME_MAGIC + descriptor + bytes((_header_checksum(descriptor),))


def _lz4_blocks(read: Callable[[int], bytes | bytearray], magic: int, position: int) -> Iterator[bytes]:
    """The content of the blocks of the first frame: each is decompressed as a frame of its own. cramjam copies what it decompresses.

    Raises:
        BadValueError: the frame does not follow its format, or Kafka's consumer refuses it. What came before was given.
    """
    import cramjam

    head = _lz4_head(read, magic, position)
    flags, block_size = head[LZ4_DESCRIPTOR_POSITION : LZ4_DESCRIPTOR_POSITION + 2]
    plain_head = _plain_head(head)
    checksum_bytes = LZ4_BLOCK_CHECKSUM_BYTES if flags & LZ4_BLOCK_CHECKSUMS else 0
    bytes_max = LZ4_BLOCK_BYTES_MAX[block_size]
    room = bytearray(bytes_max)
    while True:
        length = bytes(read(LZ4_BLOCK_LENGTH_BYTES))
        stored = int.from_bytes(length, "little") & LZ4_LENGTH_MASK
        frame = plain_head + length
        if len(length) == LZ4_BLOCK_LENGTH_BYTES:
            if not stored:  # the end mark, whatever its highest bit is
                break
            block = read(min(stored, bytes_max) + checksum_bytes)
            frame = b"".join((plain_head, length, block, LZ4_END_MARK if len(block) == stored + checksum_bytes else b""))
        try:
            count = cramjam.lz4.decompress_into(frame, room)
        except cramjam.DecompressionError as error:  # also of a frame that was cut off
            raise BadValueError("lz4 data", position=position, found=str(error)) from None
        yield bytes(memoryview(room)[:count])
    if flags & LZ4_CONTENT_CHECKSUM and len(read(LZ4_CONTENT_CHECKSUM_BYTES)) < LZ4_CONTENT_CHECKSUM_BYTES:
        raise _no_content_checksum(position)


def _no_content_checksum(position: int) -> BadValueError:
    return BadValueError("lz4 data", position=position, expected="a checksum of the content", found="the end")


def _decompressed_block(block: bytes | bytearray, position: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size <= ROOM_BYTES_LEAST + MOST_OF_A_BYTE["snappy"] * len(block):
            return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadValueError("snappy data", position=position, found=str(error)) from None
    raise BadValueError("length of a snappy block", position=position, found=size)


_NO_ROOM = ("write whole buffer", "smaller than required")


def _snappy(data: bytes | bytearray, room: memoryview, position: int) -> int:
    import cramjam

    count = 0
    for block in _snappy_blocks(data, position):
        count += int(cramjam.snappy.decompress_raw_into(block, room[count:]))
    return count


def _snappy_blocks(data: bytes | bytearray, position: int) -> Iterator[bytes | bytearray]:
    """The blocks of one or more streams; all of ``data`` if it begins with no stream."""
    if not data.startswith(SNAPPY_STREAM_MAGIC):
        yield data
        return
    at = SNAPPY_STREAM_HEADER_BYTES
    while at + SNAPPY_LENGTH_BYTES <= len(data):
        if data.startswith(SNAPPY_NEXT_STREAM, at):
            _check_next_stream(data, at, position)
            at += SNAPPY_STREAM_HEADER_BYTES
            continue
        length = int.from_bytes(data[at : at + SNAPPY_LENGTH_BYTES], "big", signed=True)
        begin = at + SNAPPY_LENGTH_BYTES
        block = data[begin : begin + max(length, 0)]
        if length <= 0:
            raise BadLengthError("length of a snappy block", position=position + at, expected="1 or more", found=length)
        if len(block) != length:
            raise TruncatedError("snappy block", position=position + at, expected=f"{length} bytes", found=f"{len(block)} bytes")
        yield block
        at = begin + length


def _check_next_stream(data: bytes | bytearray, at: int, position: int) -> None:
    """Checks the header of a stream after another one. Only there snappy-java looks at the version."""
    header = data[at : at + SNAPPY_STREAM_HEADER_BYTES]
    if len(header) < SNAPPY_STREAM_HEADER_BYTES:
        expected = f"{SNAPPY_STREAM_HEADER_BYTES} bytes"
        raise TruncatedError("header of a snappy stream", position=position + at, expected=expected, found=f"{len(header)} bytes")
    version = int.from_bytes(header[8:12], "big", signed=True)
    if version < 1:  # SnappyCodec.MINIMUM_COMPATIBLE_VERSION
        raise BadVersionError("version of a snappy stream", position=position + at + 8, expected="1 or more", found=version)


def _gzip_parts(data: bytes | bytearray, position: int) -> Iterator[bytes]:
    """The content of the members of a gzip stream, in parts of at most 64 KiB.

    Bytes after a member that begin no other one are ignored, and so are flags of a header that are reserved. Source:
    ``GZIPInputStream.readTrailer``, which ignores errors in the header of another member only.

    Raises:
        BadValueError: a member is damaged or cut off. What came before was given.
    """
    with memoryview(data) as view:
        begin = _end_of_gzip_header(data, 0)
        if begin is None:
            raise BadValueError("gzip data", position=position, expected="a header", found="other bytes")
        read_bytes = WRITTEN_AT_ONCE_BYTES
        while begin is not None:
            try:
                end = yield from _gzip_member(view, begin, read_bytes)
            except zlib.error as error:
                raise BadValueError("gzip data", position=position, found=str(error)) from None
            begin = _end_of_gzip_header(data, _end_of_empty_members(data, end))
            read_bytes = GZIP_READ_BYTES_LEAST


def _gzip_member(view: memoryview, at: int, read_bytes: int) -> Generator[bytes, None, int]:
    """The content of the gzip member whose header ends at a position, in parts. Returns the position of its end.

    Raises:
        zlib.error: it is damaged or cut off.
    """
    reader = zlib.decompressobj(-zlib.MAX_WBITS)
    checksum = 0
    size_bytes = 0
    while at < len(view) and not reader.eof:
        stored: memoryview | bytes = view[at : at + read_bytes]
        at += len(stored)
        read_bytes = min(2 * read_bytes, WRITTEN_AT_ONCE_BYTES)
        while stored and not reader.eof:
            part = reader.decompress(stored, WRITTEN_AT_ONCE_BYTES)
            stored = reader.unconsumed_tail
            if part:
                checksum = zlib.crc32(part, checksum)
                size_bytes += len(part)
                yield part
    at -= len(reader.unused_data)
    end = at + GZIP_TRAILER_BYTES
    if not reader.eof or end > len(view):
        raise zlib.error("a member is cut off")
    if view[at:end] != (checksum | (size_bytes & 0xFFFFFFFF) << 32).to_bytes(GZIP_TRAILER_BYTES, "little"):
        raise zlib.error("a wrong checksum or size of a member")
    return end


def _end_of_empty_members(data: bytes | bytearray, at: int) -> int:
    """Where the members without content from a position on end. They are passed over at once: a million of them fit into a batch."""
    while (empty := EMPTY_GZIP_MEMBERS.match(data, at)) is not None:
        at = empty.end()
    return at


def _end_of_gzip_header(data: bytes | bytearray, at: int) -> int | None:
    """Where the header of a gzip member (RFC 1952) at a position ends, as ``GZIPInputStream.readHeader`` sees it; None if none is there."""
    begin = at
    if not data.startswith(GZIP_MAGIC_AND_METHOD, at) or len(data) - at < GZIP_HEADER_BYTES:
        return None
    flags = data[at + GZIP_FLAGS_POSITION]
    at += GZIP_HEADER_BYTES
    if flags & GZIP_HAS_EXTRA_FIELD:
        at += GZIP_LENGTH_BYTES + int.from_bytes(data[at : at + GZIP_LENGTH_BYTES], "little")
    for has_text in (GZIP_HAS_NAME, GZIP_HAS_COMMENT):
        if flags & has_text:
            zero = data.find(b"\0", at)
            if zero < 0:
                return None
            at = zero + 1
    if flags & GZIP_HAS_HEADER_CHECKSUM:
        stored = data[at : at + GZIP_HEADER_CHECKSUM_BYTES]
        checksum = zlib.crc32(data[begin:at]) & 0xFFFF
        if stored != checksum.to_bytes(GZIP_HEADER_CHECKSUM_BYTES, "little"):
            return None
        at += GZIP_HEADER_CHECKSUM_BYTES
    return at if at <= len(data) else None


GZIP_MAGIC_AND_METHOD = b"\x1f\x8b\x08"
GZIP_FLAGS_POSITION = 3
GZIP_HEADER_BYTES = 10
"""Without the fields that flags announce: an extra field with a length before it, a name, a comment, a checksum of the header."""
GZIP_HAS_HEADER_CHECKSUM = 0x02
GZIP_HAS_EXTRA_FIELD = 0x04
GZIP_HAS_NAME = 0x08
GZIP_HAS_COMMENT = 0x10
GZIP_LENGTH_BYTES = 2
GZIP_HEADER_CHECKSUM_BYTES = 2

GZIP_TRAILER_BYTES = 8

EMPTY_GZIP_MEMBERS = re.compile(rb"(?:\x1f\x8b\x08\0.{6}\x03\0\0{8}){1,4096}", re.DOTALL)
"""A match keeps 160 bytes for each member, so that their number is limited. It is not possessive: Python 3.11.2 matches that wrongly."""

GZIP_READ_BYTES_LEAST = 64
"""Bytes that are read at first of a member after another one. zlib copies what it does not need, and members may have 20 bytes each."""


def _first_frame(data: bytes | bytearray, magic: int, position: int) -> bytes | bytearray:
    """The first frame of lz4 data, without the size and the checksum of its content, which Kafka ignores.

    A frame that ends early is returned as it is: the decoder reports it.

    Raises:
        BadValueError: Kafka's consumer refuses it.
    """
    head = LZ4_HEAD_OF_CLIENTS
    if not data.startswith(head):
        head = _lz4_head(io.BytesIO(data).read, magic, position)
    flags = head[LZ4_DESCRIPTOR_POSITION]
    end = _end_of_blocks(data, len(head), flags)
    if flags & LZ4_CONTENT_CHECKSUM and end is not None and end + LZ4_CONTENT_CHECKSUM_BYTES > len(data):
        raise _no_content_checksum(position)
    plain_head = head if head == LZ4_HEAD_OF_CLIENTS else _plain_head(head)
    if end is None:
        return plain_head + data[len(head) :]
    if plain_head == head and end == len(data) and data.endswith(LZ4_END_MARK):
        return data
    # Kafka ignores the highest bit of the end mark, the decoder does not.
    return b"".join((plain_head, data[len(head) : end - LZ4_BLOCK_LENGTH_BYTES], LZ4_END_MARK))


def _end_of_blocks(data: bytes | bytearray, at: int, flags: int) -> int | None:
    """Where the mark after the last block of an lz4 frame ends; None if the data ends before it."""
    checksum_bytes = LZ4_BLOCK_CHECKSUM_BYTES if flags & LZ4_BLOCK_CHECKSUMS else 0
    while at + LZ4_BLOCK_LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[at : at + LZ4_BLOCK_LENGTH_BYTES], "little") & LZ4_LENGTH_MASK
        at += LZ4_BLOCK_LENGTH_BYTES
        if not length:
            return at
        at += length + checksum_bytes
    return None


def _header_checksum(descriptor: bytes | bytearray) -> int:
    return _xxh32_of_few(descriptor) >> 8 & 0xFF


def _xxh32_of_few(data: bytes | bytearray) -> int:
    """xxHash-32 of fewer than 16 bytes, seed 0."""
    mask = 0xFFFFFFFF
    prime_1 = 2654435761
    prime_2 = 2246822519
    prime_3 = 3266489917
    prime_4 = 668265263
    prime_5 = 374761393
    value = prime_5 + len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * prime_3 & mask
        value = (value << 17 | value >> 15) * prime_4 & mask
    for byte in data[whole:]:
        value = value + byte * prime_5 & mask
        value = (value << 11 | value >> 21) * prime_1 & mask
    value = (value ^ value >> 15) * prime_2 & mask
    value = (value ^ value >> 13) * prime_3 & mask
    return value ^ value >> 16
