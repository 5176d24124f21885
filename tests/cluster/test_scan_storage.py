"""Whether remote storage is on for a topic, from the metadata logs of real brokers: expected is what Kafka's own classes fold of them."""

import json
import shutil
from pathlib import Path

import pytest
from manifests import CLUSTER, FIXTURES
from metadata_logs import append_metadata_record

from formats.metadata.cluster_metadata import MetadataRecordType
from snaprebuild.cluster.scan_storage import with_topic_storage
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.snapshots.scan.scan import scan
from snaprebuild.snapshots.source.source import open_source

LOST = FIXTURES / "follower-lost-state"
METADATA = "__cluster_metadata-0"


def storage(*paths: Path, server_properties: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """The state of each topic, and the notes on those that are not known."""
    source = open_source([str(path) for path in paths], None if server_properties is None else str(server_properties))
    before = scan(source)
    result = with_topic_storage(before, source)
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
    """Of three voters one log proves no more than its newest checkpoint; the only voter has committed what it wrote."""
    config(node, "orders", "604800000", 348, "retention.ms")
    assert storage(node)[0]["orders"] == "off"
    config(node, "orders", "true", 349)
    states, (note,) = storage(node)
    assert (states["orders"], states["shrink"]) == ("unknown", "off")
    assert note.startswith(
        "remote.storage.enable of 1 topic (orders) is not known: offset 315 and later is not proven to be committed"
    )
    for value, offset, state in (("false", 136, "off"), ("true", 137, "on"), (None, 138, "off")):
        config(tiered, "payments", value, offset)
        assert storage(tiered) == ({**storage(tiered)[0], "payments": state}, [])


def test_without_a_checkpoint_the_log_of_a_follower_proves_nothing(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LOST / "node2", tmp_path / "node2"))
    (copy / "log-start-offset-checkpoint").unlink()
    states, (note,) = storage(copy)
    assert states["payments"] == "unknown"
    assert "offset 0 and later is not proven to be committed" in note


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
    assert note.startswith("remote.storage.enable of the topics cannot be read: ")


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
