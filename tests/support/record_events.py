"""The records of a segment and its damaged batches in their order: by the reader of single records, and in columns."""

import functools
from typing import Any

from formats.checksum import crc32, crc32c
from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.log.record_batch import CRC_START
from formats.log.record_groups import record_groups
from formats.log.records import LogRecord, read_records
from snaprebuild.storage.local.pipe_reader import piped

Event = LogRecord | tuple[int, type[FormatError], str]
"""A record, or a damaged batch: its number, and the error."""


def as_in_java(record: LogRecord) -> LogRecord:
    """Sums as int64, and no checksum of a message."""
    offset, timestamp = ((each + 2**63) % 2**64 - 2**63 for each in (record.offset, record.timestamp))
    return record._replace(offset=offset, timestamp=timestamp, crc=None, is_valid=True)


def by_records(data: bytes, *, check_crc: bool = True, **options: Any) -> list[Event]:
    """By ``read_records``, batch by batch."""
    events: list[Event] = []
    row = 0
    for block in HeaderReader(BytesSegment(data), read_markers=False):
        for header, position in zip(block.headers(), block.position_bytes.tolist(), strict=True):
            batch = data[position : position + header.size_bytes]
            function = crc32c if header.magic == 2 else crc32
            computed = function(batch[CRC_START[header.magic] :])
            if check_crc and computed != header.crc:
                message = f"byte {position}: checksum of a batch: expected {computed:#010x}, found {header.crc:#010x}"
                events.append((row, FormatError, message))
                row += 1
                continue
            try:
                events += map(as_in_java, read_records(header, batch, position=position, **options))
            except FormatError as error:
                events.append((row, type(error), error.message))
            row += 1
    return events


def _note(events: list[Event], before: int, row: int, error: FormatError) -> None:
    is_checksum = error.what == "checksum of a batch"
    events.append((before + row, FormatError if is_checksum else type(error), error.message))


def in_columns(data: bytes, *, check_crc: bool = True, reread: Any = None, **options: Any) -> list[Event]:
    """By ``record_groups``. The batches of their records are compared with the headers."""
    events: list[Event] = []
    source = reread or BytesSegment(data)
    before = 0
    for block in HeaderReader(BytesSegment(data), read_markers=False, check_crc=check_crc):
        on_damage = functools.partial(_note, events, before)

        last = 0
        for group in record_groups(source, block, piped=piped, on_damage=on_damage, **options):
            assert len(group)
            assert (group.batch[1:] >= group.batch[:-1]).all()
            assert group.batch[0] >= last
            last = int(group.batch[-1])
            for row, kind in zip(group.batch.tolist(), group.timestamp_type.tolist(), strict=True):
                magic = block.columns["magic"][row]
                assert kind == (-1 if magic == 0 else block.columns["attributes"][row] >> 3 & 1)
            events += group.records()
        before += len(block)
    return events


MARKS_OF_UTF_8 = (
    *(b"a", "ü".encode(), "€".encode(), "😀".encode(), b"\x80", b"\xbf", b"\xc0", b"\xc2", b"\xe0", b"\xe2\x82", b"\xed", b"\xa0"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0", b"\xf0\x90", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf8", b"\xff"),
)
"""Bytes of texts, whole and cut, and bytes that are in no text."""
