"""`before-start` and `install` by the one file start CMD, whatever becomes of the launcher; other verbs fail with its code."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from command import Run
from launcher_runs import COMMAND, LIBRARY, SECONDS_MAX, at, is_started, small_release, start, trees
from sentences import NOTHING_CHECKED, STARTED_ALL_THE_SAME
from wrapper_command_lines import CMD, CMD_CODE, CMD_OUT, STARTS, STARTS_NOT

pytestmark = pytest.mark.release


@pytest.fixture
def one(launcher: Path) -> Path:
    return launcher


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """A place that cannot be made: its parent is absent."""
    return at(tmp_path / "absent" / "cache")


# --- faults ---------------------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A cause for which the launcher cannot do its work."""

    code: int
    """Exit code of the launcher."""
    message: str
    mount: str = ""
    """Shell commands in an own namespace of mounts, at the directory `$1`."""
    prepare: Callable[[Path, Path], Path | None] = lambda _file, _place: None
    """Changes the place, or returns another one file."""
    inject: str = ""
    """A fault that strace injects into the launcher and its child."""


def absent(_: Path, place: Path) -> None:
    place.rmdir()
    place.parent.rename(place.parent.with_name("moved"))


def spoiled(file: Path, place: Path) -> Path:
    data = bytearray(file.read_bytes())
    data[-200_000] ^= 1
    return written(place.parent / "spoiled", data)


def cut(file: Path, place: Path) -> Path:
    return written(place.parent / "cut", file.read_bytes()[:-5000])


def written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    file.chmod(0o755)
    return file


def damaged(file: Path, place: Path) -> None:
    assert is_started(start(file, "scan", environment=at(place)))
    (library,) = place.glob(f"*/{LIBRARY}")
    library.chmod(0o644)
    library.write_bytes(bytes(library.stat().st_size))
    library.chmod(0o444)


def not_a_program(file: Path, _: Path) -> Path:
    text = file.with_name("text")
    return text if text.exists() else small_release(file.parent, "text", command=LIBRARY)


def in_log_directory(_: Path, place: Path) -> None:
    (place / "meta.properties").write_bytes(b"")


FAULTS = {
    "full-disk": Fault(3, "No space left on device", mount="mount -t tmpfs -o mode=700,size=64k tmpfs $1"),
    "no-inodes": Fault(3, "No space left on device", mount="mount -t tmpfs -o mode=700,nr_inodes=4 tmpfs $1"),
    "noexec": Fault(3, "is mounted noexec", mount="mount -t tmpfs -o mode=700,noexec tmpfs $1"),
    "read-only": Fault(3, "Read-only file system", mount="mount -t tmpfs -o mode=700,ro tmpfs $1"),
    "missing-directory": Fault(3, "No such file or directory", prepare=absent),
    "no-directory": Fault(3, "Not a directory", prepare=lambda _, place: (place.rmdir(), place.write_bytes(b""), None)[-1]),
    "others-may-write": Fault(3, "others may write there", prepare=lambda _, place: place.chmod(0o777)),
    "log-directory": Fault(3, "a log directory of a broker", prepare=in_log_directory),
    "damaged-cache": Fault(3, "Read-only file system", mount="mount --bind $1 $1; mount -o remount,bind,ro $1", prepare=damaged),
    "damaged-file": Fault(5, "this file is damaged", prepare=spoiled),
    "half-a-file": Fault(5, "this file is not whole", prepare=cut),
    "exec-fails": Fault(3, "Permission denied", prepare=not_a_program),
    "disk-error": Fault(3, "Input/output error", inject="fsync:error=EIO"),
    "no-process": Fault(5, "the unpacking has no process", inject="clone,fork:error=EAGAIN"),
    "killed": Fault(5, "the unpacking was ended by signal 9", inject="fsync:signal=KILL:when=1"),
    "crashed": Fault(5, "the unpacking was ended by signal 7", inject="fsync:signal=BUS:when=1"),
}
ONLY_IN_A_CHILD = ("no-process", "killed", "crashed")


def run_with(fault: Fault, file: Path, place: Path, *arguments: object) -> Run:
    if fault.mount and os.geteuid() != 0:
        pytest.skip("only root may mount")
    if fault.inject and shutil.which("strace") is None:
        pytest.skip("NOT RUN: strace is not installed")
    place.mkdir(mode=0o700, parents=True)
    file = fault.prepare(file, place) or file
    before: tuple[object, ...] = ()
    if fault.mount:
        before = ("unshare", "--mount", "sh", "-ec", f'{fault.mount}; shift; exec "$@"', "sh", place)
    if fault.inject:
        before = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={fault.inject}")
    return start(file, *arguments, before=before, environment=at(place))


