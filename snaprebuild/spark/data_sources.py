"""The data sources for Spark SQL: ``kafka_batch_headers`` and ``kafka_producer_snapshot`` (docs/reference/spark-sql.md).

Spark calls these classes in Python workers: once to plan a query, next to the driver, then in each task. They follow the Python
data source API, which exists since Spark 4.0.
No release up to 4.3 requests fewer columns than the schema has. So a query names the columns that it needs, by the option
``columns`` or by a schema of its own.
Releases since 4.1 pass filters to the source. But 4.1.0 and 4.3.0 then use the plan of one query in every other one of the same
DataFrame or view, whatever its filters, and rows are lost silently. So filters are used only if the option ``pushFilters`` is set.
Options narrow topics, partitions and offsets, which works in every release.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from formats.partition.file_names import FileKind
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.spark import header_rows, snapshot_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.pushed_filters import column_of
from snaprebuild.spark.read_options import ReadOptions
from snaprebuild.spark.selected_files import (
    Fault,
    FilesOf,
    FileToRead,
    Found,
    Task,
    files_and_faults,
    listed_now,
    packed,
    passes,
    planned,
    segments,
    snapshots,
    split,
    text_of,
)

__all__ = ["BatchHeaders", "ProducerSnapshots"]


OPTIONS_KEY = "snaprebuild.options"
"""Key in the metadata of the first column of a table in a catalog: its options, as JSON."""


class _Reader(DataSourceReader):
    """Reads the files of a query. Subclasses define which files, and their rows."""

    of_file: tuple[str, ...]
    """Columns of which all rows of a file have the same value."""
    kind: FileKind
    files_of: FilesOf

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.filters: list[Any] = []

    def partitions(self) -> list[InputPartition]:
        """The files of the query, packed into tasks. Spark calls it once for a DataFrame or view, not for each query."""
        files, faults = self.files_and_faults()
        self._check(files, faults)
        represented = planned(filter(self._is_passing, files))
        return [InputPartition(task) for task in packed(self.split(represented), self.options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, from the present content of its directories."""
        task: Task = partition.value
        for found in listed_now(task.files, self.options.selection, self.files_of):
            if isinstance(found, Fault):
                self._check([], [found])
                if self.options.reports_faults:
                    yield header_rows.rows_of_fault(found, self.options.schema)
            elif self._is_passing(found):
                yield from self.rows(found)
        if task.planned_directories is not None:
            files, faults = self.files_and_faults()
            self._check(files, faults)
            nothing: dict[str, Any] = dict.fromkeys(self.of_file)
            for fault in faults if self.options.reports_faults else ():
                if passes({**nothing, "directory": text_of(fault.path)}, {}, self.filters):
                    yield header_rows.rows_of_fault(fault, self.options.schema)
            for file in files:
                if file.directory not in task.planned_directories and self._is_passing(file):
                    yield from self.rows(file)

    def files_and_faults(self) -> Found:
        """What is below the paths now."""
        return files_and_faults(self.options.existing_paths(), self.options.selection, self.kind, self.files_of, self.options.s3)

    def _check(self, files: list[FileToRead], faults: list[Fault]) -> None:
        if faults and not self.options.skips_faults:
            others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            advice = "; option mode=PERMISSIVE reads the rest" if files else ""
            message = f"{faults[0].message}{others}{advice}"
            raise ReadFailedError(message, path=faults[0].path)

    def _is_passing(self, file: FileToRead) -> bool:
        return passes(self.known(file), self.ranges(file), self.filters)

    @abstractmethod
    def known(self, file: FileToRead) -> dict[str, Any]:
        """The values that all rows of a file share."""

    def ranges(self, file: FileToRead) -> dict[str, tuple[int, int]]:
        """Bounds of other columns of a file."""
        return {}

    def split(self, files: list[FileToRead]) -> list[FileToRead]:
        """Splits files that one task would read for too long."""
        return files

    @abstractmethod
    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""


