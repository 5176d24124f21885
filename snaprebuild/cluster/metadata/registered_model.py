"""Brokers and partitions as they are registered in the metadata log, and the name of its directory.

What judges replicas needs these alone: the rest of an image is loaded where a metadata log is read.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from snaprebuild.published import Part

__all__ = [
    "LOST_DIRECTORY",
    "METADATA_DIRECTORY",
    "METADATA_TOPIC",
    "METADATA_VERSION",
    "MIGRATING_DIRECTORY",
    "UNASSIGNED_DIRECTORY",
    "BrokerRegistration",
    "LeaderRecoveryState",
    "Listener",
    "PartitionRegistration",
    "SupportedFeature",
    "directory_text",
]

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"

MIGRATING_DIRECTORY = ZERO_UUID
"""``DirectoryId.MIGRATING``: in a directory that is not known; the cluster was one without directory ids."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\1"
"""``DirectoryId.UNASSIGNED``: the broker has yet to choose one."""
LOST_DIRECTORY = bytes(15) + b"\2"
"""``DirectoryId.LOST``: in a directory that went offline."""

METADATA_VERSION = "metadata.version"

_DIRECTORY_NAMES = {MIGRATING_DIRECTORY: "MIGRATING", UNASSIGNED_DIRECTORY: "UNASSIGNED", LOST_DIRECTORY: "LOST"}


def directory_text(directory_id: bytes) -> str:
    """A directory id as Kafka prints it, or the name of one that is reserved."""
    return _DIRECTORY_NAMES.get(directory_id) or uuid_to_text(directory_id)


class LeaderRecoveryState(IntEnum):
    """``LeaderRecoveryState``: RECOVERING after an unclean election, until the leader says that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1


class Listener(Part, frozen=True):
    """A listener of a broker or controller."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Number of Kafka's `SecurityProtocol`."""


class SupportedFeature(msgspec.Struct, frozen=True):
    """A feature and the levels, int16, that a node knows."""

    name: str
    min_level: int
    max_level: int


class BrokerRegistration(msgspec.Struct, frozen=True):
    """A broker as it registered, with what was changed since.

    Attributes:
        node_id: int32.
        epoch: int64, of this registration.
        incarnation_id: 16 bytes, new for each start of the broker.
        fenced: it may lead nothing and belongs to no ISR.
        directories: ids of its log directories that are online, 16 bytes each; empty before metadata.version 3.7-IV2.
        cordoned_directories: those of them that take no new replicas, or None if the broker did not say.
        rack: or None.
        listeners: by name.
        features: by name.
    """

    node_id: int
    epoch: int
    incarnation_id: bytes
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None
    rack: str | None
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]

    @property
    def is_active(self) -> bool:
        """It may lead (``ClusterControlManager.isActive``)."""
        return not self.fenced and not self.in_controlled_shutdown


class PartitionRegistration(msgspec.Struct, frozen=True):
    """A partition with its replicas and its leader.

    Attributes:
        replicas: broker ids, the preferred leader first.
        directories: of each replica, in the same order, 16 bytes each.
        isr: broker ids that are in sync.
        removing: replicas that a reassignment removes.
        adding: replicas that a reassignment adds.
        elr: eligible leader replicas (KIP-966): not in sync, and complete up to the high watermark all the same.
        last_known_elr: brokers that an unclean election asks first.
        leader: broker id, -1 for none.
        leader_epoch: int32, counts leaders.
        partition_epoch: int32, counts changes.
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: LeaderRecoveryState
    leader_epoch: int
    partition_epoch: int

    def directory_of(self, broker_id: int | None) -> bytes | None:
        """The directory id of a broker's replica, None if it has none."""
        return None if broker_id is None or broker_id not in self.replicas else self.directories[self.replicas.index(broker_id)]
