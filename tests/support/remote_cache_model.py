"""Kafka's cache of remote log metadata, written from its Java source and not from the code under test.

Source: ``RemoteLogMetadataCache``, ``RemoteLogLeaderEpochState``, ``RemotePartitionMetadataStore``, ``RemoteLogSegmentState`` of Kafka
(trunk of October 2024). Every structure is the plainest that has the behaviour: maps that are sorted when they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

STARTED, FINISHED, DELETING, DELETED = range(4)
PARTITION_FINISHED = 2

VALID = {
    (None, STARTED),
    (STARTED, FINISHED),
    (STARTED, DELETING),
    (FINISHED, DELETING),
    (DELETING, DELETED),
    *((state, state) for state in range(4)),
}
"""``RemoteLogSegmentState.isValidTransition``."""


@dataclass
class EpochModel:
    """``RemoteLogLeaderEpochState``: ``offset_to_id``, ``unreferenced``, and the highest offset, None before the first."""

    offset_to_id: dict[int, str] = field(default_factory=dict)
    unreferenced: set[str] = field(default_factory=set)
    highest: int | None = None

    def finished(self, start: int, segment: str, end: int) -> None:
        while self.offset_to_id:
            last = max(self.offset_to_id)
            assert self.highest is not None
            if last < start or self.highest > end:
                break
            self.unreferenced.add(self.offset_to_id.pop(last))
        self.offset_to_id[start] = segment
        self.unreferenced.discard(segment)
        if self.highest is None or end > self.highest:
            self.highest = end

    def deletion_started(self, start: int, segment: str) -> None:
        if self.offset_to_id.get(start) == segment:
            del self.offset_to_id[start]
        self.unreferenced.add(segment)

    def floor_entry(self, offset: int) -> str | None:
        below = [start for start in self.offset_to_id if start <= offset]
        return self.offset_to_id[max(below)] if below else None


@dataclass
class SegmentModel:
    """``RemoteLogSegmentMetadata``: its epochs with the first offset of each."""

    start: int
    end: int
    epochs: Mapping[int, int]
    state: int

    def end_of(self, epoch: int) -> int:
        """``highestOffsetForEpoch``: to before the next higher epoch of the segment."""
        higher = [each for each in self.epochs if each > epoch]
        return self.epochs[min(higher)] - 1 if higher else self.end


@dataclass
class CacheModel:
    """``RemoteLogMetadataCache`` of one partition, and the ids whose deletion was finished, which it forgets."""

    segments: dict[str, SegmentModel] = field(default_factory=dict)
    epochs: dict[int, EpochModel] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    def add(self, segment: str, start: int, end: int, epochs: Mapping[int, int]) -> None:
        """``addCopyInProgressSegment``."""
        existing = self.segments.get(segment)
        if (None if existing is None else existing.state, STARTED) not in VALID:
            return
        for epoch in epochs:
            self.epochs.setdefault(epoch, EpochModel()).unreferenced.add(segment)
        self.segments[segment] = SegmentModel(start, end, epochs, STARTED)

    def update(self, segment: str, state: int) -> None:
        """``updateRemoteLogSegmentMetadata`` while the cache is loaded."""
        existing = self.segments.get(segment)
        if existing is None or (existing.state, state) not in VALID or state == STARTED:
            return
        for epoch, start in existing.epochs.items():
            entry = self.epochs.setdefault(epoch, EpochModel())
            if state == FINISHED:
                entry.finished(start, segment, existing.end_of(epoch))
            elif state == DELETING:
                entry.deletion_started(start, segment)
            else:
                entry.unreferenced.discard(segment)
        existing.state = state
        if state == DELETED:
            del self.segments[segment]
            self.forgotten.add(segment)

    def is_read(self, segment: str) -> bool:
        """Whether ``floorEntry`` leads to a copy in any leader epoch, at any offset."""
        return any(entry.floor_entry(start) == segment for entry in self.epochs.values() for start in entry.offset_to_id)

    def lookup(self, epoch: int, offset: int) -> str | None:
        """``remoteLogSegmentMetadata``."""
        segment = self.epochs[epoch].floor_entry(offset) if epoch in self.epochs else None
        return None if segment is None or offset > self.segments[segment].end_of(epoch) else segment


Partition = tuple[str, str, int]
"""Topic, topic id and number."""


@dataclass
class ClusterModel:
    """``RemotePartitionMetadataStore`` of all partitions."""

    caches: dict[Partition, CacheModel] = field(default_factory=dict)
    deletions: dict[Partition, int] = field(default_factory=dict)
    deleted: set[Partition] = field(default_factory=set)

    def cache(self, partition: Partition) -> CacheModel:
        """That of a partition (``maybeLoadPartition``)."""
        return self.caches.setdefault(partition, CacheModel())

    def delete(self, partition: Partition, state: int) -> None:
        """``handleRemotePartitionDeleteMetadata``."""
        self.deletions[partition] = state
        if state == PARTITION_FINISHED:
            self.caches.pop(partition, None)
            del self.deletions[partition]
            self.deleted.add(partition)

    def names(self, partition: Partition) -> bool:
        """Whether any record names a partition."""
        return partition in self.caches or partition in self.deletions or partition in self.deleted
