"""The next command of each status: it parses, and it does not refuse for the reason that was just printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.test_next_command import next_words
from command import Run, in_json, snaprebuild
from sentences import AGAIN
from start_states import STATES, StartState
from start_states.expected import server_properties
from test_no_command_is_greener import release_of

BASES = (56, 70, 77, 91)
"""Base offsets of segments in the middle of logs."""

WRITING = ("rebuild", "stage", "install", "before-start")
"""The others show why: ``cluster source`` has the evidence of each rule, ``scan`` all fates."""

SAMPLE = ("clean-stop", "topic-id-file-empty", "index-missing", "one-of-two-offline")


def refusals(run: Run) -> set[str]:
    """The messages of what a command refuses, without the paths."""
    return {finding["message"] for finding in run.document["findings"] if finding["severity"] == "refused"}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(
            state, id=state.name, marks=() if state.name in SAMPLE else pytest.mark.night if number % 2 else pytest.mark.full
        )
        for number, state in enumerate(STATES)
    ],
)
def test_the_next_command_is_of_use(state: StartState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a snapshot missing, so that there is something to do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state.build(tmp_path)
    for base in BASES:
        for path in tmp_path.glob(f"*/*-0/{base:020d}.snapshot"):
            path.unlink()
    properties = server_properties(tmp_path, state)
    for verb, options in (("scan", ()), ("plan", ()), ("rebuild", ("--dry-run",))):
        words = [verb, "--server-properties", str(properties), *release_of(state), *options]
        run = snaprebuild(*words)
        if run.exit_code == 2:
            continue  # there is no log directory, and no result
        following = next_words(run)
        if not following or following == [AGAIN]:
            continue
        assert following != words, "the same again finds the same"
        if following[0] not in WRITING:
            assert snaprebuild(*following).exit_code != 2, following
            continue
        before, then = in_json(*words), in_json(*following)
        assert then.document["totals"]["written"] or not refusals(then) & refusals(before), following


def test_epochs_that_the_next_start_writes_again_block_nothing(tmp_path: Path) -> None:
    """A recovery of all segments fills an empty checkpoint (Kafka's ``LogLoader.recoverLog``); its fates in ``start_fates.toml`` agree."""
    (state,) = [each for each in STATES if each.name == "leader-epochs-missing-all-recovered"]
    state.build(tmp_path)
    run = snaprebuild("scan", tmp_path / "data")
    assert run.exit_code == 0, run.stdout
    assert "cannot be uploaded" not in run.stdout
    assert "Do not let this replica lead" not in run.stdout
