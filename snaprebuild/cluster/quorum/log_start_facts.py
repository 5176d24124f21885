"""What a metadata log directory holds, as the rules on its start see it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

if TYPE_CHECKING:
    from formats.log.control_record import Voter
    from formats.metadata.quorum_state import QuorumState
    from snaprebuild.cluster.quorum.log_agreement import BatchColumns

__all__ = ["BatchBelow", "CheckpointFacts", "LogFacts", "epoch_before"]


def epoch_before(offset: int, below: BatchBelow | None) -> int | None:
    """Epoch of the record before an offset, where a batch that holds it is known."""
    return below.epoch if below is not None and below.last_offset >= offset - 1 else None


@dataclass(frozen=True, slots=True)
class BatchBelow:
    """The last batch of the log that begins below an offset: its offsets, leader epoch and greatest timestamp."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint on disk.

    Attributes:
        id: by its name.
        path: of the file.
        size_bytes: of the file.
        fault: why it is not whole, or None.
        timestamp_ms: of the last record that it contains, as its header says; None where that cannot be read.
        below: last batch that begins below its end; None where the log does not hold it.
    """

    id: OffsetAndEpoch
    path: str
    size_bytes: int
    fault: str | None
    timestamp_ms: int | None
    below: BatchBelow | None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a metadata log directory holds.

    Attributes:
        path: of the directory.
        first_base_offset: of the first segment; where a node that starts here begins. None without segments.
        start_offset: where the log began before the node stopped (``memStart``).
        first_epoch: of the first entry of ``leader-epoch-checkpoint``; None where there is none.
        end_offset: behind the last batch.
        last_epoch: of the last batch; 0 where there is none.
        below_start: last batch that begins below the start; None where the log does not hold it.
        cut_offset: behind the last whole batch before the first damage, where a node that starts cuts the log and drops the rest; None
            without damage. A batch that is not whole at the end of the last segment is none.
        is_torn: the last segment ends with a batch that is not whole, which a node that starts cuts off.
        gaps: (from, to) of offsets that are missing inside the log, ``to`` exclusive, ascending.
        checkpoints: by id.
        batches: of all segments.
        left_overs: names of files that were being written, or are deleted.
        strange_names: that Kafka did not give.
        bad_snapshots: producer snapshots that are not empty, and what is wrong.
        leaders: leader id by leader epoch, as the log's own records name them.
        voter_sets: voters that records of checkpoints and of the log name; the latest is last.
        quorum_state: None where the file is absent.
        is_quorum_state_bad: the file is there and cannot be read.
    """

    path: str
    first_base_offset: int | None
    start_offset: int
    first_epoch: int | None
    end_offset: int
    last_epoch: int
    below_start: BatchBelow | None
    gaps: tuple[tuple[int, int], ...]
    checkpoints: tuple[CheckpointFacts, ...]
    batches: BatchColumns
    left_overs: tuple[str, ...] = ()
    cut_offset: int | None = None
    is_torn: bool = False
    strange_names: tuple[str, ...] = ()
    bad_snapshots: tuple[tuple[str, str], ...] = ()
    leaders: Mapping[int, int] = field(default_factory=dict)
    voter_sets: tuple[tuple[Voter, ...], ...] = ()
    quorum_state: QuorumState | None = None
    is_quorum_state_bad: bool = False

    @property
    def base(self) -> int:
        """First base offset; 0 without segments, where Kafka begins."""
        return self.first_base_offset or 0

    @property
    def is_emptied(self) -> bool:
        """Whether a node that starts empties the log and begins at its latest checkpoint (``truncateToLatestSnapshot``)."""
        kept = [each.id for each in self.checkpoints if each.id.offset >= self.base]
        if self.cut_offset is not None:
            return any(each.offset > self.cut_offset for each in kept)
        return bool(kept) and kept[-1] > OffsetAndEpoch(self.end_offset, self.last_epoch)

    def epoch_at(self, offset: int) -> int | None:
        """Leader epoch of an offset; None where the log does not hold it."""
        at = bisect_right(self.batches.base_offset, offset) - 1
        is_missing = any(begin <= offset < end for begin, end in self.gaps)
        return None if at < 0 or offset >= self.end_offset or is_missing else self.batches.epoch[at]

    @property
    def end_after_start(self) -> OffsetAndEpoch:
        """Where the log ends once a node has started from it, with the epoch of its last record."""
        kept = [each.id for each in self.checkpoints if each.id.offset >= self.base]
        if self.is_emptied:
            return kept[-1]
        if self.cut_offset is not None:
            return OffsetAndEpoch(self.cut_offset, self.epoch_at(self.cut_offset - 1) or 0)
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def start(self) -> OffsetAndEpoch | None:
        """``startOffsetAndEpoch``; None where the epoch is not known."""
        if not self.start_offset:
            return OffsetAndEpoch(0, 0)
        epoch = self.start_epoch
        return None if epoch is None else OffsetAndEpoch(self.start_offset, epoch)

    @property
    def start_epoch(self) -> int | None:
        """Epoch of the record before the start: of the checkpoint that ends there, else of the log."""
        at_start = [each.id.epoch for each in self.checkpoints if each.id.offset == self.start_offset]
        return max(at_start) if at_start else epoch_before(self.start_offset, self.below_start)
