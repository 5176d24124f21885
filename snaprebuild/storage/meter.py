"""Limits of a run on what it asks of an object store: requests sent, and bytes read.

Counts are kept for each run and process; worker processes share those of the process that started them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from snaprebuild.errors import RefusedError
from snaprebuild.storage.store import S3Settings

__all__ = ["Meter", "Share", "SharedCounts", "adopt_meters", "held_to", "meter_of", "share_meters"]

SharedCounts = dict[str, Any]
"""Counts in shared memory, by run."""

_REQUESTS, _BYTES = 0, 1


@dataclass(frozen=True, slots=True)
class Share:
    """What one task may use up of the limits of a run, where tasks do not count together.

    Attributes:
        run: whose limits they are.
        requests: that it may send; None for any number; likewise ``read_bytes``.
    """

    run: str
    requests: int | None
    read_bytes: int | None


class Meter:
    """What one run has used up."""

    def __init__(self) -> None:
        self._counts: MutableSequence[int] = [0, 0]
        self._shared: Any = None
        self._lock: Any = threading.Lock()
        self._ends: tuple[int | None, int | None] = (None, None)

    @property
    def requests(self) -> int:
        """Requests sent."""
        return self._counts[_REQUESTS]

    @property
    def read_bytes(self) -> int:
        """Bytes asked for."""
        return self._counts[_BYTES]

    def request(self, settings: S3Settings) -> None:
        """Called before each request is sent.

        Raises:
            RefusedError: the run may send no more.
        """
        self._add(_REQUESTS, 1, settings.max_requests, "--max-requests")

    def read(self, settings: S3Settings, count: int) -> None:
        """Called before ``count`` bytes are asked for.

        Raises:
            RefusedError: the run may not read so many more.
        """
        self._add(_BYTES, count, settings.max_read_bytes, "--max-read-bytes")

    def _add(self, kind: int, count: int, most: int | None, option: str) -> None:
        with self._lock:
            if most is not None and self._counts[kind] + count > most:
                raise RefusedError(f"the limit of {option} {most} is used up: nothing more is asked of the store")
            end = self._ends[kind]
            if end is not None and self._counts[kind] + count > end:
                raise RefusedError(f"what this task may use up of {option} {most} is used up: it asks nothing more of the store")
            self._counts[kind] += count

    @contextlib.contextmanager
    def held_to(self, share: Share) -> Iterator[None]:
        """For a while no more than a share is used up in this process."""
        with self._lock:
            before = self._ends
            self._ends = self._end(_REQUESTS, share.requests), self._end(_BYTES, share.read_bytes)
        try:
            yield
        finally:
            with self._lock:
                self._ends = before

    def _end(self, kind: int, most: int | None) -> int | None:
        return None if most is None else self._counts[kind] + most

    def share(self, context: BaseContext) -> Any:
        """The counts in shared memory, from now on."""
        with self._lock:
            if self._shared is None:
                self.adopt(context.Array("q", list(self._counts)))
            return self._shared

    def adopt(self, shared: Any) -> None:
        """Counts on in the shared memory of another process."""
        self._shared = self._counts = shared
        self._lock = shared.get_lock()


_meters: dict[str, Meter] = {}
_meters_lock = threading.Lock()


def meter_of(run: str) -> Meter:
    """The meter of a run in this process."""
    with _meters_lock:
        return _meters.setdefault(run, Meter())


@contextlib.contextmanager
def held_to(share: Share | None) -> Iterator[None]:
    """For a while no more than a share of a run's limits is used up in this process; None for no share."""
    if share is None:
        yield
        return
    with meter_of(share.run).held_to(share):
        yield


def share_meters(context: BaseContext) -> SharedCounts:
    """The counts of all runs of this process, for ``adopt_meters`` in its workers."""
    with _meters_lock:
        return {run: meter.share(context) for run, meter in _meters.items()}


def adopt_meters(counts: SharedCounts) -> None:
    """In a worker: goes on counting where the process stands that started it."""
    for run, shared in counts.items():
        meter_of(run).adopt(shared)
