"""The copies of one partition whose records belong into a rebuilt ``__remote_log_metadata``, and why the others do not.

Nothing becomes readable that was not: copies below the log start offset, deleted ones, and ones that other copies supersede get no record.
Of copies that share offsets, those of the line of leaders are taken, as an audit joins them (``tier.audit.copy_log``). Where the copies
alone do not show which line is the leader's, the partition is refused. The records of a partition are in the order of its offsets, so that
each offset is read from the copy that the line has for it.

Source: ``RemoteLogMetadataCache``, ``RemoteLogLeaderEpochState``; ``RLMCopyTask``, which never uploads below the last copy again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from formats.errors import FormatError
from formats.partition.file_names import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import METADATA_TOPIC, RemoteSegment, SegmentState
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.findings import first_of, pluralize
from snaprebuild.published import Natural, Part, Uuid
from snaprebuild.storage.partition_names import TopicPartition, named
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.tier.audit.copy_log import CopySpan, Epochs, RemoteLine, follow_one_another, remote_line
from snaprebuild.tier.inventory.model import OffsetRange
from snaprebuild.tier.metadata.copy_record import (
    CopyRecord,
    FactSource,
    RecordFacts,
    RecordSettings,
    copy_record,
    differing_facts,
    prefix_fault,
)
from snaprebuild.tier.metadata.leader_logs import LeaderLog
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs, epoch_end_offsets, highest_remote_offset
from snaprebuild.tier.remote_partition import ICEBERG_LACKS, RemoteCopy, RemotePartition, was_not_handed_out
from snaprebuild.tier.remote_store import CopyState, unrecorded_states

__all__ = [
    "CopyDecision",
    "GapSegment",
    "MetadataCopy",
    "MetadataPartition",
    "PartitionRecords",
    "RecordsRefusal",
    "RefusalCause",
    "check_gap_segments",
    "partition_records",
]


class CopyDecision(StrEnum):
    """Whether a copy gets its records, or why it does not."""

    INCLUDED = "included"
    """The copy gets its records."""
    BELOW_LOG_START = "below-log-start"
    """The copy ends below the log start offset: no broker serves it."""
    SUPERSEDED = "superseded"
    """Other copies hold all of its offsets."""
    OTHER_LINE = "other-line"
    """The records of the copy are of another line of leaders."""
    DELETING = "deleting"
    """The metadata log has the begin of its deletion."""
    DELETED = "deleted"
    """The metadata log has its deletion."""
    UNFINISHED = "unfinished"
    """The metadata log has its begin and not its end."""
    UNRECORDED = "unrecorded"
    """The metadata log, which was read whole, does not have it."""
    ANOTHER_CLUSTER = "another-cluster"
    """Only the records of another cluster name its partition."""
    NO_TOPIC = "no-topic"
    """The cluster has no topic of its id."""
    LOST = "lost"
    """The metadata log has it, and objects of it are missing."""
    INCOMPLETE = "incomplete"
    """Objects of it are missing, and no record has it."""
    UNREADABLE = "unreadable"
    """The copy has all objects, and they do not show what a record needs."""


class RefusalCause(StrEnum):
    """Why no records of a partition may be written."""

    LOG_START_UNKNOWN = "log-start-unknown"
    """Where its log begins is unknown, so that deleted copies cannot be told apart."""
    LOG_START_ABOVE_END = "log-start-above-end"
    """The log start offset is above the end of the log, so that it is no log start of this log."""
    LOG_START_MOVED = "log-start-moved"
    """The log start offset is where a leader without records moves it, and copies without a record end there; or --log-start is lower."""
    SETTINGS_UNKNOWN = "settings-unknown"
    """Which custom metadata the plugin returns is unknown."""
    TWO_LINES = "two-lines"
    """Copies are of two lines of leaders, and nothing shows which is the leader's."""
    OLD_LEADER = "old-leader"
    """The log that was named as the leader's has fewer leader epochs than the copies."""
    GAP = "gap"
    """Offsets are in no copy: a leader would take them for uploaded, and delete its own segments of them."""
    RECORD_DIFFERS = "record-differs"
    """The record of a copy in the metadata log differs from its objects."""
    RECORDS_NOT_GIVEN = "records-not-given"
    """The metadata log lacks the partition with its records, so that deletions of its copies are unknown."""
    NOT_SERVED = "not-served"
    """With these records brokers would not read each offset from the copy that has it."""


