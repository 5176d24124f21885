"""Fates: what happens to a partition, a log directory or a broker at its next start."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from snaprebuild.findings import FindingCause, Severity
from snaprebuild.published import Part, one_of

__all__ = ["LEADER_EPOCHS_REMEDY", "TAKE_ANOTHER_REPLICA", "Fate", "FateKind", "StartFate", "worst_first"]

TAKE_ANOTHER_REPLICA = (
    "Copy the partition from a replica in sync, "
    "or, if another replica is in sync, remove the directory and let Kafka fetch it again"
)
"""The remedy for a replica that has lost records."""

LEADER_EPOCHS_REMEDY = (
    "Copy leader-epoch-checkpoint from a replica in sync while the broker is stopped, "
    "or, if another replica is in sync, remove the directory of this replica"
)


class FateKind(StrEnum):
    """The kind of a fate, the worst first."""

    NO_START = "no-start"
    """The broker exits, at each start."""
    FAILS_ONCE = "fails-once"
    """The broker exits once. The next start finds no marker of a clean stop, and recovers."""
    OFFLINE = "offline"
    """The log directory goes offline, or the broker exits if it is the only one."""
    EMPTIED = "emptied"
    """The log has records by its checkpoints, and is empty after the start."""
    RECORDS_CUT = "records-cut"
    """The start removes records below the high watermark: a recovery, or a shorter future copy that takes the place of the log."""
    END_LOST = "end-lost"
    """After a clean stop the log ends below its checkpoints."""
    STRAY_DELETED = "stray-deleted"
    """The broker deletes the log, because it is not in the metadata."""
    LEADING_DELETES_REMOTE = "leading-deletes-remote"
    """If this replica leads, Kafka deletes remote segments, because their leader epochs are not in the checkpoint."""
    STRAY = "stray"
    """The broker sets the directory aside, and an empty log takes its place."""
    CATCHES_UP = "catches-up"
    """After an unclean stop the log ends below its checkpoints, as one that was not flushed."""
    LEADER_EPOCHS_CUT = "leader-epochs-cut"
    """The last leader epochs are gone. If this replica leads, followers and remote storage get wrong epochs."""
    SNAPSHOTS_REMOVED = "snapshots-removed"
    """The broker rebuilds an index, and removes the snapshots above that segment."""
    SWAP_FINISHED = "swap-finished"
    """The broker finishes an interrupted compaction or split, and removes the snapshots inside of the new segment."""
    NO_LEADER_EPOCHS = "no-leader-epochs"
    """Batches of format 2 have no leader epoch, and nothing of the log was uploaded."""
    RECOVERED = "recovered"
    """After an unclean stop the broker recovers segments. What it loses is known only where all of them were read."""
    COPY_TAKES_OVER = "copy-takes-over"
    """A move between log directories ends: the future copy takes the place of the partition, which is deleted."""
    OLD_REPLICA = "old-replica"
    """An empty log, or one that belongs to another broker by now, is set aside."""

    @property
    def severity(self) -> Severity:
        """Severity of the finding about it."""
        return _SEVERITIES[self]

    @property
    def holds_broker(self) -> bool:
        """Whether ``before-start --fail-closed`` keeps the broker from its start, if no other replica is known to be in sync."""
        return self in _HOLDS

    @property
    def is_loss(self) -> bool:
        """Whether another replica in sync makes the start harmless. A broker that does not start has no such way out."""
        return self not in (FateKind.NO_START, FateKind.FAILS_ONCE)


_SEVERITIES = {
    FateKind.NO_START: Severity.DAMAGED,
    FateKind.FAILS_ONCE: Severity.DAMAGED,
    FateKind.OFFLINE: Severity.DAMAGED,
    FateKind.EMPTIED: Severity.DAMAGED,
    FateKind.RECORDS_CUT: Severity.DAMAGED,
    FateKind.END_LOST: Severity.DAMAGED,
    FateKind.STRAY_DELETED: Severity.DAMAGED,
    FateKind.LEADING_DELETES_REMOTE: Severity.DAMAGED,
    FateKind.STRAY: Severity.FINDING,
    FateKind.CATCHES_UP: Severity.FINDING,
    FateKind.LEADER_EPOCHS_CUT: Severity.FINDING,
    FateKind.SNAPSHOTS_REMOVED: Severity.FINDING,
    FateKind.SWAP_FINISHED: Severity.FINDING,
    FateKind.NO_LEADER_EPOCHS: Severity.FINDING,
    FateKind.RECOVERED: Severity.NOTE,
    FateKind.COPY_TAKES_OVER: Severity.NOTE,
    FateKind.OLD_REPLICA: Severity.NOTE,
}

_HOLDS = frozenset(
    (
        FateKind.NO_START,
        FateKind.FAILS_ONCE,
        FateKind.OFFLINE,
        FateKind.EMPTIED,
        FateKind.RECORDS_CUT,
        FateKind.END_LOST,
        FateKind.STRAY_DELETED,
        FateKind.LEADING_DELETES_REMOTE,
        FateKind.STRAY,
        FateKind.CATCHES_UP,
    )
)

_RANKS = {kind: rank for rank, kind in enumerate(FateKind)}


class StartFate(Part, frozen=True):
    """The effect of the next start of a broker on a partition, a log directory or the broker."""

    kind: FateKind
    severity: Annotated[str, one_of("note", "finding", "damaged")]
    subject: str
    """The topic-partition, or the path of a log directory."""
    path: str
    cause: str
    detail: str
    evidence: str
    """The files that show it."""
    age: str | None
    """How old the metadata log is that was used; null without one."""
    releases: str | None
    """Kafka releases with this fate; null for all that can start the broker."""
    log_line: str
    """The line that Kafka logs, or the exception that it throws."""
    remedy: str
    in_sync: tuple[int, ...]
    """Ids of the other replicas that are in sync, as far as a metadata log shows."""
    holds_broker: bool
    """`before-start --fail-closed` does not start the broker."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one partition, log directory or broker.

    Attributes:
        kind: what happens.
        code: of the finding (``findings_catalogue.toml``).
        subject: the topic-partition, or the path of a log directory.
        path: the directory concerned.
        other_paths: the other directories of the partition that it concerns: nothing is written into those either.
        cause: why, in words that are equal for equal causes: fates with one kind and cause are one finding.
        detail: what differs from partition to partition: offsets, counts. Empty if nothing does.
        evidence: the files that show it.
        age: how old the evidence is, if it is not read from this directory now ("metadata log ends at 12,345, 14:02Z"); else None.
        releases: the releases with this fate, such as ``3.3.0 to 3.6.2``; None if it is that of every release.
        log_line: a line that Kafka logs, or the name of what it throws.
        remedy: what an operator does.
        removed_snapshots: count of snapshots that the start removes.
        recovered_segments: base offsets of the segments whose ``.index`` the start makes anew, ascending.
        size_bytes: of the segments that the start recovers, or of what it cuts.
        log_end_offset: where the log ends; None where that is no part of the fate.
        reached_offset: where the log ended by its checkpoints; None where that is no part of the fate.
        leader_epoch: the first one that is left in the checkpoint; None where that is no part of the fate.
        in_sync: ids of the other replicas that are in sync by the metadata log; empty where none is known.
        finding_cause: of the finding.
        is_harmless: a note in this case, because nothing of the log is uploaded, or all records that go were deleted.
    """

    kind: FateKind
    code: str
    subject: str
    path: str
    other_paths: tuple[str, ...] = ()
    cause: str
    detail: str = ""
    evidence: str
    age: str | None = None
    releases: str | None = None
    log_line: str
    remedy: str
    removed_snapshots: int = 0
    recovered_segments: tuple[int, ...] = ()
    size_bytes: int = 0
    log_end_offset: int | None = None
    reached_offset: int | None = None
    leader_epoch: int | None = None
    in_sync: tuple[int, ...] = ()
    is_harmless: bool = False
    finding_cause: FindingCause | None = None

    @property
    def holds_broker(self) -> bool:
        """Whether ``before-start --fail-closed`` keeps the broker from its start because of it."""
        is_safe = self.is_harmless or (self.kind.is_loss and bool(self.in_sync))
        return self.kind.holds_broker and not is_safe

    @property
    def severity(self) -> Severity:
        """Severity of the finding about it."""
        return Severity.NOTE if self.is_harmless else self.kind.severity

    def document(self) -> StartFate:
        """The fate in documents."""
        return StartFate(
            kind=self.kind,
            severity=self.severity.name.lower(),
            subject=self.subject,
            path=self.path,
            cause=self.cause,
            detail=self.detail,
            evidence=self.evidence,
            age=self.age,
            releases=self.releases,
            log_line=self.log_line,
            remedy=self.remedy,
            in_sync=self.in_sync,
            holds_broker=self.holds_broker,
        )


def worst_first(fates: list[Fate]) -> list[Fate]:
    """The fates by their kind, the worst first; those of one kind keep their order."""
    return sorted(fates, key=lambda fate: _RANKS[fate.kind])
