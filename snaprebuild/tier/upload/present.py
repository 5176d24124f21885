"""Compares the snapshots of copies that are present with the log that the upload reads: one small request for each copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import read_entries
from formats.remote.object_names import LocalTierFile
from snaprebuild.errors import RefusedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.engine.partition_replay import ReplayCheckpoint
from snaprebuild.snapshots.ensure_snapshot import BoundaryRequest, ReplayOptions, replay_to_boundary, run_of
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.validated_snapshot import ValidatedSnapshot, Validity
from snaprebuild.tier.remote_partition import RemoteCopy
from snaprebuild.tier.upload.model import SegmentUpload
from snaprebuild.tier.upload.target import UploadTarget, last_offset

__all__ = ["PresentCopies"]

DECIDES = "snaprebuild tier audit compares them with the other copies"


@dataclass(slots=True)
class PresentCopies:
    """The copies of others that hold segments of one partition.

    Attributes:
        source: the partition on disk.
        options: how its log is replayed; None to compare nothing.
        refuse: as of ``UploadRequest``: the refusal of a snapshot with producer ids that the cluster has yet to give out; None to
            compare none.
        segments: that are present, with the copy of each; None where it was not listed.
        findings: of the comparison.
    """

    source: PartitionSource
    options: ReplayOptions | None
    refuse: Callable[[PartitionSource, bytes | None], Finding | None] | None = None
    segments: list[tuple[SegmentUpload, RemoteCopy | None]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _left: dict[str, int] = field(default_factory=dict)
    _point: ReplayCheckpoint | None = None
    _foreign: Finding | None = None

    def compare(self, target: UploadTarget) -> None:
        """Compares them in the order of their ends, so that each segment is read once, and adds the findings."""
        if not self.segments:
            return
        bases = set(self.source.directory.base_offsets[1:])
        done: set[bytes] = set()
        for segment, copy in self.segments:
            if copy is None or self.options is None:
                self._leave("they were not read")
            elif last_offset(copy) + 1 not in bases:
                self._leave("no segment of this log ends where they end")
            elif copy.facts.key_id is not None:
                self._leave("they are encrypted, and an upload has no private key")
            elif copy.segment_id not in done:
                done.add(copy.segment_id)
                self._compare(target, segment, copy, self.options)
        if self._foreign is not None:
            self.findings.append(self._foreign)
        for reason, count in self._left.items():
            copies = pluralize(count, "copy", "copies")
            message = f"the snapshots of {copies} that are present were not compared with this log: {reason}. {DECIDES}"
            self._add("tier-upload-not-compared", Severity.NOTE, message, self.segments[0][0].start_offset)

    def _leave(self, reason: str) -> None:
        self._left[reason] = self._left.get(reason, 0) + 1

    def _add(self, code: str, severity: Severity, message: str, offset: int) -> None:
        self.findings.append(Finding(code, severity, self.source.directory.path, message, offset))

    def _compare(self, target: UploadTarget, segment: SegmentUpload, copy: RemoteCopy, options: ReplayOptions) -> None:
        try:
            data = _snapshot_of(target, copy)
        except (SnaprebuildError, FormatError) as error:
            self.findings.append(finding_of_error(error, self.source.directory.path))
            self._leave("they could not be read")
            return
        try:
            found = self._validated(data, last_offset(copy) + 1, options)
        except RefusedError as error:
            self._leave(f"the log could not be replayed to their ends: {error.message}")
            return
        except (SnaprebuildError, FormatError) as error:
            self.findings.append(finding_of_error(error, self.source.directory.path))
            self._leave("the log could not be read")
            return
        segment.compared = found.validity
        if found.validity is not Validity.CORRUPT:
            self._compare_producer_ids(data, copy)
        if found.validity is Validity.UNPROVEN:
            self._leave(f"the log does not prove them: {found.reasons[0]}")
        elif found.validity is not Validity.EQUAL:
            is_corrupt = found.validity is Validity.CORRUPT
            message = (
                f"the snapshot of the copy {uuid_to_text(copy.segment_id)}, which is present, is {found.validity.value}: "
                f"{found.reasons[0]}. snaprebuild tier audit shows the others, and tier repair replaces it"
            )
            severity = Severity.DAMAGED if is_corrupt else Severity.FINDING
            self._add("tier-upload-other-snapshot", severity, message, copy.start_offset)

    def _compare_producer_ids(self, data: bytes, copy: RemoteCopy) -> None:
        """Keeps one finding for the partition, that of the newest copy: it has the producers that expire last."""
        try:
            foreign = None if self.refuse is None else self.refuse(self.source, data)
        except (SnaprebuildError, FormatError) as error:
            self.findings.append(finding_of_error(error, self.source.directory.path))
            return
        if foreign is not None:
            message = f"the snapshot of the copy {uuid_to_text(copy.segment_id)}, which is present: {foreign.message}"
            self._foreign = replace(foreign, severity=Severity.FINDING, message=message, offset=copy.start_offset)

    def _validated(self, data: bytes, offset: int, options: ReplayOptions) -> ValidatedSnapshot:
        try:
            entries = read_entries(data, file="the snapshot")
        except FormatError as error:
            return ValidatedSnapshot(offset, Validity.CORRUPT, (str(error),))
        request = BoundaryRequest(
            self.source.directory.path, offset, options, run_of(options), after=self._point, source=self.source
        )
        found = replay_to_boundary(request, lambda task: task.validated(entries))
        self._point = found.point
        return found


def _snapshot_of(target: UploadTarget, copy: RemoteCopy) -> bytes:
    """The producer snapshot of a copy; its manifest was read with the listing.

    Raises:
        SnaprebuildError, FormatError: it cannot be read.
    """
    snapshot = target.remote.file(copy, LocalTierFile.PRODUCER_SNAPSHOT)
    return snapshot.read_small(SNAPSHOT_BYTES_MAX) or b""
