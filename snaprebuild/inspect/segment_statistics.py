"""Statistics of a segment: its batches counted by kind and size, and by producer.

Both counts are sums by a sorted key, kept in columns. Those of blocks are joined to that of a segment, those of segments to that of a
partition, and so on. Nothing grows with the batches: there are 2^10 kinds and as many sizes, and a row for each producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec
import numpy as np

from formats.log.batch_headers import HeaderBlock
from formats.log.record_batch import ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, LOG_OVERHEAD_BYTES
from snaprebuild.published import Natural, Part
from snaprebuild.replay.block_effect import dense_ids, run_starts
from snaprebuild.replay.segment_summary import BatchContents

__all__ = [
    "NO_STATISTICS",
    "PRODUCER_SUMS",
    "STATISTICS_COLUMNS",
    "BatchFacts",
    "BatchStatistics",
    "DataBatches",
    "JoinedColumns",
    "JoinedStatistics",
    "KeyedColumns",
    "SegmentStatistics",
    "StatisticsAnalysis",
    "statistics_of",
    "statistics_of_block",
]

STATISTICS_COLUMNS = ("attributes", "length", "magic", "producer_id", "record_count")
"""Fields of a header on which the statistics depend."""

_ATTRIBUTES = 0x7F
_MAGIC = 7
_PRODUCER = 9
"""The code of a kind, in bits: the seven attributes that exist, the magic, whether there is a producer id. So there are 2^10 codes."""

_SIZE_BITS = 5
"""Sizes are counted by their log2, which is at most 31, and this many bits after the first one: to 1 part in 32."""


class KeyedColumns(msgspec.Struct, frozen=True):
    """Rows by a key.

    Attributes:
        key: int64 (n,), ascending, none twice.
        columns: shape (n,) each, by name.
    """

    key: np.ndarray
    columns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def empty(cls, names: Iterable[str]) -> Self:
        """Columns without rows."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, dict.fromkeys(names, none))

    def joined(self, other: Self, how: Mapping[str, np.ufunc]) -> Self:
        """The rows of both; values for one key are joined by the function of ``how`` for their column (sum, maximum, ...)."""
        if not len(self) or not len(other):
            return self if len(self) else other
        key = np.concatenate((self.key, other.key))
        order = np.argsort(key, kind="stable")  # of two sorted runs: a merge
        key = key[order]
        starts = run_starts(key)
        pairs = {name: np.concatenate((self.columns[name], other.columns[name]))[order] for name in how}
        columns = {name: how[name].reduceat(column, starts) for name, column in pairs.items()}
        return type(self)(key[starts], columns)


KIND_SUMS = dict.fromkeys(("batches", "records", "bytes"), np.add)
SIZE_SUMS = {"batches": np.add}
PRODUCER_SUMS = dict.fromkeys(("batches", "records", "markers"), np.add)


class JoinedColumns:
    """Joins columns of similar size first, so that many rows are not copied for a few."""

    def __init__(self, how: Mapping[str, np.ufunc]) -> None:
        self._how = how
        self._stack: list[KeyedColumns] = []

    def add(self, columns: KeyedColumns) -> None:
        """Adds rows."""
        while self._stack and len(self._stack[-1]) <= 2 * len(columns):
            columns = self._stack.pop().joined(columns, self._how)
        self._stack.append(columns)

    def total(self) -> KeyedColumns:
        """All that were added, joined."""
        total = KeyedColumns.empty(self._how)
        while self._stack:
            total = self._stack.pop().joined(total, self._how)
        if len(total):
            self._stack.append(total)
        return total


class BatchStatistics(msgspec.Struct, frozen=True):
    """Batches by kind and by size.

    Attributes:
        kinds: ``batches``, ``records`` and ``bytes`` by the code of their kind, which ``BatchFacts`` reads. Control records do not count
            as records. For magic 0 and 1 each uncompressed message is a record; the header of a compressed one does not show how many.
        sizes: ``batches`` by the code of their size, see ``_SIZE_BITS``.
        size_min_bytes: of the smallest batch, 0 without any; ``size_max_bytes``: of the largest.
    """

    kinds: KeyedColumns = msgspec.field(default_factory=lambda: KeyedColumns.empty(KIND_SUMS))
    sizes: KeyedColumns = msgspec.field(default_factory=lambda: KeyedColumns.empty(SIZE_SUMS))
    size_min_bytes: int = 0
    size_max_bytes: int = 0

    def plus(self, other: BatchStatistics) -> BatchStatistics:
        """The statistics of the batches of both."""
        smallest = [each.size_min_bytes for each in (self, other) if len(each.kinds)]
        return BatchStatistics(
            self.kinds.joined(other.kinds, KIND_SUMS),
            self.sizes.joined(other.sizes, SIZE_SUMS),
            min(smallest, default=0),
            max(self.size_max_bytes, other.size_max_bytes),
        )


