"""Batches and wrappers whose compressed data is unusual, or is followed by something: made from the formats' definitions by hand.

``ODD`` has a segment for each, and how many records Kafka's consumer reads of it; None if it throws.
"""

import struct
import zlib

import cramjam
import crc32c
from log_dirs import record

from formats.compression import CODECS

COUNT = 40
PARTS = [b"".join(record(b"value%d" % at * 5, key=b"k", offset_delta=at) for at in part) for part in (range(20), range(20, COUNT))]
RECORDS = b"".join(PARTS)

GZIP, SNAPPY, LZ4, ZSTD = (CODECS.index(name) for name in ("gzip", "snappy", "lz4", "zstd"))
APPEND_TIME = 0x08


def batch_of(codec: int, payload: bytes, count: int = COUNT) -> bytes:
    checked = struct.pack(">hiqqqhii", codec, COUNT - 1, 1000, 1000, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, 9 + len(checked), 0, 2, crc32c.crc32c(checked)) + checked


# ---- gzip (RFC 1952)


def gzip_member(data: bytes, flags: int = 0, level: int = 6) -> bytes:
    writer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = writer.compress(data) + writer.flush()
    header = b"\x1f\x8b\x08" + bytes((flags,)) + b"\0\0\0\0\0\xff"
    if flags & 4:
        header += struct.pack("<H", 6) + b"AB\x02\0xy"
    if flags & 8:
        header += b"name\0"
    if flags & 16:
        header += b"comment\0"
    if flags & 2:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    return header + body + struct.pack("<II", zlib.crc32(data), len(data))


def with_flipped_bit(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


GZIP_CHECKSUM = -8
"""Where the CRC of a member is, from its end on."""

WHOLE_GZIP = gzip_member(RECORDS)
NAMED_GZIP = gzip_member(RECORDS, 8)
CHECKED_GZIP = gzip_member(RECORDS, 2)
SECOND_GZIP = gzip_member(PARTS[1])
IN_GZIP: dict[str, tuple[bytes, bool]] = {
    "fields in the header": (gzip_member(RECORDS, 4 | 8 | 16 | 2), True),
    "reserved flags": (gzip_member(RECORDS, 0xE0), True),
    "a second member with reserved flags": (gzip_member(PARTS[0]) + gzip_member(PARTS[1], 0xE8), True),
    "stored": (gzip_member(RECORDS, level=0), True),
    "two members": (gzip_member(PARTS[0]) + gzip_member(PARTS[1]), True),
    "a member that ends in a record": (gzip_member(RECORDS[:333]) + gzip_member(RECORDS[333:]), True),
    "many empty members, and text": (WHOLE_GZIP + gzip_member(b"") * 900 + b"text", True),
    "an empty member with a wrong size among others": (
        WHOLE_GZIP + gzip_member(b"") * 3 + gzip_member(b"")[:-1] + b"\1" + gzip_member(b""),
        False,
    ),
    "an empty member": (gzip_member(b"") + WHOLE_GZIP + gzip_member(b""), True),
    "zeros after it": (WHOLE_GZIP + bytes(7), True),
    "many zeros after it": (WHOLE_GZIP + bytes(200_000), True),
    "one byte after it": (WHOLE_GZIP + b"g", True),
    "text after two members": (gzip_member(PARTS[0]) + gzip_member(PARTS[1]) + b"text", True),
    "half a header after it": (WHOLE_GZIP + WHOLE_GZIP[:9], True),
    "a header after it": (WHOLE_GZIP + WHOLE_GZIP[:10], False),
    "half a member after it": (WHOLE_GZIP + WHOLE_GZIP[:15], False),
    "another method after it": (WHOLE_GZIP + b"\x1f\x8b\x07" + bytes(30), True),
    "a wrong checksum": (WHOLE_GZIP[:-6] + b"\0\0" + WHOLE_GZIP[-4:], False),
    "a wrong size": (WHOLE_GZIP[:-4] + b"\1\2\3\4", False),
    "a second member with a wrong checksum": (gzip_member(PARTS[0]) + with_flipped_bit(SECOND_GZIP, GZIP_CHECKSUM), False),
    "a second member with a wrong size": (gzip_member(PARTS[0]) + with_flipped_bit(SECOND_GZIP, -1), False),
    "a second member with an unknown block": (gzip_member(PARTS[0]) + SECOND_GZIP[:10] + b"\7" + SECOND_GZIP[11:], False),
    "an empty second member with a wrong checksum": (WHOLE_GZIP + with_flipped_bit(gzip_member(b""), GZIP_CHECKSUM), False),
    "a wrong checksum, and text after it": (gzip_member(PARTS[0]) + with_flipped_bit(SECOND_GZIP, GZIP_CHECKSUM) + b"text", False),
    "a wrong checksum between members": (with_flipped_bit(gzip_member(PARTS[0]), GZIP_CHECKSUM) + SECOND_GZIP, False),
    "half a name after it": (WHOLE_GZIP + NAMED_GZIP[:13], True),
    "a name after it": (WHOLE_GZIP + NAMED_GZIP[:15], False),
    "half a comment after it": (WHOLE_GZIP + gzip_member(RECORDS, 16)[:15], True),
    "half an extra field after it": (WHOLE_GZIP + gzip_member(RECORDS, 4)[:15], True),
    "half the length of an extra field after it": (WHOLE_GZIP + gzip_member(RECORDS, 4)[:11], True),
    "half a checksum of a header after it": (WHOLE_GZIP + CHECKED_GZIP[:11], True),
    "a header with a wrong checksum after it": (WHOLE_GZIP + with_flipped_bit(CHECKED_GZIP, 10), True),
    "all fields, then a wrong checksum": (WHOLE_GZIP + with_flipped_bit(gzip_member(b"", 4 | 8 | 16 | 2), GZIP_CHECKSUM), False),
    "cut off": (WHOLE_GZIP[:-4], False),
    "cut off before its checksum": (WHOLE_GZIP[:-8], False),
}

# ---- snappy (SnappyCodec, SnappyInputStream)

STREAM = b"\x82SNAPPY\0"


def snappy_stream(*blocks: bytes, version: int = 1) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(each)) for each in blocks]
    return STREAM + struct.pack(">ii", version, 1) + b"".join(struct.pack(">i", len(each)) + each for each in packed)


