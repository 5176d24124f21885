"""Receipts and real brokers: what the start, the log start and a crash do to our snapshots, and that an undo leaves what was there."""

from pathlib import Path

import pytest
from command import Run, in_json_process, snaprebuild_process
from kafka_node import KafkaNode
from planted_log import MISSING, plant_old_log

pytestmark = pytest.mark.broker

PARTITION = "mixed-0"
DELETE_BEFORE = 3000
"""Inside the segment from 2596 on."""
LOG_SECONDS = 120.0
TOPIC_SETTINGS = {"retention.ms": -1, "retention.bytes": -1, "file.delete.delay.ms": 0}


def rebuilt(node: KafkaNode, receipt: Path, *options: object) -> list[int]:
    """Rebuilds in place. Returns the offsets of what was written."""
    run = in_json_process("rebuild", node.log_dir / PARTITION, "--receipt", receipt, *options)
    assert run.exit_code == 0, run.stderr
    return [offset for offset, action in run.actions(PARTITION).items() if action == "written"]


def reported(receipt: Path) -> Run:
    return snaprebuild_process("verify", "--written-by", receipt, "--output", "json")


def statuses(run: Run) -> dict[int, str]:
    return {each["offset"]: each["status"] for each in run.document["files"]}


def offsets_in(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.snapshot"))


def test_what_a_start_keeps_and_what_a_moved_log_start_takes(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.jsonl"
    settings = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
    with KafkaNode(tmp_path / "node", settings=settings) as node:
        partition = plant_old_log(node, TOPIC_SETTINGS)
        before = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
        written = rebuilt(node, receipt)
        assert written == MISSING

        node.start()
        run = reported(receipt)
        assert (run.exit_code, statuses(run), run.codes) == (0, dict.fromkeys(written, "kept"), {"live-broker": 1})
        assert in_json_process("undo", receipt).exit_code == 3, "a live broker holds the directory"
        mark = node.log_file.stat().st_size
        node.delete_records("mixed", DELETE_BEFORE)
        node.wait_for_log("Deleting producer state snapshot .*2596.snapshot|Deleted log .*2181.log", mark, LOG_SECONDS)
        node.stop()
        node.start()
        node.stop()

        run = reported(receipt)
        taken = [offset for offset in written if offset not in offsets_in(partition)]
        # Those below the log start, and none else; the one at the base of the segment that holds it as well.
        assert taken == [offset for offset in written if offset < DELETE_BEFORE]
        assert run.exit_code == 0, run.stdout
        assert statuses(run) == {offset: "removed" if offset in taken else "kept" for offset in written}
        assert run.codes == {"taken-by-broker": len(taken)}

        undone = in_json_process("undo", receipt)
        assert (undone.exit_code, undone.totals) == (0, {"absent": len(taken), "removed": len(written) - len(taken)})
        assert {path.name: path.read_bytes() for path in partition.glob("*.snapshot")} == before
