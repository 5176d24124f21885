"""Record batches of magic 0, 1 and 2: the grammar.

``RECORD_BATCH_HEADER`` is the only definition of the 61 bytes that begin a batch of magic 2; the fast reader of
``formats.log.batch_headers`` builds its columns from it.
Messages of magic 0 and 1 share only the first 12 bytes and the position of the magic with it. Each is its own batch, or the wrapper
of a compressed set of messages.

Source: ``DefaultRecordBatch``, ``DefaultRecord``, ``LegacyRecord``, ``AbstractLegacyRecordBatch``, ``FileLogInputStream``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import msgspec
from construct import Construct, FixedSized, GreedyBytes, StreamError, Struct, Tell
from msgspec.structs import replace

from formats import limits
from formats.checksum import crc32, crc32c
from formats.errors import BadChecksumError, BadLengthError, BadMagicError, FormatError, TruncatedError
from formats.primitives import INT8, INT16, INT32, INT64, UINT32, VARINT, VARLONG, parse_whole

__all__ = [
    "LOG_OVERHEAD_BYTES",
    "MAGIC_POSITION",
    "MESSAGE_HEADERS",
    "RECORD",
    "RECORD_BATCH_HEADER",
    "BatchHeader",
    "Record",
    "RecordHeader",
    "build_record",
    "build_record_batch",
    "check_batch",
    "parse_batch_header",
    "parse_record",
]

RECORD_BATCH_HEADER = Struct(
    "base_offset" / INT64,
    "length" / INT32,
    "partition_leader_epoch" / INT32,
    "magic" / INT8,
    "crc" / UINT32,
    "attributes" / INT16,
    "last_offset_delta" / INT32,
    "base_timestamp" / INT64,
    "max_timestamp" / INT64,
    "producer_id" / INT64,
    "producer_epoch" / INT16,
    "base_sequence" / INT32,
    "record_count" / INT32,
)
"""Magic 2 (KIP-98), 61 bytes. ``length`` counts what follows it; ``crc`` is CRC-32C of everything from ``attributes`` on."""

MESSAGE_HEADER_V0 = Struct("offset" / INT64, "size" / INT32, "crc" / UINT32, "magic" / INT8, "attributes" / INT8)
"""Magic 0, up to 0.9. ``offset`` of a wrapper message is that of its last inner message; ``crc`` is CRC-32 from ``magic`` on."""

MESSAGE_HEADER_V1 = Struct(*MESSAGE_HEADER_V0.subcons, "timestamp" / INT64)
"""Magic 1 (KIP-32), 0.10."""

MESSAGE_HEADERS = (MESSAGE_HEADER_V0, MESSAGE_HEADER_V1)

LOG_OVERHEAD_BYTES = 12
"""Offset and length are before every batch of any magic (``Records.LOG_OVERHEAD``)."""

MAGIC_POSITION = 16
"""The magic byte is at the same place in every magic (``Records.MAGIC_OFFSET``)."""

CRC_START = (16, 16, 21)
"""Where the checksummed bytes of magic 0, 1, 2 begin."""

LENGTH_MIN = (14, 22, 49)
"""The least ``length`` of a batch of magic 0, 1, 2: an empty key and value, or a header without records."""

ATTRIBUTE_CODEC = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20
ATTRIBUTE_DELETE_HORIZON = 0x40


class BatchHeader(msgspec.Struct, frozen=True):
    """The header of a batch of any magic, as it is in the log.

    Widths are those of the grammar. A message of magic 0 or 1 has ``base_offset`` = ``last_offset`` = its stored offset (the base
    offset of a wrapper is inside the compressed payload).
    It has no producer, no leader epoch and no record count (all -1), and in magic 0 no timestamp (-1).
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch in the log."""
        return LOG_OVERHEAD_BYTES + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also where compaction removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """A batch of control records; they are not shown to consumers."""
        return bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        """A batch of a transaction."""
        return bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """Timestamps are the broker's, not the client's."""
        return bool(self.attributes & ATTRIBUTE_LOG_APPEND_TIME)

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & ATTRIBUTE_CODEC


class RecordHeader(msgspec.Struct, frozen=True):
    """A header of a record: int32-length key, nullable value."""

    key: bytes
    value: bytes | None


class Record(msgspec.Struct, frozen=True):
    """One record of a batch of magic 2: int8 attributes, int64 timestamp delta (ms), int32 offset delta, nullable key and value."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
    attributes: int = 0


