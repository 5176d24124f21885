"""The batches of a log that set the fields of one producer's entry.

Few of millions of batches decide: those that changed the epoch, the last marker, the batch that opened the transaction, and the
newest data batches (five in a broker).
``deciding`` keeps these of a run of batches, whatever was before it, so segments are read in parallel and in bounded memory.
``ProducerTrace`` goes through the kept batches in log order.

Source: ``ProducerAppendInfo``, ``ProducerStateEntry``.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Annotated

import msgspec
import numpy as np

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from formats.partition.file_names import segment_file_name
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.inspect.broker_answer import BATCHES_IN_MEMORY, BatchInMemory, ProducerMemory, last_sequence_of
from snaprebuild.published import Int64, Natural, Part, one_of
from snaprebuild.replay.segment_summary import BatchContents

__all__ = [
    "ROW_DTYPE",
    "BatchKind",
    "ProducerBatch",
    "ProducerTrace",
    "TraceAnalysis",
    "TracedBatch",
    "batches_of_producer",
    "deciding",
    "entry_of",
    "traced_rows",
]


class BatchKind(IntEnum):
    """The kind of a batch of a producer."""

    DATA = 0
    TRANSACTIONAL = 1
    COMMIT = 2
    ABORT = 3
    EMPTY_CONTROL = 4
    """A marker whose record was compacted away."""


ROW_DTYPE = np.dtype(
    [
        ("segment", "i8"),
        ("position_bytes", "i8"),
        ("base_offset", "i8"),
        ("last_offset_delta", "i4"),
        ("base_sequence", "i4"),
        ("epoch", "i2"),
        ("timestamp", "i8"),
        ("coordinator_epoch", "i4"),
        ("kind", "u1"),
    ]
)
"""A batch of the producer: base offset of its segment, its position there, and its fields. ``timestamp`` in ms, for a marker that of its
record."""


NO_ROWS = np.zeros(0, dtype=ROW_DTYPE)


def entry_of(entries: np.ndarray, producer_id: int) -> ProducerEntry | None:
    """The entry of a producer in those of a snapshot; of two the last, as a broker takes it. None without one."""
    rows = np.flatnonzero(entries["producer_id"] == producer_id)
    return ProducerEntry(*entries[rows[-1]].tolist()) if len(rows) else None


def batches_of_producer(block: HeaderBlock, producer_id: int, segment: int) -> np.ndarray:
    """The batches of one producer in a block, of ``ROW_DTYPE``, in log order.

    Args:
        block: headers, with the columns of ``EFFECT_COLUMNS``.
        producer_id: int64, not negative.
        segment: base offset of the segment.
    """
    at = np.flatnonzero(block.column("producer_id") == producer_id)
    rows = np.zeros(len(at), dtype=ROW_DTYPE)
    if not len(at):
        return rows
    rows["segment"] = segment
    rows["position_bytes"] = block.position_bytes[at]
    for name in ("base_offset", "last_offset_delta", "base_sequence"):
        rows[name] = block.column(name)[at]
    rows["epoch"] = block.column("producer_epoch")[at]
    rows["timestamp"] = block.column("max_timestamp")[at]
    rows["coordinator_epoch"] = -1
    attributes = block.column("attributes")[at]
    is_control = attributes & ATTRIBUTE_CONTROL != 0
    data = np.where(attributes & ATTRIBUTE_TRANSACTIONAL != 0, BatchKind.TRANSACTIONAL, BatchKind.DATA)
    rows["kind"] = np.where(is_control, BatchKind.EMPTY_CONTROL, data)
    _, own, marker = np.intersect1d(at, block.control, assume_unique=True, return_indices=True)
    is_commit = block.marker_type[marker] == ControlRecordType.COMMIT
    rows["kind"][own] = np.where(is_commit, BatchKind.COMMIT, BatchKind.ABORT)
    rows["timestamp"][own] = block.marker_timestamp[marker]
    rows["coordinator_epoch"][own] = block.marker_coordinator_epoch[marker]
    return rows


def deciding(rows: np.ndarray) -> np.ndarray:
    """The batches that ``ProducerTrace`` needs of a run of batches of one producer, whatever was before: ten at most.

    Args:
        rows: of ``ROW_DTYPE``, in log order; results may be concatenated and reduced again.
    """
    acting = rows[rows["kind"] != BatchKind.EMPTY_CONTROL]
    if not len(acting):
        return rows[:1]  # it creates an entry of empty values
    keep = {0}
    changes = np.flatnonzero(acting["epoch"][1:] != acting["epoch"][:-1]) + 1
    if len(changes):
        # With the one before it, which shows that the epoch changed here and not between the runs.
        keep |= {int(changes[-1]) - 1, int(changes[-1])}
    is_data = acting["kind"] <= BatchKind.TRANSACTIONAL
    keep.update(np.flatnonzero(is_data)[-BATCHES_IN_MEMORY:].tolist())
    markers = np.flatnonzero(~is_data)
    after_marker = 0
    if len(markers):
        after_marker = int(markers[-1]) + 1
        keep.add(after_marker - 1)
    opening = np.flatnonzero(acting["kind"][after_marker:] == BatchKind.TRANSACTIONAL)
    if len(opening):
        keep.add(after_marker + int(opening[0]))
    rows_to_keep: np.ndarray = acting[sorted(keep)]
    return rows_to_keep


class TracedRows(msgspec.Struct, frozen=True):
    """The batches of a run that decide the entry of the producer: rows of ``ROW_DTYPE`` in log order."""

    rows: np.ndarray

    def joiner(self) -> JoinedTrace:
        """A joiner for the rows of several runs (``AnalysisPart``)."""
        return JoinedTrace()


class JoinedTrace:
    """Joins the deciding batches of runs that follow each other."""

    def __init__(self) -> None:
        self._rows = NO_ROWS

    def add(self, part: TracedRows) -> None:
        """Adds the deciding batches of the next run."""
        if len(part.rows):
            self._rows = deciding(np.concatenate((self._rows, part.rows)))

    def total(self) -> TracedRows:
        """The deciding batches of all runs."""
        return TracedRows(self._rows)


class TraceAnalysis(msgspec.Struct, frozen=True):
    """Finds the batches of a segment that decide the entry of one producer; see ``replay.segment_summary.Analysis``."""

    producer_id: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the analysis reads besides those of the replay (``Analysis``)."""
        return ()

    def of_block(self, block: HeaderBlock, base_offset: int) -> TracedRows:
        """The batches of the producer in a block (``Analysis``)."""
        return TracedRows(batches_of_producer(block, self.producer_id, base_offset))


