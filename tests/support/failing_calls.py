"""File systems on which some system calls fail, at the seam of the writers."""

import os
from collections.abc import Callable
from typing import Any

from snaprebuild.storage.local.file_calls import FileCalls


def raising(code: int) -> Callable[..., None]:
    """A system call that fails in this way, whatever it gets."""

    def refuse(*_given: object, **_more: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def failing(**codes: int) -> FileCalls:
    """Calls of which these methods of the seam fail, each with its ``errno``."""
    return type("Failing", (FileCalls,), {name: raising(code) for name, code in codes.items()})()


def meanwhile(method: str, action: Callable[[], object], when: Callable[..., object] = lambda *_given: True) -> FileCalls:
    """Calls during which something else happens once: right before the first call of this method, or the first one of some kind.

    Args:
        when: gets the positional arguments of each call.
    """
    is_due = True

    def interrupted(self: FileCalls, *given: Any, **more: Any) -> Any:
        nonlocal is_due
        if is_due and when(*given):
            is_due = False
            action()
        return getattr(FileCalls, method)(self, *given, **more)

    return type("Meanwhile", (FileCalls,), {method: interrupted})()
