"""No process of ours is left when a run is killed (SIGKILL), at whatever moment: workers, fork server, resource tracker."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_dirs import copy_of
from manifests import FIXTURES, REPOSITORY

SECONDS_MAX = 180
LEFT_SECONDS_MAX = 60.0
"""Mostly some milliseconds; a busy machine needs longer. A process that is left stays until its work of minutes is done."""
MARK = "SNAPREBUILD_TEST_RUN"

WITH_WORKERS = """
from snaprebuild.cli import main, wrapped_command
from snaprebuild.snapshots.engine import partition_task, schedule, worker_pool
schedule.IN_PROCESS_BYTES_MAX, partition_task.GROUP_SEGMENTS_MAX = 0, 1
{}
main.main()
"""
"""The command, which always starts workers."""

SLOWLY = ("--jobs", "3", "--set", "max_read_rate=10000")
"""Three workers that are at work for minutes. The rate is an option: each run sets its own, so that another one has no effect."""

STOPS_AT_MARKER = """
import os, time
waited = wrapped_command._waited
def waited_from_marker(child, deadline, verdict):
    while not os.path.exists({marker!r}):
        time.sleep(0.01)
    return waited(child, time.monotonic(), verdict)
wrapped_command._waited = waited_from_marker
wrapped_command.STOP_SECONDS, wrapped_command.KILL_SECONDS = 0.0, 0.5
"""
"""The work is asked to end when the marker exists, and killed half a second later."""

DEAF = """
import signal
read = worker_pool.WorkerPool._read_all
def deaf(*arguments):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return read(*arguments)
worker_pool.WorkerPool._read_all = deaf
"""
"""The process that leads the workers does not answer SIGTERM."""


class MarkedRun:
    """A run whose processes, and theirs, are known by a variable in their environment."""

    def __init__(self, arguments: list[str], extra: str = "") -> None:
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, MARK: self.mark}
        command = [sys.executable, "-c", WITH_WORKERS.format(extra), *arguments]
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.main = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=self.stderr)

    def processes(self) -> dict[int, int]:
        """Processes of the run that live, each with its parent."""
        found = {}
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
                    if state != "Z":
                        found[int(process.name)] = int(parent)
        return found

    def wait_for(self, is_so: Callable[[dict[int, int]], bool], seconds: float = SECONDS_MAX) -> bool:
        until = time.monotonic() + seconds
        while not is_so(self.processes()):
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)
        return True

    def wait_until(self, is_so: Callable[[dict[int, int]], bool]) -> None:
        """Fails at once if the run ends meanwhile."""
        is_reached = self.wait_for(lambda found: is_so(found) or self.main.poll() is not None) and self.main.returncode is None
        self.stderr.seek(0)
        assert is_reached, f"exit code {self.main.poll()}, processes {self.processes()}, stderr: {self.stderr.read()}"

    def assert_nothing_left(self, but: tuple[int, ...] = ()) -> None:
        ended = self.wait_for(lambda found: found.keys() <= set(but), LEFT_SECONDS_MAX)
        assert ended, {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in self.processes()}


@pytest.fixture
def marked() -> Iterator[Callable[..., MarkedRun]]:
    runs: list[MarkedRun] = []

    def start(arguments: list[str], extra: str = "") -> MarkedRun:
        runs.append(MarkedRun(arguments, extra))
        return runs[-1]

    yield start
    for run in runs:
        for pid in run.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        run.main.wait()
        assert run.main.stdout is not None
        run.main.stdout.close()
        run.stderr.close()


VERIFY = ["verify", str(FIXTURES / "kafka27-mixed" / "logs"), *SLOWLY]


SPAWNS = """
begin = worker_pool.WorkerPool.__init__
def spawning(pool, *arguments):
    begin(pool, *arguments)
    pool.reads_objects = True
worker_pool.WorkerPool.__init__ = spawning
"""
"""Workers are started as where they read objects: by the main process itself."""


@pytest.mark.parametrize(
    ("count", "extra"), [pytest.param(2, "", marks=pytest.mark.full), (6, ""), pytest.param(5, SPAWNS, marks=pytest.mark.full)]
)
def test_killed_at_each_count_of_processes(count: int, extra: str, marked: Callable[..., MarkedRun]) -> None:
    """Six: the main process, the resource tracker, the fork server, three workers."""
    run = marked(VERIFY, extra)
    run.wait_until(lambda found: len(found) >= count)
    run.main.kill()
    run.main.wait()
    run.assert_nothing_left()


def hook(logs: Path, *options: str) -> list[str]:
    return ["before-start", str(logs), *SLOWLY, *options, "--", "sh", "-c", "echo started; exec sleep 600"]


def is_at_work(found: dict[int, int]) -> bool:
    """Seven: the process that becomes the broker, the one that prepares, and five that it starts."""
    return len(found) >= 7


@pytest.fixture
def logs(tmp_path: Path, own_state_home: Path) -> Path:
    return copy_of("kafka27-mixed", tmp_path)


@pytest.mark.full
def test_a_preparation_that_is_killed_leaves_nothing_next_to_the_broker(logs: Path, marked: Callable[..., MarkedRun]) -> None:
    run = marked(hook(logs))
    run.wait_until(is_at_work)
    (preparation,) = [pid for pid, parent in run.processes().items() if parent == run.main.pid]
    os.kill(preparation, 9)
    assert run.main.stdout is not None
    assert run.main.stdout.readline() == b"started\n"
    run.assert_nothing_left(but=(run.main.pid,))


@pytest.mark.full
def test_a_preparation_that_hook_run_kills_leaves_nothing(logs: Path, tmp_path: Path, marked: Callable[..., MarkedRun]) -> None:
    marker = tmp_path / "stop"
    run = marked(hook(logs, "--deadline", "600"), STOPS_AT_MARKER.format(marker=str(marker)) + DEAF)
    run.wait_until(is_at_work)
    marker.touch()
    assert run.main.stdout is not None
    assert run.main.stdout.readline() == b"started\n"
    run.assert_nothing_left(but=(run.main.pid,))


@pytest.mark.full
def test_hook_run_that_is_killed_leaves_nothing(logs: Path, marked: Callable[..., MarkedRun]) -> None:
    run = marked(hook(logs), DEAF)
    run.wait_until(is_at_work)
    run.main.kill()
    run.main.wait()
    run.assert_nothing_left()
