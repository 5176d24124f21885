"""``cluster history``: the history of a partition or a broker, one entry for each change, in words and with the state after it.

A topic that was deleted and created again is another topic: each of its partitions has a timeline of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.image_model import BrokerChanged, MetadataChange, PartitionChanged, TopicImage
from snaprebuild.cluster.metadata.image_reader import FoldStart, fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, fault_findings, listing_findings, read_on
from snaprebuild.cluster.metadata.proof import CommitProof, proof_findings, prove
from snaprebuild.cluster.metadata.registered_model import (
    METADATA_VERSION,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.published import Part, members_of_base
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.typed_paths import did_you_mean

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "ENTRIES_MAX",
    "BrokerHistoryEntry",
    "BrokerTimeline",
    "HistoryQuestion",
    "HistoryResult",
    "LogPoint",
    "Moment",
    "PartitionHistoryEntry",
    "PartitionTimeline",
    "Timelines",
    "broker_changes",
    "metadata_history",
    "partition_changes",
]


Entry = TypeVar("Entry")

ENTRIES_MAX = 100_000
"""Entries that are kept of one timeline, the newest."""


class Moment(Part, frozen=True):
    """When a change took effect."""

    offset: int
    """Offset of the record."""
    timestamp_ms: int
    """Timestamp of its batch."""
    leader_epoch: int
    """Leader epoch of the controller."""
    record: str | None
    """Message of the record; null for an entry from a checkpoint."""


class PartitionHistoryEntry(Moment, frozen=True):
    """A change of a partition."""

    changes: tuple[str, ...]
    """One sentence each; not stable."""
    registration: PartitionRegistration | None
    """Registration from here on; null if the partition is deleted."""


@dataclass(slots=True)
class Timeline(Generic[Entry]):
    """The newest entries of a history; ``dropped`` counts older ones."""

    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX), kw_only=True)
    dropped: int = field(default=0, kw_only=True)

    def add(self, entry: Entry) -> None:
        """Adds the next entry."""
        self.dropped += len(self.entries) == ENTRIES_MAX
        self.entries.append(entry)


@dataclass(slots=True)
class PartitionTimeline(Timeline[PartitionHistoryEntry]):
    """The history of a partition of one topic id."""

    topic: str
    topic_id: bytes
    partition: int


class BrokerHistoryEntry(Moment, frozen=True):
    """A change of a broker."""

    changes: tuple[str, ...]
    """One sentence each; not stable."""
    registration: BrokerRegistration | None
    """Registration from here on; null if there is none."""
    leads: int
    """Number of partitions that it leads."""
    in_isr: int
    """Number of partitions with it in the ISR."""
    in_elr: int
    """Number of partitions with it in the ELR."""
    replicas: int
    """Number of partitions with a replica on it."""


@dataclass(slots=True)
class BrokerTimeline(Timeline[BrokerHistoryEntry]):
    """The history of a broker."""

    node_id: int


class Timelines:
    """Gathers the timelines of the selection while a log is folded.

    Attributes:
        partitions: by topic id and number, in the order in which they came.
        broker: of the selected broker, or None.
    """

    def __init__(self, selection: Selection | None, node_id: int | None) -> None:
        """Selects partitions (none without a selection), a broker, or both."""
        self.partitions: dict[tuple[bytes, int], PartitionTimeline] = {}
        self.broker = None if node_id is None else BrokerTimeline(node_id)
        self._selection = selection
        self._registration: BrokerRegistration | None = None
        self._counts = [0, 0, 0, 0]

    def begin(self, moment: Moment, brokers: Mapping[int, BrokerRegistration], topics: Iterable[TopicImage], origin: str) -> None:
        """Takes the state before the history as one entry of each timeline; ``origin`` is a sentence on where it is from."""
        for topic in topics:
            for number, state in topic.partitions.items():
                self._count(None, state)
                if self._is_selected(topic.name, number):
                    entry = PartitionHistoryEntry(**members_of_base(Moment, moment), changes=(origin,), registration=state)
                    self._timeline(topic.topic_id, topic.name, number).add(entry)
        if self.broker is not None and (self.broker.node_id in brokers or any(self._counts)):
            self._registration = brokers.get(self.broker.node_id)
            self.broker.add(self._broker_entry(moment, (origin,)))

    def add(self, changes: Iterable[MetadataChange], timestamp_ms: int, leader_epoch: int) -> None:
        """Takes the changes of a batch."""
        before = tuple(self._counts)
        first: Moment | None = None
        for change in changes:
            moment = Moment(change.offset, timestamp_ms, leader_epoch, change.record.name)
            if isinstance(change, PartitionChanged):
                self._add_partition(change, moment)
                first = first or moment
            elif isinstance(change, BrokerChanged) and self.broker is not None and change.node_id == self.broker.node_id:
                self._add_counts(before, first)
                before = tuple(self._counts)
                first = None
                self._registration = change.after
                if texts := broker_changes(change.before, change.after):
                    self.broker.add(self._broker_entry(moment, texts))
            elif self.broker is not None and (texts := controller_changes(change.record, self.broker.node_id)):
                self.broker.add(self._broker_entry(moment, texts))
        self._add_counts(before, first)

    def _add_counts(self, before: tuple[int, ...], moment: Moment | None) -> None:
        """Adds one entry if several records of a batch change the partitions of the broker."""
        if self.broker is None or moment is None or tuple(self._counts) == before:
            return
        named = zip(("leads", "in ISR", "in ELR", "replicas"), before, self._counts, strict=True)
        texts = tuple(f"{name} {old} -> {new}" for name, old, new in named if old != new)
        self.broker.add(self._broker_entry(moment, texts))

    def _add_partition(self, change: PartitionChanged, moment: Moment) -> None:
        self._count(change.before, change.after)
        if self._is_selected(change.topic, change.partition):
            unknown = UnknownContentsCounter()
            unknown.add_record(change.record)
            texts = partition_changes(change.before, change.after, unknown.text)
            entry = PartitionHistoryEntry(**members_of_base(Moment, moment), changes=texts, registration=change.after)
            self._timeline(change.topic_id, change.topic, change.partition).add(entry)

    def _is_selected(self, topic: str, number: int) -> bool:
        return self._selection is not None and self._selection.takes_partition(topic, number)

    def _timeline(self, topic_id: bytes, topic: str, number: int) -> PartitionTimeline:
        return self.partitions.setdefault((topic_id, number), PartitionTimeline(topic, topic_id, number))

    def _broker_entry(self, moment: Moment, changes: tuple[str, ...]) -> BrokerHistoryEntry:
        leads, in_isr, in_elr, replicas = self._counts
        return BrokerHistoryEntry(
            **members_of_base(Moment, moment),
            changes=changes,
            registration=self._registration,
            leads=leads,
            in_isr=in_isr,
            in_elr=in_elr,
            replicas=replicas,
        )

    def _count(self, before: PartitionRegistration | None, after: PartitionRegistration | None) -> None:
        """Keeps the counts of the broker up to date."""
        if self.broker is None:
            return
        node_id = self.broker.node_id
        for sign, state in ((-1, before), (1, after)):
            if state is None:
                continue
            leads = state.leader == node_id
            members = [leads, node_id in state.isr, node_id in state.elr, node_id in state.replicas]
            self._counts = [count + sign * is_member for count, is_member in zip(self._counts, members, strict=True)]


# ----------------------------------------------------------------------------------------------------------------------- words


def partition_changes(before: PartitionRegistration | None, after: PartitionRegistration | None, unknown: str) -> tuple[str, ...]:
    """The changes of a partition, in words.

    Args:
        before: None if there was none.
        after: None if there is none any more.
        unknown: what of the record this version does not know, as ``UnknownContentsCounter.text``; empty for nothing.
    """
    if after is None:
        return ("deleted with its topic",)
    if before is None:
        led = f"led by {after.leader}" if after.leader >= 0 else "without a leader"
        return (f"created on {_ids(after.replicas)}, {led}",)
    changes = []
    if before.leader_epoch != after.leader_epoch:
        changes.append(_leader_change(before.leader, after.leader))
    changes += _member_changes("ISR", before.isr, after.isr)
    changes += _member_changes("ELR", before.elr, after.elr)
    if before.replicas != after.replicas:
        changes.append(f"replicas {_ids(before.replicas)} -> {_ids(after.replicas)}")
    for name, old, new in (("adding", before.adding, after.adding), ("removing", before.removing, after.removing)):
        if old != new:
            changes.append(f"{name} {_ids(new)}" if new else f"no longer {name} {_ids(old)}")
    for broker_id in after.replicas:
        old_directory = before.directory_of(broker_id)
        new_directory = after.directory_of(broker_id)
        if old_directory is not None and new_directory is not None and old_directory != new_directory:
            changes.append(f"directory of {broker_id}: {old_directory} -> {new_directory}")
    if before.last_known_elr != after.last_known_elr:
        elr = _ids(after.last_known_elr) if after.last_known_elr else "cleared"
        changes.append(f"last known ELR {elr}")
    if before.leader_recovery_state != after.leader_recovery_state:
        is_unclean = after.leader_recovery_state == LeaderRecoveryState.RECOVERING
        changes.append("recovering from an unclean election" if is_unclean else "recovered")
    if unknown:
        changes.append(f"{unknown} that this version does not know")
    return tuple(changes) or ("nothing but its epoch",)


def _member_changes(name: str, before: tuple[int, ...], after: tuple[int, ...]) -> list[str]:
    """The brokers that left and joined a set of replicas, in words."""
    changes = []
    left = [each for each in before if each not in after]
    if left:
        changes.append(f"{_ids(left)} left the {name}")
    joined = [each for each in after if each not in before]
    if joined:
        changes.append(f"{_ids(joined)} joined the {name}")
    return changes


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
    directories = ", ".join(after.directories) or "none given"
    if before is None:
        state = "fenced" if after.fenced else "not fenced"
        return (f"registered with epoch {after.epoch}, {state}", f"directories {directories}")
    changes = []
    epochs = f"epoch {before.epoch} -> {after.epoch}"
    if before.incarnation_id != after.incarnation_id:
        changes.append(f"registered again, {epochs}, incarnation {after.incarnation_id}")
    elif before.epoch != after.epoch:
        changes.append(epochs)
    if before.directories != after.directories:
        is_replaced = bool(before.directories) and not set(before.directories) & set(after.directories)
        replaced = ": none of those before, so its disks were replaced" if is_replaced else ""
        changes.append(f"directories {directories}{replaced}")
    if (before.cordoned_directories or ()) != (after.cordoned_directories or ()):
        cordoned = ", ".join(after.cordoned_directories or ()) or "none"
        changes.append(f"cordoned {cordoned}")
    if before.fenced != after.fenced:
        changes.append("fenced" if after.fenced else "unfenced")
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        changes.append("controlled shutdown")
    if before.in_controlled_shutdown and not after.in_controlled_shutdown:
        changes.append("no longer shutting down")
    if before.rack != after.rack:
        changes.append(f"rack {after.rack or 'none'}")
    return tuple(changes)


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
    """Selects partitions or a broker, and a part of the log.

    Attributes:
        location: of the metadata log.
        selection: of partitions, by the names that their topics had; None for none.
        node_id: of a broker or controller, or None.
        begin: where the history begins, None for as far back as the log goes; the state before is one entry, as with a checkpoint.
        end: last place that belongs to it, None for the end of the log; by time, it ends before the first batch that is younger.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
    """

    location: str
    selection: Selection | None = None
    node_id: int | None = None
    begin: LogPoint | None = None
    end: LogPoint | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The history of a topic, partition or broker.

    Attributes:
        path: of the log.
        first_offset: where the timelines begin: 0, after the content of a checkpoint, or at the selected place.
        checkpoint_end: end offset of the checkpoint that it was read from, None for none.
        last_offset: last one that was read.
        last_timestamp_ms: of its batch.
        timelines: of the selection.
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
    proof: CommitProof
    findings: tuple[Finding, ...]
    unknown: UnknownContentsCounter
    other_files: tuple[str, ...]


def metadata_history(question: HistoryQuestion, run: Run) -> HistoryResult:
    """The history of a topic, partition or broker, from the first record that the metadata log still has.

    Raises:
        UsageError: the location holds no metadata log, the log does not reach into what is asked for, or nothing there is or was of the
            name or number.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, run, lambda log: _history(log, question, run))


