"""Partitions in remote storage as logs that are read: alone, or below the log on disk.

The copies are those from which a broker with the log on disk serves reads: finished ones that its leader epochs lead to. They are read
below the first segment on disk, and the disk from there on, so that each offset is read once. Without a log on disk they are those that
the leader epochs of the newest copy lead to.

Only what is below the last stable offset is uploaded. So the end of the newest copy counts as the high watermark if there is no log on
disk. The marker of a transaction may be above it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.log_pieces import LogPiece, pieces_of
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.log_dir import read_topic_id
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.store import S3Settings, absolute
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.remote_partition import RemoteChain, RemotePartition
from snaprebuild.tier.remote_store import StoreAccess, Tier, open_tier

__all__ = ["RemoteRequest", "log_in_tier", "open_remote", "with_remote_copies"]


class RemoteRequest(msgspec.Struct, frozen=True):
    """Where remote storage is.

    Attributes:
        location: of the objects: a directory, or a prefix of an object store.
        metadata_logs: directories with partitions of ``__remote_log_metadata``.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.
        topic_ids: of topics of which the store has several of that name.
    """

    location: str
    metadata_logs: tuple[str, ...] = ()
    private_keys: PrivateKeys = NO_KEYS
    key_prefix: str = ""
    topic_ids: dict[str, bytes] = msgspec.field(default_factory=dict)


def open_remote(request: RemoteRequest, stores: S3Settings) -> Tier:
    """Lists the store, and reads the metadata log.

    Raises:
        UsageError: neither a copy nor a metadata log is there.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    root = path_of(absolute(request.location), stores)
    access = StoreAccess(root, request.metadata_logs, request.private_keys, request.key_prefix)
    return open_tier(access, stores)


def with_remote_copies(log: ChosenLog, tier: Tier, topic_id: bytes | None, *, tolerates_loss: bool) -> ChosenLog:
    """A log on disk with its copies below the first segment.

    Args:
        log: on disk.
        tier: the store.
        topic_id: 16 bytes; None for that of the directory.
        tolerates_loss: copies that cannot be read are left out, with a finding.

    Raises:
        UsageError: several topics had that name, and the directory has no topic id.
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    assert log.source is not None
    first = log.pieces[0].base_offset if log.pieces else log.log_end
    remote = tier.partition_named(log.topic, log.partition, topic_id or read_topic_id(log.source.directory))
    if remote is None or not first:
        return log
    epochs = log.epochs or _epochs_of_newest(remote)
    chains = _chains(remote, epochs, first)
    if not chains:
        return replace(log, findings=(*log.findings, *remote.findings))
    checkpointed = (log.source.log_dir.log_starts or {}).get(log.topic_partition)
    start = chains[0].start_offset if checkpointed is None else checkpointed
    if not log.source.can_be_tiered:
        message = "is compacted or internal, so that a broker has no remote storage for it, and a store has copies of it"
        raise RefusedError(message, path=log.place)
    copies = _Copies(tolerates_loss=tolerates_loss)
    return replace(
        log,
        pieces=(*copies.pieces(chains, first), *log.pieces),
        log_start=start,
        open_before=(),
        findings=(*log.findings, *remote.findings, *copies.findings),
    )


def log_in_tier(tier: Tier, partition: TopicIdPartition, *, tolerates_loss: bool) -> ChosenLog | None:
    """The log of a partition that is in remote storage alone; None if no finished copy of it is there.

    Args:
        tier: the store.
        partition: in it.
        tolerates_loss: copies that cannot be read are left out, with a finding.

    Raises:
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    remote = tier.partition(partition)
    newest = _newest(remote)
    if newest is None:
        return None
    end = newest.end_offset + 1
    chains = _chains(remote, _epochs_of_newest(remote), end)
    copies = _Copies(tolerates_loss=tolerates_loss)
    message = "only remote storage has this partition: its log start offset is not known, and it is read from its first copy on"
    return ChosenLog(
        topic=partition.topic,
        partition=partition.partition,
        place=remote.place,
        pieces=copies.pieces(chains, end),
        log_start=chains[0].start_offset if chains else end,
        log_end=end,
        high_watermark=end,
        may_have_gaps=False,
        open_before=(),
        epochs=(),
        findings=(*remote.findings, *copies.findings, Finding("records-of-remote-storage", Severity.NOTE, remote.place, message)),
    )


def _newest(remote: RemotePartition) -> RemoteSegment | None:
    """The live copy with the newest leader epoch, among several the one with the highest end."""
    live = remote.live
    return max(live, key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset)) if live else None


def _epochs_of_newest(remote: RemotePartition) -> tuple[LeaderEpochEntry, ...]:
    newest = _newest(remote)
    return () if newest is None else remote.leader_epochs_at(newest)


def _chains(remote: RemotePartition, epochs: Sequence[LeaderEpochEntry], end: int) -> list[RemoteChain]:
    """The copies below an offset, of the log with these leader epochs, ascending; there is a gap between two chains."""
    chains = []
    bound: int | None = end
    while bound is not None:
        chain = remote.chain_below(epochs, bound)
        if chain is not None:
            chains.append(chain)
            bound = chain.start_offset
        limit = bound
        bound = max((each.end_offset + 1 for each in remote.live if each.end_offset + 1 < limit), default=None)
    return chains[::-1]


class _Copies:
    """The copies of a partition as segments, and the findings about those that cannot be read."""

    def __init__(self, *, tolerates_loss: bool) -> None:
        self._tolerates_loss = tolerates_loss
        self.findings: list[Finding] = []

    def pieces(self, chains: Sequence[RemoteChain], end: int) -> tuple[LogPiece, ...]:
        """The segments, each up to the start of the next one.

        Raises:
            ReadFailedError, FormatError: a copy cannot be read, and no loss is tolerated.
            RefusedError: a copy is encrypted for a key that was not given, or a limit of the run is used up.
        """
        ids: dict[int, str] = {}
        segments: list[SegmentFiles] = []
        for chain in chains:
            for segment in chain.segments:
                segments += self._files(chain, segment)
                ids[segment.start_offset] = uuid_to_text(segment.segment_id)
        if not segments:
            return ()
        directory = chains[-1].remote.directory(segments)
        return tuple(replace(each, origin=ids[each.base_offset], is_last=False) for each in pieces_of(directory, 0, end))

    def _files(self, chain: RemoteChain, segment: RemoteSegment) -> tuple[SegmentFiles, ...]:
        try:
            return chain.source([segment]).directory.segments
        except (FormatError, ReadFailedError) as error:
            if not self._tolerates_loss:
                raise
            self.findings.append(finding_of_error(error, chain.remote.place))
            return ()
