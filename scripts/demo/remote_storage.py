#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Remote storage of a real broker: what is in it, its lost metadata rebuilt, and its snapshots proven in turns, in one command.

A broker of Kafka 4.3.1 uploads topics, one of which is deleted and made again. Then `__remote_log_metadata` is deleted twice. The first
time its directories are written anew while the broker is stopped, the second time its records are produced. At last another topic is
uploaded to an object store, and audited with a ledger: within limits, with a run that is killed, and with an object that changes.
Each step checks itself; the first that differs ends it with exit code 1. Needs Go once, for the object store (scripts/servers/s3-server).
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker_settings import COPY_INTERVAL_MS
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from log_dirs import EMPTY_SNAPSHOT
from object_store import ObjectStore, running
from stalled_network import stalled_network
from tiered_topics import (
    METADATA,
    PARTITIONS,
    SECONDS,
    SEGMENT_BYTES,
    SETTINGS,
    TIERED,
    consumed,
    recreate_metadata_topic,
    wait_until,
)
from transcript import Transcript, demonstration, parser_of

VERSION = "4.3.1"
KEPT = "orders"
MADE_AGAIN = "events"
BOTH = (KEPT, MADE_AGAIN)
AUDITED = "payments"
BUCKET = "tiered"
SMALL_SEGMENTS = {**TIERED, SEGMENT_BYTES[VERSION]: 1500}
COPYING_IS_OFF = {"remote.log.copy.disable": "true", "local.retention.bytes": -2, "local.retention.ms": -2}


