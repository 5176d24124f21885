"""Whether the disk of a replica is another one than it was given: nothing on the disk itself tells.

A log directory that was formatted anew has a new id. So a broker that registers with that id, and without the one that the partition was
placed in, has lost the partition (KIP-858).
"""

from __future__ import annotations

from collections.abc import Iterator

from formats.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.operations.metadata.log import MetadataLog

__all__ = ["replaced_at"]


def replaced_at(
    log: MetadataLog, topic_id: bytes, partition: int, node_id: int, directory_id: bytes | None, last_offset: int
) -> int | None:
    """The offset at which a broker first registered a log directory in place of the one that held a partition; None where nothing says so.

    Reads what the log still holds: from its oldest whole checkpoint on.

    Args:
        log: the metadata log.
        topic_id: of the partition, 16 bytes.
        partition: its number.
        node_id: of the broker.
        directory_id: of the log directory that it lies in today, 16 bytes; None where it has none.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    if directory_id is None:
        return None
    placed_in: bytes | None = None
    known: set[bytes] = set()
    for offset, record in _records(log, last_offset):
        fields = record.message
        if record.api_key == MetadataRecordType.REGISTER_BROKER and fields["brokerId"] == node_id:
            online = set(fields["logDirs"] or ())
            if directory_id in online - known and placed_in is not None and placed_in not in online:
                return offset
            known |= online
        elif record.api_key == MetadataRecordType.PARTITION and (fields["topicId"], fields["partitionId"]) == (topic_id, partition):
            placed_in = dict(zip(fields["replicas"], fields["directories"] or (), strict=False)).get(node_id)
    return None


def _records(log: MetadataLog, last_offset: int) -> Iterator[tuple[int, ClusterMetadataRecord]]:
    """Of the oldest whole checkpoint, at the offset below which it holds everything, and of the log behind it."""
    start = 0
    first = log.first_base_offset
    for checkpoint in log.checkpoints:
        if checkpoint.end_offset <= last_offset and (first is None or first <= checkpoint.end_offset):
            if first == 0 or log.checkpoint_fault(checkpoint) is not None:
                continue
            start = checkpoint.end_offset
            for batch in log.checkpoint_batches(checkpoint):
                for each in batch.records:
                    if isinstance(each.content, ClusterMetadataRecord):
                        yield start - 1, each.content
            break
    for batch in log.walk(start):
        for each in batch.records:
            if each.offset > last_offset:
                return
            if isinstance(each.content, ClusterMetadataRecord):
                yield each.offset, each.content
