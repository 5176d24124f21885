"""Where snapshots go: next to their segments, or below a directory that no broker reads (``--out``, ``--to``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

from formats.partition.file_names import parse_file_name
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.local.hard_links import mount_of
from snaprebuild.storage.local.log_dir_guard import CERTAIN_FILES
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import ABOVE_BUCKETS, is_object
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import local_map

__all__ = ["check_output", "staged_directories", "target_directories", "without_output"]


def without_output(partitions: tuple[PartitionSource, ...], out: str) -> tuple[PartitionSource, ...]:
    """The partitions that are a source: what an earlier run left below it is its output, no input."""
    out = _real(out)
    return tuple(each for each in partitions if each.directory.segments or not _is_in(_real(each.directory.path), out))


def target_directories(out: str | None, partitions: tuple[PartitionSource, ...]) -> dict[str, str]:
    """Where each partition's snapshots go: ``DIR/<topic-partition>`` if that is unique, else by the path below the sources for all."""
    if out is None:
        return {partition.directory.path: partition.directory.path for partition in partitions}
    names = [partition.directory.topic_partition for partition in partitions]
    if len(set(names)) == len(names):
        return {partition.directory.path: os.path.join(out, partition.directory.topic_partition) for partition in partitions}
    return {partition.directory.path: os.path.join(out, partition.relative) for partition in partitions}


def staged_directories(stage: Sequence[str], source: Source) -> dict[str, str]:
    """Where the snapshots of each partition are built, by the path of its directory.

    Args:
        stage: the directories that were asked for; the first one on the file system of a partition is taken.
        source: the partitions.

    Raises:
        RefusedError: one is in a directory of a broker, which would not start with it.
        UsageError: one is no directory, or none is on the file system of a partition.
        ReadFailedError: that cannot be read.
    """
    configured = () if source.properties is None else map(os.path.realpath, log_dirs_of(source.properties))
    log_dirs = sorted({*configured, *(state.path for state in source.log_dirs if state.is_broker_directory)})
    for directory in stage:
        for log_dir in log_dirs:
            if _is_in(os.path.realpath(directory), log_dir):
                message = f"--to leads into the log directory {log_dir}: with an unknown directory in it no broker starts"
                raise RefusedError(message, path=directory)
    mounts = [(mount_of(directory), directory) for directory in stage]
    by_stage: dict[str, list[PartitionSource]] = {}
    chosen: dict[str, str] = {}
    for partition in source.partitions:
        log_dir = partition.log_dir.path
        if log_dir not in chosen:
            mount = mount_of(log_dir)
            directory_there = next((directory for each, directory in mounts if each == mount), None)
            if directory_there is None:
                message = "no --to directory is on its file system, so no link is possible: name another one (--to is repeatable)"
                raise UsageError(message, path=log_dir)
            chosen[log_dir] = directory_there
        by_stage.setdefault(chosen[log_dir], []).append(partition)
    targets: dict[str, str] = {}
    for directory, partitions in by_stage.items():
        # Neither a broker nor a command that looks below this place takes them for partitions.
        own = {path: f"{target}.staged" for path, target in target_directories(directory, tuple(partitions)).items()}
        check_output(StorePath(LOCAL, directory), own.values(), partitions, option="--to")
        targets |= own
    return targets


def check_output(out: StorePath, targets: Iterable[str], partitions: Iterable[PartitionSource], *, option: str = "--out") -> None:
    """A directory that a broker does not know keeps it from starting, so nothing foreign is put where one may run.

    In an object store no broker runs; but the files there may be a copy that is put back one day.

    Args:
        out: the directory asked for.
        targets: the one for each partition, in the same store.
        partitions: that are read.
        option: that asked for it.

    Raises:
        UsageError: ``out`` is no directory.
        RefusedError: it is in a directory of a broker.
        ReadFailedError: an object store cannot be listed.
    """
    above = out.path
    while out.is_local and not os.path.lexists(above):
        above = os.path.dirname(above)
    if out.is_local and not os.path.isdir(above):
        raise UsageError(f"{option} leads there, and it is not a directory", path=above)
    own = {_real(partition.directory.path) for partition in partitions}
    has_broker_files: dict[str, bool] = {}
    places = [out.at(target) for target in sorted({_real(target) for target in targets})]
    # One listing of each target answers both questions about it; directories above are asked for once.
    for target, names in zip(places, local_map([out.store])(_names_in, places), strict=True):
        has_broker_files[target.path] = not names.isdisjoint(CERTAIN_FILES)
        holds_segments = any(name.endswith(".log") and parse_file_name(name) is not None for name in names)
        inside = next((above for above in _upwards(target.path) if above in own), None)
        inside = inside or (target.path if holds_segments else _broker_directory_above(target, has_broker_files))
        if inside is not None:
            raise RefusedError(
                f"{option} leads into {inside}, where its files would disturb a broker. Name a directory outside of it",
                path=out.path,
            )


def _names_in(target: StorePath) -> frozenset[str]:
    try:
        return target.names()
    except ReadFailedError:
        if not target.is_local:
            raise
        return frozenset()


def _real(location: str) -> str:
    return location if is_object(location) else os.path.realpath(location)


def _upwards(location: str) -> Iterator[str]:
    """A location and everything above it, up to the root or the bucket."""
    yield location
    while (above := os.path.dirname(location)) not in (location, ABOVE_BUCKETS):
        location = above
        yield location


def _broker_directory_above(target: StorePath, has_broker_files: dict[str, bool]) -> str | None:
    """The log directory of any broker, selected or not, that a target is in; None where it is in none.

    Args:
        target: the directory.
        has_broker_files: whether directories are those of a broker, as far as that was asked.
    """
    for directory in _upwards(target.path):
        if directory not in has_broker_files:
            has_broker_files[directory] = False
            with contextlib.suppress(ReadFailedError):  # above --out, where a role may be forbidden to look
                has_broker_files[directory] = bool(target.at(directory).present(CERTAIN_FILES))
        if has_broker_files[directory]:
            return directory
    return None


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
