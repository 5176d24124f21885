"""Compares the snapshots of a replica with a replay of its own segments, which begins with a state from remote storage."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import finding_of_error
from snaprebuild.published import Int64, Natural, OffsetOrNone, Part
from snaprebuild.replay.difference import Comparison, ComparisonStatus, consequence_of_missing
from snaprebuild.replay.window import Clock, expired_mask
from snaprebuild.snapshots.engine.log_facts import known_log_end
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, InitialState, ReplayFrom, source_replay
from snaprebuild.snapshots.engine.partition_task import ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.local.whole_file import aside_name

__all__ = ["LOST_OF_A_RUN_MAX", "LostProducer", "ReplicaSnapshot", "SnapshotsTask"]

LOST_LISTED_MAX = 1_000
"""Producers that a snapshot lists, at most; all are counted."""

LOST_OF_A_RUN_MAX = 10_000
"""Producers that the snapshots of a run list, at most; all are counted."""


class LostProducer(Part, frozen=True):
    """An entry that should be in a snapshot and is not."""

    producer_id: Int64
    epoch: OffsetOrNone
    last_sequence: OffsetOrNone
    last_offset: OffsetOrNone
    timestamp_ms: OffsetOrNone
    """Milliseconds since 1970."""
    open_from: Natural | None
    """First offset of its open transaction."""
    expired: bool
    """A broker drops it when it loads the log at as_of_ms: no loss."""
    consequence: str
    """The behaviour of a broker without it; not stable."""


class ReplicaSnapshot(Part, frozen=True):
    """A snapshot of the replica, or a boundary without one."""

    offset: Natural
    """Offset of the snapshot or boundary."""
    entries: Natural | None
    """Entries in the file; null without one, or if it does not parse."""
    expected_entries: Natural
    """Entries by remote storage and the replica's own segments."""
    status: ComparisonStatus | None
    """Status of the file; null without one."""
    reason: str
    """For the user; not stable."""
    proven_wrong: bool
    """The state contradicts it for certain, or it was set aside and its successor is missing."""
    lost_count: Natural
    """Producers that are missing and have not expired."""
    lost_open_transactions: Natural
    """Lost producers with an open transaction."""
    expired_producers: Natural
    """Producers that are missing, but have expired."""
    lost: tuple[LostProducer, ...]
    """Missing producers, open transactions first, expired ones last; at most 1,000 of a snapshot, and 10,000 of a run."""


class SnapshotsTask(ReplayTask):
    """Replays a replica on a state.

    Attributes:
        snapshots: those on disk that a broker would load one day, and the boundaries without one, ascending.
    """

    lost_above_damage = "nothing above it can be checked"

    def __init__(self, source: PartitionSource, initial: InitialState, clock: Clock, may_list: int) -> None:
        """Prepares the replay.

        Args:
            source: the replica.
            initial: the state at its first offset.
            clock: for expiry.
            may_list: lost producers that may be listed.
        """
        directory = source.directory
        end = known_log_end(directory)
        replay = source_replay(source, clock, mode=ReplayFrom.LOG_START, known_end=end, initial_state=initial)
        # A broker that loads the log keeps the newest of the snapshots inside segments, if there is none above it.
        reads = partial(read_tasks, directory, check_crc=True, cuts=[offset for offset, _ in directory.snapshots[-1:]])
        super().__init__(source, TaskOutcome(), reads, replay)
        self.snapshots: list[ReplicaSnapshot] = []
        self._clock = clock
        self._may_list = may_list

    def boundary(self, state: BoundaryState) -> None:
        """Compares the snapshot at a boundary."""
        directory = self.source.directory
        if state.is_cut and state.offset != directory.snapshots[-1][0]:
            return
        try:
            entries = read_snapshot_file(directory, state.offset)
            comparison = None if entries is None else self.cross.judge(state, entries)
        except ReadFailedError as error:
            self.outcome.findings.append(finding_of_error(error, directory.path))
            return
        except FormatError as error:
            entries = None
            comparison = Comparison.corrupt(str(error), expected_entries=len(state.entries))
        snapshot = _snapshot(state, entries, comparison, self._clock, min(self._may_list, LOST_LISTED_MAX))
        self._may_list -= len(snapshot.lost)
        if comparison is None and self._was_set_aside(state.offset):
            reason = "it was set aside, and its successor is not there: a repair was stopped in between"
            snapshot = replace(snapshot, proven_wrong=True, reason=reason)
        self.snapshots.append(snapshot)

    def _was_set_aside(self, offset: int) -> bool:
        directory = self.source.directory
        return directory.store.is_local and os.path.lexists(directory.file_path(aside_name(offset)))


def _snapshot(
    state: BoundaryState, entries: np.ndarray | None, comparison: Comparison | None, clock: Clock, listed_max: int
) -> ReplicaSnapshot:
    """The producers that a snapshot lacks.

    Args:
        state: the right one at its offset.
        entries: in the file; None without a file, or if it does not parse.
        comparison: of the file with the state; None without a file.
        clock: for expiry.
        listed_max: lost producers that may be listed.
    """
    expected = state.entries
    missing = expected
    if entries is not None:
        missing = expected[~np.isin(expected["producer_id"].astype(np.int64), entries["producer_id"].astype(np.int64))]
    elif comparison is not None:
        missing = expected[:0]  # a broker deletes what does not parse, and goes back to an older one
    expired = expired_mask(missing, clock.as_of_ms, clock.expiration_ms)
    is_open = missing["current_txn_first_offset"] >= 0
    order = np.lexsort((missing["producer_id"], ~is_open, expired))[:listed_max]
    listed = zip(missing[order], expired[order].tolist(), strict=True)
    return ReplicaSnapshot(
        offset=state.offset,
        expected_entries=len(expected),
        entries=None if entries is None else len(entries),
        status=None if comparison is None else comparison.status,
        reason="there is no file" if comparison is None else comparison.reason,
        proven_wrong=comparison is not None and comparison.proven_wrong,
        lost=tuple(_lost_producer(entry, expired=has_expired) for entry, has_expired in listed),
        lost_count=int(np.count_nonzero(~expired)),
        lost_open_transactions=int(np.count_nonzero(is_open & ~expired)),
        expired_producers=int(np.count_nonzero(expired)),
    )


def _lost_producer(entry: np.void, *, expired: bool) -> LostProducer:
    first = int(entry["current_txn_first_offset"])
    return LostProducer(
        producer_id=int(entry["producer_id"]),
        epoch=int(entry["epoch"]),
        last_sequence=int(entry["last_sequence"]),
        last_offset=int(entry["last_offset"]),
        timestamp_ms=int(entry["timestamp"]),
        open_from=None if first < 0 else first,
        expired=expired,
        consequence=consequence_of_missing(entry),
    )
