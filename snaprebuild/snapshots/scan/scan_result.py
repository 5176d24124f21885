"""The result of a scan: boundaries, partitions, log directories, sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from snaprebuild.broker.fates import Fate
from snaprebuild.broker.start_facts import PartitionFacts, RemoteStorage, Shutdown
from snaprebuild.broker.status import Status, findings_of, status_of
from snaprebuild.findings import Finding, exit_code_of, unread_paths
from snaprebuild.published import Natural, Part
from snaprebuild.replay.broker_start import BrokerStart
from snaprebuild.snapshots.scan.snapshot_check import SnapshotFile
from snaprebuild.snapshots.scan.upload_preflight import NO_PREFLIGHT, BlockedSegment, Blocker, Preflight
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero
from snaprebuild.storage.local.broker_lock import BrokerProcess
from snaprebuild.storage.log_dir import LogDirState

__all__ = [
    "AtNextStart",
    "BoundaryScan",
    "EpochSource",
    "LogDirScan",
    "PartitionScan",
    "RemoteStorage",
    "ScanResult",
    "ScanTotals",
    "ScannedLogEnd",
    "Shutdown",
    "SkippedPartition",
    "SnapshotStatus",
    "StraySnapshot",
]


class SnapshotStatus(StrEnum):
    """The state of the snapshot at a boundary."""

    PRESENT = "present"
    MISSING = "missing"
    """Absent, and one is needed (``boundary_needs``)."""
    CORRUPT = "corrupt"
    """Does not parse."""
    SUSPECT = "suspect"
    """Parses, and something contradicts it."""
    UNREADABLE = "unreadable"
    """Could not be read by this program."""
    IRREGULAR = "irregular"
    """The name belongs to a link, a directory or another thing that is no regular file."""
    REGENERATED = "regenerated"
    """Absent, and the broker writes it itself at its next start (``boundary_needs``)."""
    NOT_DUE = "not due"
    """Absent, and no broker uses one there (``boundary_needs``)."""


class AtNextStart(StrEnum):
    """The snapshot that the broker's next start leaves at a boundary."""

    KEPT = "kept"
    REMOVED = "removed"
    REBUILT = "rebuilt"
    EMPTY = "empty"
    """A snapshot without entries, written without a look at the log."""
    ABSENT = "absent"


class ScanTotals(msgspec.Struct, kw_only=True):
    """Sums over partitions. Stuck bytes and blocked segments count rolled segments only."""

    partitions: Natural = 0
    segments: Natural = 0
    size_bytes: Natural = 0
    """Bytes of the segments."""
    boundaries: Natural = 0
    """Offsets at which a snapshot belongs."""
    missing: Natural = 0
    """Boundaries that need a snapshot and have none: the same number in scan, plan, rebuild, verify and report."""
    not_needed: Natural = 0
    """Boundaries without a snapshot where no broker uses one."""
    made_by_broker: Natural = 0
    """Boundaries without a snapshot that the broker writes itself, at its next stop or start."""
    unread: Natural = 0
    """Selected paths that were not read, or not to their end. Nothing else in the document covers them."""
    corrupt: Natural = 0
    """Snapshots that do not parse."""
    suspect: Natural = 0
    """Snapshots that parse but cannot be correct."""
    misnamed: Natural = 0
    """Files with names that no broker writes and on which it fails."""
    stray: Natural = 0
    """Snapshots at no boundary."""
    blocked_segments: Natural = 0
    """Rolled segments that would not be uploaded."""
    stuck_bytes: Natural = 0
    """Bytes of the first blocked segment of each partition and of every later rolled one."""
    stuck_bytes_after_rebuild: Natural = 0
    """Stuck bytes after everything is rebuilt and the broker was started."""

    def add(self, other: ScanTotals) -> None:
        """Adds another sum."""
        for name in self.__struct_fields__:
            if value := getattr(other, name):  # most are 0
                setattr(self, name, getattr(self, name) + value)


