"""The content of remote storage: the copies of segments, partition by partition, with the state that the metadata log has of each.

A bucket alone does not show which copies brokers still read: a broker that fails leaves objects without records, and records without
objects. The records are in ``__remote_log_metadata``.

Source: KIP-405; ``RemoteLogManager`` of 3.6 to 4.4, ``RemoteLogMetadataCache``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from msgspec import structs

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, SegmentState
from snaprebuild.broker.status import StatusCounts, StatusWord, status_of
from snaprebuild.findings import Finding, Severity, pluralize, unread_paths
from snaprebuild.published import Document, Int64, Natural, Part, Uuid, one_of
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.storage.partition_names import TopicPartition, named
from snaprebuild.storage.remote.listing import TierLayout, UnknownObjects
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs
from snaprebuild.tier.remote_partition import (
    ICEBERG_LACKS,
    OBJECTS_NEEDED,
    RemoteCopy,
    RemotePartition,
    fault_finding,
    torn_index,
    unreadable_objects,
)
from snaprebuild.tier.remote_store import (
    UNRECORDED,
    UNVERIFIED,
    CopyState,
    StoreAccess,
    list_store,
    refuse_without_copies,
    unrecorded_finding,
    unrecorded_states,
    zero_id_findings,
)

__all__ = [
    "InventoryCopy",
    "InventoryPartition",
    "TierInventory",
    "tier_inventory",
]


DAMAGED = (CopyState.LOST, CopyState.UNREADABLE)
"""States of copies that cannot be read whole."""

KEPT = (CopyState.LIVE, CopyState.SUPERSEDED)
"""States of finished copies with all of their objects. Of others, faults of the objects matter to no broker, or their state is damaged."""

SERVING = (CopyState.LIVE, CopyState.UNVERIFIED, CopyState.LOST)
"""States of copies that count towards gaps and overlaps."""


class OffsetRange(Part, frozen=True):
    """Offsets, both ends included."""

    first_offset: Natural
    last_offset: Natural


class InventoryCopy(Part, frozen=True):
    """A copy of a segment."""

    segment_id: Uuid
    """Id of this attempt at copying the segment."""
    state: CopyState
    """State of the copy (docs/guides/remote-storage.md)."""
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if only the metadata log could have it."""
    leader_epochs: Sequence[LeaderEpochEntry]
    """Leader epochs of the segment, ascending; empty if they are not known."""
    segment_bytes: Natural | None
    """Size of the segment; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    event_timestamp_ms: Int64 | None
    """When its state began; null without the metadata log."""
    missing: Sequence[Annotated[str, one_of(*(kind for kinds in OBJECTS_NEEDED.values() for kind in kinds))]]
    """Kinds of objects that are required but missing."""
    fault: str | None
    """Why its manifest cannot be read, or which of its sizes is wrong; null if nothing is."""
    key_id: str | None = None
    """Name of the key pair that its manifest has; null if it is not encrypted, or its manifest was not read."""


class InventoryTotals(Part, frozen=True):
    """Copies by state."""

    live: Natural
    superseded: Natural
    lost: Natural
    phantom: Natural
    unfinished: Natural
    deleting: Natural
    deleted: Natural
    unknown: Natural
    orphan: Natural
    unverified: Natural
    unreadable: Natural


class InventoryPartition(TopicPartition, frozen=True):
    """A partition in remote storage."""

    topic_id: Uuid
    layout: TierLayout | None
    """Layout of its objects; null if there are none."""
    stored_bytes: Natural
    """Bytes of all its objects."""
    totals: InventoryTotals
    gaps: Sequence[OffsetRange]
    """Offsets without a copy, between those that serve reads."""
    overlaps: Sequence[OffsetRange]
    """Offsets for which several copies serve reads."""
    copies: Sequence[InventoryCopy]
    """By start offset."""

    @property
    def counts(self) -> Counter[CopyState]:
        """Copies by state."""
        return Counter(copy.state for copy in self.copies)


class TierInventory(Document, frozen=True):
    """What `snaprebuild tier inventory --output json` prints."""

    NAME = "tier-inventory"
    VERSION = 3

    location: str
    """Directory or s3:// URL of the store."""
    verified: bool
    """A metadata log that could be read whole has the states."""
    unknown_objects: Natural
    """Objects of no known layout."""
    partitions: Sequence[InventoryPartition]
    status: StatusWord = StatusWord.HEALTHY
    """The worst of the counts, in the order of StatusWord."""
    counts: StatusCounts = StatusCounts()
    """Copies that are damaged, and those whose state is unknown; no snapshot is judged."""


