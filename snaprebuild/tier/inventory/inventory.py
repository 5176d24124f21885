"""The content of remote storage: the copies of segments, partition by partition, with the state of each and its proof.

A bucket alone does not show which copies brokers still read: a broker that fails leaves objects without records, and records without
objects. The records are in ``__remote_log_metadata``.

Source: KIP-405; ``RemoteLogManager`` of 3.6 to 4.4, ``RemoteLogMetadataCache``.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from snaprebuild.broker.status import status_of
from snaprebuild.cluster.source_check.metadata_read import MetadataRead, TopicRemoval
from snaprebuild.errors import LimitReachedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error, first_of, pluralize, unread_paths
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.storage.bucket_contents import Bucket
from snaprebuild.storage.partition_names import named
from snaprebuild.storage.remote.listing import TierLayout, TierObject, UnknownObjects
from snaprebuild.storage.remote.plugin_config import PluginConfig
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.tier.inventory.bucket_report import (
    INTELLIGENT_TIERING,
    RESTORED_FIRST,
    BucketContents,
    archive_findings,
    bucket_findings,
    note_archived,
    read_bucket,
    report_of,
)
from snaprebuild.tier.inventory.copy_states import CopyStanding, TopicEvidence, modified_ms_of, proven_removal, standing_of_copies
from snaprebuild.tier.inventory.key_rows import KeyRow, KeyRows
from snaprebuild.tier.inventory.metadata_topic_report import metadata_topic_findings, metadata_topic_report
from snaprebuild.tier.inventory.model import (
    FOREIGN,
    InventoryCopy,
    InventoryPartition,
    InventoryTotals,
    OffsetRange,
    StateBytes,
    TierInventory,
)
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.remote_partition import (
    ICEBERG_LACKS,
    UNREAD,
    RemoteCopy,
    RemotePartition,
    fault_finding,
    unreadable_objects,
)
from snaprebuild.tier.remote_store import (
    UNRECORDED,
    UNVERIFIED,
    CopyState,
    StoreAccess,
    Tier,
    list_store,
    refuse_without_copies,
    unrecorded_finding,
    zero_id_findings,
)

__all__ = ["SERVING", "phantom_finding", "tier_inventory"]

NS_PER_MS = 1_000_000

DAMAGED = (CopyState.LOST, CopyState.UNREADABLE)
"""States of copies that cannot be read whole."""

KEPT = (CopyState.LIVE, CopyState.SUPERSEDED)
"""States of finished copies with all of their objects. Of others, faults of the objects matter to no broker, or their state is damaged."""

SERVING = (CopyState.LIVE, CopyState.UNVERIFIED, CopyState.LOST)
"""States of copies that count towards gaps and overlaps."""


def tier_inventory(
    access: StoreAccess,
    stores: S3Settings = USUAL_S3,
    selection: Selection = EVERYTHING,
    *,
    as_of_ms: int | None = None,
    cluster: MetadataRead | None = None,
    bucket: Bucket | None = None,
    plugin: PluginConfig | None = None,
    on_key: Callable[[KeyRow], None] | None = None,
) -> tuple[TierInventory, list[Finding]]:
    """Lists everything below a location: partitions in the order of the store, then those that the metadata log alone has.

    Args:
        access: to the store.
        stores: how the object stores are reached that the metadata logs are in.
        selection: of partitions; its offsets are ignored.
        as_of_ms: moment of the ages, ms since 1970; None for now.
        cluster: its metadata log, which shows which topics were removed, and the settings of the metadata topic; None without one.
        bucket: of the store; None for a directory.
        plugin: configuration of the remote storage manager, for the document.
        on_key: gets each key of the store.

    Raises:
        UsageError: nothing of a known layout is there that the selection takes, and no metadata log.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    root = access.root
    now_ms = time.time_ns() // NS_PER_MS if as_of_ms is None else as_of_ms
    topic_findings: list[Finding] = []
    topics = _topic_evidence(cluster, topic_findings)
    tier = list_store(
        dataclasses.replace(access, keeps_unknown=on_key is not None),
        stores,
        lambda partition, logs: proven_removal(partition, logs, topics) is not None,
    )
    findings = tier.findings
    metadata_topic = None if cluster is None else metadata_topic_report(cluster.image)
    if metadata_topic is not None:
        tier.logs.trust_metadata_partitions(metadata_topic.partitions)
    keys = None if on_key is None else KeyRows(on_key, now_ms)
    contents = None
    if bucket is not None and keys is not None:
        contents = _bucket_contents(bucket, selection, access.key_prefix, keys)
    findings += _record_findings(tier, access, selection)
    if bucket is not None:
        selected = [each for each in tier.partitions.values() if selection.takes_partition(each.topic, each.partition)]
        findings += note_archived(root.path, bucket, [copy for each in selected for copy in each.copies])
    taken = _taken(tier, selection, topics, keys, now_ms)
    findings += [*topic_findings, *taken.findings]
    if bucket is not None and contents is None:
        contents = read_bucket(bucket, selection, access.key_prefix)  # last, where a limit of the run matters least
    if keys is not None and not selection.is_narrowed:
        keys.add_foreign(tier.unknown)
    partitions = taken.partitions
    if not partitions and not tier.unknown.claims:
        refuse_without_copies(tier, unreadable_objects(root.path, tier.unknown), selection)
    inventory = TierInventory(
        location=root.path,
        verified=tier.verified,
        unknown_objects=tier.unknown.count,
        partitions=partitions,
        as_of_ms=now_ms,
        cluster_id=tier.logs.cluster_id or access.cluster_id,
        states=_state_bytes(partitions, tier),
        bucket=None if contents is None else report_of(contents),
        plugin=plugin,
        metadata_topic=metadata_topic,
    )
    findings += selection.absent_findings(tier.partition_names, root.path, are_others_read=bool(partitions))
    findings += _store_findings(inventory, tier.unknown, has_metadata=tier.has_metadata)
    if bucket is not None and contents is not None:
        findings += bucket_findings(root.path, contents, [(bucket.prefix + key, size) for key, size in taken.serving])
        findings += archive_findings(root.path, bucket, [bucket.prefix + key for key in taken.tiered])
    if cluster is not None and metadata_topic is not None:
        findings += metadata_topic_findings(metadata_topic, cluster.image, cluster.path)
    status = status_of(
        (),
        wrong=0,
        suspect=0,
        missing=0,
        waiting=0,
        unread=len(unread_paths(findings)),
        damaged=taken.damaged,
        unproven=sum(each.counts[CopyState.UNKNOWN] for each in partitions),
    )
    return structs.replace(inventory, status=status.word, counts=status.counts), findings


