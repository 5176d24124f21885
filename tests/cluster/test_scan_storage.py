"""Whether remote storage is on for a topic, from the metadata logs of real brokers: expected is what Kafka's own classes fold of them."""

import json
import shutil
from pathlib import Path

import pytest
from command import in_json
from log_dirs import EMPTY_SNAPSHOT
from manifests import CLUSTER, FIXTURES
from metadata_logs import append_metadata_record
from sentences import NOT_PROVEN, STORAGE_UNKNOWN

from formats.metadata.cluster_metadata import MetadataRecordType
from snaprebuild.broker.fates import FateKind
from snaprebuild.cli.render.scan import scan_document
from snaprebuild.cluster.scan_storage import NextStartJudge, judged_scan, with_metadata_logs
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.snapshots.scan import copy_lag, partition
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_parts import ScanRequest
from snaprebuild.snapshots.source.source import open_source

LOST = FIXTURES / "follower-lost-state"
METADATA = "__cluster_metadata-0"


def storage(*paths: Path, server_properties: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """The state of each topic, and the notes on those that are not known."""
    source = open_source([str(path) for path in paths], None if server_properties is None else str(server_properties))
    before = scan_source(source)
    result = with_metadata_logs(before, source, 0)
    notes = [each for each in result.findings if each.code == "topic-storage-unknown"]
    assert exit_code_of(result.other_findings) == exit_code_of(before.other_findings)
    assert {each.severity for each in notes} <= {Severity.NOTE}
    return {topic: state.value for topic, state in result.remote_storage.items()}, [each.message for each in notes]


def as_kafka_folds(image: Path, topic: str) -> str:
    configs = json.loads(image.read_text())["configs"].get(f"ConfigResource(type=TOPIC, name='{topic}')", {})
    return "on" if configs.get("remote.storage.enable") == "true" else "off"


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """A log directory of which no checkpoint shows that remote storage is on: node 1 is the only voter."""
    copy = Path(shutil.copytree(LOST / "node1", tmp_path / "tiered"))
    (copy / "log-start-offset-checkpoint").unlink()
    return copy


def config(log_dir: Path, topic: str, value: str | None, offset: int, name: str = "remote.storage.enable") -> None:
    message = {"resourceType": 2, "resourceName": topic, "name": name, "value": value}
    append_metadata_record(log_dir, MetadataRecordType.CONFIG, message, 0, offset)


def test_on_and_off_are_as_kafka_folds_them(node: Path, tiered: Path, tmp_path: Path) -> None:
    states, notes = storage(node, tiered)
    expected = {name: as_kafka_folds(CLUSTER / "expected" / "image-final.json", name) for name in ("orders", "shrink", "reborn")}
    expected["payments"] = as_kafka_folds(LOST / "expected" / "image-final.json", "payments")
    assert {name: states[name] for name in expected} == expected
    assert set(expected.values()) == {"on", "off"}
    assert notes == []
    for log_dir in (node, tiered):
        shutil.rmtree(log_dir / METADATA)
    states, notes = storage(node, tiered)
    assert ({states[name] for name in expected}, notes) == ({"unknown"}, [])


def test_what_is_not_committed_is_not_known(node: Path, tiered: Path) -> None:
    """With three voters one log proves no more than its newest checkpoint; the only voter has committed what it wrote."""
    config(node, "orders", "604800000", 348, "retention.ms")
    assert storage(node)[0]["orders"] == "off"
    config(node, "orders", "true", 349)
    states, (note,) = storage(node)
    assert (states["orders"], states["shrink"]) == ("unknown", "off")
    assert note.startswith(f"remote.storage.enable of 1 topic (orders) is not known: offset 315 and later is {NOT_PROVEN}")
    for value, offset, state in (("false", 136, "off"), ("true", 137, "on"), (None, 138, "off")):
        config(tiered, "payments", value, offset)
        assert storage(tiered) == ({**storage(tiered)[0], "payments": state}, [])


def test_without_a_checkpoint_the_log_of_a_follower_proves_nothing(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LOST / "node2", tmp_path / "node2"))
    (copy / "log-start-offset-checkpoint").unlink()
    states, (note,) = storage(copy)
    assert states["payments"] == "unknown"
    assert f"offset 0 and later is {NOT_PROVEN}" in note


def test_a_topic_is_looked_up_by_its_id(node: Path, tiered: Path) -> None:
    (node / "orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")
    (tiered / "payments-0" / "partition.metadata").unlink()
    states, _ = storage(node, tiered)
    assert (states["orders"], states["payments"], states["shrink"]) == ("unknown", "unknown", "off")


