"""Whether the disk of a replica is another one than it was given: nothing on the disk itself tells.

A log directory that was formatted anew has a new id. So a broker that registers with that id, and without the one that the partition was
placed in, has lost the partition (KIP-858).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata_image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from snaprebuild.operations.metadata.log import MetadataLog

__all__ = ["ReplacedAt", "replaced_partitions"]

ReplacedAt = dict[tuple[bytes, int], int]
"""Offsets of registrations by topic id, 16 bytes, and number of the partition."""

_TELLS_NOTHING = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def replaced_partitions(log: MetadataLog, node_id: int, directory_id: bytes, last_offset: int) -> ReplacedAt:
    """The partitions of a broker in place of whose log directory another one was registered, with the offset of that registration.

    Reads what the log still holds, once for all partitions: from its oldest whole checkpoint on.

    Args:
        log: the metadata log.
        node_id: of the broker.
        directory_id: of the log directory in which partitions lie today, 16 bytes.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    placed = _Placements(node_id)
    replaced: ReplacedAt = {}
    known: set[bytes] = set()
    for offset, record in _records(log, last_offset):
        fields = record.message
        if record.api_key == MetadataRecordType.REGISTER_BROKER and fields["brokerId"] == node_id:
            online = set(fields["logDirs"] or ())
            if directory_id in online - known:
                for partition, held_in in placed.directories():
                    if held_in not in online and held_in not in _TELLS_NOTHING:
                        replaced.setdefault(partition, offset)
            known |= online
        elif record.api_key in (MetadataRecordType.PARTITION, MetadataRecordType.PARTITION_CHANGE):
            partition = fields["topicId"], fields["partitionId"]
            if not placed.take(partition, fields):
                replaced.pop(partition, None)  # what comes back later begins anew
    return replaced


class _Placements:
    """In which log directories the cluster has the partitions of one broker (``PartitionRegistration.merge``)."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._held: dict[tuple[bytes, int], tuple[int, bytes]] = {}
        """Place of the broker among the replicas, and the directory."""

    def directories(self) -> Iterator[tuple[tuple[bytes, int], bytes]]:
        """Each partition with its directory."""
        return ((partition, held_in) for partition, (_, held_in) in self._held.items())

    def take(self, partition: tuple[bytes, int], fields: dict[str, Any]) -> bool:
        """Takes a record of a partition, or of a change of one; False where the broker is no replica."""
        replicas, directories = fields["replicas"], fields.get("directories")
        if replicas is not None:
            if self._node_id not in replicas:
                self._held.pop(partition, None)
                return False
            self._held[partition] = replicas.index(self._node_id), MIGRATING_DIRECTORY
        held = self._held.get(partition)
        if held is None:
            return False
        if directories and held[0] < len(directories):
            self._held[partition] = held[0], directories[held[0]]
        return True


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
