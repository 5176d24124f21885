"""How much this process counts beside others that want the same processor, disk and memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["LAST", "Standing", "stand_so", "standing"]

_SYSCALLS = {"x86_64": (252, 251), "aarch64": (31, 30), "ppc64le": (274, 273), "s390x": (283, 282)}
"""Numbers of ``ioprio_get`` and ``ioprio_set``, which no C library offers."""

_WHO_PROCESS, _CLASS_SHIFT, _IDLE = 1, 13, 3
NICE_MAX = 19
OOM_SCORE_MAX = 1000
_OOM_SCORE = Path("/proc/self/oom_score_adj")


class Standing(NamedTuple):
    """A place among processes; None what cannot be told, or is not wanted.

    Attributes:
        policy: of the scheduler of processors, with its ``nice`` value.
        io: priority as the kernel counts it: class and level.
        oom_score: ``oom_score_adj``: who is killed first for want of memory.
    """

    policy: int | None
    nice: int | None
    io: int | None
    oom_score: int | None


LAST = Standing(os.SCHED_IDLE, NICE_MAX, _IDLE << _CLASS_SHIFT, OOM_SCORE_MAX)
"""Behind all others: whoever else wants the processor has it at once (``SCHED_IDLE``), the disk too where its scheduler heeds the class
(``mq-deadline`` and ``bfq`` do, ``none`` does not), and this process is killed first for want of memory."""


def stand_so(wanted: Standing) -> None:
    """Takes a place, each part as far as the system lets us; what was given up of the processor comes back to nobody but root."""
    if wanted.policy is not None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, wanted.policy, os.sched_param(0))
    if wanted.nice is not None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, wanted.nice)
    if wanted.io is not None:
        with contextlib.suppress(OSError):
            _io_priority(wanted.io)
    if wanted.oom_score is not None:
        with contextlib.suppress(OSError):
            _OOM_SCORE.write_text(str(wanted.oom_score))


def standing() -> Standing:
    """Of this process (of this thread, as the kernel counts the first three)."""
    policy = nice = io = oom_score = None
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(0)
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        io = _io_priority()
    with contextlib.suppress(OSError, ValueError):
        oom_score = int(_OOM_SCORE.read_text())
    return Standing(policy, nice, io, oom_score)


def _io_priority(wanted: int | None = None) -> int:
    """The I/O priority of this thread, and sets it where one is wanted.

    Raises:
        OSError: the system has none, or does not let us.
    """
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        raise OSError("no I/O priorities on this processor")
    arguments = (numbers[0], _WHO_PROCESS, 0) if wanted is None else (numbers[1], _WHO_PROCESS, 0, wanted)
    found = _syscall()(*arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


@functools.cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function
