"""The batches of a metadata log as values, and their reader: one file (segment or checkpoint), checksums proven, one batch in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats import limits
from formats.errors import BadChecksumError, BadValueError, FormatError, LimitExceededError
from formats.log.batch_headers import HEADER_COLUMNS, HeaderReader, Tail
from formats.log.control_record import ControlRecord, parse_control_record
from formats.log.record_batch import BatchHeader, Record
from formats.log.records import LogRecord, read_records
from formats.metadata.cluster_metadata import ClusterMetadataRecord, read_cluster_metadata_record
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.storage.store import OpenBytes

__all__ = ["FileBatches", "MetadataBatch", "MetadataRecord", "UnreadRecord", "check_tail"]


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record, whole by its checksum, that cannot be read: of a newer release, or of no release.

    Attributes:
        value: its bytes, None for null.
        error: why.
    """

    value: bytes | None
    error: FormatError


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record of a batch.

    Attributes:
        offset: int64.
        content: what it says; a control record in control batches only.
    """

    offset: int
    content: ClusterMetadataRecord | ControlRecord | UnreadRecord


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch of a metadata log or checkpoint, its checksum proven.

    Attributes:
        base_offset: int64, of its first record; in a checkpoint these count from 0 and are none of the log.
        last_offset: int64.
        leader_epoch: int32, of the controller that wrote it.
        append_timestamp_ms: greatest timestamp, ms since 1970.
        is_control: it is one of Raft itself.
        position_bytes: where it begins in its file.
        size_bytes: of the whole batch.
        records: in order.
        crc: uint32, of everything after it in the batch, as the header says.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_timestamp_ms: int
    is_control: bool
    position_bytes: int
    size_bytes: int
    records: tuple[MetadataRecord, ...]
    crc: int = 0


RECORDS_BETWEEN_LOOKS = 256
"""At the clock, where there is a deadline."""


class FileBatches:
    """The batches of one open file; iterate it once.

    Raises, while it is iterated:
        FormatError: damage, with file and position; what comes before it was handed out.
        ReadFailedError: it cannot be read.
        DeadlinePassedError: the deadline has passed.

    Attributes:
        tail: what follows the last whole batch, once the iteration has ended.
    """

    def __init__(
        self,
        source: OpenBytes,
        path: str,
        records: bool,
        from_offset: int = 0,
        deadline: float | None = None,
        *,
        start_bytes: int = 0,
        unknown: UnknownContentsCounter | None = None,
    ) -> None:
        """The batches of a file.

        Args:
            source: it.
            path: of it, for messages.
            records: else batches come without their records; control batches have them all the same.
            from_offset: batches below come without theirs, too.
            deadline: no record is decoded once ``time.monotonic()`` is past it; None for none.
            start_bytes: where the first one begins.
            unknown: gets what this version does not know of the records that are decoded.
        """
        self._source = source
        self._path = path
        self._records = records
        self._from_offset = from_offset
        self._deadline = deadline
        self._start_bytes = start_bytes
        self._unknown = UnknownContentsCounter() if unknown is None else unknown
        self.tail: Tail | None = None

    def __iter__(self) -> Iterator[MetadataBatch]:
        reader = HeaderReader(self._source, check_crc=True, read_markers=False, start_bytes=self._start_bytes)
        for block in reader:
            bad = int(block.bad_crc[0]) if len(block.bad_crc) else None
            columns = zip(block.position_bytes.tolist(), *(block.column(name).tolist() for name in HEADER_COLUMNS), strict=True)
            for row, (position, *fields) in enumerate(columns):
                header = BatchHeader(*fields)
                if row == bad:
                    raise BadChecksumError("batch", file=self._path, position=position, expected="its checksum", found="another")
                if header.record_count != header.last_offset_delta + 1:
                    what = "count of records of a batch of the metadata log"
                    expected = header.last_offset_delta + 1
                    raise BadValueError(what, file=self._path, position=position, expected=expected, found=header.record_count)
                is_wanted = (
                    self._records or header.is_control
                ) and header.base_offset + header.last_offset_delta >= self._from_offset
                yield self._batch(header, position, records=is_wanted)
        self.tail = reader.tail

    def _batch(self, header: BatchHeader, position: int, *, records: bool) -> MetadataBatch:
        return MetadataBatch(
            base_offset=header.base_offset,
            last_offset=header.base_offset + header.last_offset_delta,
            leader_epoch=header.partition_leader_epoch,
            append_timestamp_ms=header.max_timestamp,
            is_control=header.is_control,
            position_bytes=position,
            size_bytes=header.size_bytes,
            records=tuple(self._decoded(header, position)) if records else (),
            crc=header.crc,
        )

    def _decoded(self, header: BatchHeader, position: int) -> Iterator[MetadataRecord]:
        path = self._path
        if header.magic != 2:
            what = "magic of a batch of the metadata log"
            raise BadValueError(what, file=path, position=position, expected=2, found=header.magic)
        if header.codec:
            what = "codec of a batch of the metadata log"
            raise BadValueError(what, file=path, position=position, expected=0, found=header.codec)
        if header.size_bytes > limits.METADATA_BATCH_BYTES_MAX:
            expected = f"at most {limits.METADATA_BATCH_BYTES_MAX} bytes"
            raise LimitExceededError("batch", file=path, position=position, expected=expected, found=header.size_bytes)
        data = bytearray(header.size_bytes)
        self._source.read_into(position, memoryview(data))
        try:
            for number, record in enumerate(read_records(header, bytes(data), position=position)):
                if number % RECORDS_BETWEEN_LOOKS == 0:  # a batch may be 8 MiB of records
                    check_deadline(self._deadline, path)
                content = _content(path, header, record, position)
                if isinstance(content, UnreadRecord):
                    self._unknown.add_unread(content.value)
                elif isinstance(content, ClusterMetadataRecord):
                    self._unknown.add_record(content)
                yield MetadataRecord(record.offset, content)
        except FormatError as error:
            raise error.in_file(path) from None


def _content(
    path: str, header: BatchHeader, record: LogRecord, position: int
) -> ClusterMetadataRecord | ControlRecord | UnreadRecord:
    try:
        if header.is_control:
            return parse_control_record(Record(0, 0, record.key, record.value))
        if record.value is None:
            raise BadValueError("value of a metadata record", expected="bytes", found="null")
        return read_cluster_metadata_record(record.value)
    except FormatError as error:
        error.position = position  # of the batch, which can be found; inside of it, nothing is counted from the start of a record
        return UnreadRecord(record.value, error.in_file(path))


def check_tail(tail: Tail | None, path: str) -> None:
    """Raises what keeps the rest of a file from being a batch; nothing where it is whole."""
    if tail is not None and tail.error is not None:
        raise tail.error.in_file(path)
