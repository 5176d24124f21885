"""Gives ready snapshots their names in log directories: links only, so that it takes seconds whatever the bytes.

Many partitions are taken at once: announced in the receipt with one sync, linked, and each of their directories synced once. Where a link
is impossible, or would carry an attribute that the segments have not, a copy is made.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from formats.partition.file_names import snapshot_file_name, snapshot_temporary_file_name
from snaprebuild.errors import (
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
    StorageError,
    WriteFailedError,
)
from snaprebuild.findings import finding_of_error
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot, segment_of_snapshot
from snaprebuild.snapshots.receipts.receipt_lines import WriteAnnounced, WriteSettled
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.hard_links import correction, difference, link_files
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.local.whole_file import sync_directory
from snaprebuild.storage.thread_pool import ThreadPool

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan, ReadySnapshot
    from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult
    from snaprebuild.snapshots.receipts.receipt import Receipt

__all__ = ["LinkWriter", "segment_path"]

_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Another mount or quota project, a file of another owner (fs.protected_hardlinks), too many links, or a file system without them: a copy
is installed."""

STAGED_EARLIER = "staged by an earlier run: its segments are the same files"


class _Links(msgspec.Struct):
    """The files of one partition that are to get their names, as far as they are left."""

    result: PartitionResult
    left: list[ReadySnapshot]

    @property
    def path(self) -> str:
        return self.result.path


class LinkWriter:
    """Writes the ready snapshots of many partitions. An existing file is never replaced."""

    def __init__(
        self,
        lock_of: Callable[[str], HeldLock],
        receipt: Receipt | None,
        threads: ThreadPool,
        timed: Callable[[str], AbstractContextManager[None]],
        *,
        dry_run: bool,
    ) -> None:
        """Takes what decides.

        Args:
            lock_of: the lock on a log directory, by its path.
            receipt: lists what is written; None in a dry run, and where every file is in its directory already.
            threads: sync the directories.
            timed: adds the time of its body to a phase.
            dry_run: write nothing.
        """
        self._lock_of = lock_of
        self._receipt = receipt
        self._threads = threads
        self._timed = timed
        self._dry_run = dry_run

    def write(self, results: Sequence[PartitionResult]) -> None:
        """Adds the boundaries of all ready snapshots to the results. A failure in one partition does not stop the others."""
        links = [_Links(each, self._missing(each)) for each in results]
        if linking := [each for each in links if each.left]:
            self._link_all(linking)

    def _missing(self, result: PartitionResult) -> list[ReadySnapshot]:
        """The files that are to get a name. The boundaries of the others are added to the result."""
        plan = result.plan
        missing = []
        for ready in plan.ready:
            if ready.is_in(plan.target):
                result.boundaries.append(_result_of(ready, BoundaryAction.EQUAL, ready.path, (STAGED_EARLIER,)))
            elif self._dry_run:
                result.boundaries.append(_result_of(ready, BoundaryAction.WOULD_WRITE, _path_in(plan, ready)))
            else:
                missing.append(ready)
        return missing

    def _link_all(self, linking: Sequence[_Links]) -> None:
        """From here on the receipt has every name that may appear."""
        assert self._receipt is not None, "a receipt records what is linked"
        try:
            with self._timed("announce"):
                for each in linking:
                    links = [one for one in each.left if one.copied_for is None]
                    if links:
                        self._receipt.announce_all(each.result.plan, map(_announced, links))
                self._receipt.sync()
        except (WriteFailedError, RefusedError) as error:
            for each in linking:
                _fail(each, error)
            return
        with self._timed("link"):
            for each in linking:
                self._link(each)
        with self._timed("sync"):
            changed = [each for each in linking if _linked_offsets(each)]
            for each, failure in zip(changed, self._threads.map(_sync_failure, [one.path for one in changed]), strict=True):
                if failure is not None:
                    each.result.findings.append(finding_of_error(failure, each.path))
        with self._timed("announce"):
            for each in linking:
                self._receipt.settle_all(each.result.plan, _linked_offsets(each))

    def _link(self, links: _Links) -> None:
        result = links.result
        target = links.path
        names = {snapshot_file_name(each.boundary.offset): each for each in links.left}
        try:
            self._lock_of(result.plan.source.log_dir.path).verify()
            linked = [name for name, ready in names.items() if ready.copied_for is None]
            for name, failure in link_files(os.path.dirname(links.left[0].path), target, linked):
                ready = names[name]
                if failure is None:
                    result.boundaries.append(_result_of(names.pop(name), BoundaryAction.WRITTEN, _path_in(result.plan, ready)))
                elif failure.errno not in _NO_LINK:
                    self._fail_one(result, names.pop(name), failure)
            for name in list(names):
                self._copy(result, names.pop(name))
        except (WriteFailedError, RefusedError) as error:
            links.left = list(names.values())
            _fail(links, error)

    def _copy(self, result: PartitionResult, ready: ReadySnapshot) -> None:
        """A new file, which inherits label, list and quota project from the directory of its partition, as the segments did."""
        assert self._receipt is not None
        receipt = self._receipt
        plan = result.plan
        segment = segment_path(plan, ready.boundary.offset)
        temporary_name = snapshot_temporary_file_name(ready.boundary.offset)

        def check_and_announce(status: os.stat_result) -> None:
            what = difference(os.path.join(plan.path, temporary_name), segment)
            if what is not None:
                command = correction(ready.path, segment)
                message = f"neither a link nor a copy would have the {what} of its segment: run `{command}`, then again"
                raise RefusedError(message, path=ready.path)
            receipt.record(plan, replace(_announced(ready), file=replace(ready.file, modified_ns=status.st_mtime_ns)))

        try:
            data = read_small_file(ready.path, ready.file.size_bytes)
            if data is None or Fingerprint.of(data, ready.file.modified_ns) != ready.file:
                raise ReadFailedError("is not what was staged", path=ready.path)
            create_file(
                plan.path,
                snapshot_file_name(ready.boundary.offset),
                data,
                owner=owner_of_snapshot(plan, ready.boundary.offset),
                temporary_name=temporary_name,
                before_name=check_and_announce,
            )
        except (StorageError, RefusedError) as error:
            self._fail_one(result, ready, error)
            return
        result.boundaries.append(_result_of(ready, BoundaryAction.WRITTEN, _path_in(plan, ready)))

    def _fail_one(self, result: PartitionResult, ready: ReadySnapshot, error: SnaprebuildError) -> None:
        assert self._receipt is not None
        self._receipt.record(result.plan, WriteSettled(ready.boundary.offset, error))
        result.findings.append(replace(finding_of_error(error, result.path), offset=ready.boundary.offset))
        result.give_up_after(error, ready.boundary)