def _record_findings(tier: Tier, access: StoreAccess, selection: Selection) -> Iterator[Finding]:
    """Records of other clusters, records that brokers drop, and copies under topic id zero."""
    logs = tier.logs
    if logs.other_clusters:
        others = first_of(sorted(logs.other_clusters))
        message = f"records of cluster {logs.cluster_id}, which is taken for that of the store, and of {others}"
        yield Finding("metadata-clusters", Severity.NOTE, access.records_place or "", message)
    dropped = logs.dropped + sum(log.dropped for log in logs.partitions.values())
    if dropped:
        message = f"{pluralize(dropped, 'record')} that did not fit earlier records; brokers drop them, too"
        yield Finding("metadata-dropped", Severity.NOTE, access.records_place or "", message)
    listed = (each for each in tier.partitions.values() if selection.takes_partition(each.topic, each.partition))
    yield from zero_id_findings(access.root.path, listed)


@dataclass(slots=True)
class _TakenPartitions:
    """The selected partitions.

    Attributes:
        partitions: in the order of the store, then those that the metadata log alone has.
        damaged: copies that cannot be read whole.
        serving: key below the location, and size, of each object of the copies that serve reads.
        tiered: keys of those in the storage class INTELLIGENT_TIERING.
        findings: about the copies.
    """

    partitions: list[InventoryPartition] = field(default_factory=list)
    damaged: int = 0
    serving: list[tuple[str, int]] = field(default_factory=list)
    tiered: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def _taken(tier: Tier, selection: Selection, topics: TopicEvidence, keys: KeyRows | None, now_ms: int) -> _TakenPartitions:
    taken = _TakenPartitions()
    limit: str | None = None
    unread = 0
    for wanted in dict.fromkeys((*tier.partitions, *tier.logs.partitions)):
        if not selection.takes_partition(wanted.topic, wanted.partition):
            continue
        layout = tier.partitions[wanted].layout if wanted in tier.partitions else None
        judged = _judged(tier.listed_partition(wanted), tier.logs, topics)
        partition = _inventory_of(judged, layout, now_ms)
        taken.partitions.append(partition)
        if keys is not None:
            keys.add_partition(judged.remote, judged.standings)
        serving = _serving_objects(judged)
        taken.serving += [(each.key, each.identity.size_bytes) for each in serving]
        taken.tiered += [each.key for each in serving if each.storage_class == INTELLIGENT_TIERING]
        taken.damaged += _damaged_count(partition, judged.remote)
        taken.findings += judged.remote.without_vanished(_partition_findings(partition, judged, tier.logs))
        if judged.limit is not None:
            limit = judged.limit
            unread += sum(bool(copy.objects.by_kind) and copy.facts is UNREAD for copy in judged.remote.copies.values())
    if limit is not None:
        message = f"{limit}: the facts of {pluralize(unread, 'copy', 'copies')} not read"
        taken.findings.append(Finding("tier-limit", Severity.FINDING, tier.base.path, message, is_unread=True))
    return taken