class _HeaderReader(_Reader):
    of_file = ("topic", "partition", "directory", "segment_base_offset")
    kind = FileKind.LOG
    files_of = staticmethod(segments)

    def known(self, file: FileToRead) -> dict[str, Any]:
        return header_rows.known(file)

    def ranges(self, file: FileToRead) -> dict[str, tuple[int, int]]:
        return header_rows.ranges(file)

    def split(self, files: list[FileToRead]) -> list[FileToRead]:
        # After damage nothing is reported: only a task that read up to it has found it.
        is_split = self.options.splits_segments and not self.options.skips_faults
        return split(files, self.options.tasks) if is_split else files

    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        return header_rows.rows_of_segment(file, self.options)


class _SnapshotReader(_Reader):
    of_file = ("topic", "partition", "directory", "snapshot_offset")
    kind = FileKind.PRODUCER_SNAPSHOT
    files_of = staticmethod(snapshots)

    def known(self, file: FileToRead) -> dict[str, Any]:
        return snapshot_rows.known(file)

    def rows(self, file: FileToRead) -> Iterator[pa.RecordBatch]:
        return snapshot_rows.rows_of_snapshot(file, self.options)


class _TakesFilters(_Reader):
    """Leaves out files of which no row can pass the filters of the query."""

    def pushFilters(self, filters: Sequence[Any]) -> Iterable[Any]:  # noqa: N802  the name is Spark's
        """Takes filters. All are returned: Spark evaluates them for each row, as if no file had been left out."""
        self.filters += [condition for condition in filters if column_of(condition) is not None]
        return filters


class _HeaderReaderWithFilters(_TakesFilters, _HeaderReader):
    pass


class _SnapshotReaderWithFilters(_TakesFilters, _SnapshotReader):
    pass


class _Source(DataSource):
    """A source with the columns of ``whole``, or the requested ones of them."""

    whole: pa.Schema
    reads: type[_Reader]
    reads_with_filters: type[_Reader]

    def schema(self) -> str | StructType:
        """The columns, which Spark requests before it plans.

        Raises:
            UsageError: an option makes no sense, or a path does not exist.
        """
        options = ReadOptions.of(self.options, self.whole)
        options.existing_paths()
        if "provider" not in self.options:
            return ddl(options.schema)
        # Spark keeps the options of a table in its catalog and does not pass them to queries. It passes them the schema.
        columns = from_arrow_schema(options.schema)
        columns[0].metadata = {OPTIONS_KEY: json.dumps(dict(self.options))}
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``: those of ``schema()``, or those of the query.

        Raises:
            UsageError: there is no such column, or it has another type; or the table is in a catalog and names its columns itself.
        """
        stored = json.loads(schema[0].metadata.get(OPTIONS_KEY, "{}")) if len(schema) else {}
        options = ReadOptions.of(CaseInsensitiveDict({**stored, **self.options}), self.whole)
        names = schema.fieldNames()
        for name in names:
            if name not in self.whole.names:
                raise UsageError(f"{self.name()} has no column {name!r}: it has {', '.join(self.whole.names)}")
        wanted = pa.schema([self.whole.field(name) for name in names])
        if ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema) != ddl(wanted):
            raise UsageError(f"columns of {self.name()} have the types {ddl(wanted)}")
        if not all(field.nullable for field in schema):
            raise UsageError(f"columns of {self.name()} can be NULL: leave NOT NULL out")
        reads = self.reads_with_filters if options.takes_filters else self.reads
        return reads(replace(options, schema=wanted))


class BatchHeaders(_Source):
    """``kafka_batch_headers``: one row for each record batch."""

    whole = header_rows.SCHEMA
    reads = _HeaderReader
    reads_with_filters = _HeaderReaderWithFilters

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return "kafka_batch_headers"


class ProducerSnapshots(_Source):
    """``kafka_producer_snapshot``: one row for each producer of each snapshot."""

    whole = snapshot_rows.SCHEMA
    reads = _SnapshotReader
    reads_with_filters = _SnapshotReaderWithFilters

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return "kafka_producer_snapshot"
