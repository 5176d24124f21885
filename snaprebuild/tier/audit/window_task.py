"""Reads one window of a partition in remote storage, and judges its snapshots, without any evidence from the segments below it.

The window alone contradicts much, and proves nothing: a producer that is silent in it may have a transaction open. What other snapshots
show is in ``window_evidence``.

If a segment cannot be read, or a limit of the run is used up, what was read before is judged as a partition that ends there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from formats.errors import FormatError
from snaprebuild.errors import LimitReachedError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.classes import ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import Comparison, VerifiedSnapshot, compare
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import boundary_after, prefixes_of
from snaprebuild.snapshots.verify import UNSOUND, PartitionVerdict, compared_alone, snapshot_needs
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore
from snaprebuild.storage.thread_pool import ThreadPool
from snaprebuild.tier.audit.window import Window, WindowContents, WindowOutcome, WindowSnapshot
from snaprebuild.tier.audit.window_evidence import WindowEvidence

__all__ = [
    "RememberingStore",
    "WindowTask",
]

REMEMBERED_BYTES_MAX = 64 << 20
"""Bytes of the snapshots of a window that are kept in memory. Further ones are read again when they are evidence."""


@dataclass(slots=True)
class RememberingStore:
    """Another store, small files of which are read once: the snapshots of a window are evidence for one another.

    Attributes:
        ended: why nothing more is read; None as long as the other store is read.
    """

    base: ReadStore
    ended: str | None = None
    _found: dict[str, bytes | None] = field(default_factory=dict)
    _size: int = 0

    @property
    def is_local(self) -> bool:
        """Whether the other store is local."""
        return self.base.is_local

    def for_file(self, location: str) -> ReadStore:
        """``ReadStore.for_file`` of the other store."""
        return self.base.for_file(location)

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a file of this size would be kept."""
        return self._size + size_bytes <= REMEMBERED_BYTES_MAX

    def has_read(self, location: str) -> bool:
        """Whether a file is kept."""
        return location in self._found

    def without_requests(self, reason: str) -> RememberingStore:
        """The files that are kept. To read any other one fails for a reason."""
        return replace(self, ended=reason)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """``ReadStore.read_small``, from memory if the file was read before."""
        if location in self._found:
            return self._found[location]
        if self.ended is not None:
            raise ReadFailedError(f"was not read: {self.ended}", path=location)
        data = self.base.read_small(location, bytes_max)
        size = 0 if data is None else len(data)
        if self._size + size <= REMEMBERED_BYTES_MAX:
            self._found[location] = data
            self._size += size
        return data

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """``ReadStore.read_end`` of the other store."""
        return self.base.read_end(location, count)

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> OpenBytes:
        """``ReadStore.open_bytes`` of the other store."""
        return self.base.open_bytes(location, identity, deadline, may_grow)


NOTHING = RunningEffect()


def _judge_window(contents: WindowContents) -> WindowOutcome:
    """The verdicts on the snapshots of a window, and what is wrong with its segments."""
    outcome = WindowOutcome()
    judge = _WindowJudge(contents, outcome)
    judged, reason = judge.by_the_window()
    if not contents.window.is_whole:
        WindowEvidence(contents, outcome).settle(judged)
    judge.add_verdicts(judged, reason)
    return outcome


def _judge_without_replay(contents: WindowContents, reason: str) -> WindowOutcome:
    """The verdicts on snapshots by their own content, because the replay failed for a reason."""
    outcome = WindowOutcome()
    _WindowJudge(contents, outcome).add_verdicts([], reason)
    return outcome


