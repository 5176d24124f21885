"""The records of one of Kafka's own topics, in their order: of its newest segments too, as far as they are whole."""

from __future__ import annotations

from collections.abc import Iterator

from formats import limits
from formats.errors import BadChecksumError, LimitExceededError
from formats.log.batch_headers import HeaderReader, TailKind
from formats.log.record_batch import ATTRIBUTE_CONTROL, BatchHeader
from formats.log.records import LogRecord, read_records
from snaprebuild.storage.local.pipe_reader import piped
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import OpenBytes

__all__ = ["batch_records", "log_records"]


def log_records(directory: PartitionDir) -> Iterator[LogRecord]:
    """The records of a partition, without control records.

    Args:
        directory: the partition.

    Raises:
        FormatError: a batch is damaged; the records before it were handed out. A batch that is not whole at the end of the last segment is
            no error, because a broker cuts it off: the records end before it.
        ReadFailedError: a segment cannot be read.
    """
    for segment in directory.segments:
        path = directory.file_path(segment.log.name)
        with directory.open_segment(segment) as source:
            reader = HeaderReader(source, check_crc=True, read_markers=False)
            for block in reader:
                for row in range(len(block)):
                    if len(block.bad_crc) and row == block.bad_crc[0]:
                        position = int(block.position_bytes[row])
                        raise BadChecksumError("batch", file=path, position=position, expected="its checksum", found="another")
                    header = block.header(row)
                    if not header.attributes & ATTRIBUTE_CONTROL:
                        yield from batch_records(source, header, int(block.position_bytes[row]))
            tail = reader.tail
        is_last = segment is directory.segments[-1]
        if tail is not None and tail.error is not None and (not is_last or tail.kind is TailKind.CORRUPT):
            raise tail.error.in_file(path)


def batch_records(source: OpenBytes, header: BatchHeader, position: int) -> Iterator[LogRecord]:
    """The records of one batch of an open segment.

    Raises:
        LimitExceededError: it is too large.
        FormatError: they do not follow the format.
    """
    if header.size_bytes > limits.DATA_BATCH_BYTES_MAX:
        expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
        raise LimitExceededError("batch", file=source.name, position=position, expected=expected, found=header.size_bytes)
    batch = bytearray(header.size_bytes)
    source.read_into(position, memoryview(batch))
    yield from read_records(header, bytes(batch), position=position, piped=piped)
