"""How a run reads from disks that other processes use, and what this process takes from them: page cache, rate, priority, memory.

Each run has limits of its own (``RunLimits``), so that two runs in one process do not disturb each other. Priority and memory are the
exception: the system slows down or kills processes. The library reads like any program unless its caller sets something else. The
command sets its values at the start; values that were left open are settled when it finds a live broker.

What opens a file takes the limits of the run whose work its thread does (``current_limits``). The threads of ``storage.thread_pool`` do
the work of the run that hands it to them.

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
import time
from collections.abc import Callable, Iterator, MutableSequence
from contextvars import ContextVar
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from snaprebuild.storage.io_limits.page_cache import PageReader, page_reader

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

__all__ = [
    "IDLE",
    "NO_IO_LIMITS",
    "RATE_WITH_BROKER_BYTES",
    "IoLimits",
    "ReadRate",
    "RunLimits",
    "SchedulingClass",
    "SharedIoLimits",
    "SharedRate",
    "current_limits",
    "held_bytes",
    "lift_limit",
    "limit_memory",
    "limited_io",
    "scheduling_class",
    "set_priority",
]

SharedRate = Any
"""Shared memory: when the next read may begin."""

UNUSED_SECONDS_MAX = 0.1
"""The most time without reads that may be made up for at once."""

PIECES_PER_SECOND = 64
"""Reads are cut in pieces, so that a broker that needs the same disk waits for one of them at most."""

PIECE_BYTES = range(64 << 10, (1 << 20) + 1)

LOCK_SECONDS_MAX = 1.0
"""A worker that was killed may hold the lock for ever: after this time a process continues without it."""

LOCK_LOOK_SECONDS = 0.001
"""Interval at which a lock is looked at, which a writer holds for some microseconds."""


class ReadRate:
    """One budget of bytes a second for all processes and disks of a run.

    Each read reserves its time before it begins: it may begin when all earlier reads would be complete at the rate. So there is no
    counter to refill, a waiting process holds no lock, and reads of several processes take turns.
    """

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begins with nothing read.

        Args:
            bytes_per_second: for all processes that share it.
            clock: seconds, the same in all processes of this machine.
            sleep: takes seconds.
        """
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._next: MutableSequence[float] = [0.0]
        self._lock: Any = threading.Lock()
        self._shared: SharedRate = None

    @property
    def piece_bytes(self) -> int:
        """The most bytes that should be read at once."""
        return min(max(self.bytes_per_second // PIECES_PER_SECOND, PIECE_BYTES[0]), PIECE_BYTES[-1])

    def take(self, count: int) -> None:
        """Called before ``count`` bytes are read: returns when the rate allows it."""
        is_locked = self._is_locked()
        try:
            now = self._clock()
            begin = max(self._next[0], now - UNUSED_SECONDS_MAX)
            self._next[0] = begin + count / self.bytes_per_second
        finally:
            if is_locked:
                self._lock.release()
        if begin > now:
            self._sleep(begin - now)

    def _is_locked(self) -> bool:
        """Takes the lock, if it is available within ``LOCK_SECONDS_MAX``."""
        # The timed wait of a shared lock uses the wall clock: if that is set back, the wait is longer.
        last = time.monotonic() + LOCK_SECONDS_MAX
        while not self._lock.acquire(False):
            if time.monotonic() > last:
                return False
            time.sleep(LOCK_LOOK_SECONDS)
        return True

    def share(self, context: BaseContext) -> SharedRate:
        """Moves the budget to shared memory."""
        if self._shared is None:
            self.adopt(context.Array("d", list(self._next)))
        return self._shared

    def adopt(self, shared: SharedRate) -> None:
        """Uses the budget of another process from now on."""
        self._shared = self._next = shared
        self._lock = shared.get_lock()


RATE_WITH_BROKER_BYTES = 64 << 20
"""64 MiB/s: bytes a second for each disk with a live broker, unless the user sets a rate: a third of what a spinning disk gives."""

WORKER_BYTES = 96 << 20
"""Memory that a worker should have: twice of what it needs for a segment with some thousand producers."""


class IoLimits(msgspec.Struct, frozen=True):
    """How a run reads.

    Attributes:
        leaves_page_cache: the page cache stays as it was; else what is read stays in it, as for any program.
        bytes_per_second: read by all processes of the run together (``max_read_rate``); None for any number.
        at_idle_priority: lowest priority of all processes, for processor, disk and memory.
        readers_per_disk: at once; None for a number that suits the disk.
        max_memory_bytes: held by all processes of the run together, without the files that they map; None for any number.
        adapts_to_broker: while a live broker runs, open values are settled in its favour.
        priority_is_automatic: ``at_idle_priority`` is open; ``bytes_per_second`` is open if it is None.
        is_low: settled in favour of a broker whether one runs or not.
    """

    leaves_page_cache: bool = False
    bytes_per_second: int | None = None
    at_idle_priority: bool = False
    readers_per_disk: int | None = None
    max_memory_bytes: int | None = None
    adapts_to_broker: bool = False
    priority_is_automatic: bool = False
    is_low: bool = False

    def with_live_broker(self, disks: int) -> IoLimits:
        """The limits with the open values settled, for a run that reads from this number of disks."""
        if not self.adapts_to_broker:
            return self
        rate = RATE_WITH_BROKER_BYTES * max(disks, 1) if self.bytes_per_second is None else self.bytes_per_second
        return replace(
            self,
            bytes_per_second=rate,
            at_idle_priority=self.at_idle_priority or self.priority_is_automatic,
            adapts_to_broker=False,
            priority_is_automatic=False,
        )

    def workers_at_most(self, workers: int) -> int:
        """How many of the wanted workers the memory allows: the workers get one half, the process that starts them the other."""
        if self.max_memory_bytes is None:
            return workers
        return min(workers, self.max_memory_bytes // 2 // WORKER_BYTES)

    def of_worker(self, workers: int) -> IoLimits:
        """The value for one of several worker processes, which share the budget of bytes a second."""
        most = None if self.max_memory_bytes is None else self.max_memory_bytes // 2 // max(workers, 1)
        return replace(self, max_memory_bytes=most)

    def share_of(self, processes: int) -> IoLimits:
        """The value for one of many processes that cannot share a budget: it gets a part of it, and no change of priority."""
        rate = None if self.bytes_per_second is None else max(self.bytes_per_second // max(processes, 1), 1)
        return IoLimits(leaves_page_cache=self.leaves_page_cache, bytes_per_second=rate)


NO_IO_LIMITS = IoLimits()
"""No limits: reads like any program."""

SharedIoLimits = tuple[IoLimits, SharedRate | None]
"""For ``RunLimits.adopt`` in worker processes."""


class RunLimits:
    """The limits of one run in this process, and the budget of bytes a second that all of its reads share.

    Attributes:
        io: the limits.
    """

    def __init__(self, io: IoLimits = NO_IO_LIMITS) -> None:
        """Limits reads. Priority and memory of the process change with ``apply``."""
        self.io = io
        self._rate = None if io.bytes_per_second is None else ReadRate(io.bytes_per_second)

    def apply(self, io: IoLimits) -> None:
        """From now on the run reads with these limits, and the process has their priority and memory limit."""
        before = self.io
        self.io = io
        if io.bytes_per_second != before.bytes_per_second:
            self._rate = None if io.bytes_per_second is None else ReadRate(io.bytes_per_second)
        if io.at_idle_priority and not before.at_idle_priority:
            set_priority(IDLE)
        if io.max_memory_bytes is not None and io.max_memory_bytes != before.max_memory_bytes:
            limit_memory(io.max_memory_bytes)

    def adapt_to_live_broker(self, disks: int) -> None:
        """Called when the run knows that a live broker holds what it reads.

        Args:
            disks: that the run reads from.
        """
        self.apply(self.io.with_live_broker(disks))

    def share(self, context: BaseContext, workers: int) -> SharedIoLimits:
        """The value for the workers of the run: they share its budget of bytes a second, and have a half of its memory."""
        if self.io.max_memory_bytes is not None:
            limit_memory(self.io.max_memory_bytes // 2)
        return self.io.of_worker(workers), None if self._rate is None else self._rate.share(context)

    def adopt(self, shared: SharedIoLimits) -> None:
        """In a worker: reads as the run of the process that started it."""
        io, budget = shared
        self.apply(io)
        if budget is not None and self._rate is not None:
            self._rate.adopt(budget)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside the block this thread reads with these limits."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def wait_to_read(self, count: int) -> None:
        """Called before ``count`` bytes are read: returns when the rate allows it."""
        if self._rate is not None:
            self._rate.take(count)

    def piece_bytes(self, count: int) -> int:
        """How many of ``count`` bytes should be read at once."""
        return count if self._rate is None else min(count, self._rate.piece_bytes)

    def cautious_reader(self, fd: int, size_bytes: int) -> PageReader | None:
        """A reader that leaves the page cache as it was; None if that is not required."""
        return page_reader(fd, size_bytes) if self.io.leaves_page_cache else None


_current: ContextVar[RunLimits] = ContextVar("limits of the run", default=RunLimits())  # noqa: B039  of a process with one run


def current_limits() -> RunLimits:
    """The limits of the run whose work this thread does; those of the process outside of any."""
    return _current.get()


@contextlib.contextmanager
def limited_io(io: IoLimits) -> Iterator[RunLimits]:
    """A run that reads in this way begins with the block, and ends with it. Yields its limits."""
    outer = current_limits()
    was_idle = outer.io.at_idle_priority
    place = scheduling_class()
    memory_limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    limits = copy(outer)  # with the budget of the run around it, unless another one is wanted
    with limits.active():
        try:
            limits.apply(io)
            yield limits
        finally:
            if limits.io.at_idle_priority and not was_idle:
                set_priority(place)
            if limits.io.max_memory_bytes is not None:
                lift_limit(memory_limit)


# ---------------------------------------------------------------------------------------------------- this process

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
