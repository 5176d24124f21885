"""The result of reading a partition for a command: what was read of it, and the errors of its read as findings."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import pyarrow as pa

from formats.errors import FormatError
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_plan import plan_partition
from snaprebuild.consume.partition_read import PartitionReader, ReadRange
from snaprebuild.consume.record_query import RecordQuery
from snaprebuild.errors import SnaprebuildError, UsageError
from snaprebuild.findings import Finding, finding_of_error

__all__ = ["PartitionReading", "ReadPartition", "RecordFile", "reader_of"]


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
        range: that was read, and the counts of its batches.
        is_whole: nothing of the range was left out because of a limit or damage.
        records: that are shown or written.
        first_offset: of them; None without one.
        last_offset: of them; None without one.
        file: with the records; None without one.
    """

    range: ReadRange
    is_whole: bool
    records: int
    first_offset: int | None
    last_offset: int | None
    file: RecordFile | None = None


def reader_of(log: ChosenLog, query: RecordQuery, findings: list[Finding]) -> PartitionReader | None:
    """A reader of a partition; None, with a finding, if its range cannot be decided.

    Args:
        log: of the partition.
        query: what is read.
        findings: filled with those of the plan.

    Raises:
        UsageError: the range makes no sense for this partition.
    """
    try:
        plan = plan_partition(log, query)
    except UsageError:
        raise
    except (FormatError, SnaprebuildError) as error:
        findings += [*log.findings, finding_of_error(error, log.place)]
        return None
    findings += plan.findings
    return PartitionReader(plan, query)


class PartitionReading:
    """Reads a partition.

    Attributes:
        has_failed: an error ended the read.
    """

    def __init__(self, reader: PartitionReader, findings: list[Finding]) -> None:
        """Reads with a reader.

        Args:
            reader: of the partition.
            findings: filled with the error that ends the read.
        """
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
