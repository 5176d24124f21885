"""Segments of Kafka's own topics, written by its classes from random messages, and what kafka-dump-log of any release prints of them."""

import base64
import json
import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_classpath import JAVA_SECONDS, KAFKA_VERSION, compiled_without_kafka, java_output, kafka_classpath
from random_messages import as_kafka_prints, message_of

from formats.message import write_message
from formats.message_schema import MessageSchema, load_schemas

EACH = 6
"""Random messages of each kind and version; one more has the defaults."""

PACKAGES = {
    "group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "transaction-state": "org.apache.kafka.coordinator.transaction.generated",
    "cluster-metadata": "org.apache.kafka.common.metadata",
    "remote-log-metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}
AWKWARD = 'quote" backslash\\ newline\n tab\t \x01\x1f\x7f é€𝄞 \\u001f / <&>'
"""A text with everything that a writer of JSON may escape."""

Line = tuple[object, ...]


def pair(kind: str, record_type: int, key: dict[str, Any], value: dict[str, Any] | None, version: int = 0) -> Line:
    """A record of a coordinator.

    Args:
        kind: file of schemas.
        record_type: number before its key.
        key: its fields.
        value: its fields; None for a tombstone.
        version: of the value.
    """
    key_schema, value_schema = schemas_of(kind)[record_type]
    key_words = (f"{PACKAGES[kind]}.{key_schema.name}", 0, printed(key, key_schema, 0))
    if value is None:
        return ("pair", record_type, *key_words, "-", "-", "-")
    return (
        "pair",
        record_type,
        *key_words,
        f"{PACKAGES[kind]}.{value_schema.name}",
        version,
        printed(value, value_schema, version),
    )


def framed(kind: str, schema: MessageSchema, version: int, message: dict[str, Any]) -> Line:
    """A record whose value is a framed message."""
    return ("framed", f"{PACKAGES[kind]}.{schema.name}", schema.api_key, version, printed(message, schema, version))


def raw(key: bytes | None, value: bytes | None) -> Line:
    """A record of any bytes."""
    return ("raw", "-" if key is None else key.hex(), "-" if value is None else value.hex())


def printed(message: dict[str, Any], schema: MessageSchema, version: int) -> str:
    """A message as JSON that Kafka's converters read."""
    return json.dumps(as_kafka_prints(message, schema.body, version))


def schemas_of(kind: str) -> dict[int, tuple[MessageSchema, MessageSchema]]:
    """The messages of key and value, by record type."""
    schemas = load_schemas(kind)
    keys = {schema.api_key: schema for name, schema in schemas.items() if name.endswith("Key")}
    return {
        number: (schema, schemas[schema.name.removesuffix("Key") + "Value"])
        for number, schema in keys.items()
        if number is not None
    }


def random_pairs(kind: str, random_: random.Random, only: Iterable[int] | None = None) -> list[Line]:
    """Records of every type, with every version of its value, and a tombstone of each type."""
    lines = []
    for record_type, (key_schema, value_schema) in sorted(schemas_of(kind).items()):
        if only is not None and record_type not in only:
            continue
        for version in range(value_schema.versions.lowest, value_schema.versions.highest + 1):
            values = [value_schema.body.defaults(), *(message_of(value_schema.body, version, random_) for _ in range(EACH))]
            lines += [pair(kind, record_type, message_of(key_schema.body, 0, random_), value, version) for value in values]
        lines.append(pair(kind, record_type, message_of(key_schema.body, 0, random_), None))
    return lines


def consumer_group(random_: random.Random, version: int, member_ids: Iterable[str], *, user_data: bytes | None = b"") -> Line:
    """The state of a group whose members use the protocol of consumers."""
    protocol = load_schemas("consumer-protocol")
    members = []
    for number, member_id in enumerate(member_ids):
        topics = [{"topic": f"t{each}", "partitions": [0, each, 7]} for each in range(number % 3)]
        assigned = {"assignedPartitions": topics, "userData": user_data}
        subscribed = {"topics": ["t0", "t1"], "userData": None, "ownedPartitions": topics if number % 2 else []}
        of_version = number % 2
        members.append(
            {
                **schemas_of("group-coordinator")[2][1].body.fields[5].fields.defaults(),  # type: ignore[union-attr]
                "memberId": member_id,
                "clientId": "c",
                "clientHost": "/127.0.0.1",
                "sessionTimeout": random_.randrange(60_000),
                "subscription": prefixed(protocol["ConsumerProtocolSubscription"], of_version, subscribed),
                "assignment": prefixed(protocol["ConsumerProtocolAssignment"], of_version, assigned),
            }
        )
    value = {**schemas_of("group-coordinator")[2][1].body.defaults(), "protocolType": "consumer", "generation": 5}
    return pair("group-coordinator", 2, {"group": "g"}, value | {"protocol": "range", "leader": "m", "members": members}, version)


def prefixed(schema: MessageSchema, version: int, message: dict[str, Any]) -> bytes:
    """A message after its version; what the version cannot hold is left out."""
    fields = {
        field.name: message[field.name] for field in schema.body.fields if field.name in message and version in field.versions
    }
    return version.to_bytes(2, "big") + write_message(schema, fields, version)


def write_segments(segments: dict[Path, list[Line]]) -> None:
    """Writes segments with the classes of the newest release that has tools."""
    lines: list[str] = []
    for path, records in segments.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines += [f"segment\t{path}", *("\t".join(map(str, record)) for record in records)]
    java_output("InternalTopicLogs", lines=lines, version=KAFKA_VERSION)


def kafka_dumps(version: str, runs: list[tuple[str, Path]]) -> list[list[str]]:
    """The lines that kafka-dump-log of a release prints, for each option and segment."""
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command += [
        "-Dfile.encoding=UTF-8",
        "-cp",
        f"{compiled_without_kafka('DumpedSegments')}:{kafka_classpath(version)}",
        "DumpedSegments",
    ]
    asked = "".join(f"{option}\t--files\t{path}\n" for option, path in runs)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=JAVA_SECONDS, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.split(r"^Dumping .*\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(found) == len(runs), done.stderr[-3000:]
    # Not splitlines: texts may have other characters that end lines.
    return [text.removesuffix("\n").split("\n") for text in found]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
