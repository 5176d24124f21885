"""Reads the files of a replica as evidence for the rules of a verdict. A file that cannot be read is a finding; its facts are unknown."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import META_PROPERTIES, DirectoryForm
from snaprebuild.broker.partition_facts import FactsReader
from snaprebuild.broker.partition_fates import CURRENT_MAGIC
from snaprebuild.broker.start_facts import Shutdown
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, LogEvidence, PeerEvidence
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.snapshots.engine.log_facts import LogTail, log_tail
from snaprebuild.snapshots.run import RunFacts
from snaprebuild.snapshots.source.source import is_cleaner_at_work
from snaprebuild.storage.log_dir import LogDirState, kind_of, read_leader_epochs, read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["brokers_of", "log_dir_evidence", "log_evidence", "peer_evidence"]

Value = TypeVar("Value")


def log_dir_evidence(
    state: LogDirState, siblings: Sequence[LogDirState] = (), live_epoch: int | None = None, *, locks: RunFacts | None
) -> LogDirEvidence:
    """The evidence of a log directory about its broker.

    Args:
        state: its small files.
        siblings: the other log directories of that broker.
        live_epoch: the broker epoch of a live broker, as the operator gave it.
        locks: show whether a broker holds it; None to take it for stopped.
    """
    clean = state.clean_shutdown
    place = os.path.join(state.path, META_PROPERTIES)
    epoch = None if clean is None else clean.broker_epoch
    return LogDirEvidence(
        path=state.path,
        is_broker_directory=state.is_broker_directory,
        has_meta=state.meta is not None,
        kind=kind_of(state.meta),
        meta_fault=next((fault for fault in state.faults if place in fault), None),
        node_id=state.node_id,
        cluster_id=state.cluster_id,
        directory_id=state.directory_id,
        has_marker=clean is not None,
        marker_epoch=epoch if epoch is not None and epoch >= 0 else None,
        is_marker_unregistered=epoch is not None and epoch < 0,
        is_live=(live_epoch is not None and clean is None) or (locks is not None and _is_held(state, locks)),
        live_epoch=live_epoch,
        siblings=tuple(log_dir_evidence(sibling, locks=None) for sibling in siblings),
        faults=state.faults,
    )


def _is_held(state: LogDirState, locks: RunFacts) -> bool:
    if not state.store.is_local or not state.is_broker_directory:
        return False
    try:
        return locks.holder(state.path) is not None
    except RefusedError:
        return False  # what writes asks again, and refuses


def log_evidence(
    directory: PartitionDir,
    state: LogDirState,
    *,
    log_end_offset: int | None = None,
    last_stable_offset: int | None = None,
    asks_stable: bool = False,
) -> LogEvidence:
    """The evidence of a partition directory.

    Args:
        directory: the listing.
        state: the small files of its log directory.
        log_end_offset: end of its last whole batch, where that was read before; else, and where it has no leader epochs, its tail is read.
        last_stable_offset: None if it is not known.
        asks_stable: it was looked for: without it, it could not be found.
    """
    faults: list[str] = []
    bases = tuple(directory.base_offsets)
    epochs = _read(read_leader_epochs, directory, faults)
    # Only the tail shows whether there should be leader epochs.
    tail = _read(log_tail, directory, faults) if bases and (log_end_offset is None or not epochs) else None
    # The lines of checkpoints go by topic and partition: a directory that is set aside or deleted has none of its own.
    name = directory.topic_partition if directory.name.form in (DirectoryForm.PLAIN, DirectoryForm.FUTURE) else ""
    swapped = None
    if directory.swapped and not is_cleaner_at_work(directory):
        swapped = directory.swapped[0]
    return LogEvidence(
        path=directory.path,
        topic=directory.name.topic,
        partition=directory.name.partition,
        form=directory.name.form,
        swapped=swapped,
        topic_id=_read(read_topic_id, directory, faults),
        bases=bases,
        log_end_offset=log_end_offset if tail is None else tail.end_offset,
        high_watermark=(state.high_watermarks or {}).get(name),
        recovery_point=(state.recovery_points or {}).get(name),
        log_start_offset=(state.log_starts or {}).get(name, 0),
        epochs=epochs,
        tail_epoch=None if tail is None else tail.leader_epoch,
        is_uncovered=bool(epochs) and _is_uncovered(directory, state, epochs or ()),
        tail_timestamp_ms=_appended_ms(directory, tail),
        last_stable_offset=last_stable_offset,
        is_stable_asked=asks_stable,
        is_compacted=name in (state.cleaner_points or {}),
        faults=tuple(faults),
    )


def _is_uncovered(directory: PartitionDir, state: LogDirState, epochs: tuple[LeaderEpochEntry, ...]) -> bool:
    shutdown = Shutdown.CLEAN if state.was_shut_down_cleanly else Shutdown.UNCLEAN
    return FactsReader(directory, state, shutdown).uncovered_magic(epochs) == CURRENT_MAGIC


def _appended_ms(directory: PartitionDir, tail: LogTail | None) -> int | None:
    """When the last batches were appended at the latest: also where a producer's clock is ahead, not after the file's last change."""
    if tail is None or tail.max_timestamp_ms is None or tail.max_timestamp_ms < 0:
        return None
    return min(tail.max_timestamp_ms, directory.segments[-1].log.identity.modified_ns // 1_000_000)


def peer_evidence(directory: PartitionDir, state: LogDirState) -> PeerEvidence:
    """The evidence of another replica."""
    log = log_evidence(directory, state)
    start = log.bases[0] if log.bases else None
    return PeerEvidence(directory.path, state.cluster_id, log.topic_id, log.epochs, start, log.log_end_offset)


def _read(read: Callable[[PartitionDir], Value], directory: PartitionDir, faults: list[str]) -> Value | None:
    try:
        return read(directory)
    except (ReadFailedError, FormatError) as error:
        faults.append(str(error))
        return None


def brokers_of(
    states: Sequence[LogDirState], log_dirs: Collection[str], named: Collection[str]
) -> dict[str, tuple[LogDirState, ...]]:
    """The other log directories of the same broker, by the path of each.

    Args:
        states: log directories, of whatever brokers.
        log_dirs: paths that are the ``log.dirs`` of one broker, by its configuration. For all others equal ids decide.
        named: paths that were named one by one. Those of the same cluster and broker id belong together although they have no directory
            ids, as before 3.7. Two directories of different clusters do not belong to one broker, although an operator names both.

    Copies of one disk, which share its directory id, are of different moments of a broker, and are not siblings. A directory of a broker
    whose ``meta.properties`` is missing or cannot be read may be of any broker, and counts as a sibling of each.
    """

    def is_sibling(state: LogDirState, other: LogDirState) -> bool:
        paths = {state.path, other.path}
        if len(paths) < 2:
            return False
        if _are_of_one_broker(state, other) or (other.meta is None and other.is_broker_directory):
            return True
        belong_together = paths.issubset(log_dirs) or (paths.issubset(named) and _are_alike(state, other))
        return belong_together and not _are_copies(state, other)

    return {state.path: tuple(other for other in states if is_sibling(state, other)) for state in states}


def _are_copies(state: LogDirState, other: LogDirState) -> bool:
    mine = state.meta
    theirs = other.meta
    return mine is not None and theirs is not None and mine.directory_id is not None and mine.directory_id == theirs.directory_id


def _are_alike(state: LogDirState, other: LogDirState) -> bool:
    mine = state.meta
    theirs = other.meta
    return mine is not None and theirs is not None and (mine.cluster_id, mine.node_id) == (theirs.cluster_id, theirs.node_id)


def _are_of_one_broker(state: LogDirState, other: LogDirState) -> bool:
    mine = state.meta
    theirs = other.meta
    ids = () if mine is None or theirs is None else (mine.directory_id, theirs.directory_id, mine.cluster_id, mine.node_id)
    return bool(ids) and None not in ids and _are_alike(state, other) and not _are_copies(state, other)
