"""Effects of segments for tests: made from batches and entries, and compared column by column."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
from log_dirs import snapshot_bytes
from segment_summaries import summarise_segment
from strategies import LogBatch

from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.partition.producer_snapshot import ProducerEntry, read_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_effect import COLUMNS, IDENTITY, ClosedTransactions, SegmentEffect, compose, effect_of_entries

CLOSES = [column.name for column in fields(ClosedTransactions)]


def array_of(entries: Iterable[ProducerEntry]) -> np.ndarray:
    """Entries as a snapshot gives them."""
    return read_entries(snapshot_bytes(entries))


def state_of(entries: Iterable[ProducerEntry]) -> SegmentEffect:
    """The effect of a loaded snapshot."""
    return effect_of_entries(array_of(entries))


def effect_of_data(data: bytes, block_bytes: int = 8 << 20) -> SegmentEffect:
    """The effect of a segment, block after block."""
    return functools.reduce(compose, map(effect_of_block, HeaderReader(BytesSegment(data), block_bytes=block_bytes)), IDENTITY)


def effect_of(batches: Iterable[LogBatch]) -> SegmentEffect:
    """The effect of a segment as its summary has it."""
    return summarise_segment(BytesSegment(b"".join(batch.data for batch in batches)), 0).effect


def rows_of(closes: ClosedTransactions) -> list[tuple[object, ...]]:
    """Closed transactions, row by row."""
    return list(zip(*(getattr(closes, name).tolist() for name in CLOSES), strict=True))


def columns_of(effect: SegmentEffect) -> dict[str, tuple[np.dtype, list[object]]]:
    """Every column but those of ``closes``, in type and value."""
    return {name: (getattr(effect, name).dtype, getattr(effect, name).tolist()) for name in COLUMNS}


def assert_same(one: SegmentEffect, other: SegmentEffect) -> None:
    """Every column, in value and type: there is one way to write an effect."""
    assert columns_of(one) == columns_of(other)
    assert rows_of(one.closes) == rows_of(other.closes)
