"""The same done to each of many partitions, where no order matters: here, or wherever else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

__all__ = ["Each", "here", "here_at_once"]

Item = TypeVar("Item")
Found = TypeVar("Found")


class Each(Protocol):
    """Calls a function of a module with each of the items, and gives what it returns in their order."""

    def __call__(self, function: Callable[[Item], Found], items: Sequence[Item]) -> Iterable[Found]:
        """Raises what the function raises."""
        ...


def here(function: Callable[[Item], Found], items: Sequence[Item]) -> Iterable[Found]:
    """One after the other."""
    return map(function, items)


def here_at_once(threads: int) -> Each:
    """By so many threads, for what mostly waits; by none for one."""
    if threads == 1:
        return here

    def in_threads(function: Callable[[Item], Found], items: Sequence[Item]) -> Iterable[Found]:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(function, items)

    return in_threads
