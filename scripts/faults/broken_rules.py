#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: test
"""Breaks the rules of the replays and the steps of publishing a file, one at a time, and shows which test of the quick tier notices."""

from __future__ import annotations

import argparse
import sys
import time

from broken_rule_runs import BROKEN_RULES, BROKEN_STEPS, answers, check_unbroken, shortfalls


def main() -> int:
    """Prints the table; exit code 1 if the quick tier sees too little."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick-only", action="store_true", help="do not ask the full tier about what the quick tier does not see")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names, or the beginning of them; default: all rules and steps")
    arguments = parser.parse_args()
    every = (*BROKEN_RULES, *BROKEN_STEPS)
    codes = [each for each in every if not arguments.names or each.name.startswith(tuple(arguments.names))]
    began = time.monotonic()
    check_unbroken(codes)
    print(f"Without a broken rule all tests pass ({time.monotonic() - began:.0f} s).\n")
    print("| broken | the quick tier | the full tier |\n|---|---|---|")
    answered = []
    for each in answers(codes, asks_full=not arguments.quick_only):
        answered.append(each)
        full = "the same" if each.quick else each.full or ("not asked" if arguments.quick_only else "NOT SEEN")
        print(f"| {each.broken.name} | {each.quick or 'NOT SEEN'} | {full} |", flush=True)
    seen = sum(each.quick is not None for each in answered)
    print(f"\nThe quick tier sees {seen} of {len(answered)} ({time.monotonic() - began:.0f} s).")
    short = shortfalls(answered)
    print("\n".join(short), file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