def tier_inventory(
    access: StoreAccess,
    stores: S3Settings = USUAL_S3,
    selection: Selection = EVERYTHING,
) -> tuple[TierInventory, list[Finding]]:
    """Lists everything below a location: partitions in the order of the store, then those that the metadata log alone has.

    Args:
        access: to the store.
        stores: how the object stores are reached that the metadata logs are in.
        selection: of partitions; its offsets are ignored.

    Raises:
        UsageError: nothing of a known layout is there that the selection takes, and no metadata log.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    root = access.root
    tier = list_store(access, stores)
    logs = tier.logs
    findings = tier.findings
    dropped = logs.dropped + sum(log.dropped for log in logs.partitions.values())
    if dropped:
        message = f"{pluralize(dropped, 'record')} that did not fit earlier records; brokers drop them, too"
        findings.append(Finding("metadata-dropped", Severity.NOTE, access.metadata_logs[0], message))
    listed = (each for each in tier.partitions.values() if selection.takes_partition(each.topic, each.partition))
    findings += zero_id_findings(root.path, listed)
    partitions = []
    damaged = 0
    for wanted in dict.fromkeys((*tier.partitions, *logs.partitions)):
        if not selection.takes_partition(wanted.topic, wanted.partition):
            continue
        layout = tier.partitions[wanted].layout if wanted in tier.partitions else None
        remote = tier.listed_partition(wanted)
        partition = _inventory_of(remote, logs, layout)
        partitions.append(partition)
        damaged += _damaged_count(partition, remote)
        findings += _partition_findings(partition, remote, logs)
    if not partitions and not tier.unknown.claims:
        refuse_without_copies(tier, unreadable_objects(root.path, tier.unknown), selection)
    inventory = TierInventory(location=root.path, verified=tier.verified, unknown_objects=tier.unknown.count, partitions=partitions)
    names = {f"{each.topic}-{each.partition}" for each in (*tier.partitions, *logs.partitions)}
    findings += selection.absent_findings(names, root.path, are_others_read=bool(partitions))
    findings += _store_findings(inventory, tier.unknown, has_metadata=tier.has_metadata)
    status = status_of(
        (),
        wrong=0,
        suspect=0,
        missing=0,
        waiting=0,
        unread=len(unread_paths(findings)),
        damaged=damaged,
        unproven=sum(each.counts[CopyState.UNKNOWN] for each in partitions),
    )
    return structs.replace(inventory, status=status.word, counts=status.counts), findings


def _damaged_count(partition: InventoryPartition, remote: RemotePartition) -> int:
    """Copies that cannot be read whole. One that the store did not hand out may be good: it counts as unread."""
    count = 0
    for each in partition.copies:
        copy = remote.copies[uuid_from_text(each.segment_id)]
        if copy.unanswered is not None or copy.facts.is_unread:
            continue
        if each.state in DAMAGED:
            # Of copies that Iceberg wrote brokers need nothing but the manifest.
            count += copy.missing != ICEBERG_LACKS
        elif each.state in KEPT:
            count += each.fault is not None
    return count


def _inventory_of(remote: RemotePartition, logs: RemoteLogs, layout: TierLayout | None) -> InventoryPartition:
    unrecorded = [copy for copy in remote.copies.values() if copy.record is None]
    remote.read_facts(unrecorded)
    states = unrecorded_states(logs, remote.id, [copy.segment_id for copy in unrecorded], verified=remote.verified)
    recorded = [remote.copies[segment_id] for segment_id in remote.log.segments]
    rows = [_recorded_copy(copy, remote, is_deleted=remote.id in logs.deletions) for copy in recorded]
    rows += [_unrecorded_copy(copy, states[copy.segment_id]) for copy in unrecorded]
    rows.sort(key=lambda row: (row.start_offset, -1 if row.end_offset is None else row.end_offset))
    gaps, overlaps = _gaps_and_overlaps(rows)
    counts = Counter(row.state for row in rows)
    return InventoryPartition(
        **named(remote.id.topic, remote.id.partition),
        topic_id=uuid_to_text(remote.id.topic_id),
        layout=layout,
        stored_bytes=sum(row.stored_bytes for row in rows),
        totals=InventoryTotals(**{state.value: counts[state] for state in CopyState}),
        gaps=gaps,
        overlaps=overlaps,
        copies=rows,
    )


def _recorded_copy(copy: RemoteCopy, remote: RemotePartition, *, is_deleted: bool) -> InventoryCopy:
    """A copy that the metadata log has; ``is_deleted`` if the deletion of its partition has begun."""
    record = copy.record
    assert record is not None
    state = _recorded_state(copy, record, remote.log, is_deleted=is_deleted)
    fault = None if copy.unanswered is None else f"objects that the listing lacks: {copy.unanswered}"
    if copy.objects.by_kind and state is CopyState.LIVE and copy.layout is not TierLayout.AIVEN:
        size = copy.objects.by_kind[LocalTierFile.LOG].identity.size_bytes
        fault = torn_index(copy.objects)
        if size != record.size_bytes:
            fault = f"its .log has {size} bytes, and the metadata log has {record.size_bytes}"
    return _inventory_copy(copy, state, fault, record.event_timestamp_ms)


def _recorded_state(copy: RemoteCopy, record: RemoteSegment, log: RemoteLog, *, is_deleted: bool) -> CopyState:
    if record.state is SegmentState.COPY_SEGMENT_STARTED:
        return CopyState.UNFINISHED if copy.objects.by_kind else CopyState.PHANTOM
    if record.state is SegmentState.DELETE_SEGMENT_STARTED or is_deleted:
        return CopyState.DELETING
    if not log.is_referenced(record):
        return CopyState.SUPERSEDED
    if copy.missing == ICEBERG_LACKS or copy.unanswered is not None:
        return CopyState.UNREADABLE
    return CopyState.LOST if copy.missing else CopyState.LIVE


def _unrecorded_copy(copy: RemoteCopy, state: CopyState | None) -> InventoryCopy:
    """A copy of which only the objects are known."""
    fault = copy.facts.fault or copy.facts.torn_index
    own = CopyState.UNREADABLE if copy.missing or fault is not None else CopyState.UNVERIFIED
    return _inventory_copy(copy, state or own, fault, None)


def _inventory_copy(copy: RemoteCopy, state: CopyState, fault: str | None, event_timestamp_ms: int | None) -> InventoryCopy:
    return InventoryCopy(
        segment_id=uuid_to_text(copy.segment_id),
        state=state,
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        leader_epochs=copy.leader_epochs,
        segment_bytes=copy.segment_bytes,
        stored_bytes=copy.objects.size_bytes,
        event_timestamp_ms=event_timestamp_ms,
        missing=copy.missing,
        fault=fault,
        key_id=copy.facts.key_id,
    )


# ---------------------------------------------------------------------------------------------------------------- what follows


def _gaps_and_overlaps(copies: Iterable[InventoryCopy]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The offsets between copies that serve reads which are in none of them, and those that are in several.

    Args:
        copies: by start offset.
    """
    gaps = []
    overlaps = []
    reached: int | None = None
    for copy in copies:
        if copy.state not in SERVING or copy.end_offset is None:
            continue
        if reached is not None and copy.start_offset > reached + 1:
            gaps.append(OffsetRange(first_offset=reached + 1, last_offset=copy.start_offset - 1))
        if reached is not None and copy.start_offset <= reached:
            overlaps.append(OffsetRange(first_offset=copy.start_offset, last_offset=min(reached, copy.end_offset)))
        reached = copy.end_offset if reached is None else max(reached, copy.end_offset)
    return gaps, overlaps


