"""What the objects of a copy say of it: its offsets, its sizes, and which of them are missing."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from formats.errors import FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.offset_index import OFFSET_INDEX_ENTRY
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.time_index import TIME_INDEX_ENTRY
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_key import AivenObject, parse_aiven_key
from formats.remote.aiven_manifest import AivenManifest, SegmentIndex, read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.text_lines import shown_json
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Severity
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition, UnknownObjects, list_tier
from snaprebuild.storage.remote.store import INDEX_OF
from snaprebuild.storage.store import ReadStore, Store
from snaprebuild.storage.thread_pool import at_once
from snaprebuild.tier.cost import COLD

__all__ = ["CopyFacts", "copy_facts", "fault_code", "listed_partitions", "manifest_bytes", "missing_objects", "torn_index"]

OBJECTS_NEEDED: dict[TierLayout, tuple[str, ...]] = {
    TierLayout.AIVEN: tuple(AivenObject),
    TierLayout.LOCAL_TIERED_STORAGE: tuple(kind for kind in LocalTierFile if kind is not LocalTierFile.TRANSACTION_INDEX),
}
"""Objects without which a copy cannot be read."""


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """What is known of a copy without its segment.

    Attributes:
        end_offset: last offset; None where no object tells it.
        leader_epochs: (epoch, first offset in the segment), ascending; none where no object tells.
        segment_bytes: size of the segment; None where nothing tells.
        snapshot_bytes: of its producer snapshot, as it is stored; None where there is none.
        index_bytes: of its transaction index, as it is stored; None where there is none.
        key_id: of the key that it is encrypted for; None where it is not.
        max_timestamp_ms: greatest of its records, ms since 1970; None where no object tells it.
        event_timestamp_ms: when its copy began, ms since 1970; None where no object tells it.
        fault: why its manifest cannot be read, or None.
        index_hits: of its offset and time index (``replay.segment_facts``), by their sizes; None where these are torn or nothing tells.
        compared: stored bytes of the small files that are compared with the segment, by kind.
        torn_index: which of its indexes ends too early, or None: brokers cannot read from the copy, and its segment may be right.
        is_unread: the store did not hand it out, so that the fault says nothing of the copy.
        manifest: its bytes, where it could be read; None in a layout without one.
    """

    end_offset: int | None = None
    leader_epochs: tuple[tuple[int, int], ...] = ()
    segment_bytes: int | None = None
    snapshot_bytes: int | None = None
    index_bytes: int | None = None
    key_id: str | None = None
    max_timestamp_ms: int | None = None
    event_timestamp_ms: int | None = None
    fault: str | None = None
    index_hits: int | None = None
    compared: tuple[tuple[LocalTierFile, int], ...] = ()
    torn_index: str | None = None
    is_unread: bool = False
    manifest: bytes | None = None


def fault_code(*, is_unread: bool) -> tuple[str, Severity]:
    """How a fault is told: of the store, which may hand it out another time, or of the copy."""
    return ("storage-failed", Severity.STORAGE) if is_unread else ("tier-bad-copy", Severity.DAMAGED)


def missing_objects(layout: TierLayout, copy: TierCopy | None) -> tuple[str, ...]:
    """Kinds of objects that a copy needs and does not have."""
    return tuple(kind for kind in OBJECTS_NEEDED[layout] if copy is None or kind not in copy.objects)


ENTRIES = {LocalTierFile.OFFSET_INDEX: OFFSET_INDEX_ENTRY, LocalTierFile.TIME_INDEX: TIME_INDEX_ENTRY}

COMPARED = (*ENTRIES, LocalTierFile.LEADER_EPOCHS)
"""What is compared with a segment while that is read."""


def torn_index(copy: TierCopy) -> str | None:
    """What is wrong with the sizes of its indexes, in the layout of LocalTieredStorage; None where nothing is.

    ``RemoteIndexCache`` refuses an index that ends within an entry (``AbstractIndex.sanityCheck``), and each fetch from the copy fails.
    """
    return _torn(_index_sizes(copy))


def _index_sizes(copy: TierCopy) -> dict[LocalTierFile, int]:
    return {kind: copy.objects[kind].identity.size_bytes for kind in ENTRIES if kind in copy.objects}


def _torn(sizes: dict[LocalTierFile, int]) -> str | None:
    for kind, size in sizes.items():
        if size % ENTRIES[kind].sizeof():
            return f"its {kind} has {size} bytes, no multiple of {ENTRIES[kind].sizeof()}: brokers cannot read from the copy"
    return None


def _index_hits(sizes: dict[LocalTierFile, int]) -> int | None:
    if len(sizes) < len(ENTRIES) or _torn(sizes) is not None:
        return None
    offset_bytes, time_bytes = ENTRIES[LocalTierFile.OFFSET_INDEX].sizeof(), ENTRIES[LocalTierFile.TIME_INDEX].sizeof()
    hits: int = 2 * (sizes[LocalTierFile.OFFSET_INDEX] // offset_bytes) + sizes[LocalTierFile.TIME_INDEX] // time_bytes
    return hits


def manifest_bytes(copy: TierCopy) -> int:
    """What ``copy_facts`` holds of a copy."""
    found = copy.objects.get(AivenObject.MANIFEST)
    return 0 if found is None else found.identity.size_bytes


def copy_facts(store: ReadStore, root: str, layout: TierLayout, copy: TierCopy) -> CopyFacts:
    """What the listing tells, or in Aiven's layout the manifest, which is read.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    if layout is TierLayout.LOCAL_TIERED_STORAGE:
        kinds = (LocalTierFile.LOG, LocalTierFile.PRODUCER_SNAPSHOT, LocalTierFile.TRANSACTION_INDEX)
        log, snapshot, index = (copy.objects[kind].identity.size_bytes if kind in copy.objects else None for kind in kinds)
        sizes = _index_sizes(copy)
        return CopyFacts(
            segment_bytes=log,
            snapshot_bytes=snapshot,
            index_bytes=index,
            index_hits=_index_hits(sizes),
            compared=tuple((kind, copy.objects[kind].identity.size_bytes) for kind in COMPARED if kind in copy.objects),
            torn_index=_torn(sizes),
        )
    found = copy.objects.get(AivenObject.MANIFEST)
    if found is None:
        return CopyFacts()
    location = f"{root}/{found.key}"
    try:
        data = store.read_small(location, MANIFEST_BYTES_MAX) or b"" if found.data is None else found.data
        manifest = read_aiven_manifest(data, file=location)
    except (FormatError, ReadFailedError) as error:
        return CopyFacts(fault=error.message, is_unread=isinstance(error, ReadFailedError))
    return _of_manifest(manifest, data, copy)


