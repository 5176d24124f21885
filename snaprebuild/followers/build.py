"""The directory of a follower that starts where remote storage ends, made before its broker starts (KIP-1023, KIP-405).

It does for a stopped broker what a running one does on the wire (``TierStateMachine``). The log begins after the copy that holds the offset
below the target, with the leader epochs and the producer snapshot of that copy. Brokers up to 4.4 lose that snapshot again when they do it
themselves; a broker that finds it at its start loads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from formats.broker.broker_files import Properties
from formats.partition.checkpoint_file import LeaderEpochEntry, OffsetCheckpointEntry, write_leader_epoch_checkpoint
from formats.partition.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_partition_dir_name,
    snapshot_file_name,
)
from formats.partition.partition_metadata import PartitionMetadata, uuid_to_text, write_partition_metadata
from formats.partition.producer_snapshot import write_entries
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.source_check.evidence import LogEvidence, SourceEvidence
from snaprebuild.cluster.source_check.evidence_collector import SourceRequest
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.cluster.source_check.producer_ids import foreign_producers, is_newer_than_log, producer_id_finding
from snaprebuild.cluster.source_check.source_verdicts import ReadLogs, SourceReplica, judge_sources
from snaprebuild.cluster.source_check.verdict import SourceRule, SourceVerdict
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.bootstrap_rules import AuxiliaryState, NotInRemoteStorageError, auxiliary_state
from snaprebuild.followers.remote_state import RemoteState, StateSource, remote_state
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.receipts.directory_receipt import DirectoryReceipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.storage.local.broker_lock import check_hold, hold
from snaprebuild.storage.local.new_directory import check_partition_directory, create_partition_directory
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.log_dir import directory_fault, is_log_dir, read_log_dir
from snaprebuild.storage.store import Ownership
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_log import LogLineage, highest_remote_offset
from snaprebuild.tier.remote_partition import RemoteChain, RemotePartition
from snaprebuild.tier.remote_store import Tier
from snaprebuild.typed_paths import with_meant

__all__ = [
    "BuildPlan",
    "BuildRequest",
    "BuiltFile",
    "build_findings",
    "build_follower",
    "check_build",
    "check_log_dir",
    "judge_target",
    "plan_build",
]


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The partition, and the start of its follower.

    Attributes:
        topic: name.
        partition: number.
        topic_id: 16 bytes; None for the only topic of that name.
        target_offset: end of what remote storage must hold; None for all that it holds, the earliest pending upload offset.
        log_start_offset: of the leader; None for the first offset in remote storage, if no copy is missing above it.
    """

    topic: str
    partition: int
    topic_id: bytes | None = None
    target_offset: int | None = None
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A file of the directory."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of its bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class BuildPlan:
    """The files that the follower starts with.

    Attributes:
        topic: name.
        partition: number.
        topic_id: 16 bytes.
        target_offset: everything below it is taken from remote storage.
        target_epoch: leader epoch of the offset below the target.
        next_offset: where it starts to fetch; its local log start and log end.
        log_start_offset: of its log.
        segment: the copy whose epochs and snapshot it takes.
        leader_epochs: of its log.
        state: the producers.
        warnings: what is assumed, or less certain than it looks.
    """

    topic: str
    partition: int
    topic_id: bytes
    target_offset: int
    target_epoch: int
    next_offset: int
    log_start_offset: int
    segment: RemoteSegment
    leader_epochs: tuple[LeaderEpochEntry, ...]
    state: RemoteState
    warnings: tuple[str, ...]

    @property
    def directory_name(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.topic}-{self.partition}"

    @property
    def files(self) -> tuple[BuiltFile, ...]:
        """The files that a broker leaves if it stops cleanly with an empty active segment: without indexes it would recover the segment."""
        base = f"{self.next_offset:020d}"
        snapshot = self.state.data if self.state.data is not None else write_entries(self.state.entries)
        return (
            BuiltFile(f"{base}.log", b""),
            BuiltFile(f"{base}.index", b""),
            BuiltFile(f"{base}.timeindex", b""),
            BuiltFile(snapshot_file_name(self.next_offset), snapshot),
            BuiltFile(LEADER_EPOCH_CHECKPOINT, write_leader_epoch_checkpoint(self.leader_epochs)),
            BuiltFile(PARTITION_METADATA, write_partition_metadata(PartitionMetadata(0, self.topic_id))),
        )

    @property
    def checkpoints(self) -> dict[str, OffsetCheckpointEntry]:
        """Lines for the checkpoints of the log directory, by file name, for the operator to add.

        Without that of the log start, a broker takes 0. All below the end is flushed, and was below the high watermark when it was copied.
        """
        offsets = {
            LOG_START_OFFSET_CHECKPOINT: self.log_start_offset,
            RECOVERY_POINT_CHECKPOINT: self.next_offset,
            REPLICATION_OFFSET_CHECKPOINT: self.next_offset,
        }
        return {name: OffsetCheckpointEntry(self.topic, self.partition, offset) for name, offset in offsets.items()}