def test_two_metadata_logs_that_differ(tiered: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(tiered, tmp_path / "older"))
    config(tiered, "payments", "false", 136)
    assert (storage(tiered)[0]["payments"], storage(older)[0]["payments"]) == ("off", "on")
    assert storage(tiered, older)[0]["payments"] == "unknown"


def test_a_metadata_log_that_cannot_be_read_is_a_note(node: Path) -> None:
    for path in (node / METADATA).iterdir():
        if path.suffix in (".checkpoint", ".log"):
            path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    states, (note,) = storage(node)
    assert states["orders"] == "unknown"
    assert note.startswith(STORAGE_UNKNOWN)


def test_the_metadata_log_may_be_outside_of_the_log_directories(tiered: Path, tmp_path: Path) -> None:
    """In ``metadata.log.dir`` of the configuration, or in a directory that is named."""
    shutil.move(tiered / METADATA, tmp_path / "metadata" / METADATA)
    shutil.copy(tiered / "meta.properties", tmp_path / "metadata")
    properties = tmp_path / "server.properties"
    given = f"log.dirs={tiered}\nremote.log.storage.system.enable=true\n"
    properties.write_text(given)
    assert storage(server_properties=properties)[0]["payments"] == "unknown"
    assert storage(tiered, tmp_path / "metadata")[0]["payments"] == "on"
    properties.write_text(f"{given}metadata.log.dir={tmp_path / 'metadata'}\n")
    assert storage(server_properties=properties)[0]["payments"] == "on"


# ---------------------------------------------------------------------------------------------------------------- broker epochs


def epoch_in_scan(*paths: Path) -> list[tuple[int | None, str | None]]:
    """The broker epoch of each log directory, and its evidence, as the document has them."""
    source = open_source([str(path) for path in paths])
    result = with_metadata_logs(scan_source(source), source, 0)
    request = ScanRequest(paths=[str(path) for path in paths], server_properties=None, topics=(), partitions=())
    return [(each.broker_epoch, each.broker_epoch_source) for each in scan_document(result, request).log_dirs]


def registered_epoch(image: Path, node_id: int) -> int:
    """Epoch of a registered broker, as Kafka's own classes fold the log."""
    (epoch,) = [each["epoch"] for each in json.loads(image.read_text())["brokers"] if each["id"] == node_id]
    return int(epoch)


def test_the_epoch_is_that_of_the_marker_or_of_the_own_metadata_log(tmp_path: Path) -> None:
    killed = Path(shutil.copytree(CLUSTER / "old" / "node2-killed", tmp_path / "killed"))
    marker = json.loads((CLUSTER / "node1" / ".kafka_cleanshutdown").read_text())["brokerEpoch"]
    own = registered_epoch(CLUSTER / "expected" / "image-node2-killed.json", 2)
    found = sorted(epoch_in_scan(killed, CLUSTER / "node1"))  # the order is that of the paths
    assert found == sorted([(own, "metadata-log"), (marker, "clean-shutdown-marker")])
    (killed / METADATA / "00000000000000009999.snapshot").write_bytes(EMPTY_SNAPSHOT)  # it reached further
    assert epoch_in_scan(killed) == [(None, None)]
    shutil.rmtree(killed / METADATA)
    assert epoch_in_scan(killed) == [(None, None)]


def test_the_epoch_of_another_node_is_not_taken(tmp_path: Path) -> None:
    """The other disks of a broker get it by their node id and cluster id, and no other directory does."""
    killed = Path(shutil.copytree(CLUSTER / "old" / "node2-killed", tmp_path / "killed"))
    other = tmp_path / "other"
    other.mkdir()
    text = (killed / "meta.properties").read_text()
    own = registered_epoch(CLUSTER / "expected" / "image-node2-killed.json", 2)
    for node_id, expected in ((2, (own, "metadata-log")), (7, (None, None))):
        lines = [f"node.id={node_id}" if line.startswith("node.id") else line for line in text.splitlines()]
        (other / "meta.properties").write_text("\n".join(line for line in lines if not line.startswith("directory.id")) + "\n")
        shutil.copytree(killed / "orders-0", other / "orders-0", dirs_exist_ok=True)
        assert epoch_in_scan(killed, other)[1] == expected


