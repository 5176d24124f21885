"""The content of remote storage: the copies of segments, partition by partition, with the state that the metadata log has of each.

A bucket alone does not show which copies brokers still read: a broker that fails leaves objects without records, and records without
objects. The records are in ``__remote_log_metadata``.

Source: KIP-405; ``RemoteLogManager`` of 3.6 to 4.4, ``RemoteLogMetadataCache``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import METADATA_TOPIC, RemoteSegment, SegmentState, TopicIdPartition
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition, UnknownObjects
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.copies import (
    ICEBERG_LACKS,
    CopyFacts,
    copy_facts,
    fault_finding,
    manifest_bytes,
    missing_objects,
    torn_index,
)
from snaprebuild.tier.listing import UNVERIFIED, TierListing, list_store, unreadable_objects
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs
from snaprebuild.tier.zero_ids import zero_id_findings

__all__ = [
    "CopyState",
    "InventoryCopy",
    "PartitionInventory",
    "TierInventory",
    "tier_inventory",
    "unrecorded_finding",
    "unrecorded_states",
]


class CopyState(StrEnum):
    """State of a copy; Kafka's own states are those of ``RemoteLogSegmentState``."""

    LIVE = "live"
    """Finished, and reads are served from it."""
    SUPERSEDED = "superseded"
    """Finished; later copies hold all of it."""
    LOST = "lost"
    """Finished, and objects of it are missing: reads of it fail."""
    PHANTOM = "phantom"
    """COPY_SEGMENT_STARTED, and no object was ever written."""
    UNFINISHED = "unfinished"
    """COPY_SEGMENT_STARTED, with objects: it is being written, or its writer failed."""
    DELETING = "deleting"
    """Its deletion has begun, or that of its partition."""
    DELETED = "deleted"
    """Its deletion is recorded as finished, and objects of it exist."""
    UNKNOWN = "unknown"
    """Objects whose records would be in a partition of the metadata topic that was not given."""
    ORPHAN = "orphan"
    """Objects without a record, although the partition of the metadata topic that would hold it was given."""
    UNVERIFIED = "unverified"
    """Complete, as far as the store alone shows, or what could be read of a damaged metadata log."""
    UNREADABLE = "unreadable"
    """Objects are missing, or its manifest is bad, and no record has what it should be."""


SERVING = (CopyState.LIVE, CopyState.UNVERIFIED, CopyState.LOST)
"""States of copies that count towards gaps and overlaps."""


@dataclass(frozen=True, slots=True)
class InventoryCopy:
    """One copy of a segment.

    Attributes:
        segment_id: 16 bytes.
        state: see there.
        start_offset: of the segment.
        end_offset: last offset; None if only the metadata log could have it.
        leader_epochs: (epoch, first offset in the segment), ascending; none if unknown.
        segment_bytes: size of the segment; None if unknown.
        stored_bytes: of its objects.
        event_timestamp_ms: when its state began, ms since 1970; None without the metadata log.
        missing: kinds of objects that it needs and does not have.
        fault: why its manifest cannot be read, or which of its sizes is wrong, or None.
        is_unread: the store did not hand the manifest out, so that the copy may be good.
    """

    segment_id: bytes
    state: CopyState
    start_offset: int
    end_offset: int | None
    leader_epochs: tuple[tuple[int, int], ...]
    segment_bytes: int | None
    stored_bytes: int
    event_timestamp_ms: int | None
    missing: tuple[str, ...]
    fault: str | None = None
    is_unread: bool = False


@dataclass(slots=True)
class PartitionInventory:
    """One partition.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        layout: of its objects; None where there are none.
        copies: by start offset.
        gaps: offsets (first, last) between copies that serve, of which there is none.
        overlaps: the same for those of which there are several.
    """

    topic: str
    topic_id: bytes
    partition: int
    layout: TierLayout | None
    copies: tuple[InventoryCopy, ...]
    gaps: tuple[tuple[int, int], ...] = ()
    overlaps: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def counts(self) -> Counter[CopyState]:
        """Copies by state."""
        return Counter(copy.state for copy in self.copies)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(copy.stored_bytes for copy in self.copies)


