"""Compares checkpoints of the metadata log: with the records of a log, and with each other whatever the order of their records.

Configurations of unknown topics are left out: a node that takes the creation and the removal of a topic at once keeps its configurations,
and writes them into its checkpoints.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace

from formats.errors import FormatError
from formats.log.control_record import ControlRecord, SnapshotFooter, SnapshotHeader
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record
from snaprebuild.cluster.metadata.batches import MetadataBatch, UnreadRecord
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import fold_oldest
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.findings import pluralize

__all__ = ["CheckpointContent", "ComparedCheckpoint", "checkpoint_content", "compare_with_log", "differing_records"]


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
        configs = [value for name, value in self.topic_configs.items() if name in self.topics]
        return (self.digest + sum(each for each, _ in configs)) & _MASK, self.record_count + sum(count for _, count in configs)


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
    for kind, data, topic in _records(_noting_topics(batches, content.topics)):
        number = _number(kind, data)
        if topic is None:
            content.digest = (content.digest + number) & _MASK
            content.record_count += 1
        else:
            digest, count = content.topic_configs.get(topic, (0, 0))
            content.topic_configs[topic] = (digest + number) & _MASK, count + 1
    return content


def _noting_topics(batches: Iterable[MetadataBatch], topics: set[str]) -> Iterator[MetadataBatch]:
    for batch in batches:
        values = [record.content for record in batch.records if isinstance(record.content, ClusterMetadataRecord)]
        topics |= {str(value.message["name"]) for value in values if value.api_key == MetadataRecordType.TOPIC}
        yield batch


def differing_records(
    one: Iterable[MetadataBatch], other: Iterable[MetadataBatch], topics: tuple[set[str], set[str]]
) -> tuple[list[str], list[str]]:
    """Kinds of records that only one checkpoint has, and that only the other has.

    Args:
        one: batches of the first.
        other: of the second.
        topics: that each of them knows.
    """
    counts = [
        Counter((kind, _number(kind, data)) for kind, data, topic in _records(batches) if topic is None or topic in known)
        for batches, known in zip((one, other), topics, strict=True)
    ]
    only = counts[0] - counts[1], counts[1] - counts[0]
    return [kind for kind, _ in only[0].elements()], [kind for kind, _ in only[1].elements()]


_POSITION = {"offset", "epoch", "timestamp_ms", "quorum"}
"""Fields of an image that rules K6 to K8 judge, or that no checkpoint holds."""


@dataclass(frozen=True, slots=True)
class ComparedCheckpoint:
    """One checkpoint.

    Attributes:
        checkpoint: which.
        difference: in words; empty where it is equal to the log up to its end.
        unread: why a difference proves nothing: a record that this program cannot read. Else empty.
    """

    checkpoint: MetadataCheckpoint
    difference: str
    unread: str = ""


def compare_with_log(log: MetadataLog, owner: MetadataLog, whole: Collection[OffsetAndEpoch]) -> Iterator[ComparedCheckpoint]:
    """Folds the log, and compares what it results in with each checkpoint that ends between two of its batches.

    Damage, a gap or an oldest checkpoint that is not whole ends the comparison: K8 and K11 report these.

    Args:
        log: as it was listed.
        owner: of the checkpoints: the same log, or that of another node.
        whole: ids of the checkpoints to compare, which are whole.

    Raises:
        ReadFailedError: a file cannot be read, or is gone.
    """
    begin = fold_oldest(log)
    fold = begin.fold
    start = begin.next_offset
    if not log.segments or log.segments[0].base_offset > start:
        return
    ascending = sorted(owner.checkpoints, key=lambda checkpoint: checkpoint.end_offset)
    waiting = [each for each in ascending if each.end_offset > start and OffsetAndEpoch(each.end_offset, each.epoch) in whole]
    try:
        with log.walk(start).until() as batches:
            for batch in batches:
                while waiting and waiting[0].end_offset <= batch.base_offset:
                    yield from _compared(owner, fold, waiting.pop(0))
                if not waiting:
                    return
                fold.apply_batch(batch)
    except FormatError:
        return
    while waiting:
        yield from _compared(owner, fold, waiting.pop(0))


def _compared(owner: MetadataLog, fold: ImageFold, checkpoint: MetadataCheckpoint) -> Iterator[ComparedCheckpoint]:
    if checkpoint.end_offset != fold.offset + 1:
        return
    other = ImageFold()
    try:
        other.apply_checkpoint(owner.checkpoint_batches(checkpoint), checkpoint.end_offset, checkpoint.epoch)
    except FormatError:  # in its records, or it changed since it was found whole
        yield ComparedCheckpoint(checkpoint, "", "its records cannot be read")
        return
    unread = f"the log has {pluralize(fold.fault_count, 'record')} that cannot be taken" if fold.fault_count else ""
    yield ComparedCheckpoint(checkpoint, _difference(_comparable(fold.image()), _comparable(other.image())), unread)


def _comparable(image: MetadataImage) -> MetadataImage:
    """Without configurations of topics that are gone: a node that takes creation and removal at once keeps these."""
    configs = {
        resource: values
        for resource, values in image.configs.items()
        if values and (resource.type != ResourceType.TOPIC or resource.name in image.topic_ids)
    }
    return replace(image, configs=configs)


def _difference(by_log: MetadataImage, by_checkpoint: MetadataImage) -> str:
    parts = []
    for name in (each.name for each in fields(MetadataImage) if each.name not in _POSITION):
        one = getattr(by_log, name)
        other = getattr(by_checkpoint, name)
        if isinstance(one, dict) and one != other:
            parts.append(f"{name} ({sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())})")
        elif one != other:
            parts.append(name)
    quorums = by_log.quorum, by_checkpoint.quorum
    if all(quorum.kraft_version for quorum in quorums) and quorums[0].voters != quorums[1].voters:
        parts.append("voters")
    return ", ".join(parts)
