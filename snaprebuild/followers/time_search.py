"""The record that a broker finds by its timestamp: searches time indexes, offset indexes and batches, on disk and in remote storage.

An index only shortens the walk. If it does not parse, or leads to no batch, the segment is read from its start, as by a broker that made
the index anew. After a clean stop a broker does not make a missing time index anew: that segment has no timestamp then.

Source: ``LogSegment.findOffsetByTimestamp``, ``UnifiedLog.searchOffsetInLocalLog``, ``FileRecords.searchForTimestamp``,
``RemoteLogManager.findOffsetByTimestamp`` and ``lookupTimestamp``; 4.3.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader, TailKind
from formats.log.record_batch import BatchHeader
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.time_index import read_time_index
from formats.remote.remote_log_metadata import RemoteSegment, SegmentState
from snaprebuild.errors import ReadFailedError
from snaprebuild.followers.leader_view import PartitionView
from snaprebuild.followers.list_offsets import TimestampAndOffset
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.engine.log_facts import largest_timestamp_hint
from snaprebuild.snapshots.source.log_records import batch_records
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.thread_pool import local_map
from snaprebuild.tier.remote_log import LogLineage

__all__ = ["LogSearch"]

NO_TIMESTAMP = -1
BLOCK_BYTES = 1 << 20

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class _MatchingBatch:
    """A batch that may hold the record."""

    source: OpenBytes
    header: BatchHeader
    position: int

    def record(self, timestamp: int, start_offset: int, *, exactly: bool = False) -> TimestampAndOffset | None:
        """The first record of such a timestamp, or a later one unless ``exactly``, at or above an offset."""
        for each in batch_records(self.source, self.header, self.position):
            matches = each.timestamp == timestamp if exactly else each.timestamp >= timestamp
            if matches and each.offset >= start_offset:
                epoch = self.header.partition_leader_epoch
                return TimestampAndOffset(each.timestamp, each.offset, None if epoch < 0 else epoch)
        return None


class LogSearch:
    """The searches of ``list_offset`` on a partition.

    Attributes:
        found_in: the segment or the copy that the last search ended in; None where it ended in none.
    """

    def __init__(self, view: PartitionView) -> None:
        self._view = view
        self._greatest: list[int] | None = None
        self.found_in: str | None = None

    def local(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Searches the first local segment whose greatest timestamp is ``timestamp`` or more (``TimestampSearch.local``).

        Raises:
            ReadFailedError: a segment cannot be read.
            FormatError: a segment is damaged.
        """
        self.found_in, record = self._on_disk(timestamp, start_offset)
        return record

    def remote(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Searches the segments in remote storage, by leader epoch (``TimestampSearch.remote``).

        Raises:
            ReadFailedError: an object is missing or cannot be read.
            FormatError: one is damaged.
            RefusedError: it is encrypted, and no key was given; or a limit of the run is used up.
        """
        self.found_in = None
        view = self._view
        assert view.remote is not None, "asked of partitions whose remote storage is known"
        segments = view.directory.segments
        lineage = LogLineage(view.leader_epochs, view.log_end.offset)
        epoch = epoch_of(view.leader_epochs, start_offset)
        while epoch is not None:
            for copy in view.remote.log.listed(epoch):
                if not (_may_hold(copy, timestamp, start_offset) and lineage.holds(copy)):
                    continue
                if not segments or copy.start_offset < segments[0].base_offset:
                    directory = view.remote.directory_of(copy)
                    self.found_in = f"copy {uuid_to_text(copy.segment_id)}"
                    return _first_at(directory, directory.segments[0], timestamp, start_offset)
                name, record = self._on_disk(timestamp, start_offset)
                if name is not None:
                    self.found_in = name
                    return record
            epoch = next((entry.epoch for entry in view.leader_epochs if entry.epoch > epoch), None)
        return None

    def greatest(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp of all local segments (``TimestampSearch.greatest``).

        Raises:
            ReadFailedError: a segment cannot be read.
            FormatError: a segment is damaged.
        """
        self.found_in = None
        directory = self._view.directory
        if not directory.segments:
            return None
        largest = self._largest()
        index = largest.index(max(largest))
        if largest[index] == NO_TIMESTAMP:
            return None
        segment = directory.segments[index]
        self.found_in = segment.log.name
        for position in (_position_of_greatest(directory, segment), 0):
            with contextlib.closing(_batches(directory, segment, position)) as batches:
                for batch in batches:
                    if batch.header.max_timestamp == largest[index]:
                        return batch.record(largest[index], -1, exactly=True)
        return None

    def _on_disk(self, timestamp: int, start_offset: int) -> tuple[str | None, TimestampAndOffset | None]:
        """Name of the segment that is searched, and its matching record."""
        directory = self._view.directory
        for segment, largest in zip(directory.segments, self._largest(), strict=True):
            # LogSegment.largestTimestamp: without any timestamp that of the file.
            newest = largest if largest >= 0 else segment.log.identity.modified_ns // 1_000_000
            if newest >= timestamp:
                return segment.log.name, _first_at(directory, segment, timestamp, start_offset)
        return None, None

    def _largest(self) -> list[int]:
        """The greatest timestamp of each segment as a broker has it: of a rolled one from its time index, else from its batches."""
        if self._greatest is None:
            view = self._view
            last = len(view.directory.segments) - 1  # its index lags its data, unless the broker stopped cleanly
            hints = [*local_map([view.directory.store])(partial(largest_timestamp_hint, view.source), range(last)), None]
            self._greatest = []
            for segment, hint in zip(view.directory.segments, hints, strict=False):
                if hint is not None:
                    self._greatest.append(hint)
                elif self._stays_without(segment):
                    self._greatest.append(NO_TIMESTAMP)
                else:
                    self._greatest.append(_greatest_of(view.directory, segment))
        return self._greatest

    def _stays_without(self, segment: SegmentFiles) -> bool:
        """Whether a broker leaves the missing time index of a segment empty (``LogSegment.sanityCheck``).

        If the offset index is missing, too, the broker writes both.
        """
        is_clean = self._view.source.log_dir.was_shut_down_cleanly
        return is_clean and segment.time_index is None and segment.offset_index is not None


def _greatest_of(directory: PartitionDir, segment: SegmentFiles) -> int:
    """The greatest timestamp of the batches of a segment; -1 without any."""
    greatest = NO_TIMESTAMP
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, columns=("max_timestamp",), read_markers=False, block_bytes=BLOCK_BYTES)
        for block in reader:
            greatest = max(greatest, int(block.column("max_timestamp").max()))
        _check_end(reader, source)
    return greatest


