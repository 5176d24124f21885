"""Takes back the files that a run wrote, by its receipt: only those that are still as the run made them.

Each step checks the file itself, so it does not matter where an earlier run, or an earlier undo, was stopped. A file that is gone stays
gone; one that was set aside returns to its name once that is free. A broker's log directory is locked meanwhile, as when it is written to.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Annotated

from formats.partition.file_names import LOCK_FILE_NAME, snapshot_file_name, snapshot_temporary_file_name
from snaprebuild.errors import (
    AlreadyExistsError,
    LockUnknownError,
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
    StorageError,
    WriteFailedError,
)
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.published import Natural, Part, one_of
from snaprebuild.shell_words import program_command
from snaprebuild.snapshots.receipts.receipt import record_undo
from snaprebuild.snapshots.receipts.receipt_join import with_joined_parts
from snaprebuild.snapshots.receipts.receipt_lines import UndoingStep, UndoneStep
from snaprebuild.snapshots.receipts.receipt_places import ReceiptFile, listed_receipts
from snaprebuild.snapshots.receipts.receipt_reader import ReceiptKind, WrittenFile, WrittenReceipt, heading_of, read_receipt
from snaprebuild.storage.local.broker_lock import hold, lock_holder
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at, fingerprint_of
from snaprebuild.storage.local.whole_file import remove_file, set_aside, sync_directory
from snaprebuild.storage.log_dir import is_log_dir
from snaprebuild.storage.store_path import path_of

__all__ = ["FileAction", "SetAsideResult", "UndoResult", "UndoneFile", "is_undone", "later_receipts", "undo"]


class FileAction(StrEnum):
    """The action of ``undo`` on a file of a receipt. The ``would_`` actions are those of a dry run."""

    REMOVED = "removed"
    WOULD_REMOVE = "would_remove"
    PUT_BACK = "put_back"
    WOULD_PUT_BACK = "would_put_back"
    ABSENT = "absent"
    """There is nothing of the run."""
    LEFT = "left"
    """The file is there and stays."""
    FAILED = "failed"


class SetAsideResult(Part, frozen=True):
    """The snapshot that the run had set aside."""

    name: str
    action: Annotated[str, one_of("put_back", "would_put_back", "absent", "left", "failed")]
    reason: str | None
    """Why it is not put back."""


class UndoneFile(Part, frozen=True):
    """A file that the run wrote."""

    topic_partition: str
    path: str
    offset: Natural
    action: Annotated[str, one_of("removed", "would_remove", "absent", "left", "failed")]
    reason: str | None
    """Why it is not removed."""
    set_aside_file: SetAsideResult | None

    @property
    def directory(self) -> str:
        """Path of the directory that the run wrote to."""
        return os.path.dirname(self.path)


def _undone_file(file: WrittenFile, action: FileAction, reason: str | None, set_aside_file: SetAsideResult | None) -> UndoneFile:
    return UndoneFile(
        topic_partition=file.partition.topic_partition,
        path=file.path,
        offset=file.offset,
        action=action.value,
        reason=reason,
        set_aside_file=set_aside_file,
    )


def _untouched_file(file: WrittenFile, action: FileAction, reason: str) -> UndoneFile:
    """The outcome for a file that was not read."""
    aside = None
    if file.set_aside is not None:
        aside = SetAsideResult(name=file.set_aside[0], action=action.value, reason=reason)
    return _undone_file(file, action, reason, aside)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The outcome for a receipt.

    Attributes:
        receipt: as it was read.
        later: receipts of later runs that wrote a file again, by path of the file.
        dry_run: nothing was changed.
        files: one value for each file of the receipt, in its order.
        findings: what was left alone, refused, or failed.
        lock_files: ``.lock`` in the log directories of brokers. They stay, as the broker's own do: a run that found none made them.
    """

    receipt: WrittenReceipt
    dry_run: bool
    files: list[UndoneFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    lock_files: list[str] = field(default_factory=list)
    later: Mapping[str, str] = field(default_factory=dict)


def undo(receipt: WrittenReceipt, *, dry_run: bool = False) -> UndoResult:
    """Removes what a run wrote and puts back what it set aside. A failure in one directory does not stop the others.

    Args:
        receipt: from ``load_receipt``.
        dry_run: report, and change nothing.
    """
    not_joined: StorageError | None = None
    try:
        if not dry_run:
            receipt = _with_joined_parts(receipt)
    except StorageError as error:
        not_joined = error
    result = UndoResult(receipt, dry_run, later=later_receipts(receipt))
    if not_joined is not None:
        result.findings.append(_not_updated(receipt, not_joined))
    undoing = _to_remove(result)
    _record(result, UndoingStep, undoing)
    by_log_dir: dict[str, list[WrittenFile]] = {}
    unsynced: set[str] = set()
    for file in receipt.files:
        by_log_dir.setdefault(os.path.dirname(file.partition.target), []).append(file)
    for log_dir, files in by_log_dir.items():
        before = len(result.files)
        try:
            with _lock_log_dir(log_dir, result) as verify:
                for target, of_target in groupby(files, key=lambda file: file.partition.target):
                    if not _undo_directory(target, of_target, result, verify):
                        unsynced.add(target)
        except (RefusedError, WriteFailedError) as error:
            result.findings.append(finding_of_error(error, log_dir))
            left = files[len(result.files) - before :]
            result.files.extend(_untouched_file(file, FileAction.LEFT, str(error)) for file in left)
        lock_file = os.path.join(log_dir, LOCK_FILE_NAME)
        if receipt.in_place and os.path.lexists(lock_file):
            result.lock_files.append(lock_file)
    removed = _removed(result, undoing, unsynced)
    _record(result, UndoneStep, removed)
    if receipt.parts is not None and not_joined is None and any(removed.values()):
        alive = RefusedError("the parts of this receipt stay, because its run may be at work")
        result.findings.append(_not_updated(receipt, alive))
    return result


def _with_joined_parts(receipt: WrittenReceipt) -> WrittenReceipt:
    """The receipt as one file. The parts of a run that may be alive stay open: its tasks could announce nothing more.

    A run that writes to log directories holds them until its receipt is whole, so it has ended where all of them can be held.

    Raises:
        StorageError: as of ``with_joined_parts``.
    """
    if receipt.parts is None or not receipt.in_place:
        return with_joined_parts(receipt)
    log_dirs = {os.path.dirname(file.partition.target) for file in receipt.files}
    if not all(is_log_dir(path_of(log_dir)) for log_dir in log_dirs):
        return receipt  # those of another machine, where the run may be at work
    with contextlib.ExitStack() as locks:
        try:
            for log_dir in sorted(log_dirs):
                locks.enter_context(hold(log_dir))
        except (RefusedError, WriteFailedError):
            return receipt  # reported for each directory, when its own files are due
        # Without any file it is unknown which log directories the run holds, and there is nothing to take back.
        return with_joined_parts(receipt) if log_dirs else receipt


def _numbers(receipt: WrittenReceipt) -> dict[int, int]:
    """The numbers of partitions by their identity."""
    return {id(partition): number for number, partition in receipt.partitions.items()}


def _to_remove(result: UndoResult) -> dict[int, list[int]]:
    """Offsets of the files that are about to be removed, by the number of their partition; none in a dry run."""
    numbers = _numbers(result.receipt)
    offsets: dict[int, list[int]] = {}
    for file in result.receipt.files:
        if result.dry_run or file.is_undone or file.path in result.later:
            continue
        if file.is_undoing or os.path.lexists(file.path):
            offsets.setdefault(numbers[id(file.partition)], []).append(file.offset)
    return offsets


def _removed(result: UndoResult, undoing: Iterable[int], unsynced: Collection[str]) -> dict[int, list[int]]:
    """Offsets of the files that were removed, by the number of their partition.

    A power failure brings back what is not on the device: it is of this run then, and its undo goes on.

    Args:
        result: with all files.
        undoing: numbers of the partitions that were announced.
        unsynced: directories of which it is unknown whether the removal is on the device.
    """
    receipt = result.receipt
    numbers = _numbers(receipt)
    offsets: dict[int, list[int]] = {number: [] for number in undoing if receipt.partitions[number].target not in unsynced}
    by_path = {file.path: file for file in receipt.files}
    for each in result.files:
        file = by_path[each.path]
        if file.partition.target in unsynced:
            continue
        # An earlier undo that was killed had announced it.
        if each.action == FileAction.REMOVED or (each.action == FileAction.ABSENT and file.is_undoing):
            offsets.setdefault(numbers[id(file.partition)], []).append(file.offset)
    return offsets


def is_undone(receipt: WrittenReceipt) -> bool:
    """Whether another undo would change nothing: an earlier one has taken back what it could, or nothing of the run is there any more."""
    was_begun = any(file.is_undone or file.is_undoing for file in receipt.files)
    for file in undo(receipt, dry_run=True).files:
        aside = file.set_aside_file
        is_absent = file.action == FileAction.ABSENT and (aside is None or aside.action == FileAction.ABSENT)
        if not was_begun and not is_absent:
            return False  # what stays was changed since: it is the last run all the same
        if file.action == FileAction.WOULD_REMOVE or (aside is not None and aside.action == FileAction.WOULD_PUT_BACK):
            return False
    return True


def _record(result: UndoResult, step: type[UndoingStep | UndoneStep], offsets: dict[int, list[int]]) -> None:
    """Writes to the receipt what is about to be removed, or was. An undo continues where that cannot be written."""
    if result.dry_run or not offsets or result.receipt.parts is not None:
        return
    try:
        record_undo(result.receipt.path, step, offsets)
    except WriteFailedError as error:
        finding = _not_updated(result.receipt, error)
        if finding not in result.findings:
            result.findings.append(finding)


def _not_updated(receipt: WrittenReceipt, error: SnaprebuildError) -> Finding:
    message = f"{error.message}: `verify --written-by` will report the removed snapshots as lost"
    return Finding("receipt-not-updated", Severity.NOTE, receipt.path, message)


@contextlib.contextmanager
def _lock_log_dir(log_dir: str, result: UndoResult) -> Iterator[Callable[[], None]]:
    """Holds a broker's log directory; other directories need no lock. Yields a function that checks the lock before each change."""
    if not is_log_dir(path_of(log_dir)):
        yield lambda: None
    elif result.dry_run:
        with contextlib.suppress(LockUnknownError):
            if lock_holder(log_dir) is not None:
                message = "a live broker holds this log directory: undo is refused while it runs"
                result.findings.append(Finding("live-broker", Severity.NOTE, log_dir, message, cause=FindingCause.LIVE_BROKER))
        yield lambda: None
    else:
        with hold(log_dir) as lock:
            yield lock.verify


def _undo_directory(target: str, files: Iterable[WrittenFile], result: UndoResult, verify: Callable[[], None]) -> bool:
    """Takes back the files of a directory. False if it is unknown whether that is on the device."""
    opened = _open_target(target, result.receipt)
    if isinstance(opened, tuple):
        for file in files:
            _add(result, _untouched_file(file, *opened))
        return True
    fd = opened
    is_synced = True
    try:
        for file in files:
            _add(result, _Undoing(fd, file, result, verify).undone())
    finally:
        # One sync for all that was removed: until then a power failure brings files back, and the next undo finds them.
        try:
            if not result.dry_run:
                sync_directory(fd)
        except OutcomeUnknownError as error:
            result.findings.append(finding_of_error(error, target))
            is_synced = False
        finally:
            os.close(fd)
    return is_synced


def _open_target(target: str, receipt: WrittenReceipt) -> int | tuple[FileAction, str]:
    """The directory, which must still be where it was: a link on the way leads to files that are not ours.

    Returns:
        Its descriptor; or the action for every file in it, and the reason.
    """
    if os.path.realpath(target) != target:
        return FileAction.LEFT, "a symbolic link in its path leads elsewhere"
    try:
        return os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        reason = receipt.why_not_here(target)
        return (FileAction.ABSENT, "its directory is gone") if reason is None else (FileAction.LEFT, reason)
    except OSError as error:
        return FileAction.LEFT, f"its directory cannot be opened: {error.strerror}"


def _add(result: UndoResult, undone: UndoneFile) -> None:
    result.files.append(undone)
    _add_finding(result, undone, undone.action, undone.reason or "")
    if undone.set_aside_file is not None:
        reason = f"the snapshot that was set aside: {undone.set_aside_file.reason}"
        _add_finding(result, undone, undone.set_aside_file.action, reason)


def _add_finding(result: UndoResult, undone: UndoneFile, action: str, message: str) -> None:
    """Adds the finding of a file that stays where it is."""
    if action == FileAction.LEFT:
        result.findings.append(Finding("left-alone", Severity.FINDING, undone.path, message, undone.offset))
    elif action == FileAction.FAILED:
        result.findings.append(Finding("storage-failed", Severity.STORAGE, undone.path, message, undone.offset))


class _Undoing:
    """One file of a receipt, in a directory that is open."""

    def __init__(self, fd: int, file: WrittenFile, result: UndoResult, verify: Callable[[], None]) -> None:
        self._fd = fd
        self._file = file
        self._dry_run = result.dry_run
        self._later = result.later.get(file.path)
        self._verify = verify
        self._name = snapshot_file_name(file.offset)

    def undone(self) -> UndoneFile:
        action, reason = self._removed()
        aside = None
        if self._file.set_aside is not None:
            name, old = self._file.set_aside
            aside_action, aside_reason = self._put_back(name, old, action)
            aside = SetAsideResult(name=name, action=aside_action.value, reason=aside_reason)
        return _undone_file(self._file, action, reason, aside)

    def _path(self, name: str) -> str:
        return os.path.join(self._file.partition.target, name)

    def _removed(self) -> tuple[FileAction, str | None]:
        if self._file.fingerprint is None:
            return FileAction.ABSENT, "the run did not write it"
        if (self._later is not None or self._file.is_undone) and os.path.lexists(self._path(self._name)):
            return self._of_another_run(self._file.fingerprint)
        try:
            # A run that was killed left its temporary name, alone or next to the real one. A broker ignores one that cannot be removed.
            with contextlib.suppress(FileNotFoundError, WriteFailedError):
                self._is_removed(snapshot_temporary_file_name(self._file.offset))
            if not self._is_removed(self._name):
                return self._not_ours(self._file.fingerprint)
        except FileNotFoundError:
            return FileAction.ABSENT, "is not there: undone before, or removed by a broker"
        except RefusedError:
            raise
        except SnaprebuildError as error:
            return FileAction.FAILED, error.message
        return (FileAction.WOULD_REMOVE if self._dry_run else FileAction.REMOVED), None

    def _of_another_run(self, written: Fingerprint) -> tuple[FileAction, str]:
        """The action for a file that is there although this run's own one is gone, whatever its bytes and its time are."""
        if self._later is not None:
            command = program_command(["undo", self._later])
            return FileAction.LEFT, f"a later run wrote it again, and only the receipt of that run takes it back: {command}"
        action, reason = self._not_ours(written)
        if action == FileAction.LEFT and self._has_same_time(written):
            reason = "an earlier `undo` of this receipt removed it. It is there again, so somebody else put it there, and it stays"
        return action, reason

    def _has_same_time(self, written: Fingerprint) -> bool:
        try:
            return fingerprint_at(self._path(self._name)) == written
        except ReadFailedError:
            return False

    def _is_removed(self, name: str) -> bool:
        """Removes a name that leads to a file of the run, of any attempt at it. False where it leads to another one.

        Raises:
            FileNotFoundError: there is no such name.
            SnaprebuildError: it cannot be looked at or removed.
        """
        path = self._path(name)
        try:
            status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be accessed", path) from error
        seen = (status.st_size, status.st_mtime_ns)
        fingerprint = next((each for each in self._file.fingerprints if (each.size_bytes, each.modified_ns) == seen), None)
        if fingerprint is None:
            return False  # known without reading it
        if self._dry_run:
            return fingerprint_at(path) == fingerprint
        self._verify()
        return remove_file(self._fd, name, lambda fd: fingerprint_of(fd, path) == fingerprint)

    def _not_ours(self, written: Fingerprint) -> tuple[FileAction, str]:
        try:
            present = fingerprint_at(self._path(self._name))
        except ReadFailedError as error:
            return FileAction.LEFT, error.message
        if self._file.set_aside is not None and present == self._file.set_aside[1]:
            return FileAction.ABSENT, "the snapshot that was set aside is there again"
        if present.sha256 == written.sha256:
            return FileAction.LEFT, "has the same bytes and another modification time: another program wrote it, and it stays"
        return FileAction.LEFT, "was changed or replaced since it was written, and stays"

    def _put_back(self, aside: str, old: Fingerprint, action: FileAction) -> tuple[FileAction, str | None]:
        try:
            is_old = fingerprint_at(self._path(aside)) == old
        except ReadFailedError as error:
            if error.errno == errno.ENOENT:
                return FileAction.ABSENT, "is not there: put back before, or moved away"
            return FileAction.FAILED, error.message
        if not is_old:
            return FileAction.LEFT, f"{aside} was changed since it was set aside, and stays there"
        if action in (FileAction.LEFT, FileAction.FAILED) or (
            action == FileAction.ABSENT and os.path.lexists(self._path(self._name))
        ):
            return FileAction.LEFT, f"its name is taken: it stays {aside}"
        if self._dry_run:
            return FileAction.WOULD_PUT_BACK, None
        try:
            self._verify()
            set_aside(self._fd, aside, self._name)
        except AlreadyExistsError:
            return FileAction.LEFT, f"its name is taken: it stays {aside}"
        except RefusedError as error:
            return FileAction.LEFT, error.message  # what was removed is reported all the same; the next file, if any, ends the undo
        except SnaprebuildError as error:
            return FileAction.FAILED, error.message
        return FileAction.PUT_BACK, None


RECEIPTS_KEPT = 16
"""Receipts of later runs that stay in memory: each may have many files, and an undo asks for the same few again."""


def later_receipts(receipt: WrittenReceipt) -> dict[str, str]:
    """The receipt of the newest later run that wrote what is there, by path of the file; only of files that ``receipt`` has.

    A later run that announced a file and was taken back, or whose file is there no more, keeps nothing from an undo.

    Receipts in the default places, those that have a link there, and receipts next to ``receipt`` are read.

    Args:
        receipt: of the earlier run.
    """
    paths = {file.path for file in receipt.files}
    newest: dict[str, tuple[int, str]] = {}
    for listed in _candidates(receipt):
        later = _announced_in(listed)
        if later is None or later.began_ms <= receipt.began_ms or later.host != receipt.host:
            continue
        for file in later.files:
            if file.path in paths and not file.is_undone and _is_there(file):
                newest[file.path] = max(newest.get(file.path, (0, "")), (later.began_ms, listed.path))
    return {path: name for path, (_, name) in newest.items()}


def _is_there(file: WrittenFile) -> bool:
    """Whether what has the name now is a file of that run."""
    try:
        return fingerprint_at(file.path) in file.fingerprints
    except ReadFailedError:
        return False


def _candidates(receipt: WrittenReceipt) -> Iterator[ReceiptFile]:
    own = os.path.realpath(receipt.path)
    seen = {own}
    for listed in (*listed_receipts(), *listed_receipts(os.path.dirname(own), prefix="", suffix=".jsonl")):
        place = os.path.realpath(listed.path)
        if place not in seen and _began_ms(listed.path) > receipt.began_ms:
            seen.add(place)
            yield listed


def _began_ms(path: str) -> int:
    """The moment of a run by the first line of its receipt; 0 for another file."""
    try:
        heading = heading_of(path)
    except SnaprebuildError:
        return 0
    return 0 if heading is None or heading.kind is not ReceiptKind.SNAPSHOTS else heading.began_ms


@functools.lru_cache(maxsize=RECEIPTS_KEPT)
def _announced_in(listed: ReceiptFile) -> WrittenReceipt | None:
    """The receipt; None for one that cannot be read."""
    try:
        return read_receipt(listed.path)
    except SnaprebuildError:
        return None
