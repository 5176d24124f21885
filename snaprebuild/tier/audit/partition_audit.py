"""The audit of one partition: its copies with the verdicts on their snapshots, which of them can be read, and what is wrong.

``PartitionAudit`` is filled step by step: ``read_copies``, ``read_ends``, the replays of ``copy_log``, ``add_findings``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import HEADER_BYTES
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_manifest import read_aiven_manifest
from snaprebuild.broker.status import Status, status_of
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize, unread_paths
from snaprebuild.published import Int64, Part
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, DifferenceKind, EntryDifference, VerifiedSnapshot
from snaprebuild.replay.window import Clock, is_certainly_young
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshot
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.ledger.progress import LedgerProgress
from snaprebuild.tier.remote_partition import ICEBERG_LACKS, RemoteCopy, RemotePartition, fault_finding, unreadable_objects

__all__ = [
    "WRONG",
    "CopyAudit",
    "DifferingProducer",
    "PartitionAudit",
    "ProofKind",
    "SnapshotVerdict",
    "StoreAudit",
    "add_findings",
    "add_lost_copies",
    "read_copies",
    "read_ends",
    "verdict_counts",
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
    """The snapshot and another one contradict each other, and nothing shows which of them is wrong."""
    FALSE_EMPTY = "false-empty"
    ZERO_BYTES = "zero-bytes"
    """A broker takes it, and starts without producers."""
    CORRUPT = "corrupt"
    MISSING_PRODUCERS = "missing-producers"
    WRONG = "wrong"
    """The snapshot holds what the log contradicts: an older state, or producers that never were."""
    UNREACHABLE = "unreachable"
    """No follower starts from it any more; it was not read."""
    REACH_UNKNOWN = "reach-unknown"
    """Whether a follower may start from it is unknown, because the local log start offset is; it was not read."""
    NOT_READ = "not-read"
    """The copy of the snapshot is not in the chain of copies, or the replay did not reach it."""


class ProofKind(StrEnum):
    """The proof of a snapshot."""

    FROM_OFFSET_0 = "from-offset-0"
    """A replay from offset 0 on gives it."""
    CONFIRMED = "confirmed"
    """A replay on the snapshot of another copy gives it, which the log and later snapshots confirm."""
    CONSISTENT = "consistent"
    """Nothing contradicts it, and all snapshots above follow from it."""
    EARLIER = "earlier"
    """An earlier run proved it, with copies that retention has deleted since. Its objects are those of that run."""


WRONG = (
    SnapshotVerdict.FALSE_EMPTY,
    SnapshotVerdict.ZERO_BYTES,
    SnapshotVerdict.CORRUPT,
    SnapshotVerdict.MISSING_PRODUCERS,
    SnapshotVerdict.WRONG,
)

UNKNOWN = (SnapshotVerdict.UNPROVEN, SnapshotVerdict.REACH_UNKNOWN, SnapshotVerdict.NOT_READ)
"""Nothing shows whether it is right."""


class DifferingProducer(Part, frozen=True):
    """A producer whose entry in the snapshot differs from the replay."""

    producer_id: Int64
    kind: DifferenceKind
    consequence: str
    """The behaviour of a follower that starts from the snapshot."""

    @classmethod
    def of(cls, difference: EntryDifference) -> DifferingProducer:
        """The producer of a difference."""
        return cls(producer_id=difference.producer_id, kind=difference.kind, consequence=difference.consequence)


@dataclass(slots=True)
class CopyAudit:
    """The result of an audit for the snapshot of a copy.

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
        proven: the right snapshot, if this one is wrong, the log proves another one, and it is wanted for a repair.
        unproven: why there is none.
        right_sha256: SHA-256 of the right snapshot, if this one is wrong, and the log proves another one; None otherwise.
        is_exact: its snapshot has every entry of the replay, also expired ones.
        proof: of an earlier run, if this one has none; None otherwise.
        proven_ms: when its segment was read for the proof, by a ledger, ms since 1970; None without a ledger or a proof.
        is_waiting: a later run reads it, as a ledger has it.
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
    proven: ProvenSnapshot | None = None
    unproven: str = "the replay has no state at its end"
    right_sha256: str | None = None
    is_exact: bool = False
    proof: ProofKind | None = None
    proven_ms: int | None = None
    is_waiting: bool = False

    @property
    def snapshot_name(self) -> str:
        """The snapshot by the id of its segment, for messages."""
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

    def take_replayed(self, snapshot: VerifiedSnapshot, time_ms: int | None, clock: Clock, *, is_from_zero: bool) -> None:
        """Records the comparison of its snapshot with a replay.

        Args:
            snapshot: as the replay judges it.
            time_ms: largest timestamp below it; None if unknown.
            clock: for expiry.
            is_from_zero: the replay began at offset 0.
        """
        comparison = snapshot.comparison
        self.settle(verdict_of(comparison), comparison.reason)
        self.entries = comparison.found_entries
        self.expected_entries = comparison.expected_entries
        self.differences = tuple(DifferingProducer.of(each) for each in comparison.differences)
        self.difference_count = comparison.difference_count
        self.is_exact = comparison.status is ComparisonStatus.EQUAL and snapshot.snapshot_class is SnapshotClass.EXACT
        proves_nothing = snapshot.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN)
        if self.verdict is SnapshotVerdict.RIGHT and proves_nothing:
            assert snapshot.snapshot_class is not None
            self.settle(
                SnapshotVerdict.UNPROVEN,
                f"{self.reason}, and the replay is {snapshot.snapshot_class.value}: it proves nothing here",
            )
        elif self.verdict is SnapshotVerdict.RIGHT and is_certainly_young(
            comparison.excused_timestamp, time_ms, clock.expiration_ms
        ):
            # It was wrong when it was written, and no load at this moment shows it any more.
            why = "it differs in producers that had not expired when it was written, and have expired by now"
            self.settle(SnapshotVerdict.SUSPECT, why)
        elif self.verdict is SnapshotVerdict.UNPROVEN and is_from_zero and snapshot.snapshot_class is SnapshotClass.EXACT:
            self.settle(
                SnapshotVerdict.CONSISTENT, "it differs from the replay only in what a producer loses that expires and comes back"
            )
        self.is_from_zero = is_from_zero and self.verdict in (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)


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
        records_read: records that were decoded, control records included; None unless the level is ``RECORDS``.
        replayed_from_offset: base offset of the first segment of the replay; None without one.
        local_log_start_offset: first offset on the leader's disk, as it was given; None if it was not.
        has_gap: a segment is damaged or cannot be read: what is above does not follow from what is below.
        lost_file: an object could not be read that may have been deleted since the store was listed.
        limit: the limit of the run that ended the work on it, in words; None for none.
        begins_by_retention: retention has deleted what was below its first copy, and no hole is above.
        damaged_at: the least offset at which an object is damaged or could not be read; None if none is.
        damaged_ids: segment ids of copies whose objects are damaged.
        findings: what is wrong.
    """

    remote: RemotePartition
    copies: list[CopyAudit] = field(default_factory=list)
    readable: list[CopyAudit] = field(default_factory=list)
    undecrypted: dict[str, list[CopyAudit]] = field(default_factory=dict)
    iceberg: int = 0
    read_bytes: int = 0
    records_read: int | None = None
    replayed_from_offset: int | None = None
    local_log_start_offset: int | None = None
    has_gap: bool = False
    limit: str | None = None
    begins_by_retention: bool = False
    damaged_at: int | None = None
    damaged_ids: set[bytes] = field(default_factory=set)
    lost_file: bool = False
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
        return [each for each in self.copies if each.copy.segment_id in self.damaged_ids or _lacks_objects(each.copy)]

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

    def leave_out_deleted(self, copies: Sequence[CopyAudit]) -> bool:
        """Leaves out those of some copies that were deleted since the store was listed. Whether any was."""
        if not self.remote.leave_out_deleted([each.copy for each in copies]):
            return False
        self.copies = [each for each in self.copies if each.copy.segment_id in self.remote.copies]
        self.readable = [each for each in self.readable if each.copy.segment_id in self.remote.copies]
        return True

    def damaged(self, offset: int | None) -> None:
        """Records that an object is damaged or could not be read; None for an unknown offset."""
        at = 0 if offset is None else offset
        self.damaged_at = at if self.damaged_at is None else min(at, self.damaged_at)


def _lacks_objects(copy: RemoteCopy) -> bool:
    """Whether objects of a copy are known to be gone: a request without an answer, and what Iceberg leaves out, show nothing."""
    return copy.missing not in ((), ICEBERG_LACKS) and copy.unanswered is None


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
        ledger: what the ledger of the run has now; None without one.
    """

    location: str
    level: AuditLevel
    verified: bool
    partitions: list[PartitionAudit] = field(default_factory=list)
    store_findings: list[Finding] = field(default_factory=list)
    cost: AuditCost | None = None
    foreign_producers: list[str] = field(default_factory=list)
    ledger: LedgerProgress | None = None

    @property
    def findings(self) -> list[Finding]:
        """The findings of the store and of every partition."""
        return [*self.store_findings, *(each for partition in self.partitions for each in partition.findings)]

    def status(self, findings: Sequence[Finding]) -> Status:
        """The counts of the audit. The snapshot of a damaged copy that was not read counts as damaged alone.

        One that waits for a later run is not counted.

        Args:
            findings: of the command.
        """
        damaged = [copy for partition in self.partitions for copy in partition.damaged_copies]
        verdicts = verdict_counts(self.partitions)
        left_out = {id(copy) for copy in damaged}
        open_ones = (copy for partition in self.partitions for copy in partition.copies if copy.verdict in UNKNOWN)
        unproven = sum(not copy.is_waiting and id(copy) not in left_out for copy in open_ones)
        return status_of(
            (),
            wrong=sum(verdicts[each] for each in WRONG),
            suspect=verdicts[SnapshotVerdict.SUSPECT],
            missing=0,
            waiting=0,
            unread=len(unread_paths(findings)),
            damaged=len(damaged),
            unproven=unproven,
        )