@dataclass(slots=True)
class TierInventory:
    """A store.

    Attributes:
        root: its location.
        has_metadata: a metadata log was given, so that states are known.
        is_whole_log: and all of it could be read: brokers have no other copies.
        partitions: in the order of the store, then those that only the metadata log knows.
        findings: what is wrong, and notes.
        unknown: objects of no known layout.
    """

    root: str
    has_metadata: bool
    is_whole_log: bool = False
    partitions: list[PartitionInventory] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unknown: UnknownObjects = field(default_factory=UnknownObjects)


def tier_inventory(
    root: StorePath, metadata_logs: Sequence[str] = (), stores: S3Settings = USUAL_S3, key_prefix: str = ""
) -> TierInventory:
    """Lists everything below a location.

    Args:
        root: of the store, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them, or copies are taken for orphans.
        stores: how the object stores are reached that ``metadata_logs`` lead into.
        key_prefix: of the plugin, below the location.

    Raises:
        UsageError: nothing of a known layout is there, and no metadata log.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    listing = list_store(root, metadata_logs, stores, key_prefix)
    logs = listing.logs
    inventory = TierInventory(
        root.path, listing.has_metadata, listing.is_whole_log, findings=listing.findings, unknown=listing.unknown
    )
    dropped = logs.dropped + sum(log.dropped for log in logs.partitions.values())
    if dropped:
        message = f"{pluralize(dropped, 'record')} that did not fit earlier records; brokers drop them, too"
        inventory.findings.append(Finding("metadata-dropped", Severity.NOTE, metadata_logs[0], message))
    left = dict.fromkeys(logs.partitions)
    for found in listing.partitions:
        left.pop(found.id, None)
        inventory.partitions.append(_partition_of_objects(root, found, listing))
    for partition in left:
        segments = _segments(logs.partitions[partition])
        copies = [_recorded_copy(None, TierLayout.AIVEN, each, listing, partition) for each in segments]
        inventory.partitions.append(_with_gaps(partition, None, copies))
    if not inventory.partitions and not inventory.unknown.claims:
        raise UsageError("has no copy of a segment", path=root.path)
    inventory.findings += [*zero_id_findings(root.path, listing.partitions), *_findings(inventory, logs)]
    return inventory


def _segments(log: RemoteLog) -> list[RemoteSegment]:
    return sorted(log.segments.values(), key=lambda segment: segment.start_offset)


def _partition_of_objects(root: StorePath, found: TierPartition, listing: TierListing) -> PartitionInventory:
    logs = listing.logs
    partition = found.id
    copies = {copy.segment_id: copy for copy in found.copies}
    rows = [
        _recorded_copy(copies.pop(segment.segment_id, None), found.layout, segment, listing, partition)
        for segment in _segments(logs.partitions.get(partition, RemoteLog()))
    ]
    states = unrecorded_states(logs, partition, copies, is_whole_log=listing.is_whole_log)
    left = list(copies.values())
    facts = map_in_threads(partial(copy_facts, root, found.layout), left, manifest_bytes)
    rows += [_unrecorded_copy(found.layout, copy, known, states[copy.segment_id]) for copy, known in zip(left, facts, strict=True)]
    return _with_gaps(partition, found.layout, rows)


def _recorded_copy(
    copy: TierCopy | None, layout: TierLayout, segment: RemoteSegment, listing: TierListing, partition: TopicIdPartition
) -> InventoryCopy:
    """One that the metadata log has."""
    logs = listing.logs
    unanswered = listing.unanswered.get(segment.segment_id)
    log = logs.partitions[partition]
    missing = missing_objects(layout, copy)
    if segment.state is SegmentState.COPY_SEGMENT_STARTED:
        state = CopyState.PHANTOM if copy is None else CopyState.UNFINISHED
    elif segment.state is SegmentState.DELETE_SEGMENT_STARTED or partition in logs.deletions:
        state = CopyState.DELETING
    elif not log.is_referenced(segment):
        state = CopyState.SUPERSEDED
    elif missing == ICEBERG_LACKS or unanswered is not None:
        state = CopyState.UNREADABLE
    else:
        state = CopyState.LOST if missing else CopyState.LIVE
    fault = None if unanswered is None else f"objects that the listing lacks: {unanswered}"
    if copy is not None and state is CopyState.LIVE and layout is not TierLayout.AIVEN:
        size = copy.objects[LocalTierFile.LOG].identity.size_bytes
        fault = torn_index(copy)
        if size != segment.size_bytes:
            fault = f"its .log has {size} bytes, and the metadata log has {segment.size_bytes}"
    return InventoryCopy(
        segment_id=segment.segment_id,
        state=state,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in segment.leader_epochs),
        segment_bytes=segment.size_bytes,
        stored_bytes=0 if copy is None else copy.size_bytes,
        event_timestamp_ms=segment.event_timestamp_ms,
        missing=missing,
        fault=fault,
        is_unread=unanswered is not None,
    )


def _unrecorded_copy(layout: TierLayout, copy: TierCopy, facts: CopyFacts, state: CopyState | None) -> InventoryCopy:
    """One of which only the objects are known."""
    missing = missing_objects(layout, copy)
    fault = facts.fault or facts.torn_index
    return InventoryCopy(
        segment_id=copy.segment_id,
        state=state or (CopyState.UNREADABLE if missing or fault is not None else CopyState.UNVERIFIED),
        start_offset=copy.base_offset,
        end_offset=facts.end_offset,
        leader_epochs=facts.leader_epochs,
        segment_bytes=facts.segment_bytes,
        stored_bytes=copy.size_bytes,
        event_timestamp_ms=None,
        missing=missing,
        fault=fault,
        is_unread=facts.is_unread,
    )


def unrecorded_states(
    logs: RemoteLogs, partition: TopicIdPartition, ids: Iterable[bytes], *, is_whole_log: bool
) -> dict[bytes, CopyState | None]:
    """Why brokers do not have copies of these ids; None for those that they have, and where nothing shows it.

    Args:
        logs: the metadata log.
        partition: of the copies.
        ids: of the copies.
        is_whole_log: a metadata log was given, and all that was given could be read.
    """
    other: CopyState | None = None
    if is_whole_log:
        other = CopyState.ORPHAN if partition in logs.partitions or logs.not_given(partition) is None else CopyState.UNKNOWN
    if partition in logs.deleted:
        return dict.fromkeys(ids, CopyState.DELETED)
    if partition in logs.deletions:
        return dict.fromkeys(ids, CopyState.DELETING)
    log = logs.partitions.get(partition, RemoteLog())
    return {each: _unrecorded_state(log, each, other) for each in ids}


def _unrecorded_state(log: RemoteLog, segment_id: bytes, other: CopyState | None) -> CopyState | None:
    if segment_id in log.deleted:
        return CopyState.DELETED
    segment = log.segments.get(segment_id)
    if segment is None:
        return other
    return CopyState.DELETING if segment.state is SegmentState.DELETE_SEGMENT_STARTED else None


def unrecorded_finding(
    logs: RemoteLogs, partition: TopicIdPartition, place: str, state: CopyState, count: int, offset: int
) -> Finding:
    """The finding with the advice for copies in one of the states ``DELETING``, ``DELETED``, ``UNKNOWN`` and ``ORPHAN``."""
    code, severity, message = _UNRECORDED[state]
    if state is CopyState.UNKNOWN:
        message = message.format(number=logs.not_given(partition), topic=METADATA_TOPIC)
    text = f"{pluralize(count, 'copy', 'copies')} {message}"
    return Finding(code, severity, place, text, offset, is_unread=state is CopyState.UNKNOWN)


_UNRECORDED = {
    CopyState.DELETING: (
        "tier-deleting",
        Severity.NOTE,
        "whose deletion is recorded and not finished: brokers continue it. Wait; if it does not end, look for errors of "
        "the remote storage manager in the log of the partition's leader",
    ),
    CopyState.DELETED: (
        "tier-deleted",
        Severity.FINDING,
        "whose deletion the metadata log records as finished, and whose objects exist: no broker reads them or deletes them again. "
        "Delete these objects",
    ),
    CopyState.UNKNOWN: (
        "tier-unknown",
        Severity.FINDING,
        "not judged, because their records belong to partition {number} of {topic}, which was not given: add a directory that has it "
        "with --metadata-log. Delete nothing",
    ),
    CopyState.ORPHAN: (
        "tier-orphan",
        Severity.FINDING,
        "without a record in the metadata log: no broker of this cluster reads or deletes them. Another cluster or plugin wrote them, or "
        "their records are gone. Check that no other cluster uses this store before you delete them",
    ),
}


# ---------------------------------------------------------------------------------------------------------------- what follows


def _with_gaps(partition: TopicIdPartition, layout: TierLayout | None, copies: Iterable[InventoryCopy]) -> PartitionInventory:
    rows = tuple(sorted(copies, key=lambda copy: (copy.start_offset, -1 if copy.end_offset is None else copy.end_offset)))
    gaps = []
    overlaps = []
    reached: int | None = None
    for row in rows:
        if row.state not in SERVING or row.end_offset is None:
            continue
        if reached is not None and row.start_offset > reached + 1:
            gaps.append((reached + 1, row.start_offset - 1))
        if reached is not None and row.start_offset <= reached:
            overlaps.append((row.start_offset, min(reached, row.end_offset)))
        reached = row.end_offset if reached is None else max(reached, row.end_offset)
    return PartitionInventory(partition.topic, partition.topic_id, partition.partition, layout, rows, tuple(gaps), tuple(overlaps))


PHANTOM_ADVICE = (
    "each upload that ends in an exception leaves one. `snaprebuild scan` shows the segment that blocks; "
    "remote.log.copy.disable=true (since 3.9) stops the attempts meanwhile. Retention or the log start offset removes them. "
    "Brokers of 3.6, 3.7 and 3.8.0 count them towards retention.bytes and delete good segments for it (KAFKA-17062): update those first"
)


def _findings(inventory: TierInventory, logs: RemoteLogs) -> Iterator[Finding]:
    for partition in inventory.partitions:
        place = f"{inventory.root}: {partition.name} ({uuid_to_text(partition.topic_id)})"
        yield from _partition_findings(partition, place, logs)
    yield from _claim_findings(inventory)
    if not inventory.has_metadata:
        yield Finding("tier-unverified", Severity.NOTE, inventory.root, UNVERIFIED)
    iceberg = sum(copy.missing == ICEBERG_LACKS for partition in inventory.partitions for copy in partition.copies)
    yield from unreadable_objects(inventory.root, inventory.unknown, iceberg)


def _partition_findings(partition: PartitionInventory, place: str, logs: RemoteLogs) -> Iterator[Finding]:
    counts = partition.counts
    first = {copy.state: copy.start_offset for copy in reversed(partition.copies)}
    for state, code, severity, what in _STATE_FINDINGS:
        if counts[state]:
            yield Finding(code, severity, place, f"{pluralize(counts[state], 'copy', 'copies')} {what}", first[state])
    named = TopicIdPartition(partition.topic, partition.topic_id, partition.partition)
    for state in _UNRECORDED:
        if counts[state]:
            yield unrecorded_finding(logs, named, place, state, counts[state], first[state])
    for copy in partition.copies:
        if copy.fault is not None:
            yield fault_finding(place, copy.segment_id, copy.start_offset, copy.fault, is_unread=copy.is_unread)
    for start, end in partition.gaps:
        yield Finding("tier-gap", Severity.FINDING, place, f"offsets {start} to {end} are in no copy", start)
    if partition.overlaps:
        message = f"{pluralize(len(partition.overlaps), 'range')} of offsets in more than one copy, as after a new leader: harmless"
        yield Finding("tier-overlap", Severity.NOTE, place, message, partition.overlaps[0][0])


def _claim_findings(inventory: TierInventory) -> Iterator[Finding]:
    """Claims of ``tier upload``, and those among them without a complete copy from their first offset on."""
    begun = {
        (partition.topic_id, partition.partition, copy.start_offset)
        for partition in inventory.partitions
        for copy in partition.copies
        if not copy.missing and copy.fault is None
    }
    claims = inventory.unknown.claims
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
    yield Finding("tier-claim", Severity.NOTE, inventory.root, message, first)


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
