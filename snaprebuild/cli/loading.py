"""The steps before the command is loaded, which make it load quickly.

The one file hands on three numbers in the variable ``SNAPREBUILD_LAUNCHED`` (``scripts/release/one_file.c``). They are this process, the
moment when it began, and the descriptor whose lock keeps the unpacked tree from being removed. They are for this process alone: the
variable is removed, and the descriptor closes when another program takes over.

The collector of cycles rests while the command is loaded: the many objects that loading makes stay, and looking at them takes time.
OpenBLAS, which numpy loads and we do not use, starts no threads, one for each processor. Where a limit of processes or memory leaves no
room for them, OpenBLAS ends the process by an interrupt.

If many bytes will be read, the server that forks workers starts first: it and the command each take some tenths of a second to load.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import time
from collections.abc import Sequence

__all__ = [
    "begin_loading",
    "deadline_after",
    "end_loading",
    "read_launch",
    "restore_environment",
    "start_early",
]

_VARIABLE = "SNAPREBUILD_LAUNCHED"


class _Launch:
    """The start of this process by the one file.

    Attributes:
        began: the moment on the clock of ``time.monotonic``; None if something else started the process.
    """

    began: float | None = None


_launch = _Launch()


def read_launch() -> None:
    """Takes over what the one file hands on. Without it nothing changes; neither does it for the variable of another process."""
    numbers = os.environ.pop(_VARIABLE, "").split()
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return
    process, began_ns, lock = map(int, numbers)
    if process != os.getpid() or began_ns > time.monotonic_ns():
        return
    _launch.began = began_ns / 1e9
    try:
        os.set_inheritable(lock, False)
    except (OSError, OverflowError):
        return


def deadline_after(seconds: int) -> float:
    """Moment of a deadline on the clock of ``time.monotonic``.

    Args:
        seconds: from the start of this process if the one file started it, so that unpacking counts; else from now on.
    """
    return (time.monotonic() if _launch.began is None else _launch.began) + seconds


_USUAL = gc.get_threshold()
_OBJECTS = 1_000_000
"""More than loading makes. The collector stays on: what loads without an end is collected."""

_THREADS = "OPENBLAS_NUM_THREADS"
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

_before: dict[str, str | None] = {}
"""Variables of the environment that this program sets, as they were."""


def begin_loading() -> None:
    """From now on the collector rests, and this process and those that it starts load numpy without threads."""
    gc.set_threshold(_OBJECTS, *_USUAL[1:])
    _set(_THREADS, os.environ.get(_THREADS, "1"))
    if sys.pycache_prefix is not None:
        _keep_bytecode_out_of_log_dirs(sys.pycache_prefix)


def _keep_bytecode_out_of_log_dirs(prefix: str) -> None:
    """No more compiled modules are cached where PYTHONPYCACHEPREFIX leads into a log directory.

    The interpreter obeys the variable before any code of ours runs. So what it has created is named on stderr.
    """
    from snaprebuild.storage.local.log_dir_guard import log_dir_above

    log_dir = log_dir_above(prefix)
    if log_dir is None:
        return
    if not sys.dont_write_bytecode and sys.stderr is not None:
        sys.stderr.write(
            f"snaprebuild: PYTHONPYCACHEPREFIX ({prefix}) leads into the log directory {log_dir}: Python has cached compiled modules "
            "there, and a broker does not start if it finds unknown directories. Remove them, and unset the variable\n"
        )
    sys.dont_write_bytecode = True
    _set(_NO_BYTECODE, "1")  # for the processes that this one starts


def _set(name: str, value: str) -> None:
    _before.setdefault(name, os.environ.get(name))
    os.environ[name] = value


def end_loading() -> None:
    """The collector works as usual, and leaves out what was loaded. Nothing changes if it did not rest."""
    if gc.get_threshold()[0] == _OBJECTS:
        gc.freeze()
        gc.set_threshold(*_USUAL)


def restore_environment() -> None:
    """The environment is that of the caller again, for a command that replaces this program."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


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
