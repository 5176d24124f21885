"""A progress bar on stderr: bytes, rate, time left. Only where a person watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snaprebuild.operations.plan import Plan
    from snaprebuild.operations.rebuild import Progress
    from snaprebuild.operations.rebuild_result import PartitionResult

__all__ = ["bytes_progress", "progress_of"]


@contextlib.contextmanager
def progress_of(plan: Plan) -> Iterator[Progress | None]:
    """The callback for a rebuild; None where stderr is no terminal or nothing is to be read."""
    with bytes_progress("replaying", plan.bytes_least) as advance:
        if advance is None:
            yield None
            return

        def progress(result: PartitionResult, size_bytes: int) -> None:
            advance(result.plan.source.topic_partition, size_bytes)

        yield progress


class _Advance:
    """Moves the bar on by so many bytes of a partition."""

    def __init__(self, bar: object, task: object) -> None:
        self._bar = bar
        self._task = task

    def __call__(self, what: str, size_bytes: int) -> None:
        self._bar.update(self._task, advance=size_bytes, what=what)  # type: ignore[attr-defined]


@contextlib.contextmanager
def bytes_progress(doing: str, total_bytes: int) -> Iterator[_Advance | None]:
    """A bar over ``total_bytes``; None where stderr is no terminal or there is nothing to wait for."""
    if not sys.stderr.isatty() or total_bytes == 0:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from snaprebuild.cli.result import console

    columns = (
        TextColumn(doing),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        yield _Advance(bar, bar.add_task(doing, total=total_bytes, what=""))