def plan_build(
    tier: Tier,
    request: BuildRequest,
    run: Run,
    *,
    replays: bool = True,
    announce: Callable[[AuditCost], None] | None = None,
) -> BuildPlan:
    """Works out what a follower starts with. Writes nothing.

    Args:
        tier: remote storage.
        request: the partition.
        run: its clock is for expiry, when the snapshot is compared.
        replays: hold the snapshot against a replay of the copies.
        announce: called with the cost of the replay before it (``remote_state``).

    Raises:
        UsageError: remote storage has nothing of the partition, or no broker would start where it is asked for.
        RefusedError: no copy holds the offset below the target, or the right state there is unknown.
        ReadFailedError: objects are missing.
        FormatError: an object does not parse.
    """
    remote = tier.partition_named(request.topic, request.partition, request.topic_id)
    if remote is None:
        wanted = f"{request.topic}-{request.partition}"
        known = {f"{each.topic}-{each.partition}" for each in tier.partitions}
        raise UsageError(with_meant(f"has no copy of {wanted}", wanted, known), path=tier.base.path)
    newest = _newest(remote)
    log_epochs = remote.leader_epochs_at(newest)
    log_end = newest.end_offset + 1
    target = request.target_offset
    if target is None:
        target = highest_remote_offset(remote.log, log_epochs, log_end) + 1
    if target <= 0:
        raise UsageError(f"a follower that starts at {target} takes nothing from remote storage", path=remote.place)
    auxiliary = _auxiliary_state(remote, target, log_epochs, log_end)
    next_offset = auxiliary.next_offset
    epochs = remote.leader_epochs_at(auxiliary.segment)
    chain = remote.chain_below(epochs, next_offset)
    if not epochs or chain is None or epochs[-1].start_offset >= next_offset:
        copy = uuid_to_text(auxiliary.segment.segment_id)
        message = f"the leader epochs of the copy {copy} are not those of a log that ends after it"
        raise RefusedError(message, path=remote.place)
    log_start = request.log_start_offset
    if log_start is None:
        log_start = _log_start(remote, chain)
    _check_log_start(log_start, auxiliary, epochs, remote.place)
    state = remote_state(
        remote, epochs, next_offset, run, log_start=request.log_start_offset or 0, replays=replays, announce=announce
    )
    warnings = _warnings(tier, request, target, log_start, state, chain.ends_at)
    return BuildPlan(
        topic=remote.id.topic,
        partition=remote.id.partition,
        topic_id=remote.id.topic_id,
        target_offset=target,
        target_epoch=auxiliary.target_epoch,
        next_offset=next_offset,
        log_start_offset=log_start,
        segment=auxiliary.segment,
        leader_epochs=epochs,
        state=state,
        warnings=(*warnings, *(finding.message for finding in remote.findings)),
    )


