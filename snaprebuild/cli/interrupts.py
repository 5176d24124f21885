"""Signals that end the command: SIGINT, SIGTERM and SIGHUP end it with one exit code at any moment, also while it loads and ends.

While a verb runs, a signal raises KeyboardInterrupt, so that files are closed and a receipt is named. Before and after it there is nothing
to close, and the process ends at once: an error raised while modules are loaded may be taken for another one.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from enum import Enum, auto
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["INTERRUPTED", "begin_ending", "begin_running", "take_signals"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a process that the signal ended; and after SIGTERM and SIGHUP, which ask for the same."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 0.01


class _Phase(Enum):
    LOADING = auto()
    RUNNING = auto()
    ENDING = auto()


class _Command:
    """The command of this process: how far it is, and the exit code of a signal that ends it."""

    phase = _Phase.LOADING
    exit_code = INTERRUPTED


_command = _Command()


def take_signals() -> None:
    """From now on a signal ends the process with ``INTERRUPTED``, except for signals that the caller of the command ignores."""
    # Callbacks run in reverse order, so that this one, which is registered first, is the last thing that Python runs.
    atexit.register(_ignore_signals)
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    sys.excepthook = _show_uncaught
    sys.unraisablehook = _interrupt_again


def begin_running() -> None:
    """From now on a signal raises KeyboardInterrupt."""
    _command.phase = _Phase.RUNNING


def begin_ending(exit_code: int) -> None:
    """From now on a signal ends the process with this exit code: everything is written and printed."""
    _command.exit_code = exit_code
    _command.phase = _Phase.ENDING


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if _command.phase is _Phase.RUNNING:
        raise KeyboardInterrupt
    os._exit(_command.exit_code)


def _show_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """A second interrupt, while the first one is answered, would end in a traceback."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, traceback)


def _interrupt_again(unraisable: UnraisableHookArgs) -> None:
    """An interrupt inside of a destructor or a callback is lost: Python has no one to raise it to. It comes again a moment later."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _ignore_signals() -> None:
    """Ignores signals until the interpreter, at its end, gives them back their default actions."""
    for number in (*SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
