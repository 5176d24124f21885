"""Whether replicas joined the in-sync replicas as they may: the invariant of KIP-903, asked of a metadata log change by change.

A replica may join while its broker is registered, unfenced and not shutting down, by a registration that came before. The broker epoch that
a leader sent is not in the log; what is there shows the controller's side of the invariant: that a broker with a new process left the
in-sync replicas as long as others remained, and came back only when it was unfenced. And it shows disks: a registration names the
directories of the broker, and a directory that is gone took with it what the replica had.

Source: KIP-903, KIP-858, KIP-966; ``ReplicationControlManager``, ``ClusterControlManager`` of 4.3.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.metadata.batch import MetadataBatch
from snaprebuild.cluster.metadata.changes import BrokerChanged, PartitionChanged
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)

__all__ = ["IsrEvent", "IsrFault", "IsrHistory", "JoinKind"]

_PartitionKey = tuple[bytes, int]
_ReplicaKey = tuple[bytes, int, int]

_NO_DIRECTORY = {LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY}


class IsrFault(StrEnum):
    """What is wrong, or worth knowing, about a member of the in-sync replicas."""

    UNREGISTERED = "unregistered"
    """It joined, and its broker was not registered."""
    FENCED = "fenced"
    """It joined, and its broker was fenced."""
    SHUTTING_DOWN = "shutting-down"
    """It joined, and its broker was about to go."""
    EPOCH_AHEAD = "epoch-ahead"
    """It joined, and its broker's registration has an epoch behind the offset at which it did."""
    STALE_MEMBER = "stale-member"
    """A new process registered, and the replica stayed, though others were in sync."""
    LAST_MEMBER_NEW_DISK = "last-member-new-disk"
    """A new process registered without the directory of the replica, which stayed as the last one: nobody else has its data."""
    ELECTED_NEW_DISK = "elected-new-disk"
    """It was elected from outside the in-sync replicas, and the directory that it had there is gone: it leads without its data."""
    UNCLEAN_ELECTION = "unclean-election"
    """It was elected uncleanly, and became the only one in sync."""
    NEW_DISK = "new-disk"
    """It joined with another directory than it had left with: as it should, once it had copied everything."""


class JoinKind(StrEnum):
    """How a replica became in sync."""

    CAUGHT_UP = "caught-up"
    """Its leader said that it had caught up."""
    ELECTED = "elected"
    """It was elected, as an eligible leader replica."""
    ELECTED_UNCLEANLY = "elected-uncleanly"
    """It was elected without being one."""
    STAYED = "stayed"
    """It was in sync, and a new process of its broker registered."""


@dataclass(frozen=True, slots=True)
class IsrEvent:
    """A replica that joined, or stayed, against the invariant or on another disk.

    Attributes:
        fault: what it is.
        offset: of the record.
        timestamp_ms: of its batch, since 1970.
        leader_epoch: of its batch: which controller wrote it.
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        broker_id: whose replica it is.
        kind: how it became in sync.
        isr_before: in-sync replicas.
        isr: in-sync replicas from then on.
        broker_epoch: of the registration then; None without one.
        left_offset: of the record by which it had left; None where it had not, or that is not known.
        gone_directories: ids that it had then, and that are not registered any more.
        effect_offset: last one of the batch by which the record took effect: its own, or that with the end of its transaction. The
            controllers commit batches as a whole.
    """

    fault: IsrFault
    offset: int
    timestamp_ms: int
    leader_epoch: int
    topic: str
    topic_id: bytes
    partition: int
    broker_id: int
    kind: JoinKind
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    broker_epoch: int | None
    left_offset: int | None
    gone_directories: tuple[bytes, ...]
    effect_offset: int


@dataclass(frozen=True, slots=True)
class _Left:
    """When a replica left, and with which directories."""

    offset: int | None
    directories: frozenset[bytes]


