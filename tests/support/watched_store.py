"""A store whose calls are counted, and that ends a run at one of them."""

from collections.abc import Callable, Iterator
from typing import Any


class CrashError(BaseException):
    """The process is gone."""


class Calls:
    """Counts calls and ends the run at one of them, before it is done or after."""

    def __init__(self, crash_at: int | None = None, *, is_done: bool = False) -> None:
        self.count = 0
        self.names: list[str] = []
        self._crash_at, self._is_done = crash_at, is_done

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        number, self.count = self.count, self.count + 1
        self.names.append(name)
        if number == self._crash_at and not self._is_done:
            raise CrashError
        try:
            return call()
        finally:
            if number == self._crash_at:
                raise CrashError


class Watched:
    """A store, the large files of one, or anything else whose calls are counted."""

    def __init__(self, base: object, calls: Calls) -> None:
        self._base, self._calls = base, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._base, name)
        if not callable(found):
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            def call() -> Any:
                result = found(*arguments, **options)
                return list(result) if isinstance(result, Iterator) else result

            return self._calls(name, call)

        return called
