"""A plan equals its run: its numbers contain those of the dry run, which are those of the run.

Over the table of states, and over log directories in which chance has removed, torn and emptied snapshots.
"""

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from budgets import scaled
from command import in_json
from log_dirs import EMPTY_SNAPSHOT, copy_of
from manifests import FIXTURES
from snapshot_states import STATES, SnapshotState

IN_PLACE: tuple[tuple[str, ...], ...] = ((), ("--set-aside",), ("--boundaries", "all"))
OPTIONS = (*IN_PLACE, ("--out", "{out}"), ("--out", "{out}", "--boundaries", "all"), ("--to", "{stage}"))
ALL_FILES = ("equal", "kept")
SOURCES = ("kafka27-mixed", "kafka4-mixed", "kafka27-compacted", "kafka27-killed", "kafka27-moved-start", "magicup")
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def boundaries_of(document: dict[str, Any]) -> Counter[tuple[str, int, str, bool]]:
    """Partition, offset, action and whether a file is compared, for each boundary of a run; ``would_write`` counts as ``written``."""
    return Counter(
        (
            partition["path"],
            boundary["offset"],
            "written" if boundary["action"] == "would_write" else boundary["action"],
            boundary["comparison"] is not None,
        )
        for partition in document["partitions"]
        for boundary in partition["boundaries"]
    )


def check_one(selected: list[str], options: tuple[str, ...], place: Path) -> None:
    """Makes the plan, the dry run and the run, and compares their numbers."""
    filled = [each.format(out=place / "out", stage=place / "stage") for each in options]
    verb = "stage" if "--to" in options else "rebuild"
    plan = in_json("plan", *selected, *filled, *AS_OF)
    dry = in_json(verb, *selected, *filled, *AS_OF, "--dry-run")
    run = in_json(verb, *selected, *filled, *AS_OF)
    planned = plan.document["planned"]
    rehearsed, done = dry.document["totals"], run.document["totals"]

    assert boundaries_of(dry.document) == boundaries_of(run.document)
    for name in ("equal", "kept", "failed", "refused", "skipped", "set_aside", "not_judged", "missing"):
        assert rehearsed[name] == done[name], name
    assert (rehearsed["would_write"], rehearsed["written"]) == (done["written"], 0)
    assert dry.exit_code == run.exit_code

    of_plan = {(each["path"], one["offset"]) for each in plan.document["partitions"] for one in each["boundaries"]}
    of_run = {(path, offset) for path, offset, _, _ in boundaries_of(run.document)}
    assert of_plan == of_run, "each boundary of the plan has one result"
    assert planned["to_write"] + planned["to_compare"] == len(of_plan)
    assert planned["writes_at_least"] <= done["written"] <= planned["writes_at_most"], (planned, done)
    assert done["equal"] + done["kept"] + done["set_aside"] <= planned["to_compare"], (planned, done)
    assert plan.document["totals"] == {name: done[name] for name in plan.document["totals"]}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "in place")
@pytest.mark.parametrize("state", [each for each in STATES if each.is_judged and not each.is_held], ids=lambda state: state.name)
def test_of_a_state(state: SnapshotState, options: tuple[str, ...], tmp_path: Path) -> None:
    check_one(state.build(tmp_path), options, tmp_path)


@pytest.mark.parametrize("options", [("--to", "{stage}"), ("--out", "{out}")], ids=" ".join)
@pytest.mark.parametrize("state", [each for each in STATES if each.is_held], ids=lambda state: state.name)
def test_of_a_broker_that_runs(state: SnapshotState, options: tuple[str, ...], tmp_path: Path) -> None:
    selected = state.build(tmp_path)
    with contextlib.ExitStack() as stack:
        state.hold(selected, stack)
        check_one(selected, options, tmp_path)


def damaged_by_chance(source: str, chance: random.Random, place: Path) -> Path:
    """A copy in which snapshots are removed, torn, emptied, or have the bytes of another one."""
    logs = copy_of(source, place)
    snapshots = sorted(logs.glob("*/*.snapshot"))
    for path in snapshots:
        change = chance.choice(("none", "none", "none", "remove", "tear", "empty", "other"))
        if change == "remove":
            path.unlink()
        elif change == "tear":
            path.write_bytes(path.read_bytes()[:-1])
        elif change == "empty":
            path.write_bytes(EMPTY_SNAPSHOT)
        elif change == "other":
            original = FIXTURES / source / "logs" / chance.choice(snapshots).relative_to(logs)
            path.write_bytes(original.read_bytes())
    return logs


@pytest.mark.parametrize("seed", range(scaled(30)))
def test_of_a_directory_by_chance(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    logs = damaged_by_chance(chance.choice(SOURCES), chance, tmp_path)
    check_one([str(logs)], chance.choice(OPTIONS), tmp_path)


def test_an_earlier_run_is_in_the_numbers(tmp_path: Path) -> None:
    """What an earlier run has written below ``--out``, or staged, is compared and not written again."""
    logs = copy_of("kafka27-mixed", tmp_path)
    for options in (("--out", "{out}"), ("--to", "{stage}")):
        check_one([str(logs)], options, tmp_path)
        check_one([str(logs)], options, tmp_path)


def test_a_staged_file_that_was_changed_is_within_the_numbers(tmp_path: Path) -> None:
    """It is staged anew, which the plan says."""
    logs = copy_of("kafka27-mixed", tmp_path)
    stage = tmp_path / "stage"
    assert in_json("stage", logs, "--to", stage, *AS_OF).exit_code == 0
    staged = sorted(stage.glob("mixed-0*/*.snapshot"))
    staged[0].unlink()
    staged[1].write_bytes(EMPTY_SNAPSHOT)
    plan = in_json("plan", logs, "--to", stage, *AS_OF)
    assert "to stage anew if changed" in plan.document["answer"]
    planned = plan.document["planned"]
    written = in_json("stage", logs, "--to", stage, *AS_OF).totals["written"]
    assert planned["to_write"] < written <= planned["writes_at_most"]
