"""The result of ``inspect records``: the JSON document, which is also the manifest of an export, and lines for people."""

from __future__ import annotations

import base64
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import asdict

from snaprebuild.cli.answer import none_read, selects_nothing
from snaprebuild.cli.options.records import PayloadFormat
from snaprebuild.cli.output import members_of_view, write_report
from snaprebuild.cli.printing import print_line, print_table, print_text
from snaprebuild.cli.table import printable
from snaprebuild.cli.value_text import size_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.consume.record_query import RecordIsolation
from snaprebuild.documents.records import ExportedFile, Records, RecordsPartition, ShownRecord, record_range
from snaprebuild.findings import Finding, first_of, pluralize

if TYPE_CHECKING:  # pyarrow may not be installed
    from snaprebuild.consume.partition_result import ReadPartition
    from snaprebuild.consume.record_rows import RecordRow

__all__ = ["MANIFEST", "RecordsView"]

MANIFEST = "manifest.json"
"""File of an export that says what is there, and what was left out: first that the export is not finished, at its end the result."""


PRIVATE_FILE_MODE = 0o600


class RecordsView(View):
    """Records that are shown, or were written."""

    def __init__(
        self,
        findings: Sequence[Finding],
        isolation: RecordIsolation,
        selected: Sequence[str],
        partitions: Sequence[ReadPartition],
        rows: Sequence[RecordRow],
        *,
        limit: int | None,
        key_format: PayloadFormat | None = None,
        value_format: PayloadFormat | None = None,
        directory: str | None = None,
        store: str | None = None,
    ) -> None:
        """Takes the result.

        Args:
            findings: of the result.
            isolation: which records were read.
            selected: names of the selected partitions.
            partitions: that were read.
            rows: records to show.
            limit: records at most; None for any number.
            key_format: how keys are shown; None for not at all.
            value_format: how values are shown; None for not at all.
            directory: with files of Parquet; None for none.
            store: location of remote storage that was read; None without one.
        """
        super().__init__(findings)
        self._isolation = isolation
        self._partitions = partitions
        read = {each.range.topic_partition for each in partitions}
        self._not_read = tuple(each for each in selected if each not in read)
        self._rows = rows
        self._limit = limit
        self._formats = (key_format, value_format)
        self._directory = directory
        self._store = store

    def answer(self) -> Answer | None:
        """Where remote storage has nothing that is selected: the command that shows what it has. Otherwise the table is the answer."""
        if self._store is None or not self._has_nothing:
            return None
        text, _ = none_read(self.findings)
        return text, ["tier", "inventory", self._store]

    @property
    def _has_nothing(self) -> bool:
        return not self._partitions and selects_nothing(self.findings)

    def document(self) -> Records:
        """The document of ``inspect records``."""
        return Records(
            isolation=self._isolation.value,
            limit=self._limit,
            is_limited=self._is_limited,
            not_read=self._not_read,
            partitions=map(_partition, self._partitions),
            shown_records=self._shown(),
        )

    @property
    def _is_limited(self) -> bool:
        return self._limit is not None and sum(each.records for each in self._partitions) >= self._limit

    def _shown(self) -> Iterator[ShownRecord]:
        key_format, value_format = self._formats
        for row in self._rows:
            yield ShownRecord(
                topic_partition=row.topic_partition,
                offset=row.offset,
                timestamp_ms=row.timestamp_ms,
                timestamp_type="LogAppendTime" if row.is_append_time else "CreateTime",
                key_bytes=row.key_bytes,
                value_bytes=row.value_bytes,
                transaction=row.transaction,
                key=_payload(row.key, key_format),
                value=_payload(row.value, value_format),
            )

    def write_files(self) -> None:
        """Writes the manifest of an export.

        Raises:
            WriteFailedError: it cannot be written.
        """
        if self._directory is not None:
            path = os.path.join(self._directory, MANIFEST)
            write_report(path, members_of_view(self))
            os.chmod(path, PRIVATE_FILE_MODE)

    def print_table(self) -> None:
        """Prints the partitions, then the records."""
        if self._has_nothing:
            return
        self._print_partitions()
        if self._directory is not None:
            count = sum(each.file is not None for each in self._partitions)
            print_text(f"{pluralize(count, 'file')} of Parquet and {MANIFEST} are in {self._directory}")
        else:
            self._print_rows()
        if self._is_limited:
            others = f" Not read: {first_of(self._not_read)}." if self._not_read else ""
            print_text(f"--limit {self._limit}: there may be more records.{others}")

    def _print_rows(self) -> None:
        """Prints a line for each record, below the name of its partition. Keys and values are last, because they have any length."""
        key_format, value_format = self._formats
        headings = ["offset", "timestamp", "key bytes", "value bytes"]
        headings += ["transaction"] if self._isolation is not RecordIsolation.READ_COMMITTED else []
        lines = [headings]
        for row in self._rows:
            sizes = ["null" if each is None else str(each) for each in (row.key_bytes, row.value_bytes)]
            line = [str(row.offset), _moment(row.timestamp_ms), *sizes]
            lines.append(line + ([row.transaction or ""] if len(headings) > len(line) else []))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [heading for heading, form in (("key", key_format), ("value", value_format)) if form]
        payloads = [" ".join(shown)]
        payloads += [self._payloads(row) for row in self._rows]
        partition = None
        names = (None, *(each.topic_partition for each in self._rows))
        for name, line, payload in zip(names, lines, payloads, strict=True):
            if name != partition:
                partition = name
                print_text(f"{name}:")
            padded = "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
            print_line(f" {padded}  {payload}".rstrip())

    def _payloads(self, row: RecordRow) -> str:
        shown = []
        for data, form in zip((row.key, row.value), self._formats, strict=True):
            if form is not None:
                shown.append("null" if data is None else printable(_payload(data, form) or ""))
        return " ".join(shown)

    def _print_partitions(self) -> None:
        rows = []
        for each in self._partitions:
            counts = each.range.counts
            left_out = counts.aborted_batches + counts.control_batches
            written = "-" if each.file is None else size_text(each.file.size_bytes)
            rows.append(
                (
                    each.range.topic_partition,
                    each.range.start,
                    each.range.end,
                    each.records,
                    left_out,
                    counts.missing_offsets,
                    counts.damaged_batches,
                    written,
                )
            )
        numbers = ("from", "until", "records", "batches left out", "missing offsets", "damaged")
        print_table(None, ("partition", *numbers, "file"), rows, right=numbers)


