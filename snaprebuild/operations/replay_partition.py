"""The replay of one partition: segments in, the state at each boundary out, with its class.

A ``PartitionReplay`` names the segments that it needs and takes their summaries in order; who reads them, and how many at once, is the
scheduler's business. Replays that begin at the first segment hand each boundary out at once and keep nothing else. Those that must first
be proven by something that lies behind (a window, or a snapshot at the first offset) hold the summaries back until it is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from formats.batch_headers import Tail, TailKind
from formats.errors import FormatError
from formats.producer_snapshot import read_entries
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.classes import Damage, Judgement, ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, TransactionCloses, compose, effect_of_entries, entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.transactions import completed_in
from snaprebuild.replay.window import expired_mask, same_when_loaded, settle, witness_fault
from snaprebuild.storage.log_dir import read_small_file
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles

__all__ = ["BoundaryState", "Clock", "PartitionReplay", "ReplayFrom", "read_snapshot_file"]

log = logging.getLogger(__name__)


class ReplayFrom(StrEnum):
    """Where replay begins (``--replay-from``)."""

    AUTO = "auto"
    """At the window; further back as long as the evidence asks for it."""
    WINDOW = "window"
    """At the window, and never before it; what is not proven is said."""
    LOG_START = "log-start"
    """At the first segment on disk with empty state, whatever checkpoints or snapshots say."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The moment for which expiry is judged, ms since 1970, and the expiration, ms."""

    as_of_ms: int
    expiration_ms: int


@dataclass(frozen=True, slots=True)
class BoundaryState:
    """The producer state at one boundary.

    Attributes:
        offset: the boundary.
        is_log_end: it is the log end offset.
        entries: of ``ENTRY_DTYPE``, sorted by producer id, nothing filtered.
        judgement: class and reasons.
        effect: the prefix from the first replayed segment (on a trusted base where there is one), without closes.
        is_complete: nothing before the replay is unknown: it began at offset 0 or on a trusted snapshot.
        segment: the segment that ends here.
        completed: transactions that this segment completed; None where the replay cannot tell (it began inside the log).
    """

    offset: int
    is_log_end: bool
    entries: np.ndarray
    judgement: Judgement
    effect: SegmentEffect
    is_complete: bool
    segment: SegmentSummary
    completed: TransactionCloses | None


def read_snapshot_file(directory: PartitionDir, offset: int) -> np.ndarray | None:
    """Entries of the snapshot at an offset, or None where there is none.

    Raises:
        FormatError: it does not parse.
        ReadFailedError: it cannot be read.
    """
    listed = directory.snapshot_at(offset)
    if listed is None:
        return None
    path = directory.file_path(listed.name)
    data = read_small_file(path, bytes_max=listed.identity.size_bytes + 1)
    return None if data is None else read_entries(data, file=path)


def _readable_snapshot(directory: PartitionDir, offset: int) -> np.ndarray | None:
    """The same for evidence: what cannot be read, or cannot be true, is no evidence."""
    try:
        entries = read_snapshot_file(directory, offset)
    except (FormatError, ReadFailedError):
        return None
    return None if entries is None or impossible_entries(entries, offset) is not None else entries


