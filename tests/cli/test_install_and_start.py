"""``install`` and the next start of the broker: it is never greener than a scan of the same files."""

from pathlib import Path

from in_process import in_json
from log_dirs import copy_of, remove_snapshots
from staged_logs import installed, staged


def test_its_own_lock_is_not_taken_for_a_broker_that_compacts(tmp_path: Path) -> None:
    """A ``.swap`` file in a stopped broker's directory is of a compaction that was interrupted."""
    logs = copy_of("kafka4-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    (logs / "mixed-0" / "00000000000000000000.log.swap").touch()
    dry = in_json("install", tmp_path / "staged" / "plan.jsonl", "--dry-run")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes) == (dry.exit_code, dry.codes) == (1, {"interrupted-compaction": 1})
