"""Small files: plans and reports that are written whole, checkpoints that are read within a limit."""

import errno
import os
import stat
from pathlib import Path

import pytest
from failing_calls import raising
from odd_files import ODD_KINDS, make_odd
from open_files import nothing_left_open
from sentences import REPLACES_ONLY_ITS_OWN

from snaprebuild.errors import ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local import document_file, regular_file, write_checks
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.document_file import check_document, check_place, write_text_file
from snaprebuild.storage.local.regular_file import open_named_file, read_small_file

OLDER = '{\n "schema": "snaprebuild.saved-plan/1",\n "more": "than the new one"\n}\n'


@pytest.mark.parametrize("kind", ["receipt", "tier-undo", "metadata-undo", "follower-undo", "audit-ledger", "staged-plan"])
def test_what_a_later_command_needs_is_not_replaced(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    content = f'{{"schema":"snaprebuild.{kind}/3"}}\n'
    path.write_text(content)
    with pytest.raises(RefusedError, match=f"is not replaced: a later command needs this file .{kind}."):
        write_text_file(str(path), ["new\n"])
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", '{"schema": "other"}'])
def test_what_is_not_ours_is_not_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(RefusedError, match="no plan or report of this program"):
        write_text_file(str(path), ["new\n"])
    assert path.read_text() == content


@pytest.mark.parametrize("name", ["report.json", "00000000000000000007.log", "00000000000000000007.snapshot", "meta.properties"])
def test_nothing_of_ours_lies_among_the_files_of_a_broker(name: str, tmp_path: Path) -> None:
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    (tmp_path / "logs" / "meta.properties").write_text("version=0")
    (tmp_path / "logs" / "t-0" / "00000000000000000000.log").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    for directory in (tmp_path / "logs", tmp_path / "logs" / "t-0"):
        with pytest.raises(RefusedError):
            write_text_file(str(directory / name), ["text"])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_new_file(tmp_path: Path) -> None:
    write_text_file(str(tmp_path / "plan.json"), ["text\n"])
    assert (tmp_path / "plan.json").read_text() == "text\n"
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["plan.json"]


def test_an_older_one_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(OLDER)
    with path.open() as reader:
        write_text_file(str(path), ["new\n"])
        assert reader.read() == OLDER, "who reads the old one reads it to its end"
    assert path.read_text() == "new\n"


def test_a_name_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_text_file("plan.json", ["text"])
    assert (tmp_path / "plan.json").read_text() == "text"


def test_dots_after_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that is written is the one that was checked: the kernel would follow the link first."""
    (tmp_path / "other" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "other" / "below")
    (tmp_path / "plan.json").write_text("foreign")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError, match=REPLACES_ONLY_ITS_OWN):
        write_text_file("link/../plan.json", ["new"])
    assert (tmp_path / "plan.json").read_text() == "foreign"


def test_directories_after_a_link(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (tmp_path / "other" / "below").mkdir(parents=True)
    logs.mkdir()
    (logs / "meta.properties").touch()
    (logs / "link").symlink_to(tmp_path / "other" / "below")
    with pytest.raises(RefusedError, match="in a directory of a broker"):
        make_directories(str(logs / "link" / ".." / "new" / "x"))
    assert sorted(os.listdir(logs)) == ["link", "meta.properties"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_the_older_one_and_nothing_else(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text(OLDER)

    monkeypatch.setattr(document_file.os, call, raising(errno.ENOSPC))
    with pytest.raises(WriteFailedError, match="No space left on device") as caught:
        write_text_file(str(path), ["new"])
    monkeypatch.undo()
    assert (caught.value.path, caught.value.errno) == (str(path), 28)
    assert path.read_text() == OLDER
    assert os.listdir(tmp_path) == ["plan.json"]


def test_no_directory_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(WriteFailedError, match="No such file"):
        write_text_file(str(tmp_path / "absent" / "plan.json"), ["text"])
    (tmp_path / "directory").mkdir()
    with pytest.raises(RefusedError):
        write_text_file(str(tmp_path / "directory"), ["text"])
    assert os.listdir(tmp_path) == ["directory"]


# --- reading ---------------------------------------------------------------------------------------------------------------


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_small_file(str(path)) is None
    for data in (b"", b"x", bytes(10_000)):
        path.write_bytes(data)
        assert read_small_file(str(path)) == data
        assert read_small_file(str(path), bytes_max=len(data)) == data


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with pytest.raises(ReadFailedError, match="has 5 bytes, more than the limit of 4"):
        read_small_file(str(path), bytes_max=4)
    with pytest.raises(ReadFailedError, match="is no regular file"):
        read_small_file("/dev/zero", bytes_max=100)


def test_a_regular_file_that_would_have_to_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of those in /proc are such. A pipe is used for it here."""
    (tmp_path / "there").write_text("")
    ends = []

    def opened(path: str) -> tuple[int, os.stat_result]:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        ends.append(writing)
        return reading, os.stat(path)

    for module in (document_file, regular_file):
        monkeypatch.setattr(module, "open_regular_file", opened)
    try:
        with open_named_file(str(tmp_path / "there")) as file, pytest.raises(BlockingIOError):
            file.read(200)
        with pytest.raises(RefusedError, match="is no plan or report of this program"):
            check_place(str(tmp_path / "there"))
    finally:
        for each in ends:
            os.close(each)


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    """Links are not followed, and a pipe does not hang."""
    path = tmp_path / "it"
    make_odd(path, kind)
    with nothing_left_open(tmp_path), pytest.raises(ReadFailedError) as caught:
        read_small_file(str(path))
    assert caught.value.path == str(path)


@pytest.mark.parametrize("name", ["report.json", "n" * 250])
def test_a_check_before_the_work_changes_nothing(name: str, tmp_path: Path) -> None:
    """And what it lets through can be written, also with a name that has no room for a temporary one."""
    path = tmp_path / name
    check_document(str(path), replaces=True)
    assert not list(tmp_path.iterdir())
    write_text_file(str(path), [OLDER])
    before = path.stat()
    check_document(str(path), replaces=True)
    assert path.stat() == before
    with pytest.raises(RefusedError, match="already exists"):
        check_document(str(path), replaces=False)


def test_a_document_that_is_a_volume_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a blank \u00a0\r" / "scan.json"  # the kernel escapes the first one alone
    path.parent.mkdir()
    path.write_text(OLDER)
    mounts = tmp_path / "mountinfo"
    shown = str(path).replace(" ", "\\040")
    mounts.write_text(
        f"36 35 98:0 / / rw,noatime - ext4 /dev/root rw\n37 36 98:0 /a {shown} rw,noatime master:1 - ext4 /dev/root rw\n",
        newline="",
    )
    monkeypatch.setattr(write_checks, "MOUNTS", str(mounts))
    with pytest.raises(WriteFailedError, match="is a mount of its own") as caught:
        check_document(str(path), replaces=True)
    assert caught.value.errno == errno.EBUSY
