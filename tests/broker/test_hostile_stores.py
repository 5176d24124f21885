"""Odd stores of real brokers: what the verbs show is what the broker recorded, and with rebuilt records it serves each offset again."""

import shutil
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import kafka_node
import pytest
from broker_settings import COPY_INTERVAL_MS
from cluster_copies import CopyStore, bucket_store, check_records, local_store, named, rebuild, recorded, run
from command import Run
from tiered_cluster import METADATA, SECONDS, TieredCluster, tiered_cluster, wait_until

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import metadata_partition

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.night]

WIDE = 20
"""Partitions of a topic: more than the metadata topic has."""
METADATA_PARTITIONS = 5
SETTINGS = {"rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS}
SERVED = ("__named", "a.b-0-c_d", "stopped", "aborted", "again", "cut", "off")
GROWING = ("__named", "a.b-0-c_d", "aborted", "again", "cut")
VERSION = "4.3.1"
OTHER_CLUSTER = "YW5vdGhlci1jbHVzdGVyMQ"


def write_history(cluster: TieredCluster) -> None:
    """Topics with names like those of Kafka, cut logs, switched off copies and remote storage, and many partitions."""
    check_that_no_compacted_topic_is_tiered(cluster)
    cluster.create("wide", (1,), partitions=WIDE)
    for partition in range(WIDE):
        cluster.produce("wide", 80, partition=partition)
    for topic in SERVED:
        cluster.create(topic, (1,))
        cluster.produce(topic, 80)
    cluster.produce("aborted", 60, aborts="aborts")
    cluster.produce("aborted", 60)
    cluster.wait_until_copied(*SERVED)
    wait_until(lambda: local_segments(cluster) == {1}, lambda: local_segments(cluster))
    cluster.delete("again")
    cluster.create("again", (1,))
    cluster.produce("again", 120)
    cluster.produce("cut", 40)
    cluster.wait_until_copied("again", "cut")
    cluster.running_node().delete_records("cut", 40)
    local = {"local_retention_ms": -2, "local_retention_bytes": -2}
    cluster.set("stopped", remote_log_copy_disable="true", **local)
    cluster.produce("stopped", 80)
    cluster.set("off", remote_storage_enable="false", remote_log_delete_on_disable="true", **local)
    wait_until(lambda: not cluster.remote_bases("off"), lambda: cluster.remote_bases("off"))
    wait_until(lambda: cluster.remote_bases("cut")[0] > 0, lambda: cluster.remote_bases("cut"))


def local_segments(cluster: TieredCluster) -> set[int]:
    """How many segments the partitions of the wide topic have on the broker's disk."""
    return {len(cluster.local_bases("wide", 1, partition)) for partition in range(WIDE)}


def check_that_no_compacted_topic_is_tiered(cluster: TieredCluster) -> None:
    """Brokers refuse it: no store has a copy of one."""
    from confluent_kafka import KafkaException

    for policy in ("compact", "compact,delete"):
        with pytest.raises(KafkaException, match=r"compacted|cleanup"):
            cluster.create("compacted", (1,), cleanup_policy=policy)


def served(cluster: TieredCluster) -> dict[tuple[str, int], dict[int, bytes | None]]:
    """Values that a consumer gets from each partition."""
    values = {(topic, 0): cluster.read(topic) for topic in SERVED}
    return values | {("wide", partition): cluster.read("wide", partition=partition) for partition in range(WIDE)}


def check_verbs(cluster: TieredCluster, store: CopyStore, root: Path) -> None:
    """Each copy is live, and right as far as two others confirm it: retention has left one of the topic that was cut."""
    logs = named("--metadata-log", cluster)
    inventory = run("tier inventory", store, *logs)
    assert (inventory.exit_code, inventory.document["verified"]) == (0, True), inventory.stderr
    shown = {copy["segment_id"] for each in inventory.document["partitions"] for copy in each["copies"] if copy["state"] == "live"}
    assert shown == {uuid_to_text(segment) for segment, (_, is_live) in recorded(cluster).items() if is_live}
    whole = run("tier audit", store, *logs)
    turn = run("tier audit", store, *logs, "--ledger", root / "ledger")
    repair = run("tier repair", store, *logs, "--ledger", root / "ledger", "--dry-run")
    for each in (whole, turn, repair):
        assert set(each.codes) <= {"tier-unproven"}, each.stderr
    verdicts = [
        {(copy["segment_id"], copy["verdict"]) for each in audit.document["partitions"] for copy in each["copies"]}
        for audit in (whole, turn)
    ]
    assert verdicts[0] == verdicts[1]
    unproven = {each["topic"] for each in whole.document["partitions"] for copy in each["copies"] if copy["verdict"] == "unproven"}
    assert unproven <= {"cut"}
    assert repair.document["copies"] == []


def check_cut_metadata(cluster: TieredCluster, store: CopyStore) -> None:
    """The first half of the metadata topic is deleted, as by its retention: brokers that start do not find the copies, and all say so."""
    from confluent_kafka import TopicPartition

    before = recorded(cluster)
    admin = cluster.admin()
    middles = {number: cluster.offsets(METADATA, number)[1] // 2 for number in range(METADATA_PARTITIONS)}
    cuts = [TopicPartition(METADATA, number, offset) for number, offset in middles.items() if offset > 0]
    for future in admin.delete_records(cuts).values():
        future.result(SECONDS)
    running = run("tier inventory", store, "--bootstrap-server", cluster.address)
    cluster.stop()
    stopped = run("tier inventory", store, *named("--metadata-log", cluster))
    assert running.document["states"] == stopped.document["states"]
    found = {uuid_to_text(segment) for segment, (_, is_live) in recorded(cluster).items() if is_live}
    gone = {uuid_to_text(segment) for segment, (_, is_live) in before.items() if is_live} - found
    concerned = {
        metadata_partition(record.id.topic_id_partition, METADATA_PARTITIONS)
        for segment, (record, _) in before.items()
        if record.id is not None and uuid_to_text(segment) in gone
    }
    assert gone
    for each in (running, stopped):
        assert each.exit_code == 1, each.stderr
        assert each.codes["metadata-topic-cut"] == len(cuts)
        assert each.codes["tier-record-gone"] == len(concerned)
        states = {copy["segment_id"]: copy["state"] for part in each.document["partitions"] for copy in part["copies"]}
        assert {states[segment] for segment in found} == {"live"}
        assert {states[segment] for segment in gone} == {"unverified"}


def test_an_odd_store_of_one_broker(tmp_path: Path) -> None:
    with tiered_cluster(tmp_path, VERSION, brokers=1, settings=SETTINGS) as cluster:
        store = local_store(tmp_path)
        cluster.start()
        write_history(cluster)
        values = served(cluster)
        cluster.stop()
        check_verbs(cluster, store, tmp_path)
        check_records(cluster, store, tmp_path / "records.jsonl")
        copies = {topic: store.bases(topic) for topic in (*SERVED, "wide")}
        cluster.start()
        rebuild(cluster, store, dict.fromkeys(range(METADATA_PARTITIONS), (1,)), tmp_path / "receipt.jsonl")
        assert served(cluster) == values
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert {topic: store.bases(topic) for topic in copies} == copies
        for topic in GROWING:
            cluster.produce(topic, 80)
        cluster.wait_until_copied(*GROWING)
        for topic in GROWING:
            new = sorted(set(store.bases(topic)) - set(copies[topic]))
            assert sorted([*copies[topic], *new]) == store.bases(topic), "nothing is uploaded twice"
            assert new[0] > max(copies[topic]), topic
        check_cut_metadata(cluster, store)


def test_records_of_an_odd_store_are_produced(tmp_path: Path) -> None:
    """Topic by topic, to a broker that runs: its first pass deletes what the dry run showed, and it serves the rest."""
    with tiered_cluster(tmp_path, VERSION, brokers=1, settings=SETTINGS) as cluster:
        store = local_store(tmp_path)
        cluster.start()
        write_history(cluster)
        cluster.set("off", remote_storage_enable="true", remote_log_delete_on_disable="false")
        local = {"remote_log_copy_disable": "true", "local_retention_ms": -2, "local_retention_bytes": -2}
        for topic in ("wide", *SERVED):
            cluster.set(topic, **local)
        values = served(cluster)
        copies = {topic: store.bases(topic) for topic in ("wide", *SERVED)}
        cluster.recreate_metadata_topic(dict.fromkeys(range(METADATA_PARTITIONS), (1,)))
        cluster.stop()
        logs = shutil.copytree(cluster.log_dirs[0], tmp_path / "logs")
        cluster.start()
        cluster.set("aborted", retention_bytes=3000)
        for topic, bases in copies.items():
            words = ("tier metadata", store, "--topic", topic, "--log-dir", logs, "--produce-to", cluster.address)
            if not bases:
                assert run(*words).exit_code == 2
                continue
            dry = run(*words, "--dry-run")
            assert dry.exit_code == 0, (topic, dry.stderr)
            deleted = [each["start_offset"] for each in dry.document["expected_deletions"]]
            assert bool(deleted) == (topic == "aborted"), topic
            produced = run(*words, "--deletes", len(deleted))
            assert produced.exit_code == 0, (topic, produced.stderr)
            copies[topic] = sorted((Counter(bases) - Counter(deleted)).elements())
        wait_until(lambda: store.bases("aborted") == copies["aborted"], lambda: (store.bases("aborted"), copies["aborted"]))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert {topic: store.bases(topic) for topic in copies} == copies
        first = copies["aborted"][0]
        values["aborted", 0] = {offset: value for offset, value in values["aborted", 0].items() if offset >= first}
        assert served(cluster) == values
        for topic in GROWING:
            cluster.set(topic, remote_log_copy_disable="false", local_retention_bytes=1)
            cluster.produce(topic, 80)
        cluster.wait_until_copied(*GROWING)


def test_a_broker_that_was_killed_between_the_two_records_of_a_deletion(tmp_path: Path) -> None:
    """The copy is neither live nor deleted, and the broker continues with it when it starts."""
    seldom = {"log.flush.start.offset.checkpoint.interval.ms": 3_600_000}  # so that the kill comes first
    with tiered_cluster(tmp_path, VERSION, brokers=1, settings=seldom) as cluster:
        store = local_store(tmp_path)
        cluster.start()
        cluster.create("held", (1,))
        cluster.produce("held", 150)
        cluster.wait_until_copied("held")
        cluster.read("held")  # by a group, without which nobody reads the metadata topic of a running cluster
        first, second, *others = store.bases("held")
        # A directory in the place of a file is what LocalTieredStorage cannot delete.
        (obstacle,) = cluster.remote_dir.rglob(f"held-0-*/{first:020d}-*.timeindex")
        data = obstacle.read_bytes()
        obstacle.unlink()
        obstacle.mkdir()
        cluster.running_node().delete_records("held", second + 3)
        running = ("tier inventory", store, "--bootstrap-server", cluster.address)
        wait_until(lambda: states(run(*running))[first] == "deleting", lambda: run(*running).stdout)
        cluster.nodes[1].kill()
        obstacle.rmdir()
        obstacle.write_bytes(data)

        logs = named("--metadata-log", cluster)
        inventory = run("tier inventory", store, *logs)
        assert (inventory.exit_code, inventory.document["verified"]) == (0, True), inventory.stderr
        assert states(inventory) == {first: "deleting", **dict.fromkeys((second, *others), "live")}
        audit = run("tier audit", store, *logs)
        assert [copy["start_offset"] for copy in copies_of(audit)] == [second, *others]
        decisions = {first: "deleting", **dict.fromkeys((second, *others), "included")}
        words = ("tier metadata", store, *logs, *named("--log-dir", cluster))
        assert record_decisions(run(*words)) == (decisions, ["log-start-unknown", "not-served"])
        start = second + 3
        assert record_decisions(run(*words, "--log-start", f"held-0={start}")) == (decisions, [])

        cluster.start()
        wait_until(lambda: store.bases("held") == [second, *others], lambda: store.bases("held"))
        # The broker had not written its log start, and takes that of the first copy in the log's first leader epoch, whatever the state of
        # the copy (``RemoteLogManager.findLogStartOffset``). Its leader epochs begin where records were deleted: it reads nothing below.
        low, high = cluster.offsets("held")
        assert low in (first, second)
        with pytest.raises(AssertionError, match="Offset out of range"):
            cluster.read("held")
        assert sorted(cluster.read("held", start)) == list(range(start, high))
        cluster.stop()
        assert record_decisions(run(*words))[1][-1] == "not-served"
        assert record_decisions(run(*words, "--log-start", f"held-0={start}"))[1] == []


def record_decisions(ran: Run) -> tuple[dict[int, str], list[str]]:
    """The decision on each copy of the only partition, by start offset; and why records are refused."""
    (partition,) = ran.document["partitions"]
    decisions = {copy["start_offset"]: copy["record_decision"] for copy in partition["copies"]}
    return decisions, [each["cause"] for each in partition["refusals"]]


def copies_of(ran: Run) -> list[dict[str, Any]]:
    return [copy for partition in ran.document["partitions"] for copy in partition["copies"]]


def states(inventory: Run) -> dict[int, str]:
    """States of copies with objects, by start offset."""
    return {copy["start_offset"]: copy["state"] for copy in copies_of(inventory) if copy["stored_bytes"]}


@pytest.mark.parametrize("kind", ["directory", pytest.param("bucket", marks=pytest.mark.s3)])
def test_two_clusters_in_one_store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one are rebuilt while the other one runs: neither reads or deletes a copy of the other."""
    with ExitStack() as stack:
        if kind == "bucket":
            store = stack.enter_context(bucket_store(tmp_path / "server", VERSION))
            settings = store.settings
        else:
            store = local_store(tmp_path / "one")
            settings = {"rsm.config.dir": tmp_path / "one" / "node1" / "remote"}
        one = stack.enter_context(tiered_cluster(tmp_path / "one", VERSION, brokers=1, settings=settings))
        monkeypatch.setattr(kafka_node, "CLUSTER_ID", OTHER_CLUSTER)
        two = stack.enter_context(tiered_cluster(tmp_path / "two", VERSION, brokers=1, settings=settings))
        for cluster, own, records in ((one, "first", 150), (two, "second", 120)):
            cluster.start()
            for topic in ("same", own):
                cluster.create(topic, (1,))
                cluster.produce(topic, records)
            cluster.wait_until_copied("same", own)
        both = {"same", "first"}, {"same", "second"}
        values = [{topic: cluster.read(topic) for topic in topics} for cluster, topics in zip((one, two), both, strict=True)]
        one.stop()
        two.stop()
        live = [{segment for segment, (_, is_live) in recorded(each).items() if is_live} for each in (one, two)]
        check_clusters(one, two, store, [set(map(uuid_to_text, each)) for each in live])
        one.start()
        two.start()
        rebuild(one, store, dict.fromkeys(range(3), (1,)), tmp_path / "receipt.jsonl")
        assert {topic: one.read(topic) for topic in both[0]} == values[0]
        one.set("same", retention_bytes=3000)
        wait_until(lambda: one.offsets("same")[0] > 0, lambda: one.offsets("same"))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert {topic: two.read(topic) for topic in both[1]} == values[1]
        two.stop()
        there = {copy["segment_id"] for copy in copies_of(run("tier inventory", store, *named("--metadata-log", two)))}
        assert set(map(uuid_to_text, live[1])) <= there


def check_clusters(one: TieredCluster, two: TieredCluster, store: CopyStore, live: list[set[str]]) -> None:
    """With the records of one cluster, the copies of the other have none; with those of both each copy has its cluster."""
    own = named("--metadata-log", one)
    alone = run("tier inventory", store, *own)
    assert (alone.exit_code, codes_of_copies(alone)) == (1, {"tier-orphan": 2}), alone.stderr
    with_both = run("tier inventory", store, *own, *named("--metadata-log", two))
    assert (with_both.exit_code, codes_of_copies(with_both)) == (0, {"metadata-clusters": 1, "tier-another-cluster": 2})
    for inventory, other in ((alone, "unknown"), (with_both, "another-cluster")):
        shown = {copy["segment_id"]: copy["state"] for copy in copies_of(inventory)}
        assert shown == {**dict.fromkeys(live[0], "live"), **dict.fromkeys(live[1], other)}
    audit = run("tier audit", store, *own, *named("--metadata-log", two))
    assert (audit.exit_code, {copy["segment_id"] for copy in copies_of(audit)}) == (0, live[0]), audit.stderr


def codes_of_copies(ran: Run) -> dict[str, int]:
    """How many findings of each code, without the note that the server of the tests does not answer each question about its bucket."""
    return {code: count for code, count in ran.codes.items() if code != "bucket-not-read"}
