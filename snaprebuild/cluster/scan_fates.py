"""Facts of metadata logs (KRaft) for the fates of partitions at the next start: the release, and the replicas of each partition."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from formats.broker.broker_files import MetaProperties, Properties
from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.file_names import PartitionDirectoryName
from snaprebuild.broker.releases import Release, release_of_level
from snaprebuild.broker.start_facts import Assignment, PartitionFacts, SegmentEnd, TopicIdFile
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.log import open_metadata_log
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION, directory_id_of, directory_text
from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.scan_result import ScanResult
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, metadata_dir_of
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.store_path import path_of

__all__ = [
    "TopicIdHistory",
    "proven_topic_id",
    "with_images",
]


def with_images(result: ScanResult, source: Source, release: Release | None, images: Mapping[str, MetadataImage]) -> ScanResult:
    """A scan whose fates are judged once more, with the metadata logs that were read.

    Args:
        result: of the scan.
        source: that was scanned.
        release: that starts the brokers; None for all that are possible.
        images: by the log directory that holds the metadata log.
    """
    metas = {log_dir.state.path: log_dir.state.meta for log_dir in result.log_dirs}
    for path in images:
        if path not in metas:
            # metadata.log.dir need not be one of log.dirs.
            with contextlib.suppress(SnaprebuildError, FormatError):
                metas[path] = read_log_dir(path_of(path)).meta
    places = _ImagePlaces(images, metas, _configured(source.properties))
    releases = {}
    for log_dir in result.log_dirs:
        place = places.of(log_dir.state)
        found = None if place is None else _release_of(images[place])
        if found is not None:
            releases[log_dir.state.path] = found
    histories = {path: TopicIdHistory(path) for path in images}
    partitions = tuple(
        replace(
            partition, facts=_with_assignment(partition.facts, partition.source, partition.leader_epoch, images, places, histories)
        )
        for partition in result.partitions
    )
    skipped = tuple(
        replace(each, facts=_with_assignment(each.facts, each.source, None, images, places, histories)) for each in result.skipped
    )
    return with_next_start(replace(result, partitions=partitions, skipped=skipped), source.properties, release, releases)


def _configured(properties: Properties | None) -> frozenset[str]:
    """Real paths of ``log.dirs`` and ``metadata.log.dir``."""
    if properties is None:
        return frozenset()
    metadata_dir = metadata_dir_of(properties)
    paths = [*log_dirs_of(properties), *([] if metadata_dir is None else [metadata_dir])]
    return frozenset(map(os.path.realpath, paths))


@dataclass(frozen=True)
class _ImagePlaces:
    """Which metadata log is that of a log directory.

    Attributes:
        images: by the log directory that holds the metadata log.
        metas: ``meta.properties`` by log directory.
        configured: real paths of the directories of the ``server.properties``.
    """

    images: Mapping[str, MetadataImage]
    metas: Mapping[str, MetaProperties | None]
    configured: frozenset[str]

    def of(self, log_dir: LogDirState) -> str | None:
        """The directory itself, else another one of its node. A configuration keeps apart copies of a node in one selection."""
        meta = log_dir.meta
        if meta is None:
            return None
        if log_dir.path in self.images:
            return log_dir.path
        if meta.node_id is None:
            return None
        same_node = [path for path in self.images if self._is_same_node(path, meta)]
        is_configured = log_dir.path in self.configured
        nearest = [path for path in same_node if (path in self.configured) is is_configured]
        return next(iter([*nearest, *same_node]), None)

    def _is_same_node(self, path: str, meta: MetaProperties) -> bool:
        other = self.metas.get(path)
        return other is not None and other.names_node_of(meta)


def _release_of(image: MetadataImage) -> Release | None:
    level = image.features.get(METADATA_VERSION)
    return None if level is None else release_of_level(level)


def _with_assignment(
    facts: PartitionFacts,
    source: PartitionSource,
    checkpointed_epoch: int | None,
    images: Mapping[str, MetadataImage],
    places: _ImagePlaces,
    histories: Mapping[str, TopicIdHistory],
) -> PartitionFacts:
    """The facts with the assignment in the metadata log of its node, if that log was read.

    Where the node is unknown, no metadata log shows whether the partition is assigned to it.
    """
    meta = source.log_dir.meta
    path = places.of(source.log_dir)
    if meta is None or meta.node_id is None or path is None:
        return facts
    assignment = _assignment(source.directory.name, facts.end, checkpointed_epoch, images[path], meta.node_id)
    if facts.topic_id_file not in (TopicIdFile.PRESENT, TopicIdFile.UNREADABLE):
        lost = proven_topic_id(facts, source, images[path], histories[path])
        assignment = replace(assignment, lost_topic_id=lost)
    return replace(facts, assignment=assignment)


def _assignment(
    name: PartitionDirectoryName,
    end: SegmentEnd | None,
    checkpointed_epoch: int | None,
    image: MetadataImage,
    node_id: int,
) -> Assignment:
    """An image is current for a partition if its leader epoch is at least that of the replica's last batch; an older one shows nothing."""
    topic_id = image.topic_ids.get(name.topic)
    topic = None if topic_id is None else image.topics.get(topic_id)
    registered = None if topic is None else topic.partitions.get(name.partition)
    if registered is None:
        return Assignment(topic_id=topic_id, is_replica=False, is_current=False, age=_age_text(image))
    last_epoch = checkpointed_epoch if end is None or end.leader_epoch is None else end.leader_epoch
    return Assignment(
        topic_id=topic_id,
        is_replica=node_id in registered.replicas,
        is_current=registered.leader_epoch >= (last_epoch or 0),
        in_sync=tuple(each for each in registered.isr if each != node_id),
        age=_age_text(image),
        directory_id=directory_id_of(registered.directory_of(node_id)),
    )


