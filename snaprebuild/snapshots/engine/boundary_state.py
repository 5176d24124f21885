"""The producer state at one boundary of a replay, with its class; the same on the snapshot at the first offset; where a replay resumes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from snaprebuild.findings import pluralize
from snaprebuild.replay.base_verdict import BaseState, BaseVerdict, named_ids
from snaprebuild.replay.classes import Judgement, ReplayEvidence, ReplayRecord, SnapshotClass
from snaprebuild.replay.segment_effect import ClosedTransactions, RunningEffect, SegmentEffect, compose, effect_of_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity

__all__ = [
    "BaseBoundary",
    "BoundaryState",
    "InitialState",
    "ReplayCheckpoint",
    "base_and_identity",
    "boundary_on_base",
]


class BaseBoundary(msgspec.Struct, frozen=True, eq=False):
    """What a boundary has of the snapshot at the first offset.

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
    """What the boundary at an offset has of the snapshot at the first offset.

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
        """It is inside a segment: no snapshot is due here."""
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
