"""The advice of a refused write: it names the process, the file and the cause, and a user that may really write."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sentences import DIRECTORY_HAS, PROCESS_HAS, SEGMENTS_HAVE

from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError
from snaprebuild.storage.local.broker_lock import hold
from snaprebuild.storage.local.new_directory import create_partition_directory
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.write_advice import ProcessUser, advice_on_directory, advice_on_owner, advice_on_path, reading_advice
from snaprebuild.storage.store import Ownership

BROKER = Ownership(1001, 1001, 0o644)
PERM = OSError(errno.EPERM, "Operation not permitted")


def user(uid: int, gid: int, *groups: int) -> ProcessUser:
    return ProcessUser(uid, gid, frozenset((gid, *groups)))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that every user may write to."""
    tmp_path.chmod(0o777)
    return tmp_path


BROKER_TEXT = "uid 1001, gid 1001 (of a container: --user 1001:1001)"
OWNER_CASES = {
    "a container with a uid alone": (
        user(1001, 0),
        PERM,
        f"{PROCESS_HAS}1001, gid 0: the group differs. Run as {BROKER_TEXT}, or as root",
    ),
    "another uid": (
        user(1002, 1001),
        PERM,
        f"{PROCESS_HAS}1002, gid 1001: the owner differs. Run as {BROKER_TEXT}, or as root",
    ),
    "both": (
        user(65532, 65532, 5),
        PERM,
        f"{PROCESS_HAS}65532, gid 65532, groups 5: the owner and the group differ. Run as {BROKER_TEXT}, or as root",
    ),
    "root without capabilities": (
        user(0, 0),
        PERM,
        f"{PROCESS_HAS}0, gid 0, without CAP_CHOWN or CAP_FOWNER. Run as {BROKER_TEXT}, or add these capabilities",
    ),
    "a namespace": (
        user(1001, 0),
        OSError(errno.EINVAL, ""),
        f"{PROCESS_HAS}1001, gid 0. Its user namespace has no number for that owner or group: map both into the namespace",
    ),
    "the right user": (
        user(1001, 5, 1001),
        PERM,
        f"{PROCESS_HAS}1001, gid 5, groups 1001, but the file system gave the file owner 9, group 9, mode 0644. "
        "Check its options (all_squash, uid=, gid=)",
    ),
    "no owners": (
        user(1001, 1001),
        OSError(errno.EOPNOTSUPP, ""),
        f"{PROCESS_HAS}1001, gid 1001. The file system cannot change owners: mount it with uid=1001,gid=1001",
    ),
}


@pytest.mark.parametrize("case", OWNER_CASES)
def test_an_owner_that_cannot_be_given(case: str, shared: Path) -> None:
    process, error, text = OWNER_CASES[case]
    assert advice_on_owner(BROKER, Ownership(9, 9, 0o644), error, str(shared), process) == text


