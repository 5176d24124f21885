"""Batches and messages written from the format's definition alone, so that Kafka and our code read bytes of a third hand."""

import gzip
import struct
import zlib

import crc32c
from log_dirs import varint

ABORT, COMMIT = 0, 1
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME, GZIP = 0x10, 0x20, 0x08, 0x01


def record(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record of magic 2, without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def record_batch(
    base_offset: int,
    records: list[bytes],
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    leader_epoch: int = 0,
    compress: bool = True,
) -> bytes:
    """A record batch of magic 2; without ``compress`` the records are written as they are given, whatever the attributes say."""
    payload = b"".join(records)
    if compress and attributes & GZIP:
        payload = gzip.compress(payload, mtime=0)
    checked = struct.pack(
        ">hiqqqhii", attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, epoch, base_sequence, len(records)
    )
    checked += payload
    return struct.pack(">qiibI", base_offset, 9 + len(checked), leader_epoch, 2, crc32c.crc32c(checked)) + checked


def marker_record(kind: int, coordinator_epoch: int, *, timestamp_delta: int = 0, offset_delta: int = 0, version: int = 0) -> bytes:
    """The record of a transaction marker. A later version may add fields after the known ones."""
    value = struct.pack(">hi", version, coordinator_epoch) + b"\x2a" * (3 if version else 0)
    return record(offset_delta, timestamp_delta, struct.pack(">hh", 0, kind), value)


def message(magic: int, offset: int, timestamp: int, value: bytes, *, attributes: int = 0) -> bytes:
    """A message of magic 0 or 1."""
    checked = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    checked += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked
