"""The level ``records`` of an audit: each record of each copy is decoded, which headers and checksums do not need.

A copy is read from its first byte to its last, whatever other copies have of its offsets: each one may be the only one left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock
from formats.log.record_groups import record_groups
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.consume.log_pieces import BatchFault, LogPiece, blocks_of
from snaprebuild.errors import ChangedFileError, LimitReachedError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import Severity, pluralize
from snaprebuild.snapshots.engine.partition_task import Engine, PartitionTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import Outcomes, Pieces, ReadTask, read_each, read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.pipe_reader import piped
from snaprebuild.storage.store import OpenBytes
from snaprebuild.tier.audit.partition_audit import CopyAudit, PartitionAudit
from snaprebuild.tier.remote_partition import fault_finding

__all__ = ["check_records"]


def check_records(audits: Sequence[PartitionAudit], run: Run, engine: Callable[[int], Engine | None]) -> None:
    """Decodes the records of the readable copies of partitions, and adds a finding for each copy that has damaged ones.

    Copies that retention has deleted meanwhile are left out.

    Args:
        audits: of the partitions; one that a limit ended is left out.
        run: how many workers read.
        engine: makes, from the bytes of the segments, what reads in place of worker processes of this machine, or None.
    """
    tasks = [_RecordTask(each) for each in audits if each.limit is None]
    run_tasks(tasks, msgspec.structs.replace(run, engine=engine(sum(each.size_bytes for each in tasks))))


class _CopyRecords(msgspec.Struct, frozen=True):
    """The result of reading the records of a copy.

    Attributes:
        records: that were decoded, control records included.
        faults: batches, or ends of the segment, that cannot be read.
        first_fault: what is wrong with the first of them, with its byte; None without one.
        unread: why the copy was not read, or not to its end; None if it was.
    """

    records: int
    faults: int
    first_fault: str | None
    unread: str | None = None


def _read_copies(tasks: Sequence[ReadTask]) -> Outcomes:
    """In a worker: the records of copies, for ``_RecordTask``."""
    return read_each(lambda task: cast("Pieces", (_copy_records(task),)), tasks)


def _copy_records(task: ReadTask) -> _CopyRecords:
    """Decodes the records of a copy.

    Raises:
        LimitReachedError: a limit of the run is used up.
    """
    piece = LogPiece(
        store=task.store,
        path=task.path,
        identity=task.identity,
        base_offset=task.base_offset,
        low=0,
        high=INT64_MAX,
        is_last=True,
        index=None,
        origin=task.path,
    )
    check = _SegmentCheck()
    unread = None
    try:
        with piece.open() as source:
            check.read(piece, source)
    except (ReadFailedError, ChangedFileError) as error:
        unread = error.message
    return _CopyRecords(check.records, check.faults, check.first_fault, unread)


class _RecordTask(PartitionTask):
    """The readable copies of a partition, whose records are decoded.

    Attributes:
        size_bytes: of the segments.
    """

    reader = staticmethod(_read_copies)

    def __init__(self, audit: PartitionAudit) -> None:
        remote = audit.remote
        directory = remote.directory([remote.segment_files(each.copy) for each in audit.readable])
        super().__init__(remote.source(directory), TaskOutcome(), partial(read_tasks, directory, check_crc=True))
        self.size_bytes = sum(each.log.identity.size_bytes for each in directory.segments)
        self._audit = audit
        self._copies = audit.readable
        self._next = 0
        audit.records_read = 0

    def take(self, summary: _CopyRecords) -> bool:  # type: ignore[override]  # it is what ``_read_copies`` gives
        """Takes what the records of the next copy are."""
        audit = self._audit
        each = self._copies[self._next]
        audit.records_read = (audit.records_read or 0) + summary.records
        self._next += 1
        if summary.unread is not None:
            if not audit.leave_out_deleted([each]):
                audit.findings.append(fault_finding(audit.remote.place, each.copy, summary.unread, is_unread=True))
        elif summary.first_fault is not None:
            self._take_damage(each, summary)
        return True

    def _take_damage(self, each: CopyAudit, summary: _CopyRecords) -> None:
        audit = self._audit
        audit.damaged_ids.add(each.copy.segment_id)
        audit.damaged(each.copy.start_offset)
        message = f"copy {uuid_to_text(each.copy.segment_id)}: {summary.first_fault}"
        if summary.faults > 1:
            message += f"; {pluralize(summary.faults, 'batch', 'batches')} of it cannot be read, this is the first"
        audit.add_finding("tier-damaged-records", Severity.DAMAGED, message, each.copy.start_offset)

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """The records of a copy and of those after it were not decoded: a limit is used up, or there is no worker."""
        left = self._copies[self._next :]
        if isinstance(error, LimitReachedError):
            message = f"{error.message}: the records of {pluralize(len(left), 'copy', 'copies')} were not decoded, or not all"
            self._audit.add_finding("tier-limit", Severity.FINDING, message, left[0].copy.start_offset, is_unread=True)
            return
        for each in left:
            self._audit.findings.append(fault_finding(self._audit.remote.place, each.copy, error.message, is_unread=True))


class _SegmentCheck:
    """Reads all records of a segment.

    Attributes:
        records: that were decoded, control records included.
        faults: batches, or ends of the segment, that cannot be read.
        first_fault: what is wrong with the first of them, with its byte; None without one.
    """

    def __init__(self) -> None:
        self.records = 0
        self.faults = 0
        self.first_fault: str | None = None
        self._first_position = INT64_MAX

    def read(self, piece: LogPiece, source: OpenBytes) -> None:
        """Decodes the records of a segment, whose end no broker changes any more.

        Raises:
            LimitReachedError, ReadFailedError, ChangedFileError: it cannot be read.
        """

        def take_fault(fault: BatchFault) -> None:
            self._take(fault.position_bytes, fault.error)

        for block in blocks_of(piece, source, HEADER_COLUMNS, take_fault, on_torn=take_fault):
            take_damage = partial(self._take_row, block)
            for group in record_groups(source, block, piped=piped, on_damage=take_damage):
                self.records += len(group)

    def _take_row(self, block: HeaderBlock, row: int, error: FormatError) -> None:
        self._take(int(block.position_bytes[row]), error)

    def _take(self, position: int, error: FormatError) -> None:
        self.faults += 1
        if position < self._first_position:
            self._first_position = position
            self.first_fault = f"batch at byte {position}: {error.message}"
