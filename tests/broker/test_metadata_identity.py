"""A real node of 4.3.1 with damaged files of identity: it does not start where ``cluster check`` calls the directory damaged."""

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_node import KafkaNode

from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.quorum.rules import QuorumRule
from snaprebuild.cluster.rule_result import Grade

pytestmark = pytest.mark.broker

METADATA = "__cluster_metadata-0"
FOREIGN = "version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA"
SECONDS = 90.0

REFUSED: dict[str, tuple[Callable[[Path], object], QuorumRule, str]] = {
    "foreign topic id": (lambda place: (place / METADATA / "partition.metadata").write_text(FOREIGN), QuorumRule.K18, "topic"),
    "empty partition.metadata": (lambda place: (place / METADATA / "partition.metadata").write_bytes(b""), QuorumRule.K18, ""),
    "garbage partition.metadata": (
        lambda place: (place / METADATA / "partition.metadata").write_bytes(b"\0junk"),
        QuorumRule.K18,
        "",
    ),
    "missing meta.properties": (lambda place: (place / "meta.properties").unlink(), QuorumRule.K19, "meta.properties"),
    "empty meta.properties": (lambda place: (place / "meta.properties").write_bytes(b""), QuorumRule.K19, ""),
}
HEALTHY: dict[str, Callable[[Path], object]] = {
    "without partition.metadata": lambda place: (place / METADATA / "partition.metadata").unlink(),
    "as it is": lambda place: place.exists(),
}


def ends(node: KafkaNode) -> str:
    """Starts a node that does not start; returns the end of what it logged."""
    with contextlib.suppress(AssertionError):
        node.start()
    deadline = time.monotonic() + SECONDS
    text = node.log_file.read_text(errors="replace")
    while not re.search(r"Exiting Kafka|Exception|ERROR|FATAL", text):
        assert time.monotonic() < deadline, text[-2000:]
        time.sleep(0.2)
        text = node.log_file.read_text(errors="replace")
    return text


def test_what_a_node_does_with_the_files_of_its_identity(tmp_path: Path) -> None:
    """One node is formatted and stopped once; each state is a change of its directory, which is restored afterwards."""
    with KafkaNode(tmp_path / "node", tiering=False) as node:
        node.start()
        node.create_topic("t", {})
        node.stop()
        saved = Path(shutil.copytree(node.log_dir, tmp_path / "saved"))
        for name, (change, rule, said) in REFUSED.items():
            change(node.log_dir)
            violated = {each.rule: each.grade for each in check_quorum([str(node.log_dir)]).nodes[0].results if each.grade}
            assert violated.get(rule) is Grade.DAMAGE, name
            node.log_file.write_text("")
            text = ends(node)
            assert "Kafka Server started" not in text, name
            assert said in text, name
            node.kill()
            shutil.rmtree(node.log_dir)
            shutil.copytree(saved, node.log_dir)
        for name, mend in HEALTHY.items():
            mend(node.log_dir)
            assert {each.grade for each in check_quorum([str(node.log_dir)]).nodes[0].results} <= {None, Grade.INFO}, name
            node.start()
            node.stop()