class RecordsRefusal(Part, frozen=True):
    """Why no records of a partition may be written."""

    cause: RefusalCause
    message: str
    """Why, for the user; not stable."""
    offset: Natural | None = None
    """First offset concerned."""


class GapSegment(Part, frozen=True):
    """A segment on the leader's disk with offsets that are in no copy. The leader takes it for uploaded, and deletes it."""

    start_offset: Natural
    """Base offset."""
    end_offset: Natural
    """Last offset."""
    segment_bytes: Natural
    """Size of the segment."""


class MetadataCopy(Part, frozen=True):
    """A copy of a segment and its record."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    record_decision: CopyDecision
    """Whether it gets its records, or why it does not."""
    reason: str | None
    """Why, for the user; not stable. Null if the decision says all."""
    record_facts: RecordFacts | None
    """The facts of its record; null if they were not read, or cannot be read."""
    fact_sources: dict[str, FactSource] | None
    """The source of each fact by its name, and of the state COPY_SEGMENT_FINISHED; null without facts."""
    record_differences: Sequence[str]
    """Differences between its record in the metadata log and its objects, for the user; not stable."""


class MetadataPartition(TopicPartition, frozen=True):
    """A partition and the records of its copies."""

    topic_id: Uuid
    layout: TierLayout | None
    """Layout of its objects; null if there are none."""
    log_start_offset: Natural | None
    """Log start offset of its leader; null if unknown."""
    local_log_start_offset: Natural | None
    """First offset on the leader's disk; null if unknown."""
    next_offset: Natural | None
    """Offset after the last copy that gets records: the leader uploads from here on. Null if none does."""
    metadata_partition: Natural
    """Partition of __remote_log_metadata that holds its records."""
    records: Natural
    """Records of the copies that are included: two of each."""
    gaps: Sequence[OffsetRange]
    """Offsets from the log start on, or between copies, that are in no copy with records."""
    gap_segments: Sequence[GapSegment] | None
    """Segments with offsets of the gaps that the leader deletes after it has read the records; null if they are unknown."""
    refusals: Sequence[RecordsRefusal]
    """Why none of them may be written; empty if they may."""
    copies: Sequence[MetadataCopy]
    """By start offset."""

    @property
    def decisions(self) -> Counter[CopyDecision]:
        """Copies by decision."""
        return Counter(copy.record_decision for copy in self.copies)


@dataclass(slots=True)
class PartitionRecords:
    """The decisions on one partition.

    Attributes:
        remote: the partition.
        part: for the document.
        records: of the copies that are included, by offset.
        faults: why copies cannot be read, with the error of each.
        undecided: copies that count as finished although the metadata log lacks the partition with their records.
    """

    remote: RemotePartition
    part: MetadataPartition
    records: list[CopyRecord]
    faults: list[tuple[RemoteCopy, str, bool]] = field(default_factory=list)
    undecided: list[RemoteCopy] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The facts about a partition besides its copies.

    Attributes:
        logs: the metadata logs; empty without one.
        has_topic: whether the cluster has its topic; None if unknown.
        log_start_offset: None if unknown.
        leader: the newest of its logs that were named; None without one.
        settings: of the plugin.
        allow_gaps: offsets may be in no copy, if it is known which segments the leader deletes for that.
        metadata_partition: that holds its records.
        is_lost: that metadata partition is lost, as an option says, so that nothing shows which copies were deleted.
        replica_logs: the logs of all its replicas; None unless the cluster shows that all of them were named.
        typed_log_start: log start offset that an option has; None without one.
        first_local_offsets: first offsets on disk of all replicas that were named.
        are_logs_named: log directories were named, with replicas of this or of other partitions.
    """

    logs: RemoteLogs
    has_topic: bool | None
    log_start_offset: int | None
    leader: LeaderLog | None
    settings: RecordSettings
    allow_gaps: bool
    metadata_partition: int
    is_lost: bool = False
    replica_logs: Sequence[LeaderLog] | None = None
    typed_log_start: int | None = None
    first_local_offsets: frozenset[int] = frozenset()
    are_logs_named: bool = False


@dataclass(slots=True)
class _Row:
    """A copy with what was decided about it.

    Attributes:
        damage: why brokers cannot read from it, although its record is known; None if nothing shows that.
        until: offset after the last one that is read from it; None for a copy that is left out.
    """

    copy: RemoteCopy
    decision: CopyDecision
    reason: str | None = None
    record: CopyRecord | None = None
    differences: list[str] = field(default_factory=list)
    damage: str | None = None
    until: int | None = None

    def leave_out(self, decision: CopyDecision, reason: str | None = None) -> None:
        self.decision = decision
        self.reason = reason


def partition_records(remote: RemotePartition, context: PartitionContext, layout: TierLayout | None) -> PartitionRecords:
    """Decides which copies of a partition get their records.

    Args:
        remote: the partition, of the listing and the metadata log.
        context: what is known of it besides.
        layout: of its objects; None if there are none.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    return _CopyDecisions(remote, context).result(layout)