IN_SNAPPY: dict[str, tuple[bytes, bool]] = {
    "no stream": (bytes(cramjam.snappy.compress_raw(RECORDS)), True),
    "two blocks": (snappy_stream(*PARTS), True),
    "an empty block": (snappy_stream(PARTS[0], b"", PARTS[1]), True),
    "two streams": (snappy_stream(PARTS[0]) + snappy_stream(PARTS[1]), True),
    "an empty stream after it": (snappy_stream(RECORDS) + snappy_stream(), True),
    "half a header after it": (snappy_stream(RECORDS) + snappy_stream()[:9], False),
    "another version": (snappy_stream(RECORDS, version=0), True),
    "a second stream of another version": (snappy_stream(PARTS[0]) + snappy_stream(PARTS[1], version=0), False),
    "three bytes after it": (snappy_stream(RECORDS) + b"\x7f\1\2", True),
    "a length of zero after it": (snappy_stream(RECORDS) + bytes(4), False),
    "a block that is cut off": (snappy_stream(RECORDS) + b"\0\0\0\3a", False),
}

# ---- lz4 (LZ4 frame format, Lz4BlockInputStream)

PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
MASK = 0xFFFFFFFF


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & MASK


def xxh32(data: bytes) -> int:
    at = 0
    value = PRIMES[4]
    if len(data) >= 16:
        lanes = [PRIMES[0] + PRIMES[1] & MASK, PRIMES[1], 0, -PRIMES[0] & MASK]
        while at <= len(data) - 16:
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = rotated(lanes[lane] + word * PRIMES[1] & MASK, 13) * PRIMES[0] & MASK
                at += 4
        value = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    value = value + len(data) & MASK
    while at <= len(data) - 4:
        value = rotated(value + int.from_bytes(data[at : at + 4], "little") * PRIMES[2] & MASK, 17) * PRIMES[3] & MASK
        at += 4
    for byte in data[at:]:
        value = rotated(value + byte * PRIMES[4] & MASK, 11) * PRIMES[0] & MASK
    value = (value ^ value >> 15) * PRIMES[1] & MASK
    value = (value ^ value >> 13) * PRIMES[2] & MASK
    return value ^ value >> 16


def lz4_frame(
    *parts: bytes,
    size: int | None = None,
    checksum: int | None = None,
    stored: bool = False,
    checked: bool = False,
    end: bytes = bytes(4),
) -> bytes:
    """A frame with a block for each part, which do not depend on each other.

    Args:
        parts: what they hold.
        size: of the content, in the header; None for none.
        checksum: of the content, at the end; None for none.
        stored: the blocks are not compressed.
        checked: the blocks have checksums.
        end: the mark after the last block.
    """
    flags = 0x60 | (0x08 if size is not None else 0) | (0x04 if checksum is not None else 0) | (0x10 if checked else 0)
    descriptor = bytes((flags, 0x40)) + (b"" if size is None else struct.pack("<Q", size))
    frame = bytes.fromhex("04224d18") + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    for part in parts:
        block = part if stored else bytes(cramjam.lz4.compress_block(part, store_size=False))
        frame += struct.pack("<I", len(block) | (0x80000000 if stored else 0)) + block
        frame += struct.pack("<I", xxh32(block)) if checked else b""
    return frame + end + (b"" if checksum is None else struct.pack("<I", checksum))


