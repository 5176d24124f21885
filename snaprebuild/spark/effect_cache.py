"""A job with a cache of effects (``--cache``): which segments need not be read, and their rows.

Tasks look up keys in the small columns of the files. The rows never pass through the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, Broadcast
from pyspark.sql import DataFrame, SparkSession

from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import data_frame, ddl
from snaprebuild.spark.counts import Counts
from snaprebuild.spark.driver_channel import DriverChannel
from snaprebuild.spark.effect_files import (
    PLACES_SCHEMA,
    CachedSegment,
    CacheWriter,
    EffectCache,
    Place,
    chosen_places,
    is_cacheable,
    key_of,
    look_up,
    read_cached,
    rows_of_cached,
)
from snaprebuild.spark.packing import pack, slots
from snaprebuild.spark.read_rows import ReadRow
from snaprebuild.spark.summary_rows import Row

__all__ = ["JobCache"]

log = logging.getLogger(__name__)

WARNINGS_MAX = 10
"""Warnings of a job that are logged."""

SegmentsByPartition = Mapping[int, list[ReadTask]]
"""Segments by number of their partition."""

Read = Callable[[ReadRow], list[Row]]


class JobCache:
    """The cache of effects in one job."""

    def __init__(self, session: SparkSession, cache: EffectCache) -> None:
        """Uses the session for the tasks that look up, read and write."""
        self._session = session
        self._cache = cache
        self._names: list[str] | None = None
        self._requested: set[tuple[int, int]] = set()
        warnings: Accumulator[tuple[str, ...]] = session.sparkContext.accumulator((), _Texts())
        self._warnings = warnings
        self.new_writer = _NewWriter(cache, warnings)

    def split(self, segments: SegmentsByPartition, tasks: int) -> tuple[dict[int, list[ReadTask]], list[CachedSegment]]:
        """The segments that must be read, and those in the cache.

        Args:
            segments: all of them, by the number of their partition.
            tasks: most tasks that look them up.

        Raises:
            StorageError: the directory cannot be listed.
        """
        if self._names is None:
            self._names = self._cache.names()
        rest: dict[int, list[ReadTask]] = {}
        cached: list[CachedSegment] = []
        places = self._places(segments, tasks)
        for number, each in segments.items():
            for task in each:
                at = number, task.base_offset
                # A segment that is requested twice did not arrive the first time.
                if at in places and at not in self._requested:
                    cached.append(CachedSegment(number, task, places[at]))
                else:
                    rest.setdefault(number, []).append(task)
        self._requested |= places.keys()
        return rest, cached

    def _places(self, segments: SegmentsByPartition, tasks: int) -> dict[tuple[int, int], tuple[Place, ...]]:
        cacheable = {(number, task.base_offset): task for number, each in segments.items() for task in each if is_cacheable(task)}
        if not cacheable or not self._names:
            return {}
        keys = {at: key_of(task) for at, task in cacheable.items()}
        by_key: dict[bytes, list[Row]] = {}
        for row in self._rows_of(sorted(set(keys.values())), tasks, check_crc=any(task.check_crc for task in cacheable.values())):
            by_key.setdefault(bytes(row["key"]), []).append(row)
        places = {at: chosen_places(by_key.get(key, ()), cacheable[at].identity.size_bytes) for at, key in keys.items()}
        return {at: each for at, each in places.items() if each}

    def _rows_of(self, keys: list[bytes], tasks: int, *, check_crc: bool) -> Iterator[Row]:
        names = data_frame(self._session, pa.table({"name": self._names})).repartition(min(len(self._names or ()), tasks))
        sent = self._session.sparkContext.broadcast(pa.array(keys, type=pa.binary()))
        try:
            look = partial(_look_up, cache=self._cache, keys=sent, check_crc=check_crc)
            for row in names.mapInArrow(look, ddl(PLACES_SCHEMA)).collect():
                if row.fault is None:
                    yield row.asDict()
                else:
                    self._warnings.add((row.fault,))
        finally:
            sent.destroy()

    def frame(
        self, cached: Sequence[CachedSegment], tasks: int, *, read: Read, counts: Counts, channel: DriverChannel
    ) -> DataFrame:
        """The rows of the cached segments, as ``summary_rows.SCHEMA``.

        Args:
            cached: the segments.
            tasks: most tasks that read.
            read: reads a segment whose cached rows do not match.
            counts: of what was done.
            channel: to the driver.
        """
        firsts = [(each.places[0].name, each.places[0].group) for each in cached]
        units = {unit: number for number, unit in enumerate(sorted(set(firsts)))}
        count = min(len(units), tasks)
        task_of = pack(np.bincount([units[unit] for unit in firsts]).tolist(), count)
        slot_of = slots(count)
        table = read_rows.table_of(cached, [slot_of[task_of[units[unit]]] for unit in firsts])
        function = channel.wrap(partial(_read_cached, cache=self._cache, new_writer=self.new_writer, read=read, counts=counts))
        return data_frame(self._session, table).repartition(count, "slot").mapInArrow(function, ddl(summary_rows.SCHEMA))

    def log_warnings(self) -> None:
        """Logs what did not match, each once."""
        warnings = sorted(set(self._warnings.value))
        for text in warnings[:WARNINGS_MAX]:
            log.warning("%s", text)
        if len(warnings) > WARNINGS_MAX:
            log.warning("and more of the kind")


class _Texts(AccumulatorParam[tuple[str, ...]]):
    """Some of the texts of tasks."""

    def zero(self, value: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def addInPlace(self, value1: tuple[str, ...], value2: tuple[str, ...]) -> tuple[str, ...]:  # noqa: N802  Spark's name
        return tuple(dict.fromkeys(value1 + value2))[: WARNINGS_MAX + 1]


@dataclass(frozen=True, slots=True)
class _NewWriter:
    """Makes the writer of a task."""

    cache: EffectCache
    warnings: Accumulator[tuple[str, ...]]

    def __call__(self) -> CacheWriter:
        return CacheWriter(self.cache, self.warn)

    def warn(self, text: str) -> None:
        self.warnings.add((text,))


def _look_up(
    batches: Iterable[pa.RecordBatch], cache: EffectCache, keys: Broadcast[pa.Array], *, check_crc: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from look_up(batch.column("name").to_pylist(), cache, keys.value, check_crc=check_crc)


def _read_cached(
    batches: Iterable[pa.RecordBatch], cache: EffectCache, new_writer: _NewWriter, read: Read, counts: Counts
) -> Iterator[pa.RecordBatch]:
    writer = new_writer()
    for segment, summaries in read_cached(rows_of_cached(batches), cache, new_writer.warn):
        if summaries is None:
            rows = read(ReadRow(segment.partition, segment.task))
            writer.add(segment.task, rows)
            yield from summary_rows.batches_of(rows)
        else:
            yield from summaries
        counts.add(segments=int(summaries is None), size_bytes=segment.task.identity.size_bytes)
    writer.close()
