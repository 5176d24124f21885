"""The replay of a partition with everything that its files show.

Each command makes its replay here, so that all of them come to one class and one state at a boundary. None can leave out that the log
begins in remote storage, that its topic is compacted, or that this program wrote a later snapshot.
"""

from __future__ import annotations

from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.log_facts import known_log_end
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.replay_checkpoint import InitialState, ReplayCheckpoint
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["source_replay"]


def source_replay(
    source: PartitionSource,
    clock: Clock,
    *,
    mode: ReplayFrom = ReplayFrom.AUTO,
    window_index: int = 0,
    stop_index: int | None = None,
    first_wanted: int = 0,
    known_end: int | None = None,
    resume_from: ReplayCheckpoint | None = None,
    given: InitialState | None = None,
    begins_empty: bool = False,
) -> PartitionReplay:
    """The replay of a partition. By default it begins at the first segment, and ends after the last one.

    Args:
        source: the partition.
        clock: for expiry.
        mode: where the replay begins.
        window_index: first segment of the window (``log_facts.replay_window``).
        stop_index: segments from here on are not needed; None for all.
        first_wanted: the least boundary that is wanted.
        known_end: the log reaches this offset for certain; None to look it up if the replay reads the last segment.
        resume_from: where an earlier replay ended.
        given: the state before the first segment, known from elsewhere.
        begins_empty: the state that begins empty at the first segment is wanted, even if the log begins in remote storage.
    """
    directory = source.directory
    stop = len(directory.segments) if stop_index is None else stop_index
    if known_end is None:
        # A batch that cannot be read looks like a torn end, unless it is known that the log continues.
        known_end = known_log_end(directory) if stop == len(directory.segments) else 0
    return PartitionReplay(
        directory=directory,
        mode=mode,
        clock=clock,
        window_index=window_index,
        stop_index=stop,
        first_wanted=first_wanted,
        known_end=known_end,
        resume_from=resume_from,
        given=given,
        remote_from=None if begins_empty else source.remote_from,
        is_compacted=not source.can_be_tiered,
        written_by_us=source.written_by_us,
    )
