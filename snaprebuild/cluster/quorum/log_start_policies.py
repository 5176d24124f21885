"""When the start of a metadata log moves, and how far: three policies.

* ``immediate``: as soon as there is a newer checkpoint, to it (the first version of KIP-630 in Kafka, pull request 9816).
* ``retention``: what Kafka does since 3.3, every minute: from the oldest checkpoint on, while everything together is larger than
  ``metadata.max.retention.bytes``, then while the oldest is older than ``metadata.max.retention.ms``. Nobody who reads the log is asked.
* ``kafka-14932``: the heuristic of KAFKA-14932: a leader waits until all live followers have fetched past a checkpoint and all of its
  listeners have read past it, or the checkpoint is older than ``metadata.start.offset.lag.time.max.ms``; a follower never goes ahead of
  its leader.

Source: ``KafkaRaftLog.maybeClean`` of 4.3.1; KAFKA-14932; KIP-630 ("When to Increase the LogStartOffset").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.quorum.log_start import CheckpointOfLog, DeletedBefore, LogStart, MetadataLogModel

__all__ = [
    "DEFAULT_CHECKPOINT_INTERVAL_MS",
    "DEFAULT_CHECKPOINT_RECORD_BYTES",
    "DEFAULT_LAG_TIME_MAX_MS",
    "DEFAULT_RETENTION_BYTES",
    "DEFAULT_RETENTION_MS",
    "Advance",
    "Cause",
    "CheckpointSettings",
    "FollowerMode",
    "Policy",
    "Progress",
    "StartSettings",
    "immediate",
    "is_checkpoint_due",
    "retention",
    "seed_follower",
    "seed_leader",
]

DEFAULT_RETENTION_BYTES = 100 << 20
DEFAULT_RETENTION_MS = 7 * 86_400_000
DEFAULT_LAG_TIME_MAX_MS = 7 * 86_400_000
DEFAULT_CHECKPOINT_INTERVAL_MS = 3_600_000
DEFAULT_CHECKPOINT_RECORD_BYTES = 20 << 20


class Policy(StrEnum):
    """Who moves the start."""

    IMMEDIATE = "immediate"
    RETENTION = "retention"
    KAFKA_14932 = "kafka-14932"


class FollowerMode(StrEnum):
    """Where a follower goes when its leader has moved, under ``kafka-14932``.

    The heuristic leaves this open. ``strict``: to the newest checkpoint of its own that is not beyond the leader's start, so that its
    start, too, is the end of a checkpoint. ``literal``: to the leader's start itself, whose epoch it must then be told.
    """

    STRICT = "strict"
    LITERAL = "literal"


class Cause(StrEnum):
    """Why a start moved."""

    NEWER_CHECKPOINT = "newer-checkpoint"
    SIZE = "retention-bytes"
    AGE = "retention-ms"
    ALL_PAST = "all-read-past"
    LAG_TIME = "lag-time-max"
    LEADER_MOVED = "leader-moved"


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """When a node takes a checkpoint.

    Attributes:
        interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0 is off.
        record_bytes: ``metadata.log.max.record.bytes.between.snapshots``.
    """

    interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS
    record_bytes: int = DEFAULT_CHECKPOINT_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Kafka's settings; negative retention is off.

    Attributes:
        retention_bytes: ``metadata.max.retention.bytes``.
        retention_ms: ``metadata.max.retention.ms``.
        lag_time_max_ms: ``metadata.start.offset.lag.time.max.ms``, which no release has.
        checkpoints: when the checkpoints are taken that the start may move to.
    """

    retention_bytes: int = DEFAULT_RETENTION_BYTES
    retention_ms: int = DEFAULT_RETENTION_MS
    lag_time_max_ms: int = DEFAULT_LAG_TIME_MAX_MS
    checkpoints: CheckpointSettings = CheckpointSettings()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far somebody is who reads the log: name of a replica or listener, and the next offset that it wants."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Advance:
    """A start that moved.

    Attributes:
        before: from where.
        after: to where.
        cause: see there.
        reason: one sentence for a person.
        deleted: what went.
    """

    before: LogStart
    after: LogStart
    cause: Cause
    reason: str
    deleted: DeletedBefore


