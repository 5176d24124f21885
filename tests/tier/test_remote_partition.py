"""A copy without a record is the same to audit and followers: what its files show is what Kafka recorded of it."""

import pytest
from manifests import FIXTURES

from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.remote_partition import RemoteCopy
from snaprebuild.tier.remote_store import StoreAccess, open_tier

STORES = {
    "payments": (FIXTURES / "follower-lost-state" / "remote", FIXTURES / "follower-lost-state" / "node1"),
    "mixed": (FIXTURES / "tiered-local" / "remote", FIXTURES / "tiered-local" / "logs"),
}
"""Remote storage of a topic, and the log directory with ``__remote_log_metadata`` that Kafka wrote."""


def facts(copy: RemoteCopy) -> tuple[object, ...]:
    assert copy.record is None
    return copy.start_offset, copy.end_offset, copy.leader_epochs, copy.max_timestamp_ms, copy.segment_bytes


@pytest.mark.parametrize("topic", STORES)
def test_what_the_files_of_a_copy_show_is_what_kafka_recorded(topic: str) -> None:
    remote, logs = STORES[topic]
    root = StorePath(LOCAL, str(remote))
    (partition,) = open_tier(StoreAccess(root)).partitions
    recorded = {}
    for segment_id, copy in open_tier(StoreAccess(root, [str(logs)])).listed_partition(partition).copies.items():
        record = copy.record
        assert record is not None
        if not copy.objects.by_kind:
            continue  # an upload that failed
        recorded[segment_id] = (
            record.start_offset,
            record.end_offset,
            record.leader_epochs,
            record.max_timestamp_ms,
            record.size_bytes,
        )
    assert len(recorded) >= 12

    followers = open_tier(StoreAccess(root)).partition(partition)
    assert {segment_id: facts(copy) for segment_id, copy in followers.copies.items()} == recorded

    (audit,) = tier_audit(StoreAccess(root), Run(clock=Clock(1, 1), jobs=1)).partitions
    assert {each.copy.segment_id: facts(each.copy) for each in audit.copies} == recorded
