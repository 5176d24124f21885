"""The producers of the batches above the newest snapshot of a partition, which no file on disk names.

Their ids are compared with the next one of the cluster (``cluster.scan_producer_ids``). With ZooKeeper no metadata log has that.
"""

from __future__ import annotations

import numpy as np

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import ClusterKind, kind_of

__all__ = ["LaterProducers", "last_entries"]

ROWS_MAX = 1 << 16
"""Entries of several segments that are kept before those of equal producers are joined."""


class LaterProducers:
    """Takes the segments of a replay, or their pieces, in order.

    The entries are no state: they have the ids, the time of the last batch, and whether a transaction is open.
    """

    def __init__(self, source: PartitionSource) -> None:
        """Begins with none."""
        self._newest = max(source.directory.snapshot_offsets, default=-1)
        self._is_wanted = kind_of(source.log_dir.meta) is ClusterKind.KRAFT
        self._parts: list[np.ndarray] = []
        self._rows = 0
        self._rows_max = ROWS_MAX

    def take(self, summary: SegmentSummary) -> None:
        """Keeps the producers of a segment, or of a piece, that ends above the newest snapshot."""
        if not self._is_wanted or summary.facts.next_offset <= self._newest or not len(summary.effect):
            return
        effect = summary.effect
        self._parts.append(entries_of(effect)[effect.assigned])
        self._rows += len(self._parts[-1])
        if self._rows > self._rows_max:
            self._parts = [last_entries(*self._parts)]
            self._rows = len(self._parts[0])
            self._rows_max = max(ROWS_MAX, 2 * self._rows)

    def taken(self) -> bytes:
        """Entries of ``ENTRY_DTYPE``, one for each producer, as bytes. The value is empty afterwards."""
        data = last_entries(*self._parts).tobytes() if self._parts else b""
        self._parts = []
        return data


def last_entries(*parts: np.ndarray) -> np.ndarray:
    """The last entry of each producer, by id; entries of ``ENTRY_DTYPE`` in the order of the log."""
    entries = np.concatenate(parts, dtype=ENTRY_DTYPE)  # which would change the order of their bytes
    _, last = np.unique(entries["producer_id"][::-1], return_index=True)
    latest: np.ndarray = entries[::-1][last]
    return latest
