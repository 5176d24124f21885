"""Snapshots made while a real broker runs and its topics grow: staged and installed, or written while it runs. Its next start uploads."""

import itertools
import shutil
from pathlib import Path

import pytest
from command import in_json_process, snaprebuild_process
from kafka_classpath import KAFKA_VERSION
from kafka_node import KafkaNode
from log_dirs import entries_in, snapshot_name
from planted_log import LAST_STABLE_OFFSET, MISSING, TRUTH, plant_old_log

from snaprebuild.storage.local.broker_lock import broker_version

pytestmark = pytest.mark.broker

SEGMENT_BYTES = 20_000
WAIT_SECONDS = 180.0
TIERED = {"remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": -2}
STAGED, WRITTEN = "staged", "written"
"""Two topics with the log of a broker of 2.7: one is repaired in each way."""


def missing(node: KafkaNode, topic: str) -> list[int]:
    return [base for base in node.bases(topic)[1:] if not (node.log_dir / f"{topic}-0" / snapshot_name(base)).exists()]


def test_two_stuck_topics_of_a_broker_that_continues_writing(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.jsonl"
    with KafkaNode(tmp_path / "node") as node:
        plant_old_log(node, {"retention.ms": -1, "internal.segment.bytes": SEGMENT_BYTES}, (STAGED, WRITTEN))
        due = missing(node, STAGED)
        assert due == MISSING
        mark = node.start()
        for topic in (STAGED, WRITTEN):
            node.set_topic(topic, TIERED)
        node.wait_for_log(r"java\.lang\.NullPointerException", mark, WAIT_SECONDS, times=2)
        assert broker_version(node.pid) == (4, 3)
        (log_dir,) = in_json_process("scan", node.log_dir).document["log_dirs"]
        assert (log_dir["held_by"], log_dir["kafka_release"]) == (node.pid, KAFKA_VERSION)
        not_held = Path(shutil.copytree(node.log_dir, tmp_path / "copy"))
        (log_dir,) = in_json_process("scan", not_held).document["log_dirs"]
        assert (log_dir["held_by"], log_dir["kafka_release"]) == (None, None), "the broker has another log directory"

        node.produce(STAGED, 1500)
        staged = in_json_process("stage", node.log_dir, "--to", tmp_path / "staged", "--topic", STAGED)
        assert staged.exit_code == 0, staged.stderr
        assert missing(node, STAGED) == due, "nothing in the log directory"
        beside = in_json_process(
            "rebuild", node.log_dir, "--broker-running", "--topic", WRITTEN, "--receipt", tmp_path / "beside.jsonl"
        )
        assert beside.exit_code == 0, beside.stderr
        assert "Kafka 4.3 runs here" in beside.messages("while-broker-runs")
        assert [offset for offset, action in beside.actions(f"{WRITTEN}-0").items() if action == "written"] == due
        assert node.remote_files(f"{WRITTEN}-0") == {}, "a running broker does not see them"
        assert in_json_process("undo", tmp_path / "beside.jsonl").exit_code == 3

        at_staging = node.bases(STAGED)
        node.produce(STAGED, 1500)
        rolled_since = [base for base in node.bases(STAGED) if base > at_staging[-1]]
        assert rolled_since, "the log rolled meanwhile"
        dry = in_json_process("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run")
        assert (dry.exit_code, dry.totals) == (0, {"would_write": len(due)}), dry.stderr
        assert in_json_process("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--receipt", receipt).exit_code == 3, (
            "not while it runs"
        )
        node.stop()
        done = in_json_process("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--receipt", receipt)
        assert (done.exit_code, done.totals) == (0, {"written": len(due)}), done.stderr
        assert done.partition(f"{STAGED}-0")["read_bytes"] == 0, "this broker has written those of what rolled since itself"
        for topic, offset in itertools.product((STAGED, WRITTEN), due):
            assert entries_in((node.log_dir / f"{topic}-0" / snapshot_name(offset)).read_bytes()) == TRUTH[offset]
        healthy = in_json_process("verify", node.log_dir, "--topic", STAGED, "--topic", WRITTEN)
        assert healthy.exit_code == 0, healthy.stdout

        mark = node.start()
        expected = [base for base, following in itertools.pairwise(node.bases(STAGED)) if following <= LAST_STABLE_OFFSET]
        node.wait_for_log(r"Copied 0000\d+\.log to remote storage", mark, WAIT_SECONDS, times=2 * len(expected))
        assert "NullPointerException" not in node.log_since(mark)
        for topic in (STAGED, WRITTEN):
            remote = node.remote_files(f"{topic}-0")
            following = dict(itertools.pairwise(node.bases(topic)))
            assert sorted(int(name[:20]) for name in remote if name.endswith(".log")) == expected
            for base in expected:
                local = node.log_dir / f"{topic}-0" / snapshot_name(following[base])
                assert remote[snapshot_name(base)].read_bytes() == local.read_bytes()
        for each in (receipt, tmp_path / "beside.jsonl"):
            kept = snaprebuild_process("verify", "--written-by", each, "--output", "json")
            assert (kept.exit_code, kept.totals) == (0, {"kept": len(due)})
        node.stop()
        for each in (receipt, tmp_path / "beside.jsonl"):
            assert in_json_process("undo", each).totals == {"removed": len(due)}
        assert missing(node, STAGED) == missing(node, WRITTEN) == due
