"""Keeps what this program creates out of the log directories of brokers.

A broker does not start while its log directory contains a directory whose name is not that of a partition (``LogManager.loadLogs``,
``LocalLog.parseTopicPartitionName``). So receipts, documents, caches, staging directories and temporary files are never created in a
log directory or below one. Genuine snapshots, ``.lock`` and files that are set aside have ways of their own.

A directory is a log directory if it contains a file that only a broker writes there. ``scan`` recognises it in the same way.
So is a directory with ``.lock`` and the files of a partition, and the directory above those files.
So is each directory that a ``server.properties`` names which this process has read: those of a new broker are still empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from formats.partition.file_names import BROKER_FILES, LOCK_FILE_NAME, FileKind, parse_file_name, parse_partition_dir_name
from snaprebuild.errors import RefusedError

__all__ = ["CERTAIN_FILES", "check_outside_log_dirs", "log_dir_above", "protect_log_dirs"]

CERTAIN_FILES = tuple(name for name in BROKER_FILES if name != LOCK_FILE_NAME)
"""Files that only a broker has. Other programs have files named ``.lock``, too, for example in home directories."""

_configured: set[str] = set()
"""Real paths."""


def protect_log_dirs(log_dirs: Iterable[str]) -> None:
    """From now on these directories count as log directories in this process, also while they are empty or missing.

    Args:
        log_dirs: paths that the configuration of a broker names.
    """
    _configured.update(os.path.realpath(path) for path in log_dirs)


def log_dir_above(path: str) -> str | None:
    """The log directory that a path is in, or that it is itself; None where it is in none.

    Symbolic links are followed. The path, and directories on the way to it, need not exist.

    Args:
        path: absolute, or relative to the current directory.
    """
    directory = os.path.realpath(path)
    while True:
        if directory in _configured or _is_log_dir(directory):
            return directory
        if _is_partition_dir(directory):
            return os.path.dirname(directory)
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def check_outside_log_dirs(path: str, *, in_directory: str | None = None) -> None:
    """Makes sure that something may be created at a path. Nothing has to be there, and nothing is created.

    Args:
        path: of the file or directory, for the message.
        in_directory: that the name is going to be in; a link that has the name itself is then not followed.

    Raises:
        RefusedError: the path is in a log directory.
    """
    log_dir = log_dir_above(path if in_directory is None else in_directory)
    if log_dir is not None:
        raise RefusedError(f"is in a directory of a broker ({log_dir}), where only the broker may write files", path=path)


def _is_log_dir(directory: str) -> bool:
    if any(os.path.lexists(os.path.join(directory, name)) for name in CERTAIN_FILES):
        return True
    return os.path.lexists(os.path.join(directory, LOCK_FILE_NAME)) and _holds(directory, _is_partition_dir)


def _is_partition_dir(directory: str) -> bool:
    return parse_partition_dir_name(os.path.basename(directory)) is not None and _holds(directory, _is_segment)


def _is_segment(path: str) -> bool:
    """Whether it has the name of a segment: directories below ``--out`` contain snapshots only, and those of other programs ``x.log``."""
    parsed = parse_file_name(os.path.basename(path))
    return parsed is not None and parsed.kind is FileKind.LOG


def _holds(directory: str, is_wanted: Callable[[str], bool]) -> bool:
    """Whether a path in a directory is wanted; False for a directory that cannot be listed: nothing can be created there either."""
    try:
        with os.scandir(directory) as entries:
            return any(is_wanted(entry.path) for entry in entries)
    except OSError:
        return False
