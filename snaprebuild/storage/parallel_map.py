"""Pluggable map over partitions: in this process or elsewhere; the order of execution is irrelevant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.thread_pool import map_in_threads

__all__ = ["ParallelMap", "local_map", "serial_map"]

Item = TypeVar("Item")
MapResult = TypeVar("MapResult")


class ParallelMap(Protocol):
    """Calls a function of a module with each item, and returns the results in the order of the items."""

    def __call__(self, function: Callable[[Item], MapResult], items: Sequence[Item]) -> Iterable[MapResult]:
        """Raises what the function raises."""


def serial_map(function: Callable[[Item], MapResult], items: Sequence[Item]) -> Iterable[MapResult]:
    """Calls them one after the other."""
    return map(function, items)


def local_map(stores: Iterable[ReadStore]) -> ParallelMap:
    """The map of this process: several at once if one of the stores mostly waits."""
    return serial_map if all(store.is_local for store in stores) else map_in_threads
