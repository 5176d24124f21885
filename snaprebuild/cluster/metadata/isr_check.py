"""``cluster isr``: whether replicas joined the in-sync replicas as they may (KIP-903), for each change in a metadata log.

A replica may join while its broker is registered, unfenced and not shutting down, by an earlier registration. The log does not have the
broker epoch that a leader sent. It shows the controller's side of the invariant. A broker with a new process leaves the in-sync replicas
as long as others remain, and comes back only after it was unfenced. The log also shows disks: a registration names the directories of the
broker. If a directory is gone, the replica's data is gone with it.

Source: KIP-903, KIP-858, KIP-966; ``ReplicationControlManager``, ``ClusterControlManager`` of 4.3.1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import BrokerChanged, PartitionChanged
from snaprebuild.cluster.metadata.image_reader import fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, read_on
from snaprebuild.cluster.metadata.proof import CommitProof, proof_findings, prove
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.published import Natural
from snaprebuild.storage.partition_names import TopicPartition, named

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["EVENTS_MAX", "IsrCheckResult", "IsrEvent", "IsrFault", "IsrHistory", "IsrQuestion", "JoinKind", "isr_check"]


_PartitionKey = tuple[bytes, int]
_ReplicaKey = tuple[bytes, int, int]

_NO_DIRECTORY = {LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY}


class IsrFault(StrEnum):
    """A fault, or a notable fact, of a member of the in-sync replicas."""

    UNREGISTERED = "unregistered"
    """The replica joined, and its broker was not registered."""
    FENCED = "fenced"
    """The replica joined, and its broker was fenced."""
    SHUTTING_DOWN = "shutting-down"
    """The replica joined, and its broker was about to go."""
    EPOCH_AHEAD = "epoch-ahead"
    """The replica joined, and its broker's registration has an epoch after the offset at which it did."""
    STALE_MEMBER = "stale-member"
    """A new process registered, and the replica stayed, though others were in sync."""
    LAST_MEMBER_NEW_DISK = "last-member-new-disk"
    """A new process registered without the directory of the replica, which stayed as the last one: no other broker has its data."""
    ELECTED_NEW_DISK = "elected-new-disk"
    """The replica was elected from outside the in-sync replicas, and the directory that it had there is gone: it leads without its data."""
    UNCLEAN_ELECTION = "unclean-election"
    """The replica was elected uncleanly, and became the only one in sync."""
    NEW_DISK = "new-disk"
    """The replica joined with another directory than it had left with: as it should, once it had copied everything."""


class JoinKind(StrEnum):
    """How a replica became in sync."""

    CAUGHT_UP = "caught-up"
    """The leader said that the replica had caught up."""
    ELECTED = "elected"
    """The replica was elected, as an eligible leader replica."""
    ELECTED_UNCLEANLY = "elected-uncleanly"
    """The replica was elected without being an eligible leader replica."""
    STAYED = "stayed"
    """The replica was in sync, and a new process of its broker registered."""


class IsrEvent(TopicPartition, frozen=True):
    """A replica that joined or stayed in sync, against the invariant or on another disk."""

    isr_fault: IsrFault
    offset: Natural
    """Offset of the record."""
    is_proven: bool
    """The record is proven to be committed, with the transaction that it is in."""
    timestamp_ms: int
    """Timestamp of its batch, ms since 1970."""
    leader_epoch: int
    """Leader epoch of its batch: identifies the controller that wrote it."""
    topic_id: str
    """22 characters, URL-safe base64."""
    node_id: int
    """Id of the broker with the replica."""
    kind: JoinKind
    """How it became in sync."""
    isr_before: tuple[int, ...]
    """In-sync replicas before the record."""
    isr: tuple[int, ...]
    """In-sync replicas after the record."""
    broker_epoch: int | None
    """Epoch of the registration at that time; null without a registration."""
    left_offset: int | None
    """Offset of the record by which it had left; null if that is not known."""
    gone_directories: tuple[str, ...]
    """Ids of its directories at that time that are not registered any more."""


@dataclass(frozen=True, slots=True)
class _Left:
    """When a replica left, and with which directories."""

    offset: int | None
    directories: frozenset[str]


