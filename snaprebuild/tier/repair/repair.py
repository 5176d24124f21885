"""Replaces wrong producer snapshots in remote storage, where the segments there prove the right content.

``tier_audit`` finds the wrong snapshots and their right content: nothing is replayed here. A copy is left alone and reported in four
cases. The right content is not proven. It is not verified that brokers read the copy. Another copy shares offsets with it or with one
below. There is damage below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.broker.status import Status
from snaprebuild.errors import OutcomeUnknownError, RefusedError, SnaprebuildError, StorageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.partition_names import named
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, StoreAudit
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.remote_store import StoreAccess
from snaprebuild.tier.repair.copy_repair import CopyRepair, copy_repair, write_repair
from snaprebuild.tier.repair.earlier_audit import EarlierAudit, PresentAudit, present_audit
from snaprebuild.tier.repair.repaired_copy import ObjectPart, RepairAction, RepairedCopy
from snaprebuild.tier.repair.undo import RepairReceipt

__all__ = ["StoreRepair", "tier_repair", "would_repair"]


@dataclass(slots=True, eq=False)
class _WrongSnapshot:
    """A copy whose snapshot is wrong, and what becomes of it.

    Attributes:
        partition: of the copy.
        audit: what is wrong.
        reason: why it was not repaired; else empty.
        repair: what was written, or would be; None if the run did not get that far.
    """

    partition: PartitionAudit
    audit: CopyAudit
    action: RepairAction
    reason: str = ""
    repair: CopyRepair | None = None

    def published(self) -> RepairedCopy:
        """The result for the copy."""
        copy = RepairedCopy(
            **named(self.partition.remote.id.topic, self.partition.remote.id.partition),
            topic_id=uuid_to_text(self.partition.remote.id.topic_id),
            segment_id=uuid_to_text(self.audit.copy.segment_id),
            start_offset=self.audit.copy.start_offset,
            end_offset=self.audit.copy.end_offset,
            action=self.action,
            reason=self.reason,
            verdict=self.audit.verdict,
            entries=self.audit.entries,
            snapshot_class=None if self.audit.proven is None else self.audit.proven.snapshot_class,
        )
        place = None if self.repair is None else self.repair.place
        if place is None:
            return copy
        return structs.replace(
            copy,
            manifest_key=place.manifest_key,
            indexes_key=place.indexes_key,
            indexes_bytes=place.indexes_bytes,
            appended_bytes=place.appended_bytes,
            old_place=ObjectPart.of(place.old),
            place=ObjectPart.of(place.new),
        )


@dataclass(slots=True)
class StoreRepair:
    """The repair of a store.

    Attributes:
        audit: of the store before.
        dry_run: nothing was written.
        copies: those that were wrong.
        findings: of the audit, without what was repaired; and what was not.
        receipt: its path; None if nothing was written.
        needs_permission: wrong snapshots were left alone, because nothing shows that brokers read these copies.
    """

    audit: StoreAudit
    dry_run: bool
    copies: list[RepairedCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    receipt: str | None = None
    needs_permission: bool = False

    @property
    def status(self) -> Status:
        """The counts of the audit, without the wrong snapshots that were repaired, or would be."""
        repaired = sum(each.action in (RepairAction.REPAIRED, RepairAction.WOULD_REPAIR) for each in self.copies)
        status = self.audit.status(self.findings)
        return structs.replace(status, wrong=status.wrong - repaired)


def tier_repair(
    access: StoreAccess,
    run: Run,
    *,
    selection: Selection | None = None,
    allow_unverified: bool = False,
    undo_path: str | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    ledger: AuditLedger | None = None,
    earlier: EarlierAudit | None = None,
) -> StoreRepair:
    """Repairs every snapshot below a location that is wrong.

    Args:
        access: to the store.
        run: its clock is for expiry.
        selection: of partitions.
        allow_unverified: without a metadata log, take complete copies for live.
        undo_path: of the receipt, which must not exist; None for a dry run, which writes nothing.
        announce: called with what is going to be read.
        ledger: of audits of this store: what it has is not read again, unless the objects have changed.
        earlier: the document of an audit of this store, which takes the place of one; not with a ledger.

    Raises:
        UsageError, ReadFailedError: as ``tier_audit``.
        RefusedError: as ``tier_audit``, or the store would not honour conditions, or the receipt may not be there.
    """
    with ProvenSnapshots() as proven:
        present: PresentAudit | None = None
        if earlier is None:
            audit = tier_audit(access, run, selection=selection, keep=proven, announce=announce, ledger=ledger)
        else:
            present = present_audit(earlier, access, run, selection or Selection())
            present.replay(run, proven, partial(_due_of, allow_unverified=allow_unverified), announce)
            audit = present.audit
        result = StoreRepair(audit, undo_path is None)
        result.findings = [each for each in audit.findings if each.cause is not FindingCause.WRONG_REMOTE_SNAPSHOT]
        wrong = list[_WrongSnapshot]()
        for partition in audit.partitions:
            wrong += _wrong_snapshots(partition, result.findings, present, allow_unverified=allow_unverified)
        due = [each for each in wrong if each.action is RepairAction.WOULD_REPAIR]
        _Repairs(result, access, proven, {} if present is None else present.grown).run(due, undo_path)
        result.copies = [each.published() for each in wrong]
        result.needs_permission = any(each.reason == UNVERIFIED for each in wrong)
    return result


# ---------------------------------------------------------------------------------------------------------------- what is left alone

UNVERIFIED = "whether brokers read these copies is not verified"


def _due_of(partition: PartitionAudit, wrong: Sequence[CopyAudit], *, allow_unverified: bool) -> list[CopyAudit]:
    """The wrong copies that are repaired if their right content is proven."""
    if _why_none(partition, allow_unverified=allow_unverified) is not None:
        return []
    shared = _shared_from(partition)
    return [each for each in wrong if _obstacle(partition, each, shared) is None]


def _why_none(partition: PartitionAudit, *, allow_unverified: bool) -> str | None:
    """Why no snapshot of a partition is repaired; None if some may be."""
    if partition.remote.layout is not TierLayout.AIVEN:
        return "LocalTieredStorage keeps a snapshot in a file of its own, and a file is not replaced"
    return None if partition.remote.verified or allow_unverified else UNVERIFIED


def _wrong_snapshots(
    partition: PartitionAudit, findings: list[Finding], present: PresentAudit | None, *, allow_unverified: bool
) -> list[_WrongSnapshot]:
    """The wrong copies of a partition, and which are repaired. A reason that concerns all of them is one finding.

    Args:
        partition: that was audited.
        findings: get the reasons.
        present: what an earlier audit has of them; None without one.
        allow_unverified: take complete copies for live.
    """
    wrong = [each for each in partition.copies if each.verdict in WRONG]
    refusal = _why_none(partition, allow_unverified=allow_unverified)
    advice = ""
    if refusal == UNVERIFIED:
        advice = ": give --metadata-log, or take every complete copy for live with --allow-unverified"
    if wrong and refusal is not None:
        left = f"{pluralize(len(wrong), 'wrong snapshot')} left alone: {refusal}{advice}"
        findings.append(Finding("refused", Severity.REFUSED, partition.remote.place, left))
    snapshots = []
    shared = _shared_from(partition)
    for each in wrong:
        changed = None if present is None or refusal is not None else present.refused.get(each.copy.segment_id)
        if changed is not None:
            snapshots.append(_WrongSnapshot(partition, each, RepairAction.REFUSED, changed.message))
            findings.append(finding_of_error(changed, partition.remote.place))
            continue
        reason = refusal or _why_not(partition, each, shared)
        action = RepairAction.WOULD_REPAIR if reason is None else RepairAction.NOT_REPAIRED
        snapshots.append(_WrongSnapshot(partition, each, action, reason or ""))
        if reason is not None and refusal is None:
            message = f"{each.snapshot_name} is {each.verdict}, and is not repaired: {reason}"
            findings.append(Finding("tier-not-repaired", Severity.FINDING, partition.remote.place, message, each.copy.start_offset))
    return snapshots


def would_repair(partition: PartitionAudit) -> bool:
    """Whether a repair would replace a wrong snapshot of a partition, by an audit of the level ``FULL``."""
    wrong = [each for each in partition.copies if each.right_sha256 is not None]
    shared = _shared_from(partition)
    return partition.remote.layout is TierLayout.AIVEN and any(_obstacle(partition, each, shared) is None for each in wrong)


def _why_not(partition: PartitionAudit, copy: CopyAudit, shared: int | None) -> str | None:
    """Why a copy is not repaired; None if it is."""
    obstacle = _obstacle(partition, copy, shared)
    if obstacle is not None or copy.proven is not None:
        return obstacle
    return f"the right content is not proven: {copy.unproven}"


def _obstacle(partition: PartitionAudit, copy: CopyAudit, shared: int | None) -> str | None:
    """Why a copy is left alone whatever its right content is; None for no reason.

    Args:
        partition: that was audited.
        copy: of it.
        shared: from ``_shared_from``, which looks at all copies.
    """
    end = copy.copy.end_offset
    if end is None:
        return "its end is unknown"
    if shared is not None and end >= shared:
        return f"from offset {shared} on copies share offsets, or the end of one is unknown: which belong to the log is not certain"
    if partition.damaged_at is not None and partition.damaged_at <= end:
        return f"something at or above offset {partition.damaged_at} is damaged, or could not be read"
    return None


def _shared_from(partition: PartitionAudit) -> int | None:
    """The least offset that is in two copies, or in one whose end is unknown."""
    reached = -1
    for copy in sorted((each.copy for each in partition.copies), key=lambda each: each.start_offset):
        if copy.start_offset <= reached or copy.end_offset is None:
            return copy.start_offset
        reached = copy.end_offset
    return None


# ---------------------------------------------------------------------------------------------------------------- what is written


class _Repairs:
    """Repairs one copy after the other."""

    def __init__(
        self, result: StoreRepair, access: StoreAccess, proven: ProvenSnapshots, grown: Mapping[bytes, RefusedError]
    ) -> None:
        self._result = result
        self._root = access.root
        self._tier = TierStore(access.root.store, access.private_keys)
        self._proven = proven
        self._grown = grown

    def run(self, due: Sequence[_WrongSnapshot], undo_path: str | None) -> None:
        receipt = None
        if due and undo_path is not None:
            receipt = RepairReceipt(undo_path, self._root.path)
            receipt.check_place()
            self._root.prepare_replacing()
        for wrong in due:
            try:
                self._repair(wrong, receipt)
            except (SnaprebuildError, FormatError) as error:
                wrong.action = next(action for kind, action in _ACTIONS if isinstance(error, kind))
                wrong.reason = error.message
                self._result.findings.append(finding_of_error(error, self._root.path))
        if receipt is not None:
            try:
                receipt.close()
            except SnaprebuildError as error:  # all that was announced is in it
                self._result.findings.append(finding_of_error(error, receipt.path))
            self._result.receipt = receipt.path if receipt.is_there else None

    def _repair(self, wrong: _WrongSnapshot, receipt: RepairReceipt | None) -> None:
        assert wrong.audit.proven is not None
        right = self._proven.read(wrong.audit.proven)
        repair = copy_repair(self._root, self._tier, wrong.audit.copy.objects, right)
        grown = self._grown.get(wrong.audit.copy.segment_id)
        if grown is not None and repair.place.appended_bytes:
            raise grown  # it does not end with the right snapshot, as after a repair that was interrupted
        wrong.repair = repair
        if receipt is not None:
            written = write_repair(repair, lambda: receipt.announce(wrong.partition.remote.id, wrong.audit.copy, repair))
            receipt.settle(written)
            wrong.action = RepairAction.REPAIRED


_ACTIONS: tuple[tuple[type[Exception], RepairAction], ...] = (
    (RefusedError, RepairAction.REFUSED),
    (OutcomeUnknownError, RepairAction.UNKNOWN),
    (StorageError, RepairAction.FAILED),
    (FormatError, RepairAction.REFUSED),
    (SnaprebuildError, RepairAction.FAILED),
)
"""By the error that ended the work on a copy; the first that fits."""
