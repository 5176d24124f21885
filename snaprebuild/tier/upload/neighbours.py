"""What lies beside a segment in remote storage: copies that hold it, gaps below it, and somebody else whose segments are cut elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from formats.remote.upload_claim import UploadClaim
from snaprebuild.errors import UploadRefusedError
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.upload.fence import Claimant
from snaprebuild.tier.upload.result import Action
from snaprebuild.tier.upload.target import CompleteCopy, UploadTarget

__all__ = ["Neighbours", "Obstacle"]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why nothing of a segment is written.

    Attributes:
        action: what becomes of it.
        why: a sentence.
    """

    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The copies and claims of one partition, as one uploader sees them.

    Attributes:
        target: the partition in the store, looked at.
        claimant: the uploader.
        logs: what the metadata logs say, which may be more as the upload goes on.
        knows_all: they were given, and all of them could be read: what they do not call live no broker reads.
        allow_unverified: take every complete copy for one that brokers read.
    """

    target: UploadTarget
    claimant: Claimant
    logs: RemoteLogs
    knows_all: bool
    allow_unverified: bool

    def is_live(self, copy: CompleteCopy) -> bool:
        """Whether brokers read a copy, or it is to be taken for such."""
        if not self.knows_all:
            return self.allow_unverified
        target = self.target
        log = self.logs.partitions.get(TopicIdPartition(target.topic, target.topic_id, target.partition))
        return log is not None and log.is_live(copy.segment_id)

    @property
    def encrypted(self) -> CompleteCopy | None:
        """A copy that the plugin encrypted and that brokers may read."""
        found = (each for each in self.target.copies.values() if each.is_encrypted)
        return next((each for each in found if self.is_live(each) or not self.knows_all), None)

    @property
    def elsewhere(self) -> RemoteSegment | None:
        """A live copy of the partition, by the metadata log, where the store has none of them."""
        target = self.target
        log = self.logs.partitions.get(TopicIdPartition(target.topic, target.topic_id, target.partition))
        live = [] if log is None else [each for each in log.segments.values() if log.is_live(each.segment_id)]
        is_here = any(each.segment_id in target.copies for each in live)
        return None if is_here or not live else live[0]

    def holding(self, start_offset: int, end_offset: int) -> CompleteCopy | None:
        """A copy that holds all of a segment; where the metadata log tells, one that brokers read."""
        held = self.target.covering(start_offset, end_offset)
        live = next((each for each in held if self.is_live(each)), None)
        return live if live is not None or self.knows_all or not held else held[0]

    def gap_below(self, start_offset: int, done_to: int, path: str) -> Obstacle | None:
        """Why nobody knows that remote storage reaches up to a segment; None where it does.

        Args:
            start_offset: of the segment.
            done_to: last offset that this run has seen there.
            path: of the segment, for the message.

        Raises:
            UploadRefusedError: it does not.
        """
        if start_offset <= done_to + 1:
            return None
        copies = list(self.target.copies.values())
        sure = [each for each in copies if self.is_live(each) or self._was_ours(each)]
        below = [each for each in copies if each not in sure and each.start_offset < start_offset]
        ends = [each.end_offset for each in sure or below]
        if not ends or (sure and start_offset <= max(ends) + 1):
            return None
        if below and not self.knows_all:
            return Obstacle(Action.UNVERIFIED, f"below offset {start_offset} lies the copy {uuid_to_text(below[-1].segment_id)}")
        if start_offset > max(ends) + 1:
            message = f"begins at {start_offset}, and remote storage ends at {max(ends)}: what lies between would be lost"
            raise UploadRefusedError(message, path=path, reason="gap")
        return None

    def cut_elsewhere(self, start_offset: int, end_offset: int) -> Obstacle | None:
        """Somebody else who is at a segment, and whose own begin at other offsets, so that claims do not meet; None where nobody is.

        Live copies may overlap.
        """
        doubtful = [each for each in self.sharing(start_offset, end_offset) if not self.is_live(each)]
        if doubtful and not self.knows_all:
            other = doubtful[0]
            offsets = f"offsets {other.start_offset} to {other.end_offset}, some of these"
            return Obstacle(Action.UNVERIFIED, f"the copy {uuid_to_text(other.segment_id)} holds {offsets}")
        for start, end in self.target.claims_across(start_offset, end_offset):
            claim = self.target.claim_of(start, end)
            if claim is None or self._is_no_other(claim) or claim.segment_id in self.target.copies:
                continue
            why = f"{claim.uploader!r}, run {claim.run}, claims offsets {start} to {end}: its segments are cut elsewhere"
            return Obstacle(Action.CLAIMED, why)
        return None

    def sharing(self, start_offset: int, end_offset: int) -> list[CompleteCopy]:
        """The copies of others that hold some of a segment, and not all of it."""
        return [each for each in self.target.sharing(start_offset, end_offset) if not self._was_ours(each)]

    def _is_no_other(self, claim: UploadClaim) -> bool:
        return self.claimant.owns(claim) or self.claimant.identity.supersedes(claim)

    def _was_ours(self, copy: CompleteCopy) -> bool:
        claim = self.target.claim_of(copy.start_offset, copy.end_offset) if copy.end_offset >= 0 else None
        return claim is not None and claim.segment_id == copy.segment_id and self.claimant.owns(claim)
