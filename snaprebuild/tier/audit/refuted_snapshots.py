"""Snapshots of a window that the records above them contradict, as they may contradict the snapshot at the first offset of a log.

Each snapshot is the first one of the log above it (``replay.base_judge``, B1 to B5). A batch that continues another sequence, or has a
lower epoch, shows that it is wrong. Nothing else shows that of the lowest copies of a store, in which the producer wrote nothing.
"""

from __future__ import annotations

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.base_judge import BaseJudge
from snaprebuild.replay.classes import ReplayRecord
from snaprebuild.replay.difference import Comparison, impossible_entries
from snaprebuild.replay.first_events import NO_EVENTS, FirstEvents, joined_events
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot, wrong_by_the_log
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import Held, boundary_after, in_order
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir

__all__ = ["refuted_by_the_log"]


def refuted_by_the_log(directory: PartitionDir, held: Held, clock: Clock) -> dict[str, Comparison]:
    """Comparisons of the snapshots that the records above them contradict, by file name.

    Args:
        directory: the listing.
        held: summaries of consecutive segments, with first events. What is above damage is left out.
        clock: for expiry.
    """
    refuted: dict[str, Comparison] = {}
    above = NO_EVENTS
    for index, summary in reversed(_whole(directory, held)):
        offset, _ = boundary_after(directory.segments, index, summary)
        if offset is not None:
            refuted |= _refuted_at(directory, offset, above, clock)
        events = summary.contents.first_events
        above = joined_events([NO_EVENTS if events is None else events, above])
    if held:
        refuted |= _refuted_at(directory, directory.segments[min(held)].base_offset, above, clock)
    return refuted


def _whole(directory: PartitionDir, held: Held) -> list[tuple[int, SegmentSummary]]:
    """Segments, or pieces of them, up to the first damage."""
    record = ReplayRecord()
    whole = list[tuple[int, SegmentSummary]]()
    segments = directory.segments
    for index, summary in in_order(held):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        record.take(summary, is_last=following is None, following=following, path=segments[index].log.name)
        if record.damage is not None or record.unsound_reasons:
            break
        whole.append((index, summary))
    return whole


def _refuted_at(directory: PartitionDir, offset: int, above: FirstEvents, clock: Clock) -> dict[str, Comparison]:
    if not len(above):
        return {}
    refuted = {}
    for listed in directory.snapshots_at(offset):
        comparison = _compared(directory, offset, listed, above, clock)
        if comparison is not None:
            refuted[listed.name] = comparison
    return refuted


def _compared(directory: PartitionDir, offset: int, listed: ListedFile, above: FirstEvents, clock: Clock) -> Comparison | None:
    try:
        entries = read_snapshot_file(directory, offset, listed)
    except (FormatError, ReadFailedError):
        return None
    if entries is None or impossible_entries(entries, offset) is not None:
        return None
    verdict = BaseJudge(offset, entries, clock.expiration_ms).verdict(above, ())
    return wrong_by_the_log(FirstSnapshot(verdict, None))
