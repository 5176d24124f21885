#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: test
"""Compares our producer states with Kafka's, on generated logs or on partition directories: see tests/broker/compare.py."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import hypothesis
from compare import Comparison, Report, compare_directory
from fold_by_rules import RULES
from kafka_classpath import REPLAYED
from oracle import Oracle
from ours import ENGINES

DIFFERENCES_SHOWN = 5
LOGS = 10_000
LOGS_FOR_A_HIT = 100


def reported(reports: Mapping[str, Report]) -> str:
    """A table, a line for each release."""
    lines = ["| Kafka | logs | boundaries | producers there | transactions completed | logs at which Kafka throws |"]
    lines[0] += " logs in which its two replays differ | differences to ours |"
    lines.append("|---|---|---|---|---|---|---|---|")
    for version, each in reports.items():
        counts = (
            each.logs,
            each.boundaries,
            each.entries,
            each.completed,
            each.stopped,
            each.replays_differ,
            len(each.differences),
        )
        lines.append(f"| {version} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Prints what was compared. Exit code 1 if anything differs, or a rule is met too seldom."""
    parser = argparse.ArgumentParser(prog="scripts/kafka/compare_with_kafka.py", description=__doc__)
    parser.add_argument("directory", nargs="*", type=Path, help="partition directories to compare; without any: generated logs")
    parser.add_argument("--logs", type=int, default=LOGS, help="number of generated logs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (default: %(default)s)")
    parser.add_argument("--least", type=int, help="fail where a rule is met less often (default: once in a hundred logs)")
    parser.add_argument("--out", type=Path, help="write the logs below this directory and keep them all")
    versions = ", ".join(REPLAYED)
    parser.add_argument("--kafka-version", action="append", metavar="VERSION", help=f"may be given again; default: {versions}")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="one of our replays (default: all)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    root = options.out or Path(tempfile.mkdtemp(prefix="compare-with-kafka-"))
    engines = [options.engine] if options.engine else sorted(ENGINES)
    write = sys.stdout.write
    missed = []
    with contextlib.ExitStack() as running:
        oracles = [running.enter_context(Oracle(version)) for version in options.kafka_version or REPLAYED]
        if options.directory:
            reports = {oracle.version: Report() for oracle in oracles}
            for oracle in oracles:
                for directory in options.directory:
                    chosen = {engine: ENGINES[engine] for engine in engines}
                    compare_directory(oracle, directory, chosen, reports[oracle.version])
        else:
            comparison = Comparison(oracles, engines, root, keep=options.out is not None)
            comparison.from_strategy(options.logs, options.seed)
            reports = comparison.reports
            least = options.logs // LOGS_FOR_A_HIT if options.least is None else options.least
            write("| rule | batches |\n|---|---|\n" + "".join(f"| {rule} | {comparison.hits[rule]:,} |\n" for rule in RULES) + "\n")
            missed = comparison.fewest(least)
    write(reported(reports))
    write(f"\n{time.monotonic() - started:.0f} s; Hypothesis {hypothesis.__version__}, seed {options.seed}\n")
    for rule in missed:
        write(f"MET LESS THAN {least} TIMES: {rule}\n")
    different = [f"Kafka {version}: {line}" for version, report in reports.items() for line in report.differences]
    for line in different[:DIFFERENCES_SHOWN]:
        write(f"DIFFERENT {line}\n")
    if different:
        write(f"{len(different)} differences; the logs are kept\n")
    elif options.out is None:
        shutil.rmtree(root)
    if not different and not missed:
        write("ours and Kafka's agree at every boundary\n")
    return 1 if different or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