def verdict_counts(partitions: Iterable[PartitionAudit]) -> Counter[SnapshotVerdict]:
    """Snapshots by verdict."""
    return Counter(copy.verdict for partition in partitions for copy in partition.copies)


# ---------------------------------------------------------------------------------------------------------------- what is read

BAD_COPY = "tier-bad-copy"


def read_copies(audit: PartitionAudit) -> None:
    """Reads the manifests, finds the copies whose segments can be read, and adds those that are lost.

    Raises:
        RefusedError: a limit of the run is used up; then nothing was read.
    """
    audit.remote.read_facts([each.copy for each in audit.copies if not each.copy.missing])
    audit.leave_out_deleted([each for each in audit.copies if each.copy.facts.fault is not None])
    audit.readable = [each for each in audit.copies if not each.copy.missing and _is_readable(audit, each)]
    add_lost_copies(audit)


def add_lost_copies(audit: PartitionAudit) -> None:
    """Adds the live copies without any object, and what is wrong with those that lack some."""
    for each in audit.copies:
        if each.copy.missing:
            _add_incomplete(audit, each)
    for copy in audit.remote.copies.values():
        if not copy.objects.by_kind and audit.remote.log.is_live(copy.segment_id):
            audit.copies.append(_lost_copy(audit, copy))
    audit.copies.sort(key=lambda each: each.copy.start_offset)


