"""``before-start``: log directories are prepared before a broker starts, and the broker starts as if no one had been there."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from budgets import first_of
from command import COMMAND, Run, in_json, run_process, snaprebuild, snaprebuild_process
from documents import check
from log_dirs import blocked_bytes, copy_of, cut, entries_in, flip, missing_boundaries, snapshot_name, tree, truth
from manifests import REPOSITORY
from other_process import live_broker
from sentences import NONE_MISSING, NOT_STARTED, NOTHING_CHECKED, STARTED_ALL_THE_SAME, USES_LOG_DIR

from snaprebuild.cli import wrapped_command

PARTITIONS = ("mixed-0", "logappend-0", "deleted-0", "plain-0")
HOOK_SECONDS_MAX = 400


def hook(*arguments: object, **options: Any) -> Run:
    """Runs the verb around a command; its words follow ``--``."""
    return snaprebuild_process("before-start", *arguments, **{"timeout": HOOK_SECONDS_MAX, **options})


def assert_prepared(logs: Path) -> None:
    """Every snapshot that a broker's own replay gives is there, with the entries that it gives."""
    for partition in PARTITIONS:
        for offset, entries in truth("kafka27-mixed", partition).items():
            if offset:
                assert entries_in((logs / partition / snapshot_name(offset)).read_bytes()) == entries


@pytest.fixture
def logs(tmp_path: Path, own_state_home: Path) -> Path:
    return copy_of("kafka27-mixed", tmp_path)


# --- without a command -----------------------------------------------------------------------------------------------------


def test_a_log_that_may_have_lost_its_tail_is_no_all_clear(logs: Path) -> None:
    """`scan` and `verify` have the finding; the start loses nothing by it, so that it holds no broker."""
    assert in_json("before-start", logs).document["next_command"] is None
    shutil.copy(max((logs / "mixed-0").glob("*.snapshot")), logs / "mixed-0" / snapshot_name(9_999_999))
    run = in_json("before-start", logs)
    assert (run.exit_code, run.codes["snapshot-above-log-end"]) == (0, 1)
    assert run.document["next_command"] == f"snaprebuild verify {logs}"
    for other in ("scan", "verify"):
        found = in_json(other, logs)
        assert (found.exit_code, found.codes["snapshot-above-log-end"]) == (1, 1)


def test_what_is_missing_is_written_the_most_blocked_first(logs: Path) -> None:
    blocked = {name: blocked_bytes(logs / name, missing_boundaries(logs / name)) for name in PARTITIONS}
    before = tree(logs)
    dry = in_json("before-start", logs, "--dry-run")
    assert tree(logs) == before
    assert (dry.exit_code, dry.document["totals"]["would_write"], dry.document["receipt"]) == (0, 14, None)
    run = in_json("before-start", logs)
    assert (run.exit_code, run.codes) == (0, {"topic-id-missing": 1}), "a note for a broker of 2.7"
    assert_prepared(logs)
    partitions = run.document["partitions"]
    assert [each["topic_partition"] for each in partitions][:2] == ["mixed-0", "logappend-0"]
    assert {each["topic_partition"]: each["totals"]["blocked_bytes"] for each in partitions} == blocked
    assert [each["totals"]["blocked_bytes_left"] for each in partitions] == [0] * 4
    assert {each["state"] for each in partitions} == {"prepared"}
    assert run.document["totals"]["written"] == 14
    assert Path(run.document["receipt"]).is_file()
    (line,) = run.stderr.splitlines()
    assert line.startswith(
        "snaprebuild: 14 snapshots written; 0 not written; 1.1 MiB wait for a snapshot, now 0 B; 1.2 MiB of 4 partitions read in "
    )
    again = in_json("before-start", logs)
    assert (again.exit_code, again.document["totals"]["written"], again.document["receipt"]) == (0, 0, None)
    by_path = in_json("before-start", logs, "--order", "path").document["partitions"]
    assert [each["topic_partition"] for each in by_path] == sorted(PARTITIONS)


