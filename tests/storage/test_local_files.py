"""Files of this machine: directories that survive, what a caller is asked, and large files that are compared."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from failing_calls import raising

from snaprebuild.errors import ChangedFileError, RefusedError
from snaprebuild.storage import store as stores
from snaprebuild.storage.local.directories import make_directories, sync_entries
from snaprebuild.storage.local.journal_file import JournalFile
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import Ownership

NAME = "00000000000000000042.snapshot"
DATA = bytes(range(200))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, frozenset[str]]]]:
    """Each directory that is synced, and the names in it at that moment."""
    seen: list[tuple[str, frozenset[str]]] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isdir(path):
            seen.append((path, frozenset(os.listdir(path))))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def create_nothing(directory: Path) -> None:
    make_directories(str(directory))


def create(directory: Path) -> None:
    LOCAL.create(str(directory), NAME, DATA, owner=None, temporary_name=f"{NAME}.tmp")


def create_large(directory: Path) -> None:
    source = directory.parents[1] / "source"
    source.write_bytes(DATA)
    with SegmentFile(str(source)) as opened:
        LOCAL.create_large(str(directory / NAME), opened)


def create_journal(directory: Path) -> None:
    JournalFile(str(directory / "journal"), "first").close()


@pytest.mark.parametrize("make", [create_nothing, create, create_large, create_journal])
def test_each_new_directory_is_synced_into_the_one_above(
    tmp_path: Path, synced: list[tuple[str, frozenset[str]]], make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a" / "b")
    assert any(path == str(tmp_path) and "a" in names for path, names in synced)
    assert any(path == str(tmp_path / "a") and "b" in names for path, names in synced)


def test_a_directory_that_cannot_be_synced_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (errno.EINVAL, errno.EOPNOTSUPP):
        monkeypatch.setattr(os, "fsync", raising(code))
        sync_entries(str(tmp_path))  # a file system that has no such call
    monkeypatch.setattr(os, "fsync", raising(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        sync_entries(str(tmp_path))
    with pytest.raises(OSError, match="Input/output error"):
        make_directories(str(tmp_path / "a"))


def test_the_caller_is_asked_before_the_name(tmp_path: Path) -> None:
    asked: list[tuple[int, list[str]]] = []
    LOCAL.create(
        str(tmp_path),
        NAME,
        DATA,
        owner=None,
        temporary_name="temporary",
        before_name=lambda mtime_ns: asked.append((mtime_ns, os.listdir(tmp_path))),
    )
    assert asked == [((tmp_path / NAME).stat().st_mtime_ns, ["temporary"])]


def test_the_owner_is_passed_on(tmp_path: Path) -> None:
    owner = Ownership(os.getuid(), os.getgid(), 0o604)
    LOCAL.create(str(tmp_path), NAME, DATA, owner=owner, temporary_name="temporary")
    assert Ownership.of((tmp_path / NAME).stat()) == owner


@pytest.mark.parametrize(
    "other", [DATA[:-1], DATA[:100], DATA + b"x", DATA[:-1] + b"x"], ids=["a byte less", "half", "a byte more", "another byte"]
)
def test_another_large_file_is_known(tmp_path: Path, other: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BLOCK_BYTES", 50)
    (tmp_path / "source").write_bytes(DATA)
    (tmp_path / "there").write_bytes(other)
    with SegmentFile(str(tmp_path / "source")) as source:
        assert LOCAL.holds(str(tmp_path / "there"), source) is False
        assert LOCAL.holds(str(tmp_path / "absent"), source) is None
        (tmp_path / "there").write_bytes(DATA)
        assert LOCAL.holds(str(tmp_path / "there"), source) is True


def test_a_source_that_becomes_shorter(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)

    def copied() -> None:
        with SegmentFile(str(tmp_path / "source")) as source:
            os.truncate(tmp_path / "source", 50)
            with pytest.raises(RefusedError, match="became shorter"):
                LOCAL.create_large(str(tmp_path / "store" / "log"), source)

    with pytest.raises(ChangedFileError):
        copied()
    assert os.listdir(tmp_path / "store") == []
