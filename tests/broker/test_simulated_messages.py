"""The messages that `simulate isr --show-messages` prints, against Kafka's own readers and JSON converters."""

import json

import pytest
from kafka_classpath import java_output
from replication_codec import write_replication_message

from formats.metadata.replication_messages import ReplicationMessage
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.messages import MessageLog, SentMessage
from snaprebuild.simulations.isr.scenarios import SCENARIOS, play
from snaprebuild.simulations.isr.simulator import Cluster

pytestmark = pytest.mark.kafka


def test_kafka_prints_the_same_of_their_bytes() -> None:
    sent: list[SentMessage] = []
    for scenario in SCENARIOS.values():
        for mode in Mode:
            log = MessageLog(mode)
            for step in play(Cluster(mode, messages=log), scenario.steps):
                sent += log.sent if step.happened else []
    assert {(each.name, each.version) for each in sent} == {
        *((ReplicationMessage.ALTER_PARTITION_REQUEST, version) for version in (2, 3)),
        *((ReplicationMessage.ALTER_PARTITION_RESPONSE, version) for version in (2, 3)),
        *((ReplicationMessage.FETCH_REQUEST, version) for version in (14, 15)),
        *((ReplicationMessage.FETCH_RESPONSE, version) for version in (14, 15)),
    }
    written = [write_replication_message(each.name, each.message, each.version) for each in sent]
    lines = [f"{each.name} {each.version} {data.hex()}" for each, data in zip(sent, written, strict=True)]
    answers = java_output("ReplicationMessages", lines=lines)
    assert len(answers) == len(sent)
    for message, answer in zip(sent, answers, strict=True):
        _, text = answer.split(" ", 1)
        assert json.loads(text) == message.to_json(), message