class IsrHistory:
    """Follows a metadata log, batch by batch.

    Attributes:
        changes: of in-sync replicas, so far.
        joins: replicas that joined, so far.
    """

    def __init__(self, fold: ImageFold, proven_end_offset: int = 0) -> None:
        """Begins with an image; it takes the batches itself.

        Args:
            fold: of nothing, or of a checkpoint.
            proven_end_offset: after the last offset that is proven to be committed.
        """
        self._fold = fold
        self._proven_end_offset = proven_end_offset
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
            if registered.node_id in self._brokers:
                yield from self._remaining_in_sync(registered, batch)

    def _take_broker(self, change: BrokerChanged) -> bool:
        """Returns whether a new process of the broker has registered."""
        before = change.before
        after = change.after
        if after is None:
            self._brokers.pop(change.node_id, None)
            return False
        self._brokers[change.node_id] = after
        return before is not None and before.incarnation_id != after.incarnation_id

    def _remaining_in_sync(self, change: BrokerChanged, batch: MetadataBatch) -> Iterator[IsrEvent]:
        assert change.before is not None
        for topic_id, number in sorted(self._in_sync[change.node_id]):
            topic = self._fold.topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(number)
            if topic is None or partition is None:
                continue  # a log that creates the same topic twice
            had = self._directories(partition, change.node_id, of_broker=False) or frozenset(change.before.directories)
            unchanged = PartitionChanged(
                offset=change.offset,
                record=change.record,
                topic_id=topic_id,
                topic=topic.name,
                partition=number,
                before=partition,
                after=partition,
            )
            yield from self._events(unchanged, change.node_id, JoinKind.STAYED, _Left(None, had), batch)

    def _take_partition(self, change: PartitionChanged, batch: MetadataBatch) -> Iterator[IsrEvent]:
        before = change.before
        after = change.after
        key = (change.topic_id, change.partition)
        isr_before = () if before is None else before.isr
        isr_after = () if after is None else after.isr
        self._note_in_sync(key, isr_before, isr_after)
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
        """Events for faults and notable facts of a replica that is in sync after a change."""
        assert change.before is not None
        assert change.after is not None
        broker = self._brokers.get(broker_id)
        gone = () if left is None or broker is None else _gone(left.directories, broker)
        for fault in _faults(change, kind, broker, gone):
            yield IsrEvent(
                **named(change.topic, change.partition),
                isr_fault=fault,
                offset=change.offset,
                # The batch by which the record took effect: its own, or that with the end of its transaction. Controllers commit
                # batches as a whole.
                is_proven=batch.last_offset < self._proven_end_offset,
                timestamp_ms=batch.append_timestamp_ms,
                leader_epoch=batch.leader_epoch,
                topic_id=uuid_to_text(change.topic_id),
                node_id=broker_id,
                kind=kind,
                isr_before=change.before.isr,
                isr=change.after.isr,
                broker_epoch=None if broker is None else broker.epoch,
                left_offset=None if left is None else left.offset,
                gone_directories=gone,
            )

    def _directories(self, partition: PartitionRegistration, broker_id: int, *, of_broker: bool = True) -> frozenset[str]:
        """Where the replica is: its directory, or where that is not known, those of its broker."""
        directory = partition.directory_of(broker_id)
        if directory is not None and directory not in _NO_DIRECTORY:
            return frozenset((directory,))
        broker = self._brokers.get(broker_id)
        if of_broker and broker is not None:
            return frozenset(broker.directories)
        return frozenset()


def _gone(had: Iterable[str], broker: BrokerRegistration) -> tuple[str, ...]:
    """Directories that the broker has no more. One that registers none is of before KIP-858: nothing is known."""
    if broker.directories:
        return tuple(sorted(set(had) - set(broker.directories), key=uuid_from_text))
    return ()


def _kind(before: PartitionRegistration, after: PartitionRegistration, broker_id: int) -> JoinKind:
    if after.leader != broker_id or before.leader == broker_id:
        return JoinKind.CAUGHT_UP
    if after.leader_recovery_state == LeaderRecoveryState.RECOVERING and broker_id not in before.elr:
        return JoinKind.ELECTED_UNCLEANLY
    return JoinKind.ELECTED


def _faults(change: PartitionChanged, kind: JoinKind, broker: BrokerRegistration | None, gone: tuple[str, ...]) -> list[IsrFault]:
    if broker is None:
        return [IsrFault.UNREGISTERED]
    if kind is JoinKind.STAYED:
        is_alone = change.after is None or len(change.after.isr) <= 1
        if not is_alone:
            return [IsrFault.STALE_MEMBER]
        return [IsrFault.LAST_MEMBER_NEW_DISK] if gone else []
    faults = []
    if broker.fenced:
        faults.append(IsrFault.FENCED)
    if broker.in_controlled_shutdown:
        faults.append(IsrFault.SHUTTING_DOWN)
    if broker.epoch > change.offset:
        faults.append(IsrFault.EPOCH_AHEAD)
    if gone and kind is JoinKind.CAUGHT_UP:
        faults.append(IsrFault.NEW_DISK)
    elif gone:
        faults.append(IsrFault.ELECTED_NEW_DISK)
    elif kind is JoinKind.ELECTED_UNCLEANLY:
        faults.append(IsrFault.UNCLEAN_ELECTION)
    return faults


EVENTS_MAX = 10_000
"""Events that are kept; the others are counted."""

