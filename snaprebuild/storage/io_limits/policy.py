"""The I/O limits of a run: what it leaves in the page cache, how fast it reads, its priority and its memory.

Each process has one set of limits. The library has none by default. A command sets them when it begins, and completes them when it finds
a live broker.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.context import BaseContext

from snaprebuild.storage.io_limits.page_cache import PageReader, page_reader
from snaprebuild.storage.io_limits.process import IDLE, lift_limit, limit_memory, scheduling_class, set_priority
from snaprebuild.storage.io_limits.read_rate import ReadRate, SharedRate

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
"""Bytes a second for each disk, where a broker is at work and nobody says otherwise: a third of what a spinning disk gives."""

WORKER_BYTES = 96 << 20
"""Memory that a worker is to have: twice of what it needs for a segment with some thousand producers."""


@dataclass(frozen=True, slots=True)
class IoLimits:
    """How a run reads.

    Attributes:
        leaves_page_cache: keep the page cache as it was; else what is read stays there, as for any program.
        bytes_per_second: read by all processes of the run together; None for any number.
        at_idle_priority: lowest priority for processor, disk and memory.
        readers_per_disk: at once; None for what suits the disk.
        max_memory_bytes: held by all processes of the run together, beyond the files that they map; None for any number.
        adapts_to_broker: while a broker runs, a rate that is None gets a limit, and an automatic priority is idle.
        priority_is_automatic: ``at_idle_priority`` depends on whether a broker runs.
        is_low: adapt as if a broker ran.
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
        """The limits while a broker runs, for a run that reads from so many disks."""
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
        """So many of the workers that are wanted have room: they have a half of the memory, and the process that starts them the other."""
        return wanted if self.max_memory_bytes is None else min(wanted, self.max_memory_bytes // 2 // WORKER_BYTES)

    def of_worker(self, workers: int) -> IoLimits:
        """Those of one of several worker processes, which share the budget of bytes a second as it stands."""
        most = None if self.max_memory_bytes is None else self.max_memory_bytes // 2 // max(workers, 1)
        return replace(self, max_memory_bytes=most)

    def share_of(self, processes: int) -> IoLimits:
        """What one of many processes does that cannot share a budget: its part of it, and the place of others is not its to give up."""
        rate = None if self.bytes_per_second is None else max(self.bytes_per_second // max(processes, 1), 1)
        return IoLimits(leaves_page_cache=self.leaves_page_cache, bytes_per_second=rate)


NO_IO_LIMITS = IoLimits()
"""The limits of any program."""

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
    """Applies limits to this process inside the block."""
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
    """Adapts the limits of this process, once a run knows that a live broker holds what it reads.

    Args:
        disks: that the run reads from.
    """
    apply_io_limits(_limits.with_live_broker(disks))


def share_io_limits(context: BaseContext, workers: int) -> SharedIoLimits:
    """The limits of this process, for its workers: they share its budget of bytes a second, and have a half of its memory."""
    if _limits.max_memory_bytes is not None:
        limit_memory(_limits.max_memory_bytes // 2)
    return _limits.of_worker(workers), None if _rate is None else _rate.share(context)


def adopt_io_limits(shared: SharedIoLimits) -> None:
    """In a worker: applies the limits of the process that started it."""
    wanted, budget = shared
    rate = None
    if budget is not None and wanted.bytes_per_second is not None:
        rate = ReadRate(wanted.bytes_per_second)
        rate.adopt(budget)
    apply_io_limits(wanted, rate)


def wait_to_read(count: int) -> None:
    """Called before so many bytes are read: returns when they may be."""
    if _rate is not None:
        _rate.take(count)


def piece_bytes(count: int) -> int:
    """How much of so many bytes is to be read at once."""
    return count if _rate is None else min(count, _rate.piece_bytes)


def cautious_reader(fd: int, size_bytes: int) -> PageReader | None:
    """What reads an open file and leaves the page cache as it was; None where it need not stay so."""
    return page_reader(fd, size_bytes) if _limits.leaves_page_cache else None