def _history(log: MetadataLog, question: HistoryQuestion, run: Run) -> HistoryResult:
    proof = prove(log, question.others, question.voter_ids, run)
    begin = fold_oldest(log)
    reader = _HistoryReader(question, begin)
    fold = begin.fold
    timelines = reader.timelines
    findings = [*listing_findings(log), *checkpoint_findings(begin.bad_checkpoints), *read_on(log, begin.next_offset, reader.take)]
    is_damaged = any(finding.severity is Severity.DAMAGED for finding in findings)
    first_offset = reader.first_offset
    end = question.end
    if (first_offset is None or (end is not None and fold.offset < first_offset)) and not is_damaged:
        was_read = f"what was read are offsets {begin.next_offset} to {fold.offset}"
        detail = was_read if fold.offset >= begin.next_offset else f"it begins at {begin.next_offset}"
        raise UsageError(f"the log has nothing between --since and --until: {detail}", path=log.path)
    first_offset = begin.next_offset if first_offset is None else first_offset
    findings += fault_findings(log, fold)
    is_empty = not timelines.partitions and (timelines.broker is None or not timelines.broker.entries)
    if is_empty and not any(finding.severity is Severity.DAMAGED for finding in findings):
        names = {each.name for each in fold.topics.values()}
        wanted = () if question.selection is None else question.selection.topics
        meant = " or ".join(filter(None, (did_you_mean(each, names) for each in wanted if each not in names)))
        offsets = f"from offset {first_offset} to {fold.offset}" if fold.offset >= first_offset else f"below offset {first_offset}"
        text = f"nothing {offsets} mentions {_selection_text(question)}"
        raise UsageError("; ".join(filter(None, (text, meant))), path=log.path)
    if question.selection is not None and not is_damaged:
        known = {f"{partition.topic}-{partition.partition}" for partition in timelines.partitions.values()}
        known.update(f"{topic.name}-{number}" for topic in fold.topics.values() for number in topic.partitions)
        findings += question.selection.absent_findings(known, log.path)
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


