"""The producers of the batches above the newest snapshot of a partition, which no file on disk names.

Their ids are compared with the next one of the cluster (``cluster.scan_producer_ids``). With ZooKeeper no metadata log has that.
"""

from __future__ import annotations

from snaprebuild.broker.cluster_kind import ClusterKind, kind_of
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["LaterProducers"]


class LaterProducers:
    """Takes the segments of a replay, or their pieces, in order."""

    def __init__(self, source: PartitionSource) -> None:
        """Begins with none."""
        self._newest = max((offset for offset, _ in source.directory.snapshots), default=-1)
        self._is_wanted = kind_of(source.log_dir.meta) is ClusterKind.KRAFT
        self._effect = RunningEffect()

    def take(self, summary: SegmentSummary) -> None:
        """Keeps the producers of a segment, or of a piece, that ends above the newest snapshot."""
        if self._is_wanted and summary.facts.next_offset > self._newest:
            self._effect = self._effect.then(summary.effect)

    def taken(self) -> bytes:
        """Entries of ``ENTRY_DTYPE``, one for each producer, as bytes. The value is empty afterwards."""
        data = entries_of(self._effect.total()).tobytes()
        self._effect = RunningEffect()
        return data
