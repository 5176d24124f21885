"""No command is greener than what another one proves from the same files: over all states of the start, by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from start_states import STATES, StartState

VERBS = ("verify", "plan", "rebuild", "stage", "before-start", "cluster source")

SAMPLE = ("clean-stop", "log-end-lost-clean", "topic-id-file-empty", "one-of-two-offline")


def server_properties(base: Path, state: StartState) -> Path:
    """The configuration of the broker of a state."""
    node = ("broker.id=1", "zookeeper.connect=localhost:2181") if state.zookeeper else ("process.roles=broker", "node.id=1")
    listed = ",".join(str(base / name) for name in state.log_dirs)
    settings = [f"{name}={value}" for name, value in state.settings_in(base).items()]
    path = base / "server.properties"
    path.write_text("\n".join((*node, f"log.dirs={listed}", *settings, "")))
    return path


def release_of(state: StartState) -> tuple[str, str]:
    """A release that starts it."""
    return ("--kafka-release", "3.9.2" if state.zookeeper else "4.3.1")


def exit_code(verb: str, base: Path, state: StartState) -> int:
    """Of a command that writes nothing."""
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
    """Where ``scan`` reports a fate that is more than a note, no command has exit code 0."""
    state.build(tmp_path)
    properties = server_properties(tmp_path, state)
    scanned = in_json("scan", "--server-properties", properties, *release_of(state)) if _is_readable(tmp_path, state) else None
    if scanned is None:
        assert snaprebuild("scan", "--server-properties", properties).exit_code != 0
        return
    concerns = [fate for fate in scanned.document["fates"] if fate["severity"] != "note"]
    assert scanned.exit_code != 0 or not concerns
    green = {verb for verb in VERBS if exit_code(verb, tmp_path, state) == 0}
    assert not concerns or not green, [fate["kind"] for fate in concerns]


def _is_readable(base: Path, state: StartState) -> bool:
    """Whether one of the log directories is there: else no document is printed."""
    return any((base / name).is_dir() for name in state.log_dirs)
