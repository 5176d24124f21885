"""Second names, removal and setting aside of whole files."""

import errno
import os
import sys
from pathlib import Path

import pytest
from failing_calls import failing, meanwhile
from log_dirs import tree
from odd_files import ODD_KINDS, make_odd
from other_process import other_process
from published_names import DATA, LOCKS_AND_WAITS, NAME, TEMPORARY

from snaprebuild.errors import AlreadyExistsError, OutcomeUnknownError, WriteFailedError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.whole_file import aside_name, remove_file, remove_second_name, set_aside, sync_directory

# --- the temporary name of a whole file --------------------------------------------------------------------------------


def left_between_link_and_unlink(directory: Path) -> None:
    (directory / NAME).write_bytes(DATA)
    (directory / TEMPORARY).hardlink_to(directory / NAME)


def test_the_second_name_of_a_whole_file_is_removed(tmp_path):
    left_between_link_and_unlink(tmp_path)
    before = tree(tmp_path)
    assert remove_second_name(tmp_path, NAME, TEMPORARY)
    assert tree(tmp_path) == {NAME: before[NAME]}
    assert (tmp_path / NAME).stat().st_nlink == 1
    assert not remove_second_name(tmp_path, NAME, TEMPORARY)


def third_name(directory: Path) -> None:
    left_between_link_and_unlink(directory)
    (directory / "kept by somebody").hardlink_to(directory / NAME)


def each_with_another_name(directory: Path) -> None:
    for name, second in ((NAME, "one"), (TEMPORARY, "other")):
        (directory / name).write_bytes(DATA)
        (directory / second).hardlink_to(directory / name)


def file_beside(kind: str, name: str, other: str):
    """A file with two names, and something that is not the other one of them."""

    def make(directory: Path) -> None:
        (directory / name).write_bytes(DATA)
        (directory / "second").hardlink_to(directory / name)
        if kind == "link to it":
            (directory / other).symlink_to(name)
        elif kind != "absent":
            make_odd(directory / other, kind)

    return make


