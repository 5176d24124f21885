#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Runs verbs next to a real broker that appends, rolls, retains and compacts, as often as asked.

Each result is compared with the states of the log between begin and end of its run. Exit code 1 where a result fits no moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from beside_a_live_broker import run
from kafka_classpath import KAFKA_VERSION


def main() -> int:
    """Prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; default: 0")
    needs = "of the broker, which needs Java 17 and Maven; default: %(default)s"
    parser.add_argument("--broker", metavar="VERSION", default=KAFKA_VERSION, help=needs)
    arguments = parser.parse_args()
    started = time.monotonic()
    seen = run(arguments.broker, arguments.runs, arguments.seed)
    print(f"Kafka {arguments.broker}\n")
    _print_exit_codes(seen.exit_codes)
    for heading, counted in (
        ("meanwhile", seen.happened),
        ("compared with Kafka's states", seen.checked),
        ("findings", seen.codes),
    ):
        print(f"\n{heading}: " + ", ".join(f"{count} {what}" for what, count in sorted(counted.items())))
    print(
        f"\n{arguments.runs} runs in {time.monotonic() - started:.0f} s; in {seen.moved} the log moved meanwhile; "
        f"{len(seen.wrong)} results of no moment; the broker logged {len(seen.complaints)} errors"
    )
    wrong = [*seen.wrong, *seen.complaints]
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


def _print_exit_codes(exit_codes: Counter[tuple[str, int]]) -> None:
    print("| verb | " + " | ".join(f"exit {code}" for code in range(6)) + " |\n|---|" + "---|" * 6)
    for verb in sorted({verb for verb, _ in exit_codes}):
        print(f"| {verb} | " + " | ".join(str(exit_codes[verb, code]) for code in range(6)) + " |")


if __name__ == "__main__":
    sys.exit(main())
