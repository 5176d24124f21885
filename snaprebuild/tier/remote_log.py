"""A partition's segments in remote storage as a broker has them: the fold of ``__remote_log_metadata``.

A copy of a segment has a record before it is written, and another one after it is finished. Each attempt has an id of its own, so that
copies overlap: leader epochs decide which of them serves an offset, in the order in which the copies were finished.

Source: ``RemoteLogMetadataCache``, ``RemoteLogLeaderEpochState``, ``RemotePartitionMetadataStore``,
``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``. These are equal in 3.6 to 4.4, with one exception: a record that does not fit the
records before it. Since 3.7 it is dropped, as here. A broker of 3.6 stops reading the topic (KAFKA-15632).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import (
    METADATA_PARTITIONS,
    DeleteState,
    PartitionDeletion,
    RemoteLogRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
)
from snaprebuild.replay.leader_epochs import end_of_epoch

__all__ = [
    "LogLineage",
    "RemoteLog",
    "RemoteLogs",
    "epoch_end_offset",
    "epoch_end_offsets",
    "epochs_with_records",
    "highest_remote_offset",
]

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED

METADATA_PARTITIONS_TRIED = 1_000

_FOLLOWS: dict[SegmentState | None, tuple[SegmentState, ...]] = {
    None: (STARTED,),
    STARTED: (STARTED, FINISHED, DELETING),
    FINISHED: (FINISHED, DELETING),
    DELETING: (DELETING, DELETED),
    DELETED: (DELETED,),
}


def epoch_end_offset(segment: RemoteSegment, epoch: int) -> int:
    """Last offset of a segment that was written in one of its leader epochs."""
    following = (entry.start_offset - 1 for entry in segment.leader_epochs if entry.epoch > epoch)
    return next(following, segment.end_offset)


def epoch_end_offsets(segment: RemoteSegment) -> dict[int, int]:
    """``epoch_end_offset`` of each of its leader epochs: one after the other they would take the square of their number."""
    # The first entry above an epoch is above all before it, too.
    higher: list[LeaderEpochEntry] = []
    for entry in segment.leader_epochs:
        if not higher or entry.epoch > higher[-1].epoch:
            higher.append(entry)
    ends = {}
    for entry in segment.leader_epochs:
        place = bisect.bisect_right(higher, entry.epoch, key=lambda each: each.epoch)
        ends[entry.epoch] = higher[place].start_offset - 1 if place < len(higher) else segment.end_offset
    return ends


@dataclass(slots=True)
class _Epoch:
    """The copies that hold records of one leader epoch.

    Attributes:
        starts: first offset of this epoch in each segment that serves reads, ascending.
        ids: of these segments, by first offset.
        unreferenced: ids of the others, in the order in which they came.
        highest: last offset of this epoch that was ever finished; it never goes down.
    """

    starts: list[int] = field(default_factory=list)
    ids: dict[int, bytes] = field(default_factory=dict)
    unreferenced: dict[bytes, None] = field(default_factory=dict)
    highest: int | None = None

    def finish(self, start: int, segment_id: bytes, end: int) -> None:
        while self.starts and self.starts[-1] >= start and self.highest is not None and self.highest <= end:
            self.unreferenced[self.ids.pop(self.starts.pop())] = None
        if start not in self.ids:
            bisect.insort(self.starts, start)
        self.ids[start] = segment_id
        self.unreferenced.pop(segment_id, None)
        self.highest = end if self.highest is None else max(self.highest, end)

    def begin_deletion(self, start: int, segment_id: bytes) -> None:
        if self.ids.get(start) == segment_id:
            del self.ids[start]
            del self.starts[bisect.bisect_left(self.starts, start)]
        self.unreferenced[segment_id] = None

    def at(self, offset: int) -> bytes | None:
        place = bisect.bisect_right(self.starts, offset)
        return self.ids[self.starts[place - 1]] if place else None


@dataclass(slots=True)
class RemoteLog:
    """The copies of one partition's segments, as a broker holds them (``RemoteLogMetadataCache``).

    Attributes:
        segments: every copy that is not known to be deleted, by id, in its latest state.
        dropped: count of records that did not fit those before: a broker logs them and continues.
        deleted: ids of copies whose deletion is recorded as finished.
    """

    segments: dict[bytes, RemoteSegment] = field(default_factory=dict)
    dropped: int = 0
    deleted: set[bytes] = field(default_factory=set)
    _epochs: dict[int, _Epoch] = field(default_factory=dict)

    def take(self, record: RemoteSegment | RemoteSegmentUpdate) -> None:
        """Takes the next record of this partition."""
        if isinstance(record, RemoteSegment):
            self._announce(record)
            return
        current = self.segments.get(record.id.id)
        if current is None or record.state is STARTED or record.state not in _FOLLOWS[current.state]:
            self.dropped += 1
            return
        segment = replace(
            current,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=record.custom_metadata,
            state=record.state,
        )
        ends = epoch_end_offsets(segment)
        for entry in segment.leader_epochs:
            epoch = self._epochs.setdefault(entry.epoch, _Epoch())
            if record.state is FINISHED:
                epoch.finish(entry.start_offset, segment.segment_id, ends[entry.epoch])
            elif record.state is DELETING:
                epoch.begin_deletion(entry.start_offset, segment.segment_id)
            else:
                epoch.unreferenced.pop(segment.segment_id, None)
        if record.state is DELETED:
            del self.segments[segment.segment_id]
            self.deleted.add(segment.segment_id)
        else:
            self.segments[segment.segment_id] = segment

    def _announce(self, segment: RemoteSegment) -> None:
        current = self.segments.get(segment.segment_id)
        current_state = None if current is None else current.state
        if segment.state is not STARTED or STARTED not in _FOLLOWS[current_state]:
            self.dropped += 1
            return
        for entry in segment.leader_epochs:
            self._epochs.setdefault(entry.epoch, _Epoch()).unreferenced[segment.segment_id] = None
        self.segments[segment.segment_id] = segment

    def forget(self, segment_id: bytes) -> None:
        """Forgets a copy, as a tombstone of its key does in a compacted metadata log (KIP-1266)."""
        segment = self.segments.pop(segment_id, None)
        self.deleted.add(segment_id)
        if segment is None:
            return
        for entry in segment.leader_epochs:
            epoch = self._epochs[entry.epoch]
            epoch.begin_deletion(entry.start_offset, segment_id)
            del epoch.unreferenced[segment_id]

    def lookup(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The copy that a broker reads an offset of a leader epoch from; None where remote storage does not hold it."""
        state = self._epochs.get(epoch)
        segment_id = None if state is None else state.at(offset)
        segment = None if segment_id is None else self.segments.get(segment_id)
        if segment is None or offset > epoch_end_offset(segment, epoch):
            return None
        return segment

    def listed(self, epoch: int) -> Iterator[RemoteSegment]:
        """Every copy that holds records of an epoch, whatever its state, by start offset (``listRemoteLogSegments``)."""
        state = self._epochs.get(epoch)
        if state is None:
            return
        segments = [self.segments[state.ids[start]] for start in state.starts]
        segments += [self.segments[segment_id] for segment_id in state.unreferenced]
        yield from sorted(segments, key=lambda segment: segment.start_offset)

    def is_referenced(self, segment: RemoteSegment) -> bool:
        """Whether reads of any epoch are served by it."""
        epochs = (self._epochs[entry.epoch] for entry in segment.leader_epochs)
        return any(
            state.ids.get(entry.start_offset) == segment.segment_id
            for state, entry in zip(epochs, segment.leader_epochs, strict=True)
        )

    def is_live(self, segment_id: bytes) -> bool:
        """Whether brokers read a copy: not one without a record, or one that was superseded or is being deleted."""
        segment = self.segments.get(segment_id)
        return segment is not None and segment.state is SegmentState.COPY_SEGMENT_FINISHED and self.is_referenced(segment)

    @property
    def epochs(self) -> list[int]:
        """Leader epochs of which there are, or were, copies, ascending."""
        return sorted(self._epochs)

    def highest_offset(self, epoch: int) -> int | None:
        """Last offset of an epoch that was ever copied; None where none was."""
        state = self._epochs.get(epoch)
        return None if state is None else state.highest


