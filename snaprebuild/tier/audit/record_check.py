"""The level ``records`` of an audit: each record of each copy is decoded, which headers and checksums do not need.

A copy is read from its first byte to its last, whatever other copies have of its offsets: each one may be the only one left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock
from formats.log.record_groups import record_groups
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.consume.log_pieces import BatchFault, LogPiece, blocks_of, pieces_of
from snaprebuild.errors import ChangedFileError, LimitReachedError, ReadFailedError
from snaprebuild.findings import Severity, pluralize
from snaprebuild.storage.local.pipe_reader import piped
from snaprebuild.storage.store import OpenBytes
from snaprebuild.tier.audit.partition_audit import CopyAudit, PartitionAudit
from snaprebuild.tier.remote_partition import fault_finding

__all__ = ["check_records"]


def check_records(audits: Sequence[PartitionAudit]) -> None:
    """Decodes the records of the readable copies of partitions, and adds a finding for each copy that has damaged ones."""
    for audit in audits:
        if audit.limit is None:
            _check_partition(audit)


def _check_partition(audit: PartitionAudit) -> None:
    audit.records_read = 0
    for number, each in enumerate(audit.readable):
        try:
            _check_copy(audit, each)
        except LimitReachedError as error:
            left = pluralize(len(audit.readable) - number, "copy", "copies")
            message = f"{error.message}: the records of {left} were not decoded, or not all"
            audit.add_finding("tier-limit", Severity.FINDING, message, each.copy.start_offset, is_unread=True)
            return
        except (ReadFailedError, ChangedFileError) as error:
            audit.findings.append(fault_finding(audit.remote.place, each.copy, error.message, is_unread=True))


def _check_copy(audit: PartitionAudit, each: CopyAudit) -> None:
    """Decodes the records of a copy.

    Raises:
        LimitReachedError, ReadFailedError, ChangedFileError: it cannot be read.
    """
    remote = audit.remote
    (piece,) = pieces_of(remote.directory([remote.segment_files(each.copy)]), 0, INT64_MAX)
    check = _SegmentCheck()
    try:
        with piece.open() as source:
            check.read(piece, source)
    finally:
        audit.records_read = (audit.records_read or 0) + check.records
    if check.first_fault is None:
        return
    audit.damaged_ids.add(each.copy.segment_id)
    audit.damaged(each.copy.start_offset)
    others = f"; {pluralize(check.faults, 'batch', 'batches')} of it cannot be read, this is the first" if check.faults > 1 else ""
    message = f"copy {uuid_to_text(each.copy.segment_id)}: {check.first_fault}{others}"
    audit.add_finding("tier-damaged-records", Severity.DAMAGED, message, each.copy.start_offset)


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

        for block in blocks_of(piece, source, HEADER_COLUMNS, take_fault, check_crc=True, on_torn=take_fault):
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
