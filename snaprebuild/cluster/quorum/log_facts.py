"""The facts of a metadata log directory that the rules need, and where two logs first differ.

Followers append the bytes that their leader wrote, so equal batches are equal byte for byte. Raft promises that two logs with the same
epoch at the same offset are equal up to there. A tail that was never committed may differ: its node cuts it off when it follows a leader
of a later epoch.

Source: KIP-595, ``KafkaRaftClient.handleFetchResponse`` and ``ReplicatedLog.truncateToEndOffset`` of 4.3.1.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.published import Natural, Part

if TYPE_CHECKING:
    import numpy as np

    from formats.log.control_record import Voter
    from formats.metadata.quorum_state import QuorumState
    from snaprebuild.cluster.metadata.log_end import LogEndEvidence

__all__ = [
    "BatchBelow",
    "BatchColumns",
    "CheckpointFacts",
    "LogDifference",
    "LogFacts",
    "LogStart",
    "epoch_before",
    "first_difference",
]


@dataclass(slots=True)
class BatchColumns:
    """The batches of a log, one element each: base offset, leader epoch and checksum; ascending by offset."""

    base_offset: array[int] = field(default_factory=lambda: array("q"))
    epoch: array[int] = field(default_factory=lambda: array("q"))
    crc: array[int] = field(default_factory=lambda: array("q"))

    def append(self, base_offset: int, epoch: int, crc: int) -> None:
        """Adds the next batch."""
        self.base_offset.append(base_offset)
        self.epoch.append(epoch)
        self.crc.append(crc)

    def rows(self, begin: int, end: int, without: Iterable[tuple[int, int]]) -> np.ndarray:
        """Batches that begin in a range of offsets, shape (n, 3); those that begin in one of the gaps are left out."""
        import numpy as np  # heavy, and --help needs none of it

        columns = (self.base_offset, self.epoch, self.crc)
        part = slice(bisect_left(self.base_offset, begin), bisect_left(self.base_offset, end))
        rows = np.stack([np.array(column[part], dtype=np.int64) for column in columns], axis=1)
        for gap_begin, gap_end in without:
            rows = rows[(rows[:, 0] < gap_begin) | (rows[:, 0] >= gap_end)]
        return rows


@dataclass(frozen=True, slots=True)
class LogDifference:
    """Where two logs part.

    Attributes:
        offset: of the first batch that differs.
        epochs: leader epochs there, of the one and of the other.
        is_impossible: Raft cannot have made it: both have an epoch of one leader there or above.
    """

    offset: int
    epochs: tuple[int, int]
    is_impossible: bool


def first_difference(
    one: BatchColumns, other: BatchColumns, begin: int, end: int, gaps: tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int]]]
) -> LogDifference | None:
    """The first difference of two logs within the offsets that both hold.

    Args:
        one: batches.
        other: batches.
        begin: where both logs hold something.
        end: after the last offset that both hold.
        gaps: offsets that are missing inside the one and the other.
    """
    import numpy as np

    rows = one.rows(begin, end, gaps[1])
    others = other.rows(begin, end, gaps[0])
    shared = min(len(rows), len(others))
    unequal = np.flatnonzero((rows[:shared] != others[:shared]).any(axis=1))
    if not len(unequal) and len(rows) == len(others):
        return None
    at = int(unequal[0]) if len(unequal) else shared
    offset = min(int(each[at, 0]) for each in (rows, others) if at < len(each))
    epochs = (_epoch_at(rows, at), _epoch_at(others, at))
    later = np.intersect1d(rows[at:, 1], others[at:, 1])
    return LogDifference(offset, epochs, bool(len(later)) or epochs[0] == epochs[1])


def _epoch_at(rows: np.ndarray, at: int) -> int:
    """Epoch of a row, or of the last one below it; -1 without rows."""
    return int(rows[min(at, len(rows) - 1), 1]) if len(rows) else -1


def epoch_before(offset: int, below: BatchBelow | None) -> int | None:
    """Epoch of the record before an offset, where a batch that holds it is known."""
    if below is not None and below.last_offset >= offset - 1:
        return below.epoch
    return None


@dataclass(frozen=True, slots=True)
class BatchBelow:
    """The last batch of the log that begins below an offset: its offsets, leader epoch and greatest timestamp."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int


