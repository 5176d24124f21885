"""A job with a directory of kept effects (``--cache``): which segments need not be read, and their rows.

The driver learns only that: keys are looked up by tasks in the small columns of the files, and the rows never pass through it.
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
from snaprebuild.spark import summary_rows
from snaprebuild.spark.arrow_tables import data_frame, ddl
from snaprebuild.spark.counts import Counts
from snaprebuild.spark.driver_channel import DriverChannel
from snaprebuild.spark.effect_files import (
    FOUND_SCHEMA,
    Effects,
    Keeper,
    KeptSegment,
    Place,
    chosen,
    key_of,
    look_up,
    may_be_kept,
    read_kept,
    rows_of_kept,
    table_of_kept,
)
from snaprebuild.spark.packing import pack, slots
from snaprebuild.spark.read_rows import ReadRow
from snaprebuild.spark.summary_rows import Row

__all__ = ["Keeping"]

log = logging.getLogger(__name__)

TOLD_MAX = 10
"""Lines for the person, of a job."""

Wanted = Mapping[int, list[ReadTask]]
"""Segments by number of their partition."""

Read = Callable[[ReadRow], list[Row]]


class Keeping:
    """What a job does with its directory of kept effects."""

    def __init__(self, session: SparkSession, effects: Effects) -> None:
        """Takes the session whose tasks look, read and keep."""
        self._session = session
        self._effects = effects
        self._names: list[str] | None = None
        self._asked: set[tuple[int, int]] = set()
        told: Accumulator[tuple[str, ...]] = session.sparkContext.accumulator((), _Texts())
        self._told = told
        self.keeper = _MakesKeeper(effects, told)

    def split(self, wanted: Wanted, tasks: int) -> tuple[dict[int, list[ReadTask]], list[KeptSegment]]:
        """What is to be read, and what is kept.

        Args:
            wanted: segments.
            tasks: at most so many look.

        Raises:
            StorageError: the directory cannot be listed.
        """
        if self._names is None:
            self._names = self._effects.names()
        rest: dict[int, list[ReadTask]] = {}
        kept: list[KeptSegment] = []
        places = self._places(wanted, tasks)
        for number, each in wanted.items():
            for task in each:
                at = number, task.base_offset
                # What is asked for twice did not come the first time.
                if at in places and at not in self._asked:
                    kept.append(KeptSegment(number, task, places[at]))
                else:
                    rest.setdefault(number, []).append(task)
        self._asked |= places.keys()
        return rest, kept

    def _places(self, wanted: Wanted, tasks: int) -> dict[tuple[int, int], tuple[Place, ...]]:
        asked = {(number, task.base_offset): task for number, each in wanted.items() for task in each if may_be_kept(task)}
        if not asked or not self._names:
            return {}
        keys = {at: key_of(task) for at, task in asked.items()}
        by_key: dict[bytes, list[Row]] = {}
        for row in self._found(sorted(set(keys.values())), tasks, check_crc=any(task.check_crc for task in asked.values())):
            by_key.setdefault(bytes(row["key"]), []).append(row)
        places = {at: chosen(by_key.get(key, ()), asked[at].identity.size_bytes) for at, key in keys.items()}
        return {at: each for at, each in places.items() if each}

    def _found(self, keys: list[bytes], tasks: int, *, check_crc: bool) -> Iterator[Row]:
        names = data_frame(self._session, pa.table({"name": self._names})).repartition(min(len(self._names or ()), tasks))
        sent = self._session.sparkContext.broadcast(pa.array(keys, type=pa.binary()))
        try:
            look = partial(_look_up, effects=self._effects, wanted=sent, check_crc=check_crc)
            for row in names.mapInArrow(look, ddl(FOUND_SCHEMA)).collect():
                if row.fault is None:
                    yield row.asDict()
                else:
                    self._told.add((row.fault,))
        finally:
            sent.destroy()

    def frame(self, kept: Sequence[KeptSegment], tasks: int, *, read: Read, counts: Counts, channel: DriverChannel) -> DataFrame:
        """The rows of what is kept, as ``summary_rows.SCHEMA``.

        Args:
            kept: the segments.
            tasks: at most so many read.
            read: reads a segment of which something does not fit.
            counts: of what was done.
            channel: to the driver.
        """
        firsts = [(each.places[0].name, each.places[0].group) for each in kept]
        units = {unit: number for number, unit in enumerate(sorted(set(firsts)))}
        count = min(len(units), tasks)
        task_of, slot_of = pack(np.bincount([units[unit] for unit in firsts]).tolist(), count), slots(count)
        table = table_of_kept(kept, [slot_of[task_of[units[unit]]] for unit in firsts])
        function = channel.wrap(partial(_read_kept, effects=self._effects, makes=self.keeper, read=read, counts=counts))
        return data_frame(self._session, table).repartition(count, "slot").mapInArrow(function, ddl(summary_rows.SCHEMA))

    def tell(self) -> None:
        """Tells the person what did not fit, each once."""
        told = sorted(set(self._told.value))
        for text in told[:TOLD_MAX]:
            log.warning("%s", text)
        if len(told) > TOLD_MAX:
            log.warning("and more of the kind")


class _Texts(AccumulatorParam[tuple[str, ...]]):
    """Texts of tasks, some of them."""

    def zero(self, value: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def addInPlace(self, value1: tuple[str, ...], value2: tuple[str, ...]) -> tuple[str, ...]:  # noqa: N802  Spark's name
        return tuple(dict.fromkeys(value1 + value2))[: TOLD_MAX + 1]


@dataclass(frozen=True, slots=True)
class _MakesKeeper:
    """Makes the keeper of a task."""

    effects: Effects
    told: Accumulator[tuple[str, ...]]

    def __call__(self) -> Keeper:
        return Keeper(self.effects, self.tell)

    def tell(self, text: str) -> None:
        self.told.add((text,))


def _look_up(
    batches: Iterable[pa.RecordBatch], effects: Effects, wanted: Broadcast[pa.Array], *, check_crc: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from look_up(batch.column("name").to_pylist(), effects, wanted.value, check_crc=check_crc)


def _read_kept(
    batches: Iterable[pa.RecordBatch], effects: Effects, makes: _MakesKeeper, read: Read, counts: Counts
) -> Iterator[pa.RecordBatch]:
    keeper = makes()
    for segment, found in read_kept(rows_of_kept(batches), effects, makes.tell):
        if found is None:
            rows = read(ReadRow(segment.partition, segment.task))
            keeper.add(segment.task, rows)
            yield from summary_rows.batches_of(rows)
        else:
            yield from found
        counts.add(segments=int(found is None), size_bytes=segment.task.identity.size_bytes)
    keeper.close()
