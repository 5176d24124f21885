"""A partition in remote storage: the copies of its segments, and what a broker knows of them.

``RemoteCopy`` is one copy: its objects, what the manifest or the listing shows, and its record in the metadata log. ``RemotePartition`` has
the copies of a partition with the fold of the metadata log, and shows them as a partition directory. ``RemoteChain`` is a contiguous row of
them. Every verb on remote storage and followers uses these.

Without a metadata log every complete copy counts as finished, in the order in which the copies were made as far as that is known. It is
then unknown which of them brokers gave up or superseded since.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from formats import limits
from formats.errors import FormatError, TruncatedError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.offset_index import OFFSET_INDEX_ENTRY
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.time_index import TIME_INDEX_ENTRY
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_manifest import AivenManifest, SegmentIndex, read_aiven_manifest
from formats.remote.object_names import AivenObject, LocalTierFile, parse_aiven_key
from formats.remote.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
)
from formats.text_lines import shown_json
from snaprebuild.errors import DamagedCopyError, GoneFileError, LimitReachedError, ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles, read_last_entry_hint
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import (
    CopyObjects,
    TierLayout,
    UnknownObjects,
)
from snaprebuild.storage.remote.store import INDEX_OF, CachedManifest, TierStore
from snaprebuild.storage.store import USUAL_S3, FileIdentity, Ownership, ReadStore, S3Settings
from snaprebuild.storage.store_path import ReadPath, StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.remote_log import RemoteLog, epoch_end_offsets

__all__ = [
    "ICEBERG_LACKS",
    "LOG_OF",
    "OBJECTS_NEEDED",
    "PARTITION_MEMBERS",
    "UNREAD",
    "CopyFacts",
    "RemoteChain",
    "RemoteCopy",
    "RemotePartition",
    "copy_facts",
    "fault_finding",
    "json_member",
    "manifest_bytes",
    "missing_objects",
    "place_of",
    "take_all_for_finished",
    "unreadable_objects",
    "was_not_handed_out",
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
        is_compressed: its chunks are compressed; None if unknown.
        max_timestamp_ms: greatest of its records, ms since 1970; None if unknown.
        event_timestamp_ms: when its copy began, ms since 1970; None if unknown.
        fault: why its manifest cannot be read, or None.
        index_hits: of its offset and time index (``replay.segment_summary``), by their sizes; None where these are torn or unknown.
        compared: stored bytes of the small files that are compared with the segment, by kind.
        torn_index: which of its indexes ends too early, or None: brokers cannot read from the copy, and its segment may be right.
        is_unread: the store did not hand it out, so that the copy may be good.
        is_gone: its manifest was deleted after the store was listed.
        manifest: its bytes, where it could be read; None in a layout without one.
    """

    end_offset: int | None = None
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()
    segment_bytes: int | None = None
    snapshot_bytes: int | None = None
    index_bytes: int | None = None
    key_id: str | None = None
    is_compressed: bool | None = None
    max_timestamp_ms: int | None = None
    event_timestamp_ms: int | None = None
    fault: str | None = None
    index_hits: int | None = None
    compared: tuple[tuple[LocalTierFile, int], ...] = ()
    torn_index: str | None = None
    is_unread: bool = False
    is_gone: bool = False
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
        is_gone: an object of it was deleted after the store was listed.
        is_all_gone: the store was asked after the listing, and has none of its objects any more.
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
    is_gone: bool = False
    is_all_gone: bool = False
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
        self.is_gone = self.is_gone or facts.is_gone
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
    if value is None or value < 0:
        return None
    return value


def was_not_handed_out(error: FormatError | ReadFailedError) -> bool:
    """Whether a file of a copy could not be read, so that the copy may be good; else its bytes are damaged."""
    return isinstance(error, ReadFailedError) and not isinstance(error, DamagedCopyError)


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
    cause = FindingCause.CHANGED_MEANWHILE if is_unread and copy.is_gone else None
    return Finding(code, severity, place, text, copy.start_offset, is_unread=is_unread, cause=cause)


