"""How many entries of a segment's indexes agree with its batches: a sum over blocks, so that ranges and pieces of a segment add up.

The sum only detects that an index may be damaged. ``snapshots.engine.index_check`` then finds the entry.

Source: ``OffsetIndex``, ``TimeIndex``, ``LeaderEpochFileCache``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats.log.batch_headers import HeaderBlock

__all__ = ["HIT_COLUMNS", "IndexEntries", "other_epochs"]

HIT_COLUMNS = ("base_offset", "last_offset_delta", "magic", "max_timestamp", "partition_leader_epoch")
"""Fields of a header on which the sum depends."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexEntries:
    """The entries of the indexes of one segment; all arrays are int64.

    Attributes:
        offset: of the offset index, absolute, ascending; ``position``: in bytes, ascending.
        time_offset: of the time index, absolute; ``timestamp``: ms since 1970; both do not descend.
        epoch: of the leader epoch checkpoint; ``epoch_start``: first offset of each, ascending.
    """

    offset: np.ndarray
    position: np.ndarray
    time_offset: np.ndarray
    timestamp: np.ndarray
    epoch: np.ndarray
    epoch_start: np.ndarray

    def hits(self, block: HeaderBlock) -> int:
        """2 for each entry of the offset index and 1 for each of the time index that agree, minus 1 for each batch of another epoch.

        Over the whole segment this is ``2 * len(offset) + len(timestamp)`` where everything agrees, and less otherwise.

        Args:
            block: not empty, with ``HIT_COLUMNS``.
        """
        base, positions = block.column("base_offset"), block.position_bytes
        last = base + block.column("last_offset_delta")
        begins = np.count_nonzero(np.isin(self.position, positions))
        inside = (self.offset >= last[0]) & (self.offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.offset[inside]), len(last) - 1)
        ends = np.count_nonzero((last[rows] == self.offset[inside]) & (positions[rows] >= self.position[inside]))
        inside = (self.time_offset >= base[0]) & (self.time_offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.time_offset[inside]), len(last) - 1)
        same = block.column("max_timestamp")[rows] == self.timestamp[inside]
        times = np.count_nonzero(same & (base[rows] <= self.time_offset[inside]))
        return int(begins + ends + times) - int(np.count_nonzero(other_epochs(self.epoch, self.epoch_start, block)))


def other_epochs(epoch: np.ndarray, epoch_start: np.ndarray, block: HeaderBlock) -> np.ndarray:
    """Which batches have another leader epoch than the checkpoint; all of them where that is empty.

    Batches of magic 0 and 1 have none. A broker does not add a negative epoch to its checkpoint. DeleteRecords within the segment removes
    the epochs below the log start, so that nothing is known of batches below the first entry.
    """
    found = block.column("partition_leader_epoch")
    rows = np.searchsorted(epoch_start, block.column("base_offset"), side="right") - 1
    if not len(epoch):
        return np.ones(len(block), dtype=bool)
    differs: np.ndarray = (rows >= 0) & (epoch[rows] != found) & (found >= 0) & (block.column("magic") == 2)
    return differs
