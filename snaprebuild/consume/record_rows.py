"""Reads the records of partitions one after the other: rows to show, or files of Parquet."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from formats.errors import FormatError
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_plan import RecordPlan, plan_partition
from snaprebuild.consume.partition_read import PartitionReader
from snaprebuild.consume.record_query import RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource
from snaprebuild.errors import SnaprebuildError, UsageError, WriteFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.local.directories import make_directories, opened, reason_of
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.publish import TemporaryFile, temporary_file

__all__ = [
    "ROW_BYTES_MAX",
    "ReadPartition",
    "RecordFile",
    "RecordRow",
    "export_records",
    "exported_columns",
    "make_export_directory",
    "read_rows",
    "row_columns",
]

ROW_BYTES_MAX = 64 << 20
"""Bytes of keys and values of all rows that are shown."""

GROUP_ROWS = 128 << 10
"""Records of a row group of Parquet, about."""

GROUP_BYTES = 32 << 20
"""Bytes in memory of a row group of Parquet, about."""

PRIVATE_FILE = 0o600
"""Mode of a file with records: personal data may be in them."""

PRIVATE_DIRECTORY = 0o700

ROW_COLUMNS = ("offset", "timestamp", "timestampType", "key", "value")
FILE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


class RecordRow(msgspec.Struct, frozen=True):
    """A record that is shown.

    Attributes:
        topic_partition: ``<topic>-<partition>``.
        offset: of the record.
        timestamp_ms: ms since 1970; None for none.
        is_append_time: the timestamp is that of the broker.
        key_bytes: None for a null key.
        value_bytes: None for a null value.
        transaction: ``none``, ``committed``, ``aborted`` or ``open``; None if outcomes were not asked for.
        key: None if it is null or was not asked for.
        value: None if it is null or was not asked for.
    """

    topic_partition: str
    offset: int
    timestamp_ms: int | None
    is_append_time: bool
    key_bytes: int | None
    value_bytes: int | None
    transaction: str | None
    key: bytes | None
    value: bytes | None


class RecordFile(msgspec.Struct, frozen=True):
    """A file of Parquet.

    Attributes:
        path: below the directory of the export.
        size_bytes: of the file.
    """

    path: str
    size_bytes: int


class ReadPartition(msgspec.Struct, frozen=True):
    """The result of reading a partition.

    Attributes:
        reader: with the range and the counts.
        is_whole: nothing of the range was left out because of a limit or damage.
        records: that are shown or written.
        first_offset: of them; None without one.
        last_offset: of them; None without one.
        file: with the records; None without one.
    """

    reader: PartitionReader
    is_whole: bool
    records: int
    first_offset: int | None
    last_offset: int | None
    file: RecordFile | None = None


def row_columns(isolation: RecordIsolation) -> tuple[str, ...]:
    """The columns that ``read_rows`` needs."""
    return ROW_COLUMNS if isolation is RecordIsolation.READ_COMMITTED else (*ROW_COLUMNS, "transaction")


def exported_columns(isolation: RecordIsolation) -> tuple[str, ...]:
    """The columns of a file: those of Spark's Kafka source, and what tells the records of this isolation apart."""
    if isolation is RecordIsolation.READ_COMMITTED:
        return FILE_COLUMNS
    if isolation is RecordIsolation.READ_UNCOMMITTED:
        return (*FILE_COLUMNS, "transaction")
    return (*FILE_COLUMNS, "transaction", "control")


