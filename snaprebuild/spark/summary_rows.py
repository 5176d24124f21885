"""Summaries of segments as rows of a table, and back: what tasks that read hand to tasks that put together.

One row for each piece of a segment; where a piece has many producers, one for each ``PART_PRODUCERS`` of them, so that no row is large.
The columns of effects are those of ``replay.segment_effect``, as lists. Rows of one partition are told apart by ``KEYS``, whose order is
that of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from formats import errors as format_errors
from formats.batch_headers import Tail, TailKind
from formats.errors import FormatError
from snaprebuild import errors as own_errors
from snaprebuild.errors import SnaprebuildError
from snaprebuild.operations.feed import Outcome
from snaprebuild.replay.segment_effect import COLUMNS, NO_CLOSES, SegmentEffect, TransactionCloses
from snaprebuild.replay.segment_summary import NO_ROWS, SegmentSummary

__all__ = ["KEYS", "PART_PRODUCERS", "SCHEMA", "outcomes", "rows_of_error", "rows_of_job", "rows_of_pieces", "table_of"]

PART_PRODUCERS = 16_384
"""Producers of a row: some 1.3 MB."""

_ARROW = {"i8": pa.int64(), "i4": pa.int32(), "i2": pa.int16(), "u1": pa.int8(), "?": pa.bool_()}

_NUMBERS = tuple(
    field.name
    for field in fields(SegmentSummary)
    if field.name not in ("base_offset", "effect", "tail", "bad_crc", "traced", "statistics")
)
"""Facts of a summary that are one number, or none."""

_EFFECT = {f"effect_{name}": (name, dtype) for name, (dtype, _) in COLUMNS.items()}
_CLOSES = {
    f"close_{field.name}": (field.name, str(getattr(NO_CLOSES, field.name).dtype.str[1:])) for field in fields(TransactionCloses)
}
_CLOSES = {column: (name, "?" if dtype == "b1" else dtype) for column, (name, dtype) in _CLOSES.items()}
_BAD_CRC = ("bad_crc_position", "bad_crc_offset")

KEYS = ("partition", "base_offset", "piece", "part")
"""Number of the partition, base offset of the segment (-1: the partition's own row), number of the piece, part of its producers."""

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("piece", pa.int32()),
        ("part", pa.int32()),
        ("job", pa.binary()),
        ("error", pa.string()),
        *((name, pa.int64()) for name in _NUMBERS),
        ("tail_kind", pa.string()),
        ("tail_position_bytes", pa.int64()),
        ("tail_error", pa.string()),
        *((name, pa.list_(pa.int64())) for name in _BAD_CRC),
        *((column, pa.list_(_ARROW[dtype])) for column, (_, dtype) in (_EFFECT | _CLOSES).items()),
    ]
)
"""A row is one of three: the partition itself (``job``), the error that its segment ended with (``error``), or a part of a summary."""

Row = dict[str, Any]


def rows_of_job(partition: int, job: bytes) -> Iterator[Row]:
    """The row of a partition, before those of its segments."""
    yield {"partition": partition, "base_offset": -1, "piece": 0, "part": 0, "job": job}


def rows_of_error(partition: int, base_offset: int, error: SnaprebuildError | FormatError) -> Iterator[Row]:
    """The row of a segment that could not be read."""
    yield {"partition": partition, "base_offset": base_offset, "piece": 0, "part": 0, "error": _error_text(error)}


def rows_of_pieces(partition: int, pieces: Iterable[SegmentSummary]) -> Iterator[Row]:
    """The rows of a segment that was read."""
    for number, summary in enumerate(pieces):
        row: Row = {"partition": partition, "base_offset": summary.base_offset, "piece": number, "part": 0}
        row |= {name: getattr(summary, name) for name in _NUMBERS}
        row["tail_kind"], row["tail_position_bytes"] = summary.tail.kind.value, summary.tail.position_bytes
        row["tail_error"] = None if summary.tail.error is None else _error_text(summary.tail.error)
        bad = np.array(summary.bad_crc, dtype=np.int64).reshape(-1, 2)
        row |= {name: bad[:, column] for column, name in enumerate(_BAD_CRC)}
        row |= {column: getattr(summary.effect.closes, name) for column, (name, _) in _CLOSES.items()}
        effect = summary.effect
        row |= {column: getattr(effect, name)[:PART_PRODUCERS] for column, (name, _) in _EFFECT.items()}
        yield row
        for part, start in enumerate(range(PART_PRODUCERS, len(effect), PART_PRODUCERS), 1):
            more: Row = {"partition": partition, "base_offset": summary.base_offset, "piece": number, "part": part}
            more |= {column: getattr(effect, name)[start : start + PART_PRODUCERS] for column, (name, _) in _EFFECT.items()}
            yield more


