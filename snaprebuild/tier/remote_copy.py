"""A copy of a segment in remote storage: its objects, what the manifest or the listing shows, and its record in the metadata log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from formats.errors import FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.offset_index import OFFSET_INDEX_ENTRY
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.time_index import TIME_INDEX_ENTRY
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_key import AivenObject, parse_aiven_key
from formats.remote.aiven_manifest import AivenManifest, SegmentIndex, read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment
from formats.text_lines import shown_json
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.storage.remote.listing import CopyObjects, TierLayout
from snaprebuild.storage.remote.store import INDEX_OF
from snaprebuild.storage.store_path import ReadPath

__all__ = [
    "ICEBERG_LACKS",
    "LOG_OF",
    "OBJECTS_NEEDED",
    "PARTITION_MEMBERS",
    "UNREAD",
    "CopyFacts",
    "RemoteCopy",
    "copy_facts",
    "fault_finding",
    "json_member",
    "manifest_bytes",
    "missing_objects",
    "torn_index",
]

LOG_OF: dict[TierLayout, str] = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}
"""Kind of the object with the segment itself."""

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
        leader_epochs: of the segment, ascending; none if unknown.
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
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()
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


UNREAD = CopyFacts()
"""The facts of a copy that were not read yet."""


@dataclass(slots=True)
class RemoteCopy:
    """A copy of a segment.

    The record in the metadata log counts before the facts of the objects. What neither of them has is read from the files of the copy
    (``RemotePartition.read_end``, ``read_epochs``, ``read_time``).

    Attributes:
        segment_id: 16 bytes.
        start_offset: of the segment.
        layout: of its objects, or of those that it lacks.
        objects: that are there.
        missing: kinds of objects that it needs and does not have.
        record: of the metadata log; None without one.
        unanswered: why a request for objects that the listing lacks had no answer; None if there was an answer, or no need to ask.
        facts: of the objects; ``UNREAD`` as long as they were not read.
        segment_bytes: size of the segment; None if unknown.
        end_offset: last offset; None if unknown.
        leader_epochs: of the segment, ascending; none if unknown.
        max_timestamp_ms: greatest of its records, ms since 1970; None if unknown.
        event_timestamp_ms: when the copy began, or was finished, ms since 1970; 0 if unknown.
        indexed_offset: of the record with the greatest timestamp, by the time index; None if that was not read.
    """

    segment_id: bytes
    start_offset: int
    layout: TierLayout
    objects: CopyObjects
    missing: tuple[str, ...]
    record: RemoteSegment | None = None
    unanswered: str | None = None
    facts: CopyFacts = UNREAD
    segment_bytes: int | None = None
    end_offset: int | None = None
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()
    max_timestamp_ms: int | None = None
    event_timestamp_ms: int = 0
    indexed_offset: int | None = None

    @classmethod
    def of(cls, layout: TierLayout, objects: CopyObjects | None, record: RemoteSegment | None = None) -> RemoteCopy:
        """The copy with these objects, or with this record, or with both."""
        if record is None:
            assert objects is not None
            return cls(objects.segment_id, objects.base_offset, layout, objects, missing_objects(layout, objects))
        return cls(
            segment_id=record.segment_id,
            start_offset=record.start_offset,
            layout=layout,
            objects=objects or CopyObjects(record.start_offset, record.segment_id, {}),
            missing=missing_objects(layout, objects),
            record=record,
            segment_bytes=record.size_bytes,
            end_offset=record.end_offset,
            leader_epochs=record.leader_epochs,
            max_timestamp_ms=_time_or_none(record.max_timestamp_ms),
            event_timestamp_ms=record.event_timestamp_ms,
        )

    def take_facts(self, facts: CopyFacts) -> None:
        """Takes the facts of the objects, as far as the record does not have them."""
        self.facts = facts
        if self.record is None:
            self.segment_bytes = facts.segment_bytes
            self.end_offset = facts.end_offset
            self.leader_epochs = facts.leader_epochs
            self.max_timestamp_ms = _time_or_none(facts.max_timestamp_ms)
            self.event_timestamp_ms = facts.event_timestamp_ms or 0

    @property
    def next_offset(self) -> int:
        """Offset after the last one, which is known."""
        assert self.end_offset is not None
        return self.end_offset + 1


def _time_or_none(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def fault_finding(place: str, copy: RemoteCopy, message: str, *, is_unread: bool | None = None) -> Finding:
    """The finding of a faulty copy, or of one that the store did not hand out, which another run may see.

    Args:
        place: of the partition.
        copy: that is faulty.
        message: what is wrong.
        is_unread: it was not handed out; None if its facts, or the request for its objects, show that.
    """
    if is_unread is None:
        is_unread = copy.unanswered is not None or copy.facts.is_unread
    code = "storage-failed" if is_unread else "tier-bad-copy"
    severity = Severity.STORAGE if is_unread else Severity.DAMAGED
    text = f"copy {uuid_to_text(copy.segment_id)}: {message}"
    return Finding(code, severity, place, text, copy.start_offset, is_unread=is_unread)


def missing_objects(layout: TierLayout, copy: CopyObjects | None) -> tuple[str, ...]:
    """Kinds of objects that a copy needs and does not have."""
    return tuple(kind for kind in OBJECTS_NEEDED[layout] if copy is None or kind not in copy.by_kind)


ENTRIES = {LocalTierFile.OFFSET_INDEX: OFFSET_INDEX_ENTRY, LocalTierFile.TIME_INDEX: TIME_INDEX_ENTRY}

COMPARED = (*ENTRIES, LocalTierFile.LEADER_EPOCHS)
"""The objects that are compared with a segment while it is read."""


def torn_index(copy: CopyObjects) -> str | None:
    """The fault in the sizes of its indexes, in the layout of LocalTieredStorage; None without one.

    ``RemoteIndexCache`` refuses an index that ends within an entry (``AbstractIndex.sanityCheck``), and each fetch from the copy fails.
    """
    return _torn(_index_sizes(copy))


def _index_sizes(copy: CopyObjects) -> dict[LocalTierFile, int]:
    return {kind: copy.by_kind[kind].identity.size_bytes for kind in ENTRIES if kind in copy.by_kind}


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


def manifest_bytes(copy: CopyObjects) -> int:
    """Bytes that ``copy_facts`` holds of a copy."""
    manifest = copy.by_kind.get(AivenObject.MANIFEST)
    return 0 if manifest is None else manifest.identity.size_bytes


def copy_facts(root: ReadPath, layout: TierLayout, copy: CopyObjects) -> CopyFacts:
    """The facts from the listing, or in Aiven's layout from the manifest, which is read.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    if layout is TierLayout.LOCAL_TIERED_STORAGE:
        kinds = (LocalTierFile.LOG, LocalTierFile.PRODUCER_SNAPSHOT, LocalTierFile.TRANSACTION_INDEX)
        log, snapshot, index = (copy.by_kind[kind].identity.size_bytes if kind in copy.by_kind else None for kind in kinds)
        sizes = _index_sizes(copy)
        return CopyFacts(
            segment_bytes=log,
            snapshot_bytes=snapshot,
            index_bytes=index,
            index_hits=_index_hits(sizes),
            compared=tuple((kind, copy.by_kind[kind].identity.size_bytes) for kind in COMPARED if kind in copy.by_kind),
            torn_index=_torn(sizes),
        )
    listed = copy.by_kind.get(AivenObject.MANIFEST)
    if listed is None:
        return CopyFacts()
    file = root.below(listed.key)
    try:
        data = file.read_small(MANIFEST_BYTES_MAX) or b"" if listed.data is None else listed.data
        manifest = read_aiven_manifest(data, file=file.path)
    except (FormatError, ReadFailedError) as error:
        return CopyFacts(fault=error.message, is_unread=isinstance(error, ReadFailedError))
    return _of_manifest(manifest, data, copy)


