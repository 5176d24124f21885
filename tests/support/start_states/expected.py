"""The committed table of fates: what each release made of each state (``tests/broker/start_fates.py`` makes it)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .building import STATES, StartState

TABLE = Path(__file__).resolve().parents[2] / "broker" / "start_fates.toml"
HEAD = """\
# What the start of a broker makes of its log directories, by Kafka's own LogManager of each release.
# Made by `python tests/broker/start_fates.py`, never by hand. The states are the rows of tests/support/start_states.
#
# broker: starts, exits (LogManager throws `exception`) or halts (all log directories have failed).
# message, log: what Kafka says then; they are not compared, as threads decide about order.
# second_start: of a broker that exits, the start after it.
# partitions: by directory, as it is named afterwards; `written`: those of its snapshots that this start wrote.
"""

Fate = dict[str, Any]
"""A fate in the words of `HEAD`: ``broker``, and where they apply ``exception``, ``message``, ``offline``,
``offline_when_first_read``, ``strays_to_delete``, ``partitions``, ``second_start``, ``log``. A partition has ``fate`` (loaded,
future, stray, deleted), ``start``, ``end``, ``topic_id``, ``segments``, ``epochs``, ``snapshots``, ``written`` and
``keeps_id_file``."""


def expected_fates(*releases: str) -> Iterator[tuple[StartState, str, Fate]]:
    """Each row of the table: the state, a release, and the fate. Of all releases, or of some."""
    table = read_table()
    for state in STATES:
        for release in releases or table:
            if state.name in table[release]:
                yield state, release, table[release][state.name]


def server_properties(base: Path, state: StartState) -> Path:
    """The configuration of the broker of a state."""
    node = ("broker.id=1", "zookeeper.connect=localhost:2181") if state.zookeeper else ("process.roles=broker", "node.id=1")
    listed = ",".join(str(base / name) for name in state.log_dirs)
    settings = [f"{name}={value}" for name, value in state.settings_in(base).items()]
    path = base / "server.properties"
    path.write_text("\n".join((*node, f"log.dirs={listed}", *settings, "")))
    return path


def compared(fate: Fate) -> Fate:
    """The compared part of a fate: all but the words of Kafka, and the directories that went offline before a broker exited.

    Threads decide about their order: a broker that exits does not wait for the other directories.
    """
    left_out = ("message", "log", "offline") if fate["broker"] == "exits" else ("message", "log")
    kept = {name: value for name, value in fate.items() if name not in left_out}
    if "second_start" in kept:
        kept["second_start"] = compared(kept["second_start"])
    return kept


def read_table() -> dict[str, dict[str, Fate]]:
    """Fates by release and name of the state."""
    table: dict[str, dict[str, Fate]] = {}
    for row in tomllib.loads(TABLE.read_text())["fates"] if TABLE.exists() else ():
        fate = {name: value for name, value in row.items() if name not in ("state", "releases")}
        for release in row["releases"]:
            table.setdefault(release, {})[row["state"]] = fate
    return {release: table[release] for release in sorted(table)}


def write_table(table: Mapping[str, Mapping[str, Fate]]) -> None:
    """Writes it: releases with the same fate share a row."""
    rows = [HEAD]
    for state in STATES:
        shared: dict[str, list[str]] = {}
        for release in sorted(table):
            if state.name in table[release]:
                shared.setdefault(json.dumps(compared(table[release][state.name])), []).append(release)
        for releases in shared.values():
            rows.append(f"[[fates]]\nstate = {_toml(state.name)}\nreleases = {_toml(releases)}\n")
            rows[-1] += "".join(f"{name} = {_toml(value)}\n" for name, value in table[releases[-1]][state.name].items())
    TABLE.write_text("\n".join(rows))


def _toml(value: Any) -> str:
    """A value on one line; lists of log lines on one each."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)
