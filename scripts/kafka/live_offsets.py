"""ListOffsets of a live leader with remote storage: what ``follower offsets`` says, and what it answers to clients and followers."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from command import in_json_process
from confluent_kafka import Producer
from kafka_classpath import java_program
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from transcript import Transcript
from wire import Wire

OFTEN_MS = 300
LEADER = {
    "log.initial.task.delay.ms": OFTEN_MS,
    "log.retention.check.interval.ms": OFTEN_MS,
    "log.flush.start.offset.checkpoint.interval.ms": OFTEN_MS,
    "replica.high.watermark.checkpoint.interval.ms": OFTEN_MS,
}
SEGMENT_BYTES = 20_000
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": SEGMENT_BYTES,
    "file.delete.delay.ms": OFTEN_MS,
    "retention.ms": -1,
    "local.retention.ms": -2,
    "local.retention.bytes": -2,
}
SPECIAL = (-1, -2, -3, -4, -5, -6)
FOLLOWER = 2
SETTLED_SECONDS = 120.0

Answers = dict[int, tuple[int, int, int]]


class AdminClient:
    """Kafka's own, in Java: it knows the timestamps that others do not."""

    def __init__(self, address: str) -> None:
        command = [*java_program("LiveOffsets"), address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def list_offsets(self, topic: str, isolation: str, timestamps: list[int]) -> Answers:
        """Offset, timestamp of the record and leader epoch, by the timestamp that was asked for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answers = {}
        for each in timestamps:
            print(topic, isolation, each, file=self._process.stdin, flush=True)
            offset, timestamp, epoch = map(int, self._process.stdout.readline().split())
            answers[each] = (offset, timestamp, epoch)
        return answers

    def close(self) -> None:
        """The end of its input is its order to stop."""
        self._process.communicate(timeout=60)


class LiveOffsets:
    """The chapter: one leader, several topics in several states."""

    def __init__(self, root: Path, version: str, say: Transcript) -> None:
        self._node = KafkaNode(root / "leader", version=version, settings=LEADER)
        self._say = say
        self._compared = 0
        self._times: list[int] = []

    def run(self) -> dict[str, object]:
        """Runs it. Returns its figures."""
        self._say.step("next to a live leader: ListOffsets -1 to -6 and by time")
        with self._node as node:
            node.start()
            with contextlib.closing(AdminClient(node.address)) as admin, Wire(node.port) as wire:
                self._admin = admin
                self._wire = wire
                self._situations(node)
            node.stop_all()
        return {"answers of a live leader, equal to ours": self._compared}

    def _situations(self, node: KafkaNode) -> None:
        node.create_topic("plain", {name: value for name, value in TIERED.items() if name != "remote.storage.enable"})
        self._write(node, "plain", 300)
        self._compare("plain", "remote storage is off")
        node.create_topic("young", TIERED)
        self._write(node, "young", 20)
        self._compare("young", "nothing is uploaded yet: the first segment is the active one")
        node.create_topic("t", {**TIERED, "local.retention.bytes": 3 * SEGMENT_BYTES})
        self._write(node, "t", 600)
        with open_transaction(node, "t", 20) as end:
            self._write(node, "t", 300)
            self._settle("t")
            self._compare("t", "a transaction is open: what is above it is not uploaded")
            end()
        self._write(node, "t", 10)
        self._settle("t")
        self._compare("t", "it was committed: segments are in remote storage, on disk, or in both")
        log_start = self._replica("t")[-4][0] - 150
        delete_records(node, "t", log_start)
        self._settle("t")
        self._compare("t", f"records below {log_start} were deleted: a log start inside of remote storage")
        node.set_topic("t", {"local.retention.ms": 1})
        roll_and_upload("t", self._replica)
        self._settle("t")
        self._compare("t", "everything is uploaded, and the active segment is empty")

    def _write(self, node: KafkaNode, topic: str, records: int) -> None:
        self._times.append(int(time.time() * 1000))
        write_kind(node.address, topic, Kind.IDEMPOTENT, records)

    def _replica(self, topic: str) -> Answers:
        return self._wire.list_offsets(topic, SPECIAL, replica_id=FOLLOWER)

    def _settle(self, topic: str) -> None:
        """Until nothing is uploaded or deleted any more, and the checkpoints say so."""
        settle(self._node, topic, self._replica)

    def _compare(self, topic: str, situation: str) -> None:
        log_dir = self._node.log_dir
        wait_for_checkpoint(log_dir / "replication-offset-checkpoint", topic, self._replica(topic)[-1][0])
        timestamps = [*SPECIAL, *self._times_of(topic)]
        words = [word for each in timestamps for word in ("--timestamp", each)]
        places = [self._node.remote_dir] if topic != "plain" else []
        tier = ("--metadata-log", log_dir) if topic != "plain" else ()
        for isolation in ("replica", "read_uncommitted", "read_committed"):
            run = in_json_process("follower offsets", *places, log_dir / f"{topic}-0", *tier, "--isolation", isolation, *words)
            (partition,) = run.document["partitions"]
            ours = {
                each["timestamp_ms"]: (each["offset"], each["record_timestamp_ms"], each["leader_epoch"])
                for each in partition["answers"]
            }
            if isolation == "replica":
                theirs = self._wire.list_offsets(topic, timestamps, replica_id=FOLLOWER)
            else:
                theirs = self._admin.list_offsets(topic, isolation, timestamps)
            special = ", ".join(f"{each}: {theirs[each][0]}" for each in SPECIAL)
            self._say.check(f"{situation}; {isolation}: {special}; {len(timestamps) - len(SPECIAL)} times", ours, theirs)
            self._compared += len(theirs)

    def _times_of(self, topic: str) -> list[int]:
        """Timestamps of some records on disk, and the milliseconds around them."""
        times = set(self._times)
        for path in (self._node.log_dir / f"{topic}-0").glob("*.log"):
            data = path.read_bytes()
            times |= {int.from_bytes(data[at : at + 8], "big") for at in (27, 35) if len(data) > 61}
        return sorted(times | {each + 1 for each in times})


def partition_row(document: Mapping[str, Any]) -> dict[str, Any]:
    """The row of the one partition."""
    (partition,) = document["partitions"]
    assert isinstance(partition, dict)
    return partition


@contextlib.contextmanager
def open_transaction(node: KafkaNode, topic: str, records: int) -> Iterator[Callable[[], None]]:
    """Writes in a transaction, which is open until what is given is called."""
    producer = Producer({"bootstrap.servers": node.address, "log_level": 2, "transactional.id": f"open-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"v" * 300, partition=0)
    producer.flush(60)
    yield lambda: producer.commit_transaction(60)


def delete_records(node: KafkaNode, topic: str, offset: int) -> None:
    """Raises the log start of a topic's partition."""
    node.delete_records(topic, offset)
    wait_for_checkpoint(node.log_dir / "log-start-offset-checkpoint", topic, offset)


def wait_for_checkpoint(file: Path, topic: str, offset: int) -> None:
    """Until the broker has written it down."""
    wait(lambda: checkpointed(file, topic) == offset, f"{file.name}: {topic} {offset}")


def checkpointed(file: Path, topic: str) -> int | None:
    """An offset of a checkpoint, of a topic's partition 0."""
    rows = [line.rsplit(" ", 2) for line in file.read_text().splitlines()[2:]] if file.exists() else []
    return next((int(offset) for name, number, offset in rows if (name, number) == (topic, "0")), None)


def settle(node: KafkaNode, topic: str, answers: Callable[[str], Answers]) -> None:
    """Until a leader has uploaded what it may and deleted what it may, and has written the checkpoints."""
    last: object = None
    since = time.monotonic()
    deadline = since + SETTLED_SECONDS
    while time.monotonic() - since < 3.0:
        listed = sorted(path.name for path in (node.log_dir / f"{topic}-0").iterdir())
        now = (answers(topic), listed, (node.log_dir / "log-start-offset-checkpoint").read_text())
        if now != last:
            last = now
            since = time.monotonic()
        assert time.monotonic() < deadline, "the leader does not settle"
        time.sleep(0.2)


def roll_and_upload(topic: str, answers: Callable[[str], Answers]) -> None:
    """Until the active segment is an empty one and everything below it is uploaded."""
    wait(lambda: answers(topic)[-5][0] == answers(topic)[-1][0] - 1, f"{topic}: the active segment is not rolled")


def wait(condition: Callable[[], bool], what: str, seconds: float = SETTLED_SECONDS) -> None:
    """Polls."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
