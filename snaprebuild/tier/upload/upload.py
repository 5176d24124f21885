"""Uploads closed segments to remote storage, in the layout of Aiven's plugin, where a broker cannot.

Segments go up in order, and behind one that does not go up nothing does: a broker that sees a later copy takes everything below it for
uploaded, and its local retention deletes it (``RemoteLogManager.findHighestRemoteOffset``).

Source: KIP-405; ``RLMCopyTask.copyLogSegmentsToRemote``; ``RemoteStorageManager`` of the plugin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition, metadata_partition
from formats.remote.upload_claim import UploadClaim
from snaprebuild.cluster.source.verifier import rejection, unknown_finding, word_needed
from snaprebuild.errors import ChangedFileError, SnaprebuildError, UploadRefusedError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.tier.upload.announce import Announced
from snaprebuild.tier.upload.copy import claimed, finished_copy, new_segment_id, write_copy
from snaprebuild.tier.upload.fence import CLAIM_LOST, STALE, UNKNOWN_EPOCH, Claimant, UploadFence, epoch_text
from snaprebuild.tier.upload.neighbours import Neighbours
from snaprebuild.tier.upload.prepare import candidates, topic_id_of
from snaprebuild.tier.upload.records import WrittenCopy
from snaprebuild.tier.upload.request import Prepare, UploadRequest
from snaprebuild.tier.upload.result import DONE, Action, TierUpload, UploadedPartition, UploadedSegment
from snaprebuild.tier.upload.source_check import trusted_end
from snaprebuild.tier.upload.target import CompleteCopy, UploadTarget

__all__ = ["tier_upload"]

ABOVE_TRUSTED = "above-trusted-offset"
WAITING = ("above-high-watermark", "above-last-stable-offset", "active-segment", ABOVE_TRUSTED)
"""Why a segment does not go up yet: nothing is wrong with it."""

UNVERIFIED = (
    "whether brokers read it is not verified: --metadata-log tells, or --allow-unverified takes every complete copy for live"
)


def tier_upload(
    partitions: Sequence[PartitionSource],
    request: UploadRequest,
    prepare: Prepare,
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> TierUpload:
    """Uploads what may be uploaded. A fault of one partition stops no other.

    Args:
        partitions: to upload from.
        request: what is wanted.
        prepare: puts together what belongs to a segment.
        now_ms: the clock.
    """
    result = TierUpload()
    for source in partitions:
        _Partition(source, request, prepare, now_ms, result).upload()
    return result


class _Partition:
    """The segments of one partition, one after the other."""

    def __init__(
        self, source: PartitionSource, request: UploadRequest, prepare: Prepare, now_ms: Callable[[], int], result: TierUpload
    ) -> None:
        self._source = source
        self._request = request
        self._prepare = prepare
        self._now_ms = now_ms
        self._result = result
        self._after: EnsuredSnapshot | None = None
        self._done_to = -1
        self._trusted_end: int | None = None
        self._topic_id = request.topic_ids.get(source.directory.name.topic)
        self._found: Neighbours | None = None
        bases = [segment.base_offset for segment in source.directory.segments]
        ends = dict(pairwise(bases))
        closed = candidates(source)
        self._segments = [UploadedSegment(each.base_offset, ends[each.base_offset] - 1, each.size_bytes) for each in closed]
        self._files = {each.base_offset: each.log.name for each in closed}
        name = request.uploader.name or f"{request.host}:{source.directory.path}"
        self._uploader = replace(request.uploader, name=name)
        self._fence = UploadFence() if request.fence is None else request.fence(source)
        self._claimant = Claimant(name, self._fence.identity)
        self.told = UploadedPartition(source, self._segments, name, identity=self._fence.identity)
        self._largest = max((each.size_bytes for each in closed), default=0)

    def upload(self) -> None:
        self._result.partitions.append(self.told)
        if not self._source.can_be_tiered:
            self._say("tier-never-uploaded", Severity.NOTE, "internal and compacted topics never go to remote storage: left out")
            self._segments.clear()
            return
        if not self._segments or self._is_rejected():
            return
        for segment in self._segments:
            self._try(segment)
            if segment.action not in DONE:
                break
            self._done_to = segment.end_offset
        behind = sum(each.action is Action.BEHIND for each in self._segments)
        if behind and segment.action is not Action.WAITS:
            message = (
                f"{pluralize(behind, 'later segment')} left: behind a gap brokers take what is missing for uploaded, and delete it"
            )
            self._say("tier-upload-stopped", Severity.NOTE, message, segment.end_offset + 1)

    def _is_rejected(self) -> bool:
        """Whether the replica is no source; what cannot be told of it ends nothing."""
        if self._request.judge is None:
            return False
        path, first = self._source.directory.path, self._segments[0]
        try:
            verdict = self.told.verdict = self._request.judge(self._source)
        except (SnaprebuildError, FormatError) as error:
            self._result.findings.append(finding_of_error(error, path))
            first.action, first.why = Action.FAILED, str(error)
            return True
        self._trusted_end = trusted_end(verdict)
        refusal = rejection(verdict, path) if verdict.is_rejected else word_needed(verdict, path, Severity.REFUSED)
        if refusal is None and verdict.unknown_despite_word:
            refusal = unknown_finding(verdict, path, Severity.REFUSED)
        if refusal is None:
            return False
        why = f"the replica is {verdict}: {verdict.why}" if verdict.is_rejected else refusal.message
        first.action, first.why = Action.REFUSED, why
        self._result.findings.append(refusal)
        return True

    def _check_store(self, neighbours: Neighbours, path: str) -> None:
        """That the store is the one that brokers read, and that nothing goes up plain where the rest is encrypted."""
        copy = neighbours.elsewhere if self._done_to < 0 else None  # what this run uploaded is in no listing
        if copy is not None:
            message = (
                f"the metadata log has the finished copy {uuid_to_text(copy.segment_id)} of offsets {copy.start_offset} to "
                f"{copy.end_offset}, and STORE has no live copy of the partition: check STORE and --key-prefix"
            )
            raise UploadRefusedError(message, path=path, reason="other-store")
        encrypted = None if self._request.allow_plain else neighbours.encrypted
        if encrypted is not None:
            message = (
                f"the copy {uuid_to_text(encrypted.segment_id)} of this partition is encrypted, and this one would not be: "
                "--allow-plain uploads it all the same"
            )
            raise UploadRefusedError(message, path=path, reason="encrypted-store")

    def _check_trusted(self, segment: UploadedSegment, path: str) -> None:
        verdict, end = self.told.verdict, self._trusted_end
        if verdict is not None and end is not None and segment.end_offset >= end:
            why = next(each.ruling.evidence for each in verdict.results if each.ruling.limit == end)
            raise UploadRefusedError(
                f"ends above {end}, below which the replica is trusted: {why}", path=path, reason=ABOVE_TRUSTED
            )

    def _say(self, code: str, severity: Severity, message: str, offset: int | None = None) -> None:
        self._result.findings.append(Finding(code, severity, self._source.directory.path, message, offset))

    def _try(self, segment: UploadedSegment) -> None:
        try:
            self._segment(segment)
        except (UploadRefusedError, ChangedFileError) as error:
            reason = error.reason if isinstance(error, UploadRefusedError) else "changed"
            waits = reason in WAITING
            segment.action, segment.why = Action.WAITS if waits else Action.REFUSED, str(error)
            code, severity = ("tier-upload-waits", Severity.NOTE) if waits else ("tier-upload-refused", Severity.REFUSED)
            code = "tier-upload-stale" if reason in (STALE, CLAIM_LOST) else code
            path = error.path or self._source.directory.path
            self._result.findings.append(Finding(code, severity, path, f"{error.message} ({reason})", segment.start_offset))
        except (SnaprebuildError, FormatError) as error:
            finding = finding_of_error(error, self._source.directory.path)
            segment.action = Action.REFUSED if finding.severity in (Severity.REFUSED, Severity.DAMAGED) else Action.FAILED
            segment.why = str(error)
            self._result.findings.append(finding)

    def _segment(self, segment: UploadedSegment) -> None:
        neighbours = self._neighbours()
        target = neighbours.target
        claim = target.claim_of(segment.start_offset, segment.end_offset)
        if claim is not None:
            self._check_not_stale(claim, target.claim_location(segment.start_offset, segment.end_offset))
        is_older = claim is not None and self._fence.identity.supersedes(claim)
        is_ours = claim is not None and (self._claimant.owns(claim) or is_older)
        if claim is not None and is_ours and self._request.announcer is not None:
            self._request.announcer.check_not_deleted(claim.segment_id)
        is_named_so = claim is not None and claim.uploader == self._uploader.name
        copy = target.copies.get(claim.segment_id) if claim is not None and is_named_so else None
        if copy is None and (other := neighbours.holding(segment.start_offset, segment.end_offset)) is not None:
            self._held_by(segment, other, neighbours)
            return
        path = self._source.directory.file_path(self._files[segment.start_offset])
        if copy is None and self._is_in_the_way(segment, neighbours, path):
            return
        if claim is not None and not is_ours:
            self._claimed_by(segment, claim, neighbours)
            return
        if copy is not None and claim is not None:
            self._finished_before(segment, claim, target, path, is_older=is_older)
            return
        self._check_store(neighbours, path)
        self._check_trusted(segment, path)
        upload = self._prepare(path, self._after, self._topic_id, self._source)
        segment.upload, self._after = upload, upload.snapshot
        if self._request.is_dry_run:
            segment.action = Action.WOULD_UPLOAD
            segment.segment_id = None if claim is None or is_older else claim.segment_id
            segment.took_over = claim if is_older else None
            return
        if claim is None:
            self._prepare_writes()
            claim = claimed(target, upload, self._uploader, self._now_ms(), self._fence.identity)
            if not self._claimant.owns(claim):
                self._claimed_by(segment, claim, neighbours)
                return
        elif is_older:
            # Under a new id: whoever made the claim may be at work yet, and its objects are none of ours.
            claim = self._take_over(segment, claim, new_segment_id(), target)
        segment.segment_id = claim.segment_id
        self._prepare_writes()
        written = write_copy(target, self._request.large, upload, claim, self._uploader, self._fence)
        self._complete(segment, written, Action.UPLOADED, claim, target)

    def _finished_before(
        self, segment: UploadedSegment, claim: UploadClaim, target: UploadTarget, path: str, *, is_older: bool
    ) -> None:
        segment.segment_id = claim.segment_id
        with self._source.directory.store.open_bytes(path) as log:
            written = finished_copy(target, self._request.large, log, claim, segment.start_offset)
        if self._request.is_dry_run:
            segment.action = Action.FINISHED_BEFORE
        else:
            if is_older:
                claim = self._take_over(segment, claim, claim.segment_id, target)
            self._complete(segment, written, Action.FINISHED_BEFORE, claim, target)

    def _complete(
        self, segment: UploadedSegment, written: RemoteSegment, action: Action, claim: UploadClaim, target: UploadTarget
    ) -> None:
        """A copy is whole: brokers are told, before the next one is begun, so that at most one is unknown to them."""
        check = partial(self._fence.check, target, claim, segment.start_offset, segment.end_offset)
        check()  # an uploader that became stale tells nobody of what it did
        copy = WrittenCopy(written, self._now_ms(), check)
        self._result.copies.append(copy)
        if self._request.announcer is not None:
            segment.announced = self._request.announcer.announce(copy)
        segment.action = action
        if segment.announced is Announced.NEEDLESS:
            segment.action = Action.PRESENT
            segment.why = f"brokers read another copy by now; {uuid_to_text(written.segment_id)} is whole, and was not announced"
            self._say("tier-upload-needless", Severity.NOTE, f"{segment.why}: its objects may be deleted", segment.start_offset)

    def _take_over(self, segment: UploadedSegment, old: UploadClaim, segment_id: bytes, target: UploadTarget) -> UploadClaim:
        uploader, claimed_ms = self._uploader, old.claimed_ms if segment_id == old.segment_id else self._now_ms()
        new = self._fence.identity.signed(UploadClaim(segment_id, uploader.name, uploader.run, claimed_ms))
        self._fence.take_over(target, old, new, segment.start_offset, segment.end_offset)
        segment.took_over = old
        message = (
            f"the claim of {old.uploader!r}, run {old.run}{epoch_text(old)}, was taken over by broker epoch {new.broker_epoch}"
        )
        self._say("tier-upload-took-over", Severity.NOTE, message, segment.start_offset)
        return new

    def _check_not_stale(self, claim: UploadClaim, location: str) -> None:
        """A claim of a later registration of the same broker, or of one that may be later, is not gone on with."""
        identity, claimed_by = self._fence.identity, f"claimed by {claim.uploader!r}, run {claim.run}{epoch_text(claim)}"
        if identity.is_stale_for(claim):
            message = (
                f"{claimed_by}, and this is broker epoch {identity.broker_epoch}: a later registration of the same broker uploads"
            )
            raise UploadRefusedError(message, path=location, reason=STALE)
        if claim.uploader == self._uploader.name and identity.cannot_tell(claim):
            advice = "the clean-shutdown marker, --metadata or --broker-epoch tells"
            message = (
                f"{claimed_by}, and nothing tells under which epoch this broker runs, so that it may be an earlier one: {advice}"
            )
            raise UploadRefusedError(message, path=location, reason=UNKNOWN_EPOCH)

    def _is_in_the_way(self, segment: UploadedSegment, neighbours: Neighbours, path: str) -> bool:
        """Whether something beside a segment keeps it from going up; raises where a gap below it does."""
        offsets = segment.start_offset, segment.end_offset
        obstacle = neighbours.gap_below(segment.start_offset, self._done_to, path) or neighbours.cut_elsewhere(*offsets)
        if obstacle is None:
            if shared := neighbours.sharing(*offsets):
                copies = pluralize(len(shared), "copy", "copies")
                message = f"some of its offsets are in {copies} already, cut elsewhere, which brokers sort out"
                self._say("tier-upload-overlap", Severity.NOTE, message, segment.start_offset)
            return False
        segment.why = obstacle.why
        if obstacle.action is Action.UNVERIFIED:
            self._unverified(segment)
        else:
            segment.action = obstacle.action
            advice = "Upload from one directory, or remove that claim where its uploader is gone"
            message = f"{segment.why}; nothing was written. {advice}"
            self._say("tier-upload-claimed", Severity.FINDING, message, segment.start_offset)
        return True

    def _held_by(self, segment: UploadedSegment, copy: CompleteCopy, neighbours: Neighbours) -> None:
        segment.segment_id = copy.segment_id
        segment.why = f"the copy {uuid_to_text(copy.segment_id)} holds offsets {copy.start_offset} to {copy.end_offset}"
        if neighbours.is_live(copy):
            segment.action = Action.PRESENT
        else:
            self._unverified(segment)

    def _unverified(self, segment: UploadedSegment) -> None:
        segment.action = Action.UNVERIFIED
        self._say("tier-upload-unverified", Severity.FINDING, f"{segment.why}, and {UNVERIFIED}", segment.start_offset)

    def _prepare_writes(self) -> None:
        """Before the claim, so that a store that is not fit gets none."""
        self._request.store.prepare_writes(self._request.root)
        self._request.large.prepare_writes(self._request.root, self._largest)

    def _claimed_by(self, segment: UploadedSegment, claim: UploadClaim, neighbours: Neighbours) -> None:
        """Another uploader was first. Where it has finished, its copy is one like any other; the metadata log may not know of it yet."""
        segment.segment_id = claim.segment_id
        copy = neighbours.target.completed(segment.start_offset, claim.segment_id)
        is_whole = copy is not None and copy.end_offset >= segment.end_offset
        if copy is not None and is_whole and (neighbours.is_live(copy) or not self._request.knows_all):
            self._held_by(segment, copy, neighbours)
            return
        segment.action = Action.CLAIMED
        segment.why = f"claimed by {claim.uploader!r}, run {claim.run}"
        if is_whole:
            segment.why += ", which has finished it, and the metadata log does not say so"
        message = f"{segment.why}: nothing was written. Where that one was stopped for good, --uploader with its name goes on"
        self._say("tier-upload-claimed", Severity.FINDING, message, segment.start_offset)

    def _neighbours(self) -> Neighbours:
        """The partition in the store, listed once."""
        if self._found is None:
            request, name = self._request, self._source.directory.name
            topic_id = topic_id_of(self._source, self._topic_id)
            target = UploadTarget(request.store, request.root, request.prefix, name.topic, topic_id, name.partition)
            partition = TopicIdPartition(name.topic, topic_id, name.partition)
            if request.announcer is not None:
                request.announcer.check(partition)
            target.look()
            self._found = Neighbours(target, self._claimant, request.logs, request.knows_all, request.allow_unverified)
            self.told.topic_id = topic_id
            self.told.metadata_partition = metadata_partition(partition, request.metadata_partitions)
        return self._found
