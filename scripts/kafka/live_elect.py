"""Elections that ``fleet`` writes, carried out by Kafka's own tools on a live cluster of three."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from command import in_json_process, snaprebuild_process
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from live_disk import HEAP_MIB
from live_offsets import LEADER, SEGMENT_BYTES, wait
from transcript import Transcript

OLD = {"free": (1, 2), "leads": (2, 3), "sound": ()}
"""Topics, and the nodes whose replica lacks its old snapshots."""

REPLICAS = {"free": [1, 2, 3], "leads": [2, 1, 3], "sound": [1, 2, 3]}
"""Replicas in their order at the beginning, the preferred leader first; of ``leads`` node 1 leads all the same."""

RECORDS = 800
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


class LiveElect:
    """The chapter: disks of stopped nodes lose snapshots, and the live nodes are scanned; the cluster is led to what the files say."""

    def __init__(self, root: Path, version: str, say: Transcript) -> None:
        settings = {**LEADER, "auto.leader.rebalance.enable": "false"}
        usual: dict[str, Any] = {"version": version, "tiering": False, "settings": settings, "heap_mib": HEAP_MIB}
        self._first = KafkaNode(root / "node1", **usual)
        self._further = [KafkaNode(root / f"node{number}", controller=self._first, node_id=number, **usual) for number in (2, 3)]
        self._root = root
        self._say = say

    def run(self) -> dict[str, object]:
        """Runs it. Returns its figures."""
        self._say.step("elections of fleet, by Kafka's own tools")
        with self._first as first, self._further[0] as second, self._further[1] as third:
            for node in (first, second, third):
                node.start()
            for topic, replicas in REPLICAS.items():
                first.create_topic(topic, {"internal.segment.bytes": SEGMENT_BYTES}, replicas=3)
                first.wait_for_replicas(topic, leader=first.partition(topic).leader, in_sync={1, 2, 3})
                self._lead(topic, 1)
                self._order(topic, replicas)
                write_kind(first.address, topic, Kind.IDEMPOTENT, RECORDS)
            for node in (third, second, first):
                node.stop()
            self._lose_snapshots()
            for node in (first, second, third):
                node.start()
            for topic in REPLICAS:
                first.wait_for_replicas(topic, leader=1, in_sync={1, 2, 3})
            scans = self._scanned()
            before = self._cluster()
            self._say.check(
                "node 1 leads everything", {topic: leader for topic, (leader, _) in before.items()}, dict.fromkeys(OLD, 1)
            )
            directory, order = self._merged(scans)
            self._run_tool(directory / "now-reassignment.json", REASSIGN, "--reassignment-json-file", "--execute")
            self._run_tool(directory / "now-election.json", ELECT, "--path-to-json-file", "--election-type", "preferred")
            expected = {"free": (3, [3, 1, 2]), "leads": (1, [1, 2, 3]), "sound": before["sound"]}
            wait(lambda: self._cluster() == expected, f"the cluster is not led so: {expected}")
            self._say.check(f"the cluster, leaders and replicas: {expected}", self._cluster(), expected)
            self._run_tool(directory / "now-reassignment-back.json", REASSIGN, "--reassignment-json-file", "--execute")
            orders = {topic: order for topic, (_, order) in before.items()}
            wait(lambda: {topic: order for topic, (_, order) in self._cluster().items()} == orders, "the orders are not back")
            self._say.check(f"and back: {orders}", True)
            self._restart(order)
            for node in (third, second, first):
                node.stop_all()
        return {"elections that the cluster made as the files say": len(expected)}

    def _restart(self, order: list[int]) -> None:
        """The order of ``fleet``: while a broker is stopped, another one leads with all records. The only controller is the last."""
        self._say.check("fleet: all nodes may restart, the controller last", (sorted(order), order[-1]), ([1, 2, 3], 1))
        ends = {topic: self._first.end_offset(topic) for topic in OLD}
        for number in order[:-1]:
            node = self._further[number - 2]
            node.stop()
            wait(partial(self._is_led_without, number), f"a topic is led by node {number}, or by none")
            left = {topic: self._first.end_offset(topic) for topic in OLD}
            self._say.check(f"node {number} is stopped: no record is missing", left, ends)
            node.start()
            for topic in OLD:
                self._first.wait_for_replicas(topic, leader=self._first.partition(topic).leader, in_sync={1, 2, 3})

    def _is_led_without(self, node: int) -> bool:
        return all(leader in {1, 2, 3} - {node} for leader, _ in self._cluster().values())

    def _order(self, topic: str, replicas: list[int]) -> None:
        self._first.reassign(topic, replicas)
        wait(lambda: list(self._first.partition(topic).replicas) == replicas, f"{topic} has other replicas")

    def _lead(self, topic: str, node: int) -> None:
        """By the tools themselves, with what an operator would type."""
        self._order(topic, [node, *sorted({1, 2, 3} - {node})])
        if self._first.partition(topic).leader != node:
            self._first.elect(topic)
        self._first.wait_for_replicas(topic, leader=node, in_sync={1, 2, 3})

    def _cluster(self) -> dict[str, tuple[int, list[int]]]:
        """Leader and replicas of each topic, as the live cluster shows them."""
        partitions = {topic: self._first.partition(topic) for topic in OLD}
        return {topic: (each.leader, list(each.replicas)) for topic, each in partitions.items()}

    def _lose_snapshots(self) -> None:
        """Deletes snapshots of stopped nodes that Kafka before 2.8 did not write."""
        for number, node in enumerate((self._first, *self._further), 1):
            for topic, nodes in OLD.items():
                for snapshot in sorted((node.log_dir / f"{topic}-0").glob("*.snapshot"))[:-1] if number in nodes else ():
                    snapshot.unlink()

    def _scanned(self) -> list[Path]:
        """Scans of the live nodes: those of before their start would be refused, because their broker epochs are older."""
        scans = []
        for number, node in enumerate((self._first, *self._further), 1):
            scans.append(self._root / f"scan-{number}.json")
            scans[-1].write_text(snaprebuild_process("scan", node.log_dir, "--output", "json").stdout)
        return scans

    def _merged(self, scans: list[Path]) -> tuple[Path, list[int]]:
        """The files that a merge of the scans writes, and the nodes that may restart, in order."""
        directory = self._root / "elections"
        run = in_json_process("fleet", *scans, "--metadata", self._first.log_dir, "--elections", directory)
        elected = {each["topic"]: each["elect"] for each in run.document["partitions"]}
        self._say.check(
            "fleet: node 3 must lead one topic, and nothing must be rebuilt",
            (elected, run.document["steps"]),
            ({"free": 3}, []),
        )
        for path in sorted(directory.iterdir()):
            self._say.show(f"{path.name}: {' '.join(json.dumps(json.loads(path.read_text())).split())}")
        steps = run.document["upgrade"]
        return directory, [each["node_id"] for each in steps if (each["kind"], each["go"]) == ("restart", "go")]

    def _run_tool(self, path: Path, tool: str, option: str, *more: str) -> None:
        """Runs Kafka's own tool with a file."""
        output = self._first.tool(tool, "--bootstrap-server", self._first.address, option, str(path), *more)
        self._say.check(f"{tool.rpartition('.')[2]} {option} {path.name}: {output.strip().splitlines()[-1]}", True)