def _age_text(image: MetadataImage) -> str:
    if image.timestamp_ms < 0:
        return f"metadata log ends at {image.offset:,}"
    moment = datetime.datetime.fromtimestamp(image.timestamp_ms / 1000, datetime.UTC)
    return f"metadata log ends at {image.offset:,}, {moment:%Y-%m-%d %H:%MZ}"


class TopicIdHistory:
    """The ids that each topic name has had, by the whole metadata log of a node. The log is read once, and only if it is asked for."""

    def __init__(self, log_dir: str) -> None:
        """Reads nothing.

        Args:
            log_dir: that has ``__cluster_metadata-0``.
        """
        self._location = os.path.join(log_dir, "__cluster_metadata-0")
        self._ids: dict[str, set[bytes]] | None = None

    def only_id(self, topic: str) -> bytes | None:
        """The one id that the name has had since the first record of the cluster; None with several, or if the log does not show it."""
        if self._ids is None:
            try:
                self._ids = _ids_by_name(self._location)
            except (SnaprebuildError, FormatError):  # which is a finding of the scan
                self._ids = {}
        ids = self._ids.get(topic, set())
        return next(iter(ids)) if len(ids) == 1 else None


def _ids_by_name(location: str) -> dict[str, set[bytes]]:
    log = open_metadata_log(location)
    ids: dict[str, set[bytes]] = {}
    if log.start_offset != 0 or log.first_base_offset != 0:
        return ids  # a topic of this name may have been deleted before
    with log.walk(0).until() as batches:
        for content in (record.content for batch in batches for record in batch.records):
            if isinstance(content, ClusterMetadataRecord) and content.api_key == MetadataRecordType.TOPIC:
                ids.setdefault(content.message["name"], set()).add(content.message["topicId"])
    return ids


def proven_topic_id(facts: PartitionFacts, source: PartitionSource, image: MetadataImage, history: TopicIdHistory) -> bytes | None:
    """The id that ``partition.metadata`` of a stopped broker had; None where the files do not prove it.

    The log has records, none of a later leader epoch than the partition has. The metadata log is not older than the stop of the broker.
    Node and log directory are replicas. The name has had one id since the first record of the cluster.

    Args:
        facts: of a partition without an id.
        source: the same partition.
        image: of the metadata log of its node.
        history: of the same metadata log.
    """
    state = source.log_dir
    name = source.directory.name
    meta = state.meta
    stopped_epoch = state.marked_epoch
    if meta is None or meta.directory_id is None or stopped_epoch is None:
        return None
    if image.offset < stopped_epoch or not facts.has_records or facts.end is None or facts.end.leader_epoch is None:
        return None
    topic_id = image.topic_ids.get(name.topic)
    topic = None if topic_id is None else image.topics.get(topic_id)
    registered = None if topic is None else topic.partitions.get(name.partition)
    if registered is None or facts.end.leader_epoch > registered.leader_epoch:
        return None
    places = dict(zip(registered.replicas, registered.directories, strict=False))
    if meta.node_id is None or places.get(meta.node_id) != directory_text(meta.directory_id):
        return None
    return topic_id if history.only_id(name.topic) == topic_id else None
