"""What the ends of a log and its indexes tell before anything is replayed: the log end offset, and how old each segment is."""

from __future__ import annotations

from formats.batch_headers import HeaderReader, TailKind
from formats.file_names import offset_index_file_name, time_index_file_name
from snaprebuild.operations.evidence import Clock
from snaprebuild.replay.window import window_start
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.segment_file import SegmentFile, read_last_timestamp_hint, read_positions_hint

__all__ = ["largest_timestamp_hint", "log_end_offset", "window_index"]


def log_end_offset(directory: PartitionDir) -> int:
    """End of the last whole batch: the last segment is read from the last position that its index names, if that proves right.

    Raises:
        ReadFailedError: it cannot be read.
    """
    segment = directory.segments[-1]
    with SegmentFile(directory.file_path(segment.log.name)) as source:
        hint = None
        if segment.offset_index is not None:
            hint = read_positions_hint(directory.file_path(offset_index_file_name(segment.base_offset)), source.size_bytes)
        if hint is not None and len(hint):
            end = _end_from(source, segment.base_offset, int(hint[-1]), check_crc=True)
            if end is not None:
                return end
        end = _end_from(source, segment.base_offset, 0, check_crc=False)
        return segment.base_offset if end is None else end


def _end_from(source: SegmentFile, base_offset: int, start_bytes: int, *, check_crc: bool) -> int | None:
    """Log end from a position on; None where no batch begins there, or where checksums speak against it."""
    reader = HeaderReader(source, check_crc=check_crc, start_bytes=start_bytes, block_bytes=1 << 20)
    end: int | None = None
    damaged = False
    for block in reader:
        damaged |= len(block.bad_crc) > 0
        end = int(block.column("base_offset")[-1]) + int(block.column("last_offset_delta")[-1]) + 1
    assert reader.tail is not None
    if start_bytes and (end is None or end <= base_offset or damaged or reader.tail.kind is TailKind.CORRUPT):
        return None
    return end


def largest_timestamp_hint(directory: PartitionDir, segment: SegmentFiles) -> int | None:
    """The greatest timestamp that the time index names. Of a closed segment its last entry is the segment's maximum."""
    if not segment.time_index:
        return None
    return read_last_timestamp_hint(directory.file_path(time_index_file_name(segment.base_offset)))


def window_index(directory: PartitionDir, clock: Clock) -> int:
    """Index of the first segment within the expiration, as far as the time indexes tell; what they do not tell counts as young."""
    hints: list[int | None] = [largest_timestamp_hint(directory, segment) for segment in directory.segments]
    hints[-1] = None  # the active segment's index lags behind its data
    return window_start(hints, clock.as_of_ms, clock.expiration_ms)
