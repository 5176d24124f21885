"""Summaries of segments as rows of a table, and back: tasks that read send them to tasks that merge.

There is one row for each piece of a segment. A piece with many producers has one for each ``PART_PRODUCERS`` of them, so that no
row is large. Rows of one partition differ in ``KEYS``, whose order is that of the log. A job precedes the first of its segments, with
the state before that segment, if there is one. The sizes of the rows of a partition precede its job (``with_sizes``).
Spark gets the keys as columns, and all other values of a row (``FIELDS``) as one column of bytes. It compiles code for each column of
each stage, which took a second of processor time for each job when there were sixty columns.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.errors import FormatError
from formats.log.batch_headers import Tail, TailKind
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.first_events import EVENT_COLUMNS, FirstEvents
from snaprebuild.replay.segment_effect import COLUMNS, IDENTITY, NO_CLOSES, ClosedTransactions, SegmentEffect
from snaprebuild.replay.segment_summary import BatchContents, BatchTotals, SegmentSummary
from snaprebuild.snapshots.engine.partition_task import CachedSummary
from snaprebuild.spark.partition_jobs import Outcome
from snaprebuild.spark.segment_ranges import CachedRange, RangeSummary

__all__ = [
    "FIELDS",
    "JOB_PIECE",
    "KEYS",
    "PART_PRODUCERS",
    "PIECES_MAX",
    "ROWS_PER_BATCH",
    "SCHEMA",
    "SIZES_PIECE",
    "WHOLE",
    "WITHHELD",
    "JobRow",
    "Row",
    "RowSizes",
    "batches_of",
    "outcomes",
    "rows_of_error",
    "rows_of_job",
    "rows_of_pieces",
    "rows_of_range",
    "table_of",
    "with_sizes",
]

PART_PRODUCERS = 16_384
"""Producers of a row: some 1.3 MB."""

ROWS_PER_BATCH = 32
"""Rows that are sent to Python, or back, at once."""

PIECES_MAX = 1 << 20
"""Pieces of a range, which is cut if snapshots are in its middle: with ``limits.RANGES_MAX`` ranges their numbers fit into an
int32."""

_ARROW = {"i8": pa.int64(), "i4": pa.int32(), "i2": pa.int16(), "u1": pa.int8(), "?": pa.bool_()}

_EFFECT = {f"effect_{name}": (name, dtype) for name, (dtype, _) in COLUMNS.items()}
_CLOSES = {
    f"close_{name}": (name, getattr(NO_CLOSES, name).dtype.str[1:].replace("b1", "?"))
    for name in ClosedTransactions.__struct_fields__
}
_EVENTS = {f"event_{name}": (name, dtype) for name, (dtype, _) in EVENT_COLUMNS.items() if name != "producer_id"}
"""Columns of first events: one value for each producer of the effect, or none if they were not requested."""

_BAD_CRC = ("bad_crc_position", "bad_crc_offset")
_BOTH = ("cut_offset", "cut_batch_offset", "read_bytes")
_PIECE = ("size_bytes", *_BOTH)
_RANGE = ("start_bytes", "end_bytes", "source_bytes", *_BOTH)
_FACTS = tuple(name for name in BatchTotals.__struct_fields__ if name not in ("base_offset", "begins_with_magic_2", "bad_crc"))
"""Facts that are one number, or none; ``base_offset`` is the column ``first_offset``."""

KEYS = ("partition", "base_offset", "piece", "part")
"""Numbers of the partition, its segment by base offset, the piece or range, and the part of its producers."""

WHOLE = -1
"""Base offset of the job of a whole partition, or of its first chunk."""

JOB_PIECE = -1
"""Number of the piece in the rows of a job."""

SIZES_PIECE = -2
"""Number of the piece in the rows with sizes."""

WITHHELD = -1
"""Slot of a row that is sent to no task that replays, but may be needed by another query."""

FIELDS = pa.schema(
    [
        ("error", pa.binary()),
        *(
            (name, pa.int64())
            for name in dict.fromkeys(
                ("first_offset", *_FACTS, "commits_omitted", *_PIECE, *_RANGE, "bytes_kept", "event_newest_timestamp")
            )
        ),
        ("begins_with_magic_2", pa.bool_()),
        ("tail_kind", pa.string()),
        ("tail_position_bytes", pa.int64()),
        ("tail_error", pa.binary()),
        *((name, pa.list_(pa.int64())) for name in _BAD_CRC),
        *((column, pa.list_(_ARROW[dtype])) for column, (_, dtype) in (_EFFECT | _CLOSES | _EVENTS).items()),
    ]
)
"""The values of a row besides its keys and its job, with their types as columns of Arrow. Rows with sizes have another value
(``RowSizes``). Another row is one of four: a part of a job with its state (``JOB_PIECE``), or the error of its segment (``error``).
Or it is a part of the summary of a piece, or of a range (``start_bytes``)."""

_ARRAYS = dict.fromkeys(_BAD_CRC, "i8") | {column: dtype for column, (_, dtype) in (_EFFECT | _CLOSES | _EVENTS).items()}
"""Type of the elements of each field that is an array."""

_VALUES = tuple(name for name in FIELDS.names if name not in _ARRAYS)
"""The other fields: one number, text or pickle each, or none."""

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("piece", pa.int32()),
        ("part", pa.int32()),
        ("slot", pa.int32()),
        ("job", pa.binary()),
        ("contents", pa.binary()),
    ]
)
"""A row for Spark. ``slot`` is the task to which it is sent, if the task that read knows it. ``contents`` are its ``FIELDS`` as
MessagePack: an array of the values, and an array with the elements of each array, as bytes."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[list[Any], list[bytes]])
_SIZES = "sizes"
"""The value of a row with sizes."""

