"""Starts the server that forks workers before the command is loaded, if many bytes will be read. Each takes some tenths of a second."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence

__all__ = ["start_early"]

READING_VERBS = frozenset({"rebuild", "stage", "verify", "stats", "explain", "transactions", "offsets"})
"""Verbs that read whole segments. A verb of two words is known by its second one."""

LOOKED_AT_MAX = 2000
"""Files and directories. If these hold too few bytes, the server starts when it is needed."""


def start_early(words: Sequence[str]) -> None:
    """Starts it if a command with these arguments will need it.

    Args:
        words: arguments of the program.
    """
    if READING_VERBS.isdisjoint(words[:2]) or ("--jobs", "1") in itertools.pairwise(words):
        return
    from snaprebuild.errors import RefusedError
    from snaprebuild.snapshots.engine.worker_start import IN_PROCESS_BYTES_MAX, start_server

    if any(_holds(word, IN_PROCESS_BYTES_MAX) for word in words if not word.startswith("-")):
        with contextlib.suppress(OSError, RefusedError):  # the run says it, when it needs the server
            start_server()
        # The verb needs it, too. Among the many calls that lead to it there, Python 3.11 maps a part of its stack anew hundreds of times.
        import numpy  # noqa: F401


def _holds(directory: str, least_bytes: int) -> bool:
    """Whether the segments in it, or in the directories in it, have more bytes."""
    pending = [directory]
    looked_at = 0
    size = 0
    while pending and looked_at < LOOKED_AT_MAX:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    looked_at += 1
                    if entry.name.endswith(".log"):
                        size += entry.stat(follow_symlinks=False).st_size
                    elif looked_at < LOOKED_AT_MAX and entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if size > least_bytes:
                        return True
        except OSError:  # the command says what is wrong with it
            continue
    return False
