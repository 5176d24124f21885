"""Verified snapshots together with what the next start of their brokers does, and with producer ids that the cluster never gave out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.broker.releases import Release
from snaprebuild.broker.status import Status, findings_of, status_of
from snaprebuild.cluster.scan_producer_ids import producer_ids_of_scan
from snaprebuild.cluster.scan_storage import judged_scan, lost_at_next_start
from snaprebuild.findings import Finding, unread_paths
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.scan.scan_result import PartitionScan
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import Source
from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero
from snaprebuild.snapshots.verify import VerifyResult, verify

__all__ = ["JudgedVerify", "judged_verify"]


class JudgedVerify(msgspec.Struct, frozen=True):
    """A verification and what the next start of the brokers does.

    Attributes:
        result: of the verification.
        status: of the next start, with what the replay proves in place of what names and sizes show.
        findings: of both; one for each fault.
        elapsed_seconds: of the replay.
    """

    result: VerifyResult
    status: Status
    findings: tuple[Finding, ...]
    elapsed_seconds: float


def judged_verify(
    source: Source,
    run: Run,
    *,
    release: Release | None,
    selection: Selection,
    check_crc: bool,
    progress: Progress | None = None,
) -> JudgedVerify:
    """Judges every snapshot of the partitions of ``source``, and the next start of their brokers.

    Args:
        source: from ``open_source``.
        run: entries that a load at the moment of its clock drops are not compared.
        release: that starts the brokers; None for all that are possible.
        selection: only snapshots at boundaries that it takes.
        check_crc: compute checksums.
        progress: called for every segment.

    Raises:
        UsageError: the selection names offsets, and no partition has a boundary or a snapshot there.
    """
    began = time.perf_counter()
    result = verify(source, run, selection=selection, check_crc=check_crc, progress=progress)
    elapsed_seconds = time.perf_counter() - began
    start = _next_start(source, release, result)
    suspects = _suspects(result, start.partitions)
    unread = set(unread_paths(result.findings))
    # What the start makes of the same fault is one finding for all partitions, and comes with the way out.
    fates = {(fate.code, fate.path) for group in start.status.groups for fate in group.fates}
    own = [finding for finding in result.findings if finding.is_unread or (finding.code, finding.path) not in fates]
    # Of two findings about one file the worse one decides about the exit code: a file that cannot be read may end the start.
    reported = {(each.code, each.path): each.severity for each in sorted(own, key=lambda each: each.severity)}
    others = [
        finding
        for finding in start.findings
        if finding.severity > reported.get((finding.code, finding.path), -1) and not (finding.is_unread and finding.path in unread)
    ]
    findings = (*own, *suspects, *others, *lost_at_next_start(start.partitions))
    comparisons = [snapshot.comparison for verdict in result.partitions for snapshot in verdict.outcome.snapshots]
    status = replace(
        start.status,
        wrong=sum(comparison.proven_wrong for comparison in comparisons),
        suspect=len({suspect.path for suspect in suspects}),
        missing=result.counts.missing,
        unread=len(unread_paths(findings)),
        topics_without_id=tuple(sorted(topics_under_id_zero(each.source for each in result.partitions))),
    )
    return JudgedVerify(result, status, findings, elapsed_seconds)


def _suspects(result: VerifyResult, scanned: Sequence[PartitionScan]) -> list[Finding]:
    """The findings of `scan` about snapshots that the replay proves neither right nor wrong."""
    unproven = {
        verdict.source.directory.file_path(snapshot.name)
        for verdict in result.partitions
        for snapshot in verdict.outcome.snapshots
        if snapshot.comparison.status is ComparisonStatus.UNVERIFIABLE and not snapshot.comparison.proven_wrong
    }
    return [finding for partition in scanned for finding in partition.suspects if finding.path in unproven]


class _NextStart(msgspec.Struct, frozen=True):
    """The next start of the brokers, as `scan` reports it.

    Attributes:
        findings: about the start, about producer ids, and about what could not be read for them.
        partitions: as the scan has them.
    """

    status: Status
    findings: Sequence[Finding]
    partitions: Sequence[PartitionScan]


def _next_start(source: Source, release: Release | None, result: VerifyResult) -> _NextStart:
    """Scans the log directories. No broker starts on an object store: nothing of a scan is there.

    The metadata logs are read after the segments: they have the ids of all producers that wrote before.
    """
    if not source.is_local:
        return _NextStart(status_of((), wrong=0, suspect=0, missing=0, waiting=0, unread=0), [], ())
    now_ms = current_time_ms()
    judged = judged_scan(source, now_ms, release, reads_log=True)
    unread = [finding for finding in judged.other_findings if finding.is_unread]
    later = _entries_of({partition.source.directory.path: partition.outcome.later_producers for partition in result.partitions})
    ids = producer_ids_of_scan(judged, source, now_ms, later)
    return _NextStart(judged.status, [*unread, *findings_of(judged.fates), *ids], judged.partitions)


def _entries_of(later: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """The entries of the batches above the newest snapshots, by path of the partition; partitions without such batches are absent."""
    return {path: np.frombuffer(data, ENTRY_DTYPE) for path, data in later.items() if data}