def _bucket_contents(bucket: Bucket, selection: Selection, key_prefix: str, keys: KeyRows) -> BucketContents:
    """The contents of the bucket besides the listed objects; the rows of these keys are added, before those of objects."""
    contents = read_bucket(bucket, selection, key_prefix, on_version=keys.add_version, on_upload=keys.add_upload)
    keys.version_ids = contents.version_ids
    return contents


def _serving_objects(judged: _Judged) -> list[TierObject]:
    """Each object of the copies that serve reads."""
    return [
        each
        for segment_id, copy in judged.remote.copies.items()
        if judged.standings[segment_id].state in SERVING
        for each in copy.objects.by_kind.values()
    ]


def _topic_evidence(cluster: MetadataRead | None, findings: list[Finding]) -> TopicEvidence:
    """The topics in the metadata log; nothing, and a finding, if it cannot be read again."""
    if cluster is None:
        return TopicEvidence()
    try:
        return TopicEvidence.of(cluster)
    except (SnaprebuildError, FormatError) as error:
        findings.append(finding_of_error(error, cluster.path))
        return TopicEvidence()


def _state_bytes(partitions: Sequence[InventoryPartition], tier: Tier) -> list[StateBytes]:
    """Copies, objects and bytes by state, and the objects that are no part of a copy."""
    rows = []
    for state in CopyState:
        copies = [copy for partition in partitions for copy in partition.copies if copy.state is state]
        if copies:
            size = sum(copy.stored_bytes for copy in copies)
            objects = sum(copy.object_count for copy in copies)
            rows.append(StateBytes(state=state, copies=len(copies), objects=objects, stored_bytes=size))
    foreign = tier.unknown.count + len(tier.unknown.claims)
    if foreign:
        rows.append(StateBytes(state=FOREIGN, copies=0, objects=foreign, stored_bytes=tier.unknown.size_bytes))
    return rows


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


@dataclass(frozen=True, slots=True)
class _Judged:
    """A partition with the state of each copy, by segment id; ``limit`` if a limit of the run ended the reads of manifests."""

    remote: RemotePartition
    standings: Mapping[bytes, CopyStanding]
    limit: str | None = None
    unproven_removal: TopicRemoval | None = None