def segment_path(plan: PartitionPlan, offset: int) -> str:
    """Path of the segment that owner, label and list of a snapshot follow."""
    return plan.source.directory.file_path(segment_of_snapshot(plan, offset).name)


def _path_in(plan: PartitionPlan, ready: ReadySnapshot) -> str:
    return os.path.join(plan.path, snapshot_file_name(ready.boundary.offset))


def _result_of(ready: ReadySnapshot, action: BoundaryAction, path: str, reasons: tuple[str, ...] = ()) -> BoundaryResult:
    return BoundaryResult(
        offset=ready.boundary.offset,
        is_log_end=ready.boundary.is_log_end,
        action=action,
        snapshot_class=ready.snapshot_class,
        reasons=reasons,
        entries=ready.entries,
        path=path,
    )


def _announced(ready: ReadySnapshot) -> WriteAnnounced:
    return WriteAnnounced(ready.boundary.offset, ready.snapshot_class, ready.entries, ready.file)


def _linked_offsets(links: _Links) -> list[int]:
    """The boundaries that were written in this run: before a replay nothing else is."""
    return [each.offset for each in links.result.boundaries if each.action == BoundaryAction.WRITTEN]


def _fail(links: _Links, error: SnaprebuildError) -> None:
    links.result.findings.append(finding_of_error(error, links.path))
    for ready in links.left:
        links.result.give_up_after(error, ready.boundary)


def _sync_failure(path: str) -> SnaprebuildError | None:
    try:
        sync_directory(path)
    except (OutcomeUnknownError, WriteFailedError) as error:
        return error
    return None
