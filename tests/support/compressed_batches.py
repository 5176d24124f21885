"""Batches and wrapper messages with compressed records."""

import struct

import cramjam
from strategies import header_of, message_of

from formats.compression import CODECS
from formats.log.record_batch import BatchHeader, Record, build_record_batch, parse_batch_header


def packed(codec: str, data: bytes) -> bytes:
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
