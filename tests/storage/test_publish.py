"""Files that appear whole or not at all, and never in the place of another."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import re
import stat
import struct
import sys
import threading
from pathlib import Path

import pytest
from failing_calls import failing, meanwhile, raising
from log_dirs import tree
from odd_files import ODD_KINDS, make_odd
from open_files import nothing_left_open
from other_process import other_process
from published_names import DATA, LOCKS_AND_WAITS, NAME, TEMPORARY

from snaprebuild.errors import AlreadyExistsError, BusyError, OutcomeUnknownError, RefusedError, WriteFailedError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.store import Ownership

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to other users")


def create(directory: int | Path, data: bytes = DATA, *, owner: Ownership | None = None, calls: FileCalls = OS) -> None:
    create_file(directory, NAME, data, owner=owner, temporary_name=TEMPORARY, calls=calls)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 5_000_003])
def test_every_byte_is_there(tmp_path, size):
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    create(tmp_path, data)
    assert (tmp_path / NAME).read_bytes() == data
    assert os.listdir(tmp_path) == [NAME]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o644
    assert (tmp_path / NAME).stat().st_nlink == 1


@pytest.mark.parametrize("as_path", [str, Path, "descriptor"], ids=["text", "path", "descriptor"])
def test_the_directory_is_a_path_or_a_descriptor(tmp_path, as_path):
    if as_path != "descriptor":
        create(as_path(tmp_path))
    else:
        fd = os.open(tmp_path, os.O_RDONLY)
        create(fd)
        with pytest.raises(AlreadyExistsError, match=re.escape(str(tmp_path / NAME))):
            create(fd)
        os.close(fd)  # fails if it was closed for us
    assert (tmp_path / NAME).read_bytes() == DATA


def test_no_descriptor_is_left_open(tmp_path):
    with nothing_left_open(tmp_path):
        create(tmp_path)
        with pytest.raises(AlreadyExistsError):
            create(tmp_path)


def test_a_directory_that_is_renamed_meanwhile_is_followed(tmp_path):
    """Kafka renames a partition's directory to `-delete`; the file must not appear in a new one of the old name."""
    (tmp_path / "topic-0").mkdir()

    def rename() -> None:
        (tmp_path / "topic-0").rename(tmp_path / "topic-0.0123456789abcdef-delete")
        (tmp_path / "topic-0").mkdir()

    create(tmp_path / "topic-0", calls=meanwhile("link", rename))
    assert os.listdir(tmp_path / "topic-0") == []
    assert os.listdir(tmp_path / "topic-0.0123456789abcdef-delete") == [NAME]


@pytest.mark.parametrize("missing", ["absent", "a file"])
def test_no_directory(tmp_path, missing):
    (tmp_path / "a file").write_bytes(b"")
    with pytest.raises(WriteFailedError, match="cannot open the directory"):
        create(tmp_path / missing)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_names_stay_in_the_directory(tmp_path, name):
    with pytest.raises(ValueError, match="not the name of a file"):
        create_file(tmp_path, name, b"", owner=None, temporary_name=TEMPORARY)
    with pytest.raises(ValueError, match="not the name of a file"):
        create_file(tmp_path, NAME, b"", owner=None, temporary_name=name)
    with pytest.raises(ValueError, match="the same name twice"):
        create_file(tmp_path, NAME, b"", owner=None, temporary_name=NAME)


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(WriteFailedError, match="File name too long"):
        create_file(tmp_path, "x" * 300, b"", owner=None, temporary_name=TEMPORARY)
    assert os.listdir(tmp_path) == []


# --- an existing name ---------------------------------------------------------------------------------------------------


class LooksTooEarly(FileCalls):
    """The name is free when it is looked at and taken when it is given."""

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        if name == NAME and not hasattr(self, "has_looked"):
            self.has_looked = True
            raise FileNotFoundError(name)
        return super().stat(name, dir_fd=dir_fd)


class LooksTooEarlyWithoutLinks(LooksTooEarly):
    link = staticmethod(raising(errno.EOPNOTSUPP))


@pytest.mark.parametrize("calls", [FileCalls, LooksTooEarly, LooksTooEarlyWithoutLinks])
@pytest.mark.parametrize("kind", ["file", *ODD_KINDS])
def test_an_existing_name_is_never_replaced(tmp_path, kind, calls):
    if kind == "file":
        (tmp_path / NAME).write_bytes(b"older")
    else:
        make_odd(tmp_path / NAME, kind)
    before = tree(tmp_path)
    with pytest.raises(AlreadyExistsError, match="exists and is not replaced") as caught:
        create(tmp_path, calls=calls())
    assert caught.value.name == NAME
    assert caught.value.path == str(tmp_path / NAME)
    assert tree(tmp_path) == before


