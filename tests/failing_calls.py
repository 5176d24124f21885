"""File systems on which some system calls fail, at the seam of the writers."""

from __future__ import annotations

import os
from collections.abc import Callable

from snaprebuild.storage.local.file_calls import FileCalls


def raising(code: int) -> Callable[..., None]:
    """A system call that fails in this way, whatever it gets."""

    def refuse(*_given: object, **_more: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def failing(**codes: int) -> FileCalls:
    """Calls of which these methods of the seam fail, each with its ``errno``."""
    return type("Failing", (FileCalls,), {name: raising(code) for name, code in codes.items()})()
