"""Uploads rolled segments to remote storage, in the layout of Aiven's plugin, where a broker cannot.

Segments are uploaded in order, and none after one that is not uploaded. A broker that sees a later copy takes everything below it for
uploaded, and its local retention deletes it (``RemoteLogManager.findHighestRemoteOffset``).

Source: KIP-405; ``RLMCopyTask.copyLogSegmentsToRemote``; ``RemoteStorageManager`` of the plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition, metadata_partition
from formats.remote.upload_claim import UploadClaim
from snaprebuild.errors import ChangedFileError, SnaprebuildError, UploadRefusalReason, UploadRefusedError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.tier.remote_partition import RemoteCopy
from snaprebuild.tier.upload.announce import Announcement, WrittenCopy
from snaprebuild.tier.upload.copy import claimed, finished_copy, new_segment_id, write_copy
from snaprebuild.tier.upload.coverage import Conflict, CoverageView
from snaprebuild.tier.upload.fence import UploadFence, epoch_text
from snaprebuild.tier.upload.model import DONE, PartitionUpload, Prepare, SegmentUpload, StoreUpload, UploadAction, UploadRequest
from snaprebuild.tier.upload.prepare import candidates, topic_id_of
from snaprebuild.tier.upload.present import PresentCopies
from snaprebuild.tier.upload.source_check import check_trusted, source_refusal
from snaprebuild.tier.upload.target import UploadTarget, last_offset

__all__ = ["tier_upload"]

WAITING = frozenset(
    (
        UploadRefusalReason.ABOVE_HIGH_WATERMARK,
        UploadRefusalReason.ABOVE_LAST_STABLE_OFFSET,
        UploadRefusalReason.ABOVE_TRUSTED_OFFSET,
        UploadRefusalReason.ACTIVE_SEGMENT,
    )
)
"""Why a segment does not go up yet: nothing is wrong with it."""

UNVERIFIED = (
    "whether brokers read it is not verified: give --metadata-log, or take every complete copy for live with --allow-unverified"
)


def tier_upload(
    partitions: Sequence[PartitionSource],
    request: UploadRequest,
    prepare: Prepare,
    now_ms: Callable[[], int] = current_time_ms,
) -> StoreUpload:
    """Uploads what may be uploaded. A fault of one partition stops no other.

    Args:
        partitions: to upload from.
        request: what is wanted.
        prepare: puts together what belongs to a segment.
        now_ms: the clock.
    """
    result = StoreUpload()
    for source in partitions:
        _PartitionUpload(source, request, prepare, now_ms, result).run()
    return result


class _PartitionUpload:
    """Uploads the segments of one partition, one after the other."""

    def __init__(
        self, source: PartitionSource, request: UploadRequest, prepare: Prepare, now_ms: Callable[[], int], result: StoreUpload
    ) -> None:
        self._source = source
        self._request = request
        self._result = result
        self._prepare = prepare
        self._now_ms = now_ms
        self._path = source.directory.path
        self._topic_id = request.topic_ids.get(source.directory.name.topic)
        self._fence = UploadFence() if request.fence is None else request.fence(source)
        name = request.uploader.name or f"{request.host}:{self._path}"
        self._uploader = replace(request.uploader, name=name, identity=self._fence.identity)
        rolled = candidates(source)
        ends = dict(pairwise(source.directory.base_offsets))
        segments = [SegmentUpload(each.base_offset, ends[each.base_offset] - 1, each.size_bytes) for each in rolled]
        self._partition = PartitionUpload(source, segments, name, identity=self._fence.identity)
        self._paths = {each.base_offset: source.directory.file_path(each.log.name) for each in rolled}
        self._largest = max((each.size_bytes for each in rolled), default=0)
        self._previous: EnsuredSnapshot | None = None
        self._uploaded_to = -1
        self._view: CoverageView | None = None
        self._copies: dict[int, RemoteCopy] = {}
        """Copies of segments, by base offset."""

    def run(self) -> None:
        segments = self._partition.segments
        self._result.partitions.append(self._partition)
        if not self._source.can_be_tiered:
            self._add_finding(
                "tier-never-uploaded", Severity.NOTE, "internal and compacted topics never go to remote storage: left out"
            )
            segments.clear()
            return
        if not segments or self._is_rejected(segments[0]):
            return
        for segment in segments:
            self._try(segment)
            if segment.action not in DONE:
                break
            self._uploaded_to = segment.end_offset
        self._compare_present()
        left = sum(each.action is UploadAction.HELD_BACK for each in segments)
        if left and segment.action is not UploadAction.WAITS:
            message = f"{pluralize(left, 'later segment')} left: below a later copy brokers delete missing segments as uploaded"
            self._add_finding("tier-upload-stopped", Severity.NOTE, message, segment.end_offset + 1)

    def _compare_present(self) -> None:
        """Copies that others uploaded stay as they are; a snapshot that this log contradicts is a finding."""
        present = PresentCopies(self._source, self._request.replay, self._request.refuse)
        segments = [each for each in self._partition.segments if each.action is UploadAction.PRESENT]
        present.segments += [(each, self._copies.get(each.start_offset)) for each in segments]
        if segments:
            present.compare(self._coverage().target)
        self._result.findings += present.findings

    def _add_finding(self, code: str, severity: Severity, message: str, offset: int | None = None) -> None:
        self._result.findings.append(Finding(code, severity, self._path, message, offset))

    def _is_rejected(self, first: SegmentUpload) -> bool:
        """Whether the replica is no source; what is unknown of it ends nothing."""
        if self._request.judge is None:
            return False
        try:
            verdict = self._partition.verdict = self._request.judge(self._source)
            foreign = None if self._request.refuse is None else self._request.refuse(self._source, None)
        except (SnaprebuildError, FormatError) as error:
            self._result.findings.append(finding_of_error(error, self._path))
            first.end(UploadAction.FAILED, str(error))
            return True
        refusal = source_refusal(verdict, self._path)
        if refusal is not None:
            reason = f"the replica is {verdict}: {verdict.reason}" if verdict.is_rejected else refusal.message
            first.end(UploadAction.REFUSED, reason)
            self._result.findings.append(refusal)
        elif foreign is not None:
            first.end(UploadAction.REFUSED, foreign.message)
            self._result.findings.append(foreign)
        return refusal is not None or foreign is not None

    def _try(self, segment: SegmentUpload) -> None:
        try:
            conflict = self._upload(segment)
            if conflict is not None:
                self._stop(segment, conflict)
        except (UploadRefusedError, ChangedFileError) as error:
            reason = error.reason if isinstance(error, UploadRefusedError) else UploadRefusalReason.CHANGED
            action = UploadAction.REFUSED
            code = "tier-upload-refused"
            severity = Severity.REFUSED
            if reason in WAITING:
                action = UploadAction.WAITS
                code = "tier-upload-waits"
                severity = Severity.NOTE
            elif reason in (UploadRefusalReason.STALE_BROKER_EPOCH, UploadRefusalReason.CLAIM_LOST):
                code = "tier-upload-stale"
            segment.end(action, str(error))
            message = f"{error.message} ({reason})"
            self._result.findings.append(Finding(code, severity, error.path or self._path, message, segment.start_offset))
        except (SnaprebuildError, FormatError) as error:
            finding = finding_of_error(error, self._path)
            is_refused = finding.severity in (Severity.REFUSED, Severity.DAMAGED)
            segment.end(UploadAction.REFUSED if is_refused else UploadAction.FAILED, str(error))
            self._result.findings.append(finding)

    def _stop(self, segment: SegmentUpload, conflict: Conflict) -> None:
        """Ends a segment that another copy or claim keeps from going up."""
        segment.end(conflict.action, conflict.reason)
        if conflict.action is UploadAction.UNVERIFIED:
            self._add_finding(
                "tier-upload-unverified", Severity.FINDING, f"{conflict.reason}, and {UNVERIFIED}", segment.start_offset
            )
        elif conflict.action is UploadAction.CLAIMED:
            message = f"{conflict.reason}: nothing was written. {conflict.advice}"
            self._add_finding("tier-upload-claimed", Severity.FINDING, message, segment.start_offset)

    # ------------------------------------------------------------------------------------------------------------ one segment

    def _upload(self, segment: SegmentUpload) -> Conflict | None:
        """Uploads a segment, or gives what keeps it from going up."""
        coverage = self._coverage()
        target = coverage.target
        offsets = segment.offsets
        path = self._paths[segment.start_offset]
        claim = target.claim_of(*offsets)
        if claim is not None:
            self._uploader.check_not_stale(claim, target.claim_file(*offsets).path)
        is_older = claim is not None and self._fence.identity.supersedes(claim)
        is_ours = claim is not None and (self._uploader.owns(claim) or is_older)
        if claim is not None and is_ours and self._request.announcer is not None:
            self._request.announcer.check_not_deleted(claim.segment_id)
        has_our_name = claim is not None and claim.uploader == self._uploader.name
        is_complete = claim is not None and has_our_name and claim.segment_id in target.remote.copies
        if not is_complete:
            other = coverage.covering_copy(*offsets)
            if other is not None:
                return self._held(segment, other, coverage)
            conflict = coverage.gap_below(segment.start_offset, self._uploaded_to, path) or coverage.misaligned_claim(*offsets)
            if conflict is not None:
                return conflict
            self._note_overlap(segment, coverage)
        if claim is not None and not is_ours:
            return self._claimed(segment, claim, coverage)
        if claim is not None and is_complete:
            self._finish(segment, claim, target, is_older=is_older)
            return None
        coverage.check_store(
            path,
            is_first=self._uploaded_to < 0,
            plugin_encrypts=self._request.plugin_encrypts,
            allow_plain=self._request.allow_plain,
        )
        check_trusted(self._partition.verdict, segment.end_offset, path)
        upload = self._prepare(path, self._previous, self._topic_id, self._source)
        if self._has_foreign_producers(segment, upload.snapshot):
            return None
        segment.upload = upload
        self._previous = upload.snapshot
        if self._request.dry_run:
            segment.end(UploadAction.WOULD_UPLOAD)
            segment.segment_id = None if claim is None or is_older else claim.segment_id
            segment.took_over = claim if is_older else None
            return None
        if claim is None:
            self._prepare_writes()
            claim = claimed(target, upload, self._uploader, self._now_ms())
            if not self._uploader.owns(claim):
                return self._claimed(segment, claim, coverage)
        elif is_older:
            # Under a new id: the earlier uploader may still write, and its objects are none of ours.
            claim = self._take_over(segment, claim, new_segment_id(), target)
        segment.segment_id = claim.segment_id
        self._prepare_writes()
        written = write_copy(target, upload, claim, self._uploader, self._fence)
        self._complete(segment, written, UploadAction.UPLOADED, claim, target)
        return None

    def _has_foreign_producers(self, segment: SegmentUpload, snapshot: EnsuredSnapshot) -> bool:
        """Whether a snapshot that was built from the log has producers that keep it from remote storage."""
        foreign = None if self._request.refuse is None else self._request.refuse(self._source, snapshot.data)
        if foreign is not None:
            segment.end(UploadAction.REFUSED, foreign.message)
            self._result.findings.append(foreign)
        return foreign is not None

    def _finish(self, segment: SegmentUpload, claim: UploadClaim, target: UploadTarget, *, is_older: bool) -> None:
        """Takes a copy of ours that an earlier run completed."""
        segment.segment_id = claim.segment_id
        with self._source.directory.store.open_bytes(self._paths[segment.start_offset], may_grow=True) as log:
            written = finished_copy(target, log, claim, segment.start_offset)
        if self._request.dry_run:
            segment.end(UploadAction.FINISHED_BEFORE)
            return
        if is_older:
            claim = self._take_over(segment, claim, claim.segment_id, target)
        self._complete(segment, written, UploadAction.FINISHED_BEFORE, claim, target)

    def _complete(
        self, segment: SegmentUpload, written: RemoteSegment, action: UploadAction, claim: UploadClaim, target: UploadTarget
    ) -> None:
        """Announces a complete copy, before the next one is begun, so that brokers lack the records of one at most."""
        check = partial(self._fence.check, target, claim, *segment.offsets)
        check()  # an uploader that became stale announces nothing
        copy = WrittenCopy(written, self._now_ms(), check)
        self._result.copies.append(copy)
        if self._request.announcer is not None:
            segment.announced = self._request.announcer.announce(copy)
        segment.end(action)
        if segment.announced is Announcement.NEEDLESS:
            reason = f"brokers read another copy by now; {uuid_to_text(written.segment_id)} is complete, and was not announced"
            segment.end(UploadAction.PRESENT, reason)
            self._add_finding("tier-upload-needless", Severity.NOTE, f"{reason}: its objects may be deleted", segment.start_offset)

    def _take_over(self, segment: SegmentUpload, old: UploadClaim, segment_id: bytes, target: UploadTarget) -> UploadClaim:
        claimed_ms = old.claimed_ms if segment_id == old.segment_id else self._now_ms()
        new = self._uploader.claim(segment_id, claimed_ms)
        self._fence.take_over(target, old, new, *segment.offsets)
        segment.took_over = old
        message = (
            f"the claim of {old.uploader!r}, run {old.run}{epoch_text(old)}, was taken over by broker epoch {new.broker_epoch}"
        )
        self._add_finding("tier-upload-took-over", Severity.NOTE, message, segment.start_offset)
        return new

    def _note_overlap(self, segment: SegmentUpload, coverage: CoverageView) -> None:
        if shared := coverage.sharing(*segment.offsets):
            copies = pluralize(len(shared), "copy", "copies")
            message = f"some of its offsets are in {copies} with other base offsets already, which brokers sort out"
            self._add_finding("tier-upload-overlap", Severity.NOTE, message, segment.start_offset)

    def _held(self, segment: SegmentUpload, copy: RemoteCopy, coverage: CoverageView) -> Conflict:
        segment.segment_id = copy.segment_id
        self._copies[segment.start_offset] = copy
        reason = f"the copy {uuid_to_text(copy.segment_id)} holds offsets {copy.start_offset} to {last_offset(copy)}"
        action = UploadAction.PRESENT if coverage.is_live(copy) else UploadAction.UNVERIFIED
        return Conflict(action, reason)

    def _claimed(self, segment: SegmentUpload, claim: UploadClaim, coverage: CoverageView) -> Conflict:
        """Another uploader was first. If it has finished, its copy is one like any other; the metadata log may not have it yet."""
        segment.segment_id = claim.segment_id
        copy = coverage.target.completed(segment.start_offset, claim.segment_id)
        is_whole = copy is not None and last_offset(copy) >= segment.end_offset
        if copy is not None and is_whole and (coverage.is_live(copy) or not self._request.verified):
            return self._held(segment, copy, coverage)
        reason = f"claimed by {claim.uploader!r}, run {claim.run}"
        if is_whole:
            reason += ", which has finished it, and the metadata log does not have it"
        return Conflict(UploadAction.CLAIMED, reason, "If that uploader was stopped for good, give its name with --uploader")

    def _prepare_writes(self) -> None:
        """Before the claim, so that a store that is not fit gets none."""
        self._request.root.prepare_writes()
        self._request.root.prepare_writes(self._largest)

    def _coverage(self) -> CoverageView:
        """The partition in the store, listed once."""
        if self._view is None:
            request = self._request
            name = self._source.directory.name
            topic_id = topic_id_of(self._source, self._topic_id)
            partition = TopicIdPartition(name.topic, topic_id, name.partition)
            target = UploadTarget.of(request.root, request.key_prefix, partition)
            if request.announcer is not None:
                request.announcer.check(partition)
            target.read_listing()
            self._view = CoverageView(target, self._uploader, request.logs, request.verified, request.allow_unverified)
            self._partition.topic_id = topic_id
            self._partition.metadata_partition = metadata_partition(partition, request.metadata_partitions)
        return self._view
