"""What is in remote storage: the copies of segments, partition by partition, and what the metadata log says of each.

A bucket alone does not tell which copies brokers still know: a broker that fails leaves objects behind, and announcements without objects.
``__remote_log_metadata`` tells.

Source: KIP-405; ``RemoteLogManager`` of 3.6 to 4.4, ``RemoteLogMetadataCache``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from formats.errors import BadVersionError, FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_key import AivenObject
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import METADATA_TOPIC, RemoteSegment, SegmentState, TopicIdPartition, read_remote_log_record
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition, UnknownObjects
from snaprebuild.storage.store import S3Settings, Store
from snaprebuild.storage.thread_pool import at_once
from snaprebuild.tier.copies import (
    copy_facts,
    fault_code,
    listed_partitions,
    manifest_bytes,
    missing_objects,
    torn_index,
)
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs

__all__ = [
    "ICEBERG_LACKS",
    "CopyState",
    "InventoryCopy",
    "PartitionInventory",
    "TierInventory",
    "read_remote_logs",
    "tier_inventory",
    "unknown_objects",
    "unrecorded_finding",
    "unrecorded_states",
]

ICEBERG_LACKS = (AivenObject.LOG, AivenObject.INDEXES)
"""Missing where the records went into a table instead."""


class CopyState(StrEnum):
    """What a copy is worth."""

    LIVE = "live"
    """Finished, and reads are served from it."""
    SUPERSEDED = "superseded"
    """Finished; later copies hold all of it."""
    LOST = "lost"
    """Finished, and objects of it are missing: reads of it fail."""
    PHANTOM = "phantom"
    """Announced, and no object was ever written."""
    UNFINISHED = "unfinished"
    """Announced, with objects: it is being written, or its writer failed."""
    DELETING = "deleting"
    """Its deletion has begun, or that of its partition."""
    DELETED = "deleted"
    """Its deletion is recorded as finished, and objects of it exist."""
    UNKNOWN = "unknown"
    """Objects whose records would be in a partition of the metadata topic that was not given."""
    ORPHAN = "orphan"
    """Objects that the metadata log does not know, although the partition that would hold their records was given."""
    UNVERIFIED = "unverified"
    """Complete, as far as the store alone tells, or what could be read of a damaged metadata log."""
    UNREADABLE = "unreadable"
    """Objects are missing, or its manifest is bad, and nobody tells what it should be."""


SERVING = (CopyState.LIVE, CopyState.UNVERIFIED, CopyState.LOST)
"""What counts towards gaps and overlaps."""


@dataclass(frozen=True, slots=True)
class InventoryCopy:
    """One copy of a segment.

    Attributes:
        segment_id: 16 bytes.
        state: see there.
        start_offset: of the segment.
        end_offset: last offset; None where only the metadata log could tell.
        leader_epochs: (epoch, first offset in the segment), ascending; none where nobody tells.
        segment_bytes: size of the segment; None where nobody tells.
        stored_bytes: of its objects.
        event_timestamp_ms: when its state began, ms since 1970; None without the metadata log.
        missing: kinds of objects that it needs and does not have.
        fault: why its manifest cannot be read, or which of its sizes is wrong, or None.
        is_unread: the store did not hand the manifest out, so that the fault says nothing of the copy.
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
        """Of all objects."""
        return sum(copy.stored_bytes for copy in self.copies)


@dataclass(slots=True)
class TierInventory:
    """A store.

    Attributes:
        root: its location.
        has_metadata: a metadata log was given, so that states are known.
        knows_all: and all of it could be read, so that what it does not know nobody knows.
        partitions: in the order of the store, then those that only the metadata log knows.
        findings: what is wrong, and what is worth knowing.
        unknown: objects of no known layout.
    """

    root: str
    has_metadata: bool
    knows_all: bool = False
    partitions: list[PartitionInventory] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unknown: UnknownObjects = field(default_factory=UnknownObjects)


