"""What is set while this program runs, so that it loads quickly.

The collector of cycles rests while the command is loaded: the many objects that loading makes stay, and looking at them takes time.
OpenBLAS, which numpy loads and we do not use, starts no threads, one for each processor. Where a limit of processes or memory leaves no
room for them, OpenBLAS ends the process by an interrupt.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["begin_loading", "end_loading", "restore_environment"]

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
