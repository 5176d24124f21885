"""``install`` and the next start of the broker: it is never greener than a scan of the same files."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from command import in_json
from log_dirs import copy_of, remove_snapshots
from manifests import FIXTURES
from msgspec.structs import replace
from staged_logs import bases_of, installed, installed_here, staged

from snaprebuild.broker.fates import Fate
from snaprebuild.snapshots import install as module
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.start_gate import StartJudge, lost_at_start
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source


def test_its_own_lock_is_not_taken_for_a_broker_that_compacts(tmp_path: Path) -> None:
    """A ``.swap`` file in a stopped broker's directory is of a compaction that was interrupted."""
    logs = copy_of("kafka4-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    (logs / "mixed-0" / "00000000000000000000.log.swap").touch()
    dry = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes) == (dry.exit_code, dry.codes) == (1, {"interrupted-compaction": 1})


def test_the_next_start_is_judged_by_batch_within_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most blocked partition is linked before the start of another is judged; what is replayed is not judged once more."""
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged")
    events: list[str] = []
    monkeypatch.setattr(module, "BATCH_PARTITIONS", 1)
    whole, settle = module.fates_of_paths, Receipt.settle_all

    def judged(judge: StartJudge, paths: Iterable[str], request: RebuildRequest, run: Run, *, holds_locks: bool) -> Sequence[Fate]:
        events.append("judged")
        return whole(judge, paths, request, run, holds_locks=holds_locks)

    def settled(receipt: Receipt, plan: PartitionPlan, offsets: Iterable[int]) -> None:
        events.append(plan.source.directory.topic_partition)
        settle(receipt, plan, offsets)

    monkeypatch.setattr(module, "fates_of_paths", judged)
    monkeypatch.setattr(Receipt, "settle_all", settled)
    done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "receipt.jsonl")
    assert events == ["judged", "mixed-0", "judged", "logappend-0"]
    assert done.exit_code == 0
    assert done.phase_seconds["judge"] > 0, "a phase that is printed"
    events.clear()
    late = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "late.jsonl", deadline=0.0)
    assert (events, late.exit_code) == ([], 1)


def test_a_start_that_deletes_the_log_is_no_health(tmp_path: Path) -> None:
    """The log start offset is above the log end: nothing is due any more, and ``scan`` is not green either."""
    logs = Path(shutil.copytree(FIXTURES / "damaged" / "missing-snapshot", tmp_path / "logs"))
    staged(logs, tmp_path / "staged")
    (logs / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 5000\n")
    assert in_json("scan", logs).exit_code != 0
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes, done.totals) == (3, {"not-due": 1, "unsafe-next-start": 1}, {"refused": 1})


def test_what_was_staged_and_depends_on_a_touched_segment_is_not_called_unstaged(tmp_path: Path) -> None:
    """Below a segment that has changed nothing is replayed, and the reason is not that nothing was staged."""
    logs = copy_of("kafka4-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    bases = bases_of(logs / "mixed-0")
    touched, changed = (logs / "mixed-0" / f"{base:020d}.log" for base in (bases[1], bases[3]))
    touched.chmod(touched.stat().st_mode)
    os.utime(changed, ns=(0, 0))
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert f"was staged, and depends on the segment at {bases[1]}, which was touched since" in done.stderr
    assert "was not staged" not in done.stderr


def test_an_index_is_blamed_only_for_what_goes_because_of_it(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    bases = bases_of(logs / "mixed-0")
    (whole,) = open_source([str(logs / "mixed-0")]).partitions
    (logs / "mixed-0" / f"{bases[1]:020d}.index").unlink()
    (missing,) = open_source([str(logs / "mixed-0")]).partitions
    above = replace(missing.log_dir, log_starts={"mixed-0": 50_000})
    assert not lost_at_start(whole, 8231, bases[1:], ())
    assert lost_at_start(missing, 8231, bases[1:], ())
    assert not lost_at_start(replace(whole, log_dir=above), 8231, bases[1:], ()), "the start deletes the log: no index is missing"
    assert not lost_at_start(replace(missing, log_dir=above), 8231, bases[1:], ()), "it does so with the index, too"


def test_a_removal_because_of_an_index_is_printed_once(tmp_path: Path) -> None:
    """Although all of it is replayed, because the first segment was touched."""
    logs = copy_of("kafka27-mixed", tmp_path)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    first, second = bases_of(logs / "mixed-0")[:2]
    (logs / "mixed-0" / f"{second:020d}.index").unlink()
    segment = logs / "mixed-0" / f"{first:020d}.log"
    segment.chmod(segment.stat().st_mode)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes["snapshot-removed-at-start"]) == (1, 1)
