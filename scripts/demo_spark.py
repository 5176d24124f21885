"""The bundled log directories in a bucket, rebuilt on Spark by the command, and compared with what Kafka's own classes said of them.

What is expected comes from ``fixtures/*/manifest.json`` and from nothing else; snapshots are read here by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [str(ROOT / "scripts" / "snaprebuild"), "rebuild"]
OPTIONS = ["--engine", "spark", "--boundaries", "all", "--replay-from", "log-start", "--keep-expired", "--output", "json"]
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

Snapshots = dict[str, dict[int, frozenset[tuple[int, ...]]]]


def expected() -> dict[str, Snapshots]:
    """Of each bundled directory, by partition and boundary."""
    found: dict[str, Snapshots] = {}
    for path in sorted(ROOT.glob("fixtures/*/manifest.json")):
        for partition, about in json.loads(path.read_text()).get("partitions", {}).items():
            states = {each["snapshot_offset"]: frozenset(map(row_of, each["entries"])) for each in about["segments"]}
            found.setdefault(path.parent.name, {})[partition] = states
    return found


def row_of(entry: dict[str, int]) -> tuple[int, ...]:
    """Its fields in the order of the file."""
    return tuple(entry[name] for name in FIELDS)


def written(directory: Path) -> dict[int, frozenset[tuple[int, ...]]]:
    """The snapshots in a directory, by offset."""
    return {int(path.stem): frozenset(ENTRY.iter_unpack(path.read_bytes()[10:])) for path in directory.glob("*.snapshot")}


def prefix_of(name: str) -> str:
    """An odd one, for each directory another depth."""
    return "/".join([*(["2026", "a blank", "ü=1+1"][: 1 + len(name) % 3]), name, "logs"])


def check(what: str, found: object, wanted: object) -> None:
    """Ends the demonstration where something is wrong."""
    if found != wanted:
        sys.exit(f"WRONG: {what}\n  expected {str(wanted)[:2000]}\n  found    {str(found)[:2000]}")


def run(*arguments: str) -> dict[str, Any]:
    """The command; what it printed, and its exit code."""
    print("$ scripts/snaprebuild rebuild", *arguments[:1], "... --out", arguments[-1], flush=True)
    done = subprocess.run([*COMMAND, *arguments[:-1], "--out", arguments[-1], *OPTIONS], stdout=subprocess.PIPE, check=False)
    return {**json.loads(done.stdout), "exit_code": done.returncode}


def each(out: Path) -> None:
    """One run for each bundled directory, at its prefix."""
    boundaries = 0
    for name, partitions in expected().items():
        place = out / "each" / name
        started = time.monotonic()
        document = run(f"s3://{BUCKET}/{prefix_of(name)}", str(place))
        unsound = any(each["class"] == "UNSOUND" for one in document["partitions"] for each in one["boundaries"])
        check(f"exit code of {name}", document["exit_code"], DAMAGED if name == "damaged" else int(unsound))
        check(name, {partition: written(place / partition) for partition in partitions}, partitions)
        count = sum(map(len, partitions.values()))
        boundaries += count
        print(f"  {name}: {count} boundaries of {len(partitions)} partitions are Kafka's ({time.monotonic() - started:.0f} s)")
    print(f"each: {boundaries} boundaries of {len(expected())} directories are Kafka's")


def together(out: Path) -> None:
    """One run for the whole bucket."""
    document = run(f"s3://{BUCKET}", str(out / "together"))
    compare(document, out / "together", "together")


def compare(document: dict[str, Any], place: Path, what: str) -> None:
    """Everything in the bucket was written, and is Kafka's."""
    check("exit code", document["exit_code"], DAMAGED)
    boundaries = 0
    for name, partitions in expected().items():
        for partition, states in partitions.items():
            check(f"{name}/{partition}", written(place / prefix_of(name) / partition), states)
            boundaries += len(states)
    # One partition more is there of which no manifest tells: __remote_log_metadata-0.
    check("totals", document["totals"], {"written": sum(1 for _ in place.rglob("*.snapshot"))})
    print(f"{what}: {boundaries} boundaries of {len(expected())} directories are Kafka's")