class SegmentStatistics(msgspec.Struct, frozen=True):
    """The statistics of a segment.

    Attributes:
        producers: by producer id its ``batches`` and ``records`` of data, and its ``markers``: control batches with a record. A producer
            with only empty control batches has a row of zeros.
    """

    batches: BatchStatistics
    producers: KeyedColumns

    def joiner(self) -> JoinedStatistics:
        """A joiner for the statistics of several runs (``AnalysisPart``)."""
        return JoinedStatistics()


NO_STATISTICS = SegmentStatistics(BatchStatistics(), KeyedColumns.empty(PRODUCER_SUMS))


class JoinedStatistics:
    """Joins the statistics of runs of batches."""

    def __init__(self) -> None:
        self._batches = BatchStatistics()
        self._producers = JoinedColumns(PRODUCER_SUMS)

    def add(self, statistics: SegmentStatistics) -> None:
        """Adds the statistics of a run."""
        self._batches = self._batches.plus(statistics.batches)
        self._producers.add(statistics.producers)

    def total(self) -> SegmentStatistics:
        """The statistics of all runs."""
        return SegmentStatistics(self._batches, self._producers.total())


class StatisticsAnalysis(msgspec.Struct, frozen=True):
    """Counts the batches of a segment by kind and by producer; see ``replay.segment_summary.Analysis``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the analysis reads (``Analysis``)."""
        return STATISTICS_COLUMNS

    def of_block(self, block: HeaderBlock, base_offset: int) -> SegmentStatistics:
        """The statistics of a block (``Analysis``)."""
        return statistics_of_block(block)


def statistics_of(contents: BatchContents) -> SegmentStatistics:
    """The result of the analysis, if it was the only one."""
    statistics: SegmentStatistics = contents.extras[0] if contents.extras else NO_STATISTICS
    return statistics


class DataBatches(Part, frozen=True):
    """Batches of data by kind of producer."""

    transactional: Natural
    """Batches with a producer id, in a transaction."""
    idempotent: Natural
    """Batches with a producer id, in no transaction."""
    without_producer: Natural


class BatchFacts(msgspec.Struct, frozen=True):
    """Counts of batches. Each is counted once in ``magic`` and ``sizes``, and once in ``data`` or ``control``.

    Attributes:
        batches: all of them.
        records: see ``BatchStatistics.kinds``.
        size_bytes: together.
        data: batches of data.
        control: control batches: transaction markers and those of KRaft.
        codecs: batches of data by codec, 0 to 7, of which 5 to 7 do not exist.
        magic: batches by magic, 0 to 2.
        sizes: batches by log2 of their size, ascending, without zeros: at least ``2**log2`` bytes and less than twice that.
        median_range: the median size (the lower of two) is at least the first number and less than the second. The second is 1 more
            up to 63 bytes, and at most 1/32 more above. None without batches.
    """

    batches: int
    records: int
    size_bytes: int
    data: DataBatches
    control: int
    codecs: tuple[int, ...]
    magic: tuple[int, ...]
    sizes: dict[int, int]
    median_range: tuple[int, int] | None

    @classmethod
    def of(cls, statistics: BatchStatistics) -> BatchFacts:
        """The counts of batches by kind."""
        code = statistics.kinds.key
        batches = statistics.kinds.columns["batches"]
        is_control = code & ATTRIBUTE_CONTROL != 0
        is_transactional = code & ATTRIBUTE_TRANSACTIONAL != 0
        has_producer = code >> _PRODUCER & 1 != 0
        codec = code & ATTRIBUTE_CODEC
        magic = code >> _MAGIC & 3

        def count(chosen: np.ndarray) -> int:
            return int(batches[chosen].sum())

        return cls(
            batches=int(batches.sum()),
            records=int(statistics.kinds.columns["records"].sum()),
            size_bytes=int(statistics.kinds.columns["bytes"].sum()),
            data=DataBatches(
                transactional=count(~is_control & has_producer & is_transactional),
                idempotent=count(~is_control & has_producer & ~is_transactional),
                without_producer=count(~is_control & ~has_producer),
            ),
            control=count(is_control),
            codecs=tuple(count(~is_control & (codec == each)) for each in range(8)),
            magic=tuple(count(magic == each) for each in range(3)),
            sizes=_by_log2(statistics.sizes),
            median_range=_median_range(statistics.sizes),
        )


