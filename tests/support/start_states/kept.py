"""The committed table of kept snapshots: what each release leaves as it is (``tests/broker/kept_snapshots.py`` makes it)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from .building import STATES

TABLE = Path(__file__).resolve().parents[2] / "broker" / "kept_snapshots.toml"
HEAD = """\
# The snapshots that a start leaves as they are, by Kafka's own LogManager of each release, if each boundary between two segments has one.
# Made by `python tests/broker/kept_snapshots.py`, never by hand. The states are the rows of tests/support/start_states.
#
# kept: by partition directory with more than one segment. One that is not loaded under its name is left out. A state in which the broker
# does not start has no row.
"""

Kept = dict[str, list[int]]


def boundaries(partition: Path) -> list[int]:
    """The offsets between two segments of a partition."""
    return sorted(int(path.stem) for path in partition.glob("*.log") if path.stem.isdecimal())[1:]


def partitions(root: Path) -> list[Path]:
    """The directories of replicas that have a boundary."""
    return [path for path in sorted(root.glob("*/*-0")) if path.is_dir() and boundaries(path)]


def read_table() -> dict[str, dict[str, Kept]]:
    """The snapshots that are kept, by release and name of the state."""
    table: dict[str, dict[str, Kept]] = {}
    for row in tomllib.loads(TABLE.read_text())["kept"] if TABLE.exists() else ():
        for release in row["releases"]:
            table.setdefault(release, {})[row["state"]] = row["kept"]
    return table


def write_table(table: Mapping[str, Mapping[str, Kept]]) -> None:
    """Writes it: releases that keep the same share a row."""
    rows = [HEAD]
    for state in STATES:
        shared: dict[str, list[str]] = {}
        for release in sorted(table):
            if state.name in table[release]:
                text = ", ".join(f'"{path}" = {offsets}' for path, offsets in table[release][state.name].items())
                shared.setdefault(text, []).append(f'"{release}"')
        for text, releases in shared.items():
            rows.append(f'[[kept]]\nstate = "{state.name}"\nreleases = [{", ".join(releases)}]\nkept = {{{text}}}\n')
    TABLE.write_text("\n".join(rows))