class _NullableBytes(Construct):  # type: ignore[misc]
    """A varint length, negative for null (Kafka writes -1), then that many bytes. Never reads more than there is."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> bytes | None:
        length = VARINT._parse(stream, context, path)
        if length < 0:
            return None
        data = stream.read(length)
        if len(data) != length:
            raise StreamError("key or value ends early", path=path)
        return data

    def _build(self, obj: bytes | None, stream: IO[bytes], context: Any, path: str) -> bytes | None:
        VARINT._build(-1 if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class _RecordHeaders(Construct):  # type: ignore[misc]
    """A varint count, then key and value of each header."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> tuple[RecordHeader, ...]:
        count = VARINT._parse(stream, context, path)
        if not 0 <= count <= limits.RECORD_HEADERS_MAX:
            raise BadLengthError("count of record headers", expected=f"0..{limits.RECORD_HEADERS_MAX}", found=count)
        headers = []
        for _ in range(count):
            key = NULLABLE_BYTES._parse(stream, context, path)
            if key is None:
                raise BadLengthError("key of a record header", expected="0 or more", found=-1)
            headers.append(RecordHeader(key, NULLABLE_BYTES._parse(stream, context, path)))
        return tuple(headers)

    def _build(self, obj: tuple[RecordHeader, ...], stream: IO[bytes], context: Any, path: str) -> object:
        VARINT._build(len(obj), stream, context, path)
        for header in obj:
            NULLABLE_BYTES._build(header.key, stream, context, path)
            NULLABLE_BYTES._build(header.value, stream, context, path)
        return obj


NULLABLE_BYTES = _NullableBytes()

RECORD_BODY = Struct(
    "attributes" / INT8,
    "timestamp_delta" / VARLONG,
    "offset_delta" / VARINT,
    "key" / NULLABLE_BYTES,
    "value" / NULLABLE_BYTES,
    "headers" / _RecordHeaders(),
)

RECORD = Struct(
    "length" / VARINT,
    "body" / FixedSized(lambda this: this.length, Struct(*RECORD_BODY.subcons, "rest" / GreedyBytes)),
    "end" / Tell,
)
"""A record of magic 2. Its length must be used up exactly (``DefaultRecord.readFrom``); ``end`` is where it ends in the stream."""


def parse_batch_header(data: bytes | memoryview, *, file: str | None = None, position: int = 0) -> BatchHeader:
    """Reads the header of the batch at the start of ``data``; the rest of the batch need not be there.

    Raises:
        TruncatedError: fewer bytes than the header of this magic.
        BadMagicError: a magic other than 0, 1, 2.
        BadLengthError: a length below the least of this magic.
    """
    if len(data) <= MAGIC_POSITION:
        raise TruncatedError("batch header", file=file, position=position, expected="17 bytes", found=f"{len(data)} bytes")
    length = int.from_bytes(data[8:12], "big", signed=True)
    if length < LENGTH_MIN[0]:  # FileLogInputStream.nextBatch checks this before the magic
        raise BadLengthError(
            "length of a batch", file=file, position=position + 8, expected=f"at least {LENGTH_MIN[0]}", found=length
        )
    magic = int.from_bytes(data[MAGIC_POSITION : MAGIC_POSITION + 1], "big", signed=True)
    if magic not in (0, 1, 2):
        raise BadMagicError("magic of a batch", file=file, position=position + MAGIC_POSITION, expected="0, 1 or 2", found=magic)
    if length < LENGTH_MIN[magic]:
        what = f"length of a batch of magic {magic}"
        raise BadLengthError(what, file=file, position=position + 8, expected=f"at least {LENGTH_MIN[magic]}", found=length)
    grammar = RECORD_BATCH_HEADER if magic == 2 else MESSAGE_HEADERS[magic]
    size = grammar.sizeof()
    if len(data) < size:
        raise TruncatedError("batch header", file=file, position=position, expected=f"{size} bytes", found=f"{len(data)} bytes")
    fields = grammar.parse(bytes(data[:size]))
    if magic == 2:
        return BatchHeader(**{name: fields[name] for name in BatchHeader.__struct_fields__})
    return _message_header(fields)


