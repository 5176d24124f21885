"""Adds to a scan the producer ids that the cluster has yet to give out, from the metadata logs (KRaft) on the disks that were scanned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.cluster.scan_storage import metadata_logs
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error, unread_paths
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.scan.scan_result import PartitionScan, ScanResult
from snaprebuild.snapshots.source.source import PartitionSource, Source

if TYPE_CHECKING:
    import numpy as np

    from snaprebuild.cluster.source_check.evidence_collector import ComparedReplicas
    from snaprebuild.cluster.source_check.producer_ids import ForeignProducers

__all__ = ["producer_id_findings", "producer_ids_of_scan", "with_producer_ids"]


def with_producer_ids(result: ScanResult, source: Source, now_ms: int) -> ScanResult:
    """A scan with a finding for the partitions whose newest snapshots have such ids; arguments as of ``producer_ids_of_scan``."""
    return replace(result, other_findings=(*result.other_findings, *producer_ids_of_scan(result, source, now_ms)))


def producer_ids_of_scan(
    result: ScanResult, source: Source, now_ms: int, later: Mapping[str, np.ndarray] | None = None
) -> list[Finding]:
    """The findings about producer ids. The scan has read snapshots and metadata logs; only partitions with high ids are read again.

    Args:
        result: of the scan, with the metadata logs.
        source: that was scanned.
        now_ms: the clock, ms since 1970, for producers that have expired.
        later: entries of the batches above the newest snapshot, by path of the partition, where a command has read them.
    """
    if not metadata_logs(source):
        return []
    later = later or {}
    suspects = [partition.source for partition in result.partitions if _has_high_id(partition, result.next_producer_id, later)]
    unread = set(unread_paths(result.other_findings))
    findings = producer_id_findings(source, now_ms, suspects, later)
    return [finding for finding in findings if not (finding.is_unread and finding.path in unread)]


def _has_high_id(partition: PartitionScan, next_id: int | None, later: Mapping[str, np.ndarray]) -> bool:
    if next_id is None:
        return True
    above = later.get(partition.source.directory.path)
    greatest = -1 if above is None or not len(above) else int(above["producer_id"].max())
    return max(partition.greatest_producer_id, greatest) >= max(next_id, 0)


def producer_id_findings(
    source: Source,
    now_ms: int,
    partitions: Iterable[PartitionSource] | None = None,
    later: Mapping[str, np.ndarray] | None = None,
) -> list[Finding]:
    """One finding for each log directory with such partitions; where the metadata log may be older than they are, a note.

    A partition that cannot be read is a finding, too.

    Args:
        source: log directories with their metadata logs. A log that cannot be read is a finding of other checks.
        now_ms: the clock, ms since 1970.
        partitions: to compare; None for all of the source.
        later: as of ``producer_ids_of_scan``.
    """
    from snaprebuild.cluster.source_check.evidence_collector import (  # loads the readers of batches
        EvidenceCollector,
        SourceRequest,
        is_judged,
    )
    from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
    from snaprebuild.cluster.source_check.producer_ids import producer_id_finding, unknown_producer_ids

    request = SourceRequest(Purpose.REBUILD, MetadataLogs(), source.log_dirs, properties=source.properties, locks=None)
    compared = EvidenceCollector(request).register().compare(())  # each when its ids are too high
    expiration_ms = source.expiration_ms or DEFAULT_EXPIRATION_MS
    found: dict[str, list[tuple[PartitionSource, ForeignProducers]]] = {}
    unknown: dict[str, list[str]] = {}
    findings: list[Finding] = []
    if partitions is None:
        partitions = source.partitions
    for partition in partitions:
        above = (later or {}).get(partition.directory.path)
        has_entries = bool(partition.directory.snapshots) or above is not None
        if not (has_entries and is_judged(partition.directory) and partition.log_dir.store.is_local):
            continue
        try:
            foreign, is_certain = _foreign_producers(partition, compared, now_ms, expiration_ms, above)
        except (SnaprebuildError, FormatError) as error:
            findings.append(finding_of_error(error, partition.directory.path, may_vanish=True))
            continue
        if foreign is not None and is_certain:
            found.setdefault(partition.log_dir.path, []).append((partition, foreign))
        elif foreign is not None:
            unknown.setdefault(partition.log_dir.path, []).append(partition.directory.topic_partition)
    for log_dir, names in unknown.items():
        findings.append(unknown_producer_ids(log_dir, names))
    for log_dir, several in found.items():
        path = several[0][0].directory.path if len(several) == 1 else log_dir
        names = [each.directory.topic_partition for each, _ in several]
        findings.append(producer_id_finding(path, names, [foreign for _, foreign in several], Severity.FINDING))
    return findings


def _foreign_producers(
    partition: PartitionSource, compared: ComparedReplicas, now_ms: int, expiration_ms: int, later: np.ndarray | None
) -> tuple[ForeignProducers | None, bool]:
    """Such producers of a partition, and whether the metadata log is proven to be newer.

    The snapshot is read before the metadata log, which a live node continues, and the other files only if ids are too high.
    """
    from snaprebuild.cluster.source_check.evidence_reader import log_evidence
    from snaprebuild.cluster.source_check.producer_ids import (
        foreign_producers,
        is_newer_than_log,
        newest_entries,
        with_later_batches,
    )

    entries = with_later_batches(newest_entries(partition.directory), later)
    if entries is None:
        return None, False
    read = compared.metadata_of(partition.log_dir).read
    foreign = None if read is None else foreign_producers(entries, read.image, now_ms, expiration_ms)
    if foreign is None:
        return None, False
    log = log_evidence(partition.directory, partition.log_dir)
    return foreign, is_newer_than_log(compared.evidence_for(partition.log_dir, log))
