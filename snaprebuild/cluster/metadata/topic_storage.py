"""``remote.storage.enable`` of topics, and the epochs of brokers, as a metadata log has them.

A log may hold records that its quorum has not committed, and that a new leader cuts off again. Committed is what a checkpoint holds, and
all that the only voter wrote (``prove``). A topic that was created or configured after that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.image_model import MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import read_image
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_end import log_end_evidence
from snaprebuild.cluster.metadata.proof import prove, unproven_reason
from snaprebuild.findings import pluralize

__all__ = ["ENABLE", "TopicStorages", "is_remote", "read_topic_storages"]

ENABLE = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class TopicStorages:
    """The topics of a cluster.

    Attributes:
        by_id: whether remote storage is on, by topic id of 16 bytes; None if it is not known.
        unproven: names of the topics of which it is not known, and ``reason``.
        broker_epochs: of the brokers that are registered, by id; empty if the log may have lost its end.
        configs: all settings of each topic, by topic id; without the topics whose settings changed where nothing is proven.
        broker_configs: dynamic settings by broker id, None for all brokers.
        image: of the end of the log.
    """

    by_id: dict[bytes, bool | None]
    unproven: frozenset[str]
    reason: str
    broker_epochs: dict[int, int]
    configs: dict[bytes, Mapping[str, str]]
    broker_configs: dict[int | None, Mapping[str, str]]
    image: MetadataImage


def is_remote(configs: Mapping[str, str]) -> bool:
    """Whether remote storage is on by the configurations of a topic. Brokers have no other default than false."""
    return configs.get(ENABLE, "").strip().lower() == "true"


def read_topic_storages(location: str) -> TopicStorages:
    """Reads the newest checkpoint and the log after it.

    Raises:
        UsageError: there is no metadata log.
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged, or records of it had to be left out.
    """
    read = read_image(location)
    fold = read.fold
    proof = prove(read.log)
    if fold.fault_count:
        raise FormatError(f"{pluralize(fold.fault_count, 'record')} left out: {fold.faults[0].error}", file=read.log.path)
    image = fold.image()
    changed, reconfigured = _changed_since(read.log, proof.proven_end_offset)
    configs = {each.name: values for each, values in image.configs.items() if each.type == ResourceType.TOPIC}
    by_id = {
        topic.topic_id: None if topic.name in changed else is_remote(configs.get(topic.name, {})) for topic in image.topics.values()
    }
    topic_configs = {
        topic.topic_id: configs.get(topic.name, {}) for topic in image.topics.values() if topic.name not in reconfigured
    }
    brokers: dict[int | None, Mapping[str, str]] = {
        int(each.name) if each.name else None: values for each, values in image.configs.items() if each.type == ResourceType.BROKER
    }
    reason = f"offset {proof.proven_end_offset} and later is not proven to be committed: {unproven_reason(proof)}"
    walk = read.walk
    end = log_end_evidence(read.log, walk.end_offset, is_torn=walk.torn_tail is not None)
    is_whole = not end.is_torn and end.reason(was_stopped_cleanly=False) is None
    epochs = {broker.node_id: broker.epoch for broker in image.brokers.values()} if is_whole else {}
    return TopicStorages(by_id, changed, reason, broker_epochs=epochs, configs=topic_configs, broker_configs=brokers, image=image)


def _changed_since(log: MetadataLog, offset: int) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the topics that changed at an offset or later.

    First those that were created, or got another ``remote.storage.enable``; then those that were created, or got another setting.
    """
    names: set[str] = set()
    reconfigured: set[str] = set()
    with log.walk(offset).until() as batches:
        for content in (record.content for batch in batches for record in batch.records):
            if not isinstance(content, ClusterMetadataRecord):
                continue
            message = content.message
            if content.api_key == MetadataRecordType.TOPIC:
                names.add(message["name"])
                reconfigured.add(message["name"])
            elif content.api_key == MetadataRecordType.CONFIG and message["resourceType"] == ResourceType.TOPIC:
                reconfigured.add(message["resourceName"])
                if message["name"] == ENABLE:
                    names.add(message["resourceName"])
    return frozenset(names), frozenset(reconfigured)