def _auxiliary_state(
    remote: RemotePartition, target: int, log_epochs: tuple[LeaderEpochEntry, ...], log_end: int
) -> AuxiliaryState:
    """The copy that a follower takes its state from.

    Raises:
        RefusedError: no copy of this log holds the offset below the target.
    """
    epoch = epoch_of(log_epochs, target)
    try:
        auxiliary = auxiliary_state(target, log_epochs, log_end, -1 if epoch is None else epoch, remote.log)
    except NotInRemoteStorageError as error:
        raise RefusedError(f"{error}: remote storage ends at {log_end}", path=remote.place) from error
    if not LogLineage(log_epochs, log_end).holds(auxiliary.segment):
        copy = uuid_to_text(auxiliary.segment.segment_id)
        raise RefusedError(f"the copy {copy} is of a log that was truncated away", path=remote.place)
    return auxiliary


def _check_log_start(log_start: int, auxiliary: AuxiliaryState, epochs: tuple[LeaderEpochEntry, ...], place: str) -> None:
    """Makes sure that a follower may start with its log start there.

    Raises:
        UsageError: its broker would delete the snapshot.
        RefusedError: the leader epochs of the copy do not reach down to it.
    """
    if log_start >= auxiliary.next_offset:
        message = f"a broker deletes the snapshot at {auxiliary.next_offset}, because it is not above the log start {log_start}"
        raise UsageError(message, path=place)
    if epochs[0].start_offset > log_start:
        copy = uuid_to_text(auxiliary.segment.segment_id)
        message = (
            f"the leader epochs of the copy {copy} begin with {epochs[0].epoch} from {epochs[0].start_offset}, above the log start "
            f"{log_start}: if this follower led, Kafka would delete copies of earlier epochs"
        )
        raise RefusedError(message, path=place)


def build_follower(
    plan: BuildPlan, log_dir: str, *, receipt: DirectoryReceipt, log_dirs: Sequence[str] = (), allow_unproven: bool = False
) -> None:
    """Makes the directory, whole or not at all.

    Args:
        plan: from ``plan_build``.
        log_dir: that the directory goes to. The lock of a broker's is held meanwhile, so that none starts.
        receipt: of the run, which gets the directory before it has its name.
        log_dirs: all of the broker, where it is known which.
        allow_unproven: UNPROVEN producers may be written; UNSOUND ones never are.

    Raises:
        RefusedError: ``check_build`` refuses; or a broker runs here.
        StorageError: the directory cannot be written (``create_partition_directory``).
    """
    check_build(plan, log_dir, log_dirs=log_dirs, allow_unproven=allow_unproven)
    is_broker = is_log_dir(path_of(log_dir))
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(hold(log_dir)) if is_broker else None
        if lock is not None:
            lock.verify()
            _check_log_dirs(plan, log_dir, log_dirs)  # again, now that no broker can start
        files = {each.name: each.data for each in plan.files}
        announce = receipt.announcing(os.path.join(os.path.realpath(log_dir), plan.directory_name), files)
        create_partition_directory(log_dir, plan.directory_name, files, _owner_of(log_dir), announce=announce)
    receipt.close()


def check_build(plan: BuildPlan, log_dir: str, *, log_dirs: Sequence[str], allow_unproven: bool) -> None:
    """Makes sure that the directory may be made, and there.

    Args:
        plan: from ``plan_build``.
        log_dir: that the directory is to go to.
        log_dirs: all of the broker, where it is known which: a broker does not start with a partition in two of them.
        allow_unproven: UNPROVEN producers may be written; UNSOUND ones never are.

    Raises:
        UsageError: there is no such directory, or it is none of ``log_dirs``.
        RefusedError: it is no place for a partition; or it, or another of ``log_dirs``, has it already, or cannot be looked into;
            or what producers did is not proven.
        RefusedError: a broker runs here, or the owner cannot be kept.
        WriteFailedError: nothing can be created there.
    """
    judgement = plan.state.judgement
    if not judgement.snapshot_class.may_be_written(allow_unproven=allow_unproven):
        message = f"the producers at {plan.next_offset} are {judgement.snapshot_class.value}: {judgement.reasons[0]}"
        if judgement.snapshot_class is SnapshotClass.UNPROVEN:
            message += (
                " (--allow-unproven writes them all the same: a retry may be accepted as new, an open transaction be forgotten)"
            )
        raise RefusedError(message, path=plan.directory_name)
    check_log_dir(log_dir, plan.directory_name, log_dirs)
    _check_log_dirs(plan, log_dir, log_dirs)
    if is_log_dir(path_of(log_dir)):
        check_hold(log_dir)
    check_partition_directory(log_dir, _owner_of(log_dir))


