"""Clusters of several brokers whose ``__remote_log_metadata`` was deleted and rebuilt: LocalTieredStorage and Aiven's real plugin.

What the brokers recorded themselves is compared with what ``tier metadata`` shows. Then they run on the rebuilt records.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiven_plugin import in_bucket, in_directory, plugin_classpath, plugin_settings
from broker_settings import COPY_INTERVAL_MS
from command import Run, in_json_process
from kafka_classpath import KafkaUnavailableError
from manifests import FIXTURES
from object_store import missing, running
from tiered_cluster import METADATA, TieredCluster, tiered_cluster, wait_until

from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.storage.store import USUAL_S3
from snaprebuild.tier.remote_store import read_remote_logs

pytestmark = [pytest.mark.broker, pytest.mark.full]

NIGHT = pytest.mark.night
DAY_MS = 86_400_000
KEYS = FIXTURES / "aiven-layout" / "keys"
FACTS_OF_A_SEGMENT = 5
"""The first facts of a record: the others may differ between two attempts."""
REPLICAS = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
"""Brokers of each partition of the new metadata topic: none has all of them."""
TRANSFORMED = {
    "key_prefix": "cold-",
    "compression_enabled": "true",
    "encryption_enabled": "true",
    "encryption_key_pair_id": "key1",
    "encryption_key_pairs": "key1",
    "encryption_key_pairs_key1_public_key_file": KEYS / "key1.public.pem",
    "encryption_key_pairs_key1_private_key_file": KEYS / "key1.private.pem",
    "custom_metadata_fields_include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
}


@dataclass(frozen=True)
class CopyStore:
    """Where the copies are.

    Attributes:
        location: for the verbs.
        settings: of the brokers.
        reading: options of verbs that read the copies.
        rebuilding: further options of ``tier metadata``.
        keys: lists all keys.
    """

    location: str
    settings: dict[str, object]
    reading: tuple[object, ...]
    rebuilding: tuple[object, ...]
    keys: Callable[[], list[str]]

    def bases(self, topic: str) -> list[int]:
        """Base offsets of the copies of a topic, also of several with the same base."""
        names = [key.rpartition("/") for key in self.keys() if key.endswith(".log")]
        return sorted(int(name[:20]) for place, _, name in names if f"{topic}-" in place)


def keys_below(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]


def local_store(root: Path) -> CopyStore:
    """LocalTieredStorage of the first node, which all nodes share."""
    remote = root / "node1" / "remote"
    return CopyStore(str(remote), {}, (), (), lambda: keys_below(remote))


def plugin_store(version: str, storage: dict[str, object], location: str, keys: Callable[[], list[str]]) -> CopyStore:
    """The plugin with a key prefix, compression, encryption and custom metadata."""
    try:
        classpath = plugin_classpath(version)
    except KafkaUnavailableError as error:
        pytest.skip(f"NOT RUN: Aiven's plugin: {error}")
    settings = {**plugin_settings(storage, **TRANSFORMED), "remote.log.storage.manager.class.path": classpath}
    reading = ("--set", "key_prefix=cold-", "--set", f"private_key={KEYS / 'key1.private.pem'}")
    rebuilding = ("--custom-metadata", "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY")
    return CopyStore(location, settings, reading, rebuilding, keys)


# ------------------------------------------------------------------------------------------------------------------- the history


def write_history(cluster: TieredCluster) -> list[str]:
    """Topics that were copied by several leaders. Returns their names."""
    now_ms = time.time_ns() // 1_000_000
    cluster.create("moved", (2, 3, 1))
    cluster.produce("moved", 60)
    cluster.create("unclean", (2, 3), unclean_leader_election_enable="true")
    cluster.produce("unclean", 40)
    cluster.create("aged", (1, 2))
    for day in range(9, 0, -1):
        cluster.produce("aged", 35, timestamp_ms=now_ms - day * DAY_MS)
    cluster.create("twice", (3, 1))
    cluster.produce("twice", 50)
    cluster.create("cut", (1, 3))
    cluster.produce("cut", 120)
    cluster.create("sized", (2, 1))
    cluster.produce("sized", 300)
    cluster.create("aborted", (3, 2))
    cluster.produce("aborted", 60, aborts="aborts")
    cluster.produce("aborted", 120)
    cluster.create("single", (1, 2))
    cluster.produce("single", 8, size=1300, batch=1)
    topics = ["moved", "unclean", "aged", "twice", "cut", "sized", "aborted", "single"]
    cluster.wait_until_copied(*topics)
    cluster.delete("twice")
    cluster.create("twice", (3, 1))
    cluster.produce("twice", 70)
    cluster.running_node().delete_records("cut", 33)
    lose_records(cluster)
    for node_id in (3, 2, 3):
        bounce(cluster, node_id)
    cluster.produce("moved", 30)
    cluster.wait_until_copied(*topics)
    return topics


def lose_records(cluster: TieredCluster) -> None:
    """A replica that lacks uploaded records becomes the leader, and uploads others under their offsets."""
    cluster.nodes[3].stop()
    wait_until(lambda: cluster.in_sync("unclean") == {2}, lambda: cluster.in_sync("unclean"))
    cluster.produce("unclean", 45)
    cluster.produce("moved", 30)
    cluster.wait_until_copied("unclean")
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    cluster.wait_for_leader("unclean", 3)
    cluster.produce("unclean", 60)
    cluster.produce("moved", 25)
    cluster.nodes[2].start()
    wait_for_replicas(cluster)


def bounce(cluster: TieredCluster, node_id: int) -> None:
    """A leader epoch with few records, by a restart."""
    cluster.nodes[node_id].stop()
    cluster.produce("moved", 2)
    cluster.nodes[node_id].start()
    wait_for_replicas(cluster)


def wait_for_replicas(cluster: TieredCluster) -> None:
    wait_until(
        lambda: (cluster.in_sync("moved"), cluster.in_sync("unclean")) == ({1, 2, 3}, {2, 3}),
        lambda: (cluster.in_sync("moved"), cluster.in_sync("unclean")),
    )


# --------------------------------------------------------------------------------------------------------------------- the verbs


def named(option: str, cluster: TieredCluster) -> list[object]:
    """An option for each log directory."""
    return [word for each in cluster.log_dirs for word in (option, each)]


def run(verb: str, store: CopyStore, *words: object) -> Run:
    return in_json_process(verb, store.location, *store.reading, *words)


def recorded(cluster: TieredCluster) -> dict[bytes, tuple[RemoteSegment, bool]]:
    """What the brokers recorded of each copy that is not deleted, and whether they read it."""
    logs, _ = read_remote_logs([str(each) for each in cluster.log_dirs], USUAL_S3, None)
    return {
        each.segment_id: (each, log.is_live(each.segment_id)) for log in logs.partitions.values() for each in log.segments.values()
    }


def check_states(cluster: TieredCluster, store: CopyStore) -> None:
    """Brokers that only stopped leave nothing that is an alarm."""
    inventory = run("tier inventory", store, *named("--metadata-log", cluster), "--metadata", cluster.log_dirs[0])
    assert (inventory.exit_code, inventory.document["verified"]) == (0, True), inventory.stderr
    states = {copy["segment_id"]: copy["state"] for each in inventory.document["partitions"] for copy in each["copies"]}
    assert all((states[segment] == "live") == is_live for segment, is_live in live_texts(cluster).items())
    assert set(states.values()) <= {"live", "superseded", "phantom", "unfinished", "deleted"}, Counter(states.values())
    audit = run("tier audit", store, *named("--metadata-log", cluster))
    assert audit.exit_code == 0, audit.stderr


def live_texts(cluster: TieredCluster) -> dict[str, bool]:
    return {uuid_to_text(segment): is_live for segment, (_, is_live) in recorded(cluster).items()}


def check_records(cluster: TieredCluster, store: CopyStore, file: Path) -> None:
    """What the copies show is what the brokers recorded, as far as anything shows it."""
    rebuilt = run("tier metadata", store, *named("--log-dir", cluster), *store.rebuilding, "--records-file", file)
    assert rebuilt.exit_code == 0, rebuilt.stderr
    own = recorded(cluster)
    for partition in rebuilt.document["partitions"]:
        included = {}
        live = {}
        for copy in partition["copies"]:
            segment, is_live = own[uuid_from_text(copy["segment_id"])]
            if is_live:
                live[copy["start_offset"]] = facts_recorded(segment, store)[:FACTS_OF_A_SEGMENT]
                assert facts_of(copy, store) == facts_recorded(segment, store), (partition["topic"], copy)
            if copy["record_decision"] == "included":
                included[copy["start_offset"]] = facts_of(copy, store)[:FACTS_OF_A_SEGMENT]
        # A broker that stops before its last record leaves a copy that equals the one of its next attempt.
        assert included == live, partition["topic"]


def facts_of(copy: dict[str, Any], store: CopyStore) -> list[object]:
    facts = copy["record_facts"]
    epochs = [(each["epoch"], each["start_offset"]) for each in facts["leader_epochs"]]
    has_manifest = bool(store.settings)
    return [
        copy["start_offset"],
        facts["end_offset"],
        epochs,
        facts["max_timestamp_ms"],
        facts["segment_bytes"],
        facts["broker_id"] if has_manifest else None,
        facts["custom_metadata"],
    ]


def facts_recorded(segment: RemoteSegment, store: CopyStore) -> list[object]:
    """The same facts of a record. The time of the last event, and without a manifest the broker, are in no object."""
    return [
        segment.start_offset,
        segment.end_offset,
        [(each.epoch, each.start_offset) for each in segment.leader_epochs],
        segment.max_timestamp_ms,
        segment.size_bytes,
        segment.broker_id if store.settings else None,
        None if segment.custom_metadata is None else segment.custom_metadata.hex(),
    ]


def rebuild(cluster: TieredCluster, store: CopyStore, replicas: dict[int, tuple[int, ...]], receipt: Path) -> None:
    """The metadata topic is lost and made again; its directories are written while all brokers are stopped.

    A leader that is elected meanwhile finds no records, and moves its log start offset and its leader epochs: the old ones are put back.
    """
    checkpoints = [each / "log-start-offset-checkpoint" for each in cluster.log_dirs]
    checkpoints += [path for each in cluster.log_dirs for path in each.glob("[a-z]*-0/leader-epoch-checkpoint")]
    texts = [each.read_text() for each in checkpoints]
    cluster.recreate_metadata_topic(replicas)
    cluster.stop()
    for checkpoint, text in zip(checkpoints, texts, strict=True):
        checkpoint.write_text(text)
    for log_dir in cluster.log_dirs:
        for directory in log_dir.glob(f"{METADATA}-*"):
            shutil.rmtree(directory)
    rebuilt = run("tier metadata", store, *named("--log-dirs", cluster), *store.rebuilding, "--receipt", receipt)
    assert rebuilt.exit_code == 0, rebuilt.stderr
    assert len(rebuilt.document["log_dirs"]) == sum(map(len, replicas.values()))
    cluster.start()


# --------------------------------------------------------------------------------------------------------------- the brokers then


def check_uploads(cluster: TieredCluster, store: CopyStore, topics: Sequence[str]) -> None:
    """Uploads go on after the last copy. Nothing is deleted or uploaded twice."""
    before = {topic: store.bases(topic) for topic in topics}
    for topic in topics:
        cluster.produce(topic, 80)
    cluster.wait_until_copied(*topics)
    after = {topic: Counter(store.bases(topic)) for topic in topics}
    for topic in topics:
        new = after[topic] - Counter(before[topic])
        assert not Counter(before[topic]) - after[topic], topic
        assert new, topic
        assert set(new.values()) == {1}, (topic, new)
        assert min(new) > max(before[topic]), (topic, new, before[topic])


def settled(cluster: TieredCluster, store: CopyStore, topic: str) -> tuple[int, list[int]]:
    """Log start offset and copies after some more passes of retention."""
    time.sleep(6 * COPY_INTERVAL_MS / 1000)
    return cluster.offsets(topic)[0], store.bases(topic)


def check_retention(cluster: TieredCluster, store: CopyStore) -> None:
    """By time, by size and by a log start offset: each deletes what is below, and nothing else."""
    aged = store.bases("aged")
    values = cluster.read("aged")
    oldest_kept = 35 * 5  # of the day 4
    cluster.set("aged", retention_ms=int(4.5 * DAY_MS))
    wait_until(lambda: cluster.offsets("aged")[0] > 0, lambda: cluster.offsets("aged"))
    start, left = settled(cluster, store, "aged")
    assert left == [each for each in aged if each >= start]
    assert start in aged
    following = [each for each in aged if each > start]
    assert start <= oldest_kept < following[0], "the first segment that stays has the first record that is young enough"
    assert cluster.read("aged") == {offset: value for offset, value in values.items() if offset >= start}

    sized = store.bases("sized")
    cluster.set("sized", retention_bytes=6000)
    wait_until(lambda: cluster.offsets("sized")[0] > 0, lambda: cluster.offsets("sized"))
    start, left = settled(cluster, store, "sized")
    assert left == [each for each in sized if each >= start]
    assert len(left) >= 2
    low, high = cluster.offsets("sized")
    assert sorted(cluster.read("sized")) == list(range(low, high))

    moved = store.bases("moved")
    cluster.running_node().delete_records("moved", moved[2] + 1)
    wait_until(lambda: store.bases("moved") == moved[2:], lambda: store.bases("moved"))
    assert settled(cluster, store, "moved") == (moved[2] + 1, moved[2:])


def check_deletion(cluster: TieredCluster, store: CopyStore, topic: str) -> None:
    """The deletion of a topic takes its copies along."""
    cluster.delete(topic)
    wait_until(lambda: not store.bases(topic), lambda: store.bases(topic))


def check_cluster(root: Path, cluster: TieredCluster, store: CopyStore) -> None:
    """The whole scenario."""
    cluster.start()
    topics = write_history(cluster)
    values = {topic: cluster.read(topic) for topic in topics}
    cluster.stop()
    check_states(cluster, store)
    check_records(cluster, store, root / "records.jsonl")
    copies = {topic: store.bases(topic) for topic in topics}
    cluster.start()
    rebuild(cluster, store, REPLICAS, root / "receipt.jsonl")
    for topic in topics:
        assert cluster.read(topic) == values[topic], topic
    assert {topic: store.bases(topic) for topic in topics} == copies
    check_uploads(cluster, store, topics)
    check_retention(cluster, store)
    check_deletion(cluster, store, "aborted")
    inventory = run("tier inventory", store, *named("--metadata-log", cluster), "--metadata", cluster.log_dirs[0])
    assert inventory.document["verified"], inventory.stderr


@pytest.mark.parametrize("version", [pytest.param(each, marks=NIGHT) for each in ("3.9.2", "4.3.1")])
def test_several_brokers_run_on_rebuilt_records(version: str, tmp_path: Path) -> None:
    with tiered_cluster(tmp_path, version) as cluster:
        check_cluster(tmp_path, cluster, local_store(tmp_path))


@pytest.mark.parametrize("version", [pytest.param(each, marks=NIGHT) for each in ("3.9.2", "4.3.1")])
def test_several_brokers_with_the_real_plugin(version: str, tmp_path: Path) -> None:
    """In a directory, encrypted and compressed, with all custom metadata."""
    root = tmp_path / "store"
    store = plugin_store(version, in_directory(root), str(root), lambda: keys_below(root))
    with tiered_cluster(tmp_path, version, settings=store.settings) as cluster:
        check_cluster(tmp_path, cluster, store)


@pytest.mark.s3
@NIGHT
def test_several_brokers_with_the_real_plugin_on_a_bucket(tmp_path: Path) -> None:
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    with running(tmp_path / "server") as server:
        bucket = server.bucket()
        pages = server.client.get_paginator("list_objects_v2")

        def keys() -> list[str]:
            return [each["Key"] for page in pages.paginate(Bucket=bucket) for each in page.get("Contents", ())]

        store = plugin_store("4.3.1", in_bucket(bucket, server.endpoint), f"s3://{bucket}", keys)
        with tiered_cluster(tmp_path, "4.3.1", settings=store.settings) as cluster:
            check_cluster(tmp_path, cluster, store)