NOTES = {
    IsrFault.NEW_DISK: "it joined with another disk than it had left with, when its leader said that it had caught up",
    IsrFault.UNCLEAN_ELECTION: "it was elected uncleanly: records that only others had are lost",
}
FAULTS = {
    IsrFault.UNREGISTERED: "it joined, and its broker was not registered",
    IsrFault.FENCED: "it joined, and its broker was fenced",
    IsrFault.SHUTTING_DOWN: "it joined, and its broker was shutting down",
    IsrFault.EPOCH_AHEAD: "it joined, and its broker's registration was still to come",
    IsrFault.STALE_MEMBER: "a new process of its broker registered, and it stayed in sync although others were in sync",
    IsrFault.LAST_MEMBER_NEW_DISK: "a new process of its broker registered without the disk of this replica, which stayed in sync as the "
    "last one: its data is lost (KIP-903 accepts that)",
    IsrFault.ELECTED_NEW_DISK: "it was elected to lead, and the disk on which it was is gone: its data is lost",
}


@dataclass(frozen=True, slots=True)
class IsrQuestion:
    """Selects the logs to check.

    Attributes:
        location: a metadata log directory, or one that holds it.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
    """

    location: str
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class IsrCheckResult:
    """The result of a check.

    Attributes:
        log: that was read.
        proof: how much of it is proven to be committed.
        checkpoint: that the history begins with; None for the beginning of the log.
        first_offset: first offset that was read; earlier history is not known.
        end_offset: after the last one.
        isr_changes: changes of in-sync replicas.
        joins: replicas that joined.
        totals: events by fault.
        events: the first ``EVENTS_MAX``, by offset.
        findings: about them and the log.
    """

    log: MetadataLog
    proof: CommitProof
    checkpoint: MetadataCheckpoint | None
    first_offset: int
    end_offset: int
    isr_changes: int
    joins: int
    totals: dict[IsrFault, int]
    events: tuple[IsrEvent, ...]
    findings: tuple[Finding, ...]


def isr_check(question: IsrQuestion, run: Run | None = None) -> IsrCheckResult:
    """Checks a metadata log.

    Raises:
        UsageError: a location holds no metadata log, or two logs are of one voter or of several clusters.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, run, lambda log: _check(log, question, run))


def _check(log: MetadataLog, question: IsrQuestion, run: Run | None) -> IsrCheckResult:
    proof = prove(log, question.others, question.voter_ids, run)
    begin = fold_oldest(log)
    fold = begin.fold
    history = IsrHistory(begin.fold, proof.proven_end_offset)
    totals = Counter[IsrFault]()
    events = list[IsrEvent]()

    def take(batch: MetadataBatch) -> None:
        for event in history.take(batch):
            totals[event.isr_fault] += 1
            if len(events) < EVENTS_MAX:
                events.append(event)

    findings = [*checkpoint_findings(begin.bad_checkpoints), *read_on(log, begin.next_offset, take)]
    findings += _findings(log, events)
    if totals.total() > len(events):
        more = pluralize(totals.total() - len(events), "more event")
        findings.append(Finding("isr-events-left-out", Severity.FINDING, log.path, f"{more}, of which none is shown"))
    if fold.fault_count:
        message = f"{pluralize(fold.fault_count, 'record')} left out, which contradict those before or cannot be read"
        findings.append(Finding("isr-record-left-out", Severity.FINDING, log.path, message, fold.faults[0].offset))
    findings += unknown_findings(log.path, log.unknown)
    findings += proof_findings(log, proof, fold.offset, reported=findings)
    return IsrCheckResult(
        log=log,
        proof=proof,
        checkpoint=begin.checkpoint,
        first_offset=begin.next_offset,
        end_offset=fold.offset + 1,
        isr_changes=history.changes,
        joins=history.joins,
        totals=dict(totals),
        events=tuple(events),
        findings=tuple(findings),
    )


def _findings(log: MetadataLog, events: list[IsrEvent]) -> Iterator[Finding]:
    """One for each violation; what happened to many replicas of a broker at once, and is as it should be, is one note."""
    alike: dict[tuple[IsrFault, int, int | None], list[IsrEvent]] = {}
    for event in events:
        if event.isr_fault in NOTES:
            alike.setdefault((event.isr_fault, event.node_id, event.broker_epoch), []).append(event)
        else:
            whether = "committed" if event.is_proven else "not proven to be committed"
            yield Finding(f"isr-{event.isr_fault}", Severity.FINDING, log.path, f"{_text(event)}; {whether}", event.offset)
    for several in alike.values():
        first = several[0]
        more = f"; and {pluralize(len(several) - 1, 'more partition')}" if len(several) > 1 else ""
        yield Finding(f"isr-{first.isr_fault}", Severity.NOTE, log.path, _text(first) + more, first.offset)


def _text(event: IsrEvent) -> str:
    what = {**NOTES, **FAULTS}[event.isr_fault]
    epoch = "" if event.broker_epoch is None else f" (broker epoch {event.broker_epoch})"
    left = "" if event.left_offset is None else f"; it had left at offset {event.left_offset}"
    gone = f"; gone: {', '.join(event.gone_directories)}" if event.gone_directories else ""
    if event.kind is JoinKind.STAYED:
        change = f" {list(event.isr)}"
    else:
        change = f" {list(event.isr_before)} -> {list(event.isr)}"
    return f"{event.topic_partition}, replica of broker {event.node_id}{epoch}: {what}; ISR{change}{left}{gone}"
