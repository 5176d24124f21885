"""Whether a segment may go to remote storage as its indexes have it, and whether all that it holds is settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader, TailKind
from formats.log.control_record import ControlRecordType
from formats.partition.file_names import segment_file_name
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.producer_snapshot import read_entries
from formats.partition.time_index import read_time_index
from formats.partition.transaction_index import read_transaction_index
from snaprebuild.errors import UploadRefusalReason, UploadRefusedError
from snaprebuild.findings import pluralize
from snaprebuild.snapshots.engine.index_check import IndexCheck, LogWalk, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.store import OpenBytes

__all__ = ["SegmentIndexes", "check_indexes", "check_stable"]

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The indexes of a segment, as files."""

    base_offset: int
    next_base_offset: int
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None


def check_indexes(log: OpenBytes, indexes: SegmentIndexes, directory: str) -> int:
    """Makes sure that the batches of a segment are whole and that every index entry points into them; gives its greatest timestamp.

    Args:
        log: the segment.
        indexes: of it.
        directory: for messages.

    Returns:
        Greatest timestamp of all batches, ms; -1 for none.

    Raises:
        UploadRefusedError: a batch is not whole or has another checksum, or an index contradicts the log.
    """
    base = indexes.base_offset
    stem = f"{directory}/{segment_file_name(base).removesuffix('.log')}"
    offsets = _parsed(read_offset_index, indexes.offset_index, f"{stem}.index")
    times = _parsed(read_time_index, indexes.time_index, f"{stem}.timeindex")
    aborted = _parsed(read_transaction_index, indexes.transaction_index or b"", f"{stem}.txnindex")
    position = offsets.column("position")
    checks: dict[str, OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck] = {
        f"{stem}.index": OffsetIndexCheck(offsets.column("relative_offset") + base, position),
        f"{stem}.timeindex": TimeIndexCheck(times.column("relative_offset") + base, times.column("timestamp")),
        f"{stem}.txnindex": TransactionIndexCheck(aborted.column("last_offset"), aborted.column("producer_id")),
    }
    walk = LogWalk(log, ("max_timestamp", "magic", "producer_id"), read_markers=True, check_crc=True, hint=position)
    max_timestamp = -1
    begin = indexes.next_base_offset
    for block, first, last in walk:
        begin = min(begin, int(first[0]))
        if len(block.bad_crc):
            message = f"the checksum of the batch at byte {block.position_bytes[block.bad_crc[0]]} differs"
            raise UploadRefusedError(message, path=f"{stem}.log", reason=UploadRefusalReason.DAMAGED_SEGMENT)
        max_timestamp = max(max_timestamp, int(block.column("max_timestamp").max()))
        for check in checks.values():
            check.add(block, first, last)
    if walk.fault is not None or walk.tail is not TailKind.CLEAN:
        message = walk.fault or f"ends with bytes that are not a whole batch, at byte {walk.end_position}"
        raise UploadRefusedError(message, path=f"{stem}.log", reason=UploadRefusalReason.DAMAGED_SEGMENT)
    if begin < base or walk.end_offset > indexes.next_base_offset:
        message = f"holds offsets from {begin} to {walk.end_offset - 1}, and should hold {base} to {indexes.next_base_offset - 1}"
        raise UploadRefusedError(message, path=f"{stem}.log", reason=UploadRefusalReason.DAMAGED_SEGMENT)
    for path, check in checks.items():
        _agrees(check.result(walk), path)
    return max_timestamp


def _parsed(read: Callable[[bytes], Index[E]], data: bytes, path: str) -> Index[E]:
    try:
        index = read(data)
    except FormatError as error:
        raise UploadRefusedError(error.message, path=path, reason=UploadRefusalReason.INDEX_CONTRADICTS_LOG) from error
    _not_padded(index.preallocated_bytes, path)
    return index


def _not_padded(padding_bytes: int, path: str) -> None:
    if padding_bytes:
        message = (
            f"ends with {padding_bytes} bytes of zeros, as of a segment that is not closed; a broker trims it when it loads the log"
        )
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.INDEX_CONTRADICTS_LOG)


def _agrees(check: IndexCheck, path: str) -> None:
    if check.unchecked_reason is not None:
        message = f"cannot be compared with its segment: {check.unchecked_reason}"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.INDEX_CONTRADICTS_LOG)
    wrong = np.flatnonzero(~check.agrees)
    if len(wrong):
        message = f"{pluralize(len(wrong), 'entry', 'entries')} contradict the segment, the first is entry {wrong[0]}"
        message += "; deleted while the broker is stopped, it is made anew when the broker starts"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.INDEX_CONTRADICTS_LOG)


def check_stable(
    partition: PartitionSource, number: int, snapshot: EnsuredSnapshot, high_watermark: int, deadline: float | None
) -> None:
    """Makes sure that the segment ends below the last stable offset.

    A transaction that is open at the end of the segment holds it back until its marker is replicated. Its marker must therefore be in a
    later segment, below the high watermark.

    Args:
        partition: it is of.
        number: of the segment.
        snapshot: at its end.
        high_watermark: of the partition.
        deadline: nothing is read once ``time.monotonic()`` is past it; None for none.

    Raises:
        UploadRefusedError: it does not.
    """
    entries = read_entries(snapshot.data)
    open_there = np.flatnonzero(entries["current_txn_first_offset"] >= 0)
    first_of = {int(entries["producer_id"][row]): int(entries["current_txn_first_offset"][row]) for row in open_there}
    for segment in partition.directory.segments[number + 1 :]:
        if not first_of or segment.base_offset >= high_watermark:
            break
        _close(partition, segment, first_of, high_watermark, deadline)
    if first_of:
        producer_id = min(first_of, key=lambda each: first_of[each])
        message = (
            f"the last stable offset is {first_of[producer_id]}, where producer {producer_id} began a transaction that is still open "
            f"or whose marker is not replicated: no broker uploads segments above it"
        )
        path = partition.directory.file_path(partition.directory.segments[number].log.name)
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.ABOVE_LAST_STABLE_OFFSET)


def _close(
    partition: PartitionSource, segment: SegmentFiles, first_of: dict[int, int], high_watermark: int, deadline: float | None
) -> None:
    """Removes the producers whose marker is in a segment."""
    with partition.directory.open_segment(segment, deadline) as source:
        for block in HeaderReader(source, columns=("base_offset", "producer_id"), read_markers=True):
            ends = np.isin(block.marker_type, (ControlRecordType.ABORT, ControlRecordType.COMMIT))
            rows = block.control[ends & (block.column("base_offset")[block.control] < high_watermark)]
            for producer_id in block.column("producer_id")[rows].tolist():
                first_of.pop(producer_id, None)
            if not first_of or block.column("base_offset")[-1] >= high_watermark:
                return
