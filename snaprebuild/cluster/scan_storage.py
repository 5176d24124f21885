"""Adds to a scan what the metadata logs (KRaft) on the scanned disks show.

That is whether remote storage is on for each topic, the lowest release that reads the image, and which other replicas are in sync.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from snaprebuild.broker.releases import Release, release_of_level
from snaprebuild.broker.start_facts import Assignment
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.result import PartitionScan, RemoteStorage, ScanResult
from snaprebuild.snapshots.scan.scan import scan
from snaprebuild.snapshots.source.broker_properties import metadata_dir_of
from snaprebuild.snapshots.source.source import Source

__all__ = ["judged_scan", "with_topic_storage"]


def judged_scan(source: Source, release: Release | None = None) -> ScanResult:
    """A scan with the fates of the next start, as `scan` prints them: the one judgement of every command.

    Args:
        source: from ``open_source``.
        release: that starts the brokers; None for all that are possible.
    """
    return with_topic_storage(scan(source), source, release)


def with_topic_storage(result: ScanResult, source: Source, release: Release | None = None) -> ScanResult:
    """Settles the topics of which no other file shows whether remote storage is on. What a metadata log does not settle is a note.

    Topics are looked up by id, so that neither another cluster nor a deleted topic counts. Two logs that differ leave a topic unknown.

    Args:
        result: of the scan.
        source: that was scanned. Metadata logs are read in local log directories, and in ``metadata.log.dir``.
        release: that starts the brokers; None for all that are possible.
    """
    topics = {topic for topic, state in result.remote_storage.items() if state is RemoteStorage.UNKNOWN}
    logs = _metadata_logs(source)
    if not logs:
        return with_next_start(result, source.properties, release) if release is not None else result
    from snaprebuild.cluster.metadata.topic_storage import ENABLE, read_topic_storages  # loads the readers of batches

    known: dict[bytes, bool | None] = {}
    images: dict[str, MetadataImage] = {}
    notes = []
    for path in logs:
        try:
            read = read_topic_storages(path)
        except (SnaprebuildError, FormatError) as error:
            why = f"{ENABLE} of the topics cannot be read: {error.message}"
        else:
            images[os.path.dirname(path)] = read.image
            known |= {topic_id: is_on if known.get(topic_id, is_on) is is_on else None for topic_id, is_on in read.by_id.items()}
            names = sorted(read.unproven & topics)
            why = f"{ENABLE} of {pluralize(len(names), 'topic')} ({first_of(names)}) is not known: {read.why}" if names else ""
        notes += [Finding("topic-storage-unknown", Severity.NOTE, path, why)] if why and topics else []
    states: dict[str, set[bool | None]] = {}
    for each in result.partitions:
        is_on = None if each.topic_id is None else known.get(each.topic_id)
        states.setdefault(each.source.directory.name.topic, set()).add(is_on)
    settled = {topic: _one_state(states[topic]) for topic in topics}
    result = replace(result, remote_storage={**result.remote_storage, **settled}, other_findings=(*result.other_findings, *notes))
    releases = {path: found for path, image in images.items() if (found := _release_of(image)) is not None}
    metas = {log_dir.state.path: log_dir.state.meta for log_dir in result.log_dirs}
    partitions = tuple(_with_assignment(each, images, metas) for each in result.partitions)
    return with_next_start(replace(result, partitions=partitions), source.properties, release, releases)


def _release_of(image: MetadataImage) -> Release | None:
    level = image.features.get(METADATA_VERSION)
    return None if level is None else release_of_level(level)


def _with_assignment(
    partition: PartitionScan, images: Mapping[str, MetadataImage], metas: Mapping[str, MetaProperties | None]
) -> PartitionScan:
    """The partition with its assignment in the metadata log of its node, if that log was read."""
    meta = partition.source.log_dir.meta
    if meta is None:
        return partition
    for path, image in images.items():
        other = metas.get(path)
        if other is not None and (other.cluster_id, other.node_id) == (meta.cluster_id, meta.node_id):
            assignment = _assignment(partition, image, meta.node_id)
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


def _one_state(states: set[bool | None]) -> RemoteStorage:
    """Of the partitions of a topic."""
    return RemoteStorage.ON if True in states else RemoteStorage.OFF if states == {False} else RemoteStorage.UNKNOWN


def _metadata_logs(source: Source) -> list[str]:
    elsewhere = None if source.properties is None else metadata_dir_of(source.properties)
    places = [state.path for state in source.log_dirs if state.store.is_local] + ([] if elsewhere is None else [elsewhere])
    paths = dict.fromkeys(os.path.realpath(os.path.join(each, "__cluster_metadata-0")) for each in places)
    return [path for path in paths if os.path.isdir(path)]
