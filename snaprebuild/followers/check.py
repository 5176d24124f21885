"""Replicas that lost their producer state when they started from remote storage, and the producers that they lost.

Brokers up to 4.4 download the producer snapshot of the copy after which a follower starts, and delete it again before it is loaded
(``TierStateMachine``, then ``ProducerStateManager.truncateFullyAndReloadSnapshots``). The state of such a replica therefore begins empty
at its first local offset, and every snapshot that it takes later lacks the producers that wrote only below.

The correct state there follows from remote storage (``remote_state``), and above it from the replica's own segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.broker.status import Status, status_of
from snaprebuild.errors import DamagedCopyError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, pluralize, unread_paths
from snaprebuild.followers.remote_state import RemoteState, UnknownStateError, remote_state
from snaprebuild.followers.replica_snapshots import LOST_OF_A_RUN_MAX, ReplicaSnapshot, SnapshotsTask
from snaprebuild.replay.segment_effect import effect_of_entries
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import InitialState
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, check_segments_are_files
from snaprebuild.storage.log_dir import read_leader_epochs, read_topic_id
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_partition import RemotePartition
from snaprebuild.tier.remote_store import Tier

__all__ = [
    "CheckedReplica",
    "LossCause",
    "ReplicaCheck",
    "ReplicaVerdict",
    "check_replicas",
    "initial_state",
]


class LossCause(StrEnum):
    """Why a replica lacks producers, as far as its files show."""

    DISCARDED = "discarded-at-bootstrap"
    """The first snapshot of the replica is empty, as a broker leaves it that bootstraps a follower."""
    UNKNOWN = "unknown"
    """The first snapshot of the replica is gone, or holds something."""


CAUSES = {
    LossCause.DISCARDED: "A broker up to 4.4 deletes the snapshot that it restores from remote storage before it loads it. The state of "
    "such a follower begins empty, as here: the first snapshot is empty",
    LossCause.UNKNOWN: "Its first snapshot does not show why",
}


class ReplicaVerdict(StrEnum):
    """On the producer state of a replica."""

    INTACT = "intact"
    """The replica begins with what remote storage has, as far as producers have not expired."""
    LOST = "lost-producer-state"
    NOT_BOOTSTRAPPED = "not-bootstrapped"
    """The first segment of the replica begins at offset 0 or at the log start: nothing of its log is in remote storage alone."""
    UNKNOWN = "unknown"
    """Remote storage does not have the right state."""


@dataclass(slots=True)
class CheckedReplica:
    """A replica.

    Attributes:
        source: its directory.
        first_offset: base offset of its first segment.
        verdict: on its producer state.
        reason: of the verdict, for the user.
        remote: the state at ``first_offset``; None if unknown.
        snapshots: those on disk and the boundaries without one, ascending.
        findings: about it.
        remote_findings: about its copies in remote storage, which no repair of the replica changes.
        read_bytes: of its own segments.
        damaged_ids: segment ids of copies in remote storage that cannot be read whole, as far as the check met them.
    """

    source: PartitionSource
    first_offset: int
    verdict: ReplicaVerdict = ReplicaVerdict.UNKNOWN
    reason: str = ""
    remote: RemoteState | None = None
    snapshots: list[ReplicaSnapshot] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    remote_findings: list[Finding] = field(default_factory=list)
    read_bytes: int = 0
    damaged_ids: set[bytes] = field(default_factory=set)

    @property
    def worst(self) -> ReplicaSnapshot | None:
        """The first one that lacks producers which have not expired. A boundary without a file counts where there is no file at all."""
        on_disk = [each for each in self.snapshots if each.status is not None]
        return next((each for each in on_disk or self.snapshots if each.lost_count), None)

    @property
    def lost_count(self) -> int:
        """Producers that ``worst`` lacks and that have not expired; 0 without one."""
        return 0 if self.worst is None else self.worst.lost_count

    @property
    def loss_cause(self) -> LossCause | None:
        """LossCause of the loss; None without one."""
        if self.verdict is not ReplicaVerdict.LOST:
            return None
        is_empty = any(each.offset == self.first_offset and each.entries == 0 for each in self.snapshots)
        return LossCause.DISCARDED if is_empty else LossCause.UNKNOWN

    @property
    def has_wrong_remote(self) -> bool:
        """The snapshot of the copy below its first segment is wrong, in remote storage."""
        return self.remote is not None and self.remote.verdict in WRONG

    @property
    def is_wrong(self) -> bool:
        """The snapshots of the replica need a repair."""
        return self.verdict is ReplicaVerdict.LOST or any(each.proven_wrong for each in self.snapshots)

    @property
    def is_repairable(self) -> bool:
        """Remote storage proves the state that a repair would begin with."""
        return self.remote is not None and self.remote.judgement.snapshot_class.is_allowed_in_place


@dataclass(slots=True)
class ReplicaCheck:
    """The result for all replicas.

    Attributes:
        clock: expiry.
        verified: a metadata log was given that could be read whole.
        replicas: in the order of the source.
        source_findings: what was skipped or refused, and what is wrong with the metadata logs.
    """

    clock: Clock
    verified: bool
    replicas: tuple[CheckedReplica, ...]
    source_findings: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the source and of every replica. What is wrong with a copy is one finding for all replicas that start from it."""
        findings = dict.fromkeys(self.source_findings)
        for replica in self.replicas:
            findings |= dict.fromkeys((*replica.remote_findings, *replica.findings))
        return tuple(findings)

    def status(self, findings: Sequence[Finding]) -> Status:
        """The counts of the check. A replica that lost producers has wrong snapshots; without any file its snapshot is missing.

        Args:
            findings: of the command.
        """
        return self.status_of(self.replicas, findings)

    def status_of(self, replicas: Sequence[CheckedReplica], findings: Sequence[Finding]) -> Status:
        """The counts, with the snapshots of some of the replicas: of those that a repair leaves as they are, for example.

        What is wrong in remote storage counts once, however many replicas start from it.

        Args:
            replicas: whose snapshots count.
            findings: of the command.
        """
        wrong = len({each.remote.segment.segment_id for each in self.replicas if each.remote is not None and each.has_wrong_remote})
        missing = 0
        unproven = sum(each.verdict is ReplicaVerdict.UNKNOWN for each in self.replicas)
        for each in replicas:
            wrong_files = sum(snapshot.proven_wrong for snapshot in each.snapshots)
            wrong += wrong_files
            if each.verdict is not ReplicaVerdict.LOST or wrong_files:
                continue
            if any(snapshot.status is not None for snapshot in each.snapshots):
                # It has files, and the copies do not prove what these lack.
                unproven += 1
            else:
                missing += 1
        return status_of(
            (),
            wrong=wrong,
            suspect=0,
            missing=missing,
            waiting=0,
            unread=len(unread_paths(findings)),
            damaged=len(set[bytes]().union(*(each.damaged_ids for each in self.replicas))),
            unproven=unproven,
        )


