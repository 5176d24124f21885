"""Pluggable map over partitions: in this process or elsewhere; the order of execution is irrelevant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.thread_pool import at_once

__all__ = ["Each", "here", "here_for"]

Item = TypeVar("Item")
Found = TypeVar("Found")


class Each(Protocol):
    """Calls a function of a module with each item, and returns the results in the order of the items."""

    def __call__(self, function: Callable[[Item], Found], items: Sequence[Item]) -> Iterable[Found]:
        """Raises what the function raises."""
        ...


def here(function: Callable[[Item], Found], items: Sequence[Item]) -> Iterable[Found]:
    """Calls them one after the other."""
    return map(function, items)


def here_for(stores: Iterable[ReadStore]) -> Each:
    """The map of this process: several at once if one of the stores mostly waits."""
    return here if all(store.is_local for store in stores) else at_once