class BoundaryScan(Part, frozen=True):
    """An offset at which a snapshot belongs."""

    offset: Natural
    is_log_end: bool
    state: SnapshotStatus
    entries: Natural | None
    """Producers in the snapshot; null without a snapshot that parses."""
    at_next_start: AtNextStart | None
    """The snapshot that the next start of the broker leaves there; null if that is unknown."""
    reasons: tuple[str, ...]
    """Findings about wrong or suspicious files."""
    first_open_offset: Natural | None
    """First offset of the oldest transaction that is open in the snapshot; null without one."""


class StraySnapshot(Part, frozen=True):
    """A snapshot at no boundary."""

    offset: Natural
    at_next_start: AtNextStart | None
    """The snapshot that the next start of the broker leaves there; null if that is unknown."""


class ScannedLogEnd(Part, frozen=True):
    """Log end offset, null if only reading the last segment shows it."""

    offset: Natural | None
    source: str | None
    """The file that shows it."""
    at_least: Natural


class EpochSource(StrEnum):
    """The file that shows the broker epoch."""

    CLEAN_SHUTDOWN_MARKER = "clean-shutdown-marker"
    METADATA_LOG = "metadata-log"


class PartitionScan(msgspec.Struct, frozen=True):
    """One partition. A look at its next start alone (``start_of_partition``) leaves what follows ``facts`` empty.

    Attributes:
        source: listing, and what the broker's files show.
        log_end: as far as known.
        topic_id: 16 bytes of ``partition.metadata``; None where it is absent, as before 2.8, or cannot be read.
        leader_epoch: the last one of the checkpoint; None without any.
        findings: about it, without those of its fates.
        facts: that decide the next start of its broker.
        boundaries: where a snapshot is due, ascending.
        other_snapshots: genuine names at no boundary, ascending.
        blocked_segments: rolled segments that would not be uploaded, ascending; empty where the topic is never uploaded.
        stuck_bytes: from the first of them to the last rolled segment; ``stuck_bytes_after_rebuild`` when everything was rebuilt
            and the broker started again.
        preflight: each rolled segment with its state, and what is tried next; of a topic that is never uploaded no segment.
        next_start: what the broker does to the snapshots; None where that is not known.
        totals: its share of the sums.
        missing_offsets: of the boundaries that need a snapshot and have none.
        greatest_producer_id: in the newest snapshot; -1 without any.
        suspects: those of ``findings`` that make a snapshot suspect.
        expired_from_ms: for each suspect snapshot that may be harmless, the moment from which it is if it lacks no other producers.
        newest_snapshot: None without any, and where it does not parse.
    """

    source: PartitionSource
    log_end: ScannedLogEnd
    topic_id: bytes | None
    leader_epoch: int | None
    findings: tuple[Finding, ...]
    facts: PartitionFacts
    boundaries: tuple[BoundaryScan, ...] = ()
    other_snapshots: tuple[StraySnapshot, ...] = ()
    blocked_segments: tuple[BlockedSegment, ...] = ()
    stuck_bytes: int = 0
    stuck_bytes_after_rebuild: int = 0
    preflight: Preflight = NO_PREFLIGHT
    next_start: BrokerStart | None = None
    totals: ScanTotals = msgspec.field(default_factory=ScanTotals)
    missing_offsets: tuple[int, ...] = ()
    greatest_producer_id: int = -1
    suspects: tuple[Finding, ...] = ()
    expired_from_ms: tuple[int, ...] = ()
    newest_snapshot: SnapshotFile | None = None

    @property
    def last_stable_offset(self) -> int | None:
        """Segments above it wait for open transactions; None where snapshots do not show it."""
        return self.preflight.bound.exact

    def blockers(self) -> Counter[Blocker]:
        """How many segments each reason holds back."""
        return Counter(blocker for segment in self.blocked_segments for blocker in segment.blockers)


class SkippedPartition(msgspec.Struct, frozen=True):
    """A directory that is no source, and that the next start loads all the same: a future copy, a stray, an interrupted compaction."""

    source: PartitionSource
    facts: PartitionFacts


