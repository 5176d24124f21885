#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Counts the states after a power failure at any call of the writers and after any failure of a store, and the faults among them.

The models are `tests/faults/tree_model.py`, of file systems, and the fault table of `tests/support/faulty_store.py`, of object stores.
"""

from __future__ import annotations

import argparse
import sys

from crash_matrix_writers import WRITERS, Figures, explored
from s3_faults import STORE_WRITERS, explored_store

FAULTS_SHOWN_MAX = 10
ALL = (*WRITERS, *STORE_WRITERS)


def main() -> int:
    """Prints the table; exit code 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the states that are drawn; default: 1")
    parser.add_argument(
        "--runs", type=int, default=1 << 60, help="states of each writer that another run is to finish; default: all"
    )
    parser.add_argument("--cuts", type=int, default=96, help="places at which a file is torn that is not synced; default: 96")
    parser.add_argument("--stride", type=int, default=1, help="take every N-th request and fault of an object store; default: 1")
    parser.add_argument("writers", nargs="*", metavar="WRITER", help=f"of: {', '.join(ALL)}; default: all")
    arguments = parser.parse_args()
    total = Figures("all")
    print("| writer | calls or requests | states | finished by another run | faults | seconds |\n|---|---|---|---|---|---|")
    for name in arguments.writers or ALL:
        if name in STORE_WRITERS:
            one = explored_store(name, STORE_WRITERS[name], arguments.stride)
        else:
            one = explored(name, WRITERS[name], seed=arguments.seed, runs_max=arguments.runs, cuts_max=arguments.cuts)
        show(one)
        for each in one.faults[:FAULTS_SHOWN_MAX]:
            print(f"  {each}", file=sys.stderr)
        total = total.plus(one)
    show(total)
    return 1 if total.faults else 0


def show(one: Figures) -> None:
    """A row of the table."""
    print(f"| {one.name} | {one.calls} | {one.states} | {one.runs} | {len(one.faults)} | {one.seconds:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
