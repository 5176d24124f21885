"""Wrong producer snapshots in remote storage get their right content, where the segments there prove it.

What is wrong, and what would be right, is what ``tier_audit`` says: nothing is replayed here. A copy is left alone, and told, where that
is not proven, where nobody tells that brokers read it, where another copy shares offsets with it or with one below, and behind damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_manifest import IndexPlace
from snaprebuild.errors import OutcomeUnknownError, RefusedError, SnaprebuildError, StorageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.snapshots.source.source import Selection
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import S3Settings, Store
from snaprebuild.storage.stores import replacing
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.audit.result import WRONG, AuditedCopy, AuditedPartition, TierAudit
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.repair.copy_repair import CopyRepair, carry_out, copy_repair
from snaprebuild.tier.repair.undo import UndoFile

__all__ = ["RepairAction", "RepairPlace", "RepairedCopy", "TierRepair", "tier_repair"]


class RepairAction(StrEnum):
    """What became of a copy whose snapshot is wrong."""

    REPAIRED = "repaired"
    WOULD_REPAIR = "would-repair"
    """Dry run."""
    NOT_REPAIRED = "not-repaired"
    """What is right is not proven, or the copy is such that it is left alone."""
    REFUSED = "refused"
    """Its objects changed meanwhile, or may not be written."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may be repaired, or will be by another run."""


@dataclass(frozen=True, slots=True)
class RepairPlace:
    """Where a repair leads a manifest.

    Attributes:
        manifest_key: below the root; ``indexes_key`` likewise.
        indexes_bytes: size of ``.indexes`` before.
        appended_bytes: to it; 0 where an earlier run has done that.
        old: place of the wrong snapshot.
        new: of the right one.
    """

    manifest_key: str
    indexes_key: str
    indexes_bytes: int
    appended_bytes: int
    old: IndexPlace
    new: IndexPlace

    @classmethod
    def of(cls, repair: CopyRepair) -> Self:
        """Without the bytes, of which a run with many copies cannot hold all."""
        keys = repair.manifest_key, repair.indexes_key
        return cls(*keys, len(repair.indexes.data), len(repair.appended), repair.old_place, repair.place)


