"""``cluster history``: the history of a partition or a broker, one entry for each change, in words and with the state after it.

A topic that was deleted and created again is another topic: each of its partitions has a timeline of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import (
    BrokerChanged,
    BrokerRegistration,
    LeaderRecoveryState,
    MetadataChange,
    PartitionChanged,
    PartitionRegistration,
    TopicImage,
    directory_text,
)
from snaprebuild.cluster.metadata.image_reader import fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_findings import (
    checkpoint_findings,
    fault_findings,
    gap_finding,
    listing_findings,
    torn_findings,
)
from snaprebuild.cluster.metadata.proof import Proof, proof_findings, prove
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.storage.store import USUAL_S3, S3Settings

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


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place in a metadata log: an offset, or a time, ms since 1970, which is that of batches; one of them is None."""

    offset: int | None
    timestamp_ms: int | None = None

    def is_before(self, batch: MetadataBatch) -> bool:
        """Whether all of a batch lies behind it."""
        if self.offset is not None:
            return self.offset < batch.base_offset
        return self.timestamp_ms is not None and self.timestamp_ms < batch.append_timestamp_ms

    def first_offset_in(self, batch: MetadataBatch) -> int:
        """First offset of a batch that does not lie before it; the one behind the batch where all do."""
        if self.offset is not None:
            return min(max(self.offset, batch.base_offset), batch.last_offset + 1)
        is_older = self.timestamp_ms is not None and batch.append_timestamp_ms < self.timestamp_ms
        return batch.last_offset + 1 if is_older else batch.base_offset


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """What is asked.

    Attributes:
        location: of the metadata log.
        topic: name, or None; every topic that had it.
        partition: number, None for all of the topic.
        broker_id: or None.
        begin: where the history begins, None for as far back as the log goes; what was before is one entry, as with a checkpoint.
        end: last place that belongs to it, None for the end of the log; by time, it ends before the first batch that is younger.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
        settings: of object stores.
    """

    location: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    begin: LogPoint | None = None
    end: LogPoint | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    settings: S3Settings = USUAL_S3


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The answer.

    Attributes:
        path: of the log.
        first_offset: where the timelines begin: 0, behind what a checkpoint holds, or where was asked for.
        checkpoint_end: end offset of the checkpoint that it was read from, None for none.
        last_offset: last one that was read.
        last_timestamp_ms: of its batch.
        timelines: what was asked for.
        proof: how much is proven to be committed.
        findings: what is wrong.
    """

    path: str
    first_offset: int
    checkpoint_end: int | None
    last_offset: int
    last_timestamp_ms: int
    timelines: Timelines
    proof: Proof
    findings: tuple[Finding, ...]


def metadata_history(question: HistoryQuestion) -> HistoryResult:
    """Reads a metadata log from as far back as it goes, and tells of what was asked for.

    Raises:
        UsageError: the location holds no metadata log, the log does not reach into what is asked for, or nothing there is or was of the
            name or number.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, question.settings, lambda log: _history(log, question))


def _history(log: MetadataLog, question: HistoryQuestion) -> HistoryResult:
    proof = prove(log, question.others, question.voter_ids, question.settings)
    fold, checkpoint, bad = fold_oldest(log)
    findings = [*listing_findings(log), *checkpoint_findings(bad)]
    timelines = Timelines(question.topic, question.partition, question.broker_id)
    if checkpoint is not None and question.begin is None:
        _begin(timelines, fold, "as a checkpoint has it")
    first_offset = fold.offset + 1
    gap = gap_finding(log, first_offset, None)
    if gap is not None:
        findings.append(gap)
    else:
        first_offset, read = _read(log, fold, timelines, question)
        findings += read
    findings += fault_findings(log, fold)
    is_empty = not timelines.partitions and (timelines.broker is None or not timelines.broker.entries)
    if is_empty and not any(each.severity is Severity.DAMAGED for each in findings):
        raise UsageError(f"nothing from offset {first_offset} to {fold.offset} tells of {_asked(question)}", path=log.path)
    findings += proof_findings(log, proof, fold.offset, told=findings)
    dropped = sum(each.dropped for each in timelines.partitions.values())
    dropped += 0 if timelines.broker is None else timelines.broker.dropped
    if dropped:
        message = f"{pluralize(dropped, 'older entry', 'older entries')} are left out"
        findings.append(Finding("history-cut", Severity.NOTE, log.path, message))
    return HistoryResult(
        path=log.path,
        first_offset=first_offset,
        checkpoint_end=None if checkpoint is None else checkpoint.end_offset,
        last_offset=fold.offset,
        last_timestamp_ms=fold.timestamp_ms,
        timelines=timelines,
        proof=proof,
        findings=tuple(findings),
    )


def _asked(question: HistoryQuestion) -> str:
    asked = []
    if question.topic is not None:
        asked.append(question.topic if question.partition is None else f"{question.topic}-{question.partition}")
    if question.broker_id is not None:
        asked.append(f"broker {question.broker_id}")
    return " or ".join(asked)


def _begin(timelines: Timelines, fold: ImageFold, what: str) -> None:
    moment = Moment(fold.offset, fold.timestamp_ms, fold.epoch, None)
    timelines.begin(moment, fold.brokers, fold.topics.values(), what)


def _read(log: MetadataLog, fold: ImageFold, timelines: Timelines, question: HistoryQuestion) -> tuple[int, list[Finding]]:
    """Folds the log and gathers what lies between the places that are asked for.

    Returns:
        First offset that was gathered, and findings.
    """
    begin, end, log_begin = question.begin, question.end, fold.offset + 1
    first_offset = log_begin if begin is None else None
    findings: list[Finding] = []
    walk = log.walk(log_begin)
    try:
        with walk.until() as batches:
            for whole in batches:
                if end is not None and end.is_before(whole):
                    break
                batch: MetadataBatch | None = whole
                if begin is not None and first_offset is None:
                    before, batch = _cut(whole, begin.first_offset_in(whole))
                    if before is not None:
                        fold.apply_batch(before)
                    if batch is None:
                        continue
                    first_offset = batch.base_offset
                    _begin(timelines, fold, "as it was before" if first_offset > log_begin else "as a checkpoint has it")
                if batch is not None:
                    changes = fold.apply_batch(batch, None if end is None else end.offset)
                    timelines.add(changes, batch.append_timestamp_ms, batch.leader_epoch)
        findings = torn_findings(log, walk)
    except FormatError as error:
        findings = [finding_of_error(error, log.path)]
    is_nothing = first_offset is None or (end is not None and fold.offset < first_offset)
    if is_nothing and not any(each.severity is Severity.DAMAGED for each in findings):
        told = (
            f"what was read are offsets {log_begin} to {fold.offset}" if fold.offset >= log_begin else f"it begins at {log_begin}"
        )
        raise UsageError(f"the log has nothing between --from and --to: {told}", path=log.path)
    return log_begin if first_offset is None else first_offset, findings


def _cut(batch: MetadataBatch, offset: int) -> tuple[MetadataBatch | None, MetadataBatch | None]:
    """What of a batch lies below an offset, and the rest; None for nothing."""
    if offset <= batch.base_offset:
        return None, batch
    if offset > batch.last_offset:
        return batch, None
    below = tuple(each for each in batch.records if each.offset < offset)
    behind = batch.records[len(below) :]
    return replace(batch, last_offset=offset - 1, records=below), replace(batch, base_offset=offset, records=behind)
