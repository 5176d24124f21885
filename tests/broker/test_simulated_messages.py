"""The messages that `simulate isr --show-messages` prints, against Kafka's own readers and JSON converters."""

import json

import pytest
from kafka_classpath import java_output
from replication_codec import write_replication_message

from formats.metadata.replication_messages import ReplicationMessage
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.scenarios import SCENARIOS, play_scenarios

pytestmark = pytest.mark.kafka


def test_kafka_prints_the_same_of_their_bytes() -> None:
    played = play_scenarios(SCENARIOS.values(), tuple(Mode), 1, with_messages=True)
    sent = [message for each in played for scene in each.scenes for message in scene.messages]
    assert {(each.kind, each.version) for each in sent} == {
        *((ReplicationMessage.ALTER_PARTITION_REQUEST, version) for version in (2, 3)),
        *((ReplicationMessage.ALTER_PARTITION_RESPONSE, version) for version in (2, 3)),
        *((ReplicationMessage.FETCH_REQUEST, version) for version in (14, 15)),
        *((ReplicationMessage.FETCH_RESPONSE, version) for version in (14, 15)),
    }
    written = [write_replication_message(each.kind, each.message, each.version) for each in sent]
    lines = [f"{each.kind} {each.version} {data.hex()}" for each, data in zip(sent, written, strict=True)]
    answers = java_output("ReplicationMessages", lines=lines)
    assert len(answers) == len(sent)
    for message, answer in zip(sent, answers, strict=True):
        _, text = answer.split(" ", 1)
        assert json.loads(text) == message.to_json(), message
