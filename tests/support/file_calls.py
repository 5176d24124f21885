"""Counts what a piece of code in this process asks of the file system, below one directory."""

import builtins
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

PROPERTIES = "server.properties"


class Counts(NamedTuple):
    """How often the file system was asked.

    Attributes:
        listings: directories that were listed.
        lock_probes: questions who holds the lock of a log directory.
        locks: times that such a lock was taken.
        properties: times that `server.properties` was opened.
        opens: files and directories that were opened, `server.properties` and locks included; listings are not.
        stats: files and directories whose status was asked for by their path.
    """

    listings: int
    lock_probes: int
    locks: int
    properties: int
    opens: int
    stats: int


@dataclass
class FileCalls:
    """The calls, with their paths."""

    listed: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    lock_probes: int = 0
    locks: int = 0

    @property
    def counts(self) -> Counts:
        """How many there were of each kind."""
        properties = sum(os.path.basename(path) == PROPERTIES for path in self.opened)
        return Counts(len(self.listed), self.lock_probes, self.locks, properties, len(self.opened), len(self.asked))


@contextmanager
def counted_calls(root: Path) -> Iterator[FileCalls]:
    """Counts the calls of the block that concern `root` and what is below it, or a name in a directory that is open."""
    calls, below = FileCalls(), f"{root}/"

    def counted(call: Callable[..., Any], paths: list[str]) -> Callable[..., Any]:
        def replacement(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike):
                name = os.fspath(path)
                if name == str(root) or name.startswith(below) or options.get("dir_fd") is not None:
                    paths.append(name)
            return call(path, *arguments, **options)

        return replacement

    ask = fcntl.fcntl

    def counted_lock(fd: Any, command: int, *arguments: Any) -> Any:
        if command == fcntl.F_OFD_GETLK:
            calls.lock_probes += 1
        elif command == fcntl.F_OFD_SETLK and arguments[0][:2] == fcntl.F_WRLCK.to_bytes(2, "little"):
            calls.locks += 1
        return ask(fd, command, *arguments)

    with (
        mock.patch.object(os, "listdir", counted(os.listdir, calls.listed)),
        mock.patch.object(os, "scandir", counted(os.scandir, calls.listed)),
        mock.patch.object(os, "open", counted(os.open, calls.opened)),
        mock.patch.object(io, "open", counted(io.open, calls.opened)),
        mock.patch.object(builtins, "open", counted(builtins.open, calls.opened)),
        mock.patch.object(os, "stat", counted(os.stat, calls.asked)),
        mock.patch.object(os, "lstat", counted(os.lstat, calls.asked)),
        mock.patch.object(fcntl, "fcntl", counted_lock),
    ):
        yield calls
