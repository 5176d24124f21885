"""The lock of a broker: held by real other processes, in the way that Java and Kafka hold it."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from failing_calls import raising
from odd_files import ODD_KINDS, make_odd
from open_files import nothing_left_open
from other_process import other_process
from sentences import HELD_BY_PROCESS

from formats.partition.file_names import LOCK_FILE_NAME
from snaprebuild.errors import HeldError, LockUnknownError, RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.storage.local import broker_lock, record_lock
from snaprebuild.storage.local.broker_lock import HOLDER_NOT_VISIBLE, hold, lock_holder
from snaprebuild.storage.local.file_calls import FileCalls
from snaprebuild.storage.local.write_advice import ProcessUser

# Python's lockf is F_SETLK, the call that Java's FileChannel.tryLock makes; flock is another kind of lock.
HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("ready", flush=True)
sys.stdin.read()
"""

TRIES = """
import fcntl, sys
with open(sys.argv[1], "a+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("taken")
    except OSError:
        print("kept out")
"""

# What `kafka.utils.FileLock` and `org.apache.kafka.server.util.FileLock` do.
JAVA_HOLDS = """
import java.nio.channels.*; import java.nio.file.*;
public class Holds {
  public static void main(String[] arguments) throws Exception {
    FileChannel channel = FileChannel.open(Path.of(arguments[0]),
        StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
    FileLock lock = channel.tryLock();
    System.out.println(lock == null ? "kept out" : "ready");
    if (lock != null) System.in.read();
  }
}
"""


def held_by_other(log_dir, kind="lockf"):
    return other_process(sys.executable, "-c", HOLDS, log_dir / LOCK_FILE_NAME, kind)