def is_checkpoint_due(settings: CheckpointSettings, record_bytes: int, age_ms: int | None) -> bool:
    """Whether a node takes a checkpoint when it reads the next record, as ``SnapshotGenerator.publishLogDelta``.

    Args:
        settings: of the node.
        record_bytes: of the batches that it has read since the last checkpoint.
        age_ms: time since it took that one, or since it started; None where that is not known.
    """
    return record_bytes >= settings.record_bytes or (age_ms is not None and 0 < settings.interval_ms <= age_ms)


def _moved(log: MetadataLogModel, to: CheckpointOfLog, cause: Cause, reason: str) -> Advance | None:
    before = log.start
    deleted = log.delete_before(to.id)
    return None if deleted is None else Advance(before, to.id, cause, reason, deleted)


def immediate(log: MetadataLogModel) -> Advance | None:
    """Moves the start to the latest checkpoint."""
    latest = log.latest
    return None if latest is None else _moved(log, latest, Cause.NEWER_CHECKPOINT, f"a checkpoint at {latest.id} exists")


def retention(log: MetadataLogModel, now_ms: int, settings: StartSettings) -> Iterator[Advance]:
    """Moves the start as one run of Kafka's cleaner does; one advance for each checkpoint that goes. At least one checkpoint stays.

    The log moves while this is iterated.
    """
    while 0 <= settings.retention_bytes < log.size_bytes:
        sizes = f"log of {log.log_bytes} bytes and checkpoints of {log.checkpoint_bytes} bytes"
        advance = _next(log, Cause.SIZE, f"{sizes} are more than {settings.retention_bytes}")
        if advance is None:
            break
        yield advance
    while settings.retention_ms >= 0 and log.checkpoints:
        age_ms = now_ms - log.checkpoints[0].timestamp_ms
        if age_ms <= settings.retention_ms:
            break
        advance = _next(
            log, Cause.AGE, f"the checkpoint at {log.checkpoints[0].id} is {age_ms} ms old, more than {settings.retention_ms}"
        )
        if advance is None:
            break
        yield advance


def _next(log: MetadataLogModel, cause: Cause, reason: str) -> Advance | None:
    """To the second checkpoint; None where Kafka's cleaner would end its walk."""
    if len(log.checkpoints) < 2:
        return None
    advance = _moved(log, log.checkpoints[1], cause, reason)
    return advance if advance is not None and (advance.deleted.segments or advance.deleted.checkpoints) else None


def seed_leader(
    log: MetadataLogModel, now_ms: int, settings: StartSettings, live_replicas: Sequence[Progress], listeners: Sequence[Progress]
) -> Advance | None:
    """Moves a leader's start once.

    Args:
        log: of the leader.
        now_ms: the time, ms since 1970.
        settings: the longest wait.
        live_replicas: followers, voters or not, that fetch.
        listeners: of this node.
    """
    readers = (*live_replicas, *listeners)
    slowest = min(readers, key=lambda each: each.offset, default=None)
    reached = log.newest_at_or_below(log.end_offset if slowest is None else slowest.offset)
    if reached is not None:
        told = "nobody reads the log"
        if slowest is not None:
            told = f"all have read past it; the slowest, {slowest.name}, is at {slowest.offset}"
        return _moved(log, reached, Cause.ALL_PAST, told)
    aged = log.newest_not_after(now_ms - settings.lag_time_max_ms)
    if aged is None:
        return None
    age_ms = now_ms - aged.timestamp_ms
    waited = "" if slowest is None else f", and {slowest.name} is still at {slowest.offset}"
    return _moved(log, aged, Cause.LAG_TIME, f"it is {age_ms} ms old, not less than {settings.lag_time_max_ms}{waited}")


def seed_follower(
    log: MetadataLogModel, leader_start: LogStart, listeners: Sequence[Progress], mode: FollowerMode
) -> Advance | None:
    """Moves a follower's start once, after its leader's.

    Its listeners must have read past the leader's start, and a checkpoint of its own must lie above it: it may become the leader.
    """
    latest = log.latest
    if latest is None or latest.id.offset <= leader_start.offset or log.start.offset >= leader_start.offset:
        return None
    if any(each.offset < leader_start.offset for each in listeners):
        return None
    before, reason = log.start, f"the leader's log starts at {leader_start}"
    if mode is FollowerMode.LITERAL:
        deleted = log.start_at(leader_start)
        return None if deleted is None else Advance(before, leader_start, Cause.LEADER_MOVED, reason, deleted)
    own = log.newest_at_or_below(leader_start.offset)
    return None if own is None else _moved(log, own, Cause.LEADER_MOVED, reason)
