"""Verdicts on empty logs on a new disk, and on replicas that are compared with their peers."""

import shutil
from pathlib import Path

import pytest
from manifests import CLUSTER
from metadata_logs import append_metadata_record
from rule_marks import REJECTS, WARNS, Mark, mark_of
from source_verdicts import check, meta, partition_changed, verdicts

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cluster.metadata.log import MetadataLog, MetadataWalk, open_metadata_log
from snaprebuild.cluster.source_check.verdict import SourceRule
from snaprebuild.snapshots.plan.source_verdict import Purpose

pytestmark = pytest.mark.usefixtures("each_image_once")


def empty(node: Path, name: str) -> None:
    """An empty log, as a leader has it that never got anything."""
    for path in (node / name).iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (node / name / f"{0:020d}.log").touch()
    topic, _, number = name.rpartition("-")
    for checkpoint in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        lines = (node / checkpoint).read_text().splitlines()
        (node / checkpoint).write_text(
            "\n".join(f"{topic} {number} 0" if line.startswith(f"{topic} {number} ") else line for line in lines) + "\n"
        )


def test_a_replaced_disk_is_known_by_its_directory_id(tmp_path: Path) -> None:
    """Node 2 came back with a disk formatted anew: an empty log on it lost what it held.

    This is so until it has caught up, which it had at 293, when its leader added it to the replicas in sync. After that, an empty log is
    one that was never written to, which is possible on node 1.
    """
    for number, at, state in ((2, 292, REJECTS), (2, 293, WARNS), (1, 292, WARNS)):
        node = Path(shutil.copytree(CLUSTER / f"node{number}", tmp_path / f"node{number}-{at}"))
        empty(node, "orders-1")
        verdict = verdicts(check(node, metadata=CLUSTER / "node1", requested_offset=at))["orders-1"]
        (ending,) = [each for each in verdict.results if each.rule is SourceRule.R13]
        assert mark_of(ending) == state, (number, at)
        assert verdict.is_rejected == (state == REJECTS)
        assert ("first registered at 274" in ending.evidence) == (state == REJECTS)


def register(node: Path, offset: int, directories: list[bytes]) -> None:
    """Node 1 registers once more as it did last, with these log directories."""
    log = open_metadata_log(str(CLUSTER / "node1"))
    records = [each.content for batch in log.walk() for each in batch.records if isinstance(each.content, ClusterMetadataRecord)]
    last = [each for each in records if each.api_key == MetadataRecordType.REGISTER_BROKER and each.message["brokerId"] == 1][-1]
    append_metadata_record(node, MetadataRecordType.REGISTER_BROKER, {**last.message, "logDirs": directories}, last.version, offset)


def place(node: Path, offset: int, directory: bytes) -> None:
    partition_changed(offset, directories=[directory] * 3)(node)


