"""The topic that holds the records of all copies, as the metadata log of the cluster has it: whether it can lose records.

A broker that starts reads the topic from its beginning. What is gone from the topic is gone for brokers, although the objects exist.

Source: ``TopicBasedRemoteLogMetadataManager``, which creates it with ``cleanup.policy=delete`` and ``retention.ms=-1``;
``TopicBasedRemoteLogMetadataManagerConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import METADATA_TOPIC
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType
from snaprebuild.findings import Finding, Severity
from snaprebuild.tier.inventory.model import MetadataTopicReport

__all__ = ["metadata_topic_findings", "metadata_topic_report"]


def metadata_topic_report(image: MetadataImage) -> MetadataTopicReport | None:
    """The topic at the end of a metadata log; None if the cluster has none."""
    topic = image.topic_named(METADATA_TOPIC)
    if topic is None:
        return None
    settings = image.configs.get(ConfigResource(ResourceType.TOPIC, METADATA_TOPIC), {})
    return MetadataTopicReport(
        topic_id=uuid_to_text(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=min((len(each.replicas) for each in topic.partitions.values()), default=0),
        cleanup_policy=settings.get("cleanup.policy"),
        retention_ms=_number(settings.get("retention.ms")),
        retention_bytes=_number(settings.get("retention.bytes")),
    )


def metadata_topic_findings(report: MetadataTopicReport, image: MetadataImage, place: str) -> Iterator[Finding]:
    """How the topic can lose records.

    Args:
        report: on the topic.
        image: with the settings that are the default of all brokers.
        place: of the metadata log.
    """
    defaults = image.configs.get(ConfigResource(ResourceType.BROKER, ""), {})
    policy = report.cleanup_policy
    if policy is not None and "compact" in policy:
        refused = "records of brokers up to 4.4 have no key, and a compacted topic refuses them"
        message = f"{METADATA_TOPIC} has cleanup.policy={policy}: {refused}"
        yield Finding("metadata-topic-compacted", Severity.FINDING, place, message)
    lost = "records of copies are deleted, and brokers that start later do not have these copies"
    retention = _retention_text(report, defaults)
    if retention is not None:
        message = f"{METADATA_TOPIC} {retention}: {lost}. Set retention.ms=-1 for it"
        yield Finding("metadata-topic-retention", Severity.FINDING, place, message)
    size = report.retention_bytes
    if size is None:
        size = _number(defaults.get("log.retention.bytes"))
    if size is not None and size >= 0:
        message = f"{METADATA_TOPIC} keeps {size} bytes for each partition: {lost}. Set retention.bytes=-1 for it"
        yield Finding("metadata-topic-retention", Severity.FINDING, place, message)
    if report.replication_factor < 2:
        message = (
            f"{METADATA_TOPIC} has a partition with one replica: if that disk is lost, brokers lose the copies with their records"
        )
        yield Finding("metadata-topic-replicas", Severity.FINDING, place, message)


def _retention_text(report: MetadataTopicReport, defaults: Mapping[str, str]) -> str | None:
    """How long the topic keeps records; None if for ever."""
    if report.retention_ms is not None:
        return f"has retention.ms={report.retention_ms}" if report.retention_ms >= 0 else None
    default = _number(defaults.get("log.retention.ms"))
    if default is None:
        return "has no retention.ms, so that brokers keep records for log.retention.*, seven days by default"
    if default >= 0:
        return f"has no retention.ms, and all brokers have log.retention.ms={default}"
    return None


def _number(text: str | None) -> int | None:
    """A setting as Kafka parses it; None if it is not set, or no int64."""
    if text is None or re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) is None:
        return None
    return int(text)
