"""Where output goes: pipes, closed and full streams, terminals of every kind, Ctrl-C."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import COMMAND, SECONDS_MAX, Run, in_json, run_process, snaprebuild
from compressed_batches import compressed
from log_dirs import batch, copy_of, make_log_dir, snapshots_in, tree, truth, write_partition
from manifests import REPOSITORY
from other_process import live_broker
from sentences import HELD_BY_PROCESS
from terminal import in_terminal

from formats import limits
from snaprebuild.cli.main import main
from snaprebuild.storage import thread_pool

pytestmark = pytest.mark.full

MIXED = "fixtures/kafka27-mixed"
AS_OF = "2026-11-21T12:00:00Z"
"""Without it the output has the moment of the run."""
EXIT_CODES = {"scan": 1, "rebuild": 0, "inspect explain": 0, "verify": 0}
"""Exit codes of some verbs on ``MIXED``: its snapshots are missing."""
ONE_OF_EACH = [(verb, ("json", "table")[number % 2]) for number, verb in enumerate(EXIT_CODES)]
"""Verbs and forms of output: what is printed goes through one place."""
REQUIRED = {"rebuild": ("--dry-run",), "inspect explain": ("--producer-id", "33", "--topic", "mixed")}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def arguments_of(verb: str, *more: object) -> list[str]:
    return [*COMMAND, *verb.split(), MIXED, *REQUIRED.get(verb, ()), *map(str, more)]


def shell(verb: str, rest: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a verb in a shell, with a redirection after it."""
    command = " ".join([*arguments_of(verb), rest])
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(("verb", "output"), ONE_OF_EACH)
def test_a_stream_that_is_closed(verb: str, output: str) -> None:
    """A closed stdout takes no result, as a full disk takes none. The other two carry none."""
    done = shell(verb, f"--output {output} >&-")
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == b"snaprebuild: stdout: the result cannot be printed: Bad file descriptor"
    assert shell(verb, f"--output {output} >&- 2>&- <&-").returncode == 5
    assert shell(verb, f"--output {output} 2>&- <&-").returncode == EXIT_CODES[verb]


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", ">&- 2>&- <&-"])
def test_a_help_that_nobody_gets(redirection: str) -> None:
    command = f"{' '.join(COMMAND)} --help {redirection}"
    assert subprocess.run(["bash", "-c", command], cwd=REPOSITORY, check=False, capture_output=True).returncode == 5


def test_what_is_printed_never_lands_in_a_file_that_is_written(tmp_path: Path) -> None:
    """With stdout closed, the first file that is opened would be number 1."""
    logs = copy_of("kafka27-mixed", tmp_path)
    command = f"{' '.join(COMMAND)} rebuild {logs} -v >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], cwd=REPOSITORY, check=False).returncode == 5, (
        "the result is lost, the files are not"
    )
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")


@pytest.mark.parametrize(("verb", "output"), ONE_OF_EACH)
def test_a_full_disk_behind_stdout(verb: str, output: str, tmp_path: Path) -> None:
    """The result that cannot be printed is in the report."""
    arguments = arguments_of(verb, "--output", output, "--save-json", tmp_path / "report.json")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == "snaprebuild: stdout: the result cannot be printed: No space left on device"
    assert json.loads((tmp_path / "report.json").read_text())["schema"].startswith(f"snaprebuild.{verb.replace(' ', '-')}/")


