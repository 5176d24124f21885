"""The result of an audit: for each copy the verdict on its snapshot, for each partition what was read and what is wrong."""

from __future__ import annotations

import bisect
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.broker.status import Status, status_of
from snaprebuild.errors import WriteFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, unread_paths
from snaprebuild.published import Int64, Part
from snaprebuild.replay.difference import Comparison, ComparisonStatus, DifferenceKind, EntryDifference
from snaprebuild.storage.local.temporary_directory import choose_temporary_directory
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_copy import ICEBERG_LACKS, RemoteCopy
from snaprebuild.tier.remote_partition import RemotePartition

__all__ = [
    "WRONG",
    "CopyAudit",
    "DifferingProducer",
    "PartitionAudit",
    "ProvenSnapshot",
    "ProvenSnapshots",
    "SnapshotVerdict",
    "StoreAudit",
    "verdict_of",
]


class SnapshotVerdict(StrEnum):
    """The verdict on the producer snapshot of a copy."""

    RIGHT = "right"
    """Equal, or different only in what a broker drops when it loads it."""
    CONSISTENT = "consistent"
    """Nothing contradicts it, all snapshots above follow from it, and retention has deleted everything below.

    The newest follows from those below, one of which knows a producer from what was deleted.
    """
    UNPROVEN = "unproven"
    """Nothing contradicts it, and nothing proves it: it is next to a hole or to a suspect snapshot, or no other one confirms it."""
    SUSPECT = "suspect"
    """It and another snapshot contradict each other, and nothing shows which of them is wrong."""
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
    """Its copy is not among those that follow one another, or the replay did not reach it."""


WRONG = (
    SnapshotVerdict.FALSE_EMPTY,
    SnapshotVerdict.ZERO_BYTES,
    SnapshotVerdict.CORRUPT,
    SnapshotVerdict.MISSING_PRODUCERS,
    SnapshotVerdict.WRONG,
)

UNKNOWN = (SnapshotVerdict.UNPROVEN, SnapshotVerdict.REACH_UNKNOWN, SnapshotVerdict.NOT_READ)
"""Nothing shows whether it is right."""


@dataclass(frozen=True, slots=True)
class ProvenSnapshot:
    """A snapshot that a replay proved, in the file of ``ProvenSnapshots``.

    Attributes:
        snapshot_class: name of its class (``replay.classes``).
        position: in the file, bytes.
    """

    snapshot_class: str
    position: int
    size_bytes: int


