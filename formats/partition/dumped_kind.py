"""The kinds of files that ``formats.partition.file_kind`` tells apart.

In a module of their own: a help names them, and must not load their readers.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["DumpedKind"]


class DumpedKind(StrEnum):
    """What can be in a file; the values are the names that a person uses."""

    LOG = "log"
    SNAPSHOT = "snapshot"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    KRAFT_CHECKPOINT = "kraft-checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    OFFSET_CHECKPOINT = "offset-checkpoint"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    CLEAN_SHUTDOWN = "clean-shutdown"
    QUORUM_STATE = "quorum-state"
