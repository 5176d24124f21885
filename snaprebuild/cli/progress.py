"""A progress bar on stderr: bytes, rate, time left. Only where a person watches, and where no log runs through it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snaprebuild.operations.plan import Plan
    from snaprebuild.operations.rebuild import Progress
    from snaprebuild.operations.rebuild_result import PartitionResult

__all__ = ["bytes_progress", "progress_of"]


@contextlib.contextmanager
def progress_of(plan: Plan) -> Iterator[Progress | None]:
    """The callback for a rebuild; None where nobody watches or nothing is to be read."""
    with bytes_progress("replaying", plan.bytes_least) as advance:
        if advance is None:
            yield None
            return

        def progress(result: PartitionResult, size_bytes: int) -> None:
            advance(result.plan.source.topic_partition, size_bytes)

        yield progress


@contextlib.contextmanager
def bytes_progress(doing: str, total_bytes: int) -> Iterator[Callable[[str, int], None] | None]:
    """A bar over ``total_bytes``, moved on by so many bytes of a partition; None where nobody watches or nothing is to be read."""
    if not sys.stderr.isatty() or total_bytes == 0 or logging.getLogger().isEnabledFor(logging.INFO):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn(doing),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),
    )
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:
        yield None
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=total_bytes, what="")
        yield lambda what, size_bytes: bar.update(task, advance=size_bytes, what=what)
