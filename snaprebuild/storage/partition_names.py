"""How documents name a partition, and which kind of topic its name shows."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.published import Natural, Part
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = [
    "PartitionName",
    "TopicKind",
    "TopicPartition",
    "named",
    "names_in",
    "names_of",
    "topic_kind_of",
]


class TopicPartition(Part, frozen=True):
    """An object about one partition."""

    topic: str
    partition: Natural
    topic_partition: str


class PartitionName(TypedDict):
    """The members of ``TopicPartition`` as arguments."""

    topic: str
    partition: int
    topic_partition: str


def named(topic: str, partition: int) -> PartitionName:
    """The names of a partition in documents."""
    return {"topic": topic, "partition": partition, "topic_partition": f"{topic}-{partition}"}


def names_of(directory: PartitionDir) -> PartitionName:
    """The names of a partition in documents, by its directory, whatever the suffix of that."""
    name = directory.name
    return {"topic": name.topic, "partition": name.partition, "topic_partition": directory.topic_partition}


def names_in(topic_partition: str) -> PartitionName:
    """The names of a partition in documents, by the name of its directory."""
    name = parse_partition_dir_name(topic_partition)
    if name is None:
        return {"topic": topic_partition, "partition": 0, "topic_partition": topic_partition}
    return {"topic": name.topic, "partition": name.partition, "topic_partition": topic_partition}


class TopicKind(StrEnum):
    """The kind of a topic for tiered storage (``UnifiedLog.isRemoteLogEnabled``)."""

    ORDINARY = "ordinary"
    INTERNAL = "internal"
    REMOTE_LOG_METADATA = "remote_log_metadata"
    CLUSTER_METADATA = "cluster_metadata"


_KINDS = {
    "__consumer_offsets": TopicKind.INTERNAL,
    "__transaction_state": TopicKind.INTERNAL,
    "__share_group_state": TopicKind.INTERNAL,
    "__remote_log_metadata": TopicKind.REMOTE_LOG_METADATA,
    "__cluster_metadata": TopicKind.CLUSTER_METADATA,
}


def topic_kind_of(topic: str) -> TopicKind:
    """The kind of a topic, by its name."""
    return _KINDS.get(topic, TopicKind.ORDINARY)