def test_a_table_for_people(logs: Path) -> None:
    run = snaprebuild("before-start", logs)
    assert run.exit_code == 0
    assert "Prepared, the most blocked first" in run.stdout
    assert snaprebuild("before-start", logs).stdout == f"{NONE_MISSING}4 partitions.\nNext: nothing to do.\n\n"


def test_without_any_time_nothing_is_done_and_all_of_it_reported(logs: Path) -> None:
    before = tree(logs)
    run = in_json("before-start", logs, "--deadline", 0)
    appeared = set(tree(logs)) - set(before)
    assert appeared <= {".lock"}
    assert run.exit_code == 1
    assert run.codes == {"deadline-passed": 4}
    assert "before this partition was planned" in run.messages("deadline-passed")
    shown = snaprebuild("before-start", logs, "--deadline", 0)
    assert "\nNext: run this command again at the next stop; with a longer --deadline it does more at once.\n" in shown.stdout
    blocked = {each["topic_partition"]: each["totals"]["blocked_bytes_left"] for each in run.document["partitions"]}
    assert list(blocked)[:2] == ["mixed-0", "logappend-0"]
    assert blocked == {name: blocked_bytes(logs / name, missing_boundaries(logs / name)) for name in PARTITIONS}
    assert {each["state"] for each in run.document["partitions"]} == {"not-prepared"}
    totals = run.document["totals"]
    assert totals["blocked_bytes_left"] == totals["blocked_bytes"] > 0
    assert run.document["deadline_seconds"] == 0


def test_a_directory_that_a_broker_holds_is_refused(logs: Path) -> None:
    before = tree(logs)
    with live_broker(logs):
        run = in_json("before-start", logs, "--jobs", 1)  # next to a broker workers have the lowest priority
        assert (run.exit_code, run.codes["refused"]) == (3, 1), "one cause is one finding"
        assert set(tree(logs)) - set(before) <= {".lock"}
        assert {each["state"] for each in run.document["partitions"][:2]} == {"not-prepared"}
    assert in_json("before-start", logs).exit_code == 0
    with live_broker(logs):
        run = in_json("before-start", logs, "--jobs", 1)
        assert (run.exit_code, run.codes) == (3, {"refused": 1}), "also where nothing is missing"
        assert USES_LOG_DIR in run.messages("refused")
        assert in_json("before-start", logs, "--jobs", 1, "--dry-run").codes == {"live-broker": 1}, "which writes nothing"
        beside = (logs, "--jobs", 1, "--set", "priority=usual")  # an idle process may wait for minutes on a busy machine
        closed = hook(*beside, "--fail-closed", "--", "echo", "started")
        assert (closed.exit_code, closed.stdout) == (3, "")
        assert hook(*beside, "--", "echo", "started").stdout == "started\n"
    assert hook(logs, "--jobs", 1, "--fail-closed", "--", "echo", "started").stdout == "started\n"


@pytest.mark.parametrize("named_by", ["path", "properties"])
def test_a_broker_that_never_ran_may_start(tmp_path: Path, named_by: str) -> None:
    logs = tmp_path / "logs"
    (logs / "lost+found").mkdir(parents=True)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\n")
    arguments = (logs,) if named_by == "path" else ("--server-properties", properties)
    run = in_json("before-start", *arguments)
    assert (run.exit_code, run.codes) == (0, {"nothing-found": 1})
    (logs / "not-kafka.txt").write_text("")
    assert in_json("before-start", *arguments).exit_code == 1
    assert snaprebuild("before-start", tmp_path / "mistyped").exit_code == 2


# --- around a command ------------------------------------------------------------------------------------------------------


def test_the_command_has_stdout_and_its_exit_code_counts(logs: Path, tmp_path: Path) -> None:
    done = hook(logs, "--save-json", tmp_path / "report.json", "--", "sh", "-c", 'echo "$1"; exit 7', "sh", "-v --dry-run")
    assert (done.exit_code, done.stdout) == (7, "-v --dry-run\n")
    assert done.stderr.startswith("snaprebuild: 14 snapshots written; ")
    assert done.stderr.count("\n") == 1
    assert_prepared(logs)
    document = json.loads((tmp_path / "report.json").read_text())
    check(document)
    assert document["totals"]["written"] == 14


