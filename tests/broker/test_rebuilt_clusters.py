"""Clusters of several brokers whose ``__remote_log_metadata`` was deleted and rebuilt: LocalTieredStorage and Aiven's real plugin.

What the brokers recorded themselves is compared with what ``tier metadata`` shows. Then they run on the rebuilt records.
"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiven_plugin import in_directory
from broker_settings import COPY_INTERVAL_MS
from cluster_copies import (
    CopyStore,
    bucket_store,
    check_records,
    check_states,
    keys_below,
    local_store,
    named,
    plugin_store,
    rebuild,
    run,
)
from tiered_cluster import TieredCluster, tiered_cluster, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.full]

NIGHT = pytest.mark.night
DAY_MS = 86_400_000
REPLICAS = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
"""Brokers of each partition of the new metadata topic: none has all of them."""


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
    with bucket_store(tmp_path / "server", "4.3.1") as store, tiered_cluster(tmp_path, "4.3.1", settings=store.settings) as cluster:
        check_cluster(tmp_path, cluster, store)