def tier_inventory(
    store: Store, root: str, metadata_logs: Sequence[str] = (), settings: S3Settings | None = None, key_prefix: str = ""
) -> TierInventory:
    """Looks at everything below a location.

    Args:
        store: that holds it.
        root: the location, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them, or copies are taken for orphans.
        settings: of object stores that ``metadata_logs`` lead into.
        key_prefix: of the plugin, below the location.

    Raises:
        UsageError: nothing of a known layout is there, and no metadata log.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    inventory = TierInventory(root, bool(metadata_logs))
    logs = read_remote_logs(metadata_logs, settings or S3Settings(), inventory.findings)
    inventory.knows_all = inventory.has_metadata and not inventory.findings
    dropped = logs.dropped + sum(log.dropped for log in logs.partitions.values())
    if dropped:
        message = f"{pluralize(dropped, 'record')} that did not fit what came before, as a broker drops them, too"
        inventory.findings.append(Finding("metadata-dropped", Severity.NOTE, metadata_logs[0], message))
    known = {(each.topic_id, each.partition): each for each in logs.partitions}
    for found in listed_partitions(store, root, inventory.unknown, known, key_prefix):
        partition = known.pop((found.topic_id, found.partition), None)
        inventory.partitions.append(_looked_at(store, found, partition, logs, inventory))
    for partition in known.values():
        copies = [_copy(None, TierLayout.AIVEN, segment, logs, partition) for segment in _segments(logs.partitions[partition])]
        inventory.partitions.append(_summed(partition.topic, partition.topic_id, partition.partition, None, copies))
    if not inventory.partitions and not inventory.unknown.claims:
        raise UsageError("no copy of a segment lies below it", path=root)
    _tell(inventory, logs)
    return inventory


def read_remote_logs(paths: Sequence[str], settings: S3Settings, findings: list[Finding]) -> RemoteLogs:
    """What the metadata logs below some directories say. Of partitions that several brokers have, the largest is read.

    Raises:
        UsageError: there is no partition of ``__remote_log_metadata``.
    """
    logs = RemoteLogs()
    if not paths:
        return logs
    by_number: dict[int, PartitionDir] = {}
    found = find_partitions(paths, settings)
    findings += [finding_of_error(error, error.path or "") for error in found.faults]
    for log_dir in found.log_dirs:
        for directory in log_dir.partitions:
            other = by_number.get(directory.name.partition)
            if directory.name.topic == METADATA_TOPIC and (other is None or other.size_bytes < directory.size_bytes):
                by_number[directory.name.partition] = directory
    if not by_number:
        raise UsageError(f"no partition of {METADATA_TOPIC} lies there", path=paths[0])
    for number, directory in sorted(by_number.items()):
        try:
            for record in log_records(directory):
                place = f"{directory.path}, offset {record.offset}"
                value = None if record.value is None else read_remote_log_record(record.value, file=place)
                logs.take_keyed(record.key, value)
        except BadVersionError as error:
            message = f"{error}: the cluster may use a newer remote.log.metadata.version; what follows is not known"
            findings.append(Finding("unknown-metadata-version", Severity.REFUSED, directory.path, message, is_unread=True))
        except FormatError as error:
            findings.append(
                Finding(
                    "damaged-metadata-log", Severity.DAMAGED, directory.path, f"{error}: what follows is not known", is_unread=True
                )
            )
        logs.has_read(number)
    return logs


# ---------------------------------------------------------------------------------------------------------------- copies


def _segments(log: RemoteLog) -> Iterable[RemoteSegment]:
    return sorted(log.segments.values(), key=lambda segment: segment.start_offset)


def _looked_at(
    store: Store, found: TierPartition, partition: TopicIdPartition | None, logs: RemoteLogs, inventory: TierInventory
) -> PartitionInventory:
    copies = {copy.segment_id: copy for copy in found.copies}
    rows = []
    for segment in () if partition is None else _segments(logs.partitions[partition]):
        assert partition is not None
        rows.append(_copy(copies.pop(segment.segment_id, None), found.layout, segment, logs, partition))
    named = partition or TopicIdPartition(found.topic, found.topic_id, found.partition)
    states = unrecorded_states(logs, named, copies, is_recorded=partition is not None, knows_all=inventory.knows_all)
    rows += _by_their_objects(store, found, list(copies.values()), states, inventory)
    topic = found.topic if partition is None else partition.topic
    return _summed(topic, found.topic_id, found.partition, found.layout, rows)


def _copy(
    copy: TierCopy | None, layout: TierLayout, segment: RemoteSegment, logs: RemoteLogs, partition: TopicIdPartition
) -> InventoryCopy:
    """One that the metadata log knows."""
    log = logs.partitions[partition]
    missing = missing_objects(layout, copy)
    if segment.state is SegmentState.COPY_SEGMENT_STARTED:
        state = CopyState.PHANTOM if copy is None else CopyState.UNFINISHED
    elif segment.state is SegmentState.DELETE_SEGMENT_STARTED or partition in logs.deletions:
        state = CopyState.DELETING
    elif not log.is_referenced(segment):
        state = CopyState.SUPERSEDED
    elif missing == ICEBERG_LACKS:
        state = CopyState.UNREADABLE
    else:
        state = CopyState.LOST if missing else CopyState.LIVE
    fault = None
    if copy is not None and state is CopyState.LIVE and layout is not TierLayout.AIVEN:
        size = copy.objects[LocalTierFile.LOG].identity.size_bytes
        told = f"its .log has {size} bytes, and the metadata log says {segment.size_bytes}"
        fault = told if size != segment.size_bytes else torn_index(copy)
    return InventoryCopy(
        segment.segment_id,
        state,
        segment.start_offset,
        segment.end_offset,
        tuple((entry.epoch, entry.start_offset) for entry in segment.leader_epochs),
        segment.size_bytes,
        0 if copy is None else copy.size_bytes,
        segment.event_timestamp_ms,
        missing,
        fault,
    )


def _by_their_objects(
    store: Store, found: TierPartition, copies: list[TierCopy], states: dict[bytes, CopyState | None], inventory: TierInventory
) -> Iterator[InventoryCopy]:
    """Those that only their objects tell of."""
    for copy, facts in zip(
        copies, at_once(lambda each: copy_facts(store, inventory.root, found.layout, each), copies, manifest_bytes), strict=True
    ):
        missing, fault = missing_objects(found.layout, copy), facts.fault or facts.torn_index
        by_itself = CopyState.UNREADABLE if missing or fault is not None else CopyState.UNVERIFIED
        yield InventoryCopy(
            copy.segment_id,
            states[copy.segment_id] or by_itself,
            copy.base_offset,
            facts.end_offset,
            facts.leader_epochs,
            facts.segment_bytes,
            copy.size_bytes,
            None,
            missing,
            fault,
            facts.is_unread,
        )


def unrecorded_states(
    logs: RemoteLogs, partition: TopicIdPartition, ids: Iterable[bytes], *, is_recorded: bool, knows_all: bool
) -> dict[bytes, CopyState | None]:
    """Why brokers do not have copies of these ids; None for those that they have, and where nothing shows it.

    Args:
        logs: the metadata log.
        partition: of the copies, with the name that the metadata log has, where it has one.
        ids: of the copies.
        is_recorded: the metadata log has the partition.
        knows_all: a metadata log was given, and all that was given could be read.
    """
    other: CopyState | None = None
    if knows_all:
        other = CopyState.ORPHAN if is_recorded or logs.not_given(partition) is None else CopyState.UNKNOWN
    if (partition.topic_id, partition.partition) in logs.deleted:
        return dict.fromkeys(ids, CopyState.DELETED)
    if partition in logs.deletions:
        return dict.fromkeys(ids, CopyState.DELETING)
    log = logs.partitions[partition] if is_recorded else RemoteLog()
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
    """What to do about copies of one of the states ``DELETING``, ``DELETED``, ``UNKNOWN`` and ``ORPHAN``."""
    code, severity, message = _UNRECORDED[state]
    if state is CopyState.UNKNOWN:
        message = message.format(number=logs.not_given(partition), topic=METADATA_TOPIC)
    text = f"{pluralize(count, 'copy', 'copies')} {message}"
    return Finding(code, severity, place, text, offset, is_unread=state is CopyState.UNKNOWN)


_UNRECORDED = {
    CopyState.DELETING: (
        "tier-deleting",
        Severity.NOTE,
        "whose deletion is recorded and not finished: brokers go on with it. Wait; if it does not end, look for errors of "
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
        "that the metadata log does not know: no broker of this cluster reads or deletes them. Another cluster or plugin wrote them, or "
        "their records are gone. Check that no other cluster uses this store before you delete them",
    ),
}


# ---------------------------------------------------------------------------------------------------------------- what follows


def _summed(
    topic: str, topic_id: bytes, partition: int, layout: TierLayout | None, copies: Iterable[InventoryCopy]
) -> PartitionInventory:
    rows = tuple(sorted(copies, key=lambda copy: (copy.start_offset, -1 if copy.end_offset is None else copy.end_offset)))
    gaps, overlaps = [], []
    reached: int | None = None
    for row in rows:
        if row.state not in SERVING or row.end_offset is None:
            continue
        if reached is not None and row.start_offset > reached + 1:
            gaps.append((reached + 1, row.start_offset - 1))
        if reached is not None and row.start_offset <= reached:
            overlaps.append((row.start_offset, min(reached, row.end_offset)))
        reached = row.end_offset if reached is None else max(reached, row.end_offset)
    return PartitionInventory(topic, topic_id, partition, layout, rows, tuple(gaps), tuple(overlaps))


PHANTOM_ADVICE = (
    "each attempt at an upload that ends in an exception leaves one; snaprebuild scan tells which segment blocks, and with "
    "remote.log.copy.disable=true (since 3.9) the attempts stop meanwhile. They go when retention or the log start offset passes them. "
    "Brokers of 3.6, 3.7 and 3.8.0 count them towards retention.bytes and delete good segments for it (KAFKA-17062): update those first"
)


def _tell(inventory: TierInventory, logs: RemoteLogs) -> None:
    say = inventory.findings.append
    for partition in inventory.partitions:
        place = f"{inventory.root}: {partition.name} ({uuid_to_text(partition.topic_id)})"
        counts = partition.counts
        for state, code, severity, what in _STATES_TOLD:
            if counts[state]:
                first = next(copy for copy in partition.copies if copy.state is state)
                say(Finding(code, severity, place, f"{pluralize(counts[state], 'copy', 'copies')} {what}", first.start_offset))
        named = TopicIdPartition(partition.topic, partition.topic_id, partition.partition)
        for state in _UNRECORDED:
            if counts[state]:
                first = next(copy for copy in partition.copies if copy.state is state)
                say(unrecorded_finding(logs, named, place, state, counts[state], first.start_offset))
        for copy in partition.copies:
            if copy.fault is not None:
                code, severity = fault_code(is_unread=copy.is_unread)
                text = f"{uuid_to_text(copy.segment_id)}: {copy.fault}"
                say(Finding(code, severity, place, text, copy.start_offset, is_unread=copy.is_unread))
        for first_offset, last_offset in partition.gaps:
            say(
                Finding(
                    "tier-gap", Severity.FINDING, place, f"offsets {first_offset} to {last_offset} are in no copy", first_offset
                )
            )
        if partition.overlaps:
            message = (
                f"{pluralize(len(partition.overlaps), 'range')} of offsets in more than one copy, as after a new leader: harmless"
            )
            say(Finding("tier-overlap", Severity.NOTE, place, message, partition.overlaps[0][0]))
    _tell_of_claims(inventory)
    if not inventory.has_metadata:
        message = "which copies brokers know, and which they have given up, is not verified: --metadata-log tells"
        say(Finding("tier-unverified", Severity.NOTE, inventory.root, message))
    iceberg = sum(copy.missing == ICEBERG_LACKS for partition in inventory.partitions for copy in partition.copies)
    inventory.findings += unknown_objects(inventory.root, inventory.unknown, iceberg)


def _tell_of_claims(inventory: TierInventory) -> None:
    """Claims of ``tier upload``, and those among them without a complete copy from their first offset on."""
    begun = {
        (partition.topic_id, partition.partition, copy.start_offset)
        for partition in inventory.partitions
        for copy in partition.copies
        if not copy.missing and copy.fault is None
    }
    claims = inventory.unknown.claims
    unfinished = [each for each in claims if (each.topic_id, each.partition, each.start_offset) not in begun]
    if claims:
        message, first = f"{pluralize(len(claims), 'claim')} of snaprebuild tier upload, which the plugin never looks at", None
        if unfinished:
            first, last = unfinished[0].start_offset, unfinished[0].end_offset
            place = f"topic {uuid_to_text(unfinished[0].topic_id)}, partition {unfinished[0].partition}"
            message += f"; {len(unfinished)} of them without a complete copy, the first of offsets {first} to {last} ({place})"
        inventory.findings.append(Finding("tier-claim", Severity.NOTE, inventory.root, message, first))


def unknown_objects(root: str, unknown: UnknownObjects, iceberg: int) -> Iterator[Finding]:
    """What is there and cannot be read.

    Args:
        root: location.
        unknown: objects of no known layout.
        iceberg: copies that have a manifest alone.
    """
    if unknown.old_aiven:
        message = f"{pluralize(unknown.old_aiven, 'object')} of Aiven's plugin of before October 2023, whose layout is not read"
        yield Finding("tier-unsupported-layout", Severity.REFUSED, root, message)
    if iceberg:
        message = f"{pluralize(iceberg, 'copy', 'copies')} with a manifest alone, as segment.format=iceberg leaves them: not read"
        yield Finding("tier-unsupported-layout", Severity.REFUSED, root, message)
    if unknown.count > unknown.old_aiven:
        message = (
            f"{pluralize(unknown.count - unknown.old_aiven, 'object')} of no known layout left out, the first {unknown.first!r}"
        )
        yield Finding("tier-unknown-objects", Severity.NOTE, root, message)


_STATES_TOLD = (
    (CopyState.LOST, "tier-lost", Severity.DAMAGED, "finished, and objects of them are missing: reads of them fail"),
    (CopyState.PHANTOM, "tier-phantom", Severity.FINDING, f"announced and never written: {PHANTOM_ADVICE}"),
    (
        CopyState.UNFINISHED,
        "tier-unfinished",
        Severity.NOTE,
        "announced and not finished: being written, or left behind by a failure",
    ),
    (CopyState.UNREADABLE, "tier-unreadable", Severity.FINDING, "that cannot be read, because an object is missing or bad"),
)
