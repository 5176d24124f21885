"""The objects of a segment as the tiered storage plugin of Aiven writes them, neither compressed nor encrypted.

The ``.log`` object is the segment. The indexes follow each other in ``.indexes``; ``.rsm-manifest`` has their positions.

Source: ``SegmentIndexesV1Builder``, ``FixedSizeChunkIndex``, ``SegmentManifestV1``, ``RemoteLogSegmentMetadata`` as the plugin's
``KafkaTypeSerdeModule`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from formats.errors import BadValueError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_manifest import VERSION, SegmentIndex, read_aiven_manifest, write_aiven_manifest
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, SegmentState, TopicIdPartition

__all__ = ["plain_indexes", "plain_manifest", "plain_segment"]


def plain_indexes(indexes: Mapping[SegmentIndex, bytes | None]) -> bytes:
    """The ``.indexes`` object.

    Args:
        indexes: all of them; None for a transaction index that does not exist.
    """
    return b"".join(indexes[index] or b"" for index in SegmentIndex)


def plain_manifest(segment: RemoteSegment, chunk_size: int, indexes: Mapping[SegmentIndex, bytes | None]) -> bytes:
    """The ``.rsm-manifest`` object of a segment that is neither compressed nor encrypted.

    Args:
        segment: as it was when its copy began; with the id of its partition.
        chunk_size: ``chunk.size`` of the plugin, bytes that it reads at once.
        indexes: as in ``plain_indexes``.

    Raises:
        FormatError: the plugin could not read it.
    """
    sizes = [len(indexes[index] or b"") for index in SegmentIndex]
    places = {
        str(index): None if indexes[index] is None else {"position": end - size, "size": size}
        for index, size, end in zip(SegmentIndex, sizes, accumulate(sizes), strict=True)
    }
    count = -(-segment.size_bytes // chunk_size)
    chunks = {
        "type": "fixed",
        "originalChunkSize": chunk_size,
        "originalFileSize": segment.size_bytes,
        "transformedChunkSize": chunk_size,
        "finalTransformedChunkSize": segment.size_bytes - max(count - 1, 0) * chunk_size,
    }
    return write_aiven_manifest(
        {
            "version": VERSION,
            "chunkIndex": chunks,
            "segmentIndexes": places,
            "compression": False,
            "remoteLogSegmentMetadata": _metadata(segment),
        }
    )


def plain_segment(data: bytes, partition: TopicIdPartition, segment_id: bytes, *, file: str) -> RemoteSegment:
    """The copy that a manifest of ``plain_manifest`` describes, as in its first metadata record.

    Raises:
        FormatError: it is no such manifest, or that of another copy.
    """
    manifest = read_aiven_manifest(data, file=file)
    reported = manifest.segment
    numbers = [reported.get(name) for name in ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")]
    try:
        segment = RemoteSegment(
            id=RemoteSegmentId(partition, segment_id),
            segment_id=segment_id,
            start_offset=reported["startOffset"],
            end_offset=reported["endOffset"],
            broker_id=reported["brokerId"],
            max_timestamp_ms=reported["maxTimestampMs"],
            event_timestamp_ms=reported["eventTimestampMs"],
            leader_epochs=tuple(LeaderEpochEntry(int(epoch), start) for epoch, start in reported["segmentLeaderEpochs"].items()),
            size_bytes=manifest.chunks.file_size,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=reported["txnIdxEmpty"],
        )
        numbers += reported["segmentLeaderEpochs"].values()
        is_ours = (
            all(type(each) is int for each in numbers) and type(reported["txnIdxEmpty"]) is bool and _metadata(segment) == reported
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        is_ours = False
    if not is_ours:
        raise BadValueError("manifest", file=file, expected=f"one of the copy {uuid_to_text(segment_id)}", found="another one")
    return segment


def _metadata(segment: RemoteSegment) -> dict[str, Any]:
    assert segment.id is not None, "of a copy, not of a snapshot of the metadata"
    partition = segment.id.topic_id_partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_to_text(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": uuid_to_text(segment.segment_id),
        },
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp_ms,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_timestamp_ms,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in segment.leader_epochs},
        "txnIdxEmpty": segment.txn_index_empty,
    }
