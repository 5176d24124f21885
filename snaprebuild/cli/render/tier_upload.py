"""Uploaded segments as the verb `tier upload` shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from formats.partition.partition_metadata import uuid_text_or_none, uuid_to_text
from formats.remote.object_names import AivenObject, aiven_key
from formats.remote.upload_claim import UploadClaim
from snaprebuild.cli.answer import EXPIRY, given_words, repeated_words, selects_nothing
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.render.shared_parts import source_verdict
from snaprebuild.cli.render.status import LIVE_UNKNOWN, answer_lines, faults_text, nothing_read
from snaprebuild.cli.value_text import id_labels, shown, size_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.documents import tier_upload as doc
from snaprebuild.findings import Finding, pluralize
from snaprebuild.published import encoded_members
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.storage.local.document_file import new_file
from snaprebuild.storage.partition_names import names_of
from snaprebuild.storage.store import OBJECT_SCHEME, is_object
from snaprebuild.tier.upload.announce import Announcement, record_lines
from snaprebuild.tier.upload.fence import BrokerIdentity
from snaprebuild.tier.upload.model import PartitionUpload, SegmentUpload, StoreUpload, UploadAction, UploadRequest

__all__ = ["UploadView"]


class UploadView(View):
    """The segments that were uploaded, or that would be."""

    prints_notes = True
    names_unread = True

    def __init__(
        self,
        upload: StoreUpload,
        request: UploadRequest,
        findings: Sequence[Finding],
        *,
        records_file: str | None,
        produced_to: str | None,
        voters: Sequence[str],
        peers: Sequence[str],
    ) -> None:
        """Takes the result.

        Args:
            upload: the result.
            request: for the upload.
            findings: of the run.
            records_file: path of the file that gets the records, or None.
            produced_to: brokers that got the records, or None.
            voters: metadata logs of other voters that were named.
            peers: other replicas that were named.
        """
        super().__init__(findings)
        self._upload = upload
        self._request = request
        self._records_file = records_file
        self._produced_to = produced_to
        self._voters = voters
        self._peers = peers

    def document(self) -> doc.TierUpload:
        request = self._request
        uploader = request.uploader
        return doc.TierUpload(
            location=request.root.path,
            key_prefix=request.key_prefix,
            plugin_key_prefix=_plugin_prefix(request),
            chunk_bytes=uploader.chunk_bytes,
            run_name=uploader.run_name,
            node_id=uploader.node_id,
            dry_run=request.dry_run,
            verified=request.verified,
            voters=self._voters,
            peers=self._peers,
            records_file=self._records_file if self._upload.copies else None,
            produced_to=self._produced_to,
            metadata_partitions=request.metadata_partitions,
            totals=_totals(self._upload.partitions),
            partitions=[_partition(each, request.key_prefix) for each in self._upload.partitions],
            status=self._upload.status(self.findings).word.value,
            counts=self._upload.status(self.findings).counts,
        )

    def answer(self) -> Answer:
        request = self._request
        partitions = self._upload.partitions
        if not partitions and selects_nothing(self.findings):
            return nothing_read(self.findings)
        totals = _totals_text(partitions) or "none"
        dry = "Dry run: nothing was written. " if request.dry_run else ""
        status = self._upload.status(self.findings)
        result = f"{pluralize(len(partitions), 'partition')}, segments: {totals}"
        heads = [f"{faults_text(status)}{dry}{result}", f"{faults_text(status)}{result}"]
        tail = "" if request.verified or not self._upload.has_present else LIVE_UNKNOWN
        answer = answer_lines(status, self.findings, heads, [self._announcement()], tail)
        verdicts = [each.verdict for each in partitions if each.verdict is not None]
        if any(verdict.is_rejected or verdict.needs_confirmation for verdict in verdicts):
            return answer, [
                "cluster",
                "source",
                *given_words("path", "topic", "partition", "topic_partition"),
                "--purpose",
                "upload",
            ]
        actions = Counter(segment.action for partition in partitions for segment in partition.segments)
        if status.wrong:
            return answer, ["tier", "audit", *given_words("store", "metadata_log", *EXPIRY)]
        if request.dry_run:
            return answer, ["tier", "upload", *repeated_words("dry_run")] if actions[UploadAction.WOULD_UPLOAD] else []
        if not actions[UploadAction.UPLOADED]:
            return answer, []
        return answer, ["tier", "audit", *given_words("store", "metadata_log", *EXPIRY)]

    def _announcement(self) -> str:
        """The step that makes brokers aware of the copies of this run; empty if none is left."""
        if self._request.dry_run or self._request.announcer is not None or not self._upload.copies:
            return ""
        records = "their records (--records-file, --produce-to)"
        if self._records_file is not None:
            records = f"the records of {shown(self._records_file)}"
        return f"No broker knows of these copies before {records} are in __remote_log_metadata."

    def print_table(self) -> None:
        partitions = self._upload.partitions
        ids = id_labels((each.source.directory.name.topic, each.topic_id) for each in partitions)
        rows = []
        for each in partitions:
            label = each.source.directory.topic_partition + ids.get((each.source.directory.name.topic, each.topic_id), "")
            prepared = [segment for segment in each.segments if segment.upload is not None]
            rebuilt = sum(segment.upload is not None and segment.upload.snapshot.path is None for segment in prepared)
            sent = size_text(sum(segment.segment_bytes for segment in prepared))
            rows.append((label, len(each.segments), rebuilt, sent, _totals_text([each]) or "-"))
        if rows:
            columns = ("partition", "rolled segments", "snapshots rebuilt", "segments", "upload")
            print_table(None, columns, rows, right=columns[1:4], drop=("snapshots rebuilt", "segments"))
        segments = [segment for partition in partitions for segment in partition.segments]
        old_claims = sum(segment.took_over is not None for segment in segments)
        if old_claims:
            print_text(f"{pluralize(old_claims, 'claim')} taken over from an earlier registration of the same broker")
        rejected = sum(each.verdict is not None and each.verdict.is_rejected for each in partitions)
        if rejected:
            print_text(f"{pluralize(rejected, 'replica')} rejected as a source of uploads (snaprebuild cluster source shows why)")
        if self._produced_to is not None:
            counts = Counter(segment.announced for segment in segments)
            now = pluralize(counts[Announcement.NOW], "copy", "copies")
            print_text(f"{now} announced to the brokers of {self._produced_to}, {counts[Announcement.BEFORE]} before")

    def write_files(self) -> None:
        """Writes the file of the records, if there are any."""
        if self._records_file is not None and self._upload.copies:
            with new_file(self._records_file) as file:
                file.writelines(line.encode() for line in record_lines(self._upload.copies, self._request.metadata_partitions))


def _plugin_prefix(request: UploadRequest) -> str:
    """The ``key.prefix`` that the plugin must have: everything between the bucket, or the root of its file system, and the topic."""
    if not is_object(request.root.path):
        return request.key_prefix
    _, _, below = request.root.path.removeprefix(OBJECT_SCHEME).partition("/")
    return f"{below}/{request.key_prefix}" if below else request.key_prefix


def _totals(partitions: Sequence[PartitionUpload]) -> doc.UploadTotals:
    counts = Counter(segment.action for partition in partitions for segment in partition.segments)
    return msgspec.convert({action.value: counts[action] for action in UploadAction}, doc.UploadTotals)


def _totals_text(partitions: Sequence[PartitionUpload]) -> str:
    """The counts that are not 0, in words."""
    return ", ".join(f"{count} {action}" for action, count in encoded_members(_totals(partitions)).items() if count)


def _partition(partition: PartitionUpload, prefix: str) -> doc.UploadedPartition:
    return doc.UploadedPartition(
        **names_of(partition.source.directory),
        path=partition.source.directory.path,
        topic_id=uuid_text_or_none(partition.topic_id),
        metadata_partition=partition.metadata_partition,
        uploader=partition.uploader,
        **_identity(partition.identity),
        verdict=source_verdict(partition.verdict),
        totals=_totals([partition]),
        segments=[_segment(partition, segment, prefix) for segment in partition.segments],
    )


def _segment(partition: PartitionUpload, segment: SegmentUpload, prefix: str) -> doc.UploadedSegment:
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
        segment_bytes=segment.segment_bytes,
        action=segment.action,
        reason=segment.reason,
        segment_id=uuid_text_or_none(segment.segment_id),
        key=key,
        took_over=None if segment.took_over is None else _claim(segment.took_over),
        announced=segment.announced,
        snapshot=None if upload is None else _snapshot(upload.snapshot),
        compared=segment.compared,
        leader_epochs=() if upload is None else upload.leader_epochs,
        max_timestamp_ms=None if upload is None else upload.max_timestamp_ms,
        txn_index_empty=None if upload is None else upload.txn_index_empty,
    )


def _snapshot(snapshot: EnsuredSnapshot) -> doc.UploadedSnapshot:
    return doc.UploadedSnapshot(origin=snapshot.origin, snapshot_class=snapshot.snapshot_class, entries=snapshot.entries)


class _Identity(TypedDict):
    """Whose log it is, as arguments."""

    node_id: int | None
    directory_id: str | None
    broker_epoch: int | None


def _identity(broker: BrokerIdentity | UploadClaim) -> _Identity:
    return {
        "node_id": broker.node_id,
        "directory_id": uuid_text_or_none(broker.directory_id),
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
