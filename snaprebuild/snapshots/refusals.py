"""Why the library refuses: the reason of each error, and of a partition or segment that is not there any more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from formats.errors import FormatError
from formats.partition.file_names import DirectoryForm, parse_partition_dir_name
from snaprebuild.errors import (
    ChangedFileError,
    DeadlinePassedError,
    GonePartitionError,
    LimitReachedError,
    ReadFailedError,
    RefusalReason,
    RefusedError,
    SnapshotRefusedError,
    UsageError,
)
from snaprebuild.snapshots.source.source import PartitionSource, opened_partition

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["is_being_deleted", "is_below_log_start", "opened_or_refused", "reason_of_deletion", "refusal_reason"]


def refusal_reason(error: RefusedError | FormatError) -> RefusalReason:
    """The reason of a refusal that an error becomes for a caller of the library."""
    if isinstance(error, FormatError):
        return RefusalReason.DAMAGED
    if isinstance(error, GonePartitionError):
        return RefusalReason.GONE
    if isinstance(error, ChangedFileError):
        return RefusalReason.CHANGED
    if isinstance(error, DeadlinePassedError):
        return RefusalReason.DEADLINE
    if isinstance(error, LimitReachedError):
        return RefusalReason.LIMIT
    return RefusalReason.NO_SOURCE


def opened_or_refused(directory: str, run: Run) -> PartitionSource:
    """The partition at a path (``opened_partition``).

    Raises:
        SnapshotRefusedError: it may not be a source. The reason is ``gone`` for a directory that its broker deletes.
        UsageError: there is no such directory, or it is not the directory of one partition of a topic.
        ReadFailedError: it cannot be listed.
    """
    try:
        return opened_partition(directory, run)
    except RefusedError as error:
        reason = RefusalReason.GONE if is_being_deleted(directory) else refusal_reason(error)
        raise SnapshotRefusedError(error.message, path=error.path, reason=reason) from error


def is_being_deleted(directory: str) -> bool:
    """Whether a broker gave a directory the name of one that it deletes."""
    name = parse_partition_dir_name(os.path.basename(directory))
    return name is not None and name.form is DirectoryForm.DELETE


def reason_of_deletion(directory: str, next_base_offset: int, run: Run) -> RefusalReason:
    """Why a boundary is no longer one: the partition is gone, or retention has deleted the segment."""
    try:
        source = opened_partition(directory, run)
    except (UsageError, RefusedError, ReadFailedError):
        return RefusalReason.GONE
    if is_below_log_start(source, next_base_offset):
        return RefusalReason.BELOW_LOG_START
    return RefusalReason.CHANGED


def is_below_log_start(source: PartitionSource, next_base_offset: int) -> bool:
    """Whether the segment that ends at an offset is deleted: the offset is not above the first segment, or not above the log start."""
    segments = source.directory.segments
    return bool(segments) and next_base_offset <= max(segments[0].base_offset, source.log_start_offset)
