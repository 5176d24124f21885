"""A real broker that is stopped and started: its snapshot at the log end then stands in the middle of the segment to which it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import in_json
from kafka_node import KafkaNode
from log_dirs import entries_in

pytestmark = pytest.mark.broker


def verdicts_on(partition_dir: Path) -> dict[int, tuple[str, str | None]]:
    """Runs the command on a partition directory. Status and class of each snapshot, by offset."""
    run = in_json("verify", partition_dir)
    assert run.exit_code == 0, run.stderr
    (partition,) = run.document["partitions"]
    return {snapshot["offset"]: (snapshot["comparison"]["status"], snapshot["class"]) for snapshot in partition["snapshots"]}


def test_a_snapshot_in_the_middle_of_the_active_segment(tmp_path: Path) -> None:
    with KafkaNode(tmp_path) as node:
        node.start()
        node.create_topic("t", {})
        node.produce("t", 60, transactional_id="transactions")
        node.produce("t", 40)
        node.stop()
        partition = node.log_dir / "t-0"
        (first,) = partition.glob("*.snapshot")
        left_by_the_stop = first.read_bytes()
        assert len(entries_in(left_by_the_stop)) == 2

        node.start()
        node.produce("t", 40, transactional_id="transactions")
        node.produce("t", 40)
        node.stop()
        assert [segment.name for segment in partition.glob("*.log")] == [f"{0:020}.log"]
        last = max(partition.glob("*.snapshot"))
        assert first.read_bytes() == left_by_the_stop
        assert 100 < int(first.stem) < int(last.stem)
        assert len(entries_in(last.read_bytes())) == 3
        assert verdicts_on(partition) == {int(first.stem): ("equal", "EXACT"), int(last.stem): ("equal", "EXACT")}
