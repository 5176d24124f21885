"""What is set while this program runs, so that it loads quickly.

The collector of cycles rests while the command is loaded: the many objects that loading makes stay, and looking at them takes time.
OpenBLAS, which numpy loads and we do not use, starts no threads, one for each processor. Where a limit of processes or memory leaves no
room for them, OpenBLAS ends the process by an interrupt.
"""

from __future__ import annotations

import gc
import os

__all__ = ["begin_loading", "end_loading", "restore_environment"]

_USUAL = gc.get_threshold()
_OBJECTS = 1_000_000
"""More than loading makes. The collector stays on: what loads without an end is collected."""

_THREADS = "OPENBLAS_NUM_THREADS"
_is_ours = False


def begin_loading() -> None:
    """From now on the collector rests, and this process and those that it starts load numpy without threads."""
    global _is_ours  # noqa: PLW0603
    gc.set_threshold(_OBJECTS, *_USUAL[1:])
    _is_ours = _THREADS not in os.environ
    os.environ.setdefault(_THREADS, "1")


def end_loading() -> None:
    """The collector works as usual, and leaves out what was loaded. Nothing changes if it did not rest."""
    if gc.get_threshold()[0] == _OBJECTS:
        gc.freeze()
        gc.set_threshold(*_USUAL)


def restore_environment() -> None:
    """The environment is that of the caller again, for a command that replaces this program."""
    if _is_ours:
        os.environ.pop(_THREADS, None)
