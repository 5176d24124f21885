"""The state of the files of a run, mostly after its broker has started: kept, removed or replaced, and why as far as that is known.

A broker removes snapshots when it starts, and while it runs as its log start moves; ``replay.broker_start`` is the model of the start.
A change that the model cannot explain is a finding, because another program made it. Nothing is replayed: a file that has the
bytes it was written with is as good as it was then.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import CLEAN_SHUTDOWN
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.published import Document, Natural, Part
from snaprebuild.replay.broker_start import SnapshotOrigin, broker_start
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.receipts.part_files import part_names
from snaprebuild.snapshots.receipts.receipt_places import can_be_written, default_receipt_places, listed_receipts, state_directory
from snaprebuild.snapshots.receipts.receipt_reader import (
    PartitionReceipt,
    ReceiptHeading,
    ReceiptKind,
    WrittenFile,
    WrittenReceipt,
    header_of,
    heading_of,
    load_receipt,
)
from snaprebuild.snapshots.source.source import PartitionSource, live_broker_notes, open_source, yield_to_brokers
from snaprebuild.storage.local.fingerprint import fingerprint_at

__all__ = [
    "FileStatus",
    "FileTotals",
    "ListedReceipt",
    "ReceiptVerdict",
    "Receipts",
    "VerifiedFile",
    "list_receipts",
    "newest_receipt",
    "schema_of",
    "verify_receipt",
]

COMMANDS = {
    ReceiptKind.STORE: "snaprebuild tier repair",
    ReceiptKind.METADATA_TOPIC: "snaprebuild tier metadata",
    ReceiptKind.FOLLOWER: "snaprebuild follower build",
}
"""The command of a receipt that does not have it."""

RECEIPTS_ELSEWHERE = (
    "name the receipt of another user's run. A user without a home has it in DIR/snaprebuild-receipt-*.jsonl, where DIR is that of "
    "--out, else the directory of the run"
)
"""Ends a sentence about receipts in the default places."""

RECEIPTS_MAX = 1000
"""Older ones are counted only: each listed receipt is read, and each of its files is looked at."""


class FileStatus(StrEnum):
    """The present state of a file that a run wrote."""

    KEPT = "kept"
    """The file has the bytes that the run wrote."""
    REMOVED = "removed"
    """The file is gone, or `undo` put the snapshot back that the run had set aside for it."""
    REPLACED = "replaced"
    """The file has other bytes; or `undo` removed it, and another run wrote it again."""
    UNREADABLE = "unreadable"


class FileTotals(Part, frozen=True):
    """Files by their present state."""

    kept: Natural = 0
    removed: Natural = 0
    replaced: Natural = 0
    unreadable: Natural = 0

    @classmethod
    def of(cls, files: Iterable[VerifiedFile]) -> FileTotals:
        """The counts of some files."""
        return cls(**Counter(file.status.value for file in files))


class VerifiedFile(Part, frozen=True):
    """A file of a receipt."""

    topic_partition: str
    path: str
    offset: Natural
    snapshot_class: SnapshotClass = msgspec.field(name="class")
    """Class when it was written."""
    status: FileStatus
    reason: str | None
    """Null if it was kept untouched."""
    is_explained: bool
    """A broker or `undo` changes such a file in this way."""

    @property
    def directory(self) -> str:
        """Path of the directory that the run wrote to."""
        return os.path.dirname(self.path)


@dataclass(frozen=True, slots=True)
class ReceiptVerdict:
    """The state of the files of a receipt.

    Attributes:
        receipt: as it was read.
        files: one verdict for each snapshot that the run wrote, in the order of the receipt.
        findings: what is not explained, and notes.
    """

    receipt: WrittenReceipt
    files: list[VerifiedFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_before_start(self) -> bool:
        """Whether a log directory shows that its broker has not started since the run: a start removes the marker of the stop before."""
        if not self.receipt.in_place:
            return False
        log_dirs = {os.path.dirname(file.directory) for file in self.files}
        return any(_has_marker_before(log_dir, self.receipt.began_ms) for log_dir in log_dirs)


def _has_marker_before(log_dir: str, began_ms: int) -> bool:
    """Whether the marker of a clean stop in a log directory is older than a run."""
    try:
        return os.stat(os.path.join(log_dir, CLEAN_SHUTDOWN)).st_mtime_ns <= began_ms * 1_000_000
    except OSError:
        return False


def verify_receipt(receipt: WrittenReceipt) -> ReceiptVerdict:
    """Looks at every file of a receipt.

    Args:
        receipt: from ``load_receipt``.
    """
    result = ReceiptVerdict(receipt)
    written = [file for file in receipt.files if file.fingerprint is not None]
    for _, group in groupby(written, key=lambda file: file.partition.target):
        files = list(group)
        partition = _PresentPartition(files[0].partition, [file.offset for file in files], receipt, result.findings)
        for file in files:
            verified = _verified(file, partition)
            result.files.append(verified)
            if verified.status is not FileStatus.KEPT:
                result.findings.append(_finding(file, verified))
    return result


def _verified(file: WrittenFile, partition: _PresentPartition) -> VerifiedFile:
    status, reason, is_explained = _state(file, partition)
    if file.is_undoing and not file.is_undone and status is FileStatus.REMOVED and not is_explained:
        reason = "an `undo` that was killed was about to remove it: run `undo` again"
        is_explained = True
    elif file.is_undone and status is FileStatus.REPLACED:
        reason = "`undo` removed it"
        is_explained = True
        if _is_put_back(file):
            status = FileStatus.REMOVED
            reason += ", and put the snapshot back that was set aside"
        else:
            reason += "; what is there now was written or put back later, and `verify PATH` checks it"
    elif file.is_undone and status is FileStatus.REMOVED:
        reason = "`undo` removed it"
        is_explained = True
    assert file.snapshot_class is not None, "files that were written have a class"
    return VerifiedFile(
        topic_partition=file.partition.topic_partition,
        path=file.path,
        offset=file.offset,
        snapshot_class=file.snapshot_class,
        status=status,
        reason=reason,
        is_explained=is_explained,
    )


def _state(file: WrittenFile, partition: _PresentPartition) -> tuple[FileStatus, str | None, bool]:
    """The status of a file, the reason, and whether a broker or ``undo`` changes such a file in this way."""
    try:
        if _has_another_size(file):
            return FileStatus.REPLACED, *partition.why_replaced(file.offset)
        present = fingerprint_at(file.path)
    except ReadFailedError as error:
        if os.path.lexists(file.path):
            return FileStatus.UNREADABLE, error.message, False
        if not file.is_settled:
            return FileStatus.REMOVED, "the run was killed: perhaps it never had its name", True
        return FileStatus.REMOVED, *partition.why_removed(file.offset)
    if all(present.sha256 != written.sha256 for written in file.fingerprints):
        return FileStatus.REPLACED, *partition.why_replaced(file.offset)
    if file.is_undone:
        # Even the same bytes are those of a later run, whose receipt has them: `install` links the same staged file again.
        return FileStatus.REPLACED, *partition.why_replaced(file.offset)
    is_same = any(present.modified_ns == written.modified_ns for written in file.fingerprints)
    return FileStatus.KEPT, None if is_same else "written again with the same bytes", True


def _is_put_back(file: WrittenFile) -> bool:
    """Whether the snapshot that the run set aside has its name again."""
    with contextlib.suppress(ReadFailedError):
        return file.set_aside is not None and fingerprint_at(file.path) == file.set_aside[1]
    return False


def _has_another_size(file: WrittenFile) -> bool:
    """Whether the size differs; no byte is read, however large the file is. An absent or irregular file has no size."""
    with contextlib.suppress(OSError):
        status = os.lstat(file.path)
        return stat.S_ISREG(status.st_mode) and all(status.st_size != written.size_bytes for written in file.fingerprints)
    return False


def _finding(file: WrittenFile, verified: VerifiedFile) -> Finding:
    message = f"{verified.status}: {verified.reason}"
    if verified.status is FileStatus.UNREADABLE:
        return Finding("storage-failed", Severity.STORAGE, file.path, message, file.offset, is_unread=True)
    if file.is_undone or (file.is_undoing and verified.is_explained):
        return Finding("undone", Severity.NOTE, file.path, message, file.offset)
    if verified.is_explained:
        return Finding("taken-by-broker", Severity.NOTE, file.path, message, file.offset)
    return Finding("lost-snapshot", Severity.FINDING, file.path, message, file.offset)


class _PresentPartition:
    """A partition that was written to, as it is now, and what its broker was bound to do when it started."""

    def __init__(self, partition: PartitionReceipt, offsets: list[int], receipt: WrittenReceipt, findings: list[Finding]) -> None:
        self._in_place = receipt.in_place
        self._is_there = os.path.isdir(partition.target)
        self._not_here = None if self._is_there else receipt.why_not_here(partition.target)
        self._origins: dict[int, SnapshotOrigin] | None = None
        self._after_crash: dict[int, SnapshotOrigin] = {}
        self._log_end: int | None = None
        self._source: PartitionSource | None = None
        if not receipt.in_place:
            return
        if partition.log is not None:
            log = replace(partition.log, snapshots={**partition.log.snapshots, **dict.fromkeys(offsets, True)})
            self._origins = dict(broker_start(log).after)
            # A later start may follow a crash; a clean stop had flushed everything.
            crashed = replace(log, is_clean=False, recovery_point=log.log_end_offset if log.is_clean else log.recovery_point)
            self._after_crash = dict(broker_start(crashed).after)
        if self._is_there:
            self._look(partition.target, findings)

    def _look(self, target: str, findings: list[Finding]) -> None:
        try:
            source = open_source([target])
            yield_to_brokers(source)
            self._source = source.partitions[0] if source.partitions else None
            findings += [finding for finding in live_broker_notes(source) if finding not in findings]
            if self._source is not None and self._source.directory.segments:
                self._log_end = log_end_offset(self._source.directory)
        except (UsageError, ReadFailedError, FormatError) as error:
            findings.append(finding_of_error(error, target))

    def why_removed(self, offset: int) -> tuple[str, bool]:
        """Why a file is gone, and whether that is what a broker does."""
        if not self._in_place:
            return "no broker removes files here", False
        if self._not_here is not None:
            return self._not_here, False
        if not self._is_there:
            return "its partition directory is gone", True
        if self._source is None or not self._source.directory.segments:
            return "the partition cannot be accessed", False
        start = self._source.log_start_offset
        if offset <= start:
            return f"the log now starts at {start}: a broker deletes snapshots at or below that", True
        if self._log_end is not None and offset > self._log_end:
            return f"the log now ends at {self._log_end}: it was cut, and the snapshots above with it", True
        if all(segment.base_offset != offset for segment in self._source.directory.segments) and offset != self._log_end:
            return "no segment begins there: a broker removes such snapshots when it starts", True
        if self._origins is not None and offset not in self._origins:
            return "the start of the broker removes it, because an offset index was missing below: it is due again", False
        return "it is still due, and a broker had no reason to remove it", False

    def why_replaced(self, offset: int) -> tuple[str, bool]:
        """Why a file has other bytes, and whether that is what a broker does."""
        origin = None if self._origins is None else self._origins.get(offset)
        if origin is SnapshotOrigin.REBUILT:
            return "the start of the broker rebuilds it from its own replay; `verify PATH` judges it", True
        if origin is SnapshotOrigin.EMPTY:
            return "the start of the broker writes an empty one", False
        if self._after_crash.get(offset) is SnapshotOrigin.REBUILT:
            return "a start after an unclean stop rebuilds it from the broker's own replay; `verify PATH` judges it", True
        return "a broker had no reason to write it; `verify PATH` judges what is there", False


# -------------------------------------------------------------------------------------------------------------- all receipts


class ListedReceipt(Part, frozen=True):
    """A receipt."""

    path: str
    began_ms: int
    """When the run began to write."""
    command: str
    """Command line of the run; empty if the receipt does not have it."""
    files: FileTotals | None
    """Null for remote storage, which is not checked."""


class Receipts(Document, frozen=True):
    """The JSON document of `snaprebuild undo` without a receipt."""

    NAME = "receipts"
    VERSION = 2

    directory: str
    """Default directory of receipts."""
    receipts: Sequence[ListedReceipt]
    """Newest first."""
    not_listed: Natural
    """Older receipts, beyond the newest 1,000."""


def schema_of(path: str) -> str | None:
    """The schema id in the first line of a file of ours; None where there is none.

    Raises:
        UsageError: no such file.
        ReadFailedError: it cannot be read.
    """
    schema = header_of(path).get("schema")
    return schema if isinstance(schema, str) else None


def receipt_path(name: str) -> str:
    """The path of a receipt that is named as ``list_receipts`` names it; any other name as it is.

    Raises:
        UsageError: it is a directory with whole receipts and no part of one; the text names the newest.
        ReadFailedError: it is a directory that cannot be listed.
    """
    if os.path.isdir(name):
        newest = next(listed_receipts(name), None)
        if newest is not None and not part_names(name):
            raise UsageError(f"has no part of a receipt: its newest receipt is {newest.path}", path=name)
        return name
    if os.path.dirname(name) or os.path.lexists(name):
        return name
    listed = os.path.join(state_directory() or "", name)
    return os.path.realpath(listed) if os.path.lexists(listed) else name


def list_receipts() -> tuple[Receipts, list[Finding]]:
    """The receipts of the default directory, for users without a home the current one; and findings for those that cannot be read."""
    places = default_receipt_places()
    directory = next(filter(can_be_written, places), places[0])
    names = _receipt_names(directory)
    receipts = []
    findings = []
    for name in names[:RECEIPTS_MAX]:
        path = _path_of(directory, name)
        if _is_gone(path):
            continue  # with --receipt it is a file of the user, who may delete it
        try:
            receipts.append(_listed(path))
        except SnaprebuildError as error:
            findings.append(Finding("unreadable-receipt", Severity.FINDING, path, error.message))
    receipts.sort(key=lambda each: each.began_ms, reverse=True)  # names do not order the runs of one second
    not_listed = max(0, len(names) - RECEIPTS_MAX)
    return Receipts(directory=directory, receipts=receipts, not_listed=not_listed), findings


def newest_receipt(is_undone: Callable[[ReceiptHeading], bool]) -> ReceiptHeading:
    """The receipt of the newest run of which something is left, among those in the places where runs leave them by default.

    Args:
        is_undone: whether nothing of the run of a receipt can be taken back any more. It is called for the newest first, until it
            returns False.

    Raises:
        UsageError: there is none, or it is not clear which one is the newest: in two places, or of one moment.
        ReadFailedError: a receipt cannot be read.
    """
    places = list(dict.fromkeys(map(os.path.realpath, default_receipt_places())))
    count = 0
    newest: list[ReceiptHeading] = []
    for place in places:
        headings = _headings(place)
        count += len(headings)
        first = next((each for each in headings if not is_undone(each)), None)
        if first is not None:
            newest += [
                each
                for each in headings
                if each.began_ms == first.began_ms and each not in newest and (each == first or not is_undone(each))
            ]
    if not count:
        raise UsageError(f"--last: no receipt is in {' or '.join(places)}; {RECEIPTS_ELSEWHERE}")
    _check_that_none_is_gone(places, newest)
    if not newest:
        receipts = f"{pluralize(count, 'receipt')} in {' and '.join(places)}"
        raise UsageError(f"--last: each run of {receipts} is undone already, or its files are gone; {RECEIPTS_ELSEWHERE}")
    if len(newest) > 1:
        paths = " or ".join(each.path for each in newest)
        raise UsageError(f"--last: it is not clear which run is the last: name the receipt, {paths}")
    return newest[0]


def _check_that_none_is_gone(places: Iterable[str], newest: Sequence[ReceiptHeading]) -> None:
    """Makes sure that no later run had its receipt elsewhere, and the receipt is gone: an older run would be taken for the last.

    Args:
        places: directories of receipts.
        newest: receipts of the newest run that is seen; none if there is no such run.

    Raises:
        UsageError: one had.
    """
    began_ms = max((each.began_ms for each in newest), default=0)
    for place in places:
        for link in (os.path.join(place, name) for name in _receipt_names(place)[:RECEIPTS_MAX]):
            if _is_gone(link) and os.lstat(link).st_mtime_ns // 1_000_000 >= began_ms:
                receipt = os.readlink(link)
                message = f"--last: the receipt of a later run, {receipt}, is gone: name the receipt of the run to take back"
                raise UsageError(f"{message}. If that run needs no undo any more, remove {link}")


def _path_of(directory: str, name: str) -> str:
    """The path of a receipt in a directory; that of the receipt elsewhere for a link to one that is there."""
    path = os.path.join(directory, name)
    return os.path.realpath(path) if os.path.islink(path) and os.path.exists(path) else path


def _is_gone(path: str) -> bool:
    """Whether a path is a link to a receipt that is there no more."""
    return os.path.islink(path) and not os.path.exists(path)


def _headings(directory: str) -> list[ReceiptHeading]:
    """The receipts of a directory, the newest first; none without the directory.

    Raises:
        UsageError: a file with the name of a receipt is none, so that it is unknown when its run was.
        ReadFailedError: one cannot be read.
    """
    headings = []
    for name in _receipt_names(directory)[:RECEIPTS_MAX]:
        path = _path_of(directory, name)
        if _is_gone(path):
            continue
        heading = heading_of(path)
        if heading is None:
            named = os.path.join(directory, name)
            raise UsageError("is not a receipt, although it has the name of one: move it away, or name RECEIPT", path=named)
        headings.append(heading)
    return sorted(headings, key=lambda each: (-each.began_ms, each.path))


def _receipt_names(directory: str) -> list[str]:
    """The names of receipts in a directory, the newest first; none without the directory."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be listed", directory) from error
    return sorted((name for name in names if name.startswith("snaprebuild-receipt-")), reverse=True)


def _listed(path: str) -> ListedReceipt:
    heading = heading_of(path)
    if heading is not None and heading.kind in COMMANDS:
        return ListedReceipt(path, heading.began_ms, COMMANDS[heading.kind], None)
    receipt = load_receipt(path)
    return ListedReceipt(path, receipt.began_ms, receipt.command, FileTotals.of(verify_receipt(receipt).files))
