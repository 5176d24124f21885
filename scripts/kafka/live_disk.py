"""A replaced disk in a live cluster of three: what ``cluster source`` and ``cluster image`` say, and what the cluster does with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from command import in_json_process
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from live_offsets import LEADER, wait
from transcript import Transcript

TOPIC = "t"
PARTITION = "t-0"
HEAP_MIB = 320
THROTTLE = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
RATE = "follower.replication.throttled.rate"
RECORDS = 3000
SETTINGS = {
    **LEADER,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "replica.lag.time.max.ms": 3_000,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    # What is throttled is counted afterwards: one answer must not bring everything.
    "replica.fetch.max.bytes": 16_384,
    "replica.fetch.response.max.bytes": 16_384,
}


class LiveDisk:
    """The chapter: a controller that is a broker, too, and two brokers more. The disk of the third is replaced."""

    def __init__(self, root: Path, version: str, say: Transcript) -> None:
        usual: dict[str, Any] = {"version": version, "tiering": False, "settings": SETTINGS, "heap_mib": HEAP_MIB}
        self._first = KafkaNode(root / "node1", **usual)
        self._usual = usual
        self._root = root
        self._say = say
        self._second = self._further(2)
        self._checked = 0

    def _further(self, node_id: int) -> KafkaNode:
        return KafkaNode(self._root / f"node{node_id}", controller=self._first, node_id=node_id, **self._usual)

    def run(self) -> dict[str, object]:
        """Runs it. Returns its figures."""
        self._say.step("a cluster of three, and a disk of the third node that is replaced")
        with self._first as first, self._second as second:
            for node in (first, second):
                node.start()
            third = self._further(3)
            with third:
                third.start()
                first.create_topic(TOPIC, {"segment.bytes": 1 << 20}, replicas=3)
                first.wait_for_replicas(TOPIC, leader=self._leader(), in_sync={1, 2, 3})
                write_kind(first.address, TOPIC, Kind.IDEMPOTENT, RECORDS)
                write_kind(first.address, TOPIC, Kind.COMMITTED, RECORDS // 10)
                first.set_broker(3, {RATE: 1000})  # of topics that are configured to be slow: not this one yet
                third.stop_all()
            old = self._stopped(third)
            self._replaced(old)
            self._comes_back(old)
            second.stop_all()
            first.stop_all()
        return {"verdicts on disks of a live cluster, as the cluster took them": self._checked}

    def _leader(self) -> int:
        return self._cluster()["leader"]

    def _cluster(self) -> dict[str, Any]:
        """The live cluster's own facts about the partition."""
        partition = self._first.partition(TOPIC)
        return {"leader": partition.leader, "isr": sorted(partition.isrs), "replicas": sorted(partition.replicas)}

    # ---- the steps ----

    def _stopped(self, third: KafkaNode) -> Path:
        """Stops a node cleanly: the cluster continues without it, and its disk is a sound one."""
        wait(lambda: self._cluster()["isr"] == [1, 2], "node 3 is still in sync")
        self._image("node 3 has stopped")
        self._verdict(third.log_dir, "rebuild", "TRUSTED", None, "the disk of a node that stopped cleanly")
        self._verdict(third.log_dir, "upload", "REJECTED", "R7", "it is not in sync, as the cluster says")
        old = third.root / "old-disk"
        third.log_dir.rename(old)
        return old

    def _replaced(self, old: Path) -> None:
        """Starts a node on a new disk, and first keeps it from catching up."""
        self._first.set_topic(TOPIC, THROTTLE)
        with self._further(3) as third:
            third.start()
            wait((third.log_dir / PARTITION).is_dir, "no replica on the new disk")
            self._say.check("the new disk is empty, and the cluster keeps it out of the ISR", self._cluster()["isr"], [1, 2])
            self._image("node 3 has come back with a new disk")
            self._verdict(old, "rebuild", "REJECTED", "R4", "the disk that was taken out")
            epoch = self._epoch(3)
            self._verdict(third.log_dir, "upload", "REJECTED", "R7", "the new disk, not caught up", broker_epoch=epoch)
            self._first.set_broker(3, {RATE: 1 << 30})
            self._first.wait_for_replicas(TOPIC, leader=self._leader(), in_sync={1, 2, 3})
            self._image("it has caught up: the cluster takes it into the ISR")
            self._placed(third.log_dir)
            self._same_log(third)
            self._verdict(third.log_dir, "upload", "TRUSTED_BELOW", "R9", "the new disk, caught up", broker_epoch=epoch)
            self._verdict(old, "rebuild", "REJECTED", "R4", "the disk that was taken out, still")
            third.stop_all()
        wait(lambda: self._cluster()["isr"] == [1, 2], "node 3 is still in sync")
        self._verdict(third.log_dir, "rebuild", "TRUSTED", None, "the new disk, stopped cleanly")
        self._isr()

    def _comes_back(self, old: Path) -> None:
        """Somebody puts the old disk in again: the cluster takes it for a replica that lags, and we reject it until it has registered."""
        new = self._root / "node3" / "kafka-logs"
        new.rename(new.with_name("new-disk"))
        shutil.copytree(old, new)
        self._verdict(new, "rebuild", "REJECTED", "R4", "the old disk in its place again")
        write_kind(self._first.address, TOPIC, Kind.IDEMPOTENT, 100)
        with self._further(3) as third:
            third.start()
            self._first.wait_for_replicas(TOPIC, leader=self._leader(), in_sync={1, 2, 3})
            self._image("the old disk has registered and has caught up")
            self._verdict(new, "upload", "TRUSTED_BELOW", "R9", "the old disk, caught up", broker_epoch=self._epoch(3))
            self._same_log(third)
            third.stop_all()

    # ---- what is compared ----

    def _image(self, what: str) -> None:
        """The metadata log of the first node, read while it runs, has the same contents as the cluster reports."""
        reported = self._cluster()
        (topic,) = in_json_process("cluster image", self._first.log_dir, "--topic", TOPIC).document["topics"]
        (partition,) = topic["partitions"]
        state = {"leader": partition["leader"], "isr": sorted(partition["isr"]), "replicas": sorted(partition["replicas"])}
        self._say.check(f"{what}: cluster image and the live cluster say {reported}", state, reported)
        self._checked += 1

    def _verdict(
        self,
        log_dir: Path,
        purpose: str,
        outcome: str,
        rule: str | None,
        what: str,
        *,
        broker_epoch: int | None = None,
    ) -> None:
        epoch = () if broker_epoch is None else ("--broker-epoch", broker_epoch)
        run = in_json_process(
            "cluster source", log_dir, "--topic", TOPIC, "--purpose", purpose, "--metadata", self._first.log_dir, *epoch
        )
        (replica,) = run.document["replicas"]
        self._say.check(
            f"{what}, for {purpose}: {outcome} {rule or ''}".rstrip(),
            (replica["verdict"]["outcome"], replica["verdict"]["rule"]),
            (outcome, rule),
        )
        self._checked += 1

    def _placed(self, log_dir: Path) -> None:
        """The controller has recorded on which disk the replica is, as the node reported it."""
        properties = dict(line.partition("=")[::2] for line in (log_dir / "meta.properties").read_text().splitlines())

        def is_reported() -> bool:
            (topic,) = in_json_process("cluster image", self._first.log_dir, "--topic", TOPIC).document["topics"]
            (partition,) = topic["partitions"]
            places = dict(zip(partition["replicas"], partition["directories"], strict=True))
            return bool(places[3] == properties["directory.id"])

        wait(is_reported, "the cluster image has another directory for node 3")
        self._say.check("cluster image places the replica on the disk that is there now", True)
        self._checked += 1

    def _epoch(self, node_id: int) -> int:
        document = in_json_process("cluster image", self._first.log_dir).document
        return next(each["epoch"] for each in document["brokers"] if each["node_id"] == node_id)

    def _same_log(self, third: KafkaNode) -> None:
        """Byte for byte that of the leader."""
        logs = [
            b"".join(path.read_bytes() for path in sorted((node.log_dir / PARTITION).glob("*.log")))
            for node in (self._first, third)
        ]
        self._say.check(f"its log is that of node 1, byte for byte: {len(logs[0])} bytes", logs[1] == logs[0])

    def _isr(self) -> None:
        document = in_json_process("cluster isr", self._first.log_dir).document
        findings = [(each["code"], each["severity"]) for each in document["findings"]]
        what = "cluster isr finds nothing wrong in what the controller did, and notes that a replica joined with a new disk"
        self._say.check(what, findings, [("isr-new-disk", "note")])
        self._checked += 1
