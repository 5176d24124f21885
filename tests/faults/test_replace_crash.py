"""A file that is replaced: power failures after each call, and each call failing, leave the old file or the new one, whole."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_model import Content, Disk, State, build_state, read_state
from recorded_calls import RecordedCalls, ShortWrites, failing_at, failing_from
from sentences import CHANGED_WHILE_READ

from snaprebuild.errors import OutcomeUnknownError, RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.publish import TEMPORARY_SUFFIX, replace_file
from snaprebuild.storage.local.regular_file import read_identified

NAME = "x.indexes"
TEMPORARY = NAME + TEMPORARY_SUFFIX
OLD, NEW = b"the old bytes", b"the old bytes, and what stands behind them"
MODE = 0o640
BEFORE = State(((NAME, 0),), (Content(OLD, os.getuid(), os.getgid(), MODE),))
WITH_LEFTOVER = State(((NAME, 0), (TEMPORARY, 1)), (BEFORE.files[0], Content(NEW[:20], os.getuid(), os.getgid(), 0o644)))


def run(directory: Path, calls: FileCalls = OS) -> None:
    found = read_identified(str(directory / NAME), 1000)
    assert found is not None
    if found[0] == OLD:
        replace_file(str(directory / NAME), NEW, found[1], calls=calls)


def made(directory: Path, state: State) -> Path:
    directory.mkdir()
    build_state(directory, state)
    return directory


@pytest.mark.parametrize(
    ("before", "calls"),
    [(BEFORE, lambda: OS), (WITH_LEFTOVER, lambda: OS), (BEFORE, lambda: ShortWrites(7))],
    ids=["plain", "leftover", "short"],
)
def test_power_failures(tmp_path: Path, before: State, calls: Callable[[], FileCalls]) -> None:
    recorded = RecordedCalls(calls())
    run(made(tmp_path / "run", before), recorded)
    disk, states = Disk(before), set()
    for call in recorded.trace:
        disk.follow(call)
        states |= {*disk.states(), disk.running_state()}
    assert len(states) > 10
    seen = set()
    for number, state in enumerate(states):
        found = state.content(NAME)
        assert found is not None
        assert found.data in (OLD, NEW)
        assert found._replace(data=OLD) == BEFORE.files[0]
        seen.add(found.data)
        directory = made(tmp_path / str(number), state)
        run(directory)
        assert (directory / NAME).read_bytes() == NEW
        if found.data == OLD:
            assert os.listdir(directory) == [NAME]
    assert seen == {OLD, NEW}
    assert list(disk.states()) == [disk.running_state()], "at the end all of it is durable"


@pytest.mark.parametrize("failing", [failing_at, failing_from])
def test_each_call_fails(tmp_path: Path, failing: Callable[[int, int], Callable[[int, str, str], None]]) -> None:
    recorded = RecordedCalls()
    run(made(tmp_path / "run", BEFORE), recorded)
    assert read_state(tmp_path / "run").content(NAME) == BEFORE.files[0]._replace(data=NEW)
    for index, call in enumerate(recorded.trace):
        directory = made(tmp_path / str(index), BEFORE)
        try:
            run(directory, RecordedCalls(before=failing(index, errno.EIO)))
        except WriteFailedError:
            assert (directory / NAME).read_bytes() == OLD, call
        except OutcomeUnknownError:
            assert call.method in ("fsync", "rename"), call
        else:
            assert (directory / NAME).read_bytes() == NEW, call
        assert (directory / NAME).read_bytes() in (OLD, NEW)
        run(directory)
        assert (directory / NAME).read_bytes() == NEW


def test_a_device_that_is_gone_at_the_rename(tmp_path: Path) -> None:
    """Nothing shows whether it took effect."""
    recorded = RecordedCalls()
    run(made(tmp_path / "run", BEFORE), recorded)
    rename = next(index for index, call in enumerate(recorded.trace) if call.method == "rename")
    with pytest.raises(OutcomeUnknownError, match="may have been replaced"):
        run(made(tmp_path / "gone", BEFORE), RecordedCalls(before=failing_from(rename, errno.EIO)))


def test_other_bytes_than_were_written(tmp_path: Path) -> None:
    class OtherBytes(FileCalls):
        def read(self, fd: int, size_bytes: int) -> bytes:
            return super().read(fd, size_bytes).replace(b"behind", b"before")

    directory = made(tmp_path / "run", BEFORE)
    with pytest.raises(WriteFailedError, match="reads back other bytes"):
        run(directory, OtherBytes())
    assert (directory / NAME).read_bytes() == OLD
    assert os.listdir(directory) == [NAME]


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made(tmp_path / "run", BEFORE)
    read = os.read

    def grows(fd: int, size_bytes: int) -> bytes:
        data = read(fd, size_bytes)
        with (directory / NAME).open("ab") as file:
            file.write(b"more")
        return data

    monkeypatch.setattr(os, "read", grows)
    with pytest.raises(SnaprebuildError, match=CHANGED_WHILE_READ):
        read_identified(str(directory / NAME), 1000)


def test_an_answer_to_the_rename_that_is_lost(tmp_path: Path) -> None:
    class Lost(FileCalls):
        def rename(self, name: str, new_name: str, *, dir_fd: int) -> None:
            super().rename(name, new_name, dir_fd=dir_fd)
            raise OSError(errno.EIO, "lost")

    directory = made(tmp_path / "run", BEFORE)
    run(directory, Lost())
    assert (directory / NAME).read_bytes() == NEW
    assert os.listdir(directory) == [NAME]


def change(directory: Path) -> None:
    (directory / NAME).write_bytes(b"somebody else's")


def delete(directory: Path) -> None:
    (directory / NAME).unlink()


def link(directory: Path) -> None:
    (directory / NAME).rename(directory / "elsewhere")
    (directory / NAME).symlink_to(directory / "elsewhere")


@pytest.mark.parametrize("method", ["open", "fsync"])
@pytest.mark.parametrize("what", [change, delete, link])
def test_a_file_that_changes_before_the_last_look(tmp_path: Path, what: Callable[[Path], None], method: str) -> None:
    """After the last check, at the rename itself, nothing protects: only a run of this program, by its lock."""
    directory = made(tmp_path / "run", BEFORE)
    is_done = []

    def before(_index: int, name: str, file: str) -> None:
        if name == method and not is_done:
            is_done.append(True)
            what(directory)

    with pytest.raises(RefusedError, match="another program is writing here"):
        run(directory, RecordedCalls(before=before))
    after = sorted(os.listdir(directory))
    assert after == ({change: [NAME], delete: [], link: ["elsewhere", NAME]}[what])


def test_two_runs_meet_at_the_temporary_file(tmp_path: Path) -> None:
    """A second run is refused while the first one writes."""
    directory = made(tmp_path / "run", BEFORE)
    refused: list[SnaprebuildError] = []

    def before(_index: int, name: str, _file: str) -> None:
        if name == "rename":
            with pytest.raises(WriteFailedError, match="another run writes this file now") as caught:
                run(directory)
            refused.append(caught.value)

    run(directory, RecordedCalls(before=before))
    assert len(refused) == 1
    assert (directory / NAME).read_bytes() == NEW
    assert os.listdir(directory) == [NAME]


def test_what_is_read(tmp_path: Path) -> None:
    assert read_identified(str(tmp_path / "absent"), 10) is None
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(SnaprebuildError, match="has 11 bytes, more than the limit of 10"):
        read_identified(str(tmp_path / "large"), 10)
    (tmp_path / "link").symlink_to(tmp_path / "large")
    with pytest.raises(SnaprebuildError, match="cannot be opened"):
        read_identified(str(tmp_path / "link"), 100)