@pytest.mark.parametrize("verb", ["scan", "rebuild"])
def test_a_report_that_cannot_be_written_does_not_take_the_result_with_it(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A directory that is there, and in which no one makes a file. Before the work it looked as if one could.
    monkeypatch.setattr("snaprebuild.cli.begin_verb.check_document", lambda *_, **__: None)
    run = snaprebuild(*arguments_of(verb, "--output", "json", "--save-json", "/proc/report.json")[len(COMMAND) :])
    assert run.exit_code == 5
    assert run.document["schema"].startswith(f"snaprebuild.{verb.replace(' ', '-')}/")
    assert run.stderr.splitlines()[-1].startswith("snaprebuild: /proc/report.json: cannot be written")


@pytest.mark.parametrize("verb", ["scan", "rebuild", "inspect stats"])
def test_machine_output_stands_alone(verb: str) -> None:
    """stdout is one document and nothing else, in a pipe and in a terminal."""
    assert json.loads(shell(verb, "--output json").stdout)["schema"].startswith(f"snaprebuild.{verb.replace(' ', '-')}/")
    assert json.loads(in_terminal(*arguments_of(verb, "--output", "json")[len(COMMAND) :]).text)["findings"] is not None


@pytest.mark.parametrize("verb", ["scan", "rebuild"])
def test_no_colours_in_a_pipe(verb: str) -> None:
    done = shell(verb, "-v", FORCE_COLOR="1", TERM="xterm-256color")
    assert b"\x1b" not in done.stdout + done.stderr
    assert not [line for line in done.stdout.decode().splitlines() if line != line.rstrip()]


def test_no_color_is_honoured() -> None:
    arguments = arguments_of("verify")[len(COMMAND) :]
    assert COLOUR.search(in_terminal(*arguments, stderr_too=True).text), "the progress bar has some"
    without = in_terminal(*arguments, stderr_too=True, NO_COLOR="1").text
    assert "verifying" in without
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[9[0-9]m", without)


def test_a_terminal_that_can_nothing() -> None:
    screen = in_terminal(*arguments_of("verify")[len(COMMAND) :], stderr_too=True, TERM="dumb").text
    assert "\x1b" not in screen
    assert screen.startswith("4 partitions: 9 equal.")


def test_no_progress_bar_runs_through_the_decisions() -> None:
    screen = in_terminal(*arguments_of("verify", "-v")[len(COMMAND) :], stderr_too=True).text
    assert "\x1b" not in screen
    assert "I fixtures" in screen or "replay begins at segment" in screen


def test_the_width_that_the_shell_names() -> None:
    wide, narrow = (in_terminal("scan", MIXED, columns=columns) for columns in (1000, 60))
    named = subprocess.run(
        arguments_of("scan"), cwd=REPOSITORY, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "60"}
    )
    assert named.stdout == wide.text, "a pipe has lines of 100 columns"
    assert narrow.text != wide.text


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1:strict"}],
    ids=["C", "C as it was", "latin-1"],
)
def test_other_character_sets(environment: dict[str, str]) -> None:
    done = shell("verify", "", **environment)
    assert (done.returncode, b"mixed-0" in done.stdout, b"Traceback" in done.stderr) == (EXIT_CODES["verify"], True, False)
    assert b"\\u2500" not in done.stdout
    if environment != {"LC_ALL": "C"}:
        assert done.stdout.isascii(), "the rule of a table is a character that is known there"
    screen = in_terminal(*arguments_of("verify")[len(COMMAND) :], stderr_too=True, **environment)
    assert (screen.exit_code, "4 partitions: 9 equal" in screen.text) == (0, True)


# --- findings on stderr ------------------------------------------------------------------------------------------------------


def test_findings_are_limited_and_counted(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for number in range(70):
        # At other offsets: findings with one cause are one line.
        batches = {offset: batch(offset, producer_id=7) for offset in (number, number + 1)}
        write_partition(logs / f"t-{number}", batches)
    count = len(in_json("scan", logs).document["findings"])
    assert count >= 70
    *reported, last = snaprebuild("scan", logs).stderr.splitlines()
    assert len(reported) == 60
    everything = [line for line in snaprebuild("scan", logs, "-v").stderr.splitlines() if not line.startswith("I ")]
    assert len(everything) == count
    others = [line for line in everything if not line.endswith("(missing-snapshots)")]  # these are in the table
    assert last == f"... and {len(others) - 60} more findings (-v shows all)"
    assert reported == others[:60]


def test_the_same_is_not_reported_for_every_partition(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs) as process_id:
        run = snaprebuild("rebuild", logs)
    assert run.exit_code == 3
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"refused: {logs}/.lock: {HELD_BY_PROCESS} {process_id}")
    assert line.endswith("(refused)"), "one cause is one finding"


def test_paths_are_reported_as_the_tables_show_them() -> None:
    """Below the working directory they are relative, on both streams."""
    run = snaprebuild("scan", MIXED)
    assert f"note: {MIXED}/logs/plain-0: all its snapshots are empty" in run.stderr
    assert str(REPOSITORY) not in run.stdout + run.stderr


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------------

INTERRUPTED = "snaprebuild: interrupted. What was written is whole; run the same command again for the rest"


