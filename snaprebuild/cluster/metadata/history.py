"""``cluster history``: the history of a partition or a broker, one entry for each change, in words and with the state after it.

A topic that was deleted and created again is another topic: each of its partitions has a timeline of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.image_model import BrokerChanged, MetadataChange, PartitionChanged, TopicImage
from snaprebuild.cluster.metadata.image_reader import FoldStart, fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, fault_findings, listing_findings, read_on
from snaprebuild.cluster.metadata.proof import Proof, proof_findings, prove
from snaprebuild.cluster.metadata.registered_model import (
    METADATA_VERSION,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    directory_text,
)
from snaprebuild.cluster.metadata.unknown_contents import UnknownContents
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "ENTRIES_MAX",
    "BrokerEntry",
    "BrokerTimeline",
    "HistoryQuestion",
    "HistoryResult",
    "LogPoint",
    "Moment",
    "PartitionEntry",
    "PartitionTimeline",
    "Timelines",
    "broker_changes",
    "metadata_history",
    "partition_changes",
]


Entry = TypeVar("Entry")

ENTRIES_MAX = 100_000
"""Entries that are kept of one timeline, the newest."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a change took effect.

    Attributes:
        offset: of the record; of a state that was there before the last one that it holds, -1 for none.
        timestamp_ms: of its batch, ms since 1970.
        leader_epoch: of the controller that wrote it.
        record: name of its message, None if a checkpoint held it, or it was there before the history begins.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int
    record: str | None


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A change of a partition: when, what in words, and the state from there on (None if it is gone)."""

    moment: Moment
    what: tuple[str, ...]
    state: PartitionRegistration | None


@dataclass(slots=True)
class Timeline(Generic[Entry]):
    """The newest entries; ``dropped`` counts those that are older."""

    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX), kw_only=True)
    dropped: int = field(default=0, kw_only=True)

    def add(self, entry: Entry) -> None:
        """The next one."""
        self.dropped += len(self.entries) == ENTRIES_MAX
        self.entries.append(entry)


@dataclass(slots=True)
class PartitionTimeline(Timeline[PartitionEntry]):
    """A partition of a topic of this id."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """A change of a broker's registration, or of what it holds.

    Attributes:
        moment: when.
        what: in words.
        state: registration from there on, None if there is none.
        leads: partitions that it leads.
        in_isr: partitions in whose ISR it is.
        in_elr: partitions of which it is an eligible leader replica.
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
class BrokerTimeline(Timeline[BrokerEntry]):
    """A broker."""

    broker_id: int


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
                before = tuple(self._counts)
                first = None
                self._registration = change.after
                if what := broker_changes(change.before, change.after):
                    self.broker.add(self._broker_entry(moment, what))
            elif self.broker is not None and (what := controller_changes(change.record, self.broker.broker_id)):
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
            unknown = UnknownContents()
            unknown.add_record(change.record)
            entry = PartitionEntry(moment, partition_changes(change.before, change.after, unknown.text), change.after)
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


def _applying(*cases: tuple[object, str]) -> list[str]:
    """The texts of the cases that apply."""
    return [text for applies, text in cases if applies]


def partition_changes(
    before: PartitionRegistration | None, after: PartitionRegistration | None, unknown: str = ""
) -> tuple[str, ...]:
    """The changes of a partition, in words.

    Args:
        before: None if there was none.
        after: None if there is none any more.
        unknown: what of the record this version does not know, as ``UnknownContents.text``; empty for nothing.
    """
    if after is None:
        return ("deleted with its topic",)
    if before is None:
        led = f"led by {after.leader}" if after.leader >= 0 else "without a leader"
        return (f"created on {_ids(after.replicas)}, {led}",)
    what = _applying((before.leader_epoch != after.leader_epoch, _leader_change(before.leader, after.leader)))
    for name, old, new in (("ISR", before.isr, after.isr), ("ELR", before.elr, after.elr)):
        left = [each for each in old if each not in new]
        joined = [each for each in new if each not in old]
        what += _applying((left, f"{_ids(left)} left the {name}"), (joined, f"{_ids(joined)} joined the {name}"))
    what += _applying((before.replicas != after.replicas, f"replicas {_ids(before.replicas)} -> {_ids(after.replicas)}"))
    for name, old, new in (("adding", before.adding, after.adding), ("removing", before.removing, after.removing)):
        what += _applying((old != new, f"{name} {_ids(new)}" if new else f"no longer {name} {_ids(old)}"))
    for broker_id in after.replicas:
        was = before.directory_of(broker_id)
        is_now = after.directory_of(broker_id)
        if was is not None and is_now is not None and was != is_now:
            what.append(f"directory of {broker_id}: {directory_text(was)} -> {directory_text(is_now)}")
    known = after.last_known_elr
    is_unclean = after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    what += _applying(
        (before.last_known_elr != known, f"last known ELR {_ids(known)}" if known else "last known ELR cleared"),
        (
            before.leader_recovery_state != after.leader_recovery_state,
            "recovering from an unclean election" if is_unclean else "recovered",
        ),
    )
    if unknown:
        what.append(f"{unknown} that this version does not know")
    return tuple(what) or ("nothing but its epoch",)


