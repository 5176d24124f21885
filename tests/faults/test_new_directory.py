"""The directory of a partition appears whole or not at all, whichever call fails."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_calls import RecordedCalls, failing_at

from snaprebuild.errors import AlreadyExistsError, SnaprebuildError, WriteFailedError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.new_directory import create_partition_directory
from snaprebuild.storage.store import Ownership

FILES = {f"{6:020d}.log": b"", f"{6:020d}.snapshot": b"snapshot", "leader-epoch-checkpoint": b"0\n0\n"}


def create(log_dir: Path, calls: FileCalls = OS) -> None:
    owner = Ownership(os.getuid(), os.getgid(), 0o640)
    create_partition_directory(str(log_dir), "t-0", FILES, owner, calls=calls)


def is_whole(log_dir: Path) -> bool:
    """Nothing of that name, or all of it."""
    directory = log_dir / "t-0"
    if not directory.exists():
        return False
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == FILES
    return True


def count_of(work: Callable[[Path, FileCalls], None], tmp_path: Path) -> int:
    healthy = tmp_path / "healthy"
    healthy.mkdir()
    calls = RecordedCalls()
    work(healthy, calls)
    return len(calls.trace)


def test_modes_and_owners(tmp_path: Path) -> None:
    create(tmp_path)
    assert is_whole(tmp_path)
    assert os.listdir(tmp_path) == ["t-0"]
    assert (tmp_path / "t-0").stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "t-0").iterdir()} == {0o640}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_call_that_fails_leaves_nothing_half(tmp_path: Path, code: int) -> None:
    count, outcomes = count_of(create, tmp_path), set()
    for index in range(count):
        log_dir = tmp_path / f"{index}"
        log_dir.mkdir()
        try:
            create(log_dir, RecordedCalls(before=failing_at(index, code)))
        except SnaprebuildError:
            outcomes.add(is_whole(log_dir))
        else:
            assert is_whole(log_dir)
        assert all(name == "t-0" or name.endswith("-delete") for name in os.listdir(log_dir))
    assert outcomes == {False, True}  # the last one is the sync of what is there


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(at: int) -> Callable[[int, str, str], None]:
        def before(index: int, _method: str, _file: str) -> None:
            if index == at:
                raise KeyboardInterrupt

        return before

    for index in range(count_of(create, tmp_path) - 3):
        log_dir = tmp_path / f"{index}"
        log_dir.mkdir()
        with pytest.raises(KeyboardInterrupt):
            create(log_dir, RecordedCalls(before=interrupted(index)))
        assert os.listdir(log_dir) == []


def test_it_is_announced_before_it_gets_its_name(tmp_path: Path) -> None:
    announced = []

    def announce(modified_ns: dict[str, int]) -> None:
        assert not (tmp_path / "t-0").exists()
        announced.append(modified_ns)

    create_partition_directory(str(tmp_path), "t-0", FILES, None, announce=announce)
    assert announced == [{path.name: path.stat().st_mtime_ns for path in (tmp_path / "t-0").iterdir()}]


def test_without_an_announcement_nothing_is_left(tmp_path: Path) -> None:
    def announce(_: dict[str, int]) -> None:
        raise WriteFailedError("the receipt cannot be written")

    with pytest.raises(WriteFailedError):
        create_partition_directory(str(tmp_path), "t-0", FILES, None, announce=announce)
    assert os.listdir(tmp_path) == []


def test_a_name_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Not even an empty directory, which a rename would replace."""

    class Slow(FileCalls):
        def rename_noreplace(self, name: str, new_name: str, *, dir_fd: int) -> None:
            (tmp_path / "t-0").mkdir()
            super().rename_noreplace(name, new_name, dir_fd=dir_fd)

    with pytest.raises(AlreadyExistsError, match="appeared meanwhile"):
        create(tmp_path, Slow())
    assert os.listdir(tmp_path) == ["t-0"]
    assert os.listdir(tmp_path / "t-0") == []


def test_a_reply_that_was_lost(tmp_path: Path) -> None:
    """The directory has its name, whatever the error says."""

    class Lossy(FileCalls):
        def rename_noreplace(self, name: str, new_name: str, *, dir_fd: int) -> None:
            super().rename_noreplace(name, new_name, dir_fd=dir_fd)
            raise OSError(errno.EIO, "lost")

    create(tmp_path, Lossy())
    assert is_whole(tmp_path)