class ProvenSnapshots:
    """Snapshots that a replay proved, for a repair. In a temporary file without a name, as there may be many; a context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        choose_temporary_directory()
        try:
            self._file = tempfile.TemporaryFile(prefix="snaprebuild-")  # noqa: SIM115
        except OSError as error:
            raise WriteFailedError(f"no temporary file can be made: {error.strerror}", errno=error.errno) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, snapshot_class: str, data: bytes) -> ProvenSnapshot:
        """Keeps one.

        Raises:
            WriteFailedError: the file cannot be written.
        """
        with self._lock:
            try:
                position = self._file.seek(0, 2)
                self._file.write(data)
                self._file.flush()
            except OSError as error:
                message = f"the temporary file cannot be written: {error.strerror}"
                raise WriteFailedError(message, path=tempfile.gettempdir(), errno=error.errno) from error
        return ProvenSnapshot(snapshot_class, position, len(data))

    def read(self, snapshot: ProvenSnapshot) -> bytes:
        """Its bytes."""
        with self._lock:
            self._file.seek(snapshot.position)
            return self._file.read(snapshot.size_bytes)


class DifferingProducer(Part, frozen=True):
    """A producer whose entry in the snapshot differs from the replay."""

    producer_id: Int64
    kind: DifferenceKind
    consequence: str
    """What a follower that starts from the snapshot would do."""

    @classmethod
    def of(cls, difference: EntryDifference) -> DifferingProducer:
        """The producer of a difference."""
        return cls(producer_id=difference.producer_id, kind=difference.kind, consequence=difference.consequence)


@dataclass(slots=True)
class CopyAudit:
    """What an audit shows of the snapshot of a copy.

    Attributes:
        copy: of a segment; its end may be unknown until the segment was opened.
        verdict: on its snapshot.
        reason: of the verdict.
        entries: of the snapshot; None if it was not read.
        expected_entries: by replay; None without one.
        differences: producers that differ, the certain ones first, at most 1,000.
        difference_count: all of them.
        note: why it may be wrong if brokers keep idle producers for longer than a day; empty if not.
        is_from_zero: a replay from offset 0 on gave the verdict.
        is_provable: a replay from offset 0 on has the exact state at its end.
        proven: the right snapshot, if this one is wrong, the log proves another one, and it is wanted for a repair.
        unproven: why there is none.
    """

    copy: RemoteCopy
    verdict: SnapshotVerdict = SnapshotVerdict.NOT_READ
    reason: str = ""
    entries: int | None = None
    expected_entries: int | None = None
    differences: tuple[DifferingProducer, ...] = ()
    difference_count: int = 0
    note: str = ""
    is_from_zero: bool = False
    is_provable: bool = False
    proven: ProvenSnapshot | None = None
    unproven: str = "the replay has no state at its end"

    @property
    def snapshot_name(self) -> str:
        """For messages."""
        return f"the snapshot of the segment {uuid_to_text(self.copy.segment_id)}"

    def settle(self, verdict: SnapshotVerdict, reason: str) -> None:
        """Records a verdict and its reason."""
        self.verdict = verdict
        self.reason = reason

    def suspect(self, reason: str) -> None:
        """Records that it may be wrong, unless a complete replay or its own bytes have decided that."""
        if not self.is_from_zero and self.verdict not in WRONG:
            self.settle(SnapshotVerdict.SUSPECT, reason)

    def not_read(self, reason: str) -> None:
        """Records why it was not read, unless its size alone has settled the verdict."""
        if self.verdict is SnapshotVerdict.NOT_READ:
            self.reason = reason

    def compared(self, comparison: Comparison) -> None:
        """Records the comparison of its snapshot with a replay."""
        self.settle(verdict_of(comparison), comparison.reason)
        self.entries = comparison.found_entries
        self.expected_entries = comparison.expected_entries
        self.differences = tuple(DifferingProducer.of(each) for each in comparison.differences)
        self.difference_count = comparison.difference_count


@dataclass(slots=True)
class PartitionAudit:
    """The audit of a partition.

    Attributes:
        remote: the partition.
        copies: that are live, or complete if that is unknown; by start offset.
        readable: those whose segments can be read.
        undecrypted: those that no private key decrypts, by the reason.
        iceberg: count of copies that have a manifest alone.
        read_bytes: of segments.
        replayed_from_offset: base offset of the first segment of the replay; None without one.
        local_log_start_offset: first offset on the leader's disk, as it was given; None if it was not.
        has_gap: a segment is damaged or cannot be read: what is above does not follow from what is below.
        limit: the limit of the run that ended the work on it, in words; None for none.
        damaged_at: the least offset at which an object is damaged or could not be read; None if none is.
        findings: what is wrong.
    """

    remote: RemotePartition
    copies: list[CopyAudit] = field(default_factory=list)
    readable: list[CopyAudit] = field(default_factory=list)
    undecrypted: dict[str, list[CopyAudit]] = field(default_factory=dict)
    iceberg: int = 0
    read_bytes: int = 0
    replayed_from_offset: int | None = None
    local_log_start_offset: int | None = None
    has_gap: bool = False
    limit: str | None = None
    damaged_at: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.remote.id.topic}-{self.remote.id.partition}"

    @property
    def ends_are_known(self) -> bool:
        """Whether no segment has to be opened to find its end."""
        return all(each.copy.end_offset is not None for each in self.readable)

    @property
    def damaged_copies(self) -> list[CopyAudit]:
        """Copies that lack objects, or whose objects contradict each other or the metadata log."""
        starts = [each.copy.start_offset for each in self.copies]
        damaged = {number for number, each in enumerate(self.copies) if each.copy.missing not in ((), ICEBERG_LACKS)}
        for finding in self.findings:
            if finding.severity is Severity.DAMAGED and finding.cause is not FindingCause.WRONG_REMOTE_SNAPSHOT:
                damaged.add(max(bisect.bisect_right(starts, finding.offset or 0) - 1, 0))
        return [self.copies[number] for number in sorted(damaged)]

    def add_finding(
        self,
        code: str,
        severity: Severity,
        message: str,
        offset: int,
        reason: str | None = None,
        *,
        is_unread: bool = False,
        cause: FindingCause | None = None,
    ) -> None:
        """Adds a finding."""
        self.findings.append(Finding(code, severity, self.remote.place, message, offset, reason, is_unread, cause=cause))

    def damaged(self, offset: int | None) -> None:
        """Records that an object is damaged or could not be read; None for an unknown offset."""
        at = 0 if offset is None else offset
        self.damaged_at = at if self.damaged_at is None else min(at, self.damaged_at)


@dataclass(slots=True)
class StoreAudit:
    """The audit of a store.

    Attributes:
        location: of the store.
        level: how much was read.
        verified: a metadata log was given that could be read whole.
        partitions: in the order of the store.
        store_findings: about the store and the metadata log.
        cost: estimate of what was to be read, without the manifests; None if the run did not get that far.
        foreign_producers: names of the partitions with producer ids that the cluster has yet to give out.
    """

    location: str
    level: AuditLevel
    verified: bool
    partitions: list[PartitionAudit] = field(default_factory=list)
    store_findings: list[Finding] = field(default_factory=list)
    cost: AuditCost | None = None
    foreign_producers: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """The findings of the store and of every partition."""
        return [*self.store_findings, *(each for partition in self.partitions for each in partition.findings)]

    @property
    def verdicts(self) -> Counter[SnapshotVerdict]:
        """Snapshots by verdict."""
        return Counter(copy.verdict for partition in self.partitions for copy in partition.copies)

    @property
    def status(self) -> Status:
        """The counts of the audit. The snapshot of a damaged copy that was not read counts as damaged alone."""
        damaged = [copy for partition in self.partitions for copy in partition.damaged_copies]
        verdicts = self.verdicts
        unproven = sum(verdicts[each] for each in UNKNOWN) - sum(copy.verdict in UNKNOWN for copy in damaged)
        return status_of(
            (),
            wrong=sum(verdicts[each] for each in WRONG),
            suspect=verdicts[SnapshotVerdict.SUSPECT],
            missing=0,
            waiting=0,
            unread=len(unread_paths(self.findings)),
            damaged=len(damaged),
            unproven=unproven,
        )


_VERDICTS = {
    ComparisonStatus.EQUAL: SnapshotVerdict.RIGHT,
    ComparisonStatus.EQUAL_AFTER_EXPIRY: SnapshotVerdict.RIGHT,
    ComparisonStatus.UNVERIFIABLE: SnapshotVerdict.UNPROVEN,
    ComparisonStatus.EXTRA: SnapshotVerdict.WRONG,
    ComparisonStatus.MISSING_ENTRIES: SnapshotVerdict.MISSING_PRODUCERS,
    ComparisonStatus.STALE: SnapshotVerdict.WRONG,
    ComparisonStatus.FALSE_EMPTY: SnapshotVerdict.FALSE_EMPTY,
    ComparisonStatus.CORRUPT: SnapshotVerdict.CORRUPT,
}


def verdict_of(comparison: Comparison) -> SnapshotVerdict:
    """The verdict on a snapshot that was compared with a replay."""
    verdict = _VERDICTS[comparison.status]
    return SnapshotVerdict.UNPROVEN if verdict in WRONG and not comparison.proven_wrong else verdict