def check_replicas(
    source: Source,
    tier: Tier,
    run: Run,
    *,
    replays_remote: bool = True,
    announce: Callable[[AuditCost], None] | None = None,
) -> ReplicaCheck:
    """Checks every replica of a source.

    Args:
        source: from ``open_source``.
        tier: remote storage.
        run: its clock is for expiry.
        replays_remote: hold the remote snapshot against a replay of the copies; without it is taken as it is.
        announce: called for each replica with the cost of the replay before it.
    """
    replicas: list[CheckedReplica] = []
    state_at = partial(remote_state, run=run, replays=replays_remote, announce=announce)
    listed = 0
    for partition in source.partitions:
        segments = partition.directory.segments
        if not segments or not partition.can_be_tiered:
            continue
        replica = CheckedReplica(partition, segments[0].base_offset)
        replicas.append(replica)
        _check(replica, tier, state_at, run, LOST_OF_A_RUN_MAX - listed)
        listed += sum(len(each.lost) for each in replica.snapshots)
    return ReplicaCheck(run.clock, tier.verified, tuple(replicas), (*source.findings, *tier.metadata_findings))


def initial_state(remote: RemoteState) -> InitialState:
    """The state that a replay of the replica's own segments begins with."""
    return InitialState(effect_of_entries(remote.entries), remote.judgement)