@pytest.mark.parametrize(("kept", "state"), [("second", WARNS), ("first", REJECTS)])
def test_an_empty_log_that_was_moved_between_log_directories(node: Path, kept: str, state: Mark) -> None:
    """It was moved into a second one, and is in a third one now: it was lost only if the second was gone when the third was registered."""
    first, second, third = uuid_from_text("vbgXJ_mX3w2WzAJjsPWbwQ"), b"2" * 16, uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag")
    register(node, 348, [first, second])
    place(node, 349, second)
    register(node, 350, [second if kept == "second" else first, third])
    place(node, 351, third)
    empty(node, "orders-1")
    meta(node, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (ending,) = [each for each in verdicts(check(node))["orders-1"].results if each.rule is SourceRule.R13]
    assert mark_of(ending) == state
    assert ("first registered at 350" in ending.evidence) == (state == REJECTS)


def test_the_history_is_read_once_for_all_empty_partitions(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("orders-0", "orders-1", "orders-2", "shrink-1")
    for name in names:
        empty(node, name)
    walks = 0
    walk = MetadataLog.walk

    def counted(log: MetadataLog, from_offset: int = 0, *, records: bool = True) -> MetadataWalk:
        nonlocal walks
        walks += 1
        return walk(log, from_offset, records=records)

    monkeypatch.setattr(MetadataLog, "walk", counted)
    found = verdicts(check(node))
    assert all("empty, in leader epoch" in found[name].results[12].evidence for name in names)
    assert walks == 2, "one for the image, one for the history"


def isr(node: Path, offset: int, members: list[int], leader: int = -2) -> None:
    partition_changed(offset, isr=members, leader=leader)(node)


@pytest.mark.parametrize(
    ("leader", "state"),
    [
        pytest.param(3, WARNS, id="it caught up with another leader"),
        pytest.param(1, REJECTS, id="it was elected itself"),
    ],
)
def test_an_empty_log_on_a_new_disk_that_caught_up_was_never_written_to(node: Path, leader: int, state: Mark) -> None:
    """A replica that joins under another leader has all that was committed; one elected uncleanly joins with nothing."""
    isr(node, 348, [3], leader=3)
    register(node, 349, [uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag")])
    place(node, 350, uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag"))
    isr(node, 351, [1, 3] if leader == 3 else [1], leader=-2 if leader == 3 else leader)
    empty(node, "orders-1")
    meta(node, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (ending,) = [each for each in verdicts(check(node))["orders-1"].results if each.rule is SourceRule.R13]
    assert mark_of(ending) == state


def test_an_empty_replica_next_to_a_longer_one(tmp_path: Path) -> None:
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node1"))
    empty(node, "orders-1")
    peers = (str(CLUSTER / "node3"),)
    assert str(verdicts(check(node, purpose=Purpose.UPLOAD, peers=peers))["orders-1"]) == "REJECTED(R13)"
    assert str(verdicts(check(node, peers=peers))["orders-1"]) == "TRUSTED"


def test_peers_have_the_same_lineage() -> None:
    """No healthy replica is cut, although leaders of empty epochs differ."""
    for mine in (1, 2, 3):
        peers = tuple(str(CLUSTER / f"node{number}") for number in (1, 2, 3) if number != mine)
        for name, verdict in verdicts(check(CLUSTER / f"node{mine}", peers=peers)).items():
            if "stray" not in name and name != "single-0":
                assert str(verdict) == "TRUSTED", (mine, name)


def test_an_epoch_that_begins_elsewhere(node: Path) -> None:
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 300\n")
    found = verdicts(check(node, peers=(str(CLUSTER / "node3"),)))["orders-1"]
    assert str(found) == "REJECTED(R12)"
    assert "leader epoch 1 begins at 300 here and at 292 there" in found.reason
    assert str(verdicts(check(node))["orders-1"]) == "TRUSTED", "alone nobody can tell"


def test_a_topic_of_another_cluster_is_no_peer(node: Path, tmp_path: Path) -> None:
    """A topic of the same name, and before 2.8 without an id: its epochs, and that it is longer, say nothing."""
    other = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "other"))
    (other / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 17\n")
    (other / "orders-1" / "partition.metadata").unlink()
    assert str(verdicts(check(node, peers=(str(other),)))["orders-1"]) == "REJECTED(R12)"
    meta(other, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    verdict = verdicts(check(node, peers=(str(other),)))["orders-1"]
    assert (str(verdict), "cannot be compared" in verdict.results[11].evidence) == ("TRUSTED", True)
    empty(node, "orders-2")
    assert mark_of(verdicts(check(node, purpose=Purpose.UPLOAD, peers=(str(other),)))["orders-2"].results[12]) == WARNS


def test_a_tail_that_the_log_continued_without(node: Path) -> None:
    """Leader epoch 1 began at 292: a replica that wrote on in epoch 0 would be cut there by its leader (KIP-101)."""
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    found = verdicts(check(node, peers=(str(CLUSTER / "node3"),)))["orders-1"]
    assert str(found) == "TRUSTED_BELOW(292)"
    assert found.rule is SourceRule.R12
