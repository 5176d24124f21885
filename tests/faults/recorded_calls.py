"""The seam of the writing side, recorded, and made to fail."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from snaprebuild.storage.local.file_calls import OS, FileCalls

METHODS = tuple(name for name in vars(FileCalls) if not name.startswith("_"))


@dataclass(frozen=True)
class Call:
    """One system call: ``file`` is the name of the open file that it concerns ("." is the directory)."""

    method: str
    file: str
    arguments: tuple[Any, ...]
    result: Any = None
    error: int | None = None
    status: os.stat_result | None = None  # of a file that `open` has just created

    def __str__(self) -> str:
        return f"{self.method} {self.file}"


@dataclass
class RecordedCalls(FileCalls):
    """Passes every call on and writes it down. ``before`` may raise in place of a call, ``after`` once it was made."""

    inner: FileCalls = OS
    before: Callable[[int, str, str], None] = lambda _index, _method, _file: None
    after: Callable[[int, str, str], None] = lambda _index, _method, _file: None
    trace: list[Call] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)

    def made(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        file = self._file(method, arguments)
        index = len(self.trace)
        self.trace.append(Call(method, file, arguments, error=errno.EINTR))
        try:
            self.before(index, method, file)
            result = getattr(self.inner, method)(*arguments, **keywords)
            if method == "open":
                self.files[result] = file
            self.after(index, method, file)
        except OSError as error:
            self.trace[index] = Call(method, file, arguments, error=error.errno)
            raise
        is_created = method == "open" and arguments[1] & os.O_CREAT
        created = os.fstat(result) if is_created else None
        arguments = tuple(bytes(a) if isinstance(a, memoryview) else a for a in arguments)
        self.trace[index] = Call(method, file, arguments, result, status=created)
        return result

    def _file(self, method: str, arguments: tuple[Any, ...]) -> str:
        first = arguments[0]
        if method == "open" and arguments[1] & os.O_DIRECTORY:
            return "."
        return first if isinstance(first, str) else self.files.get(first, ".")

    @property
    def done(self) -> list[str]:
        return [str(call) for call in self.trace]


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *arguments, **keywords: self.made(name, *arguments, **keywords)


for _name in METHODS:
    setattr(RecordedCalls, _name, _method(_name))


def failing_at(index: int, code: int) -> Callable[[int, str, str], None]:
    """Lets the call of that index fail."""

    def fail(at: int, _method_name: str, _file: str) -> None:
        if at == index:
            raise OSError(code, os.strerror(code))

    return fail


def failing_from(index: int, code: int) -> Callable[[int, str, str], None]:
    """Lets the call of that index and every later one fail, as a device does that has gone away."""

    def fail(at: int, method_name: str, _file: str) -> None:
        if at >= index and method_name != "close":
            raise OSError(code, os.strerror(code))

    return fail


class ShortWrites(FileCalls):
    """Takes a few bytes at a time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data[: self.bytes_max])


class NoHardLinks(FileCalls):
    """A file system without hard links: FAT and some network file systems."""

    def link(self, name: str, new_name: str, *, dir_fd: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), name, None, new_name)


class NoRenameWithoutReplace(FileCalls):
    """A file system that cannot rename without replacing: NFS and old kernels."""

    def rename_noreplace(self, name: str, new_name: str, *, dir_fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name, None, new_name)