@dataclass(frozen=True, slots=True)
class LogDirScan:
    """One log directory: its broker's files, how the broker stopped, the process that holds it (None if none does).

    ``registered_epoch`` is the broker epoch in the broker's own metadata log; None if there is none, or a clean-shutdown marker.
    ``free_bytes`` of its file system for users without privileges; None where it is not on this machine.
    Two scans are equal whatever else fills the disk.
    """

    state: LogDirState
    shutdown: Shutdown
    process: BrokerProcess | None
    totals: ScanTotals
    registered_epoch: int | None = None
    free_bytes: int | None = field(default=None, compare=False)

    @property
    def held_by(self) -> int | None:
        """Id of the process that holds it, -1 for one that is not visible; None if none does."""
        return None if self.process is None else self.process.process_id

    @property
    def kafka_release(self) -> str | None:
        """The release of the broker that holds it; None if that is not known, or its archives are of several releases."""
        releases = () if self.process is None else self.process.releases
        return ".".join(map(str, releases[0])) if len(releases) == 1 else None

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch in the clean-shutdown marker, else in the metadata log; None if neither has it."""
        marked = self.state.marked_epoch
        return self.registered_epoch if marked is None else marked

    @property
    def broker_epoch_source(self) -> EpochSource | None:
        """The file that shows the broker epoch; None without an epoch."""
        if self.state.marked_epoch is not None:
            return EpochSource.CLEAN_SHUTDOWN_MARKER
        return None if self.registered_epoch is None else EpochSource.METADATA_LOG


class ScanResult(msgspec.Struct, frozen=True):
    """Everything that was found.

    Attributes:
        log_dirs: by path.
        topics: sums by topic name.
        remote_storage: by topic name.
        partitions: the worst first.
        other_findings: of all, in the order of partitions, without those of the fates.
        fates: what the next start of the brokers does, the worst first.
        next_producer_id: the least one that a metadata log has, read after the snapshots; None if no log was read.
        skipped: directories that are no source, with the facts of their start.
    """

    log_dirs: tuple[LogDirScan, ...]
    topics: dict[str, ScanTotals]
    remote_storage: dict[str, RemoteStorage]
    partitions: tuple[PartitionScan, ...]
    other_findings: tuple[Finding, ...]
    fates: tuple[Fate, ...] = ()
    next_producer_id: int | None = None
    skipped: tuple[SkippedPartition, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (*self.other_findings, *findings_of(self.fates))

    @property
    def uploaded(self) -> tuple[PartitionScan, ...]:
        """The partitions of topics whose remote storage may be on."""
        return tuple(each for each in self.partitions if self.may_upload(each))

    def may_upload(self, partition: PartitionScan) -> bool:
        """Whether remote storage of its topic is on, or not known: else its segments wait for nothing."""
        return self.remote_storage.get(partition.source.directory.name.topic) is not RemoteStorage.OFF

    @property
    def waiting_segments(self) -> int:
        """Rolled segments that are uploaded later, without any action."""
        return sum(each.preflight.waiting_segments for each in self.uploaded)

    @property
    def status(self) -> Status:
        """The one answer of the command."""
        totals = self.totals
        return status_of(
            self.fates,
            wrong=totals.corrupt,
            suspect=totals.suspect,
            missing=totals.missing,
            waiting=self.waiting_segments,
            unread=totals.unread,
            waiting_unknown=sum(each.preflight.waiting_unknown_segments for each in self.uploaded),
            topics_without_id=sorted(topics_under_id_zero(each.source for each in self.partitions)),
        )

    @property
    def totals(self) -> ScanTotals:
        """Sum of all."""
        totals = ScanTotals()
        for log_dir in self.log_dirs:
            totals.add(log_dir.totals)
        totals.unread = len(unread_paths(self.other_findings))
        return totals

    @property
    def exit_code(self) -> int:
        """Exit code of the worst finding."""
        return exit_code_of(self.findings)
