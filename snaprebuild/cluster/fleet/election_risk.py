"""Whether electing a leader can delete data: KAFKA-20732.

From 3.6 to 4.3.1 a new leader of a partition with remote storage does not know yet what was uploaded
(``highestOffsetInRemoteStorage`` is -1). When it applies ``retention.bytes``, it counts its local log a second time, next to the same data
in remote storage. It then deletes data above ``retention.bytes``, remotely and on all replicas, although that data is within retention.
The first release without the defect is 4.3.2.

Source: apache/kafka pull request 22661, ``RemoteLogManager.buildRetentionSizeData``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.broker.releases import Release
from snaprebuild.published import Natural, Part

__all__ = ["ElectionRisk", "Risk", "TopicStorage", "election_risk"]

FIRST_AFFECTED: Release = (3, 6, 0)
FIRST_FIXED: Release = (4, 3, 2)

CONFIGS = "kafka-configs.sh --bootstrap-server HOST:PORT --describe --all"

LEVEL_OF_3_6 = 12
LEVEL_OF_4_3 = 30
LEVEL_OF_4_4 = 33
"""Greatest ``metadata.version`` that brokers of 3.6-IV0, 4.3 and 4.4 register; 4.3 knows 31 where unstable ones are switched on."""


class Risk(StrEnum):
    """Whether an election may delete data."""

    AFFECTED = "affected"
    NOT_AFFECTED = "not-affected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """The storage settings of a topic, from its configuration and that of its brokers; the defaults are Kafka's.

    Attributes:
        is_remote: ``remote.storage.enable``.
        retention_bytes: of the topic; None if it has none of its own.
    """

    is_remote: bool = False
    retention_bytes: int | None = None


class ElectionRisk(Part, frozen=True):
    """Whether the election may delete data (KAFKA-20732)."""

    outcome: Risk
    reason: str
    """Not stable."""
    command: str | None = None
    """Command that shows the missing fact."""
    size_bytes: Natural | None = None
    """Size of the local log that may be counted twice; null unless affected."""


def election_risk(
    topic: str,
    broker: int,
    size_bytes: int,
    storage: TopicStorage | None,
    default_retention_bytes: int | None,
    release: Release | None,
    level: int | None,
) -> ElectionRisk:
    """The risk of electing a broker.

    Args:
        topic: name.
        broker: that is to lead.
        size_bytes: of its local log.
        storage: configurations of the topic; None if no metadata log was given.
        default_retention_bytes: ``log.retention.bytes`` of the broker; None if it is not known.
        release: of the broker, as it was stated or as its scan has it; evidence of the metadata log comes first.
        level: greatest ``metadata.version`` that the broker registered; None if it is not known.
    """
    if storage is not None and not storage.is_remote:
        return ElectionRisk(Risk.NOT_AFFECTED, "remote storage is off for the topic")
    is_affected = _is_affected(release, level)
    if is_affected is False:
        return ElectionRisk(Risk.NOT_AFFECTED, "the release of the broker does not have the defect")
    if storage is None:
        reason = "whether remote storage is on, and retention.bytes, are not known (--metadata shows them)"
        return ElectionRisk(Risk.UNKNOWN, reason, f"{CONFIGS} --entity-type topics --entity-name {topic}")
    retention = default_retention_bytes if storage.retention_bytes is None else storage.retention_bytes
    if retention is None:
        reason = (
            "the topic has no retention.bytes of its own, and log.retention.bytes of the broker is not known "
            "(--assume retention_bytes)"
        )
        return ElectionRisk(Risk.UNKNOWN, reason, f"{CONFIGS} --entity-type brokers --entity-name {broker}")
    if retention < 0:
        return ElectionRisk(Risk.NOT_AFFECTED, "the topic has no retention.bytes")
    if is_affected is None:
        reason = f"the release of broker {broker} is not known (--kafka-release)"
        return ElectionRisk(Risk.UNKNOWN, reason, "kafka-topics.sh --version, on that broker")
    reason = f"the new leader may count its local log twice against {retention} bytes"
    return ElectionRisk(Risk.AFFECTED, reason, size_bytes=size_bytes)


def _is_affected(release: Release | None, level: int | None) -> bool | None:
    """Whether a broker has the defect; None if unknown. A release that the metadata log contradicts proves nothing."""
    if level is not None and (level < LEVEL_OF_4_3 or level >= LEVEL_OF_4_4):
        return LEVEL_OF_3_6 <= level < LEVEL_OF_4_3
    if release is None or (level is not None and release[:2] < (4, 3)):
        return None
    return FIRST_AFFECTED <= release < FIRST_FIXED
