"""An image as the manifests of the bundled clusters have it: as Kafka's own classes printed it."""

from __future__ import annotations

from typing import Any

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import MetadataImage, ResourceType, TopicImage


def as_in_manifest(image: MetadataImage) -> dict[str, Any]:
    """The facts of ``expected/image-*.json``."""
    return {
        "last_offset": image.offset,
        "features": dict(sorted(image.features.items())),
        "next_producer_id": image.next_producer_id,
        "brokers": [
            {
                "id": broker.id,
                "epoch": broker.epoch,
                "incarnation_id": uuid_to_text(broker.incarnation_id),
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "log_dirs": [uuid_to_text(each) for each in broker.directories],
            }
            for _, broker in sorted(image.brokers.items())
        ],
        "topics": [_topic(topic) for topic in sorted(image.topics.values(), key=lambda topic: topic.name)],
        "configs": {
            f"ConfigResource(type={ResourceType(resource.type).name}, name='{resource.name}')": dict(sorted(values.items()))
            for resource, values in sorted(image.configs.items())
        },
    }


def _topic(topic: TopicImage) -> dict[str, Any]:
    partitions = [
        {
            "partition": number,
            "replicas": list(partition.replicas),
            "directories": [uuid_to_text(each) for each in partition.directories],
            "isr": list(partition.isr),
            "removing": list(partition.removing),
            "adding": list(partition.adding),
            "elr": list(partition.elr),
            "last_known_elr": list(partition.last_known_elr),
            "leader": partition.leader,
            "leader_recovery_state": partition.leader_recovery_state.name,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
        }
        for number, partition in sorted(topic.partitions.items())
    ]
    return {"name": topic.name, "topic_id": uuid_to_text(topic.topic_id), "partitions": partitions}
