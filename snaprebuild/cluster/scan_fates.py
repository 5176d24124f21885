"""What metadata logs (KRaft) add to the fates of partitions at the next start: the release, and the replicas of each partition."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from formats.broker.broker_files import MetaProperties
from snaprebuild.broker.releases import Release, release_of_level
from snaprebuild.broker.start_facts import Assignment, TopicIdFile
from snaprebuild.cluster.lost_topic_ids import TopicIdHistory, proven_topic_id
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.result import PartitionScan, ScanResult
from snaprebuild.snapshots.source.source import Source

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
    partitions = tuple(_with_assignment(each, images, metas, histories) for each in result.partitions)
    return with_next_start(replace(result, partitions=partitions), source.properties, release, releases)


def _release_of(image: MetadataImage) -> Release | None:
    level = image.features.get(METADATA_VERSION)
    return None if level is None else release_of_level(level)


def _with_assignment(
    partition: PartitionScan,
    images: Mapping[str, MetadataImage],
    metas: Mapping[str, MetaProperties | None],
    histories: Mapping[str, TopicIdHistory],
) -> PartitionScan:
    """The partition with its assignment in the metadata log of its node, if that log was read."""
    meta = partition.source.log_dir.meta
    if meta is None:
        return partition
    for path, image in images.items():
        other = metas.get(path)
        if other is not None and (other.cluster_id, other.node_id) == (meta.cluster_id, meta.node_id):
            assignment = _assignment(partition, image, meta.node_id)
            if partition.facts.topic_id_file not in (TopicIdFile.PRESENT, TopicIdFile.UNREADABLE):
                lost = proven_topic_id(partition, image, histories[path])
                assignment = msgspec.structs.replace(assignment, lost_topic_id=lost)
            return replace(partition, facts=msgspec.structs.replace(partition.facts, assignment=assignment))
    return partition


def _assignment(partition: PartitionScan, image: MetadataImage, node_id: int | None) -> Assignment:
    """An image is current for a partition if its leader epoch is at least that of the replica's last batch; an older one shows nothing."""
    name = partition.source.directory.name
    topic_id = image.topic_ids.get(name.topic)
    topic = None if topic_id is None else image.topics.get(topic_id)
    registered = None if topic is None else topic.partitions.get(name.partition)
    if registered is None:
        return Assignment(topic_id=topic_id, is_replica=False, is_current=False, age=_age_text(image))
    end = partition.facts.end
    last_epoch = partition.leader_epoch if end is None or end.leader_epoch is None else end.leader_epoch
    return Assignment(
        topic_id=topic_id,
        is_replica=node_id in registered.replicas,
        is_current=registered.leader_epoch >= (last_epoch or 0),
        in_sync=tuple(each for each in registered.isr if each != node_id),
        age=_age_text(image),
    )


def _age_text(image: MetadataImage) -> str:
    if image.timestamp_ms < 0:
        return f"metadata log ends at {image.offset:,}"
    moment = datetime.datetime.fromtimestamp(image.timestamp_ms / 1000, datetime.UTC)
    return f"metadata log ends at {image.offset:,}, {moment:%Y-%m-%d %H:%MZ}"
