"""The files of a partition of ``__remote_log_metadata`` with given records, as a broker leaves them after a clean stop.

Each record has a null key, as up to Kafka 4.4. Batches are those of a producer without an idempotent id. They
are of leader epoch 0, which is at or below that of every leader, so that replicas with the same files agree.

Source: ``ProducerManager``, ``LogSegment.append``, ``OffsetIndex``, ``TimeIndex``, ``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from formats.log.record_batch import BatchHeader, Record, build_record, build_record_batch
from formats.partition.checkpoint_file import LeaderEpochEntry, write_leader_epoch_checkpoint
from formats.partition.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    offset_index_file_name,
    segment_file_name,
    snapshot_file_name,
    time_index_file_name,
)
from formats.partition.offset_index import OFFSET_INDEX_ENTRY
from formats.partition.partition_metadata import PartitionMetadata, write_partition_metadata
from formats.partition.producer_snapshot import ENTRY_DTYPE, write_entries
from formats.partition.time_index import TIME_INDEX_ENTRY

__all__ = ["partition_files"]

BATCH_BYTES = 16_384
"""``batch.size`` of a producer."""

SEGMENT_BYTES = 64 << 20
"""Less than any usual ``segment.bytes``: a broker deletes and compacts whole segments."""

INDEX_INTERVAL_BYTES = 4096
"""``index.interval.bytes`` of brokers."""

LEADER_EPOCH = 0

NO_PRODUCER = -1


@dataclass(slots=True)
class _Segment:
    """A segment that grows.

    Attributes:
        base_offset: of its first batch.
        timestamp_ms: of all its records.
        log: bytes of ``.log``.
        offset_index: bytes of ``.index``.
        time_index: bytes of ``.timeindex``.
        next_offset: offset after its last record.
        unindexed_bytes: of the batches after the last entry of the offset index.
    """

    base_offset: int
    timestamp_ms: int
    log: bytearray = field(default_factory=bytearray)
    offset_index: bytearray = field(default_factory=bytearray)
    time_index: bytearray = field(default_factory=bytearray)
    next_offset: int = 0
    unindexed_bytes: int = 0

    def append(self, records: Sequence[Record]) -> None:
        """Appends a batch that begins at ``next_offset``."""
        first_offset = self.next_offset
        batch = _batch(first_offset, records, self.timestamp_ms)
        last_offset = first_offset + len(records) - 1
        if self.unindexed_bytes > INDEX_INTERVAL_BYTES:
            entry = {"relative_offset": last_offset - self.base_offset, "position": len(self.log)}
            self.offset_index += OFFSET_INDEX_ENTRY.build(entry)
            self.unindexed_bytes = 0
        if not self.time_index:  # all records have one timestamp, so that the first entry is the only one
            relative_offset = last_offset - self.base_offset
            self.time_index += TIME_INDEX_ENTRY.build({"timestamp": self.timestamp_ms, "relative_offset": relative_offset})
        self.log += batch
        self.unindexed_bytes += len(batch)
        self.next_offset = last_offset + 1


def partition_files(values: Iterable[bytes], timestamp_ms: int, topic_id: bytes) -> dict[str, bytes]:
    """The files of a partition by name.

    Args:
        values: of its records, in order; none for an empty log.
        timestamp_ms: of all records, ms since 1970.
        topic_id: of ``__remote_log_metadata``, 16 bytes.
    """
    segments = [_Segment(0, timestamp_ms)]
    for records in _batches(values):
        if len(segments[-1].log) >= SEGMENT_BYTES:
            base_offset = segments[-1].next_offset
            segments.append(_Segment(base_offset, timestamp_ms, next_offset=base_offset))
        segments[-1].append(records)
    end_offset = segments[-1].next_offset
    files: dict[str, bytes] = {}
    for segment in segments:
        files[segment_file_name(segment.base_offset)] = bytes(segment.log)
        files[offset_index_file_name(segment.base_offset)] = bytes(segment.offset_index)
        files[time_index_file_name(segment.base_offset)] = bytes(segment.time_index)
    no_producers = write_entries(np.empty(0, ENTRY_DTYPE))
    for offset in (*(segment.base_offset for segment in segments[1:]), end_offset):
        if offset > 0:
            files[snapshot_file_name(offset)] = no_producers
    epochs = [LeaderEpochEntry(LEADER_EPOCH, 0)] if end_offset else []
    files[LEADER_EPOCH_CHECKPOINT] = write_leader_epoch_checkpoint(epochs)
    files[PARTITION_METADATA] = write_partition_metadata(PartitionMetadata(0, topic_id))
    return files


def _batches(values: Iterable[bytes]) -> Iterator[list[Record]]:
    """Records of at most ``BATCH_BYTES`` together, or one."""
    records: list[Record] = []
    size_bytes = 0
    for value in values:
        record = Record(timestamp_delta=0, offset_delta=len(records), key=None, value=value)
        record_bytes = len(build_record(record))
        if records and size_bytes + record_bytes > BATCH_BYTES:
            yield records
            record = Record(timestamp_delta=0, offset_delta=0, key=None, value=value)
            records = []
            size_bytes = 0
        records.append(record)
        size_bytes += record_bytes
    if records:
        yield records


def _batch(base_offset: int, records: Sequence[Record], timestamp_ms: int) -> bytes:
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=LEADER_EPOCH,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(records),
    )
    return build_record_batch(header, records)
