"""``cluster isr``: the bundled metadata logs, and one that breaks each rule, and it alone."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from log_dirs import batch, record
from manifests import CLUSTER, FIXTURES
from msgspec.structs import replace
from sentences import NOT_PROVEN

from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import (
    ClusterMetadataRecord,
    MetadataRecordType,
    read_cluster_metadata_record,
    write_cluster_metadata_record,
)
from snaprebuild.cluster.metadata.batches import MetadataBatch, MetadataRecord
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import TopicImage
from snaprebuild.cluster.metadata.isr_check import IsrCheckResult, IsrFault, IsrHistory, IsrQuestion, JoinKind, isr_check
from snaprebuild.findings import Severity, exit_code_of

TOPIC_ID = bytes(range(16))
DISKS = {1: b"\1" * 16, 2: b"\2" * 16, 3: b"\3" * 16}
NEW_DISK = b"\7" * 16


# ---------------------------------------------------------------------------------------------------------------- bundled logs


@pytest.mark.parametrize("node", ["node1", "node2", "node3"])
def test_the_replaced_disk_of_node_2(node: str) -> None:
    """Its replicas copied everything and joined, but for the topic without another replica: that one leads without its data."""
    final = json.loads((CLUSTER / "manifest.json").read_text())["final_image"]
    (broker,) = [each for each in final["brokers"] if each["id"] == 2]
    result = isr_check(IsrQuestion(str(CLUSTER / node)))
    on_new_disk = [each for each in result.events if each.gone_directories]
    assert {each.node_id for each in on_new_disk} == {2}
    assert {each.broker_epoch for each in on_new_disk} == {broker["epoch"]}
    old = (CLUSTER / "old" / "node2-replaced-disk" / "meta.properties").read_text()
    (directory,) = [line.partition("=")[2] for line in old.splitlines() if line.startswith("directory.id")]
    assert {each.gone_directories for each in on_new_disk} == {(directory.replace("\\", ""),)}
    (lost,) = [each for each in on_new_disk if each.isr_fault is IsrFault.ELECTED_NEW_DISK]
    assert (lost.topic, lost.partition, lost.kind) == ("single", 0, JoinKind.ELECTED_UNCLEANLY)
    of_broker_2 = {
        (topic["name"], each["partition"]) for topic in final["topics"] for each in topic["partitions"] if 2 in each["replicas"]
    }
    moved = {("shrink", 0)}  # reassigned away from broker 2 later
    assert {(each.topic, each.partition) for each in on_new_disk} == of_broker_2 | moved
    assert [each.code for each in result.findings if each.severity] == ["isr-elected-new-disk"]


@pytest.mark.parametrize(
    ("directory", "known_from"),
    [
        ("kraft-metadata/logs", 0),
        ("kraft-metadata-moved/logs", 640),
        ("kraft-cluster3/old/node2-killed", 0),
        ("kraft-cluster3/old/node2-replaced-disk", 0),
        ("kraft-cluster3/old/node3-clean-stopped", 0),
        ("kraft-cluster3/old/node3-old-topic", 0),
    ],
)
def test_healthy_ones_have_no_finding(directory: str, known_from: int) -> None:
    result = isr_check(IsrQuestion(str(FIXTURES / directory)))
    assert exit_code_of(result.findings) == 0
    assert result.first_offset == known_from
    assert (result.checkpoint is None) == (known_from == 0)


# ---------------------------------------------------------------------------------------------------------------- logs by hand


def value(kind: MetadataRecordType, version: int, **fields: Any) -> bytes:
    (schema,) = [each for each in load_schemas("cluster-metadata").values() if each.api_key == kind]
    message = {**schema.body.defaults(), **fields}
    return write_cluster_metadata_record(ClusterMetadataRecord(int(kind), schema.name, version, message))


def registered(broker: int, epoch: int, *, disk: bytes | None = None, incarnation: int = 0, fenced: bool = False) -> bytes:
    disks = [DISKS[broker] if disk is None else disk]
    identity = bytes([broker, incarnation]) + bytes(14)
    return value(
        MetadataRecordType.REGISTER_BROKER,
        3,
        brokerId=broker,
        brokerEpoch=epoch,
        incarnationId=identity,
        fenced=fenced,
        logDirs=disks,
    )


def broker_change(broker: int, epoch: int, *, fenced: int = 0, shutdown: int = 0) -> bytes:
    kind = MetadataRecordType.BROKER_REGISTRATION_CHANGE
    return value(kind, 1, brokerId=broker, brokerEpoch=epoch, fenced=fenced, inControlledShutdown=shutdown)


def change(**fields: Any) -> bytes:
    version = 2 if {"eligibleLeaderReplicas", "lastKnownElr"} & fields.keys() else 1
    return value(MetadataRecordType.PARTITION_CHANGE, version, partitionId=0, topicId=TOPIC_ID, **fields)


def partition(isr: list[int], leader: int, **fields: Any) -> bytes:
    return value(
        MetadataRecordType.PARTITION,
        2 if fields else 1,
        partitionId=0,
        topicId=TOPIC_ID,
        replicas=[1, 2, 3],
        isr=isr,
        leader=leader,
        directories=list(DISKS.values()),
        **fields,
    )


TOPIC = value(MetadataRecordType.TOPIC, 0, name="t", topicId=TOPIC_ID)
BROKERS = [registered(1, 0), registered(2, 1), registered(3, 2)]
HEALTHY = [*BROKERS, TOPIC, partition([1, 2, 3], 1)]
"""Offsets 0 to 4."""
LEFT = [change(isr=[1, 3]), broker_change(2, 1, fenced=1)]
"""Offsets 5 and 6: broker 2 leaves and is fenced."""
BACK = [registered(2, 7, incarnation=1, fenced=True), broker_change(2, 7, fenced=-1)]
"""Offsets 7 and 8: a new process of it is unfenced."""


def checked(tmp_path: Path, values: Iterable[bytes]) -> IsrCheckResult:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    data = b"".join(batch(offset, records=[record(each)], timestamp=1_000 + offset) for offset, each in enumerate(values))
    (directory / "00000000000000000000.log").write_bytes(data)
    return isr_check(IsrQuestion(str(tmp_path)))


ONE_NODE = {"unproven-tail", "voter-not-counted"}
"""Notes on every log here: it is of one node, and nothing else reports voters."""


def codes(result: IsrCheckResult) -> list[str]:
    """Codes of the findings other than those about one node."""
    return [each.code for each in result.findings if each.code not in ONE_NODE]


JOIN = change(isr=[1, 2, 3])

# What is wrong, and the records; None for a history that is as it should be.
HISTORIES: dict[str, tuple[IsrFault | None, list[bytes]]] = {
    "healthy: left, registered, unfenced, joined": (None, [*HEALTHY, *LEFT, *BACK, JOIN]),
    "healthy: amended with the same incarnation": (None, [*HEALTHY, registered(2, 1), JOIN]),
    "healthy: left by lagging behind, joined": (None, [*HEALTHY, change(isr=[1, 3]), JOIN]),
    "healthy: last one came back with its disk": (
        None,
        [*HEALTHY, change(isr=[2], leader=2), change(leader=-1), broker_change(2, 1, fenced=1), registered(2, 8, incarnation=1)],
    ),
    "unregistered": (
        IsrFault.UNREGISTERED,
        [*HEALTHY, *LEFT, value(MetadataRecordType.UNREGISTER_BROKER, 0, brokerId=2, brokerEpoch=1), JOIN],
    ),
    "fenced": (IsrFault.FENCED, [*HEALTHY, *LEFT, BACK[0], JOIN]),
    "shutting-down": (IsrFault.SHUTTING_DOWN, [*HEALTHY, broker_change(2, 1, shutdown=1), change(isr=[1, 3]), JOIN]),
    "epoch-ahead": (IsrFault.EPOCH_AHEAD, [*HEALTHY, *LEFT, registered(2, 900, incarnation=1), JOIN]),
    "stale-member": (IsrFault.STALE_MEMBER, [*HEALTHY, registered(2, 5, incarnation=1)]),
    "last-member-new-disk, without ELR": (
        IsrFault.LAST_MEMBER_NEW_DISK,
        [
            *HEALTHY,
            change(isr=[2], leader=2),
            change(leader=-1),
            broker_change(2, 1, fenced=1),
            registered(2, 8, incarnation=1, disk=NEW_DISK, fenced=True),
            broker_change(2, 8, fenced=-1),
            change(leader=2),
        ],
    ),
    "elected-new-disk, as an eligible leader replica": (
        IsrFault.ELECTED_NEW_DISK,
        [
            *HEALTHY,
            change(isr=[2], leader=2),
            change(isr=[], leader=-1, eligibleLeaderReplicas=[2]),
            registered(2, 7, incarnation=1, disk=NEW_DISK),
            change(isr=[2], leader=2, eligibleLeaderReplicas=[]),
        ],
    ),
    "unclean-election": (IsrFault.UNCLEAN_ELECTION, [*HEALTHY, *LEFT, *BACK, change(isr=[2], leader=2, leaderRecoveryState=1)]),
    "new-disk": (IsrFault.NEW_DISK, [*HEALTHY, *LEFT, registered(2, 7, incarnation=1, disk=NEW_DISK), JOIN]),
}
NOTES = {IsrFault.UNCLEAN_ELECTION, IsrFault.NEW_DISK}


@pytest.mark.parametrize("history", HISTORIES)
def test_each_rule_alone(tmp_path: Path, history: str) -> None:
    fault, values = HISTORIES[history]
    result = checked(tmp_path, values)
    assert [each.isr_fault for each in result.events] == ([] if fault is None else [fault])
    assert codes(result) == ([] if fault is None else [f"isr-{fault}"])
    assert exit_code_of(result.findings) == (0 if fault is None or fault in NOTES else 1)
    assert (result.first_offset, result.end_offset) == (0, len(values))


def test_evidence(tmp_path: Path) -> None:
    _, values = HISTORIES["fenced"]
    (event,) = checked(tmp_path, values).events
    assert (event.offset, event.timestamp_ms, event.topic, event.partition, event.node_id) == (8, 1_008, "t", 0, 2)
    assert (event.isr_before, event.isr, event.broker_epoch, event.left_offset) == ((1, 3), (1, 2, 3), 7, 5)
    assert event.kind is JoinKind.CAUGHT_UP


def test_a_record_that_contradicts_is_reported(tmp_path: Path) -> None:
    result = checked(tmp_path, [*HEALTHY, broker_change(9, 1, fenced=1)])
    assert [(each.code, each.offset) for each in result.findings if each.severity] == [("isr-record-left-out", 5)]


def test_damage_ends_what_is_known(tmp_path: Path) -> None:
    assert checked(tmp_path, HEALTHY).end_offset == 5
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    result = isr_check(IsrQuestion(str(tmp_path)))
    assert [each.severity for each in result.findings if each.severity] == [Severity.DAMAGED]
    assert result.end_offset == 4
    path.write_bytes(data[:-9])
    result = isr_check(IsrQuestion(str(tmp_path)))
    assert [each.severity for each in result.findings] == [Severity.NOTE] * len(result.findings)
    assert codes(result) == ["torn-tail"]


# ---------------------------------------------------------------------------------------------------------------- what is committed


@pytest.mark.parametrize("node", ["node1", "node2", "node3"])
def test_a_majority_proves_the_records(node: str) -> None:
    """The three nodes stopped together, with the same log (the manifest's high watermark); one alone proves what its checkpoint holds."""
    others = tuple((None, str(CLUSTER / each)) for each in ("node1", "node2", "node3") if each != node)
    alone, together = (isr_check(IsrQuestion(str(CLUSTER / node), each)) for each in ((), others))
    assert [replace(each, is_proven=True) for each in alone.events] == list(together.events)
    checkpoint_end = max(each.end_offset for each in alone.log.checkpoints)
    assert [each.is_proven for each in alone.events] == [each.offset < checkpoint_end for each in alone.events]
    assert all(each.is_proven for each in together.events)
    (lost,) = [each.message for each in together.findings if each.severity]
    assert lost.endswith("; committed")
    assert [each.code for each in alone.findings if each.severity] == [each.code for each in together.findings if each.severity]


def checked_with_voter(tmp_path: Path, values: Sequence[bytes], voter_records: int) -> IsrCheckResult:
    """The check of a log of voter 1, with that of voter 2, which has the first ``voter_records`` records."""
    for node, count in ((1, len(values)), (2, voter_records)):
        directory = tmp_path / f"node{node}" / "__cluster_metadata-0"
        directory.mkdir(parents=True)
        data = b"".join(batch(offset, records=[record(each)]) for offset, each in enumerate(values[:count]))
        (directory / "00000000000000000000.log").write_bytes(data)
        (directory.parent / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={node}\n")
    return isr_check(IsrQuestion(str(tmp_path / "node1"), ((None, str(tmp_path / "node2")),), voter_ids=(1, 2)))


def test_an_unproven_violation_says_so(tmp_path: Path) -> None:
    """A voter whose log ends before the violation proves what is before it."""
    _, values = HISTORIES["fenced"]
    result = checked_with_voter(tmp_path, values, len(values) - 1)
    (event,) = result.events
    assert (event.offset, result.proof.proven_end_offset, event.is_proven) == (8, 8, False)
    (finding,) = [each for each in result.findings if each.severity]
    assert finding.message.endswith(f"; {NOT_PROVEN}")


@pytest.mark.parametrize(("voter_records", "is_proven"), [(10, False), (11, True)])
def test_a_transaction_takes_effect_where_it_ends(tmp_path: Path, voter_records: int, is_proven: bool) -> None:
    """So it is committed when its end is, at offset 10."""
    begin, end = (value(kind, 0) for kind in (MetadataRecordType.BEGIN_TRANSACTION, MetadataRecordType.END_TRANSACTION))
    result = checked_with_voter(tmp_path, [*HEALTHY, *LEFT, BACK[0], begin, JOIN, end], voter_records)
    (event,) = result.events
    assert (event.isr_fault, event.offset, event.is_proven) == (IsrFault.FENCED, 9, is_proven)


# ---------------------------------------------------------------------------------------------------------------- large clusters


class Unwalked(dict[bytes, TopicImage]):
    """Topics that may be looked up, and not walked."""

    def values(self) -> Any:
        raise AssertionError("all topics were walked")

    items = keys = __iter__ = values


def test_a_registration_asks_for_the_partitions_of_its_broker_alone() -> None:
    """Else a broker that crashes again and again makes the check of a large cluster slow."""
    fold = ImageFold()
    history = IsrHistory(fold)
    stays = registered(2, 5, incarnation=1)
    batches = [
        MetadataBatch(offset, offset, 0, 0, False, 0, 0, (MetadataRecord(offset, read_cluster_metadata_record(each)),))
        for offset, each in enumerate([*HEALTHY, stays])
    ]
    for each in batches[:-1]:
        assert list(history.take(each)) == []
    fold.topics = Unwalked(fold.topics)
    assert [each.isr_fault for each in history.take(batches[-1])] == [IsrFault.STALE_MEMBER]
