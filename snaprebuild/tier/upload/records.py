"""The records that tell brokers of a copy: two for each, in the order in which they are to be produced; as lines of JSON, too.

Source: ``RLMCopyTask.copyLogSegment``, ``TopicBasedRemoteLogMetadataManager``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentUpdate,
    SegmentState,
    metadata_partition,
    write_remote_log_record,
)

__all__ = ["WrittenCopy", "record_lines"]


@dataclass(frozen=True, slots=True)
class WrittenCopy:
    """A copy that is complete.

    Attributes:
        segment: as it began.
        finished_ms: when it was found complete, ms since 1970.
        check: raises where it is no longer ours to tell of (``UploadFence.check``); None where nothing can take it away.
    """

    segment: RemoteSegment
    finished_ms: int
    check: Callable[[], None] | None = field(default=None, compare=False)

    @property
    def finished(self) -> RemoteSegmentUpdate:
        """The record that follows the one that it began with."""
        segment = self.segment
        assert segment.id is not None
        state = SegmentState.COPY_SEGMENT_FINISHED
        return RemoteSegmentUpdate(segment.id, segment.broker_id, self.finished_ms, segment.custom_metadata, state)


def record_lines(copies: Iterable[WrittenCopy], partitions: int) -> Iterator[str]:
    """The lines of the file of records.

    Args:
        copies: in the order in which they were written.
        partitions: of ``__remote_log_metadata``.
    """
    for copy in copies:
        assert copy.segment.id is not None
        number = metadata_partition(copy.segment.id.topic_id_partition, partitions)
        for record in (copy.segment, copy.finished):
            line = {
                "partition": number,
                "key": None,
                "value": base64.b64encode(write_remote_log_record(record)).decode(),
                "record": _readable(record),
            }
            yield json.dumps(line) + "\n"


def _readable(record: RemoteSegment | RemoteSegmentUpdate) -> dict[str, object]:
    assert record.id is not None
    partition = record.id.topic_id_partition
    told: dict[str, object] = {
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
        "segment_id": uuid_to_text(record.id.id),
        "state": record.state.name,
        "broker_id": record.broker_id,
        "event_timestamp_ms": record.event_timestamp_ms,
    }
    if isinstance(record, RemoteSegment):
        names = ("start_offset", "end_offset", "max_timestamp_ms", "size_bytes", "txn_index_empty")
        told |= {name: getattr(record, name) for name in names}
        told["leader_epochs"] = [asdict(entry) for entry in record.leader_epochs]
    return told
