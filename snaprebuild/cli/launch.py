"""What the one file hands on to the command that it becomes (``scripts/release/one_file.c``).

The variable ``SNAPREBUILD_LAUNCHED`` has three numbers: this process, the moment when it began, and the descriptor whose lock keeps the
unpacked tree from being removed. They are for this process alone: the variable is removed, and the descriptor closes when another program
takes over.
"""

from __future__ import annotations

import os
import time

__all__ = ["deadline_after", "read_launch"]

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
