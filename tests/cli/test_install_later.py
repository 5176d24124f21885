"""``install`` after its segments were touched since ``stage``, after a run that was killed, and by another user."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import batch_positions, copy_of, remove_snapshots, snapshot_name, snapshots_in, truth
from staged_logs import MIXED, bases_of, earlier, installed, installed_here, running, staged

from snaprebuild.cluster.scan_storage import NextStartJudge
from snaprebuild.findings import Finding
from snaprebuild.snapshots.destination import link_writer as module
from snaprebuild.snapshots.install import install
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.rebuild import run as rebuild_run
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan

# --- segments that were touched ---------------------------------------------------------------------------------------------


def with_old_times(change: Callable[[Path], None], segment: Path) -> None:
    """Size, inode and modification time are those of the staged plan afterwards."""
    before = segment.stat()
    change(segment)
    os.utime(segment, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = segment.stat()
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    assert before.st_ctime_ns != after.st_ctime_ns


def flipped(segment: Path) -> None:
    """One bit of the last record of its second batch."""
    at = batch_positions(segment)[2] - 1
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def linked(segment: Path) -> None:
    """Adds a hard link, as a backup does."""
    os.link(segment, segment.parent.parent.parent / "backup.log")


def same_mode(segment: Path) -> None:
    """Sets the mode again, as an image does that runs ``chmod -R`` and ``chown -R`` before each start."""
    segment.chmod(segment.stat().st_mode)


def test_bytes_that_changed_are_noticed_although_the_old_modification_time_was_set_back(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    fifth = bases_of(logs / "mixed-0")[5]
    with_old_times(flipped, logs / "mixed-0" / f"{fifth:020d}.log")
    dry = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run")
    assert (dry.totals, dry.codes) == ({"would_write": len(MIXED)}, {"segment-touched": 1})
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 4, "the replay finds a bad checksum"
    below = [offset for offset in MIXED if offset <= fifth]
    assert [offset for offset, action in done.actions("mixed-0").items() if action == "written"] == below
    assert set(done.actions("mixed-0").values()) == {"written", "refused"}


@pytest.mark.parametrize("harmless", [same_mode, linked])
@pytest.mark.parametrize("number", [0, 5])
def test_a_segment_that_was_only_touched_is_replayed(harmless: Callable[[Path], None], number: int, tmp_path: Path) -> None:
    """The first one leaves no staged state below it."""
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    base = bases_of(logs / "mixed-0")[number]
    with_old_times(harmless, logs / "mixed-0" / f"{base:020d}.log")
    above = [offset for offset in MIXED if offset > base]
    note = f"not linked: segments were touched since they were staged (mixed-0 from the segment at {base})."
    first_lines = snaprebuild("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run").stdout.splitlines()[:3]
    assert f"Note: {len(above)} snapshots to replay, {note}" in " ".join(first_lines)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes, done.totals) == (0, {"segment-touched": 1}, {"written": len(MIXED)}), done.stderr
    assert done.partition("mixed-0")["touched_segment"] == base
    assert done.partition("mixed-0")["replayed_not_linked"] == above
    kafka, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(logs / "mixed-0")
    assert {offset: found[offset] for offset in MIXED} == {offset: kafka[offset] for offset in MIXED}
    for offset in MIXED:
        is_link = (logs / "mixed-0" / f"{offset:020d}.snapshot").stat().st_nlink == 2
        assert is_link == (offset <= base), "what does not depend on it is linked"
    assert in_json("undo", tmp_path / "receipt.jsonl").totals == {"removed": len(MIXED)}


@pytest.mark.parametrize("number", [3, 9])
def test_a_directory_with_the_name_of_a_snapshot_is_named_as_a_plan_names_it(number: int, tmp_path: Path) -> None:
    """One was staged, the other segment was rolled since."""
    logs = copy_of("kafka27-mixed", tmp_path)
    back = earlier(logs, "mixed-0", 6)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    back()
    base = bases_of(logs / "mixed-0")[number]
    (logs / "mixed-0" / snapshot_name(base)).mkdir()
    planned = in_json("plan", logs, "--topic", "mixed")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (planned.exit_code, planned.codes["not-known-to-be-due"]) == (1, 1)
    assert (done.exit_code, done.codes) == (1, {"not-known-to-be-due": 1})
    assert "move that away first" in done.stderr
    expected = dict.fromkeys(MIXED, "written") | {base: "refused"}
    assert done.actions("mixed-0") == expected


def test_another_run_of_stage_reads_a_segment_that_was_touched_again(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    with_old_times(same_mode, logs / "mixed-0" / f"{bases_of(logs / 'mixed-0')[5]:020d}.log")
    again = staged(logs, tmp_path / "staged", "--topic", "mixed")
    assert again.exit_code == 0
    assert "staged-earlier" not in again.codes
    assert set(again.actions("mixed-0").values()) == {"equal"}
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes, done.partition("mixed-0")["read_bytes"]) == (0, {}, 0)
    assert (done.partition("mixed-0")["touched_segment"], done.partition("mixed-0")["replayed_not_linked"]) == (None, [])


def test_a_run_that_continues_another_keeps_when_its_segments_were_read(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(running(logs), "mixed-0", keep=8)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    put_back()
    assert staged(logs, tmp_path / "staged", "--topic", "mixed").codes["staged-earlier"] == 1
    with_old_times(same_mode, logs / "mixed-0" / f"{bases_of(logs / 'mixed-0')[3]:020d}.log")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes["segment-touched"]) == (0, 1), done.stderr
    kafka, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(logs / "mixed-0")
    assert found == {offset: kafka[offset] for offset in found}
    assert set(found) >= set(MIXED)


# --- a run that was killed --------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """The process ends here: nothing after it runs."""


def killed(*_: object, **__: object) -> None:
    raise KilledError


@pytest.mark.parametrize("after", ["announced", "linked", "synced"])
def test_a_run_that_was_killed_is_finished_by_the_next(after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name that may be there is in the receipt before it is: what was written is found, verified and taken back."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = snapshots_in(logs / "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    plan = tmp_path / "staged" / "plan.jsonl"
    with monkeypatch.context() as patched:
        if after == "announced":
            patched.setattr(module, "link_files", killed)
        elif after == "linked":
            patched.setattr(module, "sync_directory", killed)
        else:
            patched.setattr(Receipt, "settle_all", killed)
        with pytest.raises(KilledError):
            installed_here(plan, tmp_path / "killed.jsonl")
    is_linked = after != "announced"
    assert set(snapshots_in(logs / "mixed-0")) == set(before) | (set(MIXED) if is_linked else set())
    kept = snaprebuild("verify", "--written-by", tmp_path / "killed.jsonl", "--output", "json")
    assert (kept.exit_code, kept.totals) == (0, {"kept" if is_linked else "removed": len(MIXED)}), "perhaps they never had names"
    again = installed(tmp_path / "staged", tmp_path / "again.jsonl")
    assert (again.exit_code, again.totals) == (0, {"equal" if is_linked else "written": len(MIXED)})
    undone = in_json("undo", tmp_path / ("killed.jsonl" if is_linked else "again.jsonl"))
    assert undone.totals == {"removed": len(MIXED)}
    assert snapshots_in(logs / "mixed-0") == before


# --- another place ----------------------------------------------------------------------------------------------------------


def test_a_stage_that_was_moved_is_no_stage(tmp_path: Path) -> None:
    """The plan names the files: a copy elsewhere has other inodes, so that nothing of it is linked."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = snapshots_in(logs / "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    shutil.copytree(tmp_path / "staged", tmp_path / "copy")
    shutil.rmtree(tmp_path / "staged")
    (tmp_path / "copy").rename(tmp_path / "staged")
    done = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--receipt", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes, snapshots_in(logs / "mixed-0")) == (3, {"stale-staged": len(MIXED)}, before)


