"""The kind of cluster that a log directory is of: only a KRaft cluster has a metadata log."""

from __future__ import annotations

from enum import StrEnum

from formats.broker.broker_files import MetaProperties

__all__ = ["ClusterKind", "kind_of"]


class ClusterKind(StrEnum):
    """The kind of cluster that a log directory is of, by its ``meta.properties``."""

    KRAFT = "kraft"
    """``version`` 1 or 2, or a ``node.id``: each node of such a cluster has a metadata log."""
    ZOOKEEPER = "zookeeper"
    """``version`` 0 with a ``broker.id``."""
    UNKNOWN = "unknown"
    """The file is missing, or cannot be read, or names neither."""


def kind_of(meta: MetaProperties | None) -> ClusterKind:
    """The kind of cluster by the ids of a log directory (``MetaPropertiesVersion``).

    Args:
        meta: None if the file is missing or cannot be read.
    """
    if meta is None:
        return ClusterKind.UNKNOWN
    if meta.version > 0 or meta.ignored_node_id is not None:
        return ClusterKind.KRAFT
    return ClusterKind.UNKNOWN if meta.node_id is None else ClusterKind.ZOOKEEPER
