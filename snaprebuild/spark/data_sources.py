"""The data sources for Spark SQL: ``kafka_batch_headers`` and ``kafka_producer_snapshot`` (docs/spark-sql.md).

Spark calls these classes in Python workers: once to plan a query, beside the driver, then in each task. They follow the Python data source
API, which is there since Spark 4.0. Filters come since 4.1. No release asks for fewer columns than the schema has, so a query names those
that it wants by the option ``columns`` or a schema of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.spark import header_rows, snapshot_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.pushed_filters import column_of
from snaprebuild.spark.read_options import ReadOptions
from snaprebuild.spark.selected_files import (
    Fault,
    FileToRead,
    Task,
    packed,
    passes,
    segments_and_faults,
    snapshots_and_faults,
    text_of,
)

__all__ = ["BatchHeaders", "ProducerSnapshots"]


class _Reader(DataSourceReader):
    """Reads the files of a query. Subclasses say which files, and what rows they have."""

    of_file: tuple[str, ...]
    """Columns of which all rows of a file have the same value: filters on these are carried out here."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.filters: list[Any] = []

    def pushFilters(self, filters: Sequence[Any]) -> Iterable[Any]:  # noqa: N802  the name is Spark's
        """Takes filters; gives those back which Spark has to evaluate for each row."""
        for condition in filters:
            column = column_of(condition)
            if column is not None:
                self.filters.append(condition)
            if column not in self.of_file:
                yield condition

    def partitions(self) -> list[InputPartition]:
        """The files of the query, packed into tasks."""
        files, faults = self.files_and_faults()
        if faults and not self.options.skips_faults:
            others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            message = f"{faults[0].message}{others}; option mode=skip reads the rest"
            raise ReadFailedError(message, path=faults[0].path)
        nothing: dict[str, Any] = dict.fromkeys(self.of_file)
        files = [file for file in files if passes(self.known(file), self.ranges(file), self.filters)]
        faults = [fault for fault in faults if passes({**nothing, "directory": text_of(fault.path)}, {}, self.filters)]
        return [InputPartition(task) for task in packed(files, faults, self.options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        task: Task = partition.value
        for fault in task.faults:
            yield header_rows.rows_of_fault(fault, self.options.schema)
        for file in task.files:
            yield from self.rows(file)

    @abstractmethod
    def files_and_faults(self) -> tuple[list[FileToRead], list[Fault]]:
        """What there is."""

    @abstractmethod
    def known(self, file: FileToRead) -> dict[str, Any]:
        """What all rows of a file have in common."""

    def ranges(self, file: FileToRead) -> dict[str, tuple[int, int]]:
        """Between what other columns of a file lie."""
        return {}

    @abstractmethod
    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""


class _HeaderReader(_Reader):
    of_file = ("topic", "partition", "directory", "segment_base_offset")

    def files_and_faults(self) -> tuple[list[FileToRead], list[Fault]]:
        return segments_and_faults(self.options.paths, self.options.selection)

    def known(self, file: FileToRead) -> dict[str, Any]:
        return header_rows.known(file)

    def ranges(self, file: FileToRead) -> dict[str, tuple[int, int]]:
        return header_rows.ranges(file)

    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        return header_rows.rows_of_segment(file, self.options)


class _SnapshotReader(_Reader):
    of_file = ("topic", "partition", "directory", "snapshot_offset")

    def files_and_faults(self) -> tuple[list[FileToRead], list[Fault]]:
        return snapshots_and_faults(self.options.paths, self.options.selection)

    def known(self, file: FileToRead) -> dict[str, Any]:
        return snapshot_rows.known(file)

    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        return snapshot_rows.rows_of_snapshot(file, self.options)


class _Source(DataSource):
    """A source with the columns of ``whole``, or those of them that are asked for."""

    whole: pa.Schema
    reads: type[_Reader]

    def schema(self) -> str:
        """The columns, as Spark wants to know them before it plans.

        Raises:
            UsageError: an option makes no sense.
        """
        return ddl(ReadOptions.of(self.options, self.whole).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``: those of ``schema()``, or what the query brought along.

        Raises:
            UsageError: there is no such column, or it has another type.
        """
        options = ReadOptions.of(self.options, self.whole)
        names = schema.fieldNames()
        for name in names:
            if name not in self.whole.names:
                raise UsageError(f"{self.name()} has no column {name!r}: it has {', '.join(self.whole.names)}")
        wanted = pa.schema([self.whole.field(name) for name in names])
        if ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema) != ddl(wanted):
            raise UsageError(f"columns of {self.name()} have the types {ddl(wanted)}")
        return self.reads(replace(options, schema=wanted))


class BatchHeaders(_Source):
    """``kafka_batch_headers``: one row for each record batch."""

    whole = header_rows.SCHEMA
    reads = _HeaderReader

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return "kafka_batch_headers"


class ProducerSnapshots(_Source):
    """``kafka_producer_snapshot``: one row for each producer of each snapshot."""

    whole = snapshot_rows.SCHEMA
    reads = _SnapshotReader

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return "kafka_producer_snapshot"