def _owner_of(log_dir: str) -> Ownership:
    """Owner and group of the log directory, with the mode of the files of a broker."""
    status = os.stat(log_dir)
    return Ownership(status.st_uid, status.st_gid, 0o644)


def check_log_dir(log_dir: str, name: str, log_dirs: Sequence[str]) -> None:
    """Makes sure that a partition may be put into a directory, as far as names show.

    Args:
        log_dir: the directory.
        name: of the partition.
        log_dirs: all of the broker, where it is known which.

    Raises:
        UsageError: there is no such directory, or it is none of ``log_dirs``.
        RefusedError: it is no place for a partition, or has it already.
    """
    fault = directory_fault(log_dir)
    if fault is not None:
        raise UsageError(fault, path=log_dir)
    if parse_partition_dir_name(os.path.basename(os.path.realpath(log_dir))) is not None and LOCAL.holds_segments(log_dir):
        raise RefusedError("is the directory of a partition, not one that holds partitions", path=log_dir)
    if os.path.lexists(os.path.join(log_dir, name)):
        raise RefusedError("is there already: the follower is not empty", path=os.path.join(log_dir, name))
    own = os.path.realpath(log_dir)
    if log_dirs and all(os.path.realpath(each) != own for each in log_dirs):
        raise UsageError(f"is not one of the log.dirs of the broker, which are {', '.join(log_dirs)}", path=log_dir)


def _check_log_dirs(plan: BuildPlan, log_dir: str, log_dirs: Sequence[str]) -> None:
    own = os.path.realpath(log_dir)
    others = [each for each in log_dirs if os.path.realpath(each) != own]
    for other in others:
        fault = directory_fault(other)
        if fault is not None:
            raise RefusedError(f"{fault}: whether it has {plan.directory_name} is not known", path=other)
        path = os.path.join(other, plan.directory_name)
        if os.path.lexists(path):
            raise RefusedError("is there already, and a broker does not start with a partition in two log directories", path=path)


def _log_start(remote: RemotePartition, chain: RemoteChain) -> int:
    """Where the copies begin, if none is below: a log does not begin at a gap, and a broker would delete what is below it."""
    first = min(each.start_offset for each in remote.live)
    if first < chain.start_offset:
        message = f"copies follow one another from {chain.start_offset} on, and others begin at {first}: {chain.ends_at}"
        raise RefusedError(f"{message}. Give the leader's log start with --assume log_start", path=remote.place)
    return chain.start_offset


def build_findings(plan: BuildPlan, log_dir: str) -> list[Finding]:
    """Notes for the operator on the files that a follower starts with.

    Args:
        plan: of the follower.
        log_dir: that it goes to, absolute.
    """
    path = os.path.join(log_dir, plan.directory_name)
    findings = [*plan.state.findings]
    findings += (Finding("bootstrap-warning", Severity.NOTE, path, each) for each in plan.warnings)
    judgement = plan.state.judgement
    if not judgement.snapshot_class.is_allowed_in_place:
        message = f"its producers are {judgement.snapshot_class.value}: {judgement.reasons[0]}"
        findings.append(Finding("bootstrap-unproven", Severity.FINDING, path, message, plan.next_offset))
    return findings


def _newest(remote: RemotePartition) -> RemoteSegment:
    """The copy that reaches furthest in the newest leader epoch: its log is that of the leader."""
    finished = remote.live
    if not finished:
        raise RefusedError("holds no finished copy", path=remote.place)
    return max(finished, key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset))