PHANTOM_ADVICE = (
    "each upload that ends in an exception leaves one. `snaprebuild scan` shows the segment that blocks; "
    "remote.log.copy.disable=true (since 3.9) stops the attempts meanwhile. Retention or the log start offset removes them. "
    "Brokers of 3.6, 3.7 and 3.8.0 count them towards retention.bytes and delete good segments for it (KAFKA-17062): update those first"
)


def _store_findings(inventory: TierInventory, unknown: UnknownObjects, *, has_metadata: bool) -> Iterator[Finding]:
    """Findings about the store as a whole.

    Args:
        inventory: of the store.
        unknown: objects of no known layout.
        has_metadata: a metadata log was given, so that states are known.
    """
    yield from _claim_findings(inventory, unknown)
    if not has_metadata:
        yield Finding("tier-unverified", Severity.NOTE, inventory.location, UNVERIFIED)
    iceberg = sum(copy.missing == ICEBERG_LACKS for partition in inventory.partitions for copy in partition.copies)
    yield from unreadable_objects(inventory.location, unknown, iceberg)


def _partition_findings(partition: InventoryPartition, remote: RemotePartition, logs: RemoteLogs) -> Iterator[Finding]:
    counts = partition.counts
    place = remote.place
    first = {copy.state: copy.start_offset for copy in reversed(partition.copies)}
    for state, code, severity, what in _STATE_FINDINGS:
        if counts[state]:
            yield Finding(code, severity, place, f"{pluralize(counts[state], 'copy', 'copies')} {what}", first[state])
    for state in UNRECORDED:
        if counts[state]:
            yield unrecorded_finding(logs, remote.id, place, state, counts[state], first[state])
    for copy in partition.copies:
        listed = remote.copies[uuid_from_text(copy.segment_id)]
        is_unread = listed.unanswered is not None or listed.facts.is_unread
        if copy.fault is not None and (is_unread or copy.state in (*DAMAGED, *KEPT, CopyState.UNKNOWN)):
            yield fault_finding(place, listed, copy.fault)
    for gap in partition.gaps:
        message = f"offsets {gap.first_offset} to {gap.last_offset} are in no copy"
        yield Finding("tier-gap", Severity.FINDING, place, message, gap.first_offset)
    if partition.overlaps:
        message = f"{pluralize(len(partition.overlaps), 'range')} of offsets in more than one copy, as after a new leader: harmless"
        yield Finding("tier-overlap", Severity.NOTE, place, message, partition.overlaps[0].first_offset)


