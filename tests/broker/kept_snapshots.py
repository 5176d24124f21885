"""Which snapshots Kafka's own ``LogManager`` leaves as they are if every boundary of every state has one: a table that is committed.

As a command it makes the table again: ``python kept_snapshots.py [RELEASE ...]``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]  # as a command: pytest has it already

from start_fates import fates  # noqa: E402
from start_states import STATES, StartState  # noqa: E402
from start_states.building import snapshot  # noqa: E402
from start_states.kept import TABLE, Kept, boundaries, partitions, read_table, write_table  # noqa: E402

RELEASES = ("2.8.2", "3.6.1", "3.9.2", "4.3.1")
WITHOUT_PRODUCERS = bytes.fromhex("000148674bc700000000")
"""A snapshot without entries, as a broker writes it."""


def kept_by(release: str, states: Sequence[StartState], base: Path) -> dict[str, Kept]:
    """Snapshots that a release keeps at a start, by name of the state. All directories are made below ``base``."""
    before: dict[str, dict[str, list[int]]] = {}

    def fill(state: StartState, root: Path) -> None:
        before[state.name] = {str(path.relative_to(root)): boundaries(path) for path in partitions(root)}
        for path, offsets in before[state.name].items():
            for file in (snapshot(root / path, offset) for offset in offsets):
                if file.is_file() or not file.exists():
                    file.write_bytes(WITHOUT_PRODUCERS)

    table = {}
    for name, fate in fates(release, states, base, fill).items():
        if fate["broker"] != "starts":
            continue
        rows = fate["partitions"]
        loaded = {path: offsets for path, offsets in before[name].items() if path in rows and rows[path]["fate"] == "loaded"}
        table[name] = {
            path: [each for each in offsets if each in set(rows[path]["snapshots"]) - set(rows[path]["written"])]
            for path, offsets in loaded.items()
        }
    return table


def main(names: Sequence[str]) -> None:
    """Makes the rows of some releases again; without names all."""
    table = read_table()
    for release in names or RELEASES:
        with tempfile.TemporaryDirectory() as base:
            table[release] = kept_by(release, STATES, Path(base).resolve())
    write_table(table)
    sys.stdout.write(f"{TABLE.name}: {', '.join(table)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
