"""The two readers of batch headers with one interface, so that every test of the grammar runs through both.

``reference`` is the grammar, one batch after the other; the markers are read by the grammar too. ``fast`` is ``HeaderReader``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from formats import limits
from formats.compression import decompress
from formats.errors import BadLengthError, BadValueError, FormatError, TruncatedError
from formats.log.batch_headers import BytesSegment, HeaderReader, SegmentBytes, Tail, TailKind
from formats.log.batch_walk import LOOK_BYTES
from formats.log.control_record import EndTransactionMarker, parse_control_key, parse_control_record
from formats.log.record_batch import LENGTH_MIN, LOG_OVERHEAD_BYTES, BatchHeader, parse_batch_header, parse_record


@dataclass(frozen=True)
class MarkerRow:
    """A transaction marker: the index of its batch, and what its record says."""

    row: int
    is_commit: bool
    coordinator_epoch: int
    timestamp: int


@dataclass(frozen=True, eq=False)
class Reading:
    """Results of a reader. Two are equal when they found the same and ended in the same way."""

    headers: list[BatchHeader]
    positions: list[int]
    markers: list[MarkerRow]
    tail: Tail
    bad_crc: list[int] = field(default_factory=list)
    """Positions of the batches whose checksum differs; of the fast reader, and only where it was asked to look."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reading):
            return NotImplemented
        mine, theirs = ((it.headers, it.positions, it.markers, it.end) for it in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    @property
    def end(self) -> tuple[TailKind, int, type[FormatError] | None]:
        """How the batches end, where, and the kind of error there."""
        error = self.tail.error
        return self.tail.kind, self.tail.position_bytes, None if error is None else type(error)


def read_fast(source: SegmentBytes, **options: object) -> Reading:
    """By ``HeaderReader``, whose blocks are put together again."""
    return read_with(HeaderReader(source, **options))  # type: ignore[arg-type]


def read_with(reader: HeaderReader) -> Reading:
    """All that ``reader`` yields."""
    reading = Reading([], [], [], Tail(TailKind.CLEAN, 0))
    for block in reader:
        columns = (block.control, block.marker_type, block.marker_coordinator_epoch, block.marker_timestamp)
        for row, type_id, epoch, timestamp in zip(*(column.tolist() for column in columns), strict=True):
            reading.markers.append(MarkerRow(len(reading.headers) + row, type_id == 1, epoch, timestamp))
        reading.bad_crc.extend(block.position_bytes[block.bad_crc].tolist())
        reading.headers.extend(block.headers())
        reading.positions.extend(block.position_bytes.tolist())
    assert reader.tail is not None
    return replace(reading, tail=reader.tail)


def read_reference(source: SegmentBytes) -> Reading:
    """By the grammar. A marker on which a broker throws ends the batches, as in the fast reader."""
    headers, positions, tail = reference_headers(source)
    markers = []
    for row, (header, position) in enumerate(zip(headers, positions, strict=True)):
        if not header.is_control or header.producer_id < 0 or header.record_count == 0:
            continue
        batch = bytearray(header.size_bytes)
        source.read_into(position, memoryview(batch))
        try:
            markers.append(_marker_row(row, header, bytes(batch)))
        except FormatError as error:
            return Reading(headers[:row], positions[:row], markers, Tail(TailKind.CORRUPT, position, error.shifted_by(position)))
    return Reading(headers, positions, markers, tail)


def _marker_row(row: int, header: BatchHeader, batch: bytes) -> MarkerRow:
    if header.record_count < 0:
        raise BadLengthError("count of records")
    payload = decompress(header.codec, batch[61:], bytes_max=limits.CONTROL_BATCH_BYTES_MAX)
    record, size = parse_record(payload, position=61)
    if header.record_count == 1 and size != len(payload):
        raise BadLengthError("length of a batch")
    if parse_control_key(record, position=61)[1] not in (0, 1):
        raise BadValueError("type of a control record")
    control = parse_control_record(record, position=61)
    assert isinstance(control.value, EndTransactionMarker)
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + record.timestamp_delta
    return MarkerRow(row, control.type_id == 1, control.value.coordinator_epoch, timestamp)


HEADER_ENGINES: dict[str, Callable[[SegmentBytes], Reading]] = {"reference": read_reference, "fast": read_fast}


def segment(data: bytes) -> BytesSegment:
    """Bytes as a segment."""
    return BytesSegment(bytes(data))


def hints(positions: list[int]) -> np.ndarray:
    """Positions as the fast reader takes them."""
    return np.asarray(positions, dtype=np.int64)


def _short(source: SegmentBytes, position: int) -> TruncatedError:
    found = f"{source.size_bytes - position} bytes"
    return TruncatedError("batch", file=source.name, position=position, expected="a whole batch", found=found)


def reference_headers(source: SegmentBytes) -> tuple[list[BatchHeader], list[int], Tail]:
    """Reads headers, positions and tail by the grammar, batch by batch: the reference for ``HeaderReader``."""
    headers: list[BatchHeader] = []
    positions: list[int] = []
    position = 0
    buffer = memoryview(bytearray(limits.BATCH_HEADER_BYTES_MAX))
    while position < source.size_bytes:
        count = source.read_into(position, buffer)
        left = source.size_bytes - position
        length = int.from_bytes(buffer[8:12], "big", signed=True)
        # As FileLogInputStream.nextBatch does: a batch that is not whole ends the file silently, whatever its magic is.
        if left < LOOK_BYTES or (length >= LENGTH_MIN[0] and LOG_OVERHEAD_BYTES + length > left):
            return headers, positions, _reference_tail(source, position, _short(source, position))
        try:
            header = parse_batch_header(bytes(buffer[:count]), file=source.name, position=position)
        except FormatError as error:
            return headers, positions, _reference_tail(source, position, error)
        headers.append(header)
        positions.append(position)
        position += header.size_bytes
    return headers, positions, Tail(TailKind.CLEAN, position)


def _reference_tail(source: SegmentBytes, position: int, error: FormatError) -> Tail:
    rest = bytearray(source.size_bytes - position)
    source.read_into(position, memoryview(rest))
    if not any(rest):
        return Tail(TailKind.ZERO_FILLED, position, error)
    return Tail(TailKind.TORN if isinstance(error, TruncatedError) else TailKind.CORRUPT, position, error)