def missing_objects(layout: TierLayout, copy: CopyObjects | None) -> tuple[str, ...]:
    """Kinds of objects that a copy needs and does not have."""
    return tuple(kind for kind in OBJECTS_NEEDED[layout] if copy is None or kind not in copy.by_kind)


GONE_SINCE_LISTED = "gone since the store was listed"

ENTRIES = {LocalTierFile.OFFSET_INDEX: OFFSET_INDEX_ENTRY, LocalTierFile.TIME_INDEX: TIME_INDEX_ENTRY}

COMPARED = (*ENTRIES, LocalTierFile.LEADER_EPOCHS)
"""The objects that are compared with a segment while it is read."""


def _index_sizes(copy: CopyObjects) -> dict[LocalTierFile, int]:
    return {kind: copy.by_kind[kind].identity.size_bytes for kind in ENTRIES if kind in copy.by_kind}


def _torn(sizes: dict[LocalTierFile, int]) -> str | None:
    """The fault in the sizes of its indexes; None without one.

    ``RemoteIndexCache`` refuses an index that ends within an entry (``AbstractIndex.sanityCheck``), and each fetch from the copy fails.
    """
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
        data = file.read_small(MANIFEST_BYTES_MAX) if listed.data is None else listed.data
        if data is None:
            return CopyFacts(fault=f"its {AivenObject.MANIFEST} is {GONE_SINCE_LISTED}", is_unread=True, is_gone=True)
        manifest = read_aiven_manifest(data, file=file.path)
    except (FormatError, ReadFailedError) as error:
        return CopyFacts(fault=error.message, is_unread=was_not_handed_out(error))
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
    fault = _contradiction(metadata, copy)
    if fault is None and stored not in (None, expected):
        fault = f"its chunks have {expected} bytes, and its .log has {stored}"
    if indexes is not None and indexes.identity.size_bytes < needed:
        torn = f"its indexes end at byte {needed}, and its .indexes has {indexes.identity.size_bytes}"
    return CopyFacts(
        end_offset=end if _is_offset(end, copy.base_offset) else None,
        leader_epochs=tuple(LeaderEpochEntry(epoch, start) for epoch, start in starts),
        segment_bytes=manifest.chunks.file_size,
        snapshot_bytes=None if snapshot is None else snapshot.size,
        index_bytes=None if index is None else index.size,
        key_id=None if manifest.encryption is None else manifest.encryption.key_id,
        is_compressed=manifest.is_compressed,
        max_timestamp_ms=_time(metadata.get("maxTimestampMs")),
        event_timestamp_ms=_time(metadata.get("eventTimestampMs")),
        fault=fault,
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
    if type(value) is int and -1 <= value < 2**63:
        return value
    return None


def _is_offset(value: object, least: int) -> bool:
    """Whether JSON has an offset there: a manifest may hold anything."""
    return type(value) is int and least <= value < 2**63


# ---------------------------------------------------------------------------------------------------------------------- partition

NO_OWNER = Ownership(0, 0, 0)


def place_of(location: str, topic_partition: str, topic_id: str) -> str:
    """The path of findings on a partition of a store."""
    return f"{location}: {topic_partition} ({topic_id})"


@dataclass(slots=True)
class RemotePartition:
    """A partition in remote storage, also as a partition directory, which ``verify`` and a replay read like any other.

    Names of files are keys below the root of the store: the objects of one partition may be below several prefixes. The parts of one object
    in Aiven's layout have the names that ``TierStore`` understands.

    Attributes:
        id: topic, topic id and number.
        base: where the objects of its copies are.
        layout: of the objects.
        store: reads the files of a copy: that of ``base``, or a ``TierStore`` on it.
        log: what a broker knows of it.
        copies: by segment id, ascending by start offset: those with objects, and those that the metadata log alone has.
        verified: a metadata log that could be read whole has the live copies.
        private_keys: for copies that are encrypted.
        stores: how the store is reached, and how much may be read of it.
        findings: about copies that cannot be read.
        reads: reads the objects in place of the store of ``base``; None for that one.
        deleted_meanwhile: start offsets of the copies that were deleted since the store was listed, and were left out.
    """

    id: TopicIdPartition
    base: StorePath
    layout: TierLayout
    store: ReadStore
    log: RemoteLog
    copies: dict[bytes, RemoteCopy] = field(default_factory=dict)
    verified: bool = False
    private_keys: PrivateKeys = NO_KEYS
    stores: S3Settings = USUAL_S3
    findings: tuple[Finding, ...] = ()
    reads: ReadStore | None = None
    deleted_meanwhile: list[int] = field(default_factory=list)

    @property
    def objects(self) -> ReadPath:
        """Where the objects of its copies are read."""
        return self.base if self.reads is None else ReadPath(self.reads, self.base.path)

    @property
    def place(self) -> str:
        """Place, partition and topic id, for messages."""
        return place_of(self.base.path, f"{self.id.topic}-{self.id.partition}", uuid_to_text(self.id.topic_id))

    @property
    def live(self) -> list[RemoteSegment]:
        """Copies from which reads are served."""
        return [each for each in self.log.segments.values() if self.log.is_live(each.segment_id)]

    @property
    def bounds(self) -> set[int]:
        """The offsets from which on another copy, or none, may serve reads of an epoch."""
        starts = {entry.start_offset for segment in self.live for entry in segment.leader_epochs}
        return starts | {last + 1 for segment in self.live for last in epoch_end_offsets(segment).values()}

    @property
    def has_objects(self) -> bool:
        """Whether the store has objects of any copy."""
        return any(each.objects.by_kind for each in self.copies.values())

    def may_be_live(self, copy: RemoteCopy) -> bool:
        """Whether brokers read a copy, as far as the metadata log could be read."""
        is_unknown = copy.record is None and copy.segment_id not in self.log.deleted
        return self.log.is_live(copy.segment_id) or (is_unknown and not self.verified)

    @property
    def incomplete(self) -> list[RemoteCopy]:
        """Copies that brokers read, or may read, and that lack objects. Those of Iceberg need none, and of others it may be unknown."""
        copies = (each for each in self.copies.values() if each.missing and each.missing != ICEBERG_LACKS)
        return [each for each in copies if each.unanswered is None and self.may_be_live(each)]

    @property
    def reported_lost(self) -> list[bytes]:
        """Segment ids of the copies that lack objects and that ``findings`` counts, so that no other finding is about one of them."""
        if self.findings:
            return [each.segment_id for each in self.incomplete if each.record is not None]
        return []

    def complete_copy(self, segment: RemoteSegment) -> RemoteCopy:
        """The copy of a record, with all objects that it needs.

        Raises:
            DamagedCopyError: there are none, or one that it needs is missing.
            ReadFailedError: whether they are there is unknown.
        """
        copy = self.copies.get(segment.segment_id)
        name = f"copy {uuid_to_text(segment.segment_id)}"
        if copy is not None and copy.missing and copy.unanswered is not None:
            raise ReadFailedError(f"{name}: the request for objects that the listing lacks: {copy.unanswered}", path=self.place)
        if copy is None or not copy.objects.by_kind:
            raise DamagedCopyError(f"{name}: its objects are not there", path=self.place, segment_id=segment.segment_id)
        if copy.missing:
            message = f"{name}: objects of it are missing: {', '.join(copy.missing)}"
            raise DamagedCopyError(message, path=self.place, segment_id=segment.segment_id)
        return copy

    # -------------------------------------------------------------------------------------------- copies as a partition directory

    def file_name(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Name of a file of a copy."""
        return copy.objects.by_kind[LOG_OF[self.layout]].key.removesuffix(LocalTierFile.LOG) + kind

    def file_path(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Location of a file of a copy."""
        return f"{self.base.path}/{self.file_name(copy, kind)}"

    def file(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> ReadPath:
        """A file of a copy, to be read."""
        return ReadPath(self.store, self.file_path(copy, kind))

    def segment_files(self, copy: RemoteCopy, *, until: int | None = None, with_indexes: bool = False) -> SegmentFiles:
        """A copy as a segment of the directory.

        Args:
            copy: with a record, or with facts.
            until: offset after the last one that is taken; None for all.
            with_indexes: its offset and time index may be read as those of a directory; they are not compared with the segment.
        """
        assert copy.segment_bytes is not None
        facts = UNREAD if with_indexes else copy.facts
        identity = replace(copy.objects.by_kind[LOG_OF[self.layout]].identity, size_bytes=copy.segment_bytes)
        offset_index, time_index = (
            self.file_name(copy, kind) if with_indexes else None for kind in (LocalTierFile.OFFSET_INDEX, LocalTierFile.TIME_INDEX)
        )
        return SegmentFiles(
            base_offset=copy.start_offset,
            log=ListedFile(self.file_name(copy), identity, NO_OWNER),
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=facts.index_bytes,
            until_offset=until,
            index_hits=facts.index_hits,
            compared_bytes=tuple(size for _, size in facts.compared),
        )

    def snapshot_file(self, copy: RemoteCopy) -> ListedFile | None:
        """The producer snapshot of a copy with facts as a file of the directory; None where it has no bytes."""
        size_bytes = copy.facts.snapshot_bytes
        if not size_bytes:
            return None
        # As it was listed where it is a file of its own, which a reader compares with the file that it opens.
        own = copy.objects.by_kind.get(LocalTierFile.PRODUCER_SNAPSHOT)
        identity = FileIdentity(size_bytes, 0, 0) if own is None else own.identity
        return ListedFile(self.file_name(copy, LocalTierFile.PRODUCER_SNAPSHOT), identity, NO_OWNER)

    def directory(
        self,
        segments: Iterable[SegmentFiles],
        snapshots: Iterable[tuple[int, ListedFile]] = (),
        log_end_offset: int | None = None,
    ) -> PartitionDir:
        """Copies that follow one another as a partition directory."""
        named = PartitionDirectoryName(self.id.topic, self.id.partition, DirectoryForm.PLAIN)
        return PartitionDir(
            self.base.path,
            named,
            0,
            tuple(segments),
            tuple(snapshots),
            has_leader_epochs=True,
            store=self.store,
            log_end_offset=log_end_offset,
        )

    def source(self, directory: PartitionDir) -> PartitionSource:
        """A directory of this partition as a source."""
        return PartitionSource(directory, LogDirState(self.base.path, store=self.base.store), directory.topic_partition)

    # ------------------------------------------------------------------------------------------------------------ what is read

    def read_facts(self, copies: Iterable[RemoteCopy]) -> None:
        """Reads the manifests of copies that have objects, each once; the files of these copies are read with them from then on.

        Raises:
            RefusedError: a limit of the run is used up; then none of the copies has facts.
        """
        unread = [each for each in copies if each.facts is UNREAD]
        objects = [each.objects for each in unread]
        facts_of = partial(copy_facts, self.objects, self.layout)
        # All of them first: no copy has facts if a limit ends the reads.
        for copy, facts in zip(unread, list(map_in_threads(facts_of, objects, manifest_bytes)), strict=True):
            copy.take_facts(facts)
        if self.layout is TierLayout.AIVEN and unread:
            manifests = [each for copy in self.copies.values() if (each := self._manifest_of(copy)) is not None]
            manifests.sort(key=lambda each: each.stem)
            self.store = TierStore(self.objects.store, self.private_keys, tuple(manifests))

    def leave_out_deleted(self, copies: Iterable[RemoteCopy]) -> bool:
        """Leaves out the copies that were deleted since the store was listed, as retention does: no object of them is there any more.

        Retention deletes the lowest copies. So one that brokers may read is left out only if it lies below every such copy that is there,
        and if there is one. Any other stays: it is lost, or was not handed out.

        Args:
            copies: that may be among them.

        Returns:
            Whether any was left out.
        """
        candidates = [each for each in copies if each.segment_id in self.copies]
        if not candidates:
            return False
        lowest = self._lowest_present()
        left_out = []
        for each in candidates:
            may_be_retention = not self.may_be_live(each) or (lowest is not None and each.start_offset < lowest)
            if may_be_retention and self._is_deleted(each):
                left_out.append(each)
        for each in left_out:
            del self.copies[each.segment_id]
            self.deleted_meanwhile.append(each.start_offset)
        return bool(left_out)

    def _lowest_present(self) -> int | None:
        """Start offset of the lowest copy that brokers may read and that the store still has; None if it has none of them."""
        listed = (each for each in self.copies.values() if each.objects.by_kind and self.may_be_live(each))
        ascending = sorted(listed, key=lambda each: each.start_offset)
        return next((each.start_offset for each in ascending if not self._is_deleted(each)), None)

    def _is_deleted(self, copy: RemoteCopy) -> bool:
        """Whether the store has no object of a copy that was listed. False if it does not answer."""
        if copy.is_all_gone:
            return True
        objects = copy.objects.by_kind.values()
        try:
            is_deleted = bool(objects) and all(self.base.below(each.key).read_end(1) is None for each in objects)
        except (ReadFailedError, LimitReachedError):
            return False
        if is_deleted:
            copy.is_gone = True
            copy.is_all_gone = True
        return is_deleted

    def deleted_findings(self) -> list[Finding]:
        """The note about copies that were deleted since the store was listed."""
        if not self.deleted_meanwhile:
            return []
        count = len(self.deleted_meanwhile)
        message = f"{pluralize(count, 'copy was', 'copies were')} deleted since the store was listed, and left out"
        return [Finding("tier-deleted-meanwhile", Severity.NOTE, self.place, message, min(self.deleted_meanwhile))]

    def without_vanished(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, with one in the place of all about unread objects if no copy of the listing is there any more.

        Brokers delete all copies of a topic that is deleted. Nothing here shows whether they did.

        Args:
            findings: about this partition, after ``leave_out_deleted`` was called for what could not be read.
        """
        listed = [each for each in self.copies.values() if each.objects.by_kind and self.may_be_live(each)]
        if not listed or not all(each.is_all_gone for each in listed):
            return list(findings)
        have = "copy is" if len(listed) == 1 else f"{len(listed)} copies are"
        message = f"its {have} gone since the store was listed: the topic may have been deleted"
        start = min(each.start_offset for each in listed)
        cause = FindingCause.CHANGED_MEANWHILE
        vanished = Finding("storage-failed", Severity.STORAGE, self.place, message, start, is_unread=True, cause=cause)
        return [vanished, *(each for each in findings if not each.is_unread)]

    def _manifest_of(self, copy: RemoteCopy) -> CachedManifest | None:
        """The manifest of a copy; None if it was not read, or if the objects are below several prefixes."""
        facts = copy.facts
        if facts.manifest is None or facts.fault is not None or copy.missing:
            return None
        stem = self.file_name(copy).removesuffix(LocalTierFile.LOG)
        indexes = copy.objects.by_kind[AivenObject.INDEXES]
        if indexes.key != f"{stem}.{AivenObject.INDEXES}":
            return None
        return CachedManifest(f"{self.base.path}/{stem}", facts.manifest, indexes.identity)

    def check_facts(self, copy: RemoteCopy) -> None:
        """Makes sure that the facts of a copy, which were read, have no fault.

        Raises:
            DamagedCopyError: its manifest is damaged.
            ReadFailedError: its manifest was not handed out.
        """
        facts = copy.facts
        if facts.fault is None:
            return
        if facts.is_unread:
            raise ReadFailedError(facts.fault, path=self.file_path(copy))
        raise DamagedCopyError(facts.fault, path=self.file_path(copy), segment_id=copy.segment_id)

    def read_end(self, copy: RemoteCopy) -> None:
        """Reads where a segment ends, if nothing else has it; it stays unknown if no batch is whole.

        Raises:
            FormatError, ReadFailedError: the segment cannot be read.
            RefusedError: a limit of the run is used up.
        """
        if copy.end_offset is None:
            self.check_facts(copy)
            try:
                end = log_end_offset(self.directory([self.segment_files(copy, with_indexes=True)])) - 1
            except GoneFileError as error:
                copy.is_gone = True
                raise ReadFailedError(f"is {GONE_SINCE_LISTED}", path=error.path, errno=errno.ENOENT) from None
            copy.end_offset = end if end >= copy.start_offset else None

    def require_end(self, copy: RemoteCopy) -> int:
        """The last offset of a copy, which is read if nothing else has it.

        Raises:
            FormatError, ReadFailedError: the segment cannot be read, or none of its batches is whole.
            RefusedError: a limit of the run is used up.
        """
        self.read_end(copy)
        if copy.end_offset is None:
            raise TruncatedError("segment", file=self.file_path(copy), position=0, expected="a batch", found="none that is whole")
        return copy.end_offset

    def read_epochs(self, copy: RemoteCopy) -> None:
        """Reads the leader epochs of a segment whose end is known, if nothing else has them.

        Raises:
            FormatError, ReadFailedError: the leader epoch checkpoint cannot be read.
            RefusedError: a limit of the run is used up.
        """
        if not copy.leader_epochs:
            entries = self.read_log_epochs(copy)
            copy.leader_epochs = _trimmed_epochs(entries, copy.start_offset, copy.next_offset - 1)

    def read_log_epochs(self, copy: RemoteCopy) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries.

        Raises:
            FormatError, ReadFailedError, RefusedError: as ``read_epochs``.
        """
        file = self.file(copy, LocalTierFile.LEADER_EPOCHS)
        data = file.read_small(limits.TEXT_FILE_BYTES_MAX)
        if data is None:
            copy.is_gone = True
            raise ReadFailedError(f"is {GONE_SINCE_LISTED}", path=file.path, errno=errno.ENOENT)
        return read_leader_epoch_checkpoint(data, file=file.path)

    def try_read_epochs(self, copy: RemoteCopy) -> None:
        """Reads the leader epochs of a segment whose end is known, if nothing else has them and its checkpoint can be read."""
        with contextlib.suppress(FormatError, ReadFailedError):
            self.read_epochs(copy)

    def known_log_epochs(self, copy: RemoteCopy) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries; none if they cannot be read."""
        try:
            return self.read_log_epochs(copy)
        except (FormatError, ReadFailedError):
            return ()

    def read_time(self, copy: RemoteCopy) -> None:
        """Reads the greatest timestamp of a copy from the end of its time index, if nothing else has it."""
        if copy.max_timestamp_ms is None:
            last = read_last_entry_hint(self.file(copy, LocalTierFile.TIME_INDEX))
            if last is not None:
                copy.max_timestamp_ms = last.timestamp
                copy.indexed_offset = copy.start_offset + last.relative_offset

    def directory_of(self, segment: RemoteSegment) -> PartitionDir:
        """A copy as a partition directory of one segment, with its offset and time index.

        Raises:
            ReadFailedError: as ``complete_copy``.
        """
        return self.directory([self.segment_files(self.complete_copy(segment), with_indexes=True)])

    def read_file(self, segment: RemoteSegment, kind: LocalTierFile) -> bytes:
        """A small file that each copy has, as the producer snapshot and the leader epochs.

        Raises:
            ReadFailedError: as ``complete_copy``; or it cannot be read, or is absent.
            FormatError: what the store keeps around it is bad.
            RefusedError: it is encrypted, and no key was given; or a limit of the run is used up.
        """
        data = self.file(self.complete_copy(segment), kind).read_small(limits.INDEX_BYTES_MAX)
        if data is None:
            raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: it has no {kind}", path=self.place)
        return data

    def leader_epochs_at(self, segment: RemoteSegment) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries.

        Raises:
            ReadFailedError, FormatError, RefusedError: as ``read_file``.
        """
        data = self.read_file(segment, LocalTierFile.LEADER_EPOCHS)
        return read_leader_epoch_checkpoint(data, file=f"{self.place}: copy {uuid_to_text(segment.segment_id)}")

    def chain_below(self, epochs: Sequence[LeaderEpochEntry], end: int) -> RemoteChain | None:
        """The copies below an offset, of the log with these leader epochs; None where none holds the offset right below.

        Args:
            epochs: of the log, ascending.
            end: offset after the last one that is wanted.
        """
        segments: list[RemoteSegment] = []
        offset = end - 1
        reason = "the log begins here"
        while offset >= 0:
            epoch = epoch_of(epochs, offset)
            segment = None if epoch is None else self.log.lookup(epoch, offset)
            if segment is None:
                reason = f"no finished copy holds offset {offset} of leader epoch {epoch}"
                break
            if segments and segment.end_offset >= segments[-1].start_offset:
                reason = f"the copy that holds {offset} overlaps the next one"
                break
            segments.append(segment)
            offset = segment.start_offset - 1
        return RemoteChain(self, tuple(reversed(segments)), reason) if segments else None


@dataclass(frozen=True, slots=True)
class RemoteChain:
    """Copies that follow one another without a gap, up to an offset.

    Attributes:
        segments: ascending; the last one holds the offset below the wanted end.
        ends_at: why no copy precedes the first one.
    """

    remote: RemotePartition
    segments: tuple[RemoteSegment, ...]
    ends_at: str

    @property
    def start_offset(self) -> int:
        """Start offset of the first copy."""
        return self.segments[0].start_offset

    def source(self, segments: Sequence[RemoteSegment], snapshots: Sequence[RemoteSegment] = ()) -> PartitionSource:
        """Some of the copies as a partition directory.

        Args:
            segments: in a row.
            snapshots: copies whose producer snapshots are in the directory.

        Raises:
            ReadFailedError: objects are missing, or of another size than they should be.
            RefusedError: they are encrypted for a key that was not given.
        """
        copies = [self.remote.complete_copy(each) for each in (*segments, *snapshots)]
        self.remote.read_facts({each.segment_id: each for each in copies}.values())
        listed = []
        for each in snapshots:
            snapshot = self.remote.snapshot_file(self.remote.complete_copy(each))
            if snapshot is not None:
                listed.append((each.end_offset + 1, snapshot))
        return self.remote.source(self.remote.directory([self._segment(each) for each in segments], listed))

    def _segment(self, segment: RemoteSegment) -> SegmentFiles:
        copy = self.remote.complete_copy(segment)
        facts = copy.facts
        store = self.remote.store
        location = self.remote.file_path(copy)
        if facts.fault is not None:
            if facts.is_unread:
                raise ReadFailedError(facts.fault, path=location)
            raise DamagedCopyError(facts.fault, path=location, segment_id=segment.segment_id)
        if facts.key_id is not None and facts.manifest is not None and isinstance(store, TierStore):
            store.data_key(read_aiven_manifest(facts.manifest), location)
        if facts.segment_bytes != segment.size_bytes:
            message = f"has {facts.segment_bytes} bytes, and the metadata log has {segment.size_bytes}"
            raise DamagedCopyError(message, path=location, segment_id=segment.segment_id)
        return self.remote.segment_files(copy)


def take_all_for_finished(remote: RemotePartition) -> None:
    """Takes every complete copy for a finished one, and adds the findings about those that cannot be read.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    complete = [copy for copy in remote.copies.values() if not copy.missing]
    iceberg = sum(copy.missing == ICEBERG_LACKS for copy in remote.copies.values())
    findings = unreadable_objects(remote.place, iceberg=iceberg)
    left = len(remote.copies) - len(complete) - iceberg
    if left:
        message = f"{pluralize(left, 'copy', 'copies')} left out, because objects are missing"
        findings.append(Finding("tier-unreadable", Severity.FINDING, remote.place, message))
    remote.read_facts(complete)
    segments = []
    for copy in complete:
        if copy.facts.fault is not None and remote.leave_out_deleted([copy]):
            continue
        facts = copy.facts
        fault = facts.fault
        is_unread = facts.is_unread
        if fault is None:
            try:
                segments.append(_segment_of(remote, copy))
                continue
            except (FormatError, ReadFailedError) as error:
                if remote.leave_out_deleted([copy]):
                    continue
                fault = error.message
                is_unread = was_not_handed_out(error)
        findings.append(fault_finding(remote.place, copy, fault, is_unread=is_unread))
    for segment in sorted(segments, key=lambda each: (each.event_timestamp_ms, each.start_offset)):
        assert segment.id is not None
        remote.log.take(segment)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        remote.log.take(RemoteSegmentUpdate(segment.id, segment.broker_id, segment.event_timestamp_ms, None, finished))
    remote.findings = (*remote.without_vanished(findings), *remote.deleted_findings())


def _segment_of(remote: RemotePartition, copy: RemoteCopy) -> RemoteSegment:
    """A copy as its record would have it: from its manifest, else from its files."""
    end_offset = remote.require_end(copy)
    remote.read_epochs(copy)
    remote.read_time(copy)
    assert copy.segment_bytes is not None
    return RemoteSegment(
        id=RemoteSegmentId(remote.id, copy.segment_id),
        segment_id=copy.segment_id,
        start_offset=copy.start_offset,
        end_offset=end_offset,
        broker_id=-1,
        max_timestamp_ms=-1 if copy.max_timestamp_ms is None else copy.max_timestamp_ms,
        event_timestamp_ms=copy.event_timestamp_ms,
        leader_epochs=copy.leader_epochs,
        size_bytes=copy.segment_bytes,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=False,
    )


def _trimmed_epochs(entries: Sequence[LeaderEpochEntry], first: int, last: int) -> tuple[LeaderEpochEntry, ...]:
    """The epochs of a segment, of a checkpoint that begins with the log (``LeaderEpochFileCache.epochEntriesInRange``)."""
    inside = [entry for entry in entries if first < entry.start_offset <= last]
    before = [entry.epoch for entry in entries if entry.start_offset <= first]
    return (LeaderEpochEntry(before[-1], first), *inside) if before else tuple(inside)


def unreadable_objects(place: str, unknown: UnknownObjects | None = None, iceberg: int = 0) -> list[Finding]:
    """Objects that cannot be read.

    Args:
        place: for the findings.
        unknown: objects of no known layout.
        iceberg: copies that have a manifest alone.
    """
    findings = []
    if unknown is not None and unknown.old_aiven:
        message = f"{pluralize(unknown.old_aiven, 'object')} of Aiven's plugin of before October 2023, whose layout is not read"
        findings.append(Finding("tier-unsupported-layout", Severity.REFUSED, place, message))
    if iceberg:
        message = f"{pluralize(iceberg, 'copy', 'copies')} with a manifest alone, as segment.format=iceberg leaves them: not read"
        findings.append(Finding("tier-unsupported-layout", Severity.REFUSED, place, message))
    if unknown is not None and unknown.count > unknown.old_aiven:
        message = (
            f"{pluralize(unknown.count - unknown.old_aiven, 'object')} of no known layout left out, the first {unknown.first!r}"
        )
        findings.append(Finding("tier-unknown-objects", Severity.NOTE, place, message))
    return findings
