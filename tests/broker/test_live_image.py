"""What a real cluster of one node answers to an Admin client, and what ``cluster image`` says of its disk beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import in_json
from kafka_node import KafkaNode

pytestmark = pytest.mark.broker

SECONDS = 60.0
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}
PASSWORD = "hunter2-of-nobody"
TOPICS = {"plain": 1, "set": 3}
BROKER_CONFIGS = {
    "log.cleaner.threads": "2",
    "listener.name.other.ssl.keystore.password": PASSWORD,
    "listener.name.other.ssl.keystore.location": "/nowhere",
    "my.plugin.url": "http://user:hunter2-of-nobody@127.0.0.1",
}


def changed(admin: Any) -> None:
    """Topics, configurations of a topic and a broker, a credential, and ACLs."""
    from confluent_kafka import admin as a

    topics = [a.NewTopic(name, num_partitions=count, replication_factor=1) for name, count in TOPICS.items()]
    for done in admin.create_topics(topics, operation_timeout=SECONDS).values():
        done.result(SECONDS)
    wanted = {
        (a.ResourceType.TOPIC, "set"): {"retention.ms": "1000000", "compression.type": "zstd"},
        (a.ResourceType.BROKER, "1"): BROKER_CONFIGS,
    }
    for (kind, name), values in wanted.items():
        entries = [a.ConfigEntry(key, value, incremental_operation=a.AlterConfigOpType.SET) for key, value in values.items()]
        resource = a.ConfigResource(kind, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    mechanism = a.ScramCredentialInfo(a.ScramMechanism.SCRAM_SHA_256, 5000)
    credential = a.UserScramCredentialUpsertion("alice", mechanism, PASSWORD.encode())
    admin.alter_user_scram_credentials([credential])["alice"].result(SECONDS)
    literal, prefixed = a.ResourcePatternType.LITERAL, a.ResourcePatternType.PREFIXED
    acls = [
        a.AclBinding(a.ResourceType.TOPIC, "se", prefixed, "User:alice", "*", a.AclOperation.WRITE, a.AclPermissionType.ALLOW),
        a.AclBinding(a.ResourceType.GROUP, "g", literal, "User:bob", "10.0.0.1", a.AclOperation.READ, a.AclPermissionType.DENY),
    ]
    for done in admin.create_acls(acls).values():
        done.result(SECONDS)


def told(admin: Any) -> dict[str, Any]:
    """Topics, dynamic configurations, credentials and ACLs, as the broker tells them."""
    from confluent_kafka import TopicCollection
    from confluent_kafka import admin as a

    found: dict[str, Any] = {"topics": {}, "configs": set(), "acls": set()}
    for name, done in admin.describe_topics(TopicCollection([*TOPICS])).items():
        topic = done.result(SECONDS)
        partitions = [
            (each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
            for each in topic.partitions
        ]
        found["topics"][name] = (str(topic.topic_id).replace("/", "_").replace("+", "-"), partitions)
    dynamic = (a.ConfigSource.DYNAMIC_TOPIC_CONFIG, a.ConfigSource.DYNAMIC_BROKER_CONFIG)
    for kind, name in ((a.ResourceType.TOPIC, "set"), (a.ResourceType.BROKER, "1")):
        resource = a.ConfigResource(kind, name)
        for entry in admin.describe_configs([resource])[resource].result(SECONDS).values():
            if a.ConfigSource(entry.source) in dynamic:
                found["configs"].add((f"{kind.name}:{name}", entry.name, None if entry.is_sensitive else entry.value))
    users = admin.describe_user_scram_credentials(["alice"])["alice"].result(SECONDS)
    found["scram"] = [
        {"user": "alice", "mechanism": each.mechanism.name.replace("_", "-"), "iterations": each.iterations}
        for each in users.scram_credential_infos
    ]
    anything = a.AclBindingFilter(
        a.ResourceType.ANY, None, a.ResourcePatternType.ANY, None, None, a.AclOperation.ANY, a.AclPermissionType.ANY
    )
    for acl in admin.describe_acls(anything).result(SECONDS):
        names = (acl.restype.name, acl.name, acl.resource_pattern_type.name, acl.principal, acl.host)
        found["acls"].add((*names, acl.operation.name, acl.permission_type.name))
    return found


def test_the_image_is_what_the_cluster_answers(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    with KafkaNode(tmp_path, tiering=False, settings=AUTHORIZER) as node:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.address, "log_level": 4})
        changed(admin)
        live = told(admin)
        run = in_json("cluster image", node.log_dir, "--topic", "plain", "--topic", "set")
        topics = {
            each["topic"]: (
                each["topic_id"],
                [(one["partition"], one["leader"], one["replicas"], one["isr"]) for one in each["partitions"]],
            )
            for each in run.document["topics"]
        }
        assert topics == live["topics"]
        configs = {(each["resource"], each["name"], each["value"]) for each in run.document["configs"]}
        assert live["configs"] <= configs
        assert {each for each in live["configs"] if each[2] is None} == {
            ("BROKER:1", name, None) for name in ("listener.name.other.ssl.keystore.password", "my.plugin.url")
        }
        keys = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
        assert {tuple(each[key] for key in keys) for each in run.document["acls"]} == live["acls"]
        assert run.document["scram_credentials"] == live["scram"]
        assert "hunter2" not in run.stdout
        del admin
        node.stop()
        assert any(PASSWORD.encode() in path.read_bytes() for path in node.log_dir.glob("__cluster_metadata-0/*.log"))