class RemoteStorage:
    """The steps, over one directory."""

    def __init__(self, work: Path, transcript: Transcript) -> None:
        self._work = work
        self._say = transcript
        self._node = KafkaNode(work / "kafka", settings=SETTINGS)
        self._remote = self._node.remote_dir
        self._log_dir = self._node.log_dir
        self._ends: dict[str, int] = {}
        self._deleted = work  # the directory with the copies of the deleted topic
        self._figures: dict[str, object] = {"broker": f"Kafka {VERSION}, KRaft, LocalTieredStorage"}

    def run(self) -> None:
        """From the first step to the last."""
        with self._node:
            self._write_topics()
            self._inventory()
            self._lose_metadata()
            self._records_file()
            self._directories()
            self._served()
            self._produced()
        with running(self._work / "s3") as store:
            self._ledger(store)
        self._say.end(self._figures)

    # ---- what a broker uploads ----

    def _write_topics(self) -> None:
        self._say.step(f"Kafka {VERSION} uploads two topics; one of them is deleted and made again")
        node = self._node
        node.start()
        for topic in BOTH:
            node.create_topic(topic, SMALL_SEGMENTS)
            node.produce(topic, 300)
            node.wait_until_copied(f"{topic}-0")
        (self._deleted,) = self._copies_of(MADE_AGAIN)
        restored = shutil.copytree(self._deleted, self._work / "restored")
        self._delete_topic(MADE_AGAIN)
        wait_until(lambda: not any(self._deleted.rglob("*.log")), lambda: "the broker has not deleted the copies")
        self._say.check("the broker has deleted the copies of the deleted topic", True)
        node.create_topic(MADE_AGAIN, SMALL_SEGMENTS)
        node.produce(MADE_AGAIN, 200)
        node.wait_until_copied(f"{MADE_AGAIN}-0")
        shutil.rmtree(self._deleted, ignore_errors=True)
        self._say.check("the new topic has an id and copies of its own", len(self._copies_of(MADE_AGAIN)), 1)
        shutil.move(restored, self._deleted)
        self._say.show("(the objects of the deleted topic are put back, as by a restore of the bucket)")
        self._ends = {topic: node.end_offset(topic) for topic in BOTH}
        self._write_audited_topic()
        self._check_served(dict.fromkeys(BOTH, 0))

    def _write_audited_topic(self) -> None:
        node = self._node
        node.create_topic(AUDITED, {SEGMENT_BYTES[VERSION]: 65536, "retention.ms": -1})
        for kind, records in ((Kind.PLAIN, 300), (Kind.COMMITTED, 900), (Kind.IDEMPOTENT, 600), (Kind.ABORTED, 300)):
            write_kind(node.address, AUDITED, kind, records)

    def _copies_of(self, topic: str) -> set[Path]:
        """The directory of remote storage of each id that a topic has had."""
        return set(self._remote.glob(f"*/{topic}-0-*"))

    def _delete_topic(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self._node.address, "log_level": 4})
        admin.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)

    # ---- tier inventory ----

    def _inventory(self) -> None:
        self._say.step("tier inventory: what is in remote storage, while the broker runs")
        keys = self._work / "keys.jsonl"
        cluster = ("--bootstrap-server", self._node.address, "--metadata", self._log_dir)
        document = self._document("tier", "inventory", self._remote, *cluster, "--keys", keys, exit_code=1)
        files = {str(path.relative_to(self._remote)): path.stat().st_size for path in self._remote.rglob("*") if path.is_file()}
        rows = [json.loads(line) for line in keys.read_text().splitlines()]
        self._say.check(
            f"--keys has each of the {len(files)} files with its size",
            {row["key"]: row["size_bytes"] for row in rows},
            files,
        )
        deleted = {row["key"] for row in rows if row["state"] == "deleted"}
        put_back = {str(path.relative_to(self._remote)) for path in self._deleted.rglob("*") if path.is_file()}
        self._say.check(f"deleted are the {len(put_back)} files that were put back, and no other", deleted, put_back)
        self._say.check("all others are live", Counter(row["state"] for row in rows)["live"], len(files) - len(put_back))
        self._figures["copies"] = sum(len(each["copies"]) for each in document["partitions"])
        self._figures["keys"] = len(files)

    # ---- tier metadata ----

    def _lose_metadata(self) -> None:
        self._say.step(f"tier metadata: records and objects agree. Then somebody deletes {METADATA}")
        self._node.stop()
        compare = (self._remote, "--metadata-log", self._log_dir, "--log-dir", self._log_dir)
        document = self._document("tier", "metadata", *compare, exit_code=1)
        self._say.check("no fact of a record differs", [each for each in _copies(document) if each["record_differences"]], [])
        self._figures["copies that agree with their records"] = document["totals"]["included"]
        self._node.start()
        recreate_metadata_topic(self._node)
        self._node.stop()
        self._say.check("the topic is empty", _sizes(self._log_dir), [0] * PARTITIONS)
        words = ("tier", "inventory", self._remote, "--metadata-log", self._log_dir, "--metadata", self._log_dir)
        inventory = self._document(*words, exit_code=1)
        self._say.check(
            "no copy is live, as no record proves it", {each["state"] for each in _copies(inventory)}, {"deleted", "unknown"}
        )

    def _records_file(self) -> None:
        self._say.step("tier metadata --records-file: the records that remote storage proves")
        file = self._work / "records.jsonl"
        words = ("tier", "metadata", self._remote, "--metadata", self._log_dir, "--log-dir", self._log_dir, "--records-file", file)
        document = self._document(*words, exit_code=0)
        lines = file.read_text().splitlines()
        live = {topic: _bases(self._current(topic)) for topic in BOTH}
        self._say.check("two records for each copy of the present topics", len(lines), 2 * sum(map(len, live.values())))
        included = {
            topic: sorted(each["start_offset"] for each in _copies(document, topic) if each["record_decision"] == "included")
            for topic in BOTH
        }
        self._say.check("none for the copies of the deleted topic", included, live)
        self._figures["records rebuilt"] = len(lines)

    def _current(self, topic: str) -> Path:
        """The directory with the copies of the topic that exists."""
        (directory,) = self._copies_of(topic) - {self._deleted}
        return directory

    def _directories(self) -> None:
        self._say.step("tier metadata --log-dirs: all replicas of the topic, while its brokers are stopped; undo; once more")
        for number in range(PARTITIONS):
            shutil.rmtree(self._log_dir / f"{METADATA}-{number}")
        words = ("tier", "metadata", self._remote, "--log-dirs", self._log_dir)
        document = self._document(*words, "--receipt", self._work / "receipt.jsonl", exit_code=0)
        written = {Path(each["path"]).name: each["records"] for each in document["log_dirs"]}
        self._say.check(
            "each partition of the topic is there", list(written), [f"{METADATA}-{number}" for number in range(PARTITIONS)]
        )
        self._say.check("they have all records", sum(written.values()), self._figures["records rebuilt"])
        self._say.snaprebuild("undo", self._work / "receipt.jsonl", exit_code=0)
        self._say.check("undo has removed them", _sizes(self._log_dir), [])
        self._document(*words, "--receipt", self._work / "receipt-2.jsonl", exit_code=0, answer_only=True)

    def _served(self) -> None:
        self._say.step("the broker starts: it serves every offset, and its uploads and deletions go on")
        node = self._node
        before = node.remote_bases(KEPT)
        node.start()
        self._check_served(dict.fromkeys(BOTH, 0))
        node.produce(KEPT, 200)
        node.wait_until_copied(f"{KEPT}-0", above=before[-1])
        after = node.remote_bases(KEPT)
        self._say.check(f"{len(after) - len(before)} new segments are uploaded, and no old one again", before < after)
        start = before[3] + 1
        node.delete_records(KEPT, start)
        wait_until(lambda: node.remote_bases(KEPT) == after[3:], lambda: node.remote_bases(KEPT))
        self._say.check(f"DeleteRecords up to {start} deletes the three copies below, and no other", True)
        self._ends[KEPT] = node.end_offset(KEPT)
        self._check_served({KEPT: start, MADE_AGAIN: 0})
        self._figures["offsets served from rebuilt metadata"] = sum(self._ends.values())

    def _check_served(self, starts: Mapping[str, int]) -> None:
        for topic, start in starts.items():
            end = self._ends[topic]
            offsets = consumed(self._node, topic, start, end)
            self._say.check(f"a consumer gets every offset of {topic} from {start} to {end - 1}", offsets, list(range(start, end)))

    def _produced(self) -> None:
        self._say.step(f"{METADATA} is lost again, and the broker runs without it: tier metadata --produce-to")
        node = self._node
        for topic in BOTH:
            node.set_topic(topic, COPYING_IS_OFF)
        recreate_metadata_topic(node)
        node.stop()
        node.start()
        before = node.remote_bases(KEPT)
        sizes = [node.remote_files(f"{KEPT}-0")[f"{base:020d}.log"].stat().st_size for base in before]
        node.set_topic(KEPT, {"retention.bytes": sum(sizes[-4:]) + 2500})
        evidence = (self._remote, "--metadata", self._log_dir, "--log-dir", self._log_dir, "--produce-to", node.address)
        words = ("tier", "metadata", *evidence, "--topic", KEPT)
        self._say.snaprebuild(*words, exit_code=3)
        dry = self._document(*words, "--dry-run", exit_code=0)
        deleted = [each["start_offset"] for each in dry["expected_deletions"]]
        self._say.check(f"retention will delete the {len(deleted)} oldest copies", deleted, before[: len(deleted)])
        self._document(*words, "--deletes", len(deleted), exit_code=0, answer_only=True)
        left = before[len(deleted) :]
        wait_until(lambda: node.remote_bases(KEPT) == left, lambda: node.remote_bases(KEPT))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)  # four more rounds: it deletes nothing else
        self._say.check("it deletes these, and no other", node.remote_bases(KEPT), left)
        self._document("tier", "metadata", *evidence, "--topic", MADE_AGAIN, exit_code=0, answer_only=True)
        self._check_served({KEPT: left[0], MADE_AGAIN: 0})
        node.stop()

    # ---- tier audit and tier repair with a ledger ----

    def _ledger(self, store: ObjectStore) -> None:
        store.client.create_bucket(Bucket=BUCKET)
        location = f"s3://{BUCKET}/kafka"
        audit = ("tier", "audit", location)
        self._say.step(f"another topic is uploaded to an object store, in the layout of Aiven's plugin: {location}")
        self._document("tier", "upload", location, self._log_dir, "--topic", AUDITED, exit_code=0)
        whole = self._document(*audit, exit_code=0, answer_only=True)
        copies = len(whole["partitions"][0]["copies"])
        read_bytes = whole["estimate"]["read_bytes"]
        self._say.check(f"all {copies} snapshots are right", whole["totals"]["right"], copies)
        self._turns(store, (*audit, "--ledger", self._work / "audit.ledger"), copies, read_bytes)
        self._corruption(store, location, copies, 2 * read_bytes // copies)
        self._repair(store, location, copies)

    def _turns(self, store: ObjectStore, audit: tuple[object, ...], copies: int, read_bytes: int) -> None:
        self._say.step("tier audit --ledger in turns: a limit of bytes, a run that is killed, and the rest")
        first = self._document(*audit, "--set", f"max_read_bytes={read_bytes // 3}", exit_code=0)["ledger"]
        self._say.check("a part is proven", 0 < first["proven"] < copies)
        self._killed(store, audit, read_bytes // 3)
        last = self._document(*audit, exit_code=0, answer_only=True)["ledger"]
        self._say.check("the next run proves all", last["proven"], copies)
        self._say.check("it had less to read than the first one left", last["read_segments"] < copies - first["read_segments"])
        lines = [json.loads(line) for line in (self._work / "audit.ledger").read_text().splitlines()]
        segments = Counter(line["segment_id"] for line in lines if line.get("step") == "segment")
        self._say.check("no segment was read twice", sorted(segments.values()), [1] * copies)
        self._figures["segments proven in turns"] = copies

    def _killed(self, store: ObjectStore, audit: tuple[object, ...], read_bytes: int) -> None:
        """A run whose store stops answering after some bytes, and that is killed then."""
        with stalled_network(store.endpoint, read_bytes) as network:
            process = self._say.begin(*audit, "--s3-endpoint-url", network.endpoint, shown=audit)
            assert network.stalled.wait(SECONDS), "the run needs less than was let through"
            process.kill()
            process.wait()
        self._say.check("kill -9, while it reads", process.returncode, -signal.SIGKILL)

    def _corruption(self, store: ObjectStore, location: str, copies: int, read_bytes: int) -> None:
        self._say.step("one bit of one object changes: the next turn reads that object first, however little it may read")
        audit = ("tier", "audit", location, "--ledger", self._work / "audit.ledger", "--set", f"max_read_bytes={read_bytes}")
        key = sorted(key for key in store.files(location) if key.endswith(".log"))[copies // 2]
        data = store.get(f"{location}/{key}")
        store.put(f"{location}/{key}", data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
        found = self._document(*audit, exit_code=4)
        unproven = [copy["start_offset"] for copy in _copies(found) if copy["verdict"] == "unproven"]
        self._say.check("that copy is not proven any more, and no other", unproven, [int(Path(key).name[:20])])
        store.put(f"{location}/{key}", data)
        found = self._document(*audit, exit_code=0, answer_only=True)
        self._say.check("with the right bytes again, all is proven", found["ledger"]["proven"], copies)

    def _repair(self, store: ObjectStore, location: str, copies: int) -> None:
        self._say.step("a snapshot is emptied; tier repair reads what the ledger lacks")
        ledger = ("--ledger", self._work / "audit.ledger")
        _empty_snapshot(store, location, copies // 2)
        self._document("tier", "audit", location, *ledger, exit_code=1)
        repair = ("tier", "repair", location, *ledger, "--allow-unverified")
        self._document(*repair, "--dry-run", exit_code=0)
        self._document(*repair, "--receipt", self._work / "repair.jsonl", exit_code=0, answer_only=True)
        found = self._document("tier", "audit", location, *ledger, exit_code=0, answer_only=True)
        self._say.check("all is proven", found["ledger"]["proven"], copies)

    # ---- commands ----

    def _document(self, *words: object, exit_code: int, answer_only: bool = False) -> Any:
        """Runs a command, shows what it prints or its answer alone, and returns its JSON document."""
        file = self._work / "document.json"
        self._say.snaprebuild(*words, exit_code=exit_code, document=file, answer_only=answer_only)
        return json.loads(file.read_text())


def _copies(document: Any, topic: str | None = None) -> list[Any]:
    """The copies of a document, of all topics or of one."""
    return [copy for each in document["partitions"] if topic in (None, each["topic"]) for copy in each["copies"]]


def _bases(directory: Path) -> list[int]:
    """Base offsets of the copies in a directory of LocalTieredStorage."""
    return sorted(int(path.name[:20]) for path in directory.glob("*.log"))


def _sizes(log_dir: Path) -> list[int]:
    """Bytes of the log of each partition of the metadata topic that is there."""
    partitions = sorted(log_dir.glob(f"{METADATA}-[0-9]"))
    return [sum(path.stat().st_size for path in partition.glob("*.log")) for partition in partitions]


def _empty_snapshot(store: ObjectStore, location: str, number: int) -> None:
    """Gives a copy the snapshot of a broker that has forgotten all producers."""
    manifest_key = sorted(key for key in store.files(location) if key.endswith(".rsm-manifest"))[number]
    indexes_key = f"{manifest_key.removesuffix('.rsm-manifest')}.indexes"
    manifest = json.loads(store.get(f"{location}/{manifest_key}"))
    indexes = store.get(f"{location}/{indexes_key}")
    manifest["segmentIndexes"]["producerSnapshot"] = {"position": len(indexes), "size": len(EMPTY_SNAPSHOT)}
    store.put(f"{location}/{indexes_key}", indexes + EMPTY_SNAPSHOT)
    store.put(f"{location}/{manifest_key}", json.dumps(manifest, separators=(",", ":")).encode())


def main() -> None:
    """The command."""
    options = parser_of("scripts/demo/remote_storage.py", __doc__).parse_args()
    with demonstration(options, "demo-remote-storage") as transcript:
        RemoteStorage(transcript.work, transcript).run()


if __name__ == "__main__":
    main()
