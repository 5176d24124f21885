"""Registrations of brokers, controllers and partitions: from their records, and what a later record makes of them.

Source: ``BrokerRegistration.fromRecord`` and ``cloneWith``, ``ControllerRegistration``, ``PartitionRegistration`` and its ``merge``,
``ClusterDelta`` of Kafka 4.3.1.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from formats.errors import BadValueError
from formats.message import Message
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import ControllerRegistration
from snaprebuild.cluster.metadata.registered_model import (
    MIGRATING_DIRECTORY,
    BrokerRegistration,
    FeatureLevels,
    LeaderRecoveryState,
    Listener,
    PartitionRegistration,
    directory_text,
)

__all__ = [
    "changed_broker",
    "cleared_elr",
    "merged_partition",
    "new_partition",
    "registered_broker",
    "registered_controller",
]

NO_LEADER_CHANGE = -2
SECURITY_PROTOCOLS = range(4)


def registered_broker(message: Message) -> BrokerRegistration:
    """The registration that a ``RegisterBrokerRecord`` makes.

    Raises:
        BadValueError: a listener without a name.
    """
    cordoned = message["cordonedLogDirs"]
    if any(not each["name"] for each in message["endPoints"]):
        raise BadValueError("listener of a broker", expected="a name", found="none")
    return BrokerRegistration(
        node_id=message["brokerId"],
        epoch=message["brokerEpoch"],
        incarnation_id=uuid_to_text(message["incarnationId"]),
        fenced=message["fenced"],
        in_controlled_shutdown=message["inControlledShutdown"],
        directories=_sorted(message["logDirs"]),
        cordoned_directories=None if cordoned is None else tuple(map(directory_text, cordoned)),
        rack=message["rack"],
        listeners=_listeners(message),
        features=_features(message),
    )


def registered_controller(message: Message) -> ControllerRegistration:
    """The registration that a ``RegisterControllerRecord`` makes.

    Raises:
        BadValueError: a listener of an unknown security protocol.
    """
    listeners = _listeners(message)
    for listener in listeners:
        if listener.security_protocol not in SECURITY_PROTOCOLS:
            what = f"security protocol of listener {listener.name}"
            raise BadValueError(what, expected=f"0 to {SECURITY_PROTOCOLS[-1]}", found=listener.security_protocol)
    return ControllerRegistration(
        node_id=message["controllerId"],
        incarnation_id=uuid_to_text(message["incarnationId"]),
        listeners=listeners,
        features=_features(message),
    )


def _listeners(message: Message) -> tuple[Listener, ...]:
    """By name: of two of one name the last one counts."""
    named = {
        each["name"]: Listener(each["name"], each["host"], each["port"], each["securityProtocol"]) for each in message["endPoints"]
    }
    return tuple(named[name] for name in sorted(named))


def _sorted(directories: list[bytes]) -> tuple[str, ...]:
    """Directory ids in the order of Java's UUIDs, whose halves are signed."""
    ids = sorted(
        directories, key=lambda directory: [int.from_bytes(half, "big", signed=True) for half in (directory[:8], directory[8:])]
    )
    return tuple(map(directory_text, ids))


def _features(message: Message) -> dict[str, FeatureLevels]:
    named = {each["name"]: FeatureLevels(each["minSupportedVersion"], each["maxSupportedVersion"]) for each in message["features"]}
    return dict(sorted(named.items()))


def changed_broker(broker: BrokerRegistration, message: Message) -> BrokerRegistration:
    """The registration after a ``BrokerRegistrationChangeRecord``.

    Raises:
        BadValueError: an unknown change.
    """
    fenced = message["fenced"]
    shutdown = message["inControlledShutdown"]
    if fenced not in (-1, 0, 1):
        raise BadValueError("fenced", expected="-1, 0 or 1", found=fenced)
    if shutdown not in (0, 1):
        raise BadValueError("inControlledShutdown", expected="0 or 1", found=shutdown)
    cordoned_directories = broker.cordoned_directories
    if message["cordonedLogDirs"] is not None:
        cordoned_directories = tuple(map(directory_text, message["cordonedLogDirs"]))
    return replace(
        broker,
        fenced=fenced == 1 if fenced else broker.fenced,
        in_controlled_shutdown=True if shutdown else broker.in_controlled_shutdown,
        directories=_sorted(message["logDirs"]) or broker.directories,
        cordoned_directories=cordoned_directories,
    )


def new_partition(message: Message) -> PartitionRegistration:
    """The partition that a ``PartitionRecord`` makes.

    Raises:
        BadValueError: directories for another count of replicas, or an unknown recovery state.
    """
    replicas = tuple(message["replicas"])
    return PartitionRegistration(
        replicas=replicas,
        directories=_directories(tuple(map(directory_text, message["directories"])), len(replicas)),
        isr=tuple(message["isr"]),
        removing=tuple(message["removingReplicas"]),
        adding=tuple(message["addingReplicas"]),
        elr=tuple(message["eligibleLeaderReplicas"] or ()),
        last_known_elr=tuple(message["lastKnownElr"] or ()),
        leader=message["leader"],
        leader_recovery_state=_recovery_state(message["leaderRecoveryState"]),
        leader_epoch=message["leaderEpoch"],
        partition_epoch=message["partitionEpoch"],
    )


def merged_partition(partition: PartitionRegistration, message: Message) -> PartitionRegistration:
    """The partition after a ``PartitionChangeRecord``; null means no change.

    Raises:
        BadValueError: directories for another count of replicas, or an unknown recovery state.
    """

    def of(name: str, before: tuple[Any, ...]) -> tuple[Any, ...]:
        value = message[name]
        return before if value is None else tuple(value)

    leader = message["leader"]
    state = message["leaderRecoveryState"]
    replicas = of("replicas", partition.replicas)
    directories = message["directories"]
    places = partition.directories if directories is None else tuple(map(directory_text, directories))
    return PartitionRegistration(
        replicas=replicas,
        directories=_directories(places, len(replicas)),
        isr=of("isr", partition.isr),
        removing=of("removingReplicas", partition.removing),
        adding=of("addingReplicas", partition.adding),
        elr=of("eligibleLeaderReplicas", partition.elr),
        last_known_elr=of("lastKnownElr", partition.last_known_elr),
        leader=partition.leader if leader == NO_LEADER_CHANGE else leader,
        leader_recovery_state=partition.leader_recovery_state if state == -1 else _recovery_state(state),
        leader_epoch=_incremented(partition.leader_epoch, leader != NO_LEADER_CHANGE),
        partition_epoch=_incremented(partition.partition_epoch, by=True),
    )


def cleared_elr(partition: PartitionRegistration) -> PartitionRegistration:
    """The partition without eligible leader replicas, after a ``ClearElrRecord``."""
    return replace(partition, elr=(), last_known_elr=(), partition_epoch=_incremented(partition.partition_epoch, by=True))


def _incremented(epoch: int, by: bool) -> int:
    """An int32 of Java, which wraps."""
    return (epoch + by + 2**31) % 2**32 - 2**31


def _directories(directories: tuple[str, ...], replicas: int) -> tuple[str, ...]:
    """Where none is known, all are as in a cluster without directory ids (``PartitionRegistration.defaultToMigrating``)."""
    if all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * replicas
    if len(directories) != replicas:
        raise BadValueError("directories of a partition", expected=f"{replicas}, as there are replicas", found=len(directories))
    return directories


def _recovery_state(number: int) -> LeaderRecoveryState:
    states = tuple(LeaderRecoveryState)
    if number not in range(len(states)):
        raise BadValueError("leader recovery state", expected="0 or 1", found=number)
    return states[number]
