"""The receipt of partition directories that were written, and ``undo`` of it.

The receipt has JSON lines: a header, and a line for each directory, which is synced before the directory gets its name. That line has the
path, and the SHA-256 and modification time of each file. ``undo`` removes a directory only if no broker runs on its log directory, and if
each file is as it was written. A directory that a broker has used since stays, also if nothing was appended: a broker that stops trims the
indexes of the last segment. A directory that a later run wrote again stays too: its files have the same bytes and other times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.published import Document, Int64, Part, Sha256
from snaprebuild.snapshots.receipts.receipt_lines import FOLLOWER_KIND, TOPIC_KIND
from snaprebuild.snapshots.receipts.receipt_places import listed_receipts
from snaprebuild.snapshots.receipts.step_receipt import LastStep, ReceiptForm, ReceiptStep, StepHeader, StepReceipt
from snaprebuild.storage.local.broker_lock import check_hold, hold
from snaprebuild.storage.local.new_directory import remove_partition_directory
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.log_dir import is_log_dir
from snaprebuild.storage.store_path import path_of

__all__ = [
    "FOLLOWER_FORM",
    "TOPIC_FORM",
    "AnnouncedDirectory",
    "DirectoryAction",
    "DirectoryReceipt",
    "DirectoryUndo",
    "DirectoryUndoResult",
    "UndoneDirectory",
    "receipt_of_directory",
    "undo_directories",
]

LINE_BYTES_MAX = 16 << 20

BLOCK_BYTES = 1 << 20


class AnnouncedDirectory(ReceiptStep, frozen=True, tag="directory"):
    """A directory that a run wrote, and began to give its name.

    Attributes:
        path: of it, absolute.
        files: SHA-256 of each file by name.
        modified_ns: modification time of each file by name.
    """

    path: str
    files: dict[str, Sha256]
    modified_ns: dict[str, Int64]

    def __post_init__(self) -> None:
        is_partition = parse_partition_dir_name(os.path.basename(self.path)) is not None
        if not is_partition or not os.path.isabs(self.path) or os.path.normpath(self.path) != self.path:
            raise ValueError("expected the absolute path of a partition")
        if any(os.path.basename(each) != each for each in self.files):
            raise ValueError("expected names of files")
        if self.modified_ns.keys() != self.files.keys():
            raise ValueError("expected the time of each file")


def _form(verb: str, kind: str) -> ReceiptForm[StepHeader]:
    return ReceiptForm(
        verb=verb,
        kind=kind,
        version=1,
        header=StepHeader,
        steps=AnnouncedDirectory | LastStep,
        line_bytes_max=LINE_BYTES_MAX,
    )


TOPIC_FORM = _form("tier metadata", TOPIC_KIND)
FOLLOWER_FORM = _form("follower build", FOLLOWER_KIND)


class DirectoryReceipt(StepReceipt):
    """The receipt of a run that writes partition directories."""

    def announcing(self, path: str, files: Mapping[str, bytes]) -> Callable[[dict[str, int]], None]:
        """A function that announces a directory, which is called before the directory gets its name.

        It takes the modification times of the files. It raises RefusedError or WriteFailedError if the receipt cannot be written, so that
        the directory must not get its name.

        Args:
            path: of the directory, absolute.
            files: by name.
        """
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}

        def announce(modified_ns: dict[str, int]) -> None:
            self.append(AnnouncedDirectory(path=path, files=sums, modified_ns=modified_ns))

        return announce


# ---------------------------------------------------------------------------------------------------------------------- undo


class DirectoryAction(StrEnum):
    """The result of ``undo`` for a directory."""

    REMOVED = "removed"
    """The directory was as it was written, and was removed."""
    WOULD_REMOVE = "would-remove"
    """The directory is as it was written; nothing was changed."""
    ABSENT = "absent"
    """The directory is not there."""
    LEFT = "left"
    """It is not as this run wrote it: a broker has used it, somebody has changed it, or a later run wrote it again. It stays."""
    REFUSED = "refused"
    """A broker holds the log directory, or it cannot be changed."""


class UndoneDirectory(Part, frozen=True):
    """A partition directory that a run wrote."""

    path: str
    action: DirectoryAction
    reason: str | None
    """Why it stays, for the user; not stable. Null if the action says all."""


class DirectoryUndo(Document, frozen=True):
    """The JSON document of `snaprebuild undo` for a receipt of `tier metadata` or `follower build`."""

    NAME = "metadata-undone"
    VERSION = 1

    receipt: str
    """The receipt."""
    dry_run: bool
    """Nothing was changed."""
    directories: list[UndoneDirectory]
    """In the order in which they were written."""


@dataclass(slots=True)
class DirectoryUndoResult:
    """The result of ``undo``.

    Attributes:
        verb: that left the receipt.
        receipt: its path.
        dry_run: nothing was changed.
        directories: in the order of the receipt.
        findings: about what stays.
    """

    verb: str
    receipt: str
    dry_run: bool
    directories: list[UndoneDirectory] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_undone(self) -> bool:
        """Whether nothing of the run is left."""
        return all(each.action in (DirectoryAction.ABSENT, DirectoryAction.REMOVED) for each in self.directories)


def undo_directories(path: str, form: ReceiptForm[StepHeader], *, dry_run: bool) -> DirectoryUndoResult:
    """Removes the directories of a receipt that no broker has used.

    Args:
        path: of the receipt.
        form: of the receipt.
        dry_run: change nothing.

    Raises:
        UsageError: it is no receipt of this kind; the line is named.
        ReadFailedError: it cannot be read.
    """
    result = DirectoryUndoResult(form.verb, path, dry_run)
    for announced in _load(path, form):
        reason: str | None = None
        try:
            action = _undo(announced, dry_run=dry_run)
        except SnaprebuildError as error:
            action = DirectoryAction.REFUSED
            reason = error.message
            result.findings.append(finding_of_error(error, announced.path))
        if action is DirectoryAction.LEFT:
            reason = "it is not as this run wrote it: a broker has used it, somebody has changed it, or a later run wrote it again"
            result.findings.append(Finding("left-alone", Severity.FINDING, announced.path, reason))
        result.directories.append(UndoneDirectory(path=announced.path, action=action, reason=reason))
    return result


def receipt_of_directory(path: str) -> str | None:
    """The newest receipt of `tier metadata` whose ``undo`` removes a directory, among those in the places where runs leave them by default.

    Args:
        path: of the directory, absolute.

    Returns:
        Path of the receipt; None if no receipt names the directory, or a file in it is not as it was written.
    """
    for listed in listed_receipts():
        receipt = os.path.realpath(listed.path)  # of the link to a receipt that is elsewhere
        with contextlib.suppress(SnaprebuildError):  # a receipt of another kind, or one that cannot be read
            if any(each.path == path and _is_as_written(each) for each in _load(receipt, TOPIC_FORM)):
                return receipt
    return None


def _undo(announced: AnnouncedDirectory, *, dry_run: bool) -> DirectoryAction:
    """Removes one directory.

    Raises:
        RefusedError: a broker holds the log directory.
        StorageError: it cannot be read or removed.
    """
    if not os.path.lexists(announced.path):
        return DirectoryAction.ABSENT
    log_dir, name = os.path.split(announced.path)
    is_broker = is_log_dir(path_of(log_dir))
    if dry_run:
        if is_broker:
            check_hold(log_dir)
        return DirectoryAction.WOULD_REMOVE if _is_as_written(announced) else DirectoryAction.LEFT
    with contextlib.ExitStack() as stack:
        if is_broker:
            stack.enter_context(hold(log_dir)).verify()
        if not _is_as_written(announced):
            return DirectoryAction.LEFT
        remove_partition_directory(log_dir, name)
    return DirectoryAction.REMOVED


def _is_as_written(announced: AnnouncedDirectory) -> bool:
    """Whether a directory has exactly the files that were written, with the same bytes and modification times.

    Raises:
        ReadFailedError: it cannot be read.
    """
    try:
        if not stat.S_ISDIR(os.lstat(announced.path).st_mode) or set(os.listdir(announced.path)) != set(announced.files):
            return False
        status = {name: os.lstat(os.path.join(announced.path, name)) for name in announced.files}
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be listed", announced.path) from error
    if any(not stat.S_ISREG(file.st_mode) or file.st_mtime_ns != announced.modified_ns[name] for name, file in status.items()):
        return False
    return all(_sha256(os.path.join(announced.path, name)) == expected for name, expected in announced.files.items())


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open_named_file(path) as file:
        for block in iter(lambda: file.read(BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def _load(path: str, form: ReceiptForm[StepHeader]) -> list[AnnouncedDirectory]:
    """The announced directories of a receipt.

    Raises:
        UsageError, ReadFailedError: ``ReceiptForm.read`` raises it.
    """
    _, steps = form.read(path)
    return [each for each in steps if isinstance(each, AnnouncedDirectory)]
