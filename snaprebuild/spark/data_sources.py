"""The data sources for Spark SQL: ``kafka_batch_headers``, ``kafka_producer_snapshot`` and ``kafka_records`` (docs/reference/spark-sql.md).

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from formats.errors import FormatError
from formats.partition.file_names import FileKind
from snaprebuild.argument_names import reword
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.spark import header_rows, snapshot_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.executor_directories import check_directories
from snaprebuild.spark.option_names import with_option_names
from snaprebuild.spark.packing import release_of
from snaprebuild.spark.pushed_filters import column_of
from snaprebuild.spark.record_options import RECORD_SCHEMA, RecordOptions
from snaprebuild.spark.record_tasks import RecordTask, record_tasks, rows_of_task
from snaprebuild.spark.selected_files import (
    FileToRead,
    ListedFiles,
    ReadFault,
    Task,
    list_files,
    listed_now,
    packed,
    passes,
    planned,
    segments,
    snapshots,
    split,
    text_of,
)
from snaprebuild.spark.source_options import SourceOptions, existing_paths
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.typed_paths import with_meant

__all__ = ["BatchHeaders", "KafkaRecords", "ProducerSnapshots"]


_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")

WITH_FILTERS = (4, 1)
"""The first release of Spark that passes filters to a source."""

OPTIONS_KEY = "snaprebuild.options"
"""Key in the metadata of the first column of a table in a catalog: its options, as JSON."""


def _without_frames(method: Callable[_Parameters, _Returned]) -> Callable[_Parameters, _Returned]:
    """Errors of a method as the user of Spark reads them."""

    @wraps(method)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Returned:
        try:
            return method(*arguments, **named)
        except (FormatError, SnaprebuildError) as error:
            raise _for_spark(error) from None

    return called


def _for_spark(error: FormatError | SnaprebuildError) -> FormatError | SnaprebuildError:
    """An error that names the options of the source. It has no frames of the functions below: Spark shows these before the message."""
    if isinstance(error, SnaprebuildError):
        reword(error, with_option_names)
    return error.with_traceback(None)


class FilteredReader(DataSourceReader):
    """A reader that may take the filters of a query.

    Attributes:
        filters: of the query, if it takes any; files and ranges without a row that can pass them are left out.
    """

    def __init__(self, *, takes_filters: bool) -> None:
        """Takes filters if the option ``pushFilters`` is set.

        Raises:
            UsageError: it is set, and this release of Spark passes none.
        """
        self.filters: list[Any] = []
        if takes_filters and release_of(pyspark.__version__) < WITH_FILTERS:
            raise UsageError(f"option pushFilters needs Spark 4.1 or newer, and this is {pyspark.__version__}")
        if takes_filters:
            # Spark calls the method if a reader has one of its own, and fails if the session does not allow that.
            self.pushFilters = self._take_filters  # type: ignore[method-assign]

    def _take_filters(self, filters: Sequence[Any]) -> Iterable[Any]:
        """Takes filters. All are returned: Spark evaluates them for each row, as if nothing had been left out."""
        self.filters += [condition for condition in filters if column_of(condition) is not None]
        return filters


class FileReader(FilteredReader):
    """Reads the files of a query.

    Attributes:
        source: the class of the data source, which defines the files and their rows.
        options: of the query.
    """

    def __init__(self, source: type[FileSource], options: SourceOptions) -> None:
        super().__init__(takes_filters=options.takes_filters)
        self.source = source
        self.options = options

    @_without_frames
    def partitions(self) -> list[InputPartition]:
        """The files of the query, packed into tasks. Spark calls it once for a DataFrame or view, not for each query."""
        listing = self._listing(checks_names=True)
        self._check(listing)
        represented = planned(filter(self._passes, listing.files))
        # After damage nothing is reported: only a task that read up to it has detected it.
        if self.source.may_be_split and self.options.splits_segments and not self.options.skips_faults:
            represented = split(represented, self.options.tasks)
        return [InputPartition(task) for task in packed(represented, self.options.tasks, listing.log_dirs)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, from the present content of its directories."""
        try:
            yield from self._rows_of_task(partition)
        except (FormatError, SnaprebuildError) as error:
            raise _for_spark(error) from None

    def _rows_of_task(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Task = partition.value
        check_directories(task.log_dirs)
        for present in listed_now(task.files, self.options.selection, self.source.files_of):
            if isinstance(present, ReadFault):
                self._check(ListedFiles([], [present], []))
                if self.options.reports_faults:
                    yield header_rows.rows_of_fault(present, self.options.schema)
            elif self._passes(present):
                yield from self.source.rows(present, self.options)
        if task.planned_directories is not None:
            yield from self._rows_of_other_directories(task.planned_directories)

    def _rows_of_other_directories(self, planned_directories: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """The rows of directories that the plan does not have, and of what is not read."""
        listing = self._listing(checks_names=False)
        self._check(listing)
        values: dict[str, Any] = dict.fromkeys(self.source.of_file)
        if self.options.reports_faults:
            for fault in listing.faults:
                if passes({**values, "directory": text_of(fault.path)}, {}, self.filters):
                    yield header_rows.rows_of_fault(fault, self.options.schema)
        for file in listing.files:
            if file.directory not in planned_directories and self._passes(file):
                yield from self.source.rows(file, self.options)

    def _listing(self, *, checks_names: bool) -> ListedFiles:
        """The files below the paths now."""
        options = self.options
        source = self.source
        return list_files(
            existing_paths(options.paths, options.s3),
            options.selection,
            source.kind,
            source.files_of,
            options.s3,
            checks_names=checks_names,
        )

    def _check(self, listing: ListedFiles) -> None:
        faults = listing.faults
        if faults and not self.options.skips_faults:
            others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            advice = "; option mode=PERMISSIVE reads the rest" if listing.files else ""
            message = f"{faults[0].message}{others}{advice}"
            raise ReadFailedError(message, path=faults[0].path)

    def _passes(self, file: FileToRead) -> bool:
        return passes(self.source.known(file), self.source.ranges(file), self.filters)


class _RefusedStream(DataSourceStreamReader):
    """The stream of a source that has none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def initialOffset(self) -> NoReturn:  # noqa: N802  the names are Spark's
        """Refuses the stream when it starts.

        Raises:
            UsageError: always.
        """
        raise self._refusal()

    def latestOffset(self, *_: object, **__: object) -> NoReturn:  # noqa: N802
        """Refuses the stream when it starts: Spark 4.0 asks for this offset first, without the arguments of later releases.

        Raises:
            UsageError: always.
        """
        raise self._refusal()

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuses to read: Spark demands the method.

        Raises:
            UsageError: always.
        """
        raise self._refusal()

    def _refusal(self) -> UsageError:
        return UsageError(f"{self.name} is batch only: use spark.read instead of spark.readStream")


class TableSource(DataSource):
    """A source that is read as a table, in batches only. Subclasses define the columns, the options and the reader.

    Attributes:
        whole: all its columns; a query may name some of them.
    """

    whole: pa.Schema

    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns that the options request.

        Raises:
            UsageError: an option makes no sense, or a path does not exist.
        """

    @abstractmethod
    def reader_of(self, options: CaseInsensitiveDict, columns: pa.Schema) -> DataSourceReader:
        """A reader of some of the columns.

        Raises:
            UsageError: an option makes no sense.
        """

    @_without_frames
    def schema(self) -> str | StructType:
        """The columns, which Spark requests before it plans.

        Raises:
            UsageError: an option makes no sense, or a path does not exist.
        """
        columns = self.columns()
        if "provider" not in self.options:
            return ddl(columns)
        # Spark keeps the options of a table in its catalog and does not pass them to queries. It passes them the schema.
        fields = from_arrow_schema(columns)
        fields[0].metadata = {OPTIONS_KEY: json.dumps(dict(self.options))}
        return fields

    @_without_frames
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``: those of ``schema()``, or those of the query.

        Raises:
            UsageError: there is no such column, or it has another type; or the table is in a catalog and names its columns itself.
        """
        stored = json.loads(schema[0].metadata.get(OPTIONS_KEY, "{}")) if len(schema) else {}
        names = schema.fieldNames()
        for name in names:
            if name not in self.whole.names:
                message = f"{self.name()} has no column {name!r}: it has {', '.join(self.whole.names)}"
                raise UsageError(with_meant(message, name, self.whole.names))
        columns = pa.schema([self.whole.field(name) for name in names])
        if ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema) != ddl(columns):
            raise UsageError(f"columns of {self.name()} have the types {ddl(columns)}")
        if not all(field.nullable for field in schema):
            raise UsageError(f"columns of {self.name()} can be NULL: leave NOT NULL out")
        return self.reader_of(CaseInsensitiveDict({**stored, **self.options}), columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  the names are Spark's
        """A reader that refuses ``readStream``. Spark adds an error of its own if there is no reader."""
        return _RefusedStream(self.name())

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuses ``DataFrame.write`` and ``INSERT``.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.name()} only reads: nothing can be written with it")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Refuses ``DataFrame.writeStream``.

        Raises:
            UsageError: always.
        """
        self.writer(schema, overwrite)


class FileSource(TableSource):
    """A source with a row for each part of a file. Subclasses define which files, and their rows.

    Attributes:
        of_file: columns of which all rows of a file have the same value.
        kind: of the files.
        may_be_split: several tasks may read a large file.
    """

    of_file: tuple[str, ...]
    kind: FileKind
    may_be_split = False

    @staticmethod
    @abstractmethod
    def files_of(directory: PartitionDir, selection: Selection) -> Iterable[FileToRead]:
        """The files of a partition that a query may need."""

    @staticmethod
    @abstractmethod
    def known(file: FileToRead) -> dict[str, Any]:
        """The values that all rows of a file share, by column."""

    @staticmethod
    def ranges(file: FileToRead) -> dict[str, tuple[int, int]]:  # noqa: ARG004  for subclasses
        """Least and greatest value of other columns of a file."""
        return {}

    @staticmethod
    @abstractmethod
    def rows(file: FileToRead, options: SourceOptions) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        Raises:
            FormatError: the file is damaged, unless such faults are skipped.
            ReadFailedError: it cannot be read, unless such faults are skipped.
        """

    def columns(self) -> pa.Schema:
        """The columns that the options request.

        Raises:
            UsageError: an option makes no sense, or a path does not exist.
        """
        options = SourceOptions.of(self.options, self.whole)
        existing_paths(options.paths, options.s3)
        return options.schema

    def reader_of(self, options: CaseInsensitiveDict, columns: pa.Schema) -> DataSourceReader:
        """A reader of some of the columns.

        Raises:
            UsageError: an option makes no sense.
        """
        return FileReader(type(self), replace(SourceOptions.of(options, self.whole), schema=columns))


class BatchHeaders(FileSource):
    """``kafka_batch_headers``: one row for each record batch.

    ``spark.read.format("kafka_batch_headers").load("/var/kafka/data").select("topic", "base_offset", "producer_id").show()``
    """

    whole = header_rows.SCHEMA
    of_file = ("topic", "partition", "directory", "segment_base_offset")
    kind = FileKind.LOG
    may_be_split = True
    files_of = staticmethod(segments)
    known = staticmethod(header_rows.known)
    ranges = staticmethod(header_rows.ranges)
    rows = staticmethod(header_rows.rows_of_segment)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_batch_headers"


class ProducerSnapshots(FileSource):
    """``kafka_producer_snapshot``: one row for each producer of each snapshot.

    ``spark.read.format("kafka_producer_snapshot").load("/var/kafka/data").select("topic", "producer_id", "epoch").show()``
    """

    whole = snapshot_rows.SCHEMA
    of_file = ("topic", "partition", "directory", "snapshot_offset")
    kind = FileKind.PRODUCER_SNAPSHOT
    files_of = staticmethod(snapshots)
    known = staticmethod(snapshot_rows.known)
    rows = staticmethod(snapshot_rows.rows_of_snapshot)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_producer_snapshot"


class RecordTaskReader(FilteredReader):
    """Reads the records of a query.

    Attributes:
        options: of the query.
    """

    def __init__(self, options: RecordOptions) -> None:
        super().__init__(takes_filters=options.takes_filters)
        self.options = options

    @_without_frames
    def partitions(self) -> list[InputPartition]:
        """The ranges of the query, packed into tasks. Spark calls it once for a DataFrame or view, not for each query."""
        return [InputPartition(task) for task in record_tasks(self.options, self.filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        task: RecordTask = partition.value
        try:
            yield from rows_of_task(task, self.options)
        except (FormatError, SnaprebuildError) as error:
            raise _for_spark(error) from None


class KafkaRecords(TableSource):
    """``kafka_records``: one row for each record, as a consumer would get them.

    ``spark.read.format("kafka_records").option("subscribe", "orders").load("/var/kafka/data").select("offset", "key", "value").show()``
    """

    whole = RECORD_SCHEMA

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_records"

    def columns(self) -> pa.Schema:
        """The columns that the options request.

        Raises:
            UsageError: an option makes no sense, or a path does not exist.
        """
        options = RecordOptions.of(self.options)
        existing_paths(options.paths, options.s3)
        return options.schema

    def reader_of(self, options: CaseInsensitiveDict, columns: pa.Schema) -> DataSourceReader:
        """A reader of some of the columns.

        Raises:
            UsageError: an option makes no sense.
        """
        return RecordTaskReader(RecordOptions.of(options).with_columns(tuple(columns.names)))