def _check(replica: CheckedReplica, tier: Tier, state_at: Callable[..., RemoteState], run: Run, may_list: int) -> None:
    path = replica.source.directory.path
    first = replica.first_offset
    log_start = replica.source.log_start_offset
    if first == 0:
        replica.verdict = ReplicaVerdict.NOT_BOOTSTRAPPED
        replica.reason = "its first segment begins at offset 0"
        return
    if replica.source.is_tiered and log_start >= first:
        replica.verdict = ReplicaVerdict.NOT_BOOTSTRAPPED
        replica.reason = f"its log begins at {log_start}, on its own disk: the producers below are no longer known"
        return
    try:
        check_segments_are_files(replica.source.directory)
        name = replica.source.directory.name
        remote = tier.partition_named(name.topic, name.partition, read_topic_id(replica.source.directory))
        if remote is not None:
            replica.remote_findings += remote.findings
            replica.damaged_ids |= {each.segment_id for each in remote.incomplete}
        if remote is None and not replica.source.is_tiered:
            replica.verdict = ReplicaVerdict.NOT_BOOTSTRAPPED
            replica.reason = "nothing of it is in remote storage"
            return
        replica.remote = _remote_state(replica.source, remote, state_at)
    except (SnaprebuildError, FormatError) as error:
        replica.reason = str(error)
        finding = finding_of_error(error, path)
        is_unread = finding.is_unread
        if isinstance(error, DamagedCopyError):
            # The copy was read and is damaged, which is its own count. Another run finds the same.
            is_unread = False
            if error.segment_id is not None:
                replica.damaged_ids.add(error.segment_id)
        severity = Severity.FINDING if isinstance(error, (UnknownStateError, UsageError)) else finding.severity
        message = f"not checked: {error}"
        replica.findings.append(Finding("follower-not-checked", severity, path, message, first, is_unread=is_unread))
        return
    replica.remote_findings += replica.remote.findings
    replica.damaged_ids |= replica.remote.damaged_ids
    if replica.has_wrong_remote:
        assert remote is not None, "its state is that of a copy"
        # No snapshot of the replica changes it, so that it stays a finding after a repair.
        replica.remote_findings.append(_wrong_finding(replica.remote, remote.place))
    task = SnapshotsTask(replica.source, initial_state(replica.remote), run.clock, may_list)
    run_tasks([task], run)
    replica.read_bytes = task.outcome.read_bytes
    replica.snapshots = task.snapshots
    replica.findings += task.outcome.findings
    _judge(replica)


def _wrong_finding(state: RemoteState, place: str) -> Finding:
    """The finding of a wrong snapshot in remote storage. The state is the right one all the same: the replay gave it."""
    assert state.verdict is not None
    message = f"the snapshot of the segment {uuid_to_text(state.segment.segment_id)} is {state.verdict}: {state.reason}"
    severity = Severity.DAMAGED if state.verdict is SnapshotVerdict.CORRUPT else Severity.FINDING
    return Finding(
        "tier-wrong-snapshot",
        severity,
        place,
        message,
        state.segment.start_offset,
        state.verdict.value,
        cause=FindingCause.WRONG_REMOTE_SNAPSHOT,
    )


def _remote_state(partition: PartitionSource, remote: RemotePartition | None, state_at: Callable[..., RemoteState]) -> RemoteState:
    if remote is None:
        raise UnknownStateError("remote storage has nothing of this partition")
    first = partition.directory.segments[0].base_offset
    epochs = read_leader_epochs(partition.directory) or ()
    if not epochs or epochs[0].start_offset >= first:
        raise UnknownStateError(
            "its leader epochs do not reach below its first segment, so that it is unknown which copies are of its log"
        )
    # Without its line in the checkpoint the first segment would count, which is above the log start.
    log_start = partition.checkpointed_log_start_offset
    return state_at(remote, epochs, first, log_start=log_start)


def _judge(replica: CheckedReplica) -> None:
    """Judges a replica by the snapshots on disk: one that is missing is no loss as long as another one, above it, is right."""
    path = replica.source.directory.path
    first = replica.first_offset
    remote = replica.remote
    assert remote is not None
    on_disk = [each for each in replica.snapshots if each.status is not None]
    snapshots = on_disk or replica.snapshots
    worst = replica.worst
    if worst is None:
        replica.verdict = ReplicaVerdict.INTACT if snapshots else ReplicaVerdict.UNKNOWN
        if snapshots:
            replica.reason = "its snapshots have what remote storage has"
        else:
            replica.reason = "its segments could not be replayed"
        replica.findings += _differing(on_disk, path)
        return
    replica.verdict = ReplicaVerdict.LOST
    assert replica.loss_cause is not None
    cause = CAUSES[replica.loss_cause]
    lost = pluralize(worst.lost_count, "producer")
    if worst.lost_open_transactions:
        open_text = f", {worst.lost_open_transactions} of them with an open transaction"
    else:
        open_text = ""
    incomplete = [each.offset for each in snapshots if each.lost_count]
    replica.reason = f"{lost}{open_text} lost at {worst.offset}, in {pluralize(len(incomplete), 'snapshot')}. {cause}"
    message = f"lost {lost}{open_text}, which wrote below its first segment"
    if worst.lost:
        message += f"; producer {worst.lost[0].producer_id}: {worst.lost[0].consequence}"
    message += f". {cause}"
    replica.findings.append(Finding("follower-lost-state", Severity.FINDING, path, message, first))
    replica.findings += _differing([each for each in on_disk if not each.lost_count], path)


def _differing(snapshots: Iterable[ReplicaSnapshot], path: str) -> list[Finding]:
    """Findings of the snapshots that lack no producer, and are wrong all the same."""
    return [
        Finding(
            "wrong-snapshot",
            Severity.FINDING,
            path,
            f"{each.status.value.replace('_', ' ')}: {each.reason}",
            each.offset,
            each.status.reason,
        )
        for each in snapshots
        if each.proven_wrong and each.status is not None
    ]
