"""Images of metadata logs: those that Kafka's own ``MetadataBatchLoader`` makes, and ours in its words."""

import json
import subprocess
from typing import Any

from cluster_images import directory_ids

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import MetadataImage

__all__ = ["Kafka", "as_kafka"]


class Kafka:
    """The process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self) -> None:
        """Another log."""
        self._say("new")

    def load(self, offset: int, epoch: int, values: list[bytes]) -> None:
        """The next batch."""
        self._say(f"batch {offset} {epoch} {' '.join(value.hex() for value in values)}")

    def image(self) -> dict[str, Any]:
        """Asks Kafka for the image at this point of the log."""
        assert self._process.stdout is not None
        self._say("image")
        line = self._process.stdout.readline()
        assert line, "the process ended"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def as_kafka(image: MetadataImage, faults: int) -> dict[str, Any]:
    """Our image in the words of the process."""
    return {
        "faults": faults,
        "features": dict(image.features),
        "next_producer_id": image.next_producer_id,
        "brokers": {
            str(each.node_id): {
                "epoch": each.epoch,
                "incarnation_id": each.incarnation_id,
                "fenced": each.fenced,
                "in_controlled_shutdown": each.in_controlled_shutdown,
                "directories": directory_ids(each.directories),
                "cordoned_directories": None if each.cordoned_directories is None else directory_ids(each.cordoned_directories),
                "rack": each.rack,
                **of_node(each),
            }
            for each in image.brokers.values()
        },
        "controllers": {
            str(each.node_id): {"incarnation_id": each.incarnation_id, **of_node(each)} for each in image.controllers.values()
        },
        "topics": {
            uuid_to_text(topic.topic_id): {
                "name": topic.name,
                "partitions": {
                    str(number): {
                        "directories": directory_ids(each.directories),
                        "leader_recovery_state": each.leader_recovery_state,
                        **{
                            name: list(getattr(each, name))
                            for name in ("replicas", "isr", "removing", "adding", "elr", "last_known_elr")
                        },
                        **{name: getattr(each, name) for name in ("leader", "leader_epoch", "partition_epoch")},
                    }
                    for number, each in topic.partitions.items()
                },
            }
            for topic in image.topics.values()
        },
        "topic_ids": {name: uuid_to_text(topic_id) for name, topic_id in image.topic_ids.items()},
        "configs": {f"{resource.type}:{resource.name}": dict(values) for resource, values in image.configs.items()},
        "client_quotas": {
            json.dumps(dict(entity), separators=(",", ":")): dict(values) for entity, values in image.client_quotas.items()
        },
        "acls": {uuid_to_text(key): f"{each.resource_name} {each.principal} {each.host}" for key, each in image.acls.items()},
        "scram": {f"{mechanism}:{user}": count for (mechanism, user), count in image.scram_iterations.items()},
        "tokens": {key: each.expiration_timestamp_ms for key, each in image.delegation_tokens.items()},
    }


def of_node(node: Any) -> dict[str, Any]:
    return {
        "listeners": {each.name: [each.host, each.port, each.security_protocol] for each in node.listeners},
        "features": {name: [each.min_level, each.max_level] for name, each in node.features.items()},
    }
