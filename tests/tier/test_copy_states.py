"""The states of copies, against the model of Kafka's cache, on generated stores."""

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from generated_clusters import Bucket, GeneratedCluster, generated_cluster

from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.errors import LimitReachedError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.storage.store import Store
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.inventory.inventory import phantom_finding, tier_inventory
from snaprebuild.tier.inventory.model import TierInventory
from snaprebuild.tier.remote_store import StoreAccess

IN_MEMORY = Path("/dev/shm")
"""On a disk the files of 2,000 stores take most of the time."""
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
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as place:
        for seed in seeds:
            case = generated_cluster(seed)
            work = Path(place) / "work"
            work.mkdir()
            expected = case.expected()
            assert states_of(inventory_of(case, work)) == expected, f"seed {seed}"
            states.update(expected.values())
            shutil.rmtree(work)
    rare = {"another-topic-id", "another-cluster", "superseded", "deleting", "deleted", "unfinished", "phantom", "lost", "unknown"}
    assert all(states[each] >= len(seeds) // 20 for each in rare), states
    assert states["live"] > len(seeds), states


def test_a_removal_that_is_not_committed_proves_nothing(tmp_path: Path) -> None:
    """The log of a node that is not the only voter, and without a checkpoint."""
    case = next(case for case in map(generated_cluster, range(100)) if case.has_image and "deleted" in case.expected().values())
    logs = str(case.own.write(tmp_path / "own"))
    node = case.write_image(tmp_path / "node")
    meta = node / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    cluster = MetadataLogs(str(node)).named()
    inventory, findings = tier_inventory(StoreAccess(StorePath(cast("Store", case.bucket), "s3://b"), [logs]), cluster=cluster)
    reasons = [copy.reason for each in inventory.partitions for copy in each.copies if copy.state == "deleted"]
    assert not [each for each in reasons if "RemoveTopic" in each]
    notes = [each for each in findings if each.code == "tier-removal-unproven"]
    removed = {topic_id for topic_id, (_, _, removed_ms) in case.own.lives.items() if removed_ms is not None}
    listed = {each.topic_id for each in inventory.partitions if any(copy.object_count for copy in each.copies)}
    assert {each.severity for each in notes} <= {Severity.NOTE}
    assert bool(notes) == bool(removed & listed)


@dataclass
class LimitedBucket(Bucket):
    """No request for the content of an object is allowed any more."""

    def read_small(self, location: str, _bytes_max: int) -> bytes | None:
        raise LimitReachedError("the limit of max_requests 1 is used up", path=location)


def test_a_limit_leaves_what_needs_no_manifest(tmp_path: Path) -> None:
    """Recorded copies have the same states, and the result says how much was not read."""
    cases = map(generated_cluster, range(100))
    case = next(each for each in cases if each.layout == "aiven" and "live" in each.expected().values() and not each.has_image)
    expected = case.expected()
    case.bucket = LimitedBucket(case.bucket.objects, case.bucket.unlisted)
    logs = str(case.own.write(tmp_path / "own"))
    inventory, findings = tier_inventory(StoreAccess(StorePath(cast("Store", case.bucket), "s3://b"), [logs]))
    found = states_of(inventory)
    recorded = {"live", "superseded", "lost", "phantom", "unfinished", "deleting", "deleted"}
    assert {key: state for key, state in found.items() if expected[key] in recorded} == {
        key: state for key, state in expected.items() if state in recorded
    }
    (limit,) = [each for each in findings if each.code == "tier-limit"]
    assert (limit.is_unread, exit_code_of([limit])) == (True, 1)


@pytest.mark.parametrize(
    ("start_offsets", "severity"),
    [([0], Severity.NOTE), ([0, 35, 70], Severity.NOTE), ([0, 0], Severity.FINDING), ([0, 35, 35, 70], Severity.FINDING)],
)
def test_one_attempt_at_a_segment_is_no_alarm(start_offsets: list[int], severity: Severity) -> None:
    """A broker that stops during an upload leaves one, and an upload without an object yet is one; an exception leaves one each time."""
    found = phantom_finding("p-0", start_offsets)
    assert (found.code, found.severity, found.offset) == ("tier-phantom", severity, start_offsets[0])
