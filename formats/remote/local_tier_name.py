"""Names of the files of ``LocalTieredStorage``, the remote storage manager of Kafka's own tests: up to six for each copy of a segment.

::

    <topic>-<partition>-<topic id>/<base offset, 20 digits>-<segment id><suffix>

Source: ``RemoteLogSegmentFileset``, ``RemoteTopicPartitionDirectory`` of the storage module's tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from formats.limits import INT32_MAX, INT64_MAX
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text

__all__ = ["LocalTierFile", "LocalTierName", "parse_local_tier_name"]


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
