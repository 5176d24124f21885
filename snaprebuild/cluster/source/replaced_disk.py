"""Whether the disk of a replica is another one than it was given: nothing on the disk itself tells.

A log directory that was formatted anew has a new id. So a broker that registers with that id, and without the one that the partition was
placed in, has lost the partition (KIP-858). It has it again once a leader, which is another broker, has taken it among the replicas in
sync: that is done when it has caught up (``Partition.maybeExpandIsr``), and a log that is empty all the same was never written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.image_model import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from snaprebuild.cluster.metadata.log import MetadataLog

__all__ = ["ReplacedAt", "replaced_partitions"]

ReplacedAt = dict[tuple[bytes, int], int]
"""Offsets of registrations by topic id, 16 bytes, and number of the partition."""

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""In ``PartitionChangeRecord.leader``."""

_TELLS_NOTHING = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def replaced_partitions(log: MetadataLog, node_id: int, directory_id: bytes, last_offset: int) -> ReplacedAt:
    """The partitions of a broker in place of whose log directory another one was registered, and that have not caught up since.

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
            if placed.take(partition, fields) in (_Step.GONE, _Step.CAUGHT_UP):
                replaced.pop(partition, None)
    return replaced


class _Step(Enum):
    """What a record of a partition says of one of its replicas."""

    STAYS = 1
    CAUGHT_UP = 2
    """It joined the replicas in sync, behind a leader that is another broker: it has all that was committed."""
    GONE = 3
    """It is no replica; what comes back later begins anew."""


@dataclass(slots=True)
class _Held:
    """One replica: its place among the others, its log directory, and whether it is in sync, behind which leader."""

    place: int
    directory: bytes
    is_in_sync: bool
    leader: int


class _Placements:
    """In which log directories the cluster has the partitions of one broker (``PartitionRegistration.merge``)."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._held: dict[tuple[bytes, int], _Held] = {}

    def directories(self) -> Iterator[tuple[tuple[bytes, int], bytes]]:
        """Each partition with its directory."""
        return ((partition, held.directory) for partition, held in self._held.items())

    def take(self, partition: tuple[bytes, int], fields: dict[str, Any]) -> _Step:
        """Takes a record of a partition, or of a change of one."""
        replicas, directories = fields["replicas"], fields.get("directories")
        before = self._held.get(partition)
        if replicas is not None:
            if self._node_id not in replicas:
                self._held.pop(partition, None)
                return _Step.GONE
            is_in_sync, leader = (False, NO_LEADER) if before is None else (before.is_in_sync, before.leader)
            self._held[partition] = _Held(replicas.index(self._node_id), MIGRATING_DIRECTORY, is_in_sync, leader)
        held = self._held.get(partition)
        if held is None:
            return _Step.GONE
        if directories and held.place < len(directories):
            held.directory = directories[held.place]
        if fields["leader"] != NO_LEADER_CHANGE:
            held.leader = fields["leader"]
        if fields["isr"] is None:
            return _Step.STAYS
        was_in_sync, held.is_in_sync = before is not None and before.is_in_sync, self._node_id in fields["isr"]
        has_joined = before is not None and held.is_in_sync and not was_in_sync
        return _Step.CAUGHT_UP if has_joined and held.leader not in (NO_LEADER, self._node_id) else _Step.STAYS


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
    with log.walk(start).until() as batches:
        for batch in batches:
            for each in batch.records:
                if each.offset > last_offset:
                    return
                if isinstance(each.content, ClusterMetadataRecord):
                    yield each.offset, each.content
