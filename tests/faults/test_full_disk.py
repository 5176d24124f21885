"""The disk is full, broken, read-only or not ours: nothing half is left, and the error says where."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_calls import NoHardLinks, RecordedCalls, ShortWrites, failing_at, failing_from

from snaprebuild.errors import OutcomeUnknownError, RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.whole_file import remove_second_name
from snaprebuild.storage.store import Ownership

NAME = "00000000000000000042.snapshot"
TEMPORARY = NAME + ".tmp"
DATA = bytes(range(1, 251)) * 3
ERRORS = [errno.ENOSPC, errno.EACCES]
"""A refused mode is another refusal than a full disk; all other errors are reported alike."""
WRITER = Path(__file__).with_name("write_and_report.py")
ROOT = Path(__file__).parents[2]


def owner_with_another_mode() -> Ownership:
    return Ownership(os.getuid(), os.getgid(), 0o640)


def write(directory: Path, calls: FileCalls) -> None:
    create_file(directory, NAME, DATA, owner=owner_with_another_mode(), temporary_name=TEMPORARY, calls=calls)


def leave_over(directory: Path) -> None:
    (directory / TEMPORARY).write_bytes(b"torn")


def healthy_trace(tmp_path: Path, inner: FileCalls, with_leftover: bool) -> list[str]:
    directory = tmp_path / "healthy"
    directory.mkdir()
    if with_leftover:
        leave_over(directory)
    calls = RecordedCalls(inner)
    write(directory, calls)
    return calls.done


def finish_again(directory: Path, inner: FileCalls) -> None:
    if not (directory / NAME).exists():
        write(directory, inner)
    else:
        with pytest.raises(WriteFailedError, match="exists and is not replaced"):
            write(directory, inner)
    assert (directory / NAME).read_bytes() == DATA
    assert os.listdir(directory) == [NAME]


def test_the_calls_and_their_order(tmp_path):
    """Written down by hand: the pages are dropped before the file is read back, so that the device is asked."""
    trace = [call for call in healthy_trace(tmp_path, OS, with_leftover=False) if not call.startswith(("stat", "fstat", "close"))]
    assert trace == [
        *("open .", f"open {TEMPORARY}", f"lock {TEMPORARY}", f"fchmod {TEMPORARY}", f"write {TEMPORARY}", f"fsync {TEMPORARY}"),
        *(
            f"forget_cached {TEMPORARY}",
            f"open {TEMPORARY}",
            f"read {TEMPORARY}",
            f"read {TEMPORARY}",
            f"forget_cached {TEMPORARY}",
        ),
        *(f"link {TEMPORARY}", f"unlink {TEMPORARY}", "fsync ."),
    ]


@pytest.mark.parametrize("with_leftover", [False, True], ids=["clean", "leftover"])
@pytest.mark.parametrize("inner", [OS, NoHardLinks(), ShortWrites(200)], ids=["links", "no-links", "short-writes"])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_one_call_fails(tmp_path, code, inner, with_leftover):
    trace = healthy_trace(tmp_path, inner, with_leftover)
    naming = next(i for i, call in enumerate(trace) if call.startswith("rename" if isinstance(inner, NoHardLinks) else "link"))
    seen = set()
    for index, call in enumerate(trace):
        directory = tmp_path / f"{index:03d}"
        directory.mkdir()
        if with_leftover:
            leave_over(directory)
        error = failure(directory, RecordedCalls(inner, before=failing_at(index, code)))
        method = call.split()[0]
        seen.add(method)

        if method in {"close", "forget_cached"}:
            assert error is None, call
        elif method == "link" and isinstance(inner, NoHardLinks):
            # An error other than "no hard links here" is final: the rename would hide a failing disk.
            assert isinstance(error, WriteFailedError), call
        elif method == "fchmod" and code == errno.EACCES:
            assert isinstance(error, RefusedError), call
        elif index <= naming:
            assert isinstance(error, WriteFailedError), call
            assert error.errno == code
        else:
            assert isinstance(error, OutcomeUnknownError), call
            assert error.errno == code
        if error is not None:
            assert str(directory) in str(error)
            assert os.strerror(code) in str(error)

        assert (directory / NAME).exists() == (error is None or isinstance(error, OutcomeUnknownError)), call
        if (directory / NAME).exists():
            assert (directory / NAME).read_bytes() == DATA
        if with_leftover and index <= trace.index(f"unlink {TEMPORARY}") and error is not None:
            assert (directory / TEMPORARY).read_bytes() == b"torn", call
        elif method == "unlink":
            assert error.leftover == TEMPORARY
            assert TEMPORARY in str(error)
        else:
            assert not (directory / TEMPORARY).exists(), call
        finish_again(directory, inner)
    assert {"open", "lock", "fchmod", "write", "fsync", "read", "close"} <= seen


@pytest.mark.parametrize("inner", [OS, NoHardLinks()], ids=["links", "no-links"])
def test_one_call_takes_effect_and_its_reply_is_lost(tmp_path, inner):
    trace = healthy_trace(tmp_path, inner, with_leftover=False)
    for index, call in enumerate(trace):
        directory = tmp_path / f"{index:03d}"
        directory.mkdir()
        calls = RecordedCalls(inner, after=failing_at(index, errno.EIO))
        error = failure(directory, calls)
        if call in {f"link {TEMPORARY}", f"rename_noreplace {TEMPORARY}"}:
            assert error is None, "our own file under the name is success, whatever the reply was"
        if (directory / NAME).exists():
            assert (directory / NAME).read_bytes() == DATA
        else:
            assert isinstance(error, WriteFailedError)
        if call.startswith("open"):  # no one but the test knows this descriptor
            os.close(next(fd for fd in reversed(calls.files)))
        finish_again(directory, inner)


@pytest.mark.parametrize("failing", [failing_at, failing_from])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_second_name_on_a_failing_disk(tmp_path, code, failing):
    """At whatever call it fails, the file stays whole under its name, and the error says whether anything took effect."""

    def left_over(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / NAME).write_bytes(DATA)
        (directory / TEMPORARY).hardlink_to(directory / NAME)
        return directory

    healthy = RecordedCalls()
    assert remove_second_name(left_over("healthy"), NAME, TEMPORARY, calls=healthy)
    unlinked = healthy.done.index(f"unlink {TEMPORARY}")
    for index, call in enumerate(healthy.done):
        directory = left_over(f"{index:03d}")
        error = None
        try:
            remove_second_name(directory, NAME, TEMPORARY, calls=RecordedCalls(before=failing(index, code)))
        except SnaprebuildError as raised:
            error = raised
        if index <= unlinked:
            assert isinstance(error, WriteFailedError), call
        elif call == "fsync .":
            assert isinstance(error, OutcomeUnknownError), call
        if error is not None:
            assert str(directory) in str(error)
            assert error.errno == code
        assert (directory / NAME).read_bytes() == DATA
        assert (directory / TEMPORARY).exists() == (index <= unlinked)


@pytest.mark.parametrize("with_leftover", [False, True], ids=["clean", "leftover"])
def test_the_device_goes_away(tmp_path, with_leftover):
    trace = healthy_trace(tmp_path, OS, with_leftover)
    naming = trace.index(f"link {TEMPORARY}")
    for index, call in enumerate(trace):
        if call.startswith("close"):
            continue
        directory = tmp_path / f"{index:03d}"
        directory.mkdir()
        if with_leftover:
            leave_over(directory)
        error = failure(directory, RecordedCalls(before=failing_from(index, errno.EIO)))
        # If a disk no longer answers while the name is given, it is unknown whether the name exists. Some calls fail without a message.
        reported = next(at for at in range(index, len(trace)) if not trace[at].startswith(("close", "forget_cached")))
        assert isinstance(error, OutcomeUnknownError if reported >= naming else WriteFailedError), call
        assert str(directory) in str(error)
        assert (directory / NAME).exists() == (index > naming)
        if (directory / TEMPORARY).exists() and not with_leftover:
            assert error.leftover == TEMPORARY
            assert f"the temporary file {TEMPORARY} could not be removed" in str(error)
        finish_again(directory, OS)


def failure(directory: Path, calls: FileCalls) -> SnaprebuildError | None:
    try:
        write(directory, calls)
    except SnaprebuildError as error:
        return error
    return None


def test_a_file_system_that_takes_no_bytes(tmp_path):
    class TakesNothing(FileCalls):
        def write(self, fd: int, data: memoryview) -> int:
            return 0

    with pytest.raises(WriteFailedError, match="takes no bytes"):
        write(tmp_path, TakesNothing())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("read_back", "position", "gives_more"),
    [
        pytest.param(DATA[:-1], len(DATA) - 1, False, id="one byte short"),
        pytest.param(DATA + b"\0", len(DATA), False, id="one byte more"),
        pytest.param(DATA + b"\0", len(DATA), True, id="more than asked for"),
        pytest.param(b"", 0, False, id="nothing"),
        pytest.param(DATA[:99] + b"\0" + DATA[100:], 99, False, id="one byte other"),
    ],
)
def test_the_device_returns_other_bytes(tmp_path, read_back, position, gives_more):
    class OtherBytes(FileCalls):
        def __init__(self) -> None:
            self.rest = read_back

        def read(self, fd: int, size_bytes: int) -> bytes:
            count = 64 if gives_more else min(64, size_bytes)
            block, self.rest = self.rest[:count], self.rest[count:]
            return block

    with pytest.raises(WriteFailedError, match=rf"reads back other bytes than were written, from byte {position}$"):
        write(tmp_path, OtherBytes())
    assert os.listdir(tmp_path) == []


def test_no_byte_is_written_where_the_owner_cannot_be_kept(tmp_path):
    class KeepsItsOwn(FileCalls):
        def fchmod(self, fd: int, mode: int) -> None:
            """Accepts and forgets, as some network file systems do."""

    calls = RecordedCalls(KeepsItsOwn())
    with pytest.raises(RefusedError, match=r"cannot be given its owner \d+, group \d+, mode 0640: the file system keeps"):
        write(tmp_path, calls)
    assert not any(call.startswith("write") for call in calls.done)
    assert os.listdir(tmp_path) == []


# --- real conditions ---------------------------------------------------------------------------------------------------


def report_of(command: list[str]) -> dict[str, object]:
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def in_own_mounts(script: str, directory: Path, *arguments: str) -> dict[str, object]:
    """Runs the writer in mounts that vanish with it. Root needs no user namespace, others may be allowed one."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("mount") is None:
        pytest.skip("needs unshare and mount (util-linux)")
    namespaces = [unshare, "--mount"] if os.getuid() == 0 else [unshare, "--user", "--map-root-user", "--mount"]
    probe = subprocess.run(
        [*namespaces, "mount", "-t", "tmpfs", "tmpfs", str(directory)], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"may not mount a file system here: {probe.stderr.strip()}")
    return report_of([*namespaces, "sh", "-ec", script, "sh", str(directory), sys.executable, str(WRITER), *arguments])