@dataclass(slots=True)
class PartitionReplay:
    """Replays a partition.

    Attributes:
        directory: the listing.
        mode: where to begin.
        clock: for expiry.
        window_index: first segment of the window (``replay.window.window_start``).
        stop_index: segments from here on are not needed.
        first_wanted: the least boundary that is wanted.
        damage: set when the replay ended before its time.
        start_index: first segment of the replay as it turned out.
        start_reason: why there.
    """

    directory: PartitionDir
    mode: ReplayFrom
    clock: Clock
    window_index: int
    stop_index: int
    first_wanted: int
    damage: Damage | None = None
    start_index: int = 0
    start_reason: str = ""
    _record: ReplayRecord = field(default_factory=ReplayRecord)
    _prefix: SegmentEffect = IDENTITY
    _held: dict[int, SegmentSummary] = field(default_factory=dict)
    _holds: bool = False
    _base: SegmentEffect | None = None
    _next: int = 0
    _pending: list[int] = field(default_factory=list)

    def begin(self) -> list[int]:
        """Indices of the segments that are needed first, in order."""
        self.start_index, self.start_reason = self._start()
        if self.mode is ReplayFrom.AUTO and self.start_index == 0:
            self._holds = self._has_first_snapshot()
        elif self.start_index > 0:
            self._holds = True
        self._next = self.start_index
        log.info(
            "%s: replay begins at segment %d of %d: %s",
            self.directory.path,
            self.start_index,
            len(self._segments),
            self.start_reason,
        )
        return list(range(self.start_index, self.stop_index))

    @property
    def _segments(self) -> tuple[SegmentFiles, ...]:
        return self.directory.segments

    def _start(self) -> tuple[int, str]:
        if self.mode is ReplayFrom.LOG_START:
            return 0, "asked for: the first segment on disk"
        window = min(self.window_index, self.stop_index)
        if window == 0:
            return 0, "the window reaches to the first segment on disk"
        if self.mode is ReplayFrom.WINDOW:
            return window, "asked for: the first segment within the expiration"
        if self.first_wanted <= self._segments[min(window, len(self._segments) - 1)].base_offset:
            return 0, f"boundary {self.first_wanted} lies below the window: only the batches before it can prove it"
        if self._witness_offset(window) is None:
            return 0, "no surviving snapshot behind the window could prove it"
        return window, "the first segment within the expiration"

    def _witness_offset(self, start_index: int) -> int | None:
        """The least surviving snapshot at or behind everything that is wanted, which may speak for the window."""
        bases = [segment.base_offset for segment in self._segments]
        wanted_end = bases[self.stop_index] if self.stop_index < len(bases) else None
        for offset, _ in self.directory.snapshots:
            at_boundary = offset in bases[start_index + 1 :] or offset > bases[-1]
            if at_boundary and (offset >= wanted_end if wanted_end is not None else offset > bases[-1]):
                return offset
        return None

    def _has_first_snapshot(self) -> bool:
        first = self._segments[0].base_offset
        return first > 0 and self.directory.snapshot_at(first) is not None

    # ---------------------------------------------------------------------------------------------------------- taking segments

    def take(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """Takes the summary of segment ``index``; segments of one call of ``begin`` or ``more`` come in order."""
        if self._holds:
            self._held[index] = summary
            return
        yield from self._advance(index, summary)

    def more(self) -> list[int]:
        """Called when everything asked for was taken: further segments that the evidence asks for, lowest first; empty at the end."""
        if not self._holds or self.mode is not ReplayFrom.AUTO or self.start_index == 0:
            return []
        fault = self._window_fault()
        if fault is None:
            return []
        # Twice as far each time: a transaction usually began a segment or two earlier, and a bad case must not read one by one.
        taken = len(self._held)
        start = max(self.start_index - max(taken // 2, 1), 0)
        log.info("%s: replay extended back from segment %d to %d: %s", self.directory.path, self.start_index, start, fault)
        wanted = list(range(start, self.start_index))
        self.start_index, self.start_reason = start, f"extended back: {fault}"
        if start == 0:
            self._holds = self._has_first_snapshot()
            if not self._holds:
                self._pending = sorted(self._held)
        return wanted

    def finish(self) -> Iterator[BoundaryState]:
        """The boundaries that were held back, once no more segments are needed."""
        if self._pending or (self._holds and self.start_index == 0):
            if self._holds:
                self._base = self._trusted_base()
            self._holds = False
            for index in sorted(self._held):
                yield from self._advance(index, self._held[index])
                if self.damage is not None:
                    return
        elif self._holds:
            yield from self._window_boundaries()

    def _advance(self, index: int, summary: SegmentSummary) -> Iterator[BoundaryState]:
        """The plain replay: compose, judge, hand out."""
        if self.damage is not None:
            return
        if self._base is not None and index == 0:
            self._prefix = self._base
        is_last = index == len(self._segments) - 1
        self._record.take(summary, is_last=is_last, path=self.directory.file_path(self._segments[index].log.name))
        completed = completed_in(self._prefix, summary.effect.closes)
        self._prefix = compose(self._prefix, summary.effect).without_closes()
        if self._has_failed():
            return
        offset, is_log_end = self._boundary_after(index, summary)
        if offset is None:
            return
        judgement = self._record.judge(
            self._prefix, starts_at_zero=self._segments[0].base_offset == 0, has_trusted_base=self._base is not None
        )
        yield BoundaryState(
            offset=offset,
            is_log_end=is_log_end,
            entries=entries_of(self._prefix),
            judgement=judgement,
            effect=self._prefix,
            is_complete=self._base is not None or self._segments[0].base_offset == 0,
            segment=summary,
            completed=completed,
        )

    def _has_failed(self) -> bool:
        self.damage = self._record.damage
        failure = self._prefix.failure_offset
        if failure is not None and (self.damage is None or failure < self.damage.offset):
            reason = "a data batch outside of the transaction that its producer has open: InvalidTxnStateException on every broker"
            self.damage = Damage(failure, f"offset {failure}: {reason}")
        return self.damage is not None

    def _boundary_after(self, index: int, summary: SegmentSummary) -> tuple[int | None, bool]:
        """The base offset of the next segment, or the log end; None where that is no boundary of its own."""
        if index + 1 < len(self._segments):
            following = self._segments[index + 1].base_offset
            # An empty last segment: its base offset is the log end.
            return following, index + 2 == len(self._segments) and self._segments[index + 1].size_bytes == 0
        if summary.batches == 0 and ((index > 0 and summary.size_bytes == 0) or summary.next_offset == 0):
            return None, True
        return summary.next_offset, True

    # ---------------------------------------------------------------------------------------------------------- a trusted base

    def _trusted_base(self) -> SegmentEffect | None:
        """The snapshot at the first base offset, if at least one later snapshot exists and all of them are reproduced from it."""
        first = self._segments[0].base_offset
        entries = _readable_snapshot(self.directory, first)
        if entries is None or not len(entries):
            self._record.notes.append(f"the snapshot at the first offset {first} is empty or unreadable and adds nothing")
            return None
        base = effect_of_entries(entries)
        prefix, confirmed = base, 0
        for index in sorted(self._held):
            prefix = compose(prefix, self._held[index].effect).without_closes()
            offset, _ = self._boundary_after(index, self._held[index])
            listed = None if offset is None else _readable_snapshot(self.directory, offset)
            if listed is None:
                continue
            if not same_when_loaded(entries_of(prefix), listed, self.clock.as_of_ms, self.clock.expiration_ms):
                self._record.notes.append(
                    f"the snapshot at the first offset {first} does not lead to the one at {offset}: not used"
                )
                return None
            confirmed += 1
        if not confirmed:
            self._record.notes.append(f"no later snapshot confirms the one at the first offset {first}: not used")
            return None
        return base

    # ---------------------------------------------------------------------------------------------------------- the window

    def _window_states(self) -> tuple[list[tuple[int, SegmentEffect]], SegmentEffect]:
        """(segment index, prefix from the window to its end) of each segment, and the total up to the witness."""
        prefix = IDENTITY
        states = []
        for index in sorted(self._held):
            prefix = compose(prefix, self._held[index].effect).without_closes()
            states.append((index, prefix))
        return states, prefix

    def _witness(self) -> tuple[SegmentEffect | None, str | None]:
        """The snapshot behind the window as an effect, or why there is none."""
        offset = self._witness_offset(self.start_index)
        entries = None if offset is None else _readable_snapshot(self.directory, offset)
        if offset is None or entries is None:
            return None, "no readable snapshot behind the window"
        states, total = self._window_states()
        last_index = states[-1][0]
        end, _ = self._boundary_after(last_index, self._held[last_index])
        if end != offset:
            return None, f"the snapshot at {offset} lies behind what was replayed, which ends at {end}"
        witness = effect_of_entries(entries)
        fault = witness_fault(total, witness, self.clock.as_of_ms, self.clock.expiration_ms)
        return (None, fault) if fault is not None else (witness, None)

    def _window_fault(self) -> str | None:
        """What keeps the window from being proof, or None."""
        if not self._held:
            return "nothing lies inside the window"
        damaged = self._window_damage()
        if damaged is not None:
            return damaged
        witness, fault = self._witness()
        if witness is None:
            return fault
        states, total = self._window_states()
        for index, prefix in states:
            offset, _ = self._boundary_after(index, self._held[index])
            if offset is not None and offset >= self.first_wanted:
                gaps = settle(prefix, total, witness).gaps
                if gaps:
                    return f"producer {gaps[0].producer_id}: {gaps[0].reason}"
        return None

    def _window_damage(self) -> str | None:
        record = ReplayRecord()
        for index in sorted(self._held):
            record.take(self._held[index], is_last=index == len(self._segments) - 1, path=self._segments[index].log.name)
        if record.damage is not None:
            return record.damage.reason
        return record.doubts[0] if record.doubts else None

    def _window_boundaries(self) -> Iterator[BoundaryState]:
        """Boundaries of a replay that began inside the log, proven or not, and those below it, which are not."""
        yield from self._below_window()
        if not self._held:
            return
        witness, fault = self._witness()
        states, total = self._window_states()
        for index, prefix in states:
            summary = self._held[index]
            is_last = index == len(self._segments) - 1
            self._record.take(summary, is_last=is_last, path=self.directory.file_path(self._segments[index].log.name))
            self._prefix = prefix
            if self._has_failed():
                return
            offset, is_log_end = self._boundary_after(index, summary)
            if offset is None:
                continue
            entries, judgement = self._judge_window(prefix, total, witness, fault)
            yield BoundaryState(offset, is_log_end, entries, judgement, prefix, False, summary, None)

    def _judge_window(
        self, prefix: SegmentEffect, total: SegmentEffect, witness: SegmentEffect | None, fault: str | None
    ) -> tuple[np.ndarray, Judgement]:
        if witness is None:
            settled = settle(prefix, total, IDENTITY)
            reasons = [f"nothing proves what lies below the window: {fault}"]
            klass = SnapshotClass.UNSOUND if settled.gaps else SnapshotClass.UNPROVEN
        else:
            settled = settle(prefix, total, witness)
            reasons = [] if settled.gaps else ["the snapshot behind the window confirms the replay, and no gap is left below it"]
            has_expired = bool(expired_mask(settled.entries, self.clock.as_of_ms, self.clock.expiration_ms).any())
            klass = SnapshotClass.SUPERSET_SAFE if has_expired else SnapshotClass.LOAD_EQUIVALENT
            if settled.gaps:
                klass = SnapshotClass.UNSOUND
        reasons += [f"producer {gap.producer_id}: {gap.reason}" for gap in settled.gaps[:10]]
        if len(settled.gaps) > 10:
            reasons.append(f"and {len(settled.gaps) - 10} more")
        judged = self._record.judge(prefix, starts_at_zero=True, has_trusted_base=False)
        if judged.snapshot_class in (SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND):
            klass = SnapshotClass.UNSOUND if SnapshotClass.UNSOUND in (klass, judged.snapshot_class) else SnapshotClass.UNPROVEN
            reasons += judged.reasons
        else:
            reasons += self._record.notes
        return settled.entries, Judgement(klass, tuple(reasons))

    def _below_window(self) -> Iterator[BoundaryState]:
        """Everything below is older than the expiration; whether a transaction is open there nobody has looked."""
        reason = "older than the expiration and not replayed: empty, unless a transaction was open here, which only its batches would tell"
        judgement = Judgement(SnapshotClass.UNPROVEN, (reason,))
        for index in range(1, min(self.start_index, len(self._segments) - 1) + 1):
            offset = self._segments[index].base_offset
            empty = _unread(self._segments[index - 1])
            yield BoundaryState(offset, False, entries_of(IDENTITY), judgement, IDENTITY, False, empty, None)


def _unread(segment: SegmentFiles) -> SegmentSummary:
    """A stand-in for a segment that was not read."""
    return SegmentSummary(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        batches=0,
        first_offset=None,
        next_offset=segment.base_offset,
        max_timestamp=-1,
        effect=IDENTITY,
        tail=Tail(TailKind.CLEAN, 0),
        crc_checked=False,
        bad_crc_count=0,
        bad_crc=(),
        missing_offsets=0,
        partial_batches=0,
        empty_control_batches=0,
        disorder_offset=None,
        legacy_batches=0,
        producer_batches=0,
        transactional_batches=0,
        bytes_read=0,
    )
