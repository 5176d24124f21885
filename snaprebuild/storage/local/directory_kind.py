"""What a directory is, told by the names in it."""

from __future__ import annotations

from collections.abc import Sequence

from formats.partition.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_file_name,
)
from snaprebuild.storage.local.broker_lock import LOCK_FILE_NAME
from snaprebuild.storage.partition_dir import Entry

__all__ = ["BROKER_FILES", "REMOTE_LOG_INDEX_CACHE", "is_partition", "leads_to_directory"]

REMOTE_LOG_INDEX_CACHE = "remote-log-index-cache"
"""The broker's own cache of remote indexes; nothing in it is a partition."""

BROKER_FILES = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN,
    LOCK_FILE_NAME,
)
"""Any of these in a directory makes it a broker's log directory."""


def is_partition(entries: Sequence[Entry]) -> bool:
    """A directory that is named like a partition is one if a file of it is, or if it is empty; ``data-1`` may be a disk of a broker."""
    names = {entry.name for entry in entries}
    if not names.isdisjoint(BROKER_FILES):
        return False
    if any(parse_file_name(name) is not None for name in names):
        return True
    return not any(leads_to_directory(entry) for entry in entries)


def leads_to_directory(entry: Entry) -> bool:
    """Whether to look inside. A link that leads nowhere, or around in a circle, hides only itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False
