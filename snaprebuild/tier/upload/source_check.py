"""Replicas as sources of uploads: the verdict before the upload, and the fence during it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from formats.partition.producer_snapshot import read_entries
from snaprebuild.cluster.source_check.evidence_collector import SourceRequest, read_peers
from snaprebuild.cluster.source_check.evidence_reader import log_evidence
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.cluster.source_check.producer_ids import (
    foreign_producers,
    is_newer_than_log,
    newest_entries,
    producer_id_finding,
)
from snaprebuild.cluster.source_check.source_verdicts import ReadLogs, judge_sources, replica_of
from snaprebuild.cluster.source_check.verdict import SourceRule, SourceVerdict
from snaprebuild.errors import UploadRefusalReason, UploadRefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.tier.upload.fence import BrokerIdentity, UploadFence

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead
    from snaprebuild.snapshots.run import Run

__all__ = ["UploadSources", "check_trusted", "source_refusal"]


class UploadSources:
    """The facts of the cluster that an upload needs."""

    def __init__(
        self,
        partitions: Sequence[PartitionSource],
        metadata: str | None,
        run: Run,
        *,
        broker_epoch: int | None = None,
        i_am_the_leader: bool = False,
        accept_own_log: bool = False,
        peers: Sequence[str] = (),
        voters: tuple[tuple[int | None, str], ...] = (),
        voter_ids: tuple[int, ...] | None = None,
    ) -> None:
        """Reads the metadata log that was named, if one was.

        Args:
            partitions: of the run.
            metadata: location of the metadata log, None for each broker's own.
            run: how object stores are reached.
            broker_epoch: of a live broker, as the operator gave it.
            i_am_the_leader: the operator asserts that these replicas lead.
            accept_own_log: the operator accepts that only a broker's own metadata log shows when it registered last.
            peers: locations of other replicas.
            voters: metadata logs of other voters: what is not proven by a majority does not speak for a replica.
            voter_ids: ids of all voters; None for those in the log.

        Raises:
            UsageError: what was named is no metadata log.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
        """
        logs = MetadataLogs(metadata, run, voters=voters, voter_ids=voter_ids)
        logs.named()
        self._broker_epoch = broker_epoch
        request = SourceRequest(
            purpose=Purpose.UPLOAD,
            logs=logs,
            log_dirs=list({each.log_dir.path: each.log_dir for each in partitions}.values()),
            peers=read_peers(peers, Selection(), run.stores),
            broker_epoch=broker_epoch,
            i_am_the_leader=i_am_the_leader,
            accept_own_log=accept_own_log,
        )
        directories = {each.directory.path: each.directory for each in partitions}
        # The last stable offset is not asked: each segment is held to it.
        read = ReadLogs(lambda replica: log_evidence(directories[replica.path], replica.log_dir))
        later = [replica_of(each.directory, each.log_dir) for each in partitions]
        self._verdicts = judge_sources(request, (), read, later=later)

    @property
    def findings(self) -> list[Finding]:
        """About files of the peers, and metadata logs, that cannot be read or are no evidence; more as replicas are judged."""
        return self._verdicts.findings

    def judge(self, source: PartitionSource) -> SourceVerdict:
        """The verdict on a replica as it is now, when its upload begins.

        Raises:
            SnaprebuildError: it cannot be read.
            FormatError: it is damaged.
        """
        return self._verdicts.judge_now(replica_of(source.directory, source.log_dir)).verdict

    def foreign_producers(self, source: PartitionSource, snapshot: bytes | None, *, now_ms: int) -> Finding | None:
        """The refusal of a replica with producer ids that the cluster has yet to give out; None for every other one.

        Args:
            source: the replica.
            snapshot: of the segment that follows; None for the newest one on disk.
            now_ms: the clock, ms since 1970, for producers that have expired.
        """
        read = self._verdicts.compared.metadata_of(source.log_dir).read
        if read is None:
            return None
        entries = newest_entries(source.directory) if snapshot is None else read_entries(snapshot)
        foreign = foreign_producers(entries, read.image, now_ms)
        if foreign is None:
            return None
        log = log_evidence(source.directory, source.log_dir)
        evidence = self._verdicts.evidence_for(replica_of(source.directory, source.log_dir), log)
        if not is_newer_than_log(evidence):
            return None
        return producer_id_finding(source.directory.path, [source.directory.topic_partition], [foreign], Severity.REFUSED)

    def fence(self, source: PartitionSource) -> UploadFence:
        """The broker that uploads a replica, and how to see that it registered again."""
        state = source.log_dir
        node_id = state.node_id
        read = self._verdicts.compared.metadata_of(state).read
        marked = state.marked_epoch
        epoch = self._broker_epoch if self._broker_epoch is not None else marked
        if epoch is None and read is not None and node_id is not None and node_id in read.image.brokers:
            epoch = read.image.brokers[node_id].epoch
        identity = BrokerIdentity(node_id, state.directory_id, epoch)
        if epoch is None or node_id is None:
            return UploadFence(identity)
        is_stopped = self._broker_epoch is None and marked is not None
        return UploadFence(identity, partial(_epoch_now, read, node_id, state if is_stopped else None, epoch))


def _epoch_now(read: MetadataRead | None, node_id: int, stopped: LogDirState | None, epoch: int) -> int | None:
    """The broker epoch as it is now: of the clean-shutdown marker, while that is there, and of the registration."""
    if stopped is not None:
        clean = read_log_dir(stopped.place).clean_shutdown
        if clean is None or clean.broker_epoch != epoch:
            return None if clean is None else clean.broker_epoch
    return read.broker_epoch_now(node_id, epoch) if read is not None else epoch


def source_refusal(verdict: SourceVerdict, path: str) -> Finding | None:
    """Why a replica is no source; None if it is one."""
    refusal = verdict.rejection_finding(path) if verdict.is_rejected else verdict.confirmation_finding(path, Severity.REFUSED)
    if refusal is None and verdict.unknown_rules:
        refusal = verdict.unknown_finding(path, Severity.REFUSED)
    return refusal


def check_trusted(verdict: SourceVerdict | None, end_offset: int, path: str) -> None:
    """Makes sure that a segment ends below the offset up to which the replica is trusted.

    Rule R11 is left out: its limit is the high watermark, which each segment is compared with anyway.

    Args:
        verdict: on the replica; None if none was asked for.
        end_offset: last offset of the segment.
        path: of the segment, for the message.

    Raises:
        UploadRefusedError: it does not.
    """
    results = () if verdict is None else (each for each in verdict.results if each.rule is not SourceRule.R11)
    limits = [(each.trusted_below, each.evidence) for each in results if each.trusted_below is not None]
    if limits and end_offset >= (least := min(limits, key=lambda each: each[0]))[0]:
        message = f"ends above {least[0]}, below which the replica is trusted: {least[1]}"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.ABOVE_TRUSTED_OFFSET)
