"""`plan` counts exactly the snapshots that the next start leaves as they are: by the table of ``tests/broker/kept_snapshots.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import in_json
from start_states import STATES, StartState
from start_states.expected import server_properties
from start_states.kept import boundaries, partitions, read_table

from snaprebuild.snapshots.plan.start_gate import REMOVED_AT_START

KEPT = read_table()
SAMPLE = ("clean-stop", "index-missing", "index-missing-first", "index-missing-killed", "transaction-index-bad-in-first-segment")
AS_OF = ("--as-of", "1795600000000")


def without_snapshots(state: StartState, root: Path) -> Path:
    """A state in which the snapshots between segments are missing. Returns the configuration of its broker."""
    state.build(root)
    for directory in partitions(root):
        for offset in boundaries(directory):
            path = directory / f"{offset:020d}.snapshot"
            if path.is_file():
                path.unlink()
    return server_properties(root, state)


@pytest.mark.parametrize(
    ("state", "release"),
    [
        pytest.param(state, release, id=f"{state.name}-{release}", marks=() if is_quick else pytest.mark.full)
        for state in STATES
        for release in KEPT
        if state.name in KEPT[release]
        for is_quick in [state.name in SAMPLE and release == "4.3.1"]
    ],
)
def test_a_plan_counts_what_a_start_keeps(state: StartState, release: str, tmp_path: Path) -> None:
    """Each state begins without the snapshots between segments. Boundaries left out for another reason are kept or not."""
    properties = without_snapshots(state, tmp_path)
    plan = in_json("plan", "--server-properties", properties, "--kafka-release", release, *AS_OF)
    if not plan.stdout:
        assert plan.exit_code != 0
        return
    planned = {each["path"]: each for each in plan.document["partitions"]}
    for name, kept in KEPT[release][state.name].items():
        row = planned.get(str(tmp_path / name))
        if row is None:
            continue
        between = {each["offset"] for each in row["boundaries"]} & set(boundaries(tmp_path / name))
        removed = {each["offset"] for each in row["not_planned"] if each["reason"] == REMOVED_AT_START.text}
        assert between <= set(kept), name
        assert not removed & set(kept), name


@pytest.mark.parametrize("name", ["index-missing-middle", "index-missing-first", "transaction-index-offset-below-base"])
def test_every_command_counts_the_same(name: str, tmp_path: Path) -> None:
    (state,) = [each for each in STATES if each.name == name]
    properties = without_snapshots(state, tmp_path)
    ((path, kept),) = KEPT["4.3.1"][name].items()
    words = ("--server-properties", properties, "--kafka-release", "4.3.1")
    planned = in_json("plan", *words, *AS_OF).partition("orders-0")
    assert [each["offset"] for each in planned["boundaries"]] == kept
    counts = [
        in_json("rebuild", "--dry-run", *words, *AS_OF).totals,
        in_json("before-start", "--dry-run", *words).document["totals"],
    ]
    staged = in_json("stage", *words, *AS_OF, "--to", tmp_path / "staged")
    assert staged.totals.get("written", 0) == len(kept)
    if kept:
        counts.append(in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run").totals)
    assert [each.get("would_write", 0) for each in counts] == [len(kept)] * len(counts)
    run = in_json("rebuild", *words, *AS_OF)
    assert run.totals.get("written", 0) == len(kept)
    assert set(boundaries(tmp_path / path)) & {int(each.stem) for each in (tmp_path / path).glob("*.snapshot")} == set(kept)
    assert run.codes["snapshot-removed-at-start"] == 1, "one finding, whatever their number"


def test_the_table_has_kept_and_removed_snapshots() -> None:
    """A table of empty lists would agree with a plan of nothing."""
    for release, states in KEPT.items():
        assert len(states) > 150, release
        assert sum(len(offsets) for kept in states.values() for offsets in kept.values()) > 300, release
        assert not states["index-missing-first"]["data/orders-0"]
