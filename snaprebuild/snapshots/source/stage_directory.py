"""Where snapshots are staged: outside of every log directory, and where a link leads from there to the segments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.snapshots.source.output_directory import check_output, target_directories
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.local.hard_links import mount_of

__all__ = ["staged_directories", "staged_log_dirs"]


def staged_log_dirs(source: Source) -> tuple[str, ...]:
    """Every log directory of the broker, as far as it is known: also those without a partition that is taken."""
    configured = () if source.properties is None else map(os.path.realpath, log_dirs_of(source.properties))
    return tuple(sorted({*configured, *(state.path for state in source.log_dirs if state.is_broker_directory)}))


def staged_directories(stage: Sequence[str], source: Source) -> dict[str, str]:
    """Where the snapshots of each partition are built, by the path of its directory.

    Args:
        stage: the directories that were asked for; the first one on the file system of a partition is taken.
        source: the partitions.

    Raises:
        RefusedError: one lies in a directory of a broker, which would not start with it.
        UsageError: one is no directory, or none lies on the file system of a partition.
        ReadFailedError: that cannot be told.
    """
    log_dirs = staged_log_dirs(source)
    for directory in stage:
        _check_outside(directory, log_dirs)
    mounts = [(mount_of(directory), directory) for directory in stage]
    by_stage: dict[str, list[PartitionSource]] = {}
    chosen: dict[str, str] = {}
    for partition in source.partitions:
        log_dir = partition.log_dir.path
        if log_dir not in chosen:
            mount = mount_of(log_dir)
            found = next((directory for each, directory in mounts if each == mount), None)
            if found is None:
                message = (
                    "no --to directory lies on its file system, so that no link leads here: name one more (--to is repeatable)"
                )
                raise UsageError(message, path=log_dir)
            chosen[log_dir] = found
        by_stage.setdefault(chosen[log_dir], []).append(partition)
    targets: dict[str, str] = {}
    for directory, partitions in by_stage.items():
        # Nobody takes them for partitions: neither a broker nor a verb that looks below this place.
        own = {path: f"{target}.staged" for path, target in target_directories(directory, tuple(partitions)).items()}
        check_output(directory, own.values(), partitions, option="--to")
        targets |= own
    return targets


def _check_outside(directory: str, log_dirs: Iterable[str]) -> None:
    real = os.path.realpath(directory)
    for log_dir in log_dirs:
        if real == log_dir or real.startswith(log_dir.rstrip(os.sep) + os.sep):
            message = f"--to leads into the log directory {log_dir}: with an unknown directory in it no broker starts"
            raise RefusedError(message, path=directory)