class IsrHistory:
    """Follows a metadata log, batch by batch.

    Attributes:
        changes: of in-sync replicas, so far.
        joins: replicas that joined, so far.
    """

    def __init__(self, fold: ImageFold) -> None:
        """Begins with an image; it takes the batches itself.

        Args:
            fold: of nothing, or of a checkpoint.
        """
        self._fold = fold
        self._brokers = dict(fold.brokers)
        self._left: dict[_ReplicaKey, _Left] = {}
        # Of each broker, the partitions in whose in-sync replicas it is: a registration asks for these alone.
        self._in_sync: defaultdict[int, set[_PartitionKey]] = defaultdict(set)
        self.changes = self.joins = 0
        for topic in fold.topics.values():
            for number, partition in topic.partitions.items():
                self._note_in_sync((topic.topic_id, number), (), partition.isr)
                for broker_id in set(partition.replicas) - set(partition.isr):
                    directories = self._directories(partition, broker_id, of_broker=False)
                    self._left[topic.topic_id, number, broker_id] = _Left(None, directories)

    def take(self, batch: MetadataBatch) -> Iterator[IsrEvent]:
        """The events of the next batch of the log."""
        new_processes = []
        for change in self._fold.apply_batch(batch):
            if isinstance(change, BrokerChanged):
                if self._take_broker(change):
                    new_processes.append(change)
            elif isinstance(change, PartitionChanged):
                yield from self._take_partition(change, batch)
        # The replicas of a broker leave by records before its registration, in its batch or in earlier ones.
        for registered in new_processes:
            if registered.broker_id in self._brokers:
                yield from self._who_stayed(registered, batch)

    def _take_broker(self, change: BrokerChanged) -> bool:
        """Returns whether a new process of the broker has registered."""
        before, after = change.before, change.after
        if after is None:
            self._brokers.pop(change.broker_id, None)
            return False
        self._brokers[change.broker_id] = after
        return before is not None and before.incarnation_id != after.incarnation_id

    def _who_stayed(self, change: BrokerChanged, batch: MetadataBatch) -> Iterator[IsrEvent]:
        assert change.before is not None
        for topic_id, number in sorted(self._in_sync[change.broker_id]):
            topic = self._fold.topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(number)
            if topic is None or partition is None:
                continue  # a log that creates the same topic twice
            had = self._directories(partition, change.broker_id, of_broker=False) or frozenset(change.before.directories)
            unchanged = PartitionChanged(change.offset, change.record, topic_id, topic.name, number, partition, partition)
            yield from self._events(unchanged, change.broker_id, JoinKind.STAYED, _Left(None, had), batch)

    def _take_partition(self, change: PartitionChanged, batch: MetadataBatch) -> Iterator[IsrEvent]:
        before, after = change.before, change.after
        key = (change.topic_id, change.partition)
        self._note_in_sync(key, () if before is None else before.isr, () if after is None else after.isr)
        if before is None or after is None:
            if before is not None:
                for broker_id in before.replicas:
                    self._left.pop((*key, broker_id), None)
            return
        self.changes += before.isr != after.isr
        for broker_id in before.isr:
            if broker_id not in after.isr:
                self._left[*key, broker_id] = _Left(change.offset, self._directories(before, broker_id))
        for broker_id in after.isr:
            if broker_id not in before.isr:
                self.joins += 1
                left = self._left.pop((*key, broker_id), None)
                yield from self._events(change, broker_id, _kind(before, after, broker_id), left, batch)
        for broker_id in set(before.replicas) - set(after.replicas):
            self._left.pop((*key, broker_id), None)

    def _note_in_sync(self, key: _PartitionKey, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        for broker_id in before:
            self._in_sync[broker_id].discard(key)
        for broker_id in after:
            self._in_sync[broker_id].add(key)

    def _events(
        self, change: PartitionChanged, broker_id: int, kind: JoinKind, left: _Left | None, batch: MetadataBatch
    ) -> Iterator[IsrEvent]:
        """What is wrong, or worth knowing, about a replica that is in sync after a change."""
        assert change.before is not None
        assert change.after is not None
        broker = self._brokers.get(broker_id)
        gone = () if left is None or broker is None else _gone(left.directories, broker)
        for fault in _faults(change, kind, broker, gone):
            yield IsrEvent(
                fault=fault,
                offset=change.offset,
                timestamp_ms=batch.append_timestamp_ms,
                leader_epoch=batch.leader_epoch,
                topic=change.topic,
                topic_id=change.topic_id,
                partition=change.partition,
                broker_id=broker_id,
                kind=kind,
                isr_before=change.before.isr,
                isr=change.after.isr,
                broker_epoch=None if broker is None else broker.epoch,
                left_offset=None if left is None else left.offset,
                gone_directories=gone,
                effect_offset=batch.last_offset,
            )

    def _directories(self, partition: PartitionRegistration, broker_id: int, *, of_broker: bool = True) -> frozenset[bytes]:
        """Where the replica is: its directory, or where that is not known, those of its broker."""
        directory = partition.directory_of(broker_id)
        if directory is not None and directory not in _NO_DIRECTORY:
            return frozenset((directory,))
        broker = self._brokers.get(broker_id)
        return frozenset(broker.directories) if of_broker and broker is not None else frozenset()


def _gone(had: Iterable[bytes], broker: BrokerRegistration) -> tuple[bytes, ...]:
    """Directories that the broker has no more. One that registers none is of before KIP-858: nothing is known."""
    return tuple(sorted(set(had) - set(broker.directories))) if broker.directories else ()


def _kind(before: PartitionRegistration, after: PartitionRegistration, broker_id: int) -> JoinKind:
    if after.leader != broker_id or before.leader == broker_id:
        return JoinKind.CAUGHT_UP
    if after.leader_recovery_state is LeaderRecoveryState.RECOVERING and broker_id not in before.elr:
        return JoinKind.ELECTED_UNCLEANLY
    return JoinKind.ELECTED


def _faults(
    change: PartitionChanged, kind: JoinKind, broker: BrokerRegistration | None, gone: tuple[bytes, ...]
) -> Iterator[IsrFault]:
    if broker is None:
        yield IsrFault.UNREGISTERED
        return
    if kind is JoinKind.STAYED:
        assert change.after is not None
        if len(change.after.isr) > 1:
            yield IsrFault.STALE_MEMBER
        elif gone:
            yield IsrFault.LAST_MEMBER_NEW_DISK
        return
    if broker.fenced:
        yield IsrFault.FENCED
    if broker.in_controlled_shutdown:
        yield IsrFault.SHUTTING_DOWN
    if broker.epoch > change.offset:
        yield IsrFault.EPOCH_AHEAD
    if gone:
        yield IsrFault.NEW_DISK if kind is JoinKind.CAUGHT_UP else IsrFault.ELECTED_NEW_DISK
    elif kind is JoinKind.ELECTED_UNCLEANLY:
        yield IsrFault.UNCLEAN_ELECTION
