"""``cluster image`` as a user runs it: facts of real clusters, what is proven of them, and directories that are not sound."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import batch, record, tree
from manifests import CLUSTER

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record

LOG = "__cluster_metadata-0"
FINAL = json.loads((CLUSTER / "expected" / "image-final.json").read_text())


def without_names(partition: dict[str, Any]) -> dict[str, Any]:
    """The manifest has the names at the topic alone."""
    return {key: value for key, value in partition.items() if key not in ("topic", "topic_partition")}


def facts(document: dict[str, Any]) -> dict[str, Any]:
    """The document in the words of the manifest."""
    names = {"directories": "log_dirs", "node_id": "id"}
    brokers = [{names.get(key, key): value for key, value in each.items()} for each in document["brokers"]]
    configs: dict[str, dict[str, str]] = {}
    for each in document["configs"]:
        kind, name = each["resource"].split(":")
        configs.setdefault(f"ConfigResource(type={kind}, name='{name}')", {})[each["name"]] = each["value"]
    return {
        "last_offset": document["offset"],
        "features": document["features"],
        "next_producer_id": document["next_producer_id"],
        "brokers": [{key: each[key] for key in FINAL["brokers"][0]} for each in brokers],
        "topics": [
            {
                "name": topic["topic"],
                "topic_id": topic["topic_id"],
                "partitions": [without_names(each) for each in topic["partitions"]],
            }
            for topic in document["topics"]
        ],
        "configs": configs,
    }


def test_the_final_image_with_all_voters() -> None:
    before = tree(CLUSTER / "node1")
    run = in_json("cluster image", CLUSTER / "node1", "--voter", CLUSTER / "node2", "--voter", CLUSTER / "node3")
    assert run.exit_code == 0
    assert facts(run.document) == {key: value for key, value in FINAL.items() if key != "checkpoint_used"}
    proof = run.document["proof"]
    assert (proof["proven_end_offset"], proof["majority_end_offset"], proof["unproven"]) == (348, 348, None)
    assert (proof["voters"], proof["voters_source"]) == ([1, 2, 3], "records")
    assert proof["shared_end_offsets"] == {"1": 348, "2": 348, "3": 348}
    assert run.codes == {}
    assert tree(CLUSTER / "node1") == before


def test_one_log_proves_what_its_checkpoint_holds() -> None:
    """Everything after it may be taken back by a new leader; what that would be is reported."""
    run = in_json("cluster image", CLUSTER / "node2", "--topic", "orders")
    proof = run.document["proof"]
    assert (proof["proven_end_offset"], proof["checkpoint_end_offset"], proof["log_end_offset"]) == (315, 315, 348)
    assert proof["voters_source"] == "quorum-state"
    assert proof["unproven"]["first_offset"] == 315
    assert proof["unproven"]["brokers"] == [1, 2, 3]
    assert "orders-0" in proof["unproven"]["partitions"]
    assert run.codes == {"unproven-tail": 1, "deleted-files": 1}
    assert [each["topic"] for each in run.document["topics"]] == ["orders"]
    proven = in_json("cluster image", CLUSTER / "node2", "--proven-only")
    assert (proven.document["offset"], proven.document["proof"]["unproven"]) == (314, None)
    assert proven.document == {**in_json("cluster image", CLUSTER / "node2", "--metadata-offset", "314").document}


# ---------------------------------------------------------------------------------------------------------------- not sound


def copy_of_node(to: Path, node: str = "node1") -> Path:
    return Path(shutil.copytree(CLUSTER / node / LOG, to / LOG))


def test_a_log_without_its_checkpoints(tmp_path: Path) -> None:
    directory = copy_of_node(tmp_path, "node2")
    for path in directory.glob("*.checkpoint"):
        path.write_bytes(path.read_bytes()[:-40])
    run = in_json("cluster image", directory)
    assert (run.exit_code, run.document["offset"]) == (4, -1)
    assert {"damaged-checkpoint": 2, "metadata-gap": 1}.items() <= run.codes.items()


def test_a_checkpoint_of_another_log(tmp_path: Path) -> None:
    directory = copy_of_node(tmp_path)
    checkpoint = directory / "00000000000000000315-0000000004.checkpoint"
    checkpoint.rename(directory / "00000000000000000315-0000000005.checkpoint")
    run = in_json("cluster image", directory)
    assert (run.exit_code, run.codes["diverged-checkpoint"]) == (4, 1)
    assert "ends in leader epoch 5, and the log has 4 there" in run.messages("diverged-checkpoint")


def test_a_copy_in_the_directory_of_another_node_is_not_its(tmp_path: Path) -> None:
    """``meta.properties`` next to a directory of another name says nothing of it."""
    shutil.copy(CLUSTER / "node2" / "meta.properties", tmp_path)
    shutil.copytree(CLUSTER / "node1" / LOG, tmp_path / "copy-of-node1")
    run = in_json("cluster image", CLUSTER / "node3", "--voter", tmp_path / "copy-of-node1")
    assert "its owner is unknown: there is no meta.properties" in run.messages("voter-not-counted")
    assert run.document["proof"]["shared_end_offsets"] == {"3": 348}


def values(*records: tuple[MetadataRecordType, dict[str, Any]]) -> list[bytes]:
    return [write_cluster_metadata_record(ClusterMetadataRecord(kind, "", 0, fields)) for kind, fields in records]


def made_log(to: Path, written: list[bytes]) -> Path:
    directory = to / LOG
    directory.mkdir(parents=True)
    records = [record(value, offset_delta=delta) for delta, value in enumerate(written)]
    (directory / "00000000000000000000.log").write_bytes(batch(0, count=len(records), records=records))
    return directory


def config(name: str, value: str | None) -> tuple[MetadataRecordType, dict[str, Any]]:
    return MetadataRecordType.CONFIG, {"resourceType": 4, "resourceName": "1", "name": name, "value": value}


def test_secrets_are_masked(tmp_path: Path) -> None:
    unknown = ("my.plugin.url", "listener.name.x.my.plugin.url")
    secrets = ("ssl.keystore.password", "listener.name.x.ssl.key.password", "listener.name.x.scram.sasl.jaas.config", *unknown)
    plain = ("log.retention.ms", "ssl.keystore.location", "delegation.token.max.lifetime.ms")
    directory = made_log(tmp_path, values(*(config(name, "hunter2") for name in (*secrets, *plain))))
    run = in_json("cluster image", directory)
    assert {each["name"] for each in run.document["configs"] if each["is_masked"]} == set(secrets)
    assert {each["name"]: each["value"] for each in run.document["configs"] if not each["is_masked"]} == dict.fromkeys(
        plain, "hunter2"
    )
    table = snaprebuild("cluster", "image", directory).stdout
    assert table.count("hunter2") == len(plain)
    assert table.count("(secret)") == len(secrets) - len(unknown)
    assert table.count("(not shown: unknown name)") == len(unknown)
    assert {each["name"] for each in run.document["configs"] if each["mask_reason"] == "unknown-name"} == set(unknown)
    assert {each["name"] for each in run.document["configs"] if each["known_to"] is None} == set(unknown)
    assert "known to Kafka" not in table, "each release knows the others"


@pytest.mark.parametrize(("level", "remarks"), [(30, {"since 4.4", "2.4 to 3.9"}), (33, {"2.4 to 3.9"})])
def test_settings_that_not_every_release_of_the_cluster_knows(tmp_path: Path, level: int, remarks: set[str]) -> None:
    """Level 30 is 4.3-IV0, 33 is 4.4-IV2 (``MetadataVersion``); which release knows a name: its ``ConfigDef``."""
    names = {"log.remote.copy.lag.ms": "since 4.4", "password.encoder.iterations": "2.4 to 3.9", "log.retention.ms": "since 2.4"}
    feature = (MetadataRecordType.FEATURE_LEVEL, {"name": "metadata.version", "featureLevel": level})
    directory = made_log(tmp_path, values(feature, *(config(name, "7") for name in names)))
    document = in_json("cluster image", directory).document
    assert {each["name"]: each["known_to"] for each in document["configs"]} == names
    assert {each["value"] for each in document["configs"]} == {"7"}, "no name is unknown"
    table = snaprebuild("cluster image", directory).stdout
    assert {each for each in names.values() if each in table} == remarks
    assert "known to Kafka" in table


def test_who_may_do_what(tmp_path: Path) -> None:
    """Salts, keys and passwords are in the log, and in no output about it."""
    kind, secrets = MetadataRecordType, {"salt": b"hunter2-salt", "storedKey": b"hunter2-key", "serverKey": b"hunter2-server"}
    acl = {"id": bytes(15) + b"\1", "resourceType": 2, "resourceName": "orders-", "patternType": 4, "principal": "User:alice"}
    quota = {"entity": [{"entityType": "user", "entityName": None}], "key": "producer_byte_rate", "value": 1024.5, "remove": False}
    token = {"owner": "User:alice", "requester": "User:bob", "renewers": ["User:carol"], "tokenId": "t1"}
    token |= {"issueTimestamp": 1, "maxTimestamp": 3, "expirationTimestamp": 1_795_260_000_000}
    written = values(
        (kind.ACCESS_CONTROL_ENTRY, {**acl, "host": "*", "operation": 3, "permissionType": 2}),
        (kind.ACCESS_CONTROL_ENTRY, {**acl, "id": bytes(15) + b"\2", "host": "*", "operation": 99, "permissionType": 3}),
        (kind.USER_SCRAM_CREDENTIAL, {"name": "alice", "mechanism": 2, "iterations": 4096, **secrets}),
        (kind.CLIENT_QUOTA, quota),
        (kind.DELEGATION_TOKEN, token),
    )
    directory = made_log(tmp_path, written)
    run = in_json("cluster image", directory)
    found = [(each["operation"], each["permission"], each["pattern_type"], each["resource_type"]) for each in run.document["acls"]]
    assert found == [("READ", "DENY", "PREFIXED", "TOPIC"), ("99", "ALLOW", "PREFIXED", "TOPIC")]
    assert run.document["scram_credentials"] == [{"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    assert run.document["client_quotas"] == [{"entity": [{"type": "user", "name": None}], "quotas": {"producer_byte_rate": 1024.5}}]
    (shown_token,) = run.document["delegation_tokens"]
    assert (shown_token["renewers"], shown_token["expiration_timestamp_ms"]) == (["User:carol"], 1_795_260_000_000)
    table = snaprebuild("cluster", "image", directory).stdout
    for row in (
        ("User:alice", "DENY", "READ", "TOPIC", "orders-", "PREFIXED", "*"),
        ("alice", "SCRAM-SHA-512", "4096"),
        ("t1", "User:alice", "User:bob", "User:carol", "2026-11-21", "11:20:00Z"),
        ("user", "(default)", "producer_byte_rate", "1024.5"),
    ):
        assert any(line.split() == list(row) for line in table.splitlines()), (row, table)
    for text in (table, run.stdout):
        assert "hunter2" not in text
        assert base64.b64encode(b"hunter2")[:8].decode() not in text
        assert b"hunter2".hex() not in text


def test_records_that_make_no_sense(tmp_path: Path) -> None:
    change = (MetadataRecordType.PARTITION_CHANGE, {"partitionId": 0, "topicId": bytes(15) + b"\7", "leader": 2})
    written = [*values(change, config("a", "1")), b"\1\x7f\0"]
    run = in_json("cluster image", made_log(tmp_path, written))
    assert run.exit_code == 4
    assert {"contradictory-record": 1, "unknown-record": 1}.items() <= run.codes.items()
    assert "expected a topic of this id, found none" in run.messages("contradictory-record")
    assert [each["name"] for each in run.document["configs"]] == ["a"]


def test_a_transaction_that_is_open(tmp_path: Path) -> None:
    begin = (MetadataRecordType.BEGIN_TRANSACTION, {"name": "Bootstrap records"})
    run = in_json("cluster image", made_log(tmp_path, values(config("a", "1"), begin, config("b", "2"), config("a", None))))
    assert run.document["open_transaction"] == {"offset": 1, "name": "Bootstrap records", "record_count": 2}
    assert [each["name"] for each in run.document["configs"]] == ["a"]