@pytest.mark.root
def test_a_disk_that_is_really_full(tmp_path):
    script = 'mount -t tmpfs -o size=64k,mode=755 tmpfs "$1"; dir=$1; python=$2; writer=$3; shift 3; exec "$python" "$writer" "$dir" "$@"'
    reported = in_own_mounts(script, tmp_path, "--bytes=1000000")
    assert reported["error"] == "WriteFailedError"
    assert reported["errno"] == errno.ENOSPC
    assert str(tmp_path / TEMPORARY) in reported["text"]
    assert reported["left"] == []

    reported = in_own_mounts(script, tmp_path, "--bytes=30000")
    assert (reported["error"], reported["left"]) == (None, [NAME])


@pytest.mark.root
def test_a_disk_without_a_free_inode(tmp_path):
    # Two: the root of the file system and the writer's first file.
    script = 'mount -t tmpfs -o nr_inodes=1 tmpfs "$1"; exec "$2" "$3" "$1"'
    reported = in_own_mounts(script, tmp_path)
    assert (reported["error"], reported["errno"], reported["left"]) == ("WriteFailedError", errno.ENOSPC, [])


@pytest.mark.root
def test_a_read_only_file_system(tmp_path):
    reported = in_own_mounts('mount -t tmpfs -o ro tmpfs "$1"; exec "$2" "$3" "$1"', tmp_path)
    assert (reported["error"], reported["errno"], reported["left"]) == ("WriteFailedError", errno.EROFS, [])
    assert str(tmp_path / TEMPORARY) in reported["text"]


def test_a_file_size_limit_gives_a_real_short_write(tmp_path):
    reported = report_of([sys.executable, str(WRITER), str(tmp_path), "--bytes=10000", "--file-size-limit=4096"])
    assert (reported["error"], reported["errno"], reported["left"]) == ("WriteFailedError", errno.EFBIG, [])
    assert reported["written_bytes"] == 4096
