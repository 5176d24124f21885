"""Reads one window of a partition in remote storage, and has it judged.

If a segment cannot be read, or a limit of the run is used up, what was read before is judged as a partition that ends there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from formats.errors import FormatError
from snaprebuild.errors import LimitReachedError, ReadFailedError, SnaprebuildError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import boundary_after
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
        self._window = window
        self._verdict = verdict
        self._clock = clock
        # Snapshots are evidence for one another: each is asked for once.
        self._store = RememberingStore(directory.store)
        self._directory = dataclasses.replace(directory, store=self._store)
        self._held: dict[int, list[SegmentSummary]] = {}

    def next_segments(self, *, is_first: bool) -> list[int]:
        """The segments of the window."""
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
        """A segment cannot be read, or a limit of the run is used up. What was read before is judged."""
        super().fail(error)
        if self.outcome.limit is None:
            try:
                self._judge_without(error)
            except LimitReachedError as limit:
                super().fail(limit)
            else:
                return
        contents = self._before_failure(str(self.outcome.limit))
        while contents is not None:
            outcome = judge_window(contents)
            self.outcome.take(outcome)
            contents = None if outcome.resume_at is None else _above_damage(contents, outcome.resume_at)

    def _judge_without(self, error: SnaprebuildError | FormatError) -> None:
        """Judges what is below a segment that cannot be read. What is above is read again, and the rest is judged by its content.

        Raises:
            LimitReachedError: a limit of the run is used up; nothing was judged.
        """
        contents = self._before_failure(str(error))
        reason = f"the replay failed: {error}"
        below = WindowOutcome() if contents is None else judge_window(contents)
        judged = {each.name for each in below.snapshots}
        rest = tuple(each for each in self._directory.snapshots if each[1].name not in judged)
        directory = dataclasses.replace(self._directory, snapshots=rest)
        below.take(judge_without_replay(WindowContents(self._window, directory, {}, self._clock), reason))
        below.snapshots.sort(key=lambda each: each.offset)
        self.outcome.take(below)
        self.outcome.ended = self.outcome.ended or reason
        if self.outcome.resume_at is None:
            failed = max(self._read_whole(), default=self._window.first_index - 1) + 1
            if failed < len(directory.segments):
                self.outcome.resume_at = directory.segments[failed].base_offset + 1

    def finish(self) -> None:
        """Judges the snapshots."""
        self.outcome.take(judge_window(self._contents()))

    def job(self, report: Callable[[object], None]) -> _WindowJob:
        """The task as a value (``PartitionTask.job``)."""
        return _WindowJob(self._window, self._clock)

    def adopt(self, outcome: WindowOutcome) -> None:
        """Takes the result of a task that ran elsewhere (``PartitionTask.adopt``)."""
        self._verdict.outcome = self.outcome = outcome

    def _contents(self) -> WindowContents:
        return WindowContents(self._window, self._directory, self._held, self._clock)

    def _read_whole(self) -> dict[int, list[SegmentSummary]]:
        """The segments that were read to their ends."""
        return {index: pieces for index, pieces in self._held.items() if pieces[-1].cut_offset is None}

    def _before_failure(self, reason: str) -> WindowContents | None:
        """What was read, as a partition that ends there; None if no segment was read to its end."""
        held = self._read_whole()
        if not held:
            return None
        last = max(held)
        directory = self._directory
        above = self._window.above
        end = directory.log_end_offset
        if last + 1 < len(directory.segments):
            end = directory.segments[last + 1].base_offset
            above = f"the copy from {end} on was not read: {reason}"
        snapshots = [each for each in directory.snapshots if end is None or each[0] <= end]
        store = self._store
        if self.outcome.limit is not None:
            store = store.without_requests(reason)
            snapshots = [each for each in snapshots if store.has_read(directory.file_path(each[1].name))]
        directory = dataclasses.replace(
            directory,
            segments=directory.segments[: last + 1],
            snapshots=tuple(snapshots),
            store=store,
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
    """The task of a window as a value."""

    window: Window
    clock: Clock

    def needs(self) -> tuple[int, int] | None:
        """Requests and bytes apart from the segments, in an object store; None if unknown."""
        return snapshot_needs(self.window.source.directory)

    @contextlib.contextmanager
    def started(self, replay: PartitionReplay | None = None) -> Iterator[WindowTask]:
        assert replay is None, "a window is replayed as a whole"
        yield WindowTask(self.window, PartitionVerdict(self.window.source), self.clock)
