"""``remote.copy.lag.*`` (4.4 and later): rolled segments that a broker keeps back on purpose before it uploads them.

A segment is due when one of two conditions is met. Either its newest record is older than the lag in milliseconds, or at least the lag in
bytes was written after it. A lag of 0 makes every segment due. A lag of -1 is the local retention; where that is unlimited, the
condition is never met. The first segment that is not due ends the attempt: the later ones wait as well.

While a segment waits, the broker does not look at its snapshot. A missing one is silent until the segment is due.

Source: ``RemoteLogManager.RLMCopyTask.candidateLogSegments``, ``isEligibleForUpload``, ``LogConfig.remoteCopyLagMs`` and
``LogSegment.largestTimestamp`` of 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from snaprebuild.snapshots.scan.scan_result import PartitionScan
from snaprebuild.snapshots.scan.upload_preflight import LagWait, Preflight, RolledSegments, SegmentUploadState
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles, read_last_timestamp_hint

__all__ = ["BROKER_SETTINGS", "TOPIC_SETTINGS", "CopyLag", "copy_lag", "with_copy_lag"]

UNLIMITED = -1
FROM_RETENTION = -2
"""``local.retention.*``: the value of ``retention.*``."""

TOPIC_SETTINGS = frozenset(
    f"{name}.{unit}" for name in ("remote.copy.lag", "local.retention", "retention") for unit in ("ms", "bytes")
)
BROKER_SETTINGS = frozenset({*(f"log.{name}" for name in TOPIC_SETTINGS), "log.retention.minutes", "log.retention.hours"})


class CopyLag(msgspec.Struct, frozen=True):
    """The lag of a topic; 0 makes every segment due, -1 none.

    Attributes:
        ms: age of the newest record of a segment.
        size_bytes: bytes of the log after the segment.
    """

    ms: int
    size_bytes: int

    @property
    def lets_wait(self) -> bool:
        """Whether a segment may have to wait at all."""
        return self.ms != 0 and self.size_bytes != 0


def copy_lag(topic: Mapping[str, str], broker: Mapping[str, str]) -> CopyLag | None:
    """The lag of a topic; None if a value is not a number.

    Args:
        topic: settings of the topic.
        broker: settings of the broker; Kafka's defaults where it has none.
    """
    try:
        return CopyLag(
            _lag("ms", topic, broker, default=0, retention=_retention_ms(broker)),
            _lag("bytes", topic, broker, default=UNLIMITED, retention=int(broker.get("log.retention.bytes", UNLIMITED))),
        )
    except ValueError:
        return None


def _lag(unit: str, topic: Mapping[str, str], broker: Mapping[str, str], *, default: int, retention: int) -> int:
    name = f"remote.copy.lag.{unit}"
    lag = int(topic.get(name, broker.get(f"log.{name}", default)))
    if lag != UNLIMITED:
        return lag
    name = f"local.retention.{unit}"
    local = int(topic.get(name, broker.get(f"log.{name}", FROM_RETENTION)))
    return int(topic.get(f"retention.{unit}", retention)) if local == FROM_RETENTION else local


def _retention_ms(broker: Mapping[str, str]) -> int:
    """``log.retention.*``: milliseconds before minutes before hours, and any negative value is unlimited."""
    factors = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
    retention_ms = next((int(broker[name]) * factor for name, factor in factors.items() if name in broker), 168 * 3_600_000)
    return max(retention_ms, UNLIMITED)


def with_copy_lag(partition: PartitionScan, lag: CopyLag, now_ms: int) -> PartitionScan:
    """The scan of a partition with the segments that wait.

    Args:
        partition: the scan without a lag.
        lag: of its topic.
        now_ms: the time at which the broker would look.
    """
    if not lag.lets_wait or not partition.source.can_be_tiered:
        return partition
    preflight = partition.preflight
    rolled = preflight.rolled_segments
    wait = _wait(partition.source.directory, lag, now_ms, rolled[0].base_offset if rolled else 0)
    if wait is None:
        return partition
    split = [part for each in rolled for part in _split(each, partition.source.directory.segments, wait.base_offset)]
    return replace(partition, preflight=Preflight(preflight.bound, tuple(split), preflight.next_attempt, wait))


def _wait(directory: PartitionDir, lag: CopyLag, now_ms: int, first_offset: int) -> LagWait | None:
    """The rolled segments from the first one that is not due; None if all are."""
    segments = directory.segments
    left = sum(segment.size_bytes for segment in segments)
    for number, segment in enumerate(segments[:-1]):
        left -= segment.size_bytes
        if segment.base_offset < first_offset or (0 < lag.size_bytes <= left):
            continue
        due_ms = _largest_timestamp(directory, segment) + lag.ms if lag.ms > 0 else None
        # Kafka takes a segment with a timestamp in the future at once.
        if due_ms is not None and not now_ms < due_ms <= now_ms + lag.ms:
            continue
        waiting = segments[number:-1]
        return LagWait(
            lag_ms=lag.ms,
            lag_bytes=lag.size_bytes,
            base_offset=segment.base_offset,
            segments=len(waiting),
            size_bytes=sum(each.size_bytes for each in waiting),
            due_ms=due_ms,
            due_bytes=lag.size_bytes - left if lag.size_bytes > 0 else None,
        )
    return None


def _largest_timestamp(directory: PartitionDir, segment: SegmentFiles) -> int:
    """The last entry of the time index, else the time of the file, as Kafka takes it."""
    name = segment.time_index
    hint_ms = None if name is None else read_last_timestamp_hint(directory.file(name))
    return segment.log.identity.modified_ns // 1_000_000 if hint_ms is None else hint_ms


_DELAYED = frozenset((SegmentUploadState.UPLOADABLE, SegmentUploadState.NOT_KNOWN))


def _split(rolled: RolledSegments, segments: tuple[SegmentFiles, ...], waits_from: int) -> list[RolledSegments]:
    """The segments as they are, or as those that are due and those that wait."""
    if rolled.state not in _DELAYED or rolled.next_base_offset <= waits_from:
        return [rolled]
    if rolled.base_offset >= waits_from:
        return [replace(rolled, state=SegmentUploadState.WAITS_FOR_LAG)]
    due = [
        one.size_bytes
        for one, following in pairwise(segments)
        if one.base_offset >= rolled.base_offset and following.base_offset <= waits_from
    ]
    first = replace(rolled, next_base_offset=waits_from, segments=len(due), size_bytes=sum(due))
    return [
        first,
        replace(
            rolled,
            base_offset=waits_from,
            segments=rolled.segments - first.segments,
            size_bytes=rolled.size_bytes - first.size_bytes,
            state=SegmentUploadState.WAITS_FOR_LAG,
        ),
    ]