def listed_partitions(
    store: Store, root: str, unknown: UnknownObjects, known: Collection[tuple[bytes, int]] = (), key_prefix: str = ""
) -> list[TierPartition]:
    """``list_tier`` with the true names of topics: of each that is not known, one manifest is read.

    ``key.prefix`` needs no separator at its end, so that keys alone do not show where the topic begins.

    Args:
        store: as for ``list_tier``.
        root: likewise.
        unknown: likewise.
        known: topic ids and numbers of partitions whose names the metadata log has.
        key_prefix: as for ``list_tier``.
    """
    found = list_tier(store, root, unknown, key_prefix)
    asked = dict[tuple[str, bytes], TierCopy]()
    for each in found:
        if each.layout is TierLayout.AIVEN and (each.topic_id, each.partition) not in known:
            copy = next((copy for copy in each.copies if AivenObject.MANIFEST in copy.objects), None)
            if copy is not None and copy.objects[AivenObject.MANIFEST].storage_class not in COLD:  # where each byte has a price
                asked.setdefault((each.head, each.topic_id), copy)
    topics = dict(zip(asked, at_once(partial(_topic_of, store, root), list(asked.values())), strict=True))
    return [_named(each, topics.get((each.head, each.topic_id))) for each in found]


def _topic_of(store: Store, root: str, copy: TierCopy) -> str | None:
    """The topic that a manifest names, whose bytes are kept; None where it names none, or cannot be read."""
    manifest = copy.objects[AivenObject.MANIFEST]
    location, key = f"{root}/{manifest.key}", parse_aiven_key(manifest.key)
    topic_id = None if key is None else uuid_to_text(key.topic_id)
    try:
        data = store.read_small(location, MANIFEST_BYTES_MAX) or b""
        copy.objects[AivenObject.MANIFEST] = replace(manifest, data=data)
        found: Any = read_aiven_manifest(data, file=location).segment
    except (FormatError, ReadFailedError):
        return None
    for name in ("remoteLogSegmentId", "topicIdPartition", "topicPartition", "topic"):
        found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and found.get("topicId", topic_id) != topic_id:
            return None  # of another topic: ``copy_facts`` finds it
    return found if isinstance(found, str) and found and (key is None or key.topic.endswith(found)) else None


