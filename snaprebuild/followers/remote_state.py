"""The producer state at an offset from remote storage: the snapshot of the copy that ends there, compared with a replay of the copies.

A follower takes such a snapshot as it is (KIP-405, ``TierStateMachine``). Here it is taken if the segments confirm it, or if nothing
contradicts it. A wrong one is replaced by the result of the replay. Without a replay there is no state.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
from msgspec import structs

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import read_entries
from formats.remote.object_names import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.errors import RefusedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import ComparisonStatus, impossible_entries
from snaprebuild.replay.window import Clock, window_start
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, ReplayFrom, source_replay
from snaprebuild.snapshots.engine.partition_task import ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict, verdict_of
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost, refuse_cold
from snaprebuild.tier.remote_partition import RemoteChain, RemotePartition

__all__ = ["RemoteState", "StateSource", "UnknownStateError", "remote_state"]


class UnknownStateError(RefusedError):
    """Remote storage does not have the right state."""


class StateSource(StrEnum):
    """Source of the entries."""

    SNAPSHOT = "remote-snapshot"
    """The copy's own."""
    REBUILT = "rebuilt"
    """A replay of the copies, because the snapshot is wrong."""
    REPLAYED = "replayed"
    """A replay of the copies, because the offset is inside of one, where no snapshot is."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoteState:
    """The state at an offset.

    Attributes:
        segment: the copy that holds the offset right below.
        first_offset: where the copies begin that follow one another up to there.
        verdict: on the snapshot of that copy; None if the offset is inside of it.
        reason: of the verdict, in words.
        entries_source: where the entries come from.
        entries: of ``ENTRY_DTYPE``, by producer id.
        judgement: class and reasons.
        data: the snapshot of the copy, where it is taken; None else.
        read_bytes: of segments.
        findings: about the segments and indexes of the copies that were read.
        damaged_ids: segment ids of the copies that were read and are damaged.
    """

    offset: int
    segment: RemoteSegment
    first_offset: int
    verdict: SnapshotVerdict | None
    reason: str
    entries_source: StateSource
    entries: np.ndarray
    judgement: Judgement
    data: bytes | None
    read_bytes: int
    findings: tuple[Finding, ...] = ()
    damaged_ids: frozenset[bytes] = frozenset()


def remote_state(
    partition: RemotePartition,
    epochs: Sequence[LeaderEpochEntry],
    offset: int,
    run: Run,
    *,
    log_start: int = 0,
    replays: bool = True,
    announce: Callable[[AuditCost], None] | None = None,
) -> RemoteState:
    """The producer state at an offset.

    Args:
        partition: in remote storage.
        epochs: leader epochs of the log that is meant.
        offset: above 0.
        run: entries that a load at the moment of its clock drops are not compared.
        log_start: of the log that is meant; 0 if unknown. Records above it, below the copies, were not replayed.
        replays: read the segments; without them the snapshot is taken as it is.
        announce: called with the cost of the replay before it; if the first snapshot is no base, the segments are read again.

    Raises:
        UnknownStateError: no copy holds the offset below, or the snapshot is wrong and the segments do not show the right state.
        RefusedError: the copies are encrypted, and no key was given. A limit of the run is used up. The copies are in cold storage
            classes, and there is no limit of bytes.
        ReadFailedError: objects of the copy are missing.
        FormatError: its manifest does not parse.
    """
    chain = partition.chain_below(epochs, offset)
    if chain is None:
        raise UnknownStateError(f"no finished copy holds offset {offset - 1}", path=partition.place)
    segment = chain.segments[-1]
    if segment.end_offset == offset - 1:
        data = partition.read_file(segment, LocalTierFile.PRODUCER_SNAPSHOT)
    else:
        data = None
    if replays:
        _check_cost(chain, announce)
    own = _own_snapshot(partition, segment, data, offset)
    findings: dict[Finding, None] = {}
    replayed, reason = (None, "the segments were not replayed") if not replays else _replayed(chain, offset, run, findings)
    decided = _decided(chain, log_start, offset, own, replayed, reason)
    return dataclasses.replace(decided, findings=tuple(findings), damaged_ids=_damaged_ids(chain, findings))


def _damaged_ids(chain: RemoteChain, findings: Iterable[Finding]) -> frozenset[bytes]:
    """The copies that damage was found in: several findings may be about one of them, each at an offset inside of it."""
    offsets = [each.offset for each in findings if each.severity is Severity.DAMAGED and each.offset is not None]
    starts = [each.start_offset for each in chain.segments]
    indexes = [max(bisect_right(starts, offset) - 1, 0) for offset in offsets]
    return frozenset(chain.segments[index].segment_id for index in indexes)


def _check_cost(chain: RemoteChain, announce: Callable[[AuditCost], None] | None) -> None:
    partition = chain.remote
    cost = audit_cost([CopyRead.unknown(partition.complete_copy(each)) for each in chain.segments])
    if announce is not None:
        announce(cost)
    refuse_cold(cost.cold, partition.stores.max_read_bytes, partition.place)


@dataclass(frozen=True, slots=True, eq=False)
class _StateReplay:
    """The result of a replay of the copies.

    Attributes:
        state: at the offset.
        task: that read them.
        read_bytes: of segments, all attempts together.
    """

    state: BoundaryState
    task: _StateTask
    read_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _OwnSnapshot:
    """The snapshot of a copy.

    Attributes:
        data: its bytes; None if the offset is inside of the copy.
        entries: by producer id; None without any, or if it is wrong by itself.
        verdict: on it by itself; None if it may be right.
    """

    data: bytes | None
    entries: np.ndarray | None = None
    verdict: SnapshotVerdict | None = None
    why: str = ""


def _own_snapshot(partition: RemotePartition, segment: RemoteSegment, data: bytes | None, offset: int) -> _OwnSnapshot:
    if data is None:
        return _OwnSnapshot(None)
    if not data:
        why = "it has no bytes: a broker takes it and starts without producers"
        return _OwnSnapshot(data, None, SnapshotVerdict.ZERO_BYTES, why)
    try:
        entries = read_entries(data, file=f"{partition.place}: copy {uuid_to_text(segment.segment_id)}")
    except FormatError as error:
        return _OwnSnapshot(data, None, SnapshotVerdict.CORRUPT, error.message)
    impossible = impossible_entries(entries, offset)
    if impossible is not None:
        return _OwnSnapshot(data, None, SnapshotVerdict.CORRUPT, impossible)
    return _OwnSnapshot(data, entries[np.argsort(entries["producer_id"].astype(np.int64), kind="stable")])


def _replayed(chain: RemoteChain, offset: int, run: Run, findings: dict[Finding, None]) -> tuple[_StateReplay | None, str]:
    """The state by replay, or why there is none. Damage of the copies goes to ``findings``, each once.

    If the copies do not begin at offset 0, the snapshot of the first one has the state before the others, which are replayed on it. A
    broker replays its segments on the snapshot at its first offset in the same way. The result counts if every later snapshot follows from
    it.

    If the oldest copies hold only expired data, the younger ones are replayed on the snapshot before them in the same way. All copies from
    the first one on are replayed only if the later snapshots do not follow from that.
    """
    whole = chain.segments
    attempts: list[tuple[Sequence[RemoteSegment], ReplayFrom, Sequence[RemoteSegment]]] = []
    if chain.start_offset > 0 and len(whole) > 1:
        # If the snapshot of the last copy does not follow, the others may agree without it.
        attempts += [(whole[1:], ReplayFrom.AUTO, evidence) for evidence in (whole, whole[:-1]) if len(evidence) > 1]
    elif (window := _window(whole, run.clock)) > 0:
        attempts.append((whole[window:], ReplayFrom.AUTO, whole[window - 1 :]))
    attempts.append((whole, ReplayFrom.LOG_START, ()))
    read_bytes = 0
    for segments, mode, evidence in attempts:
        task = _StateTask(chain.source(segments, evidence), mode, run.clock, offset)
        run_tasks([task], run)
        read_bytes += task.outcome.read_bytes
        directory = chain.remote.base.path
        for each in task.outcome.findings:
            findings[structs.replace(each, path=chain.remote.place) if each.path == directory else each] = None
        if isinstance(task.error, RefusedError):
            raise task.error
        if task.state is not None and (mode is ReplayFrom.LOG_START or task.state.is_complete):
            return _StateReplay(task.state, task, read_bytes), ""
    if task.error is not None:
        return None, f"the segments cannot be replayed: {task.error}"
    damage = task.replay.damage
    return None, damage.reason if damage is not None else f"no batch of the copies ends at {offset}"


def _window(segments: Sequence[RemoteSegment], clock: Clock) -> int:
    """Index of the first copy that holds anything younger than the expiration, by their metadata."""
    largest = [None if each.max_timestamp_ms < 0 else each.max_timestamp_ms for each in segments]
    return min(window_start(largest, clock.as_of_ms, clock.expiration_ms), len(segments) - 1)


def _decided(
    chain: RemoteChain, log_start: int, offset: int, own: _OwnSnapshot, replayed: _StateReplay | None, reason: str
) -> RemoteState:
    """Takes the snapshot of the copy, or the result of the replay where that is wrong."""
    name = f"the snapshot of the copy {uuid_to_text(chain.segments[-1].segment_id)}"

    def state(verdict: SnapshotVerdict | None, why: str, judgement: Judgement, rebuilt: np.ndarray | None = None) -> RemoteState:
        entries = own.entries if rebuilt is None else rebuilt
        assert entries is not None
        source = StateSource.REBUILT
        if rebuilt is None:
            source = StateSource.SNAPSHOT
        elif verdict is None:
            source = StateSource.REPLAYED
        return RemoteState(
            offset=offset,
            segment=chain.segments[-1],
            first_offset=chain.start_offset,
            verdict=verdict,
            reason=why,
            entries_source=source,
            entries=entries,
            judgement=judgement,
            data=own.data if rebuilt is None else None,
            read_bytes=0 if replayed is None else replayed.read_bytes,
        )

    verdict = own.verdict
    why = own.why
    if own.entries is not None:
        if replayed is None:
            return state(SnapshotVerdict.UNPROVEN, reason, Judgement(SnapshotClass.UNPROVEN, (reason,)))
        comparison = replayed.task.cross.judge(replayed.state, own.entries)
        verdict = verdict_of(comparison)
        why = comparison.reason
        if verdict is SnapshotVerdict.RIGHT:
            if not replayed.state.is_complete:
                verdict = SnapshotVerdict.UNPROVEN
                why = f"{why} from {chain.start_offset} on; records deleted below are in no copy"
            judgement = _below(chain, log_start, replayed.state.judgement)
            if judgement.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN) and verdict is SnapshotVerdict.RIGHT:
                verdict = SnapshotVerdict.UNPROVEN
                why = f"{why}, and the replay is {judgement.snapshot_class.value}: it proves nothing here"
            if comparison.status is not ComparisonStatus.EQUAL and judgement.snapshot_class.is_allowed_in_place:
                judgement = judgement.as_load_equivalent(why)
            return state(verdict, why, judgement)
        if verdict not in WRONG and replayed.state.judgement.snapshot_class.is_allowed_in_place:
            reasons = (f"{name} is not proven by the segments in remote storage: {why}", *replayed.state.judgement.reasons)
            return state(verdict, why, Judgement(SnapshotClass.UNPROVEN, reasons))
    if replayed is None or not replayed.state.judgement.snapshot_class.is_allowed_in_place:
        because = reason if replayed is None else replayed.state.judgement.reasons[0]
        what = f"{name} is {verdict}: {why}" if verdict is not None else f"no snapshot is at {offset}"
        raise UnknownStateError(f"{what}; and the right state is unknown: {because}", path=chain.remote.place)
    judgement = _below(chain, log_start, replayed.state.judgement)
    return state(verdict, why or "the offset is inside of a copy", judgement, replayed.state.entries)


def _below(chain: RemoteChain, log_start: int, judgement: Judgement) -> Judgement:
    start = chain.start_offset
    found = judgement.snapshot_class
    reasons = (*judgement.reasons, f"the copies in remote storage were replayed, from offset {start} on")
    if found is SnapshotClass.EXACT_FROM_LOG_START and start > log_start:
        unknown = f"the log begins at {log_start}, and the producers below {start} are unknown: {chain.ends_at}"
        return Judgement(SnapshotClass.UNPROVEN, (unknown, *reasons))
    return Judgement(found, reasons)


class _StateTask(ReplayTask):
    """Replays copies up to an offset; the last one is cut there if it continues beyond it."""

    def __init__(self, source: PartitionSource, mode: ReplayFrom, clock: Clock, offset: int) -> None:
        replay = source_replay(source, clock, mode=mode, known_end=offset)
        reads = partial(read_tasks, source.directory, check_crc=True, cuts=(offset,))
        super().__init__(source, TaskOutcome(), reads, replay)
        self.state: BoundaryState | None = None
        self.error: SnaprebuildError | FormatError | None = None
        self._offset = offset

    def boundary(self, state: BoundaryState) -> None:
        """Keeps the one that is wanted."""
        if state.offset == self._offset and self.state is None:
            self.state = state

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Kept for the caller."""
        self.error = error
