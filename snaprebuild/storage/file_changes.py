"""Whether a file changed while it was read: ``fstat`` before the first byte and after the last one shows it.

A follower that truncates its log writes other batches into the same file, often to the same size. What was read of it before and after
that is no state that ever was. Linux sets the change time at each write, and no program can set it back.
"""

from __future__ import annotations

import os

from snaprebuild.errors import ChangedFileError

__all__ = ["changed_error", "has_changed"]


def has_changed(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether size, modification time or change time of one open file differ."""
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (after.st_size, after.st_mtime_ns, after.st_ctime_ns)


def changed_error(path: str) -> ChangedFileError:
    """The error that ends the reading of a file."""
    return ChangedFileError("changed while it was read (a broker is at work here): run again", path=path)
