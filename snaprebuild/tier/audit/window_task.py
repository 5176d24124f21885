"""Reads one window of a partition in remote storage, and has it judged.

Where a limit of the run ends the reads, what was read is judged like a partition that ends there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.window_proof import Clock, boundary_after, read_snapshot_file
from snaprebuild.snapshots.verify import PartitionVerdict, snapshot_needs
from snaprebuild.tier.audit.remembering_store import RememberingStore
from snaprebuild.tier.audit.window import Window, WindowContents
from snaprebuild.tier.audit.window_judge import judge_window, judge_without_replay
from snaprebuild.tier.audit.window_outcome import WindowOutcome

__all__ = ["WindowTask"]


class WindowTask(PartitionTask):
    """One partition."""

    outcome: WindowOutcome

    def __init__(self, window: Window, verdict: PartitionVerdict, clock: Clock) -> None:
        """Takes what is replayed.

        Args:
            window: of it.
            verdict: gets what is found.
            clock: for expiry: entries that a load at that moment drops are not compared.
        """
        directory = window.source.directory
        cuts = sorted({offset for offset, _ in directory.snapshots if offset > window.start_offset})
        verdict.outcome = outcome = WindowOutcome()
        super().__init__(window.source, outcome, partial(read_tasks, directory, check_crc=True, cuts=cuts, with_first_events=True))
        self._window, self._verdict, self._clock = window, verdict, clock
        # Snapshots are evidence for one another: each is asked for once.
        self._store = RememberingStore(directory.store)
        self._directory = dataclasses.replace(directory, store=self._store)
        self._held: dict[int, list[SegmentSummary]] = {}

    def next_segments(self, *, is_first: bool) -> list[int]:
        """Those of the window."""
        return list(range(self._window.first_index, len(self._directory.segments))) if is_first else []

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Kept until the end: the proof of a snapshot may be above it."""
        if not self._held:
            self._read_snapshots(self._window.start_offset)
        self._held.setdefault(index, []).append(summary)
        offset, _ = boundary_after(self._directory.segments, index, summary)
        if offset is not None:
            self._read_snapshots(offset)
        return True

    def _read_snapshots(self, offset: int) -> None:
        """Reads the snapshots at a boundary before the next segments, which a limit of the run may end. The store keeps them."""
        for listed in self._directory.snapshots_at(offset):
            if self._store.has_room_for(listed.identity.size_bytes):
                with contextlib.suppress(FormatError, ReadFailedError):  # the judge reports it
                    read_snapshot_file(self._directory, offset, listed)

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Nothing more is read. Only what was read before a limit of the run can be judged."""
        super().fail(error)
        if self.outcome.limit is not None:
            self._judge_before_limit(self.outcome.limit)
            return
        reason = f"the replay failed: {error}"
        self.outcome.take(judge_without_replay(self._contents(), reason))
        self.outcome.ended = reason

    def finish(self) -> None:
        """Judges the snapshots."""
        self.outcome.take(judge_window(self._contents()))

    def job(self, report: Callable[[object], None]) -> _WindowJob:
        """As ``PartitionTask.job``."""
        return _WindowJob(self._window, self._clock)

    def adopt(self, outcome: WindowOutcome) -> None:
        """As ``PartitionTask.adopt``."""
        self._verdict.outcome = self.outcome = outcome

    def _contents(self) -> WindowContents:
        return WindowContents(self._window, self._directory, self._held, self._clock)

    def _judge_before_limit(self, limit: str) -> None:
        """Judges the segments and snapshots that were read; begins again above each damaged segment."""
        contents = self._before_limit(limit)
        while contents is not None:
            outcome = judge_window(contents)
            self.outcome.take(outcome)
            contents = None if outcome.resume_at is None else _above_damage(contents, outcome.resume_at)

    def _before_limit(self, limit: str) -> WindowContents | None:
        """What was read, as a partition that ends there; None if no segment was read to its end."""
        held = {index: pieces for index, pieces in self._held.items() if pieces[-1].cut_offset is None}
        if not held:
            return None
        last, directory = max(held), self._directory
        above = self._window.above
        end = directory.log_end_offset
        if last + 1 < len(directory.segments):
            above = f"the copies above were not read: {limit}"
            end = directory.segments[last + 1].base_offset
        snapshots = [
            (offset, listed)
            for offset, listed in directory.snapshots
            if (end is None or offset <= end) and self._store.has_read(directory.file_path(listed.name))
        ]
        directory = dataclasses.replace(
            directory,
            segments=directory.segments[: last + 1],
            snapshots=tuple(snapshots),
            store=self._store.without_requests(limit),
            log_end_offset=end,
        )
        return WindowContents(dataclasses.replace(self._window, above=above), directory, held, self._clock)


def _above_damage(contents: WindowContents, offset: int) -> WindowContents | None:
    """The segments that begin at an offset or above, which do not follow from those below; None without any."""
    segments = contents.directory.segments
    held = {index: pieces for index, pieces in contents.held.items() if segments[index].base_offset >= offset}
    if not held or len(held) == len(contents.held):
        return None
    start = segments[min(held)].base_offset
    window = dataclasses.replace(
        contents.window,
        first_index=min(held),
        below_is_old=False,
        below=f"the copy below {start} is damaged",
    )
    snapshots = tuple(each for each in contents.directory.snapshots if each[0] > start)
    directory = dataclasses.replace(contents.directory, snapshots=snapshots)
    return WindowContents(window, directory, held, contents.clock)


@dataclass(frozen=True, slots=True)
class _WindowJob(Job):
    """The same as a value."""

    window: Window
    clock: Clock

    def needs(self) -> tuple[int, int] | None:
        """Requests and bytes apart from the segments, in an object store; None if unknown."""
        return snapshot_needs(self.window.source.directory)

    @contextlib.contextmanager
    def started(self, replay: PartitionReplay | None = None) -> Iterator[WindowTask]:
        assert replay is None, "a window is replayed as a whole"
        yield WindowTask(self.window, PartitionVerdict(self.window.source), self.clock)
