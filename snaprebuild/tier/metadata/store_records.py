"""The records of a whole store: the partitions of the listing and the metadata log, with the findings about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from formats.partition.partition_metadata import uuid_from_text
from formats.remote.remote_log_metadata import (
    METADATA_PARTITIONS,
    METADATA_TOPIC,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
)
from snaprebuild.broker.status import Status, StatusCounts, StatusWord, status_of
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize, unread_paths
from snaprebuild.published import Document, Natural, Part, Positive
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.tier.expiration import ExpectedDeletion
from snaprebuild.tier.inventory.inventory import phantom_finding
from snaprebuild.tier.metadata.copy_record import RecordSettings
from snaprebuild.tier.metadata.leader_logs import LeaderLogs
from snaprebuild.tier.metadata.partition_records import (
    CopyDecision,
    MetadataPartition,
    PartitionContext,
    PartitionRecords,
    RefusalCause,
    partition_records,
)
from snaprebuild.tier.metadata.topic_directories import MetadataTopicPlan, WrittenDirectory
from snaprebuild.tier.remote_partition import ICEBERG_LACKS, RemoteCopy, fault_finding, unreadable_objects
from snaprebuild.tier.remote_store import (
    UNVERIFIED,
    CopyState,
    StoreAccess,
    Tier,
    refuse_without_copies,
    unrecorded_finding,
    zero_id_findings,
)
from snaprebuild.tier.upload.announce import WrittenCopy

__all__ = ["DecisionTotals", "MetadataRequest", "StoreRecords", "TierMetadata", "store_records"]

NEEDED_TO_WRITE = (RefusalCause.LOG_START_UNKNOWN, RefusalCause.SETTINGS_UNKNOWN)
"""Options that an operator has to add before a write; no fault of the store."""

WITH_FINDINGS = (RefusalCause.GAP, RefusalCause.RECORDS_NOT_GIVEN)
"""Causes that have findings of their own, also where nothing is to be written."""


class DecisionTotals(Part, frozen=True, rename="kebab"):
    """Copies by decision."""

    included: Natural
    below_log_start: Natural
    superseded: Natural
    other_line: Natural
    deleting: Natural
    deleted: Natural
    unfinished: Natural
    unrecorded: Natural
    another_cluster: Natural
    no_topic: Natural
    lost: Natural
    incomplete: Natural
    unreadable: Natural


class TierMetadata(Document, frozen=True):
    """The JSON document of `snaprebuild tier metadata`."""

    NAME = "tier-metadata"
    VERSION = 1

    location: str
    """Directory or s3:// URL of the store."""
    verified: bool
    """A metadata log that could be read whole has the states; else no state is proven."""
    metadata_partitions: Positive
    """Partitions of __remote_log_metadata."""
    records: Natural
    """Records of the copies that are included."""
    dry_run: bool
    """Nothing was to be written."""
    records_file: str | None
    """File with the records; null if none was written."""
    log_dirs: Sequence[WrittenDirectory]
    """Partition directories of __remote_log_metadata that were written, or would be."""
    produced_to: str | None
    """Bootstrap servers that got the records; null without them."""
    expected_deletions: Sequence[ExpectedDeletion] | None
    """Copies that leaders delete in their first pass after the records were produced; null without --produce-to."""
    receipt: str | None
    """Receipt of the run, for `undo`; null if nothing was written into log directories."""
    totals: DecisionTotals
    partitions: Sequence[MetadataPartition]
    status: StatusWord = StatusWord.HEALTHY
    """The worst of the counts, in the order of StatusWord."""
    counts: StatusCounts = StatusCounts()
    """Copies that are damaged; no snapshot is judged."""


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """The facts about the store besides its objects, and the place of the records.

    Attributes:
        selection: of partitions; its offsets are ignored.
        leaders: the logs of leaders.
        settings: of the plugin.
        allow_gaps: offsets may be in no copy, if it is known which segments the leaders delete for that.
        writes: records are to be written, so that what forbids it is a refusal.
        metadata_partitions: of ``__remote_log_metadata``; None for those that the metadata log shows, else Kafka's default.
        cluster: its topics, as the metadata log has them; None if they are unknown.
        lost_partitions: numbers of the partitions of ``__remote_log_metadata`` that no replica has any more.
    """

    selection: Selection = EVERYTHING
    leaders: LeaderLogs = field(default_factory=LeaderLogs)
    settings: RecordSettings = field(default_factory=RecordSettings)
    allow_gaps: bool = False
    writes: bool = False
    metadata_partitions: int | None = None
    cluster: MetadataTopicPlan | None = None
    lost_partitions: frozenset[int] = frozenset()


