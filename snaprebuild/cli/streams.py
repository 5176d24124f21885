"""Standard streams: readers that go away, streams that are closed, and a progress bar on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

__all__ = [
    "bytes_progress",
    "discard",
    "flush_stdout",
    "give_stdout_away",
    "notes_on_stderr",
    "open_standard_streams",
    "print_on_stderr",
    "reader_may_go_away",
]


STDOUT = 1
_closed_at_start: set[int] = set()
"""Descriptors of standard streams that the caller had closed."""


@contextlib.contextmanager
def reader_may_go_away(stream: TextIO) -> Iterator[None]:
    """``snaprebuild ... | head``: what is not read is dropped, and nothing else changes."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Whatever waits to be written to a stream, and all that follows, goes nowhere: not even when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def flush_stdout() -> bool:
    """Whether nothing waits to be written to stdout any more; what cannot be written is dropped, for Python would end with 120."""
    try:
        with reader_may_go_away(sys.stdout):
            pass
    except OSError:
        discard(sys.stdout)
        return False
    return True


def print_on_stderr(line: str) -> None:
    """Prints a line to stderr; that it cannot be written changes no outcome."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


@contextlib.contextmanager
def notes_on_stderr() -> Iterator[None]:
    """An error inside the block is raised again, after its notes are printed."""
    try:
        yield
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            print_on_stderr(note)
        raise


def open_standard_streams() -> None:
    """Where a standard stream is closed, the next file that is opened would take its number, and get what is printed.

    What is printed to a stdout that was closed fails, as on a full disk: the result would be lost.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            _closed_at_start.add(fd)
            os.open(os.devnull, os.O_RDONLY if fd == STDOUT else os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def give_stdout_away() -> None:
    """For a command that replaces this program: what it prints to a stdout that was closed goes nowhere, and is no error."""
    if STDOUT in _closed_at_start:
        os.dup2(os.open(os.devnull, os.O_RDWR), STDOUT)


@contextlib.contextmanager
def bytes_progress(doing: str, total_bytes: int) -> Iterator[Callable[[str, int], None] | None]:
    """A bar over ``total_bytes``, moved on by bytes of a partition; None without a terminal, with a log on stderr, or without bytes."""
    import logging  # here, as the server of workers starts before it is loaded

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
    bar = Progress(*columns, console=console, transient=True)
    try:
        bar.start()
    except RuntimeError:  # the system has no thread for it
        with contextlib.suppress(RuntimeError):
            bar.stop()
        yield None
        return
    with bar:
        task = bar.add_task(doing, total=total_bytes, what="")
        yield lambda what, size_bytes: bar.update(task, advance=size_bytes, what=what)