def read_rows(
    source: RecordSource, query: RecordQuery, findings: list[Finding], *, limit: int, with_keys: bool, with_values: bool
) -> tuple[list[ReadPartition], list[RecordRow]]:
    """Reads the first records of a source, partition after partition.

    Args:
        source: what is read.
        query: with the columns of ``row_columns``.
        findings: filled with those of the partitions.
        limit: rows at most.
        with_keys: keys are kept.
        with_values: values are kept.
    """
    rows: list[RecordRow] = []
    partitions: list[ReadPartition] = []
    held_bytes = 0
    for log in source.logs:
        reader = _reader_of(log, query, findings)
        if reader is None:
            continue
        first = len(rows)
        is_whole = True
        reading = _PartitionReading(reader, findings)
        with contextlib.closing(reading.batches()) as batches:
            for batch in batches:
                for row in _rows_of(log.topic_partition, batch, with_keys=with_keys, with_values=with_values):
                    if len(rows) >= limit or held_bytes > ROW_BYTES_MAX:
                        is_whole = False
                        break
                    rows.append(row)
                    held_bytes += len(row.key or b"") + len(row.value or b"")
                if not is_whole:
                    break
        partitions.append(_read_partition(reader, rows[first:], is_whole=is_whole and not reading.lacks_records))
        findings += reader.findings
        if held_bytes > ROW_BYTES_MAX:
            message = f"keys and values of {len(rows)} records have more than {ROW_BYTES_MAX >> 20} MiB: no more records are shown"
            findings.append(Finding("over-limit", Severity.FINDING, log.place, message))
            break
        if not is_whole:
            break
    return partitions, rows


def _read_partition(reader: PartitionReader, rows: Sequence[RecordRow], *, is_whole: bool) -> ReadPartition:
    return ReadPartition(
        reader=reader,
        is_whole=is_whole,
        records=len(rows),
        first_offset=rows[0].offset if rows else None,
        last_offset=rows[-1].offset if rows else None,
    )


def make_export_directory(directory: str) -> None:
    """Makes the directory of an export, which only its owner may read.

    Raises:
        WriteFailedError: it cannot be made.
    """
    make_directories(directory)
    os.chmod(directory, PRIVATE_DIRECTORY)


def export_records(
    source: RecordSource,
    query: RecordQuery,
    findings: list[Finding],
    directory: str,
    *,
    limit: int | None,
    progress: Callable[[str, int], None] | None,
) -> list[ReadPartition]:
    """Writes the records of each partition to a file of Parquet below a directory, which gets its name when it is whole.

    Args:
        source: what is read.
        query: with the columns of the files.
        findings: filled with those of the partitions.
        directory: that gets the files (``make_export_directory``).
        limit: records at most, of all partitions; None for all.
        progress: called after each partition with its name and the bytes of its segments; None for none.

    Raises:
        WriteFailedError: a file cannot be written. The files that are there are whole.
    """
    left = limit
    partitions: list[ReadPartition] = []
    for log in source.logs:
        if left is not None and left <= 0:
            break
        reader = _reader_of(log, query, findings)
        if reader is None:
            continue
        place = os.path.join(directory, log.topic_partition)
        reading = _PartitionReading(reader, findings)
        with _PartitionFile(place) as file:
            is_whole = file.write(reading.batches(), left)
            written = file.publish()
        if left is not None:
            left -= file.records
        partitions.append(
            ReadPartition(
                reader=reader,
                is_whole=is_whole and not reading.lacks_records,
                records=file.records,
                first_offset=file.first_offset,
                last_offset=file.last_offset,
                file=written,
            )
        )
        findings += reader.findings
        if progress is not None:
            progress(log.topic_partition, log.size_bytes)
    return partitions


def _reader_of(log: ChosenLog, query: RecordQuery, findings: list[Finding]) -> PartitionReader | None:
    """A reader of a partition; None, with a finding, if its range cannot be decided."""
    try:
        plan: RecordPlan = plan_partition(log, query)
    except UsageError:
        raise
    except (FormatError, SnaprebuildError) as error:
        findings += [*log.findings, finding_of_error(error, log.place)]
        return None
    findings += plan.findings
    return PartitionReader(plan, query)


