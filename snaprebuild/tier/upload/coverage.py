"""The content of remote storage around a segment: copies that hold it, gaps below it, and claims on other ranges of its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.upload_claim import UploadClaim
from snaprebuild.errors import UploadRefusalReason, UploadRefusedError
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs
from snaprebuild.tier.remote_partition import RemoteCopy
from snaprebuild.tier.upload.fence import Uploader
from snaprebuild.tier.upload.model import UploadAction
from snaprebuild.tier.upload.target import UploadTarget, last_offset

__all__ = ["Conflict", "CoverageView"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A copy or a claim that keeps a segment from going up.

    Attributes:
        action: the result for the segment.
        reason: in words.
        advice: what the operator can do, if another uploader claims it.
    """

    action: UploadAction
    reason: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CoverageView:
    """The copies and claims of one partition, for one uploader.

    Attributes:
        target: the partition in the store, listed.
        logs: of the metadata; they may grow during the upload.
        verified: they were given, and all of them could be read: brokers read only the copies that are live there.
        allow_unverified: take every complete copy for live.
    """

    target: UploadTarget
    uploader: Uploader
    logs: RemoteLogs
    verified: bool
    allow_unverified: bool

    def is_live(self, copy: RemoteCopy) -> bool:
        """Whether brokers read a copy, or it is taken for live."""
        if not self.verified:
            return self.allow_unverified
        return self._log.is_live(copy.segment_id)

    @property
    def _log(self) -> RemoteLog:
        return self.logs.partitions.get(self.target.remote.id) or RemoteLog()

    def check_store(self, path: str, *, is_first: bool, plugin_encrypts: bool, allow_plain: bool) -> None:
        """Makes sure that brokers read this store, and that nothing goes up plain if the rest is encrypted.

        Args:
            path: of the segment, for the message.
            is_first: this run uploaded nothing yet; else the listing lacks what it uploaded.
            plugin_encrypts: the configuration of the broker says so.
            allow_plain: it may go up plain.

        Raises:
            UploadRefusedError: it is another store, or encrypted.
        """
        log = self._log
        live = [each for each in log.segments.values() if log.is_live(each.segment_id)] if is_first else []
        if live and not any(each.segment_id in self.target.remote.copies for each in live):
            copy = live[0]
            message = (
                f"the metadata log has the finished copy {uuid_to_text(copy.segment_id)} of offsets {copy.start_offset} to "
                f"{copy.end_offset}, and STORE has no live copy of the partition: check STORE and key_prefix"
            )
            raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.OTHER_STORE)
        if allow_plain:
            return
        if plugin_encrypts:
            message = (
                "the configuration of the broker has encryption.enabled=true, and this copy would not be encrypted: --allow-plain uploads "
                "it all the same"
            )
            raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.ENCRYPTED_STORE)
        encrypted = (each for each in self.target.remote.copies.values() if each.facts.key_id is not None)
        read = next((each for each in encrypted if self.is_live(each) or not self.verified), None)
        if read is not None:
            message = (
                f"the copy {uuid_to_text(read.segment_id)} of this partition is encrypted, and this one would not be: "
                "--allow-plain uploads it all the same"
            )
            raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.ENCRYPTED_STORE)

    def covering_copy(self, start_offset: int, end_offset: int) -> RemoteCopy | None:
        """A copy that holds all of a segment; one that brokers read, if that is known."""
        covering = self.target.covering(start_offset, end_offset)
        live = next((each for each in covering if self.is_live(each)), None)
        return live if live is not None or self.verified or not covering else covering[0]

    def gap_below(self, start_offset: int, done_to: int, path: str) -> Conflict | None:
        """Why it is unknown whether remote storage reaches up to a segment; None if it does.

        Args:
            start_offset: of the segment.
            done_to: last offset that this run uploaded or found there.
            path: of the segment, for the message.

        Raises:
            UploadRefusedError: it does not.
        """
        if start_offset <= done_to + 1:
            return None
        copies = list(self.target.remote.copies.values())
        sure = [each for each in copies if self.is_live(each) or self._was_ours(each)]
        below = [each for each in copies if each not in sure and each.start_offset < start_offset]
        ends = [last_offset(each) for each in sure or below]
        if not ends or (sure and start_offset <= max(ends) + 1):
            return None
        if below and not self.verified:
            return Conflict(
                UploadAction.UNVERIFIED, f"the copy {uuid_to_text(below[-1].segment_id)} is below offset {start_offset}"
            )
        if start_offset > max(ends) + 1:
            message = f"begins at {start_offset}, and remote storage ends at {max(ends)}: the offsets between would be lost"
            raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.GAP)
        return None

    def misaligned_claim(self, start_offset: int, end_offset: int) -> Conflict | None:
        """A copy or a claim of another uploader on some of the offsets, whose segments have other base offsets; None without one.

        Live copies may overlap.
        """
        unverified = [each for each in self.sharing(start_offset, end_offset) if not self.is_live(each)]
        if unverified and not self.verified:
            other = unverified[0]
            offsets = f"offsets {other.start_offset} to {last_offset(other)}, some of these"
            return Conflict(UploadAction.UNVERIFIED, f"the copy {uuid_to_text(other.segment_id)} holds {offsets}")
        for start, end in self.target.claims_across(start_offset, end_offset):
            claim = self.target.claim_of(start, end)
            if claim is None or self._is_no_other(claim) or claim.segment_id in self.target.remote.copies:
                continue
            reason = f"{claim.uploader!r}, run {claim.run}, claims offsets {start} to {end}: its segments have other base offsets"
            return Conflict(UploadAction.CLAIMED, reason, "Upload from one directory, or remove that claim if its uploader is gone")
        return None

    def sharing(self, start_offset: int, end_offset: int) -> Sequence[RemoteCopy]:
        """The copies of others that hold some of a segment, and not all of it."""
        return [each for each in self.target.sharing(start_offset, end_offset) if not self._was_ours(each)]

    def _is_no_other(self, claim: UploadClaim) -> bool:
        return self.uploader.owns(claim) or self.uploader.identity.supersedes(claim)

    def _was_ours(self, copy: RemoteCopy) -> bool:
        claim = None if copy.end_offset is None else self.target.claim_of(copy.start_offset, copy.end_offset)
        return claim is not None and claim.segment_id == copy.segment_id and self.uploader.owns(claim)
