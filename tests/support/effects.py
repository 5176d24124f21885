"""Effects of segments for tests: made from batches and entries, and compared column by column."""

import functools
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from log_dirs import snapshot_bytes
from segment_summaries import summarise_segment
from strategies import LogBatch

from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.partition.producer_snapshot import ProducerEntry, read_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_effect import (
    CLEAR,
    COLUMNS,
    ENDS_CLOSING,
    ENDS_CLOSING_INCOMING,
    ENDS_CLOSING_NOTHING,
    ENDS_WITH_DATA,
    IDENTITY,
    IF,
    KEEP,
    NO_CLOSES,
    SET,
    ClosedTransactions,
    SegmentEffect,
    compose,
    effect_of_entries,
)

CLOSES = list(ClosedTransactions.__struct_fields__)
FIELDS = [name for name in SegmentEffect.__struct_fields__ if name != "closes"]
"""Producer ids and columns."""


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


def any_effect(rng: random.Random, producers: Sequence[int]) -> SegmentEffect:
    """Any columns, also such as no log leads to. Few values, so that each of them meets each other one.

    Open transactions of one effect begin at different offsets: no snapshot holds two from the same one.
    """
    opened = iter(rng.sample(range(2 * len(producers) + 1), len(producers)))
    kinds = (int(ENDS_WITH_DATA), int(ENDS_CLOSING), int(ENDS_CLOSING_NOTHING), int(ENDS_CLOSING_INCOMING))
    draw: dict[str, Callable[[], int]] = {
        "assigned": lambda: rng.random() < 0.7,
        "epoch": lambda: rng.randrange(-1, 2),
        "timestamp": lambda: rng.randrange(-1, 10),
        "marked": lambda: rng.random() < 0.5,
        "coordinator_epoch": lambda: rng.randrange(-1, 2),
        "batch": lambda: int(rng.choice((KEEP, IF, SET, SET, CLEAR))),
        "batch_epoch": lambda: rng.randrange(-1, 2),
        "last_sequence": lambda: rng.randrange(-1, 2),
        "last_offset": lambda: rng.choice((-1, 0, 9, 10, 11, rng.randrange(40))),
        "offset_delta": lambda: rng.randrange(2),
        "txn_is_set": lambda: rng.random() < 0.5,
        "txn_first_offset": lambda: rng.choice((-1, next(opened))),
        "fail_always": lambda: rng.choice((-1, rng.randrange(9))),
        "fail_open": lambda: rng.choice((-1, -1, rng.randrange(9))),
        "first_epoch": lambda: rng.randrange(-1, 2),
        "epoch_decreased": lambda: rng.random() < 0.5,
        "starts_fresh": lambda: rng.random() < 0.5,
        "last_batch_kind": lambda: rng.choice(kinds),
    }
    columns = {name: np.array([each() for _ in producers], dtype=COLUMNS[name][0]) for name, each in draw.items()}
    return SegmentEffect(np.array(producers, dtype=np.int64), **columns, closes=NO_CLOSES)


def rows_of(closes: ClosedTransactions) -> list[tuple[object, ...]]:
    """Closed transactions, row by row."""
    return list(zip(*(getattr(closes, name).tolist() for name in CLOSES), strict=True))


def columns_of(effect: SegmentEffect) -> dict[str, tuple[np.dtype, list[object]]]:
    """Producer ids and every column but those of ``closes``, in type and value."""
    return {name: (getattr(effect, name).dtype, getattr(effect, name).tolist()) for name in FIELDS}


def assert_same(one: SegmentEffect, other: SegmentEffect) -> None:
    """Every column, in value and type: there is one way to write an effect."""
    assert columns_of(one) == columns_of(other)
    assert rows_of(one.closes) == rows_of(other.closes)