def _may_hold(copy: RemoteSegment, timestamp: int, start_offset: int) -> bool:
    return (
        copy.state is SegmentState.COPY_SEGMENT_FINISHED and copy.max_timestamp_ms >= timestamp and copy.end_offset >= start_offset
    )


def _first_at(directory: PartitionDir, segment: SegmentFiles, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    """The first record of a segment with such a timestamp or a later one, at or above an offset."""
    position = _position_of(directory, segment, timestamp, start_offset)
    try:
        return _first_from(directory, segment, position, timestamp, start_offset)
    except FormatError:
        if not position:
            raise
    return _first_from(directory, segment, 0, timestamp, start_offset)  # the index led to no batch


def _first_from(
    directory: PartitionDir, segment: SegmentFiles, position: int, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    with contextlib.closing(_batches(directory, segment, position, timestamp)) as batches:
        for batch in batches:
            if batch.header.last_offset >= start_offset:
                record = batch.record(timestamp, start_offset)
                if record is not None:
                    return record
    return None


def _batches(
    directory: PartitionDir, segment: SegmentFiles, position: int, timestamp: int = NO_TIMESTAMP
) -> Generator[_MatchingBatch]:
    """The batches of a segment from a position on that hold a record of such a timestamp or a later one."""
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, start_bytes=position, read_markers=False, block_bytes=BLOCK_BYTES)
        for block in reader:
            for row in np.flatnonzero(block.column("max_timestamp") >= timestamp).tolist():
                header = block.header(row)
                yield _MatchingBatch(source, header, int(block.position_bytes[row]))
        _check_end(reader, source)


def _check_end(reader: HeaderReader, source: OpenBytes) -> None:
    tail = reader.tail
    if tail is not None and tail.kind is TailKind.CORRUPT and tail.error is not None:
        raise tail.error.in_file(source.name)


# ---------------------------------------------------------------------------------------------------------------- indexes


def _position_of(directory: PartitionDir, segment: SegmentFiles, timestamp: int, start_offset: int) -> int:
    """Where a broker begins to look for a timestamp in a segment, bytes."""
    index = _read_index(directory, segment.time_index, read_time_index)
    at = 0 if index is None else int(np.searchsorted(index.column("timestamp"), timestamp, side="right"))
    relative = int(index.columns["relative_offset"][at - 1]) if index is not None and at else 0
    return _position_at(directory, segment, max(relative, start_offset - segment.base_offset))


def _position_of_greatest(directory: PartitionDir, segment: SegmentFiles) -> int:
    """Where a broker begins to look for the greatest timestamp of a rolled segment, bytes; 0 of the active one, whose index lags."""
    if segment is directory.segments[-1]:
        index = None
    else:
        index = _read_index(directory, segment.time_index, read_time_index)
    if index is not None and len(index):
        return _position_at(directory, segment, int(index.columns["relative_offset"][-1]))
    return 0


def _position_at(directory: PartitionDir, segment: SegmentFiles, relative: int) -> int:
    """The greatest position that the offset index has for a relative offset or one before it; 0 if it is absent or bad."""
    index = _read_index(directory, segment.offset_index, read_offset_index)
    if index is None or not len(index):
        return 0
    at = int(np.searchsorted(index.column("relative_offset"), relative, side="right"))
    position = int(index.column("position")[at - 1]) if at else 0
    return position if position < segment.size_bytes else 0


def _read_index(directory: PartitionDir, name: str | None, read: Callable[..., Index[E]]) -> Index[E] | None:
    """An index of a segment; None if it is absent or bad."""
    if name is None:
        return None
    file = directory.file(name)
    try:
        data = file.read_small(limits.INDEX_BYTES_MAX)
        return None if data is None else read(data, file=file.path)
    except (FormatError, ReadFailedError):
        return None