LOOKS = (
    "import json, os, sys; status = dict(line.strip().split(':', 1) for line in open('/proc/self/status')); "
    "print(json.dumps([os.getpid(), sys.stdin.read(), status['SigIgn'], status['SigBlk'], status['Umask'], "
    "sorted(os.listdir('/proc/self/fd')), os.environ['NOTIFY_SOCKET'], os.environ.get('OPENBLAS_NUM_THREADS')]))"
)


def look(before: list[str], **options: Any) -> tuple[int, list[Any]]:
    """Runs a command that reports on its own process."""
    command = [*before, "sh", "-c", 'exec "$0" -c "$1"', sys.executable, LOOKS]
    environment = {**os.environ, "NOTIFY_SOCKET": "@broker"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **options) as process:
        printed, _ = process.communicate("typed", timeout=HOOK_SECONDS_MAX)
        return process.pid, json.loads(printed)


def test_the_command_finds_its_process_untouched(logs: Path) -> None:
    """Process id, stdin, signals that are ignored or blocked, umask, open files, environment: what follows reaches the command itself."""
    reader, writer = os.pipe()
    options: dict[str, Any] = {"cwd": REPOSITORY, "umask": 0o077, "pass_fds": (reader,), "stderr": subprocess.DEVNULL}
    pid, wrapped = look([*COMMAND, "before-start", str(logs), "--"], **options)
    _, alone = look([], **options)
    os.close(reader)
    os.close(writer)
    assert wrapped[0] == pid
    assert wrapped[1:] == alone[1:]


def test_nothing_is_left_for_the_command_to_wait_for(logs: Path) -> None:
    waits = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')"
    assert hook(logs, "--jobs", 2, "--", sys.executable, "-c", waits).stdout == "none\n"