@pytest.mark.root
@pytest.mark.strace
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("words", ["before-start /logs", "install --plan plan.jsonl --deadline 50", "-v before-start"])
def test_cmd_starts_after_each_fault(words: str, fault: str, one: Path, tmp_path: Path) -> None:
    reported = run_with(FAULTS[fault], one, tmp_path / "mount" / "cache", *words.split(), *CMD)
    assert (reported.stdout, reported.exit_code) == (CMD_OUT, CMD_CODE)
    assert FAULTS[fault].message in reported.stderr
    assert f"nothing was prepared; sh {STARTED_ALL_THE_SAME}" in reported.stderr


@pytest.mark.root
@pytest.mark.strace
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("words", ["before-start --fail-closed", "scan", "before-start --deadline 50"])
def test_without_cmd_or_with_fail_closed_the_code_is_that_of_the_launcher(
    words: str, fault: str, one: Path, tmp_path: Path
) -> None:
    if words == "scan" and fault in ONLY_IN_A_CHILD:
        return
    cmd = () if "--deadline" in words else CMD
    reported = run_with(FAULTS[fault], one, tmp_path / "mount" / "cache", *words.split(), *cmd)
    assert (reported.stdout, reported.exit_code) == ("", FAULTS[fault].code)
    assert FAULTS[fault].message in reported.stderr
    assert "is started" not in reported.stderr


