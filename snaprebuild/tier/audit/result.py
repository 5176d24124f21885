"""What an audit tells: of each copy the verdict on its snapshot, of each partition what was read, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from snaprebuild.findings import Finding
from snaprebuild.replay.difference import Comparison, Difference, SnapshotStatus
from snaprebuild.storage.remote.listing import TierCopy, TierLayout
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshot
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.levels import AuditLevel

__all__ = ["WRONG", "AuditedCopy", "AuditedPartition", "TierAudit", "Verdict", "verdict_of"]


class Verdict(StrEnum):
    """What the snapshot of a copy is."""

    RIGHT = "right"
    """Equal, or different only in what a broker drops when it loads it."""
    UNPROVEN = "unproven"
    """Nothing contradicts it, and nothing proves it: what would is not in remote storage, or was not read."""
    SUSPECT = "suspect"
    """Nothing was replayed, and it does not go with the snapshots beside it."""
    FALSE_EMPTY = "false-empty"
    ZERO_BYTES = "zero-bytes"
    """A broker takes it, and starts without producers."""
    CORRUPT = "corrupt"
    MISSING_PRODUCERS = "missing-producers"
    WRONG = "wrong"
    """It holds what the log contradicts: an older state, or producers that never were."""
    UNREACHABLE = "unreachable"
    """No follower starts from it any more; it was not read."""
    REACH_UNKNOWN = "reach-unknown"
    """Whether a follower may start from it is unknown, because the local log start offset is; it was not read."""
    NOT_READ = "not-read"
    """Its copy is not among those that follow one another, or the replay did not come to it."""


WRONG = (Verdict.FALSE_EMPTY, Verdict.ZERO_BYTES, Verdict.CORRUPT, Verdict.MISSING_PRODUCERS, Verdict.WRONG)


@dataclass(slots=True)
class AuditedCopy:
    """A copy.

    Attributes:
        segment_id: 16 bytes.
        start_offset: of the segment.
        end_offset: last offset; None where nothing tells.
        stored_bytes: of its objects.
        verdict: on its snapshot.
        why: in words.
        entries: of the snapshot; None where it was not read.
        expected_entries: by replay; likewise.
        differences: producers that differ, the certain ones first, at most 1,000; each with what a follower that starts from the snapshot
            would do.
        difference_count: all of them.
        copy: its objects.
        proven: the right snapshot, where this one is wrong, the log proves another one, and somebody asked for that.
        unproven: why there is none, where somebody asked.
    """

    segment_id: bytes
    start_offset: int
    end_offset: int | None
    stored_bytes: int
    verdict: Verdict = Verdict.NOT_READ
    why: str = ""
    entries: int | None = None
    expected_entries: int | None = None
    differences: tuple[Difference, ...] = ()
    difference_count: int = 0
    copy: TierCopy | None = None
    proven: ProvenSnapshot | None = None
    unproven: str = "the replay has no state at its end"

    def not_read(self, why: str) -> None:
        """Says why, unless its size alone has settled the verdict."""
        if self.verdict is Verdict.NOT_READ:
            self.why = why

    def take(self, comparison: Comparison) -> None:
        """What a replay says of its snapshot."""
        self.verdict, self.why = verdict_of(comparison), comparison.reason
        self.entries, self.expected_entries = comparison.found_entries, comparison.expected_entries
        self.differences, self.difference_count = comparison.differences, comparison.difference_count


@dataclass(slots=True)
class AuditedPartition:
    """A partition.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        layout: of its objects.
        copies: that are live, or complete where nobody tells; by start offset.
        bytes_read: of segments.
        replayed_from: base offset of the first segment that was to be read; None where none was.
        local_log_start: first offset on the leader's disk, as it was told; None where it was not.
        is_verified: a metadata log that could be read whole told which copies are live.
        damaged_at: the least offset at which an object is damaged or could not be read; None where none is.
    """

    topic: str
    topic_id: bytes
    partition: int
    layout: TierLayout
    copies: list[AuditedCopy]
    bytes_read: int = 0
    replayed_from: int | None = None
    local_log_start: int | None = None
    is_verified: bool = False
    damaged_at: int | None = None

    def damaged(self, offset: int | None) -> None:
        """That an object is, or could not be read; an offset that nobody tells may be any."""
        at = 0 if offset is None else offset
        self.damaged_at = at if self.damaged_at is None else min(at, self.damaged_at)

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class TierAudit:
    """A store.

    Attributes:
        root: its location.
        level: how much was read.
        has_metadata: a metadata log told which copies are live.
        partitions: in the order of the store.
        findings: what is wrong.
        cost: what was to be read, beside the manifests; None where it did not come to that.
    """

    root: str
    level: AuditLevel
    has_metadata: bool
    partitions: list[AuditedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    cost: AuditCost | None = None


_VERDICTS = {
    SnapshotStatus.EQUAL: Verdict.RIGHT,
    SnapshotStatus.EQUAL_AFTER_EXPIRY: Verdict.RIGHT,
    SnapshotStatus.UNVERIFIABLE: Verdict.UNPROVEN,
    SnapshotStatus.EXTRA: Verdict.WRONG,
    SnapshotStatus.MISSING_ENTRIES: Verdict.MISSING_PRODUCERS,
    SnapshotStatus.STALE: Verdict.WRONG,
    SnapshotStatus.FALSE_EMPTY: Verdict.FALSE_EMPTY,
    SnapshotStatus.CORRUPT: Verdict.CORRUPT,
}


def verdict_of(comparison: Comparison) -> Verdict:
    """What a snapshot is that was held against a replay."""
    found = _VERDICTS[comparison.status]
    return Verdict.UNPROVEN if found in WRONG and not comparison.proven_wrong else found
