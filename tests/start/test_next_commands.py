"""The next command of each status: it parses, and it does not refuse for the reason that was just printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command import Run
from in_process import in_json, snaprebuild
from start_states import STATES, StartState
from test_no_command_is_greener import release_of, server_properties

NOTHING = ("Next: nothing to do.", "Next: no command corrects this; see what stderr lists.")
BASES = (56, 70, 77, 91)
"""Base offsets of segments in the middle of logs."""

WRITING = ("rebuild", "stage", "install", "before-start")
"""The others show why: ``cluster source`` has the evidence of each rule, ``scan`` all fates."""

SAMPLE = ("clean-stop", "topic-id-file-empty", "index-missing", "log-end-lost-killed")


def next_words(run: Run) -> list[str]:
    """The words of the next command, without the name of the program; empty if there is none."""
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("Next: ")]
    if line in NOTHING:
        return []
    program, *words = shlex.split(line.removeprefix("Next: "))
    assert program == "snaprebuild"
    return words


def refusals(words: list[str]) -> set[str]:
    """The messages of what a command refuses, without the paths."""
    group = 2 if words[0] in ("cluster", "tier", "follower", "inspect") else 1
    run = in_json(" ".join(words[:group]), *words[group:])
    return {finding["message"] for finding in run.document["findings"] if finding["severity"] == "refused"}


@pytest.mark.parametrize(
    "state",
    [pytest.param(state, id=state.name, marks=() if state.name in SAMPLE else pytest.mark.full) for state in STATES],
)
def test_the_next_command_is_of_use(state: StartState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a snapshot missing, so that there is something to do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if state.name == "log-dir-missing":
        pytest.skip("no result is printed")
    state.build(tmp_path)
    for base in BASES:
        for path in tmp_path.glob(f"*/*-0/{base:020d}.snapshot"):
            path.unlink()
    properties = server_properties(tmp_path, state)
    for verb, options in (("scan", ()), ("plan", ()), ("rebuild", ("--dry-run",))):
        words = [verb, "--server-properties", str(properties), *release_of(state), *options]
        run = snaprebuild(*words)
        if run.exit_code == 2:
            continue
        following = next_words(run)
        if not following:
            continue
        assert following != words, "the same again finds the same"
        assert snaprebuild(*following).exit_code != 2, following
        if following[0] in WRITING:
            assert not refusals(following) & refusals(words), following
