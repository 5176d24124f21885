"""What an upload to remote storage came to: each closed segment, each partition, and the copies of which brokers are to be told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from formats.errors import FormatError
from formats.remote.upload_claim import UploadClaim
from snaprebuild.cluster.source.verdict import SourceVerdict
from snaprebuild.errors import SnaprebuildError, UploadRefusedError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.tier.upload.announce import Announced
from snaprebuild.tier.upload.fence import NOBODY, BrokerIdentity
from snaprebuild.tier.upload.prepared_upload import PreparedUpload
from snaprebuild.tier.upload.records import WrittenCopy

__all__ = ["DONE", "Action", "TierUpload", "UploadedPartition", "UploadedSegment"]


class Action(StrEnum):
    """What became of a segment."""

    UPLOADED = "uploaded"
    """By this run."""
    WOULD_UPLOAD = "would-upload"
    """With ``--dry-run``."""
    FINISHED_BEFORE = "finished-before"
    """By an earlier run of this uploader; its records are told again, to a topic only what it lacks."""
    PRESENT = "present"
    """A complete copy of somebody else holds all of its offsets: brokers read it, or it is to be taken for such."""
    UNVERIFIED = "unverified"
    """So does one of which nobody tells that brokers read it: a broker that died while it uploaded leaves such. Nothing was written."""
    CLAIMED = "claimed"
    """Another uploader is at it, or was stopped; nothing was written."""
    WAITS = "waits"
    """It ends above the high watermark or the last stable offset."""
    REFUSED = "refused"
    """It may not be uploaded as it is."""
    FAILED = "failed"
    """The storage failed, or it is not known what became of an object."""
    BEHIND = "behind"
    """It lies behind one that was not uploaded."""


DONE = (Action.UPLOADED, Action.WOULD_UPLOAD, Action.FINISHED_BEFORE, Action.PRESENT)
"""Behind these the next segment is looked at."""


@dataclass(slots=True)
class UploadedSegment:
    """One closed segment.

    Attributes:
        start_offset: of it.
        end_offset: last offset.
        size_bytes: of the segment.
        action: what became of it.
        why: a sentence, where more is to be told.
        segment_id: of the copy, where it is known.
        upload: what was sent; None where it was not looked at, or refused.
        took_over: the claim of an earlier registration of the same broker that this run took over, or would.
        announced: how brokers know of the copy; None where this run told nobody.
    """

    start_offset: int
    end_offset: int
    size_bytes: int
    action: Action = Action.BEHIND
    why: str = ""
    segment_id: bytes | None = None
    upload: PreparedUpload | None = None
    took_over: UploadClaim | None = None
    announced: Announced | None = None


@dataclass(slots=True)
class UploadedPartition:
    """One partition.

    Attributes:
        source: it.
        segments: its closed segments, ascending.
        uploader: name in claims.
        topic_id: 16 bytes; None where nothing was looked at.
        metadata_partition: that holds its records.
        identity: whose log it is, as claims have it.
        verdict: on the replica as a source; None where nobody asked.
    """

    source: PartitionSource
    segments: list[UploadedSegment]
    uploader: str
    topic_id: bytes | None = None
    metadata_partition: int | None = None
    identity: BrokerIdentity = NOBODY
    verdict: SourceVerdict | None = None


@dataclass(slots=True)
class TierUpload:
    """What an upload came to.

    Attributes:
        partitions: in the order of their paths.
        copies: that are complete and ours, in the order in which they were written.
        findings: what stood in the way.
    """

    partitions: list[UploadedPartition] = field(default_factory=list)
    copies: list[WrittenCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def confirm(self) -> list[WrittenCopy]:
        """Asks once more, right before records are told, whether each copy is still ours; those that are not become findings, and go."""
        kept = []
        for copy in self.copies:
            try:
                if copy.check is not None:
                    copy.check()
                kept.append(copy)
            except (SnaprebuildError, FormatError) as error:
                finding = finding_of_error(error, "")
                self.findings.append(
                    replace(finding, code="tier-upload-stale") if isinstance(error, UploadRefusedError) else finding
                )
        self.copies = kept
        return kept
