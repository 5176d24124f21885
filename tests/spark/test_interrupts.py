"""Ctrl-C and SIGTERM in the middle of a job: one line, the exit code of the contract, and nothing that continues."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from faulty_store import faulty_store
from log_dirs import files_below
from manifests import FIXTURES, REPOSITORY
from waiting import SECONDS_MAX, wait_until

from snaprebuild.cli.interrupts import INTERRUPTED
from snaprebuild.cli.main import INTERRUPTED_TEXT

pytestmark = pytest.mark.spark

LOGS = FIXTURES / "kafka27-mixed" / "logs"


def of_session(leader: int) -> dict[int, str]:
    """Processes of the session that a process leads: Java, and the Python workers, which have a process group of their own."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found[int(stat.parent.name)] = stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:
            continue  # it ended
    return found


@pytest.mark.parametrize("where", [pytest.param("segments are read", marks=pytest.mark.night), "snapshots are written"])
def test_an_interrupted_job(where: str, tmp_path: Path) -> None:
    """The store does not answer any more when the signal comes: tasks wait for it, and are not waited for."""
    method, ending = ("GET", ".log") if where == "segments are read" else ("PUT", ".snapshot")
    number = signal.SIGINT if method == "GET" else signal.SIGTERM
    asked, over = threading.Semaphore(0), threading.Event()

    # Of these the plan reads the end.
    last = {f"b/logs/{max(each.glob('*.log')).relative_to(LOGS)}" for each in LOGS.iterdir() if each.is_dir()}

    def choose(of: str, path: str, _: dict[str, str]) -> str:
        if of == method and path.endswith(ending) and path not in last:
            asked.release()
            over.wait(SECONDS_MAX)
        return ""

    receipt = tmp_path / "receipt.jsonl"
    with faulty_store() as store:
        store.objects = {f"b/logs/{name}": (LOGS / name).read_bytes() for name in files_below(LOGS)}
        before = dict(store.objects)
        store.choose = choose
        access = {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": "t",
            "AWS_SECRET_ACCESS_KEY": "t",
            "AWS_DEFAULT_REGION": "x",
        }
        # Tests before this one may have led this process to another store, or to settings of their session.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYSPARK_", "SPARK_"))}
        options = ("--as-of", "1795270000000", "--set", "s3_path_style=true", "--receipt", str(receipt), "--output", "json")
        engine = ("--engine", "spark", "--master", "local[2]")
        command = (sys.executable, "-m", "snaprebuild", "rebuild", "s3://b/logs", *options, *engine)
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**own, **access, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                for _ in range(2):
                    wait_until(lambda: asked.acquire(timeout=1) or process.poll() is not None, "the store is asked")
                assert process.poll() is None, process.communicate()
                names = " ".join(of_session(process.pid).values())
                assert "pyspark.daemon" in names
                assert "java" in names
                process.send_signal(number)
                reported, messages = process.communicate(timeout=SECONDS_MAX)
                left = of_session(process.pid)
            finally:
                over.set()
                process.kill()
        assert (process.returncode, reported) == (INTERRUPTED, "")
        *first, end = messages.splitlines()
        assert end == INTERRUPTED_TEXT
        assert first == [f"receipt of what was written: {receipt} (`snaprebuild undo` takes it back)"]
        wait_until(lambda: not of_session(process.pid), f"still there: {left}")
        assert {name: store.objects[name] for name in before} == before
    steps = [json.loads(line) for line in receipt.read_text().splitlines()]
    assert [each.get("step") for each in steps] == [None, "objects"], "no outcome arrived: the objects show the name of the run"
