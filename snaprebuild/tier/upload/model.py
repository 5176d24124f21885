"""The request for an upload to remote storage, and its result: for each rolled segment, each partition, and the copies to announce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from msgspec.structs import replace

from formats.errors import FormatError
from formats.remote.upload_claim import UploadClaim
from snaprebuild.broker.status import Status, status_of
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.errors import SnaprebuildError, UploadRefusedError
from snaprebuild.findings import Finding, finding_of_error, unread_paths
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot, ReplayOptions
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.validated_snapshot import Validity
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.upload.announce import Announcement, Announcer, WrittenCopy
from snaprebuild.tier.upload.fence import UNKNOWN_BROKER, BrokerIdentity, Uploader, UploadFence
from snaprebuild.tier.upload.prepare import PreparedUpload

__all__ = ["DONE", "PartitionUpload", "Prepare", "SegmentUpload", "StoreUpload", "UploadAction", "UploadRequest"]


class Prepare(Protocol):
    """Puts together what belongs to a segment (``snaprebuild.prepare_upload``)."""

    def __call__(self, log: str, after: EnsuredSnapshot | None, topic_id: str | None, source: PartitionSource) -> PreparedUpload:
        """Raises what that raises."""
        ...


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """The target and the conditions of an upload.

    Attributes:
        root: of the store to upload to, absolute.
        key_prefix: ``key.prefix``, below it.
        uploader: its name, if it has none, is made of the host and the directory, for each partition.
        host: name of this machine.
        topic_ids: Kafka's text of them by topic, if directories do not have them.
        metadata_partitions: of ``__remote_log_metadata``.
        dry_run: nothing is written.
        logs: of the metadata.
        verified: they were given, and all of them could be read: brokers read only the copies that are live there.
        allow_unverified: take every complete copy for live.
        plugin_encrypts: the configuration of the broker says so.
        allow_plain: upload without encryption where the plugin encrypts, or has encrypted copies of the partition.
        judge: whether a replica may be uploaded; None to ask nothing.
        refuse: why the producers of a replica, or of the snapshot of a segment, keep it from remote storage, as a finding, or
            None; None to ask nothing.
        fence: who uploads a partition, by its broker's registration, and how that is read again; None for no particular broker.
        announcer: announces copies to brokers; None if others do that.
        replay: how the log is replayed that the snapshots of present copies are compared with; None to compare none.
    """

    root: StorePath
    key_prefix: str
    uploader: Uploader
    host: str
    topic_ids: dict[str, str]
    metadata_partitions: int
    dry_run: bool
    logs: RemoteLogs = field(default_factory=RemoteLogs)
    verified: bool = False
    allow_unverified: bool = False
    plugin_encrypts: bool = False
    allow_plain: bool = False
    judge: Callable[[PartitionSource], SourceVerdict] | None = None
    refuse: Callable[[PartitionSource, bytes | None], Finding | None] | None = None
    fence: Callable[[PartitionSource], UploadFence] | None = None
    announcer: Announcer | None = None
    replay: ReplayOptions | None = None


class UploadAction(StrEnum):
    """The result for a segment."""

    UPLOADED = "uploaded"
    """Uploaded by this run."""
    WOULD_UPLOAD = "would-upload"
    """Dry run: the run itself would upload it."""
    FINISHED_BEFORE = "finished-before"
    """By an earlier run of this uploader; its records are written again, to a topic only those that it lacks."""
    PRESENT = "present"
    """A complete copy of another uploader holds all of its offsets: brokers read it, or it is taken for live."""
    UNVERIFIED = "unverified"
    """A copy that brokers may not read holds all of its offsets: a broker that died during an upload leaves such. Nothing was written."""
    CLAIMED = "claimed"
    """Another uploader writes it, or was stopped; nothing was written."""
    WAITS = "waits"
    """The segment ends above the high watermark or the last stable offset."""
    REFUSED = "refused"
    """The segment may not be uploaded as it is."""
    FAILED = "failed"
    """The storage failed, or whether an object was written is unknown."""
    HELD_BACK = "held-back"
    """The segment follows one that was not uploaded."""


WRONG_COPIES = (Validity.FALSE_EMPTY, Validity.MISSING_PRODUCERS, Validity.WRONG, Validity.CORRUPT)
"""Results of a comparison that make the snapshot of a present copy a wrong one."""

DONE = (UploadAction.UPLOADED, UploadAction.WOULD_UPLOAD, UploadAction.FINISHED_BEFORE, UploadAction.PRESENT)
"""After these the next segment is uploaded."""


@dataclass(slots=True)
class SegmentUpload:
    """One rolled segment.

    Attributes:
        segment_bytes: size of the .log file.
        reason: of the action, if it needs one.
        segment_id: of the copy, if known.
        upload: what was sent; None if it was not reached, or refused.
        took_over: the claim of an earlier registration of the same broker that this run took over, or would.
        announced: how brokers know of the copy; None if this run announced nothing.
        compared: what this log shows of the snapshot of a copy that is present; None if it was not compared.
    """

    start_offset: int
    end_offset: int
    segment_bytes: int
    action: UploadAction = UploadAction.HELD_BACK
    reason: str = ""
    segment_id: bytes | None = None
    upload: PreparedUpload | None = None
    took_over: UploadClaim | None = None
    announced: Announcement | None = None
    compared: Validity | None = None

    @property
    def offsets(self) -> tuple[int, int]:
        """First and last."""
        return self.start_offset, self.end_offset

    def end(self, action: UploadAction, reason: str = "") -> None:
        """Records the result and its reason."""
        self.action = action
        self.reason = reason


@dataclass(slots=True)
class PartitionUpload:
    """One partition.

    Attributes:
        segments: the rolled ones, ascending.
        uploader: name in claims.
        topic_id: 16 bytes; None if the run did not get that far.
        metadata_partition: that holds its records.
        identity: whose log it is, as claims have it.
        verdict: on the replica as a source; None if none was asked for.
    """

    source: PartitionSource
    segments: list[SegmentUpload]
    uploader: str
    topic_id: bytes | None = None
    metadata_partition: int | None = None
    identity: BrokerIdentity = UNKNOWN_BROKER
    verdict: SourceVerdict | None = None


@dataclass(slots=True)
class StoreUpload:
    """The result of an upload.

    Attributes:
        partitions: in the order of their paths.
        copies: that are complete and ours, in the order in which they were written.
    """

    partitions: list[PartitionUpload] = field(default_factory=list)
    copies: list[WrittenCopy] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def has_present(self) -> bool:
        """Whether copies of others hold segments of this log."""
        present = (UploadAction.PRESENT, UploadAction.UNVERIFIED)
        return any(segment.action in present for partition in self.partitions for segment in partition.segments)

    def status(self, findings: Sequence[Finding]) -> Status:
        """The counts of the upload.

        Args:
            findings: of the command.
        """
        segments = [segment for partition in self.partitions for segment in partition.segments]
        return status_of(
            (),
            wrong=sum(segment.compared in WRONG_COPIES for segment in segments),
            suspect=0,
            missing=0,
            waiting=sum(segment.action is UploadAction.WAITS for segment in segments),
            unread=len(unread_paths(findings)),
        )

    def confirm(self) -> list[WrittenCopy]:
        """Checks again, right before records are written, that each copy is still ours; those that are not become findings, and go."""
        confirmed = []
        for copy in self.copies:
            try:
                if copy.check is not None:
                    copy.check()
                confirmed.append(copy)
            except (SnaprebuildError, FormatError) as error:
                finding = finding_of_error(error, "")
                if isinstance(error, UploadRefusedError):
                    finding = replace(finding, code="tier-upload-stale")
                self.findings.append(finding)
        self.copies = confirmed
        return confirmed
