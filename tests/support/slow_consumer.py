"""A consumer of log directories that reads record by record: the reference for the columnar reader.

It knows neither blocks nor groups. It walks the batches by their lengths, holds a dictionary of open transactions, and decides about each
record when a marker comes. Its end is the lesser of the high watermark and the first offset of what is open there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from formats.log.record_batch import BatchHeader, parse_batch_header
from formats.log.records import LogRecord, read_records

NONE, COMMITTED, ABORTED, OPEN = "none", "committed", "aborted", "open"


@dataclass
class SlowRecord:
    """A record, and how its transaction ended."""

    record: LogRecord
    header: BatchHeader
    transaction: str = NONE


@dataclass
class SlowLog:
    """The records of a partition up to an offset, control records included."""

    records: list[SlowRecord] = field(default_factory=list)
    stable_end: int = 0

    def of(self, isolation: str, start: int, end: int) -> list[SlowRecord]:
        """The records of a range."""
        if isolation == "read_committed":
            end = min(end, self.stable_end)
        chosen = [each for each in self.records if start <= each.record.offset < end]
        if isolation == "all":
            return chosen
        data = [each for each in chosen if not each.header.is_control]
        return data if isolation == "read_uncommitted" else [each for each in data if each.transaction != ABORTED]


def slow_batches(directory: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every whole batch of all segments."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at + 17 <= len(data):
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if size < 26 or at + size > len(data):
                break
            batch = data[at : at + size]
            yield parse_batch_header(batch), batch
            at += size


def slow_log(directory: Path, high_watermark: int, open_before: dict[int, int] | None = None) -> SlowLog:
    """Reads a partition up to its high watermark.

    Args:
        directory: of the partition.
        high_watermark: batches that begin at or above it are not read.
        open_before: first offsets of transactions that were open before the first segment, by producer id.
    """
    log = SlowLog()
    firsts = dict(open_before or {})
    waiting: dict[int, list[SlowRecord]] = {}
    for header, batch in slow_batches(directory):
        if header.magic == 2 and header.base_offset >= high_watermark:
            break
        is_open = header.is_transactional and not header.is_control
        if is_open:
            firsts.setdefault(header.producer_id, header.base_offset)
        for record in read_records(header, batch):
            row = SlowRecord(record, header)
            log.records.append(row)
            if is_open:
                row.transaction = OPEN
                waiting.setdefault(header.producer_id, []).append(row)
            elif header.is_control and header.producer_id >= 0:
                assert record.key is not None
                kind = int.from_bytes(record.key[2:4], "big")
                if kind in (0, 1):
                    firsts.pop(header.producer_id, None)
                    for each in waiting.pop(header.producer_id, []):
                        each.transaction = ABORTED if kind == 0 else COMMITTED
    log.stable_end = min([high_watermark, *firsts.values()])
    return log