def status_of(uid: int, gid: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


DIRECTORY_CASES = {
    "not even its owner": (user(1001, 1001), (1001, 1001, 0o555), "Run chmod u+wx /data as this user"),
    "the group differs": (user(1002, 0), (1001, 1001, 0o755), f"Run as {BROKER_TEXT}, or as root"),
    "fsGroup": (user(1002, 0), (0, 1001, 0o2775), f"Run as {BROKER_TEXT}, or as root"),
    "root's directory": (
        user(1002, 0),
        (0, 0, 0o755),
        f"That user may not write here either: run chown 1001:1001 /data, then run as {BROKER_TEXT}, or as root",
    ),
    "root's directory, right user": (user(1001, 1001), (0, 0, 0o755), "Run chown 1001:1001 /data as root"),
    "group may not write": (user(1001, 1001), (0, 1001, 0o755), "Run chmod g+wx /data as root"),
    "open by mode": (
        user(1001, 1001),
        (1001, 1001, 0o755),
        "which lets it write. Check access lists (getfacl), SELinux or AppArmor, and lsattr -d",
    ),
    "root": (
        user(0, 0),
        (1001, 1001, 0o755),
        "Root lacks CAP_DAC_OVERRIDE, the directory is immutable (lsattr -d), or NFS maps root to another user. "
        f"Run as {BROKER_TEXT}",
    ),
}


@pytest.mark.parametrize("case", DIRECTORY_CASES)
def test_a_directory_that_cannot_be_written_to(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process, (uid, gid, mode), text = DIRECTORY_CASES[case]
    monkeypatch.setattr(os, "stat", lambda _: status_of(uid, gid, mode))
    advice = advice_on_directory("/data", BROKER, process)
    assert advice.startswith(f"This process has {process}; {SEGMENTS_HAVE}1001, gid 1001; {DIRECTORY_HAS}{uid}, gid {gid}")
    assert advice.endswith(text)


@pytest.mark.parametrize(
    ("process", "mode", "advice"),
    [
        (user(65534, 65534), 0o640, "mode 0640. Run as uid {uid}, gid {gid} (of a container: --user {uid}:{gid})"),
        (user(65534, 65534), 0o644, "mode 0644, which lets it read. Check access lists (getfacl), SELinux or AppArmor"),
        (user(0, 0), 0o600, "mode 0600. Root lacks CAP_DAC_READ_SEARCH, or NFS maps root to another user"),
    ],
)
def test_a_file_that_may_not_be_read(
    process: ProcessUser, mode: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "segment"
    file.touch()
    file.chmod(mode)
    monkeypatch.setattr(ProcessUser, "current", lambda: process)
    text = reading_advice(ReadFailedError("cannot be opened", path=str(file), errno=errno.EACCES))
    assert text.startswith(f". {PROCESS_HAS}{process.uid}, gid {process.gid}; it has uid ")
    assert advice.format(uid=os.getuid(), gid=file.stat().st_gid) in text


def test_an_error_that_no_user_helps_has_no_advice(tmp_path: Path) -> None:
    assert reading_advice(ReadFailedError("cannot be read", path=str(tmp_path), errno=errno.EIO)) == ""
    assert reading_advice(ReadFailedError("cannot be read", errno=errno.EACCES)) == ""


def test_advice_on_what_is_missing(tmp_path: Path) -> None:
    """The nearest directory above it is looked at."""
    assert f"{DIRECTORY_HAS}{tmp_path.stat().st_uid}" in advice_on_path(str(tmp_path / "a" / "b"))


# --- the advice works -------------------------------------------------------------------------------------------------------


def _snapshot(directory: Path) -> None:
    create_file(directory, "snapshot", b"", owner=BROKER, temporary_name="temporary")


def _partition(directory: Path) -> None:
    create_partition_directory(str(directory), "orders-0", {}, BROKER)


def _lock(directory: Path) -> None:
    with hold(directory):
        pass


WRITES: dict[str, Callable[[Path], None]] = {"snapshot": _snapshot, "partition": _partition, "lock": _lock}
PLACES = {
    "broker's": (1001, 1001, 0o755),
    "fsGroup": (0, 1001, 0o2775),
    "open": (0, 0, 0o777),
    "root's": (0, 0, 0o755),
    "read only": (1001, 1001, 0o555),
}
USERS = {"uid alone": (1001, 0), "another uid": (1002, 1001), "default of the image": (65532, 65532)}


def as_user(uid: int, gid: int, write: Callable[[Path], None], directory: Path) -> str:
    """Writes as another user, in a fork. Returns the error, or nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            try:
                write(directory)
            except SnaprebuildError as error:
                os.write(writer, str(error).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", WRITES)
def test_the_advice_works(what: str, place: str, who: str, tmp_path: Path) -> None:
    """Each step of the advice is done; at its end the write succeeds, or did so without advice."""
    for each in (tmp_path, *tmp_path.parents):
        if each != Path("/") and each.stat().st_uid == 0:
            each.chmod(each.stat().st_mode | 0o011)
    directory = tmp_path / "logs"
    (directory / "orders-1").mkdir(parents=True)
    segment = directory / "orders-1" / f"{0:020d}.log"
    segment.touch(mode=0o644)
    for path in (directory / "orders-1", segment):
        os.chown(path, BROKER.uid, BROKER.gid)
    uid, gid, mode = PLACES[place]
    os.chown(directory, uid, gid)
    directory.chmod(mode)
    uid, gid = USERS[who]
    steps = 0
    while error := as_user(uid, gid, WRITES[what], directory):
        steps += 1
        assert steps <= 3, error
        assert f"{PROCESS_HAS}{uid}, gid {gid}" in error
        command = re.search(r"(?:run|Run) ((?:chmod|chown) \S+ \S+?)(?:,| as)", error)
        if command is not None:
            subprocess.run(shlex.split(command[1]), check=True)
        other = re.search(r"un as uid (\d+), gid (\d+) \(of a container: --user \1:\2\)", error)
        if other is not None:
            uid, gid = int(other[1]), int(other[2])
        assert command or other, error
    made = [path for path in directory.iterdir() if path.name in ("snapshot", "orders-0", ".lock")]
    assert [(path.stat().st_uid, path.stat().st_gid) for path in made] == [(BROKER.uid, BROKER.gid)]
    assert steps > 0


def test_a_refusal_of_the_owner_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the text of the system first."""

    def refuse(*_: object) -> None:
        raise PERM

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(ProcessUser, "current", lambda: user(1001, 0))
    text = f"cannot be given its owner 1001, group 1001, mode 0644: Operation not permitted. {PROCESS_HAS}1001, gid 0: "
    with pytest.raises(RefusedError, match=text):
        _snapshot(tmp_path)