def _lost_copy(audit: PartitionAudit, copy: RemoteCopy) -> CopyAudit:
    """A live copy without any object."""
    lost = CopyAudit(copy, reason="its objects are gone")
    if copy.unanswered is None:
        _add_damaged(audit, lost, "finished, and its objects are gone", "tier-lost")
    else:
        _add_unanswered(audit, lost, copy.unanswered)
    return lost


def _add_incomplete(audit: PartitionAudit, each: CopyAudit) -> None:
    missing = each.copy.missing
    audit.iceberg += missing == ICEBERG_LACKS
    each.reason = f"objects of it are missing: {', '.join(missing)}"
    if each.copy.unanswered is not None:
        _add_unanswered(audit, each, each.copy.unanswered)
    elif each.copy.record is not None and missing != ICEBERG_LACKS:
        _add_damaged(audit, each, f"finished, and {each.reason}", "tier-lost")


def _add_unanswered(audit: PartitionAudit, each: CopyAudit, reason: str) -> None:
    """The listing lacks objects of a copy, and whether they are there is unknown."""
    each.reason = f"the listing lacks objects of it, and a request for these had no answer: {reason}"
    audit.damaged(each.copy.start_offset)
    audit.findings.append(fault_finding(audit.remote.place, each.copy, each.reason, is_unread=True))