def _selection_text(question: HistoryQuestion) -> str:
    broker = [] if question.node_id is None else [f"broker {question.node_id}"]
    return " or ".join([*([] if question.selection is None else question.selection.words), *broker])


class _HistoryReader:
    """Folds the log and gathers the history of the selected part.

    Attributes:
        first_offset: of the gathered history; None before it begins.
    """

    def __init__(self, question: HistoryQuestion, begin: FoldStart) -> None:
        self.timelines = Timelines(question.selection, question.node_id)
        self.first_offset = begin.next_offset if question.begin is None else None
        self._question = question
        self._begin = begin
        if begin.checkpoint is not None and question.begin is None:
            self._begin_timelines()

    def _begin_timelines(self) -> None:
        fold = self._begin.fold
        origin = "as it was before" if fold.offset >= self._begin.next_offset else "as a checkpoint has it"
        self.timelines.begin(Moment(fold.offset, fold.timestamp_ms, fold.epoch, None), fold.brokers, fold.topics.values(), origin)

    def take(self, batch: MetadataBatch) -> bool:
        """Takes the next batch; true after the last place."""
        begin = self._question.begin
        end = self._question.end
        fold = self._begin.fold
        if end is not None and end.is_before(batch):
            return True
        selected: MetadataBatch | None = batch
        if begin is not None and self.first_offset is None:
            before, selected = _cut(batch, begin.first_offset_in(batch))
            if before is not None:
                fold.apply_batch(before)
            if selected is not None:
                self.first_offset = selected.base_offset
                self._begin_timelines()
        if selected is not None:
            changes = fold.apply_batch(selected, None if end is None else end.offset)
            self.timelines.add(changes, selected.append_timestamp_ms, selected.leader_epoch)
        return False


def _cut(batch: MetadataBatch, offset: int) -> tuple[MetadataBatch | None, MetadataBatch | None]:
    """The part of a batch below an offset, and the rest; None for an empty part."""
    if offset <= batch.base_offset:
        return None, batch
    if offset > batch.last_offset:
        return batch, None
    below = tuple(record for record in batch.records if record.offset < offset)
    above = batch.records[len(below) :]
    return replace(batch, last_offset=offset - 1, records=below), replace(batch, base_offset=offset, records=above)