@dataclass(slots=True)
class RepairedCopy:
    """A copy whose snapshot is wrong.

    Attributes:
        partition: of it.
        audited: what is wrong.
        action: what became of it.
        why: it was not repaired; empty where it was, or is to be.
        place: what was written, or is to be; None where it did not come to that.
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
        is_dry_run: nothing was written.
        copies: those that were wrong.
        findings: of the audit, but what was repaired; and what was not.
        undo_file: path of the file that takes it back; None where nothing was to be written.
    """

    audit: TierAudit
    is_dry_run: bool
    copies: list[RepairedCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    undo_file: str | None = None


def tier_repair(
    store: Store,
    root: str,
    clock: Clock,
    *,
    selection: Selection | None = None,
    metadata_logs: Sequence[str] = (),
    private_keys: PrivateKeys = NO_KEYS,
    settings: S3Settings | None = None,
    jobs: int | None = None,
    allow_unverified: bool = False,
    undo_path: str | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    key_prefix: str = "",
) -> TierRepair:
    """Repairs every snapshot below a location that is wrong.

    Args:
        store: that holds it.
        root: the location, absolute.
        clock: as for ``tier_audit``.
        selection: likewise.
        metadata_logs: likewise.
        private_keys: likewise.
        settings: likewise.
        jobs: likewise.
        allow_unverified: take complete copies for live where no metadata log tells.
        undo_path: of the file that takes it back, which must not exist; None for a dry run, which writes nothing.
        announce: as for ``tier_audit``.
        key_prefix: likewise.

    Raises:
        UsageError, ReadFailedError: as ``tier_audit``.
        RefusedError: likewise, or the store would not honour conditions, or the undo file may not stand there.
    """
    with ProvenSnapshots() as proven:
        audit = tier_audit(
            store,
            root,
            clock,
            selection=selection,
            metadata_logs=metadata_logs,
            private_keys=private_keys,
            settings=settings,
            jobs=jobs,
            keep=proven,
            announce=announce,
            key_prefix=key_prefix,
        )
        result = TierRepair(audit, undo_path is None)
        result.findings = [each for each in audit.findings if each.code != "tier-wrong-snapshot"]
        for partition in audit.partitions:
            _sort_out(result, partition, allow_unverified=allow_unverified)
        _Repairing(result, store, root, private_keys, proven).run(undo_path)
    for repaired in result.copies:
        if repaired.action is RepairAction.NOT_REPAIRED:
            _tell_left(result, repaired)
    return result


# ---------------------------------------------------------------------------------------------------------------- what is left alone

LOCAL_TIER = "LocalTieredStorage keeps a snapshot in a file of its own, and that a file is replaced is not done"
UNVERIFIED = "which copies brokers read is not verified"


def _sort_out(result: TierRepair, partition: AuditedPartition, *, allow_unverified: bool) -> None:
    """Which of the wrong copies of a partition are to be repaired."""
    _tell_refusals(result, partition, allow_unverified=allow_unverified)
    for audited in partition.copies:
        if audited.verdict in WRONG:
            why = _why_not(partition, audited, allow_unverified=allow_unverified)
            action = RepairAction.WOULD_REPAIR if why is None else RepairAction.NOT_REPAIRED
            result.copies.append(RepairedCopy(partition, audited, action, why or ""))


def _why_not(partition: AuditedPartition, audited: AuditedCopy, *, allow_unverified: bool) -> str | None:
    """Why a copy is not repaired; None where it is to be."""
    if partition.layout is not TierLayout.AIVEN:
        return LOCAL_TIER
    if not (partition.is_verified or allow_unverified):
        return UNVERIFIED
    if audited.end_offset is None:
        return "its end is not known"
    shared = _shared_from(partition)
    if shared is not None and audited.end_offset >= shared:
        return f"from offset {shared} on copies share offsets, or one has no end that anybody tells: which belong to the log is not certain"
    if partition.damaged_at is not None and partition.damaged_at <= audited.end_offset:
        return f"what lies at or above offset {partition.damaged_at} is damaged, or could not be read"
    return None if audited.proven is not None else f"what is right is not proven: {audited.unproven}"


def _shared_from(partition: AuditedPartition) -> int | None:
    """The least offset that lies in two copies, or in one whose end nobody knows."""
    reached = -1
    for audited in sorted(partition.copies, key=lambda copy: copy.start_offset):
        if audited.start_offset <= reached or audited.end_offset is None:
            return audited.start_offset
        reached = audited.end_offset
    return None


def _place(result: TierRepair, partition: AuditedPartition) -> str:
    return f"{result.audit.root}: {partition.name} ({uuid_to_text(partition.topic_id)})"


def _tell_refusals(result: TierRepair, partition: AuditedPartition, *, allow_unverified: bool) -> None:
    """What concerns all wrong copies of a partition is told once."""
    count = sum(audited.verdict in WRONG for audited in partition.copies)
    if not count:
        return
    message = None
    if partition.layout is not TierLayout.AIVEN:
        message = LOCAL_TIER
    elif not (partition.is_verified or allow_unverified):
        message = f"{UNVERIFIED}: --metadata-log tells, or --allow-unverified takes every complete copy for one"
    if message is not None:
        left = f"{pluralize(count, 'wrong snapshot')} left alone: {message}"
        result.findings.append(Finding("refused", Severity.REFUSED, _place(result, partition), left))


def _tell_left(result: TierRepair, left: RepairedCopy) -> None:
    if left.why in (LOCAL_TIER, UNVERIFIED):
        return
    audited = left.audited
    message = f"the snapshot of the segment {uuid_to_text(audited.segment_id)} is {audited.verdict}, and stays so: {left.why}"
    result.findings.append(
        Finding("tier-not-repaired", Severity.FINDING, _place(result, left.partition), message, audited.start_offset)
    )


# ---------------------------------------------------------------------------------------------------------------- what is written


class _Repairing:
    """One copy after the other."""

    def __init__(self, result: TierRepair, store: Store, root: str, private_keys: PrivateKeys, proven: ProvenSnapshots) -> None:
        self._result = result
        self._root = root
        self._replacing = replacing(store)
        self._tier = TierStore(store, private_keys)
        self._proven = proven
        self._undo: UndoFile | None = None

    def run(self, undo_path: str | None) -> None:
        due = [each for each in self._result.copies if each.action is RepairAction.WOULD_REPAIR]
        if due and undo_path is not None:
            self._undo = UndoFile(undo_path, self._root)
            self._undo.check_place()
            self._replacing.prepare(self._root)
        for repaired in due:
            self._one(repaired)
        if self._undo is not None:
            try:
                self._undo.close()
            except SnaprebuildError as error:  # all that was announced stands in it
                self._result.findings.append(finding_of_error(error, self._undo.path))
            self._result.undo_file = self._undo.path if self._undo.is_there else None

    def _one(self, repaired: RepairedCopy) -> None:
        try:
            self._repair(repaired)
        except (SnaprebuildError, FormatError) as error:
            repaired.action, repaired.why = _ACTIONS[_kind_of(error)], error.message
            finding = finding_of_error(error, self._root)
            self._result.findings.append(finding)

    def _repair(self, repaired: RepairedCopy) -> None:
        audited = repaired.audited
        assert audited.copy is not None
        assert audited.proven is not None
        right = self._proven.read(audited.proven)
        repair = copy_repair(self._replacing, self._tier, self._root, audited.copy, right)
        repaired.place = RepairPlace.of(repair)
        if self._undo is None:
            return
        undo, number = self._undo, self._undo.number()
        carry_out(self._replacing, repair, lambda: undo.announce(number, repaired.partition, audited, repair))
        undo.settle(number)
        repaired.action = RepairAction.REPAIRED


def _kind_of(error: Exception) -> type[Exception]:
    return next(kind for kind in _ACTIONS if isinstance(error, kind))


_ACTIONS: dict[type[Exception], RepairAction] = {
    RefusedError: RepairAction.REFUSED,
    OutcomeUnknownError: RepairAction.UNKNOWN,
    StorageError: RepairAction.FAILED,
    FormatError: RepairAction.REFUSED,
    SnaprebuildError: RepairAction.FAILED,
}
"""By the error that ended the work on a copy; the first that fits."""
