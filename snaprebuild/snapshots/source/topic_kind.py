"""The kind of a topic for tiered storage."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TopicKind", "topic_kind_of"]


class TopicKind(StrEnum):
    """The kind of a topic for tiered storage (``UnifiedLog.isRemoteLogEnabled``)."""

    ORDINARY = "ordinary"
    INTERNAL = "internal"
    REMOTE_LOG_METADATA = "remote_log_metadata"
    CLUSTER_METADATA = "cluster_metadata"


_KINDS = {
    "__consumer_offsets": TopicKind.INTERNAL,
    "__transaction_state": TopicKind.INTERNAL,
    "__share_group_state": TopicKind.INTERNAL,
    "__remote_log_metadata": TopicKind.REMOTE_LOG_METADATA,
    "__cluster_metadata": TopicKind.CLUSTER_METADATA,
}


def topic_kind_of(topic: str) -> TopicKind:
    """By the name."""
    return _KINDS.get(topic, TopicKind.ORDINARY)