def _message_header(fields: Any) -> BatchHeader:
    timestamp = fields.get("timestamp", -1)
    return BatchHeader(
        base_offset=fields.offset,
        length=fields.size,
        partition_leader_epoch=-1,
        magic=fields.magic,
        crc=fields.crc,
        # Bits 4 and 5 mean nothing before magic 2: a message is never transactional or control.
        attributes=fields.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_LOG_APPEND_TIME),
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1,
    )


def check_batch(data: bytes | memoryview, *, file: str | None = None, position: int = 0) -> BatchHeader:
    """Reads the header of a whole batch and checks its checksum (``RecordBatch.ensureValid``).

    Raises:
        FormatError: the header is damaged (``parse_batch_header``), the batch is not whole, or its checksum is wrong.
    """
    header = parse_batch_header(data, file=file, position=position)
    if len(data) < header.size_bytes:
        size = f"{len(data)} bytes"
        raise TruncatedError("batch", file=file, position=position, expected=f"{header.size_bytes} bytes", found=size)
    covered = memoryview(data)[CRC_START[header.magic] : header.size_bytes]
    computed = crc32c(covered) if header.magic == 2 else crc32(covered)
    if computed != header.crc:
        raise BadChecksumError(
            "checksum of a batch",
            file=file,
            position=position,
            expected=f"{computed:#010x}",
            found=f"{header.crc:#010x}",
        )
    return header


def parse_record(data: bytes | memoryview, *, file: str | None = None, position: int = 0) -> tuple[Record, int]:
    """Reads the record at the start of ``data`` (uncompressed, magic 2). Returns it and its size in bytes.

    Raises:
        FormatError: truncated, or lengths that contradict each other.
    """

    def make(fields: Any) -> tuple[Record, int]:
        body = fields.body
        if body.rest:
            raise BadLengthError("length of a record", expected=fields.length - len(body.rest), found=fields.length)
        record = Record(body.timestamp_delta, body.offset_delta, body.key, body.value, body.headers, body.attributes)
        return record, int(fields.end)  # not the size of the shortest varint: Kafka accepts longer ones

    try:
        return parse_whole(RECORD, data, "record", make, position=position)
    except FormatError as error:
        raise error.in_file(file) from None


def build_record(record: Record) -> bytes:
    """The bytes of a record of magic 2."""
    fields = {name: getattr(record, name) for name in Record.__struct_fields__}
    body: bytes = RECORD_BODY.build(fields)
    return bytes(VARINT.build(len(body))) + body


def build_record_batch(header: BatchHeader, records: Iterable[Record] | bytes) -> bytes:
    """The bytes of a batch of magic 2: ``length`` and ``crc`` of ``header`` are computed, everything else is written as given.

    Args:
        header: the fields; ``record_count`` is not compared with ``records`` (compaction leaves batches without records).
        records: the records, or their bytes as they should be written (compressed, or damaged on purpose).
    """
    payload = records if isinstance(records, bytes) else b"".join(build_record(record) for record in records)
    sized = replace(header, magic=2, length=LENGTH_MIN[2] + len(payload), crc=0)
    fields = {name: getattr(sized, name) for name in BatchHeader.__struct_fields__}
    covered: bytes = RECORD_BATCH_HEADER.build(fields)[CRC_START[2] :] + payload
    fields["crc"] = crc32c(covered)
    return bytes(RECORD_BATCH_HEADER.build(fields)[: CRC_START[2]]) + covered
