"""Scan: what is in log directories, what is missing there, and what would keep rolled segments from being uploaded.

Reads names, sizes, checkpoints, small files and snapshots. The last segment is read where nothing else shows the log end. So it is fast,
proves nothing about entries (``verify`` does), and reports where it cannot know.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from snaprebuild.broker.partition_facts import FactsReader
from snaprebuild.errors import ChangedFileError, GoneFileError, LockUnknownError, ReadFailedError
from snaprebuild.findings import BUSY_LOG, Finding, FindingCause, Severity, finding_of_error, unread_paths
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.run import RunFacts
from snaprebuild.snapshots.scan.partition import scan_partition, start_of_partition
from snaprebuild.snapshots.scan.scan_result import (
    LogDirScan,
    PartitionScan,
    RemoteStorage,
    ScanResult,
    ScanTotals,
    Shutdown,
    SkippedPartition,
)
from snaprebuild.snapshots.source.broker_properties import has_remote_storage
from snaprebuild.snapshots.source.second_look import LISTINGS_MAX, listings_of, without_files
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.snapshots.source.topic_ids import BrokerReadiness, readiness_findings, with_readiness
from snaprebuild.storage.local.broker_lock import HOLDER_NOT_VISIBLE, BrokerProcess, broker_process
from snaprebuild.storage.local.write_checks import free_bytes_of
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.partition_names import TopicKind
from snaprebuild.storage.thread_pool import ParallelMap, local_map

__all__ = ["scan_source"]

log = logging.getLogger(__name__)


def scan_source(
    source: Source,
    parallel_map: ParallelMap | None = None,
    *,
    reads_log: bool = False,
    holds_locks: bool = False,
    only_start: bool = False,
) -> ScanResult:
    """Looks at every partition of a source. A fault of one file or partition is a finding and stops nothing.

    The facts of the next start are read, and not judged: metadata logs may add to them (``with_next_start``).

    Args:
        source: from ``open_source``.
        parallel_map: looks at the partitions; None for this process.
        reads_log: read the batches that the next start reads, too (``LogRead``).
        holds_locks: this process holds the locks of the log directories, so that no broker runs on them.
        only_start: look at nothing but the facts of the next start, and what could not be read of them.
    """
    brokers: tuple[BrokerReadiness, ...] = ()
    if not only_start:
        source, brokers = with_readiness(source)
    of_source = [finding for finding in source.findings if finding not in source.duplicates]
    findings = [*of_source, *readiness_findings(brokers, Severity.FINDING, with_notes=False)]
    log_dirs: dict[str, LogDirScan] = {}
    states = {each.log_dir.path: each.log_dir for each in (*source.partitions, *source.skipped)}
    for state in states.values():
        shutdown, process, notes = _shutdown(state, source.facts, holds_locks=holds_locks)
        findings += notes
        log_dirs[state.path] = LogDirScan(state, shutdown, process, ScanTotals(), free_bytes=free_bytes_of(state.path))
    topics: dict[str, ScanTotals] = {}
    partitions = []
    expiration_ms = source.expiration_ms or DEFAULT_EXPIRATION_MS
    looked_at = [
        _ScanTask(one, log_dirs[one.log_dir.path].shutdown, expiration_ms, reads_log, only_start) for one in source.partitions
    ]
    parallel_map = parallel_map or local_map(partition.directory.store for partition in source.partitions)
    for partition, scanned in zip(source.partitions, parallel_map(_scanned, looked_at), strict=True):
        log_dir = log_dirs[partition.log_dir.path]
        partitions.append(scanned)
        end = scanned.log_end
        end_source = end.source or f"not known without reading, at least {end.at_least}"
        log.info("%s: log start %d, log end %s (%s)", partition.directory.path, partition.log_start_offset, end.offset, end_source)
        findings += scanned.findings
        log_dir.totals.add(scanned.totals)
        topics.setdefault(partition.directory.name.topic, ScanTotals()).add(scanned.totals)
    for path, log_dir in log_dirs.items():
        log_dir.totals.unread = sum(each == path or each.startswith(f"{path}/") for each in unread_paths(findings))
    partitions.sort(key=_badness, reverse=True)
    skipped = tuple(_skipped(each, log_dirs[each.log_dir.path].shutdown) for each in source.skipped)
    return ScanResult(
        tuple(log_dirs.values()),
        topics,
        _remote_storage(source),
        tuple(partitions),
        tuple(findings),
        skipped=tuple(each for each in skipped if each is not None),
    )


def _skipped(partition: PartitionSource, shutdown: Shutdown) -> SkippedPartition | None:
    """The facts of a directory that is no source; None while a broker changes it, and where it is gone."""
    if shutdown is Shutdown.RUNNING or not partition.directory.store.is_local:
        return None
    is_served = partition.topic_kind is not TopicKind.CLUSTER_METADATA
    storage = RemoteStorage.UNKNOWN if partition.can_be_tiered else RemoteStorage.OFF
    try:
        facts = FactsReader(partition.directory, partition.log_dir, shutdown).read(storage, is_served=is_served)
    except (ChangedFileError, GoneFileError, ReadFailedError):
        return None
    return SkippedPartition(partition, facts)


def _remote_storage(source: Source) -> dict[str, RemoteStorage]:
    """Remote storage by topic: on if one of its partitions shows that, off if no partition of it can be uploaded."""
    states: dict[str, RemoteStorage] = {}
    properties = source.properties
    is_broker_off = properties is not None and not has_remote_storage(properties)
    for each in source.partitions:
        topic = each.directory.name.topic
        if each.is_tiered:
            states[topic] = RemoteStorage.ON
        elif is_broker_off or not each.can_be_tiered:
            states.setdefault(topic, RemoteStorage.OFF)
        elif states.get(topic) is not RemoteStorage.ON:
            states[topic] = RemoteStorage.UNKNOWN
    return states


class _ScanTask(msgspec.Struct, frozen=True):
    """A partition to be looked at, as a value that can be sent to another process."""

    source: PartitionSource
    shutdown: Shutdown
    expiration_ms: int
    reads_log: bool = False
    only_start: bool = False

    def scan(self, source: PartitionSource) -> PartitionScan:
        """Looks at a listing of the partition once."""
        if self.only_start:
            return start_of_partition(source, self.shutdown)
        return scan_partition(source, self.shutdown, self.expiration_ms, reads_log=self.reads_log)


def _scanned(partition: _ScanTask) -> PartitionScan:
    """Scans a partition. While a broker runs, a fault counts only if no file was created or deleted meanwhile; else it scans again.

    Retention renames a segment first, and removes its leader epochs and its snapshot after that. A listing from before, with small
    files from after, shows a segment that lacks both.
    """
    path = partition.source.directory.path
    scanned: PartitionScan | None = None
    before: list[Finding] = []
    confirmed: list[Finding] = []
    listings = listings_of(partition.source, LISTINGS_MAX + 1)
    listed = next(listings)
    for _ in range(LISTINGS_MAX):
        try:
            scanned = partition.scan(listed)
        except ChangedFileError:  # a file of the listing: it is listed again, whether or not a broker is seen
            before = []
            confirmed = []
        else:
            wrong = _wrong(scanned)
            # What two scans of two listings find alike is so, whatever else came or went.
            is_so = partition.shutdown is not Shutdown.RUNNING or not wrong or wrong == before
            if is_so and not _has_vanished(scanned):
                return scanned
            before, confirmed = wrong, [finding for finding in wrong if finding in before]
        earlier = listed
        try:
            listed = next(listings)
        except (GoneFileError, ReadFailedError) as error:
            return _without_unconfirmed(scanned or _nothing_of(partition), (), finding_of_error(error, path))
        if scanned is not None and before and _names_in(listed.directory) == _names_in(earlier.directory):
            return scanned
    message = f"changed while it was read, {LISTINGS_MAX} times: its broker is busy, run again"
    busy = Finding(BUSY_LOG, Severity.NOTE, path, message, is_unread=True, cause=FindingCause.CHANGED_MEANWHILE)
    return _without_unconfirmed(scanned or _nothing_of(partition), confirmed, busy)


def _has_vanished(scanned: PartitionScan) -> bool:
    """Whether a file could not be read because the whole partition is gone: its next listing says so."""
    directory = scanned.source.directory
    is_unread = any(finding.is_unread for finding in scanned.findings)
    return is_unread and directory.store.is_local and not os.path.isdir(directory.path)


def _nothing_of(partition: _ScanTask) -> PartitionScan:
    """An empty scan: the partition is gone, or no look at it was completed."""
    return replace(scan_partition(without_files(partition.source), partition.shutdown, partition.expiration_ms), findings=())


def _wrong(scanned: PartitionScan) -> list[Finding]:
    return [finding for finding in scanned.findings if finding.severity is not Severity.NOTE]


def _without_unconfirmed(scanned: PartitionScan, confirmed: Iterable[Finding], reason: Finding) -> PartitionScan:
    """The partition with ``confirmed`` and ``reason`` in place of all findings but notes."""
    notes = [finding for finding in scanned.findings if finding.severity is Severity.NOTE]
    return replace(scanned, findings=(*notes, *confirmed, reason))


def _names_in(directory: PartitionDir) -> tuple[object, ...]:
    """Sizes are left out: the last segment grows all the time."""
    segments = [
        (each.base_offset, each.offset_index, each.time_index, each.transaction_index is None) for each in directory.segments
    ]
    return segments, directory.snapshot_offsets, directory.misnamed, directory.lone_indexes


def _badness(partition: PartitionScan) -> tuple[int, ...]:
    totals = partition.totals
    wrong = totals.corrupt + totals.suspect + totals.misnamed
    return (partition.stuck_bytes, totals.blocked_segments, wrong, totals.missing if partition.source.can_be_tiered else 0)


def _shutdown(state: LogDirState, facts: RunFacts, *, holds_locks: bool) -> tuple[Shutdown, BrokerProcess | None, list[Finding]]:
    """How the broker stopped, the process that holds the directory, and notes about both."""
    held_by = None
    findings = []
    try:
        held_by = facts.holder(state.path) if state.store.is_local and not holds_locks else None
    except LockUnknownError as error:
        message = f"it is not known whether a broker runs: {error.message}"
        findings.append(Finding("lock-unknown", Severity.NOTE, error.path or state.path, message))
    if held_by is not None:
        who = "a process that is not visible from here" if held_by == HOLDER_NOT_VISIBLE else f"process {held_by}"
        message = (
            f"{who} holds it, probably a running broker: the files may change, and it sees no new snapshot before its next start"
        )
        process = broker_process(state.path, held_by)
        return Shutdown.RUNNING, process, [*findings, Finding("running-broker", Severity.NOTE, state.path, message)]
    if state.was_shut_down_cleanly:
        return Shutdown.CLEAN, None, findings
    if not state.is_broker_directory:
        return Shutdown.UNKNOWN, None, findings
    message = "its broker did not stop cleanly: above its recovery points it regenerates snapshots itself when it starts"
    return Shutdown.UNCLEAN, None, [*findings, Finding("unclean-shutdown", Severity.NOTE, state.path, message)]