def _leader_change(before: int, after: int) -> str:
    if after < 0:
        return f"no leader (was {before})" if before >= 0 else "no leader again"
    if before < 0:
        return f"leader {after}"
    return f"leader {before} -> {after}" if before != after else f"leader {after} in a new epoch"


def broker_changes(before: BrokerRegistration | None, after: BrokerRegistration | None) -> tuple[str, ...]:
    """The changes of a registration, in words; empty if nothing changed."""
    if after is None:
        return ("unregistered",) if before is not None else ()
    directories = ", ".join(map(directory_text, after.directories)) or "none given"
    if before is None:
        state = "fenced" if after.fenced else "not fenced"
        return (f"registered with epoch {after.epoch}, {state}", f"directories {directories}")
    is_new = before.incarnation_id != after.incarnation_id
    epochs = f"epoch {before.epoch} -> {after.epoch}"
    is_replaced = bool(before.directories) and not set(before.directories) & set(after.directories)
    replaced = ": none of those before, so its disks were replaced" if is_replaced else ""
    cordoned = ", ".join(map(directory_text, after.cordoned_directories or ())) or "none"
    what = _applying(
        (is_new, f"registered again, {epochs}, incarnation {uuid_to_text(after.incarnation_id)}"),
        (not is_new and before.epoch != after.epoch, epochs),
        (before.directories != after.directories, f"directories {directories}{replaced}"),
        ((before.cordoned_directories or ()) != (after.cordoned_directories or ()), f"cordoned {cordoned}"),
        (before.fenced != after.fenced, "fenced" if after.fenced else "unfenced"),
        (
            before.in_controlled_shutdown != after.in_controlled_shutdown,
            "controlled shutdown" if after.in_controlled_shutdown else "no longer shutting down",
        ),
        (before.rack != after.rack, f"rack {after.rack or 'none'}"),
    )
    return tuple(what)


def controller_changes(record: ClusterMetadataRecord, node_id: int) -> tuple[str, ...]:
    """The registration of a controller, in words; empty for a record about anything else, or another node."""
    if record.message.get("controllerId") != node_id:
        return ()
    if record.api_key == MetadataRecordType.UNREGISTER_CONTROLLER:
        return ("controller unregistered",)
    levels = (each["maxSupportedVersion"] for each in record.message["features"] if each["name"] == METADATA_VERSION)
    supported = "".join(f", {METADATA_VERSION} up to {level}" for level in levels)
    return (f"controller registered{supported}",)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "none"


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place in a metadata log: an offset, or a time, ms since 1970, which is that of batches; one of them is None."""

    offset: int | None
    timestamp_ms: int | None = None

    def is_before(self, batch: MetadataBatch) -> bool:
        """Whether all of a batch is after it."""
        if self.offset is not None:
            return self.offset < batch.base_offset
        return self.timestamp_ms is not None and self.timestamp_ms < batch.append_timestamp_ms

    def first_offset_in(self, batch: MetadataBatch) -> int:
        """First offset of a batch that is not before it; the one after the batch where all do."""
        if self.offset is not None:
            return min(max(self.offset, batch.base_offset), batch.last_offset + 1)
        is_older = self.timestamp_ms is not None and batch.append_timestamp_ms < self.timestamp_ms
        return batch.last_offset + 1 if is_older else batch.base_offset


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """Selects a topic or broker, and a part of the log.

    Attributes:
        location: of the metadata log.
        topic: name, or None; every topic that had it.
        partition: number, None for all of the topic.
        broker_id: or None.
        begin: where the history begins, None for as far back as the log goes; what was before is one entry, as with a checkpoint.
        end: last place that belongs to it, None for the end of the log; by time, it ends before the first batch that is younger.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
    """

    location: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    begin: LogPoint | None = None
    end: LogPoint | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The answer.

    Attributes:
        path: of the log.
        first_offset: where the timelines begin: 0, after what a checkpoint holds, or where was asked for.
        checkpoint_end: end offset of the checkpoint that it was read from, None for none.
        last_offset: last one that was read.
        last_timestamp_ms: of its batch.
        timelines: what was asked for.
        proof: how much is proven to be committed.
        findings: what is wrong.
        unknown: what of the log this version does not know.
        other_files: names in its directory that neither Kafka nor this version gives.
    """

    path: str
    first_offset: int
    checkpoint_end: int | None
    last_offset: int
    last_timestamp_ms: int
    timelines: Timelines
    proof: Proof
    findings: tuple[Finding, ...]
    unknown: UnknownContents
    other_files: tuple[str, ...]