def _add_damaged(audit: PartitionAudit, each: CopyAudit, message: str, code: str = BAD_COPY) -> None:
    audit.damaged(each.copy.start_offset)
    _add_bad_copy(audit, each, message, code)


def _add_bad_copy(audit: PartitionAudit, each: CopyAudit, message: str, code: str = BAD_COPY) -> None:
    audit.damaged_ids.add(each.copy.segment_id)
    text = f"copy {uuid_to_text(each.copy.segment_id)}: {message}"
    audit.add_finding(code, Severity.DAMAGED, text, each.copy.start_offset)


def _is_readable(audit: PartitionAudit, each: CopyAudit) -> bool:
    """Whether the segment of a complete copy can be read; adds what is wrong with the copy by its manifest and sizes."""
    copy = each.copy
    facts = copy.facts
    if facts.fault is not None:
        each.reason = facts.fault
        if not facts.is_unread:
            audit.damaged_ids.add(copy.segment_id)
        audit.damaged(copy.start_offset)
        audit.findings.append(fault_finding(audit.remote.place, copy, facts.fault))
        return False
    if facts.torn_index is not None:
        _add_bad_copy(audit, each, facts.torn_index)
    least = HEADER_BYTES + (0 if facts.key_id is None else ENCRYPTION_BYTES)
    if facts.snapshot_bytes == 0:
        each.settle(SnapshotVerdict.ZERO_BYTES, "it has no bytes: a broker takes it and starts without producers")
    elif facts.snapshot_bytes is not None and facts.snapshot_bytes < least:
        each.settle(SnapshotVerdict.CORRUPT, f"it has {facts.snapshot_bytes} bytes, less than a header")
    encryption = None if facts.manifest is None else read_aiven_manifest(facts.manifest).encryption
    if encryption is not None and (key_fault := audit.remote.private_keys.fault(encryption)) is not None:
        each.not_read(f"it {key_fault}")
        audit.undecrypted.setdefault(key_fault, []).append(each)
        return False
    if copy.record is not None and copy.record.size_bytes != facts.segment_bytes:
        message = f"its segment has {facts.segment_bytes} bytes, and the metadata log has {copy.record.size_bytes}"
        _add_damaged(audit, each, message)
        each.not_read(message)
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- ends


