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

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.log_pieces import LogPiece, pieces_of
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.storage.log_dir import read_topic_id
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
    """

    location: str
    metadata_logs: tuple[str, ...] = ()
    private_keys: PrivateKeys = NO_KEYS
    key_prefix: str = ""


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


def with_remote_copies(log: ChosenLog, tier: Tier) -> ChosenLog:
    """A log on disk with its copies below the first segment.

    Raises:
        UsageError: several topics had that name, and the directory has no topic id.
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    assert log.source is not None
    first = log.pieces[0].base_offset if log.pieces else log.log_end
    remote = tier.partition_named(log.topic, log.partition, read_topic_id(log.source.directory))
    if remote is None or not first:
        return log
    epochs = log.epochs or _epochs_of_newest(remote)
    chain = remote.chain_below(epochs, first)
    findings = (*log.findings, *remote.findings)
    if chain is None:
        return replace(log, findings=findings)
    checkpointed = (log.source.log_dir.log_starts or {}).get(log.topic_partition)
    start = chain.start_offset if checkpointed is None else checkpointed
    if not log.source.can_be_tiered:
        message = "is compacted or internal, so that a broker has no remote storage for it, and a store has copies of it"
        raise RefusedError(message, path=log.place)
    return replace(
        log,
        pieces=(*_pieces_of_chain(chain, first), *log.pieces),
        log_start=start,
        open_before=(),
        findings=findings,
    )


def log_in_tier(tier: Tier, partition: TopicIdPartition) -> ChosenLog | None:
    """The log of a partition that is in remote storage alone; None if no finished copy of it is there.

    Raises:
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    remote = tier.partition(partition)
    newest = _newest(remote)
    if newest is None:
        return None
    end = newest.end_offset + 1
    chain = remote.chain_below(_epochs_of_newest(remote), end)
    assert chain is not None, "the newest copy is one of them"
    message = "only remote storage has this partition: its log start offset is not known, and it is read from its first copy on"
    return ChosenLog(
        topic=partition.topic,
        partition=partition.partition,
        place=remote.place,
        pieces=_pieces_of_chain(chain, end),
        log_start=chain.start_offset,
        log_end=end,
        high_watermark=end,
        may_have_gaps=False,
        open_before=(),
        epochs=(),
        findings=(*remote.findings, Finding("records-of-remote-storage", Severity.NOTE, remote.place, message)),
    )


def _newest(remote: RemotePartition) -> RemoteSegment | None:
    """The live copy with the newest leader epoch, among several the one with the highest end."""
    live = remote.live
    return max(live, key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset)) if live else None


def _epochs_of_newest(remote: RemotePartition) -> tuple[LeaderEpochEntry, ...]:
    newest = _newest(remote)
    return () if newest is None else remote.leader_epochs_at(newest)


def _pieces_of_chain(chain: RemoteChain, end: int) -> tuple[LogPiece, ...]:
    """The copies as segments, each up to the start of the next one."""
    directory = chain.source(chain.segments).directory
    pieces = pieces_of(directory, 0, end)
    return _named_by_copy(pieces, chain.segments)


def _named_by_copy(pieces: Sequence[LogPiece], segments: Sequence[RemoteSegment]) -> tuple[LogPiece, ...]:
    ids = {each.start_offset: uuid_to_text(each.segment_id) for each in segments}
    return tuple(replace(piece, origin=ids[piece.base_offset], is_last=False) for piece in pieces)
