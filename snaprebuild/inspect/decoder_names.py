"""The decoders of records of Kafka's own topics: their names, and the topic of each."""

from __future__ import annotations

from enum import Enum

__all__ = ["Decoder", "MinorRelease", "decoder_of_topic"]

MinorRelease = tuple[int, int]
"""A release without its patch number: ``(4, 3)``."""


class Decoder(Enum):
    """The decoders of kafka-dump-log, by the names of its options without ``-decoder``."""

    AUTO = "auto"
    """The one of the topic in whose directory a file is."""
    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    CLUSTER_METADATA = "cluster-metadata"
    REMOTE_LOG_METADATA = "remote-log-metadata"
    SHARE_GROUP_STATE = "share-group-state"

    @property
    def first_release(self) -> MinorRelease:
        """The first release whose kafka-dump-log has it."""
        return _FIRST_RELEASES.get(self, (0, 0))


_FIRST_RELEASES = {
    Decoder.CLUSTER_METADATA: (3, 0),
    Decoder.REMOTE_LOG_METADATA: (3, 9),
    Decoder.SHARE_GROUP_STATE: (4, 1),
}
_TOPICS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    "__share_group_state": Decoder.SHARE_GROUP_STATE,
}


def decoder_of_topic(topic: str) -> Decoder | None:
    """The decoder of one of Kafka's own topics, by its name; None for any other topic."""
    return _TOPICS.get(topic)