def test_copies_of_one_node_do_not_hide_one_another(tmp_path: Path) -> None:
    """Each directory with a metadata log has the epoch of that log; to which of them another disk of the node belongs is unknown."""
    old = Path(shutil.copytree(CLUSTER / "old" / "node2-killed", tmp_path / "a-old"))
    now = Path(shutil.copytree(CLUSTER / "node2", tmp_path / "b-now"))
    (now / ".kafka_cleanshutdown").unlink(missing_ok=True)
    disk = tmp_path / "c-disk"
    disk.mkdir()
    shutil.copy(old / "meta.properties", disk)
    shutil.copytree(old / "orders-0", disk / "orders-0")
    before = registered_epoch(CLUSTER / "expected" / "image-node2-killed.json", 2)
    after = registered_epoch(CLUSTER / "expected" / "image-final.json", 2)
    assert before < after
    of = (before, "metadata-log"), (after, "metadata-log")
    assert epoch_in_scan(old, now) == list(of)
    assert epoch_in_scan(old, now, disk) == [*of, (None, None)]
    same = Path(shutil.copytree(old, tmp_path / "d-same"))
    assert epoch_in_scan(old, disk, same) == [of[0]] * 3


def lag_of(*paths: Path) -> dict[str, tuple[int, int]]:
    """Partitions with segments that wait: the first of them, and how many."""
    source = open_source([str(path) for path in paths])
    waits = {
        each.source.directory.topic_partition: each.preflight.copy_lag
        for each in with_metadata_logs(scan_source(source), source, 0).partitions
    }
    return {name: (wait.base_offset, wait.segments) for name, wait in waits.items() if wait is not None}


def test_the_lag_of_a_topic_is_that_of_the_metadata_log(tiered: Path) -> None:
    """Release 4.4 takes the topic's setting, else that of its broker, else that of all brokers. Both conditions must ask for
    patience."""
    (partition,) = [
        each for each in scan_source(open_source([str(tiered)])).partitions if each.source.directory.topic_partition == "payments-0"
    ]
    rolled = len(partition.source.directory.segments) - 1
    assert rolled > 0
    everything = {"payments-0": (partition.source.directory.segments[0].base_offset, rolled)}
    assert lag_of(tiered) == {}
    config(tiered, "payments", str(10**15), 136, "remote.copy.lag.bytes")
    assert lag_of(tiered) == {}, "a lag of 0 ms makes every segment due"
    config(tiered, "payments", "-1", 137, "remote.copy.lag.ms")
    config(tiered, "payments", "-1", 138, "local.retention.ms")
    assert lag_of(tiered) == everything
    config(tiered, "payments", None, 139, "remote.copy.lag.ms")
    assert lag_of(tiered) == {}
    for resource, value, offset, expected in (("", "-1", 140, everything), ("1", "0", 141, {}), ("2", "0", 142, {})):
        message = {"resourceType": 4, "resourceName": resource, "name": "log.remote.copy.lag.ms", "value": value}
        append_metadata_record(tiered, MetadataRecordType.CONFIG, message, 0, offset)
        assert lag_of(tiered) == expected


def test_a_lag_that_is_not_committed_does_not_count(node: Path) -> None:
    """With three voters one log proves no more than its newest checkpoint."""
    for name, offset in (("remote.copy.lag.ms", 348), ("remote.copy.lag.bytes", 349), ("local.retention.ms", 350)):
        config(node, "orders", "-1", offset, name)
    assert lag_of(node) == {}


# ---------------------------------------------------------------------------------------------------------------- the own metadata log


OTHER_TOPIC_ID = "version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA"


def strays(*paths: Path, server_properties: Path | None = None) -> list[str]:
    """Paths of the partitions that the next start sets aside."""
    source = open_source([str(path) for path in paths], None if server_properties is None else str(server_properties))
    fates = with_metadata_logs(scan_source(source), source, 0).fates
    return [fate.path for fate in fates if fate.kind is FateKind.STRAY]


def with_log_elsewhere(node: Path, meta: Path) -> Path:
    """Moves the metadata log into a ``metadata.log.dir``: the ``server.properties``. Its directory has an own id, as Kafka writes it."""
    shutil.move(node / METADATA, meta / METADATA)
    text = (node / "meta.properties").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("directory.id")]
    (meta / "meta.properties").write_text("\n".join((*lines, "directory.id=8mRrVvXkQ0qWcH0nB1p2Tg", "")))
    properties = meta.parent / "server.properties"
    settings = ("process.roles=broker", "node.id=1", f"log.dirs={node}", f"metadata.log.dir={meta}", "")
    properties.write_text("\n".join(settings))
    return properties


