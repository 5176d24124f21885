#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Every verb over trees that are large where no one expects it: its peak of memory, its time, and whether its result is the same.

`files`: in each directory of the verb's healthy tree in turn, this many files next to its own. `--names unknown` are names that Kafka
never gives, so that the result has to be that of the healthy tree; `--names kafka` are snapshots (or objects) of offsets where
nothing is. Time (of the processor) is taken with a quarter, half and all of them: what grows with the square takes four times
as long each time.

`bytes`: each file of the tree in turn grown to this many bytes: a piece of it is repeated many times and counts up.

Memory is that of the kernel (resident pages above what the process held before), as in `tests/support/memory_peak.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command import Run, snaprebuild
from every_verb import EMPTY_SNAPSHOT, VERBS, filled
from fuzz_verbs import SLACK_BYTES, memory_bytes_max, place_of
from grown_files import WORDS, grown
from memory_peak import measured
from same_result import differing, documents

MIB = 1 << 20
COUNTED = (".files.unknown: 0 != ", "tier-unknown-objects")
"""The finding for unknown files."""
OBJECT = re.compile(r"^\d{20}-[A-Za-z0-9_-]{22}\.")


def main() -> int:
    """Prints a table; exit code 1 where a result is another, or memory is over its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "bytes"))
    parser.add_argument("--files", type=int, default=100_000, help="in a directory; default: 100,000")
    parser.add_argument("--names", choices=("unknown", "kafka"), default="unknown", help="of these files; default: unknown")
    parser.add_argument("--mib", type=int, default=8, help="of a file that grows; default: 8")
    parser.add_argument("verbs", nargs="*", metavar="VERB", help="default: all")
    arguments = parser.parse_intermixed_args()
    is_wrong = False
    columns = "| verb | directory or file | exit code | memory, MiB | processor seconds | wrong |"
    print(f"{columns}\n{re.sub(r'[^|]+', '---', columns)}", flush=True)
    for name in arguments.verbs or VERBS:
        for row in (of_files if arguments.what == "files" else of_bytes)(name, arguments):
            print(f"| {' | '.join(map(str, row))} |", flush=True)
            is_wrong |= bool(row[-1])
    return int(is_wrong)


Row = tuple[str, str, int, int, str, str]


def in_a_process(work: Any) -> Any:
    """The return value of a function that runs in a fork, so that nothing of it stays in memory."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        try:
            reported = work()
        except BaseException:  # the process that waits reports it
            reported = {"error": traceback.format_exc()}
        with open(writing, "w") as file:
            json.dump(reported, file)
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        reported = file.read()
    os.waitpid(pid, 0)
    return json.loads(reported) if reported else {"error": "the process died"}


# ---------------------------------------------------------------------------------------------------------------- many files


def of_files(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """Each directory of the tree in turn."""
    place = place_of(name)
    words = (*place.verb.arguments, "--output", "json")
    directories = sorted({os.path.dirname(each) for each in place.names()})
    with place.edited(dict(place.files)):
        healthy = snaprebuild(*filled(words, place.root))
    for directory in directories:

        def work(count: int, directory: str = directory) -> dict[str, Any]:
            names = [each for each in place.files if os.path.dirname(each) == directory]
            is_store = any(OBJECT.match(os.path.basename(each)) for each in names)
            with place.edited(dict(place.files)):
                add(place.root / directory, count, options.names, is_store=is_store)
                arguments = filled(words, place.root)
                begun = time.process_time()
                with measured() as peak:
                    run = snaprebuild(*arguments)
                seconds = time.process_time() - begun
            return {"code": run.exit_code, "bytes": peak.bytes, "seconds": seconds, "wrong": wrong_of(healthy, run)}

        parts = [in_a_process(lambda part=part: work(options.files // part)) for part in (4, 2, 1)]
        last = parts[-1]
        if "error" in last:
            yield name, directory, -1, -1, "", last["error"].strip().splitlines()[-1][:300]
            continue
        seconds = " ".join(f"{each.get('seconds', -1):.2f}" for each in parts)
        wrong = [] if options.names == "kafka" else [each for each in last["wrong"] if not any(map(each.count, COUNTED))]
        yield name, directory, last["code"], last["bytes"] // MIB, seconds, "; ".join(wrong)[:600]


def add(here: Path, count: int, names: str, *, is_store: bool) -> None:
    """Adds files of a count."""
    fd = os.open(here, os.O_RDONLY)
    try:
        for number in range(count):
            if names == "unknown":
                name = f"{number:020d}.snapshot.old" if number % 100 else f"{1_000_000 + number:020d}.timeindex.bak"
            elif is_store:
                name = f"{1_000_000 + number:020d}-{number:021d}A.snapshot"
            else:
                name = f"{1_000_000 + number:020d}.snapshot"
            file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
            if names == "kafka":
                os.write(file, EMPTY_SNAPSHOT)
            os.close(file)
    finally:
        os.close(fd)


def wrong_of(healthy: Run, run: Run) -> list[str]:
    """Where two results differ."""
    differences = (
        [] if healthy.exit_code == run.exit_code else [f"exit code {run.exit_code} and not {healthy.exit_code}: {run.error}"]
    )
    return differences + list(differing(documents(healthy.stdout), documents(run.stdout)))


# ---------------------------------------------------------------------------------------------------------------- large files


def of_bytes(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """Each file of the tree in turn, in several ways; the row of the one that took most memory above what its bytes justify."""
    place = place_of(name)
    for file in place.names():
        worst: Row | None = None
        over = -1e9
        for field in (0, 1, 2, *range(3, 4 * len(WORDS), 4)):
            for which in (0, 1, 255):

                def work(file: str = file, field: int = field, which: int = which) -> dict[str, Any]:
                    data = grown(file, place.files[file], which=which, field=field, bytes_min=options.mib * MIB)
                    files = {**place.files, file: data}
                    total_bytes = sum(map(len, files.values()))
                    with place.edited(dict(files)):
                        del files, data
                        arguments = filled(place.verb.arguments, place.root)
                        begun = time.process_time()
                        with measured() as peak:
                            run = snaprebuild(*arguments)
                    most = memory_bytes_max(total_bytes, len(run.stdout))
                    return {
                        "code": run.exit_code,
                        "bytes": peak.bytes,
                        "seconds": time.process_time() - begun,
                        "given": total_bytes,
                        "printed": len(run.stdout),
                        "most": most,
                    }

                reported = in_a_process(work)
                what = f"{file} {field}/{which}"
                if "error" in reported:
                    yield name, what, -1, -1, "", reported["error"].strip().splitlines()[-1][:300]
                    continue
                excess = reported["bytes"] - 4 * (reported["given"] + reported["printed"]) - SLACK_BYTES
                wrong = (
                    ""
                    if reported["bytes"] <= reported["most"]
                    else f"over {reported['most'] // MIB} MiB for {reported['given'] // MIB} MiB"
                )
                row = (name, what, reported["code"], reported["bytes"] // MIB, f"{reported['seconds']:.2f}", wrong)
                if excess > over:
                    worst = row
                    over = excess
        if worst is not None:
            yield worst


if __name__ == "__main__":
    sys.exit(main())