def _named(partition: TierPartition, topic: str | None) -> TierPartition:
    return partition if topic is None else replace(partition, named=topic)


def _of_manifest(manifest: AivenManifest, data: bytes, copy: TierCopy) -> CopyFacts:
    told = manifest.segment
    end, epochs = told.get("endOffset"), told.get("segmentLeaderEpochs")
    pairs = epochs.items() if isinstance(epochs, dict) else ()
    known = tuple(
        sorted((int(epoch), start) for epoch, start in pairs if re.fullmatch(r"[0-9]{1,10}", epoch) and _is_offset(start, 0))
    )
    snapshot, index = (manifest.indexes[each] for each in (SegmentIndex.PRODUCER_SNAPSHOT, SegmentIndex.TRANSACTION))
    log = copy.objects.get(AivenObject.LOG)
    stored, expected = None if log is None else log.identity.size_bytes, manifest.chunks.stored_bytes
    indexes = copy.objects.get(AivenObject.INDEXES)
    needed = max((place.position + place.size for place in manifest.indexes.values() if place is not None), default=0)
    sizes = _plain_sizes(manifest)
    torn = _torn(sizes)
    if indexes is not None and indexes.identity.size_bytes < needed:
        torn = f"its indexes end at byte {needed}, and its .indexes has {indexes.identity.size_bytes}"
    return CopyFacts(
        end_offset=end if _is_offset(end, copy.base_offset) else None,
        leader_epochs=known,
        segment_bytes=manifest.chunks.file_size,
        snapshot_bytes=None if snapshot is None else snapshot.size,
        index_bytes=None if index is None else index.size,
        key_id=None if manifest.encryption is None else manifest.encryption.key_id,
        max_timestamp_ms=_time(told.get("maxTimestampMs")),
        event_timestamp_ms=_time(told.get("eventTimestampMs")),
        fault=_contradiction(told, copy)
        or (None if stored in (None, expected) else f"its chunks have {expected} bytes, and its .log has {stored}"),
        index_hits=_index_hits(sizes),
        compared=tuple((kind, place.size) for kind in COMPARED if (place := manifest.indexes[INDEX_OF[kind]]) is not None),
        torn_index=torn,
        manifest=data,
    )


def _plain_sizes(manifest: AivenManifest) -> dict[LocalTierFile, int]:
    """Bytes of its offset and time index before they were encrypted; the plugin does not compress them."""
    places = {kind: manifest.indexes[INDEX_OF[kind]] for kind in ENTRIES}
    added = 0 if manifest.encryption is None else ENCRYPTION_BYTES
    return {kind: place.size - (added if place.size else 0) for kind, place in places.items() if place is not None}


def _contradiction(told: dict[str, Any], copy: TierCopy) -> str | None:
    """What the metadata in a manifest names otherwise than the keys of the copy; None where nothing is.

    The plugin makes both of one ``RemoteLogSegmentMetadata``.
    """
    key = parse_aiven_key(copy.objects[AivenObject.MANIFEST].key)
    if key is None:
        return None
    segment = told.get("remoteLogSegmentId")
    segment = segment if isinstance(segment, dict) else {}
    partition = segment.get("topicIdPartition")
    partition = partition if isinstance(partition, dict) else {}
    named = partition.get("topicPartition")
    named = named if isinstance(named, dict) else {}
    topic = named.get("topic")
    # A prefix without a separator is a part of the name in the key.
    if topic is not None and not (isinstance(topic, str) and key.topic.endswith(topic)):
        return f"its manifest names the topic {shown_json(topic)}, and its key {key.topic}"
    for name, value, expected in (
        ("partition", named.get("partition"), key.partition),
        ("segment", segment.get("id"), uuid_to_text(copy.segment_id)),
        ("topic id", partition.get("topicId"), uuid_to_text(key.topic_id)),
        ("start offset", told.get("startOffset"), copy.base_offset),
    ):
        if value is not None and value != expected:
            return f"its manifest names the {name} {shown_json(value)}, and its key {expected}"
    return None


def _time(value: object) -> int | None:
    return value if type(value) is int and -1 <= value < 2**63 else None


def _is_offset(value: object, least: int) -> bool:
    """Whether JSON has an offset there: it may have anything."""
    return type(value) is int and least <= value < 2**63
