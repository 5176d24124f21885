"""Scan of one partition: the state of its boundaries, what the broker's next start does to it, what holds back the upload."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import FileKind, parse_file_name, snapshot_file_name
from snaprebuild.broker.partition_facts import LAST_SEGMENT, LEADER_EPOCHS, TOPIC_ID, FactsReader, may_read
from snaprebuild.broker.partition_fates import CURRENT_MAGIC, are_all_recovered
from snaprebuild.broker.start_facts import RemoteStorage, TransactionIndexFault
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, in_flux, pluralize, unread_paths
from snaprebuild.replay.broker_start import BrokerStart, LoadedLog, SnapshotOrigin, broker_start
from snaprebuild.snapshots.engine.log_facts import above_log_end, log_end_offset
from snaprebuild.snapshots.scan.boundary_state import (
    at_next_start,
    goes_up_wrong,
    snapshot_blocker,
    state_of_file,
    state_without_file,
)
from snaprebuild.snapshots.scan.scan_result import (
    AtNextStart,
    BoundaryScan,
    PartitionScan,
    ScannedLogEnd,
    ScanTotals,
    Shutdown,
    SnapshotStatus,
    StraySnapshot,
)
from snaprebuild.snapshots.scan.snapshot_check import ReadOutcome, SnapshotFile, check_snapshots, suspect_finding
from snaprebuild.snapshots.scan.upload_preflight import (
    BlockedSegment,
    Blocker,
    FreedBy,
    Preflight,
    blocked_segments,
    preflight,
    stable_bound,
)
from snaprebuild.snapshots.source.boundary_needs import boundary_needs
from snaprebuild.snapshots.source.source import IRREGULAR, PartitionSource, log_start_above
from snaprebuild.storage.partition_names import TopicKind

__all__ = [
    "LOST_AT_NEXT_START",
    "at_next_start",
    "goes_up_wrong",
    "scan_partition",
    "snapshot_blocker",
    "start_of_partition",
]

LOST_AT_NEXT_START = frozenset((FindingCause.EMPTY_AT_NEXT_START, FindingCause.REMOVED_AT_NEXT_START))
"""Causes of findings about snapshots that the next start removes, or writes without a look at the log."""

UNKNOWN_EPOCHS = (LeaderEpochEntry(-1, -1),)
"""The epochs of a checkpoint that cannot be read: one epoch with its start offset, below every segment."""


def scan_partition(source: PartitionSource, shutdown: Shutdown, expiration_ms: int, *, reads_log: bool = False) -> PartitionScan:
    """Looks at one partition. A fault of one file is a finding and stops nothing.

    Args:
        source: the partition.
        shutdown: how its broker stopped.
        expiration_ms: ``producer.id.expiration.ms``.
        reads_log: read the batches that the next start reads, too (``LogRead``).
    """
    return _PartitionScanner(source, shutdown, reads_log=reads_log).scan(expiration_ms)


def start_of_partition(source: PartitionSource, shutdown: Shutdown) -> PartitionScan:
    """The facts that decide the next start of one partition, and the findings about what could not be read of them.

    Args:
        source: the partition.
        shutdown: how its broker stopped.
    """
    return _PartitionScanner(source, shutdown, reads_log=False).start()


class _PartitionScanner:
    """Looks at one partition, step by step."""

    def __init__(self, source: PartitionSource, shutdown: Shutdown, *, reads_log: bool) -> None:
        is_running = shutdown is Shutdown.RUNNING
        if source.is_broker_running == is_running:
            self.source = source
        else:
            self.source = replace(source, is_broker_running=is_running)
        self.directory = source.directory
        self.shutdown = shutdown
        self.segments = self.directory.segments
        self.bases = [segment.base_offset for segment in self.segments]
        self.sizes = [segment.log.identity.size_bytes for segment in self.segments]
        self.known_bases = frozenset(self.bases)
        self.can_be_tiered = source.can_be_tiered
        self.log_start = source.log_start_offset
        self.findings: list[Finding] = []
        self.suspects: list[Finding] = []
        self.reader = FactsReader(self.directory, source.log_dir, shutdown)
        is_served = source.topic_kind is not TopicKind.CLUSTER_METADATA and self.directory.store.is_local
        storage = RemoteStorage.UNKNOWN if self.can_be_tiered else RemoteStorage.OFF
        self.facts = self.reader.read(storage, is_served=is_served, reads_log=reads_log)
        self.log_end = self._log_end()
        self.leader_epochs = self._leader_epochs()
        self._add_unread_indexes()

    def start(self) -> PartitionScan:
        """The facts, and what the start makes of the snapshots by their names: their contents are not read."""
        self._report_lost_at_start()
        return PartitionScan(
            source=self.source,
            log_end=self.log_end,
            topic_id=self.facts.topic_id,
            leader_epoch=self._last_epoch(),
            findings=tuple(each for each in self.findings if each.is_unread or each.cause in LOST_AT_NEXT_START),
            facts=self.facts,
        )

    def scan(self, expiration_ms: int) -> PartitionScan:
        self._check_names()
        if not self.segments:
            self._add_finding("no-segment", Severity.NOTE, "has no segment: nothing to rebuild")
        due = self._due_offsets()
        self.needs = boundary_needs(self.source, self.log_end.offset)
        self.missing = frozenset(self.needs.missing_offsets)
        checked = check_snapshots(
            self.directory,
            due,
            expiration_ms,
            may_lack_data=not self.can_be_tiered,
            is_bootstrapped=bool(self.bases) and self.log_start < self.bases[0],
            is_broker_running=self.shutdown is Shutdown.RUNNING,
        )
        self._report_wrong(checked)
        self._check_log_start()
        next_start = self._next_start({snapshot.offset: snapshot.outcome is not ReadOutcome.CORRUPT for snapshot in checked})
        after = None if next_start is None else dict(next_start.after)
        boundaries = self._boundaries(due, checked, after)
        self._report_missing(boundaries)
        others = self._other_snapshots(frozenset(due), checked, after)
        self._report_next_start(boundaries, others)
        blocked = self._blocked(boundaries)
        upload = self._preflight(checked, boundaries, blocked)
        self._report_waiting(upload)
        stuck, stuck_after_rebuild = self._stuck_bytes(blocked)
        return PartitionScan(
            source=self.source,
            log_end=self.log_end,
            boundaries=boundaries,
            other_snapshots=others,
            blocked_segments=blocked,
            stuck_bytes=stuck,
            stuck_bytes_after_rebuild=stuck_after_rebuild,
            preflight=upload,
            next_start=next_start,
            topic_id=self.facts.topic_id,
            leader_epoch=self._last_epoch(),
            findings=tuple(self.findings),
            suspects=tuple(self.suspects),
            expired_from_ms=tuple(each.expired_from_ms for each in checked if each.is_suspect and each.expired_from_ms is not None),
            totals=self._totals(boundaries, checked, others, blocked, stuck, stuck_after_rebuild),
            missing_offsets=self.needs.missing_offsets,
            facts=self.facts,
            greatest_producer_id=checked[-1].greatest_producer_id if checked else -1,
            newest_snapshot=checked[-1] if checked and checked[-1].parses else None,
        )

    def _add_finding(
        self, code: str, severity: Severity, message: str, *, name: str | None = None, offset: int | None = None
    ) -> None:
        path = self.directory.path if name is None else self.directory.file_path(name)
        self.findings.append(Finding(code, severity, path, message, offset))

    def _add_count_finding(
        self, code: str, offsets: Sequence[int], severity: Severity, message: str, noun: str = "snapshot"
    ) -> None:
        """Adds one finding about all of these offsets, if there are any: ``{count}`` and ``{some}`` of the message are replaced."""
        if offsets:
            self._add_finding(code, severity, message.format(count=pluralize(len(offsets), noun), some=_some(offsets)))

    @property
    def _severity(self) -> Severity:
        """Severity of a finding that matters only to tiered storage."""
        return Severity.FINDING if self.can_be_tiered else Severity.NOTE

    # ------------------------------------------------------------ where it begins and ends

    def _log_end(self) -> ScannedLogEnd:
        largest = max(self.directory.snapshot_offsets, default=0)
        if not self.segments:
            return ScannedLogEnd(None, None, largest)
        last = self.segments[-1]
        if last.size_bytes == 0:
            return ScannedLogEnd(last.base_offset, "the last segment is empty", last.base_offset)
        checkpointed = (self.source.log_dir.recovery_points or {}).get(self.source.directory.topic_partition, 0)
        end = self.facts.end
        if end is not None and self.shutdown is Shutdown.CLEAN:
            return ScannedLogEnd(end.offset, _end_source(end.offset, largest, checkpointed), end.offset)
        if self.shutdown is Shutdown.CLEAN and not self.directory.store.is_local and checkpointed == largest > last.base_offset:
            # No broker starts on an object store, so that the end has no fate: requests are spared.
            return ScannedLogEnd(largest, _end_source(largest, largest, checkpointed), largest)
        at_least = max(last.base_offset, checkpointed, largest)
        if error := self.reader.errors.get(LAST_SEGMENT):
            self.findings.append(finding_of_error(error, self.directory.path))
        elif self.shutdown is Shutdown.CLEAN or not self.source.log_dir.is_broker_directory:
            # The log end may need a snapshot here, and the small files do not show where it is.
            try:
                offset = log_end_offset(self.directory)
                return ScannedLogEnd(offset, "the end of the last segment", offset)
            except (FormatError, ReadFailedError) as error:
                self.findings.append(finding_of_error(error, self.directory.path))
        return ScannedLogEnd(None, None, at_least)

    def _due_offsets(self) -> list[int]:
        due = self.bases[1:]
        end = self.log_end.offset
        if end and (not due or end > due[-1]):
            due.append(end)
        return due

    def _check_log_start(self) -> None:
        end = self.log_end.offset
        # While a broker runs, the checkpoint may be younger than the listing. After a stop it is a fate.
        if end is not None and self.shutdown is Shutdown.UNKNOWN:
            self.findings += log_start_above(self.source, end)

    # ------------------------------------------------------------ names

    def _check_names(self) -> None:
        directory = self.directory
        unloadable = self.facts.unloadable_names if self.is_judged else ()
        for name in directory.misnamed:
            if name in unloadable:
                continue
            self._add_finding("misnamed-file", Severity.FINDING, _misnamed_reason(name), name=name)
        lone = Severity.NOTE if self.shutdown is Shutdown.RUNNING else Severity.FINDING
        for names, code, severity, message in (
            (directory.unreadable, "not-a-regular-file", Severity.FINDING, IRREGULAR),
            (directory.lone_indexes, "index-without-segment", lone, _LONE_INDEX),
            (directory.temporary, "left-over-temporary", Severity.NOTE, "was left by an interrupted run; a broker ignores it"),
        ):
            for name in names:
                self._add_finding(code, severity, message, name=name)
        if directory.deleted:
            self._add_finding(
                "left-over-deleted", Severity.NOTE, f"{pluralize(len(directory.deleted), 'file')} marked for deletion"
            )
        if directory.sub_directories:
            self._add_finding("sub-directory", Severity.NOTE, f"has directories inside: {_some(directory.sub_directories)}")
        self._check_owners()
        self._check_sizes()

    def _check_owners(self) -> None:
        """A broker does not start when it may not read a file of a partition (``removeTempFilesAndCollectSwapFiles``)."""
        if self.is_judged or not self.segments:
            return
        broker = self.segments[-1].log.ownership
        for file in [segment.log for segment in self.segments] + [file for _, file in self.directory.snapshots]:
            if not may_read(broker, file.ownership):
                message = f"the broker, which seems to be user {broker.uid}, may not read it ({file.ownership}), and does not start"
                path = self.directory.file_path(file.name)
                cause = FindingCause.NOT_READABLE_BY_BROKER
                self.findings.append(Finding("unreadable-by-broker", Severity.FINDING, path, message, cause=cause))

    def _check_sizes(self) -> None:
        """Only the cleaner leaves a rolled segment without a batch."""
        empty = [base for base, size in zip(self.bases[:-1], self.sizes[:-1], strict=True) if size == 0]
        if empty and self.can_be_tiered:
            count = pluralize(len(empty), "rolled segment")
            message = f"{count} without a byte ({_some(empty)}): their records are lost here, and they would be uploaded empty"
            self._add_finding("empty-segment", Severity.FINDING, message, offset=empty[0])

    # ------------------------------------------------------------ snapshots

    def _report_wrong(self, checked: Sequence[SnapshotFile]) -> None:
        for snapshot in checked:
            if isinstance(snapshot.error, FormatError):
                message = f"{snapshot.error.message}; a broker deletes it when it loads it, and uploads it as it is"
                self._add_finding("corrupt-snapshot", Severity.FINDING, message, name=snapshot.file.name, offset=snapshot.offset)
            elif isinstance(snapshot.error, ChangedFileError):
                self.findings.append(in_flux(snapshot.error, self.directory.path, snapshot.offset))
            elif snapshot.outcome is ReadOutcome.UNREADABLE:
                assert snapshot.error is not None
                self._report_unreadable(snapshot)
            if not snapshot.parses:
                continue
            for suspicion in snapshot.suspicions:
                path = self.directory.file_path(snapshot.file.name)
                finding = suspect_finding(path, snapshot.offset, suspicion)
                self.findings.append(finding)
                self.suspects.append(finding)
        if self.can_be_tiered and checked and all(each.is_empty and not each.suspicions for each in checked):
            message = "all its snapshots are empty. They are right if nobody writes with idempotence, else wrong. Run `verify`"
            self._add_finding("only-empty-snapshots", Severity.NOTE, message)

    def _report_unreadable(self, snapshot: SnapshotFile) -> None:
        assert isinstance(snapshot.error, ReadFailedError)
        path = self.directory.file_path(snapshot.file.name)
        for index, finding in enumerate(self.findings):
            if finding.cause is FindingCause.NOT_READABLE_BY_BROKER and finding.path == path:  # one finding for one cause
                self.findings[index] = replace(finding, is_unread=True)
                return
        self.findings.append(finding_of_error(snapshot.error, path))

    def _next_start(self, parses: Mapping[int, bool]) -> BrokerStart | None:
        """The effect of the start on the snapshots; None where that is not known.

        Args:
            parses: offset of each snapshot, and whether it parses.
        """
        if not self.segments or self.shutdown is Shutdown.UNKNOWN:
            return None
        # Where the log end is not known, any offset above everything else is used for it, and nothing is reported about it.
        end = self.log_end.offset if self.log_end.offset is not None else self.log_end.at_least + 1
        snapshots = dict(parses)
        for name in self.directory.misnamed:
            known = parse_file_name(name)
            if known is not None and known.kind is FileKind.MISNAMED_SNAPSHOT and known.offset is not None:
                snapshots.setdefault(known.offset, True)
        if self.shutdown is Shutdown.RUNNING:
            snapshots[end] = True  # written when it stops
        return broker_start(
            LoadedLog(
                base_offsets=tuple(self.bases),
                checkpointed_log_start_offset=self.source.checkpointed_log_start_offset,
                log_end_offset=end,
                snapshots=snapshots,
                is_clean=self.shutdown is not Shutdown.UNCLEAN,
                recovery_point=self.source.recovery_point,
                without_index=self._recovered_for_an_index(),
                is_tiered=self.source.is_tiered,
            )
        )

    def _recovered_for_an_index(self) -> frozenset[int]:
        """Base offsets of the segments that the start recovers because it makes an index anew."""
        damaged = (base for base, fault in self.facts.transaction_index_faults if fault is TransactionIndexFault.BELOW_BASE)
        return frozenset((*self.facts.without_index, *damaged))

    def _boundaries(
        self, due: Sequence[int], checked: Sequence[SnapshotFile], after: dict[int, SnapshotOrigin] | None
    ) -> tuple[BoundaryScan, ...]:
        by_offset = {snapshot.offset: snapshot for snapshot in checked}
        return tuple(self._boundary(offset, by_offset.get(offset), after) for offset in due)

    def _boundary(self, offset: int, snapshot: SnapshotFile | None, after: dict[int, SnapshotOrigin] | None) -> BoundaryScan:
        entries = None
        reasons: tuple[str, ...] = ()
        first_open_offset = None
        if snapshot is not None:
            entries = snapshot.entries if snapshot.parses else None
            reasons = tuple(suspicion.text for suspicion in snapshot.suspicions)
            first_open_offset = snapshot.first_open_offset
        return BoundaryScan(
            offset=offset,
            is_log_end=offset == self.log_end.offset,
            state=self._state(offset, snapshot),
            entries=entries,
            at_next_start=None if after is None else at_next_start(after.get(offset), snapshot is not None),
            reasons=reasons,
            first_open_offset=first_open_offset,
        )

    def _state(self, offset: int, snapshot: SnapshotFile | None) -> SnapshotStatus:
        if self.directory.unreadable and snapshot_file_name(offset) in self.directory.unreadable:
            return SnapshotStatus.IRREGULAR
        if snapshot is not None:
            return state_of_file(snapshot)
        if offset in self.missing:
            return SnapshotStatus.MISSING
        return state_without_file(self.source, offset, is_log_end=offset == self.log_end.offset)

    def _report_missing(self, boundaries: Sequence[BoundaryScan]) -> None:
        missing = self.needs.missing_offsets
        message = f"{len(missing)} of {len(boundaries)} snapshots are missing: {{some}}"
        self._add_count_finding("missing-snapshots", missing, Severity.FINDING, message)
        made = [boundary.offset for boundary in boundaries if boundary.state is SnapshotStatus.REGENERATED]
        message = "the broker makes {count} itself at its next start: {some}"
        self._add_count_finding("regenerated-at-next-start", made, Severity.NOTE, message)

    def _other_snapshots(
        self, due: frozenset[int], checked: Sequence[SnapshotFile], after: dict[int, SnapshotOrigin] | None
    ) -> tuple[StraySnapshot, ...]:
        # A file above the last segment may be at the log end as long as that is not known.
        most = self.bases[-1] if self.log_end.offset is None and self.bases else sys.maxsize
        others = [each.offset for each in checked if each.offset not in due and each.offset <= most]
        if after is None:
            return tuple(StraySnapshot(offset, None) for offset in others)
        return tuple(StraySnapshot(offset, at_next_start(after.get(offset), had_file=True)) for offset in others)

    def _report_next_start(self, boundaries: Sequence[BoundaryScan], others: Sequence[StraySnapshot]) -> None:
        end = self.log_end.offset
        above = [] if end is None else [each.offset for each in others if each.offset > end]
        if end is not None and above:
            self.findings.append(above_log_end(self.source, above, end))
        known = self.known_bases.union(above)
        stray = {each.offset: each.at_next_start for each in others if each.offset not in known}
        fate = "; the broker removes such files at its next start" if AtNextStart.REMOVED in stray.values() else ""
        self._add_count_finding("stray-snapshots", [*stray], Severity.NOTE, "{count} without a segment: {some}" + fate)
        self._report_lost({boundary.offset: boundary.at_next_start for boundary in boundaries})

    def _report_lost_at_start(self) -> None:
        """Reports what the start makes of the snapshots by their names: a file that does not parse makes no other one empty."""
        existing = set(self.directory.snapshot_offsets)
        next_start = self._next_start(dict.fromkeys(existing, True))
        if next_start is not None:
            after = dict(next_start.after)
            self._report_lost({offset: at_next_start(after.get(offset), offset in existing) for offset in self._due_offsets()})

    def _report_lost(self, after: Mapping[int, AtNextStart | None]) -> None:
        """Reports the snapshots that the start writes without a look at the log, and those that it removes.

        Args:
            after: offset of each boundary, and what the start leaves there.
        """
        empty = [offset for offset, fate in after.items() if fate is AtNextStart.EMPTY]
        if empty:
            message = _EMPTY_AT_START.format(some=_some(empty))
            cause = FindingCause.EMPTY_AT_NEXT_START
            self.findings.append(Finding("empty-at-next-start", self._severity, self.directory.path, message, cause=cause))
        removed = [offset for offset, fate in after.items() if fate is AtNextStart.REMOVED and offset > self.log_start]
        if removed:
            count = pluralize(len(removed), "snapshot")
            message = f"the broker removes {count} at its next start and writes none instead: {_some(removed)}"
            cause = FindingCause.REMOVED_AT_NEXT_START
            self.findings.append(Finding("removed-at-next-start", self._severity, self.directory.path, message, cause=cause))

    # ------------------------------------------------------------ the upload

    def _blocked(self, boundaries: Sequence[BoundaryScan]) -> tuple[BlockedSegment, ...]:
        if not self.can_be_tiered:
            return ()
        blockers = {each.offset: blocker.alone for each in boundaries if (blocker := snapshot_blocker(each)) is not None}
        lost = self.facts.uncovered_magic == CURRENT_MAGIC
        uncovered_blocker = Blocker.LEADER_EPOCHS_LOST if lost else Blocker.NO_LEADER_EPOCHS
        blocked = tuple(blocked_segments(self.segments, self.log_start, blockers, self._first_epoch_offset(), uncovered_blocker))
        for blocker, reason in _EXPLAINED.items():
            if blocker is Blocker.LEADER_EPOCHS_LOST and self.shutdown is not Shutdown.UNKNOWN:
                continue  # a fate
            offsets = [segment.base_offset for segment in blocked if blocker in segment.blockers]
            message = "{count} cannot be uploaded ({some}): " + reason
            self._add_count_finding(blocker.value, offsets, Severity.FINDING, message, "rolled segment")
        if self.source.is_tiered:
            message = (
                "remote storage is on already: these files do not show which segments were uploaded, perhaps some blocked ones"
            )
            self._add_finding("already-tiered", Severity.NOTE, message)
        return blocked

    def _leader_epochs(self) -> tuple[LeaderEpochEntry, ...]:
        """Leader epochs and start offsets of the checkpoint.

        One epoch below everything where the checkpoint cannot be read. What does not parse is a fate of the next start.
        """
        reader = self.reader
        for error, name, code in (
            (reader.epoch_error or reader.errors.get(LEADER_EPOCHS), LEADER_EPOCHS, "unreadable-leader-epochs"),
            (reader.topic_id_error or reader.errors.get(TOPIC_ID), TOPIC_ID, "unreadable-topic-id"),
        ):
            if error is None or (name not in reader.errors and self.is_judged):
                continue
            message = f"{error}; a broker cannot load the log with it"
            self.findings.append(Finding(code, Severity.FINDING, self.directory.path, message, is_unread=True))
        is_known = reader.epoch_error is None and LEADER_EPOCHS not in reader.errors
        return self.facts.leader_epochs if is_known else UNKNOWN_EPOCHS

    def _add_unread_indexes(self) -> None:
        """Transaction indexes that could not be read: what is in them may end the start, or remove snapshots."""
        for name, error in self.reader.errors.items():
            if name not in (LAST_SEGMENT, LEADER_EPOCHS, TOPIC_ID):
                self.findings.append(finding_of_error(error, self.directory.file_path(name)))

    def _last_epoch(self) -> int | None:
        last = self.leader_epochs[-1].epoch if self.leader_epochs else -1
        return None if last < 0 else last

    @property
    def is_judged(self) -> bool:
        """Whether the partition has fates: a broker was stopped, and will load it."""
        return self.shutdown in (Shutdown.CLEAN, Shutdown.UNCLEAN) and self.facts.is_served

    def _first_epoch_offset(self) -> int | None:
        """Start offset of the first leader epoch; None without any, -1 where it is not known or the next start writes all of them."""
        if are_all_recovered(self.facts):
            return -1
        return min((entry.start_offset for entry in self.leader_epochs), default=None)

    def _stuck_bytes(self, blocked: tuple[BlockedSegment, ...]) -> tuple[int, int]:
        """Bytes from the first blocked segment to the last rolled one: now, and once everything is rebuilt and the broker started."""
        left = (segment for segment in blocked if not _LASTING.isdisjoint(segment.blockers))
        return self._closed_bytes_from(next(iter(blocked), None)), self._closed_bytes_from(next(left, None))

    def _closed_bytes_from(self, first: BlockedSegment | None) -> int:
        return 0 if first is None else sum(self.sizes[bisect_left(self.bases, first.base_offset) : -1])

    def _preflight(
        self, checked: Sequence[SnapshotFile], boundaries: Sequence[BoundaryScan], blocked: tuple[BlockedSegment, ...]
    ) -> Preflight:
        high_watermark = (self.source.log_dir.high_watermarks or {}).get(self.source.directory.topic_partition)
        is_clean = self.shutdown is Shutdown.CLEAN
        # Where the end is not known, a snapshot above the last segment's base may belong to what a crash took.
        end = self.log_end.offset
        certain = 0
        if self.bases:
            certain = self.bases[-1] if end is None else end
        bound = stable_bound([each for each in checked if each.offset <= certain], end, high_watermark, is_clean=is_clean)
        if not self.can_be_tiered:
            return Preflight(bound, (), None)
        bad = frozenset(boundary.offset for boundary in boundaries if goes_up_wrong(boundary))
        return preflight(self.segments, self.log_start, blocked, bad, bound, is_tiered=self.source.is_tiered)

    def _report_waiting(self, upload: Preflight) -> None:
        """Rolled segments above the last stable offset or the high watermark. They wait by design, nothing is wrong with them."""
        if upload.waiting_segments:
            count = pluralize(upload.waiting_segments, "rolled segment")
            message = f"{count} beyond offset {upload.bound.ceiling}, where a transaction is open or nothing is replicated yet"
            self._add_finding("above-last-stable-offset", Severity.NOTE, f"{message}: they are uploaded after that")

    def _totals(
        self,
        boundaries: Sequence[BoundaryScan],
        checked: Sequence[SnapshotFile],
        others: Sequence[StraySnapshot],
        blocked: Sequence[BlockedSegment],
        stuck: int,
        stuck_after_rebuild: int,
    ) -> ScanTotals:
        return ScanTotals(
            partitions=1,
            segments=len(self.segments),
            size_bytes=sum(self.sizes),
            boundaries=len(boundaries),
            missing=len(self.needs.missing_offsets),
            not_needed=self.needs.not_needed,
            made_by_broker=self.needs.made_by_broker,
            corrupt=sum(1 for snapshot in checked if snapshot.outcome is ReadOutcome.CORRUPT),
            suspect=sum(1 for snapshot in checked if snapshot.is_suspect),
            misnamed=len(self.directory.misnamed),
            stray=sum(1 for each in others if each.offset not in self.known_bases),
            unread=len(unread_paths(self.findings)),
            blocked_segments=len(blocked),
            stuck_bytes=stuck,
            stuck_bytes_after_rebuild=stuck_after_rebuild,
        )


_LONE_INDEX = "belongs to no segment: a segment was lost, or is being deleted; the broker removes the index when it loads the log"

_EMPTY_AT_START = (
    "has no snapshot, so the broker writes EMPTY ones at its next start: {some}. "
    "It forgets its producers and open transactions, accepts duplicates if it leads, and may upload beyond the last stable offset"
)

# The missing snapshot has a finding of its own.
_EXPLAINED = {
    Blocker.SNAPSHOT_REMOVED_AT_START: "the next start of the broker removes their snapshot; rebuild after that start",
    Blocker.IRREGULAR_SNAPSHOT: "the file with the name of their snapshot is not a regular file; move it away, then rebuild",
    Blocker.MISSING_OFFSET_INDEX: "they have no .index; the broker makes one at its next start",
    Blocker.MISSING_TIME_INDEX: "they have no .timeindex; the broker makes one at its next start",
    Blocker.NO_LEADER_EPOCHS: "no leader epoch covers them (message format 0 or 1); only retention frees the partition",
    Blocker.LEADER_EPOCHS_LOST: "leader-epoch-checkpoint is missing, empty or cut; copy it from a replica in sync",
    Blocker.SEGMENT_TOO_LARGE: "they are larger than 2^31 - 1 bytes; only retention frees the partition",
}


_LASTING = frozenset(blocker for blocker in Blocker if blocker.freed_by not in (FreedBy.REBUILD, FreedBy.BROKER_START))


def _end_source(end: int, largest_snapshot: int, recovery_point: int) -> str:
    if end != largest_snapshot:
        return "the end of the last segment"
    if end == recovery_point:
        return "the recovery point of a clean stop"
    return "the last snapshot of a clean stop"


def _misnamed_reason(name: str) -> str:
    known = parse_file_name(name)
    if known is None or known.offset is None:
        return "a broker cannot load the log with it: it takes the text before the first dot for an offset (NumberFormatException)"
    return f"no broker wrote this name, but it reads it as offset {known.offset}"


def _some(values: Sequence[object]) -> str:
    """A few of many, for a message."""
    if len(values) <= 6:
        return ", ".join(str(value) for value in values)
    return f"{', '.join(str(value) for value in values[:3])} ... {values[-1]}"
