"""Which snapshots are still there after the next start: only those are planned, written, staged and installed.

A start makes a missing ``.index`` anew, and the ``.index`` of a segment whose ``.txnindex`` fails. To do so it recovers the segment, and
removes the snapshots above it. Then it writes some of them itself (``LogLoader.recoverSegment``). Everything else that a start removes is
no boundary, is at or below the log start (``boundary_needs``), or belongs to a partition with a fate (``start_gate``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from snaprebuild.broker.fates import Fate
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.broker_start import LoadedLog, SnapshotOrigin, broker_start
from snaprebuild.snapshots.source.left_out import LeftOut, LeftOutReason
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["REMOVED_AT_START", "lost_at_start", "removed_at_start_finding"]

REMOVED_AT_START = LeftOutReason(
    LeftOut.REMOVED_AT_START,
    "the next start makes an index anew, and removes the snapshots above it: start and stop the broker once, then run again",
)


def lost_at_start(
    partition: PartitionSource, log_end: int | None, offsets: Collection[int], fates: Iterable[Fate]
) -> frozenset[int]:
    """The offsets of new snapshots that the next start removes or writes again.

    Args:
        partition: that they would be written into.
        log_end: its log end offset; None where it is not known, so that any offset above the last segment is used for it.
        offsets: of the new snapshots.
        fates: of the next start of its broker.
    """
    recovered = _recovered_segments(partition, fates)
    if not recovered or not offsets:
        return frozenset()
    segments = partition.directory.segments
    existing = [offset for offset, _ in partition.directory.snapshots]
    end = log_end
    if end is None:
        end = max(segments[-1].base_offset, *offsets, *existing) + 1
    snapshots = dict.fromkeys((*existing, *offsets), True)
    if partition.is_broker_running:
        snapshots[end] = True  # the broker writes it when it stops
    loaded = LoadedLog(
        base_offsets=tuple(segment.base_offset for segment in segments),
        checkpointed_log_start_offset=partition.checkpointed_log_start_offset,
        log_end_offset=end,
        snapshots=snapshots,
        is_clean=partition.is_broker_running or partition.log_dir.was_shut_down_cleanly,
        recovery_point=partition.recovery_point,
        without_index=recovered,
        is_tiered=partition.is_tiered,
    )
    # What goes for another reason, too, is no matter of an index.
    kept_otherwise = _kept(replace(loaded, without_index=frozenset()))
    return kept_otherwise.intersection(offsets) - _kept(loaded)


def _kept(log: LoadedLog) -> frozenset[int]:
    return frozenset(offset for offset, origin in broker_start(log).after if origin is SnapshotOrigin.KEPT)


def _recovered_segments(partition: PartitionSource, fates: Iterable[Fate]) -> frozenset[int]:
    """Base offsets of the segments whose ``.index`` the next start makes anew."""
    path = partition.directory.path
    missing = [segment.base_offset for segment in partition.directory.segments if segment.offset_index is None]
    judged = [base for fate in fates if fate.path == path for base in fate.recovered_segments]
    return frozenset((*missing, *judged))


def removed_at_start_finding(path: str, offsets: Collection[int]) -> Finding:
    """The one finding about the snapshots of a partition that are left out because the next start would remove them."""
    count = pluralize(len(offsets), "snapshot")
    message = (
        f"{count} from {min(offsets)} on not written: the next start makes an index of this partition anew, and removes the snapshots "
        "above it. Start and stop the broker once. Then run again"
    )
    return Finding("snapshot-removed-at-start", Severity.FINDING, path, message, min(offsets))
