"""How a run reads from disks that other processes use: its effect on the page cache, its rate, its priority.

There is one value for each process, because the system slows down or kills processes. The library reads like any program unless its
caller sets something else. The command sets its values at the start; values that were left open are settled when it finds a live
broker.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from snaprebuild.storage.io_limits.page_cache import PageReader, page_reader
from snaprebuild.storage.io_limits.process import IDLE, lift_limit, limit_memory, scheduling_class, set_priority
from snaprebuild.storage.io_limits.read_rate import ReadRate, SharedRate

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

__all__ = [
    "NO_IO_LIMITS",
    "RATE_WITH_BROKER_BYTES",
    "IoLimits",
    "SharedIoLimits",
    "adapt_to_live_broker",
    "adopt_io_limits",
    "apply_io_limits",
    "cautious_reader",
    "current_io_limits",
    "limited_io",
    "piece_bytes",
    "share_io_limits",
    "wait_to_read",
]

RATE_WITH_BROKER_BYTES = 64 << 20
"""Bytes a second for each disk with a live broker, unless the user sets a rate: a third of what a spinning disk gives."""

WORKER_BYTES = 96 << 20
"""Memory that a worker should have: twice of what it needs for a segment with some thousand producers."""


class IoLimits(msgspec.Struct, frozen=True):
    """How a run reads.

    Attributes:
        leaves_page_cache: the page cache stays as it was; else what is read stays in it, as for any program.
        bytes_per_second: read by all processes of the run together; None for any number.
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
        """With the open values settled, for a run that reads from this number of disks."""
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

    def workers_at_most(self, wanted: int) -> int:
        """How many of the wanted workers the memory allows: the workers get one half, the process that starts them the other."""
        return wanted if self.max_memory_bytes is None else min(wanted, self.max_memory_bytes // 2 // WORKER_BYTES)

    def of_worker(self, workers: int) -> IoLimits:
        """The value for one of several worker processes, which share the budget of bytes a second."""
        most = None if self.max_memory_bytes is None else self.max_memory_bytes // 2 // max(workers, 1)
        return replace(self, max_memory_bytes=most)

    def share_of(self, processes: int) -> IoLimits:
        """The value for one of many processes that cannot share a budget: it gets a part of it, and no change of priority."""
        rate = None if self.bytes_per_second is None else max(self.bytes_per_second // max(processes, 1), 1)
        return IoLimits(leaves_page_cache=self.leaves_page_cache, bytes_per_second=rate)


NO_IO_LIMITS = IoLimits()
"""As any program reads."""

SharedIoLimits = tuple[IoLimits, SharedRate | None]
"""For ``adopt_io_limits`` in worker processes."""

_limits = NO_IO_LIMITS
_rate: ReadRate | None = None


def current_io_limits() -> IoLimits:
    """The limits of this process."""
    return _limits


def apply_io_limits(wanted: IoLimits, rate: ReadRate | None = None) -> None:
    """This process reads with these limits from now on, whatever machine it is on.

    Args:
        wanted: the limits.
        rate: a budget of bytes a second that other processes share; None for one of this process alone.
    """
    global _limits, _rate  # noqa: PLW0603
    if rate is not None or wanted.bytes_per_second != _limits.bytes_per_second:
        _rate = rate or (None if wanted.bytes_per_second is None else ReadRate(wanted.bytes_per_second))
    if wanted.at_idle_priority and not _limits.at_idle_priority:
        set_priority(IDLE)
    if wanted.max_memory_bytes is not None and wanted.max_memory_bytes != _limits.max_memory_bytes:
        limit_memory(wanted.max_memory_bytes)
    _limits = wanted


@contextlib.contextmanager
def limited_io(wanted: IoLimits) -> Iterator[None]:
    """This process reads in this way inside the block."""
    before, place, memory_limit = _limits, scheduling_class(), resource.getrlimit(resource.RLIMIT_DATA)[0]
    apply_io_limits(wanted)
    try:
        yield
    finally:
        if _limits.at_idle_priority and not before.at_idle_priority:
            set_priority(place)
        if _limits.max_memory_bytes is not None:
            lift_limit(memory_limit)
        apply_io_limits(before)


def adapt_to_live_broker(disks: int) -> None:
    """Called when a run knows that a live broker holds what it reads.

    Args:
        disks: that the run reads from.
    """
    apply_io_limits(_limits.with_live_broker(disks))


def share_io_limits(context: BaseContext, workers: int) -> SharedIoLimits:
    """The value for the workers of this process: they share its budget of bytes a second, and have a half of its memory."""
    if _limits.max_memory_bytes is not None:
        limit_memory(_limits.max_memory_bytes // 2)
    return _limits.of_worker(workers), None if _rate is None else _rate.share(context)


def adopt_io_limits(shared: SharedIoLimits) -> None:
    """In a worker: reads as the process that started it."""
    wanted, budget = shared
    rate = None
    if budget is not None and wanted.bytes_per_second is not None:
        rate = ReadRate(wanted.bytes_per_second)
        rate.adopt(budget)
    apply_io_limits(wanted, rate)


def wait_to_read(count: int) -> None:
    """Called before ``count`` bytes are read: returns when the rate allows it."""
    if _rate is not None:
        _rate.take(count)


def piece_bytes(count: int) -> int:
    """How many of ``count`` bytes should be read at once."""
    return count if _rate is None else min(count, _rate.piece_bytes)


def cautious_reader(fd: int, size_bytes: int) -> PageReader | None:
    """A reader that leaves the page cache as it was; None if that is not required."""
    return page_reader(fd, size_bytes) if _limits.leaves_page_cache else None