def _by_log2(sizes: KeyedColumns) -> dict[int, int]:
    batches = np.bincount(sizes.key >> _SIZE_BITS, weights=sizes.columns["batches"]).astype(np.int64).tolist()
    return {size_log2: count for size_log2, count in enumerate(batches) if count}


def _median_range(sizes: KeyedColumns) -> tuple[int, int] | None:
    if not len(sizes):
        return None
    seen = np.cumsum(sizes.columns["batches"])
    code = int(sizes.key[np.searchsorted(2 * seen, seen[-1])])
    return _smallest_size(code), _smallest_size(code + 1)


def _smallest_size(code: int) -> int:
    """The smallest size in bytes with this code."""
    size_log2 = code >> _SIZE_BITS
    fraction = code & (1 << _SIZE_BITS) - 1
    return -((-((1 << _SIZE_BITS) + fraction) << size_log2) >> _SIZE_BITS)  # rounded up


def statistics_of_block(block: HeaderBlock) -> SegmentStatistics:
    """Counts the batches of a block, which is not empty and has ``STATISTICS_COLUMNS``."""
    size = block.column("length").astype(np.int64) + LOG_OVERHEAD_BYTES
    is_control = block.column("attributes") & ATTRIBUTE_CONTROL != 0
    records = np.maximum(block.column("record_count"), 0).astype(np.float64)  # as bincount takes them; exact below 2^53
    records[np.flatnonzero(is_control)] = 0
    has_producer = block.column("producer_id") >= 0
    kinds = _kinds_of(block, size, has_producer, records)
    batches = BatchStatistics(kinds, _sizes_of(size), int(size.min()), int(size.max()))
    if not has_producer.any():
        return SegmentStatistics(batches, KeyedColumns.empty(PRODUCER_SUMS))
    return SegmentStatistics(batches, _producers_of(block, has_producer, is_control, records))


def _kinds_of(block: HeaderBlock, size: np.ndarray, has_producer: np.ndarray, records: np.ndarray) -> KeyedColumns:
    code = has_producer.astype(np.int64) << _PRODUCER
    code |= block.column("magic").astype(np.int64) << _MAGIC
    code |= block.column("attributes").astype(np.int64) & _ATTRIBUTES
    batches = np.bincount(code)
    present = np.flatnonzero(batches)
    columns = {
        "batches": batches[present],
        "records": np.bincount(code, weights=records)[present].astype(np.int64),
        "bytes": np.bincount(code, weights=size)[present].astype(np.int64),
    }
    single = (present >> _MAGIC & 3 < 2) & (present & ATTRIBUTE_CODEC == 0)
    columns["records"][single] = columns["batches"][single]
    return KeyedColumns(present, columns)


def _sizes_of(size: np.ndarray) -> KeyedColumns:
    # A float64 begins with the exponent, which is exactly the logarithm, and the bits after the first one.
    code = (size.astype(np.float64).view(np.int64) >> 52 - _SIZE_BITS) - (1023 << _SIZE_BITS)
    batches = np.bincount(code)
    present = np.flatnonzero(batches)
    return KeyedColumns(present, {"batches": batches[present]})


def _producers_of(block: HeaderBlock, has_producer: np.ndarray, is_control: np.ndarray, records: np.ndarray) -> KeyedColumns:
    rows = None if has_producer.all() else np.flatnonzero(has_producer)
    producer_ids = block.column("producer_id")
    control = is_control
    weights = records
    if rows is not None:
        producer_ids = producer_ids[rows]
        control = is_control[rows]
        weights = records[rows]
    ids, dense = dense_ids(producer_ids)
    touched = np.bincount(dense, minlength=len(ids))
    present = np.flatnonzero(touched)
    batches = touched - np.bincount(dense[np.flatnonzero(control)], minlength=len(ids))
    sums = np.bincount(dense, weights=weights, minlength=len(ids)).astype(np.int64)
    marked = block.control if rows is None else np.searchsorted(rows, block.control)
    markers = np.bincount(dense[marked], minlength=len(ids))
    return KeyedColumns(ids[present], {"batches": batches[present], "records": sums[present], "markers": markers[present]})
