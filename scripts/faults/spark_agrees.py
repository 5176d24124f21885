#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: test spark
"""Runs each function of the library on the fixtures with worker processes, on Spark and through Spark Connect, and compares all results.

The documents must be equal, but for what names the run and its time. The files that a rebuild writes must have the same bytes.
Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import connect_server
from manifests import AIVEN, FIXTURES
from same_result import OF_ONE_RUN, RUN_AND_FILES, differing, without

import snaprebuild as library
from snaprebuild.spark import job, notebook
from snaprebuild.spark.session import opened_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snaprebuild.library.verb_result import Result

AS_OF_MS = 1_795_270_000_000
LEFT_OUT = (*OF_ONE_RUN, *RUN_AND_FILES, "command", "rate_bytes_per_second", "estimated_seconds", "answer", "next")
"""Members that name the engine, or have a time of reading in words."""

REPLAY: dict[str, Any] = {"as_of_ms": AS_OF_MS}
REBUILD: dict[str, Any] = {**REPLAY, "boundaries": "all", "replay_from": "log-start"}
KEYS: dict[str, Any] = {**REPLAY, "private_key": [AIVEN / "keys" / "key1.private.pem"]}

LOGS = sorted({path.parent.parent.parent for path in FIXTURES.rglob("logs/*-[0-9]*/*.log")})
STORES = [*sorted(AIVEN.glob("*/store")), FIXTURES / "tiered-local" / "remote"]

COMMANDS: dict[str, tuple[list[Path], dict[str, Any]]] = {
    "scan": (LOGS, {}),
    "plan": (LOGS, REBUILD),
    "rebuild": (LOGS, REBUILD),
    "verify": (LOGS, REPLAY),
    "audit": (STORES, KEYS),
}
"""For each function the directories that it reads, and its arguments."""

Call = Callable[..., "Result[Any, Any]"]


@dataclass
class Tally:
    """Counts of the runs of one function by one engine."""

    runs: int = 0
    equal: int = 0
    files: int = 0
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)


class Outcome:
    """A run that is over: its document and its files, both without the names of its own places."""

    def __init__(self, call: Call, source: Path, arguments: dict[str, Any], place: Path, *, writes: bool) -> None:
        out = {"out": place / "out", "receipt": place / "receipt.jsonl"} if writes else {}
        place.mkdir()
        began = time.perf_counter()
        result = call(source, **arguments, **out)
        text = result.to_json()
        self.seconds = time.perf_counter() - began
        self.exit_code = result.exit_code
        self.document = without(json.loads(text.replace(str(place), "PLACE")), LEFT_OUT)
        self.files = {
            str(each.relative_to(place / "out")): each.read_bytes() for each in (place / "out").rglob("*") if each.is_file()
        }


@contextmanager
def sessions(place: Path) -> Iterator[dict[str, SparkSession]]:
    """A session of this machine, and one of a server of Spark Connect on this machine."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    with opened_session("local[2]", {"spark.driver.memory": "1g"}) as own, connect_server.running(place / "server") as server:
        remote: Any = RemoteSession.builder.remote(server.url).create()
        try:
            yield {"Spark": own, "Spark Connect": remote}
        finally:
            remote.stop()


def compare(name: str, source: Path, engines: dict[str, SparkSession], place: Path, tallies: dict[tuple[str, str], Tally]) -> None:
    """Runs a function on one directory by all engines, and adds up what differs."""
    arguments = COMMANDS[name][1]
    writes = name == "rebuild"
    here = Outcome(getattr(library, name), source, arguments, place / "here", writes=writes)
    of_processes = tallies[name, "processes"]
    of_processes.runs += 1
    of_processes.seconds += here.seconds
    of_processes.files += len(here.files)
    for number, (engine, session) in enumerate(engines.items()):

        def call(path: Path, session: SparkSession = session, **options: Any) -> Result[Any, Any]:
            result: Result[Any, Any] = getattr(notebook, name)(session, path, **options)
            return result

        there = Outcome(call, source, arguments, place / f"there{number}", writes=writes)
        tally = tallies[name, engine]
        tally.runs += 1
        tally.seconds += there.seconds
        tally.files += sum(here.files.get(each) == data for each, data in there.files.items())
        found = list(differing(here.document, there.document))
        if here.exit_code != there.exit_code:
            found.append(f"exit code {here.exit_code} != {there.exit_code}")
        if here.files != there.files:
            found.append("the files differ")
        tally.equal += not found
        tally.differences += [f"{name} {source.relative_to(FIXTURES)} by {engine}: {each}" for each in found]


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FUNCTION", help=f"of {', '.join(COMMANDS)}; default: all")
    names = parser.parse_args().names or list(COMMANDS)
    job.HERE_SECONDS = job.HERE_SECONDS_MAX = -1.0  # so that executors make all calls
    differences: list[str] = []
    with tempfile.TemporaryDirectory() as directory, sessions(Path(directory)) as engines:
        print("| function | engine | runs | equal documents | snapshots with equal bytes | seconds |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in names:
            tallies = {(name, engine): Tally() for engine in ("processes", *engines)}
            for source in COMMANDS[name][0]:
                with tempfile.TemporaryDirectory(dir=directory) as place:
                    compare(name, source, engines, Path(place), tallies)
            for (_, engine), tally in tallies.items():
                equal = "-" if engine == "processes" else str(tally.equal)
                print(f"| {name} | {engine} | {tally.runs} | {equal} | {tally.files or '-'} | {tally.seconds:.1f} |", flush=True)
                differences += tally.differences
    print("\n".join(differences), file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