WAITS_FOR_IT = """
import sys, time
from snaprebuild.snapshots.engine import worker_pool
from snaprebuild.__main__ import main

submit, seconds = worker_pool.WorkerPool._submit, float(sys.argv.pop(1))
def submit_and_wait(self, pool):
    answer = submit(self, pool)
    time.sleep(seconds)
    sys.stdout.write("workers were started")
    sys.stdout.flush()
    time.sleep(120)  # the signal ends it earlier
    return answer
worker_pool.WorkerPool._submit = submit_and_wait
sys.argv[0] = "snaprebuild"
main()
"""


@pytest.mark.parametrize("seconds", [0, 1.5], ids=["they load", "they wait for work"])
def test_ctrl_c_while_workers_are_there(seconds: float, tmp_path: Path) -> None:
    """Everybody in the terminal gets the signal, the workers too: one line, exit code 130."""
    interrupted(str(large_logs(tmp_path)), seconds, tmp_path)


def large_logs(tmp_path: Path) -> Path:
    """More than one process reads alone."""
    logs = make_log_dir(tmp_path / "logs", recovery_points={"t-0": 125})
    one = batch(0, producer_id=7, payload_bytes=1 << 20)[8:]
    segments = {base: b"".join((base + n).to_bytes(8, "big") + one for n in range(25)) for base in range(0, 125, 25)}
    write_partition(logs / "t-0", segments)
    return logs


def interrupted(logs: str, seconds: float, tmp_path: Path) -> None:
    options = ("rebuild", logs, "--out", tmp_path / "out", "--jobs", 3)
    python = ("-c", WAITS_FOR_IT, str(seconds))
    screen = in_terminal(*options, stderr_too=True, interrupt_at="workers were started", python=python)
    assert screen.exit_code == 130, screen.text
    assert INTERRUPTED in screen.text
    assert "Traceback" not in screen.text
    assert "\x1b[?25h" in screen.text, "the cursor is back"
    run = snaprebuild(*options)
    assert run.exit_code == 0
    assert len(snapshots_in(tmp_path / "out" / "t-0")) == 5


