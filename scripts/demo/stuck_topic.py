#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""The scenario that this project exists for, on real brokers, in one command.

A broker of Kafka 2.7 writes a topic and is upgraded; tiered storage is switched on, and the topic is stuck. Its snapshots are rebuilt,
and the upload continues. Then the control case: empty snapshots in their place. Each step checks itself; the first that differs ends it
with exit code 1.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker_settings import COPY_INTERVAL_MS
from kafka_node import KafkaNode
from kafka_release import RELEASES
from kinds_of_data import Kind, LastBatch, retry, write_kind, write_to_be_retried
from log_dirs import EMPTY_SNAPSHOT, entries_in, snapshot_name
from transcript import Transcript, demonstration, parser_of
from wire import Wire

OLD = "2.7.2"
TOPIC = "story"
PARTITION = "story-0"
SEGMENT_BYTES = 65536
UPLOAD_SECONDS = 180.0
PRODUCER_ID_BLOCK = 1000
"""A controller gives them out in blocks; after its restart a broker asks for the next one."""
TIERED = {"remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": -2}
BAD = re.compile("NullPointerException|Corrupt|NonMonotonic")
COPIED = r"Copied 0000\d+\.log to remote storage"


@dataclass(frozen=True)
class WrittenData:
    """Offsets of the records that the old broker was given.

    Attributes:
        first: the last batch of a producer that will send it again.
        second: that of another one.
        last_stable: where the transaction begins that no one ends.
        end: log end offset.
    """

    first: LastBatch
    second: LastBatch
    last_stable: int
    end: int


