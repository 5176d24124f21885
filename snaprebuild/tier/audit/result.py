"""The result of an audit: for each copy the verdict on its snapshot, for each partition what was read and what is wrong."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.errors import WriteFailedError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.replay.difference import Comparison, ComparisonStatus, EntryDifference
from snaprebuild.storage.local.temporary_directory import choose_temporary_directory
from snaprebuild.storage.remote.listing import TierCopy, TierLayout
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.cost import AuditCost

__all__ = ["WRONG", "AuditedCopy", "AuditedPartition", "ProvenSnapshot", "ProvenSnapshots", "TierAudit", "Verdict", "verdict_of"]


class Verdict(StrEnum):
    """On the snapshot of a copy."""

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


WRONG = (Verdict.FALSE_EMPTY, Verdict.ZERO_BYTES, Verdict.CORRUPT, Verdict.MISSING_PRODUCERS, Verdict.WRONG)


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


@dataclass(slots=True)
class AuditedCopy:
    """A copy.

    Attributes:
        segment_id: 16 bytes.
        start_offset: of the segment.
        end_offset: last offset; None if unknown.
        stored_bytes: of its objects.
        verdict: on its snapshot.
        why: reason of the verdict.
        entries: of the snapshot; None if it was not read.
        expected_entries: by replay; None without one.
        differences: producers that differ, the certain ones first, at most 1,000; each with what a follower that starts from the snapshot
            would do.
        difference_count: all of them.
        note: why it may be wrong if brokers keep idle producers for longer than a day; empty if not.
        is_from_zero: a replay from offset 0 on gave the verdict.
        is_provable: a replay from offset 0 on has the exact state at its end.
        copy: its objects; None if they are gone.
        proven: the right snapshot, if this one is wrong, the log proves another one, and it was asked for.
        unproven: why there is none.
    """

    segment_id: bytes
    start_offset: int
    end_offset: int | None
    stored_bytes: int
    verdict: Verdict = Verdict.NOT_READ
    why: str = ""
    entries: int | None = None
    expected_entries: int | None = None
    differences: tuple[EntryDifference, ...] = ()
    difference_count: int = 0
    note: str = ""
    is_from_zero: bool = False
    is_provable: bool = False
    copy: TierCopy | None = None
    proven: ProvenSnapshot | None = None
    unproven: str = "the replay has no state at its end"

    @property
    def snapshot_name(self) -> str:
        """For messages."""
        return f"the snapshot of the segment {uuid_to_text(self.segment_id)}"

    def settle(self, verdict: Verdict, why: str) -> None:
        """Records a verdict and its reason."""
        self.verdict = verdict
        self.why = why

    def suspect(self, why: str) -> None:
        """Records that it may be wrong, unless a complete replay or its own bytes have decided that."""
        if not self.is_from_zero and self.verdict not in WRONG:
            self.settle(Verdict.SUSPECT, why)

    def not_read(self, why: str) -> None:
        """Records why it was not read, unless its size alone has settled the verdict."""
        if self.verdict is Verdict.NOT_READ:
            self.why = why

    def compared(self, comparison: Comparison) -> None:
        """Records the comparison of its snapshot with a replay."""
        self.settle(verdict_of(comparison), comparison.reason)
        self.entries = comparison.found_entries
        self.expected_entries = comparison.expected_entries
        self.differences = comparison.differences
        self.difference_count = comparison.difference_count


@dataclass(slots=True)
class AuditedPartition:
    """A partition.

    Attributes:
        topic_id: 16 bytes.
        place: for messages: the store, the partition and the topic id.
        copies: that are live, or complete if that is unknown; by start offset.
        bytes_read: of segments.
        replayed_from: base offset of the first segment of the replay; None without one.
        local_log_start: first offset on the leader's disk, as it was given; None if it was not.
        is_verified: a metadata log that could be read whole has the live copies.
        has_gap: a segment is damaged or cannot be read: what is above does not follow from what is below.
        limit: the limit of the run that ended the work on it, in words; None for none.
        damaged_at: the least offset at which an object is damaged or could not be read; None if none is.
        findings: what is wrong.
    """

    topic: str
    topic_id: bytes
    partition: int
    layout: TierLayout
    place: str
    copies: list[AuditedCopy] = field(default_factory=list)
    bytes_read: int = 0
    replayed_from: int | None = None
    local_log_start: int | None = None
    is_verified: bool = False
    has_gap: bool = False
    limit: str | None = None
    damaged_at: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"

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
        self.findings.append(Finding(code, severity, self.place, message, offset, reason, is_unread, cause=cause))

    def damaged(self, offset: int | None) -> None:
        """Records that an object is damaged or could not be read; None for an unknown offset."""
        at = 0 if offset is None else offset
        self.damaged_at = at if self.damaged_at is None else min(at, self.damaged_at)


@dataclass(slots=True)
class TierAudit:
    """A store.

    Attributes:
        root: its location.
        level: how much was read.
        is_verified: a metadata log was given that could be read whole.
        partitions: in the order of the store.
        store_findings: about the store and the metadata log.
        cost: estimate of what was to be read, without the manifests; None if the run did not get that far.
        foreign_producers: names of the partitions with producer ids that the cluster has yet to give out.
    """

    root: str
    level: AuditLevel
    is_verified: bool
    partitions: list[AuditedPartition] = field(default_factory=list)
    store_findings: list[Finding] = field(default_factory=list)
    cost: AuditCost | None = None
    foreign_producers: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Those of the store and of every partition."""
        return [*self.store_findings, *(each for partition in self.partitions for each in partition.findings)]


_VERDICTS = {
    ComparisonStatus.EQUAL: Verdict.RIGHT,
    ComparisonStatus.EQUAL_AFTER_EXPIRY: Verdict.RIGHT,
    ComparisonStatus.UNVERIFIABLE: Verdict.UNPROVEN,
    ComparisonStatus.EXTRA: Verdict.WRONG,
    ComparisonStatus.MISSING_ENTRIES: Verdict.MISSING_PRODUCERS,
    ComparisonStatus.STALE: Verdict.WRONG,
    ComparisonStatus.FALSE_EMPTY: Verdict.FALSE_EMPTY,
    ComparisonStatus.CORRUPT: Verdict.CORRUPT,
}


def verdict_of(comparison: Comparison) -> Verdict:
    """The verdict on a snapshot that was compared with a replay."""
    found = _VERDICTS[comparison.status]
    return Verdict.UNPROVEN if found in WRONG and not comparison.proven_wrong else found