def traced_rows(contents: BatchContents) -> np.ndarray:
    """The result of the analysis, if it was the only one: ``ROW_DTYPE``, in log order."""
    rows: np.ndarray = contents.extras[0].rows if contents.extras else NO_ROWS
    return rows


class TracedBatch(Part, frozen=True):
    """A batch in a segment."""

    segment: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}\.log$")]
    """Name of the file."""
    position_bytes: Natural
    """Position of the batch in the file."""
    base_offset: Natural
    timestamp_ms: Int64
    """The greatest timestamp of the batch; of a marker that of its record. -1 for none."""
    kind: Annotated[str, one_of(*(kind.name.lower() for kind in BatchKind))]


class ProducerBatch(msgspec.Struct, frozen=True):
    """A batch of the producer; fields as in ``ROW_DTYPE``."""

    segment: int
    position_bytes: int
    base_offset: int
    last_offset_delta: int
    base_sequence: int
    epoch: int
    timestamp: int
    coordinator_epoch: int
    kind: int

    @property
    def is_data(self) -> bool:
        """Whether it has records of the client; else it is a marker, or empty."""
        return self.kind <= BatchKind.TRANSACTIONAL

    def traced(self) -> TracedBatch:
        """The place and the kind of the batch, as documents show it."""
        return TracedBatch(
            segment=segment_file_name(self.segment),
            position_bytes=self.position_bytes,
            base_offset=self.base_offset,
            timestamp_ms=self.timestamp,
            kind=BatchKind(self.kind).name.lower(),
        )

    @property
    def in_memory(self) -> BatchInMemory:
        """The part of the batch that a broker keeps to find duplicates."""
        return BatchInMemory(self.base_sequence, last_sequence_of(self.base_sequence, self.last_offset_delta), self.base_offset)


