"""No command is greener than what another one proves from the same files: over all states of the start, by command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from start_states import STATES, StartState
from start_states.expected import server_properties

VERBS = ("verify", "plan", "rebuild", "stage", "before-start", "cluster source")

SEVERE = ("verify", "plan", "rebuild", "stage", "before-start")
"""Commands that are about the broker: damage of its start has exit code 4, or 3 where something would be written, or 5."""

RECORDS_GONE = {"emptied", "records-cut", "end-lost", "catches-up"}
"""Fates that ``follower plan`` does not see: of a leader it reads the log and its offsets, and nothing else that decides a start.
``inspect`` shows the present records; lost ones are in none of its answers."""

INSPECT = (("inspect transactions",), ("inspect explain", "--producer-id", "1"))
ALL_CLEAR = re.compile(r"\b(healthy|valid|all is well|nothing (hangs|is wrong|to do))\b", re.IGNORECASE)

QUORUM = {"stray"}
"""Fates by partitions that ``cluster check`` does not read: it reads metadata logs alone."""

ELSEWHERE = ("metadata-log-in-second-directory", "first-log-dir-with-garbage-and-the-metadata-log-in-the-second")
"""Where the metadata log belongs is in ``server.properties``, which ``cluster check`` does not read."""

SAMPLE = ("clean-stop", "log-end-lost-clean", "topic-id-file-empty", "one-of-two-offline")


def release_of(state: StartState) -> tuple[str, str]:
    """A release that starts it."""
    return ("--kafka-release", "3.9.2" if state.zookeeper else "4.3.1")


def exit_code(verb: str, base: Path, state: StartState) -> int:
    """Exit code of a command that writes nothing."""
    words: list[object] = [verb, "--server-properties", base / "server.properties"]
    if verb != "cluster source":
        words += release_of(state)
    if verb in ("rebuild", "stage", "before-start"):
        words.append("--dry-run")
    if verb == "stage":
        (base / "staged").mkdir()
        words += ["--to", base / "staged"]
    return snaprebuild(*words).exit_code


@pytest.mark.parametrize(
    "state",
    [pytest.param(state, id=state.name, marks=() if state.name in SAMPLE else pytest.mark.full) for state in STATES],
)
def test_no_command_is_greener_than_scan(state: StartState, tmp_path: Path) -> None:
    """Where ``scan`` reports a fate that is more than a note, no command has exit code 0.

    ``install`` is in a module of its own. ``inspect`` shows what logs hold: of the fates, only lost records concern it.
    """
    state.build(tmp_path)
    properties = server_properties(tmp_path, state)
    scanned = in_json("scan", "--server-properties", properties, *release_of(state)) if _is_readable(tmp_path, state) else None
    if scanned is None:
        assert snaprebuild("scan", "--server-properties", properties).exit_code != 0
        return
    concerns = [fate for fate in scanned.document["fates"] if fate["severity"] != "note"]
    assert scanned.exit_code != 0 or not concerns
    kinds = {fate["kind"] for fate in concerns}
    codes = {verb: exit_code(verb, tmp_path, state) for verb in VERBS} if kinds else {}
    assert 0 not in codes.values(), (kinds, codes)
    is_damage = any(fate["severity"] == "damaged" for fate in concerns)
    assert not is_damage or not {verb for verb in SEVERE if codes[verb] == 1}, (kinds, codes)
    document = tmp_path / "scan.json"
    document.write_text(scanned.stdout)
    assert not kinds or snaprebuild("fleet", document).exit_code != 0, kinds
    (tmp_path / "store").mkdir()
    store_and_log = (tmp_path / "store", tmp_path / state.log_dirs[0])
    of_first = {fate["kind"] for fate in concerns if Path(fate["path"]).parent == store_and_log[1]}
    assert not of_first or snaprebuild("tier upload", *store_and_log, "--dry-run", "--i-am-the-leader").exit_code != 0, kinds
    assert not of_first & RECORDS_GONE or snaprebuild("follower plan", *store_and_log).exit_code != 0, kinds
    of_read = {fate["kind"] for fate in concerns if fate["path"] in _partitions_read(tmp_path)}
    for words in INSPECT:
        shown = snaprebuild(*words, "--server-properties", properties, "--as-of", "2026-11-21T12:00:00Z")
        assert not of_read & RECORDS_GONE or shown.exit_code != 0, (words, kinds)
        assert ALL_CLEAR.search(shown.stdout) is None, words
    logs = [path for path in tmp_path.glob("*/__cluster_metadata-0") if path.is_dir()]
    is_of_quorum = bool(logs and kinds - QUORUM) and state.name not in ELSEWHERE
    assert not is_of_quorum or snaprebuild("cluster check", *logs).exit_code != 0, kinds


def _partitions_read(base: Path) -> set[str]:
    """Paths of the partitions that ``inspect`` reads: it leaves out those that a broker deletes or moves."""
    return {str(path) for path in base.glob("*/*-[0-9]*") if path.name.rpartition("-")[2].isdigit()}


def _is_readable(base: Path, state: StartState) -> bool:
    """Whether one of the log directories is there: else no document is printed."""
    return any((base / name).is_dir() for name in state.log_dirs)
