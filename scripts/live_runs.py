"""Runs scan, plan, verify and rebuild --out beside a broker that appends, rolls, retains, truncates and compacts, as often as it is told.

Each result is held against the truth of the moments between begin and end of its run. Exit code 1 where one is of no moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "faults")]

from beside_a_broker import run  # noqa: E402


def main() -> int:
    """Prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; default: 0")
    asked = parser.parse_args()
    started = time.monotonic()
    seen = run(asked.runs, asked.seed)
    print("| verb | " + " | ".join(f"exit {code}" for code in range(6)) + " |\n|---|" + "---|" * 6)
    for verb in sorted({verb for verb, _ in seen.exit_codes}):
        print(f"| {verb} | " + " | ".join(str(seen.exit_codes[verb, code]) for code in range(6)) + " |")
    print(
        f"\n{asked.runs} runs in {time.monotonic() - started:.0f} s; in {seen.moved} the log moved meanwhile; "
        f"{seen.snapshots} snapshots held against the truth; {len(seen.wrong)} results of no moment"
    )
    for each in seen.wrong:
        print(each, file=sys.stderr)
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
