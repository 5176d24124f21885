"""Where each policy would move the start of a real metadata log now, and which readers would have to reload.

The settings are those of the node's configuration: ``MetadataLogConfig`` of 4.3.1; ``ConfigDef.parseType``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.broker.broker_files import Properties
from formats.errors import FormatError
from snaprebuild.cluster.metadata.image_reader import image_at
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.cluster.quorum.check import leader_among, violations
from snaprebuild.cluster.quorum.facts import NodeFacts, read_node
from snaprebuild.cluster.quorum.log_facts import LogStart
from snaprebuild.cluster.quorum.log_start import (
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    DEFAULT_CHECKPOINT_RECORD_BYTES,
    DEFAULT_RETENTION_BYTES,
    DEFAULT_RETENTION_MS,
    CheckpointOfLog,
    CheckpointSettings,
    FollowerMode,
    MetadataLogModel,
    OffsetAndEpoch,
    Policy,
    Progress,
    SegmentOfLog,
    StartMove,
    StartSettings,
    advance_follower,
    advance_leader,
    immediate,
    is_checkpoint_due,
    retention,
)
from snaprebuild.cluster.quorum.rules import judge_log
from snaprebuild.cluster.rule_result import Grade
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, pluralize
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, metadata_dir_of

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "NextCheckpoint",
    "PolicyAdvice",
    "Readers",
    "StartAdvice",
    "advise_start",
    "metadata_directory_of",
    "model_of",
    "start_settings_of",
]


_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def metadata_directory_of(properties: Properties) -> str:
    """Log directory that holds the metadata log: ``metadata.log.dir``, else the first of ``log.dirs``."""
    return metadata_dir_of(properties) or log_dirs_of(properties)[0]


def start_settings_of(properties: Properties, path: str) -> StartSettings:
    """Settings that move the start, and take the checkpoints that it moves to. A negative retention, which is none, becomes -1.

    Args:
        properties: a node's configuration.
        path: of it, for messages.

    Raises:
        UsageError: a value is one that Kafka refuses.
    """

    def number(name: str, default: int, least: int) -> int:
        text = properties.get(name)
        if text is None:
            return default
        value = int(text) if _NUMBER.fullmatch(text.strip()) else None
        if value is None or not least <= value < 2**63:
            raise UsageError(f"{name}: expected a number from {least} to {2**63 - 1}, found {text[:60]!r}", path=path)
        return value

    return StartSettings(
        max(-1, number("metadata.max.retention.bytes", DEFAULT_RETENTION_BYTES, -(2**63))),
        max(-1, number("metadata.max.retention.ms", DEFAULT_RETENTION_MS, -(2**63))),
        checkpoints=CheckpointSettings(
            number("metadata.log.max.snapshot.interval.ms", DEFAULT_CHECKPOINT_INTERVAL_MS, 0),
            number("metadata.log.max.record.bytes.between.snapshots", DEFAULT_CHECKPOINT_RECORD_BYTES, 1),
        ),
    )


NEVER_MS = 2**62
"""Time of a checkpoint whose header cannot be read: Kafka's cleaner fails when it asks how old that one is, and goes no further."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers of the log that no directory shows.

    Attributes:
        replicas: next offset that each fetches, by id; instead of what other directories say.
        listeners: of this node.
        leader_start: of the leader's log, where this node is a follower.
    """

    replicas: tuple[Progress, ...] = ()
    listeners: tuple[Progress, ...] = ()
    leader_start: OffsetAndEpoch | None = None


class PolicyAdvice(Part, frozen=True):
    """The move of the start under one policy."""

    policy: Policy
    start: LogStart
    """Start of the log after the moves."""
    moves: tuple[StartMove, ...]
    """Moves in their order; none if the start stays."""
    size_bytes: Natural
    """Bytes of segments and checkpoints after the moves."""
    checkpoints: Natural
    """Checkpoints after the moves."""
    invalidated: tuple[str, ...]
    """Replicas whose next offset would be deleted."""
    reloaded: tuple[str, ...]
    """Listeners whose next offset would be deleted."""
    stays_because: str | None
    """Null if it moves; not stable."""


class NextCheckpoint(Part, frozen=True):
    """The next checkpoint to which the start may move. A running node counts its age from when it took the latest one, or started."""

    record_bytes: Natural
    """Bytes of the batches after the latest checkpoint."""
    age_ms: Natural | None
    """Time since the last record of the latest checkpoint; null if that is not known."""
    is_due: bool
    """A node that has been running since the latest checkpoint takes it with the next record."""


@dataclass(slots=True)
class StartAdvice:
    """The advice for one node.

    Attributes:
        node: its directory.
        is_leader: of its quorum.
        as_of_ms: when.
        settings: of the policies.
        start: now.
        size_bytes: of segments and checkpoints now.
        replicas: that are known to fetch from it.
        listeners: of this node, as they were given.
        unknown_replicas: ids of voters and brokers in the image of which no offset is known; None if the image cannot be read.
        leader_start: of the leader's log; None if it is not known, or this is the leader.
        next_checkpoint: when there is one that the start may move to.
        policies: all of them.
        assumptions: one sentence each.
        findings: violations that make an advice unreliable.
    """

    node: NodeFacts
    is_leader: bool
    as_of_ms: int
    settings: StartSettings
    start: OffsetAndEpoch
    size_bytes: int
    replicas: tuple[Progress, ...]
    listeners: tuple[Progress, ...]
    unknown_replicas: tuple[int, ...] | None
    leader_start: OffsetAndEpoch | None
    next_checkpoint: NextCheckpoint
    policies: list[PolicyAdvice]
    assumptions: list[str]
    findings: list[Finding]


def model_of(node: NodeFacts) -> MetadataLogModel:
    """The log of a node as its policies see it, as it was before the node stopped."""
    facts = node.facts
    checkpoints = [
        CheckpointOfLog(
            checkpoint.id, checkpoint.size_bytes, NEVER_MS if checkpoint.timestamp_ms is None else checkpoint.timestamp_ms
        )
        for checkpoint in facts.checkpoints
        if checkpoint.id.offset >= facts.start_offset
    ]
    segments = [SegmentOfLog(segment.base_offset, segment.size_bytes) for segment in node.segments]
    return MetadataLogModel(OffsetAndEpoch(facts.start_offset, facts.start_epoch or 0), facts.end_offset, segments, checkpoints)


def advise_start(
    location: str,
    others: Sequence[str],
    as_of_ms: int,
    settings: StartSettings,
    readers: Readers,
    mode: FollowerMode,
    run: Run,
) -> StartAdvice:
    """Reads the directories of a node and of others, and finds the moves of the start under each policy.

    Args:
        location: the directory that is advised on.
        others: of other nodes of the quorum: what they hold is what they have fetched.
        as_of_ms: the moment, ms since 1970.
        settings: of the policies.
        readers: those that no directory shows.
        mode: of a follower under ``kafka-14932``.
        run: as for ``open_metadata_log``.

    Raises:
        UsageError: no metadata log is there, directories of several clusters, or one node twice.
        ReadFailedError: one cannot be read.
    """
    node, *rest = (read_node(each, run) for each in (location, *others))
    _check_one_cluster([node, *rest])
    leader = leader_among([node, *rest], None)
    is_leader = leader is node or (leader is None and _is_own_leader(node))
    replicas = _replicas(rest, readers) if is_leader else ()
    listeners = readers.listeners
    leader_start = readers.leader_start or (leader.facts.start if leader is not None and leader is not node else None)
    start = model_of(node)
    advice = StartAdvice(
        node=node,
        is_leader=is_leader,
        as_of_ms=as_of_ms,
        settings=settings,
        start=start.start,
        size_bytes=start.size_bytes,
        replicas=replicas,
        listeners=listeners,
        unknown_replicas=_unknown_replicas(node, replicas) if is_leader else (),
        leader_start=None if is_leader else leader_start,
        next_checkpoint=_next_checkpoint(node, as_of_ms, settings),
        policies=[],
        assumptions=[],
        findings=[*node.findings, *unknown_findings(node.log.path, node.log.unknown)],
    )
    advice.findings += violations(each for each in judge_log(node.facts) if each.grade is not Grade.INFO)
    advice.policies = [_advice(advice, policy, mode) for policy in Policy]
    advice.assumptions = _assumptions(advice)
    return advice


def _next_checkpoint(node: NodeFacts, as_of_ms: int, settings: StartSettings) -> NextCheckpoint:
    latest = node.facts.checkpoints[-1] if node.facts.checkpoints else None
    age_ms = None if latest is None or latest.timestamp_ms is None else max(0, as_of_ms - latest.timestamp_ms)
    is_due = is_checkpoint_due(settings.checkpoints, node.bytes_after_latest, age_ms)
    return NextCheckpoint(node.bytes_after_latest, age_ms, is_due)


def _is_own_leader(node: NodeFacts) -> bool:
    """Without ``meta.properties`` a directory is taken for the leader's, of which most can be said."""
    state = node.log.quorum_state
    return state is None or node.node_id is None or state.leader_id in (node.node_id, -1)


