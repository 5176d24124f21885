"""Records of remote log metadata, made by hand, and the logs that they fold to."""

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, RemoteSegmentUpdate, SegmentState, TopicIdPartition
from snaprebuild.tier.remote_log import RemoteLog

__all__ = ["PARTITION", "copy", "epochs", "finished", "folded", "update"]

PARTITION = TopicIdPartition("t", bytes(15) + b"\x01", 0)


def epochs(*pairs: tuple[int, int]) -> tuple[LeaderEpochEntry, ...]:
    """Leader epochs, each with its first offset."""
    return tuple(LeaderEpochEntry(epoch, start) for epoch, start in pairs)


def copy(number: int, start: int, end: int, *pairs: tuple[int, int]) -> RemoteSegment:
    """The start of a copy."""
    segment_id = bytes(15) + bytes((number,))
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, segment_id),
        segment_id=segment_id,
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=100,
        event_timestamp_ms=200,
        leader_epochs=epochs(*(pairs or ((0, start),))),
        size_bytes=1000,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=False,
    )


def update(segment: RemoteSegment, state: SegmentState) -> RemoteSegmentUpdate:
    """A later state of it, by another broker."""
    assert segment.id is not None
    return RemoteSegmentUpdate(segment.id, 2, 300, b"\x07", state)


def folded(*records: RemoteSegment | RemoteSegmentUpdate) -> RemoteLog:
    """Folds records in their order."""
    log = RemoteLog()
    for record in records:
        log.take(record)
    return log


def finished(*segments: RemoteSegment) -> RemoteLog:
    """A log of complete copies."""
    return folded(*(each for segment in segments for each in (segment, update(segment, SegmentState.COPY_SEGMENT_FINISHED))))
