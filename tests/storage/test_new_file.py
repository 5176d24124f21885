"""A new file of our own: whole and synced before it has its name, and never over another."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_calls import raising
from log_dirs import make_log_dir
from sentences import NOT_REPLACED

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.storage.local import document_file
from snaprebuild.storage.local.document_file import new_file
from snaprebuild.storage.local.file_calls import FileCalls

DATA = b"a row\n" * 10


class Calls(FileCalls):
    """Records names and syncs. Without links it answers as a file system that has none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, *, has_links: bool = True) -> None:
        self.seen: list[tuple[str, bytes | None]] = []
        self._path, self._has_links, self._fsync = path, has_links, os.fsync
        monkeypatch.setattr(document_file, "OS", self)
        monkeypatch.setattr(os, "fsync", self.synced)

    def synced(self, fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        self.seen.append(("sync directory", None) if is_directory else ("sync", Path(f"/proc/self/fd/{fd}").read_bytes()))
        self._fsync(fd)

    def link(self, name: str, new_name: str, *, dir_fd: int) -> None:
        if not self._has_links:
            raising(errno.EPERM)()
        super().link(name, new_name, dir_fd=dir_fd)
        self.seen.append(("name", self._path.read_bytes()))

    def rename_noreplace(self, name: str, new_name: str, *, dir_fd: int) -> None:
        super().rename_noreplace(name, new_name, dir_fd=dir_fd)
        self.seen.append(("name", self._path.read_bytes()))


def write(path: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    with new_file(str(path)) as file:
        file.write(DATA)
        meanwhile()


@pytest.mark.parametrize("has_links", [True, False])
def test_the_order(tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table"
    calls = Calls(monkeypatch, path, has_links=has_links)
    write(path)
    assert calls.seen == [("sync", DATA), ("name", DATA), ("sync directory", None)]
    assert os.listdir(tmp_path) == ["table"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("has_links", [True, False])
def test_a_name_that_appears_meanwhile(tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table"
    Calls(monkeypatch, path, has_links=has_links)
    with pytest.raises(RefusedError, match=NOT_REPLACED):
        write(path, lambda: path.write_bytes(b"another's"))
    assert path.read_bytes() == b"another's"
    assert os.listdir(tmp_path) == ["table"]


def test_where_it_may_be(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    before = sorted(os.listdir(logs))
    for path in (logs / "table", logs / "meta.properties"):
        with pytest.raises(RefusedError):
            write(path)
    assert sorted(os.listdir(logs)) == before


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", raising(errno.ENOSPC))
        with pytest.raises(WriteFailedError, match="No space left"):
            write(tmp_path / "table")
    with pytest.raises(KeyError):
        write(tmp_path / "table", lambda: {}["absent"])
    assert os.listdir(tmp_path) == []
