"""Why a disk of a KRaft node comes without its metadata log, and in which other log directory of the node that is."""

from __future__ import annotations

import os

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.errors import SnaprebuildError
from snaprebuild.storage.log_dir import ClusterKind, LogDirState, kind_of

__all__ = ["missing_metadata_reason"]

NEIGHBOURS_MAX = 64
"""Directories next to a log directory that are looked into: disks are mounted side by side."""


def missing_metadata_reason(state: LogDirState, otherwise: str) -> str:
    """Why there is no metadata log for a log directory.

    Args:
        state: of the log directory, in which there is none.
        otherwise: the reason for one whose ``meta.properties`` names no KRaft node.
    """
    meta = state.meta
    if meta is None or kind_of(meta) is not ClusterKind.KRAFT:
        return otherwise
    node = "a KRaft node" if meta.node_id is None else f"KRaft node {meta.node_id}"
    place = _neighbour(state, meta)
    where = f"it is in {place}" if place is not None else "name the log directory that has it"
    return f"this is a disk of {node} without its {METADATA_DIRECTORY}, and no metadata log was given (--metadata): {where}"


def _neighbour(state: LogDirState, meta: MetaProperties) -> str | None:
    """The directory next to this one with the metadata log of the same node; None if there is none, or none can be read."""
    from snaprebuild.cluster.metadata.log import (
        meta_around,  # with all records and images, which a run without such a disk does not need
    )

    if not state.store.is_local:
        return None
    above = os.path.dirname(state.path)
    try:
        names = sorted(state.place.at(above).names())[:NEIGHBOURS_MAX]
    except SnaprebuildError:
        return None
    for name in names:
        path = os.path.join(above, name, METADATA_DIRECTORY)
        if os.path.join(above, name) == state.path or not os.path.isdir(path):
            continue
        try:
            other = meta_around(state.place.at(path))
        except (SnaprebuildError, FormatError):
            continue
        if other is not None and (other.cluster_id, other.node_id) == (meta.cluster_id, meta.node_id):
            return os.path.dirname(path)
    return None