def check_gap_segments(records: Sequence[PartitionRecords], accepted: int) -> None:
    """Makes sure that the user has typed how many of their own segments leaders delete because of gaps.

    Args:
        records: of all partitions that get any.
        accepted: the typed number.

    Raises:
        RefusedError: it is another number.
    """
    segments = [(each.remote.place, segment) for each in records for segment in each.part.gap_segments or ()]
    if len(segments) == accepted:
        return
    described = "none"
    if segments:
        place, first = segments[0]
        described = f"the first of {place}, offsets {first.start_offset} to {first.end_offset}"
    message = (
        f"leaders would take offsets that are in no copy for uploaded, and delete {pluralize(len(segments), 'segment')} of their own "
        f"({described}), and {accepted} were accepted: look at --dry-run, then give --allow-gaps {len(segments)}"
    )
    raise RefusedError(message)


class _CopyDecisions:
    """The decisions on one partition, step by step."""

    def __init__(self, remote: RemotePartition, context: PartitionContext) -> None:
        self._remote = remote
        self._context = context
        self._faults: list[tuple[RemoteCopy, str, bool]] = []
        self._refusals: list[RecordsRefusal] = []
        self._rows: list[_Row] = []
        self._undecided: list[RemoteCopy] = []

    def result(self, layout: TierLayout | None) -> PartitionRecords:
        self._rows = list(self._first_decisions())
        self._read_records()
        self._leave_out_below_log_start()
        self._leave_out_damaged()
        included = self._of_line()
        self._check_records_given()
        self._check_settings()
        self._check_log_start()
        self._check_differences(included)
        gaps = list(self._gaps(included))
        gap_segments = self._gap_segments(gaps, included)
        self._check_gaps(gaps, gap_segments)
        self._check_served(included)
        self._check_leader_epochs(included)
        records = [row.record for row in included if row.record is not None]
        part = MetadataPartition(
            **named(self._remote.id.topic, self._remote.id.partition),
            topic_id=uuid_to_text(self._remote.id.topic_id),
            layout=layout,
            log_start_offset=self._context.log_start_offset,
            local_log_start_offset=None if self._context.leader is None else self._context.leader.first_local_offset,
            next_offset=None if not included else included[-1].until,
            metadata_partition=self._context.metadata_partition,
            records=2 * len(records),
            gaps=gaps,
            gap_segments=gap_segments,
            refusals=self._refusals,
            copies=[_shown(row) for row in self._rows],
        )
        return PartitionRecords(self._remote, part, records, self._faults, self._undecided)

    # ---- what the metadata log and the listing show ----

    def _first_decisions(self) -> Iterator[_Row]:
        remote = self._remote
        unrecorded = [copy.segment_id for copy in remote.copies.values() if copy.record is None]
        states = unrecorded_states(self._context.logs, remote.id, unrecorded, verified=remote.verified)
        logs = self._context.logs
        is_given = remote.id in logs.partitions or logs.not_given(remote.id) is None
        for copy in remote.copies.values():
            if copy.record is not None:
                decision = self._recorded_decision(copy)
            else:
                state = states[copy.segment_id]
                decision = _unrecorded_decision(state, is_given=is_given)
                if state is CopyState.UNKNOWN and not is_given:
                    self._undecided.append(copy)
            if self._context.has_topic is False and decision is CopyDecision.INCLUDED:
                decision = CopyDecision.NO_TOPIC
            row = _Row(copy, decision)
            if decision is CopyDecision.INCLUDED:
                self._check_objects(row)
            yield row

    def _recorded_decision(self, copy: RemoteCopy) -> CopyDecision:
        record = copy.record
        assert record is not None
        if self._remote.id in self._context.logs.deletions or record.state is SegmentState.DELETE_SEGMENT_STARTED:
            return CopyDecision.DELETING
        if record.state is SegmentState.COPY_SEGMENT_STARTED:
            # A log that could not be read whole may lack the record that finished it.
            if self._remote.verified or copy.missing:
                return CopyDecision.UNFINISHED
            return CopyDecision.INCLUDED
        if self._remote.log.is_referenced(record):
            return CopyDecision.INCLUDED
        return CopyDecision.SUPERSEDED

    def _check_objects(self, row: _Row) -> None:
        copy = row.copy
        if not copy.missing:
            return
        if copy.missing == ICEBERG_LACKS:
            row.leave_out(CopyDecision.UNREADABLE, "its records went into a table of Iceberg")
        elif copy.unanswered is not None:
            row.leave_out(CopyDecision.UNREADABLE, f"objects that the listing lacks: {copy.unanswered}")
            self._faults.append((copy, row.reason or "", True))
        else:
            decision = CopyDecision.INCOMPLETE if copy.record is None else CopyDecision.LOST
            row.leave_out(decision, f"objects of it are missing: {', '.join(copy.missing)}")

    # ---- what the objects show ----

    @property
    def _candidates(self) -> list[_Row]:
        return [row for row in self._rows if row.decision is CopyDecision.INCLUDED]

    def _read_records(self) -> None:
        self._remote.read_facts([row.copy for row in self._rows if not row.copy.missing])
        self._leave_out_deleted([row for row in self._rows if row.copy.facts.fault is not None])
        for row in self._candidates:
            try:
                row.record = copy_record(self._remote, row.copy, self._context.settings)
                if row.copy.record is not None:
                    row.differences = differing_facts(self._remote, row.copy, self._context.settings)
            except (FormatError, ReadFailedError) as error:
                if self._leave_out_deleted([row]):
                    continue
                is_unread = was_not_handed_out(error) or row.copy.facts.is_unread
                self._faults.append((row.copy, error.message, is_unread))
                if row.record is None:
                    row.leave_out(CopyDecision.UNREADABLE, error.message)
                elif not is_unread:
                    row.damage = error.message
            else:
                self._note_damage(row)

    def _leave_out_deleted(self, rows: Sequence[_Row]) -> bool:
        """Leaves out those of some copies that were deleted since the store was listed. Whether any was."""
        if not self._remote.leave_out_deleted([row.copy for row in rows]):
            return False
        self._rows = [row for row in self._rows if row.copy.segment_id in self._remote.copies]
        return True

    def _note_damage(self, row: _Row) -> None:
        """Takes the damage that the facts of a copy show, which its record in the metadata log does not."""
        facts = row.copy.facts
        damage = facts.torn_index if facts.fault is None else facts.fault
        if damage is None:
            return
        self._faults.append((row.copy, damage, facts.is_unread))
        if not facts.is_unread:
            row.damage = damage

    def _leave_out_below_log_start(self) -> None:
        start = self._context.log_start_offset
        if start is None:
            return
        for row in self._candidates:
            if row.record is not None and row.record.segment.end_offset < start:
                row.leave_out(CopyDecision.BELOW_LOG_START)

    def _leave_out_damaged(self) -> None:
        """Leaves out what brokers cannot read: a leader deletes its own segments of the offsets that copies have."""
        for row in self._candidates:
            if row.damage is not None:
                row.leave_out(CopyDecision.UNREADABLE, row.damage)

    # ---- the line of leaders ----

    def _of_line(self) -> list[_Row]:
        """The copies that make the log, ascending; the others are left out."""
        rows = self._candidates
        if not rows:
            return []
        spans = [_span_of(row) for row in rows]
        leader = self._context.leader
        leader_epochs = () if leader is None else tuple((each.epoch, each.start_offset) for each in leader.leader_epochs)
        epochs: Epochs = leader_epochs
        if not leader_epochs and not follow_one_another(spans):
            epochs = self._newest_epochs(rows)
        line = remote_line(spans, epochs)
        if leader is not None and leader_epochs:
            self._check_leader(leader, spans)
        else:
            self._check_one_line(spans, line, epochs)
        start = self._context.log_start_offset or 0
        parts = [part for part in line.parts if part.until > start]  # what else it has was truncated
        self._leave_out_others(rows, line, {part.number for part in parts})
        for part in parts:
            rows[part.number].until = part.until
        return [rows[part.number] for part in parts]

    def _newest_epochs(self, rows: Sequence[_Row]) -> Epochs:
        """The leader epochs of the log of the newest copy."""
        newest = max(rows, key=_rank)
        entries = self._remote.known_log_epochs(newest.copy) or _segment_of(newest).leader_epochs
        return tuple((each.epoch, each.start_offset) for each in entries)

    def _check_leader(self, leader: LeaderLog, spans: Sequence[CopySpan]) -> None:
        newer = [span for span in spans if span.epochs and span.epochs[-1][0] > leader.last_epoch]
        if newer:
            message = (
                f"{leader.path} ends with leader epoch {leader.last_epoch}, and the copy from {newer[0].start_offset} on is of "
                f"{newer[0].epochs[-1][0]}: name the log of the leader"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.OLD_LEADER, message=message, offset=newer[0].start_offset))

    def _check_one_line(self, spans: Sequence[CopySpan], line: RemoteLine, epochs: Epochs) -> None:
        """Refuses copies that differ from the line otherwise than by an end that was truncated."""
        forks = [number for number in line.left_out if not _is_truncated(spans[number], epochs)]
        if forks:
            span = spans[min(forks, key=lambda number: spans[number].start_offset)]
            reason = line.left_out[min(forks, key=lambda number: spans[number].start_offset)]
            message = (
                f"the copy from {span.start_offset} on differs from the newest one: {reason}. Name the leader's log directory with "
                "--log-dir"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.TWO_LINES, message=message, offset=span.start_offset))

    @staticmethod
    def _leave_out_others(rows: Sequence[_Row], line: RemoteLine, chosen: Collection[int]) -> None:
        for number, row in enumerate(rows):
            if number in chosen:
                continue
            if number in line.left_out:
                row.leave_out(CopyDecision.OTHER_LINE, line.left_out[number])
            else:
                row.leave_out(CopyDecision.SUPERSEDED, "other copies hold all of its offsets")

    # ---- conditions of a write ----

    def _check_records_given(self) -> None:
        if not self._undecided or self._context.is_lost:
            return
        number = self._context.metadata_partition
        message = (
            f"deletions of the copies are unknown, because partition {number} of {METADATA_TOPIC} was not given: add a directory that "
            f"has it with --metadata-log. If it is lost, --lost-metadata-partition {number} accepts that deleted copies get records"
        )
        offset = self._undecided[0].start_offset
        self._refusals.append(RecordsRefusal(cause=RefusalCause.RECORDS_NOT_GIVEN, message=message, offset=offset))

    def _check_settings(self) -> None:
        if self._context.settings.custom_fields is not None:
            self._check_prefix()
            return
        unknown = [row for row in self._candidates if row.copy.record is None and row.copy.layout is TierLayout.AIVEN]
        if unknown:
            message = (
                "which custom metadata the plugin returns is in no object: give its custom.metadata.fields.include with "
                "--custom-metadata, or none"
            )
            offset = unknown[0].copy.start_offset
            self._refusals.append(RecordsRefusal(cause=RefusalCause.SETTINGS_UNKNOWN, message=message, offset=offset))

    def _check_prefix(self) -> None:
        for row in self._candidates:
            fault = None if row.copy.record is not None else prefix_fault(self._remote, row.copy, self._context.settings)
            if fault is not None:
                offset = row.copy.start_offset
                self._refusals.append(RecordsRefusal(cause=RefusalCause.SETTINGS_UNKNOWN, message=fault, offset=offset))
                return

    def _check_log_start(self) -> None:
        if self._context.log_start_offset is not None:
            self._check_log_end(self._context.log_start_offset)
            self._check_log_start_moved(self._context.log_start_offset)
        elif self._candidates:
            message = (
                f"the log start offset is unknown, so that copies below it would be readable again: {self._log_start_advice()}"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.LOG_START_UNKNOWN, message=message))

    def _log_start_advice(self) -> str:
        option = f"give --log-start {self._remote.id.topic}-{self._remote.id.partition}=OFFSET"
        if self._context.leader is not None:
            return f"{LOG_START_OFFSET_CHECKPOINT} next to {self._context.leader.path} has no line of it: {option}"
        if self._context.are_logs_named:
            return f"no --log-dir has it with its topic id: name the log directory of its leader, too, or {option}"
        return "give --log-dir or --log-start"

    def _check_log_end(self, log_start: int) -> None:
        """Refuses a log start above the end of the leader's log, or above the last copy if no log was named."""
        leader = self._context.leader
        if leader is None or leader.first_local_offset is None:
            end = self._copies_end()
            where = "the last copy"
            advice = "give --log-dir of the leader, or the right --log-start"
        elif log_start <= leader.first_local_offset:
            return
        else:
            where = leader.path
            advice = "name the log of the leader, and its log start"
            try:
                end = leader.log_end_offset()
            except (FormatError, ReadFailedError) as error:
                message = f"whether {leader.path} reaches to the log start {log_start} is unknown: {error.message}"
                self._refuse_log_start(message, log_start)
                return
        if end is not None and log_start > end:
            self._refuse_log_start(f"the log start {log_start} is above the end of {where}, which is {end}: {advice}", log_start)

    def _refuse_log_start(self, message: str, log_start: int) -> None:
        self._refusals.append(RecordsRefusal(cause=RefusalCause.LOG_START_ABOVE_END, message=message, offset=log_start))

    def _check_log_start_moved(self, log_start: int) -> None:
        """Refuses a log start that may be the mark of the loss: a leader that starts without records moves it to its first segment.

        An option confirms it with the same offset; a lower one is refused, because it would not be used.

        Source: ``RemoteLogManager.findLogStartOffset``.
        """
        typed = self._context.typed_log_start
        if typed == log_start:
            return
        if log_start in self._context.first_local_offsets and self._refuse_moved_log_start(log_start):
            return
        if typed is not None:
            message = (
                f"--log-start has {typed}, which is below the log start {log_start} of the log directories: leave the option out. If "
                f"{log_start} is wrong, stop the brokers, and correct {LOG_START_OFFSET_CHECKPOINT} of each replica"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.LOG_START_MOVED, message=message, offset=typed))

    def _refuse_moved_log_start(self, log_start: int) -> bool:
        """Refuses a log start that is the first offset on disk, if a copy without a record ends there. Whether one does."""
        below = [row for row in self._rows if row.decision is CopyDecision.BELOW_LOG_START and row.copy.record is None]
        is_moved = any(_known_end(row) == log_start for row in below)
        if is_moved:
            name = f"{self._remote.id.topic}-{self._remote.id.partition}"
            first = min(row.copy.start_offset for row in below)
            message = (
                f"the log start {log_start} is the first offset on disk, and {pluralize(len(below), 'copy', 'copies')} below it exist, "
                f"from {first} on. A leader that starts while {METADATA_TOPIC} is empty moves its log start there. If one did, stop the "
                f"brokers, and correct {LOG_START_OFFSET_CHECKPOINT} and {LEADER_EPOCH_CHECKPOINT} of each replica. Else confirm it "
                f"with --log-start {name}={log_start}"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.LOG_START_MOVED, message=message, offset=log_start))
        return is_moved

    def _copies_end(self) -> int | None:
        """Offset after the last one of all copies, also of those that are left out; None without a copy."""
        if not self._rows:
            return None
        last = max(self._rows, key=lambda row: row.copy.start_offset)
        if not last.copy.missing:
            with contextlib.suppress(FormatError, ReadFailedError):  # then the last offset that is sure is its first one
                self._remote.read_end(last.copy)
        return max(_known_end(row) for row in self._rows)

    def _check_differences(self, included: Sequence[_Row]) -> None:
        different = [row for row in included if row.differences]
        if different:
            offset = different[0].copy.start_offset
            message = f"the record of the copy from {offset} on differs from its objects: {different[0].differences[0]}"
            self._refusals.append(RecordsRefusal(cause=RefusalCause.RECORD_DIFFERS, message=message, offset=offset))

    def _gaps(self, included: Sequence[_Row]) -> Iterator[OffsetRange]:
        leader = self._context.leader
        reached = self._context.log_start_offset
        for row in included:
            segment = _segment_of(row)
            if reached is not None and segment.start_offset > reached:
                yield OffsetRange(first_offset=reached, last_offset=segment.start_offset - 1)
            assert row.until is not None, "the line has it"
            reached = row.until if reached is None else max(row.until, reached)
        local = None if leader is None else leader.first_local_offset
        if reached is not None and local is not None and local > reached:
            yield OffsetRange(first_offset=reached, last_offset=local - 1)

    def _gap_segments(self, gaps: Sequence[OffsetRange], included: Sequence[_Row]) -> list[GapSegment] | None:
        """The segments with offsets of the gaps that a leader would take for uploaded; None if they are unknown.

        Any replica may be the leader: the one that deletes most counts.
        """
        if not gaps:
            return []
        if self._context.replica_logs is None:
            return None
        most: list[GapSegment] = []
        for log in self._context.replica_logs:
            segments = self._gap_segments_of(log, gaps, included)
            if segments is None:
                return None
            most = max(most, segments, key=len)
        return most

    @staticmethod
    def _gap_segments_of(leader: LeaderLog, gaps: Sequence[OffsetRange], included: Sequence[_Row]) -> list[GapSegment] | None:
        """The segments that one replica deletes if it leads.

        Source: ``UnifiedLog.isSegmentEligibleForDeletion``.
        """
        if leader.first_local_offset is None:
            return []
        if not leader.leader_epochs:
            return None
        try:
            log_end = leader.log_end_offset()
        except (FormatError, ReadFailedError):
            return None
        highest = highest_remote_offset(_folded(included), leader.leader_epochs, log_end)
        sizes = leader.segment_sizes
        ends = [base_offset for base_offset, _ in sizes[1:]] + [log_end]
        segments = [
            GapSegment(start_offset=base_offset, end_offset=end - 1, segment_bytes=size)
            for (base_offset, size), end in zip(sizes, ends, strict=True)
            if base_offset < end <= highest + 1
        ]
        return [each for each in segments if any(_share_offsets(each, gap) for gap in gaps)]

    def _check_gaps(self, gaps: Sequence[OffsetRange], segments: Sequence[GapSegment] | None) -> None:
        if not gaps or (self._context.allow_gaps and segments is not None):
            return
        first = gaps[0]
        offsets = f"offsets {first.first_offset} to {first.last_offset} are in no copy that gets records"
        if segments is None:
            message = (
                f"{offsets}. A leader would take them for uploaded, and which of its own segments it deletes is unknown. Name the "
                "log directories of all replicas with --log-dir, and the metadata log of the cluster with --metadata"
            )
        elif segments:
            message = (
                f"{offsets}. The leader would take them for uploaded, and delete {pluralize(len(segments), 'segment')} of its own, the "
                f"first from offset {segments[0].start_offset}: --allow-gaps with their number accepts that they are lost"
            )
        else:
            message = f"{offsets}, and the leader has no segment of them that it would delete: --allow-gaps 0 accepts the gap"
        self._refusals.append(RecordsRefusal(cause=RefusalCause.GAP, message=message, offset=first.first_offset))

    def _check_served(self, included: Sequence[_Row]) -> None:
        """Folds the records as brokers do, and looks up the ends of each leader epoch of each copy."""
        log = _folded(included)
        for row in included:
            assert row.until is not None, "the line has it"
            unserved = _unserved_offset(log, _segment_of(row), row.until)
            if unserved is not None:
                message = f"with these records offset {unserved} would be read from another copy than {row.copy.start_offset}"
                self._refusals.append(RecordsRefusal(cause=RefusalCause.NOT_SERVED, message=message, offset=unserved))
                return

    def _check_leader_epochs(self, included: Sequence[_Row]) -> None:
        """Refuses copies of offsets for which the leader's log has no leader epoch: it serves none of them.

        A log start offset that moves cuts the leader epochs, too (``UnifiedLog.maybeIncrementLogStartOffset``).
        """
        leader = self._context.leader
        if leader is None or not leader.leader_epochs or not included:
            return
        first = max(_segment_of(included[0]).start_offset, self._context.log_start_offset or 0)
        known_from = leader.leader_epochs[0].start_offset
        if first < known_from:
            starts = dict[int, int]()
            for row in included:
                for entry in _segment_of(row).leader_epochs:
                    starts.setdefault(entry.epoch, entry.start_offset)
            lines = first_of([f"{epoch} {start}" for epoch, start in starts.items()])
            name = f"{self._remote.id.topic}-{self._remote.id.partition}"
            message = (
                f"brokers serve none of the offsets {first} to {known_from - 1}: {LEADER_EPOCH_CHECKPOINT} of {leader.path} begins at "
                f"{known_from}. If deletions moved the log start there before the broker was killed, give --log-start "
                f"{name}={known_from}. If a leader ran without records, stop the brokers, and correct the file in each replica: the "
                f"copies have the lines {lines}"
            )
            self._refusals.append(RecordsRefusal(cause=RefusalCause.NOT_SERVED, message=message, offset=first))


