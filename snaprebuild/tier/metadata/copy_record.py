"""The record of one copy of a segment, with the source of each of its facts.

A manifest of Aiven's plugin has what the broker passed to the plugin. Copies of LocalTieredStorage have no manifest: their facts are in the
files of the copy, and the broker id is in none. Nothing in remote storage proves the state: a broker may have failed after its upload.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from formats.limits import INT32_MAX
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.aiven_custom_fields import CustomField
from formats.remote.aiven_custom_metadata import CustomMetadata, custom_values, write_custom_metadata
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.object_names import AivenObject, parse_aiven_key
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, SegmentState
from formats.text_lines import shown_json
from snaprebuild.errors import DamagedCopyError
from snaprebuild.published import EpochOrNone, Int64, Natural, OffsetOrNone, Part
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.store import OBJECT_SCHEME
from snaprebuild.tier.remote_partition import LOG_OF, PARTITION_MEMBERS, RemoteCopy, RemotePartition, json_member
from snaprebuild.tier.upload.announce import WrittenCopy

__all__ = [
    "CopyRecord",
    "FactSource",
    "FactSources",
    "RecordFacts",
    "RecordSettings",
    "copy_record",
    "differing_facts",
    "prefix_fault",
]

UNKNOWN_BROKER = -1
"""Kafka shows the id in its log, and decides nothing by it."""


class FactSource(StrEnum):
    """Where a fact of a record comes from."""

    METADATA_LOG = "metadata-log"
    """A record of __remote_log_metadata."""
    MANIFEST = "manifest"
    """Metadata that the broker passed to the plugin."""
    CHUNK_INDEX = "chunk-index"
    """The chunk index of the manifest."""
    SEGMENT = "segment"
    """The last batch of the segment."""
    LEADER_EPOCHS = "leader-epochs"
    """The leader epoch checkpoint of the copy."""
    TIME_INDEX = "time-index"
    """The last entry of the time index."""
    LISTING = "listing"
    """Size or time of an object."""
    SETTINGS = "settings"
    """The settings of the plugin."""
    LAYOUT = "layout"
    """The writer of this layout always does it."""
    UNPROVEN = "unproven"
    """Nothing shows it."""


class RecordFacts(Part, frozen=True):
    """The facts of a record, and of the one that finishes the copy."""

    end_offset: Natural
    """Last offset."""
    leader_epochs: tuple[LeaderEpochEntry, ...]
    """Leader epochs of the segment, ascending."""
    max_timestamp_ms: Int64
    """Greatest timestamp of the segment, ms since 1970."""
    segment_bytes: Natural
    """Size of the segment."""
    broker_id: EpochOrNone
    """Broker that made the copy; -1 if that is unknown."""
    event_timestamp_ms: OffsetOrNone
    """When the copy began, or was finished, ms since 1970."""
    custom_metadata: str | None
    """Custom metadata of the plugin, in hexadecimal; null for none."""
    txn_index_empty: bool
    """No transaction was aborted in the segment."""


@dataclass(frozen=True, slots=True)
class FactSources:
    """The source of each fact of a record, and of the state COPY_SEGMENT_FINISHED."""

    end_offset: FactSource
    leader_epochs: FactSource
    max_timestamp_ms: FactSource
    segment_bytes: FactSource
    broker_id: FactSource
    event_timestamp_ms: FactSource
    custom_metadata: FactSource
    txn_index_empty: FactSource
    state: FactSource

    @property
    def by_fact(self) -> dict[str, FactSource]:
        """The sources by name of the fact."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Facts that remote storage does not show.

    Attributes:
        custom_fields: that the plugin is set to include in custom metadata; None if unknown.
        key_prefix: of the plugin whose storage root is the directory with the objects; None if unknown, or in an object store, where the
            location shows it.
    """

    custom_fields: Collection[CustomField] | None = None
    key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """The record of a copy.

    Attributes:
        segment: as it was when the copy began.
        sources: of its facts.
    """

    segment: RemoteSegment
    sources: FactSources

    @property
    def written(self) -> WrittenCopy:
        """The copy with the record that finishes it, of the same moment: when it was finished is in no object."""
        return WrittenCopy(self.segment, self.segment.event_timestamp_ms)

    @property
    def facts(self) -> RecordFacts:
        """The facts for the document."""
        segment = self.segment
        custom = segment.custom_metadata
        return RecordFacts(
            end_offset=segment.end_offset,
            leader_epochs=segment.leader_epochs,
            max_timestamp_ms=segment.max_timestamp_ms,
            segment_bytes=segment.size_bytes,
            broker_id=segment.broker_id,
            event_timestamp_ms=segment.event_timestamp_ms,
            custom_metadata=None if custom is None else custom.hex(),
            txn_index_empty=segment.txn_index_empty,
        )


def copy_record(remote: RemotePartition, copy: RemoteCopy, settings: RecordSettings) -> CopyRecord:
    """The record of a complete copy, whose facts were read. A record of the metadata log has all facts.

    Args:
        remote: the partition.
        copy: of it, with all objects.
        settings: of the plugin.

    Raises:
        DamagedCopyError: its manifest is damaged, or a fact that brokers need is nowhere.
        FormatError, ReadFailedError: a file of the copy cannot be read.
        RefusedError: a limit of the run is used up.
    """
    record = copy.record
    if record is not None:
        return CopyRecord(_started(remote, record), _sources_of_record(record))
    remote.check_facts(copy)
    return _record_of_objects(remote, copy, settings)


def _started(remote: RemotePartition, record: RemoteSegment) -> RemoteSegment:
    segment_id = RemoteSegmentId(remote.id, record.segment_id)
    return replace(record, id=segment_id, state=SegmentState.COPY_SEGMENT_STARTED)


def _sources_of_record(record: RemoteSegment) -> FactSources:
    of_log = FactSource.METADATA_LOG
    is_finished = record.state is SegmentState.COPY_SEGMENT_FINISHED
    return FactSources(
        end_offset=of_log,
        leader_epochs=of_log,
        max_timestamp_ms=of_log,
        segment_bytes=of_log,
        broker_id=of_log,
        event_timestamp_ms=of_log,
        custom_metadata=of_log,
        txn_index_empty=of_log,
        state=of_log if is_finished else FactSource.UNPROVEN,
    )


def _record_of_objects(remote: RemotePartition, copy: RemoteCopy, settings: RecordSettings) -> CopyRecord:
    is_aiven = copy.layout is TierLayout.AIVEN
    if is_aiven:
        _check_topic(remote, copy)
    end_source = FactSource.SEGMENT if copy.end_offset is None else FactSource.MANIFEST
    end_offset = remote.require_end(copy)
    epochs_source = FactSource.MANIFEST if copy.leader_epochs else FactSource.LEADER_EPOCHS
    remote.read_epochs(copy)
    if not copy.leader_epochs:
        message = "it has no leader epoch, and brokers take no record without one"
        raise DamagedCopyError(message, path=remote.file_path(copy), segment_id=copy.segment_id)
    time_source = FactSource.TIME_INDEX if copy.max_timestamp_ms is None else FactSource.MANIFEST
    remote.read_time(copy)
    listed_ms = copy.objects.by_kind[LOG_OF[copy.layout]].identity.modified_ns // 1_000_000
    max_timestamp_ms = copy.max_timestamp_ms
    if max_timestamp_ms is None:  # of a segment without timestamps a broker takes the time of its file
        max_timestamp_ms = listed_ms
        time_source = FactSource.LISTING
    assert copy.segment_bytes is not None
    broker_id = _broker_id(copy)
    event_ms = copy.facts.event_timestamp_ms
    segment = RemoteSegment(
        id=RemoteSegmentId(remote.id, copy.segment_id),
        segment_id=copy.segment_id,
        start_offset=copy.start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=listed_ms if event_ms is None else event_ms,
        leader_epochs=copy.leader_epochs,
        size_bytes=copy.segment_bytes,
        custom_metadata=_custom_metadata(remote, copy, settings),
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=not copy.facts.index_bytes,
    )
    sources = FactSources(
        end_offset=end_source,
        leader_epochs=epochs_source,
        max_timestamp_ms=time_source,
        segment_bytes=FactSource.CHUNK_INDEX if is_aiven else FactSource.LISTING,
        broker_id=FactSource.UNPROVEN if broker_id == UNKNOWN_BROKER else FactSource.MANIFEST,
        event_timestamp_ms=FactSource.LISTING if event_ms is None else FactSource.MANIFEST,
        custom_metadata=_custom_source(copy.layout, settings),
        txn_index_empty=FactSource.MANIFEST if is_aiven else FactSource.LISTING,
        state=FactSource.UNPROVEN,
    )
    return CopyRecord(segment, sources)


def _check_topic(remote: RemotePartition, copy: RemoteCopy) -> None:
    """Makes sure that the topic in a manifest is that of the partition: keys alone do not show where a ``key.prefix`` ends.

    Raises:
        DamagedCopyError: it is another one.
    """
    if copy.facts.manifest is None:
        return
    topic = json_member(read_aiven_manifest(copy.facts.manifest).segment, *PARTITION_MEMBERS, "topicPartition", "topic")
    if topic is not None and topic != remote.id.topic:
        message = f"its manifest names the topic {shown_json(topic)}, and this partition is of {remote.id.topic}"
        raise DamagedCopyError(message, path=remote.file_path(copy), segment_id=copy.segment_id)


def _broker_id(copy: RemoteCopy) -> int:
    """The broker that a manifest names; ``UNKNOWN_BROKER`` without one."""
    if copy.facts.manifest is None:
        return UNKNOWN_BROKER
    broker_id = read_aiven_manifest(copy.facts.manifest).segment.get("brokerId")
    if type(broker_id) is int and 0 <= broker_id <= INT32_MAX:
        return broker_id
    return UNKNOWN_BROKER


def _custom_source(layout: TierLayout, settings: RecordSettings) -> FactSource:
    if layout is TierLayout.LOCAL_TIERED_STORAGE:
        return FactSource.LAYOUT
    return FactSource.UNPROVEN if settings.custom_fields is None else FactSource.SETTINGS


def _custom_metadata(remote: RemotePartition, copy: RemoteCopy, settings: RecordSettings) -> bytes | None:
    """Custom metadata of the plugin for a copy; LocalTieredStorage returns none."""
    if copy.layout is TierLayout.LOCAL_TIERED_STORAGE or not settings.custom_fields:
        return None
    key = copy.objects.by_kind[AivenObject.LOG].key
    own_prefix = _own_prefix(remote, copy)
    prefix = _prefix_below_bucket(remote.base.path) + own_prefix
    main_path = key.removeprefix(own_prefix).removesuffix(f".{AivenObject.LOG}")
    return write_custom_metadata(CustomMetadata(copy.objects.size_bytes, prefix, main_path), settings.custom_fields)


def _own_prefix(remote: RemotePartition, copy: RemoteCopy) -> str:
    """The text before the topic in the keys of a copy in Aiven's layout."""
    parsed = parse_aiven_key(copy.objects.by_kind[AivenObject.LOG].key)
    assert parsed is not None
    return parsed.head.removesuffix(remote.id.topic)


