"""A file of lines that only grows: whole lines from many threads, and none after one that could not be written."""

import errno
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from failing_calls import raising
from log_dirs import make_log_dir

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.storage.local import journal_file
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.local.journal_file import JournalFile


def test_lines_of_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is synced when its append returns; one sync may serve several."""
    path = tmp_path / "a" / "b" / "journal"
    synced: list[int] = []
    real = os.fsync
    journal = JournalFile(str(path), "first")
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(path.stat().st_size), real(fd)))

    def append(number: int) -> bool:
        line = f"{number:04d}" + "x" * (number % 50)
        journal.append(line)
        return f"{line}\n" in path.read_bytes()[: max(synced)].decode()

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(append, range(400)))
    journal.close()
    lines = path.read_text().splitlines()
    assert lines[0] == "first"
    assert sorted(lines[1:]) == [f"{number:04d}" + "x" * (number % 50) for number in range(400)]
    assert len(synced) <= 400


def test_nothing_behind_a_line_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalFile(str(tmp_path / "journal"), "first")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", raising(errno.ENOSPC))
        with pytest.raises(WriteFailedError, match="No space left"):
            journal.append("second")
    with pytest.raises(WriteFailedError, match="No space left"):
        journal.append("third")
    assert (tmp_path / "journal").read_text() == "first\n"


def test_nothing_after_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a line that was written meanwhile and waits for the next sync: the kernel reports lost bytes to one sync only."""
    journal = JournalFile(str(tmp_path / "journal"), "first")
    waiting: list[Future[None]] = []
    write, fsync, is_written = os.write, os.fsync, threading.Event()

    def write_and_tell(fd: int, data: memoryview) -> int:
        count = write(fd, data)
        if bytes(data) == b"third\n":
            is_written.set()
        return count

    def fail_once(fd: int) -> None:
        if waiting:
            fsync(fd)
            return
        waiting.append(threads.submit(journal.append, "third"))
        assert is_written.wait(60)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(os, "write", write_and_tell)
        monkeypatch.setattr(os, "fsync", fail_once)
        with pytest.raises(WriteFailedError, match="Input/output error"):
            journal.append("second")
        with pytest.raises(WriteFailedError, match="Input/output error"):
            waiting[0].result()
    with pytest.raises(WriteFailedError, match="Input/output error"):
        journal.sync()


def test_writes_that_take_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    journal = JournalFile(str(tmp_path / "journal"), "the first line")
    journal.append("the second line")
    journal.close()
    assert (tmp_path / "journal").read_text() == "the first line\nthe second line\n"


def test_a_file_that_appears_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "check_new_place", lambda path: Path(path).write_text("another's\n"))
    with pytest.raises(WriteFailedError, match="cannot be created: File exists"):
        JournalFile(str(tmp_path / "journal"), "first")
    assert (tmp_path / "journal").read_text() == "another's\n"


def test_one_that_cannot_begin_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", raising(errno.EIO))
        with pytest.raises(WriteFailedError):
            JournalFile(str(tmp_path / "journal"), "first")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_the_first_line_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def interrupted(fd: int) -> None:
        opened.append(fd)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            JournalFile(str(tmp_path / "journal"), "first")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[-1])


def test_a_second_close_closes_no_other_file(tmp_path: Path) -> None:
    """Another file has the number of the descriptor by then."""
    journal = JournalFile(str(tmp_path / "journal"), "first")
    journal.close()
    with open(tmp_path / "other", "w") as other:
        journal.close()
        other.write("kept")
    with pytest.raises(WriteFailedError, match="Bad file descriptor"):
        journal.append("second")
    assert (tmp_path / "other").read_text() == "kept"


def test_where_it_may_stand(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    (tmp_path / "there").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "plan").write_text('{"schema": "snaprebuild.saved-plan/1"}')  # which another plan may replace
    for path in (logs / "journal", *(tmp_path / name for name in ("there", "dangling", "plan", "meta.properties"))):
        with pytest.raises(RefusedError):
            check_new_place(str(path))
    with pytest.raises(WriteFailedError, match="Not a directory"):
        check_new_place(str(tmp_path / "there" / "journal"))
    check_new_place(str(tmp_path / "not" / "yet" / "journal"))
    assert not (tmp_path / "not").exists()
