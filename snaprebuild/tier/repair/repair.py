"""Replaces wrong producer snapshots in remote storage, where the segments there prove the right content.

``tier_audit`` finds the wrong snapshots and their right content: nothing is replayed here. A copy is left alone and reported in four
cases. The right content is not proven. It is not verified that brokers read the copy. Another copy shares offsets with it or with one
below. There is damage below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from formats.errors import FormatError
from snaprebuild.errors import OutcomeUnknownError, RefusedError, SnaprebuildError, StorageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.result import WRONG, AuditedCopy, AuditedPartition, ProvenSnapshots, TierAudit
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.repair.copy_repair import RepairPlace, carry_out, copy_repair
from snaprebuild.tier.repair.undo import RepairReceipt

__all__ = ["RepairAction", "RepairedCopy", "TierRepair", "tier_repair", "would_repair"]


class RepairAction(StrEnum):
    """The result for a copy whose snapshot is wrong."""

    REPAIRED = "repaired"
    WOULD_REPAIR = "would-repair"
    """Dry run."""
    NOT_REPAIRED = "not-repaired"
    """The right content is not proven, or the copy is one that is left alone."""
    REFUSED = "refused"
    """Its objects changed meanwhile, or may not be written."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may be repaired, or another run will repair it."""


@dataclass(slots=True)
class RepairedCopy:
    """A copy whose snapshot is wrong.

    Attributes:
        audited: what is wrong.
        why: it was not repaired; else empty.
        place: what was written, or would be; None if the run did not get that far.
    """

    partition: AuditedPartition
    audited: AuditedCopy
    action: RepairAction
    why: str = ""
    place: RepairPlace | None = None


