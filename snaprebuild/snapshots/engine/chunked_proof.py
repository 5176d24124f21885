"""The beginning of a replay that waits for later evidence, settled in chunks, so that its boundaries can be handed out in chunks, too.

Such a replay (``PartitionReplay``) holds all segments back until a later snapshot proves them: the one after a window, or those after the
snapshot at the first offset. In chunks it takes steps. In each, one pass over the composed chunks finds what the segments show as a whole
(``ProofPass``), and each chunk is compared with its own snapshots (``chunk_evidence``). The replay itself decides from both what is
next (``next_step``): further segments, or a ``SettledStart``, from which ``SettledReplay`` hands out at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from snaprebuild.replay.classes import Damage, ReplayRecord
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, effect_of_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, ReplayCheckpoint
from snaprebuild.snapshots.engine.window_proof import (
    BaseEvidence,
    Clock,
    Held,
    WindowProof,
    boundary_after,
    confirmed_base,
    contradiction_at,
    prove_total,
    readable_snapshot,
)
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = [
    "ChunkEvidence",
    "ProofPass",
    "ProofStep",
    "SettledReplay",
    "SettledStart",
    "WholeEvidence",
    "chunk_evidence",
    "first_step",
    "next_step",
]


NOTHING_COMPARED, NO_PROOF = BaseEvidence(), WindowProof(IDENTITY, IDENTITY, None)


class ProofStep(msgspec.Struct, frozen=True):
    """Where such a replay begins as far as is known.

    Attributes:
        start_index: its first segment; 0 if the snapshot at the first offset must be confirmed.
        start_reason: why there.
        looks_below: the segments below it are looked at, too.
        taken_from: see ``SettledStart``.
    """

    start_index: int
    start_reason: str
    looks_below: bool = False
    taken_from: int = 0

    @property
    def is_window(self) -> bool:
        """It begins inside the log."""
        return self.start_index > 0

    def splits(self) -> tuple[int, ...]:
        """Segments at which a chunk must begin."""
        return self.start_index, self.taken_from


class SettledStart(ProofStep, frozen=True):
    """Where it begins, with everything that its boundaries need of later evidence but the effects.

    Attributes:
        taken_from: segments from here on were taken before any boundary was handed out: damage does not end the taking.
        fault: why nothing proves the window, or None.
        assumption: about what is below the window, if anything is assumed.
        has_base: it begins with the snapshot at the first offset.
        note: why it does not.
    """

    fault: str | None = None
    assumption: str | None = None
    has_base: bool = False
    note: str | None = None


class WholeEvidence(msgspec.Struct, frozen=True):
    """What all segments show together.

    Attributes:
        fault: why the snapshot that should prove them proves nothing, whatever each chunk shows; or None.
        shows_transactions: batches below the window may be transactional.
        open_below: how the snapshot contradicts what is below the window, or None.
    """

    fault: str | None = None
    shows_transactions: bool = False
    open_below: str | None = None


class ChunkEvidence(msgspec.Struct, frozen=True):
    """What a chunk shows.

    Attributes:
        contradiction: the first snapshot inside it that is wrong, or None.
        gap: the first thing that is not settled at a boundary that is wanted, or None.
        base: about the snapshot at the first offset.
    """

    contradiction: str | None = None
    gap: str | None = None
    base: BaseEvidence = NOTHING_COMPARED


def first_step(replay: PartitionReplay) -> ProofStep | None:
    """The first step of a replay that has not begun; None if it hands out at once."""
    return None if replay.hands_out_at_once() else ProofStep(*replay.start())


# -------------------------------------------------------------------------------------------------------------------- all segments


class ProofPass(msgspec.Struct):
    """One pass over the composed chunks of a step, in order.

    Attributes:
        prefix: the window up to the chunk that was taken last; the segments below it until there is one.
        evidence: after the pass.
        total: effect of everything from the window to its end, after the pass.
        witness: the snapshot that should prove the segments, as an effect; the identity if it proves nothing.
    """

    replay: PartitionReplay
    step: ProofStep
    prefix: RunningEffect = msgspec.field(default_factory=RunningEffect)
    evidence: WholeEvidence = WholeEvidence()
    total: SegmentEffect = IDENTITY
    witness: SegmentEffect = IDENTITY
    _held: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)
    _below: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)

    def take(self, index: int, summary: SegmentSummary) -> None:
        """Takes the summary of a segment; those below the window come first."""
        if index < self.step.start_index and not self.step.looks_below:
            return
        if index == self.step.start_index and index not in self._held:
            self._below, self.prefix = _with_effect(self._below, self.prefix), RunningEffect()
        held = self._held if index >= self.step.start_index else self._below
        self.prefix = self.prefix.then(summary.effect)
        held.setdefault(index, []).append(summary.with_effect(IDENTITY))

    def finish(self) -> None:
        """Sets the evidence, the total and the witness."""
        directory = self.replay.directory
        self.total = self.prefix.total()
        if not self.step.is_window:
            entries = readable_snapshot(directory, directory.segments[0].base_offset)
            self.witness = IDENTITY if entries is None else effect_of_entries(entries)
            if not len(self.witness):
                first = directory.segments[0].base_offset
                self.evidence = WholeEvidence(f"the snapshot at the first offset {first} is empty or unreadable and adds nothing")
            return
        held = _with_effect(self._held, self.prefix)
        proof = prove_total(directory, held, self.replay.witness_offset(self.step.start_index), self.replay.clock)
        self.witness = proof.witness
        open_below = proof.open_below(directory, self._below) if self._below and proof.fault is None else None
        self.evidence = WholeEvidence(proof.fault, proof.shows_transactions(directory, self.step.start_index), open_below)


def _with_effect(held: Held, effect: RunningEffect) -> dict[int, list[SegmentSummary]]:
    """The same segments, the last one with the effect of all of them."""
    found = {index: list(summaries) for index, summaries in held.items()}
    if found:
        last = found[max(found)]
        last[-1] = last[-1].with_effect(effect.total())
    return found


# ------------------------------------------------------------------------------------------------------------------------ a chunk


def chunk_evidence(
    replay: PartitionReplay,
    step: ProofStep,
    segments: Iterable[tuple[int, SegmentSummary]],
    prefix: SegmentEffect,
    total: SegmentEffect,
    witness: SegmentEffect,
) -> ChunkEvidence:
    """Compares a chunk with the snapshots inside it.

    Args:
        replay: of the partition.
        step: which is not settled.
        segments: of the chunk, by index.
        prefix: effect of everything before it; from the window on, if there is one.
        total: from ``ProofPass``, as ``witness``.
        witness: see there.
    """
    directory, clock, before = replay.directory, replay.clock, RunningEffect(prefix)
    if not step.is_window:
        based = RunningEffect(witness).then(prefix)
        return ChunkEvidence(base=confirmed_base(directory, segments, before, based, clock))
    proof, gap = WindowProof(total, witness, None), None
    window_offset = directory.segments[step.start_index].base_offset
    for index, summary in segments:
        before = before.then(summary.effect)
        offset, _ = boundary_after(directory.segments, index, summary)
        if offset is None:
            continue
        contradiction = contradiction_at(directory, offset, before, window_offset, clock)
        if contradiction is not None:
            return ChunkEvidence(contradiction, gap)
        if gap is None and offset >= replay.first_wanted:
            gap = proof.gap_after(before, clock)
    return ChunkEvidence(None, gap)


# ---------------------------------------------------------------------------------------------------------------------- decisions


class _KnownProof(WindowProof, frozen=True):
    """A proof of which only the answers are known."""

    whole: WholeEvidence
    first_gap: str | None

    def shows_transactions(self, directory: PartitionDir, start_index: int) -> bool:
        return self.whole.shows_transactions

    def open_below(self, directory: PartitionDir, below: Held) -> str | None:
        return self.whole.open_below

    def gap(self, directory: PartitionDir, held: Held, first_wanted: int, clock: Clock) -> str | None:
        return self.first_gap


class _DecidingReplay(PartitionReplay, kw_only=True):
    """A replay that holds its segments back, without their summaries."""

    known: WindowProof

    def _found_proof(self) -> WindowProof:
        return self.known

    def decided(self, step: ProofStep) -> tuple[list[int], ProofStep]:
        """The segments that it asks for, and the next step."""
        self.start_index, self.start_reason, self._holds = step.start_index, step.start_reason, True
        self._held = {index: [] for index in range(step.start_index, self.stop_index)}
        self._below = {index: [] for index in range(step.start_index if step.looks_below else 0)}
        wanted = self.more()
        found = ProofStep(self.start_index, self.start_reason, taken_from=0 if self._below else step.start_index)
        if self.start_index == 0:
            return wanted, replace(found, taken_from=0) if self._holds else _settled(found)
        if self.start_index < step.start_index:
            return wanted, replace(found, taken_from=0)
        if wanted:
            return wanted, replace(step, looks_below=True)
        return [], _settled(step, fault=self._proof().fault, assumption=self._assumption)


def _settled(step: ProofStep, **more: str | bool | None) -> SettledStart:
    return SettledStart(step.start_index, step.start_reason, step.looks_below, step.taken_from, **more)  # type: ignore[arg-type]


def next_step(
    replay: PartitionReplay, step: ProofStep, whole: WholeEvidence, chunks: Sequence[ChunkEvidence]
) -> tuple[list[int], ProofStep]:
    """The segments that are needed besides, and the step with which they are taken.

    Args:
        replay: of the partition, which has not begun.
        step: the last one, which was not settled.
        whole: the evidence of all segments.
        chunks: that of each chunk in order; of none if that of all segments suffices.

    Raises:
        SnaprebuildError: segments below the window cannot be read.
    """
    if not step.is_window:
        return [], _settled_base(replay, step, whole, chunks)
    fault = whole.fault or next((each.contradiction for each in chunks if each.contradiction is not None), None)
    gap = next((each.gap for each in chunks if each.gap is not None), None)
    proof = _KnownProof(IDENTITY, IDENTITY, fault, whole, gap)
    return _DecidingReplay(**_fields_of(replay), known=proof).decided(step)


def _settled_base(replay: PartitionReplay, step: ProofStep, whole: WholeEvidence, chunks: Sequence[ChunkEvidence]) -> SettledStart:
    note, confirmed = whole.fault, 0
    for each in chunks:
        note = note or each.base.fault
        confirmed += each.base.confirmed
        if note is not None or each.base.is_over:
            break
    if note is None and not confirmed:
        first = replay.directory.segments[0].base_offset
        note = f"no later snapshot confirms the one at the first offset {first}: not used"
    return _settled(step, has_base=note is None, note=note)


def _fields_of(replay: PartitionReplay) -> dict[str, Any]:
    """The arguments of a replay that has not begun."""
    names = ("directory", "mode", "clock", "window_index", "stop_index", "first_wanted", "known_end", "given", "remote_from")
    return {name: getattr(replay, name) for name in names}


# -------------------------------------------------------------------------------------------------------------------- handing out


class SettledReplay(PartitionReplay, kw_only=True):
    """A replay whose beginning is settled, or a part of it. It hands out at once.

    Attributes:
        settled: where it begins.
        proof: of its window; the effects in it are needed only for states and judgements.
        base: the snapshot at the first offset, if it begins with that.
        only_taken_from: the segments from this index on are taken, and no boundary is handed out; None for the usual.
    """

    settled: SettledStart
    proof: WindowProof = NO_PROOF
    base: SegmentEffect = IDENTITY
    only_taken_from: int | None = None
    _late_damage: Damage | None = None

    @classmethod
    def of(cls, replay: PartitionReplay, settled: SettledStart) -> SettledReplay:
        """The whole replay, from one that has not begun."""
        return cls(**_fields_of(replay), settled=settled)

    def chunk(self, start: int, stop: int, resume_from: ReplayCheckpoint | None, *, is_only_taken: bool) -> SettledReplay:
        """A part of it: the segments from ``start`` up to ``stop``."""
        only = start if is_only_taken else None
        return replace(self, stop_index=stop, resume_from=resume_from, only_taken_from=only, _record=ReplayRecord())

    def with_effects(self, total: SegmentEffect, witness: SegmentEffect) -> SettledReplay:
        """With what ``ProofPass`` found."""
        if self.settled.has_base:
            return replace(self, base=witness)
        return replace(self, proof=WindowProof(total, witness, self.settled.fault))

    def hands_out_at_once(self) -> bool:
        """Always."""
        return True

    def start(self) -> tuple[int, str]:
        """As ``PartitionReplay.start``."""
        if self.resume_from is not None:
            return PartitionReplay.start(self)
        return self.settled.start_index, self.settled.start_reason

    def begin(self) -> list[int]:
        """As ``PartitionReplay.begin``."""
        if self.only_taken_from is not None:
            return list(range(self.only_taken_from, self.stop_index))
        indices = PartitionReplay.begin(self)
        if self.resume_from is None:
            if self.settled.has_base:
                self._prefix, self._base = RunningEffect(self.base), self.base
            elif self.settled.note is not None:
                self._record.notes.append(self.settled.note)
        self._assumption = self.settled.assumption
        if self.settled.looks_below:
            self._below = {0: []}
        return indices

    @property
    def has_ended(self) -> bool:
        """Damage ends it, maybe after all was taken."""
        return self.damage is not None or self._late_damage is not None

    def more(self) -> list[int]:
        """Nothing."""
        return []

    def take(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """As ``PartitionReplay.take``."""
        if self.only_taken_from is not None or self._late_damage is not None:
            return
        if not self.settled.is_window:
            yield from self._advance(index, summary)
        else:
            if self.resume_from is None and index == self.settled.start_index:
                yield from self._below_window()
            yield from self._advance_in_window(index, summary, self.proof, self.settled.start_index)
        if self.damage is not None and index >= self.settled.taken_from:
            self._late_damage, self.damage = self.damage, None

    def finish(self) -> Iterator[BoundaryState]:
        """Nothing is held back; damage after which segments were taken is reported now."""
        self.damage = self.damage or self._late_damage
        yield from ()

    def _settles_as_a_whole(self) -> bool:
        return False