Row = dict[str, Any]


class RowSizes(msgspec.Struct, array_like=True):
    """The sizes of the rows of a large partition, or of those that one task has read.

    Attributes:
        rows_bytes: by base offset of a segment, the bytes of the contents of its rows.
        has_withheld: some of these rows are not sent to the task that replays.
    """

    rows_bytes: dict[int, int] = msgspec.field(default_factory=dict)
    has_withheld: bool = False

    @property
    def total_bytes(self) -> int:
        """Bytes of these rows, also of those that are withheld."""
        return sum(self.rows_bytes.values())

    def add(self, base_offset: int, size_bytes: int) -> int:
        """Adds rows of a segment. Returns the bytes of all rows of that segment so far."""
        total = self.rows_bytes.get(base_offset, 0) + size_bytes
        self.rows_bytes[base_offset] = total
        return total

    def merge(self, other: RowSizes) -> None:
        """Adds the sizes that another task has sent."""
        for base_offset, size_bytes in other.rows_bytes.items():
            self.add(base_offset, size_bytes)
        self.has_withheld |= other.has_withheld


_SIZES_DECODER = msgspec.msgpack.Decoder(RowSizes)


@dataclass(frozen=True, slots=True)
class JobRow:
    """The job of the segments that follow.

    Attributes:
        job: as it was sent; None if only a part of its state arrived.
        state: the effect before the segments.
        sizes: of all rows of a large partition, also of those that are withheld; empty for any other one.
    """

    job: bytes | None
    state: SegmentEffect
    sizes: RowSizes = field(default_factory=RowSizes)


def rows_of_job(partition: int, job: bytes, base_offset: int = WHOLE, state: SegmentEffect = IDENTITY) -> Iterator[Row]:
    """The rows of a job, before those of its segments.

    Args:
        partition: its number.
        job: pickled.
        base_offset: of the first segment.
        state: the effect before that segment.
    """
    yield from _rows_of({"partition": partition, "base_offset": base_offset, "piece": JOB_PIECE}, {"job": job}, state)


def rows_of_error(partition: int, base_offset: int, number: int, error: SnaprebuildError | FormatError) -> Iterator[Row]:
    """The row of a segment, or of a range of it, that could not be read."""
    piece = number * PIECES_MAX
    yield {"partition": partition, "base_offset": base_offset, "piece": piece, "part": 0, "error": pickle.dumps(error)}


def rows_of_pieces(partition: int, pieces: Iterable[SegmentSummary]) -> Iterator[Row]:
    """The rows of a segment that was read."""
    for number, summary in enumerate(pieces):
        keys = {"partition": partition, "base_offset": summary.base_offset, "piece": number}
        numbers = {name: getattr(summary, name) for name in _PIECE}
        facts = numbers | _tail_row(summary.tail) | _contents_row(summary.contents)
        yield from _rows_of(keys, facts, summary.effect, summary.contents.first_events)


def rows_of_range(partition: int, number: int, pieces: Iterable[RangeSummary]) -> Iterator[Row]:
    """The rows of a range of a segment that was read."""
    for place, part in enumerate(pieces, number * PIECES_MAX):
        keys = {"partition": partition, "base_offset": part.base_offset, "piece": place}
        numbers = {name: getattr(part, name) for name in _RANGE}
        facts = numbers | _tail_row(part.tail) | _contents_row(part.contents)
        yield from _rows_of(keys, facts, part.contents.effect, part.contents.first_events)