class ProducerTrace(msgspec.Struct):
    """The entry of one producer, and the batch that set each of its fields.

    Attributes:
        entry: None if the producer is unknown.
        set_by: by field the batch that set its value (which may be -1). For the epoch that is the first batch that had it; for an
            open transaction the one that opened it; for the others the last that wrote it. A field without batch has the value of
            the first entry.
        in_memory: the newest data batches of this epoch, oldest first, as many as a broker has in memory.
        last_data: the last data batch, of any epoch.
    """

    entry: ProducerEntry | None = None
    set_by: dict[str, ProducerBatch] = msgspec.field(default_factory=dict)
    in_memory: deque[BatchInMemory] = msgspec.field(default_factory=lambda: deque(maxlen=BATCHES_IN_MEMORY))
    last_data: ProducerBatch | None = None

    @classmethod
    def begun_with(cls, entry: ProducerEntry | None) -> ProducerTrace:
        """A trace that begins with the entry of a snapshot, or without one."""
        trace = cls(entry)
        if entry is not None:
            trace.in_memory.extend(ProducerMemory.loaded(entry).batches)
        return trace

    @property
    def memory(self) -> ProducerMemory | None:
        """The state of the producer in the memory of the broker that wrote these batches."""
        if self.entry is None:
            return None
        first = self.entry.current_txn_first_offset
        return ProducerMemory(self.entry.epoch, tuple(self.in_memory), None if first < 0 else first)

    def take(self, rows: np.ndarray, producer_id: int) -> None:
        """Goes through batches of ``ROW_DTYPE`` in log order."""
        for values in rows.tolist():
            self._apply(ProducerBatch(**dict(zip(ROW_DTYPE.names or (), values, strict=True))), producer_id)

    def _apply(self, batch: ProducerBatch, producer_id: int) -> None:
        entry = self.entry or ProducerEntry(producer_id)
        if batch.kind == BatchKind.EMPTY_CONTROL:
            self.entry = entry
            return
        values = {name: getattr(entry, name) for name in ProducerEntry.__struct_fields__}
        last = ("last_sequence", "last_offset", "offset_delta")
        if batch.epoch != entry.epoch:
            self.in_memory.clear()
            values |= {"epoch": batch.epoch, "last_sequence": -1, "last_offset": -1, "offset_delta": 0}
            self.set_by |= dict.fromkeys(("epoch", *last), batch)
        values["timestamp"] = batch.timestamp
        self.set_by["timestamp"] = batch
        if batch.is_data:
            end = batch.base_offset + batch.last_offset_delta
            values |= {"last_sequence": batch.in_memory.last_sequence, "last_offset": end, "offset_delta": batch.last_offset_delta}
            self.in_memory.append(batch.in_memory)
            self.last_data = batch
            self.set_by |= dict.fromkeys(last, batch)
            if batch.kind == BatchKind.TRANSACTIONAL and entry.current_txn_first_offset < 0:
                values["current_txn_first_offset"] = batch.base_offset
                self.set_by["current_txn_first_offset"] = batch
        else:
            values |= {"coordinator_epoch": batch.coordinator_epoch, "current_txn_first_offset": -1}
            self.set_by["coordinator_epoch"] = batch
            self.set_by["current_txn_first_offset"] = batch
        self.entry = ProducerEntry(**values)
