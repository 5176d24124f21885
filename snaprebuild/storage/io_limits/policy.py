"""How a run reads beside others that want the same disks: what it leaves in the page cache, how fast it is, who comes first.

One value for each process, as it is the process that the system slows down or kills. The library reads as anybody does, unless it is told
otherwise; the command says at its begin how it wants to read, and what was left open is settled when it finds a live broker.
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
"""Bytes a second for each disk, where a broker is at work and nobody says otherwise: a third of what a spinning disk gives."""

WORKER_BYTES = 96 << 20
"""Memory that a worker is to have: twice of what it needs for a segment with some thousand producers."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How a run reads.

    Attributes:
        leaves_page_cache: as it was; else what is read stays there, as for any program.
        bytes_per_second: read by all processes of the run together; None for any number.
        stands_last: behind all other processes, for processor, disk and memory.
        readers_per_disk: at once; None for what suits the disk.
        max_memory_bytes: held by all processes of the run together, beyond the files that they map; None for any number.
        minds_brokers: beside a live broker, what is left open here is settled in its favour.
        priority_is_open: ``stands_last`` is; ``bytes_per_second`` is where it is None.
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
        """With what was left open settled, for a run that reads from so many disks."""
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
        """So many of the workers that are wanted have room: they have a half of the memory, and the process that starts them the other."""
        return wanted if self.max_memory_bytes is None else min(wanted, self.max_memory_bytes // 2 // WORKER_BYTES)

    def of_worker(self, workers: int) -> Manners:
        """Those of one of several worker processes, which share the budget of bytes a second as it stands."""
        most = None if self.max_memory_bytes is None else self.max_memory_bytes // 2 // max(workers, 1)
        return replace(self, max_memory_bytes=most)

    def share_of(self, processes: int) -> Manners:
        """What one of many processes does that cannot share a budget: its part of it, and the place of others is not its to give up."""
        rate = None if self.bytes_per_second is None else max(self.bytes_per_second // max(processes, 1), 1)
        return Manners(leaves_page_cache=self.leaves_page_cache, bytes_per_second=rate)


USUAL_MANNERS = Manners()
"""Those of any program."""

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
    """This process reads so for a while."""
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
    """Told once a run knows that a live broker holds what it reads.

    Args:
        disks: that the run reads from.
    """
    _behave(_manners.beside_broker(disks))


def take_part(wanted: Manners) -> None:
    """From now on this process reads so: one of many that read for the same run, on whatever machine."""
    _behave(wanted)


def share_manners(context: BaseContext, workers: int) -> SharedManners:
    """How this process reads, for its workers: they share its budget of bytes a second, and have a half of its memory."""
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
    """Called before so many bytes are read: returns when they may be."""
    if _rate is not None:
        _rate.take(count)


def piece_bytes(count: int) -> int:
    """How much of so many bytes is to be read at once."""
    return count if _rate is None else min(count, _rate.piece_bytes)


def cautious_reader(fd: int, size_bytes: int) -> PageReader | None:
    """What reads an open file and leaves the page cache as it was; None where it need not stay so."""
    return page_reader(fd, size_bytes) if _manners.leaves_page_cache else None
