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
from log_dirs import EMPTY_SNAPSHOT, changes, copy_of, tree
from manifests import FIXTURES
from other_process import live_broker
from plans import make_plan
from snapshot_states import STATES, SnapshotState

from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild

IN_PLACE: tuple[tuple[str, ...], ...] = ((), ("--set-aside",), ("--boundaries", "all"))
OPTIONS = (*IN_PLACE, ("--out", "{out}"), ("--out", "{out}", "--boundaries", "all"), ("--to", "{stage}"))
ALL_FILES = ("equal", "kept")
SOURCES = ("kafka27-mixed", "kafka4-mixed", "kafka27-compacted", "kafka27-killed", "kafka27-moved-start", "magicup")
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")


pytestmark = pytest.mark.usefixtures("own_state_home")


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
    """Files that an earlier run has written below ``--out``, or staged, are compared and not written again."""
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


UNFLUSHED = {
    "flushed": {},
    "not flushed": {"recovery-point-offset-checkpoint": "0"},
    "not replicated": {"replication-offset-checkpoint": "0"},
    "neither": {"recovery-point-offset-checkpoint": "0", "replication-offset-checkpoint": "0"},
}
"""Offsets that a running broker has not raised yet, by checkpoint: a clean stop raises them."""


def with_offsets(logs: Path, offsets: dict[str, str]) -> None:
    """Writes an offset for every partition into checkpoints."""
    for name, offset in offsets.items():
        path = logs / name
        head, rows = path.read_text().splitlines()[:2], path.read_text().splitlines()[2:]
        path.write_text("\n".join([*head, *(f"{row.rpartition(' ')[0]} {offset}" for row in rows)]) + "\n")


def absent_by_partition(document: dict[str, Any]) -> dict[str, set[int]]:
    """The boundaries without a snapshot that a plan or a run has a result for, by path of the partition."""
    found = {
        partition["path"]: {
            each["offset"] for each in partition["boundaries"] if not each.get("exists", False) and each.get("comparison") is None
        }
        for partition in document["partitions"]
    }
    return {path: offsets for path, offsets in found.items() if offsets}


@pytest.mark.parametrize("name", UNFLUSHED)
def test_every_plan_next_to_a_broker_is_that_of_stage(name: str, tmp_path: Path) -> None:
    """A command that cannot write while the broker runs answers for the time after its clean stop, as the command that it proposes."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / ".kafka_cleanshutdown").unlink()
    with_offsets(logs, UNFLUSHED[name])
    with live_broker(logs):
        scanned = in_json("scan", logs)
        plan = in_json("plan", logs, *AS_OF)
        runs = [in_json(*words, logs) for words in (("rebuild",), ("rebuild", "--dry-run"), ("before-start", "--dry-run"))]
        staged = in_json("stage", logs, "--to", tmp_path / "stage", *AS_OF)
    expected = absent_by_partition(in_json("plan", logs, "--to", tmp_path / "other", *AS_OF).document)
    count = sum(map(len, expected.values()))
    active = 2  # the states at the active segments are staged, too, and exist
    assert (staged.exit_code, staged.totals) == (0, {"written": count + active})
    assert scanned.document["totals"]["missing"] == count
    assert absent_by_partition(plan.document) == expected
    assert plan.exit_code == 0
    rebuilt, dry, before = (run.document["totals"] for run in runs)
    assert (rebuilt["refused"], dry["would_write"] + dry["refused"], before["would_write"]) == (count, count, count)


def test_nothing_is_written_by_the_plan_of_a_broker_that_ran(tmp_path: Path) -> None:
    """It was made for the time after a clean stop, and whether that stop was clean shows only a new plan."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / ".kafka_cleanshutdown").unlink()
    before = tree(logs)
    with live_broker(logs):
        plan = make_plan(RebuildRequest((str(logs),)))
    assert any(each.boundaries for each in plan.partitions)
    result = rebuild(plan)
    assert set(result.totals) == {"refused"}
    appeared, vanished, changed = changes(before, tree(logs))
    assert (appeared, vanished, changed) == ({".lock"}, set(), set())
