"""One path that the system refuses to open or list, for commands that run in the process of a test."""

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def refused(target: Path, code: int, hit: list[str]) -> Iterator[None]:
    """The system refuses to open or list one path."""
    real = (os.open, os.scandir, builtins.open)

    def checked(call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path) == str(target):
                hit.append(str(path))
                raise OSError(code, os.strerror(code), str(target))
            return call(path, *arguments, **options)

        return replacement

    os.open, os.scandir, builtins.open = (checked(each) for each in real)  # type: ignore[assignment]
    try:
        yield
    finally:
        os.open, os.scandir, builtins.open = real  # type: ignore[assignment]