def _check_one_cluster(nodes: Sequence[NodeFacts]) -> None:
    clusters = {node.cluster_id for node in nodes if node.cluster_id is not None}
    if len(clusters) > 1:
        raise UsageError(f"the directories are of {len(clusters)} clusters: {', '.join(sorted(clusters)[:5])}")
    ids = [node.node_id for node in nodes if node.node_id is not None]
    if twice := next((each for each in ids if ids.count(each) > 1), None):
        raise UsageError(f"two directories are of node {twice}: name the one that is in use")


def _replicas(rest: Sequence[NodeFacts], readers: Readers) -> tuple[Progress, ...]:
    named = {replica.name for replica in readers.replicas}
    by_directories = [Progress(str(each.node_id or each.location), each.facts.end_offset) for each in rest]
    return (*readers.replicas, *(directory for directory in by_directories if directory.name not in named))


def _unknown_replicas(node: NodeFacts, replicas: Sequence[Progress]) -> tuple[int, ...] | None:
    """Voters and brokers that the image has, without this node and those whose offset is known."""
    try:
        fold = image_at(node.log).fold
    except (FormatError, UsageError, ReadFailedError):
        return None
    ids = {voter.voter_id for voter in fold.quorum.voters or ()} | fold.brokers.keys() | fold.controllers.keys()
    return tuple(sorted(ids - {node.node_id} - {int(replica.name) for replica in replicas if replica.name.isdecimal()}))


