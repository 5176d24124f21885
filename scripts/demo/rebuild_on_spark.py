#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""The bundled log directories in a bucket, rebuilt on Spark by the command, and compared with what Kafka's own classes said of them.

What is expected comes from ``fixtures/*/manifest.json`` and from nothing else; snapshots are read here by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "scripts/snaprebuild"
OPTIONS = ["--engine", "spark", "--boundaries", "all", "--replay-from", "log-start", "--keep-expired", "--output", "json"]
AT_ONCE = min(max(os.cpu_count() or 1, 2), 4)
"""Runs of one core each, side by side: most of such a run is the start of Java and of Python, one thing after the other."""
FIELDS = (
    "producer_id",
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)
ENTRY = struct.Struct(">qhiqiqiq")
BUCKET = "demo"
DAMAGED = 4
"""Exit code where a bundled directory has a flipped bit."""
AS_OF = "2026-11-21T12:00:00Z"

MESSAGES_MAX = 3
"""Lines of a run on stderr that are shown: the document has all findings."""

Snapshots = dict[str, dict[int, frozenset[tuple[int, ...]]]]


def expected() -> dict[str, Snapshots]:
    """Producers at each boundary of each bundled directory, by directory, partition and offset."""
    snapshots: dict[str, Snapshots] = {}
    for path in sorted(ROOT.glob("fixtures/*/manifest.json")):
        for partition, about in json.loads(path.read_text()).get("partitions", {}).items():
            states = {each["snapshot_offset"]: frozenset(map(row_of, each["entries"])) for each in about["segments"]}
            snapshots.setdefault(path.parent.name, {})[partition] = states
    return snapshots


def row_of(entry: dict[str, int]) -> tuple[int, ...]:
    """Its fields in the order of the file."""
    return tuple(entry[name] for name in FIELDS)


def written(directory: Path) -> dict[int, frozenset[tuple[int, ...]]]:
    """The snapshots in a directory, by offset."""
    return {int(path.stem): frozenset(ENTRY.iter_unpack(path.read_bytes()[10:])) for path in directory.glob("*.snapshot")}


def prefix_of(name: str) -> str:
    """An odd one, for each directory another depth."""
    return "/".join([*(["2026", "a blank", "ü=1+1"][: 1 + len(name) % 3]), name, "logs"])


def check(what: str, actual: object, expected_value: object) -> None:
    """Ends the demonstration where something is wrong."""
    if actual != expected_value:
        sys.exit(f"WRONG: {what}\n  expected {str(expected_value)[:2000]}\n  found    {str(actual)[:2000]}")


@dataclass(frozen=True)
class Run:
    """The result of a command."""

    line: str
    document: dict[str, Any]
    messages: str
    seconds: float

    @property
    def totals(self) -> dict[str, int]:
        """Boundaries by action, those that are not 0."""
        needs = ("missing", "not_needed", "made_by_broker")
        return {name: count for name, count in self.document["totals"].items() if count and name not in needs}

    def show(self, *reported: str) -> None:
        """Prints it as it looks in a terminal, but for the document; then what was compared."""
        totals = ", ".join(f"{count} {action}" for action, count in self.totals.items())
        print(f"$ {self.line}")
        messages = self.messages.splitlines()
        if len(messages) > MESSAGES_MAX:
            messages[MESSAGES_MAX:] = [f"... and {len(messages) - MESSAGES_MAX} lines more of what is UNSOUND and why"]
        for text in (*messages, f"exit code {self.document['exit_code']}: {totals} ({self.seconds:.0f} s)", *reported):
            print(f"  {text}")
        print(flush=True)


def line_of(arguments: list[str], **environment: str) -> str:
    """A command as it is typed: the variables that lead to the store were exported before."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(arguments)])


def run(source: str, out: Path, *options: str, **environment: str) -> Run:
    """Runs the command, as it is printed, in the directory of the checkout."""
    arguments = [COMMAND, "rebuild", source, "--out", str(out), *options, *OPTIONS]
    started = time.monotonic()
    done = subprocess.run(arguments, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"WRONG: {line_of(arguments, **environment)}: exit code {done.returncode}\n{done.stderr}")
    document = {**json.loads(done.stdout), "exit_code": done.returncode}
    return Run(line_of(arguments, **environment), document, done.stderr, time.monotonic() - started)


def each(out: Path) -> None:
    """One run for each bundled directory, at its prefix; some at once, each on one core."""
    boundaries = 0
    directories = expected()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {
            name: pool.submit(run, f"s3://{BUCKET}/{prefix_of(name)}", out / "each" / name, SPARK_MASTER="local[1]")
            for name in directories
        }
        for name, partitions in directories.items():
            done = runs[name].result()
            place = out / "each" / name
            document = done.document
            unsound = any(each["class"] == "UNSOUND" for one in document["partitions"] for each in one["boundaries"])
            check(f"exit code of {name}", document["exit_code"], DAMAGED if name == "damaged" else int(unsound))
            check(name, {partition: written(place / partition) for partition in partitions}, partitions)
            count = sum(map(len, partitions.values()))
            boundaries += count
            done.show(f"{count} boundaries of {len(partitions)} partitions are as Kafka's own classes have them")
    print(f"each: {boundaries} boundaries of {len(directories)} directories are Kafka's\n", flush=True)


def together(out: Path) -> None:
    """One run for the whole bucket."""
    done = run(f"s3://{BUCKET}", out / "together")
    done.show(compared(done.document, out / "together"))


def compared(document: dict[str, Any], place: Path) -> str:
    """Everything in the bucket was written, and is Kafka's."""
    check("exit code", document["exit_code"], DAMAGED)
    boundaries = 0
    for name, partitions in expected().items():
        for partition, states in partitions.items():
            check(f"{name}/{partition}", written(place / prefix_of(name) / partition), states)
            boundaries += len(states)
    # One partition more is there that no manifest lists: __remote_log_metadata-0.
    check("written", document["totals"]["written"], sum(1 for _ in place.rglob("*.snapshot")))
    return f"{boundaries} boundaries of {len(expected())} directories are Kafka's, all below the prefixes of the bucket"


