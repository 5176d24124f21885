"""A job with a cache of effects (``--cache``): which segments need not be read, and their rows.

Tasks look up keys in the small columns of the files. The rows never pass through the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import TaskFrame, mapped_in_tasks
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
from snaprebuild.spark.packing import pack, tasks_for
from snaprebuild.spark.read_rows import ReadRow
from snaprebuild.spark.summary_rows import Row
from snaprebuild.spark.task_services import TaskServices

__all__ = ["JobCache"]

log = logging.getLogger(__name__)

WARNINGS_MAX = 10
"""Warnings of a job that are logged."""

GROUPS_PER_TASK = 8
"""Row groups that a task reads: 128 MiB of rows (``effect_files.GROUP_BYTES``)."""

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
        self._warnings: set[str] = set()
        self.new_writer = partial(CacheWriter, cache, _warn)

    def split(self, segments: SegmentsByPartition, tasks: int | None) -> tuple[dict[int, list[ReadTask]], list[CachedSegment]]:
        """The segments that must be read, and those in the cache.

        Args:
            segments: all of them, by the number of their partition.
            tasks: that look them up; None to follow the work.

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

    def _places(self, segments: SegmentsByPartition, tasks: int | None) -> dict[tuple[int, int], tuple[Place, ...]]:
        cacheable = {(number, task.base_offset): task for number, each in segments.items() for task in each if is_cacheable(task)}
        if not cacheable or not self._names:
            return {}
        keys = {at: key_of(task) for at, task in cacheable.items()}
        by_key: dict[bytes, list[Row]] = {}
        for row in self._rows_of(sorted(set(keys.values())), tasks, check_crc=any(task.check_crc for task in cacheable.values())):
            by_key.setdefault(bytes(row["key"]), []).append(row)
        places = {at: chosen_places(by_key.get(key, ()), cacheable[at].identity.size_bytes) for at, key in keys.items()}
        return {at: each for at, each in places.items() if each}

    def _rows_of(self, keys: list[bytes], tasks: int | None, *, check_crc: bool) -> Iterator[Row]:
        names = self._names or []
        count = tasks_for(0, len(names), tasks)
        table = pa.table({"slot": pa.array((at % count for at in range(len(names))), type=pa.int32()), "name": names})
        look = partial(_look_up, cache=self._cache, keys=pa.array(keys, type=pa.binary()), check_crc=check_crc)
        for row in mapped_in_tasks(self._session, table, count, look, PLACES_SCHEMA).collect():
            if row.fault is None:
                yield row.asDict()
            else:
                self._warnings.add(row.fault)

    def frame(
        self,
        cached: Sequence[CachedSegment],
        tasks: int | None,
        *,
        read: Read,
        services: TaskServices,
        sent_bytes_max: Mapping[int, int],
    ) -> TaskFrame:
        """The rows of the cached segments, as ``summary_rows.SCHEMA``.

        Args:
            cached: the segments.
            tasks: that read; None to follow the work.
            read: reads a segment whose cached rows do not match.
            services: of the tasks.
            sent_bytes_max: by number of a large partition, bytes of rows of one segment that are sent on; the rest is withheld.
        """
        firsts = [(each.places[0].name, each.places[0].group) for each in cached]
        units = {unit: number for number, unit in enumerate(sorted(set(firsts)))}
        count = tasks_for(0, len(cached), tasks or -(-len(units) // GROUPS_PER_TASK))
        task_of = pack(np.bincount([units[unit] for unit in firsts]).tolist(), count)
        table = read_rows.table_of(cached, [task_of[units[unit]] for unit in firsts])
        function = services.wrap(
            partial(_read_cached, cache=self._cache, new_writer=self.new_writer, read=read, sent_bytes_max=sent_bytes_max), count
        )
        return TaskFrame(mapped_in_tasks(self._session, table, count, function, summary_rows.SCHEMA), count)

    def log_warnings(self) -> None:
        """Logs which files were ignored."""
        warnings = sorted(self._warnings)
        for text in warnings[:WARNINGS_MAX]:
            log.warning("%s", text)
        if len(warnings) > WARNINGS_MAX:
            log.warning("and more of the kind")


def _warn(text: str) -> None:
    """In a task: it continues without the cache, so that its own log is the place."""
    log.warning("%s", text)


def _look_up(batches: Iterable[pa.RecordBatch], cache: EffectCache, keys: pa.Array, *, check_crc: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from look_up(batch.column("name").to_pylist(), cache, keys, check_crc=check_crc)


def _read_cached(
    batches: Iterable[pa.RecordBatch],
    cache: EffectCache,
    new_writer: Callable[[], CacheWriter],
    read: Read,
    *,
    sent_bytes_max: Mapping[int, int],
) -> Iterator[pa.RecordBatch]:
    writer = new_writer()
    cached = _batches_of_cached(batches, cache, writer, read)
    yield from summary_rows.with_sizes(cached, sent_bytes_max) if sent_bytes_max else cached
    writer.close()


def _batches_of_cached(
    batches: Iterable[pa.RecordBatch], cache: EffectCache, writer: CacheWriter, read: Read
) -> Iterator[pa.RecordBatch]:
    for segment, cached in read_cached(rows_of_cached(batches), cache, _warn):
        rows = cached
        if rows is None:
            rows = read(ReadRow(segment.partition, segment.task))
            writer.add(segment.task, rows)
        yield from summary_rows.batches_of(rows)
