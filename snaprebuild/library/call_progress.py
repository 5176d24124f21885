"""The function of the caller that is told how far a call is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snaprebuild.library.call_engine import THIS_MACHINE, CallEngine
from snaprebuild.snapshots.engine.partition_task import ProgressStoppedError

__all__ = ["CallProgress", "progress_of"]


class CallProgress:
    """Calls the function of the caller. An error of it ends the run, not only the partition that was being read.

    Another engine than this machine cannot be stopped in the middle: its tasks would go on writing. The error is raised after its end.
    """

    def __init__(self, function: Callable[[str, int], None], *, can_stop: bool) -> None:
        self._function = function
        self._can_stop = can_stop
        self.error: Exception | None = None

    def __call__(self, what: str, size_bytes: int) -> None:
        """Calls it, unless it failed before."""
        if self.error is not None:
            return
        try:
            self._function(what, size_bytes)
        except Exception as error:
            self.error = error
            if self._can_stop:
                raise ProgressStoppedError from error

    def raise_error(self) -> None:
        """Raises the error of the function of the caller, if there was one."""
        if self.error is not None:
            raise self.error


@contextmanager
def progress_of(function: Callable[[str, int], None] | None, engine: CallEngine) -> Iterator[CallProgress | None]:
    """The progress of a call inside the block; None without a function.

    Args:
        function: of the caller.
        engine: that reads.

    Raises:
        Exception: what the function raised, with the notes of the run that it ended.
    """
    if function is None:
        yield None
        return
    progress = CallProgress(function, can_stop=engine is THIS_MACHINE)
    try:
        yield progress
    except ProgressStoppedError as stopped:
        error = progress.error
        assert error is not None
        for note in getattr(stopped, "__notes__", ()):
            error.add_note(note)
        raise error from None
    progress.raise_error()
