"""Batches and wrapper messages with compressed records."""

import struct

import cramjam
from strategies import header_of, message_of

from formats.compression import CODECS
from formats.log.record_batch import BatchHeader, Record, build_record_batch, parse_batch_header

LZ4_BLOCK_BYTES = 64 << 10


def lz4_frame(data: bytes, *, flags: int = 0x60, end: bytes = bytes(4)) -> bytes:
    """A frame as Kafka's Java clients and librdkafka write it: independent blocks of 64 KiB, without checksums."""
    blocks = []
    for at in range(0, len(data), LZ4_BLOCK_BYTES):
        plain = data[at : at + LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        is_compressed = len(block) < len(plain)
        length = len(block) if is_compressed else len(plain) | 1 << 31
        blocks.append(struct.pack("<I", length) + (block if is_compressed else plain))
    return b"\x04\x22\x4d\x18" + bytes((flags, 0x40, 0x82)) + b"".join(blocks) + end


def packed(codec: str, data: bytes) -> bytes:
    if codec == "lz4":
        return lz4_frame(data)
    if codec == "snappy":  # snappy-java: a header, then blocks of 32 KiB
        blocks = (bytes(cramjam.snappy.compress_raw(data[at : at + 32768])) for at in range(0, len(data), 32768))
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(each)) + each for each in blocks)
    return bytes(getattr(cramjam, codec).compress(data))


def compressed(codec: str, magic: int, values: list[bytes], count: int | None = None) -> tuple[BatchHeader, bytes]:
    """A batch of these values, or a wrapper of messages."""
    number = CODECS.index(codec)
    if magic < 2:
        inside = b"".join(message_of(magic, offset, value).data for offset, value in enumerate(values))
        outer = message_of(magic, 100 + len(values), packed(codec, inside), attributes=number)
        return outer.header, outer.data
    made = [Record(0, offset, b"k", value) for offset, value in enumerate(values)]
    plain = build_record_batch(header_of(100, record_count=len(made)), made)
    header = header_of(100, record_count=len(made) if count is None else count, attributes=number)
    batch = build_record_batch(header, packed(codec, plain[61:]))
    return parse_batch_header(batch), batch