SKIPPED = struct.pack("<II", 0x184D2A50, 5) + b"bytes"
WHOLE_LZ4 = lz4_frame(RECORDS)
STORED_END = struct.pack("<I", 0x80000000)
"""The end mark, with the bit of a block which is not compressed."""

STORED_BLOCK = lz4_frame(PARTS[1], stored=True)[7:]
"""A block and the end mark, without the header."""

LINKED = cramjam.lz4.Compressor(block_linked=True, content_checksum=False)
LINKED.compress(RECORDS)


def with_flags(flags: int, block_size: int = 0x40, more: bytes = b"") -> bytes:
    """The frame with another header, whose checksum is right."""
    descriptor = bytes((flags, block_size)) + more
    return WHOLE_LZ4[:4] + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,)) + WHOLE_LZ4[7:]


IN_LZ4: dict[str, tuple[bytes, bool]] = {
    "two blocks": (lz4_frame(*PARTS), True),
    "blocks that are not compressed": (lz4_frame(*PARTS, stored=True), True),
    "blocks with checksums": (lz4_frame(*PARTS, checked=True), True),
    "a size": (lz4_frame(RECORDS, size=len(RECORDS)), True),
    "a wrong size": (lz4_frame(RECORDS, size=3), True),
    "a wrong size, and checksums of blocks": (lz4_frame(*PARTS, size=3, checked=True), True),
    "a checksum": (lz4_frame(RECORDS, checksum=xxh32(RECORDS)), True),
    "a wrong checksum": (lz4_frame(RECORDS, checksum=123), True),
    "half a checksum": (lz4_frame(RECORDS, checksum=123)[:-2], False),
    "size, checksum and bytes after it": (lz4_frame(RECORDS, size=len(RECORDS), checksum=xxh32(RECORDS)) + b"bytes", True),
    "zeros after it": (WHOLE_LZ4 + bytes(8), True),
    "the same frame again": (WHOLE_LZ4 + WHOLE_LZ4, True),
    "two frames": (lz4_frame(PARTS[0]) + lz4_frame(PARTS[1]), False),
    "an end of no compression": (lz4_frame(*PARTS, end=STORED_END), True),
    "an end of no compression, and a block": (lz4_frame(*PARTS, end=STORED_END) + STORED_BLOCK, True),
    "an end of no compression before the last block": (lz4_frame(PARTS[0], end=STORED_END) + STORED_BLOCK, False),
    "an end of no compression, and checksums of blocks": (lz4_frame(*PARTS, checked=True, end=STORED_END), True),
    "an end of no compression, and a size": (lz4_frame(RECORDS, size=len(RECORDS), end=STORED_END), True),
    "an end of no compression, and a checksum": (lz4_frame(RECORDS, checksum=xxh32(RECORDS), end=STORED_END), True),
    "an end of no compression, and half a checksum": (lz4_frame(RECORDS, checksum=123, end=STORED_END)[:-2], False),
    "linked blocks": (bytes(LINKED.finish()), False),
    "one block that may be linked": (with_flags(0x40), False),
    "a dictionary": (with_flags(0x61, more=bytes(4)), False),
    "a reserved flag": (with_flags(0x62), False),
    "a reserved bit of the size of blocks": (with_flags(0x60, 0x41), False),
    "a size of blocks that is too small": (with_flags(0x60, 0x30), False),
    "another version": (with_flags(0x20), False),
    "a frame to skip": (SKIPPED + WHOLE_LZ4, False),
    "no end": (WHOLE_LZ4[:-4], False),
    "a wrong checksum of the header": (WHOLE_LZ4[:6] + bytes((WHOLE_LZ4[6] ^ 1,)) + WHOLE_LZ4[7:], False),
}

# ---- zstd


def zstd_frame(data: bytes, level: int = 3) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


