"""A run of the command in this process, as the calls that change a directory tree: like `traced_run`, without strace.

Functions of ``os`` are watched. Files of ``tempfile`` are written without ``os.write``: before the next call the watch looks at what they
have.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from command import snaprebuild
from traced_run import Change

from snaprebuild.storage.local.file_calls import FileCalls


class _Watch:
    """Writes down the calls that touch a tree, in order."""

    def __init__(self, root: Path) -> None:
        self.changes: list[Change] = []
        self._root = os.path.realpath(root)
        self._files: dict[int, str] = {}  # by descriptor
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()

    def _path(self, name: Any, dir_fd: int | None) -> str | None:
        """Relative to the root; None outside of it."""
        above = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        path = os.path.normpath(os.path.join(above, os.fsdecode(name)))
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return path[len(self._root) + 1 :] if path == self._root or path.startswith(f"{self._root}/") else None

    def _catch_up(self) -> None:
        for fd, known in self._sizes.items():
            try:
                data = Path(self._root, self._files[fd]).read_bytes()
            except FileNotFoundError:
                continue
            if len(data) > known:
                self._sizes[fd] = len(data)
                self.changes.append(Change("write", fd=fd, data=data[known:]))

    def _opened(self, fd: int, name: Any, flags: int, _mode: int = 0, *, dir_fd: int | None = None) -> None:
        self._sizes.pop(fd, None)
        path = self._path(name, dir_fd)
        if path is None:
            self._files.pop(fd, None)
            return
        self._files[fd] = path
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            self._sizes[fd] = os.fstat(fd).st_size
        self.changes.append(Change("create" if flags & os.O_CREAT else "open", path, fd=fd))

    def _on_descriptor(self, kind: str, fd: int, *numbers: int) -> None:
        if fd in self._files:
            self.changes.append(Change(kind, fd=fd, numbers=numbers))

    def _on_name(self, kind: str, name: Any, *numbers: int, dir_fd: int | None = None, **_: Any) -> None:
        path = self._path(name, dir_fd)
        if path is not None:
            self.changes.append(Change(kind, path, numbers=numbers))

    def _named(self, kind: str, name: Any, new: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None, **_: Any) -> None:
        path, new_path = self._path(name, src_dir_fd), self._path(new, dst_dir_fd)
        if path is None or new_path is None:
            return
        self.changes.append(Change(kind, path, new_path))
        if kind == "rename":
            self._files = {fd: new_path if each == path else each for fd, each in self._files.items()}

    def after(self, call: str, result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Writes down a call that took effect."""
        match call:
            case "open":
                self._opened(result, *arguments, **keywords)
            case "write":
                if arguments[0] in self._sizes:
                    self._catch_up()
            case "close":
                self._on_descriptor("close", arguments[0])
                self._files.pop(arguments[0], None)
                self._sizes.pop(arguments[0], None)
            case "fsync":
                self._on_descriptor("sync", arguments[0])
            case "fchmod" | "fchown":
                self._on_descriptor(call[1:], *arguments)
            case "chmod" | "chown" | "rmdir" | "unlink":
                self._on_name(call, *arguments, **keywords)
            case "mkdir":
                self._on_name(call, arguments[0], *(arguments[1:] or (0o777,)), **keywords)
            case "link" | "rename" | "replace":
                self._named("link" if call == "link" else "rename", *arguments, **keywords)

    def watching(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is watched while it calls the original."""

        @functools.wraps(call)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            with self._lock:
                self._catch_up()
                result = call(*arguments, **keywords)
                self.after(name, result, arguments, keywords)
                return result

        return watched

    def renamed_noreplace(self, call: Callable[..., None]) -> Callable[..., None]:
        """The one that Python does not offer."""

        def watched(calls: FileCalls, name: str, new_name: str, *, dir_fd: int) -> None:
            with self._lock:
                self._catch_up()
                call(calls, name, new_name, dir_fd=dir_fd)
                self._named("rename", name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

        return watched


WATCHED = (
    *("open", "write", "close", "fsync", "fchmod", "fchown", "chmod", "chown", "rmdir", "unlink", "mkdir"),
    *("link", "rename", "replace"),
)


def watched(arguments: Sequence[str], root: Path, _state_home: Path, codes: Sequence[int] = (0,)) -> list[Change]:
    """Runs the command. Returns what it did below ``root``, in order; see ``traced_run.traced``."""
    watch = _Watch(root)
    functions = {name: watch.watching(name, getattr(os, name)) for name in WATCHED}
    renamed = watch.renamed_noreplace(FileCalls.rename_noreplace)
    with patch.multiple(os, **functions), patch.object(FileCalls, "rename_noreplace", renamed):
        done = snaprebuild(*arguments)
    assert done.exit_code in codes, done
    return watch.changes
