"""Replicas as sources of uploads: the verdict that is asked before, and the fence that is asked while they go up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from snaprebuild.cluster.source_evidence import Purpose
from snaprebuild.cluster.source_verdict import Rule, SourceVerdict
from snaprebuild.operations.findings import Finding
from snaprebuild.operations.log_facts import known_log_end
from snaprebuild.operations.source import PartitionSource, Selection
from snaprebuild.operations.upload_fence import BrokerIdentity, UploadFence
from snaprebuild.operations.verdict.cluster_truth import ClusterTruth, MetadataRead
from snaprebuild.operations.verdict.judges import Judges, named_only
from snaprebuild.operations.verdict.peers import read_peers
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.store import S3Settings

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
    ) -> None:
        """Reads the metadata log that was named, if one was.

        Args:
            partitions: of the run.
            metadata: location of the metadata log, None for each broker's own.
            settings: of object stores.
            broker_epoch: of a live broker, as the operator says.
            is_leader_by_word: likewise, that these replicas lead.
            peers: locations of other replicas.

        Raises:
            UsageError: what was named is no metadata log.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
        """
        truth = ClusterTruth(metadata, settings)
        truth.named()
        self.judges = Judges(Purpose.UPLOAD, truth, broker_epoch, is_leader_by_word)
        self._settings = settings
        self.findings: list[Finding] = []
        self._peers = read_peers(peers, Selection(), settings, self.findings)
        self.judges.meet(list({each.log_dir.path: each.log_dir for each in partitions}.values()))

    def judge(self, source: PartitionSource) -> SourceVerdict:
        """The verdict on a replica. Its last stable offset is not asked: each segment is held to it."""
        known = self.judges.know(source.log_dir, named_only(source.directory), self._peers.of(source.directory))
        return known.judged(source.directory, source.log_dir, known_log_end(source.directory) or None)

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
