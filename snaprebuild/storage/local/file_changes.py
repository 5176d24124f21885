"""Whether a file changed while it was read: ``fstat`` before the first byte and after the last one shows it.

A follower that truncates its log writes other batches into the same file, often to the same size. What was read of it before and after
that is no state that ever was. Linux sets the change time at each write, and no program can set it back.
"""

from __future__ import annotations

import os
import time

from snaprebuild.errors import ChangedFileError
from snaprebuild.storage.store import FileIdentity

__all__ = ["changed_error", "has_changed", "may_be_in_flux"]

FLUX_NS = 60 * 10**9
"""For so long after its last change a running broker may still be writing a file."""


def has_changed(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether size, modification time or change time of one open file differ."""
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (after.st_size, after.st_mtime_ns, after.st_ctime_ns)


def changed_error(path: str) -> ChangedFileError:
    """The error that ends the reading of a file."""
    return ChangedFileError("changed while it was read (a broker is at work here): run again", path=path)


def may_be_in_flux(path: str, listed: FileIdentity, *, is_broker_running: bool) -> bool:
    """Whether a file whose bytes make no sense may be one that a broker is writing: brokers up to 2.7 write snapshots in place.

    Args:
        path: of a file of this machine.
        listed: what it was in the listing.
        is_broker_running: a broker holds the log directory.

    Returns:
        True where it is not the file of the listing any more, or a running broker changed it within the last minute.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return True
    is_young = abs(time.time_ns() - status.st_mtime_ns) < FLUX_NS
    return FileIdentity.of(status) != listed or (is_broker_running and is_young)
