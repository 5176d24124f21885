"""What a follower replicates, and what it lacks afterwards: bytes of real segments."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

from formats.log.batch_headers import HeaderReader
from formats.remote.remote_log_metadata import SegmentState
from snaprebuild.findings import pluralize
from snaprebuild.followers.leader_view import PartitionView
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["Share", "drawback", "share_of"]


@dataclass(frozen=True, slots=True)
class Share:
    """What is replicated, bytes.

    Attributes:
        replicated: from where the follower starts; None where it does not start.
        local: of all segments on the leader's disk: what it replicates without the feature.
        everything: and of the copies below them.
    """

    replicated: int | None
    local: int
    everything: int


def drawback(view: PartitionView, share: Share, log_start: int, next_offset: int) -> str | None:
    """What KIP-1023 says against it: the follower has few segments on disk. None where it has what the leader has.

    Args:
        view: the leader's.
        share: of the same start.
        log_start: of the follower.
        next_offset: where it begins on disk.
    """
    segments = view.directory.segments
    kept = sum(segment.base_offset >= next_offset for segment in segments)
    if share.replicated is None or kept == len(segments):
        return None
    return (
        f"as a leader, or for consumers that fetch from it as their closest replica, it has {kept} of the leader's "
        f"{pluralize(len(segments), 'segment')} on disk: reads of {log_start} to {next_offset - 1} go to remote storage, "
        f"{share.local - share.replicated} bytes of them from the leader's disk today"
    )


def share_of(view: PartitionView, start: int | None) -> Share:
    """The share of a follower that starts at an offset, None for one that does not.

    Raises:
        ReadFailedError: a segment cannot be read.
    """
    segments = view.directory.segments
    local = sum(segment.size_bytes for segment in segments)
    below = 0
    if view.remote is not None and segments:
        first = segments[0].base_offset
        live = (
            copy
            for copy in view.remote.log.segments.values()
            if copy.state is SegmentState.COPY_SEGMENT_FINISHED and view.remote.log.is_referenced(copy)
        )
        below = sum(copy.size_bytes for copy in live if copy.start_offset < first and copy.end_offset >= view.log_start.value)
    return Share(None if start is None else local - _bytes_below(view.directory, start), local, local + below)


def _bytes_below(directory: PartitionDir, offset: int) -> int:
    """Bytes of the batches on disk that end below an offset."""
    segments = directory.segments
    index = bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if index < 0:
        return 0
    whole = sum(segment.size_bytes for segment in segments[:index])
    if segments[index].base_offset == offset:
        return whole
    with directory.open_segment(segments[index]) as source:
        reader = HeaderReader(
            source, columns=("base_offset", "last_offset_delta", "length"), read_markers=False, block_bytes=1 << 20
        )
        for block in reader:
            reaches = block.column("base_offset") + block.column("last_offset_delta") >= offset
            if reaches.any():
                return whole + int(block.position_bytes[int(np.argmax(reaches))])
        assert reader.tail is not None
        return whole + reader.tail.position_bytes