INTERRUPTS_ITSELF = """
import os, signal, sys
from snaprebuild.storage.local import store as local_store
from snaprebuild.__main__ import main

wanted = signal.Signals[sys.argv.pop()]
count, create = 0, local_store.create_file
def create_and_count(*arguments, **named):
    global count
    create(*arguments, **named)
    count += 1
    if count == 3:
        os.kill(os.getpid(), wanted)
local_store.create_file = create_and_count
sys.argv = ["snaprebuild", "rebuild", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_same_command_continues_after_ctrl_c(signal_name: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    command = [COMMAND[0], "-c", INTERRUPTS_ITSELF, str(logs), signal_name]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    said, reported = done.stderr.splitlines()
    receipt = re.fullmatch(r"receipt of what was written: (.*) \(`snaprebuild undo` takes it back\)", said)
    assert receipt is not None
    assert reported.startswith(INTERRUPTED)
    written = {name for name in tree(logs) if name not in before and name.endswith(".snapshot")}
    assert len(written) >= 3
    assert not list(logs.rglob("*.tmp"))
    would = snaprebuild("undo", receipt[1], "--dry-run", "--output", "json").document
    assert {each["path"] for each in would["files"] if each["action"] == "would_remove"} == {str(logs / name) for name in written}
    again = snaprebuild("rebuild", logs)
    assert again.exit_code == 0
    assert again.stdout.startswith(f"{14 - len(written)} snapshot") or len(written) == 14
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_before_anything_is_loaded(name: str) -> None:
    """The interpreter takes its time; anyone who is quicker sees no inside of it."""
    code = "import os, signal, sys\nsys.argv = ['snaprebuild', '--version']\nimport snaprebuild.__main__ as it\n"
    kill = "class Finder:\n def find_spec(self, name, *rest):\n  name == 'typer' and os.kill(os.getpid(), signal.{name})\n"
    done = subprocess.run(
        [COMMAND[0], "-c", code + kill.replace("{name}", name) + "sys.meta_path.insert(0, Finder())\nit.main()"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


STRACE = shutil.which("strace")
CALLS = ("openat", "write", "munmap")
"""Calls that a run makes all the time: while it loads, while it reads, when it prints, and at its very end."""
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def _pairs() -> Iterator[object]:
    """Each call with each signal; in the full tier each call with one of them."""
    for place, call in enumerate(CALLS):
        for number, name in enumerate(SIGNALS):
            yield pytest.param(call, name, marks=[] if place == number else [pytest.mark.night])


@pytest.mark.strace
@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize(("call", "name"), list(_pairs()))
def test_a_signal_at_any_moment(call: str, name: str, tmp_path: Path) -> None:
    """At the n-th call of a kind, from the first that follows our first line on: interrupted, or whole."""
    command = [*COMMAND, "scan", "fixtures/kafka4-mixed"]
    trace = tmp_path / "trace"

    def traced(*options: str) -> Run:
        return run_process(STRACE, "-qq", "-o", trace, "-e", f"trace={call},openat", *options, *command)

    whole = traced()
    assert whole.exit_code == 0
    lines = trace.read_text("latin-1").splitlines()
    begun = next(number for number, line in enumerate(lines) if "/loading." in line)
    before = sum(line.startswith(f"{call}(") for line in lines[:begun])
    count = sum(line.startswith(f"{call}(") for line in lines)
    step = max(1, (count - before) // 4)
    codes = set()
    for number in sorted({*range(before + 1, count + 1, step), count - 1, count}):
        done = traced("-e", f"inject={call}:signal={name}:when={number}")
        assert done.exit_code in (0, 130), (number, done)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        if done.exit_code == 0:
            assert done.stdout == whole.stdout, number
        codes.add(done.exit_code)
    assert 130 in codes or call == "munmap"  # most of these come when everything is printed


@pytest.mark.parametrize("verb", ["scan", "verify", "inspect dump", "tier inventory"])
def test_warnings_of_libraries_are_no_errors(verb: str) -> None:
    places = {
        "inspect dump": "fixtures/kafka4-mixed/logs/mixed-0/00000000000000000000.log",
        "tier inventory": "fixtures/tiered-local",
    }
    command = [COMMAND[0], "-W", "error", *COMMAND[1:], *verb.split(), places.get(verb, "fixtures/kafka4-mixed")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("verb", ["tier inventory", "inspect dump --deep"])
def test_a_thread_that_the_system_refuses_is_a_lack_of_memory(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIMIT_NPROC has this effect. An unforeseen error, or a result without these files, would be the alternative."""
    place = "fixtures/tiered-local"
    if verb.startswith("inspect"):
        monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", 10)
        header, data = compressed("zstd", 2, [b"value"] * 50)
        place = str(tmp_path / f"{header.base_offset:020d}.log")
        Path(place).write_bytes(data)

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(thread_pool, "_pool", thread_pool._Pool())
    monkeypatch.setattr(threading.Thread, "start", refused)
    run = snaprebuild(*verb.split(), place)
    assert run.exit_code == 5
    assert "out of memory: no more threads or processes can be started" in run.stderr + run.error


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("--help",), 0),
        (("bogus",), 2),
        (("inspect", "dump", "/no/such/file"), 2),
        (("verify", "fixtures/damaged", "--as-of", AS_OF), 4),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_who_is_gone_changes_no_exit_code(arguments: tuple[str, ...], exit_code: int, stream: str) -> None:
    """From the first byte on, not only after the first lines; and the other stream has what it always has."""
    whole = subprocess.run([*COMMAND, *arguments], cwd=REPOSITORY, capture_output=True, check=False)
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
    done = subprocess.run([*COMMAND, *arguments], cwd=REPOSITORY, check=False, **streams)  # type: ignore[call-overload]
    os.close(writer)
    assert (whole.returncode, done.returncode) == (exit_code, exit_code)
    other = "stderr" if stream == "stdout" else "stdout"
    assert re.sub(rb"[0-9.]+ s\b", b"", getattr(done, other)) == re.sub(rb"[0-9.]+ s\b", b"", getattr(whole, other))


def test_another_pipe_that_breaks_is_no_reader_who_went_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Say, that to a worker process: the outcome is not known, and 0 or 1 would claim that it is."""

    def break_pipe(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("snaprebuild.cli.runs.inspect_diff.diff_snapshots", break_pipe)
    monkeypatch.setattr(sys, "argv", ["snaprebuild", "inspect", "diff", "a", "b"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 5
    assert "a pipe broke" in capsys.readouterr().err