@dataclass(slots=True)
class RemoteLogs:
    """All partitions of the metadata topic.

    Attributes:
        partitions: by topic id, name and number.
        deletions: of partitions that are being deleted.
        dropped: count of records that fit no partition: those of a snapshot of the metadata, which the topic never holds, and tombstones
            of unknown keys.
        deleted: partitions whose deletion is recorded as finished.
        read_numbers: of the metadata partitions that were read.
        begins_at: log start offsets of the metadata partitions whose first records are gone, by their numbers.
        read_from: the metadata partition that holds the records of a partition.
        copied_ms: latest event time of the records of copies, not of deletions, by topic id: ms since 1970.
        cluster_id: of the cluster whose records these are; None if no ``meta.properties`` has it.
        other_clusters: the records of other clusters whose directories were given, by cluster id.
        is_complete: nothing that was given is unreadable, and no first records are gone.
    """

    partitions: dict[TopicIdPartition, RemoteLog] = field(default_factory=dict)
    deletions: dict[TopicIdPartition, PartitionDeletion] = field(default_factory=dict)
    dropped: int = 0
    deleted: set[TopicIdPartition] = field(default_factory=set)
    read_numbers: set[int] = field(default_factory=set)
    begins_at: dict[int, int] = field(default_factory=dict)
    read_from: dict[TopicIdPartition, int] = field(default_factory=dict)
    copied_ms: dict[bytes, int] = field(default_factory=dict)
    cluster_id: str | None = None
    other_clusters: dict[str, RemoteLogs] = field(default_factory=dict)
    is_complete: bool = True
    _count: int | None = None
    _keys: dict[bytes, RemoteSegmentId] = field(default_factory=dict)

    def take(self, record: RemoteLogRecord) -> None:
        """Takes the next record, in the order of the metadata partition that holds it."""
        if isinstance(record, PartitionDeletion):
            self.deletions[record.topic_id_partition] = record
            if record.state is DeleteState.DELETE_PARTITION_FINISHED:
                self.partitions.pop(record.topic_id_partition, None)
                del self.deletions[record.topic_id_partition]
                self.deleted.add(record.topic_id_partition)
            return
        if record.id is None:
            self.dropped += 1
            return
        if record.state in (STARTED, FINISHED):
            topic_id = record.id.topic_id_partition.topic_id
            self.copied_ms[topic_id] = max(record.event_timestamp_ms, self.copied_ms.get(topic_id, -1))
        self.partitions.setdefault(record.id.topic_id_partition, RemoteLog()).take(record)

    def take_keyed(self, key: bytes | None, record: RemoteLogRecord | None) -> None:
        """Takes the next record with its key, which is null up to Kafka 4.4; a null value removes what has that key (KIP-1266)."""
        if record is not None:
            self.take(record)
            if key is not None and not isinstance(record, PartitionDeletion) and record.id is not None:
                self._keys[key] = record.id
            return
        segment = None if key is None else self._keys.pop(key, None)
        log = None if segment is None else self.partitions.get(segment.topic_id_partition)
        if segment is None or log is None:
            self.dropped += 1
        else:
            log.forget(segment.id)

    def names(self, partition: TopicIdPartition) -> bool:
        """Whether a record names a partition."""
        return partition in self.partitions or partition in self.deletions or partition in self.deleted

    def cluster_naming(self, partition: TopicIdPartition) -> str | None:
        """The id of another cluster whose records name a partition; None if no other cluster does."""
        return next((cluster_id for cluster_id, logs in self.other_clusters.items() if logs.names(partition)), None)

    def cluster_that_may_name(self, partition: TopicIdPartition) -> str | None:
        """The id of another cluster whose records that were not read may name a partition; None if there is none, or this one has it."""
        if self.names(partition):
            return None
        for cluster_id, logs in self.other_clusters.items():
            if not logs.is_complete or logs.not_given(partition) is not None:
                return cluster_id
        return None

    def has_read(self, number: int, first_offset: int) -> None:
        """Notes that a metadata partition was taken whole, or as far as it can be read.

        Args:
            number: of the metadata partition.
            first_offset: its log start offset.
        """
        self.read_numbers.add(number)
        if first_offset > 0:
            self.begins_at[number] = first_offset
        self._count = None
        for each in (*self.partitions, *self.deletions):
            self.read_from.setdefault(each, number)

    def metadata_partitions(self) -> int:
        """How many partitions the metadata topic has: no record of the topic has that number.

        It is 50, the default of ``remote.log.metadata.topic.num.partitions``, if the records are in the partitions that this default gives.
        Else it is the number of the given partitions, if these are all up to one. Else it is the least number that fits.
        """
        if self._count is not None:
            return self._count
        least = max(self.read_numbers, default=-1) + 1
        choices = (METADATA_PARTITIONS, least, *range(least, METADATA_PARTITIONS_TRIED))
        fits = (count for count in choices if count >= least and self._fits(count))
        self._count = next(fits, METADATA_PARTITIONS)
        return self._count

    def set_metadata_partitions(self, count: int) -> None:
        """Notes how many partitions the metadata topic has, where the cluster or an operator shows it."""
        self._count = count

    def trust_metadata_partitions(self, count: int) -> None:
        """Notes how many partitions the metadata topic has by its cluster, unless records are where another number puts them."""
        if count >= len(self.read_numbers) and self._fits(count):
            self._count = count

    def _fits(self, count: int) -> bool:
        return all(metadata_partition(each, count) == number for each, number in self.read_from.items())

    def not_given(self, partition: TopicIdPartition) -> int | None:
        """The metadata partition that would hold the records of a partition, if it was not given; else None."""
        number = metadata_partition(partition, self.metadata_partitions())
        return None if number in self.read_numbers else number


