"""A real broker that was killed, came back and was stopped in health: no replica of it is rejected, and Kafka uploads from them."""

import time
from pathlib import Path

import pytest
from kafka_node import KafkaNode
from rule_marks import HOLDS, WARNS, mark_of

from snaprebuild.cluster.source_check.check import CheckedSource, check_sources
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.cluster.source_check.verdict import SourceRule
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome
from snaprebuild.snapshots.run import Run

pytestmark = pytest.mark.broker

NOW_MS = 1_795_300_000_000
UPLOAD_SECONDS = 120.0


def replicas(log_dir: Path, purpose: Purpose) -> dict[str, CheckedSource]:
    result = check_sources(
        SourceQuestion(paths=(str(log_dir),), purpose=purpose), Run(clock=Clock(NOW_MS, DEFAULT_EXPIRATION_MS), jobs=1)
    )
    assert [each for each in result.findings if each.severity] == []
    return {each.directory.topic_partition: each for each in result.replicas}


def uploaded(node: KafkaNode) -> set[int]:
    """Base offsets of segments in remote storage; a broker that was killed on the way may upload one twice."""
    return {int(path.name[:20]) for path in node.remote_dir.glob("kafka-tiered-storage/t-0-*/*.log")}


def test_a_healthy_broker_is_never_rejected(tmp_path: Path) -> None:
    """First stopped cleanly. Then killed: with one replica the partition is elected uncleanly and stays RECOVERING (rule R8 warns).
    The broker still serves it and uploads its segments, so it would be wrong to reject it."""
    with KafkaNode(tmp_path) as node:
        node.start()
        node.create_topic("t", {"remote.storage.enable": "true", "internal.segment.bytes": 2000, "local.retention.ms": -2})
        node.produce("t", 200)
        node.stop()
        for purpose in Purpose:
            found = replicas(node.log_dir, purpose)
            assert "t-0" in found
            for name, each in found.items():
                assert not each.verdict.is_rejected, (name, purpose, each.verdict.reason)
                assert {mark_of(rule) for rule in each.verdict.results} <= {HOLDS, WARNS}, name
        stopped = replicas(node.log_dir, Purpose.REBUILD)["t-0"].verdict
        assert {mark_of(rule) for rule in stopped.results} == {HOLDS}

        node.start()
        node.kill()
        killed = replicas(node.log_dir, Purpose.REBUILD)
        assert {each.verdict.outcome for each in killed.values()} == {VerdictOutcome.TRUSTED_BELOW}

        node.start()
        written_before = killed["t-0"].log.log_end_offset
        assert written_before == 200
        node.produce("t", 200)
        deadline = time.monotonic() + UPLOAD_SECONDS
        while max(uploaded(node), default=-1) < written_before:
            assert time.monotonic() < deadline, "the broker uploads nothing of what was written while the partition is RECOVERING"
            time.sleep(0.2)
        node.stop()
        rebuild, upload = (replicas(node.log_dir, purpose)["t-0"] for purpose in (Purpose.REBUILD, Purpose.UPLOAD))
        assert (rebuild.verdict.outcome, upload.verdict.outcome) == (VerdictOutcome.TRUSTED, VerdictOutcome.TRUSTED_BELOW)
        assert upload.verdict.trusted_below == upload.log.log_end_offset
        (recovery,) = [each for each in upload.verdict.results if each.rule is SourceRule.R8]
        assert (mark_of(recovery), recovery.evidence[:10]) == (WARNS, "RECOVERING")