def others_try(log_dir) -> str:
    command = [sys.executable, "-c", TRIES, str(log_dir / LOCK_FILE_NAME)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# --- asking -------------------------------------------------------------------------------------------------------------


def test_the_holder_is_named(tmp_path):
    assert lock_holder(tmp_path) is None
    assert os.listdir(tmp_path) == [], "none is created"
    with held_by_other(tmp_path) as process:
        assert lock_holder(tmp_path) == process.pid
        assert lock_holder(tmp_path) == process.pid, "asking must not change the answer"
    assert lock_holder(tmp_path) is None, "the file alone means nothing"


def test_a_killed_run_that_was_creating_the_lock_file(tmp_path):
    (tmp_path / ".lock.tmp").write_bytes(b"")
    with hold(tmp_path):
        assert os.listdir(tmp_path) == [LOCK_FILE_NAME]


def test_a_lock_on_a_part_of_the_file_counts(tmp_path):
    script = HOLDS.replace("LOCK_NB)", "LOCK_NB, 1, 100)")
    assert script != HOLDS
    with other_process(sys.executable, "-c", script, tmp_path / LOCK_FILE_NAME, "lockf") as process:
        assert lock_holder(tmp_path) == process.pid


def test_a_reader_asks_without_write_access(tmp_path):
    with held_by_other(tmp_path) as process:
        (tmp_path / LOCK_FILE_NAME).chmod(0o444)
        assert lock_holder(tmp_path) == process.pid
        fd = os.open(tmp_path / LOCK_FILE_NAME, os.O_RDONLY)
        assert record_lock.holder(fd) == process.pid
        os.close(fd)


def test_we_hold_it_ourselves(tmp_path):
    with hold(tmp_path):
        assert lock_holder(tmp_path) == HOLDER_NOT_VISIBLE
    assert lock_holder(tmp_path) is None


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_a_lock_file_that_is_no_file_shows_nothing(tmp_path, kind):
    make_odd(tmp_path / LOCK_FILE_NAME, kind)
    with pytest.raises(LockUnknownError):
        lock_holder(tmp_path)
    with pytest.raises(LockUnknownError), hold(tmp_path):
        pass


def test_no_log_directory(tmp_path):
    with pytest.raises(LockUnknownError, match="is no directory"):
        lock_holder(tmp_path / "absent")
    with pytest.raises(WriteFailedError, match="absent"), hold(tmp_path / "absent"):
        pass


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    (tmp_path / LOCK_FILE_NAME).write_bytes(b"")
    monkeypatch.setattr(fcntl, "fcntl", raising(errno.ENOLCK))
    with pytest.raises(LockUnknownError, match="does not show which process holds it: No locks available"):
        lock_holder(tmp_path)
    with pytest.raises(LockUnknownError, match="offers no locks: No locks available") as caught, hold(tmp_path):
        pass
    monkeypatch.undo()
    assert caught.value.exit_code == 3


def test_a_lock_file_that_we_may_not_open(tmp_path, monkeypatch):
    (tmp_path / LOCK_FILE_NAME).write_bytes(b"")
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", raising(errno.EACCES))
        with pytest.raises(LockUnknownError, match=r"/\.lock: cannot be opened to ask who holds it: Permission denied"):
            lock_holder(tmp_path)
        with pytest.raises(LockUnknownError, match=r"/\.lock: cannot be opened for locking: Permission denied"), hold(tmp_path):
            pass


# --- holding ------------------------------------------------------------------------------------------------------------


def test_others_are_kept_out_and_let_in_again(tmp_path):
    with hold(tmp_path) as lock:
        lock.verify()
        assert others_try(tmp_path) == "kept out"
        with open(tmp_path / LOCK_FILE_NAME, "rb"):
            pass  # a POSIX lock of ours would be gone with this
        lock_holder(tmp_path)
        assert others_try(tmp_path) == "kept out"
    assert others_try(tmp_path) == "taken"


def test_a_held_directory_is_refused_and_the_holder_named(tmp_path):
    with held_by_other(tmp_path) as process:
        with pytest.raises(RefusedError, match=f"{HELD_BY_PROCESS} {process.pid}: a broker, or another run"), hold(tmp_path):
            pass
        assert lock_holder(tmp_path) == process.pid
    with hold(tmp_path):
        pass


def test_two_holders_in_one_process(tmp_path):
    with hold(tmp_path):
        with pytest.raises(RefusedError, match="not visible from here"), hold(tmp_path):
            pass
        with ThreadPoolExecutor(1) as threads:
            assert isinstance(threads.submit(hold(tmp_path).__enter__).exception(), RefusedError)
        assert others_try(tmp_path) == "kept out", "a refused attempt must not drop the lock"
    with hold(tmp_path):
        pass


def test_no_descriptor_is_left_open(tmp_path):
    with nothing_left_open(tmp_path):
        with hold(tmp_path), pytest.raises(RefusedError), hold(tmp_path):
            pass
        lock_holder(tmp_path)


def test_a_present_lock_file_is_left_as_it_is(tmp_path):
    path = tmp_path / LOCK_FILE_NAME
    path.write_bytes(b"something")
    path.chmod(0o600)
    before = path.stat()
    with hold(tmp_path):
        pass
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
    assert path.read_bytes() == b"something"
    assert os.listdir(tmp_path) == [LOCK_FILE_NAME]


def test_a_new_lock_file_belongs_to_the_owner_of_the_directory(tmp_path):
    if os.getuid() == 0:
        os.chown(tmp_path, 4711, 4712)
    owner = tmp_path.stat()
    umask = os.umask(0o077)
    try:
        with hold(tmp_path):
            pass
    finally:
        os.umask(umask)
    found = (tmp_path / LOCK_FILE_NAME).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (owner.st_uid, owner.st_gid, 0o644)
    assert found.st_size == 0
    assert os.listdir(tmp_path) == [LOCK_FILE_NAME]


def opens_as(uid: int, gid: int, directory: Path) -> bool:
    """Whether a user may open the lock file of a directory as a broker does. The directory is entered before the user changes."""
    # A shell: other users may not run the interpreter of a test.
    command = ["/bin/sh", "-c", f"exec 3<>{LOCK_FILE_NAME}"]
    done = subprocess.run(command, check=False, cwd=directory, user=uid, group=gid, extra_groups=[], capture_output=True)
    return done.returncode == 0


@pytest.mark.root
@pytest.mark.parametrize("holds", ["segments", "meta.properties"])
def test_a_new_lock_file_can_be_opened_by_the_broker(tmp_path, holds):
    """A volume of Kubernetes with an fsGroup: its root belongs to root, and all files to the broker's user."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    os.chown(tmp_path / "meta.properties", 4711 if holds == "meta.properties" else 0, 4711)
    if holds == "segments":
        (tmp_path / "orders-0").mkdir()
        (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
        for path in (tmp_path / "orders-0", tmp_path / "orders-0" / f"{0:020d}.log"):
            os.chown(path, 4711, 4711)
    os.chown(tmp_path, 0, 4711)
    tmp_path.chmod(0o2775)
    with hold(tmp_path):
        pass
    found = (tmp_path / LOCK_FILE_NAME).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4711, 0o644)
    assert opens_as(4711, 4711, tmp_path)
    assert not opens_as(4712, 4712, tmp_path)


def test_a_lock_file_that_cannot_be_given_to_the_broker_is_not_made(tmp_path, monkeypatch):
    (tmp_path / "meta.properties").write_text("version=1\n")

    owner = (tmp_path / "meta.properties").stat()
    monkeypatch.setattr(
        broker_lock, "_made_by_broker", lambda _: os.stat_result((0o100644, 1, 1, 1, owner.st_uid + 1, 0, 0, 0, 0, 0))
    )
    monkeypatch.setattr(os, "fchown", raising(errno.EPERM))
    process = ProcessUser.owner_of(owner.st_uid + 2, 0)
    monkeypatch.setattr(ProcessUser, "current", lambda: process)
    with (
        pytest.raises(RefusedError, match=rf"the owner differs.*hen run as uid {owner.st_uid + 1}, gid 0 .*, or as root"),
        hold(tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == ["meta.properties"]


def test_of_two_runs_that_start_at_once_one_holds_it_and_the_other_is_refused(tmp_path, monkeypatch):
    """The second run comes before and after each system call with which the first one makes the lock file."""
    calls = [name for name in vars(FileCalls) if not name.startswith("_")]

    def race(log_dir: Path, moment: int) -> tuple[int, list[SnaprebuildError]]:
        """Returns how many moments there are, and the errors of the runs that do not hold the lock."""
        log_dir.mkdir()
        refused: list[SnaprebuildError] = []
        reached = 0
        with contextlib.ExitStack() as held, monkeypatch.context() as patched:

            def run() -> None:
                try:
                    held.enter_context(hold(log_dir))
                except SnaprebuildError as error:
                    refused.append(error)

            def passed() -> None:
                nonlocal reached
                reached += 1
                if reached == moment:
                    run()

            def watched(call: Callable[..., Any]) -> Callable[..., Any]:
                def watching(*given: Any, **more: Any) -> Any:
                    passed()
                    try:
                        return call(*given, **more)
                    finally:
                        passed()

                return watching

            for name in calls:
                patched.setattr(FileCalls, name, watched(getattr(FileCalls, name)))
            run()
        return reached, refused

    moments, alone = race(tmp_path / "alone", 0)
    assert (moments > 20, alone) == (True, [])
    for moment in range(1, moments + 1):
        _, refused = race(tmp_path / str(moment), moment)
        assert [(type(error), error.exit_code) for error in refused] == [(HeldError, 3)], (moment, refused)


@pytest.fixture
def removed_before_it_is_taken(tmp_path, monkeypatch):
    """Removes the lock file this many times, each time before it is locked: brokers from 3.8 on unlock, then remove it (KAFKA-16391)."""
    take, times = record_lock.take, iter(())

    def take_after_removal(fd: int) -> None:
        if next(times, False):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(tmp_path / LOCK_FILE_NAME)
        take(fd)

    def remove(count: int) -> None:
        nonlocal times
        times = iter([True] * count)

    monkeypatch.setattr(record_lock, "take", take_after_removal)
    return remove


def test_the_lock_file_is_removed_while_we_take_it(tmp_path, removed_before_it_is_taken):
    (tmp_path / LOCK_FILE_NAME).write_bytes(b"")
    removed_before_it_is_taken(1)
    with hold(tmp_path) as lock:
        lock.verify()
        assert others_try(tmp_path) == "kept out"


def test_it_keeps_being_removed(tmp_path, removed_before_it_is_taken):
    removed_before_it_is_taken(1000)
    with pytest.raises((RefusedError, WriteFailedError)), hold(tmp_path):
        pass


def test_the_lock_file_is_removed_while_we_hold_it(tmp_path):
    with hold(tmp_path) as lock:
        lock.verify()
        os.unlink(tmp_path / LOCK_FILE_NAME)
        with pytest.raises(RefusedError, match="was removed or replaced while it was held"):
            lock.verify()
        (tmp_path / LOCK_FILE_NAME).write_bytes(b"")
        with pytest.raises(RefusedError, match="was removed or replaced while it was held"):
            lock.verify()


# --- Java ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def java_holds(tmp_path):
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed")
    source = tmp_path / "Holds.java"
    source.write_text(JAVA_HOLDS)
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    return log_dir, [java, "-XX:TieredStopAtLevel=1", str(source), str(log_dir / LOCK_FILE_NAME)]


@pytest.mark.kafka
def test_the_lock_of_a_broker_is_seen(java_holds):
    log_dir, command = java_holds
    with other_process(*command) as process:
        assert lock_holder(log_dir) == process.pid
        with pytest.raises(RefusedError, match=f"{HELD_BY_PROCESS} {process.pid}"), hold(log_dir):
            pass
    assert lock_holder(log_dir) is None


@pytest.mark.kafka
def test_our_lock_keeps_a_broker_out(java_holds):
    log_dir, command = java_holds
    with hold(log_dir):
        said = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    assert said == "kept out\n"