def metadata_history(question: HistoryQuestion, run: Run | None = None) -> HistoryResult:
    """The history of a topic, partition or broker, from the first record that the metadata log still has.

    Raises:
        UsageError: the location holds no metadata log, the log does not reach into what is asked for, or nothing there is or was of the
            name or number.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, run, lambda log: _history(log, question, run))


def _history(log: MetadataLog, question: HistoryQuestion, run: Run | None) -> HistoryResult:
    proof = prove(log, question.others, question.voter_ids, run)
    begin = fold_oldest(log)
    reader = _HistoryReader(question, begin)
    fold = begin.fold
    timelines = reader.timelines
    findings = [*listing_findings(log), *checkpoint_findings(begin.bad_checkpoints), *read_on(log, begin.next_offset, reader.take)]
    is_damaged = any(each.severity is Severity.DAMAGED for each in findings)
    first_offset = reader.first_offset
    end = question.end
    if (first_offset is None or (end is not None and fold.offset < first_offset)) and not is_damaged:
        was_read = f"what was read are offsets {begin.next_offset} to {fold.offset}"
        detail = was_read if fold.offset >= begin.next_offset else f"it begins at {begin.next_offset}"
        raise UsageError(f"the log has nothing between --from and --to: {detail}", path=log.path)
    first_offset = begin.next_offset if first_offset is None else first_offset
    findings += fault_findings(log, fold)
    is_empty = not timelines.partitions and (timelines.broker is None or not timelines.broker.entries)
    if is_empty and not any(each.severity is Severity.DAMAGED for each in findings):
        raise UsageError(f"nothing from offset {first_offset} to {fold.offset} mentions {_asked(question)}", path=log.path)
    findings += proof_findings(log, proof, fold.offset, reported=findings)
    dropped = sum(each.dropped for each in (*timelines.partitions.values(), timelines.broker) if each is not None)
    if dropped:
        message = f"{pluralize(dropped, 'older entry', 'older entries')} are left out"
        findings.append(Finding("history-cut", Severity.NOTE, log.path, message))
    return HistoryResult(
        path=log.path,
        first_offset=first_offset,
        checkpoint_end=None if begin.checkpoint is None else begin.checkpoint.end_offset,
        last_offset=fold.offset,
        last_timestamp_ms=fold.timestamp_ms,
        timelines=timelines,
        proof=proof,
        findings=tuple(findings),
        unknown=log.unknown,
        other_files=log.other_files,
    )


def _asked(question: HistoryQuestion) -> str:
    topic = question.topic if question.partition is None else f"{question.topic}-{question.partition}"
    broker = None if question.broker_id is None else f"broker {question.broker_id}"
    return " or ".join(filter(None, (topic, broker)))


class _HistoryReader:
    """Folds the log and gathers what is between the places that are asked for.

    Attributes:
        first_offset: that was gathered; None before.
    """

    def __init__(self, question: HistoryQuestion, begin: FoldStart) -> None:
        self.timelines = Timelines(question.topic, question.partition, question.broker_id)
        self.first_offset = begin.next_offset if question.begin is None else None
        self._question = question
        self._begin = begin
        if begin.checkpoint is not None and question.begin is None:
            self._begin_timelines()

    def _begin_timelines(self) -> None:
        fold = self._begin.fold
        what = "as it was before" if fold.offset >= self._begin.next_offset else "as a checkpoint has it"
        self.timelines.begin(Moment(fold.offset, fold.timestamp_ms, fold.epoch, None), fold.brokers, fold.topics.values(), what)

    def take(self, batch: MetadataBatch) -> bool:
        """Takes the next batch; true after the last place."""
        begin = self._question.begin
        end = self._question.end
        fold = self._begin.fold
        if end is not None and end.is_before(batch):
            return True
        wanted: MetadataBatch | None = batch
        if begin is not None and self.first_offset is None:
            before, wanted = _cut(batch, begin.first_offset_in(batch))
            if before is not None:
                fold.apply_batch(before)
            if wanted is not None:
                self.first_offset = wanted.base_offset
                self._begin_timelines()
        if wanted is not None:
            changes = fold.apply_batch(wanted, None if end is None else end.offset)
            self.timelines.add(changes, wanted.append_timestamp_ms, wanted.leader_epoch)
        return False


def _cut(batch: MetadataBatch, offset: int) -> tuple[MetadataBatch | None, MetadataBatch | None]:
    """The part of a batch below an offset, and the rest; None for an empty part."""
    if offset <= batch.base_offset:
        return None, batch
    if offset > batch.last_offset:
        return batch, None
    below = tuple(each for each in batch.records if each.offset < offset)
    above = batch.records[len(below) :]
    return replace(batch, last_offset=offset - 1, records=below), replace(batch, base_offset=offset, records=above)