def again(out: Path) -> None:
    """A second run finds everything there, and does nothing."""
    if not (out / "together").exists():
        together(out)
    before = {path: path.stat().st_mtime_ns for path in (out / "together").rglob("*")}
    done = run(f"s3://{BUCKET}", out / "together")
    check("totals of the second run", list(done.totals), ["equal"])
    check("files after the second run", {path: path.stat().st_mtime_ns for path in (out / "together").rglob("*")}, before)
    done.show("the second run: all equal, no file was touched")


def cluster(out: Path) -> None:
    """A cluster of two workers, one of which is killed with its executor as soon as that has a task of Python."""
    environment = {**os.environ, "SPARK_CLUSTER_STATE": str(out / "cluster"), "PYTHON": str(ROOT / ".venv" / "bin" / "python")}
    script = [str(ROOT / "scripts" / "servers" / "spark-cluster")]
    print("$ scripts/servers/spark-cluster start 2")
    reported = subprocess.run([*script, "start", "2"], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    print("".join(f"  {line}\n" for line in reported.splitlines()), flush=True)
    try:
        master = reported.split()[0]
        victim = int(reported.split()[2])
        place = out / "on a cluster"
        source = f"s3://{BUCKET}"
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run, source, place, "--master", master)
            while not (tasks := [pid for pid in below(victim) if "pyspark.daemon" in command_of(pid)]):
                check("the command ended before a worker had a task", running.done(), False)
                time.sleep(0.05)
            for pid in [victim, *below(victim)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            check("the command ended before the worker was killed", running.done(), False)
            done = running.result()
        killed = f"worker {victim} was killed on the way, with its executor and {len(tasks)} processes of Python at work"
        done.show(killed, compared(done.document, place))
    finally:
        subprocess.run([*script, "stop"], env=environment, check=True)


def below(pid: int) -> list[int]:
    """All processes below one."""
    children: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, listed.read_text().split())
    return children + [each for child in children for each in below(child)]


def command_of(pid: int) -> str:
    """Nothing where it ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def sql(out: Path) -> None:
    """The two data sources answer the questions of docs/reference/spark-sql.md on the bucket as on the directory itself."""
    assert out

    def answers_for(place: str) -> tuple[str, list[str]]:
        arguments = ["scripts/demo/spark_questions.py", place, "--as-of", AS_OF]
        answer = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        return line_of(arguments), [line for line in answer.splitlines() if line.startswith(("|", "+"))]

    with ThreadPoolExecutor(2) as pool:
        places = ("fixtures/kafka27-mixed", f"s3://{BUCKET}/{prefix_of('kafka27-mixed')}")
        (local_command, table), (remote_command, other) = pool.map(answers_for, places)
    check("answers on the bucket", other, table)
    check("three tables", len([line for line in table if line.startswith("+")]), 9)
    print(
        "\n".join([f"$ {local_command}", *(f"  {line}" for line in table), f"$ {remote_command}", "  the same three tables\n"]),
        flush=True,
    )


@contextlib.contextmanager
def store(place: Path) -> Iterator[None]:
    """An object store with all bundled directories; while it runs, the environment leads to it."""
    environment = {**os.environ, "S3_SERVER_STATE": str(place)}
    exports = place.with_suffix(".exports")
    with exports.open("w") as reported:  # a pipe would stay open as long as the server runs
        subprocess.run([ROOT / "scripts" / "servers" / "s3-server", "start"], env=environment, stdout=reported, check=True)
    try:
        os.environ.update(dict(each.split("=", 1) for each in exports.read_text().split()[1:]))
        os.environ["AWS_ENDPOINT_URL"] = os.environ.pop("AWS_ENDPOINT_URL_S3")
        names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
        print("$ export", *(f"{name}={os.environ[name]}" for name in names), flush=True)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        keys = {
            path: f"{prefix_of(name)}/{path.relative_to(logs)}"
            for name in expected()
            for logs in [ROOT / "fixtures" / name / "logs"]
            for path in logs.rglob("*")
            if path.is_file()
        }
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda path: client.put_object(Bucket=BUCKET, Key=keys[path], Body=path.read_bytes()), keys))
        print(
            f"  bucket {BUCKET}: {len(keys)} objects of {len(expected())} bundled directories, each at a prefix of its own\n",
            flush=True,
        )
        yield
    finally:
        subprocess.run([ROOT / "scripts" / "servers" / "s3-server", "stop"], env=environment, check=True)


STEPS = {step.__name__: step for step in (each, together, again, cluster, sql)}


def main() -> None:
    """All steps, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"some of: {', '.join(STEPS)}; default: all")
    steps = parser.parse_args().steps or list(STEPS)
    if unknown := sorted(set(steps) - set(STEPS)):
        parser.error(f"no such step: {', '.join(unknown)}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="demo-spark-") as directory, store(Path(directory) / "store"):
        for name in steps:
            text = STEPS[name].__doc__ or ""
            print(f"# {name}: {text.splitlines()[0]}", flush=True)
            STEPS[name](Path(directory))
    print(f"all as Kafka has it: {', '.join(steps)} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
