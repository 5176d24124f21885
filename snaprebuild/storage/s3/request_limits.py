"""Limits of a run on the use of an object store: requests sent, and bytes read.

Counts are kept for each run and process. Worker processes share the counts of the process that started them. Processes on other
machines have a share each, which the process that starts them reserves.
"""

from __future__ import annotations

import threading
from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Any, Protocol

from snaprebuild.errors import LimitReachedError

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

__all__ = ["BYTES", "OPTIONS", "REQUESTS", "Counter", "Meter", "Meters", "SharedCounts", "limit_used_up", "meter_of", "meters"]

SharedCounts = dict[str, Any]
"""Counts in shared memory, by run."""

REQUESTS = 0
BYTES = 1
"""The two kinds of what is counted."""

OPTIONS = "max_requests", "max_read_bytes"
"""The settings with the limits, by kind."""


def limit_used_up(option: str, most: int | None) -> LimitReachedError:
    """The error of what would exceed a limit.

    Args:
        option: that sets the limit.
        most: the limit.
    """
    return LimitReachedError(f"the limit of {option} {most} is used up: no more requests are sent")


class Counter(Protocol):
    """Counts against the share of this process."""

    def __call__(self, run: str, kind: int, count: int, most: int, option: str) -> None:
        """Takes requests and bytes from the budget of the run (``Meter.take``).

        Raises:
            RefusedError: the share is used up, or this process has none.
        """
        ...


class Meter:
    """Requests and bytes that one run has used."""

    def __init__(self, run: str, meters: Meters) -> None:
        """Begins with the name of the run, and the meters of its process."""
        self._run = run
        self._meters = meters
        self._counts: MutableSequence[int] = [0, 0]
        self._shared: Any = None
        self._lock: Any = threading.Lock()

    @property
    def requests(self) -> int:
        """Requests sent."""
        return self._counts[REQUESTS]

    @property
    def read_bytes(self) -> int:
        """Bytes requested."""
        return self._counts[BYTES]

    def request(self, max_requests: int | None) -> None:
        """Called before each request is sent.

        Raises:
            LimitReachedError: the run may send no more.
        """
        self.take(REQUESTS, 1, max_requests, "max_requests")

    def read(self, count: int, max_read_bytes: int | None) -> None:
        """Called before ``count`` bytes are requested.

        Raises:
            LimitReachedError: the run may not read that many more.
        """
        self.take(BYTES, count, max_read_bytes, "max_read_bytes")

    def take(self, kind: int, count: int, most: int | None, option: str) -> None:
        """Counts what is about to be requested.

        Args:
            kind: requests or bytes, as this module numbers them.
            count: number of them.
            most: limit of the run; None for any amount.
            option: that sets the limit.

        Raises:
            LimitReachedError: it would exceed the limit.
        """
        counter = self._meters.counter
        if most is not None and counter is not None:
            counter(self._run, kind, count, most, option)
            return
        with self._lock:
            if most is not None and self._counts[kind] + count > most:
                raise limit_used_up(option, most)
            self._counts[kind] += count

    def give_back(self, kind: int, count: int) -> None:
        """Takes back a part of what was counted: it was reserved for another process, which has ended and did not use it.

        Args:
            kind: requests or bytes, as this module numbers them.
            count: number of them.
        """
        with self._lock:
            self._counts[kind] -= count

    def share(self, context: BaseContext) -> Any:
        """Moves the counts to shared memory."""
        with self._lock:
            if self._shared is None:
                self.adopt(context.Array("q", list(self._counts)))
            return self._shared

    def adopt(self, shared: Any) -> None:
        """Continues with the counts in the shared memory of another process."""
        self._shared = self._counts = shared
        self._lock = shared.get_lock()


class Meters:
    """The meters of this process, by the name of their run.

    Attributes:
        counter: counts everything with a limit against the share of this process, whatever the run; None for the limits themselves.
    """

    def __init__(self) -> None:
        """Begins without any."""
        self.counter: Counter | None = None
        self._by_run: dict[str, Meter] = {}
        self._lock = threading.Lock()

    def of(self, run: str) -> Meter:
        """The meter of a run."""
        with self._lock:
            return self._by_run.setdefault(run, Meter(run, self))

    def share(self, context: BaseContext) -> SharedCounts:
        """The counts of all runs, for ``adopt`` in the workers of this process."""
        with self._lock:
            return {run: meter.share(context) for run, meter in self._by_run.items()}

    def adopt(self, counts: SharedCounts) -> None:
        """In a worker: continues with the counts of the process that started it."""
        for run, shared in counts.items():
            self.of(run).adopt(shared)


meters = Meters()
"""The limits of this process: clients are shared by equal settings, and workers know a run by its name."""


def meter_of(run: str) -> Meter:
    """The meter of a run in this process."""
    return meters.of(run)
