"""An image as the manifests of the bundled clusters have it: as Kafka's own classes printed it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from manifests import FIXTURES

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import MetadataImage, ResourceType, TopicImage
from snaprebuild.cluster.metadata.image_reader import ImageAt, read_image
from snaprebuild.cluster.metadata.registered_model import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from snaprebuild.cluster.source_check import metadata_read

_BUNDLED: dict[object, ImageAt] = {}


def as_in_manifest(image: MetadataImage) -> dict[str, Any]:
    """The facts of ``expected/image-*.json``."""
    return {
        "last_offset": image.offset,
        "features": dict(sorted(image.features.items())),
        "next_producer_id": image.next_producer_id,
        "brokers": [
            {
                "id": broker.node_id,
                "epoch": broker.epoch,
                "incarnation_id": broker.incarnation_id,
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "log_dirs": list(broker.directories),
            }
            for _, broker in sorted(image.brokers.items())
        ],
        "topics": [_topic(topic) for topic in sorted(image.topics.values(), key=lambda topic: topic.name)],
        "configs": {
            f"ConfigResource(type={ResourceType(resource.type).name}, name='{resource.name}')": dict(sorted(values.items()))
            for resource, values in sorted(image.configs.items())
        },
    }


_RESERVED = {MIGRATING_DIRECTORY: bytes(16), UNASSIGNED_DIRECTORY: bytes(15) + b"\1", LOST_DIRECTORY: bytes(15) + b"\2"}


def directory_ids(directories: Iterable[str]) -> list[str]:
    """Directories of replicas as Kafka prints their ids, also those that are reserved (``DirectoryId``)."""
    return [uuid_to_text(_RESERVED[each]) if each in _RESERVED else each for each in directories]


def _topic(topic: TopicImage) -> dict[str, Any]:
    partitions = [
        {
            "partition": number,
            "replicas": list(partition.replicas),
            "directories": directory_ids(partition.directories),
            "isr": list(partition.isr),
            "removing": list(partition.removing),
            "adding": list(partition.adding),
            "elr": list(partition.elr),
            "last_known_elr": list(partition.last_known_elr),
            "leader": partition.leader,
            "leader_recovery_state": partition.leader_recovery_state,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
        }
        for number, partition in sorted(topic.partitions.items())
    ]
    return {"name": topic.name, "topic_id": uuid_to_text(topic.topic_id), "partitions": partitions}


def remember_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the end of a test a metadata log whose files have not changed is folded once; a bundled one once for all tests."""
    own: dict[object, ImageAt] = {}

    def remembered(location: str, offset: int | None = None, *others: Any) -> ImageAt:
        place = Path(location)
        files = sorted((place if place.name.endswith("-0") else place / "__cluster_metadata-0").iterdir())
        key = location, offset, tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
        known = _BUNDLED if place.is_relative_to(FIXTURES) else own
        if key not in known:
            known[key] = read_image(location, offset, *others)
        return known[key]

    monkeypatch.setattr(metadata_read, "read_image", remembered)
