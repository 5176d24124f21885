"""The replay of one partition: segments in, the state at each boundary out, with its class.

A ``PartitionReplay`` names the segments that it needs and takes their summaries in order; ``schedule`` reads them. If a segment comes in
pieces, the state at each cut is handed out like that at a boundary. Replays that begin at the first segment hand each boundary out at once
and keep nothing else. Those that later evidence must prove first (a window, or a snapshot at the first offset) hold the summaries back.
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

from snaprebuild.replay.classes import Damage, Judgement, ReplayEvidence, ReplayRecord, SnapshotClass
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import IDENTITY, NO_CLOSES, ClosedTransactions, SegmentEffect, entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import WindowState
from snaprebuild.snapshots.engine.window_proof import (
    LOOKED_BELOW,
    NO_TRANSACTIONS_BELOW,
    NO_TRANSACTIONS_IN_WINDOW,
    NOT_LOOKED_BELOW,
    Clock,
    WindowProof,
    begins_of_segments_show_transactions,
    boundary_after,
    in_order,
    prove_window,
    trusted_base,
)
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity

__all__ = ["BoundaryState", "InitialState", "PartitionReplay", "ReplayCheckpoint", "ReplayFrom"]

log = logging.getLogger(__name__)


class ReplayFrom(StrEnum):
    """Where replay begins (``--replay-from``)."""

    AUTO = "auto"
    """At the window; further back as long as the evidence asks for it."""
    WINDOW = "window"
    """At the window, and never before it; what is not proven is said."""
    LOG_START = "log-start"
    """At the first segment on disk with empty state, whatever checkpoints or snapshots say."""


class BoundaryState(msgspec.Struct, dict=True, frozen=True, eq=False, kw_only=True):
    """The producer state at one boundary, or at an offset inside a segment that was asked for.

    ``effect``, ``entries`` and ``judgement`` cost time and memory with the producers of the whole log. They are made when they are first
    asked for, and what comes later in the replay does not change them.

    Attributes:
        prefix: from the first replayed segment (on a trusted base if there is one).
        replayed_from: base offset of that segment: ``prefix`` has nothing of what is below, unless ``is_complete``.
        is_complete: nothing before the replay is unknown: it began at offset 0 or on a trusted snapshot.
        is_unsound: damage or gaps that were read make it UNSOUND, whatever the state is. Nothing else does if replay began at the first
            segment.
        segment: the segment or piece that ends here.
        closes: the transactions that the markers of this segment closed, as far as its ``.txnindex`` depends on them. It lacks most
            commits. It has markers that closed nothing, except those of a segment that began before the replay. None if it is unknown
            (the replay began inside the log), or at a cut.
    """

    offset: int
    is_log_end: bool = False
    prefix: RunningEffect
    replayed_from: int
    is_complete: bool = False
    is_unsound: bool = False
    segment: SegmentSummary
    closes: ClosedTransactions | None = None
    make_entries: Callable[[], np.ndarray]
    make_judgement: Callable[[], Judgement]

    @property
    def is_cut(self) -> bool:
        """It is inside a segment: no snapshot is due here."""
        return self.segment.cut_offset is not None

    @property
    def effect(self) -> SegmentEffect:
        """``prefix`` as one effect."""
        return self.prefix.total()

    @cached_property
    def entries(self) -> np.ndarray:
        """All entries, of ``ENTRY_DTYPE``, sorted by producer id."""
        return self.make_entries()

    @cached_property
    def judgement(self) -> Judgement:
        """Class and reasons."""
        return self.make_judgement()


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
    _base: SegmentEffect | None
    _record: ReplayRecord

    @property
    def state(self) -> SegmentEffect:
        """Everything that was replayed up to here, as one effect: the large part of this value."""
        return self._prefix.total()

    def with_state(self, state: SegmentEffect) -> ReplayCheckpoint:
        """The same with another state. With ``IDENTITY`` it is small, and can be sent apart from its own state."""
        return replace(self, _prefix=RunningEffect(state), _base=None if self._base is None else IDENTITY)

    def index_in(self, directory: PartitionDir) -> int | None:
        """Index of the segment that begins here; None if the log is not the one that was replayed.

        A log is cut at its end (``UnifiedLog.truncateTo``), and then the cut segment is another file. If the segment that ends here is
        unchanged, so are those before it.
        """
        segments = directory.segments
        index = bisect_left(segments, self.offset, key=lambda segment: segment.base_offset)
        if not 0 < index < len(segments) or segments[index].base_offset != self.offset:
            return None
        return index if _base_and_identity(segments[index - 1]) == self.before else None


def _base_and_identity(segment: SegmentFiles) -> tuple[int, FileIdentity]:
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


class PartitionReplay(msgspec.Struct):
    """Replays a partition.

    Attributes:
        window_index: first segment of the window (``replay.window.window_start``).
        stop_index: segments from here on are not needed.
        first_wanted: the least boundary that is wanted.
        known_end: the log reaches this offset for certain, whatever its last segment seems to end with.
        resume_from: begin here, whatever the mode; ``index_in`` has found it in this directory. None to begin as the mode says.
        given: the state before the first segment, which is then handed out, too; only from the log start on. None for an empty one.
        remote_from: the log begins here, in remote storage, below the first segment on disk; None if it begins on disk or that is unknown.
            A broker takes the state of the part in between from the snapshot at the first segment.
        damage: set when the replay ended early.
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
    given: InitialState | None = None
    remote_from: int | None = None
    damage: Damage | None = None
    start_index: int = 0
    start_reason: str = ""
    _record: ReplayRecord = msgspec.field(default_factory=ReplayRecord)
    _prefix: RunningEffect = msgspec.field(default_factory=RunningEffect)
    _closes: ClosedTransactions = NO_CLOSES
    _held: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)
    _below: dict[int, list[SegmentSummary]] = msgspec.field(default_factory=dict)
    _assumption: str | None = None
    _holds: bool = False
    _base: SegmentEffect | None = None

    def begin(self) -> list[int]:
        """Indices of the segments that are needed first, in order."""
        self.start_index, self.start_reason = self.start()
        if self.resume_from is not None:
            self._prefix, self._base = self.resume_from._prefix, self.resume_from._base
            self._record = deepcopy(self.resume_from._record)
        elif self.given is not None:
            assert self.mode is ReplayFrom.LOG_START, "it is before the first segment"
            self._prefix, self._base = RunningEffect(self.given.effect), self.given.effect
        self._holds = not self.hands_out_at_once()
        log.info(
            "%s: replay begins at segment %d of %d: %s",
            self.directory.path,
            self.start_index,
            len(self.directory.segments),
            self.start_reason,
        )
        return list(range(self.start_index, self.stop_index))

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
            return 0, f"boundary {self.first_wanted} is below the window: only the batches before it can prove it"
        if self.witness_offset(window) is None:
            return 0, "no surviving snapshot after the window could prove it"
        return window, "the first segment within the expiration"

    def hands_out_at_once(self) -> bool:
        """Whether no boundary waits for later segments, as far as names and hints show; ``more`` asks for nothing then."""
        if self.resume_from is not None:
            return True
        return self.start()[0] == 0 and not (self.mode is ReplayFrom.AUTO and self._has_first_snapshot())

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
        bases = [segment.base_offset for segment in self.directory.segments]
        boundaries = set(bases[start_index + 1 :])
        least = bases[self.stop_index] if self.stop_index < len(bases) else bases[-1] + 1
        after = (at for at, _ in self.directory.snapshots if at >= least and (at in boundaries or at > bases[-1]))
        return next(after, None)

    def _has_first_snapshot(self) -> bool:
        first = self.directory.segments[0].base_offset if self.directory.segments else 0
        return first > 0 and self.directory.snapshot_at(first) is not None

    def checkpoint(self, state: BoundaryState) -> ReplayCheckpoint | None:
        """Where another replay may resume, at the boundary that is being handed out.

        None at the log end, and if this replay begins inside the log, which settles it as a whole.
        """
        segments = self.directory.segments
        index = bisect_left(segments, state.offset, key=lambda segment: segment.base_offset)
        if self._settles_as_a_whole() or index == len(segments) or segments[index].base_offset != state.offset:
            return None
        before = _base_and_identity(segments[index - 1])
        return ReplayCheckpoint(state.offset, state.replayed_from, before, state.prefix, self._base, deepcopy(self._record))

    def _settles_as_a_whole(self) -> bool:
        """Whether a part of it would not show what the whole shows."""
        return self.start_index > 0 and self.resume_from is None

    @property
    def trusted_base(self) -> np.ndarray | None:
        """Entries of the snapshot at the first offset, of ``ENTRY_DTYPE``, where the replay began from it; known at its end."""
        return None if self._base is None else entries_of(self._base)

    # ---------------------------------------------------------------------------------------------------------- taking segments

    def take(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """Takes the summary of segment ``index``, or its pieces in order; segments of one call of ``begin`` or ``more`` come in order."""
        if self._holds:
            held = self._held if index >= self.start_index else self._below
            held.setdefault(index, []).append(summary)
            return
        if self.given is not None and index == 0 and self._record.next_offset is None:
            yield self._given_state(self.given)
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
                self.start_index, self.start_reason = 0, f"extended back: {fault}"
                self._holds = self._has_first_snapshot()
                log.info("%s: replay extended back to the first segment: %s", self.directory.path, fault)
            return []
        # Half as far again each time: a transaction usually began a segment or two earlier, and a bad case must not read one by one.
        taken = len(self._held)
        start = max(self.start_index - max(taken // 2, 1), 0)
        log.info("%s: replay extended back from segment %d to %d: %s", self.directory.path, self.start_index, start, fault)
        wanted = list(range(start, self.start_index))
        self.start_index, self.start_reason = start, f"extended back: {fault}"
        if start == 0:
            # What follows can be handed out at once, and what was held back after it.
            self._holds = self._has_first_snapshot()
        return wanted

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
                self._base, reason = trusted_base(self.directory, self._held, self.clock)
                if self._base is None:
                    self._record.notes.append(reason)
                else:
                    self._prefix = RunningEffect(self._base)
            self._holds = False
            for index, summary in in_order(self._held):
                yield from self._advance(index, summary)
                if self.damage is not None:
                    return
        elif self._holds:
            yield from self._window_boundaries()

    def release(self) -> None:
        """Drops effects and summaries once every boundary was handed out: the tasks of all partitions live as long as the run."""
        self._prefix, self._held, self._below = RunningEffect(), {}, {}

    def _advance(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """The plain replay: add, look for failures, hand out."""
        if self.damage is not None:
            return
        self._take_facts(index, summary)
        closes = self._closes.followed_by(self._prefix.resolved(summary.effect.closes))
        # They are carried along from piece to piece of a segment, and no further.
        self._closes = NO_CLOSES if summary.cut_offset is None else closes
        self._prefix = prefix = self._prefix.then(summary.effect)
        if self._has_failed():
            return
        offset, is_log_end = boundary_after(self.directory.segments, index, summary)
        if offset is None or (self.given is not None and offset == self.directory.segments[0].base_offset):
            return
        first = self.directory.segments[0].base_offset if self.resume_from is None else self.resume_from.first_offset
        evidence, has_base = self._record.evidence(), self._base is not None
        is_complete_below = has_base if self.given is None else self.given.is_complete
        yield BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            prefix=prefix,
            replayed_from=first,
            is_complete=is_complete_below or first == 0,
            is_unsound=bool(evidence.unsound_reasons),
            segment=summary,
            closes=closes if summary.cut_offset is None else None,
            make_entries=lambda: entries_of(prefix.total()),
            make_judgement=lambda: self._judged(evidence.judge(prefix, starts_at_zero=first == 0, has_trusted_base=has_base)),
        )

    def _judged(self, judgement: Judgement) -> Judgement:
        if self.given is not None:
            return self.given.on_top(judgement)
        if self.remote_from is None or judgement.snapshot_class is not SnapshotClass.EXACT_FROM_LOG_START:
            return judgement
        first = self.directory.segments[0].base_offset
        reason = f"the log begins at {self.remote_from} in remote storage: the producers that wrote there, below {first}, are unknown here"
        return Judgement(SnapshotClass.UNPROVEN, (reason, *judgement.reasons))

    def _given_state(self, given: InitialState) -> BoundaryState:
        offset, prefix = self.directory.segments[0].base_offset, self._prefix
        return BoundaryState(
            offset=offset,
            is_log_end=len(self.directory.segments) == 1 and not self.directory.segments[0].size_bytes,
            prefix=prefix,
            replayed_from=offset,
            is_complete=given.is_complete,
            segment=SegmentSummary.unread(offset, 0),
            make_entries=lambda: entries_of(given.effect),
            make_judgement=lambda: given.judgement,
        )

    def _take_facts(self, index: int, summary: SegmentSummary) -> None:
        following = self.directory.segments[index + 1].base_offset if index + 1 < len(self.directory.segments) else None
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
        proof = self._found_proof()
        if self.mode is ReplayFrom.WINDOW and proof.fault is None and proof.shows_transactions(self.directory, self.start_index):
            return replace(proof, witness=IDENTITY, fault=NOT_LOOKED_BELOW)
        return proof

    def _found_proof(self) -> WindowProof:
        return prove_window(self.directory, self._held, self.witness_offset(self.start_index), self.clock)

    def _window_boundaries(self) -> Iterator[BoundaryState]:
        """Boundaries of a replay that began inside the log, proven or not, and those below it, which are not."""
        yield from self._below_window()
        proof = self._proof()
        for index, summary in in_order(self._held):
            yield from self._advance_in_window(index, summary, proof, self.start_index)
            if self.damage is not None:
                return

    def _advance_in_window(
        self, index: int, summary: SegmentSummary, proof: WindowProof, window_index: int
    ) -> Iterator[BoundaryState]:
        """Adds a segment of a window that begins with segment ``window_index``, and hands out."""
        self._take_facts(index, summary)
        self._prefix = prefix = self._prefix.then(summary.effect)
        if self._has_failed():
            return
        offset, is_log_end = boundary_after(self.directory.segments, index, summary)
        if offset is None:
            return
        evidence, settled = self._record.evidence(), cache(partial(proof.settled, prefix, self.clock))
        yield BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            prefix=prefix,
            replayed_from=self.directory.segments[window_index].base_offset,
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
                prefix=RunningEffect(),
                replayed_from=offset,
                segment=SegmentSummary.unread(unread.base_offset, unread.size_bytes),
                make_entries=lambda: entries_of(IDENTITY),
                make_judgement=lambda: judgement,
            )
