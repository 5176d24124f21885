"""The states of copies, against the model of Kafka's cache, on generated stores."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from generated_clusters import GeneratedCluster, generated_cluster

from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.storage.store import Store
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.inventory.model import TierInventory
from snaprebuild.tier.remote_store import StoreAccess

QUICK = 100
ALL = 2_100


def inventory_of(case: GeneratedCluster, to: Path) -> TierInventory:
    logs = [str(case.own.write(to / "own"))]
    if case.other is not None and case.other.given:
        logs.append(str(case.other.write(to / "other")))
    cluster = MetadataLogs(str(case.write_image(to / "node"))).named() if case.has_image else None
    root = StorePath(cast("Store", case.bucket), "s3://b")
    cluster_id = None if cluster is None else cluster.cluster_id
    inventory, _ = tier_inventory(StoreAccess(root, logs, cluster_id=cluster_id), cluster=cluster)
    return inventory


def states_of(inventory: TierInventory) -> dict[Any, str]:
    return {
        ((each.topic, each.topic_id, each.partition), copy.segment_id): copy.state.value
        for each in inventory.partitions
        for copy in each.copies
    }


@pytest.mark.parametrize("seeds", [range(QUICK), pytest.param(range(QUICK, ALL), marks=pytest.mark.full)], ids=["quick", "all"])
def test_each_state_is_that_of_the_model(tmp_path: Path, seeds: range) -> None:
    """2,000 stores take half a minute on one core."""
    states: Counter[str] = Counter()
    for seed in seeds:
        case = generated_cluster(seed)
        work = tmp_path / str(seed)
        work.mkdir()
        expected = case.expected()
        assert states_of(inventory_of(case, work)) == expected, f"seed {seed}"
        states.update(expected.values())
        shutil.rmtree(work)
    rare = {"another-topic-id", "another-cluster", "superseded", "deleting", "deleted", "unfinished", "phantom", "lost", "unknown"}
    assert all(states[each] >= len(seeds) // 20 for each in rare), states
    assert states["live"] > len(seeds), states