IN_ZSTD: dict[str, tuple[bytes, bool]] = {
    "the highest level": (zstd_frame(RECORDS, 22), True),
    "a negative level": (zstd_frame(RECORDS, -5), True),
    "two frames": (zstd_frame(PARTS[0]) + zstd_frame(PARTS[1]), True),
    "an empty frame": (zstd_frame(b"") + zstd_frame(RECORDS), True),
    "frames to skip": (SKIPPED + zstd_frame(PARTS[0]) + SKIPPED + zstd_frame(PARTS[1]) + SKIPPED, True),
    "text after it": (zstd_frame(RECORDS) + b"text", False),
    "zeros after it": (zstd_frame(RECORDS) + bytes(9), False),
    "cut off": (zstd_frame(RECORDS)[:-3], False),
}

# ---- wrappers of magic 0 and 1


def message(magic: int, offset: int, value: bytes, timestamp: int = 5, attributes: int = 0) -> bytes:
    checked = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    checked += struct.pack(">i", 1) + b"k" + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


def inside(magic: int, *offsets: int) -> bytes:
    return b"".join(message(magic, offset, b"v%d" % number, 100 + number) for number, offset in enumerate(offsets))


def wrapper_of(magic: int, offset: int, members: bytes, attributes: int = 0) -> bytes:
    return message(magic, offset, members, 777, GZIP | attributes)


def wrapper(magic: int, offset: int, content: bytes, attributes: int = 0) -> bytes:
    return wrapper_of(magic, offset, gzip_member(content), attributes)


WRAPPERS: dict[str, tuple[bytes, int | None]] = {
    "offsets from 1 on": (wrapper(1, 13, inside(1, 1, 2, 3)), 3),
    "absolute offsets": (wrapper(1, 12, inside(1, 10, 11, 12)), 3),
    "holes": (wrapper(1, 17, inside(1, 0, 3, 7)), 3),
    "the last offset is above that of the wrapper": (wrapper(1, 12, inside(1, 0, 1, 50)), None),
    "an offset in the middle is above that of the wrapper": (wrapper(1, 60, inside(1, 0, 1, 50)), 3),
    "the wrapper has offset 0": (wrapper(1, 0, inside(1, 0, 1, 2)), 3),
    "magic 0 with relative offsets": (wrapper(0, 12, inside(0, 0, 1, 2)), 3),
    "magic 0 in magic 1": (wrapper(1, 12, inside(0, 0, 1, 2)), 3),
    "magic 0 in magic 1 with the time of the append": (wrapper(1, 12, inside(0, 0, 1, 2), APPEND_TIME), 3),
    "magic 1 with the time of the append": (wrapper(1, 12, inside(1, 0, 1, 2), APPEND_TIME), 3),
    "magic 1 in magic 0": (wrapper(0, 12, inside(1, 10, 11, 12)), 3),
    "a message that is cut off": (wrapper(1, 12, inside(1, 0, 1, 2)[:-1]), 2),
    "a header that is cut off": (wrapper(1, 12, inside(1, 0, 1, 2) + bytes(5)), 3),
    "two members": (wrapper_of(1, 5, gzip_member(inside(1, 0, 1)) + gzip_member(inside(1, 2))), 3),
    "a second member with a wrong checksum": (
        wrapper_of(1, 5, gzip_member(inside(1, 0, 1)) + with_flipped_bit(gzip_member(inside(1, 2)), GZIP_CHECKSUM)),
        None,
    ),
    "the first message is cut off": (wrapper(1, 12, inside(1, 0)[:20]), None),
    "a length of zero": (wrapper(1, 12, inside(1, 0, 1, 2) + bytes(20)), None),
    "no message": (wrapper(1, 12, b""), None),
    "a wrapper in a wrapper of magic 0": (wrapper(0, 12, wrapper(0, 12, inside(0, 10, 11, 12))), None),
    "a wrapper in a wrapper of magic 1": (wrapper(1, 12, wrapper(1, 2, inside(1, 0, 1, 2))), None),
    "zstd in magic 1": (message(1, 12, zstd_frame(inside(1, 0)), attributes=ZSTD), None),
    "zstd in magic 0": (message(0, 12, zstd_frame(inside(0, 12)), attributes=ZSTD), None),
}

ODD: dict[str, tuple[bytes, int | None]] = {
    **{
        f"{CODECS[codec]}, {name}": (batch_of(codec, payload), COUNT if is_read else None)
        for codec, cases in ((GZIP, IN_GZIP), (SNAPPY, IN_SNAPPY), (LZ4, IN_LZ4), (ZSTD, IN_ZSTD))
        for name, (payload, is_read) in cases.items()
    },
    **{f"wrapper, {name}": case for name, case in WRAPPERS.items()},
    "no records, and bytes": (batch_of(0, RECORDS, count=0), 0),
    "no records, and bytes of a codec": (batch_of(LZ4, b"bytes", count=0), 0),
}