def _tail_row(tail: Tail) -> Row:
    error = None if tail.error is None else pickle.dumps(tail.error)
    return {"tail_kind": tail.kind.value, "tail_position_bytes": tail.position_bytes, "tail_error": error}


def _contents_row(contents: BatchContents) -> Row:
    facts = contents.facts
    row: Row = {name: getattr(facts, name) for name in _FACTS}
    row |= {"first_offset": facts.base_offset, "begins_with_magic_2": facts.begins_with_magic_2}
    bad = np.array(facts.bad_crc, dtype=np.int64).reshape(-1, 2)
    return row | {name: bad[:, column] for column, name in enumerate(_BAD_CRC)} | {"commits_omitted": contents.commits_omitted}


def _rows_of(keys: Row, facts: Row, effect: SegmentEffect, events: FirstEvents | None = None) -> Iterator[Row]:
    """The rows of an effect: the first one has the facts and the closed transactions, and all have their producers."""
    facts |= {column: getattr(effect.closes, name) for column, (name, _) in _CLOSES.items()}
    columns = {}
    if events is not None:
        facts["event_newest_timestamp"] = events.newest_timestamp
        columns = _event_columns(effect, events)
    for part, start in enumerate(range(0, max(len(effect), 1), PART_PRODUCERS)):
        rows = {column: getattr(effect, name)[start : start + PART_PRODUCERS] for column, (name, _) in _EFFECT.items()}
        rows |= {column: values[start : start + PART_PRODUCERS] for column, values in columns.items()}
        yield keys | {"part": part} | (facts if part == 0 else {}) | rows


def _event_columns(effect: SegmentEffect, events: FirstEvents) -> Row:
    """The first events with a row for each producer of the effect; -1 for the offset of a producer without any."""
    place = np.searchsorted(effect.producer_id, events.producer_id)
    columns = {}
    for column, (name, dtype) in _EVENTS.items():
        columns[column] = np.full(len(effect), EVENT_COLUMNS[name][1], dtype=dtype)
        columns[column][place] = getattr(events, name)
    return columns


