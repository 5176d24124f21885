"""What a checkpoint of the metadata log says, so that two of them can be compared, whatever the order of their records.

Configurations of topics that the checkpoint itself does not know are left out: a node that takes the creation and the removal of a topic
at once keeps its configurations, and writes them into its checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from formats.log.control_record import ControlRecord, SnapshotFooter, SnapshotHeader
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record
from snaprebuild.cluster.metadata.batch import MetadataBatch, UnreadRecord

__all__ = ["CheckpointContent", "checkpoint_content", "differing_records"]

TOPIC_CONFIG = 2
"""``ConfigResource.Type.TOPIC``."""

_MASK = (1 << 128) - 1


@dataclass(slots=True)
class CheckpointContent:
    """A sum over records that does not depend on their order; 128 bits, however many there are.

    Attributes:
        digest: of all records but configurations of topics.
        record_count: of the same.
        topics: names that are known.
        topic_configs: digest and count of the configurations by topic.
    """

    digest: int = 0
    record_count: int = 0
    topics: set[str] = field(default_factory=set)
    topic_configs: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def compared(self) -> tuple[int, int]:
        """Digest and count of everything that counts."""
        known = [value for name, value in self.topic_configs.items() if name in self.topics]
        return (self.digest + sum(each for each, _ in known)) & _MASK, self.record_count + sum(count for _, count in known)


def _records(batches: Iterable[MetadataBatch]) -> Iterator[tuple[str, bytes, str | None]]:
    """Kind, bytes, and the topic of a configuration; what must differ from node to node is left out."""
    for batch in batches:
        for record in batch.records:
            content = record.content
            if isinstance(content, ClusterMetadataRecord):
                is_topic_config = content.api_key == MetadataRecordType.CONFIG and content.message["resourceType"] == TOPIC_CONFIG
                topic = str(content.message["resourceName"]) if is_topic_config else None
                yield content.name, write_cluster_metadata_record(content), topic
            elif isinstance(content, UnreadRecord):
                yield "unread record", content.value or b"", None
            elif isinstance(content, ControlRecord) and not isinstance(content.value, SnapshotHeader | SnapshotFooter):
                yield type(content.value).__name__, repr(content.value).encode(), None


def _number(kind: str, data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=16, person=kind.encode()[:16]).digest(), "big")


def checkpoint_content(batches: Iterable[MetadataBatch]) -> CheckpointContent:
    """Sums a checkpoint up.

    Args:
        batches: of the checkpoint, with their records.
    """
    content = CheckpointContent()

    def taken() -> Iterator[MetadataBatch]:
        for batch in batches:
            for record in batch.records:
                value = record.content
                if isinstance(value, ClusterMetadataRecord) and value.api_key == MetadataRecordType.TOPIC:
                    content.topics.add(str(value.message["name"]))
            yield batch

    for kind, data, topic in _records(taken()):
        number = _number(kind, data)
        if topic is None:
            content.digest = (content.digest + number) & _MASK
            content.record_count += 1
        else:
            digest, count = content.topic_configs.get(topic, (0, 0))
            content.topic_configs[topic] = (digest + number) & _MASK, count + 1
    return content


def differing_records(
    one: Iterable[MetadataBatch], other: Iterable[MetadataBatch], topics: tuple[set[str], set[str]]
) -> tuple[list[str], list[str]]:
    """Kinds of records that stand in one checkpoint only, and in the other only.

    Args:
        one: batches of the first.
        other: of the second.
        topics: that each of them knows.
    """
    left: dict[int, tuple[str, int]] = {}
    for kind, data, topic in _records(one):
        if topic is None or topic in topics[0]:
            number = _number(kind, data)
            left[number] = kind, left.get(number, (kind, 0))[1] + 1
    only_other = []
    for kind, data, topic in _records(other):
        if topic is not None and topic not in topics[1]:
            continue
        number = _number(kind, data)
        _, count = left.pop(number, (kind, 0))
        if count > 1:
            left[number] = kind, count - 1
        elif not count:
            only_other.append(kind)
    return [kind for kind, count in left.values() for _ in range(count)], only_other
