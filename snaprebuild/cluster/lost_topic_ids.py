"""The topic id of a log without one, where the history in the metadata log (KRaft) proves it."""

from __future__ import annotations

import os

from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.broker.start_facts import PartitionFacts
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.log import open_metadata_log
from snaprebuild.cluster.metadata.registered_model import directory_text
from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["TopicIdHistory", "proven_topic_id"]


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
    clean = state.clean_shutdown
    if meta is None or meta.directory_id is None or clean is None or clean.broker_epoch is None or clean.broker_epoch < 0:
        return None
    if image.offset < clean.broker_epoch or not facts.has_records or facts.end is None or facts.end.leader_epoch is None:
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
