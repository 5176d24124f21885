"""Writes one copy of a segment: the claim, the segment, its indexes, and last the manifest, without which no broker reads the rest.

Each object is created only if it does not exist. Objects that an earlier run with the same claim created are compared and kept. Therefore
the next run finishes one that was stopped anywhere, and nothing is ever replaced.
"""

from __future__ import annotations

import os
import secrets

from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from formats.remote.aiven_manifest import SegmentIndex
from formats.remote.aiven_upload import plain_indexes, plain_manifest, plain_segment
from formats.remote.object_names import AivenObject
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, SegmentState, TopicIdPartition
from formats.remote.upload_claim import UploadClaim, write_claim
from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.snapshots.destination.rebuilt_snapshot import create_or_wait
from snaprebuild.storage.local.publish import temporary_name_of
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.upload.fence import Uploader, UploadFence
from snaprebuild.tier.upload.prepare import PreparedUpload
from snaprebuild.tier.upload.target import UploadTarget

__all__ = ["claimed", "finished_copy", "new_segment_id", "remote_segment", "write_copy"]


def new_segment_id() -> bytes:
    """16 random bytes, a version 4 UUID as Kafka makes them: its text never begins with a dash."""
    while True:
        data = bytearray(secrets.token_bytes(16))
        data[6] = data[6] & 0x0F | 0x40
        data[8] = data[8] & 0x3F | 0x80
        if bytes(data) != ZERO_UUID and not uuid_to_text(bytes(data)).startswith("-"):
            return bytes(data)


def claimed(target: UploadTarget, upload: PreparedUpload, uploader: Uploader, now_ms: int) -> UploadClaim:
    """Claims a segment, or finds the claim that was first.

    Raises:
        RefusedError: what is there is no claim.
        StorageError: the store failed.
    """
    mine = uploader.claim(new_segment_id(), now_ms)
    file = target.claim_file(upload.start_offset, upload.end_offset)
    if _is_created(file, write_claim(mine)):
        return mine
    found = target.claim_of(upload.start_offset, upload.end_offset)
    if found is None:
        raise WriteFailedError("was there, and is gone: run again", path=file.path)
    return found


def write_copy(
    target: UploadTarget,
    upload: PreparedUpload,
    claim: UploadClaim,
    uploader: Uploader,
    fence: UploadFence,
) -> RemoteSegment:
    """Writes the three objects of a copy.

    Args:
        target: the partition in the store.
        upload: the segment.
        claim: ours.
        uploader: we.
        fence: checked before the manifest, with which the copy is complete.

    Returns:
        The copy, as in its first metadata record.

    Raises:
        RefusedError: a local file changed, an object has other bytes, or the claim is no longer ours.
        StorageError: an object cannot be written, or whether it was is unknown.
    """
    segment = remote_segment(upload, claim, uploader.node_id)
    indexes = {
        SegmentIndex.OFFSET: upload.offset_index,
        SegmentIndex.TIMESTAMP: upload.time_index,
        SegmentIndex.PRODUCER_SNAPSHOT: upload.snapshot.data,
        SegmentIndex.LEADER_EPOCH: upload.leader_epoch_checkpoint,
        SegmentIndex.TRANSACTION: upload.transaction_index,
    }
    manifest = plain_manifest(segment, uploader.chunk_bytes, indexes)
    log = target.file(upload.start_offset, claim.segment_id, AivenObject.LOG)
    with upload.open_log() as source:
        is_created = create_or_wait(lambda: log.create_large(source))
        if not is_created and not log.holds(source):
            raise _other_bytes(log.path)
    _create_or_compare(target.file(upload.start_offset, claim.segment_id, AivenObject.INDEXES), plain_indexes(indexes))
    upload.check_unchanged()
    fence.check(target, claim, upload.start_offset, upload.end_offset)
    _create_or_compare(target.file(upload.start_offset, claim.segment_id, AivenObject.MANIFEST), manifest)
    return segment


def finished_copy(target: UploadTarget, log: OpenBytes, claim: UploadClaim, start_offset: int) -> RemoteSegment:
    """A copy of ours that an earlier run completed, from its manifest.

    The other files of the segment may differ from those of today: indexes, leader epochs and snapshot may change when the log start moves.
    The copy is then as good as it was. The segment itself never changes.

    Args:
        target: the partition in the store.
        log: the segment on disk.
        claim: ours.
        start_offset: of the segment.

    Raises:
        RefusedError: its ``.log`` holds other bytes than the segment.
        ReadFailedError: an object cannot be read.
        FormatError: its manifest is not one of ours.
    """
    file = target.file(start_offset, claim.segment_id, AivenObject.LOG)
    if not file.holds(log):
        raise _other_bytes(file.path)
    manifest = target.file(start_offset, claim.segment_id, AivenObject.MANIFEST)
    return plain_segment(manifest.read_small(MANIFEST_BYTES_MAX) or b"", target.remote.id, claim.segment_id, file=manifest.path)


def remote_segment(upload: PreparedUpload, claim: UploadClaim, broker_id: int) -> RemoteSegment:
    """The copy of a segment, as in its first metadata record; the same in every run with one claim."""
    partition = TopicIdPartition(upload.topic, upload.topic_id, upload.partition)
    return RemoteSegment(
        id=RemoteSegmentId(partition, claim.segment_id),
        segment_id=claim.segment_id,
        start_offset=upload.start_offset,
        end_offset=upload.end_offset,
        broker_id=broker_id,
        max_timestamp_ms=upload.max_timestamp_ms,
        event_timestamp_ms=claim.claimed_ms,
        leader_epochs=upload.leader_epochs,
        size_bytes=upload.size_bytes,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=upload.txn_index_empty,
    )


def _is_created(file: StorePath, data: bytes) -> bool:
    """Creates a small object; False where one is there."""
    temporary_name = temporary_name_of(os.path.basename(file.path))
    return create_or_wait(lambda: file.create(data, owner=None, temporary_name=temporary_name))


def _create_or_compare(file: StorePath, data: bytes) -> None:
    if not _is_created(file, data) and file.read_small(max(2 * len(data), 1 << 20)) != data:
        raise _other_bytes(file.path)


def _other_bytes(location: str) -> RefusedError:
    message = (
        "is there already with other bytes than this segment has now, and was not touched: another file under this name, or options"
    )
    return RefusedError(f"{message} of an earlier run (chunk_size, --broker-id)", path=location)
