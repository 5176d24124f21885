"""What metadata logs (KRaft) add to the fates of partitions at the next start: the release, and the replicas of each partition."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from formats.broker.broker_files import MetaProperties
from formats.partition.file_names import PartitionDirectoryName
from snaprebuild.broker.releases import Release, release_of_level
from snaprebuild.broker.start_facts import Assignment, PartitionFacts, SegmentEnd, TopicIdFile
from snaprebuild.cluster.lost_topic_ids import TopicIdHistory, proven_topic_id
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.result import ScanResult
from snaprebuild.snapshots.source.source import PartitionSource, Source

__all__ = ["with_images"]


def with_images(result: ScanResult, source: Source, release: Release | None, images: Mapping[str, MetadataImage]) -> ScanResult:
    """A scan whose fates are judged once more, with the metadata logs that were read.

    Args:
        result: of the scan.
        source: that was scanned.
        release: that starts the brokers; None for all that are possible.
        images: by the log directory that holds the metadata log.
    """
    releases = {path: found for path, image in images.items() if (found := _release_of(image)) is not None}
    metas = {log_dir.state.path: log_dir.state.meta for log_dir in result.log_dirs}
    histories = {path: TopicIdHistory(path) for path in images}
    partitions = tuple(
        replace(each, facts=_with_assignment(each.facts, each.source, each.leader_epoch, images, metas, histories))
        for each in result.partitions
    )
    skipped = tuple(
        replace(each, facts=_with_assignment(each.facts, each.source, None, images, metas, histories)) for each in result.skipped
    )
    return with_next_start(replace(result, partitions=partitions, skipped=skipped), source.properties, release, releases)


def _release_of(image: MetadataImage) -> Release | None:
    level = image.features.get(METADATA_VERSION)
    return None if level is None else release_of_level(level)


def _with_assignment(
    facts: PartitionFacts,
    source: PartitionSource,
    checkpointed_epoch: int | None,
    images: Mapping[str, MetadataImage],
    metas: Mapping[str, MetaProperties | None],
    histories: Mapping[str, TopicIdHistory],
) -> PartitionFacts:
    """The facts with the assignment in the metadata log of its node, if that log was read."""
    meta = source.log_dir.meta
    if meta is None:
        return facts
    for path, image in images.items():
        other = metas.get(path)
        if other is not None and (other.cluster_id, other.node_id) == (meta.cluster_id, meta.node_id):
            assignment = _assignment(source.directory.name, facts.end, checkpointed_epoch, image, meta.node_id)
            if facts.topic_id_file not in (TopicIdFile.PRESENT, TopicIdFile.UNREADABLE):
                lost = proven_topic_id(facts, source, image, histories[path])
                assignment = msgspec.structs.replace(assignment, lost_topic_id=lost)
            return msgspec.structs.replace(facts, assignment=assignment)
    return facts


def _assignment(
    name: PartitionDirectoryName,
    end: SegmentEnd | None,
    checkpointed_epoch: int | None,
    image: MetadataImage,
    node_id: int | None,
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
        directory_id=dict(zip(registered.replicas, registered.directories, strict=False)).get(-1 if node_id is None else node_id),
    )


def _age_text(image: MetadataImage) -> str:
    if image.timestamp_ms < 0:
        return f"metadata log ends at {image.offset:,}"
    moment = datetime.datetime.fromtimestamp(image.timestamp_ms / 1000, datetime.UTC)
    return f"metadata log ends at {image.offset:,}, {moment:%Y-%m-%d %H:%MZ}"
