"""Keeps an uploader from finishing what a newer registration of the same broker has taken over (KIP-903).

A claim holds node id, directory id and broker epoch. Epochs of one broker only grow; those of different brokers say nothing of each other.
Before the object that completes a copy, and before its records are told, both are read again: the epoch of the broker and the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.remote.upload_claim import CLAIM_BYTES_MAX, UploadClaim, read_claim, write_claim
from snaprebuild.errors import RefusedError, UploadRefusedError
from snaprebuild.storage.stores import replacing
from snaprebuild.tier.upload.target import UploadTarget

__all__ = ["CLAIM_LOST", "STALE", "UNKNOWN_EPOCH", "BrokerIdentity", "Claimant", "UploadFence", "epoch_text"]

STALE = "stale-broker-epoch"
"""Reason of ``UploadRefusedError``: the broker registered again since; likewise ``claim-lost``."""
CLAIM_LOST = "claim-lost"
UNKNOWN_EPOCH = "unknown-broker-epoch"
"""Likewise: the claim of this uploader has a broker epoch, and nothing tells whether this run is of an earlier one."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Whose log is uploaded, and under which registration; None where nothing tells.

    Attributes:
        node_id: int32.
        directory_id: 16 bytes.
        broker_epoch: int64.
    """

    node_id: int | None = None
    directory_id: bytes | None = None
    broker_epoch: int | None = None

    def signed(self, claim: UploadClaim) -> UploadClaim:
        """A claim with this identity in it."""
        return replace(claim, node_id=self.node_id, directory_id=self.directory_id, broker_epoch=self.broker_epoch)

    def supersedes(self, claim: UploadClaim) -> bool:
        """Whether a claim is of an earlier registration of the same broker."""
        return self._epoch_beyond(claim) > 0

    def is_stale_for(self, claim: UploadClaim) -> bool:
        """Whether it is of a later one."""
        return self._epoch_beyond(claim) < 0

    def cannot_tell(self, claim: UploadClaim) -> bool:
        """Whether a claim may be of a later registration of the same broker, and nothing tells under which one this is."""
        is_same_broker = self.node_id is None or claim.node_id in (None, self.node_id)
        return self.broker_epoch is None and claim.broker_epoch is not None and is_same_broker

    def _epoch_beyond(self, claim: UploadClaim) -> int:
        if self.node_id is None or claim.node_id != self.node_id or self.broker_epoch is None or claim.broker_epoch is None:
            return 0
        return self.broker_epoch - claim.broker_epoch


NOBODY = BrokerIdentity()


@dataclass(frozen=True, slots=True)
class Claimant:
    """An uploader, as claims name it.

    Attributes:
        name: by which a later run knows that it may go on.
        identity: whose log it uploads.
    """

    name: str
    identity: BrokerIdentity = NOBODY

    def owns(self, claim: UploadClaim) -> bool:
        """Whether a claim is of this uploader, and of the same registration of the broker, as far as the claim tells one."""
        identity = self.identity
        is_other_epoch = identity.supersedes(claim) or identity.is_stale_for(claim) or identity.cannot_tell(claim)
        return claim.uploader == self.name and not is_other_epoch


@dataclass(frozen=True, slots=True)
class UploadFence:
    """What one partition is uploaded behind.

    Attributes:
        identity: of the uploader.
        epoch_now: reads the broker epoch again, None where nothing tells any more.
    """

    identity: BrokerIdentity = NOBODY
    epoch_now: Callable[[], int | None] | None = None

    def check_epoch(self, path: str) -> None:
        """Makes sure that the broker did not register, or start, since the run began.

        Args:
            path: for the message.

        Raises:
            UploadRefusedError: it did.
            StorageError, FormatError: it cannot be told.
        """
        epoch = self.identity.broker_epoch
        if epoch is None or self.epoch_now is None:
            return
        now = self.epoch_now()
        if now != epoch:
            told = (
                "nothing tells it any more: the broker was started" if now is None else f"it is {now}: the broker registered again"
            )
            raise UploadRefusedError(f"the broker epoch was {epoch} when the upload began, and {told}", path=path, reason=STALE)

    def check(self, target: UploadTarget, claim: UploadClaim, start_offset: int, end_offset: int) -> None:
        """Makes sure that epoch and claim are still ours.

        Args:
            target: the partition in the store.
            claim: as we made or took it.
            start_offset: of the segment.
            end_offset: last offset of it.

        Raises:
            UploadRefusedError: they are not.
            StorageError, FormatError: it cannot be told.
        """
        location = target.claim_location(start_offset, end_offset)
        self.check_epoch(location)
        found = target.claim_of(start_offset, end_offset)
        if found != claim:
            now = "is gone" if found is None else f"was taken over by {found.uploader!r}, run {found.run}{epoch_text(found)}"
            raise UploadRefusedError(f"the claim {now}: this copy is not completed", path=location, reason=CLAIM_LOST)

    def take_over(self, target: UploadTarget, old: UploadClaim, new: UploadClaim, start_offset: int, end_offset: int) -> None:
        """Replaces the claim of an earlier registration, if it is still that.

        Args:
            target: the partition in the store.
            old: as it was read.
            new: that takes its place.
            start_offset: of the segment.
            end_offset: last offset of it.

        Raises:
            RefusedError: it is another one now; it was not touched.
            StorageError: it cannot be replaced, or it is not known.
        """
        assert self.identity.supersedes(old), "only a newer epoch of the same broker takes a claim over"
        location = target.claim_location(start_offset, end_offset)
        self.check_epoch(location)
        store = replacing(target.store)
        store.prepare(target.root)
        found = store.read_whole(location, CLAIM_BYTES_MAX)
        try:
            if found is None or read_claim(found.data, file=location) != old:
                raise RefusedError("changed while it was to be taken over (somebody is at work here): run again", path=location)
        except FormatError as error:
            raise RefusedError(error.message, path=location) from error
        store.replace(location, write_claim(new), found)


def epoch_text(claim: UploadClaim) -> str:
    """The broker of a claim, for a sentence."""
    return "" if claim.broker_epoch is None else f" (node {claim.node_id}, broker epoch {claim.broker_epoch})"