def read_ends(audit: PartitionAudit) -> list[CopyAudit]:
    """Reads the ends of segments that nothing else has, and what else is unknown. Gives the copies whose end is known now.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    if audit.ends_are_known:
        return audit.readable
    remote = audit.remote
    readable = []
    for each in audit.readable:
        try:
            remote.read_end(each.copy)
        except (FormatError, ReadFailedError) as error:
            if not audit.leave_out_deleted([each]):
                each.not_read(error.message)
            continue
        if each.copy.end_offset is not None:
            readable.append(each)
    for each in readable:
        remote.try_read_epochs(each.copy)
        remote.read_time(each.copy)
    return [each for each in readable if not _has_lost_its_end(audit, each)]


def _has_lost_its_end(audit: PartitionAudit, each: CopyAudit) -> bool:
    """Whether the segment ends below an offset that its time index names, and the next copy does not begin at its end.

    Its snapshot is of the offset where the segment once ended. Where a metadata log or a manifest has the end, it is not read here.
    """
    indexed = each.copy.indexed_offset
    end = each.copy.next_offset
    if indexed is None or indexed < end:
        return False
    following = min(
        (other.copy.start_offset for other in audit.copies if other.copy.start_offset > each.copy.start_offset), default=None
    )
    if following is not None and (following <= end or following <= indexed):
        return False
    each.copy.end_offset = None
    each.reason = f"its segment ends at {end - 1}, and its time index names offset {indexed}: the segment has lost its end"
    _add_damaged(audit, each, each.reason)
    return True


# ---------------------------------------------------------------------------------------------------------------- what is wrong

_PROOF = "the log of a replica that begins below it, or snaprebuild follower check, may show which is wrong"


def add_findings(audit: PartitionAudit, level: AuditLevel) -> None:
    """Adds the findings that follow from the verdicts."""
    audit.findings = [*audit.remote.without_vanished(audit.findings), *audit.remote.deleted_findings()]
    for copy in audit.copies:
        if copy.verdict is SnapshotVerdict.SUSPECT:
            decides = "--level full may show which" if level is AuditLevel.STRUCTURE else _PROOF
            message = f"{copy.snapshot_name} is suspect: {copy.reason}; {decides}"
            audit.add_finding("tier-suspect-snapshot", Severity.FINDING, message, copy.copy.start_offset)
        if copy.note:
            audit.add_finding("tier-expiry-unknown", Severity.NOTE, f"{copy.snapshot_name}: {copy.note}", copy.copy.start_offset)
        if copy.verdict in WRONG:
            severity = Severity.DAMAGED if copy.verdict is SnapshotVerdict.CORRUPT else Severity.FINDING
            message = f"{copy.snapshot_name} is {copy.verdict}: {copy.reason}{_consequence(copy)}"
            audit.add_finding(
                "tier-wrong-snapshot",
                severity,
                message,
                copy.copy.start_offset,
                copy.verdict.value,
                cause=FindingCause.WRONG_REMOTE_SNAPSHOT,
            )
    for fault, copies in audit.undecrypted.items():
        message = (
            f"{pluralize(len(copies), 'copy', 'copies')} not read; the first, {uuid_to_text(copies[0].copy.segment_id)}, {fault}"
        )
        audit.add_finding("refused", Severity.REFUSED, message, copies[0].copy.start_offset, is_unread=True)
    audit.findings += unreadable_objects(audit.remote.place, iceberg=audit.iceberg)
    if unknown := [each for each in audit.copies if each.verdict is SnapshotVerdict.REACH_UNKNOWN]:
        message = f"{pluralize(len(unknown), 'snapshot')} not judged, because the first offset on the leader's disk is unknown: "
        message += f"add --local-log-start {audit.name}=OFFSET or --log-dir DIR, or use --level full"
        audit.add_finding("tier-reach-unknown", Severity.NOTE, message, unknown[0].copy.start_offset)
    unproven = [each for each in audit.copies if each.verdict is SnapshotVerdict.UNPROVEN]
    if unproven and level is not AuditLevel.STRUCTURE:
        message = f"{pluralize(len(unproven), 'snapshot')} unproven; the first, {unproven[0].snapshot_name}: {unproven[0].reason}"
        audit.add_finding("tier-unproven", Severity.FINDING, message, unproven[0].copy.start_offset)
    unread = _unread_without_finding(audit, level)
    if unread:
        reason = unread[0].reason or "the replay did not reach it"
        message = f"{pluralize(len(unread), 'snapshot')} not read; the first: {reason}"
        audit.add_finding("tier-not-audited", Severity.FINDING, message, unread[0].copy.start_offset)


def _unread_without_finding(audit: PartitionAudit, level: AuditLevel) -> list[CopyAudit]:
    """The copies whose snapshots were not read, without those whose own finding says why."""
    undecrypted = {each.copy.segment_id for copies in audit.undecrypted.values() for each in copies}
    unread = [
        each
        for each in audit.copies
        if each.verdict is SnapshotVerdict.NOT_READ
        and not each.is_waiting
        and each.copy.segment_id not in undecrypted
        and each.copy.missing != ICEBERG_LACKS
    ]
    if level is not AuditLevel.STRUCTURE:
        return unread
    # Without a replay each fault of a copy has a finding of its own, but for objects that are missing.
    reported = {each.offset for each in audit.findings}
    return [each for each in unread if each.copy.start_offset not in reported]


def _consequence(copy: CopyAudit) -> str:
    """The consequence for a follower that starts from a wrong snapshot."""
    if not copy.differences:
        return ""
    first = copy.differences[0]
    more = copy.difference_count - 1
    others = f"; and {pluralize(more, 'producer')} more" if more else ""
    return f". A follower that starts from it, of producer {first.producer_id}: {first.consequence}{others}"


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
    if verdict in WRONG and not comparison.proven_wrong:
        return SnapshotVerdict.UNPROVEN
    return verdict