def _judged(remote: RemotePartition, logs: RemoteLogs, topics: TopicEvidence) -> _Judged:
    """The partition with the state of each copy; the manifests are read, but for those that have to be restored first."""
    copies = (copy for copy in remote.copies.values() if copy.objects.by_kind)
    limit = None
    try:
        remote.read_facts(copy for copy in copies if not _is_restored_first(copy))
    except LimitReachedError as error:
        limit = error.message
    remote.leave_out_deleted([copy for copy in remote.copies.values() if copy.facts.fault is not None])
    return _Judged(remote, standing_of_copies(remote, logs, topics), limit, topics.unproven_removals.get(remote.id.topic_id))


def _is_restored_first(copy: RemoteCopy) -> bool:
    """Whether an object of a copy must be restored before it can be read."""
    objects = copy.objects.by_kind.values()
    return any(each.storage_class in RESTORED_FIRST or each.archive_tier is not None for each in objects)


def _archives_of(copy: InventoryCopy) -> list[str]:
    """The storage classes of a copy whose objects must be restored before they can be read, with the archive tiers."""
    classes = [each for each in copy.object_storage_classes if each in RESTORED_FIRST]
    return [*classes, *(f"{INTELLIGENT_TIERING} ({each})" for each in copy.archive_tiers)]


def _inventory_of(judged: _Judged, layout: TierLayout | None, now_ms: int) -> InventoryPartition:
    remote = judged.remote
    rows = [_inventory_copy(copy, judged.standings[copy.segment_id], now_ms) for copy in remote.copies.values()]
    rows.sort(key=lambda row: (row.start_offset, -1 if row.end_offset is None else row.end_offset))
    gaps, overlaps = _gaps_and_overlaps(rows)
    counts = Counter(row.state for row in rows)
    return InventoryPartition(
        **named(remote.id.topic, remote.id.partition),
        topic_id=uuid_to_text(remote.id.topic_id),
        layout=layout,
        stored_bytes=sum(row.stored_bytes for row in rows),
        totals=InventoryTotals(**{state.name.lower(): counts[state] for state in CopyState}),
        gaps=gaps,
        overlaps=overlaps,
        copies=rows,
    )


def _fault_of(copy: RemoteCopy, state: CopyState) -> str | None:
    """Why its manifest cannot be read, or which of its sizes is wrong; None if nothing is."""
    if copy.unanswered is not None:
        return f"objects that the listing lacks: {copy.unanswered}"
    fault = copy.facts.fault or copy.facts.torn_index
    record = copy.record
    if record is None:
        return fault
    if state is not CopyState.LIVE:
        return None
    stored = copy.facts.segment_bytes
    if stored is not None and stored != record.size_bytes:
        what = "manifest has a segment of" if copy.layout is TierLayout.AIVEN else ".log has"
        return f"its {what} {stored} bytes, and the metadata log has {record.size_bytes}"
    return fault


