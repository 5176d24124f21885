"""The documents of ``cluster image`` and ``cluster history``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.cluster.metadata.fold import OpenMetadataTransaction
from snaprebuild.cluster.metadata.history import BrokerHistoryEntry, PartitionHistoryEntry
from snaprebuild.cluster.metadata.image_model import AccessControlEntry, ControllerRegistration, DelegationToken, Mask
from snaprebuild.cluster.metadata.image_result import Unproven
from snaprebuild.cluster.metadata.proof import UncountedLog, VotersSource
from snaprebuild.cluster.metadata.registered_model import BrokerRegistration, PartitionRegistration
from snaprebuild.cluster.metadata.unknown_contents import UnknownContents
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.published import Document, Natural, Part, Streamed
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "BrokerHistory",
    "ClientQuota",
    "ClusterHistory",
    "ClusterImage",
    "ConfigEntry",
    "ImagePartition",
    "ImageProof",
    "ImageTopic",
    "PartitionHistory",
    "QuotaEntity",
    "ScramCredential",
]


# ---------------------------------------------------------------------------------------------------------------- cluster image


class ImageProof(Part, frozen=True):
    """How much of the log is proven to be committed."""

    proven_end_offset: int
    """After the last offset that is proven to be committed, 0 if none is."""
    checkpoint_end_offset: int
    """After the last offset in a whole checkpoint."""
    log_end_offset: int
    voters: Sequence[int]
    voters_source: VotersSource
    shared_end_offsets: dict[str, int | None]
    """By voter: after the last offset that its log and this one have with the same leader epoch; null if they share none."""
    majority_end_offset: int | None
    """After the last offset that a majority proves."""
    majority_reason: str | None
    """Not stable."""
    not_counted: Sequence[UncountedLog]
    unproven: Unproven | None


class ImagePartition(PartitionRegistration, frozen=True):
    """A partition of a topic."""

    topic: str
    partition: Natural
    topic_partition: str


class ImageTopic(Part, frozen=True):
    """A topic."""

    topic: str
    topic_id: str
    partitions: Sequence[ImagePartition]


class ConfigEntry(Part, frozen=True):
    """A configuration."""

    resource: str
    """Type and name."""
    name: str
    value: str | None
    """Null if it is masked."""
    is_masked: bool
    mask_reason: Mask | None
    """The type of the setting is PASSWORD, or it has a name that no release of Kafka in the catalogue knows; null if it is shown."""
    known_to: str | None
    """Releases of Kafka that know the name, such as "since 4.4" or "2.4 to 3.9"; null if none in the catalogue does."""


class QuotaEntity(Part, frozen=True):
    """The users or clients to which a quota applies."""

    type: str
    name: str | None
    """Null for the default."""


class ClientQuota(Part, frozen=True):
    """Quotas of one entity."""

    entity: Sequence[QuotaEntity]
    quotas: dict[str, float]


class ScramCredential(Part, frozen=True):
    """A credential, without its salt and keys."""

    user: str
    mechanism: str
    iterations: int


class ClusterImage(Document, frozen=True):
    """The JSON document of `snaprebuild cluster image`."""

    NAME = "cluster-image"
    VERSION = 3

    path: str
    """The directory of the log."""
    offset: int
    """Last offset in the image, -1 for none."""
    leader_epoch: int
    """Leader epoch of its batch."""
    timestamp_ms: int
    """Timestamp of its batch, -1 for none."""
    checkpoint: OffsetAndEpoch | None
    """Checkpoint at the start of the image; null for the beginning of the log."""
    proof: ImageProof
    open_transaction: OpenMetadataTransaction | None
    features: dict[str, int]
    """Finalized levels."""
    next_producer_id: int
    """No producer has this id or a greater one; -1 if no id was allocated."""
    brokers: Sequence[BrokerRegistration]
    controllers: Sequence[ControllerRegistration]
    topics: Streamed[ImageTopic]
    configs: Streamed[ConfigEntry]
    client_quotas: Sequence[ClientQuota]
    acl_count: int
    acls: Streamed[AccessControlEntry]
    scram_credential_count: int
    scram_credentials: Sequence[ScramCredential]
    delegation_token_count: int
    delegation_tokens: Sequence[DelegationToken]
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""


# -------------------------------------------------------------------------------------------------------------- cluster history


class PartitionHistory(TopicPartition, frozen=True):
    """The history of a partition."""

    topic_id: str
    entries: Sequence[PartitionHistoryEntry]


class BrokerHistory(Part, frozen=True):
    """The history of a broker."""

    node_id: int
    entries: Sequence[BrokerHistoryEntry]


class ClusterHistory(Document, frozen=True):
    """The JSON document of `snaprebuild cluster history`."""

    NAME = "cluster-history"
    VERSION = 3

    path: str
    """The directory of the log."""
    first_offset: int
    """Start of the history: that of the log, or the offset after the content of a checkpoint."""
    last_offset: int
    """Last offset that was read, -1 for none."""
    last_timestamp_ms: int
    """Timestamp of its batch, -1 for none."""
    proven_end_offset: int
    """After the last offset that is proven to be committed by a checkpoint, or by logs of a majority of the voters."""
    partitions: Streamed[PartitionHistory]
    broker: BrokerHistory | None
    """Null without --broker."""
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""
