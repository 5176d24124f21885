"""Whether a metadata log has lost its end: what else in its directory shows that it reached further.

After a clean stop ``<log end>.snapshot`` is in the directory (``UnifiedLog.close``), and a broker that truncates its log, or loads it,
removes the snapshots above the end (``ProducerStateManager.truncateAndReload``). So one above the end proves that records are gone. A
checkpoint holds committed records of the log only. The indexes and ``leader-epoch-checkpoint`` are older evidence: they may end long
before the log did.

The clean-shutdown marker is written before Raft closes its log. A log that was not closed although the marker is there may have lost its
end in between: with a torn tail, or without the snapshot at its end.

Source: ``LogManager.shutdown``, ``KafkaRaftLog.close``, ``UnifiedLog.close``, ``LogLoader`` of Kafka 4.3.1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from formats import limits
from formats.errors import FormatError
from formats.partition.file_names import (
    CLEAN_SHUTDOWN,
    offset_index_file_name,
    parse_file_name,
    snapshot_file_name,
    time_index_file_name,
)
from formats.partition.offset_index import read_offset_index
from formats.partition.time_index import read_time_index
from snaprebuild.cluster.metadata.log import MetadataLog, MetadataSegment
from snaprebuild.errors import ReadFailedError

__all__ = ["LogEndEvidence", "has_clean_marker", "log_end_evidence"]


@dataclass(frozen=True, slots=True)
class LogEndEvidence:
    """The end of a metadata log, and what contradicts it. Reasons are sentences without a full stop.

    Attributes:
        end_offset: after the last whole batch.
        below_checkpoint: a checkpoint ends above it; None if none does. It was made of the log, or a follower has just fetched it.
        lost: a producer snapshot proves that the log reached further; None if none does.
        ahead: an index or the leader epochs name an offset above the end; None if they do not. Where a running node was copied, they may
            have been copied after the log.
        unclosed: the log was not closed as a clean stop does; None if it was. It shows nothing of a node that runs or was killed.
        is_torn: it ends with a batch that is not whole.
    """

    end_offset: int
    below_checkpoint: str | None = None
    lost: str | None = None
    ahead: str | None = None
    unclosed: str | None = None
    is_torn: bool = False

    def reason(self, *, was_stopped_cleanly: bool) -> str | None:
        """Why the log is not known to be all that its node had; None if nothing shows that.

        Args:
            was_stopped_cleanly: its node has a clean-shutdown marker.
        """
        shown = self.below_checkpoint or self.lost or self.ahead
        return shown or (self.unclosed if was_stopped_cleanly else None)


def has_clean_marker(log: MetadataLog) -> bool:
    """Whether the log directory around a metadata log has a clean-shutdown marker.

    Raises:
        ReadFailedError: it cannot be listed.
    """
    return CLEAN_SHUTDOWN in log.directory.at(os.path.dirname(log.path)).names()


def log_end_evidence(log: MetadataLog, end_offset: int, *, is_torn: bool) -> LogEndEvidence:
    """The end of a metadata log, as its directory shows it.

    Args:
        log: as it was listed.
        end_offset: after its last whole batch.
        is_torn: a batch that is not whole follows, or zeros do.

    Raises:
        ReadFailedError: a segment can no longer be read.
        FormatError: it is damaged.
    """
    newest = max((checkpoint.end_offset for checkpoint in log.checkpoints), default=0)
    snapshots = [_offset_of(name) for name in log.producer_snapshots]
    below = lost = None
    if end_offset < newest:
        below = f"the metadata log ends at {end_offset}, below the end {newest} of its newest checkpoint: a later one is needed"
    highest = max(snapshots, default=0)
    if highest > end_offset:
        lost = (
            f"the metadata log ends at {end_offset}, and {snapshot_file_name(highest)} was written when it ended at {highest}: "
            "it has lost its end, and a later one is needed"
        )
    return LogEndEvidence(
        end_offset=end_offset,
        below_checkpoint=below,
        lost=lost,
        ahead=_ahead(log, end_offset),
        unclosed=_unclosed(log, end_offset, snapshots, is_torn=is_torn),
        is_torn=is_torn,
    )


def _offset_of(name: str) -> int:
    file_name = parse_file_name(name)
    if file_name is None or file_name.offset is None:
        return 0
    return file_name.offset


def _unclosed(log: MetadataLog, end_offset: int, snapshots: list[int], *, is_torn: bool) -> str | None:
    if is_torn:
        return (
            f"the node stopped cleanly, and its metadata log ends at {end_offset} with a batch that is not whole: later records may be "
            "lost. A later log is needed"
        )
    is_empty = end_offset == (log.first_base_offset or 0)
    if end_offset in snapshots or (is_empty and log.segments):
        return None
    return (
        f"the node stopped cleanly, and its metadata log ends at {end_offset} without the snapshot of a clean stop: later records may "
        "be lost. A later log is needed"
    )


def _ahead(log: MetadataLog, end_offset: int) -> str | None:
    epochs = log.leader_epochs or ()
    # A leader assigns its epoch at the end and appends its first record at once; a start removes the epochs at the end.
    if epochs and epochs[-1].start_offset >= end_offset:
        begin = f"leader epoch {epochs[-1].epoch} begins at {epochs[-1].start_offset}"
        return f"the metadata log ends at {end_offset}, and {begin}: it has lost its end, and a later one is needed"
    orphan = max(log.orphan_index_bases, default=-1)
    if orphan >= max(end_offset, 1):
        return (
            f"the metadata log ends at {end_offset}, and the index of a segment at {orphan} is there without the segment: "
            "it has lost its end, and a later one is needed"
        )
    indexed = _indexed_end(log, log.segments[-1]) if log.segments else 0
    # An index is appended to after the log: what a node wrote in between is in the log by now.
    if indexed > end_offset and log.log_end_offset() < indexed:
        return f"the metadata log ends at {end_offset}, and its index reaches {indexed}: it has lost its end, and a later one is needed"
    return None


def _indexed_end(log: MetadataLog, segment: MetadataSegment) -> int:
    """After the last offset that an index of a segment names; the base offset if none does, or none can be read."""
    base = segment.base_offset
    ends = [base]
    readers = ((offset_index_file_name(base), read_offset_index), (time_index_file_name(base), read_time_index))
    for name, read in readers:
        file = log.directory.below(name)
        try:
            data = file.read_small(limits.INDEX_BYTES_MAX)
            relative = [] if data is None else read(data, file=file.path).column("relative_offset").tolist()
        except (ReadFailedError, FormatError):  # it is no evidence then; a broker makes it anew
            continue
        if relative:
            ends.append(base + relative[-1] + 1)
    return max(ends)