NOT_OURS = {
    "third name": third_name,
    "each with another name": each_with_another_name,
    **{f"{kind} beside a file": file_beside(kind, NAME, TEMPORARY) for kind in ("absent", "link to it", "directory")},
    **{f"{kind} beside a temporary file": file_beside(kind, TEMPORARY, NAME) for kind in ("absent", "link to it", "pipe")},
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_nothing_else_is_removed(tmp_path, case):
    NOT_OURS[case](tmp_path)
    before = tree(tmp_path)
    assert not remove_second_name(tmp_path, NAME, TEMPORARY)
    assert tree(tmp_path) == before


def test_the_second_name_is_not_removed_while_its_run_lives(tmp_path):
    left_between_link_and_unlink(tmp_path)
    before = tree(tmp_path)
    with other_process(sys.executable, "-c", LOCKS_AND_WAITS, tmp_path / TEMPORARY, "F_OFD_SETLK"):
        assert not remove_second_name(tmp_path, NAME, TEMPORARY)
        assert tree(tmp_path) == before
    assert remove_second_name(tmp_path, NAME, TEMPORARY)


@pytest.mark.parametrize("change", ["third name", "no name", "another temporary file"])
def test_names_that_change_while_we_look(tmp_path, change):
    left_between_link_and_unlink(tmp_path)

    def happens() -> None:
        match change:
            case "third name":
                (tmp_path / "third").hardlink_to(tmp_path / NAME)
            case "no name":
                (tmp_path / NAME).rename(tmp_path / "elsewhere")
            case _:
                (tmp_path / TEMPORARY).rename(tmp_path / "elsewhere")
                (tmp_path / TEMPORARY).write_bytes(b"of another run")

    assert not remove_second_name(tmp_path, NAME, TEMPORARY, calls=meanwhile("lock", happens))
    assert len(os.listdir(tmp_path)) == {"third name": 3, "no name": 2, "another temporary file": 3}[change]


# --- removal ------------------------------------------------------------------------------------------------------------


def test_only_the_file_that_is_meant_is_removed(tmp_path):
    (tmp_path / NAME).write_bytes(DATA)
    assert not remove_file(tmp_path, NAME, lambda _fd: False)
    assert (tmp_path / NAME).read_bytes() == DATA
    assert remove_file(tmp_path, NAME, lambda fd: os.pread(fd, len(DATA), 0) == DATA)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_only_a_file_is_removed(tmp_path, kind):
    make_odd(tmp_path / NAME, kind)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(WriteFailedError, match="is no regular file and is not removed"):
        remove_file(tmp_path, NAME, lambda _fd: True)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_removal_that_a_power_failure_may_take_back(tmp_path):
    with pytest.raises(OutcomeUnknownError, match="a power failure may bring back what was removed"):
        sync_directory(tmp_path, calls=failing(fsync=errno.EIO))


# --- set aside ----------------------------------------------------------------------------------------------------------


either_way = pytest.mark.parametrize("calls", [OS, failing(rename_noreplace=errno.EINVAL)], ids=["rename", "link"])


@either_way
def test_set_aside(tmp_path, calls):
    (tmp_path / NAME).write_bytes(b"wrong")
    before = (tmp_path / NAME).stat()
    set_aside(tmp_path, NAME, aside_name(1123), calls=calls)
    assert os.listdir(tmp_path) == ["00000000000000001123.snapshot.set-aside.1"]
    after = (tmp_path / "00000000000000001123.snapshot.set-aside.1").stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


@either_way
def test_set_aside_replaces_nothing(tmp_path, calls):
    (tmp_path / NAME).write_bytes(b"wrong")
    (tmp_path / aside_name(1123)).write_bytes(b"an earlier one")
    with pytest.raises(AlreadyExistsError) as caught:
        set_aside(tmp_path, NAME, aside_name(1123), calls=calls)
    assert caught.value.name == aside_name(1123)
    assert (tmp_path / NAME).read_bytes() == b"wrong"
    assert (tmp_path / aside_name(1123)).read_bytes() == b"an earlier one"


def test_the_new_name_is_durable_before_the_old_one_goes(tmp_path):
    """A run that was killed after its link has not synced it: without this sync a power failure could keep the removal alone."""
    (tmp_path / NAME).write_bytes(b"wrong")
    (tmp_path / aside_name(1123)).hardlink_to(tmp_path / NAME)
    seen = []

    class Looks(FileCalls):
        def fsync(self, fd: int) -> None:
            seen.append("sync")

        def unlink(self, name: str, *, dir_fd: int) -> None:
            seen.append(f"remove {name}")

    set_aside(tmp_path, NAME, aside_name(1123), calls=Looks())
    assert seen == ["sync", f"remove {NAME}", "sync"]


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_only_files_are_set_aside(tmp_path, kind):
    make_odd(tmp_path / NAME, kind)
    with pytest.raises(WriteFailedError, match="is not a regular file"):
        set_aside(tmp_path, NAME, aside_name(1123))


def test_there_is_nothing_to_set_aside(tmp_path):
    with pytest.raises(WriteFailedError, match="cannot find the file to set aside"):
        set_aside(tmp_path, NAME, aside_name(1123))


@pytest.mark.parametrize(
    ("call", "error", "left"), [("rename_noreplace", WriteFailedError, NAME), ("fsync", OutcomeUnknownError, aside_name(1123))]
)
def test_set_aside_on_a_failing_disk(tmp_path, call, error, left):
    (tmp_path / NAME).write_bytes(b"wrong")
    with pytest.raises(error, match="Input/output error"):
        set_aside(tmp_path, NAME, aside_name(1123), calls=failing(**{call: errno.EIO}))
    assert os.listdir(tmp_path) == [left]


# Every suffix that a Kafka broker of 2.7 to 4.x asks for in a partition's directory (LogFileUtils, UnifiedLog, Snapshots,
# CleanerCache aside), and the names that it asks for in full.
SUFFIXES_OF_KAFKA = [
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"),
    *(".deleted", ".cleaned", ".swap", ".part", "-delete", "-future", "-stray"),
]
NAMES_OF_KAFKA = {"leader-epoch-checkpoint", "partition.metadata", "quorum-state", "remote_log_snapshot"}


@pytest.mark.parametrize("name", [TEMPORARY, aside_name(0), aside_name(1123), aside_name(2**63 - 1, 17)])
def test_kafka_passes_over_our_names(name):
    assert not any(name.endswith(suffix) for suffix in SUFFIXES_OF_KAFKA)
    assert name not in NAMES_OF_KAFKA


def test_aside_names():
    assert aside_name(1123) == "00000000000000001123.snapshot.set-aside.1"
    assert aside_name(2**63 - 1, 2) == "09223372036854775807.snapshot.set-aside.2"
    for offset, number in ((-1, 1), (2**63, 1), (0, 0)):
        with pytest.raises(ValueError, match="no such snapshot"):
            aside_name(offset, number)