def _unrecorded_decision(state: CopyState | None, *, is_given: bool) -> CopyDecision:
    """The decision on a copy without a record.

    Args:
        state: of the copy (``unrecorded_states``).
        is_given: the metadata partition that would hold its records was read.
    """
    if state is CopyState.UNKNOWN:
        return CopyDecision.UNRECORDED if is_given else CopyDecision.INCLUDED
    decisions = {
        CopyState.DELETED: CopyDecision.DELETED,
        CopyState.DELETING: CopyDecision.DELETING,
        CopyState.ANOTHER_CLUSTER: CopyDecision.ANOTHER_CLUSTER,
    }
    return CopyDecision.INCLUDED if state is None else decisions.get(state, CopyDecision.INCLUDED)


def _folded(included: Sequence[_Row]) -> RemoteLog:
    """The records of the copies that are included, folded as brokers do."""
    log = RemoteLog()
    for row in included:
        if row.record is not None:
            log.take(row.record.segment)
            log.take(row.record.written.finished)
    return log


def _share_offsets(segment: GapSegment, gap: OffsetRange) -> bool:
    return segment.start_offset <= gap.last_offset and gap.first_offset <= segment.end_offset


def _segment_of(row: _Row) -> RemoteSegment:
    assert row.record is not None, "a copy without a record is left out"
    return row.record.segment