def _moment(ms: int | None) -> str:
    """A timestamp with its milliseconds, UTC; ``-`` for none."""
    if ms is None:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def _partition(each: ReadPartition) -> RecordsPartition:
    members = asdict(record_range(each.range))
    # Of the records that were read, a limit may have left some out.
    members["records"] = each.records
    members["first_offset"] = -1 if each.first_offset is None else each.first_offset
    members["last_offset"] = -1 if each.last_offset is None else each.last_offset
    file = None if each.file is None else ExportedFile(path=each.file.path, size_bytes=each.file.size_bytes)
    return RecordsPartition(**members, is_whole=each.is_whole, file=file)


def _payload(data: bytes | None, form: PayloadFormat | None) -> str | None:
    """A key or value in a form; with ``base64:`` in front where it is not of that form."""
    if data is None or form is None:
        return None
    match form:
        case PayloadFormat.HEX:
            return data.hex()
        case PayloadFormat.BASE64:
            return base64.b64encode(data).decode("ascii")
        case PayloadFormat.JSON:
            # The original text, because a parser may change numbers and drop members of equal names.
            try:
                text = data.decode()
                json.loads(text, parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                return _in_base64(data)
            return text
        case PayloadFormat.TEXT:
            try:
                return data.decode()
            except UnicodeDecodeError:
                return _in_base64(data)


def _refuse_constant(name: str) -> NoReturn:
    """Raises ValueError: ``NaN`` and ``Infinity`` are no JSON."""
    raise ValueError(name)


def _in_base64(data: bytes) -> str:
    return f"base64:{base64.b64encode(data).decode('ascii')}"
