"""A cluster of 4.4 as it begins: share groups, transaction version 2 and eligible leader replicas are on, and used."""

import re
import subprocess
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild
from kafka_classpath import NEWEST_BROKER, java_output, java_program
from kafka_images import Kafka, as_kafka
from kafka_node import KafkaNode
from log_dirs import snapshots_in

from formats.metadata.cluster_metadata import ClusterMetadataRecord, write_cluster_metadata_record
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.log import open_metadata_log

pytestmark = [pytest.mark.broker, pytest.mark.full]

TRANSACTIONS = 30
SHARED = 12
"""Records that the share group takes."""
LEVELS = {"metadata.version": 33, "transaction.version": 2, "share.version": 2, "eligible.leader.replicas.version": 1}
SETTINGS = {f"share.coordinator.state.topic.{name}": 1 for name in ("num.partitions", "replication.factor", "min.isr")}
PARTITIONS = ("orders-0", "__share_group_state-0", "__transaction_state-0", "__consumer_offsets-0")


def kafkas_image(log_dir: Path) -> tuple[dict[str, object], dict[str, object]]:
    """The metadata log as we fold it, and as the loader of 4.4 does."""
    fold = ImageFold()
    program = java_program("Json", "MetadataImages", version=NEWEST_BROKER)
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        kafka = Kafka(process)
        kafka.begin()
        for batch in open_metadata_log(str(log_dir)).walk():
            fold.apply_batch(batch)
            records = [each.content for each in batch.records if isinstance(each.content, ClusterMetadataRecord)]
            if records:
                kafka.load(batch.base_offset, batch.leader_epoch, [write_cluster_metadata_record(each) for each in records])
        answer = kafka.image()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    return as_kafka(fold.image(), fold.fault_count), answer


def alarms(run: Run) -> list[str]:
    """Codes of what is not a note."""
    return [each["code"] for each in run.document["findings"] if each["severity"] != "note"]


def dumped_records(text: str) -> int:
    return len(re.findall(r"^\| offset: ", text, re.MULTILINE))


def test_what_a_cluster_of_4_4_writes_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    with (
        KafkaNode(tmp_path / "1", version=NEWEST_BROKER, settings=SETTINGS) as first,
        KafkaNode(tmp_path / "2", version=NEWEST_BROKER, settings=SETTINGS, controller=first) as second,
    ):
        first.start()
        second.start()
        first.create_topic("orders", {"internal.segment.bytes": 1500, "min.insync.replicas": 2}, replicas=2)
        first.wait_for_replicas("orders", leader=first.partition("orders").leader, in_sync={1, 2})
        requests = (f"transactions orders tx {TRANSACTIONS}", f"share orders workers {SHARED}")
        assert java_output("NewestClient", arguments=[first.address], lines=requests, version=NEWEST_BROKER) == ["ok", "ok"]
        second.stop()
        first.wait_for_replicas("orders", leader=1, in_sync={1})
        first.stop()

        # The features were used: an epoch for each transaction, share state, and a replica that is eligible outside of the ISR.
        logs = [path for node in (first, second) for name in PARTITIONS if (path := node.log_dir / name).is_dir()]
        assert {path.name for path in logs} == set(PARTITIONS)
        own = {path: snapshots_in(path) for path in logs}
        orders_of_first = own[first.log_dir / "orders-0"]
        (producer,) = orders_of_first[max(orders_of_first)]
        assert producer.epoch >= TRANSACTIONS - 1
        image = in_json("cluster image", first.log_dir).document
        assert LEVELS.items() <= image["features"].items()
        (orders,) = [each for each in image["topics"] if each["topic"] == "orders"]
        assert [(each["isr"], each["elr"]) for each in orders["partitions"]] == [([], [1, 2])]
        for path in logs:
            log = path / f"{0:020d}.log"
            theirs = first.tool(first.release.dump_tool, "--deep-iteration", "--files", str(log))
            ours = snaprebuild("inspect dump", log, "--deep").stdout
            assert dumped_records(ours) == dumped_records(theirs) > 0, path

        # And all of it is read as what it is: healthy.
        for verb in ("scan", "verify", "cluster check"):
            for node in (first, second):
                run = in_json(verb, node.log_dir)
                assert (run.exit_code, alarms(run)) == (0, []), (verb, node.log_dir)
        features = {each["name"]: each for each in in_json("cluster check", first.log_dir).document["features"]}
        assert {name: features[name]["finalized_level"] for name in LEVELS} == LEVELS
        assert [each["held_back_by"] for each in features.values()] == [[]] * len(features)
        for number, path in enumerate(logs):
            out = tmp_path / "out" / str(number)
            assert in_json("rebuild", path, "--out", out, "--boundaries", "all").exit_code == 0
            rebuilt = snapshots_in(next(each.parent for each in out.rglob("*.snapshot")))
            assert {offset: rebuilt[offset] for offset in own[path]} == own[path], path
        ours, theirs = kafkas_image(first.log_dir)
        assert ours == theirs
