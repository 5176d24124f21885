"""Compares the snapshots of a replica with a replay of its own segments, which begins with a state from remote storage."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import finding_of_error
from snaprebuild.replay.difference import Comparison, ComparisonStatus, cost_of_missing
from snaprebuild.replay.window import expired_mask
from snaprebuild.snapshots.engine.boundary_state import BoundaryState, InitialState
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.log_facts import known_log_end
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom, source_replay
from snaprebuild.snapshots.engine.partition_task import ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.local.whole_file import aside_name

__all__ = ["LOST_OF_A_RUN_MAX", "CheckedSnapshot", "LostProducer", "SnapshotsTask"]

LOST_LISTED_MAX = 1_000
LOST_OF_A_RUN_MAX = 10_000
"""Producers that a snapshot lists, and a run; all are counted."""


@dataclass(frozen=True, slots=True)
class LostProducer:
    """An entry that should be in a snapshot and is not.

    Attributes:
        entry: of ``ENTRY_DTYPE``.
        has_expired: a broker would drop it when it loads the log now.
    """

    entry: np.void
    has_expired: bool

    @property
    def producer_id(self) -> int:
        """Its id."""
        return int(self.entry["producer_id"])

    @property
    def open_from(self) -> int | None:
        """First offset of its open transaction; None where it has none."""
        first = int(self.entry["current_txn_first_offset"])
        return None if first < 0 else first

    @property
    def consequence(self) -> str:
        """The action of a broker that does not know it."""
        return cost_of_missing(self.entry)


@dataclass(slots=True)
class CheckedSnapshot:
    """A snapshot of the replica, or a boundary without one.

    Attributes:
        offset: of it.
        expected_entries: count by remote storage and the replica's own segments.
        entries: count in the file; None where there is none, or it does not parse.
        status: of the comparison; None where there is no file.
        reason: of the status.
        proven_wrong: the state contradicts it for certain, or it was set aside and its successor is missing.
        lost: producers that are missing, the open transactions first, those that have expired last; at most ``LOST_LISTED_MAX``, and
            ``LOST_OF_A_RUN_MAX`` of all snapshots together.
        lost_count: missing and not expired.
        open_count: of these, with an open transaction.
        expired_count: missing and expired, which is no loss.
    """

    offset: int
    expected_entries: int
    entries: int | None
    status: ComparisonStatus | None
    reason: str
    proven_wrong: bool
    lost: tuple[LostProducer, ...]
    lost_count: int
    open_count: int
    expired_count: int


class SnapshotsTask(ReplayTask):
    """Replays a replica on a state.

    Attributes:
        snapshots: those on disk that a broker would load one day, and the boundaries without one, ascending.
    """

    lost_above_damage = "nothing above it can be checked"

    def __init__(self, source: PartitionSource, given: InitialState, clock: Clock, may_list: int) -> None:
        """Takes what is replayed.

        Args:
            source: the replica.
            given: the state at its first offset.
            clock: for expiry.
            may_list: lost producers that may be listed.
        """
        directory = source.directory
        end = known_log_end(directory)
        replay = source_replay(source, clock, mode=ReplayFrom.LOG_START, known_end=end, initial_state=given)
        # A broker that loads the log keeps the newest of the snapshots inside segments, if there is none above it.
        reads = partial(read_tasks, directory, check_crc=True, cuts=[offset for offset, _ in directory.snapshots[-1:]])
        super().__init__(source, TaskOutcome(), reads, replay)
        self.snapshots: list[CheckedSnapshot] = []
        self._clock = clock
        self._may_list = may_list

    def boundary(self, state: BoundaryState) -> None:
        """Looks at the snapshot here."""
        directory = self.source.directory
        if state.is_cut and state.offset != directory.snapshots[-1][0]:
            return
        try:
            found = read_snapshot_file(directory, state.offset)
            comparison = None if found is None else self.cross.judge(state, found)
        except ReadFailedError as error:
            self.outcome.findings.append(finding_of_error(error, directory.path))
            return
        except FormatError as error:
            found = None
            comparison = Comparison(ComparisonStatus.CORRUPT, True, len(state.entries), 0, 0, (), str(error))
        checked = _checked(state, found, comparison, self._clock, min(self._may_list, LOST_LISTED_MAX))
        self._may_list -= len(checked.lost)
        if comparison is None and self._was_set_aside(state.offset):
            reason = "it was set aside, and its successor is not there: a repair was stopped in between"
            checked = replace(checked, proven_wrong=True, reason=reason)
        self.snapshots.append(checked)

    def _was_set_aside(self, offset: int) -> bool:
        directory = self.source.directory
        return directory.store.is_local and os.path.lexists(directory.file_path(aside_name(offset)))


def _checked(
    state: BoundaryState, found: np.ndarray | None, comparison: Comparison | None, clock: Clock, listed_max: int
) -> CheckedSnapshot:
    expected = state.entries
    missing = expected
    if found is not None:
        missing = expected[~np.isin(expected["producer_id"].astype(np.int64), found["producer_id"].astype(np.int64))]
    elif comparison is not None:
        missing = expected[:0]  # a broker deletes what does not parse, and goes back to an older one
    expired = expired_mask(missing, clock.as_of_ms, clock.expiration_ms)
    is_open = missing["current_txn_first_offset"] >= 0
    order = np.lexsort((missing["producer_id"], ~is_open, expired))[:listed_max]
    listed = missing[order]
    return CheckedSnapshot(
        offset=state.offset,
        expected_entries=len(expected),
        entries=None if found is None else len(found),
        status=None if comparison is None else comparison.status,
        reason="there is no file" if comparison is None else comparison.reason,
        proven_wrong=comparison is not None and comparison.proven_wrong,
        lost=tuple(LostProducer(entry, bool(has_expired)) for entry, has_expired in zip(listed, expired[order], strict=True)),
        lost_count=int(np.count_nonzero(~expired)),
        open_count=int(np.count_nonzero(is_open & ~expired)),
        expired_count=int(np.count_nonzero(expired)),
    )