@dataclass(slots=True)
class StoreRecords:
    """The records of a store.

    Attributes:
        location: of the store.
        verified: a metadata log that could be read whole has the states.
        metadata_partitions: of ``__remote_log_metadata``.
        writes: records are to be written.
        partitions: in the order of the store, then those that the metadata log alone has.
        findings: about the store, and the partitions.
    """

    location: str
    verified: bool
    metadata_partitions: int
    writes: bool = False
    partitions: list[PartitionRecords] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Whether no records may be written."""
        return any(each.part.refusals for each in self.partitions) or bool(unread_paths(self.findings))

    @property
    def written_copies(self) -> list[WrittenCopy]:
        """The copies that are included, with both records."""
        return [record.written for each in self.partitions for record in each.records]

    @property
    def totals(self) -> DecisionTotals:
        """Copies by decision."""
        counts = Counter(copy.record_decision for each in self.partitions for copy in each.part.copies)
        return DecisionTotals(**{decision.name.lower(): counts[decision] for decision in CopyDecision})

    @property
    def status(self) -> Status:
        """Copies that are damaged; one that the store did not hand out counts as unread."""
        damaged = 0
        for each in self.partitions:
            unread = {copy.segment_id for copy, _, is_unread in each.faults if is_unread}
            for copy in each.part.copies:
                is_damaged = copy.record_decision in (CopyDecision.LOST, CopyDecision.UNREADABLE) or bool(copy.record_differences)
                if is_damaged and uuid_from_text(copy.segment_id) not in unread:
                    damaged += 1
        unread_count = len(unread_paths(self.findings))
        return status_of((), wrong=0, suspect=0, missing=0, waiting=0, unread=unread_count, damaged=damaged)


def store_records(access: StoreAccess, request: MetadataRequest, tier: Tier) -> StoreRecords:
    """Decides which copies of a store get their records.

    Args:
        access: to the store.
        request: what is known besides.
        tier: the listed store (``list_store``).

    Raises:
        UsageError: nothing of a known layout is there that the selection takes, and no metadata log; or an option names a partition that
            is not there.
        RefusedError: a limit of the run is used up.
    """
    root = access.root
    request.leaders.check_options({*tier.partitions, *tier.logs.partitions})
    count = request.metadata_partitions
    if count is None:
        count = tier.logs.metadata_partitions() if tier.has_metadata else METADATA_PARTITIONS
    else:
        tier.logs.set_metadata_partitions(count)
    _check_lost(request.lost_partitions, tier, count)
    result = StoreRecords(root.path, tier.verified, count, request.writes)
    result.findings += [*tier.findings, *request.leaders.findings]
    result.findings += _dropped_findings(tier, access.records_place)
    taken = [each for each in tier.partitions.values() if request.selection.takes_partition(each.topic, each.partition)]
    result.findings += zero_id_findings(root.path, taken)
    for wanted in dict.fromkeys((*tier.partitions, *tier.logs.partitions)):
        if request.selection.takes_partition(wanted.topic, wanted.partition):
            listed = tier.partitions.get(wanted)
            layout = None if listed is None else listed.layout
            records = partition_records(tier.listed_partition(wanted), _context(tier, request, wanted, count), layout)
            result.partitions.append(records)
            if records.undecided:
                result.verified = False
            result.findings += _partition_findings(records, tier, is_write=request.writes)
    if not result.partitions and not tier.unknown.claims:
        refuse_without_copies(tier, unreadable_objects(root.path, tier.unknown), request.selection)
    result.findings += request.selection.absent_findings(tier.partition_names, root.path, are_others_read=bool(result.partitions))
    if not tier.has_metadata:
        result.findings.append(Finding("tier-unverified", Severity.NOTE, root.path, UNVERIFIED))
    result.findings += unreadable_objects(root.path, tier.unknown)
    return result


def _context(tier: Tier, request: MetadataRequest, partition: TopicIdPartition, count: int) -> PartitionContext:
    cluster = request.cluster
    return PartitionContext(
        logs=tier.logs,
        has_topic=None if cluster is None else partition.topic_id in cluster.topics,
        log_start_offset=request.leaders.log_start_of(partition),
        leader=request.leaders.newest(partition),
        settings=request.settings,
        allow_gaps=request.allow_gaps,
        metadata_partition=metadata_partition(partition, count),
        is_lost=metadata_partition(partition, count) in request.lost_partitions,
        first_local_offsets=request.leaders.first_local_offsets(partition),
        are_logs_named=bool(request.leaders.directories),
        replica_logs=None if cluster is None else cluster.replica_logs(partition, request.leaders),
        typed_log_start=request.leaders.log_starts.get((partition.topic, partition.partition)),
    )


def _check_lost(numbers: Iterable[int], tier: Tier, count: int) -> None:
    """Makes sure that partitions of ``__remote_log_metadata`` that were named as lost can be.

    Raises:
        UsageError: one was read, or is none of the topic, or no metadata log was given.
    """
    option = "--lost-metadata-partition"
    for number in sorted(numbers):
        if not tier.has_metadata:
            raise UsageError(f"{option}: goes with --metadata-log, which has the other partitions")
        if number >= count:
            raise UsageError(f"{option}: expected a partition from 0 to {count - 1}; found {number}")
        if number in tier.logs.read_numbers:
            raise UsageError(f"{option}: partition {number} was read, so that it is not lost")


# --------------------------------------------------------------------------------------------------------------- findings


def _dropped_findings(tier: Tier, records_place: str | None) -> Iterator[Finding]:
    dropped = tier.logs.dropped + sum(log.dropped for log in tier.logs.partitions.values())
    if dropped and records_place is not None:
        message = f"{pluralize(dropped, 'record')} that did not fit earlier records; brokers drop them, too"
        yield Finding("metadata-dropped", Severity.NOTE, records_place, message)


UNRECORDED_STATES = {
    CopyDecision.DELETING: CopyState.DELETING,
    CopyDecision.DELETED: CopyState.DELETED,
    CopyDecision.UNRECORDED: CopyState.UNKNOWN,
    CopyDecision.ANOTHER_CLUSTER: CopyState.ANOTHER_CLUSTER,
}
"""Decisions about copies that have the advice of an inventory."""


def _partition_findings(records: PartitionRecords, tier: Tier, *, is_write: bool) -> Iterator[Finding]:
    yield from _refusal_findings(records, is_write=is_write)
    yield from _undecided_findings(records, tier)
    yield from _decision_findings(records, tier)
    yield from records.remote.without_vanished(_object_findings(records))


def _refusal_findings(records: PartitionRecords, *, is_write: bool) -> Iterator[Finding]:
    place = records.remote.place
    for gap in records.part.gaps:
        message = f"offsets {gap.first_offset} to {gap.last_offset} are in no copy"
        yield Finding("tier-gap", Severity.FINDING, place, message, gap.first_offset)
    for refusal in records.part.refusals:
        severity = Severity.REFUSED
        if not is_write:
            severity = Severity.NOTE if refusal.cause in NEEDED_TO_WRITE else Severity.FINDING
        if is_write or refusal.cause not in WITH_FINDINGS:
            cause = refusal.cause.value
            yield Finding("tier-metadata-refused", severity, place, refusal.message, refusal.offset, reason=cause)


def _undecided_findings(records: PartitionRecords, tier: Tier) -> Iterator[Finding]:
    """The finding about copies whose records are in a metadata partition that was not given; a note if that partition is lost."""
    if not records.undecided:
        return
    place = records.remote.place
    count = len(records.undecided)
    offset = records.undecided[0].start_offset
    if any(each.cause is RefusalCause.RECORDS_NOT_GIVEN for each in records.part.refusals):
        yield unrecorded_finding(tier.logs, records.remote.id, place, CopyState.UNKNOWN, count, offset)
        return
    lost = f"partition {records.part.metadata_partition} of {METADATA_TOPIC} is lost"
    message = f"{lost}: whether brokers have deleted {pluralize(count, 'copy', 'copies')} is unknown"
    yield Finding("tier-unverified", Severity.NOTE, place, message, offset)


def _decision_findings(records: PartitionRecords, tier: Tier) -> Iterator[Finding]:
    """Findings about copies that get no records, as an inventory has them."""
    place = records.remote.place
    counts = records.part.decisions
    first = {copy.record_decision: copy.start_offset for copy in reversed(records.part.copies)}
    for decision, state in UNRECORDED_STATES.items():
        if counts[decision]:
            yield unrecorded_finding(tier.logs, records.remote.id, place, state, counts[decision], first[decision])
    for decision, code, severity, what in MISSING_OBJECTS:
        if counts[decision]:
            yield Finding(code, severity, place, f"{pluralize(counts[decision], 'copy', 'copies')} {what}", first[decision])
    for decision, what in LEFT_OUT.items():
        if counts[decision]:
            message = f"{pluralize(counts[decision], 'copy', 'copies')} without records: {what}"
            yield Finding("tier-metadata-left-out", Severity.NOTE, place, message, first[decision])


def _object_findings(records: PartitionRecords) -> Iterator[Finding]:
    """Findings about the objects of copies, and records without any."""
    remote = records.remote
    place = remote.place
    yield from unreadable_objects(place, iceberg=sum(copy.missing == ICEBERG_LACKS for copy in remote.copies.values()))
    yield from remote.deleted_findings()
    phantoms = sorted(copy.start_offset for copy in remote.copies.values() if _is_phantom(copy))
    if phantoms:
        yield phantom_finding(place, phantoms)
    for copy, message, is_unread in records.faults:
        yield fault_finding(place, copy, message, is_unread=is_unread)
    for each in records.part.copies:
        if each.record_differences:
            message = f"copy {each.segment_id}: {'; '.join(each.record_differences)}"
            yield Finding("tier-metadata-differs", Severity.DAMAGED, place, message, each.start_offset)


def _is_phantom(copy: RemoteCopy) -> bool:
    record = copy.record
    return record is not None and record.state is SegmentState.COPY_SEGMENT_STARTED and not copy.objects.by_kind


MISSING_OBJECTS = (
    (CopyDecision.LOST, "tier-lost", Severity.DAMAGED, "finished, and objects of them are missing: reads of them fail"),
    (CopyDecision.INCOMPLETE, "tier-unreadable", Severity.FINDING, "that cannot be read, because objects are missing"),
)
"""Decisions about copies that lack objects, with code, severity and text of the finding."""

LEFT_OUT = {
    CopyDecision.BELOW_LOG_START: "they end below the log start offset",
    CopyDecision.SUPERSEDED: "other copies hold all of their offsets",
    CopyDecision.OTHER_LINE: "their records are of another line of leaders",
    CopyDecision.UNFINISHED: "they were announced and not finished",
    CopyDecision.NO_TOPIC: "the cluster has no topic of their id",
}
"""Decisions that are part of normal life."""
