"""Go or no-go for what must be in order before remote storage is switched on: faults next to healthy forms."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from merged_scans import merged_documents, view
from pages import scan_document, scanned
from sentences import NO_SCAN_HAS_BROKER
from stopped_broker import made

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement, view_of
from snaprebuild.cluster.fleet.upgrade_steps import FREE_BYTES_MIN, Go, StepName, UpgradeStep
from snaprebuild.cluster.metadata.feature_levels import FeatureLevel, HoldingNode, NodeKind, NodeState
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType

Documents = dict[int, dict[str, Any]]
Change = Callable[[Documents], object]
MIB = 1 << 20


def documents() -> Documents:
    """Two brokers of 3.9 with ZooKeeper and a copy quota of 1 MiB/s. Each has 4 MiB of rolled segments."""
    brokers = {node: scan_document([scanned("a")], node_id=node) for node in (1, 2)}
    for each in brokers.values():
        each["run"]["free_space"] = [{"path": "/kafka", "free_bytes": 5 * FREE_BYTES_MIN}]
        each["settings"] = {"inter_broker_protocol_version": "3.9", "copy_quota_bytes_per_second": MIB}
    return brokers


def steps_of(place: Path, change: Change, placed: ClusterView | None = None) -> dict[StepName, UpgradeStep]:
    brokers = documents()
    change(brokers)
    result = merged_documents(place, brokers, view=placed)
    return {each.kind: each for each in result.upgrade if each.kind is not StepName.RESTART}


def set_protocol(protocol: str | None, release: str | None = None) -> Change:
    def change(brokers: Documents) -> None:
        brokers[2]["settings"]["inter_broker_protocol_version"] = protocol
        brokers[2]["log_dirs"][0]["kafka_release"] = release

    return change


def without_id(brokers: Documents) -> None:
    brokers[1]["partitions"].append(scanned("old", topic_id=None))


def suspect(brokers: Documents) -> None:
    brokers[2]["partitions"][0]["boundaries"][1]["state"] = "suspect"


def full(brokers: Documents) -> None:
    brokers[2]["run"]["free_space"][0]["free_bytes"] = FREE_BYTES_MIN - 1


def missing_on(*nodes: int) -> Change:
    def change(brokers: Documents) -> None:
        for node in nodes:
            brokers[node]["partitions"] = [scanned("a", missing=3)]

    return change


KRAFT = view(a=Placement((1, 2), frozenset({1, 2}), 1))


def with_level(level: int, of_all: int, of_any: int, *holding: int) -> ClusterView:
    nodes = tuple(HoldingNode(NodeKind.BROKER, node, of_all, NodeState.ACTIVE) for node in holding)
    return replace(KRAFT, features=(FeatureLevel("metadata.version", level, of_all, of_any, nodes),))


SCAN = "snaprebuild scan --server-properties FILE --output json"
FEATURES = "kafka-features.sh --bootstrap-server HOST:PORT describe"
STEPS: dict[str, tuple[Change, ClusterView | None, StepName, Go, str, str | None]] = {
    # The change, the metadata log, and the step with its verdict, evidence and command.
    "protocol 2.7": (set_protocol("2.7"), None, StepName.PROTOCOL, Go.NO_GO, "is 2.7 on broker 2: raise it", SCAN),
    "protocol 2.7-IV1": (set_protocol("2.7-IV1"), None, StepName.PROTOCOL, Go.NO_GO, "2.7-IV1 on broker 2", SCAN),
    "protocol not set, 3.9 runs": (set_protocol(None, "3.9.2"), None, StepName.PROTOCOL, Go.GO, "2.8 or newer", None),
    "protocol not set, release unknown": (set_protocol(None), None, StepName.PROTOCOL, Go.UNKNOWN, "of broker 2 is unknown", SCAN),
    "no settings": (lambda all_of: all_of[1].pop("settings"), None, StepName.PROTOCOL, Go.UNKNOWN, "of broker 1 is unknown", SCAN),
    "metadata.version unknown": (lambda _: None, KRAFT, StepName.PROTOCOL, Go.UNKNOWN, "name the metadata log", FEATURES),
    "metadata.version held back": (
        lambda _: None,
        with_level(20, 20, 25, 2),
        StepName.PROTOCOL,
        Go.NO_GO,
        "metadata.version is 20; greatest one of broker 2: 20, of others: 25",
        FEATURES,
    ),
    "metadata.version to raise": (
        lambda _: None,
        with_level(20, 25, 25),
        StepName.PROTOCOL,
        Go.GO,
        "support 25: raise it",
        FEATURES,
    ),
    "metadata.version raised": (lambda _: None, with_level(25, 25, 25), StepName.PROTOCOL, Go.GO, "the greatest one", None),
    "a topic without an id": (without_id, None, StepName.TOPIC_IDS, Go.NO_GO, "1 topic without an id (old)", SCAN),
    "missing in each replica": (
        missing_on(1, 2),
        None,
        StepName.MISSING,
        Go.NO_GO,
        "1 partition cannot be uploaded; 6 snapshots missing on brokers 1, 2",
        "snaprebuild plan /kafka",
    ),
    "missing where nobody leads": (
        missing_on(2),
        KRAFT,
        StepName.MISSING,
        Go.GO,
        "the leaders have every snapshot; 3 snapshots missing on broker 2: repair these before they lead",
        "snaprebuild plan /kafka",
    ),
    "not scanned": (lambda all_of: all_of.pop(1), KRAFT, StepName.MISSING, Go.UNKNOWN, "were not scanned", SCAN),
    "suspect": (suspect, None, StepName.SUSPECT, Go.NO_GO, "1 snapshot on broker 2 cannot be", "snaprebuild verify /kafka"),
    "a full disk": (full, None, StepName.FREE_SPACE, Go.NO_GO, "free: 1023 MiB in /kafka of broker 2", "df -h"),
    "space unknown": (
        lambda all_of: all_of[1]["run"].pop("free_space"),
        None,
        StepName.FREE_SPACE,
        Go.UNKNOWN,
        "no scan has the free space of broker 1",
        SCAN,
    ),
    "a slow quota": (
        lambda all_of: all_of[2]["settings"].update(copy_quota_bytes_per_second=100),
        None,
        StepName.BACKLOG,
        Go.GO,
        "11.7 hours on broker 2 at 100 bytes/s",  # 4 MiB / 100 / 3600
        None,
    ),
    "no quota": (
        lambda all_of: all_of[2]["settings"].update(copy_quota_bytes_per_second=None),
        None,
        StepName.BACKLOG,
        Go.GO,
        "no copy quota on broker 2",
        None,
    ),
    "who leads": (
        lambda all_of: all_of[1]["settings"].update(copy_quota_bytes_per_second=100),
        KRAFT,
        StepName.BACKLOG,
        Go.GO,
        "at most 4 MiB to upload; 11.7 hours on broker 1 at 100 bytes/s",
        None,
    ),
    "quota unknown": (
        lambda all_of: all_of[1].pop("settings"),
        None,
        StepName.BACKLOG,
        Go.UNKNOWN,
        "the copy quota of broker 1 is unknown",
        SCAN,
    ),
    "a dynamic quota": (
        lambda all_of: all_of[1].pop("settings"),
        replace(KRAFT, copy_quotas={None: 5, 1: 100}),
        StepName.BACKLOG,
        Go.GO,
        "11.7 hours on broker 1 at 100 bytes/s",
        None,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_with_its_evidence(name: str, tmp_path: Path) -> None:
    change, placed, step, go, evidence, command = STEPS[name]
    found = steps_of(tmp_path, change, placed)[step]
    assert (found.go, found.command) == (go, command)
    assert evidence in found.evidence


@pytest.mark.parametrize("placed", [None, with_level(25, 25, 25)])
def test_a_cluster_in_order_may_do_each_step(placed: ClusterView | None, tmp_path: Path) -> None:
    steps = steps_of(tmp_path, lambda _: None, placed)
    assert list(steps) == [each for each in StepName if each is not StepName.RESTART]
    assert {each.go for each in steps.values()} == {Go.GO}
    assert {each.command for each in steps.values()} == {None}


def test_a_scan_that_is_refused_or_incomplete_leaves_the_checks_open(tmp_path: Path) -> None:
    """Nothing is called in order that was not looked at."""
    selected = {"paths": [], "server_properties": None, "topics": ["a"], "partitions": []}
    steps = steps_of(tmp_path, lambda all_of: all_of[1].update(request=selected))
    assert {name for name, each in steps.items() if each.go is Go.GO} == {StepName.PROTOCOL}
    refused = replace(with_level(25, 25, 25), epochs={2: 1})
    steps = steps_of(tmp_path, lambda _: None, refused)
    assert {name for name, each in steps.items() if each.go is Go.GO} == {StepName.PROTOCOL}


def test_a_broker_without_a_scan_leaves_the_checks_and_its_restart_open(tmp_path: Path) -> None:
    """The leaders were scanned, so that each partition is judged; broker 3 has a replica, and no scan."""
    placed = replace(with_level(25, 25, 25), placements=view(a=Placement((1, 2, 3), frozenset({1, 2, 3}), 1)).placements)
    result = merged_documents(tmp_path, documents(), view=placed)
    assert {each.kind for each in result.upgrade if each.go is Go.GO} == {StepName.RESTART, StepName.PROTOCOL}
    (third,) = [each for each in result.upgrade if each.node_id == 3]
    assert (third.go, third.evidence) == (Go.UNKNOWN, NO_SCAN_HAS_BROKER)


def test_a_broker_whose_scan_is_refused_or_incomplete_is_not_restarted(tmp_path: Path) -> None:
    selected = {"paths": [], "server_properties": None, "topics": ["a"], "partitions": []}
    brokers = documents()
    brokers[1].update(request=selected)
    for node, epoch in ((1, 7), (2, 9)):
        brokers[node]["log_dirs"][0]["broker_epoch"] = epoch
    result = merged_documents(tmp_path, brokers, view=replace(KRAFT, epochs={1: 7, 2: 100}))
    assert {each.go for each in result.upgrade if each.node_id} == {Go.UNKNOWN}
    evidence = {each.node_id: each.evidence for each in result.upgrade if each.node_id}
    assert evidence == {1: "its scan is incomplete", 2: "its scan was refused"}


def test_dynamic_quotas_of_a_metadata_log() -> None:
    quota = {"remote.log.manager.copy.max.bytes.per.second": "100"}
    configs = {ConfigResource(ResourceType.BROKER, name): quota for name in ("", "7")}
    assert view_of(MetadataImage(configs=configs)).copy_quotas == {None: 100, 7: 100}


@pytest.mark.parametrize(
    ("lines", "protocol", "quota", "expiration_ms"),
    [
        ("", None, None, 86_400_000),
        (
            "inter.broker.protocol.version=2.7\nremote.log.manager.copy.max.bytes.per.second=52428800\n",
            "2.7",
            52_428_800,
            604_800_000,
        ),
        ("remote.log.manager.copy.max.bytes.per.second=many\n", None, None, 86_400_000),
    ],
)
def test_what_scan_writes_for_it(lines: str, protocol: str | None, quota: int | None, expiration_ms: int, tmp_path: Path) -> None:
    log_dir = made(tmp_path, kraft=False).parent
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={log_dir}\n{lines}")
    document = in_json("scan", "--server-properties", properties).document
    assert document["settings"] == {
        "inter_broker_protocol_version": protocol,
        "copy_quota_bytes_per_second": quota,
        "producer_expiration_ms": expiration_ms,
    }
    ((path, free_bytes),) = [(each["path"], each["free_bytes"]) for each in document["run"]["free_space"]]
    assert path == str(log_dir)
    assert free_bytes > 0
    assert in_json("scan", log_dir).document["settings"] is None