def test_the_entry_that_was_found_is_made_durable(tmp_path):
    """A run that finds the right bytes calls the work done: a killed run may have linked them and not synced the directory."""
    create(tmp_path)
    with pytest.raises(OutcomeUnknownError, match="exists and may not survive a power failure"):
        create(tmp_path, calls=failing(fsync=errno.EIO))


# --- owner and mode -----------------------------------------------------------------------------------------------------


@pytest.mark.root
@as_root
@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_owner_and_mode_follow_the_segment(tmp_path, mode):
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"")
    os.chown(segment, 4711, 4712)
    segment.chmod(mode)
    create(tmp_path, owner=Ownership.of(segment.stat()))
    found = (tmp_path / NAME).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4712, mode)


def test_special_bits_of_the_segment_are_not_followed(tmp_path):
    tmp_path.chmod(0o6755)
    assert Ownership.of(tmp_path.stat()).mode == 0o755
    tmp_path.chmod(0o755)


def test_owner_and_mode_stand_before_the_first_byte(tmp_path):
    seen = []

    class Looks(FileCalls):
        def fchown(self, fd: int, uid: int, gid: int) -> None:
            seen.append("owner")

        def fchmod(self, fd: int, mode: int) -> None:
            seen.append("mode")
            super().fchmod(fd, mode)

        def fstat(self, fd: int) -> os.stat_result:
            status = os.fstat(fd)
            return os.stat_result([*status[:4], *([4711, 4712] if "owner" in seen else status[4:6]), *status[6:10]])

        def write(self, fd: int, data: memoryview) -> int:
            seen.append("write")
            return super().write(fd, data)

    create(tmp_path, owner=Ownership(4711, 4712, 0o640), calls=Looks())
    # In this order the broker may read the file at every moment.
    assert seen == ["owner", "mode", "write"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP])
def test_an_owner_that_cannot_be_kept_is_refused_before_a_byte_is_written(tmp_path, code, monkeypatch):
    calls = failing(fchown=code)
    monkeypatch.setattr(type(calls), "write", lambda *_: pytest.fail("not a byte"), raising=False)
    with pytest.raises(RefusedError, match="cannot be given its owner 999999, group 999999, mode 0644"):
        create(tmp_path, owner=Ownership(999999, 999999, 0o644), calls=calls)
    assert os.listdir(tmp_path) == []


# --- what an earlier or another run left -------------------------------------------------------------------------------


