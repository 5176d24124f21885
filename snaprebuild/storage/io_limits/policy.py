"""How a run reads from disks that other processes use: its effect on the page cache, its rate, its priority.

There is one value for each process, because the system slows down or kills processes. The library reads like any program unless its
caller sets something else. The command sets its values at the start; values that were left open are settled when it finds a live
broker.
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
    "RATE_BESIDE_BROKER_BYTES",
    "USUAL_MANNERS",
    "Manners",
    "SharedManners",
    "adopt_manners",
    "beside_live_broker",
    "cautious_reader",
    "manners",
    "piece_bytes",
    "reading_so",
    "share_manners",
    "take_part",
    "wait_to_read",
]

RATE_BESIDE_BROKER_BYTES = 64 << 20
"""Bytes a second for each disk with a live broker, unless the user sets a rate: a third of what a spinning disk gives."""

WORKER_BYTES = 96 << 20
"""Memory that a worker should have: twice of what it needs for a segment with some thousand producers."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How a run reads.

    Attributes:
        leaves_page_cache: the page cache stays as it was; else what is read stays in it, as for any program.
        bytes_per_second: read by all processes of the run together; None for any number.
        stands_last: lowest priority of all processes, for processor, disk and memory.
        readers_per_disk: at once; None for a number that suits the disk.
        max_memory_bytes: held by all processes of the run together, without the files that they map; None for any number.
        minds_brokers: while a live broker runs, open values are settled in its favour.
        priority_is_open: ``stands_last`` is open; ``bytes_per_second`` is open if it is None.
        is_low: settled in favour of a broker whether one runs or not.
    """

    leaves_page_cache: bool = False
    bytes_per_second: int | None = None
    stands_last: bool = False
    readers_per_disk: int | None = None
    max_memory_bytes: int | None = None
    minds_brokers: bool = False
    priority_is_open: bool = False
    is_low: bool = False

    def beside_broker(self, disks: int) -> Manners:
        """With the open values settled, for a run that reads from this number of disks."""
        if not self.minds_brokers:
            return self
        rate = RATE_BESIDE_BROKER_BYTES * max(disks, 1) if self.bytes_per_second is None else self.bytes_per_second
        return replace(
            self,
            bytes_per_second=rate,
            stands_last=self.stands_last or self.priority_is_open,
            minds_brokers=False,
            priority_is_open=False,
        )

    def workers_at_most(self, wanted: int) -> int:
        """How many of the wanted workers the memory allows: the workers get one half, the process that starts them the other."""
        return wanted if self.max_memory_bytes is None else min(wanted, self.max_memory_bytes // 2 // WORKER_BYTES)

    def of_worker(self, workers: int) -> Manners:
        """The value for one of several worker processes, which share the budget of bytes a second."""
        most = None if self.max_memory_bytes is None else self.max_memory_bytes // 2 // max(workers, 1)
        return replace(self, max_memory_bytes=most)

    def share_of(self, processes: int) -> Manners:
        """The value for one of many processes that cannot share a budget: it gets a part of it, and no change of priority."""
        rate = None if self.bytes_per_second is None else max(self.bytes_per_second // max(processes, 1), 1)
        return Manners(leaves_page_cache=self.leaves_page_cache, bytes_per_second=rate)


USUAL_MANNERS = Manners()
"""As any program reads."""

SharedManners = tuple[Manners, SharedRate | None]
"""For ``adopt_manners`` in worker processes."""

_manners = USUAL_MANNERS
_rate: ReadRate | None = None


def manners() -> Manners:
    """How this process reads."""
    return _manners


def _behave(wanted: Manners, rate: ReadRate | None = None) -> None:
    global _manners, _rate  # noqa: PLW0603
    if rate is not None or wanted.bytes_per_second != _manners.bytes_per_second:
        _rate = rate or (None if wanted.bytes_per_second is None else ReadRate(wanted.bytes_per_second))
    if wanted.stands_last and not _manners.stands_last:
        set_priority(IDLE)
    if wanted.max_memory_bytes is not None and wanted.max_memory_bytes != _manners.max_memory_bytes:
        limit_memory(wanted.max_memory_bytes)
    _manners = wanted


@contextlib.contextmanager
def reading_so(wanted: Manners) -> Iterator[None]:
    """This process reads in this way inside the block."""
    before, place, memory_limit = _manners, scheduling_class(), resource.getrlimit(resource.RLIMIT_DATA)[0]
    _behave(wanted)
    try:
        yield
    finally:
        if _manners.stands_last and not before.stands_last:
            set_priority(place)
        if _manners.max_memory_bytes is not None:
            lift_limit(memory_limit)
        _behave(before)


def beside_live_broker(disks: int) -> None:
    """Called when a run knows that a live broker holds what it reads.

    Args:
        disks: that the run reads from.
    """
    _behave(_manners.beside_broker(disks))


def take_part(wanted: Manners) -> None:
    """From now on this process reads in this way: it is one of many that read for the same run, on any machine."""
    _behave(wanted)


def share_manners(context: BaseContext, workers: int) -> SharedManners:
    """The value for the workers of this process: they share its budget of bytes a second, and have a half of its memory."""
    if _manners.max_memory_bytes is not None:
        limit_memory(_manners.max_memory_bytes // 2)
    return _manners.of_worker(workers), None if _rate is None else _rate.share(context)


def adopt_manners(shared: SharedManners) -> None:
    """In a worker: reads as the process that started it."""
    wanted, budget = shared
    rate = None
    if budget is not None and wanted.bytes_per_second is not None:
        rate = ReadRate(wanted.bytes_per_second)
        rate.adopt(budget)
    _behave(wanted, rate)


def wait_to_read(count: int) -> None:
    """Called before ``count`` bytes are read: returns when the rate allows it."""
    if _rate is not None:
        _rate.take(count)


def piece_bytes(count: int) -> int:
    """How many of ``count`` bytes should be read at once."""
    return count if _rate is None else min(count, _rate.piece_bytes)


def cautious_reader(fd: int, size_bytes: int) -> PageReader | None:
    """A reader that leaves the page cache as it was; None if that is not required."""
    return page_reader(fd, size_bytes) if _manners.leaves_page_cache else None