def write_data(node: KafkaNode) -> WrittenData:
    """All kinds of data, over several segments."""
    node.create_topic(TOPIC, {"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})
    for kind, records in ((Kind.PLAIN, 500), (Kind.IDEMPOTENT, 600), (Kind.COMMITTED, 500), (Kind.ABORTED, 300)):
        write_kind(node.address, TOPIC, kind, records)
    first = write_to_be_retried(node.port, TOPIC, 50)
    second = write_to_be_retried(node.port, TOPIC, 50)
    write_kind(node.address, TOPIC, Kind.PLAIN, 500)
    last_stable = node.end_offset(TOPIC, stable=True)
    write_kind(node.address, TOPIC, Kind.HANGING, 30)
    write_kind(node.address, TOPIC, Kind.IDEMPOTENT, 500)
    return WrittenData(first, second, last_stable, node.end_offset(TOPIC))


class Scenario:
    """The steps, over one directory."""

    def __init__(self, work: Path, version: str, transcript: Transcript, *, with_follower: bool) -> None:
        self._work = work
        self._version = version
        self._with_follower = with_follower
        self._say = transcript
        self._root = work / "kafka"
        self._written: WrittenData
        self._seconds: dict[str, object] = {}

    @property
    def _partition(self) -> Path:
        return self._root / "kafka-logs" / PARTITION

    def run(self) -> None:
        """From the first step to the last."""
        self._an_old_broker_writes()
        self._upgrade()
        self._stuck()
        before = shutil.copytree(self._root, self._work / "counter")
        self._rebuild()
        self._moves()
        if self._with_follower:
            self._follower_scenario()
        self._control_case(before)
        rolled = len(self._bases()) - 1
        sizes = sum(path.stat().st_size for path in self._partition.glob("*.log"))
        offsets = f"last stable offset {self._written.last_stable} of {self._written.end}"
        self._say.end(
            {
                "written by": f"Kafka {OLD}, ZooKeeper {RELEASES[OLD].zookeeper}",
                "stuck and freed on": f"Kafka {self._version}, {self._cluster()}",
                "partition": f"{rolled + 1} segments, {sizes / 1024:.0f} KiB, {offsets}",
                **self._seconds,
            }
        )

    def _cluster(self) -> str:
        zookeeper = RELEASES[self._version].zookeeper
        return "KRaft" if zookeeper is None else f"ZooKeeper {zookeeper}"

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self._partition.glob("*.log"))

    def _due(self) -> list[int]:
        """First offsets of the rolled segments below the last stable offset."""
        bases = self._bases()
        return [base for base, following in itertools.pairwise(bases) if following <= self._written.last_stable]

    def _snapshots(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self._partition.glob("*.snapshot"))}

    def _an_old_broker_writes(self) -> None:
        self._say.step(f"Kafka {OLD} with ZooKeeper {RELEASES[OLD].zookeeper} writes a topic")
        with KafkaNode(self._root, version=OLD) as node:
            node.start()
            self._written = write_data(node)
            self._say.check("a transaction hangs", node.end_offset(TOPIC, stable=True), self._written.last_stable)
            again = retry(node.port, TOPIC, self._written.first)
            self._say.check("a batch that a producer sends again is known as a duplicate", again, self._written.first.offset)
            node.stop_all()
        bases = self._bases()
        left = [int(name[:20]) for name in self._snapshots()]
        self._say.show(f"segments {bases[0]} .. {bases[-1]}: {len(bases)}; log end {self._written.end}; snapshots left: {left}")
        self._say.check("more than ten segments are rolled", len(bases) > 10)
        self._say.check(f"Kafka {OLD} left snapshots for the last ones alone", left, [*bases[-2:], self._written.end])

    def _upgrade(self) -> None:
        if RELEASES[self._version].zookeeper is not None:
            return  # the log directory and the data of ZooKeeper start as they are
        old = self._partition
        self._root = self._work / "kafka-new"
        self._say.step(f"the log moves to Kafka {self._version} in KRaft: into the place of an empty topic of a stopped broker")
        with KafkaNode(self._root, version=self._version) as node:
            node.start()
            node.create_topic(TOPIC, {"retention.ms": -1})
            with Wire(node.port) as wire:
                given_out, _ = wire.init_producer_id()
            node.stop_all()
            node.plant(PARTITION, old, self._written.end)
        # A new producer must not get an id that is in the log: its first records could be lost.
        next_id = (given_out // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK
        last_producer_id = max(entry.producer_id for entry in entries_in(max(self._partition.glob("*.snapshot")).read_bytes()))
        self._say.check("the new cluster gives out ids above those of the log", last_producer_id < next_id)
        facts = (f"all below {next_id}",)
        self._say.snaprebuild("cluster", "image", self._root / "kafka-logs", exit_code=0, facts=facts)
        self._say.check("the files of the log are there", len(self._bases()), len(list(old.glob("*.log"))))

    def _node(self, settings: Mapping[str, object] | None = None) -> KafkaNode:
        return KafkaNode(self._root, version=self._version, settings=settings)

    def _stuck(self) -> None:
        self._say.step(f"Kafka {self._version} ({self._cluster()}) starts on it, and tiered storage is switched on")
        with self._node() as node:
            mark = node.start()
            node.set_topic(TOPIC, TIERED)
            node.wait_for_log(r"java\.lang\.NullPointerException", mark, UPLOAD_SECONDS, times=3)
            lines = node.log_since(mark).splitlines()
            at = next(number for number, line in enumerate(lines) if line.startswith("java.lang.NullPointerException"))
            self._say.show("\n".join(line[:180] for line in lines[at - 1 : at + 4]))
            self._say.check("nothing is uploaded", node.remote_files(PARTITION), {})
            node.stop_all()
        self._say.step("the broker is stopped: what blocks the upload")
        bases = self._bases()
        snapshots = self._snapshots()
        missing = [base for base in bases[1:] if snapshot_name(base) not in snapshots]
        blocked = rf"{PARTITION} +{len(missing)} .*no snapshot"
        self._say.snaprebuild("scan", self._root / "kafka-logs", "--topic", TOPIC, exit_code=1, facts=(blocked,))

    def _rebuild(self) -> None:
        self._say.step("its snapshots are rebuilt")
        before = self._snapshots()
        bases = self._bases()
        written = len(bases) - 1 - len(before) + 1  # one of those that are there is at the log end
        began = time.monotonic()
        receipt = ("--receipt", self._work / "receipt.jsonl")
        facts = (rf"{written} snapshots? written", rf"{written} proven")
        self._say.snaprebuild("rebuild", self._root / "kafka-logs", "--topic", TOPIC, *receipt, exit_code=0, facts=facts)
        self._seconds["rebuild"] = f"{written} snapshots in {time.monotonic() - began:.1f} s"
        after = self._snapshots()
        self._say.check("every boundary has one", list(after), [snapshot_name(each) for each in [*bases[1:], self._written.end]])
        self._say.check("what was there is as it was", {name: after[name] for name in before}, before)
        self._say.snaprebuild("verify", self._root / "kafka-logs", "--topic", TOPIC, exit_code=0)

    def _moves(self) -> None:
        self._say.step(f"Kafka {self._version} starts again: the topic moves")
        due = self._due()
        files = self._snapshots()
        with self._node() as node:
            began = time.monotonic()
            mark = node.start()
            node.wait_for_log(COPIED, mark, UPLOAD_SECONDS, times=len(due))
            self._seconds["from the start to the last upload"] = f"{len(due)} segments in {time.monotonic() - began:.1f} s"
            time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds: it finds nothing else that it may upload
            producers = retry(node.port, TOPIC, self._written.first)
            node.stop_all()
            bad = [line for line in node.log_since(mark).splitlines() if BAD.search(line)]
            remote = node.remote_files(PARTITION)
        self._say.check("no exception", bad, [])
        uploaded = sorted(int(name[:20]) for name in remote if name.endswith(".log"))
        self._say.check(f"every rolled segment below the last stable offset is uploaded: {len(due)}, and no other", uploaded, due)
        following = dict(itertools.pairwise(self._bases()))
        pairs = [(remote[snapshot_name(base)].read_bytes(), files[snapshot_name(following[base])]) for base in due]
        self._say.check("each with our snapshot, byte for byte", all(mine == theirs for theirs, mine in pairs))
        known_at_end = len(entries_in(pairs[-1][0]))
        self._say.check(f"the last of them knows {known_at_end} producers", known_at_end > 0)
        self._say.check("a retry is a duplicate", producers, self._written.first.offset)
        self._say.step("what the broker kept, and what is in remote storage")
        self._say.snaprebuild("verify", "--written-by", self._work / "receipt.jsonl", exit_code=0, facts=("kept",))
        tier = (self._root / "remote", "--metadata-log", self._root / "kafka-logs")
        self._say.snaprebuild("tier", "audit", *tier, exit_code=0, facts=(rf"{len(due)} right",))
        # From 3.7.1 on each NullPointerException leaves the announcement of a copy that was never written.
        phantoms = () if self._version == "3.6.2" else (rf"{len(due)} live, [1-9]\d* phantom",)
        inventory = ("tier", "inventory", *tier)
        self._say.snaprebuild(*inventory, exit_code=1 if phantoms else 0, facts=(rf"{len(due)} live", *phantoms))

    def _follower_scenario(self) -> None:
        """A replica that starts from remote storage forgets its producers, in today's Kafka: no matter who wrote the snapshots there."""
        self._say.step("a second broker: its replica starts from remote storage, where the first has deleted what is there")
        second_root = self._work / "kafka-second"
        on_disk = self._bases()[len(self._due())]
        with self._node(settings={"log.retention.check.interval.ms": 500}) as first:
            mark = first.start()
            first.set_topic(TOPIC, {"local.retention.ms": 1})
            first.wait_for_log(rf"Incremented local log start offset to {on_disk}\b", mark, UPLOAD_SECONDS)
            with KafkaNode(second_root, version=self._version, controller=first) as second:
                second.start()
                first.reassign(TOPIC, [1, 2])
                first.wait_for_replicas(TOPIC, leader=1, in_sync={1, 2})
                second.stop_all()
            first.stop_all()
        replica = second_root / "kafka-logs"
        bases = sorted(int(path.stem) for path in (replica / PARTITION).glob("*.log"))
        self._say.check("its log begins after what is in remote storage", bases[0], on_disk)
        tier = (self._root / "remote", replica, "--metadata-log", self._root / "kafka-logs")
        self._say.snaprebuild("follower", "check", *tier, exit_code=1, facts=("lost-producer-state",))
        self._say.snaprebuild("follower", "repair", *tier, "--set-aside", exit_code=0, facts=("written",))
        self._say.snaprebuild("follower", "check", *tier, exit_code=0, facts=("intact",))
        with self._node() as first:
            first.start()
            with KafkaNode(second_root, version=self._version, controller=first) as second:
                second.start()
                first.wait_for_replicas(TOPIC, leader=1, in_sync={1, 2})
                first.reassign(TOPIC, [2])
                first.wait_for_replicas(TOPIC, leader=2, in_sync={2})
                producers = retry(second.port, TOPIC, self._written.second)
                self._say.check("it leads, and a retry is a duplicate", producers, self._written.second.offset)
                second.stop_all()
            first.stop_all()

    def _control_case(self, root: Path) -> None:
        """Empty snapshots in the directory that was copied before the rebuild: what they cost."""
        reported = self._written
        self._root = root
        self._say.step("the control case: the same disk, and the ten bytes of an empty snapshot at every boundary")
        boundaries = [*self._bases()[1:], reported.end]
        for boundary in boundaries:
            (self._partition / snapshot_name(boundary)).write_bytes(EMPTY_SNAPSHOT)
        with self._node() as node:
            mark = node.start()
            node.wait_for_log(COPIED, mark, UPLOAD_SECONDS, times=len(boundaries) - 1)
            self._say.check("no exception: it looks well", BAD.search(node.log_since(mark)), None)
            above = len(boundaries) - 1 - len(self._due())
            self._say.check(f"{above} segments above the last stable offset went up, too: the transaction is forgotten", above > 0)
            self._say.check(
                "consumers are given what the open transaction wrote", node.end_offset(TOPIC, stable=True), reported.end
            )
            accepted = retry(node.port, TOPIC, reported.first)
            self._say.check("the same retry is ACCEPTED A SECOND TIME, at the end of the log", accepted, reported.end)
            node.stop_all()
        tier = (self._root / "remote", "--metadata-log", self._root / "kafka-logs")
        self._say.snaprebuild("verify", self._root / "kafka-logs", "--topic", TOPIC, exit_code=1, facts=(r"\d+ false empty",))
        self._say.snaprebuild("tier", "audit", *tier, exit_code=1, facts=("false-empty",))

        self._say.step("the same disk once more, with ours in place of the empty ones (remote storage keeps what went up)")
        self._say.snaprebuild("rebuild", self._root / "kafka-logs", "--topic", TOPIC, "--set-aside", exit_code=0)
        with self._node() as node:
            node.start()
            self._say.check(
                "a retry of the other producer is a duplicate", retry(node.port, TOPIC, reported.second), reported.second.offset
            )
            self._say.check("the transaction is open again", node.end_offset(TOPIC, stable=True), reported.last_stable)
            if node.release.has_describe_producers:
                with Wire(node.port) as wire:
                    producers = wire.describe_producers(TOPIC)
                newest = max(self._partition.glob("*.snapshot"))
                theirs = {(each.producer_id, each.last_sequence, each.transaction_start_offset) for each in producers.values()}
                mine = {
                    (each.producer_id, each.last_sequence, each.current_txn_first_offset)
                    for each in entries_in(newest.read_bytes())
                }
                self._say.check(
                    f"DescribeProducers lists the {len(mine)} producers of our snapshot at {int(newest.stem)}", theirs, mine
                )
            node.stop_all()


def main() -> None:
    """The command."""
    parser = parser_of("scripts/demo/stuck_topic.py", __doc__)
    tiered = [version for version, release in RELEASES.items() if release.has_tiering]
    parser.add_argument(
        "--to", choices=tiered, default="3.9.2", help="the release that the broker is upgraded to (default: %(default)s)"
    )
    follower = "also a second broker, whose replica starts from remote storage and forgets its producers; in KRaft only"
    parser.add_argument("--follower", action="store_true", help=follower)
    options = parser.parse_args()
    if options.follower and RELEASES[options.to].zookeeper is not None:
        parser.error("--follower goes with a release in KRaft: --to 4.3.1 or --to 4.4.0")
    with demonstration(options, "demo-stuck-topic") as transcript:
        Scenario(transcript.work, options.to, transcript, with_follower=options.follower).run()


if __name__ == "__main__":
    main()
