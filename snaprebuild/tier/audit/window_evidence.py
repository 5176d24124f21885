"""The evidence of the other snapshots of a window about one of them.

A snapshot is correct only if another one is evidence for the state below the window. That is a snapshot at or below the window that leads
to all later ones, as the snapshot at the first offset of a log does. Or it is the last one of all, as after the window of
``rebuild --replay-from window``. No snapshot is evidence for itself. Where two snapshots contradict each other, none proves anything.

If no snapshot is proven, one from which all later ones follow is consistent, where retention alone has deleted what is below.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.base_judge import BaseJudge
from snaprebuild.replay.base_verdict import BaseVerdict
from snaprebuild.replay.classes import ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, compare, impossible_entries, match_entries
from snaprebuild.replay.first_events import NO_EVENTS, FirstEvents, joined_events
from snaprebuild.replay.segment_effect import IDENTITY, RunningEffect, effect_of_entries, entries_of, sorted_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, same_when_loaded, settle, shows_transactions
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot, judge_first_snapshot, wrong_by_the_log
from snaprebuild.snapshots.engine.partition_replay import boundary_on_base
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import (
    Held,
    WindowProof,
    boundary_after,
    holds_entry_below,
    in_order,
    prefixes_of,
    prove_window,
)
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.tier.audit.contradictions import ParsedSnapshot, SnapshotLine
from snaprebuild.tier.audit.window import WindowContents, WindowOutcome, WindowSnapshot

__all__ = [
    "WindowEvidence",
]

CONFIRMING_LEAST = 2
"""Other copies that confirm a state before it is written in the place of a wrong snapshot."""

BASES_MAX = 8
"""Snapshots that are tried as a base: each try replays the effects of the whole window."""


class WindowEvidence:
    """The snapshots of one window, as evidence for each other."""

    def __init__(self, contents: WindowContents, outcome: WindowOutcome) -> None:
        """Takes what was read, and what gets the result."""
        self._contents = contents
        self._outcome = outcome
        self._window = contents.window
        self._directory = contents.directory
        self._held = contents.held
        self._clock = contents.clock
        self._compared: list[int] = []
        self._based: tuple[int, dict[int, RunningEffect]] | None = None

    def settle(self, judged: list[WindowSnapshot]) -> None:
        """Decides which of those that the window does not contradict are right, and why the others are not proven."""
        wrong = {each.listed.name for each in judged if each.comparison.proven_wrong} | self._by_records_above(judged)
        open_ones = [each for each in judged if each.listed.name not in wrong and each.offset >= self._window.least_offset]
        broken = self._compare_snapshots(wrong)
        is_sound = not self._outcome.suspect
        settled = self._from_base(wrong) if is_sound else None
        is_sound = not self._outcome.suspect
        rest = [each for each in open_ones if each.unproven_reason is not None or settled is None or not settled(each)]
        witness = self._witness(judged) if rest and is_sound else None
        for each in rest:
            if each.unproven_reason is None and witness is not None and self._is_witnessed(each, witness):
                continue
            each.snapshot_class = SnapshotClass.UNPROVEN
            reason = each.unproven_reason or self._why_open(each, witness)
            each.comparison = replace(
                each.comparison,
                status=ComparisonStatus.UNVERIFIABLE,
                differences=(),
                difference_count=0,
                reason=f"nothing in the window from {self._window.start_offset} on contradicts it, and {reason}; {self._window.proof}",
            )
            if is_sound and each.unproven_reason is None and self._is_consistent(each, broken):
                is_newest = each.offset == max(self._compared)
                how = "it follows from the snapshots below" if is_newest else "all snapshots above follow from it"
                how = f"nothing contradicts it, {how}, and retention has deleted everything below"
                self._outcome.consistent[each.listed.name] = how
        if is_sound:
            self._prove_others(judged)

    def _prove_others(self, judged: list[WindowSnapshot]) -> None:
        """Finds the right content of wrong snapshots, and of those without bytes.

        It is the state of a replay on the snapshot of another copy, if a further one confirms that: three copies, of which one is wrong.
        """
        if self._based is None:
            return
        first, states = self._based
        confirming = {first} | {each.offset for each in judged if each.snapshot_class is SnapshotClass.EXACT}
        wrong = {each.offset for each in judged if each.comparison.proven_wrong and each.unproven_reason is None}
        for offset, state in states.items():
            if offset not in wrong and self._directory.snapshot_at(offset) is not None:
                continue
            entries = entries_of(state.total())
            if len(confirming - {offset}) < CONFIRMING_LEAST or impossible_entries(entries, offset) is not None:
                continue
            right = write_entries(entries)
            self._outcome.right_sha256[offset] = hashlib.sha256(right).hexdigest()
            if self._window.keeps_proven:
                self._outcome.proven[offset] = right

    def _by_records_above(self, judged: list[WindowSnapshot]) -> set[str]:
        """Names of the snapshots that the records above them contradict; those that are judged get that comparison."""
        refuted = _refuted_by_the_log(self._directory, self._held, self._clock)
        for each in judged:
            if not each.comparison.proven_wrong:
                each.comparison = refuted.get(each.listed.name, each.comparison)
        return set(refuted)

    def _compare_snapshots(self, wrong: set[str]) -> list[int]:
        """Compares snapshots that the window does not contradict with each other. Gives the boundaries of those that do not follow."""
        line = SnapshotLine(self._clock)
        names = list[str]()
        offsets = list[int]()
        for index, summary in in_order(self._held):
            line.advance(summary.effect)
            offset, _ = boundary_after(self._directory.segments, index, summary)
            if offset is None:
                continue
            if self._outcome.resume_at is not None and offset >= self._outcome.resume_at:
                break  # the records below are not as they were written
            for listed in self._directory.snapshots_at(offset):
                entries = None if listed.name in wrong else self._contents.evidence(offset, listed)
                if entries is not None:
                    names.append(listed.name)
                    offsets.append(offset)
                    line.take(ParsedSnapshot(offset, entries, self._window.times.get(offset)))
        self._outcome.suspect = {names[number]: reason for number, reason in line.suspects.items()}
        self._outcome.noted = {names[number]: reason for number, reason in line.notes.items()}
        self._compared = offsets
        return [offsets[number] for number in line.breaks]

    def _is_consistent(self, judged: WindowSnapshot, broken: Sequence[int]) -> bool:
        """Whether all snapshots above follow from one, and nothing below it was left out or lost."""
        if self._window.first_index > 0 or self._window.below is not None:
            return False
        if any(offset > judged.offset for offset in broken):
            return False
        if any(offset > judged.offset for offset in self._compared):
            return True
        return self._window.above is None and self._follows(judged, broken)

    def _follows(self, judged: WindowSnapshot, broken: Sequence[int]) -> bool:
        """Whether the newest snapshot follows from one below it, which shows that its broker knew what was below the window."""
        lowest = max((offset for offset in broken), default=0)
        below = [offset for offset in self._compared if lowest <= offset < judged.offset]
        return judged.offset not in broken and any(self._is_known_below(offset) for offset in below)

    def _from_base(self, wrong: set[str]) -> Callable[[WindowSnapshot], bool] | None:
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
            base = judge_first_snapshot(part, held, self._clock)
            if base.usable is not None:
                states = self._states(part, held, base.usable)
                self._take_exact_base(first, base.usable)
                self._based = first, states
                return partial(self._settled_by, first, states)
            self._suspect_base(part, base)
        return None

    def _take_exact_base(self, first: int, base: BaseVerdict) -> None:
        """Records a base all of whose entries are used."""
        for listed in self._directory.snapshots_at(first):
            entries = self._contents.evidence(first, listed)
            if entries is not None and not len(match_entries(sorted_entries(entries), base.entries)):
                self._outcome.exact_bases.add(first)

    def _suspect_base(self, part: PartitionDir, base: FirstSnapshot) -> None:
        """Records that something contradicts a base that is not used."""
        if base.verdict is None or not base.verdict.is_refuted:
            return
        for listed in part.snapshots_at(base.verdict.offset):
            self._outcome.suspect.setdefault(listed.name, base.verdict.refutations[0].text(base.verdict.offset))

    def _is_complete_below(self, offset: int) -> bool:
        """Whether the snapshot at an offset is evidence for what producers did below the window."""
        if self._window.below_is_old and not self._shows_transactions():
            return True
        return self._is_known_below(offset)

    def _is_known_below(self, offset: int) -> bool:
        """Whether the snapshot at an offset knows a batch or an open transaction from below the window."""
        listed = self._directory.snapshot_at(offset)
        entries = None if listed is None else self._contents.evidence(offset, listed)
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

    def _settled_by(self, first: int, states: dict[int, RunningEffect], judged: WindowSnapshot) -> bool:
        state = states.get(judged.offset)
        if state is None or judged.entries is None:
            return False
        comparison = compare(state.total(), judged.entries, judged.offset, self._contents.knowledge(None, is_complete=True))
        if comparison.status not in (ComparisonStatus.EQUAL, ComparisonStatus.EQUAL_AFTER_EXPIRY):
            return False
        how = f"replayed from {first} on, on the snapshot there, which the log and later ones confirm"
        judged.comparison = replace(comparison, reason=f"{comparison.reason}, {how}")
        judged.snapshot_class = SnapshotClass.EXACT
        return True

    def _witness(self, judged: list[WindowSnapshot]) -> tuple[int, WindowProof] | None:
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

    def _is_witnessed(self, judged: WindowSnapshot, witness: tuple[int, WindowProof]) -> bool:
        offset, proof = witness
        if offset == judged.offset or proof.fault is not None or judged.entries is None:
            return False
        as_of_ms = self._clock.as_of_ms
        expiration_ms = self._clock.expiration_ms
        state = settle(judged.prefix.total(), proof.total, proof.witness, as_of_ms=as_of_ms, expiration_ms=expiration_ms)
        if state.gap_count or not same_when_loaded(state.entries, judged.entries, as_of_ms, expiration_ms):
            return False
        reason = f"different at most in entries that have expired, as the snapshot at {offset} confirms"
        counts = len(state.entries), len(judged.entries), 0
        judged.comparison = Comparison(ComparisonStatus.EQUAL_AFTER_EXPIRY, False, *counts, (), reason)
        judged.snapshot_class = SnapshotClass.LOAD_EQUIVALENT
        return True

    def _why_open(self, judged: WindowSnapshot, witness: tuple[int, WindowProof] | None) -> str:
        """Why a snapshot is not proven."""
        if self._outcome.suspect:
            return "others in the window contradict each other, so that none of them proves it"
        is_last = judged.offset == max(self._compared, default=judged.offset)
        if is_last and self._window.above is not None:
            return f"it is next to a hole above: {self._window.above}"
        return self._gap(judged, witness)

    def _gap(self, judged: WindowSnapshot, witness: tuple[int, WindowProof] | None) -> str:
        """The gap that keeps a snapshot from being proven."""
        as_of_ms = self._clock.as_of_ms
        expiration_ms = self._clock.expiration_ms
        total = judged.prefix.total()
        gaps = settle(total, total, IDENTITY, as_of_ms=as_of_ms, expiration_ms=expiration_ms).gaps
        if gaps:
            return f"what producer {gaps[0].producer_id} did below is open: {gaps[0].reason} ({gaps[0].name})"
        if witness is not None and witness[1].fault is not None:
            return f"no other snapshot proves what is below: {witness[1].fault}"
        if witness is None:
            return "no other snapshot holds a producer from below it"
        return "no other snapshot proves what is below: a transaction that was opened there may still be open"


# ------------------------------------------------------------------------------------------------------------ records above


def _refuted_by_the_log(directory: PartitionDir, held: Held, clock: Clock) -> dict[str, Comparison]:
    """Comparisons of the snapshots that the records above them contradict, by file name.

    Each snapshot is the first one of the log above it (``replay.base_judge``, B1 to B5). A batch that continues another sequence, or has a
    lower epoch, shows that it is wrong. Nothing else shows that of the lowest copies of a store, in which the producer wrote nothing.

    Args:
        directory: the listing.
        held: summaries of consecutive segments, with first events. What is above damage is left out.
        clock: for expiry.
    """
    refuted: dict[str, Comparison] = {}
    above = NO_EVENTS
    for index, summary in reversed(_whole(directory, held)):
        offset, _ = boundary_after(directory.segments, index, summary)
        if offset is not None:
            refuted |= _refuted_at(directory, offset, above, clock)
        events = summary.contents.first_events
        above = joined_events([NO_EVENTS if events is None else events, above])
    if held:
        refuted |= _refuted_at(directory, directory.segments[min(held)].base_offset, above, clock)
    return refuted


def _whole(directory: PartitionDir, held: Held) -> list[tuple[int, SegmentSummary]]:
    """Segments, or pieces of them, up to the first damage."""
    record = ReplayRecord()
    whole = list[tuple[int, SegmentSummary]]()
    segments = directory.segments
    for index, summary in in_order(held):
        following = directory.base_offset_after(index)
        record.take(summary, is_last=following is None, following=following, path=segments[index].log.name)
        if record.damage is not None or record.unsound_reasons:
            break
        whole.append((index, summary))
    return whole


def _refuted_at(directory: PartitionDir, offset: int, above: FirstEvents, clock: Clock) -> dict[str, Comparison]:
    if not len(above):
        return {}
    refuted = {}
    for listed in directory.snapshots_at(offset):
        comparison = _compared(directory, offset, listed, above, clock)
        if comparison is not None:
            refuted[listed.name] = comparison
    return refuted


def _compared(directory: PartitionDir, offset: int, listed: ListedFile, above: FirstEvents, clock: Clock) -> Comparison | None:
    try:
        entries = read_snapshot_file(directory, offset, listed)
    except (FormatError, ReadFailedError):
        return None
    if entries is None or impossible_entries(entries, offset) is not None:
        return None
    verdict = BaseJudge(offset, entries, clock.expiration_ms).verdict(above, ())
    return wrong_by_the_log(FirstSnapshot(verdict, None))
