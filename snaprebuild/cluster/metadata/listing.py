"""Finds a metadata log directory and lists it, with the values of its small files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from formats import limits
from formats.errors import FormatError
from formats.metadata.quorum_state import read_quorum_state
from formats.partition.checkpoint_file import read_leader_epoch_checkpoint
from formats.partition.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    QUORUM_STATE,
    FileKind,
    FileSuffix,
    parse_file_name,
    parse_partition_dir_name,
)
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog, MetadataSegment
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage.log_dir import directory_fault, find_partitions
from snaprebuild.storage.partition_dir import ENTRIES_MAX
from snaprebuild.storage.store import USUAL_S3, FileIdentity, S3Settings, Store, absolute
from snaprebuild.storage.stores import store_of

__all__ = ["METADATA_DIRECTORY", "open_metadata_log"]

Content = TypeVar("Content")

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


def open_metadata_log(location: str, settings: S3Settings = USUAL_S3, deadline: float | None = None) -> MetadataLog:
    """Lists a metadata log.

    Args:
        location: ``__cluster_metadata-0``, a copy of it under any name, or a directory above, that holds one such log.
        settings: of object stores.
        deadline: of what is read of it later (``MetadataLog.deadline``).

    Raises:
        UsageError: there is no such directory, it holds no metadata log or several, or is the partition of another topic.
        ReadFailedError: it cannot be listed.
    """
    store = store_of(location, settings)
    if store.is_local and (fault := directory_fault(location)) is not None:
        raise UsageError(fault, path=location)
    return _list(_found(absolute(location), store, settings), store, deadline)


def _found(path: str, store: Store, settings: S3Settings) -> str:
    """The directory itself."""
    own_name = parse_partition_dir_name(os.path.basename(path))
    if any(_is_of_metadata_log(name) for name in store.names_in(path)):
        if own_name is not None and own_name.topic != METADATA_TOPIC:
            raise UsageError(f"is a partition of {own_name.topic}, not {METADATA_DIRECTORY}", path=path)
        return path
    below = os.path.join(path, METADATA_DIRECTORY)
    if store.names_in(below):
        return below
    found = [
        each.path
        for log_dir in find_partitions([path], settings).log_dirs
        for each in log_dir.partitions
        if each.name.topic == METADATA_TOPIC
    ]
    if not found:
        raise UsageError(f"holds no {METADATA_DIRECTORY}", path=path)
    if len(found) > 1:
        raise UsageError(f"holds several metadata logs, name one of them: {', '.join(found[:5])}", path=path)
    return found[0]


def _is_of_metadata_log(name: str) -> bool:
    known = parse_file_name(name)
    return known is not None and known.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT, FileKind.QUORUM_STATE)


def _list(path: str, store: Store, deadline: float | None) -> MetadataLog:
    segments: list[MetadataSegment] = []
    checkpoints: list[MetadataCheckpoint] = []
    names: dict[str, list[str]] = {kind: [] for kind in ("part", "deleted", "misnamed", "snapshot", "other", "unreadable")}
    regular = {name: status for name, status in store.list_below(path) if "/" not in name}
    everything = store.names_in(path)
    if len(everything) > ENTRIES_MAX:
        raise ReadFailedError(f"has more than {ENTRIES_MAX} files", path=path)
    for name in sorted(everything):
        known, status = parse_file_name(name), regular.get(name)
        place = os.path.join(path, name)
        if known is None:
            names["misnamed" if name.endswith((".checkpoint", ".checkpoint.part")) else "other"].append(name)
        elif known.suffix is not FileSuffix.NONE:
            names["deleted" if known.suffix is FileSuffix.DELETED else "misnamed"].append(name)
        elif known.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT):
            if status is None:
                names["unreadable"].append(name)
            elif known.kind is FileKind.LOG:
                assert known.offset is not None
                segments.append(MetadataSegment(known.offset, place, FileIdentity.of(status)))
            else:
                assert known.offset is not None
                assert known.epoch is not None
                checkpoints.append(MetadataCheckpoint(known.offset, known.epoch, place, FileIdentity.of(status)))
        elif known.kind in _KINDS:
            names[_KINDS[known.kind]].append(name)
    epochs, epochs_fault = _small_file(store, path, LEADER_EPOCH_CHECKPOINT, read_leader_epoch_checkpoint)
    state, state_fault = _small_file(store, path, QUORUM_STATE, read_quorum_state)
    return MetadataLog(
        path=path,
        segments=tuple(segments),
        checkpoints=tuple(sorted(checkpoints, key=lambda each: each.order)),
        part_files=tuple(names["part"]),
        deleted_files=tuple(names["deleted"]),
        misnamed_files=tuple(names["misnamed"]),
        unreadable_files=tuple(names["unreadable"]),
        producer_snapshots=tuple(names["snapshot"]),
        other_files=tuple(names["other"]),
        leader_epochs=epochs,
        leader_epochs_fault=epochs_fault,
        quorum_state=state,
        quorum_state_fault=state_fault,
        store=store,
        deadline=deadline,
    )


def _small_file(store: Store, directory: str, name: str, read: Callable[..., Content]) -> tuple[Content | None, FormatError | None]:
    """What a file says, None where it is absent; and why it cannot be read."""
    path = os.path.join(directory, name)
    data = store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
    try:
        return None if data is None else read(data, file=path), None
    except FormatError as error:
        return None, error


_KINDS = {
    FileKind.KRAFT_CHECKPOINT_PART: "part",
    FileKind.PRODUCER_SNAPSHOT: "snapshot",
    FileKind.PRODUCER_SNAPSHOT_TEMPORARY: "other",
    FileKind.MISNAMED_SNAPSHOT: "misnamed",
    FileKind.MISNAMED_SEGMENT_FILE: "misnamed",
}
