"""Brokers and partitions as they are registered in the metadata log, and the name of its directory.

What judges replicas needs these alone: the rest of an image is loaded where a metadata log is read.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

from formats.partition.partition_metadata import ZERO_UUID, uuid_from_text, uuid_to_text
from snaprebuild.published import Part, one_of

__all__ = [
    "LOST_DIRECTORY",
    "METADATA_DIRECTORY",
    "METADATA_TOPIC",
    "METADATA_VERSION",
    "MIGRATING_DIRECTORY",
    "UNASSIGNED_DIRECTORY",
    "BrokerRegistration",
    "FeatureLevels",
    "LeaderRecoveryState",
    "Listener",
    "PartitionRegistration",
    "directory_id_of",
    "directory_text",
]

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"

MIGRATING_DIRECTORY = "MIGRATING"
"""``DirectoryId.MIGRATING``: in a directory that is not known; the cluster was one without directory ids."""
UNASSIGNED_DIRECTORY = "UNASSIGNED"
"""``DirectoryId.UNASSIGNED``: the broker has yet to choose one."""
LOST_DIRECTORY = "LOST"
"""``DirectoryId.LOST``: in a directory that went offline."""

METADATA_VERSION = "metadata.version"

_RESERVED_DIRECTORIES = {
    ZERO_UUID: MIGRATING_DIRECTORY,
    bytes(15) + b"\1": UNASSIGNED_DIRECTORY,
    bytes(15) + b"\2": LOST_DIRECTORY,
}


def directory_text(directory_id: bytes) -> str:
    """A directory id as Kafka prints it, or the name of one that is reserved. One text serves all partitions of a directory."""
    return sys.intern(_RESERVED_DIRECTORIES.get(directory_id) or uuid_to_text(directory_id))


def directory_id_of(directory: str | None) -> bytes | None:
    """The 16 bytes of a registered directory; None for a name that is reserved, which is no directory."""
    if directory is None or directory in _RESERVED_DIRECTORIES.values():
        return None
    return uuid_from_text(directory)


class LeaderRecoveryState(StrEnum):
    """``LeaderRecoveryState``: RECOVERING after an unclean election, until the leader says that it has recovered."""

    RECOVERED = "RECOVERED"
    RECOVERING = "RECOVERING"

    @property
    def number(self) -> int:
        """Number of the enum member in records and requests."""
        return tuple(LeaderRecoveryState).index(self)


class Listener(Part, frozen=True):
    """A listener of a broker or controller."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Number of Kafka's `SecurityProtocol`."""


class FeatureLevels(Part, frozen=True):
    """The levels of a feature that a node supports."""

    min_level: int
    max_level: int


class BrokerRegistration(Part, frozen=True):
    """The registration of a broker."""

    node_id: int
    epoch: int
    """Broker epoch of this registration."""
    incarnation_id: str
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[str, ...]
    """Ids of its log directories that are online."""
    cordoned_directories: tuple[str, ...] | None
    """Ids of its log directories that accept no new replicas; null if the broker did not report it."""
    rack: str | None
    listeners: tuple[Listener, ...]
    features: dict[str, FeatureLevels]
    """By name."""

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead (``ClusterControlManager.isActive``)."""
        return not self.fenced and not self.in_controlled_shutdown


class PartitionRegistration(Part, frozen=True):
    """The registration of a partition."""

    leader: int
    """Broker id, -1 for none."""
    leader_epoch: int
    leader_recovery_state: Annotated[str, one_of(*LeaderRecoveryState)]
    partition_epoch: int
    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    """Directory of each replica, in the same order: an id, or MIGRATING, UNASSIGNED, LOST."""
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    """Eligible leader replicas."""
    last_known_elr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    def directory_of(self, broker_id: int | None) -> str | None:
        """The directory of a broker's replica, None if it has none."""
        if broker_id is None or broker_id not in self.replicas:
            return None
        return self.directories[self.replicas.index(broker_id)]
