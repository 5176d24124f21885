"""The replay of one partition: segments in, the state at each boundary out, with its class.

A ``PartitionReplay`` names the segments that it needs and takes their summaries in order; ``schedule`` reads them. If a segment comes in
pieces, the state at each cut is handed out like that at a boundary. Replays that begin at the first segment hand each boundary out at once
and keep nothing else. Those that later evidence must prove first (a window, or a snapshot at the first offset) hold the summaries back.

Each command makes its replay by ``source_replay``, so that all of them come to one class and one state at a boundary. None can leave out
that the log begins in remote storage, that its topic is compacted, or that this program wrote a later snapshot.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import StrEnum
from functools import cache, cached_property, partial

import msgspec
import numpy as np
from msgspec.structs import replace

from snaprebuild.findings import pluralize
from snaprebuild.replay.base_verdict import BaseState, BaseVerdict, named_ids
from snaprebuild.replay.classes import Damage, Judgement, ReplayEvidence, ReplayRecord, SnapshotClass
from snaprebuild.replay.segment_effect import (
    IDENTITY,
    NO_CLOSES,
    ClosedTransactions,
    RunningEffect,
    SegmentEffect,
    compose,
    effect_of_entries,
    entries_of,
)
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, WindowState
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot, judge_first_snapshot
from snaprebuild.snapshots.engine.log_facts import known_log_end, window_index
from snaprebuild.snapshots.engine.window_proof import (
    LOOKED_BELOW,
    NO_TRANSACTIONS_BELOW,
    NO_TRANSACTIONS_IN_WINDOW,
    NOT_LOOKED_BELOW,
    WindowProof,
    begins_of_segments_show_transactions,
    boundary_after,
    in_order,
    prove_window,
)
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity

__all__ = [
    "BaseBoundary",
    "BoundaryState",
    "InitialState",
    "PartitionReplay",
    "ReplayCheckpoint",
    "ReplayFrom",
    "base_and_identity",
    "boundary_on_base",
    "replay_window",
    "source_replay",
]


# ------------------------------------------------------------------------------------------------------------- one boundary


class BaseBoundary(msgspec.Struct, frozen=True, eq=False):
    """The part of the snapshot at the first offset that a boundary has.

    Attributes:
        offset: of the boundary.
        verdict: on that snapshot.
        state: its entries that count here, and the open ones.
        prefix: the log on these entries.
        plain: the log alone.
    """

    offset: int
    verdict: BaseVerdict
    state: BaseState
    prefix: RunningEffect
    plain: RunningEffect

    @property
    def is_complete(self) -> bool:
        """Everything that the boundary has of the snapshot is confirmed, and no producer is missing."""
        lacks_none = self.offset >= self.verdict.lacks_none_from
        return self.verdict.may_be_complete and not len(self.state.open_ids) and lacks_none

    def judge(self, evidence: ReplayEvidence) -> Judgement:
        """The judgement of the boundary."""
        judged = evidence.judge(self.prefix, starts_at_zero=False, has_trusted_base=self.is_complete)
        if judged.snapshot_class is SnapshotClass.UNPROVEN:
            # Below the epoch of an entry of the snapshot, which the broker may have forgotten, the log may be legal.
            judged = evidence.judge(self.plain, starts_at_zero=False, has_trusted_base=self.is_complete)
        if judged.snapshot_class is not SnapshotClass.EXACT_FROM_LOG_START:
            return judged
        state = self.state
        first = self.verdict.offset
        if len(state.claims):
            reason = f"nothing confirms the open transactions that the snapshot at the first offset {first} has"
            return Judgement(SnapshotClass.UNPROVEN, (f"{reason}: producers {named_ids(state.claims)}", *judged.reasons))
        if not self.verdict.evidence_count:
            reason = f"no later snapshot confirms the one at the first offset {first}"
        elif not len(state.open_ids) and self.verdict.is_lost:
            reason = f"the snapshot at the first offset {first} is empty, and producers that wrote before it appear later"
        elif not len(state.open_ids):
            reason = (
                f"a producer that the snapshot at the first offset {first} lacks may have expired before the next snapshot, "
                f"and nothing shows that there was none below {self.verdict.lacks_none_from}"
            )
        else:
            whose = f"{pluralize(len(state.open_ids), 'producer')}: {named_ids(state.open_ids)}"
            reason = f"nothing confirms what the snapshot at the first offset {first} has of {whose}"
        return Judgement(judged.snapshot_class, (*judged.reasons, reason))


def boundary_on_base(verdict: BaseVerdict, offset: int, plain: RunningEffect, based: RunningEffect) -> BaseBoundary:
    """The part of the snapshot at the first offset that the boundary at an offset has.

    Args:
        verdict: on that snapshot, which nothing refutes.
        offset: of the boundary.
        plain: the log from the first offset to it.
        based: the log on all entries of the snapshot.
    """
    if verdict.complete_from is not None and offset > verdict.complete_from:
        return BaseBoundary(offset, verdict, verdict.without_open(), based, plain)
    total = plain.total()
    state = verdict.at(total)
    if len(state.base_entries) == len(verdict.entries):
        return BaseBoundary(offset, verdict, state, based, plain)
    return BaseBoundary(offset, verdict, state, RunningEffect(compose(effect_of_entries(state.base_entries), total)), plain)


class BoundaryState(msgspec.Struct, dict=True, frozen=True, eq=False, kw_only=True):
    """The producer state at one boundary, or at an offset inside a segment that was asked for.

    ``effect``, ``entries`` and the judgements cost time and memory with the producers of the whole log. They are made when they are first
    asked for, and what comes later in the replay does not change them.

    Attributes:
        make_prefix: makes ``prefix``.
        replayed_from_offset: base offset of the first replayed segment: ``prefix`` has nothing of what is below, unless ``is_complete``.
        begins_complete: nothing before the replay is unknown: it began at offset 0, or on a state that is known to be complete.
        make_base: makes what the state has of the snapshot at the first offset; None if the replay does not begin with one.
        unknown_below: why the producers below the first segment are unknown, where the log begins below it. None if it does not, or if a
            snapshot at the first offset shows them.
        is_unsound: damage or gaps that were read make it UNSOUND, whatever the state is. Nothing else does if replay began at the first
            segment.
        segment: the segment or piece that ends here.
        closes: the transactions that the markers of this segment closed, as far as its ``.txnindex`` depends on them. It lacks most
            commits. It has markers that closed nothing, except those of a segment that began before the replay. None if it is unknown
            (the replay began inside the log), or at a cut.
    """

    offset: int
    is_log_end: bool = False
    make_prefix: Callable[[], RunningEffect]
    replayed_from_offset: int
    begins_complete: bool = False
    make_base: Callable[[], BaseBoundary] | None = None
    unknown_below: str | None = None
    is_unsound: bool = False
    segment: SegmentSummary
    closes: ClosedTransactions | None = None
    make_entries: Callable[[], np.ndarray]
    make_judgement: Callable[[], Judgement]

    @property
    def is_cut(self) -> bool:
        """The boundary is inside a segment: no snapshot is due here."""
        return self.segment.cut_offset is not None

    @cached_property
    def prefix(self) -> RunningEffect:
        """Everything from the first replayed segment on, with those entries of the snapshot there that count."""
        return self.make_prefix()

    @property
    def effect(self) -> SegmentEffect:
        """``prefix`` as one effect."""
        return self.prefix.total()

    @cached_property
    def is_complete(self) -> bool:
        """Nothing before the replay is unknown."""
        return self.begins_complete or (self.make_base is not None and self.make_base().is_complete)

    @property
    def base_entries(self) -> np.ndarray | None:
        """Entries of the snapshot at the first offset that count here, of ``ENTRY_DTYPE``; None if the replay does not begin with one."""
        return None if self.make_base is None else self.make_base().state.base_entries

    @cached_property
    def entries(self) -> np.ndarray:
        """All entries, of ``ENTRY_DTYPE``, sorted by producer id."""
        return self.make_entries()

    @cached_property
    def log_judgement(self) -> Judgement:
        """Class and reasons if the log began at the first segment on disk."""
        return self.make_judgement()

    @cached_property
    def judgement(self) -> Judgement:
        """Class and reasons."""
        judged = self.log_judgement
        if self.unknown_below is None or judged.snapshot_class is not SnapshotClass.EXACT_FROM_LOG_START:
            return judged
        return Judgement(SnapshotClass.UNPROVEN, (self.unknown_below, *judged.reasons))


class ReplayCheckpoint(msgspec.Struct, frozen=True, eq=False):
    """A replay at a boundary. Another replay resumes from it, exactly as if it had read everything below.

    Attributes:
        offset: the boundary, base offset of a segment.
        first_offset: base offset of the first segment that was replayed.
        before: base offset and identity of the segment that ends here.
    """

    offset: int
    first_offset: int
    before: tuple[int, FileIdentity]
    _prefix: RunningEffect
    _record: ReplayRecord

    @property
    def state(self) -> SegmentEffect:
        """Everything that was replayed up to here, as one effect: the large part of this value."""
        return self._prefix.total()

    def with_state(self, state: SegmentEffect) -> ReplayCheckpoint:
        """This checkpoint with another state. With ``IDENTITY`` it is small, and can be sent apart from its own state."""
        return replace(self, _prefix=RunningEffect(state))

    def index_in(self, directory: PartitionDir) -> int | None:
        """Index of the segment that begins here; None if the log is not the one that was replayed.

        A log is cut at its end (``UnifiedLog.truncateTo``), and then the cut segment is another file. If the segment that ends here is
        unchanged, so are those before it.
        """
        segments = directory.segments
        index = bisect_left(segments, self.offset, key=lambda segment: segment.base_offset)
        if not 0 < index < len(segments) or segments[index].base_offset != self.offset:
            return None
        return index if base_and_identity(segments[index - 1]) == self.before else None


def base_and_identity(segment: SegmentFiles) -> tuple[int, FileIdentity]:
    """Base offset of a segment, and which file it is."""
    return segment.base_offset, segment.log.identity


class InitialState(msgspec.Struct, frozen=True, eq=False):
    """The state before the first segment on disk, known from elsewhere. Nothing replayed on it gets a better class than it has."""

    effect: SegmentEffect
    judgement: Judgement

    @property
    def is_complete(self) -> bool:
        """No producer is missing, also none whose batches were all deleted."""
        return self.judgement.snapshot_class is SnapshotClass.EXACT

    def on_top(self, judged: Judgement) -> Judgement:
        """The judgement of a boundary above it; ``judged`` is what it would be if this state were proven."""
        if judged.snapshot_class is not SnapshotClass.EXACT:
            return judged
        return Judgement(self.judgement.snapshot_class, (*self.judgement.reasons, "replayed from there"))


log = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------- the replay


class ReplayFrom(StrEnum):
    """Where replay begins (``--replay-from``)."""

    AUTO = "auto"
    """At the window; further back as long as the evidence asks for it."""
    WINDOW = "window"
    """At the window, and never before it; what is not proven is said."""
    LOG_START = "log-start"
    """At the first segment on disk with empty state, whatever checkpoints or snapshots say."""


class PartitionReplay(msgspec.Struct, kw_only=True):
    """Replays a partition.

    Attributes:
        window_index: first segment of the window (``replay.window.window_start``).
        stop_index: segments from here on are not needed.
        first_wanted: the least boundary that is wanted.
        known_end: the log reaches this offset for certain, whatever its last segment seems to end with.
        resume_from: begin here, whatever the mode; ``index_in`` has found it in this directory. None to begin as the mode says.
        initial_state: the state before the first segment, which is then handed out, too; only from the log start on. None for an empty one.
        remote_from: the log begins here, in remote storage, below the first segment on disk; None if it begins on disk or that is unknown.
            A broker takes the state of the part in between from the snapshot at the first segment.
        is_compacted: a cleaner removes batches of the topic: then the snapshot at the first offset is not used.
        written_by_us: offsets of snapshots that a receipt of this program names: no evidence for the one at the first offset.
        damage: set when the replay ended early.
        first_snapshot: the verdict on the snapshot at the first offset; None if there is none, or before the end.
        start_index: first segment of the replay as it turned out, and ``start_reason`` why.
    """

    directory: PartitionDir
    mode: ReplayFrom
    clock: Clock
    window_index: int
    stop_index: int
    first_wanted: int
    known_end: int = 0
    resume_from: ReplayCheckpoint | None = None
    initial_state: InitialState | None = None
    remote_from: int | None = None
    is_compacted: bool = False
    written_by_us: frozenset[int] = frozenset()
    damage: Damage | None = None
    first_snapshot: FirstSnapshot | None = None
    start_index: int = 0
    start_reason: str = ""
    _record: ReplayRecord = msgspec.field(default_factory=ReplayRecord)
    _prefix: RunningEffect = msgspec.field(default_factory=RunningEffect)
    _closes: ClosedTransactions = NO_CLOSES
    _held: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)
    _below: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)
    _assumption: str | None = None
    _holds: bool = False
    _base: BaseVerdict | None = None
    _plain: RunningEffect = msgspec.field(default_factory=RunningEffect)

    def begin(self) -> list[int]:
        """Indices of the segments that are needed first, in order."""
        self.start_index, self.start_reason = self.start()
        if self.resume_from is not None:
            self._prefix = self.resume_from._prefix
            self._record = deepcopy(self.resume_from._record)
        elif self.initial_state is not None:
            assert self.mode is ReplayFrom.LOG_START, "it is before the first segment"
            self._prefix = RunningEffect(self.initial_state.effect)
        self._holds = not self.hands_out_at_once()
        log.info(
            "%s: replay begins at segment %d of %d: %s",
            self.directory.path,
            self.start_index,
            len(self.directory.segments),
            self.start_reason,
        )
        return list(range(self.start_index, self.evidence_stop if self.start_index == 0 else self.stop_index))

    def start(self) -> tuple[int, str]:
        """Index of the segment where the replay begins, as far as names and hints show, and why there. Changes nothing."""
        if self.resume_from is not None:
            index = self.resume_from.index_in(self.directory)
            assert index is not None, "another log"
            return index, f"an earlier replay ended at {self.resume_from.offset}"
        if self.mode is ReplayFrom.LOG_START:
            return 0, "requested: the first segment on disk"
        if not self.directory.segments:
            return 0, "no segment is on disk"
        # The last segment is always read if it is wanted: only it shows the log end.
        window = min(self.window_index, self.stop_index, len(self.directory.segments) - 1)
        if window == 0:
            return 0, "the window reaches to the first segment on disk"
        if self.mode is ReplayFrom.WINDOW:
            return window, "requested: the first segment within the expiration"
        if self.first_wanted <= self.directory.segments[window].base_offset:
            return 0, f"boundary {self.first_wanted} is older than one expiration: read from the first segment"
        if self.witness_offset(window) is None:
            return 0, "no surviving snapshot after the window could prove it"
        return window, "the first segment within the expiration"

    def hands_out_at_once(self) -> bool:
        """Whether no boundary waits for later segments, as far as names and hints show; ``more`` asks for nothing then."""
        if self.resume_from is not None:
            return True
        return self.start()[0] == 0 and not self.judges_base

    def may_go_back(self) -> bool:
        """Whether ``more`` may ask for further segments."""
        return self.resume_from is None and self.mode is ReplayFrom.AUTO and self.start()[0] > 0

    def part(self, stop_index: int, resume_from: ReplayCheckpoint | None) -> PartitionReplay:
        """Another replay, of the segments up to ``stop_index`` of this one, which hands out at once."""
        log_start = ReplayFrom.LOG_START
        return replace(
            self, mode=log_start, stop_index=stop_index, resume_from=resume_from, _record=ReplayRecord(), _held={}, _below={}
        )

    def witness_offset(self, start_index: int) -> int | None:
        """The least surviving snapshot at or after everything that is wanted, which may prove the window."""
        bases = self.directory.base_offsets
        boundaries = set(bases[start_index + 1 :])
        least = bases[self.stop_index] if self.stop_index < len(bases) else bases[-1] + 1
        after = (at for at, _ in self.directory.snapshots if at >= least and (at in boundaries or at > bases[-1]))
        return next(after, None)

    @property
    def evidence_stop(self) -> int:
        """Index after the last segment that a replay from the first one reads.

        The snapshot at the first offset is judged by the whole log, whichever boundary is wanted: it has one verdict.
        """
        return len(self.directory.segments) if self.judges_base else self.stop_index

    @property
    def judges_base(self) -> bool:
        """Whether a replay from the first segment begins with the snapshot there.

        Its segments are read with the first events of each producer, and all of them before the first boundary is handed out.
        """
        if self.mode is not ReplayFrom.AUTO or self.resume_from is not None or self.is_compacted:
            return False
        first = self.directory.segments[0].base_offset if self.directory.segments else 0
        return first > 0 and self.directory.snapshot_at(first) is not None

    def best_class(self) -> SnapshotClass:
        """The best class that a boundary of a replay from the first segment can get, as far as names show."""
        bases = self.directory.base_offsets
        if bases[0] == 0:
            return SnapshotClass.EXACT
        later = (at for at, _ in self.directory.snapshots if at in bases[1:] or at > bases[-1])
        if self.judges_base and any(at not in self.written_by_us for at in later):
            return SnapshotClass.EXACT
        if self.remote_from is None:
            return SnapshotClass.EXACT_FROM_LOG_START
        return SnapshotClass.UNPROVEN

    def checkpoint(self, state: BoundaryState) -> ReplayCheckpoint | None:
        """Where another replay may resume, at the boundary that is being handed out.

        None at the log end, and if this replay settles the log as a whole: it begins inside the log, or with a snapshot.
        """
        segments = self.directory.segments
        index = bisect_left(segments, state.offset, key=lambda segment: segment.base_offset)
        settles_as_a_whole = (self.start_index > 0 or self._base is not None) and self.resume_from is None
        if settles_as_a_whole or index == len(segments) or segments[index].base_offset != state.offset:
            return None
        before = base_and_identity(segments[index - 1])
        return ReplayCheckpoint(state.offset, state.replayed_from_offset, before, state.prefix, deepcopy(self._record))

    def before_first_segment(self) -> BaseBoundary | None:
        """The state at the first offset; None if the replay does not begin with the snapshot there. Known at its end."""
        if self._base is None:
            return None
        on_all = RunningEffect(effect_of_entries(self._base.entries))
        return boundary_on_base(self._base, self._base.offset, RunningEffect(), on_all)

    # ---------------------------------------------------------------------------------------------------------- taking segments

    def take(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """Takes the summary of segment ``index``, or its pieces in order; segments of one call of ``begin`` or ``more`` come in order."""
        if self._holds:
            summaries = self._held if index >= self.start_index else self._below
            summaries.setdefault(index, []).append(summary)
            return
        if self.initial_state is not None and index == 0 and self._record.next_offset is None:
            yield self._given_state(self.initial_state)
        yield from self._advance(index, summary)

    def more(self) -> list[int]:
        """Called when everything asked for was taken: further segments that the evidence asks for, lowest first; empty at the end."""
        if not self._holds or self.mode is not ReplayFrom.AUTO or self.start_index == 0:
            return []
        proof = self._proof()
        fault = proof.fault or proof.gap(self.directory, self._held, self.first_wanted, self.clock)
        if fault is None and not self._below:
            return self._below_to_look_at(proof)
        if fault is None:
            fault = proof.open_below(self.directory, self._below)
            if fault is not None:
                self._held |= self._below
                self.start_index = 0
                self.start_reason = f"extended back: {fault}"
                self._holds = self.judges_base
                log.info("%s: replay extended back to the first segment: %s", self.directory.path, fault)
                return list(range(self.stop_index, self.evidence_stop))
            return []
        # Half as far again each time: a transaction usually began a segment or two earlier, and a bad case must not read one by one.
        taken_count = len(self._held)
        start = max(self.start_index - max(taken_count // 2, 1), 0)
        log.info("%s: replay extended back from segment %d to %d: %s", self.directory.path, self.start_index, start, fault)
        indices = list(range(start, self.start_index))
        self.start_index = start
        self.start_reason = f"extended back: {fault}"
        if start == 0:
            # What follows can be handed out at once, and what was held back after it.
            self._holds = self.judges_base
            indices += range(self.stop_index, self.evidence_stop)
        return indices

    def _below_to_look_at(self, proof: WindowProof) -> list[int]:
        """Segments below a window that is proven but for this: all snapshots of a broker that once lost its state agree."""
        if proof.shows_transactions(self.directory, self.start_index) or begins_of_segments_show_transactions(
            self.directory, self.start_index
        ):
            return list(range(self.start_index))
        self._assumption = NO_TRANSACTIONS_BELOW
        return []

    def finish(self) -> Iterator[BoundaryState]:
        """The boundaries that were held back, once no more segments are needed."""
        if self.start_index == 0:
            if self._holds:
                self._begin_with_first_snapshot()
            self._holds = False
            for index, summary in in_order(self._held):
                if index >= self.stop_index:
                    return  # evidence only
                yield from self._advance(index, summary)
                if self.damage is not None:
                    return
        elif self._holds:
            yield from self._window_boundaries()

    def _begin_with_first_snapshot(self) -> None:
        first = judge_first_snapshot(self.directory, self._held, self.clock, self.written_by_us)
        self.first_snapshot = first
        self._base = first.usable
        if first.reason is not None:
            self._record.notes.append(first.reason)
        if self._base is not None:
            self._prefix = RunningEffect(effect_of_entries(self._base.entries))

    def release(self) -> None:
        """Drops effects and summaries once every boundary was handed out: the tasks of all partitions live as long as the run."""
        self._prefix, self._plain, self._held, self._below = RunningEffect(), RunningEffect(), {}, {}

    def _advance(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """The plain replay: add, look for failures, hand out."""
        if self.damage is not None:
            return
        self._take_facts(index, summary)
        closes = self._closes.followed_by(self._prefix.resolved(summary.effect.closes))
        # They are carried along from piece to piece of a segment, and no further.
        self._closes = NO_CLOSES if summary.cut_offset is None else closes
        self._prefix = self._prefix.then(summary.effect)
        if self._base is not None:
            self._plain = self._plain.then(summary.effect)
        if self._has_failed():
            return
        offset, is_log_end = boundary_after(self.directory.segments, index, summary)
        if offset is None or (self.initial_state is not None and offset == self.directory.segments[0].base_offset):
            return
        evidence = self._record.evidence()
        closes_here = closes if summary.cut_offset is None else None
        if self._base is None:
            yield self._state(offset, summary, evidence, self._prefix, is_log_end=is_log_end, closes=closes_here)
        elif evidence.unsound_reasons:  # over damage nothing can be taken from a snapshot below
            yield self._state(offset, summary, evidence, self._plain, is_log_end=is_log_end, closes=None)
        else:
            yield self._state_on_base(self._base, offset, summary, evidence, is_log_end=is_log_end, closes=closes_here)

    def _state(
        self,
        offset: int,
        summary: SegmentSummary,
        evidence: ReplayEvidence,
        prefix: RunningEffect,
        *,
        is_log_end: bool,
        closes: ClosedTransactions | None,
    ) -> BoundaryState:
        """A boundary of a replay that begins empty, or on the given state."""
        first = self.directory.segments[0].base_offset if self.resume_from is None else self.resume_from.first_offset
        has_given = self.initial_state is not None
        return BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            make_prefix=lambda: prefix,
            replayed_from_offset=first,
            begins_complete=first == 0 or (self.initial_state is not None and self.initial_state.is_complete),
            is_unsound=bool(evidence.unsound_reasons),
            segment=summary,
            closes=closes,
            make_entries=lambda: entries_of(prefix.total()),
            unknown_below=self._unknown_below(),
            make_judgement=lambda: self._judged(evidence.judge(prefix, starts_at_zero=first == 0, has_trusted_base=has_given)),
        )

    def _state_on_base(
        self,
        verdict: BaseVerdict,
        offset: int,
        summary: SegmentSummary,
        evidence: ReplayEvidence,
        *,
        is_log_end: bool,
        closes: ClosedTransactions | None,
    ) -> BoundaryState:
        """A boundary of a replay that begins with the snapshot at the first offset."""
        make_base = cache(partial(boundary_on_base, verdict, offset, self._plain, self._prefix))
        return BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            make_prefix=lambda: make_base().prefix,
            replayed_from_offset=verdict.offset,
            make_base=make_base,
            # A later snapshot that could be compared shows that the first one is of this log.
            unknown_below=None if verdict.may_be_complete else self._unknown_below(),
            segment=summary,
            closes=closes,
            make_entries=lambda: entries_of(make_base().prefix.total()),
            make_judgement=lambda: make_base().judge(evidence),
        )

    def _judged(self, judgement: Judgement) -> Judgement:
        """The judgement of a boundary; ``judgement`` is what it would be if the given state were proven."""
        return judgement if self.initial_state is None else self.initial_state.on_top(judgement)

    def _unknown_below(self) -> str | None:
        """Why the producers below the first segment are unknown; None if the log begins there, or a state was given."""
        if self.initial_state is not None or self.remote_from is None:
            return None
        first = self.directory.segments[0].base_offset
        return f"the log begins at {self.remote_from} in remote storage: the producers that wrote there, below {first}, are unknown here"

    def _given_state(self, initial_state: InitialState) -> BoundaryState:
        offset = self.directory.segments[0].base_offset
        prefix = self._prefix
        return BoundaryState(
            offset=offset,
            is_log_end=len(self.directory.segments) == 1 and not self.directory.segments[0].size_bytes,
            make_prefix=lambda: prefix,
            replayed_from_offset=offset,
            begins_complete=initial_state.is_complete,
            segment=SegmentSummary.unread(offset, 0),
            make_entries=lambda: entries_of(initial_state.effect),
            make_judgement=lambda: initial_state.judgement,
        )

    def _take_facts(self, index: int, summary: SegmentSummary) -> None:
        following = self.directory.base_offset_after(index)
        path = self.directory.file_path(self.directory.segments[index].log.name)
        if self.directory.log_end_offset is not None:  # copies in remote storage, which are not on a disk
            self._record.absence = "in no batch"
        self._record.take(summary, is_last=following is None, following=following, path=path, known_end=self.known_end)

    def _has_failed(self) -> bool:
        self.damage = self._record.damage
        failure = self._prefix.failure_offset
        if failure is not None and (self.damage is None or failure < self.damage.offset):
            reason = "a data batch outside of the transaction that its producer has open: InvalidTxnStateException on every broker"
            self.damage = Damage(failure, f"offset {failure}: {reason}")
        return self.damage is not None

    # ---------------------------------------------------------------------------------------------------------- the window

    def _proof(self) -> WindowProof:
        proof = prove_window(self.directory, self._held, self.witness_offset(self.start_index), self.clock)
        if self.mode is ReplayFrom.WINDOW and proof.fault is None and proof.shows_transactions(self.directory, self.start_index):
            return replace(proof, witness=IDENTITY, fault=NOT_LOOKED_BELOW)
        return proof

    def _window_boundaries(self) -> Iterator[BoundaryState]:
        """Boundaries of a replay that began inside the log, proven or not, and those below it, which are not."""
        yield from self._below_window()
        proof = self._proof()
        for index, summary in in_order(self._held):
            yield from self._advance_in_window(index, summary, proof)
            if self.damage is not None:
                return

    def _advance_in_window(self, index: int, summary: SegmentSummary, proof: WindowProof) -> Iterator[BoundaryState]:
        """Adds a segment of the window, and hands out."""
        self._take_facts(index, summary)
        self._prefix = prefix = self._prefix.then(summary.effect)
        if self._has_failed():
            return
        offset, is_log_end = boundary_after(self.directory.segments, index, summary)
        if offset is None:
            return
        evidence = self._record.evidence()
        settled = cache(partial(proof.settled, prefix, self.clock))
        yield BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            make_prefix=lambda: prefix,
            replayed_from_offset=self.directory.segments[self.start_index].base_offset,
            is_unsound=bool(evidence.unsound_reasons),
            segment=summary,
            make_entries=lambda: settled().entries,
            make_judgement=partial(self._judged_in_window, proof, settled, prefix, evidence),
        )

    def _judged_in_window(
        self, proof: WindowProof, settled: Callable[[], WindowState], prefix: RunningEffect, evidence: ReplayEvidence
    ) -> Judgement:
        below = LOOKED_BELOW if self._below else self._assumption or NO_TRANSACTIONS_IN_WINDOW
        return proof.judge(
            settled(), evidence.judge(prefix, starts_at_zero=True, has_trusted_base=False), below, evidence, self.clock
        )

    def _below_window(self) -> Iterator[BoundaryState]:
        """Everything below is older than the expiration; whether a transaction is open there is unknown."""
        reason = "older than the expiration and not replayed: empty, unless a transaction was open here, which only its batches would show"
        judgement = Judgement(SnapshotClass.UNPROVEN, (reason,))
        for index in range(1, min(self.start_index, len(self.directory.segments) - 1) + 1):
            offset = self.directory.segments[index].base_offset
            unread = self.directory.segments[index - 1]
            yield BoundaryState(
                offset=offset,
                make_prefix=RunningEffect,
                replayed_from_offset=offset,
                segment=SegmentSummary.unread(unread.base_offset, unread.size_bytes),
                make_entries=lambda: entries_of(IDENTITY),
                make_judgement=lambda: judgement,
            )


def replay_window(partition: PartitionSource, mode: ReplayFrom, clock: Clock, deadline: float | None = None) -> int:
    """Index of the segment where a replay may begin at the latest: as ``window_index``, and 0 where the window proves too little.

    Below a log start inside the first segments, clients of 1.0 to 2.4 may have written batches of epoch 0 that they continued with sequence
    0 later (``replay.window``). While those bytes are on disk, only a replay of them gives what Kafka's own replay gives.
    """
    if mode is ReplayFrom.LOG_START:
        return 0
    if mode is ReplayFrom.AUTO and partition.log_start_offset > partition.directory.segments[0].base_offset:
        return 0
    return window_index(partition, clock, deadline)


def source_replay(
    source: PartitionSource,
    clock: Clock,
    *,
    mode: ReplayFrom = ReplayFrom.AUTO,
    window_index: int = 0,
    stop_index: int | None = None,
    first_wanted: int = 0,
    known_end: int | None = None,
    resume_from: ReplayCheckpoint | None = None,
    initial_state: InitialState | None = None,
    begins_empty: bool = False,
) -> PartitionReplay:
    """The replay of a partition. By default it begins at the first segment, and ends after the last one.

    Args:
        source: the partition.
        clock: for expiry.
        mode: where the replay begins.
        window_index: first segment of the window (``replay_window``).
        stop_index: segments from here on are not needed; None for all.
        first_wanted: the least boundary that is wanted.
        known_end: the log reaches this offset for certain; None to look it up if the replay reads the last segment.
        resume_from: where an earlier replay ended.
        initial_state: the state before the first segment, known from elsewhere.
        begins_empty: the state that begins empty at the first segment is wanted, even if the log begins in remote storage.
    """
    directory = source.directory
    stop = len(directory.segments) if stop_index is None else stop_index
    if known_end is None:
        # A batch that cannot be read looks like a torn end, unless it is known that the log continues.
        known_end = known_log_end(directory) if stop == len(directory.segments) else 0
    return PartitionReplay(
        directory=directory,
        mode=mode,
        clock=clock,
        window_index=window_index,
        stop_index=stop,
        first_wanted=first_wanted,
        known_end=known_end,
        resume_from=resume_from,
        initial_state=initial_state,
        remote_from=None if begins_empty else source.remote_from,
        is_compacted=not source.can_be_tiered,
        written_by_us=source.written_by_us,
    )
