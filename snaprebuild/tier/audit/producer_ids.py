"""Producer ids in remote storage that the cluster has yet to give out: copies that came from another cluster.

A follower, or a leader that lost its disk, starts from these snapshots, and a new producer gets such an id (``source_check.producer_ids``).
Of each partition the newest snapshot is compared: a broker keeps every producer in it until it expires.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from formats.errors import FormatError
from snaprebuild.cluster.source_check.evidence import LogEvidence
from snaprebuild.cluster.source_check.evidence_collector import older_than_replica
from snaprebuild.cluster.source_check.metadata_read import MetadataRead
from snaprebuild.cluster.source_check.producer_ids import (
    ForeignProducers,
    foreign_producers,
    is_newer_than_batches,
    producer_id_finding,
    unknown_producer_ids,
)
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.replay.window import Clock
from snaprebuild.tier.audit.partition_audit import CopyAudit, PartitionAudit, StoreAudit
from snaprebuild.tier.audit.structure import newest_first, snapshot_entries

__all__ = ["ComparedProducerIds", "compare_producer_ids"]


@dataclass(slots=True)
class ComparedProducerIds:
    """The comparison of a store with the metadata log of a cluster.

    Attributes:
        partitions: names of those with such ids.
        findings: at most one, and a note on those of which it is unknown.
    """

    partitions: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def compare_producer_ids(audit: StoreAudit, read: MetadataRead, clock: Clock) -> ComparedProducerIds:
    """Compares the newest snapshot of each partition with the next producer id of the cluster.

    Args:
        audit: of the store. Partitions that a limit of the run ended are left out.
        read: the metadata log.
        clock: for producers that have expired.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    result = ComparedProducerIds()
    several: list[ForeignProducers] = []
    unknown: list[str] = []
    for partition in audit.partitions:
        if partition.limit is not None:
            continue
        newest = _newest_snapshot(partition)
        if newest is None:
            continue
        copy, entries = newest
        foreign = foreign_producers(entries, read.image, clock.as_of_ms, clock.expiration_ms)
        if foreign is None:
            continue
        try:
            is_certain = _is_newer(partition, copy, int(entries["timestamp"].max()), read)
        except (SnaprebuildError, FormatError) as error:
            result.findings.append(finding_of_error(error, read.path))
            is_certain = False
        if is_certain:
            result.partitions.append(partition.name)
            several.append(foreign)
        else:
            unknown.append(partition.name)
    if unknown:
        result.findings.append(unknown_producer_ids(audit.location, unknown))
    if several:
        result.findings.append(producer_id_finding(audit.location, result.partitions, several, Severity.FINDING))
    return result


def _newest_snapshot(partition: PartitionAudit) -> tuple[CopyAudit, np.ndarray] | None:
    """The newest copy whose snapshot parses, with its entries; None without one. The others have their verdict."""
    for copy in newest_first(partition.readable):
        if copy.copy.facts.snapshot_bytes:
            try:
                entries = snapshot_entries(partition.remote, copy)
            except ReadFailedError:  # of the store as a whole, which the audit reports
                return None
            if entries is not None:
                return copy, entries
    return None


def _is_newer(partition: PartitionAudit, newest: CopyAudit, timestamp_ms: int, read: MetadataRead) -> bool:
    """Whether the metadata log is proven to be newer than the batches of the newest copy.

    The copy was made after its batches were appended, so the log must reach up to that moment.

    Args:
        partition: its copies.
        newest: of them.
        timestamp_ms: greatest in its snapshot, ms since 1970.
        read: the metadata log.

    Raises:
        SnaprebuildError, FormatError: the metadata log cannot be read again.
    """
    copy = newest.copy
    appended_ms = max(copy.event_timestamp_ms, copy.max_timestamp_ms or 0, timestamp_ms)
    log = LogEvidence(
        partition.remote.place,
        partition.remote.id.topic,
        partition.remote.id.partition,
        topic_id=partition.remote.id.topic_id,
        exists=False,
        epochs=copy.leader_epochs or partition.remote.known_log_epochs(copy),
        tail_timestamp_ms=appended_ms or None,
    )
    cluster = read.facts(log, None)
    return older_than_replica(cluster, read.latest_ms, log) is None and is_newer_than_batches(cluster, log)