def again(out: Path) -> None:
    """A second run finds everything there, and does nothing."""
    if not (out / "together").exists():
        together(out)
    before = {path: path.stat().st_mtime_ns for path in (out / "together").rglob("*")}
    document = run(f"s3://{BUCKET}", str(out / "together"))
    check("totals of the second run", list(document["totals"]), ["equal"])
    check("files after the second run", {path: path.stat().st_mtime_ns for path in (out / "together").rglob("*")}, before)
    print(f"again: {document['totals']['equal']} equal, nothing was touched")


def cluster(out: Path) -> None:
    """A cluster of two workers, one of which is killed with its executor as soon as that has a task of Python."""
    environment = {**os.environ, "SPARK_CLUSTER_STATE": str(out / "cluster"), "PYTHON": str(ROOT / ".venv" / "bin" / "python")}
    script = [str(ROOT / "scripts" / "spark-cluster")]
    told = subprocess.run([*script, "start", "2"], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    try:
        master, victim = told[0], int(told[2])
        place = out / "on a cluster"
        print(f"$ scripts/snaprebuild rebuild s3://{BUCKET} --master {master} ...", flush=True)
        command = [*COMMAND, f"s3://{BUCKET}", "--master", master, "--out", str(place), *OPTIONS]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            while not (tasks := [pid for pid in below(victim) if "pyspark.daemon" in command_of(pid)]):
                check("the command, before a worker had a task", running.poll(), None)
                time.sleep(0.05)
            for pid in [victim, *below(victim)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            check("the command, when the worker was killed", running.poll(), None)
            print(f"  killed worker {victim} with its executor, which had {len(tasks)} processes of Python at work")
            answer = running.communicate()[0]
        compare({**json.loads(answer), "exit_code": running.returncode}, place, "cluster")
    finally:
        subprocess.run([*script, "stop"], env=environment, check=True)


def below(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, listed.read_text().split())
    return found + [each for child in found for each in below(child)]


def command_of(pid: int) -> str:
    """Nothing where it ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def sql(out: Path) -> None:
    """The two data sources answer the questions of docs/spark-sql.md on the bucket as on the directory itself."""
    assert out
    answers = []
    for place in (str(ROOT / "fixtures" / "kafka27-mixed"), f"s3://{BUCKET}/{prefix_of('kafka27-mixed')}"):
        print(f"$ scripts/spark-questions {place} --as-of {AS_OF}", flush=True)
        command = [str(ROOT / "scripts" / "spark-questions"), place, "--as-of", AS_OF]
        answers.append(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    tables = [[line for line in answer.splitlines() if line.startswith(("|", "+"))] for answer in answers]
    print("\n".join(tables[0]))
    check("answers on the bucket", tables[1], tables[0])
    check("three tables", len([line for line in tables[0] if line.startswith("+")]), 9)
    print("sql: three questions have the same answers on the bucket")


@contextlib.contextmanager
def store(place: Path) -> Iterator[None]:
    """An object store with all bundled directories; while it runs, the environment leads to it."""
    around = {**os.environ, "S3_SERVER_STATE": str(place)}
    exports = place.with_suffix(".exports")
    with exports.open("w") as told:  # a pipe would stay open as long as the server runs
        subprocess.run([ROOT / "scripts" / "s3-server", "start"], env=around, stdout=told, check=True)
    try:
        os.environ.update(each.split("=", 1) for each in exports.read_text().split()[1:])
        os.environ["AWS_ENDPOINT_URL"] = os.environ.pop("AWS_ENDPOINT_URL_S3")
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        for name in expected():
            logs = ROOT / "fixtures" / name / "logs"
            for path in sorted(path for path in logs.rglob("*") if path.is_file()):
                client.put_object(Bucket=BUCKET, Key=f"{prefix_of(name)}/{path.relative_to(logs)}", Body=path.read_bytes())
        yield
    finally:
        subprocess.run([ROOT / "scripts" / "s3-server", "stop"], env=around, check=True)


STEPS = {step.__name__: step for step in (each, together, again, cluster, sql)}


def main() -> None:
    """All steps, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"some of: {', '.join(STEPS)}; default: all")
    asked = parser.parse_args().steps or list(STEPS)
    if unknown := sorted(set(asked) - set(STEPS)):
        parser.error(f"no such step: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="demo-spark-") as directory, store(Path(directory) / "store"):
        for name in asked:
            STEPS[name](Path(directory))
    print("all as Kafka has it")


if __name__ == "__main__":
    main()
