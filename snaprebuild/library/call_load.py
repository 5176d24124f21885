"""How a call of the library reads, and the invocation that its documents record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snaprebuild.cli.options.reading import Impact, Load
from snaprebuild.library.arguments import Arguments
from snaprebuild.snapshots.run_record import Invocation

__all__ = ["reading"]


@contextmanager
def reading(invocation: Invocation, given: Arguments) -> Iterator[None]:
    """Inside the block the call reads with its ``impact`` and ``max_read_rate``, and what it records is of this invocation."""
    impact = given["impact"]
    load = Load(impact=None if impact is None else Impact(impact), max_read_rate=given["max_read_rate"])
    with invocation.active(), load.limits():
        yield
