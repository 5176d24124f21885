"""The receipt of a repair of remote storage, and ``undo`` of it.

The receipt has JSON lines, each synced before the step that it announces. They are a header, and for each copy, before its first write,
the old manifest with the keys, ETags and sizes of both objects. After the write a line identifies the new manifest. ``undo`` restores the
manifest alone, if it is still the one that the repair wrote. One that a later repair wrote again has the same bytes, and stays. The bytes
that were appended to ``.indexes`` stay after the indexes, where the old manifest does not look.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass, field
from typing import Any

from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.object_names import AivenObject, parse_aiven_key
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import OutcomeUnknownError, RefusedError, StorageError, UsageError, WriteFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.published import Natural, Part, Sha256
from snaprebuild.snapshots.receipts.receipt_lines import STORE_KIND
from snaprebuild.snapshots.receipts.step_receipt import LastStep, ReceiptForm, ReceiptStep, StepHeader, StepReceipt
from snaprebuild.storage.file_facts import is_nameable
from snaprebuild.storage.log_dir import directory_fault
from snaprebuild.storage.partition_names import named
from snaprebuild.storage.store import FileIdentity, S3Settings, WholeObject
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.tier.remote_partition import RemoteCopy
from snaprebuild.tier.repair.copy_repair import CopyRepair, read_back
from snaprebuild.tier.repair.repaired_copy import RepairAction, RepairedCopy

__all__ = [
    "AnnouncedRepair",
    "RecordedRepair",
    "RepairReceipt",
    "StoreUndo",
    "is_repair_undone",
    "load_repair_receipt",
    "undo_receipt",
    "undo_repairs",
]

LINE_BYTES_MAX = 2 * MANIFEST_BYTES_MAX
"""A manifest in base64 and some keys."""


class RepairHeader(StepHeader, frozen=True, kw_only=True):
    """The first line.

    Attributes:
        location: of the store.
    """

    location: str

    def __post_init__(self) -> None:
        if not (self.location.startswith("s3://") or os.path.isabs(self.location)):
            raise ValueError(self.location)


class OldManifest(Part, frozen=True):
    """A manifest before its repair.

    Attributes:
        key: below the root.
        mark: ETag, or inode.
        base64: its bytes, which the file holds in base64.
        new_sha256: of the bytes that the run was about to write.
    """

    key: str
    size_bytes: Natural
    modified_ns: int
    mark: int | str
    base64: bytes
    new_sha256: Sha256

    def __post_init__(self) -> None:
        key = parse_aiven_key(self.key)
        is_manifest = key is not None and key.kind is AivenObject.MANIFEST
        if not is_manifest or any(part in (".", "..") for part in self.key.split("/")) or not is_nameable(self.key):
            raise ValueError(self.key)


class _OldIndexes(Part, frozen=True):
    key: str
    size_bytes: Natural
    modified_ns: int
    mark: int | str
    appended_bytes: Natural


class AnnouncedRepair(ReceiptStep, frozen=True, tag="repair"):
    """A copy that a run began to repair."""

    number: Natural
    topic: str
    topic_id: str
    partition: Natural
    segment_id: str
    start_offset: Natural
    manifest: OldManifest
    indexes: _OldIndexes


class _Repaired(ReceiptStep, frozen=True, tag="repaired"):
    number: Natural
    size_bytes: Natural
    modified_ns: int
    mark: int | str


FORM = ReceiptForm(
    verb="tier repair",
    kind=STORE_KIND,
    version=3,
    header=RepairHeader,
    steps=AnnouncedRepair | _Repaired | LastStep,
    line_bytes_max=LINE_BYTES_MAX,
)


class RepairReceipt(StepReceipt):
    """The receipt of a run that repairs."""

    def __init__(self, path: str, location: str) -> None:
        super().__init__(path, FORM, location=location)
        self._count = 0

    def announce(self, partition: TopicIdPartition, copy: RemoteCopy, repair: CopyRepair) -> None:
        """Called before the first write of a copy.

        Raises:
            WriteFailedError, RefusedError: the file cannot be written, so that nothing may be.
        """
        self._count += 1
        announced = AnnouncedRepair(
            number=self._count - 1,
            topic=partition.topic,
            topic_id=uuid_to_text(partition.topic_id),
            partition=partition.partition,
            segment_id=uuid_to_text(copy.segment_id),
            start_offset=copy.start_offset,
            manifest=OldManifest(
                **_object(repair.place.manifest_key, repair.manifest.identity),
                base64=repair.manifest.data,
                new_sha256=hashlib.sha256(repair.new_manifest).hexdigest(),
            ),
            indexes=_OldIndexes(**_object(repair.place.indexes_key, repair.indexes.identity), appended_bytes=repair.place.new.size),
        )
        self.append(announced)

    def settle(self, written: FileIdentity) -> None:
        """Records that the announced copy is repaired. The line is not synced and may be lost: the bytes of the manifest show the repair.

        Args:
            written: identity of the new manifest.
        """
        with contextlib.suppress(WriteFailedError):
            self.append(_Repaired(number=self._count - 1, **_members(written)), sync=False)


def _object(key: str, identity: FileIdentity) -> dict[str, Any]:
    return {"key": key, **_members(identity)}


def _members(identity: FileIdentity) -> dict[str, Any]:
    size_bytes, modified_ns, mark = identity.row
    return {"size_bytes": size_bytes, "modified_ns": modified_ns, "mark": mark}


# ---------------------------------------------------------------------------------------------------------------- undo


@dataclass(slots=True)
class StoreUndo:
    """The result of ``undo`` for a receipt of a repair.

    Attributes:
        location: of the store.
        undone_receipt: its path.
        dry_run: nothing was written.
        copies: in the order of the receipt.
        findings: what was left alone, refused, or failed.
    """

    location: str
    undone_receipt: str
    dry_run: bool
    copies: list[RepairedCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordedRepair:
    """A repair in a receipt.

    Attributes:
        announced: before it began.
        written: ``FileIdentity.row`` of the new manifest; None if the run did not come so far, or the line is lost.
    """

    announced: AnnouncedRepair
    written: tuple[int, int, int | str] | None = None


def load_repair_receipt(path: str) -> tuple[str, list[RecordedRepair]]:
    """Reads a receipt: the location of its store, and the repairs.

    Raises:
        UsageError, ReadFailedError: ``ReceiptForm.read`` raises it.
    """
    header, steps = FORM.read(path)
    written = {each.number: (each.size_bytes, each.modified_ns, each.mark) for each in steps if isinstance(each, _Repaired)}
    repairs = [RecordedRepair(each, written.get(each.number)) for each in steps if isinstance(each, AnnouncedRepair)]
    return header.location, repairs


def undo_receipt(path: str, settings: S3Settings, *, dry_run: bool) -> StoreUndo:
    """Restores the old manifests that a receipt names, in the store that it names.

    Args:
        path: of the receipt.
        settings: how object stores are reached.
        dry_run: change nothing.

    Raises:
        UsageError: it is no receipt, or its store is a directory that cannot be read.
        ReadFailedError: the receipt cannot be read.
        RefusedError: the store would not honour conditions.
    """
    location, repairs = load_repair_receipt(path)
    root = path_of(location, settings)
    if root.is_local and (fault := directory_fault(location)) is not None:
        raise UsageError(fault, path=location)
    return undo_repairs(root, repairs, path, dry_run=dry_run)


def is_repair_undone(path: str, settings: S3Settings) -> bool:
    """Whether no manifest of a repair is there any more: each one was restored, or deleted by brokers, or never written.

    Args:
        path: of the receipt.
        settings: how object stores are reached.

    Raises:
        UsageError: it is no receipt, or its store is a directory that cannot be read.
        ReadFailedError: the receipt cannot be read.
    """
    return all(each.action is RepairAction.ABSENT for each in undo_receipt(path, settings, dry_run=True).copies)


def undo_repairs(root: StorePath, repairs: list[RecordedRepair], path: str, *, dry_run: bool) -> StoreUndo:
    """Restores the old manifests where those of the repair are still there.

    Args:
        root: of the store, absolute.
        repairs: those in that store, from ``load_repair_receipt``.
        path: of the receipt.
        dry_run: change nothing.

    Raises:
        RefusedError: the store would not honour conditions.
    """
    result = StoreUndo(root.path, path, dry_run)
    if repairs and not dry_run:
        root.prepare_replacing()
    for repair in repairs:
        each = repair.announced
        manifest = root.below(each.manifest.key)
        try:
            action, reason = _restore(manifest, repair, dry_run=dry_run)
        except OutcomeUnknownError as error:
            action = RepairAction.UNKNOWN
            reason = error.message
            result.findings.append(finding_of_error(error, manifest.path))
        except (RefusedError, StorageError) as error:
            action = RepairAction.REFUSED if isinstance(error, RefusedError) else RepairAction.FAILED
            reason = error.message
            result.findings.append(finding_of_error(error, manifest.path))
        if action is RepairAction.LEFT:
            result.findings.append(Finding("left-alone", Severity.FINDING, manifest.path, reason, each.start_offset))
        result.copies.append(_undone_copy(each, action, reason))
    return result


def _undone_copy(announced: AnnouncedRepair, action: RepairAction, reason: str) -> RepairedCopy:
    return RepairedCopy(
        **named(announced.topic, announced.partition),
        topic_id=announced.topic_id,
        segment_id=announced.segment_id,
        start_offset=announced.start_offset,
        action=action,
        reason=reason,
        manifest_key=announced.manifest.key,
    )


def _restore(manifest: StorePath, repair: RecordedRepair, *, dry_run: bool) -> tuple[RepairAction, str]:
    """Restores a manifest, if it is still that of the repair. Gives the action, and why nothing was restored.

    Raises:
        RefusedError: it changed meanwhile.
        StorageError: it cannot be read or written, or whether it was written is unknown.
    """
    announced = repair.announced
    found = manifest.read_whole(MANIFEST_BYTES_MAX)
    if found is None:
        return RepairAction.ABSENT, "is gone: brokers have deleted the copy"
    if found.data == announced.manifest.base64:
        return RepairAction.ABSENT, "is the old one: restored before, or never written"
    if hashlib.sha256(found.data).hexdigest() != announced.manifest.new_sha256:
        return RepairAction.LEFT, "is neither the old one nor that of the repair, and stays"
    if repair.written not in (None, found.identity.row):
        return (
            RepairAction.LEFT,
            "has the bytes of the repair, but was written at another moment: by a later run or a copy. It stays",
        )
    if dry_run:
        return RepairAction.WOULD_RESTORE, ""
    _put_back(manifest, announced, found)
    return RepairAction.RESTORED, ""


def _put_back(manifest: StorePath, announced: AnnouncedRepair, found: WholeObject) -> None:
    manifest.replace(announced.manifest.base64, found)
    read_back(manifest, announced.manifest.base64)
