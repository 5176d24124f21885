"""The copies of a store and the verdicts on their snapshots, as the document of ``tier audit`` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from formats.remote.object_names import AivenObject, LocalTierFile
from snaprebuild.published import Inode, Int64, Natural, Part, Sha256, Uuid, one_of
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.store import FileIdentity
from snaprebuild.tier.audit.partition_audit import DifferingProducer, ProofKind, SnapshotVerdict

__all__ = ["IDENTIFYING", "AuditTotals", "AuditedCopy", "AuditedObject", "AuditedPartition", "identity_text"]


IDENTIFYING: dict[TierLayout, tuple[str, ...]] = {
    TierLayout.AIVEN: (AivenObject.LOG, AivenObject.INDEXES, AivenObject.MANIFEST),
    TierLayout.LOCAL_TIERED_STORAGE: (LocalTierFile.LOG, LocalTierFile.PRODUCER_SNAPSHOT),
}
"""Kinds of the objects that hold the segment, and its snapshot."""


class AuditTotals(Part, frozen=True, rename="kebab"):
    """Snapshots by verdict."""

    right: Natural
    unproven: Natural
    suspect: Natural
    false_empty: Natural
    zero_bytes: Natural
    corrupt: Natural
    missing_producers: Natural
    wrong: Natural
    unreachable: Natural
    reach_unknown: Natural
    not_read: Natural
    consistent: Natural = 0
    """Absent in documents of earlier versions."""


class AuditedObject(Part, frozen=True):
    """An object of a copy as it was listed: `tier repair --audit` compares it with the one that is there."""

    suffix: Annotated[str, one_of(*(kind for kinds in IDENTIFYING.values() for kind in kinds))]
    """Ending of its name, which shows what it holds."""
    size_bytes: Natural
    modified_ns: Int64
    """Modification time, nanoseconds since 1970."""
    inode: Inode
    """Inode of a file; 0 for an object."""
    etag: str | None
    """ETag of an object; null for a file."""

    @classmethod
    def of(cls, suffix: str, identity: FileIdentity) -> AuditedObject:
        """The object with an ending and an identity."""
        return cls(
            suffix=str(suffix),
            size_bytes=identity.size_bytes,
            modified_ns=identity.modified_ns,
            inode=identity.inode,
            etag=identity.etag,
        )

    def is_same(self, identity: FileIdentity) -> bool:
        """Whether an object is still this one. Times of objects are rounded differently by each request."""
        if self.etag is None or identity.etag is None:
            return AuditedObject.of(self.suffix, identity) == self
        return (self.size_bytes, self.etag) == (identity.size_bytes, identity.etag)

    @property
    def text(self) -> str:
        """Size and identity, for messages."""
        return identity_text(FileIdentity(self.size_bytes, self.modified_ns, self.inode, self.etag))


def identity_text(identity: FileIdentity) -> str:
    """Size and identity of a file or an object, for messages."""
    mark = f"modified at {identity.modified_ns} ns, inode {identity.inode}" if identity.etag is None else f"ETag {identity.etag}"
    return f"{identity.size_bytes} bytes, {mark}"


class AuditedCopy(Part, frozen=True):
    """A copy of a segment and its snapshot."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    verdict: SnapshotVerdict
    """Verdict on its snapshot (docs/guides/remote-storage.md)."""
    reason: str
    """Reason of the verdict, for the user; not stable."""
    entries: Natural | None
    """Producers in the snapshot; null if it was not compared."""
    expected_entries: Natural | None
    """Producers by replay; null if it was not compared."""
    difference_count: Natural
    """Producers that differ."""
    differences: Sequence[DifferingProducer]
    """The first 1,000, the certain ones first; at most 10,000 in a run."""
    proof_kind: ProofKind | None = None
    """Kind of its proof, with --ledger; null without one."""
    proven_ms: Natural | None = None
    """When its segment was read for that proof, milliseconds since 1970; null without one."""
    objects: Sequence[AuditedObject] = ()
    """Its segment, and what holds its snapshot. Absent in documents of earlier versions, as the next ones."""
    is_damaged: bool = False
    """Its objects are damaged, or some are gone."""
    is_exact: bool = False
    """Its snapshot has every entry of the replay, also expired ones: the replay of the next copy may begin with it."""
    right_sha256: Sha256 | None = None
    """SHA-256 of the right snapshot, if its own is wrong and the segments prove the right one; else null."""
    unproven_reason: str = ""
    """Why the right snapshot is not proven; empty if it is, or if its own is not wrong. Not stable."""


class AuditedPartition(TopicPartition, frozen=True):
    """A partition in remote storage and its snapshots."""

    topic_id: Uuid
    layout: TierLayout
    read_bytes: Natural
    """Bytes of segments that were read."""
    records_read: Natural | None
    """Records that were decoded, control records included, with --level records; null at other levels."""
    replayed_from_offset: Natural | None
    """Base offset of the first segment that had to be read; null if there was none."""
    local_log_start_offset: Natural | None
    """First offset on the leader's disk, by --local-log-start or --log-dir; null without them."""
    totals: AuditTotals
    copies: Sequence[AuditedCopy]
    """Live copies, or complete ones if that is unknown; by start offset."""
    damaged_from_offset: Natural | None = None
    """Least offset at which something is damaged or could not be read; null without any, and in documents of earlier versions."""
