"""The confidence in a rebuilt snapshot: its class, and the facts of a replay that decide it.

A class is a claim about one snapshot at one boundary. It is never better than its evidence: everything that was read below the boundary
counts, and what was not read is listed.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from formats.log.batch_headers import TailKind
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.segment_summary import SegmentSummary

__all__ = ["Damage", "Judgement", "ReplayEvidence", "ReplayRecord", "SnapshotClass"]

REASONS_LISTED_MAX = 10
"""Reasons that are listed. A compacted log of 10,000 segments has one in each segment, and as many boundaries."""


class SnapshotClass(Enum):
    """The confidence of a rebuilt snapshot."""

    EXACT = "EXACT"
    """Equal to a broker's own replay of the whole log. If the log begins above 0, equal to its replay of the retained log on the
    snapshot at the first offset. The log and later snapshots confirm every entry of it that is left."""
    EXACT_FROM_LOG_START = "EXACT_FROM_LOG_START"
    """Equal to a broker's recovery from the first retained offset; producers whose batches were all deleted are absent. It also has
    the entries of the snapshot at the first offset that the log or a later snapshot proves."""
    LOAD_EQUIVALENT = "LOAD_EQUIVALENT"
    """A broker that loads it now has the same state as from an EXACT one: only entries that it would drop are left out. If the log begins
    above 0, it includes those producers without retained batches that the snapshot used as evidence has."""
    SUPERSET_SAFE = "SUPERSET_SAFE"
    """Load-equivalent, with correct entries that have expired and that a broker drops when it loads them."""
    UNPROVEN = "UNPROVEN"
    """Probably correct; the bytes that would prove it were not read or are gone, or the log is not a legal one."""
    UNSOUND = "UNSOUND"
    """Built over damage, a gap or compacted data: it may be wrong."""

    @property
    def confidence(self) -> str:
        """The confidence in tables; documents have the class."""
        return _CONFIDENCE[self]

    @property
    def is_allowed_in_place(self) -> bool:
        """Whether it is written into a log directory by default."""
        return self.may_be_written(allow_unproven=False)

    @property
    def holds_for_an_expiration(self) -> bool:
        """Whether it was replayed from the window on: it has every live producer, also those whose batches were not read."""
        return self in (SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE)

    def may_be_written(self, *, allow_unproven: bool) -> bool:
        """Whether it may be written into a log directory; UNSOUND never."""
        return self is not SnapshotClass.UNSOUND and (allow_unproven or self is not SnapshotClass.UNPROVEN)


_CONFIDENCE = {
    SnapshotClass.EXACT: "proven",
    SnapshotClass.EXACT_FROM_LOG_START: "usable",
    SnapshotClass.LOAD_EQUIVALENT: "usable",
    SnapshotClass.SUPERSET_SAFE: "usable",
    SnapshotClass.UNPROVEN: "unproven",
    SnapshotClass.UNSOUND: "do not use",
}


class Judgement(msgspec.Struct, frozen=True):
    """The class of one snapshot, and the reasons."""

    snapshot_class: SnapshotClass
    reasons: tuple[str, ...]

    def as_load_equivalent(self, reason: str) -> Judgement:
        """The judgement of entries that lack some which a broker drops when it loads them.

        Args:
            reason: why they are the same for a broker, as the first of the reasons.
        """
        return Judgement(SnapshotClass.LOAD_EQUIVALENT, (reason, *self.reasons))


class Damage(msgspec.Struct, frozen=True):
    """Where a broker would throw or stop: no boundary above ``offset`` can be made."""

    offset: int
    reason: str


class ReplayEvidence(msgspec.Struct, frozen=True):
    """The evidence of a replay up to one boundary, without the state there.

    Attributes:
        unsound_reasons: reasons for UNSOUND, at most ``REASONS_LISTED_MAX`` and one that counts the rest.
        notes: facts for the reader that change no class.
    """

    unsound_reasons: tuple[str, ...]
    notes: tuple[str, ...]

    def judge(self, state: RunningEffect, *, starts_at_zero: bool, has_trusted_base: bool) -> Judgement:
        """The class of ``state``, replayed from the first segment on disk or a trusted snapshot. Composes it unless it is UNSOUND."""
        if self.unsound_reasons:
            return Judgement(SnapshotClass.UNSOUND, (*self.unsound_reasons, *self.notes))
        total = state.total()
        if total.epoch_decreased.any():
            producer = int(total.producer_id[total.epoch_decreased][0])
            reason = f"the epoch of producer {producer} went down: Kafka's two replay paths may differ there"
            return Judgement(SnapshotClass.UNPROVEN, (reason, *self.notes))
        if starts_at_zero:
            return Judgement(SnapshotClass.EXACT, ("every batch from offset 0 was replayed", *self.notes))
        if has_trusted_base:
            reason = (
                "every retained batch was replayed on the snapshot at the first offset, which the log and later snapshots confirm"
            )
            return Judgement(SnapshotClass.EXACT, (reason, *self.notes))
        reason = "every retained batch was replayed; what was deleted before them is not known"
        return Judgement(SnapshotClass.EXACT_FROM_LOG_START, (reason, *self.notes))


class ReplayRecord(msgspec.Struct):
    """The evidence of the segments of a replay so far, in log order.

    Attributes:
        next_offset: end of what was read.
        damage: what ended the replay, if anything did.
        unsound_reasons: reasons for UNSOUND, in the order in which they were found.
        unsound_reason_at_cut: another one, only for the cut at the end of the newest piece: the next piece counts the gap again.
        notes: facts for the reader that change no class.
        bad_crc_count: batches with a wrong checksum.
        missing_offsets: offsets that no batch covers.
        absence: where these are not, in words.
    """

    next_offset: int | None = None
    damage: Damage | None = None
    unsound_reasons: list[str] = msgspec.field(default_factory=list)
    unsound_reason_at_cut: str | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    bad_crc_count: int = 0
    missing_offsets: int = 0
    absence: str = "not on disk (compacted or deleted)"

    def take(self, summary: SegmentSummary, *, is_last: bool, path: str, following: int | None = None, known_end: int = 0) -> None:
        """Adds the next segment or piece of one.

        Args:
            summary: of the segment; after a piece that ends at a cut the rest of its segment follows, whatever the other arguments
                are.
            is_last: of the log.
            path: of the segment, for messages.
            following: base offset of the next segment, None for the last.
            known_end: the log certainly reaches this offset: a last segment whose batches end before it is damaged, not torn.
        """
        self._take_cut(summary)
        if summary.cut_offset is not None:
            following = None
            is_last = False
        self._take_order(summary, following)
        if summary.facts.bad_crc_count:
            self.bad_crc_count += summary.facts.bad_crc_count
            position, offset = summary.facts.bad_crc[0]
            more = f" (and {summary.facts.bad_crc_count - 1} more)" if summary.facts.bad_crc_count > 1 else ""
            self.unsound_reasons.append(f"{path}, byte {position}: the checksum of the batch at offset {offset} differs{more}")
        if summary.facts.partial_batches:  # markers without their record are among them
            batches = f"batches that lost records: {summary.facts.partial_batches}"
            markers = f"markers that are gone: {summary.facts.empty_control_batches}"
            self.unsound_reasons.append(f"segment {summary.base_offset} was compacted: {batches}; {markers}")
        self._take_tail(summary, may_be_torn=is_last and summary.facts.next_offset >= known_end)
        self.next_offset = max(summary.facts.next_offset, summary.base_offset, following or 0)

    def _take_cut(self, summary: SegmentSummary) -> None:
        needed = summary.cut_offset if summary.cut_batch_offset is None else summary.cut_batch_offset
        self.unsound_reason_at_cut = None
        if needed is not None and summary.facts.next_offset < needed:
            self.unsound_reason_at_cut = f"no batch ends at {needed}: the last one below it ends at {summary.facts.next_offset}"

    def _take_order(self, summary: SegmentSummary, following: int | None) -> None:
        missing = summary.facts.missing_offsets  # a gap before the segment was reported at the boundary below it
        if missing:
            self.missing_offsets += missing
            start = summary.base_offset if self.next_offset is None else self.next_offset
            self.unsound_reasons.append(f"{missing} offsets between {start} and {summary.facts.next_offset} are {self.absence}")
        if summary.facts.disorder_offset is not None:
            self.unsound_reasons.append(f"the batch at offset {summary.facts.disorder_offset} does not follow the one before it")
        end = max(summary.facts.next_offset, summary.base_offset)
        if following is not None and following > end:
            # A lost or shortened end. A follower may also roll ahead of its log end; nothing on disk shows the difference.
            self.missing_offsets += following - end
            self.unsound_reasons.append(f"{following - end} offsets between {end} and {following} are {self.absence}")
        if following is not None and following < summary.facts.next_offset:
            # Reported with the earlier segment: the state at the boundary between them already has what is after it.
            self.unsound_reasons.append(
                f"segment {summary.base_offset} ends at {summary.facts.next_offset}, above the base {following} of the next one"
            )

    def _take_tail(self, summary: SegmentSummary, *, may_be_torn: bool) -> None:
        tail = summary.tail
        if tail.kind is TailKind.CLEAN:
            return
        torn = tail.kind in (TailKind.TORN, TailKind.ZERO_FILLED)
        if torn and may_be_torn:
            self.notes.append(f"the last segment ends with {tail.kind.value.replace('_', '-')} bytes: {tail.error}")
            return
        # In other segments even a torn end means that batches after it are gone.
        self.damage = self.damage or Damage(summary.facts.next_offset, str(tail.error))

    def evidence(self) -> ReplayEvidence:
        """The evidence at the end of what was taken."""
        at_cut = [] if self.unsound_reason_at_cut is None else [self.unsound_reason_at_cut]
        reasons = [*self.unsound_reasons, *at_cut]
        more = len(reasons) - REASONS_LISTED_MAX
        listed = [*reasons[:REASONS_LISTED_MAX], *([f"and {more} more"] if more > 0 else [])]
        return ReplayEvidence(tuple(listed), tuple(self.notes))
