"""The verb ``cluster image``: what a metadata log says of the cluster, and how much of that is proven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.fold import OpenMetadataTransaction
from snaprebuild.cluster.metadata.image_model import BrokerChanged, MetadataChange, MetadataImage, PartitionChanged, TopicChanged
from snaprebuild.cluster.metadata.image_reader import fold_checkpoint, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, epoch_findings, fault_findings, listing_findings, read_on
from snaprebuild.cluster.metadata.proof import CommitProof, proof_findings, prove, unproven_reason
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.published import Part

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["PROVEN", "ImageQuestion", "ImageResult", "Unproven", "metadata_image"]

PROVEN = "proven"
TOUCHED_MAX = 1000
"""Brokers and partitions that are named as changed by the unproven tail."""


@dataclass(frozen=True, slots=True)
class ImageQuestion:
    """Selects the log and the offset of the image.

    Attributes:
        location: of the metadata log.
        requested_offset: last offset to take; None for all, ``PROVEN`` for what is proven to be committed.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
    """

    location: str
    requested_offset: int | str | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None


class Unproven(Part, frozen=True):
    """The records that are not proven to be committed."""

    first_offset: int
    change_count: int
    """Changes of the cluster by these records."""
    brokers: tuple[int, ...]
    """Brokers that the unproven records change, the first thousand."""
    partitions: tuple[str, ...]
    """Partitions that they change, the first thousand; for a topic that was created or deleted, only its name."""


@dataclass(slots=True)
class _UnprovenChanges:
    """Collects the changes by records that are not proven to be committed."""

    first_offset: int
    change_count: int = 0
    brokers: set[int] = field(default_factory=set)
    partitions: set[str] = field(default_factory=set)

    def add(self, changes: Iterable[MetadataChange]) -> None:
        """Adds the changes of a batch."""
        for change in changes:
            # A record of a transaction that ends in the tail is in the image by its end alone, wherever it is itself.
            self.change_count += 1
            if isinstance(change, BrokerChanged) and len(self.brokers) < TOUCHED_MAX:
                self.brokers.add(change.node_id)
            elif isinstance(change, PartitionChanged | TopicChanged) and len(self.partitions) < TOUCHED_MAX:
                name = change.name if isinstance(change, TopicChanged) else f"{change.topic}-{change.partition}"
                self.partitions.add(name)

    def result(self) -> Unproven:
        """The changes so far."""
        return Unproven(self.first_offset, self.change_count, tuple(sorted(self.brokers)), tuple(sorted(self.partitions)))


@dataclass(frozen=True, slots=True)
class ImageResult:
    """The image of a cluster, and how much of it is proven to be committed.

    Attributes:
        path: of the log.
        image: of the cluster.
        checkpoint: that it began with, None for the beginning of the log.
        proof: how much is proven.
        unproven: the records of the image that are not proven to be committed, None if all are.
        open_transaction: that has not ended at the image's offset; nothing of it is in the image.
        findings: what is wrong.
        unknown: what of the log this version does not know.
        other_files: names in its directory that neither Kafka nor this version gives.
    """

    path: str
    image: MetadataImage
    checkpoint: MetadataCheckpoint | None
    proof: CommitProof
    unproven: Unproven | None
    open_transaction: OpenMetadataTransaction | None
    findings: tuple[Finding, ...]
    unknown: UnknownContentsCounter
    other_files: tuple[str, ...]


def metadata_image(question: ImageQuestion, run: Run) -> ImageResult:
    """Reads a metadata log and those of other voters.

    Raises:
        UsageError: a location holds no metadata log, the offset is not in it, or two logs are of one voter or of several clusters.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, run, lambda log: _image(log, question, run))


def _image(log: MetadataLog, question: ImageQuestion, run: Run) -> ImageResult:
    proof = prove(log, question.others, question.voter_ids, run)
    at = proof.proven_end_offset - 1 if question.requested_offset == PROVEN else question.requested_offset
    if at == -1 and question.requested_offset == PROVEN:
        raise UsageError(f"nothing is proven to be committed: {unproven_reason(proof)}", path=log.path)
    assert at is None or isinstance(at, int)
    begin = fold_checkpoint(log, at)
    fold = begin.fold
    unproven = _UnprovenChanges(proof.proven_end_offset)

    def take(batch: MetadataBatch) -> bool:
        is_beyond = at is not None and batch.base_offset > at
        changes = [] if is_beyond else fold.apply_batch(batch, at)
        if fold.offset >= unproven.first_offset:
            unproven.add(changes)
        return is_beyond

    findings = [
        *listing_findings(log),
        *checkpoint_findings(begin.bad_checkpoints),
        *epoch_findings(begin.checkpoint, proof.lineage),
    ]
    findings += read_on(log, begin.next_offset, take, at)
    if at is not None and fold.offset < at and not any(finding.severity is Severity.DAMAGED for finding in findings):
        raise UsageError(f"the log ends before offset {at}: its last one is {fold.offset}", path=log.path)
    findings += fault_findings(log, fold)
    findings += proof_findings(log, proof, fold.offset, reported=findings)
    return ImageResult(
        path=log.path,
        image=fold.image(),
        checkpoint=begin.checkpoint,
        proof=proof,
        unproven=unproven.result() if fold.offset >= proof.proven_end_offset else None,
        open_transaction=fold.open_transaction,
        findings=tuple(findings),
        unknown=log.unknown,
        other_files=log.other_files,
    )