def test_a_metadata_log_outside_of_log_dirs_judges_the_partitions(node: Path, tmp_path: Path) -> None:
    """The result is that of a log inside of ``log.dirs``; the lowest release is that of its ``metadata.version``."""
    assert strays(node) == []
    properties = with_log_elsewhere(node, tmp_path / "meta")
    assert strays(server_properties=properties) == []
    (node / "orders-0" / "partition.metadata").write_text(OTHER_TOPIC_ID)
    assert strays(server_properties=properties) == [str(node / "orders-0")]
    source = open_source([], str(properties))
    fates = with_metadata_logs(scan_source(source), source, 0).fates
    assert all(fate.evidence.endswith("metadata.version") for fate in fates if fate.kind is FateKind.STRAY)


def test_each_of_two_copies_of_a_node_is_judged_by_its_own_metadata_log(node: Path, tmp_path: Path) -> None:
    """The image from before a topic was made anew has its old id, the final one the new id."""
    old = Path(shutil.copytree(CLUSTER / "old" / "node2-killed", tmp_path / "copies" / "old"))
    new = Path(shutil.copytree(CLUSTER / "node2", tmp_path / "copies" / "new"))
    assert strays(old, new) == strays(new, old) == []


def test_a_disk_with_a_newer_metadata_log_has_the_strays_that_kafka_made(tmp_path: Path) -> None:
    """The disk of a node that was down while topics were deleted, and what its start set aside."""
    disk = Path(shutil.copytree(CLUSTER / "old" / "node3-old-topic", tmp_path / "disk"))
    shutil.rmtree(disk / METADATA)
    shutil.copytree(CLUSTER / "node3" / METADATA, disk / METADATA)
    by_kafka = {path.name.partition(".")[0] for path in (CLUSTER / "node3").glob("*-stray")}
    assert by_kafka
    source = open_source([str(disk)])
    fates = with_metadata_logs(scan_source(source), source, 0).fates
    assert {fate.subject for fate in fates if fate.kind in (FateKind.STRAY, FateKind.OLD_REPLICA)} == by_kafka


@pytest.mark.parametrize("first", ["copy", "zcopy"])
def test_the_metadata_log_of_a_copy_does_not_judge_the_configured_directories(node: Path, tmp_path: Path, first: str) -> None:
    """The copy is of the same node, from before a topic was made; its name is before or after that of the node."""
    copy = Path(shutil.copytree(CLUSTER / "old" / "node2-killed", tmp_path / first))
    text = (copy / "meta.properties").read_text()
    (copy / "meta.properties").write_text(text.replace("node.id=2", "node.id=1"))
    before = strays(server_properties=with_log_elsewhere(node, tmp_path / "meta"))
    both = strays(copy, server_properties=tmp_path / "server.properties")
    assert [path for path in both if path.startswith(f"{node}/")] == before == []


WITH_NODE = "version=1\nnode.id={}\ncluster.id=Zx4kQm3BTyGd1rPq7sVwYA\ndirectory.id=vbgXJ_mX3w2WzAJjsPWbwQ\n"


@pytest.mark.parametrize(
    ("contents", "is_assigned_elsewhere"),
    [
        ("", False),
        ("version=1\ncluster.id=Zx4kQm3BTyGd1rPq7sVwYA\n", False),
        (WITH_NODE.format("x"), False),
        (WITH_NODE.format(1), False),
        (WITH_NODE.format(9), True),
    ],
    ids=["empty", "no node.id", "no number", "its node", "another node"],
)
def test_replicas_of_an_unknown_node_are_not_called_unassigned(
    tmp_path: Path, contents: str, *, is_assigned_elsewhere: bool
) -> None:
    """Without a node id nothing shows whose replicas these are. Their records may be the only ones."""
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node1"))
    (node / "meta.properties").write_text(contents)
    codes = {finding["code"] for finding in in_json("scan", node).document["findings"]}
    assert ("not-assigned" in codes) is is_assigned_elsewhere


@pytest.mark.parametrize("fixture", ["kafka27-killed", "damaged", "kraft-cluster3"])
def test_a_start_that_is_judged_alone_has_the_fates_of_a_scan(fixture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is read for it that only shows snapshots or uploads."""
    source = open_source([str(FIXTURES / fixture)])
    expected = judged_scan(source, 0)
    monkeypatch.setattr(partition, "check_snapshots", lambda *_, **__: pytest.fail("reads snapshots"))
    monkeypatch.setattr(copy_lag, "read_last_timestamp_hint", lambda *_: pytest.fail("reads time indexes"))
    start = NextStartJudge()(source)
    assert expected.fates
    assert {each.path for each in start.unread} <= {each.path for each in expected.other_findings if each.is_unread}
    assert sorted(map(repr, start.fates)) == sorted(map(repr, expected.fates))