def table_of(rows: list[Row]) -> pa.RecordBatch:
    """Rows as a batch of ``SCHEMA``."""
    return pa.RecordBatch.from_arrays([_column(field, [row.get(field.name) for row in rows]) for field in SCHEMA], schema=SCHEMA)


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    if not pa.types.is_list(field.type):
        return pa.array(values, type=field.type)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), type=pa.int32())
    present = [value for value in values if value is not None and len(value)]
    flat = np.concatenate(present) if present else np.zeros(0, dtype=np.int64)
    return pa.ListArray.from_arrays(offsets, pa.array(flat, type=field.type.value_type))


# -------------------------------------------------------------------------------------------------------------------- and back


def outcomes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes | Outcome]]:
    """Partition number, base offset (-1 for the job), and what stands there, of rows that are ordered by ``KEYS``."""
    for (partition, base_offset), rows in groupby(_rows(batches), key=lambda row: (row["partition"], row["base_offset"])):
        yield partition, base_offset, _outcome(base_offset, rows)


def _outcome(base_offset: int, rows: Iterator[Row]) -> bytes | Outcome:
    pieces: list[SegmentSummary] = []
    for _, parts in groupby(rows, key=lambda row: row["piece"]):
        first, *more = parts
        if first["job"] is not None:
            return bytes(first["job"])
        if first["error"] is not None:
            return _error_of_text(first["error"])
        pieces.append(_summary(base_offset, first, more))
    return tuple(pieces)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        plain = {field.name: batch.column(field.name).to_pylist() for field in SCHEMA if not pa.types.is_list(field.type)}
        lists = {}
        for field in SCHEMA:
            if pa.types.is_list(field.type):
                column = batch.column(field.name)
                lists[field.name] = column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=False)
        for row in range(batch.num_rows):
            values = {name: column[row] for name, column in plain.items()}
            values |= {name: flat[offsets[row] : offsets[row + 1]] for name, (offsets, flat) in lists.items()}
            yield values


def _summary(base_offset: int, first: Row, more: list[Row]) -> SegmentSummary:
    columns = {}
    for column, (name, dtype) in _EFFECT.items():
        columns[name] = np.concatenate([row[column] for row in (first, *more)]).astype(dtype)
    closes = TransactionCloses(**{name: first[column].astype(dtype) for column, (name, dtype) in _CLOSES.items()})
    tail_error = None if first["tail_error"] is None else _error_of_text(first["tail_error"])
    assert not isinstance(tail_error, SnaprebuildError)
    return SegmentSummary(
        base_offset=base_offset,
        effect=SegmentEffect(**columns, closes=closes),
        tail=Tail(TailKind(first["tail_kind"]), first["tail_position_bytes"], tail_error),
        bad_crc=tuple(zip(*(first[name].tolist() for name in _BAD_CRC), strict=True)),
        traced=NO_ROWS,
        **{name: first[name] for name in _NUMBERS},
    )


def _error_text(error: SnaprebuildError | FormatError) -> str:
    """An error as JSON: its class, and what its pickle would hold."""
    if isinstance(error, FormatError):
        facts: dict[str, object] = {"file": error.file, "position": error.position, "unit": error.unit}
        facts |= {name: _plain(getattr(error, name)) for name in ("expected", "found")}
        return json.dumps({"class": type(error).__name__, "what": error.what, **facts})
    facts = {name: _plain(value) for name, value in vars(error).items() if name != "message"}
    return json.dumps({"class": type(error).__name__, "message": error.message, **facts})


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | str) else str(value)


def _error_of_text(text: str) -> SnaprebuildError | FormatError:
    facts = json.loads(text)
    name = facts.pop("class")
    if "what" in facts:
        of_format: type[FormatError] = getattr(format_errors, name)
        return of_format(facts.pop("what"), **facts)
    own: type[SnaprebuildError] = getattr(own_errors, name)
    error = own(facts.pop("message"))
    for fact, value in facts.items():
        setattr(error, fact, value)
    return error