def prefix_fault(remote: RemotePartition, copy: RemoteCopy, settings: RecordSettings) -> str | None:
    """Why the prefix in the custom metadata of a copy is unknown or wrong; None if it is right, or not included.

    In a directory keys alone do not show whether the storage root of the plugin is above it.
    """
    is_included = copy.layout is TierLayout.AIVEN and CustomField.OBJECT_PREFIX in (settings.custom_fields or ())
    if not is_included or not remote.base.is_local:
        return None
    if settings.key_prefix is None:
        return (
            "OBJECT_PREFIX is unknown, because no object shows the storage root of the plugin: give --server-properties, or "
            "that root as STORE with the setting key_prefix"
        )
    own = _own_prefix(remote, copy)
    if own == settings.key_prefix:
        return None
    return (
        f"the key.prefix of the plugin is {settings.key_prefix!r}, and the keys begin with {own!r}: name its storage root as STORE"
    )


def _prefix_below_bucket(location: str) -> str:
    """The prefix between the bucket and the keys of a listing; nothing in a directory, which is the root of the plugin's file system."""
    if not location.startswith(OBJECT_SCHEME):
        return ""
    _, _, below = location.removeprefix(OBJECT_SCHEME).partition("/")
    return f"{below}/" if below else ""


def differing_facts(remote: RemotePartition, copy: RemoteCopy, settings: RecordSettings) -> list[str]:
    """The members of the record of a copy that differ from what its objects show, each with both values.

    Broker and time of an event are left out: the record has those of the last event. So is custom metadata without the settings, and
    in it REMOTE_SIZE: a repair of the copy appends to its objects, and no broker reads by their size.

    Raises:
        FormatError, ReadFailedError: a file of the copy cannot be read.
        RefusedError: a limit of the run is used up.
    """
    record = copy.record
    assert record is not None
    own = RemoteCopy.of(copy.layout, copy.objects)
    own.take_facts(copy.facts)
    objects_show = _record_of_objects(remote, own, settings)
    shown = objects_show.segment
    pairs: list[tuple[str, object, object]] = [
        ("start_offset", record.start_offset, own.start_offset),
        ("end_offset", record.end_offset, shown.end_offset),
        ("leader_epochs", _epochs_text(record.leader_epochs), _epochs_text(shown.leader_epochs)),
        ("segment_bytes", record.size_bytes, shown.size_bytes),
    ]
    if objects_show.sources.max_timestamp_ms is not FactSource.LISTING:  # a copied file has another time
        pairs.append(("max_timestamp_ms", record.max_timestamp_ms, shown.max_timestamp_ms))
    if record.txn_index_empty and not shown.txn_index_empty:  # Kafka 3.9 recorded false of all
        pairs.append(("txn_index_empty", True, False))
    if settings.custom_fields is not None:
        ignored = {CustomField.REMOTE_SIZE.tag}
        if prefix_fault(remote, own, settings) is not None:
            ignored.add(CustomField.OBJECT_PREFIX.tag)
        if _compared(record.custom_metadata, ignored) != _compared(shown.custom_metadata, ignored):
            pairs.append(("custom_metadata", _hex(record.custom_metadata), _hex(shown.custom_metadata)))
    return [f"{name}: {recorded} in the record, {found} by the objects" for name, recorded, found in pairs if recorded != found]


def _epochs_text(epochs: tuple[LeaderEpochEntry, ...]) -> str:
    return ", ".join(f"{each.epoch} from {each.start_offset}" for each in epochs)


def _compared(data: bytes | None, ignored: Collection[int]) -> bytes | dict[int, bytes]:
    """The fields of custom metadata without the tags that are not compared; the bytes themselves if the plugin did not write them."""
    values = custom_values(data) if data else {}
    if values is None:
        return data or b""
    return {tag: value for tag, value in values.items() if tag not in ignored}


def _hex(data: bytes | None) -> str:
    return "none" if data is None else data.hex()
