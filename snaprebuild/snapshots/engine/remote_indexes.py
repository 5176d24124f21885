"""The indexes next to a segment in remote storage, compared with its batches while these are read anyway.

A broker that fetches from a copy loads them (``RemoteIndexCache``) and follows their entries.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from formats.errors import BadValueError, FormatError
from formats.limits import INDEX_BYTES_MAX
from formats.log.batch_headers import TailKind
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.time_index import read_time_index
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.segment_summary import HIT_COLUMNS, IndexEntries, SegmentSummary, other_epochs
from snaprebuild.snapshots.engine.index_check import LogWalk, OffsetIndexCheck, TimeIndexCheck
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store_path import ReadPath

__all__ = ["IndexTally", "index_fault", "read_index_entries"]

T = TypeVar("T")


def read_index_entries(log: ReadPath, base_offset: int) -> IndexEntries:
    """The entries of a copy's indexes. An index that cannot be read counts as empty, so that its hits are too few."""

    def read_or(read: Callable[[ReadPath], T], default: T) -> T:
        try:
            return read(log)
        except (FormatError, ReadFailedError):
            return default

    offsets = read_or(_offset_index, read_offset_index(b""))
    times = read_or(_time_index, read_time_index(b""))
    no_epochs: tuple[LeaderEpochEntry, ...] = ()
    return _entries(offsets, times, read_or(_leader_epochs, no_epochs), base_offset)


def index_fault(log: ReadPath, segment: SegmentFiles) -> str | None:
    """The fault of the offset index, the time index or the leader epoch checkpoint of a copy. Its segment is read again.

    Args:
        log: the segment.
        segment: as it was listed.

    Returns:
        The reason; None where nothing is wrong, or where the segment itself is damaged, so that it proves nothing.

    Raises:
        ReadFailedError: an object cannot be read.
        RefusedError: it changed, or a limit of the run is used up.
    """
    base = segment.base_offset
    try:
        entries = _entries(_offset_index(log), _time_index(log), _leader_epochs(log), base)
    except FormatError as error:
        return error.message
    offsets = OffsetIndexCheck(entries.offset, entries.position)
    times = TimeIndexCheck(entries.time_offset, entries.timestamp)
    epoch_fault = None
    with log.open(segment.log.identity) as source:
        walk = LogWalk(source, HIT_COLUMNS, hint=entries.position)
        for block, first, last in walk:
            offsets.add(block, first, last)
            times.add(block, first, last)
            rows = np.flatnonzero(other_epochs(entries.epoch, entries.epoch_start, block))
            if len(rows) and not len(entries.epoch):
                epoch_fault = "its leader epoch checkpoint is empty"
            elif len(rows) and epoch_fault is None:
                batch = int(first[rows[0]])
                epoch = int(block.column("partition_leader_epoch")[rows[0]])
                expected_epoch = int(entries.epoch[np.searchsorted(entries.epoch_start, batch, side="right") - 1])
                epoch_fault = (
                    f"the batch at offset {batch} is of leader epoch {epoch}, and its checkpoint has epoch {expected_epoch} there"
                )
    if walk.fault is not None or walk.tail is not TailKind.CLEAN:
        return None
    wrong = np.flatnonzero(~offsets.result(walk).agrees)
    if len(wrong):
        number = int(wrong[0])
        points = f"offset {entries.offset[number]} at byte {entries.position[number]}"
        return f"entry {number} of its offset index has {points}, where no batch of the segment goes with it"
    wrong = np.flatnonzero(~times.result(walk).agrees)
    if len(wrong):
        number = int(wrong[0])
        points = f"timestamp {entries.timestamp[number]} at offset {entries.time_offset[number]}"
        return f"entry {number} of its time index has {points}, where no batch of the segment goes with it"
    return epoch_fault


class IndexTally:
    """Adds up the hits of each copy, and looks for the reason where they are too few."""

    def __init__(self, directory: PartitionDir) -> None:
        """Starts with no hits.

        Args:
            directory: the copies of one partition, as the listing of their segments.
        """
        self._directory = directory
        self._hits = 0

    def take(self, index: int, summary: SegmentSummary) -> list[Finding]:
        """Adds a summary; the finding about the indexes of the segment with the summary that ends it.

        Args:
            index: of the segment in the directory.
            summary: of the segment, or of its part up to the next cut.
        """
        segment = self._directory.segments[index]
        self._hits += summary.facts.index_hits
        if summary.cut_offset is not None:
            return []
        hits = self._hits
        self._hits = 0
        if hits == segment.index_hits or summary.tail.kind is not TailKind.CLEAN:
            return []
        log = self._directory.file(segment.log.name)
        path = log.path
        try:
            fault = index_fault(log, segment)
        except ReadFailedError as error:
            return [finding_of_error(error, path)]
        if fault is None:
            return []
        return [Finding("tier-bad-copy", Severity.DAMAGED, path, fault, segment.base_offset, cause=FindingCause.BAD_COPY)]


def _entries(offsets: Index[Any], times: Index[Any], epochs: tuple[LeaderEpochEntry, ...], base: int) -> IndexEntries:
    return IndexEntries(
        offsets.column("relative_offset") + base,
        offsets.column("position"),
        times.column("relative_offset") + base,
        times.column("timestamp"),
        np.array([entry.epoch for entry in epochs], dtype=np.int64),
        np.array([entry.start_offset for entry in epochs], dtype=np.int64),
    )


def _offset_index(log: ReadPath) -> Index[Any]:
    return _trimmed(read_offset_index(_file(log, LocalTierFile.OFFSET_INDEX)))


def _time_index(log: ReadPath) -> Index[Any]:
    return _trimmed(read_time_index(_file(log, LocalTierFile.TIME_INDEX)))


def _leader_epochs(log: ReadPath) -> tuple[LeaderEpochEntry, ...]:
    entries = read_leader_epoch_checkpoint(_file(log, LocalTierFile.LEADER_EPOCHS))
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            expected = f"more than epoch {before.epoch} at offset {before.start_offset}"
            raise BadValueError("leader epoch checkpoint", expected=expected, found=f"{entry.epoch} at {entry.start_offset}")
    return entries


def _file(log: ReadPath, kind: LocalTierFile) -> bytes:
    return log.at(log.path.removesuffix(LocalTierFile.LOG) + kind).read_small(INDEX_BYTES_MAX) or b""


def _trimmed(index: Index[Any]) -> Index[Any]:
    """The index itself: a broker trims its indexes when it rolls the segment, before it uploads them.

    Raises:
        BadValueError: zeros follow its last entry.
    """
    if index.preallocated_bytes:
        what = index.grammar.what
        found = f"{index.preallocated_bytes} bytes of zeros"
        raise BadValueError(what, expected="nothing after its last entry", found=found)
    return index
