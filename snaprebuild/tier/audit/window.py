"""Compares snapshots in remote storage with a replay of one window, without any evidence from the segments below it.

The window alone contradicts much, and proves nothing: a producer that is silent in it may have a transaction open. Therefore a snapshot is
correct only if another one is evidence for the state below the window. That is a snapshot at or below the window that leads to all later
ones, as the snapshot at the first offset of a log does. Or it is the last one of all, as after the window of
``rebuild --replay-from window``. No snapshot is evidence for itself. Where two snapshots contradict each other, none proves anything.

If no snapshot is proven, one from which all later ones follow is consistent, where retention alone has deleted what is below.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.replay.base_verdict import BaseVerdict
from snaprebuild.replay.classes import ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, Knowledge, compare, impossible_entries
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import IDENTITY, effect_of_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import same_when_loaded, settle, shows_transactions
from snaprebuild.snapshots.engine.boundary_state import boundary_on_base
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot, judge_first_snapshot
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.window_proof import (
    Clock,
    Held,
    WindowProof,
    boundary_after,
    holds_entry_below,
    in_order,
    prefixes_of,
    prove_window,
    read_snapshot_file,
)
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.verify import UNSOUND, PartitionVerdict, SnapshotVerdict, compared_alone, snapshot_needs
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.tier.audit.contradictions import ParsedSnapshot, SnapshotLine
from snaprebuild.tier.audit.refuted_snapshots import refuted_by_the_log
from snaprebuild.tier.audit.remembering_store import RememberingStore
from snaprebuild.tier.audit.window_outcome import WindowOutcome

__all__ = ["Window", "WindowTask"]


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a partition that is replayed.

    Attributes:
        source: the partition, with all of its segments; of its snapshots those from the window on.
        first_index: of the first segment that is read.
        least_offset: snapshots below it are evidence only, and get no verdict.
        proof: advice, how to prove what the window does not prove.
        below_is_old: all producers below the window have expired, as the KIP's window promises. Otherwise, and in a log with
            transactions, another snapshot counts as evidence only if it holds an entry from below the window. The reason is a broker that
            once lost its state: it writes snapshots that all agree and hold no such entry.
        times: largest timestamp below each boundary, ms; None if unknown.
        below: why the copies right below the first segment are not among the segments; None where there never was one, or retention has
            deleted them.
        above: why the copies right above the last segment are not among the segments; None for the newest.
    """

    source: PartitionSource
    first_index: int
    least_offset: int
    proof: str
    below_is_old: bool = True
    times: Mapping[int, int | None] = field(default_factory=dict)
    below: str | None = None
    above: str | None = None

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment that is read."""
        return self.source.directory.segments[self.first_index].base_offset

    @property
    def is_whole(self) -> bool:
        """It begins at offset 0."""
        return self.start_offset == 0

    @property
    def read_bytes(self) -> int:
        """Bytes of segments."""
        return sum(each.size_bytes for each in self.source.directory.segments[self.first_index :])


NOTHING = RunningEffect()

BASES_MAX = 8
"""Snapshots that are tried as a base: each try replays the effects of the whole window."""


@dataclass(slots=True)
class _Judged:
    """A snapshot at a boundary of the window.

    Attributes:
        offset: of it.
        listed: the file.
        prefix: everything from the window up to there, as long as it is open what the snapshot is: a state may take 100 MB.
        unproven_reason: why the replay proves nothing there; None if it does.
        entries: of the snapshot, kept as long as the prefix; None if it does not parse.
        comparison: with the window alone, then with what else is evidence.
        snapshot_class: of the replay.
    """

    offset: int
    listed: ListedFile
    prefix: RunningEffect
    unproven_reason: str | None
    entries: np.ndarray | None
    comparison: Comparison
    snapshot_class: SnapshotClass | None = None


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
        self._directory = dataclasses.replace(directory, store=RememberingStore(directory.store))
        self._held: dict[int, list[SegmentSummary]] = {}
        self._compared: list[int] = []

    def next_segments(self, *, is_first: bool) -> list[int]:
        """Those of the window."""
        return list(range(self._window.first_index, len(self._directory.segments))) if is_first else []

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Kept until the end: the proof of a snapshot may be above it."""
        self._held.setdefault(index, []).append(summary)
        return True

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Nothing can be judged."""
        super().fail(error)
        self.outcome.ended = f"the replay failed: {error}"
        if self.outcome.limit is None:  # else nothing more is read
            self._add_verdicts([], self.outcome.ended)

    def finish(self) -> None:
        """Judges the snapshots."""
        judged, reason = self._by_the_window()
        if not self._window.is_whole:
            self._by_others(judged)
        self._add_verdicts(judged, reason)

    def job(self, report: Callable[[object], None]) -> _WindowJob:
        """As ``PartitionTask.job``."""
        return _WindowJob(self._window, self._clock)

    def adopt(self, outcome: WindowOutcome) -> None:
        """As ``PartitionTask.adopt``."""
        self._verdict.outcome = self.outcome = outcome

    # ------------------------------------------------------------------------------------------------------------ the window alone

    def _by_the_window(self) -> tuple[list[_Judged], str | None]:
        """Every snapshot that the replay reaches; and why it ended early, None if it did not."""
        record, judged = ReplayRecord(absence="in no batch"), list[_Judged]()
        for index, summary, prefix in prefixes_of(self._held):
            following = self._directory.segments[index + 1 : index + 2]
            record.take(
                summary,
                is_last=not following,
                following=following[0].base_offset if following else None,
                path=self._directory.file_path(self._directory.segments[index].log.name),
                known_end=self._directory.log_end_offset or 0,
            )
            if record.damage is not None or prefix.failure_offset is not None:
                self.outcome.resume_at = self.outcome.resume_at or self._directory.segments[index].base_offset + 1
                self.outcome.ended = self._damaged(record, prefix)
                return judged, self.outcome.ended
            offset, _ = boundary_after(self._directory.segments, index, summary)
            if offset is None:
                continue
            unproven = next(iter(record.evidence().unsound_reasons), None)
            self._find_unsound(offset, unproven)
            judged += self._judged_at(offset, summary, prefix, unproven)
        return judged, None

    def _find_unsound(self, offset: int, unproven: str | None) -> None:
        """As ``verify``: from where on the log proves nothing, once."""
        if unproven is not None and self.outcome.resume_at is None:
            self.outcome.resume_at = offset
        if unproven is not None and not self.outcome.is_unsound_reported:
            message = f"from here on the copies below prove nothing: {unproven}"
            self.outcome.findings.append(Finding(UNSOUND, Severity.FINDING, self._directory.path, message, offset))

    def _damaged(self, record: ReplayRecord, prefix: RunningEffect) -> str:
        reason, offset = f"no broker could go on at offset {prefix.failure_offset}", prefix.failure_offset
        if record.damage is not None:
            reason, offset = record.damage.reason, record.damage.offset
        message = f"{reason}: what is above it does not follow from what is below"
        self.outcome.findings.append(
            Finding("damaged-segment", Severity.DAMAGED, self._directory.path, message, offset, is_unread=True)
        )
        return reason

    def _judged_at(self, offset: int, summary: SegmentSummary, prefix: RunningEffect, unproven: str | None) -> Iterator[_Judged]:
        for listed in self._directory.snapshots_at(offset):
            try:
                entries = read_snapshot_file(self._directory, offset, listed)
            except ReadFailedError as error:
                self.outcome.findings.append(finding_of_error(error, self._directory.path))
                continue
            except FormatError as error:
                comparison = Comparison(ComparisonStatus.CORRUPT, True, 0, 0, 0, (), str(error))
                yield _Judged(offset, listed, NOTHING, unproven, None, comparison)
                continue
            if entries is None:
                continue
            if summary.cut_batch_offset is not None and unproven is None:
                reason = f"no broker writes a snapshot here: {offset} is inside the batch that begins at {summary.cut_batch_offset}"
                comparison = Comparison(ComparisonStatus.CORRUPT, True, 0, len(entries), 0, (), reason)
            else:
                knowledge = self._knowledge(unproven, is_complete=self._window.is_whole)
                comparison = compare(prefix.total(), entries, offset, knowledge)
            if self._window.is_whole or comparison.proven_wrong or offset < self._window.least_offset:
                yield _Judged(offset, listed, NOTHING, unproven, None, comparison)  # nothing more is asked of it
            else:
                yield _Judged(offset, listed, prefix, unproven, entries, comparison)

    def _knowledge(self, unproven: str | None, *, is_complete: bool) -> Knowledge:
        start, clock = self._window.start_offset, self._clock
        return Knowledge(is_complete, unproven, start, start, clock.as_of_ms, clock.expiration_ms)

    # ------------------------------------------------------------------------------------------------------------ evidence

    def _by_others(self, judged: list[_Judged]) -> None:
        """Decides which of those that the window does not contradict are right, and why the others are not proven."""
        wrong = {each.listed.name for each in judged if each.comparison.proven_wrong} | self._by_records_above(judged)
        open_ones = [each for each in judged if each.listed.name not in wrong and each.offset >= self._window.least_offset]
        broken = self._compare_snapshots(wrong)
        is_sound = not self.outcome.suspect
        settled = self._from_base(wrong) if is_sound else None
        is_sound = not self.outcome.suspect
        rest = [each for each in open_ones if each.unproven_reason is not None or settled is None or not settled(each)]
        witness = self._witness(judged) if rest and is_sound else None
        for each in rest:
            if each.unproven_reason is None and witness is not None and self._is_witnessed(each, witness):
                continue
            each.snapshot_class = SnapshotClass.UNPROVEN
            why = each.unproven_reason or self._why_open(each, witness)
            each.comparison = replace(
                each.comparison,
                status=ComparisonStatus.UNVERIFIABLE,
                differences=(),
                difference_count=0,
                reason=f"nothing in the window from {self._window.start_offset} on contradicts it, and {why}; {self._window.proof}",
            )
            if is_sound and each.unproven_reason is None and self._is_consistent(each, broken):
                is_newest = each.offset == max(self._compared)
                how = "it follows from the snapshots below" if is_newest else "all snapshots above follow from it"
                how = f"nothing contradicts it, {how}, and retention has deleted everything below"
                self.outcome.consistent[each.listed.name] = how

    def _by_records_above(self, judged: list[_Judged]) -> set[str]:
        """Names of the snapshots that the records above them contradict; those that are judged get that comparison."""
        refuted = refuted_by_the_log(self._directory, self._held, self._clock)
        for each in judged:
            if not each.comparison.proven_wrong:
                each.comparison = refuted.get(each.listed.name, each.comparison)
        return set(refuted)

    def _compare_snapshots(self, wrong: set[str]) -> list[int]:
        """Compares snapshots that the window does not contradict with each other. Gives the boundaries of those that do not follow."""
        line, names, offsets = SnapshotLine(self._clock), list[str](), list[int]()
        for index, summary in in_order(self._held):
            line.advance(summary.effect)
            offset, _ = boundary_after(self._directory.segments, index, summary)
            if offset is None:
                continue
            if self.outcome.resume_at is not None and offset >= self.outcome.resume_at:
                break  # the records below are not as they were written
            for listed in self._directory.snapshots_at(offset):
                entries = None if listed.name in wrong else self._evidence(offset, listed)
                if entries is not None:
                    names.append(listed.name)
                    offsets.append(offset)
                    line.take(ParsedSnapshot(offset, entries, self._window.times.get(offset)))
        self.outcome.suspect = {names[number]: why for number, why in line.suspects.items()}
        self.outcome.noted = {names[number]: why for number, why in line.notes.items()}
        self._compared = offsets
        return [offsets[number] for number in line.breaks]

    def _evidence(self, offset: int, listed: ListedFile) -> np.ndarray | None:
        """Entries of a snapshot; None if it cannot be read, or cannot be true."""
        try:
            entries = read_snapshot_file(self._directory, offset, listed)
        except (FormatError, ReadFailedError):
            return None
        return None if entries is None or impossible_entries(entries, offset) is not None else entries

    def _is_consistent(self, judged: _Judged, broken: Sequence[int]) -> bool:
        """Whether all snapshots above follow from one, and nothing below it was left out or lost."""
        if self._window.first_index > 0 or self._window.below is not None:
            return False
        if any(offset > judged.offset for offset in broken):
            return False
        if any(offset > judged.offset for offset in self._compared):
            return True
        return self._window.above is None and self._follows(judged, broken)

    def _follows(self, judged: _Judged, broken: Sequence[int]) -> bool:
        """Whether the newest snapshot follows from one below it, which shows that its broker knew what was below the window."""
        lowest = max((offset for offset in broken), default=0)
        below = [offset for offset in self._compared if lowest <= offset < judged.offset]
        return judged.offset not in broken and any(self._is_known_below(offset) for offset in below)

    def _from_base(self, wrong: set[str]) -> Callable[[_Judged], bool] | None:
        """Settles a snapshot by one below it that leads to all later ones which the window does not contradict; None without one."""
        good = tuple(each for each in self._directory.snapshots if each[1].name not in wrong)
        attempts = 0
        for index in range(self._window.first_index, len(self._directory.segments)):
            first = self._directory.segments[index].base_offset
            if attempts == BASES_MAX:
                break
            if not self._is_complete_below(first) or not self._is_confirmed(first, good):
                continue
            attempts += 1
            held = {at - index: pieces for at, pieces in self._held.items() if at >= index}
            part = dataclasses.replace(self._directory, segments=self._directory.segments[index:], snapshots=good)
            found = judge_first_snapshot(part, held, self._clock)
            if found.usable is not None:
                return partial(self._settled_by, first, self._states(part, held, found.usable))
            self._suspect_base(part, found)
        return None

    def _suspect_base(self, part: PartitionDir, found: FirstSnapshot) -> None:
        """Records that something contradicts a base that is not used."""
        if found.verdict is None or not found.verdict.is_refuted:
            return
        for listed in part.snapshots_at(found.verdict.offset):
            self.outcome.suspect.setdefault(listed.name, found.verdict.refutations[0].text(found.verdict.offset))

    def _is_complete_below(self, offset: int) -> bool:
        """Whether the snapshot at an offset is evidence for what producers did below the window."""
        if self._window.below_is_old and not self._shows_transactions():
            return True
        return self._is_known_below(offset)

    def _is_known_below(self, offset: int) -> bool:
        """Whether the snapshot at an offset knows a batch or an open transaction from below the window."""
        listed = self._directory.snapshot_at(offset)
        entries = None if listed is None else self._evidence(offset, listed)
        return entries is not None and holds_entry_below(entries, self._window.start_offset)

    def _shows_transactions(self) -> bool:
        """A transaction that was opened below never expires."""
        return any(shows_transactions(summary.effect) for _, summary in in_order(self._held))

    def _is_confirmed(self, offset: int, good: Sequence[tuple[int, ListedFile]]) -> bool:
        """Whether a snapshot other than the one that is judged can confirm a base."""
        return self._window.below_is_old or sum(at > offset for at, _ in good) > 1

    def _states(self, part: PartitionDir, held: Held, verdict: BaseVerdict) -> dict[int, RunningEffect]:
        """The state at each boundary that is judged, replayed on a base, if all that it has of the base is confirmed."""
        states: dict[int, RunningEffect] = {}
        based = RunningEffect(effect_of_entries(verdict.entries))
        for index, summary, plain in prefixes_of(held):
            based = based.then(summary.effect)
            offset, _ = boundary_after(part.segments, index, summary)
            if offset is not None and offset >= self._window.least_offset:
                boundary = boundary_on_base(verdict, offset, plain, based)
                if boundary.is_complete:
                    states[offset] = boundary.prefix
        return states

    def _settled_by(self, first: int, states: dict[int, RunningEffect], judged: _Judged) -> bool:
        state = states.get(judged.offset)
        if state is None or judged.entries is None:
            return False
        comparison = compare(state.total(), judged.entries, judged.offset, self._knowledge(None, is_complete=True))
        if comparison.status not in (ComparisonStatus.EQUAL, ComparisonStatus.EQUAL_AFTER_EXPIRY):
            return False
        how = f"replayed from {first} on, on the snapshot there, which the log and later ones confirm"
        judged.comparison, judged.snapshot_class = replace(comparison, reason=f"{comparison.reason}, {how}"), SnapshotClass.EXACT
        return True

    def _witness(self, judged: list[_Judged]) -> tuple[int, WindowProof] | None:
        """The last snapshot of all, with what it proves of the window; None where the window contradicts it, or there is none."""
        last = judged[-1] if judged else None
        if (
            last is None
            or last.comparison.proven_wrong
            or last.unproven_reason is not None
            or not self._is_complete_below(last.offset)
        ):
            return None
        return last.offset, prove_window(self._directory, self._held, last.offset, self._clock)

    def _is_witnessed(self, judged: _Judged, witness: tuple[int, WindowProof]) -> bool:
        offset, proof = witness
        if offset == judged.offset or proof.fault is not None or judged.entries is None:
            return False
        as_of_ms, expiration_ms = self._clock.as_of_ms, self._clock.expiration_ms
        state = settle(judged.prefix.total(), proof.total, proof.witness, as_of_ms=as_of_ms, expiration_ms=expiration_ms)
        if state.gap_count or not same_when_loaded(state.entries, judged.entries, as_of_ms, expiration_ms):
            return False
        reason = f"different at most in entries that have expired, as the snapshot at {offset} confirms"
        counts = len(state.entries), len(judged.entries), 0
        judged.comparison = Comparison(ComparisonStatus.EQUAL_AFTER_EXPIRY, False, *counts, (), reason)
        judged.snapshot_class = SnapshotClass.LOAD_EQUIVALENT
        return True

    def _why_open(self, judged: _Judged, witness: tuple[int, WindowProof] | None) -> str:
        """Why a snapshot is not proven."""
        if self.outcome.suspect:
            return "others in the window contradict each other, so that none of them proves it"
        is_last = judged.offset == max(self._compared, default=judged.offset)
        if is_last and self._window.above is not None:
            return f"it is next to a hole above: {self._window.above}"
        return self._gap(judged, witness)

    def _gap(self, judged: _Judged, witness: tuple[int, WindowProof] | None) -> str:
        """The gap that keeps a snapshot from being proven."""
        as_of_ms, expiration_ms = self._clock.as_of_ms, self._clock.expiration_ms
        total = judged.prefix.total()
        gaps = settle(total, total, IDENTITY, as_of_ms=as_of_ms, expiration_ms=expiration_ms).gaps
        if gaps:
            return f"what producer {gaps[0].producer_id} did below is open: {gaps[0].reason} ({gaps[0].name})"
        if witness is not None and witness[1].fault is not None:
            return f"no other snapshot proves what is below: {witness[1].fault}"
        if witness is None:
            return "no other snapshot holds a producer from below it"
        return "no other snapshot proves what is below: a transaction that was opened there may still be open"

    # ------------------------------------------------------------------------------------------------------------ the end

    def _add_verdicts(self, judged: list[_Judged], reason: str | None) -> None:
        """Adds the verdicts; snapshots that the replay did not reach get one by their own content."""
        least, seen = self._window.least_offset, {each.listed.name for each in judged}
        for each in judged:
            if each.offset >= least:
                is_exact = self._window.is_whole and each.unproven_reason is None
                found = each.snapshot_class or (SnapshotClass.EXACT if is_exact else SnapshotClass.UNPROVEN)
                self.outcome.snapshots.append(SnapshotVerdict(each.offset, each.comparison, found, each.listed.name))
        for offset, listed in self._directory.snapshots:
            if offset >= least and listed.name not in seen:
                comparison = self._by_itself(offset, listed, reason or "the replay has no state at its end")
                if comparison is not None:
                    self.outcome.snapshots.append(SnapshotVerdict(offset, comparison, None, listed.name))
        self.outcome.snapshots.sort(key=lambda each: each.offset)

    def _by_itself(self, offset: int, listed: ListedFile, why: str) -> Comparison | None:
        with contextlib.suppress(ReadFailedError):
            return compared_alone(self._directory, offset, listed, why)
        return None


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
