"""What a controller answers when a leader asks for other in-sync replicas, and what becomes of the partition.

The checks are Kafka's, in Kafka's order: who asks, whether it knows the newest epochs, what it asks for, and whether each replica that it
wants in sync may be, which since KIP-903 includes that its broker epoch is the registered one.

Not here: eligible leader replicas (KIP-966), unclean elections, and directories, on which none of the checks depends.

Source: ``ReplicationControlManager.alterPartition`` and ``validateAlterPartitionData``, ``PartitionChangeBuilder``,
``PartitionReassignmentReplicas``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from formats.metadata.replication_messages import (
    EPOCH_NOT_GIVEN,
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    ProposedPartition,
)

__all__ = [
    "NO_LEADER",
    "AlterPartitionError",
    "BrokerState",
    "Judgement",
    "PartitionKey",
    "PartitionState",
    "alter_partition",
    "change_partition",
    "judge_proposal",
]

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1

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
class BrokerState:
    """What a controller knows of a registered broker.

    Attributes:
        epoch: of its registration.
        fenced: it sends no heartbeats, or has not caught up with the metadata.
        in_controlled_shutdown: it is about to go.
    """

    epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False

    @property
    def is_active(self) -> bool:
        """It may lead."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What a controller knows of a partition (``PartitionRegistration``).

    Attributes:
        replicas: broker ids, the preferred leader first.
        isr: in-sync replicas.
        leader: broker id, or -1.
        leader_epoch: rises with each election.
        partition_epoch: rises with each change.
        is_recovering: its leader was elected uncleanly and has not recovered yet.
        adding: replicas that a reassignment adds; they are among ``replicas``.
        removing: replicas that it removes; they are, too.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    is_recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the checks say.

    Attributes:
        error: NONE where the change may be made.
        why: in words; empty where there is no error.
    """

    error: AlterPartitionError
    why: str = ""


_FINE = Judgement(AlterPartitionError.NONE)


def judge_proposal(
    brokers: Mapping[int, BrokerState], partition: PartitionState | None, sender: int, proposal: ProposedPartition
) -> Judgement:
    """The checks of one partition; the first that fails decides.

    Args:
        brokers: registered ones, by id.
        partition: None where the topic has no such one.
        sender: broker id of who asks.
        proposal: what it asks.
    """
    error = AlterPartitionError
    if partition is None:
        return Judgement(error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {proposal.partition}")
    # Whoever knows a newer epoch than the controller does not talk to the active one.
    if proposal.leader_epoch > partition.leader_epoch:
        return Judgement(error.NOT_CONTROLLER, f"leader epoch {proposal.leader_epoch} is to come, after {partition.leader_epoch}")
    if proposal.partition_epoch > partition.partition_epoch:
        why = f"partition epoch {proposal.partition_epoch} is to come, after {partition.partition_epoch}"
        return Judgement(error.NOT_CONTROLLER, why)
    if proposal.leader_epoch < partition.leader_epoch:
        return Judgement(error.FENCED_LEADER_EPOCH, f"leader epoch {proposal.leader_epoch} is past: {partition.leader_epoch}")
    if sender != partition.leader:
        return Judgement(error.INVALID_REQUEST, f"broker {sender} does not lead: {partition.leader} does")
    if proposal.partition_epoch < partition.partition_epoch:
        why = f"partition epoch {proposal.partition_epoch} is past: {partition.partition_epoch}"
        return Judgement(error.INVALID_UPDATE_VERSION, why)
    return _judge_isr(partition, proposal) or _judge_members(brokers, proposal.isr)


def _judge_isr(partition: PartitionState, proposal: ProposedPartition) -> Judgement | None:
    invalid = AlterPartitionError.INVALID_REQUEST
    ids = [member.broker_id for member in proposal.isr]
    if len(set(ids)) != len(ids) or min(ids, default=0) < 0 or not set(ids) <= set(partition.replicas):
        return Judgement(invalid, f"in-sync replicas {ids} are not each one of the replicas {list(partition.replicas)}")
    if partition.leader not in ids:
        return Judgement(invalid, f"in-sync replicas {ids} lack the leader {partition.leader}")
    if proposal.leader_recovery_state == RECOVERING:
        if len(ids) > 1:
            return Judgement(invalid, "a leader that recovers is in sync alone")
        if not partition.is_recovering:
            return Judgement(invalid, "a leader that has recovered cannot go back")
    return None


def _judge_members(brokers: Mapping[int, BrokerState], members: Sequence[IsrMember]) -> Judgement:
    faults = []
    for member in members:
        broker, who = brokers.get(member.broker_id), f"broker {member.broker_id}"
        if broker is None:
            faults.append(f"{who} is not registered")
        elif broker.in_controlled_shutdown:
            faults.append(f"{who} is shutting down")
        elif broker.fenced:
            faults.append(f"{who} is fenced")
        elif member.broker_epoch not in (EPOCH_NOT_GIVEN, broker.epoch):
            faults.append(f"{who} has broker epoch {broker.epoch}, not {member.broker_epoch}")
    return Judgement(AlterPartitionError.INELIGIBLE_REPLICA, "; ".join(faults)) if faults else _FINE


# ---------------------------------------------------------------------------------------------------------------- the change


def change_partition(
    partition: PartitionState, isr: Sequence[int], active: Mapping[int, bool], *, is_recovering: bool | None = None
) -> PartitionState:
    """The partition with other in-sync replicas: a reassignment may end, a leader may be elected, and epochs rise.

    Args:
        partition: as it is.
        isr: wanted; none at all leaves those that are, without a leader, for nobody else has the data.
        active: brokers that may lead are True.
        is_recovering: None for no change.

    Returns:
        The same value where nothing changes, and then no record is written.
    """
    after = _with_reassignment_ended(partition, tuple(isr))
    candidates = [each for each in after.replicas if each in after.isr and active.get(each, False)]
    leader = partition.leader
    if leader not in candidates:
        leader = candidates[0] if candidates else NO_LEADER
    is_new_epoch = leader != partition.leader or not set(partition.replicas) <= set(after.replicas)
    after = replace(
        after,
        isr=after.isr or partition.isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + is_new_epoch,
        is_recovering=partition.is_recovering if is_recovering is None else is_recovering,
    )
    return partition if after == partition else replace(after, partition_epoch=partition.partition_epoch + 1)


def _with_reassignment_ended(partition: PartitionState, isr: tuple[int, ...]) -> PartitionState:
    """``maybeCompleteReassignment``: all that are added are in sync, and where replicas become fewer, all that stay."""
    without = tuple(each for each in isr if each not in partition.removing)
    replicas = tuple(each for each in partition.replicas if each not in partition.removing)
    is_going_on = bool(partition.adding or partition.removing)
    waits_for = partition.adding if len(partition.adding) >= len(partition.removing) else (*partition.adding, *replicas)
    is_empty = bool(partition.removing) and not (without and replicas)
    if not is_going_on or is_empty or not set(waits_for) <= set(without):
        return replace(partition, isr=isr)
    return replace(partition, isr=without, replicas=replicas, adding=(), removing=())


def alter_partition(
    brokers: Mapping[int, BrokerState], partitions: Mapping[PartitionKey, PartitionState], request: AlterPartitionRequest
) -> tuple[AlterPartitionResponse, dict[PartitionKey, PartitionState]]:
    """What a controller answers to a request, and the partitions that change.

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
    changed: dict[PartitionKey, PartitionState] = {}
    answers = []
    for proposal in request.partitions:
        key = (proposal.topic_id, proposal.partition)
        before, after = partitions.get(key), None
        if proposal.topic_id not in topics:
            error = AlterPartitionError.UNKNOWN_TOPIC_ID
        else:
            error = judge_proposal(brokers, before, request.broker_id, proposal).error
        if error is AlterPartitionError.NONE:
            assert before is not None
            ids = [member.broker_id for member in proposal.isr]
            after = change_partition(before, ids, active, is_recovering=proposal.leader_recovery_state == RECOVERING)
            if after is not before:
                changed[key] = after
            # Made all the same: a reassignment that ends may take the leader away from who asked.
            if after.leader != before.leader:
                error = AlterPartitionError.NEW_LEADER_ELECTED
        answers.append(_answer(proposal, error, after))
    return AlterPartitionResponse(0, AlterPartitionError.NONE, tuple(answers)), changed


def _answer(proposal: ProposedPartition, error: AlterPartitionError, after: PartitionState | None) -> AlteredPartition:
    if error is not AlterPartitionError.NONE or after is None:
        return AlteredPartition(proposal.topic_id, proposal.partition, error, 0, 0, (), 0, 0)
    return AlteredPartition(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        error_code=AlterPartitionError.NONE,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=RECOVERING if after.is_recovering else RECOVERED,
        partition_epoch=after.partition_epoch,
    )
