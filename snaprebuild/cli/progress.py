"""A progress bar on stderr: bytes, rate, time left. Only where a person watches, and where no log runs through it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

__all__ = ["bytes_progress"]


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
