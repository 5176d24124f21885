"""Limits of this process: its priority for processor and disk, the order of kills when memory runs out, and its memory.

The kernel limits what a process may reserve (``RLIMIT_DATA``), and libraries reserve much that they never touch. So memory that is
only reserved now does not count, and memory that is held now does. An allocation beyond the limit fails, which ends one partition
and leaves the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["IDLE", "SchedulingClass", "held_bytes", "lift_limit", "limit_memory", "scheduling_class", "set_priority"]

_SYSCALLS = {"x86_64": (252, 251), "aarch64": (31, 30), "ppc64le": (274, 273), "s390x": (283, 282)}
"""Numbers of ``ioprio_get`` and ``ioprio_set``, which no C library offers."""

_WHO_PROCESS = 1
_CLASS_SHIFT = 13
_IDLE = 3
NICE_MAX = 19
OOM_SCORE_MAX = 1000
_OOM_SCORE = Path("/proc/self/oom_score_adj")


class SchedulingClass(NamedTuple):
    """Priorities of a process; each None where it is unknown, or not wanted.

    Attributes:
        policy: of the scheduler of processors, with its ``nice`` value.
        io: priority as the kernel counts it: class and level.
        oom_score: ``oom_score_adj``: which process is killed first when memory runs out.
    """

    policy: int | None
    nice: int | None
    io: int | None
    oom_score: int | None


IDLE = SchedulingClass(os.SCHED_IDLE, NICE_MAX, _IDLE << _CLASS_SHIFT, OOM_SCORE_MAX)
"""The lowest priority: any other process gets the processor at once (``SCHED_IDLE``), and the disk if its scheduler uses the class
(``mq-deadline`` and ``bfq`` do, ``none`` does not). This process is killed first if memory runs out."""


def set_priority(scheduling: SchedulingClass) -> None:
    """Sets each priority as far as the system allows it. A process that is not root can only lower them."""
    if scheduling.policy is not None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, scheduling.policy, os.sched_param(0))
    if scheduling.nice is not None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, scheduling.nice)
    if scheduling.io is not None:
        with contextlib.suppress(OSError):
            _io_priority(scheduling.io)
    if scheduling.oom_score is not None:
        with contextlib.suppress(OSError):
            _OOM_SCORE.write_text(str(scheduling.oom_score))


def scheduling_class() -> SchedulingClass:
    """The priorities of this process (of this thread, as the kernel counts the first three)."""
    policy = nice = io = oom_score = None
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(0)
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        io = _io_priority()
    with contextlib.suppress(OSError, ValueError):
        oom_score = int(_OOM_SCORE.read_text())
    return SchedulingClass(policy, nice, io, oom_score)


def _io_priority(value: int | None = None) -> int:
    """Returns the I/O priority of this thread; sets it if ``wanted`` is given.

    Raises:
        OSError: the system has none, or does not allow it.
    """
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        raise OSError("no I/O priorities on this processor")
    arguments = (numbers[0], _WHO_PROCESS, 0) if value is None else (numbers[1], _WHO_PROCESS, 0, value)
    result = _syscall()(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@functools.cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


THREAD_STACK_BYTES = 1 << 20
"""Instead of 8 MiB, which would be reserved for each thread that starts under a limit."""

ROOM_BYTES_MIN = 16 << 20
"""Memory that a process may have in any case: enough to begin reading a segment."""


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def held_bytes() -> int:
    """Anonymous memory of this process."""
    return _status("RssAnon:")


def limit_memory(most_bytes: int) -> None:
    """From now on this process holds at most ``most_bytes``."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    room = max(most_bytes - held_bytes(), ROOM_BYTES_MIN)
    limit = _status("VmData:") + room
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    threading.stack_size(THREAD_STACK_BYTES)


def lift_limit(before: int) -> None:
    """Restores the limit; ``before`` is the soft limit that the process had."""
    resource.setrlimit(resource.RLIMIT_DATA, (before, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    threading.stack_size(0)