class _PartitionReading:
    """Reads a partition.

    Attributes:
        has_failed: an error ended the read.
    """

    def __init__(self, reader: PartitionReader, findings: list[Finding]) -> None:
        self._reader = reader
        self._findings = findings
        self.has_failed = False

    def batches(self) -> Generator[pa.RecordBatch]:
        """The records; an error that ends them becomes a finding."""
        try:
            yield from self._reader.batches()
        except (FormatError, SnaprebuildError) as error:
            self.has_failed = True
            self._findings.append(finding_of_error(error, self._reader.plan.log.place))

    @property
    def lacks_records(self) -> bool:
        """Whether batches were damaged, or an error ended the read."""
        return self.has_failed or bool(self._reader.counts.damaged_batches) or self._reader.plan.damage is not None


def _rows_of(topic_partition: str, batch: pa.RecordBatch, *, with_keys: bool, with_values: bool) -> Iterator[RecordRow]:
    count = len(batch)
    nothing: Sequence[None] = [None] * count
    names = batch.schema.names
    columns = (
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("timestampType").to_pylist(),
        pc.binary_length(batch.column("key")).to_pylist(),
        pc.binary_length(batch.column("value")).to_pylist(),
        batch.column("transaction").to_pylist() if "transaction" in names else nothing,
        batch.column("key").to_pylist() if with_keys else nothing,
        batch.column("value").to_pylist() if with_values else nothing,
    )
    for offset, timestamp_us, timestamp_type, key_bytes, value_bytes, transaction, key, value in zip(*columns, strict=True):
        timestamp_ms = None if timestamp_us is None else timestamp_us // 1000
        yield RecordRow(topic_partition, offset, timestamp_ms, timestamp_type == 1, key_bytes, value_bytes, transaction, key, value)


class _PartitionFile:
    """The file of a partition, in a directory of its own. Without a record there is no file.

    Attributes:
        records: that were written.
        first_offset: of them; None without one.
        last_offset: of them; None without one.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._stack = contextlib.ExitStack()
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._temporary: TemporaryFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self.records = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None

    def __enter__(self) -> _PartitionFile:
        self._stack.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, batches: Generator[pa.RecordBatch], limit: int | None) -> bool:
        """Writes batches. Returns False if there are more records than ``limit``."""
        with contextlib.closing(batches):
            for batch in batches:
                taken = batch if limit is None else batch.slice(0, limit - self.records)
                self._take(taken)
                if len(taken) < len(batch):
                    return False
        return True

    def publish(self) -> RecordFile | None:
        """Gives the file its name, of its first and last offset; None without a record."""
        self._flush()
        if self._writer is None or self._temporary is None:
            return None
        with self._write_errors():
            self._writer.close()
        self._temporary.sync()
        size_bytes = os.fstat(self._temporary.fd).st_size
        name = f"{self.first_offset:020d}-{self.last_offset:020d}.parquet"
        self._temporary.link_as(name)
        return RecordFile(os.path.join(os.path.basename(self._place), name), size_bytes)

    def _take(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        offsets = batch.column("offset")
        if self.first_offset is None:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[-1].as_py()
        self.records += len(batch)
        self._held.append(batch)
        self._held_rows += len(batch)
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Writes a row group."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held = []
        self._held_rows = 0
        self._held_bytes = 0
        if self._writer is None:
            self._writer = self._opened(table.schema)
        with self._write_errors():
            self._writer.write_table(table)

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteFailedError(f"cannot be written: {reason_of(error)}", path=self._place, errno=error.errno) from error

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        make_directories(self._place)
        os.chmod(self._place, PRIVATE_DIRECTORY)
        directory = self._stack.enter_context(opened(self._place, OS))
        name = f".records-{secrets.token_hex(4)}"  # no other run has it
        self._temporary = self._stack.enter_context(temporary_file(directory, name, PRIVATE_FILE, is_locked=False))
        file = self._stack.enter_context(pa.OSFile(f"/proc/self/fd/{self._temporary.fd}", "wb"))
        return self._stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