def _warnings(tier: Tier, request: BuildRequest, target: int, log_start: int, state: RemoteState, ends_at: str) -> Sequence[str]:
    warnings = []
    if not tier.verified:
        warnings.append("which copies brokers have is not verified: give --metadata-log")
    if state.offset > target:
        warnings.append(f"{target} is inside of a copy: the follower starts after it, at {state.offset}")
    if request.log_start_offset is None:
        warnings.append(
            f"the log start is taken to be {log_start}, where remote storage begins; "
            "give the leader's with --assume log_start if it is higher"
        )
    elif log_start < state.first_offset:
        warnings.append(f"offsets {log_start} to {state.first_offset - 1} are in no copy that follows on: {ends_at}")
    if state.entries_source is not StateSource.SNAPSHOT:
        warnings.append(
            f"the snapshot is not that of the copy, which is {state.verdict}: {state.reason}; it was rebuilt from the copies"
        )
    if not state.judgement.snapshot_class.is_allowed_in_place:
        warnings.append(f"the snapshot is {state.judgement.snapshot_class.value}: {state.judgement.reasons[0]}")
    return warnings


# ---------------------------------------------------------------------------------------------------------------- the broker


def judge_target(
    plan: BuildPlan,
    log_dir: str,
    properties: Properties | None,
    metadata: str | None,
    run: Run,
    *,
    accept_own_log: bool = False,
    clock: Clock | None = None,
) -> tuple[SourceVerdict, list[Finding]]:
    """The verdict on a replica that does not exist yet, and findings of the evidence.

    Args:
        plan: of the follower.
        log_dir: that it is to go to, absolute.
        properties: of the broker, where they are known.
        metadata: location of the cluster's metadata log; None for the broker's own.
        run: how object stores are reached.
        accept_own_log: the operator accepts that only the broker's own metadata log shows when it registered last.
        clock: for producers that have expired. The producer ids are compared with the next one of the cluster; None to leave that out.

    Raises:
        RefusedError: the cluster has yet to give out producer ids of the copies: they came from another one.
        RefusedError: the broker is not to get it: not of this cluster, none of its replicas, another topic of this name.
        RefusedError: only its own metadata log shows whether the disk is an old copy, after an unclean stop.
        UsageError: what was named is no metadata log.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    logs = MetadataLogs(metadata, run)
    logs.named()
    state = read_log_dir(path_of(os.path.realpath(log_dir)))
    log_dirs = () if properties is None else log_dirs_of(properties)
    own = [os.path.realpath(each) for each in log_dirs if os.path.isdir(each)]
    path = os.path.join(log_dir, plan.directory_name)
    log = LogEvidence(path, plan.topic, plan.partition, topic_id=plan.topic_id, exists=False)
    request = SourceRequest(
        purpose=Purpose.BOOTSTRAP,
        logs=logs,
        log_dirs=[state, *(read_log_dir(path_of(each)) for each in own if each != state.path)],
        properties=properties,
        accept_own_log=accept_own_log,
    )
    replica = SourceReplica(path, plan.directory_name, state)
    verdicts = judge_sources(request, [replica], ReadLogs(lambda _: log))  # there is nothing to read yet
    (judged,) = verdicts.judged
    verdict = judged.verdict
    if (refusal := verdict.in_place_refusal(path)) is not None:
        raise RefusedError(refusal.message, path=path)
    if verdict.is_own_log_alone:
        raise RefusedError(f"{verdict}: {verdict.evidence_of(SourceRule.R10)} (rule R10)", path=path)
    read = judged.metadata.read
    if clock is not None and read is not None:
        evidence = verdicts.evidence_for(replica, replace(log, epochs=plan.leader_epochs))
        _refuse_foreign_producers(plan, path, read.image, evidence, clock)
    findings = verdicts.findings
    unknown = verdict.unknown_finding(path, Severity.FINDING, [each.message for each in findings])
    return verdict, findings if unknown is None else [*findings, unknown]


def _refuse_foreign_producers(plan: BuildPlan, path: str, image: MetadataImage, evidence: SourceEvidence, clock: Clock) -> None:
    foreign = foreign_producers(plan.state.entries, image, clock.as_of_ms, clock.expiration_ms)
    if foreign is not None and is_newer_than_log(evidence):
        raise RefusedError(producer_id_finding(path, [plan.directory_name], [foreign], Severity.REFUSED).message, path=path)
