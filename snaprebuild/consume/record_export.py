"""Writes the records of partitions to files of Parquet, one for each partition, each whole or absent.

A file is written under a name that nobody takes for that of a file with records. It gets its name, which has its first and last offset,
once it is whole and synced. A file of a task of Spark gets its name from the driver, when the result of the task has arrived. A task may
run twice, and only one of its files is part of the export.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator
from types import TracebackType

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_result import PartitionReading, ReadPartition, RecordFile, reader_of
from snaprebuild.consume.record_query import RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource
from snaprebuild.errors import WriteFailedError
from snaprebuild.findings import Finding
from snaprebuild.storage.local.directories import make_directories, make_directory, opened, reason_of
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.publish import TemporaryFile, left_file, temporary_file
from snaprebuild.storage.local.write_advice import with_advice

__all__ = [
    "ExportedPartition",
    "export_partition",
    "export_records",
    "exported_columns",
    "make_export_directory",
    "publish",
    "remove_unnamed_files",
]

GROUP_ROWS = 128 << 10
"""Records of a row group of Parquet, about."""

GROUP_BYTES = 32 << 20
"""Bytes in memory of a row group of Parquet, about."""

PRIVATE_FILE = 0o600
"""Mode of a file with records: personal data may be in them."""

PRIVATE_DIRECTORY = 0o700

FILE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

UNNAMED_FILE = re.compile(r"\.records-[0-9a-f]{16}")
"""A file that has not got its name."""


class ExportedPartition(msgspec.Struct, frozen=True):
    """A partition whose records were written.

    Attributes:
        partition: what was read; None if its range cannot be decided.
        findings: of the partition.
        unnamed_path: of the file that has not got its name, below the directory of the export; None without one.
    """

    partition: ReadPartition | None
    findings: tuple[Finding, ...]
    unnamed_path: str | None = None


def exported_columns(isolation: RecordIsolation) -> tuple[str, ...]:
    """The columns of a file: those of Spark's Kafka source, and what tells the records of this isolation apart."""
    if isolation is RecordIsolation.READ_COMMITTED:
        return FILE_COLUMNS
    if isolation is RecordIsolation.READ_UNCOMMITTED:
        return (*FILE_COLUMNS, "transaction")
    return (*FILE_COLUMNS, "transaction", "control")


def make_export_directory(directory: str) -> None:
    """Makes the directory of an export, which only its owner may read.

    Raises:
        WriteFailedError: it cannot be made, or its mode cannot be set.
        RefusedError: it would be in the log directory of a broker.
    """
    with _write_errors(directory):
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
    try:
        for log in source.logs:
            if left is not None and left <= 0:
                break
            exported = export_partition(log, query, directory, limit=left)
            findings += exported.findings
            if exported.partition is None:
                continue
            publish(exported, directory)
            partitions.append(exported.partition)
            if left is not None:
                left -= exported.partition.records
            if progress is not None:
                progress(log.topic_partition, log.size_bytes)
    except BaseException:
        remove_unnamed_files(directory)
        raise
    return partitions


def export_partition(log: ChosenLog, query: RecordQuery, directory: str, *, limit: int | None = None) -> ExportedPartition:
    """Writes the records of a partition to a file, which does not get its name yet (``publish``).

    Args:
        log: of the partition.
        query: with the columns of the file.
        directory: of the export, which is there (``make_export_directory``).
        limit: records at most; None for all.

    Raises:
        WriteFailedError: the file cannot be written; nothing is left of it. With the error number ENOENT the directory is missing.
        UsageError: the range makes no sense for this partition.
    """
    findings: list[Finding] = []
    reader = reader_of(log, query, findings)
    if reader is None:
        return ExportedPartition(None, tuple(findings))
    reading = PartitionReading(reader, findings)
    with _PartitionFile(os.path.join(directory, log.topic_partition)) as file:
        is_whole = file.write(reading.batches(), limit)
        written = file.end()
    findings += reader.findings
    partition = ReadPartition(
        range=reader.range(),
        is_whole=is_whole and not reading.lacks_records,
        records=file.records,
        first_offset=file.first_offset,
        last_offset=file.last_offset,
        file=written,
    )
    return ExportedPartition(partition, tuple(findings), file.unnamed_path)


def publish(exported: ExportedPartition, directory: str) -> None:
    """Gives the file of a partition its name, if it has one.

    Args:
        exported: the partition.
        directory: of the export.

    Raises:
        WriteFailedError: nothing took effect; with the error number ENOENT the file is not there.
        OutcomeUnknownError: the file exists or may exist under its name.
    """
    partition = exported.partition
    if partition is None or partition.file is None or exported.unnamed_path is None:
        return
    place, name = os.path.split(os.path.join(directory, exported.unnamed_path))
    with opened(place, OS) as open_directory, left_file(open_directory, name) as file:
        size_bytes = file.status().st_size
        if size_bytes != partition.file.size_bytes:
            message = f"has {size_bytes} bytes, and {partition.file.size_bytes} were written"
            raise WriteFailedError(message, path=os.path.join(place, name))
        file.link_as(os.path.basename(partition.file.path))


def remove_unnamed_files(directory: str) -> None:
    """Removes the files of an export that no result names, as far as possible: those of tasks that ran twice, or failed."""
    with contextlib.suppress(OSError):
        for partition in os.scandir(directory):
            if not partition.is_dir(follow_symlinks=False):
                continue
            for name in os.listdir(partition.path):
                if UNNAMED_FILE.fullmatch(name):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(partition.path, name))
            with contextlib.suppress(OSError):
                os.rmdir(partition.path)  # which fails unless it is empty


@contextlib.contextmanager
def _write_errors(path: str) -> Iterator[None]:
    """Errors of the system inside the block are a ``WriteFailedError`` about this path."""
    try:
        yield
    except OSError as error:
        message = with_advice(f"cannot be written: {reason_of(error)}", error, path)
        raise WriteFailedError(message, path=path, errno=error.errno) from error


class _PartitionFile:
    """The file of a partition, in a directory of its own. Without a record there is no file.

    Attributes:
        records: that were written.
        first_offset: of them; None without one.
        last_offset: of them; None without one.
        unnamed_path: below the directory of the export, until the file has its name; None without a record.
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
        self.unnamed_path: str | None = None

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

    def end(self) -> RecordFile | None:
        """Writes what is left, and syncs the file. Its name is that of its first and last offset. None without a record."""
        self._flush()
        if self._writer is None or self._temporary is None:
            return None
        with _write_errors(self._place):
            self._writer.close()
            self._temporary.sync()
        name = f"{self.first_offset:020d}-{self.last_offset:020d}.parquet"
        return RecordFile(os.path.join(os.path.basename(self._place), name), self._temporary.status().st_size)

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
        with _write_errors(self._place):
            self._writer.write_table(table)

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        with _write_errors(self._place):
            make_directory(self._place)  # not those above it: on a machine that does not share them, the file would stay there
            os.chmod(self._place, PRIVATE_DIRECTORY)
        directory = self._stack.enter_context(opened(self._place, OS))
        name = f".records-{secrets.token_hex(8)}"  # no other run or task has it
        self._temporary = self._stack.enter_context(temporary_file(directory, name, PRIVATE_FILE, is_locked=False))
        self.unnamed_path = os.path.join(os.path.basename(self._place), name)
        file = self._stack.enter_context(pa.OSFile(f"/proc/self/fd/{self._temporary.fd}", "wb"))
        return self._stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