def test_what_can_be_repaired_is_repaired_and_the_command_starts(one: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    damaged(one, place)
    assert is_started(start(one, "before-start", *CMD, environment=at(place)))
    assert len(trees(place)) == 1


# --- arguments ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", STARTS, ids=" ".join)
def test_arguments_with_which_cmd_starts(arguments: list[str], one: Path, nowhere: dict[str, str]) -> None:
    reported = start(one, *arguments, environment=nowhere)
    assert (reported.stdout, reported.exit_code) == (CMD_OUT, CMD_CODE)


@pytest.mark.parametrize("arguments", STARTS_NOT, ids=" ".join)
def test_arguments_with_which_it_does_not(arguments: list[str], one: Path, nowhere: dict[str, str]) -> None:
    reported = start(one, *arguments, environment=nowhere)
    assert (reported.stdout, reported.exit_code) == ("", 3)
    assert "No such file or directory" in reported.stderr


SWITCH = {"SNAPREBUILD_START_ANYWAY": "1"}


@pytest.mark.parametrize("options", [["--fail-closed"], ["--fail-closed", "--no-such-option"], ["/logs"], ["--help"]], ids=" ".join)
def test_the_switch_starts_cmd_before_anything_is_unpacked(options: list[str], one: Path, nowhere: dict[str, str]) -> None:
    reported = start(one, "before-start", *options, *CMD, environment=nowhere | SWITCH)
    assert (reported.stdout, reported.exit_code) == (CMD_OUT, CMD_CODE)
    assert reported.stderr == f"{NOTHING_CHECKED}SNAPREBUILD_START_ANYWAY=1.\n"


@pytest.mark.parametrize("verb", ["install", "scan"])
def test_the_switch_is_of_before_start_alone(verb: str, one: Path, nowhere: dict[str, str]) -> None:
    reported = start(one, verb, "--fail-closed", *CMD, environment=nowhere | SWITCH)
    assert (reported.stdout, reported.exit_code) == ("", 3)


def test_a_command_that_cannot_be_started(one: Path, tmp_path: Path, nowhere: dict[str, str]) -> None:
    (tmp_path / "text").write_bytes(b"")
    for command, code in (("/nonexistent", 127), ("not-in-path", 127), (str(tmp_path / "text"), 126)):
        reported = start(one, "before-start", "--", command, environment=nowhere)
        assert (reported.exit_code, reported.stdout) == (code, "")
        assert f"snaprebuild: {command}: " in reported.stderr


# --- what CMD gets --------------------------------------------------------------------------------------------------------------

FACTS = """
    echo $$ $PPID; pwd; umask; env | sort
    # By the shell itself: while it waits for a program, it has all signals blocked.
    while read -r line; do case $line in Sig*|Shd*|No*) echo "$line";; esac; done < /proc/$$/status
    ls -l /proc/$$/fd | sed 's/.* //'
    read -r children < /proc/$$/task/$$/children; echo "children: $children"
    cat
"""


def test_cmd_gets_what_a_direct_start_gives(one: Path, tmp_path: Path, nowhere: dict[str, str]) -> None:
    """Process, streams, environment, umask, open files, and signals that are ignored or blocked."""
    environment = {"PATH": os.environ["PATH"], "A": "1", **nowhere}
    script = tmp_path / "script"
    script.write_text(FACTS)

    def change() -> None:
        os.umask(0o027)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    reported = []
    for begin in ([], [one, "before-start", "--deadline", "30", "--"]):
        process = subprocess.Popen(
            [*begin, "sh", script],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=change,  # noqa: PLW1509  no thread is there
        )
        out, _ = process.communicate("from stdin", timeout=SECONDS_MAX)
        first, _, rest = out.partition("\n")
        assert first == f"{process.pid} {os.getpid()}"
        reported.append([line for line in rest.splitlines() if not line.startswith(("pipe:", "/proc/"))])
    assert reported[0] == reported[1]
    assert reported[0][-1].endswith("from stdin")


# --- the deadline ---------------------------------------------------------------------------------------------------------------

HANGS = {"mkdirat": 1, "fsync": 1, "statfs,fstatfs": 1, "sendmsg": 0}
"""System calls with the deadline in seconds; 0 is the shortest."""


def start_while_it_hangs(call: str, directory: Path, *arguments: object) -> tuple[int, str, str]:
    """Code, stdout and stderr of a start whose storage does not answer for four seconds. strace may run longer than the process."""
    command = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={call}:delay_enter=4s:when=1", *arguments)
    out, errors = directory / "stdout", directory / "stderr"
    with out.open("w") as to, errors.open("w") as to_errors:
        variables = {"PATH": os.environ["PATH"]} | at(directory / "cache")
        code = subprocess.run(
            [*map(str, command)], env=variables, stdout=to, stderr=to_errors, check=False, timeout=SECONDS_MAX
        ).returncode
    return code, out.read_text(), errors.read_text()


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", HANGS)
def test_storage_that_hangs_holds_nothing_down(call: str, one: Path, tmp_path: Path) -> None:
    code, out, errors = start_while_it_hangs(call, tmp_path, one, "before-start", f"--deadline={HANGS[call]}", *CMD)
    assert (code, out) == (CMD_CODE, CMD_OUT), errors
    assert "what is unpacked is not ready at the deadline" in errors
    for _ in range(2):  # during the first one the other may still hold what it began
        assert is_started(start(one, "before-start", *CMD, environment=at(tmp_path / "cache")))
    assert len(trees(tmp_path / "cache")) == 1


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_with_fail_closed_the_deadline_ends_it(one: Path, tmp_path: Path) -> None:
    code, out, errors = start_while_it_hangs("fsync", tmp_path, one, "before-start", "--deadline", "1", "--fail-closed", *CMD)
    assert (code, out) == (5, ""), errors


def test_another_process_that_unpacks_without_an_end_holds_nothing_down(one: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    place.mkdir(mode=0o700)
    other = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        reported = start(one, "install", "--plan", "plan.jsonl", "--deadline", "1", *CMD, environment=at(place))
        assert (reported.stdout, reported.exit_code) == (CMD_OUT, CMD_CODE)
    finally:
        os.close(other)
    assert trees(place) == []


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_time_of_unpacking_is_handed_on(one: Path, tmp_path: Path) -> None:
    """The moment is the one at which the process began. The deadline does not matter if the tree is there."""
    before = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=mkdirat:delay_enter=1s:when=1")
    first = time.monotonic_ns()
    reported = start(one, "before-start", "--deadline", "50", *CMD, before=before, environment=at(tmp_path / "cache"))
    process, began, _ = map(int, reported.stdout.splitlines()[1].split())
    assert f"command {process}" == reported.stdout.splitlines()[0]
    assert first < began < time.monotonic_ns() - 10**9
    assert is_started(start(one, "before-start", "--deadline", "0", *CMD, environment=at(tmp_path / "cache")))


# --- the starter of the tree ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [STARTS[0], STARTS[1]])
def test_a_tree_whose_interpreter_is_gone_starts_cmd(arguments: list[str], starter: Path) -> None:
    """Half an update of a package leaves such a tree."""
    reported = start(starter, *arguments)
    assert (reported.stdout, reported.exit_code) == (CMD_OUT, CMD_CODE)
    assert "lib/snaprebuild: No such file or directory" in reported.stderr


@pytest.mark.parametrize("arguments", [["scan", *CMD], ["before-start", "--fail-closed", *CMD], ["before-start"]])
def test_a_tree_whose_interpreter_is_gone_fails(arguments: list[str], starter: Path) -> None:
    reported = start(starter, *arguments)
    assert (reported.stdout, reported.exit_code) == ("", 5)


def test_the_interpreter_itself_starts_no_cmd(starter: Path) -> None:
    python = starter.with_name("python")
    shutil.copy(starter, python)
    reported = start(python, "before-start", *CMD)
    assert (reported.stdout, reported.exit_code) == ("", 5)


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from one_file import _compile_static

    program = tmp_path_factory.mktemp("tree") / COMMAND
    program.parent.mkdir()
    _compile_static("one_file_starter.c", program, '-DPYTHON="python"')
    return program
