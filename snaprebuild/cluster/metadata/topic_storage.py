"""``remote.storage.enable`` of topics, as a metadata log has it.

A log may hold records that its quorum has not committed, and that a new leader cuts off again. Committed is what a checkpoint holds, and
all that the only voter wrote (``prove``). A topic that was created or configured after that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import read_image
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.proof import prove, unproven_reason
from snaprebuild.findings import pluralize

__all__ = ["ENABLE", "TopicStorages", "is_remote", "read_topic_storages"]

ENABLE = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class TopicStorages:
    """The topics of a cluster.

    Attributes:
        by_id: whether remote storage is on, by topic id of 16 bytes; None if it is not known.
        unproven: names of the topics of which it is not known, and ``why``.
        image: of the end of the log.
    """

    by_id: dict[bytes, bool | None]
    unproven: frozenset[str]
    why: str
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
    fold, proof = read.fold, prove(read.log)
    if fold.fault_count:
        raise FormatError(f"{pluralize(fold.fault_count, 'record')} left out: {fold.faults[0].error}", file=read.log.path)
    image, changed = fold.image(), _changed_since(read.log, proof.end_offset)
    configs = {each.name: values for each, values in image.configs.items() if each.type == ResourceType.TOPIC}
    by_id = {
        each.topic_id: None if each.name in changed else is_remote(configs.get(each.name, {})) for each in image.topics.values()
    }
    why = f"offset {proof.end_offset} and later is not proven to be committed: {unproven_reason(proof)}"
    return TopicStorages(by_id, changed, why, image)


def _changed_since(log: MetadataLog, offset: int) -> frozenset[str]:
    """Names of the topics that were created, or got another configuration of remote storage, at an offset or later."""
    names = set()
    with log.walk(offset).until() as batches:
        for content in (record.content for batch in batches for record in batch.records):
            if not isinstance(content, ClusterMetadataRecord):
                continue
            message = content.message
            if content.api_key == MetadataRecordType.TOPIC:
                names.add(message["name"])
            elif content.api_key == MetadataRecordType.CONFIG and message["name"] == ENABLE:
                resource = ConfigResource(message["resourceType"], message["resourceName"])
                names |= {resource.name} if resource.type == ResourceType.TOPIC else set()
    return frozenset(names)
