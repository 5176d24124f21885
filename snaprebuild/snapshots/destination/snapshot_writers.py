"""Writers of snapshots, one for each destination; none of them writes over an existing file.

``InPlaceWriter`` writes into the log directory, and only what a broker would keep. ``OutWriter`` writes below a directory that no broker
reads (``--out``). ``StageWriter`` builds snapshots outside of the log directories (``stage``), as they would be written in place: whole,
synced, with the right owner.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import snapshot_file_name
from formats.partition.producer_snapshot import read_entries, snapshot_size
from snaprebuild.errors import AlreadyExistsError, ReadFailedError, RefusedError, SnaprebuildError, StorageError, WriteFailedError
from snaprebuild.findings import FindingCause, Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock, same_when_loaded
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.placement_rules import reason_against_class, reason_for_distrust, reason_of_fate
from snaprebuild.snapshots.destination.rebuilt_snapshot import (
    RebuiltSnapshot,
    Report,
    create_or_wait,
    create_snapshot,
    log_class,
    owner_of_snapshot,
    remove_other_name,
)
from snaprebuild.snapshots.receipts.receipt_lines import SetAsideAnnounced, WriteSettled
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.whole_file import aside_name, remove_file, set_aside
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.storage.store import FileIdentity, Ownership

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult

__all__ = [
    "InPlaceWriter",
    "NextToBrokerWriter",
    "OutWriter",
    "StageWriter",
    "WriterSettings",
    "moved_aside",
]

ASIDE_NUMBERS_MAX = 100
"""Snapshots of one offset that may be set aside."""


def moved_aside(directory: PartitionDir, offset: int) -> ListedFile | None:
    """The snapshot of a listing under the name with which it was set aside since then; None if it still has its own name.

    Args:
        directory: the listing, of this machine.
        offset: of the snapshot.
    """
    listed = directory.snapshot_at(offset)
    if listed is None or _identity_at(directory, listed.name) == listed.identity:
        return None
    for number in range(1, ASIDE_NUMBERS_MAX + 1):
        name = aside_name(offset, number)
        identity = _identity_at(directory, name)
        if identity is None:
            break
        if identity == listed.identity:
            return replace(listed, name=name)
    return None


def _identity_at(directory: PartitionDir, name: str) -> FileIdentity | None:
    try:
        return FileIdentity.of(os.lstat(directory.file_path(name)))
    except OSError:
        return None


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run writes the snapshots of a partition.

    Attributes:
        clock: expiry, to compare with existing files.
        report: takes the events about files; None for none.
        lock: on the log directory; None in a dry run, where there is no broker's directory, and where the broker itself holds it.
        dry_run: write nothing.
    """

    clock: Clock
    report: Report | None
    lock: HeldLock | None
    dry_run: bool


