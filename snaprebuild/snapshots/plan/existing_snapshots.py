"""Findings of a plan about the snapshots that are there: nobody builds next to a wrong one without having read of it.

They are looked at as ``scan`` looks at them: one that does not parse is wrong, and one that something contradicts is suspect.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, in_flux
from snaprebuild.snapshots.scan.snapshot_check import SnapshotFile, check_snapshots, suspect_finding
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["existing_findings"]


def existing_findings(
    partition: PartitionSource,
    boundaries: Sequence[int],
    selection: Selection,
    expiration_ms: int,
    *,
    is_replaced: bool,
    deadline: float | None,
) -> list[Finding]:
    """The findings about the selected snapshots of a partition, by offset.

    Args:
        partition: with a segment.
        boundaries: offsets of its segment boundaries and of its log end.
        selection: of offsets.
        expiration_ms: how old a producer may be before its absence is normal.
        is_replaced: the run replaces what a replay proves wrong: what is wrong is a note.
        deadline: a ``time.monotonic()`` after which no file is read; None for none.

    Raises:
        GoneFileError: a file is gone, so the listing is old.
        DeadlinePassedError: the deadline has passed.
    """
    directory = partition.directory
    segments = directory.segments
    checked = check_snapshots(
        directory,
        boundaries,
        expiration_ms,
        may_lack_data=not partition.can_be_tiered,
        is_bootstrapped=bool(segments) and partition.log_start_offset < segments[0].base_offset,
        is_broker_running=partition.is_broker_running,
        deadline=deadline,
    )
    findings = []
    for snapshot in checked:
        if selection.takes_boundary(snapshot.offset):
            is_at_boundary = snapshot.offset in boundaries
            findings += _findings_of(partition, snapshot, is_at_boundary=is_at_boundary, is_replaced=is_replaced)
    return findings


def _findings_of(partition: PartitionSource, snapshot: SnapshotFile, *, is_at_boundary: bool, is_replaced: bool) -> list[Finding]:
    directory = partition.directory
    severity = Severity.NOTE if is_replaced and is_at_boundary else Severity.FINDING
    error = snapshot.error
    if isinstance(error, ChangedFileError):
        return [in_flux(error, directory.path, snapshot.offset)]
    if isinstance(error, ReadFailedError):
        return [replace(finding_of_error(error, directory.path), offset=snapshot.offset)]
    if isinstance(error, FormatError):
        message = f"{error}; {_remedy(partition, is_at_boundary=is_at_boundary, is_replaced=is_replaced)}"
        cause = FindingCause.CORRUPT_SNAPSHOT
        return [Finding("corrupt-snapshot", severity, directory.path, message, snapshot.offset, cause=cause)]
    path = directory.file_path(snapshot.file.name)
    return [suspect_finding(path, snapshot.offset, suspicion, severity) for suspicion in snapshot.suspicions]


def _remedy(partition: PartitionSource, *, is_at_boundary: bool, is_replaced: bool) -> str:
    if not partition.directory.store.is_local:
        return "objects are never replaced"
    if not is_at_boundary:
        return "it is at no boundary and is never replaced: move it away while the broker is stopped"
    if is_replaced:
        return "it is set aside and replaced"
    return "it is replaced with --set-aside only"
