"""Facts from the end of a log and its indexes, before anything is replayed: the log end offset (LEO), and how old each segment is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader, SegmentBytes, TailKind, notes_batches
from formats.log.batch_walk import plain_log_end
from snaprebuild.errors import DeadlinePassedError, ReadFailedError, RefusedError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.replay.window import Clock, window_start
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.local.regular_file import once_more
from snaprebuild.storage.partition_dir import PartitionDir, read_last_timestamp_hint, read_positions_hint
from snaprebuild.storage.store_path import ReadPath
from snaprebuild.storage.thread_pool import local_map

__all__ = [
    "LogTail",
    "above_log_end",
    "check_deadline",
    "ends_at_log_end",
    "known_log_end",
    "largest_timestamp_hint",
    "log_end_offset",
    "log_tail",
    "window_index",
]


PLAIN_BYTES_MAX = 32 << 10
"""A last segment of this size is read from its start: that takes less time than to open its index."""

TAIL_COLUMNS = ("base_offset", "last_offset_delta", "max_timestamp", "partition_leader_epoch")


class LogTail(msgspec.Struct, frozen=True):
    """The end of the last segment.

    Attributes:
        end_offset: end of the last whole batch; base offset of the segment where it has none.
        leader_epoch: of that batch, -1 for message formats 0 and 1; None where there is no batch.
        max_timestamp_ms: largest timestamp of the batches that were read for it, ms since 1970; None where there is no batch.
    """

    end_offset: int
    leader_epoch: int | None = None
    max_timestamp_ms: int | None = None


def check_deadline(deadline: float | None, path: str) -> None:
    """Raises DeadlinePassedError once ``time.monotonic()`` is past it; None is none."""
    if deadline is not None and time.monotonic() > deadline:
        raise DeadlinePassedError("the deadline has passed", path=path)


def log_end_offset(directory: PartitionDir, deadline: float | None = None) -> int:
    """End of the last whole batch; otherwise as ``log_tail``."""
    return once_more(partial(_end_offset, directory, deadline))


def _end_offset(directory: PartitionDir, deadline: float | None) -> int:
    with directory.open_segment(directory.segments[-1], deadline) as source:
        end = _plain_end(source)
        return _tail_of(directory, source).end_offset if end is None else end


def ends_at_log_end(source: SegmentBytes, base_offset: int, index: ReadPath | None) -> bool:
    """Whether a last segment that ends with a torn batch or zeros ends there, as a broker takes it, or has lost batches after it.

    A broker that is killed leaves such an end, and its next start cuts it off. If the offset index leads to whole batches behind it,
    these were complete before: the bytes in between are damaged.

    Args:
        source: the segment.
        base_offset: of the segment.
        index: its offset index; None without one.
    """
    reader = HeaderReader(source, block_bytes=1 << 20, columns=TAIL_COLUMNS)
    from_start = _read_tail(reader, base_offset)
    assert reader.tail is not None
    if reader.tail.kind is TailKind.CLEAN:
        return True  # the caller read a part whose beginning the index had wrong
    end_offset = base_offset if from_start is None else from_start.end_offset
    return end_offset >= _tail_of_segment(source, base_offset, index).end_offset


def _plain_end(source: SegmentBytes) -> int | None:
    """End of a small segment that has nothing unusual in it; None for any other."""
    if not 0 < source.size_bytes <= PLAIN_BYTES_MAX:
        return None
    data = bytearray(source.size_bytes)
    source.read_into(0, memoryview(data))
    end = plain_log_end(data)
    if end is None:
        return None
    end_offset, last = end
    if notes_batches(source):
        for at in (0, last):
            source.note_batch(at, bytes(data[at : at + limits.BATCH_HEADER_BYTES_MAX]))
    return end_offset


def log_tail(directory: PartitionDir, deadline: float | None = None) -> LogTail:
    """Reads the last segment from the last position that its index names, if that proves right, else all of its headers.

    Args:
        directory: the listing.
        deadline: nothing is read once ``time.monotonic()`` is past it; None for none.

    Raises:
        ReadFailedError: it cannot be read.
        RefusedError: the deadline has passed, or it changed both times (``ChangedFileError``).
    """
    return once_more(partial(_tail, directory, deadline))


def _tail(directory: PartitionDir, deadline: float | None) -> LogTail:
    with directory.open_segment(directory.segments[-1], deadline) as source:
        return _tail_of(directory, source)


def _tail_of(directory: PartitionDir, source: SegmentBytes) -> LogTail:
    segment = directory.segments[-1]
    index = None if segment.offset_index is None else directory.file(segment.offset_index)
    return _tail_of_segment(source, segment.base_offset, index)


def _tail_of_segment(source: SegmentBytes, base_offset: int, index: ReadPath | None) -> LogTail:
    hint = None if index is None else read_positions_hint(index, source.size_bytes)
    if hint is not None and len(hint):
        tail = _tail_from(source, base_offset, int(hint[-1]), check_crc=True)
        if tail is not None:
            return tail
    tail = _tail_from(source, base_offset, 0, check_crc=False)
    return LogTail(base_offset) if tail is None else tail


def known_log_end(directory: PartitionDir) -> int:
    """The log reaches this offset for certain, as far as its last segment can be read; 0 where it cannot: reading it will say the same."""
    if directory.log_end_offset is not None:
        return directory.log_end_offset
    try:
        return log_end_offset(directory) if directory.segments else 0
    except (ReadFailedError, RefusedError, FormatError):
        return 0


def _tail_from(source: SegmentBytes, base_offset: int, start_bytes: int, *, check_crc: bool) -> LogTail | None:
    """The tail from a position on; None where no batch begins there, or where checksums speak against it."""
    reader = HeaderReader(source, check_crc, start_bytes=start_bytes, block_bytes=1 << 20, columns=TAIL_COLUMNS)
    return _read_tail(reader, base_offset)


def _read_tail(reader: HeaderReader, base_offset: int) -> LogTail | None:
    tail: LogTail | None = None
    damaged = False
    for block in reader:
        damaged |= len(block.bad_crc) > 0
        end = block.next_offset
        latest = int(block.column("max_timestamp").max())
        if tail is not None and tail.max_timestamp_ms is not None:
            latest = max(latest, tail.max_timestamp_ms)
        tail = LogTail(end, int(block.column("partition_leader_epoch")[-1]), latest)
    assert reader.tail is not None
    if reader.start_bytes and (tail is None or tail.end_offset <= base_offset or damaged or reader.tail.kind is TailKind.CORRUPT):
        return None
    return tail


def largest_timestamp_hint(partition: PartitionSource, index: int, deadline: float | None = None) -> int | None:
    """The greatest timestamp that the time index of a rolled segment names, its last; ms, or None if there is none.

    Args:
        partition: the partition.
        index: of the segment.
        deadline: nothing is read once ``time.monotonic()`` is past it; None for none.

    Raises:
        DeadlinePassedError: it has.
    """
    segment = partition.directory.segments[index]
    if not segment.time_index or _is_recovered_at_start(partition, index):
        return None
    directory = partition.directory
    check_deadline(deadline, directory.path)
    return read_last_timestamp_hint(directory.file(segment.time_index))


def _is_recovered_at_start(partition: PartitionSource, index: int) -> bool:
    """Whether the broker will make the indexes of a segment anew, because it cannot know what a crash left of them.

    After an unclean stop that is every segment that ends above the recovery point (``LogLoader.recoverLog``).
    """
    log_dir = partition.log_dir
    if log_dir.was_shut_down_cleanly or not log_dir.is_broker_directory:
        return False
    following = partition.directory.segments[index + 1 : index + 2]
    return not following or following[0].base_offset > partition.recovery_point


def window_index(partition: PartitionSource, clock: Clock, deadline: float | None = None) -> int:
    """Index of the first segment within the expiration, by the time indexes; a segment without a timestamp counts as young.

    Raises DeadlinePassedError as ``largest_timestamp_hint``.
    """
    last = len(partition.directory.segments) - 1  # the active segment's index does not cover all of its data yet
    each = local_map([partition.directory.store])
    hints = each(partial(largest_timestamp_hint, partition, deadline=deadline), range(last))
    return window_start([*hints, None], clock.as_of_ms, clock.expiration_ms)


def above_log_end(source: PartitionSource, above: Sequence[int], log_end: int) -> Finding:
    """The finding about snapshots above the log end. A broker takes a snapshot of what its log holds, so the log was longer.

    Args:
        source: of the partition.
        above: offsets of the snapshots, ascending, at least one.
        log_end: the last offset of the log and one, by a replay.
    """
    log_dir = source.log_dir
    more = f" and {len(above) - 1} more" if len(above) > 1 else ""
    below = f"the log ends at {log_end}, below the snapshot at {above[-1]}{more}"
    message = f"{below}: the log lost its tail, or the snapshot belongs to another log"
    severity = Severity.FINDING
    if log_dir.is_broker_directory and log_dir.clean_shutdown is None:
        severity = Severity.NOTE
        if source.is_broker_running:
            message = f"{below}: its broker runs, and may have appended to the log or cut it meanwhile"
        else:
            message = f"{below}: its broker did not stop cleanly, and removes such files when it starts"
    path = source.directory.path
    return Finding("snapshot-above-log-end", severity, path, message, above[-1], cause=FindingCause.SNAPSHOT_ABOVE_LOG_END)
