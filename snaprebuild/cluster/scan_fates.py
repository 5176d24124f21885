"""What metadata logs (KRaft) add to the fates of partitions at the next start: the release, and which other replicas are in sync."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from formats.broker.broker_files import MetaProperties
from snaprebuild.broker.fates import Fate
from snaprebuild.broker.releases import Release, release_of_level
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
    judged = with_next_start(result, source.properties, release, releases)
    by_path = {each.source.directory.path: each for each in result.partitions}
    metas = {log_dir.state.path: log_dir.state.meta for log_dir in result.log_dirs}
    return replace(judged, fates=tuple(_with_replicas(fate, by_path.get(fate.path), images, metas) for fate in judged.fates))


def _release_of(image: MetadataImage) -> Release | None:
    level = image.features.get(METADATA_VERSION)
    return None if level is None else release_of_level(level)


def _with_replicas(
    fate: Fate,
    partition: PartitionScan | None,
    images: Mapping[str, MetadataImage],
    metas: Mapping[str, MetaProperties | None],
) -> Fate:
    """The fate with the other replicas in sync, by the metadata log of the same node.

    An image is current for a partition if its leader epoch is at least that of the replica's last batch; an older one shows nothing.
    """
    meta = None if partition is None else partition.source.log_dir.meta
    if partition is None or meta is None:
        return fate
    name = partition.source.directory.name
    for path, image in images.items():
        other = metas.get(path)
        if other is None or (other.cluster_id, other.node_id) != (meta.cluster_id, meta.node_id):
            continue
        topic_id = partition.topic_id or image.topic_ids.get(name.topic)
        topic = None if topic_id is None else image.topics.get(topic_id)
        registered = None if topic is None else topic.partitions.get(name.partition)
        if registered is None:
            continue
        end = partition.facts.end
        last_epoch = partition.leader_epoch if end is None or end.leader_epoch is None else end.leader_epoch
        is_current = registered.leader_epoch >= (last_epoch or 0)
        in_sync = tuple(each for each in registered.isr if each != meta.node_id) if is_current else ()
        return msgspec.structs.replace(fate, age=_age_text(image), in_sync=in_sync)
    return fate


def _age_text(image: MetadataImage) -> str:
    if image.timestamp_ms < 0:
        return f"metadata log ends at {image.offset:,}"
    moment = datetime.datetime.fromtimestamp(image.timestamp_ms / 1000, datetime.UTC)
    return f"metadata log ends at {image.offset:,}, {moment:%Y-%m-%d %H:%MZ}"
