"""``install`` of what was staged in health, after the log directory took on each state of the start."""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from start_states import STATES, StartState
from start_states.building import log_dir, snapshot, zookeeper_log_dir
from test_no_command_is_greener import release_of

SAMPLE = ("clean-stop", "odd-directory", "log-end-lost-clean", "high-watermark-above-log-end")
MISSING = 56
STAGED_PARTITION = "payments-0"


def take_on(wanted: Path, node: Path) -> None:
    """Makes a tree equal to another one. A file that is equal stays the same file, as the broker left it."""
    for path in sorted(node.rglob("*"), reverse=True):
        twin = wanted / path.relative_to(node)
        is_dir = path.is_dir() and not path.is_symlink()
        if is_dir and not (twin.is_dir() and not twin.is_symlink()):
            shutil.rmtree(path)
        elif not is_dir and not (twin.is_file() and not twin.is_symlink() and filecmp.cmp(path, twin, shallow=False)):
            path.unlink()
    for twin in sorted(wanted.rglob("*")):
        path = node / twin.relative_to(wanted)
        if os.path.lexists(path):
            continue
        if twin.is_symlink():
            path.symlink_to(os.readlink(twin).replace(str(wanted), str(node)))
        elif twin.is_dir():
            path.mkdir()
        else:
            shutil.copy2(twin, path)


@pytest.mark.parametrize("is_done", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "state",
    [pytest.param(state, id=state.name, marks=() if state.name in SAMPLE else pytest.mark.full) for state in STATES],
)
def test_install_is_not_greener_than_scan(
    state: StartState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """Where ``scan`` reports a fate, of any partition, ``install`` has no exit code 0.

    ``is_done``: the snapshot was installed before, so that nothing is due.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node, wanted = tmp_path / "node", tmp_path / "wanted"
    for place in (node, wanted):
        place.mkdir()
    state.build(wanted)
    partition = wanted / state.log_dirs[0] / STAGED_PARTITION
    if not partition.is_dir():
        return  # nothing of it was staged
    if not is_done:
        snapshot(partition, MISSING).unlink(missing_ok=True)
    healthy = zookeeper_log_dir(node) if state.zookeeper else log_dir(node)
    healthy = healthy.rename(node / state.log_dirs[0])
    snapshot(healthy / STAGED_PARTITION, MISSING).unlink()
    staged = tmp_path / "staged"
    staged.mkdir()
    assert snaprebuild("stage", healthy, "--to", staged, *release_of(state)).exit_code == 0
    if is_done:
        assert snaprebuild("install", "--plan", staged / "plan.jsonl").exit_code == 0
    take_on(wanted, node)
    scanned = in_json("scan", healthy, *release_of(state))
    concerns = [fate["kind"] for fate in scanned.document["fates"] if fate["severity"] != "note"]
    codes = [snaprebuild("install", "--plan", staged / "plan.jsonl", *options).exit_code for options in (("--dry-run",), ())]
    assert not concerns or 0 not in codes, (concerns, codes)
    if state.name == "clean-stop":
        assert codes == [0, 0]
