"""AlterPartition, request by request, against Kafka's own ReplicationControlManager."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from kafka_classpath import java_output
from msgspec.structs import replace
from replication_codec import read_alter_partition_request, write_alter_partition_request, write_alter_partition_response

from formats.metadata.replication_messages import (
    AlterPartitionRequest,
    IsrMember,
    ProposedPartition,
)
from snaprebuild.cluster.metadata.registered_model import BrokerRegistration, LeaderRecoveryState, PartitionRegistration
from snaprebuild.simulations.isr.controller import AlterPartitionError, PartitionKey, alter_partition, new_broker, new_partition

pytestmark = pytest.mark.kafka

CLUSTERS, REQUESTS = 150, 8
TOPICS = {number: bytes([number]) * 16 for number in (1, 2, 3)}


def text_of(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


class RandomCluster:
    """Brokers and partitions in any state that a controller can have, and requests for them that miss by little."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        ids = self.random.sample(range(1, 6), self.random.randrange(3, 6))
        self.brokers = {each: self._broker(each) for each in ids}
        keys = [(TOPICS[topic], number) for topic in (1, 2) for number in range(2)]
        self.partitions: dict[PartitionKey, PartitionRegistration] = {key: self._partition(ids) for key in keys}

    def _broker(self, node_id: int) -> BrokerRegistration:
        broker = new_broker(node_id, self.random.randrange(10, 14), fenced=self.random.random() < 0.15)
        return replace(broker, in_controlled_shutdown=self.random.random() < 0.1)

    def _partition(self, ids: list[int]) -> PartitionRegistration:
        any_of = self.random
        replicas = tuple(any_of.sample(ids, any_of.randrange(2, len(ids) + 1)))
        adding, removing = (), ()
        if any_of.random() < 0.5 and len(replicas) > 2:
            cut, end = sorted(any_of.sample(range(len(replicas) + 1), 2))
            adding, removing = replicas[:cut], replicas[cut:end]
        isr = tuple(any_of.sample(replicas, any_of.randrange(1, len(replicas) + 1)))
        # As in a cluster: the leader may lead. Now and then there is none.
        active = [each for each in isr if self.brokers[each].is_active]
        leader = any_of.choice(active) if active and any_of.random() < 0.95 else -1
        is_recovering = leader >= 0 and any_of.random() < 0.2
        isr = (leader,) if is_recovering else isr
        return replace(
            new_partition(replicas),
            isr=isr,
            leader=leader,
            leader_epoch=any_of.randrange(3),
            partition_epoch=any_of.randrange(5),
            leader_recovery_state=LeaderRecoveryState.RECOVERING if is_recovering else LeaderRecoveryState.RECOVERED,
            adding=adding,
            removing=removing,
        )

    def lines(self) -> Iterator[str]:
        yield "new"
        for broker_id, broker in self.brokers.items():
            yield f"broker {broker_id} {broker.epoch} {broker.fenced:d} {broker.in_controlled_shutdown:d}"
        for topic in (1, 2):
            yield f"topic {topic}"
        for (topic_id, number), state in self.partitions.items():
            yield f"partition {topic_id[0]} {number} {line_of(state)}"

    def request(self) -> AlterPartitionRequest:
        any_of, keys = self.random, list(self.partitions)
        led = [state.leader for state in self.partitions.values() if state.leader >= 0] or list(self.brokers)
        sender = any_of.choice(led) if any_of.random() < 0.9 else any_of.randrange(1, 7)
        broker = self.brokers.get(sender)
        epoch = broker.epoch if broker is not None and any_of.random() < 0.95 else 9
        keys = [key for key in keys if self.partitions[key].leader == sender or any_of.random() < 0.1]
        if any_of.random() < 0.1:
            keys.append((any_of.choice(list(TOPICS.values())), any_of.randrange(4)))
        return AlterPartitionRequest(sender, epoch, tuple(self._proposal(key) for key in dict.fromkeys(keys)))

    def _proposal(self, key: PartitionKey) -> ProposedPartition:
        any_of, state = self.random, self.partitions.get(key, new_partition((1,)))
        near = (0, 0, 0, 0, 0, 0, 0, 0, 1, -1)
        known = [
            each for each in state.replicas if each not in self.brokers or self.brokers[each].is_active or any_of.random() < 0.3
        ]
        isr = set(any_of.sample(known, any_of.randrange(len(known) + 1))) | ({state.leader} if any_of.random() < 0.95 else set())
        ids = any_of.sample(sorted(isr), len(isr))
        if any_of.random() < 0.05:
            ids.append(any_of.choice((*state.replicas, 6, -1)))
        recovering = int(any_of.random() < (0.5 if state.leader_recovery_state == LeaderRecoveryState.RECOVERING else 0.05))
        if recovering and any_of.random() < 0.7:
            ids = [state.leader]
        members = tuple(IsrMember(each, self._epoch(each)) for each in ids)
        leader_epoch, partition_epoch = state.leader_epoch + any_of.choice(near), state.partition_epoch + any_of.choice(near)
        return ProposedPartition(*key, leader_epoch, members, recovering, partition_epoch)

    def _epoch(self, broker_id: int) -> int:
        broker = self.brokers.get(broker_id)
        if broker is None or self.random.random() < 0.2:
            return -1
        return broker.epoch + self.random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1, -1))


def line_of(state: PartitionRegistration) -> str:
    recovery_state = LeaderRecoveryState(state.leader_recovery_state).number
    numbers = f"{state.leader} {state.leader_epoch} {state.partition_epoch} {recovery_state}"
    return f"{text_of(state.replicas)} {text_of(state.isr)} {numbers} {text_of(state.adding)} {text_of(state.removing)}"


def states_text(partitions: Mapping[PartitionKey, PartitionRegistration]) -> list[str]:
    return [f"{topic_id[0]} {number} {line_of(state)}" for (topic_id, number), state in sorted(partitions.items())]


def test_a_thousand_requests() -> None:
    """Each error and answer, and every partition after it, of requests in both versions; what was changed is there for the next."""
    lines: list[str] = []
    expected: list[tuple[str, list[str]]] = []
    errors: Counter[int] = Counter()
    for seed in range(CLUSTERS):
        cluster = RandomCluster(seed)
        lines += cluster.lines()
        for _ in range(REQUESTS):
            version = cluster.random.choice((2, 3, 3))
            body = write_alter_partition_request(cluster.request(), version)
            response, changed = alter_partition(cluster.brokers, cluster.partitions, read_alter_partition_request(body, version))
            cluster.partitions |= changed
            errors.update(each.error_code for each in response.partitions)
            errors[response.error_code] += response.error_code != 0
            lines.append(f"request {version} {body.hex()}")
            expected.append((write_alter_partition_response(response, version).hex(), states_text(cluster.partitions)))
    assert all(errors[error] >= 5 for error in AlterPartitionError), errors
    answers = [line.split(";") for line in java_output("AlterPartitions", lines=lines)]
    assert len(answers) == len(expected) == CLUSTERS * REQUESTS
    for number, (found, (response_hex, states)) in enumerate(zip(answers, expected, strict=True)):
        assert found[1:] == states, number
        assert found[0] == response_hex, number
