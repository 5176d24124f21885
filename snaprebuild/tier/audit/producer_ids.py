"""Producer ids in remote storage that the cluster has yet to give out: copies that came from another cluster.

A follower, or a leader that lost its disk, starts from these snapshots, and a new producer gets such an id (``source_check.producer_ids``).
Of each partition the newest snapshot is compared: a broker keeps every producer in it until it expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
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
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.tier.audit.readable_copies import PartitionCopies, ReadableCopy, epochs_up_to
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


def compare_producer_ids(root: str, found: Sequence[PartitionCopies], read: MetadataRead, clock: Clock) -> ComparedProducerIds:
    """Compares the newest snapshot of each partition with the next producer id of the cluster.

    Args:
        root: location of the store, for the findings.
        found: the copies of each partition. Those that a limit of the run ended are left out.
        read: the metadata log.
        clock: for producers that have expired.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    result = ComparedProducerIds()
    several: list[ForeignProducers] = []
    unknown: list[str] = []
    for copies in found:
        if copies.audited.limit is not None:
            continue
        newest = _newest_snapshot(copies)
        if newest is None:
            continue
        copy, entries = newest
        foreign = foreign_producers(entries, read.image, clock.as_of_ms, clock.expiration_ms)
        if foreign is None:
            continue
        try:
            is_certain = _is_newer(copies, copy, int(entries["timestamp"].max()), read)
        except (SnaprebuildError, FormatError) as error:
            result.findings.append(finding_of_error(error, read.path))
            is_certain = False
        if is_certain:
            result.partitions.append(copies.audited.name)
            several.append(foreign)
        else:
            unknown.append(copies.audited.name)
    if unknown:
        result.findings.append(unknown_producer_ids(root, unknown))
    if several:
        result.findings.append(producer_id_finding(root, result.partitions, several, Severity.FINDING))
    return result


def _newest_snapshot(copies: PartitionCopies) -> tuple[ReadableCopy, np.ndarray] | None:
    """The newest copy whose snapshot parses, with its entries; None without one. The others have their verdict."""
    for copy in newest_first(copies.readable):
        if copy.facts.snapshot_bytes:
            try:
                entries = snapshot_entries(copies.files, copy)
            except ReadFailedError:  # of the store as a whole, which the audit reports
                return None
            if entries is not None:
                return copy, entries
    return None


def _is_newer(copies: PartitionCopies, newest: ReadableCopy, timestamp_ms: int, read: MetadataRead) -> bool:
    """Whether the metadata log is proven to be newer than the batches of the newest copy.

    The copy was made after its batches were appended, so the log must reach up to that moment.

    Args:
        copies: of the partition.
        newest: of them.
        timestamp_ms: greatest in its snapshot, ms since 1970.
        read: the metadata log.

    Raises:
        SnaprebuildError, FormatError: the metadata log cannot be read again.
    """
    audited = copies.audited
    appended_ms = max(newest.event_time_ms, newest.max_timestamp_ms or 0, timestamp_ms)
    log = LogEvidence(
        audited.place,
        audited.topic,
        audited.partition,
        topic_id=audited.topic_id,
        exists=False,
        epochs=tuple(LeaderEpochEntry(*each) for each in newest.epochs or epochs_up_to(copies.files, newest)),
        tail_timestamp_ms=appended_ms or None,
    )
    cluster = read.facts(log, None)
    return older_than_replica(cluster, read.latest_ms, log) is None and is_newer_than_batches(cluster, log)