@dataclass(slots=True)
class TierRepair:
    """A store.

    Attributes:
        audit: what was found before.
        copies: those that were wrong.
        findings: of the audit, without what was repaired; and what was not.
        undo_file: path of the receipt; None if nothing was written.
    """

    audit: TierAudit
    is_dry_run: bool
    copies: list[RepairedCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    undo_file: str | None = None


def tier_repair(
    root: StorePath,
    run: Run,
    *,
    selection: Selection | None = None,
    metadata_logs: Sequence[str] = (),
    private_keys: PrivateKeys = NO_KEYS,
    allow_unverified: bool = False,
    undo_path: str | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    key_prefix: str = "",
) -> TierRepair:
    """Repairs every snapshot below a location that is wrong.

    Args:
        root: of the store, absolute.
        run: its clock is for expiry.
        selection: of partitions.
        metadata_logs: directories with partitions of ``__remote_log_metadata``.
        private_keys: of segments that are encrypted.
        allow_unverified: without a metadata log, take complete copies for live.
        undo_path: of the receipt, which must not exist; None for a dry run, which writes nothing.
        announce: called with what is going to be read.
        key_prefix: of the plugin.

    Raises:
        UsageError, ReadFailedError: as ``tier_audit``.
        RefusedError: as ``tier_audit``, or the store would not honour conditions, or the receipt may not be there.
    """
    with ProvenSnapshots() as proven:
        audit = tier_audit(
            root,
            run,
            selection=selection,
            metadata_logs=metadata_logs,
            private_keys=private_keys,
            keep=proven,
            announce=announce,
            key_prefix=key_prefix,
        )
        result = TierRepair(audit, undo_path is None)
        result.findings = [each for each in audit.findings if each.cause is not FindingCause.WRONG_REMOTE_SNAPSHOT]
        for partition in audit.partitions:
            _add_wrong_copies(result, partition, allow_unverified=allow_unverified)
        due = [each for each in result.copies if each.action is RepairAction.WOULD_REPAIR]
        _Repairs(result, root, private_keys, proven).run(due, undo_path)
    return result


# ---------------------------------------------------------------------------------------------------------------- what is left alone

UNVERIFIED = "whether brokers read these copies is not verified"


def _add_wrong_copies(result: TierRepair, partition: AuditedPartition, *, allow_unverified: bool) -> None:
    """Decides which of the wrong copies of a partition are repaired. A reason that concerns all of them is one finding."""
    wrong = [each for each in partition.copies if each.verdict in WRONG]
    refusal = None
    advice = ""
    if partition.layout is not TierLayout.AIVEN:
        refusal = "LocalTieredStorage keeps a snapshot in a file of its own, and a file is not replaced"
    elif not (partition.is_verified or allow_unverified):
        refusal = UNVERIFIED
        advice = ": give --metadata-log, or take every complete copy for live with --allow-unverified"
    if wrong and refusal is not None:
        left = f"{pluralize(len(wrong), 'wrong snapshot')} left alone: {refusal}{advice}"
        result.findings.append(Finding("refused", Severity.REFUSED, partition.place, left))
    for audited in wrong:
        why = refusal or _why_not(partition, audited)
        action = RepairAction.WOULD_REPAIR if why is None else RepairAction.NOT_REPAIRED
        result.copies.append(RepairedCopy(partition, audited, action, why or ""))
        if why is not None and refusal is None:
            message = f"{audited.snapshot_name} is {audited.verdict}, and is not repaired: {why}"
            result.findings.append(Finding("tier-not-repaired", Severity.FINDING, partition.place, message, audited.start_offset))


def would_repair(partition: AuditedPartition) -> bool:
    """Whether a repair would replace a wrong snapshot of a partition, by an audit of the level ``FULL``."""
    wrong = [each for each in partition.copies if each.verdict in WRONG and each.is_provable]
    return partition.layout is TierLayout.AIVEN and any(_obstacle(partition, each) is None for each in wrong)


def _why_not(partition: AuditedPartition, audited: AuditedCopy) -> str | None:
    """Why a copy is not repaired; None if it is."""
    obstacle = _obstacle(partition, audited)
    if obstacle is not None or audited.proven is not None:
        return obstacle
    return f"the right content is not proven: {audited.unproven}"


def _obstacle(partition: AuditedPartition, audited: AuditedCopy) -> str | None:
    """Why a copy is left alone whatever its right content is; None for no reason."""
    if audited.end_offset is None:
        return "its end is unknown"
    shared = _shared_from(partition)
    if shared is not None and audited.end_offset >= shared:
        return f"from offset {shared} on copies share offsets, or the end of one is unknown: which belong to the log is not certain"
    if partition.damaged_at is not None and partition.damaged_at <= audited.end_offset:
        return f"something at or above offset {partition.damaged_at} is damaged, or could not be read"
    return None


def _shared_from(partition: AuditedPartition) -> int | None:
    """The least offset that is in two copies, or in one whose end is unknown."""
    reached = -1
    for audited in sorted(partition.copies, key=lambda copy: copy.start_offset):
        if audited.start_offset <= reached or audited.end_offset is None:
            return audited.start_offset
        reached = audited.end_offset
    return None


# ---------------------------------------------------------------------------------------------------------------- what is written


class _Repairs:
    """Repairs one copy after the other."""

    def __init__(self, result: TierRepair, root: StorePath, private_keys: PrivateKeys, proven: ProvenSnapshots) -> None:
        self._result = result
        self._root = root
        self._tier = TierStore(root.store, private_keys)
        self._proven = proven

    def run(self, due: Sequence[RepairedCopy], undo_path: str | None) -> None:
        receipt = None
        if due and undo_path is not None:
            receipt = RepairReceipt(undo_path, self._root.path)
            receipt.check_place()
            self._root.prepare_replacing()
        for repaired in due:
            try:
                self._repair(repaired, receipt)
            except (SnaprebuildError, FormatError) as error:
                repaired.action = next(action for kind, action in _ACTIONS if isinstance(error, kind))
                repaired.why = error.message
                self._result.findings.append(finding_of_error(error, self._root.path))
        if receipt is not None:
            try:
                receipt.close()
            except SnaprebuildError as error:  # all that was announced is in it
                self._result.findings.append(finding_of_error(error, receipt.path))
            self._result.undo_file = receipt.path if receipt.is_there else None

    def _repair(self, repaired: RepairedCopy, receipt: RepairReceipt | None) -> None:
        audited = repaired.audited
        assert audited.copy is not None
        assert audited.proven is not None
        right = self._proven.read(audited.proven)
        repair = copy_repair(self._root, self._tier, audited.copy, right)
        repaired.place = repair.place
        if receipt is not None:
            carry_out(repair, lambda: receipt.announce(repaired.partition, audited, repair))
            receipt.settle()
            repaired.action = RepairAction.REPAIRED


_ACTIONS: tuple[tuple[type[Exception], RepairAction], ...] = (
    (RefusedError, RepairAction.REFUSED),
    (OutcomeUnknownError, RepairAction.UNKNOWN),
    (StorageError, RepairAction.FAILED),
    (FormatError, RepairAction.REFUSED),
    (SnaprebuildError, RepairAction.FAILED),
)
"""By the error that ended the work on a copy; the first that fits."""
