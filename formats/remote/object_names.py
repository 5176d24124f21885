"""Names of the objects of a copy of a segment, in both layouts of remote storage. Ids are Kafka's text of a uuid.

The tiered storage plugin of Aiven writes three objects (``ObjectKeyFactory`` of the plugin)::

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>.<log | indexes | rsm-manifest>

The prefix (``key.prefix``) precedes the topic without a separator of its own. If it does not end with a slash, a key alone does not show
where the topic begins. The manifest does.

``LocalTieredStorage``, the remote storage manager of Kafka's own tests, writes up to six files (``RemoteLogSegmentFileset``,
``RemoteTopicPartitionDirectory``)::

    <topic>-<partition>-<topic id>/<base offset, 20 digits>-<segment id><suffix>
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from formats.limits import INT32_MAX, INT64_MAX
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text

__all__ = [
    "AivenKey",
    "AivenObject",
    "LocalTierFile",
    "LocalTierName",
    "aiven_key",
    "parse_aiven_key",
    "parse_local_tier_name",
]


# ---------------------------------------------------------------------------------------------------- Aiven's plugin


class AivenObject(StrEnum):
    """The content of an object, by the suffix of its key; in the order in which they are written."""

    LOG = "log"
    INDEXES = "indexes"
    MANIFEST = "rsm-manifest"


@dataclass(frozen=True, slots=True)
class AivenKey:
    """A parsed key.

    Attributes:
        head: prefix and topic.
        topic_id: 16 bytes.
        partition: int32.
        base_offset: int64.
        segment_id: 16 bytes.
        kind: which of the three objects.
    """

    head: str
    topic_id: bytes
    partition: int
    base_offset: int
    segment_id: bytes
    kind: AivenObject

    @property
    def topic(self) -> str:
        """The topic, where the prefix is empty or ends with a slash, which no topic contains."""
        return self.head.rpartition("/")[2]

    def other(self, kind: AivenObject) -> AivenKey:
        """The key of another object of the same copy."""
        return AivenKey(self.head, self.topic_id, self.partition, self.base_offset, self.segment_id, kind)

    def __str__(self) -> str:
        directory = f"{self.head}-{uuid_to_text(self.topic_id)}/{self.partition}"
        return f"{directory}/{self.base_offset:020d}-{uuid_to_text(self.segment_id)}.{self.kind}"


_KEY = re.compile(
    r"(?P<head>.*[A-Za-z0-9._-])-(?P<topic_id>[A-Za-z0-9_-]{22})"
    r"/(?P<partition>0|[1-9][0-9]{0,9})"
    r"/(?P<base_offset>[0-9]{20})-(?P<segment_id>[A-Za-z0-9_-]{22})\.(?P<kind>log|indexes|rsm-manifest)",
    re.ASCII,
)


def parse_aiven_key(key: str) -> AivenKey | None:
    """The parsed key; None if the plugin would not have made it."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    parsed = AivenKey(
        head=match["head"],
        topic_id=uuid_from_text(match["topic_id"]),
        partition=int(match["partition"]),
        base_offset=int(match["base_offset"]),
        segment_id=uuid_from_text(match["segment_id"]),
        kind=AivenObject(match["kind"]),
    )
    # The last character of an id has unused bits, which the plugin leaves at zero; and numbers end where Java's do.
    if str(parsed) == key and parsed.partition <= INT32_MAX and parsed.base_offset <= INT64_MAX:
        return parsed
    return None


def aiven_key(
    prefix: str, topic: str, topic_id: bytes, partition: int, base_offset: int, segment_id: bytes, kind: AivenObject
) -> str:
    """The key of an object.

    Args:
        prefix: ``key.prefix`` of the plugin.
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        base_offset: of the segment.
        segment_id: 16 bytes.
        kind: which object.
    """
    return str(AivenKey(prefix + topic, topic_id, partition, base_offset, segment_id, kind))


# ---------------------------------------------------------------------------------------------------- LocalTieredStorage


class LocalTierFile(StrEnum):
    """The content of a file, by its suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    LEADER_EPOCHS = ".leader_epoch_checkpoint"
    PRODUCER_SNAPSHOT = ".snapshot"


@dataclass(frozen=True, slots=True)
class LocalTierName:
    """A parsed name.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: int32.
        base_offset: int64.
        segment_id: 16 bytes.
        kind: which of the files.
    """

    topic: str
    topic_id: bytes
    partition: int
    base_offset: int
    segment_id: bytes
    kind: LocalTierFile

    def __str__(self) -> str:
        directory = f"{self.topic}-{self.partition}-{uuid_to_text(self.topic_id)}"
        return f"{directory}/{self.base_offset:020d}-{uuid_to_text(self.segment_id)}{self.kind}"


_NAME = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})-(?P<topic_id>[A-Za-z0-9_-]{22})"
    r"/(?P<base_offset>[0-9]{20})-(?P<segment_id>[A-Za-z0-9_-]{22})"
    r"(?P<kind>\.(?:log|index|timeindex|txnindex|leader_epoch_checkpoint|snapshot))",
    re.ASCII,
)


def parse_local_tier_name(name: str) -> LocalTierName | None:
    """The name of a directory and of a file in it, parsed; None if LocalTieredStorage would not have made them."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    parsed = LocalTierName(
        topic=match["topic"],
        topic_id=uuid_from_text(match["topic_id"]),
        partition=int(match["partition"]),
        base_offset=int(match["base_offset"]),
        segment_id=uuid_from_text(match["segment_id"]),
        kind=LocalTierFile(match["kind"]),
    )
    if str(parsed) == name and parsed.partition <= INT32_MAX and parsed.base_offset <= INT64_MAX:
        return parsed
    return None