def _of_manifest(manifest: AivenManifest, data: bytes, copy: CopyObjects) -> CopyFacts:
    metadata = manifest.segment
    end = metadata.get("endOffset")
    epochs = metadata.get("segmentLeaderEpochs")
    pairs = epochs.items() if isinstance(epochs, dict) else ()
    starts = sorted((int(epoch), start) for epoch, start in pairs if re.fullmatch(r"[0-9]{1,10}", epoch) and _is_offset(start, 0))
    snapshot, index = (manifest.indexes[each] for each in (SegmentIndex.PRODUCER_SNAPSHOT, SegmentIndex.TRANSACTION))
    log = copy.by_kind.get(AivenObject.LOG)
    stored = None if log is None else log.identity.size_bytes
    expected = manifest.chunks.stored_bytes
    indexes = copy.by_kind.get(AivenObject.INDEXES)
    needed = max((place.position + place.size for place in manifest.indexes.values() if place is not None), default=0)
    sizes = _plain_sizes(manifest)
    torn = _torn(sizes)
    if indexes is not None and indexes.identity.size_bytes < needed:
        torn = f"its indexes end at byte {needed}, and its .indexes has {indexes.identity.size_bytes}"
    return CopyFacts(
        end_offset=end if _is_offset(end, copy.base_offset) else None,
        leader_epochs=tuple(LeaderEpochEntry(epoch, start) for epoch, start in starts),
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


def _contradiction(metadata: dict[str, Any], copy: CopyObjects) -> str | None:
    """Where the metadata in a manifest differs from the keys of the copy; None where it does not.

    The plugin makes both of one ``RemoteLogSegmentMetadata``.
    """
    key = parse_aiven_key(copy.by_kind[AivenObject.MANIFEST].key)
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
