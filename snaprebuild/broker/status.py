"""The one answer of a command about directories: the fates of the next start, and the counts of everything else, the worst first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from snaprebuild.broker.fates import Fate, FateKind, worst_first
from snaprebuild.findings import Finding, FindingCause, Severity, first_of, pluralize
from snaprebuild.published import Natural, Part

__all__ = [
    "FateGroup",
    "JudgedStart",
    "SnapshotFaults",
    "Status",
    "StatusCounts",
    "StatusWord",
    "counted_status",
    "fate_groups",
    "findings_of",
    "snapshot_faults",
    "status_of",
    "total_counts",
    "word_of",
    "word_with_findings",
]

NAMES_MAX = 3


class StatusWord(StrEnum):
    """The worst of what a command reports, in the order of its answer."""

    FATE = "fate"
    DAMAGED = "damaged"
    WRONG = "wrong"
    SUSPECT = "suspect"
    MISSING = "missing"
    FINDING = "finding"
    """A finding that is in no count, such as a bootstrap that never ends."""
    WAITING = "waiting"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


class StatusCounts(Part, frozen=True):
    """The counts of a first line."""

    fates: Natural = 0
    """Causes of what the next start does, each with one or many partitions; without notes."""
    topics_without_id: Natural = 0
    """Topics that Kafka would upload under topic id zero."""
    wrong: Natural = 0
    """Snapshots that are proven wrong, or do not parse."""
    suspect: Natural = 0
    """Snapshots that parse but cannot be correct; 0 where snapshots are compared with a replay."""
    missing: Natural = 0
    """Boundaries that need a snapshot and have none."""
    waiting: Natural = 0
    """Rolled segments that are uploaded later, without any action: at least as many."""
    waiting_unknown: Natural = 0
    """Rolled segments of which it is unknown whether they wait."""
    unread: Natural = 0
    """Paths that were not read, or not to their end."""
    damaged: Natural = 0
    """Copies of segments in remote storage that lack objects, or whose objects contradict each other or the metadata log."""
    unproven: Natural = 0
    """Snapshots in remote storage, or replicas, that were to be judged and that nothing proves right or wrong."""


class FateGroup(msgspec.Struct, frozen=True):
    """Fates with one kind and one cause."""

    fates: tuple[Fate, ...]

    @property
    def first(self) -> Fate:
        """The one that a sentence describes."""
        return self.fates[0]

    @property
    def kind(self) -> FateKind:
        """The kind of the fates."""
        return self.first.kind

    @property
    def severity(self) -> Severity:
        """Severity of its worst finding."""
        return max(fate.severity for fate in self.fates)


class Status(msgspec.Struct, frozen=True):
    """The one answer of a command.

    Attributes:
        groups: fates by kind and cause, the worst first.
        wrong: snapshots that are proven wrong, or do not parse.
        suspect: snapshots that cannot be correct.
        missing: boundaries that need a snapshot and have none.
        waiting: rolled segments that are uploaded later, without any action.
        unread: paths that were not read.
        waiting_unknown: rolled segments of which it is unknown whether they wait.
        topics_without_id: names of the topics that Kafka would upload under topic id zero.
        deleted: partitions that their broker deleted during the run.
        damaged: copies in remote storage that cannot be read whole.
        unproven: snapshots in remote storage, or replicas, that nothing proves right or wrong.
    """

    groups: tuple[FateGroup, ...]
    wrong: int
    suspect: int
    missing: int
    waiting: int
    unread: int
    waiting_unknown: int = 0
    topics_without_id: tuple[str, ...] = ()
    deleted: int = 0
    damaged: int = 0
    unproven: int = 0

    @property
    def concerns(self) -> tuple[FateGroup, ...]:
        """The groups that are more than a note."""
        return tuple(group for group in self.groups if group.severity is not Severity.NOTE)

    @property
    def counts(self) -> StatusCounts:
        """The numbers of the first line, as documents and metrics have them."""
        return StatusCounts(
            fates=len(self.concerns),
            topics_without_id=len(self.topics_without_id),
            wrong=self.wrong,
            suspect=self.suspect,
            missing=self.missing,
            waiting=self.waiting,
            waiting_unknown=self.waiting_unknown,
            unread=self.unread,
            damaged=self.damaged,
            unproven=self.unproven,
        )

    @property
    def word(self) -> StatusWord:
        """The worst of all."""
        return word_of(self.counts)


def word_of(counts: StatusCounts) -> StatusWord:
    """The worst of what is counted."""
    for word, count in (
        (StatusWord.FATE, counts.fates + counts.topics_without_id),
        (StatusWord.DAMAGED, counts.damaged),
        (StatusWord.WRONG, counts.wrong),
        (StatusWord.SUSPECT, counts.suspect),
        (StatusWord.MISSING, counts.missing),
        (StatusWord.WAITING, counts.waiting + counts.waiting_unknown),
        (StatusWord.UNKNOWN, counts.unread + counts.unproven),
    ):
        if count:
            return word
    return StatusWord.HEALTHY


def word_with_findings(word: StatusWord, exit_code: int) -> StatusWord:
    """The word of a result with its exit code: no result is healthy, or only waits, whose findings are more than notes."""
    is_well = word in (StatusWord.HEALTHY, StatusWord.WAITING)
    if is_well and exit_code:
        return StatusWord.FINDING
    return word


class SnapshotFaults(msgspec.Struct, frozen=True):
    """Snapshots in log directories that should not be there as they are.

    Attributes:
        wrong: directory and offset of those that do not parse, or that a replay proves wrong.
        suspect: directory and offset of the others that cannot be correct.
    """

    wrong: frozenset[tuple[str, int]]
    suspect: frozenset[tuple[str, int]]


_WRONG = (FindingCause.CORRUPT_SNAPSHOT, FindingCause.WRONG_SNAPSHOT)


def snapshot_faults(
    findings: Iterable[Finding],
    *,
    wrong: Iterable[tuple[str, int]] = (),
    replaced: Iterable[tuple[str, int]] = (),
    settled: Iterable[tuple[str, int]] = (),
) -> SnapshotFaults:
    """The faults that findings are about. A snapshot with several findings counts once, as wrong if one of them says so.

    Args:
        findings: of a command.
        wrong: directory and offset of snapshots that are proven wrong without a finding.
        replaced: directory and offset of snapshots that the command has replaced, or would replace.
        settled: directory and offset of snapshots that a replay proves right.
    """
    all_wrong = set(wrong)
    suspect = set[tuple[str, int]]()
    for finding in findings:
        if finding.offset is None:
            continue
        if finding.cause in _WRONG:
            all_wrong.add((finding.path, finding.offset))
        elif finding.cause is FindingCause.SUSPECT_SNAPSHOT:
            suspect.add((os.path.dirname(finding.path), finding.offset))
    all_wrong -= set(replaced)
    suspect -= {*all_wrong, *replaced, *settled}
    return SnapshotFaults(frozenset(all_wrong), frozenset(suspect))


def total_counts(parts: Iterable[StatusCounts]) -> StatusCounts:
    """The sum of the counts of several commands about different directories."""
    total = dict.fromkeys(StatusCounts.__struct_fields__, 0)
    for part in parts:
        for name in total:
            total[name] += getattr(part, name)
    return StatusCounts(**total)


class JudgedStart(msgspec.Struct, frozen=True):
    """The effects of the next start of brokers.

    Attributes:
        fates: the worst first.
        unread: findings about files that could not be read, which may hide another fate.
        lost_snapshots: findings about partitions whose snapshots the start removes, or writes without a look at the log.
    """

    fates: tuple[Fate, ...] = ()
    unread: tuple[Finding, ...] = ()
    lost_snapshots: tuple[Finding, ...] = ()


def status_of(
    fates: Sequence[Fate],
    *,
    wrong: int,
    suspect: int,
    missing: int,
    waiting: int,
    unread: int,
    waiting_unknown: int = 0,
    topics_without_id: Sequence[str] = (),
    damaged: int = 0,
    unproven: int = 0,
) -> Status:
    """The status of a command: the fates that it found, and its counts."""
    return Status(
        groups=fate_groups(fates) if fates else (),
        wrong=wrong,
        suspect=suspect,
        missing=missing,
        waiting=waiting,
        unread=unread,
        waiting_unknown=waiting_unknown,
        topics_without_id=tuple(topics_without_id),
        damaged=damaged,
        unproven=unproven,
    )


def counted_status(counts: StatusCounts) -> Status:
    """The status of a result without fates, of which a document has the counts."""
    return status_of(
        (),
        wrong=counts.wrong,
        suspect=counts.suspect,
        missing=counts.missing,
        waiting=counts.waiting,
        waiting_unknown=counts.waiting_unknown,
        unread=counts.unread,
        damaged=counts.damaged,
        unproven=counts.unproven,
    )


def fate_groups(fates: Sequence[Fate]) -> tuple[FateGroup, ...]:
    """Fates with one kind and cause together, the harmless ones apart, the worst first."""
    by_cause: dict[tuple[FateKind, str, str | None, bool], list[Fate]] = {}
    for fate in worst_first(list(fates)):
        by_cause.setdefault((fate.kind, fate.cause, fate.releases, fate.is_harmless), []).append(fate)
    return tuple(FateGroup(tuple(each)) for each in by_cause.values())


def findings_of(fates: Sequence[Fate]) -> tuple[Finding, ...]:
    """One finding for each cause. A recovery and the end of a move have none: other notes name the unclean stop and the future copy."""
    return tuple(_finding(group) for group in fate_groups(fates) if group.kind not in _WITHOUT_FINDING)


_WITHOUT_FINDING = (FateKind.RECOVERED, FateKind.COPY_TAKES_OVER)


def _finding(group: FateGroup) -> Finding:
    fate = group.first
    count = len(group.fates)
    path = fate.path if count == 1 else os.path.commonpath([each.path for each in group.fates])
    detail = f" ({fate.detail})" if fate.detail else ""
    names = first_of([each.subject for each in group.fates], NAMES_MAX)
    whose = detail if count == 1 else f", of {pluralize(count, 'partition')}: {names}{detail}"
    what = CONSEQUENCES[group.kind]
    if fate.releases is not None:
        what += f" (Kafka {fate.releases})"
    age = "" if fate.age is None else f", {fate.age}"
    remedy = fate.remedy
    if len({each.remedy for each in group.fates}) > 1:
        remedy = f"For {fate.subject}: {remedy}. --output json has what to do about the others"
    message = f"{fate.cause}{whose}: {what}. {remedy}. Evidence: {fate.evidence}{age}. Kafka's log: {fate.log_line}"
    return Finding(fate.code, group.severity, path, message, fate.log_end_offset, cause=fate.finding_cause)


CONSEQUENCES = {
    FateKind.NO_START: "the broker does not start",
    FateKind.FAILS_ONCE: "the first start fails, and the second recovers the log",
    FateKind.OFFLINE: "the log directory goes offline at the start",
    FateKind.EMPTIED: "the start leaves an empty log",
    FateKind.RECORDS_CUT: "the start removes acknowledged records of this replica",
    FateKind.END_LOST: "acknowledged records are no longer in this replica, and consumers lose them if it leads",
    FateKind.STRAY_DELETED: "the start deletes the log",
    FateKind.LEADING_DELETES_REMOTE: "if this replica leads, Kafka deletes remote segments",
    FateKind.STRAY: "the start sets the directory aside as a stray, and an empty log takes its place",
    FateKind.CATCHES_UP: "the replica has to catch up from one in sync",
    FateKind.SNAPSHOTS_REMOVED: "the start rebuilds an index, and removes the snapshots above that segment",
    FateKind.LEADER_EPOCHS_CUT: "if this replica leads, followers and remote storage get wrong leader epochs",
    FateKind.SWAP_FINISHED: "the start finishes it, and removes the snapshots inside of the new segment",
    FateKind.NO_LEADER_EPOCHS: "nothing of the log can be uploaded",
    FateKind.RECOVERED: "the start recovers the log",
    FateKind.COPY_TAKES_OVER: "the future copy takes the place of the partition",
    FateKind.OLD_REPLICA: "the start sets the directory aside, or deletes it (3.3.0 to 3.6.2); nothing of it is needed",
}
"""The meaning of each kind for an operator."""