class LogStart(Part, frozen=True):
    """Where the log began before the node stopped."""

    offset: Natural
    epoch: Natural | None
    """Leader epoch of the record before it; null if it is not known."""

    def __str__(self) -> str:
        return f"{self.offset} (epoch {'not known' if self.epoch is None else self.epoch})"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint on disk.

    Attributes:
        id: by its name.
        path: of the file.
        size_bytes: of the file.
        fault: why it is not whole, or None.
        timestamp_ms: of the last record that it contains, as its header says; None if that cannot be read.
        below: last batch that begins below its end; None if the log does not hold it.
    """

    id: OffsetAndEpoch
    path: str
    size_bytes: int
    fault: str | None
    timestamp_ms: int | None
    below: BatchBelow | None

    @property
    def epoch_below(self) -> int | None:
        """Epoch of the record before its end, where a batch that holds it is known."""
        return epoch_before(self.id.offset, self.below)

    @property
    def has_other_epoch(self) -> bool:
        """K7: it contradicts the log."""
        return self.epoch_below not in (None, self.id.epoch)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The content of a metadata log directory.

    Attributes:
        path: of the directory.
        first_base_offset: of the first segment; where a node that starts here begins. None without segments.
        start_offset: where the log began before the node stopped (``memStart``).
        first_epoch: of the first entry of ``leader-epoch-checkpoint``; None if there is none.
        end_offset: after the last batch.
        last_epoch: of the last batch; 0 where there is none.
        below_start: last batch that begins below the start; None if the log does not hold it.
        cut_offset: after the last whole batch before the first damage, where a node that starts cuts the log and drops the rest; None
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
        quorum_state: None if the file is absent.
        is_quorum_state_bad: the file is there and cannot be read.
        end: what contradicts the end of the log; None if that was not looked for.
        has_marker: its node stopped cleanly, by the marker in the log directory.
        topic_fault: why a node does not start with its ``partition.metadata``; None if it does.
        node_fault: why a node does not start with the ``meta.properties`` of the log directory; None if it does.
        is_bare: it is a copy of the metadata log alone: no other file of a log directory is around it.
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
    end: LogEndEvidence | None = None
    has_marker: bool = False
    topic_fault: str | None = None
    node_fault: str | None = None
    is_bare: bool = False

    @property
    def base(self) -> int:
        """First base offset; 0 without segments, where Kafka begins."""
        return self.first_base_offset or 0

    @property
    def is_emptied(self) -> bool:
        """Whether a node that starts empties the log and begins at its latest checkpoint (``truncateToLatestSnapshot``)."""
        remaining = [checkpoint.id for checkpoint in self.checkpoints if checkpoint.id.offset >= self.base]
        if self.cut_offset is not None:
            return any(each.offset > self.cut_offset for each in remaining)
        return bool(remaining) and remaining[-1] > OffsetAndEpoch(self.end_offset, self.last_epoch)

    def epoch_at(self, offset: int) -> int | None:
        """Leader epoch of an offset; None if the log does not hold it."""
        at = bisect_right(self.batches.base_offset, offset) - 1
        is_missing = any(begin <= offset < end for begin, end in self.gaps)
        if at < 0 or offset >= self.end_offset or is_missing:
            return None
        return self.batches.epoch[at]

    @property
    def end_after_start(self) -> OffsetAndEpoch:
        """Where the log ends once a node has started from it, with the epoch of its last record."""
        remaining = [checkpoint.id for checkpoint in self.checkpoints if checkpoint.id.offset >= self.base]
        if self.is_emptied:
            return remaining[-1]
        if self.cut_offset is not None:
            return OffsetAndEpoch(self.cut_offset, self.epoch_at(self.cut_offset - 1) or 0)
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def start(self) -> OffsetAndEpoch | None:
        """``startOffsetAndEpoch``; None if the epoch is not known."""
        if not self.start_offset:
            return OffsetAndEpoch(0, 0)
        epoch = self.start_epoch
        return None if epoch is None else OffsetAndEpoch(self.start_offset, epoch)

    @property
    def log_start(self) -> LogStart:
        """The start, also if its epoch is not known."""
        start = self.start
        return LogStart(self.start_offset, None if start is None else start.epoch)

    @property
    def start_epoch(self) -> int | None:
        """Epoch of the record before the start: of the checkpoint that ends there, else of the log."""
        at_start = [checkpoint.id.epoch for checkpoint in self.checkpoints if checkpoint.id.offset == self.start_offset]
        return max(at_start) if at_start else epoch_before(self.start_offset, self.below_start)
