"""The controller of the simulated cluster: registrations, fencing, and the one partition.

Source: ``ClusterControlManager.registerBroker`` and ``activate``, ``BrokerHeartbeatManager``, and of ``ReplicationControlManager`` what it
does when a broker is fenced, unfenced, shut down or found to have a new incarnation; 4.3.1, without eligible leader replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from formats.metadata.replication_messages import AlteredPartition, AlterPartitionRequest
from snaprebuild.simulations.isr.alter_partition import (
    AlterPartitionError,
    BrokerState,
    Judgement,
    PartitionState,
    alter_partition,
    change_partition,
    judge_proposal,
)
from snaprebuild.simulations.isr.epoch_mode import Mode

__all__ = ["PARTITION", "TOPIC_ID", "Controller", "Image"]

TOPIC_ID, PARTITION = bytes(range(16)), 0


@dataclass(frozen=True, slots=True)
class Image:
    """What brokers learn from the metadata log.

    Attributes:
        brokers: registered ones, by id.
        partition: the one partition.
    """

    brokers: dict[int, BrokerState]
    partition: PartitionState


class Controller:
    """The active controller, and whoever takes over.

    Brokers are told, and answered, what is committed in the metadata log: the next one knows all of it, but for when whom was heard of.

    Attributes:
        image: of now.
        incarnations: of the processes that are registered, by broker id.
        sessions: brokers whose session has not ended.
    """

    def __init__(self, mode: Mode, broker_ids: tuple[int, ...]) -> None:
        self._mode = mode
        self._next_offset = 1
        brokers = {each: BrokerState(self._written()) for each in broker_ids}
        self.incarnations = dict.fromkeys(broker_ids, 1)
        self.sessions = set(broker_ids)
        self._written(len(broker_ids) + 2)  # unfenced, each; a topic and its partition
        self.image = Image(brokers, PartitionState(broker_ids, broker_ids, broker_ids[0]))

    def _written(self, records: int = 1) -> int:
        offset = self._next_offset
        self._next_offset += records
        return offset

    def _set_broker(self, broker_id: int, broker: BrokerState) -> None:
        self._written()
        self.image = Image({**self.image.brokers, broker_id: broker}, self.image.partition)

    def _set_partition(self, partition: PartitionState) -> None:
        if partition is not self.image.partition:
            self._written()
            self.image = Image(self.image.brokers, partition)

    def _take_out(self, broker_id: int) -> None:
        """Out of the in-sync replicas, if others remain there, and out of the lead."""
        partition = self.image.partition
        if broker_id in partition.isr:
            isr = [each for each in partition.isr if each != broker_id]
            self._set_partition(change_partition(partition, isr, {**self._active(), broker_id: False}))

    def _active(self) -> dict[int, bool]:
        return {each: broker.is_active for each, broker in self.image.brokers.items()}

    # ------------------------------------------------------------------------------------------------------------ brokers

    def register(self, broker_id: int, incarnation: int) -> int | None:
        """A process registers.

        Returns:
            Its broker epoch; None where another one with this id has a session (DUPLICATE_BROKER_REGISTRATION).
        """
        if self.incarnations[broker_id] == incarnation:
            self.sessions.add(broker_id)
            return self.image.brokers[broker_id].epoch
        if broker_id in self.sessions:
            return None
        epoch = self._next_offset
        self._take_out(broker_id)
        if self._mode is Mode.BUMP_LEADER_EPOCHS and broker_id in self.image.partition.replicas:
            before = self.image.partition
            raised = replace(before, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1)
            self._set_partition(raised)
        self._set_broker(broker_id, BrokerState(epoch, fenced=True))
        self.incarnations[broker_id] = incarnation
        self.sessions.add(broker_id)
        return epoch

    def expire(self, broker_id: int) -> None:
        """The session of a broker ends; it is fenced a little later."""
        self.sessions.discard(broker_id)

    def fence(self, broker_id: int) -> None:
        """A broker without a session leaves the in-sync replicas."""
        self.sessions.discard(broker_id)
        broker = self.image.brokers[broker_id]
        if not broker.fenced:
            self._take_out(broker_id)
            self._set_broker(broker_id, replace(broker, fenced=True))

    def unfence(self, broker_id: int) -> None:
        """A broker that has caught up with the metadata; it may lead where nobody does."""
        self.sessions.add(broker_id)
        self._set_broker(broker_id, replace(self.image.brokers[broker_id], fenced=False))
        partition = self.image.partition
        self._set_partition(change_partition(partition, partition.isr, self._active()))

    def fail_over(self, registered: set[int]) -> None:
        """Another controller becomes active. Who is not fenced has a session from then on, alive or not.

        Args:
            registered: ids of brokers whose processes run and are registered: their heartbeats come soon.
        """
        self._written()  # who leads the quorum
        self.sessions = {each for each, broker in self.image.brokers.items() if not broker.fenced} | registered

    def shut_down(self, broker_id: int) -> None:
        """A broker says that it is about to go; it is fenced when it has gone."""
        self._set_broker(broker_id, replace(self.image.brokers[broker_id], in_controlled_shutdown=True))
        self._take_out(broker_id)

    # ------------------------------------------------------------------------------------------------------------ the partition

    def alter(self, request: AlterPartitionRequest) -> tuple[AlteredPartition | None, Judgement]:
        """Answers a leader.

        Returns:
            What it answers for the partition (None where the request as a whole is refused), and why.
        """
        brokers, partition = self.image.brokers, self.image.partition
        response, changed = alter_partition(brokers, {(TOPIC_ID, PARTITION): partition}, request)
        if response.error_code:
            why = f"broker {request.broker_id} sent it with epoch {request.broker_epoch}, which is not the registered one"
            return None, Judgement(AlterPartitionError(response.error_code), why)
        judged = judge_proposal(brokers, partition, request.broker_id, request.partitions[0])
        self._set_partition(changed.get((TOPIC_ID, PARTITION), partition))
        return response.partitions[0], judged