class _WindowJudge:
    """Judges one window, and collects the result."""

    def __init__(self, contents: WindowContents, outcome: WindowOutcome) -> None:
        self._contents = contents
        self._outcome = outcome
        self._window = contents.window
        self._directory = contents.directory

    def by_the_window(self) -> tuple[list[WindowSnapshot], str | None]:
        """Every snapshot that the replay reaches; and why it ended early, None if it did not."""
        record = ReplayRecord(absence="in no batch")
        judged = list[WindowSnapshot]()
        for index, summary, prefix in prefixes_of(self._contents.held):
            following = self._directory.segments[index + 1 : index + 2]
            record.take(
                summary,
                is_last=not following,
                following=following[0].base_offset if following else None,
                path=self._directory.file_path(self._directory.segments[index].log.name),
                known_end=self._directory.log_end_offset or 0,
            )
            if record.damage is not None or prefix.failure_offset is not None:
                self._outcome.resume_at = self._outcome.resume_at or self._directory.segments[index].base_offset + 1
                self._outcome.ended = self._damaged(record, prefix)
                return judged, self._outcome.ended
            offset, _ = boundary_after(self._directory.segments, index, summary)
            if offset is None:
                continue
            unproven = next(iter(record.evidence().unsound_reasons), None)
            self._find_unsound(offset, unproven)
            judged += self._judged_at(offset, summary, prefix, unproven)
        return judged, None

    def _find_unsound(self, offset: int, unproven: str | None) -> None:
        """Reports once from where on the log proves nothing, as ``verify`` does."""
        if unproven is not None and self._outcome.resume_at is None:
            self._outcome.resume_at = offset
        if unproven is not None and not self._outcome.is_unsound_reported:
            message = f"from here on the copies below prove nothing: {unproven}"
            self._outcome.findings.append(
                Finding(UNSOUND, Severity.FINDING, self._directory.path, message, offset, cause=FindingCause.UNSOUND_BOUNDARY)
            )

    def _damaged(self, record: ReplayRecord, prefix: RunningEffect) -> str:
        reason = f"no broker could go on at offset {prefix.failure_offset}"
        offset = prefix.failure_offset
        if record.damage is not None:
            reason = record.damage.reason
            offset = record.damage.offset
        message = f"{reason}: what is above it does not follow from what is below"
        self._outcome.findings.append(
            Finding(
                "damaged-segment",
                Severity.DAMAGED,
                self._directory.path,
                message,
                offset,
                is_unread=True,
                cause=FindingCause.BROKEN_BATCHES,
            )
        )
        return reason

    def _judged_at(
        self, offset: int, summary: SegmentSummary, prefix: RunningEffect, unproven: str | None
    ) -> Iterator[WindowSnapshot]:
        for listed in self._directory.snapshots_at(offset):
            try:
                entries = read_snapshot_file(self._directory, offset, listed)
            except ReadFailedError as error:
                self._outcome.findings.append(finding_of_error(error, self._directory.path))
                continue
            except FormatError as error:
                comparison = Comparison.corrupt(str(error))
                yield WindowSnapshot(offset, listed, NOTHING, unproven, None, comparison)
                continue
            if entries is None:
                self._outcome.lost_snapshot = True
                continue
            if summary.cut_batch_offset is not None and unproven is None:
                reason = f"no broker writes a snapshot here: {offset} is inside the batch that begins at {summary.cut_batch_offset}"
                comparison = Comparison.corrupt(reason, found_entries=len(entries))
            else:
                knowledge = self._contents.knowledge(unproven, is_complete=self._window.is_whole)
                comparison = compare(prefix.total(), entries, offset, knowledge)
            if self._window.is_whole or comparison.proven_wrong or offset < self._window.least_offset:
                yield WindowSnapshot(offset, listed, NOTHING, unproven, None, comparison)  # nothing more is asked of it
            else:
                yield WindowSnapshot(offset, listed, prefix, unproven, entries, comparison)

    def add_verdicts(self, judged: list[WindowSnapshot], reason: str | None) -> None:
        """Adds the verdicts; snapshots that the replay did not reach get one by their own content."""
        least = self._window.least_offset
        seen = {each.listed.name for each in judged}
        for each in judged:
            if each.offset >= least:
                is_exact = self._window.is_whole and each.unproven_reason is None
                snapshot_class = each.snapshot_class or (SnapshotClass.EXACT if is_exact else SnapshotClass.UNPROVEN)
                self._outcome.snapshots.append(VerifiedSnapshot(each.offset, each.listed.name, snapshot_class, each.comparison))
        for offset, listed in self._directory.snapshots:
            if offset >= least and listed.name not in seen:
                comparison = self._by_itself(offset, listed, reason or "the replay has no state at its end")
                if comparison is None:
                    self._outcome.lost_snapshot = True
                else:
                    self._outcome.snapshots.append(VerifiedSnapshot(offset, listed.name, None, comparison))
        self._outcome.snapshots.sort(key=lambda each: each.offset)

    def _by_itself(self, offset: int, listed: ListedFile, reason: str) -> Comparison | None:
        with contextlib.suppress(ReadFailedError):
            return compared_alone(self._directory, offset, listed, reason)
        return None


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
            outcome = _judge_window(contents)
            self.outcome.take(outcome)
            contents = None if outcome.resume_at is None else _above_damage(contents, outcome.resume_at)

    def _judge_without(self, error: SnaprebuildError | FormatError) -> None:
        """Judges what is below a segment that cannot be read. What is above is read again, and the rest is judged by its content.

        Raises:
            LimitReachedError: a limit of the run is used up; nothing was judged.
        """
        contents = self._before_failure(str(error))
        reason = f"the replay failed: {error}"
        below = WindowOutcome() if contents is None else _judge_window(contents)
        judged = {each.name for each in below.snapshots}
        rest = tuple(each for each in self._directory.snapshots if each[1].name not in judged)
        directory = dataclasses.replace(self._directory, snapshots=rest)
        below.take(_judge_without_replay(WindowContents(self._window, directory, {}, self._clock), reason))
        below.snapshots.sort(key=lambda each: each.offset)
        self.outcome.take(below)
        self.outcome.ended = self.outcome.ended or reason
        if self.outcome.resume_at is None:
            failed = max(self._read_whole(), default=self._window.first_index - 1) + 1
            if failed < len(directory.segments):
                self.outcome.resume_at = directory.segments[failed].base_offset + 1

    def finish(self) -> None:
        """Judges the snapshots."""
        self.outcome.take(_judge_window(self._contents()))

    def job(self) -> _WindowJob:
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
        """The read segments as a partition that ends there; None if no segment was read to its end."""
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
    def started(
        self,
        replay: PartitionReplay | None = None,
        threads: ThreadPool | None = None,
    ) -> Iterator[WindowTask]:
        assert replay is None, "a window is replayed as a whole"
        yield WindowTask(self.window, PartitionVerdict(self.window.source), self.clock)
