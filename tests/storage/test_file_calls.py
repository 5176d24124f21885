"""Each method of the seam makes its system call: what tests record at the seam is what happens."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from snaprebuild.storage.local.file_calls import OS


@pytest.fixture
def file(tmp_path: Path) -> int:
    (tmp_path / "file").write_bytes(b"0123456789")
    fd = os.open(tmp_path / "file", os.O_RDWR)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("method", "function", "arguments", "expected"),
    [
        ("fsync", "fsync", (), ()),
        ("fchown", "fchown", (4711, 4712), (4711, 4712)),
        ("fchmod", "fchmod", (0o640,), (0o640,)),
        ("forget_cached", "posix_fadvise", (), (0, 0, os.POSIX_FADV_DONTNEED)),
    ],
)
def test_calls_without_a_visible_effect(
    file: int, method: str, function: str, arguments: tuple[int, ...], expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(os, function, lambda *given: seen.append(given))
    getattr(OS, method)(file, *arguments)
    assert seen == [(file, *expected)]


def test_the_mode(file: int) -> None:
    OS.fchmod(file, 0o604)
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o604


def test_the_lock_holds_until_its_descriptor_is_closed(tmp_path: Path, file: int) -> None:
    """A POSIX lock would end when any descriptor of the file is closed, and would not keep out this process."""
    OS.lock(file)
    os.close(os.open(tmp_path / "file", os.O_RDONLY))
    other = os.open(tmp_path / "file", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        OS.lock(other)
    os.close(other)


def test_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    (tmp_path / "symbolic").symlink_to("one")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert stat.S_ISLNK(OS.stat("symbolic", dir_fd=directory).st_mode)
        with pytest.raises(FileExistsError):
            OS.link("one", "two", dir_fd=directory)
        with pytest.raises(FileExistsError):
            OS.rename_noreplace("one", "two", dir_fd=directory)
        OS.link("symbolic", "linked", dir_fd=directory)
        assert (tmp_path / "linked").is_symlink()
        OS.unlink("linked", dir_fd=directory)
    finally:
        os.close(directory)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one": "one", "two": "two", "symbolic": "one"}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_of_the_process_does_not_count(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        os.close(OS.open(str(tmp_path / "new"), os.O_WRONLY | os.O_CREAT, 0o666))
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


def test_a_descriptor_is_not_inherited(tmp_path: Path) -> None:
    fd = OS.open(str(tmp_path), os.O_RDONLY | os.O_DIRECTORY)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    OS.close(fd)