def _advice(advice: StartAdvice, policy: Policy, mode: FollowerMode) -> PolicyAdvice:
    model = model_of(advice.node)
    moves = list[StartMove | None]()
    if policy is Policy.IMMEDIATE:
        moves = [immediate(model)]
    elif policy is Policy.RETENTION:
        moves = [*retention(model, advice.as_of_ms, advice.settings)]
    elif advice.is_leader:
        readers = (advice.replicas, advice.listeners)
        while (move := advance_leader(model, advice.as_of_ms, advice.settings, *readers)) is not None:
            moves.append(move)
    elif advice.leader_start is not None:
        moves = [advance_follower(model, advice.leader_start, advice.listeners, mode)]
    possible = tuple(each for each in moves if each is not None)
    start = advice.node.facts.log_start
    if possible:
        start = LogStart(model.start.offset, model.start.epoch)
    return PolicyAdvice(
        policy=policy,
        start=start,
        moves=possible,
        size_bytes=model.size_bytes,
        checkpoints=len(model.checkpoints),
        invalidated=_below(advice.replicas, advice.start, model.start),
        reloaded=_below(advice.listeners, advice.start, model.start),
        stays_because=None if possible else _reason_to_stay(advice, policy, model),
    )


def _reason_to_stay(advice: StartAdvice, policy: Policy, model: MetadataLogModel) -> str:
    if policy is Policy.KAFKA_14932 and not advice.is_leader:
        return _reason_of_follower_to_stay(advice, model)
    newer = [checkpoint.id for checkpoint in model.checkpoints if checkpoint.id.offset > model.start.offset]
    if not newer:
        return "no checkpoint ends above it"
    if policy is Policy.KAFKA_14932:
        slowest = min((*advice.replicas, *advice.listeners), key=lambda replica: replica.offset, default=None)
        if slowest is None:  # without readers all have read everything, and that is less
            return f"the log ends at {model.end_offset}, below {newer[0]}"
        return f"{slowest.name} is at {slowest.offset}, and has not read past {newer[0]}, which may still wait"
    if len(model.checkpoints) < 2:
        return "there is one checkpoint, and one always stays"
    oldest_ms = model.checkpoints[0].timestamp_ms
    age = "of unknown age" if oldest_ms == NEVER_MS else f"{advice.as_of_ms - oldest_ms} ms old"
    return f"{model.size_bytes} bytes, and the oldest checkpoint {age}, are within the limits"


def _reason_of_follower_to_stay(advice: StartAdvice, model: MetadataLogModel) -> str:
    at = advice.leader_start
    if at is None:
        return "unknown: the start of the leader's log is not given (use --assume leader_start, or name its directory)"
    if at.offset <= model.start.offset:
        return f"the leader's log starts at {at}, which is not beyond it"
    return f"the leader's log starts at {at}: not all is read up to there, or no checkpoint fits"


def _below(readers: Sequence[Progress], before: OffsetAndEpoch, after: OffsetAndEpoch) -> tuple[str, ...]:
    """Readers whose next offset the move deletes. A reader that was below the start before loses nothing by it."""
    return tuple(reader.name for reader in readers if before.offset <= reader.offset < after.offset)


def _assumptions(advice: StartAdvice) -> list[str]:
    assumptions = []
    if advice.is_leader and not (advice.replicas or advice.listeners):
        assumptions.append(
            "no reader of the log is known: kafka-14932 is shown as if all had read everything "
            "(--assume replica and --assume listener name readers)"
        )
    elif not advice.listeners:
        assumptions.append("the listeners of this node are taken to have read everything (--assume listener)")
    if advice.unknown_replicas:
        ids = ", ".join(map(str, advice.unknown_replicas[:10])) + (", ..." if len(advice.unknown_replicas) > 10 else "")
        assumptions.append(
            f"how far {pluralize(len(advice.unknown_replicas), 'replica')} got is not known: {ids} (--assume replica, or their directories)"
        )
    if advice.unknown_replicas is None:
        assumptions.append("which replicas there are is not known, as no image can be read")
    return assumptions
