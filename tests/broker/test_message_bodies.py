"""AlterPartition and Fetch, version by version, against Kafka's own classes."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from typing import Any

import pytest
from kafka_classpath import java_program

from formats.message_schema import FieldSchema, StructSchema, load_schemas
from formats.replication_messages import (
    ReplicationMessage,
    read_replication_message,
    versions_of,
    write_replication_message,
)

pytestmark = pytest.mark.kafka

EACH = 12
"""Messages of each kind and version."""

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def value_of(field: FieldSchema, version: int, random_: random.Random) -> Any:
    """Any value that a field may have."""
    if version in field.nullable and random_.random() < 0.2:
        return None
    if field.is_array:
        return [scalar_of(field, version, random_) for _ in range(random_.randrange(4))]
    return scalar_of(field, version, random_)


def scalar_of(field: FieldSchema, version: int, random_: random.Random) -> Any:
    if field.fields is not None:
        return message_of(field.fields, version, random_)
    if field.type in INTEGERS:
        bits = random_.randrange(1, INTEGERS[field.type] + 1)
        return random_.randrange(-1 << bits, 1 << bits)
    if field.type == "uuid":
        return random_.randbytes(16)
    if field.type == "string":
        return "".join(random_.choices("aZ9.-_é€𝄞", k=random_.randrange(6)))
    assert field.type == "records"
    return random_.randbytes(random_.randrange(200))


def message_of(schema: StructSchema, version: int, random_: random.Random) -> dict[str, Any]:
    """A message with values where its version has fields, of which each may keep its default."""
    message = schema.defaults()
    for field in schema.fields:
        if version in field.versions and random_.random() < 0.8:
            message[field.name] = value_of(field, version, random_)
    return message


def as_kafka_prints(value: Any, fields: StructSchema, version: int) -> dict[str, Any]:
    """A message as Kafka's converters print it: only what the version has, no tagged field at its default, uuids as text."""
    found = {}
    for field in fields.fields:
        if version not in field.versions:
            continue
        each = value[field.name]
        if version in field.tagged and each == field.default_value():
            continue
        if field.type == "records":
            found |= {field.name: None} if each is None else {f"{field.name}SizeInBytes": len(each)}
        elif field.fields is not None and each is not None:
            inner = field.fields
            found[field.name] = (
                [as_kafka_prints(one, inner, version) for one in each] if field.is_array else as_kafka_prints(each, inner, version)
            )
        elif field.type == "uuid":
            found[field.name] = base64.urlsafe_b64encode(each).decode().rstrip("=")
        else:
            found[field.name] = each
    return found


def test_kafka_reads_what_is_written_and_writes_the_same_bytes() -> None:
    """Bytes both ways, and each value: what stands in a message is compared with what Kafka says stands in it."""
    random_ = random.Random(903)
    schemas = load_schemas("replication-messages")
    cases = []
    for kind in ReplicationMessage:
        versions = versions_of(kind)
        for version in range(versions.lowest, versions.highest + 1):
            body = schemas[kind.value].body
            messages = [body.defaults(), *(message_of(body, version, random_) for _ in range(EACH))]
            cases += [(kind, version, message, write_replication_message(kind, message, version)) for message in messages]
    command = java_program("ReplicationMessages")
    lines = "".join(f"{kind} {version} {written.hex()}\n" for kind, version, _, written in cases)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases)
    assert {(kind.value, version) for kind, version, _, _ in cases} >= {
        *(("AlterPartitionRequest", version) for version in (2, 3)),
        *(("FetchRequest", version) for version in range(12, 19)),
    }
    for (kind, version, message, written), answer in zip(cases, answers, strict=True):
        kafkas, text = answer.split(" ", 1)
        assert kafkas == written.hex(), (kind, version, message)
        assert json.loads(text) == as_kafka_prints(message, schemas[kind.value].body, version), (kind, version)
        assert read_replication_message(kind, bytes.fromhex(kafkas), version) == message, (kind, version)