def _inventory_copy(copy: RemoteCopy, standing: CopyStanding, now_ms: int) -> InventoryCopy:
    objects = copy.objects.by_kind.values()
    modified_ms = modified_ms_of(copy)
    return InventoryCopy(
        segment_id=uuid_to_text(copy.segment_id),
        state=standing.state,
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        leader_epochs=copy.leader_epochs,
        segment_bytes=copy.segment_bytes,
        stored_bytes=copy.objects.size_bytes,
        event_timestamp_ms=None if copy.record is None else copy.record.event_timestamp_ms,
        missing=copy.missing,
        fault=_fault_of(copy, standing.state),
        key_id=copy.facts.key_id,
        reason=standing.reason,
        compressed=copy.facts.is_compressed,
        object_count=len(objects),
        modified_ms=modified_ms,
        age_ms=None if modified_ms is None else max(now_ms - modified_ms, 0),
        object_storage_classes=sorted({each.storage_class for each in objects if each.storage_class is not None}),
        archive_tiers=sorted({each.archive_tier for each in objects if each.archive_tier is not None}),
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


def phantom_finding(place: str, start_offsets: Sequence[int]) -> Finding:
    """The finding about copies that were announced and never written.

    An exception leaves one for each attempt at the same segment. A single one is a note: an upload that has no object yet, or a broker that
    stopped.

    Args:
        place: of the partition.
        start_offsets: of these copies, ascending.
    """
    text = f"{pluralize(len(start_offsets), 'copy', 'copies')} announced and never written"
    if len(set(start_offsets)) == len(start_offsets):
        message = f"{text}: being written, or left by a broker that stopped"
        return Finding("tier-phantom", Severity.NOTE, place, message, start_offsets[0])
    return Finding("tier-phantom", Severity.FINDING, place, f"{text}: {PHANTOM_ADVICE}", start_offsets[0])


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


def _partition_findings(partition: InventoryPartition, judged: _Judged, logs: RemoteLogs) -> Iterator[Finding]:
    counts = partition.counts
    remote = judged.remote
    place = remote.place
    first = {copy.state: copy.start_offset for copy in reversed(partition.copies)}
    for state, code, severity, what in _STATE_FINDINGS:
        if counts[state]:
            yield Finding(code, severity, place, f"{pluralize(counts[state], 'copy', 'copies')} {what}", first[state])
    yield from remote.deleted_findings()
    phantoms = [copy.start_offset for copy in partition.copies if copy.state is CopyState.PHANTOM]
    if phantoms:
        yield phantom_finding(place, phantoms)
    yield from _unread_by_brokers(partition, judged, logs)
    cold = [copy for copy in partition.copies if copy.state in SERVING and _archives_of(copy)]
    if cold:
        classes = ", ".join(sorted({each for copy in cold for each in _archives_of(copy)}))
        message = (
            f"{pluralize(len(cold), 'copy', 'copies')} in storage class {classes}: reads of brokers fail unless the objects "
            "are restored, which no listing shows; the plugin restores none"
        )
        yield Finding("tier-restore-first", Severity.FINDING, place, message, cold[0].start_offset)
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


def _unread_by_brokers(partition: InventoryPartition, judged: _Judged, logs: RemoteLogs) -> Iterator[Finding]:
    """Copies that no broker of the cluster reads, or of which that is unknown."""
    place = judged.remote.place
    removed = []
    starts: dict[CopyState, list[int]] = {}
    for copy in partition.copies:
        standing = judged.standings[uuid_from_text(copy.segment_id)]
        if not copy.object_count and copy.state is CopyState.DELETED:
            continue  # as it should be
        if standing.is_removed:
            removed.append(standing)
        else:
            starts.setdefault(copy.state, []).append(copy.start_offset)
    for state in UNRECORDED:
        if state in starts:
            yield unrecorded_finding(logs, judged.remote.id, place, state, len(starts[state]), starts[state][0])
    unproven = judged.unproven_removal
    if unproven is not None and judged.remote.has_objects:
        message = f"RemoveTopic at offset {unproven.offset} of __cluster_metadata is not proven to be committed, and does not count"
        yield Finding("tier-removal-unproven", Severity.NOTE, place, message)
    if removed:
        copies = pluralize(len(removed), "copy", "copies")
        message = f"{copies} of a topic that was removed, and whose objects exist: {removed[0].reason}. No broker reads them"
        yield Finding("tier-topic-removed", Severity.FINDING, place, message)
    others = starts.get(CopyState.ANOTHER_TOPIC_ID)
    if others:
        copies = pluralize(len(others), "copy", "copies")
        message = f"{copies} of another topic of this name, which has another topic id in this cluster, without a record of its own"
        yield Finding("tier-another-topic-id", Severity.FINDING, place, message, others[0])


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
    (
        CopyState.UNFINISHED,
        "tier-unfinished",
        Severity.NOTE,
        "announced and not finished: being written, or left by a failure",
    ),
    (CopyState.UNREADABLE, "tier-unreadable", Severity.FINDING, "that cannot be read, because an object is missing, bad or unread"),
)