def table_of(rows: list[Row]) -> pa.RecordBatch:
    """Rows as a batch of ``SCHEMA``."""
    columns = {name: [row.get(name) for row in rows] for name in (*KEYS, "slot", "job")}
    columns["contents"] = [_packed(row) for row in rows]
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _packed(row: Row) -> bytes:
    if _SIZES in row:
        return _ENCODER.encode(row[_SIZES])
    values = [row.get(name) for name in _VALUES]
    arrays = [b"" if row.get(name) is None else row[name].astype(dtype).tobytes() for name, dtype in _ARRAYS.items()]
    return _ENCODER.encode((values, arrays))


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as batches of ``ROWS_PER_BATCH``, as they come."""
    rows = iter(rows)
    while some := list(islice(rows, ROWS_PER_BATCH)):
        yield table_of(some)


def with_sizes(batches: Iterable[pa.RecordBatch], sent_bytes_max: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
    """The rows of a task that reads, and after them the sizes of those that belong to large partitions.

    Args:
        batches: of ``SCHEMA``.
        sent_bytes_max: by number of a large partition, the rows of one segment that are sent to the task that replays, in bytes. The
            rest is withheld, so that no task gets very many rows in vain.
    """
    sizes: dict[int, RowSizes] = {}
    slots: dict[int, int | None] = {}
    for batch in batches:
        sent = batch.column("slot").to_pylist()
        lengths = pc.binary_length(batch.column("contents")).to_pylist()
        keys = [batch.column(name).to_pylist() for name in ("partition", "base_offset", "piece")]
        for at, (partition, base_offset, piece, length) in enumerate(zip(*keys, lengths, strict=True)):
            if partition not in sent_bytes_max or piece <= JOB_PIECE:
                continue
            slots.setdefault(partition, sent[at])
            of_partition = sizes.setdefault(partition, RowSizes())
            if of_partition.add(base_offset, length) > sent_bytes_max[partition]:
                of_partition.has_withheld = True
                sent[at] = WITHHELD
        yield batch.set_column(SCHEMA.get_field_index("slot"), SCHEMA.field("slot"), pa.array(sent, type=pa.int32()))
    keys_of_sizes: Row = {"base_offset": WHOLE, "piece": SIZES_PIECE, "part": 0}
    yield from batches_of(
        keys_of_sizes | {"partition": partition, "slot": slots[partition], _SIZES: each} for partition, each in sizes.items()
    )


# -------------------------------------------------------------------------------------------------------------------- and back


def outcomes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, JobRow | Outcome]]:
    """Partition number, base offset, and the value there, from rows in the order of ``KEYS``."""

    def place(row: Row) -> tuple[int, int, bool]:
        return row["partition"], row["base_offset"], row["piece"] > JOB_PIECE

    for (partition, base_offset, is_segment), rows in groupby(_rows(batches), key=place):
        yield partition, base_offset, (_outcome if is_segment else _job)(base_offset, rows)


def _job(_: int, rows: Iterator[Row]) -> JobRow:
    sizes = RowSizes()
    of_job: list[Row] = []
    for row in rows:
        if row["piece"] == SIZES_PIECE:
            sizes.merge(row[_SIZES])
        else:
            of_job.append(row)
    if not of_job:
        return JobRow(None, IDENTITY, sizes)
    first, *more = of_job
    job = first["job"]
    return JobRow(None if job is None else bytes(job), _effect(first, more), sizes)


def _outcome(base_offset: int, rows: Iterator[Row]) -> Outcome:
    pieces: list[SegmentSummary] = []
    ranges: list[RangeSummary] = []
    for _, parts in groupby(rows, key=lambda row: row["piece"]):
        first, *more = parts
        if first["error"] is not None:
            error: SnaprebuildError | FormatError = _unpickled(first["error"])
            return error
        if first["start_bytes"] is None:
            pieces.append(_summary(base_offset, first, more))
        else:
            ranges.append(_range(base_offset, first, more))
    return ranges or tuple(pieces)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            contents = row.pop("contents")
            if row["piece"] == SIZES_PIECE:
                yield row | {_SIZES: _SIZES_DECODER.decode(contents)}
            else:
                yield row | _fields(contents)


def _fields(contents: bytes | None) -> Row:
    """The fields of a row; those of a job without a state are empty."""
    if contents is None:
        return dict.fromkeys(_VALUES) | {name: np.zeros(0, dtype=dtype) for name, dtype in _ARRAYS.items()}
    values, arrays = _DECODER.decode(contents)
    fields: Row = dict(zip(_VALUES, values, strict=True))
    for (name, dtype), elements in zip(_ARRAYS.items(), arrays, strict=True):
        fields[name] = np.frombuffer(elements, dtype=dtype)
    return fields


def _summary(base_offset: int, first: Row, more: list[Row]) -> SegmentSummary:
    numbers = {name: first[name] for name in _PIECE}
    values = {"base_offset": base_offset, "contents": _contents(first, more), "tail": _tail(first), **numbers}
    cached = first["bytes_kept"]
    return CachedSummary(**values, bytes_cached=cached) if cached else SegmentSummary(**values)


def _range(base_offset: int, first: Row, more: list[Row]) -> RangeSummary:
    numbers = {name: first[name] for name in _RANGE}
    values = {"base_offset": base_offset, "contents": _contents(first, more), "tail": _tail(first), **numbers}
    cached = first["bytes_kept"]
    return CachedRange(**values, bytes_cached=cached) if cached else RangeSummary(**values)


def _contents(first: Row, more: list[Row]) -> BatchContents:
    facts = BatchTotals(
        base_offset=first["first_offset"],
        begins_with_magic_2=first["begins_with_magic_2"],
        bad_crc=tuple(zip(*(first[name].tolist() for name in _BAD_CRC), strict=True)),
        **{name: first[name] for name in _FACTS},
    )
    effect = _effect(first, more)
    return BatchContents(facts, effect, first["commits_omitted"], first_events=_events(first, more, effect))


def _effect(first: Row, more: list[Row]) -> SegmentEffect:
    # Copies: the arrays of a row are parts of its bytes, and cannot be changed.
    columns = {name: np.concatenate([row[column] for row in (first, *more)]) for column, (name, _) in _EFFECT.items()}
    closes = ClosedTransactions(**{name: first[column].copy() for column, (name, _) in _CLOSES.items()})
    return SegmentEffect(**columns, closes=closes)


def _events(first: Row, more: list[Row], effect: SegmentEffect) -> FirstEvents | None:
    if first["event_newest_timestamp"] is None:
        return None
    columns = {"producer_id": effect.producer_id}
    for column, (name, _) in _EVENTS.items():
        columns[name] = np.concatenate([row[column] for row in (first, *more)])
    events = FirstEvents(**columns, newest_timestamp=first["event_newest_timestamp"])
    return events.chosen((events.offset >= 0).nonzero()[0])


def _tail(row: Row) -> Tail:
    error = None if row["tail_error"] is None else _unpickled(row["tail_error"])
    return Tail(TailKind(row["tail_kind"]), row["tail_position_bytes"], error)


def _unpickled(error: bytes) -> Any:
    return pickle.loads(error)  # noqa: S301  made by our own tasks; the cache has no errors
