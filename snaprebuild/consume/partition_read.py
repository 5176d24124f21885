"""Reads the records of a planned range as batches of Arrow, piece by piece, in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from formats.errors import BadValueError, FormatError
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock
from formats.log.record_batch import ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_LOG_APPEND_TIME
from formats.log.record_groups import RecordGroup, record_groups
from snaprebuild.consume.arrow_arrays import one_row
from snaprebuild.consume.arrow_batches import arrow_batch, record_schema
from snaprebuild.consume.log_pieces import MAGIC_V2, BatchFault, LogPiece, blocks_of
from snaprebuild.consume.partition_plan import RecordPlan
from snaprebuild.consume.record_query import DamageMode, RecordIsolation, RecordQuery, TimeBounds
from snaprebuild.consume.transaction_outcomes import Outcome
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.storage.local.pipe_reader import piped
from snaprebuild.storage.store import OpenBytes

__all__ = ["PartitionCounts", "PartitionReader", "ReadRange", "error_row"]


class PartitionCounts(msgspec.Struct):
    """Counts of the records and batches of a partition.

    Attributes:
        records: rows, without those for damage.
        first_offset: of the first record; None without one.
        last_offset: of the last record; None without one.
        aborted_batches: batches of aborted transactions that were left out.
        control_batches: control batches that were left out.
        missing_offsets: offsets of the range between the batches, which are in no batch.
        damaged_batches: batches, or ends of segments, that could not be read.
    """

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    aborted_batches: int = 0
    control_batches: int = 0
    missing_offsets: int = 0
    damaged_batches: int = 0


class ReadRange(msgspec.Struct, frozen=True):
    """The range of a partition that was read, with what was counted.

    Attributes:
        topic: of the partition.
        partition: its number.
        place: of the log, for messages.
        start: the first offset.
        end: the offset after the last one.
        counts: of the records and batches.
    """

    topic: str
    partition: int
    place: str
    start: int
    end: int
    counts: PartitionCounts

    @property
    def topic_partition(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class PartitionReader:
    """Reads the records of a plan.

    Attributes:
        plan: of the partition.
        query: what is read.
        counts: of what was read so far.
        findings: that came up while reading.
    """

    plan: RecordPlan
    query: RecordQuery
    counts: PartitionCounts = field(default_factory=PartitionCounts)
    findings: list[Finding] = field(default_factory=list)
    _next_offset: int = 0
    _is_compacted: bool = False
    _unsettled: list[BatchFault] = field(default_factory=list)
    _faults: list[BatchFault] = field(default_factory=list)
    _first_fault: BatchFault | None = None
    _first_gap: tuple[int, int] | None = None

    def range(self) -> ReadRange:
        """The range, with the counts of what was read so far."""
        plan = self.plan
        return ReadRange(plan.log.topic, plan.log.partition, plan.log.place, plan.start, plan.end, self.counts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records in the order of their offsets.

        Raises:
            FormatError: a batch is damaged, with the mode FAILFAST.
            ReadFailedError: offsets of the range are not there, and that ends the read; or a segment cannot be read.
            RefusedError: a segment changed.
        """
        plan = self.plan
        self._is_compacted = plan.log.may_have_gaps
        self._next_offset = plan.start
        try:
            for piece in plan.pieces:
                with piece.open() as source:
                    yield from self._piece(piece, source)
            if plan.damage is not None:
                raise plan.damage
            self._pass_to(plan.end)
            self._report_gaps()
        finally:
            plan.headers.clear()
            self._report_damage()

    def _blocks(self, piece: LogPiece, source: OpenBytes, low: int) -> Generator[HeaderBlock]:
        kept = self.plan.headers.pop(piece.path, None)
        if kept is not None:
            yield from kept
        else:
            yield from blocks_of(piece, source, HEADER_COLUMNS, self._on_fault, low=low, on_torn=self._on_torn)

    def _piece(self, piece: LogPiece, source: OpenBytes) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        low = max(plan.start, piece.low)
        high = min(plan.end, piece.high)
        with contextlib.closing(self._blocks(piece, source, low)) as blocks:
            for block in blocks:
                self._settle_faults(is_below=int(block.column("base_offset")[0]) <= low)
                yield from self._fault_rows()
                yield from self._block(piece, source, block, low, high)
                yield from self._fault_rows()
                if self._reaches(block, high):
                    return
        self._settle_faults(is_below=False)
        yield from self._fault_rows()

    def _reaches(self, block: HeaderBlock, high: int) -> bool:
        """Whether nothing of the range is behind a block. What follows the last batch of the log is looked at, too."""
        base = int(block.column("base_offset")[-1])
        return base >= high or (block.next_offset >= high and high < self.plan.log.log_end)

    def _block(self, piece: LogPiece, source: OpenBytes, block: HeaderBlock, low: int, high: int) -> Iterator[pa.RecordBatch]:
        base = _least_offsets(block)
        last = block.column("base_offset") + block.column("last_offset_delta")
        in_range = (last >= low) & (base < high)
        rows = in_range.nonzero()[0]
        if not len(rows):
            return
        outcomes = self._outcomes(block)
        is_control = block.column("attributes") & ATTRIBUTE_CONTROL != 0
        wanted = in_range & _may_have_times(block, self.query.times)
        if self.query.isolation is not RecordIsolation.ALL:
            wanted = wanted & ~is_control
            self.counts.control_batches += int((in_range & is_control).sum())
        if self.query.isolation is RecordIsolation.READ_COMMITTED and outcomes is not None:
            is_aborted = outcomes == Outcome.ABORTED
            self.counts.aborted_batches += int((wanted & is_aborted).sum())
            wanted = wanted & ~is_aborted
        first = block.column("base_offset").copy()
        groups = record_groups(
            source,
            block,
            rows=wanted.nonzero()[0],
            with_headers="headers" in self.query.columns,
            piped=piped,
            on_damage=self._on_damage(piece, block) if self.query.skips_faults else None,
        )
        for group in groups:
            np.minimum.at(first, group.batch, group.offset)
            chosen = self._in_range(piece, block, group, low, high)
            if len(chosen):
                yield self._batch(piece, block, chosen, outcomes)
            yield from self._fault_rows()
        yield from self._fault_rows()  # those after the last group: what they hide is no gap
        self._note_gaps(block, rows, first, last)

    def _outcomes(self, block: HeaderBlock) -> np.ndarray | None:
        if self.plan.outcomes is None:
            return None
        return self.plan.outcomes.of_batches(block.column("base_offset"), block.column("producer_id"), block.column("attributes"))

    def _in_range(self, piece: LogPiece, block: HeaderBlock, group: RecordGroup, low: int, high: int) -> RecordGroup:
        """The records of the range, each offset once."""
        offset = group.offset
        chosen = (offset >= low) & (offset < high)
        before = self.counts.last_offset
        highest = np.maximum.accumulate(offset)
        is_new = np.ones(len(group), dtype=bool)
        is_new[1:] = offset[1:] > highest[:-1]
        if before is not None:
            is_new &= offset > before
        repeated = np.flatnonzero(chosen & ~is_new)
        if len(repeated):
            row = int(group.batch[repeated[0]])
            position = int(block.position_bytes[row])
            error = BadValueError(
                "offset of a record",
                file=piece.path,
                position=position,
                expected="one that ascends",
                found=int(offset[repeated[0]]),
            )
            if not self.query.skips_faults:
                raise error
            self._faults.append(BatchFault(piece, position, error))
            chosen &= is_new
        return group if chosen.all() else group.chosen(chosen)

    def _batch(self, piece: LogPiece, block: HeaderBlock, group: RecordGroup, outcomes: np.ndarray | None) -> pa.RecordBatch:
        counts = self.counts
        counts.records += len(group)
        if counts.first_offset is None:
            counts.first_offset = int(group.offset[0])
        counts.last_offset = int(group.offset[-1])
        return arrow_batch(
            group,
            block,
            self.query.columns,
            topic=self.plan.log.topic,
            partition=self.plan.log.partition,
            segment_base_offset=piece.base_offset,
            source=piece.origin,
            transaction=outcomes,
        )

    # ------------------------------------------------------------------------------------------------------------------ damage

    def _on_fault(self, fault: BatchFault) -> None:
        self._unsettled.append(fault)

    def _settle_faults(self, *, is_below: bool) -> None:
        """Takes the faults before a batch, or at the end of a segment, unless they are below the range."""
        faults = self._unsettled
        self._unsettled = []
        if is_below or not faults:
            return
        if not self.query.skips_faults:
            raise faults[0].error
        self._faults += faults

    def _on_torn(self, fault: BatchFault) -> None:
        """Notes what follows the last whole batch: as after a crash, or an append that goes on."""
        count = fault.piece.size_bytes - fault.position_bytes
        if count > 0:
            message = (
                f"the log ends at byte {fault.position_bytes}: brokers cut off the {count} bytes after it, which are no whole batch"
            )
            self.findings.append(Finding("records-end-torn", Severity.NOTE, fault.piece.path, message))

    def _on_damage(self, piece: LogPiece, block: HeaderBlock) -> Callable[[int, FormatError], None]:
        def take(row: int, error: FormatError) -> None:
            self._faults.append(BatchFault(piece, int(block.position_bytes[row]), error, int(block.column("base_offset")[row])))

        return take

    def _fault_rows(self) -> Iterator[pa.RecordBatch]:
        faults = self._faults
        self._faults = []
        for fault in faults:
            self.counts.damaged_batches += 1
            self._is_compacted = True  # what is missing from here on was reported
            if self.query.mode is DamageMode.PERMISSIVE:
                yield error_row(self.plan, self.query, fault)
            if self._first_fault is None:
                self._first_fault = fault

    def _report_damage(self) -> None:
        """One finding for all faults of a partition, which may be many."""
        fault = self._first_fault
        if fault is None:
            return
        message = fault.error.message
        count = self.counts.damaged_batches
        if count > 1:
            message = f"{message}; {pluralize(count, 'batch', 'batches')} of the range cannot be read, this is the first"
        self.findings.append(Finding("records-damaged", Severity.DAMAGED, fault.piece.path, message, fault.offset))

    # -------------------------------------------------------------------------------------------------------------------- gaps

    def _note_gaps(self, block: HeaderBlock, rows: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
        """Counts the offsets of the range that are in no batch."""
        counted = block.column("record_count")[rows]
        has_holes = (counted >= 0) & (counted <= block.column("last_offset_delta")[rows])
        self._is_compacted |= bool(has_holes.any())
        begins = first[rows]
        ends = np.concatenate(([self._next_offset], last[rows][:-1] + 1))
        gaps = np.maximum(begins - ends, 0)
        if gaps.any():
            place = int(np.flatnonzero(gaps)[0])
            self._add_gap(int(ends[place]), int(begins[place]), int(gaps.sum()))
        self._next_offset = int(last[rows[-1]]) + 1

    def _pass_to(self, end: int) -> None:
        if end > self._next_offset:
            self._add_gap(self._next_offset, end, end - self._next_offset)
            self._next_offset = end

    def _add_gap(self, begin: int, end: int, count: int) -> None:
        self.counts.missing_offsets += count
        if self._first_gap is None:
            self._first_gap = (begin, end)
        if not self._is_compacted and self.query.fails_on_data_loss:
            message = f"offsets {begin} to {end - 1} of {self.plan.log.topic_partition} are in no batch"
            raise ReadFailedError(f"{message}; without fail_on_data_loss the rest is read", path=self.plan.log.place)

    def _report_gaps(self) -> None:
        if self._first_gap is None or self._is_compacted:
            return
        begin, end = self._first_gap
        count = pluralize(self.counts.missing_offsets, "offset")
        message = f"{count} of the range are in no batch, the first are {begin} to {end - 1}"
        self.findings.append(Finding("records-lost", Severity.FINDING, self.plan.log.place, message, begin))


def _may_have_times(block: HeaderBlock, times: TimeBounds) -> np.ndarray:
    """Which batches may have a record between two times, by their headers; bool (rows,).

    A batch of magic 2 has the greatest timestamp of its records in its header. That is the timestamp of all of them if it is the time of
    the append. Batches of older magic may be anything.
    """
    greatest = block.column("max_timestamp")
    is_known = block.column("magic") == MAGIC_V2
    may_have = np.ones(len(block), dtype=bool)
    if times.least_ms is not None:
        may_have &= ~is_known | (greatest >= times.least_ms)
    if times.most_ms is not None:
        is_append_time = block.column("attributes") & ATTRIBUTE_LOG_APPEND_TIME != 0
        may_have &= ~(is_known & is_append_time) | (greatest <= times.most_ms)
    return may_have


def _least_offsets(block: HeaderBlock) -> np.ndarray:
    """An offset that no record of each batch is below: a wrapper of magic 0 or 1 has only its last one in its header."""
    base: np.ndarray = block.column("base_offset").copy()
    is_wrapper = (block.column("magic") < 2) & (block.column("attributes") & ATTRIBUTE_CODEC != 0)
    wrappers = is_wrapper.nonzero()[0]
    base[wrappers] = np.where(wrappers > 0, block.column("base_offset")[wrappers - 1] + 1, 0)
    return base


def error_row(plan: RecordPlan, query: RecordQuery, fault: BatchFault) -> pa.RecordBatch:
    """The row for batches that cannot be read: where they are, and why they cannot."""
    values = {
        "topic": plan.log.topic,
        "partition": plan.log.partition,
        "segment_base_offset": fault.piece.base_offset,
        "position_bytes": fault.position_bytes,
        "source": fault.piece.origin,
        "error": str(fault.error),
    }
    return one_row(values, record_schema(query.columns))
