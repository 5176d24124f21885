"""Producer ids that the cluster has yet to give out: faults next to healthy forms, and every verb that compares them."""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command import in_json, snaprebuild
from log_dirs import batch, copy_of, of_zookeeper
from manifests import FIXTURES
from metadata_logs import append_metadata_record
from sentences import IDS_UP_TO, NEXT_ID
from snapshot_by_grammar import build_snapshot
from source_verdicts import NOW_MS, check, partition_changed

from formats.metadata.cluster_metadata import MetadataRecordType
from formats.partition.producer_snapshot import ENTRY_DTYPE, ProducerEntry
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.image_reader import read_image
from snaprebuild.cluster.source_check.metadata_read import read_metadata
from snaprebuild.cluster.source_check.producer_ids import foreign_producers, with_later_batches

CODE = "producer-id-collision"
HOUR_MS = 3_600_000


def next_id(node: Path) -> int:
    return read_image(str(node)).fold.image().next_producer_id


def give(node: Path, partition: str, producer_id: int, hours: float = 0, open_from: int = -1) -> None:
    """The newest snapshot of a partition has one producer, which wrote some hours ago."""
    newest = max((node / partition).glob("*.snapshot"))
    timestamp = int(time.time() * 1000 - hours * HOUR_MS)
    newest.write_bytes(build_snapshot([ProducerEntry(producer_id, 0, 0, 100, 0, timestamp, current_txn_first_offset=open_from)]))


def migration(state: int) -> Callable[[Path], None]:
    return lambda node: append_metadata_record(node, MetadataRecordType.ZK_MIGRATION_STATE, {"zkMigrationState": state}, 0, 348)


def later_epoch(node: Path) -> None:
    """The replica has batches of a leader epoch that the metadata log does not know yet."""
    checkpoint = node / "orders-1" / "leader-epoch-checkpoint"
    version, count, *lines = checkpoint.read_text().splitlines()
    checkpoint.write_text("\n".join([version, str(int(count) + 1), *lines, "99 330"]) + "\n")


def other_topic(node: Path) -> None:
    (node / "orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")


def unchanged(_node: Path) -> None:
    pass


FAULTS = {
    "the next id": (0, 0, unchanged),
    "far above": (8_000, 0, unchanged),
    "one hour before it expires": (0, 23, unchanged),
    "after a migration": (0, 0, migration(3)),
    "a later leader epoch in the metadata log": (0, 0, partition_changed(leader=2)),
}
"""Distance to the next id of the cluster, hours since the producer wrote, what else was changed."""
HEALTHY = {
    "below the next id": (-1, 0, unchanged),
    "expired": (0, 25, unchanged),
    "the metadata log may be older": (0, 0, later_epoch),
    "another topic has the name": (0, 0, other_topic),
    "before a migration": (0, 0, migration(1)),
    "during a migration": (0, 0, migration(2)),
}


UNKNOWN = ("the metadata log may be older", "another topic has the name")


def collisions(verb: str, *arguments: object) -> list[dict[str, object]]:
    return [each for each in in_json(verb, *arguments).document["findings"] if each["code"] == CODE]


@pytest.mark.parametrize("name", FAULTS)
def test_ids_that_are_yet_to_be_given_out(name: str, node: Path) -> None:
    distance, hours, change = FAULTS[name]
    following = next_id(node)
    give(node, "orders-1", following + distance, hours)
    change(node)
    (found,) = collisions("scan", node)
    assert found["path"] == str(node / "orders-1")
    assert f"{IDS_UP_TO}{following + distance}, {NEXT_ID}{following}" in str(found["message"])
    assert [each["message"] for each in collisions("cluster source", node)] == [found["message"]]


@pytest.mark.parametrize("name", HEALTHY)
def test_ids_that_are_known_or_of_which_nothing_is_known(name: str, node: Path) -> None:
    distance, hours, change = HEALTHY[name]
    give(node, "orders-1", next_id(node) + distance, hours)
    change(node)
    scan = in_json("scan", node)
    assert CODE not in scan.codes
    assert ("producer-ids-unknown" in scan.codes) is (name in UNKNOWN)
    assert collisions("cluster source", node) == []
    assert collisions("cluster check", node) == []


