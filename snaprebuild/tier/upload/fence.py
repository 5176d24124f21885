"""Keeps an uploader from finishing what a newer registration of the same broker has taken over (KIP-903).

A claim holds node id, directory id and broker epoch. Epochs of one broker only grow; those of different brokers cannot be compared.
Before the object that completes a copy, and before its records are announced, both are read again: the epoch of the broker and the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.remote.upload_claim import CLAIM_BYTES_MAX, UploadClaim, read_claim, write_claim
from snaprebuild.errors import RefusedError, UploadRefusalReason, UploadRefusedError
from snaprebuild.tier.upload.target import UploadTarget

__all__ = ["UNKNOWN_BROKER", "BrokerIdentity", "UploadFence", "Uploader", "epoch_text"]


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The broker whose log is uploaded, and its registration; None if unknown.

    Attributes:
        node_id: int32.
        directory_id: 16 bytes.
        broker_epoch: int64.
    """

    node_id: int | None = None
    directory_id: bytes | None = None
    broker_epoch: int | None = None

    def supersedes(self, claim: UploadClaim) -> bool:
        """Whether a claim is of an earlier registration of the same broker."""
        return self._epoch_beyond(claim) > 0

    def is_stale_for(self, claim: UploadClaim) -> bool:
        """Whether it is of a later one."""
        return self._epoch_beyond(claim) < 0

    def may_be_stale_for(self, claim: UploadClaim) -> bool:
        """Whether a claim may be of a later registration of the same broker: that of this one is unknown."""
        is_same_broker = self.node_id is None or claim.node_id in (None, self.node_id)
        return self.broker_epoch is None and claim.broker_epoch is not None and is_same_broker

    def _epoch_beyond(self, claim: UploadClaim) -> int:
        if self.node_id is None or claim.node_id != self.node_id or self.broker_epoch is None or claim.broker_epoch is None:
            return 0
        return self.broker_epoch - claim.broker_epoch


UNKNOWN_BROKER = BrokerIdentity()


@dataclass(frozen=True, slots=True)
class Uploader:
    """The uploader and its settings.

    Attributes:
        name: by which a later run knows its own claims.
        run_name: random name of this run.
        chunk_bytes: ``chunk.size`` of the plugin, bytes.
        node_id: that the records have.
        identity: whose log is uploaded.
    """

    name: str
    run_name: str
    chunk_bytes: int
    node_id: int
    identity: BrokerIdentity = UNKNOWN_BROKER

    def claim(self, segment_id: bytes, claimed_ms: int) -> UploadClaim:
        """A claim of this uploader."""
        identity = self.identity
        claim = UploadClaim(segment_id, self.name, self.run_name, claimed_ms)
        return replace(claim, node_id=identity.node_id, directory_id=identity.directory_id, broker_epoch=identity.broker_epoch)

    def owns(self, claim: UploadClaim) -> bool:
        """Whether a claim is of this uploader, and of the same registration of the broker, as far as the claim has one."""
        identity = self.identity
        is_other_epoch = identity.supersedes(claim) or identity.is_stale_for(claim) or identity.may_be_stale_for(claim)
        return claim.uploader == self.name and not is_other_epoch

    def check_not_stale(self, claim: UploadClaim, location: str) -> None:
        """Makes sure that a claim is not of a later registration of the same broker, or of one that may be later.

        Raises:
            UploadRefusedError: it is.
        """
        identity = self.identity
        claimed_by = f"claimed by {claim.uploader!r}, run {claim.run}{epoch_text(claim)}"
        if identity.is_stale_for(claim):
            message = (
                f"{claimed_by}, and this is broker epoch {identity.broker_epoch}: a later registration of the same broker uploads"
            )
            raise UploadRefusedError(message, path=location, reason=UploadRefusalReason.STALE_BROKER_EPOCH)
        if claim.uploader == self.name and identity.may_be_stale_for(claim):
            advice = "give --metadata or --broker-epoch, or stop the broker cleanly"
            message = f"{claimed_by}, and the epoch of this broker is unknown, so that it may be an earlier one: {advice}"
            raise UploadRefusedError(message, path=location, reason=UploadRefusalReason.UNKNOWN_BROKER_EPOCH)


@dataclass(frozen=True, slots=True)
class UploadFence:
    """Checks before the steps that complete the upload of a partition.

    Attributes:
        identity: of the uploader.
        epoch_now: reads the broker epoch again; gives None if it is unknown now.
    """

    identity: BrokerIdentity = UNKNOWN_BROKER
    epoch_now: Callable[[], int | None] | None = None

    def check_epoch(self, path: str) -> None:
        """Makes sure that the broker did not register, or start, since the run began.

        Args:
            path: for the message.

        Raises:
            UploadRefusedError: it did.
            StorageError, FormatError: it is unknown.
        """
        epoch = self.identity.broker_epoch
        if epoch is None or self.epoch_now is None:
            return
        now = self.epoch_now()
        if now != epoch:
            if now is None:
                since = "is unknown now: the broker was started"
            else:
                since = f"is {now} now: the broker registered again"
            message = f"the broker epoch was {epoch} when the upload began, and {since}"
            raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.STALE_BROKER_EPOCH)

    def check(self, target: UploadTarget, claim: UploadClaim, start_offset: int, end_offset: int) -> None:
        """Makes sure that epoch and claim are still ours.

        Args:
            target: the partition in the store.
            claim: as we made or took it.
            start_offset: of the segment.
            end_offset: last offset of it.

        Raises:
            UploadRefusedError: they are not.
            StorageError, FormatError: it is unknown.
        """
        location = target.claim_file(start_offset, end_offset).path
        self.check_epoch(location)
        current = target.claim_of(start_offset, end_offset)
        if current != claim:
            if current is None:
                now = "is gone"
            else:
                now = f"was taken over by {current.uploader!r}, run {current.run}{epoch_text(current)}"
            message = f"the claim {now}: this copy is not completed"
            raise UploadRefusedError(message, path=location, reason=UploadRefusalReason.CLAIM_LOST)

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
        file = target.claim_file(start_offset, end_offset)
        location = file.path
        self.check_epoch(location)
        target.remote.base.prepare_replacing()
        current = file.read_whole(CLAIM_BYTES_MAX)
        try:
            if current is None or read_claim(current.data, file=location) != old:
                raise RefusedError("changed while it was to be taken over (another program writes here): run again", path=location)
        except FormatError as error:
            raise RefusedError(error.message, path=location) from error
        file.replace(write_claim(new), current)


def epoch_text(claim: UploadClaim) -> str:
    """The broker of a claim, for a sentence."""
    return "" if claim.broker_epoch is None else f" (node {claim.node_id}, broker epoch {claim.broker_epoch})"
