"""Facts of a copy that are known without its segment: its offsets, its sizes, and its missing objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
from snaprebuild.findings import Finding, Severity
from snaprebuild.storage.remote.listing import TierCopy, TierLayout
from snaprebuild.storage.remote.store import INDEX_OF
from snaprebuild.storage.store_path import ReadPath

__all__ = [
    "ICEBERG_LACKS",
    "PARTITION_MEMBERS",
    "CopyFacts",
    "copy_facts",
    "fault_finding",
    "json_member",
    "manifest_bytes",
    "missing_objects",
    "torn_index",
]

OBJECTS_NEEDED: dict[TierLayout, tuple[str, ...]] = {
    TierLayout.AIVEN: tuple(AivenObject),
    TierLayout.LOCAL_TIERED_STORAGE: tuple(kind for kind in LocalTierFile if kind is not LocalTierFile.TRANSACTION_INDEX),
}
"""Objects without which a copy cannot be read."""

ICEBERG_LACKS = (AivenObject.LOG, AivenObject.INDEXES)
"""Missing where the records went into a table instead."""

PARTITION_MEMBERS = ("remoteLogSegmentId", "topicIdPartition")
"""Path of the partition in the segment metadata of a manifest."""


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Facts of a copy that are known without its segment.

    Attributes:
        end_offset: last offset; None if unknown.
        leader_epochs: (epoch, first offset in the segment), ascending; none if unknown.
        segment_bytes: size of the segment; None if unknown.
        snapshot_bytes: of its producer snapshot, as it is stored; None where there is none.
        index_bytes: of its transaction index, as it is stored; None where there is none.
        key_id: of the key that it is encrypted for; None where it is not.
        max_timestamp_ms: greatest of its records, ms since 1970; None if unknown.
        event_timestamp_ms: when its copy began, ms since 1970; None if unknown.
        fault: why its manifest cannot be read, or None.
        index_hits: of its offset and time index (``replay.segment_summary``), by their sizes; None where these are torn or unknown.
        compared: stored bytes of the small files that are compared with the segment, by kind.
        torn_index: which of its indexes ends too early, or None: brokers cannot read from the copy, and its segment may be right.
        is_unread: the store did not hand it out, so that the copy may be good.
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


def fault_finding(place: str, segment_id: bytes, base_offset: int, message: str, *, is_unread: bool) -> Finding:
    """The finding of a faulty copy, or of one that the store did not hand out, which another run may see."""
    code, severity = ("storage-failed", Severity.STORAGE) if is_unread else ("tier-bad-copy", Severity.DAMAGED)
    return Finding(code, severity, place, f"copy {uuid_to_text(segment_id)}: {message}", base_offset, is_unread=is_unread)


def missing_objects(layout: TierLayout, copy: TierCopy | None) -> tuple[str, ...]:
    """Kinds of objects that a copy needs and does not have."""
    return tuple(kind for kind in OBJECTS_NEEDED[layout] if copy is None or kind not in copy.objects)


ENTRIES = {LocalTierFile.OFFSET_INDEX: OFFSET_INDEX_ENTRY, LocalTierFile.TIME_INDEX: TIME_INDEX_ENTRY}

COMPARED = (*ENTRIES, LocalTierFile.LEADER_EPOCHS)
"""The objects that are compared with a segment while it is read."""


def torn_index(copy: TierCopy) -> str | None:
    """The fault in the sizes of its indexes, in the layout of LocalTieredStorage; None without one.

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
    offset_bytes = ENTRIES[LocalTierFile.OFFSET_INDEX].sizeof()
    time_bytes = ENTRIES[LocalTierFile.TIME_INDEX].sizeof()
    hits: int = 2 * (sizes[LocalTierFile.OFFSET_INDEX] // offset_bytes) + sizes[LocalTierFile.TIME_INDEX] // time_bytes
    return hits


def manifest_bytes(copy: TierCopy) -> int:
    """Bytes that ``copy_facts`` holds of a copy."""
    found = copy.objects.get(AivenObject.MANIFEST)
    return 0 if found is None else found.identity.size_bytes


def copy_facts(root: ReadPath, layout: TierLayout, copy: TierCopy) -> CopyFacts:
    """The facts from the listing, or in Aiven's layout from the manifest, which is read.

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
    file = root.below(found.key)
    try:
        data = file.read_small(MANIFEST_BYTES_MAX) or b"" if found.data is None else found.data
        manifest = read_aiven_manifest(data, file=file.path)
    except (FormatError, ReadFailedError) as error:
        return CopyFacts(fault=error.message, is_unread=isinstance(error, ReadFailedError))
    return _of_manifest(manifest, data, copy)


def _of_manifest(manifest: AivenManifest, data: bytes, copy: TierCopy) -> CopyFacts:
    metadata = manifest.segment
    end = metadata.get("endOffset")
    epochs = metadata.get("segmentLeaderEpochs")
    pairs = epochs.items() if isinstance(epochs, dict) else ()
    known = tuple(
        sorted((int(epoch), start) for epoch, start in pairs if re.fullmatch(r"[0-9]{1,10}", epoch) and _is_offset(start, 0))
    )
    snapshot, index = (manifest.indexes[each] for each in (SegmentIndex.PRODUCER_SNAPSHOT, SegmentIndex.TRANSACTION))
    log = copy.objects.get(AivenObject.LOG)
    stored = None if log is None else log.identity.size_bytes
    expected = manifest.chunks.stored_bytes
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
        max_timestamp_ms=_time(metadata.get("maxTimestampMs")),
        event_timestamp_ms=_time(metadata.get("eventTimestampMs")),
        fault=_contradiction(metadata, copy)
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


def _contradiction(metadata: dict[str, Any], copy: TierCopy) -> str | None:
    """Where the metadata in a manifest differs from the keys of the copy; None where it does not.

    The plugin makes both of one ``RemoteLogSegmentMetadata``.
    """
    key = parse_aiven_key(copy.objects[AivenObject.MANIFEST].key)
    if key is None:
        return None
    topic = json_member(metadata, *PARTITION_MEMBERS, "topicPartition", "topic")
    # A prefix without a separator is a part of the name in the key.
    if topic is not None and not (isinstance(topic, str) and key.topic.endswith(topic)):
        return f"its manifest names the topic {shown_json(topic)}, and its key {key.topic}"
    for name, value, expected in (
        ("partition", json_member(metadata, *PARTITION_MEMBERS, "topicPartition", "partition"), key.partition),
        ("segment", json_member(metadata, "remoteLogSegmentId", "id"), uuid_to_text(copy.segment_id)),
        ("topic id", json_member(metadata, *PARTITION_MEMBERS, "topicId"), uuid_to_text(key.topic_id)),
        ("start offset", metadata.get("startOffset"), copy.base_offset),
    ):
        if value is not None and value != expected:
            return f"its manifest names the {name} {shown_json(value)}, and its key {expected}"
    return None


def json_member(value: Any, *path: str) -> Any:
    """The value of JSON below a path of member names; None if it has no such object."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _time(value: object) -> int | None:
    return value if type(value) is int and -1 <= value < 2**63 else None


def _is_offset(value: object, least: int) -> bool:
    """Whether JSON has an offset there: a manifest may hold anything."""
    return type(value) is int and least <= value < 2**63
