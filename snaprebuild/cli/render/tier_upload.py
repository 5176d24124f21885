"""The result of ``tier upload``, as a document and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_key import AivenObject, aiven_key
from formats.remote.upload_claim import UploadClaim
from snaprebuild.cli.render.remote_storage import leader_epochs_of
from snaprebuild.cli.render.shared_parts import source_verdict
from snaprebuild.cli.result import given_words, id_labels, print_table, print_text, repeated_words, shown, size_text
from snaprebuild.documents import tier_upload as doc
from snaprebuild.findings import pluralize
from snaprebuild.published import encoded_members
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.storage.partition_names import names_of
from snaprebuild.storage.store import OBJECT_SCHEME, is_object
from snaprebuild.tier.upload.announce import Announced
from snaprebuild.tier.upload.fence import BrokerIdentity
from snaprebuild.tier.upload.model import Action, TierUpload, UploadedPartition, UploadedSegment, UploadRequest

__all__ = ["print_upload", "upload_answer", "upload_document"]


def upload_document(
    result: TierUpload,
    request: UploadRequest,
    records: str | None,
    produce_to: str | None,
    voters: Sequence[str],
    peers: Sequence[str],
) -> doc.TierUpload:
    """The document.

    Args:
        result: of the upload.
        request: what was asked for.
        records: file that was asked for, or None.
        produce_to: brokers that got the records, or None.
        voters: metadata logs of other voters that were given.
        peers: other replicas that were given.
    """
    uploader = request.uploader
    return doc.TierUpload(
        store=request.root.path,
        key_prefix=request.prefix,
        plugin_key_prefix=_plugin_prefix(request),
        chunk_bytes=uploader.chunk_size,
        run_name=uploader.run,
        broker_id=uploader.broker_id,
        dry_run=request.is_dry_run,
        verified=request.is_whole_log,
        voters=voters,
        peers=peers,
        records_file=records if result.copies else None,
        produced_to=produce_to,
        metadata_partitions=request.metadata_partitions,
        totals=_totals(result.partitions),
        partitions=[_partition(each, request.prefix) for each in result.partitions],
    )


def _plugin_prefix(request: UploadRequest) -> str:
    """What ``key.prefix`` of the plugin must be: everything between the bucket, or the root of its file system, and the topic."""
    if not is_object(request.root.path):
        return request.prefix
    _, _, below = request.root.path.removeprefix(OBJECT_SCHEME).partition("/")
    return f"{below}/{request.prefix}" if below else request.prefix


def _totals(partitions: Sequence[UploadedPartition]) -> doc.UploadTotals:
    counts = Counter(segment.action for partition in partitions for segment in partition.segments)
    return msgspec.convert({action.value: counts[action] for action in Action}, doc.UploadTotals)


def _totals_text(partitions: Sequence[UploadedPartition]) -> str:
    """Those that are not 0."""
    return ", ".join(f"{count} {action}" for action, count in encoded_members(_totals(partitions)).items() if count)


def _partition(partition: UploadedPartition, prefix: str) -> doc.UploadedPartition:
    return doc.UploadedPartition(
        **names_of(partition.source.directory),
        path=partition.source.path,
        topic_id=None if partition.topic_id is None else uuid_to_text(partition.topic_id),
        metadata_partition=partition.metadata_partition,
        uploader=partition.uploader,
        **_identity(partition.identity),
        verdict=source_verdict(partition.verdict),
        totals=_totals([partition]),
        segments=[_segment(partition, segment, prefix) for segment in partition.segments],
    )


def _segment(partition: UploadedPartition, segment: UploadedSegment, prefix: str) -> doc.UploadedSegment:
    name = partition.source.directory.name
    upload = segment.upload
    key = None
    if partition.topic_id is not None and segment.segment_id is not None:
        whole = aiven_key(
            prefix, name.topic, partition.topic_id, name.partition, segment.start_offset, segment.segment_id, AivenObject.LOG
        )
        key = whole.removesuffix(".log")
    return doc.UploadedSegment(
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        segment_bytes=segment.size_bytes,
        action=segment.action.value,
        reason=segment.why,
        segment_id=None if segment.segment_id is None else uuid_to_text(segment.segment_id),
        key=key,
        took_over=None if segment.took_over is None else _claim(segment.took_over),
        announced=None if segment.announced is None else segment.announced.value,
        snapshot=None if upload is None else _snapshot(upload.snapshot),
        compared=None if segment.compared is None else segment.compared.value,
        leader_epochs=[] if upload is None else leader_epochs_of(upload.leader_epochs),
        max_timestamp_ms=None if upload is None else upload.max_timestamp_ms,
        txn_index_empty=None if upload is None else upload.txn_index_empty,
    )


def _snapshot(snapshot: EnsuredSnapshot) -> doc.UploadedSnapshot:
    return doc.UploadedSnapshot(origin=snapshot.origin.value, snapshot_class=snapshot.snapshot_class, entries=snapshot.entries)


class _Identity(TypedDict):
    """Whose log it is, as arguments."""

    node_id: int | None
    directory_id: str | None
    broker_epoch: int | None


def _identity(broker: BrokerIdentity | UploadClaim) -> _Identity:
    directory_id = broker.directory_id
    return {
        "node_id": broker.node_id,
        "directory_id": None if directory_id is None else uuid_to_text(directory_id),
        "broker_epoch": broker.broker_epoch,
    }


def _claim(claim: UploadClaim) -> doc.OldClaim:
    return doc.OldClaim(
        uploader=claim.uploader,
        run_name=claim.run,
        segment_id=uuid_to_text(claim.segment_id),
        claimed_ms=claim.claimed_ms,
        **_identity(claim),
    )


def upload_answer(result: TierUpload, request: UploadRequest, records: str | None) -> tuple[str, list[str]]:
    """The answer, and the words of the next command.

    Args:
        result: of the upload.
        request: what was asked for.
        records: file with the records of the copies, or None.
    """
    totals = _totals_text(result.partitions)
    dry = "Dry run: nothing was written. " if request.is_dry_run else ""
    answer = f"{dry}{pluralize(len(result.partitions), 'partition')}, segments: {totals or 'none'}."
    if any(verdict.is_rejected or verdict.needs_confirmation for each in result.partitions if (verdict := each.verdict)):
        return answer, ["cluster", "source", *given_words("path"), "--purpose", "upload"]
    actions = Counter(segment.action for partition in result.partitions for segment in partition.segments)
    if request.is_dry_run:
        return answer, ["tier", "upload", *repeated_words("dry_run")] if actions[Action.WOULD_UPLOAD] else []
    if actions[Action.UPLOADED] and request.announcer is None:
        how = f"the records of {shown(records)}" if records is not None else "their records (--records-file, --produce-to)"
        answer += f" No broker knows of these copies before {how} are in __remote_log_metadata."
    return answer, ["tier", "audit", *given_words("store", "metadata_log")] if actions[Action.UPLOADED] else []


def print_upload(result: TierUpload, produce_to: str | None) -> None:
    """The table.

    Args:
        result: of the upload.
        produce_to: brokers that got the announcements, or None.
    """
    rows = []
    ids = id_labels((each.source.directory.name.topic, each.topic_id) for each in result.partitions)
    for each in result.partitions:
        label = each.source.topic_partition + ids.get((each.source.directory.name.topic, each.topic_id), "")
        done = [segment for segment in each.segments if segment.upload is not None]
        rebuilt = sum(segment.upload is not None and segment.upload.snapshot.path is None for segment in done)
        uploads = _totals_text([each])
        sent = sum(segment.size_bytes for segment in done)
        rows.append((label, len(each.segments), rebuilt, size_text(sent), uploads or "-"))
    if rows:
        columns = ("partition", "rolled segments", "snapshots rebuilt", "segments", "upload")
        print_table(None, columns, rows, right=columns[1:4], drop=("snapshots rebuilt", "segments"))
    segments = [segment for partition in result.partitions for segment in partition.segments]
    taken = sum(segment.took_over is not None for segment in segments)
    if taken:
        print_text(f"{pluralize(taken, 'claim')} taken over from an earlier registration of the same broker")
    rejected = sum(each.verdict is not None and each.verdict.is_rejected for each in result.partitions)
    if rejected:
        print_text(f"{pluralize(rejected, 'replica')} rejected as a source of uploads (snaprebuild cluster source shows why)")
    if produce_to is not None:
        counts = Counter(segment.announced for segment in segments)
        now = pluralize(counts[Announced.NOW], "copy", "copies")
        before = counts[Announced.BEFORE]
        print_text(f"{now} announced to the brokers of {produce_to}, {before} before")