def test_a_command_that_does_nothing_about_a_signal_ends_by_it(logs: Path) -> None:
    command = [*COMMAND, "before-start", str(logs), "--", "sh", "-c", "echo up; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(HOOK_SECONDS_MAX) == -signal.SIGTERM


def no_room() -> None:
    """Each file that is written to is full at once."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def damaged(logs: Path) -> None:
    flip(logs / "mixed-0" / f"{2181:020d}.log", 61 + 20)


def without_partitions(logs: Path) -> None:
    shutil.rmtree(logs)


def cut_end(logs: Path) -> None:
    """The last segment of a cleanly stopped log loses its second half: acknowledged records are gone."""
    cut(logs / "mixed-0" / f"{7637:020d}.log", 20_000)


def without_meta_properties(logs: Path) -> None:
    """Nothing but a copy of partitions of a ZooKeeper broker is left: it writes the file anew."""
    (logs / "meta.properties").unlink()


FAILURES: dict[str, tuple[Callable[[Path], None] | None, tuple[object, ...], dict[str, Any], int | None]] = {
    "no room": (None, (), {"preexec_fn": no_room}, None),
    "no time": (None, ("--deadline", 0), {}, None),
    "damage that a start does not look at": (damaged, (), {}, None),
    "a file that the broker writes anew": (without_meta_properties, (), {}, None),
    "a lost end": (cut_end, (), {}, 3),
    "no such directory": (without_partitions, (), {}, 2),
}
"""Faults of a directory, and the exit code of ``--fail-closed``; None if the command starts. Only losses by the start itself hold
it back."""


QUICK_FAILURES = ("no room", "a lost end")
"""The quick tier judges the others in one process: tests/start."""


@pytest.mark.parametrize(
    "failure", [pytest.param(each, marks=() if each in QUICK_FAILURES else pytest.mark.full) for each in FAILURES]
)
def test_fail_open_and_fail_closed(logs: Path, failure: str) -> None:
    spoil, arguments, options, code = FAILURES[failure]
    if spoil is not None:
        spoil(logs)
    done = hook(logs, *arguments, "--fail-closed", "--", "echo", "started", **options)
    if code is None:
        assert (done.exit_code, done.stdout) == (0, "started\n")
    else:
        assert (done.exit_code, done.stdout) == (code, "")
        assert done.stderr.splitlines()[-1].startswith(f"snaprebuild: {NOT_STARTED}")
    done = hook(logs, *arguments, "--", "echo", "started", **options)
    assert (done.exit_code, done.stdout) == (0, "started\n")


def test_a_held_broker_is_told_why(logs: Path) -> None:
    cut_end(logs)
    done = hook(logs, "--fail-closed", "--", "echo", "started")
    assert (done.exit_code, done.stdout) == (3, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"snaprebuild: {NOT_STARTED}: mixed-0 lost its end: ")
    assert last.endswith(", its checkpoints say 8231.")


def test_an_error_of_usage_starts_the_command(logs: Path) -> None:
    """A mistyped option must not keep a broker down, unless it may have been meant to."""
    for wrong in (["--deadline", "soon"], ["--no-such-option"]):
        done = hook(logs, *wrong, "--", "echo", "started")
        assert (done.exit_code, done.stdout) == (0, "started\n")
        assert done.stderr.splitlines()[-1] == f"snaprebuild: nothing was prepared; echo {STARTED_ALL_THE_SAME}"
    for wrong in (["--fail-close"], ["--failclosed", "--deadline", "soon"]):
        done = hook(logs, *wrong, "--", "echo", "started")
        assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("arguments", first_of([["--fail-closed"], ["--no-such-option"], []]))
def test_the_switch_is_looked_at_before_anything_else(logs: Path, arguments: list[str]) -> None:
    cut_end(logs)
    before = tree(logs)
    on = {**os.environ, "SNAPREBUILD_START_ANYWAY": "1"}
    done = hook(logs, *arguments, "--", "echo", "started", env=on)
    assert (done.exit_code, done.stdout) == (0, "started\n")
    assert done.stderr == f"{NOTHING_CHECKED}SNAPREBUILD_START_ANYWAY=1.\n"
    assert tree(logs) == before


@pytest.mark.full
def test_another_value_of_the_switch_is_none(logs: Path) -> None:
    cut_end(logs)
    off = {**os.environ, "SNAPREBUILD_START_ANYWAY": "0"}
    assert (hook(logs, "--fail-closed", "--", "echo", "started", env=off).exit_code) == 3


def test_the_lock_is_free_when_the_command_starts(logs: Path) -> None:
    takes = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a+b'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('taken')"
    assert hook(logs, "--", sys.executable, "-c", takes, logs / ".lock").stdout == "taken\n"


def test_a_command_that_is_not_there(logs: Path, tmp_path: Path) -> None:
    done = hook(logs, "--", "no-such-program")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (127, "snaprebuild: no-such-program: No such file or directory")
    (tmp_path / "data").write_text("")
    assert hook(logs, "--", tmp_path / "data").exit_code == 126


SLOW = """
import os, sys, time
import snaprebuild.snapshots.before_start as module
from snaprebuild.__main__ import main
def slow(*arguments, **named):
    {}
module.make_plan = slow
sys.argv[1:] = ["before-start", *sys.argv[1:]]
main()
"""


def replaced(doing: str, *arguments: object, settings: str = "") -> subprocess.Popen[str]:
    """The verb, whose preparation does something else, perhaps with other constants."""
    command = [sys.executable, "-c", settings + SLOW.format(doing), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.full) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_who_is_stopped_while_it_prepares_starts_nothing(logs: Path, number: signal.Signals) -> None:
    with replaced("print('working', file=sys.stderr, flush=True); time.sleep(600)", logs, "--", "echo", "started") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working\n"
        process.send_signal(number)
        printed, _ = process.communicate(timeout=HOOK_SECONDS_MAX)
        assert (process.returncode, printed) == (130, "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("doing", "said", "closed"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by signal 9 (Killed)", True),
        ("os.kill(os.getpid(), 35)", "was ended by signal 35", False),
        ("raise MemoryError", "out of memory", True),
        ("raise KeyError('x')", "unforeseen KeyError", False),
    ],
)
def test_whatever_ends_the_preparation_the_command_starts(logs: Path, doing: str, said: str, closed: bool) -> None:
    """Also with --fail-closed: what holds a broker is judged first."""
    with replaced(doing, logs, *(["--fail-closed"] if closed else []), "--", "echo", "started") as process:
        printed, reported = process.communicate(timeout=HOOK_SECONDS_MAX)
    assert (process.returncode, printed) == (0, "started\n")
    assert said in reported


def test_where_there_is_no_process_for_it_the_command_starts(logs: Path) -> None:
    script = SLOW.replace("module.make_plan = slow", "os.fork = slow").format("raise BlockingIOError(11, 'Try again')")
    for closed in (False, True):
        options = ["--fail-closed"] if closed else []
        command = [sys.executable, "-c", script, str(logs), *options, "--", "echo", "started"]
        done = run_process(*command, timeout=HOOK_SECONDS_MAX)
        assert (done.exit_code, done.stdout) == ((5, "") if closed else (0, "started\n"))
        assert done.stderr.startswith("snaprebuild: the preparation has no process: Try again\n")


FOR_A_BUSY_MACHINE = """
from snaprebuild.cli import wrapped_command
wrapped_command.STOP_SECONDS, wrapped_command.KILL_SECONDS, wrapped_command.GIVE_UP_SECONDS = 10.0, 10.2, 120.0
"""
"""The preparation has ten seconds to become deaf, and its end may be seen late."""


@pytest.mark.full
def test_the_command_starts_ten_seconds_after_the_deadline_at_most(logs: Path) -> None:
    """Also where the preparation does not even answer SIGTERM. The constants say when, and a run that it does so."""
    assert wrapped_command.STOP_SECONDS < wrapped_command.KILL_SECONDS < wrapped_command.GIVE_UP_SECONDS
    assert wrapped_command.GIVE_UP_SECONDS + wrapped_command.ORPHANS_SECONDS <= 10
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('working', file=sys.stderr, flush=True); time.sleep(600)"
    with replaced(deaf, logs, "--deadline", 0, "--", "echo", "started", settings=FOR_A_BUSY_MACHINE) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "working\n"
        working_at = time.monotonic()
        assert process.stdout.readline() == "started\n"
        assert time.monotonic() - working_at < 300, "it does not wait for what is deaf"
        reported = process.stderr.read()
    assert process.returncode == 0
    assert "does not end at its deadline and is stopped" in reported
    assert "was ended by signal 9 (Killed)" in reported


ORPHAN = "os.fork() or os.execvp('sleep', ['sleep', '0.3']); os._exit(0)"
"""Leaves a process running, as the helpers of worker processes are for a moment."""

WAITS_LONG_FOR_ORPHANS = "from snaprebuild.cli import wrapped_command\nwrapped_command.ORPHANS_SECONDS = 120.0\n"
"""On a busy machine the process that is left may end much later than in 0.3 seconds."""


@pytest.fixture
def own_processes() -> None:
    """Skips the test where no process may have a name space of processes."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may make a name space of processes")


@pytest.mark.root
@pytest.mark.usefixtures("own_processes")
def test_the_first_process_of_a_container_leaves_no_zombies(logs: Path) -> None:
    script = WAITS_LONG_FOR_ORPHANS + SLOW.format(ORPHAN)
    states = 'echo "$$"; ps -e -o stat='
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script, str(logs), "--", "sh", "-c", states]
    done = run_process(*command, timeout=HOOK_SECONDS_MAX)
    first, *found = done.stdout.split()
    assert (done.exit_code, first) == (0, "1"), done.stderr
    assert found
    assert not [state for state in found if state.startswith("Z")]


# --- what a run leaves -----------------------------------------------------------------------------------------------------
