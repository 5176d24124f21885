"""The controller of the simulated cluster: registrations, fencing, the one partition, and its answers to AlterPartition.

The checks are Kafka's, in Kafka's order: the sender, whether it knows the newest epochs, its request, and whether each replica may be in
sync. Since KIP-903 the last check includes that the broker epoch of the replica is the registered one.

Not here: eligible leader replicas (KIP-966), unclean elections, and directories, on which none of the checks depends.

Source: ``ReplicationControlManager.alterPartition`` and ``validateAlterPartitionData``, ``PartitionChangeBuilder``,
``PartitionReassignmentReplicas``, ``ClusterControlManager.registerBroker`` and ``activate``, ``BrokerHeartbeatManager``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from msgspec.structs import replace

from formats.metadata.replication_messages import (
    EPOCH_NOT_GIVEN,
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    ProposedPartition,
)
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.registered_model import (
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.simulations.isr import Mode

__all__ = [
    "NO_LEADER",
    "PARTITION",
    "TOPIC_ID",
    "AlterPartitionError",
    "PartitionKey",
    "SimulatedController",
    "SimulatedImage",
    "Validation",
    "alter_partition",
    "change_partition",
    "new_broker",
    "new_partition",
    "validate_proposal",
]


NO_LEADER = -1

PartitionKey = tuple[bytes, int]
"""Topic id and number of a partition."""


class AlterPartitionError(IntEnum):
    """``org.apache.kafka.common.protocol.Errors``, as far as this request meets them."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    STALE_BROKER_EPOCH = 77
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of the checks.

    Attributes:
        error: NONE where the change may be made.
        reason: one sentence; empty without an error.
    """

    error: AlterPartitionError
    reason: str = ""


def new_broker(node_id: int, epoch: int, *, incarnation: int = 1, fenced: bool = False) -> BrokerRegistration:
    """The registration of a process of a broker, without listeners, directories and features.

    Args:
        node_id: of the broker.
        epoch: of the registration.
        incarnation: number of the process.
        fenced: by the controller.
    """
    return BrokerRegistration(
        node_id=node_id,
        epoch=epoch,
        incarnation_id=incarnation_id(incarnation),
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=None,
        rack=None,
        listeners=(),
        features={},
    )


def incarnation_id(incarnation: int) -> str:
    """The incarnation id of a process."""
    return uuid_to_text(incarnation.to_bytes(16, "big"))


def new_partition(replicas: tuple[int, ...]) -> PartitionRegistration:
    """A new partition: the first replica leads, and all are in sync."""
    return PartitionRegistration(
        replicas=replicas,
        directories=(UNASSIGNED_DIRECTORY,) * len(replicas),
        isr=replicas,
        removing=(),
        adding=(),
        elr=(),
        last_known_elr=(),
        leader=replicas[0],
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
    )


def validate_proposal(
    brokers: Mapping[int, BrokerRegistration], partition: PartitionRegistration | None, sender: int, proposal: ProposedPartition
) -> Validation:
    """The checks of one partition; the first that fails decides.

    Args:
        brokers: registered ones, by id.
        partition: None if the topic has no such one.
        sender: broker id of the leader that asks.
        proposal: what it asks.
    """
    if partition is None:
        return Validation(AlterPartitionError.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {proposal.partition}")
    epochs = _validate_epochs(partition, sender, proposal)
    if epochs is not None:
        return epochs
    ids = [member.broker_id for member in proposal.isr]
    replicas = list(partition.replicas)
    is_recovering = _recovery_state(proposal) is LeaderRecoveryState.RECOVERING
    if len(set(ids)) != len(ids) or min(ids, default=0) < 0 or not set(ids) <= set(replicas):
        return _invalid(f"in-sync replicas {ids} are not each one of the replicas {replicas}")
    if partition.leader not in ids:
        return _invalid(f"in-sync replicas {ids} lack the leader {partition.leader}")
    if is_recovering and len(ids) > 1:
        return _invalid("a leader that recovers is in sync alone")
    if is_recovering and partition.leader_recovery_state == LeaderRecoveryState.RECOVERED:
        return _invalid("a leader that has recovered cannot go back")
    faults = [fault for member in proposal.isr if (fault := _fault_of(member, brokers.get(member.broker_id))) is not None]
    if faults:
        return Validation(AlterPartitionError.INELIGIBLE_REPLICA, "; ".join(faults))
    return Validation(AlterPartitionError.NONE)


def _validate_epochs(partition: PartitionRegistration, sender: int, proposal: ProposedPartition) -> Validation | None:
    """The checks of leader, leader epoch and partition epoch; None if they agree."""
    leader_epoch = proposal.leader_epoch
    epoch = proposal.partition_epoch
    # A leader that knows a newer epoch than the controller does not talk to the active one.
    if leader_epoch > partition.leader_epoch:
        reason = f"leader epoch {leader_epoch} is to come, after {partition.leader_epoch}"
        return Validation(AlterPartitionError.NOT_CONTROLLER, reason)
    if epoch > partition.partition_epoch:
        reason = f"partition epoch {epoch} is to come, after {partition.partition_epoch}"
        return Validation(AlterPartitionError.NOT_CONTROLLER, reason)
    if leader_epoch < partition.leader_epoch:
        reason = f"leader epoch {leader_epoch} is past: {partition.leader_epoch}"
        return Validation(AlterPartitionError.FENCED_LEADER_EPOCH, reason)
    if sender != partition.leader:
        return _invalid(f"broker {sender} does not lead: {partition.leader} does")
    if epoch < partition.partition_epoch:
        reason = f"partition epoch {epoch} is past: {partition.partition_epoch}"
        return Validation(AlterPartitionError.INVALID_UPDATE_VERSION, reason)
    return None


def _invalid(reason: str) -> Validation:
    return Validation(AlterPartitionError.INVALID_REQUEST, reason)


def _fault_of(member: IsrMember, broker: BrokerRegistration | None) -> str | None:
    """Why a replica may not be in sync (KIP-903, ``ineligibleReplicasForIsr``); None if it may."""
    who = f"broker {member.broker_id}"
    if broker is None:
        return f"{who} is not registered"
    if broker.in_controlled_shutdown:
        return f"{who} is shutting down"
    if broker.fenced:
        return f"{who} is fenced"
    if member.broker_epoch not in (EPOCH_NOT_GIVEN, broker.epoch):
        return f"{who} has broker epoch {broker.epoch}, not {member.broker_epoch}"
    return None


# ---------------------------------------------------------------------------------------------------------------- the change


def change_partition(
    partition: PartitionRegistration,
    isr: Sequence[int],
    active: Mapping[int, bool],
    *,
    recovery_state: LeaderRecoveryState | None = None,
) -> PartitionRegistration:
    """The partition with other in-sync replicas: a reassignment may end, a leader may be elected, and epochs rise.

    Args:
        partition: as it is.
        isr: new in-sync replicas; an empty one keeps the present members, without a leader, because no other replica has the data.
        active: whether each broker may lead.
        recovery_state: of the leader; None for no change.

    Returns:
        The same value where nothing changes, and then no record is written.
    """
    after = _with_reassignment_ended(partition, tuple(isr))
    candidates = [replica for replica in after.replicas if replica in after.isr and active.get(replica, False)]
    leader = partition.leader
    if leader not in candidates:
        leader = candidates[0] if candidates else NO_LEADER
    is_new_epoch = leader != partition.leader or not set(partition.replicas) <= set(after.replicas)
    after = replace(
        after,
        isr=after.isr or partition.isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + is_new_epoch,
        leader_recovery_state=partition.leader_recovery_state if recovery_state is None else recovery_state,
    )
    if after == partition:
        return partition
    return replace(after, partition_epoch=partition.partition_epoch + 1)


def _with_reassignment_ended(partition: PartitionRegistration, isr: tuple[int, ...]) -> PartitionRegistration:
    """``maybeCompleteReassignment``: all that are added are in sync, and where replicas become fewer, all that stay."""
    without = tuple(each for each in isr if each not in partition.removing)
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.removing)
    pairs = zip(partition.replicas, partition.directories, strict=True)
    is_going_on = bool(partition.adding or partition.removing)
    if len(partition.adding) >= len(partition.removing):
        waits_for = partition.adding
    else:
        waits_for = (*partition.adding, *replicas)
    is_empty = bool(partition.removing) and not (without and replicas)
    if not is_going_on or is_empty or not set(waits_for) <= set(without):
        return replace(partition, isr=isr)
    directories = tuple(directory for each, directory in pairs if each not in partition.removing)
    return replace(partition, isr=without, replicas=replicas, directories=directories, adding=(), removing=())


def alter_partition(
    brokers: Mapping[int, BrokerRegistration],
    partitions: Mapping[PartitionKey, PartitionRegistration],
    request: AlterPartitionRequest,
) -> tuple[AlterPartitionResponse, dict[PartitionKey, PartitionRegistration]]:
    """The answer of a controller to a request, and the partitions that change.

    Args:
        brokers: registered ones, by id.
        partitions: all of them.
        request: from a broker.
    """
    sender = brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return AlterPartitionResponse(0, AlterPartitionError.STALE_BROKER_EPOCH, ()), {}
    active = {broker_id: broker.is_active for broker_id, broker in brokers.items()}
    topics = {topic_id for topic_id, _ in partitions}
    changed: dict[PartitionKey, PartitionRegistration] = {}
    answers = []
    for proposal in request.partitions:
        key = (proposal.topic_id, proposal.partition)
        before = partitions.get(key)
        after = None
        if proposal.topic_id not in topics:
            error = AlterPartitionError.UNKNOWN_TOPIC_ID
        else:
            error = validate_proposal(brokers, before, request.broker_id, proposal).error
        if error is AlterPartitionError.NONE:
            assert before is not None
            ids = [member.broker_id for member in proposal.isr]
            after = change_partition(before, ids, active, recovery_state=_recovery_state(proposal))
            if after is not before:
                changed[key] = after
            # Made all the same: a reassignment that ends may take the leader away from who asked.
            if after.leader != before.leader:
                error = AlterPartitionError.NEW_LEADER_ELECTED
        answers.append(_answer(proposal, error, after))
    return AlterPartitionResponse(0, AlterPartitionError.NONE, tuple(answers)), changed


def _recovery_state(proposal: ProposedPartition) -> LeaderRecoveryState:
    if proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING.number:
        return LeaderRecoveryState.RECOVERING
    return LeaderRecoveryState.RECOVERED


def _answer(proposal: ProposedPartition, error: AlterPartitionError, after: PartitionRegistration | None) -> AlteredPartition:
    if error is not AlterPartitionError.NONE or after is None:
        return AlteredPartition(
            topic_id=proposal.topic_id,
            partition=proposal.partition,
            error_code=error,
            leader=0,
            leader_epoch=0,
            isr=(),
            leader_recovery_state=0,
            partition_epoch=0,
        )
    return AlteredPartition(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        error_code=AlterPartitionError.NONE,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=LeaderRecoveryState(after.leader_recovery_state).number,
        partition_epoch=after.partition_epoch,
    )


TOPIC_ID = bytes(range(16))
PARTITION = 0


@dataclass(frozen=True, slots=True)
class SimulatedImage:
    """The facts that brokers learn from the metadata log.

    Attributes:
        brokers: registered ones, by id.
        partition: the one partition.
    """

    brokers: dict[int, BrokerRegistration]
    partition: PartitionRegistration


class SimulatedController:
    """The active controller, and its successors.

    Brokers and answers get only what is committed in the metadata log. The next controller knows all of that, except the times of the last
    heartbeats.

    Attributes:
        image: of now.
        sessions: brokers whose session has not ended.
    """

    def __init__(self, mode: Mode, broker_ids: tuple[int, ...]) -> None:
        self._mode = mode
        self._next_offset = 1
        brokers = {each: new_broker(each, self._written()) for each in broker_ids}
        self.sessions = set(broker_ids)
        self._written(len(broker_ids) + 2)  # unfenced, each; a topic and its partition
        self.image = SimulatedImage(brokers, new_partition(broker_ids))

    def _written(self, records: int = 1) -> int:
        offset = self._next_offset
        self._next_offset += records
        return offset

    def _set_broker(self, broker_id: int, broker: BrokerRegistration) -> None:
        self._written()
        self.image = SimulatedImage({**self.image.brokers, broker_id: broker}, self.image.partition)

    def _set_partition(self, partition: PartitionRegistration) -> None:
        if partition is not self.image.partition:
            self._written()
            self.image = SimulatedImage(self.image.brokers, partition)

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
            Its broker epoch; None if another one with this id has a session (DUPLICATE_BROKER_REGISTRATION).
        """
        if self.is_registered(broker_id, incarnation):
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
        self._set_broker(broker_id, new_broker(broker_id, epoch, incarnation=incarnation, fenced=True))
        self.sessions.add(broker_id)
        return epoch

    def is_registered(self, broker_id: int, incarnation: int) -> bool:
        """Whether the registration of a broker is that of this process."""
        return self.image.brokers[broker_id].incarnation_id == incarnation_id(incarnation)

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
        """A broker has caught up with the metadata; it may lead a partition without a leader."""
        self.sessions.add(broker_id)
        self._set_broker(broker_id, replace(self.image.brokers[broker_id], fenced=False))
        partition = self.image.partition
        self._set_partition(change_partition(partition, partition.isr, self._active()))

    def fail_over(self, registered: set[int]) -> None:
        """Another controller becomes active. Each broker that is not fenced has a session from then on, alive or not.

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

    def alter(self, request: AlterPartitionRequest) -> tuple[AlteredPartition | None, Validation]:
        """Answers a leader.

        Returns:
            The answer for the partition (None if the request as a whole is refused), and the result of the checks.
        """
        brokers = self.image.brokers
        partition = self.image.partition
        response, changed = alter_partition(brokers, {(TOPIC_ID, PARTITION): partition}, request)
        if response.error_code:
            reason = f"broker {request.broker_id} sent it with epoch {request.broker_epoch}, which is not the registered one"
            return None, Validation(AlterPartitionError(response.error_code), reason)
        validation = validate_proposal(brokers, partition, request.broker_id, request.partitions[0])
        self._set_partition(changed.get((TOPIC_ID, PARTITION), partition))
        return response.partitions[0], validation