def test_a_leftover_that_is_a_second_name_of_another_file(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / TEMPORARY).hardlink_to(tmp_path / "precious")
    create(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [NAME, "precious"]
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_what_is_no_file_is_not_removed(tmp_path, kind):
    make_odd(tmp_path / TEMPORARY, kind)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(WriteFailedError, match="is not a regular file and is not removed"):
        create(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("kind", ["F_SETLK", "F_OFD_SETLK"])
def test_a_temporary_file_in_use_by_another_process_is_not_touched(tmp_path, kind):
    (tmp_path / TEMPORARY).write_bytes(b"half written")
    with (
        other_process(sys.executable, "-c", LOCKS_AND_WAITS, tmp_path / TEMPORARY, kind),
        pytest.raises(WriteFailedError, match="another run writes this file now"),
    ):
        create(tmp_path)
    assert (tmp_path / TEMPORARY).read_bytes() == b"half written"
    create(tmp_path)
    assert os.listdir(tmp_path) == [NAME]


def test_a_temporary_file_in_use_by_another_thread_is_not_touched(tmp_path):
    is_writing, may_go_on = threading.Event(), threading.Event()

    def pause() -> None:
        is_writing.set()
        assert may_go_on.wait(120)

    first = threading.Thread(target=create, args=(tmp_path,), kwargs={"calls": meanwhile("fsync", pause)})
    first.start()
    assert is_writing.wait(120)
    try:
        with pytest.raises(WriteFailedError, match="another run writes this file now"):
            create(tmp_path, b"other bytes")
    finally:
        may_go_on.set()
        first.join()
    assert os.listdir(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_bytes() == DATA


def test_it_stays_locked_until_the_temporary_name_is_gone(tmp_path):
    """Reading back opens and closes the file once more, which must not drop the lock, as it would with a POSIX lock."""
    asked = []

    class Asks(FileCalls):
        def ask(self) -> None:
            with open(tmp_path / TEMPORARY, "rb") as file:
                answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
            asked.append(struct.unpack("@hhqqi0q", answer)[0] == fcntl.F_WRLCK)

        def link(self, name: str, new_name: str, *, dir_fd: int) -> None:
            self.ask()
            super().link(name, new_name, dir_fd=dir_fd)

        def unlink(self, name: str, *, dir_fd: int) -> None:
            self.ask()
            super().unlink(name, dir_fd=dir_fd)

    create(tmp_path, calls=Asks())
    assert asked == [True, True]


def replace(path: Path, data: bytes) -> None:
    """Another file takes the name."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def test_another_run_takes_our_new_file_for_a_leftover(tmp_path):
    with pytest.raises(WriteFailedError, match="another run writes this file now"):
        create(tmp_path, calls=meanwhile("lock", lambda: replace(tmp_path / TEMPORARY, b"of the other run")))
    assert (tmp_path / TEMPORARY).read_bytes() == b"of the other run"
    assert not (tmp_path / NAME).exists()


def test_another_run_begins_after_we_looked_for_a_leftover(tmp_path):
    def begin() -> None:
        replace(tmp_path / TEMPORARY, b"of the other run")

    calls = meanwhile("open", begin, lambda _name, flags, *_mode: flags & os.O_CREAT)
    with pytest.raises(BusyError):
        create(tmp_path, calls=calls)
    assert os.listdir(tmp_path) == [TEMPORARY]
    assert (tmp_path / TEMPORARY).read_bytes() == b"of the other run"


def test_a_file_that_is_replaced_before_it_is_read_back(tmp_path):
    """By one with the same bytes, which no one has synced. It is not ours to remove."""
    with pytest.raises(WriteFailedError, match="was replaced while it was written"):
        create(tmp_path, calls=meanwhile("forget_cached", lambda: replace(tmp_path / TEMPORARY, DATA)))
    assert os.listdir(tmp_path) == [TEMPORARY]


def test_the_leftover_is_replaced_while_we_look(tmp_path):
    (tmp_path / TEMPORARY).write_bytes(b"left")
    create(tmp_path, calls=meanwhile("lock", lambda: replace(tmp_path / TEMPORARY, b"of another run that was killed too")))
    assert os.listdir(tmp_path) == [NAME]


def test_the_leftover_is_replaced_by_a_live_run_while_we_look(tmp_path):
    """We opened the leftover, another run removed it and writes now: the name leads to its file, which is not ours to remove."""
    (tmp_path / TEMPORARY).write_bytes(b"left")
    with contextlib.ExitStack() as stack:

        def begin() -> None:
            replace(tmp_path / TEMPORARY, b"of a live run")
            stack.enter_context(other_process(sys.executable, "-c", LOCKS_AND_WAITS, tmp_path / TEMPORARY, "F_OFD_SETLK"))

        with pytest.raises(WriteFailedError, match="another run writes this file now"):
            create(tmp_path, calls=meanwhile("lock", begin))
        assert (tmp_path / TEMPORARY).read_bytes() == b"of a live run"


def race(directory: str, rounds: int, number: int, barrier, results) -> None:
    for round_number in range(rounds):
        name = f"{round_number:020d}.snapshot"
        data = bytes([number]) * 10_000
        barrier.wait()
        try:
            create_file(directory, name, data, owner=None, temporary_name=f"{name}.tmp")
            results.put((name, number))
        except WriteFailedError as error:
            assert isinstance(error, AlreadyExistsError | BusyError)  # noqa: PT017


def test_many_runs_at_once(tmp_path):
    """No matter who wins, each file is whole and one run's alone. All may lose a round to each other; then nothing is there."""
    rounds, runs = 30, 3
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(runs), context.Queue()
    processes = [context.Process(target=race, args=(str(tmp_path), rounds, n + 1, barrier, results)) for n in range(runs)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    winners = dict(results.get(timeout=120) for _ in range(len(os.listdir(tmp_path))))
    assert results.empty()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        name: bytes([number]) * 10_000 for name, number in winners.items()
    }
    assert winners


# --- file systems that lack something ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK], ids=errno.errorcode.get)
def test_without_hard_links_it_is_renamed(tmp_path, code):
    create(tmp_path, calls=failing(link=code))
    assert os.listdir(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_bytes() == DATA


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_with_neither_links_nor_a_rename_that_does_not_replace(tmp_path, code):
    with pytest.raises(WriteFailedError, match="neither hard links nor a rename that does not replace"):
        create(tmp_path, calls=failing(link=errno.EPERM, rename_noreplace=code))
    assert os.listdir(tmp_path) == []


def test_without_locks_nothing_is_written(tmp_path):
    with pytest.raises(WriteFailedError, match="cannot lock the temporary file: No locks available"):
        create(tmp_path, calls=failing(lock=errno.ENOLCK))
    assert os.listdir(tmp_path) == []


def test_directories_that_cannot_be_synced_at_all(tmp_path):
    class NoDirectorySync(FileCalls):
        def fsync(self, fd: int) -> None:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                raising(errno.EINVAL)()
            super().fsync(fd)

    create(tmp_path, calls=NoDirectorySync())
    assert (tmp_path / NAME).read_bytes() == DATA


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(tmp_path, calls=meanwhile("fsync", interrupt))
    assert os.listdir(tmp_path) == []
