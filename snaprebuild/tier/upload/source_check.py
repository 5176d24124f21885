"""Replicas as sources of uploads: the verdict that is asked before, and the fence that is asked while they go up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from formats.errors import FormatError
from snaprebuild.cluster.source.evidence import LogEvidence, Purpose
from snaprebuild.cluster.source.evidence_reader import log_evidence
from snaprebuild.cluster.source.metadata_logs import ClusterTruth, MetadataRead
from snaprebuild.cluster.source.verdict import Rule, SourceVerdict, judge
from snaprebuild.cluster.source.verifier import Judges, read_peers
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.source.source import PartitionSource, Selection
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.store import S3Settings
from snaprebuild.tier.upload.fence import BrokerIdentity, UploadFence

__all__ = ["UploadSources", "trusted_end"]


class UploadSources:
    """What an upload asks of the cluster.

    Attributes:
        judges: who judges, with what could not be asked.
        findings: what of the peers cannot be read.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionSource],
        metadata: str | None,
        settings: S3Settings,
        *,
        broker_epoch: int | None = None,
        is_leader_by_word: bool = False,
        peers: Sequence[str] = (),
        voters: tuple[tuple[int | None, str], ...] = (),
        voter_ids: tuple[int, ...] | None = None,
    ) -> None:
        """Reads the metadata log that was named, if one was.

        Args:
            partitions: of the run.
            metadata: location of the metadata log, None for each broker's own.
            settings: of object stores.
            broker_epoch: of a live broker, as the operator gave it.
            is_leader_by_word: the operator asserts that these replicas lead.
            peers: locations of other replicas.
            voters: metadata logs of other voters: what is not proven by a majority does not speak for a replica.
            voter_ids: ids of all voters; None for what the log says.

        Raises:
            UsageError: what was named is no metadata log.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
        """
        truth = ClusterTruth(metadata, settings, voters=voters, voter_ids=voter_ids)
        truth.named()
        self.judges = Judges(Purpose.UPLOAD, truth, broker_epoch, is_leader_by_word)
        self._settings = settings
        self.findings: list[Finding] = []
        self._peers = read_peers(peers, Selection(), settings, self.findings)
        self.judges.meet(list({each.log_dir.path: each.log_dir for each in partitions}.values()))
        self.judges.compare(self._compared(partitions))

    def _compared(self, partitions: Sequence[PartitionSource]) -> Iterator[tuple[LogDirState, LogEvidence]]:
        """The replicas that have a metadata log to be compared with. What cannot be read is a finding when it is judged."""
        for source in partitions:
            if isinstance(self.judges.metadata_of(source.log_dir), MetadataRead):
                with contextlib.suppress(SnaprebuildError, FormatError):
                    yield source.log_dir, log_evidence(source.directory, source.log_dir)

    def judge(self, source: PartitionSource) -> SourceVerdict:
        """The verdict on a replica. Its last stable offset is not asked: each segment is held to it."""
        log = log_evidence(source.directory, source.log_dir)
        return judge(self.judges.evidence(source.log_dir, log, self._peers.of(source.directory)))

    def fence(self, source: PartitionSource) -> UploadFence:
        """Who uploads a replica, and how to tell that it is no longer that."""
        state = source.log_dir
        meta, clean = state.meta, state.clean_shutdown
        node_id = None if meta is None else meta.node_id
        read = self.judges.metadata_of(state)
        marked = None if clean is None or (clean.broker_epoch or 0) < 0 else clean.broker_epoch
        epoch = self.judges.broker_epoch if self.judges.broker_epoch is not None else marked
        if epoch is None and isinstance(read, MetadataRead) and node_id is not None and node_id in read.image.brokers:
            epoch = read.image.brokers[node_id].epoch
        identity = BrokerIdentity(node_id, None if meta is None else meta.directory_id, epoch)
        if epoch is None or node_id is None:
            return UploadFence(identity)
        is_stopped = self.judges.broker_epoch is None and marked is not None
        return UploadFence(identity, partial(_epoch_now, read, node_id, state if is_stopped else None, self._settings, epoch))


def _epoch_now(read: MetadataRead | str, node_id: int, stopped: LogDirState | None, settings: S3Settings, epoch: int) -> int | None:
    """The broker epoch as it is now: of the clean-shutdown marker, while that is there, and of the registration."""
    if stopped is not None:
        clean = read_log_dir(stopped.path, stopped.store).clean_shutdown
        if clean is None or clean.broker_epoch != epoch:
            return None if clean is None else clean.broker_epoch
    return read.broker_epoch_now(node_id, epoch, settings) if isinstance(read, MetadataRead) else epoch


def trusted_end(verdict: SourceVerdict) -> int | None:
    """Below which offset the replica is trusted, but for the high watermark, to which each segment is held anyway; None for all."""
    limits = [each.ruling.limit for each in verdict.results if each.ruling.limit is not None and each.rule is not Rule.R11]
    return min(limits, default=None)