def _claim_findings(inventory: TierInventory, unknown: UnknownObjects) -> Iterator[Finding]:
    """Claims of ``tier upload``, and those among them without a complete copy from their first offset on."""
    begun = {
        (uuid_from_text(partition.topic_id), partition.partition, copy.start_offset)
        for partition in inventory.partitions
        for copy in partition.copies
        if not copy.missing and copy.fault is None
    }
    claims = unknown.claims
    unfinished = [each for each in claims if (each.topic_id, each.partition, each.start_offset) not in begun]
    if not claims:
        return
    message = f"{pluralize(len(claims), 'claim')} of snaprebuild tier upload, which the plugin never reads"
    first = None
    if unfinished:
        first = unfinished[0].start_offset
        last = unfinished[0].end_offset
        place = f"topic {uuid_to_text(unfinished[0].topic_id)}, partition {unfinished[0].partition}"
        message += f"; {len(unfinished)} of them without a complete copy, the first of offsets {first} to {last} ({place})"
    yield Finding("tier-claim", Severity.NOTE, inventory.location, message, first)


_STATE_FINDINGS = (
    (CopyState.LOST, "tier-lost", Severity.DAMAGED, "finished, and objects of them are missing: reads of them fail"),
    (CopyState.PHANTOM, "tier-phantom", Severity.FINDING, f"announced and never written: {PHANTOM_ADVICE}"),
    (
        CopyState.UNFINISHED,
        "tier-unfinished",
        Severity.NOTE,
        "announced and not finished: being written, or left by a failure",
    ),
    (CopyState.UNREADABLE, "tier-unreadable", Severity.FINDING, "that cannot be read, because an object is missing, bad or unread"),
)
