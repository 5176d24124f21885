"""Whether electing a leader can delete data: KAFKA-20732.

From 3.6 to 4.3.1 a new leader of a partition with remote storage does not know yet what was uploaded
(``highestOffsetInRemoteStorage`` is -1). When it applies ``retention.bytes``, it counts its local log a second time, next to the same data
in remote storage. What is then above ``retention.bytes`` is deleted, remotely and on all replicas, although it is within retention. The
first release without the defect is 4.3.2.

Source: apache/kafka pull request 22661, ``RemoteLogManager.buildRetentionSizeData``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ElectionRisk", "KafkaRelease", "Risk", "TopicStorage", "election_risk", "parse_release"]

KafkaRelease = tuple[int, int, int]
"""Major, minor and patch."""

FIRST_AFFECTED: KafkaRelease = (3, 6, 0)
FIRST_FIXED: KafkaRelease = (4, 3, 2)

LEVEL_OF_3_6 = 12
LEVEL_OF_4_3 = 30
LEVEL_OF_4_4 = 33
"""Greatest ``metadata.version`` that brokers of 3.6-IV0, 4.3 and 4.4 register; 4.3 knows 31 where unstable ones are switched on."""


class Risk(StrEnum):
    """What an election may do."""

    AFFECTED = "affected"
    NOT_AFFECTED = "not-affected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """What the configurations of a topic and its brokers say; the defaults are Kafka's.

    Attributes:
        is_remote: ``remote.storage.enable``.
        retention_bytes: of the topic; None where it has none of its own.
    """

    is_remote: bool = False
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ElectionRisk:
    """The outcome for one partition.

    Attributes:
        outcome: see there.
        reason: why, or which fact is missing.
        command: that shows the missing fact; None where none is missing.
        size_bytes: of the local log of the new leader, which may be counted twice; None unless affected.
    """

    outcome: Risk
    reason: str
    command: str | None = None
    size_bytes: int | None = None


def parse_release(text: str) -> KafkaRelease | None:
    """A release as ``4.3.1``; None where the text is none."""
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def election_risk(
    topic: str,
    broker: int,
    size_bytes: int,
    storage: TopicStorage | None,
    default_retention_bytes: int | None,
    release: KafkaRelease | None,
    level: int | None,
) -> ElectionRisk:
    """The risk of electing a broker.

    Args:
        topic: name.
        broker: that is to lead.
        size_bytes: of its local log.
        storage: configurations of the topic; None where no metadata log was given.
        default_retention_bytes: ``log.retention.bytes`` of the broker; None where it is not known.
        release: of the brokers, as it was stated; evidence of the metadata log comes first.
        level: greatest ``metadata.version`` that the broker registered; None where it is not known.
    """
    tool = "kafka-configs.sh --bootstrap-server HOST:PORT --describe --all"
    if storage is not None and not storage.is_remote:
        return ElectionRisk(Risk.NOT_AFFECTED, "remote storage is off for the topic")
    is_affected = _is_affected(release, level)
    if is_affected is False:
        return ElectionRisk(Risk.NOT_AFFECTED, "the release of the broker does not have the defect")
    if storage is None:
        reason = "whether remote storage is on, and retention.bytes, are not known (--metadata shows them)"
        return ElectionRisk(Risk.UNKNOWN, reason, f"{tool} --entity-type topics --entity-name {topic}")
    retention = storage.retention_bytes if storage.retention_bytes is not None else default_retention_bytes
    if retention is not None and retention < 0:
        return ElectionRisk(Risk.NOT_AFFECTED, "the topic has no retention.bytes")
    if retention is None:
        reason = (
            "the topic has no retention.bytes of its own, and log.retention.bytes of the broker is not known (--retention-bytes)"
        )
        return ElectionRisk(Risk.UNKNOWN, reason, f"{tool} --entity-type brokers --entity-name {broker}")
    if is_affected is None:
        reason = f"the release of broker {broker} is not known (--kafka-release)"
        return ElectionRisk(Risk.UNKNOWN, reason, "kafka-topics.sh --version, on that broker")
    return ElectionRisk(Risk.AFFECTED, f"the new leader may count its local log twice against {retention} bytes", None, size_bytes)


def _is_affected(release: KafkaRelease | None, level: int | None) -> bool | None:
    """Whether a broker has the defect; None where that is not known."""
    if level is not None:
        if level < LEVEL_OF_3_6 or level >= LEVEL_OF_4_4:
            return False
        if level < LEVEL_OF_4_3:
            return True
        if release is None or release[:2] < (4, 3):
            return None  # a release that the metadata log contradicts proves nothing
    if release is None:
        return None
    return FIRST_AFFECTED <= release < FIRST_FIXED
