"""The history of a partition or a broker as the metadata log has it: one entry for each change, in words and with the state from there on.

A topic that was deleted and created again is another topic, and has a timeline of its own for each of its partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.changes import BrokerChanged, MetadataChange, PartitionChanged
from snaprebuild.cluster.metadata.image_model import (
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    TopicImage,
    directory_text,
)

__all__ = [
    "ENTRIES_MAX",
    "BrokerEntry",
    "BrokerTimeline",
    "Moment",
    "PartitionEntry",
    "PartitionTimeline",
    "Timelines",
    "broker_changes",
    "partition_changes",
]

ENTRIES_MAX = 100_000
"""Entries that are kept of one timeline, the newest."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a change took effect.

    Attributes:
        offset: of the record; of a state that was there before the last one that it holds, -1 for none.
        timestamp_ms: of its batch, ms since 1970.
        leader_epoch: of the controller that wrote it.
        record: name of its message, None where a checkpoint held it, or it was there before the history begins.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int
    record: str | None


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A change of a partition: when, what in words, and the state from there on (None where it is gone)."""

    moment: Moment
    what: tuple[str, ...]
    state: PartitionRegistration | None


@dataclass(slots=True)
class PartitionTimeline:
    """A partition of a topic of this id; ``dropped`` counts entries older than those that are kept."""

    topic: str
    topic_id: bytes
    partition: int
    entries: deque[PartitionEntry] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX))
    dropped: int = 0

    def add(self, entry: PartitionEntry) -> None:
        """The next one."""
        self.dropped += len(self.entries) == ENTRIES_MAX
        self.entries.append(entry)


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """A change of a broker's registration, or of what it holds.

    Attributes:
        moment: when.
        what: in words.
        state: registration from there on, None where there is none.
        leads: partitions that it leads.
        in_isr: partitions in whose ISR it is; likewise ``in_elr``.
        in_elr: see there.
        replicas: partitions of which it has a replica.
    """

    moment: Moment
    what: tuple[str, ...]
    state: BrokerRegistration | None
    leads: int
    in_isr: int
    in_elr: int
    replicas: int


@dataclass(slots=True)
class BrokerTimeline:
    """A broker; see ``PartitionTimeline``."""

    broker_id: int
    entries: deque[BrokerEntry] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX))
    dropped: int = 0

    def add(self, entry: BrokerEntry) -> None:
        """The next one."""
        self.dropped += len(self.entries) == ENTRIES_MAX
        self.entries.append(entry)


class Timelines:
    """Gathers the timelines that are asked for while a log is folded.

    Attributes:
        partitions: by topic id and number, in the order in which they came.
        broker: the one that is asked for, or None.
    """

    def __init__(self, topic: str | None, partition: int | None, broker_id: int | None) -> None:
        """Asks for the partitions of a topic (all, or one), for a broker, or both."""
        self.partitions: dict[tuple[bytes, int], PartitionTimeline] = {}
        self.broker = None if broker_id is None else BrokerTimeline(broker_id)
        self._topic = topic
        self._partition = partition
        self._registration: BrokerRegistration | None = None
        self._counts = [0, 0, 0, 0]

    def begin(self, moment: Moment, brokers: Mapping[int, BrokerRegistration], topics: Iterable[TopicImage], what: str) -> None:
        """Takes what was there before, as one entry of each timeline, and says in words where that is from."""
        for topic in topics:
            for number, state in topic.partitions.items():
                self._count(None, state)
                if self._is_wanted(topic.name, number):
                    self._timeline(topic.topic_id, topic.name, number).add(PartitionEntry(moment, (what,), state))
        if self.broker is not None and (self.broker.broker_id in brokers or any(self._counts)):
            self._registration = brokers.get(self.broker.broker_id)
            self.broker.add(self._broker_entry(moment, (what,)))

    def add(self, changes: Iterable[MetadataChange], timestamp_ms: int, leader_epoch: int) -> None:
        """Takes what a batch changed."""
        before = tuple(self._counts)
        first: Moment | None = None
        for change in changes:
            moment = Moment(change.offset, timestamp_ms, leader_epoch, change.record.name)
            if isinstance(change, PartitionChanged):
                self._add_partition(change, moment)
                first = first or moment
            elif isinstance(change, BrokerChanged) and self.broker is not None and change.broker_id == self.broker.broker_id:
                self._add_counts(before, first)
                before, first = tuple(self._counts), None
                self._registration = change.after
                if what := broker_changes(change.before, change.after):
                    self.broker.add(self._broker_entry(moment, what))
        self._add_counts(before, first)

    def _add_counts(self, before: tuple[int, ...], moment: Moment | None) -> None:
        """One entry for what several records of a batch change in what the broker holds."""
        if self.broker is None or moment is None or tuple(self._counts) == before:
            return
        named = zip(("leads", "in ISR", "in ELR", "replicas"), before, self._counts, strict=True)
        what = tuple(f"{name} {old} -> {new}" for name, old, new in named if old != new)
        self.broker.add(self._broker_entry(moment, what))

    def _add_partition(self, change: PartitionChanged, moment: Moment) -> None:
        self._count(change.before, change.after)
        if self._is_wanted(change.topic, change.partition):
            entry = PartitionEntry(moment, partition_changes(change.before, change.after), change.after)
            self._timeline(change.topic_id, change.topic, change.partition).add(entry)

    def _is_wanted(self, topic: str, number: int) -> bool:
        return topic == self._topic and self._partition in (None, number)

    def _timeline(self, topic_id: bytes, topic: str, number: int) -> PartitionTimeline:
        return self.partitions.setdefault((topic_id, number), PartitionTimeline(topic, topic_id, number))

    def _broker_entry(self, moment: Moment, what: tuple[str, ...]) -> BrokerEntry:
        return BrokerEntry(moment, what, self._registration, *self._counts)

    def _count(self, before: PartitionRegistration | None, after: PartitionRegistration | None) -> None:
        """Keeps the counts of the broker up to date."""
        if self.broker is None:
            return
        broker_id = self.broker.broker_id
        for sign, state in ((-1, before), (1, after)):
            if state is not None:
                held = (state.leader == broker_id, *(broker_id in each for each in (state.isr, state.elr, state.replicas)))
                self._counts = [count + sign * is_held for count, is_held in zip(self._counts, held, strict=True)]


# ----------------------------------------------------------------------------------------------------------------------- words


def partition_changes(before: PartitionRegistration | None, after: PartitionRegistration | None) -> tuple[str, ...]:
    """What changed of a partition, in words."""
    if after is None:
        return ("deleted with its topic",)
    if before is None:
        led = f"led by {after.leader}" if after.leader >= 0 else "without a leader"
        return (f"created on {_ids(after.replicas)}, {led}",)
    what = []
    if before.leader_epoch != after.leader_epoch:
        what.append(_leader_change(before.leader, after.leader))
    for name, old, new in (("ISR", before.isr, after.isr), ("ELR", before.elr, after.elr)):
        left, joined = [each for each in old if each not in new], [each for each in new if each not in old]
        what += [f"{_ids(left)} left the {name}"] if left else []
        what += [f"{_ids(joined)} joined the {name}"] if joined else []
    if before.replicas != after.replicas:
        what.append(f"replicas {_ids(before.replicas)} -> {_ids(after.replicas)}")
    for name, olds, news in (("adding", before.adding, after.adding), ("removing", before.removing, after.removing)):
        if olds != news:
            what.append(f"{name} {_ids(news)}" if news else f"no longer {name} {_ids(olds)}")
    what += _directory_changes(before, after)
    if before.last_known_elr != after.last_known_elr:
        what.append(f"last known ELR {_ids(after.last_known_elr)}" if after.last_known_elr else "last known ELR cleared")
    if before.leader_recovery_state != after.leader_recovery_state:
        is_unclean = after.leader_recovery_state is LeaderRecoveryState.RECOVERING
        what.append("recovering from an unclean election" if is_unclean else "recovered")
    return tuple(what) or ("nothing but its epoch",)


def _leader_change(before: int, after: int) -> str:
    if after < 0:
        return f"no leader (was {before})" if before >= 0 else "no leader again"
    if before < 0:
        return f"leader {after}"
    return f"leader {before} -> {after}" if before != after else f"leader {after} in a new epoch"


def _directory_changes(before: PartitionRegistration, after: PartitionRegistration) -> list[str]:
    """Of replicas that were there before and are now."""
    changed = []
    for broker_id in after.replicas:
        old, new = before.directory_of(broker_id), after.directory_of(broker_id)
        if old is not None and new is not None and old != new:
            changed.append(f"directory of {broker_id}: {directory_text(old)} -> {directory_text(new)}")
    return changed


def broker_changes(before: BrokerRegistration | None, after: BrokerRegistration | None) -> tuple[str, ...]:
    """What changed of a registration, in words; nothing where nothing did."""
    if after is None:
        return ("unregistered",) if before is not None else ()
    state = "fenced" if after.fenced else "not fenced"
    directories = ", ".join(map(directory_text, after.directories)) or "none told"
    if before is None:
        return (f"registered with epoch {after.epoch}, {state}", f"directories {directories}")
    what = []
    if before.incarnation_id != after.incarnation_id:
        what.append(f"registered again, epoch {before.epoch} -> {after.epoch}, incarnation {uuid_to_text(after.incarnation_id)}")
    elif before.epoch != after.epoch:
        what.append(f"epoch {before.epoch} -> {after.epoch}")
    if before.directories != after.directories:
        is_replaced = bool(before.directories) and not set(before.directories) & set(after.directories)
        what.append(f"directories {directories}" + (": none of those before, so its disks were replaced" if is_replaced else ""))
    if (before.cordoned_directories or ()) != (after.cordoned_directories or ()):
        what.append(f"cordoned {', '.join(map(directory_text, after.cordoned_directories or ())) or 'none'}")
    if before.fenced != after.fenced:
        what.append("fenced" if after.fenced else "unfenced")
    if before.in_controlled_shutdown != after.in_controlled_shutdown:
        what.append("controlled shutdown" if after.in_controlled_shutdown else "no longer shutting down")
    if before.rack != after.rack:
        what.append(f"rack {after.rack or 'none'}")
    return tuple(what)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "none"