def _known_end(row: _Row) -> int:
    """Offset after the last one of a copy; after its first one if its end was not read."""
    if row.record is not None:
        return row.record.segment.end_offset + 1
    if row.copy.end_offset is None:
        return row.copy.start_offset + 1
    return row.copy.end_offset + 1


def _span_of(row: _Row) -> CopySpan:
    segment = _segment_of(row)
    epochs = tuple((each.epoch, each.start_offset) for each in segment.leader_epochs)
    return CopySpan(segment.start_offset, segment.end_offset, epochs, _rank(row))


def _rank(row: _Row) -> tuple[int, int, int]:
    segment = _segment_of(row)
    return segment.leader_epochs[-1].epoch, segment.end_offset, segment.event_timestamp_ms


def _is_truncated(span: CopySpan, epochs: Epochs) -> bool:
    """Whether a copy is of the log with these leader epochs, up to an end that a later leader did not have."""
    starts = dict(epochs)
    if not span.epochs or not starts:
        return False
    if span.epochs[-1][0] >= max(starts):
        return False
    for epoch, start in span.epochs:
        if epoch not in starts:
            return False
        if start != starts[epoch] and start != span.start_offset:
            return False
    first = starts[span.epochs[0][0]]
    return first <= span.start_offset or first == min(starts.values())  # the log start offset has moved above the copy's begin


def _unserved_offset(log: RemoteLog, segment: RemoteSegment, end: int) -> int | None:
    """The first offset of a copy below ``end`` that is read from another copy, or from none; None if there is none."""
    ends = epoch_end_offsets(segment)
    for entry in segment.leader_epochs:
        last = min(ends[entry.epoch], end - 1)
        for offset in (entry.start_offset, last):
            if entry.start_offset <= offset <= last:
                found = log.lookup(entry.epoch, offset)
                if found is None or found.segment_id != segment.segment_id:
                    return offset
    return None


def _shown(row: _Row) -> MetadataCopy:
    return MetadataCopy(
        segment_id=uuid_to_text(row.copy.segment_id),
        start_offset=row.copy.start_offset,
        record_decision=row.decision,
        reason=row.reason,
        record_facts=None if row.record is None else row.record.facts,
        fact_sources=None if row.record is None else row.record.sources.by_fact,
        record_differences=row.differences,
    )