def test_a_staged_file_that_is_lost_costs_the_replay_from_the_one_below(tmp_path: Path) -> None:
    """Each boundary is replayed from the nearest staged file below it that is whole, and nothing above a lost one fails."""
    logs = copy_of("kafka27-mixed", tmp_path)
    directory, expected = logs / "mixed-0", truth("kafka27-mixed", "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    assert installed(tmp_path / "staged", tmp_path / "first.jsonl").exit_code == 0
    at_end = max(expected)
    remove_snapshots(directory, 7045, at_end)  # neither was staged: they were there
    nearest, below = [offset for offset in reversed(MIXED) if offset < 7045][:2]
    (tmp_path / "staged" / "mixed-0.staged" / snapshot_name(nearest)).unlink()
    done = installed(tmp_path / "staged", tmp_path / "second.jsonl")
    assert done.exit_code == 0, done.stderr
    actions = done.actions("mixed-0")
    assert {offset for offset, action in actions.items() if action == "written"} == {7045, at_end}
    last = max(bases_of(directory))
    sizes = {base: (directory / f"{base:020d}.log").stat().st_size for base in bases_of(directory)}
    replayed = sum(size for base, size in sizes.items() if below <= base < 7045 or base >= last)
    assert done.partition("mixed-0")["read_bytes"] == replayed
    found = snapshots_in(directory)
    assert {offset: found[offset] for offset in (7045, at_end)} == {offset: expected[offset] for offset in (7045, at_end)}


def test_a_segment_that_goes_during_the_replay_leaves_no_boundary_untold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(logs, "mixed-0", keep=8)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    put_back()
    bases = bases_of(logs / "mixed-0")
    run_tasks = rebuild_run.run_tasks

    def losing(*given: Any) -> None:
        monkeypatch.undo()
        for path in (logs / "mixed-0").glob(f"{bases[-1]:020d}.*"):
            path.unlink()
        run_tasks(*given)

    monkeypatch.setattr(rebuild_run, "run_tasks", losing)
    done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "one.jsonl")
    (partition,) = done.partitions
    assert [each.offset for each in partition.boundaries] == [*bases[1:], 8231]
    assert partition.boundaries[-1].action == "skipped"
    assert done.exit_code


def test_a_fault_of_one_replay_is_not_one_of_the_next(tmp_path: Path) -> None:
    """Two boundaries are replayed from two staged files, one after the other; the gate could not read the replica at first."""
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    assert installed(tmp_path / "staged", tmp_path / "first.jsonl").exit_code == 0
    at_end = max(truth("kafka27-mixed", "mixed-0"))
    remove_snapshots(logs / "mixed-0", 7045, at_end)
    asked: list[PartitionPlan] = []

    def gate(plans: Sequence[PartitionPlan], *_: object, **__: object) -> tuple[dict[str, PartitionPlan], list[Finding]]:
        (plan,) = plans
        asked.append(plan)
        judged = PartitionPlan(source=plan.source, target=plan.target, fault="unreadable") if len(asked) == 1 else plan
        return {plan.path: judged}, []

    plan, receipt = load_staged_plan(str(tmp_path / "staged" / "plan.jsonl")), str(tmp_path / "second.jsonl")
    done = install(plan, gate, NextStartJudge(), Run(), receipt=receipt)
    (partition,) = done.partitions
    actions = {each.offset: each.action for each in partition.boundaries}
    assert [actions[7045], actions[at_end]] == ["skipped", "written"]
    assert [(each.fault, each.log_end_offset) for each in asked] == [(None, at_end)] * 2
