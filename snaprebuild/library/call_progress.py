"""The function of the caller that is told how far a call is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snaprebuild.snapshots.engine.partition_task import ProgressStoppedError

__all__ = ["CallProgress", "progress_of"]


class CallProgress:
    """Calls the function of the caller. An error of it ends the run, not only the partition that was being read.

    An engine may call from a thread of its own, which cannot end the run: the error is then raised when the engine is done.
    """

    def __init__(self, function: Callable[[str, int], None]) -> None:
        self._function = function
        self._thread = threading.get_ident()
        self.error: Exception | None = None

    def __call__(self, what: str, size_bytes: int) -> None:
        """Calls it, unless it failed before."""
        if self.error is not None:
            return
        try:
            self._function(what, size_bytes)
        except Exception as error:
            self.error = error
            if threading.get_ident() == self._thread:
                raise ProgressStoppedError from error


@contextmanager
def progress_of(function: Callable[[str, int], None] | None) -> Iterator[CallProgress | None]:
    """The progress of a call inside the block; None without a function.

    Raises:
        Exception: what the function raised, with the notes of the run that it ended.
    """
    if function is None:
        yield None
        return
    progress = CallProgress(function)
    try:
        yield progress
    except ProgressStoppedError as stopped:
        error = progress.error
        assert error is not None
        for note in getattr(stopped, "__notes__", ()):
            error.add_note(note)
        raise error from None
    if progress.error is not None:
        raise progress.error