class InPlaceWriter:
    """Writes the snapshots of one partition into its own directory."""

    def __init__(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> None:
        """Takes what decides; findings go to the result."""
        self._result = result
        self._directory = result.plan.source.directory
        self._request = request
        self._lock = settings.lock
        self._report = settings.report
        self._dry_run = settings.dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot if it is due. Several may be written at once.

        Raises:
            AlreadyExistsError: a file of this name appeared meanwhile.
            StorageError: it cannot be written, or what is there cannot be read.
            RefusedError: nothing may be written here any more.
        """
        boundary = rebuilt.boundary
        comparison = rebuilt.existing_comparison
        if comparison is not None and not comparison.proven_wrong:
            action = BoundaryAction.EQUAL if comparison.status.is_right else BoundaryAction.KEPT
            return rebuilt.result(action, comparison=comparison)
        if comparison is not None and not self._request.set_aside:
            return rebuilt.result(BoundaryAction.KEPT, comparison=comparison)
        plan = self._result.plan
        not_now = (
            self._request.destination.reason_against(self._request, plan.source, boundary.offset, is_log_end=boundary.is_log_end)
            or reason_for_distrust(plan, boundary.offset, after_clean_stop=self._dry_run and plan.source.is_broker_running)
            or (None if plan.keeps_files is None else reason_of_fate(plan.keeps_files))
        )
        if not_now is not None:
            reason = None if comparison is None else comparison.status.reason
            self._result.add_finding(
                "wrong-snapshot",
                Severity.FINDING,
                f"wrong, and not replaced: {not_now.text}",
                boundary.offset,
                reason,
                cause=FindingCause.WRONG_SNAPSHOT,
            )
            return rebuilt.not_written(not_now.text)
        log_class(self._result, rebuilt)
        too_little = reason_against_class(rebuilt.judgement.snapshot_class, allow_unproven=self._request.allow_unproven)
        if too_little is not None:
            return rebuilt.not_written(too_little)
        if self._dry_run:
            return rebuilt.result(BoundaryAction.WOULD_WRITE, comparison=comparison)
        self._check_lock()
        aside = rebuilt.set_aside_name
        if aside is None and comparison is not None:
            aside = self._set_aside(boundary.offset)
        try:
            create_snapshot(
                rebuilt, owner_of_snapshot(plan, boundary.offset), self._report, lambda: self._check_before_name(boundary.offset)
            )
        except SnaprebuildError as error:
            is_of_earlier_attempt = rebuilt.set_aside_name is not None and isinstance(error, AlreadyExistsError)
            if aside is not None and not is_of_earlier_attempt:
                self._put_back(boundary.offset, aside)
            raise
        return rebuilt.result(BoundaryAction.WRITTEN, aside=aside, comparison=comparison)

    def _check_lock(self) -> None:
        if self._lock is not None:
            self._lock.verify()

    def _check_before_name(self, offset: int) -> None:
        """Checks that a whole file may get its name.

        Raises:
            RefusedError: it may not.
        """
        self._check_lock()

    def _set_aside(self, offset: int) -> str:
        for number in range(1, ASIDE_NUMBERS_MAX + 1):
            name = aside_name(offset, number)
            if os.path.lexists(self._directory.file_path(name)):
                continue
            if self._report is not None:
                existing = fingerprint_at(self._directory.file_path(snapshot_file_name(offset)))
                self._report(SetAsideAnnounced(offset, name, existing))
            with contextlib.suppress(AlreadyExistsError):
                set_aside(self._directory.path, snapshot_file_name(offset), name)
                return name
        raise WriteFailedError(
            f"{ASIDE_NUMBERS_MAX} snapshots of offset {offset} were set aside already", path=self._directory.path
        )

    def _put_back(self, offset: int, aside: str) -> None:
        """The new file could not be written: the old one, wrong as it is, gets its name back, or a finding says where it is."""
        try:
            set_aside(self._directory.path, aside, snapshot_file_name(offset))
        except StorageError as error:
            message = (
                f"was set aside as {aside}, its successor could not be written, and it could not be moved back: {error.message}"
            )
            self._result.add_finding("left-set-aside", Severity.STORAGE, message, offset)


class NextToBrokerWriter(InPlaceWriter):
    """Writes the snapshots of one partition into its own directory while its broker runs, which holds the lock."""

    def _check_before_name(self, offset: int) -> None:
        """A running broker deletes, renames and cuts segments: both that meet at the offset must be what they were when they were read.

        Raises:
            RefusedError: they are not.
        """
        directory = self._directory
        above = bisect.bisect_left(directory.segments, offset, key=lambda each: each.base_offset)
        for segment in directory.segments[above - 1 : above + 1]:
            path = directory.file_path(segment.log.name)
            try:
                is_same = FileIdentity.of(os.lstat(path)) == segment.log.identity
            except OSError as error:
                raise RefusedError(
                    f"{segment.log.name} is gone ({error.strerror}): the log changed during the run", path=directory.path
                ) from error
            if not is_same:
                raise RefusedError(
                    f"{segment.log.name} changed since it was read: the log changed during the run", path=directory.path
                )


class OutWriter:
    """Writes the snapshots of one partition to its directory below ``--out``, which is made when the first one is there."""

    def __init__(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> None:
        """Takes what decides; findings go to the result."""
        self._result = result
        self._takes_unsound = request.boundaries == "all"
        self._clock = settings.clock
        self._report = settings.report
        self._dry_run = settings.dry_run
        self._names: frozenset[str] | None = None
        self._names_lock = threading.Lock()

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot unless its name is taken. Several may be written at once.

        Raises:
            StorageError: it cannot be written, or what is there cannot be read.
        """
        log_class(self._result, rebuilt)
        if rebuilt.judgement.snapshot_class is SnapshotClass.UNSOUND and not self._takes_unsound:
            return rebuilt.not_written("an UNSOUND snapshot is written with --boundaries all only")
        is_equal = self._is_equal_there(rebuilt) if self._may_be_there(rebuilt) else None
        if is_equal is None:
            if self._dry_run:
                return rebuilt.result(BoundaryAction.WOULD_WRITE)
            if create_or_wait(lambda: create_snapshot(rebuilt, None, self._report)):
                return rebuilt.result(BoundaryAction.WRITTEN)
            is_equal = self._is_equal_there(rebuilt)  # another run was faster
            if is_equal is None:
                raise WriteFailedError("the store reports that its name is taken, and has no such object", path=rebuilt.path)
        elif not self._dry_run:
            remove_other_name(self._result, rebuilt.boundary.offset)
        if is_equal:
            return rebuilt.result(BoundaryAction.EQUAL)
        self._result.add_finding(
            "different-file", Severity.FINDING, f"{rebuilt.path} is there and differs: kept", rebuilt.boundary.offset
        )
        return rebuilt.result(BoundaryAction.KEPT)

    def _may_be_there(self, rebuilt: RebuiltSnapshot) -> bool:
        """For objects, one listing is made. One that appears after it is found when its name turns out to be taken."""
        if rebuilt.target.is_local:
            return True
        with self._names_lock:
            if self._names is None:
                self._names = rebuilt.target.names()
            return os.path.basename(rebuilt.path) in self._names

    def _is_equal_there(self, rebuilt: RebuiltSnapshot) -> bool | None:
        """Whether the file that is there is equal as a map, after one expiry filter on both sides; None when there is none."""
        # A file that is larger by far is not read to be compared.
        bytes_max = snapshot_size(2 * len(rebuilt.entries) + 1_000_000)
        data = rebuilt.file.read_small(bytes_max)
        if data is None:
            return None
        try:
            existing = read_entries(data, file=rebuilt.path)
        except FormatError:
            return False
        return same_when_loaded(existing, rebuilt.entries, self._clock.as_of_ms, self._clock.expiration_ms)


log = logging.getLogger(__name__)

ROUNDS_MAX = 3
"""One run at a time stages into a directory: a file is removed once, unless another program makes it again."""


class StageWriter:
    """Writes the snapshots of one partition to its directory below ``--to``, and lists them for the staged plan.

    A snapshot that an earlier run staged at the same boundary is used again if it is equal, else replaced.
    """

    def __init__(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> None:
        """Takes what decides; findings go to the result. Events are also about files that an earlier run has left."""
        self._result = result
        self._request = request
        self._report = settings.report
        self._dry_run = settings.dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot. Several may be written at once.

        Raises:
            StorageError: it cannot be written.
        """
        log_class(self._result, rebuilt)
        too_little = reason_against_class(rebuilt.judgement.snapshot_class, allow_unproven=self._request.allow_unproven)
        if too_little is not None:
            return rebuilt.not_written(too_little)
        if self._dry_run:
            return rebuilt.result(BoundaryAction.WOULD_WRITE)
        owner = owner_of_snapshot(self._result.plan, rebuilt.boundary.offset)
        try:
            make_directories(rebuilt.target.path, owner)
        except OSError as error:
            raise WriteFailedError.from_os_error(error, "cannot be created", rebuilt.target.path) from error
        for _ in range(ROUNDS_MAX):
            if create_or_wait(lambda: create_snapshot(rebuilt, owner, self._report)):
                return rebuilt.result(BoundaryAction.WRITTEN)
            if self._is_equal_there(rebuilt, owner):
                return rebuilt.result(BoundaryAction.EQUAL)
            # Removed, not overwritten: an install may have linked the file into a log directory. If the run is killed now, the earlier plan
            # names a file that is gone, and no install takes another one for it.
            with contextlib.suppress(FileNotFoundError):
                remove_file(rebuilt.target.path, os.path.basename(rebuilt.path), lambda _fd: True)
        raise WriteFailedError("another program keeps making this file", path=rebuilt.path)

    def _is_equal_there(self, rebuilt: RebuiltSnapshot, owner: Ownership) -> bool:
        """Whether the file that an earlier run left has the same bytes, owner and mode. It is staged then."""
        try:
            existing = fingerprint_at(rebuilt.path)
            if existing != Fingerprint.of(rebuilt.data(), existing.modified_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:
                return False
        except (OSError, ReadFailedError) as error:
            log.info("%s: an earlier run left it, and it cannot be read: %s", rebuilt.path, error)
            return False
        if self._report is not None:
            self._report(rebuilt.announcement(existing))
            self._report(WriteSettled(rebuilt.boundary.offset))
        return True