def write_above_the_newest_snapshot(node: Path, producer_id: int, *, modified_ms: int | None) -> None:
    """A batch at the log end of orders-1, after its last snapshot; the segment was last changed at a moment, None for now."""
    directory = node / "orders-1"
    segment = max(directory.glob("*.log"))
    end = int(max(directory.glob("*.snapshot")).stem)
    with segment.open("ab") as file:
        file.write(batch(end, producer_id=producer_id, timestamp=int(time.time() * 1000)))
    if modified_ms is not None:
        os.utime(segment, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


@pytest.mark.parametrize(
    ("distance", "modified_ms", "codes"),
    [(0, 1, {CODE}), (700, 1, {CODE}), (-1, 1, set()), (0, None, {"producer-ids-unknown"})],
    ids=["the next id", "far above", "below the next id", "the metadata log may be older"],
)
def test_verify_compares_the_batches_above_the_newest_snapshot(
    node: Path, distance: int, modified_ms: int | None, codes: set[str]
) -> None:
    following = next_id(node)
    write_above_the_newest_snapshot(node, following + distance, modified_ms=modified_ms)
    run = in_json("verify", node, "--topic", "orders")
    assert run.codes.keys() & {CODE, "producer-ids-unknown"} == codes
    if CODE in codes:
        assert f"1 producer with {IDS_UP_TO}{following + distance}" in run.messages(CODE)
        assert run.exit_code
    assert collisions("scan", node) == [], "it reads snapshots alone"


@pytest.mark.parametrize(("distance", "is_found"), [(0, True), (-1, False)])
def test_rebuild_compares_the_batches_that_it_reads(node: Path, tmp_path: Path, distance: int, *, is_found: bool) -> None:
    following = next_id(node)
    write_above_the_newest_snapshot(node, following + distance, modified_ms=1)
    run = in_json("rebuild", node, "--topic", "orders", "--out", tmp_path / "out")
    assert (f"{IDS_UP_TO}{following + distance}, and the next one" in run.messages(CODE)) is is_found
    assert (CODE in run.codes) is is_found


def test_verify_compares_the_newest_snapshot_as_scan_does(node: Path) -> None:
    give(node, "orders-1", next_id(node))
    assert [each["message"] for each in collisions("verify", node)] == [each["message"] for each in collisions("scan", node)] != []


def test_a_healthy_scan_reads_metadata_logs_once(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence of its own is collected only for partitions with high ids."""
    reads: list[object] = []

    def counted(*arguments: object, **options: object) -> object:
        reads.append(arguments[0])
        return read_metadata(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("snaprebuild.cluster.source_check.metadata_read.read_metadata", counted)
    assert in_json("scan", node).exit_code == 0
    assert reads == []
    give(node, "orders-1", next_id(node))
    assert collisions("scan", node)
    assert len(reads) == 1


def test_zookeeper_has_no_metadata_log(tmp_path: Path) -> None:
    logs = of_zookeeper(copy_of("kafka4-mixed", tmp_path))
    give(logs, "mixed-0", 10**9)
    assert collisions("scan", logs) == []


def test_several_partitions_are_one_finding_with_the_two_ways_out(node: Path) -> None:
    following = next_id(node)
    give(node, "orders-1", following + 5, open_from=10)
    give(node, "orders-0", following + 9)
    (found,) = collisions("scan", node)
    message = str(found["message"])
    assert found["path"] == str(node)
    assert f"2 partitions (orders-0, orders-1) have 2 producers with {IDS_UP_TO}{following + 9}" in message
    assert "Wait until they have expired, 20" in message
    assert "or end their 1 open transaction, then write the state without them" in message


def test_cluster_check_compares_the_partitions_next_to_the_metadata_log(node: Path) -> None:
    give(node, "orders-1", next_id(node))
    for path in (node, node / "__cluster_metadata-0"):
        (found,) = collisions("cluster check", path)
        assert found["path"] == str(node / "orders-1")
    assert in_json("cluster check", node).exit_code == 1


def test_cluster_source_of_an_earlier_moment_does_not_compare(node: Path) -> None:
    following = next_id(node)
    newest = max((node / "orders-1").glob("*.snapshot"))
    newest.write_bytes(build_snapshot([ProducerEntry(following, 0, 0, 100, 0, NOW_MS)]))
    for offset, found in ((None, True), (347, False)):
        findings = check(node, metadata=node, requested_offset=offset).findings
        assert (CODE in {each.code for each in findings}) is found


def test_an_upload_is_refused_and_the_others_go_up(node: Path, tmp_path: Path) -> None:
    upload = ("tier upload", tmp_path / "store", node, "--i-am-the-leader", "--accept-own-log", "--dry-run")
    before = {
        each["topic_partition"]: [one["action"] for one in each["segments"]] for each in in_json(*upload).document["partitions"]
    }
    give(node, "orders-1", next_id(node))
    run = in_json(*upload)
    after = {each["topic_partition"]: [one["action"] for one in each["segments"]] for each in run.document["partitions"]}
    assert run.exit_code == 3
    assert [each["severity"] for each in run.document["findings"] if each["code"] == CODE] == ["refused"]
    assert after["orders-1"][0] == "refused"
    assert before.keys() == after.keys()
    assert {name: actions for name, actions in after.items() if name != "orders-1"} == {
        name: actions for name, actions in before.items() if name != "orders-1"
    }


@pytest.mark.parametrize("given_out", [True, False])
def test_an_upload_compares_snapshots_that_it_builds(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, given_out: bool
) -> None:
    """No snapshot is left on disk. A record lowers the next id of the cluster, and the producers of the fixture count as young."""
    for path in (node / "orders-1").glob("*.snapshot"):
        path.unlink()
    if not given_out:
        record = {"brokerId": 1, "brokerEpoch": 5, "nextProducerId": 0}
        append_metadata_record(node, MetadataRecordType.PRODUCER_IDS, record, 0, read_image(str(node)).fold.offset + 1)
    young = partial(foreign_producers, expiration_ms=100 * 365 * 24 * HOUR_MS)
    monkeypatch.setattr("snaprebuild.tier.upload.source_check.foreign_producers", young)
    run = in_json("tier upload", tmp_path / "store", node, "--i-am-the-leader", "--accept-own-log", "--dry-run")
    (first, *_) = [each["segments"][0] for each in run.document["partitions"] if each["topic_partition"] == "orders-1"]
    assert first["action"] == ("would-upload" if given_out else "refused")
    refused = {each["path"] for each in run.document["findings"] if each["code"] == CODE}
    assert (str(node / "orders-1") in refused) is not given_out


@pytest.mark.parametrize(("state", "found"), [(0, True), (1, False), (2, False), (3, True)])
def test_during_a_migration_the_ids_are_those_of_zookeeper(state: int, found: bool) -> None:
    entries = np.zeros(1, ENTRY_DTYPE)
    entries["producer_id"], entries["timestamp"] = 1000, 5
    image = MetadataImage(next_producer_id=1000, zk_migration_state=state)
    assert (foreign_producers(entries, image, 10) is not None) is found
    assert foreign_producers(None, image, 10) is None


def test_a_cluster_that_has_given_out_none(node: Path) -> None:
    entries = np.zeros(1, ENTRY_DTYPE)
    entries["timestamp"] = 5
    found = foreign_producers(entries, MetadataImage(), 10)
    assert found is not None
    assert (found.greatest_id, found.next_id) == (0, 0)
    assert snaprebuild("scan", node).exit_code == 0


def test_the_last_entry_of_a_producer_counts() -> None:
    """Its transaction was open in the snapshot, and a later marker ended it."""
    entries = np.zeros(2, ENTRY_DTYPE)
    entries["producer_id"], entries["timestamp"], entries["current_txn_first_offset"] = (7, 9), 5, (40, -1)
    later = np.zeros(1, ENTRY_DTYPE)
    later["producer_id"], later["timestamp"], later["current_txn_first_offset"] = 7, 8, -1
    image = MetadataImage(next_producer_id=7)
    found = foreign_producers(with_later_batches(entries, later), image, 10, 100)
    assert found is not None
    assert (found.count, found.open_transactions, found.expire_ms) == (2, 0, 108)
    assert with_later_batches(None, None) is None
    later["timestamp"] = 2**63 - 1
    never = foreign_producers(later, image, 10, 100)
    assert never is not None
    assert "expired, after the year 9999, or write" in never.text, "the clock of a producer may be anywhere"


@pytest.mark.parametrize("given_out", [True, False])
def test_a_follower_gets_no_producers_of_another_cluster(given_out: bool, tmp_path: Path) -> None:
    """The copies have ids above 14. A record lowers the next id of the cluster, as if it were another one."""
    fixture = FIXTURES / "follower-lost-state"
    node = Path(shutil.copytree(fixture / "node1", tmp_path / "node1"))
    shutil.rmtree(node / "payments-0")
    if not given_out:
        record = {"brokerId": 1, "brokerEpoch": 5, "nextProducerId": 14}
        append_metadata_record(node, MetadataRecordType.PRODUCER_IDS, record, 0, read_image(str(node)).fold.offset + 1)
    arguments = (fixture / "remote", node, "--topic-partition", "payments-0", "--as-of", "2026-11-21T20:00:00Z", "--dry-run")
    run = snaprebuild("follower build", *arguments, "--accept-own-log")
    assert (f"{NEXT_ID}14. A new producer may get one" in run.stderr) is not given_out
    assert run.exit_code == (3 if not given_out else 0), run.stderr
