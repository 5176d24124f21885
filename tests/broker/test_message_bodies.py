"""AlterPartition and Fetch, version by version, against Kafka's own classes."""

import json
import random

import pytest
from kafka_classpath import java_output
from random_messages import as_kafka_prints, message_of
from replication_codec import read_replication_message, versions_of, write_replication_message

from formats.message_schema import load_schemas
from formats.metadata.replication_messages import (
    ReplicationMessage,
)

pytestmark = pytest.mark.kafka

EACH = 12
"""Messages of each kind and version."""


def test_kafka_reads_what_is_written_and_writes_the_same_bytes() -> None:
    """Bytes both ways, and each value: what our reader finds in a message is compared with what Kafka's reader finds."""
    random_ = random.Random(903)
    schemas = load_schemas("replication-messages")
    cases = []
    for kind in ReplicationMessage:
        versions = versions_of(kind)
        for version in range(versions.lowest, versions.highest + 1):
            body = schemas[kind.value].body
            messages = [body.defaults(), *(message_of(body, version, random_) for _ in range(EACH))]
            cases += [(kind, version, message, write_replication_message(kind, message, version)) for message in messages]
    lines = [f"{kind} {version} {written.hex()}" for kind, version, _, written in cases]
    answers = java_output("ReplicationMessages", lines=lines)
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