class LogLineage:
    """The leader epochs of a log, which decide whether a copy belongs to it, and not to a log that was truncated away."""

    def __init__(self, epochs: Sequence[LeaderEpochEntry], log_end_offset: int) -> None:
        """Takes the leader epochs of the log, ascending, not empty, and its log end offset."""
        self._starts = epochs_with_records(epochs)
        self._ascending = sorted(self._starts)
        self._log_end_offset = log_end_offset

    def holds(self, segment: RemoteSegment) -> bool:
        """Whether a copy belongs to the log (``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``)."""
        starts = epochs_with_records(segment.leader_epochs)
        if not starts:  # no copy that Kafka takes (``RemoteLogSegmentMetadata``)
            return False
        ascending = sorted(starts)
        least = self._ascending[0]
        last = ascending[-1]
        first = min((epoch for epoch in starts if epoch >= least), default=None)
        if not least <= last <= self._ascending[-1] or first is None:
            return False
        for epoch, start in starts.items():
            if epoch < first:
                continue
            if epoch not in self._starts or (epoch == first and epoch > least and start < self._starts[epoch]):
                return False
            following = _following(self._starts, self._ascending, epoch)
            if epoch != last and following != _following(starts, ascending, epoch):
                return False
            if epoch == last and following is not None and segment.end_offset >= following[1]:
                return False
        return segment.end_offset < self._log_end_offset


def highest_remote_offset(log: RemoteLog, epochs: Sequence[LeaderEpochEntry], log_end: int) -> int:
    """The last offset that a leader takes to be in remote storage (``RemoteLogManager.findHighestRemoteOffset``); -1 for none.

    Args:
        log: what is known of remote storage.
        epochs: of the leader's log.
        log_end: of it.
    """
    for entry in reversed(epochs):
        highest = log.highest_offset(entry.epoch)
        if highest is not None:
            end = end_of_epoch(epochs, entry.epoch, log_end)
            assert end is not None, "an epoch of the log itself"
            return min(highest, end.end_offset - 1)
    return -1


def epochs_with_records(epochs: Sequence[LeaderEpochEntry]) -> dict[int, int]:
    """Without those in which nothing was written: of entries of one start offset the last stays."""
    entries = [entry for entry, after in pairwise(epochs) if entry.start_offset != after.start_offset]
    return {entry.epoch: entry.start_offset for entry in (*entries, *epochs[-1:])}


def _following(epochs: dict[int, int], ascending: list[int], epoch: int) -> tuple[int, int] | None:
    place = bisect.bisect_right(ascending, epoch)
    return (ascending[place], epochs[ascending[place]]) if place < len(ascending) else None
