"""Where a command reads from: paths or a ``server.properties``, narrowed by a selection, with what the broker's files show."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from formats.broker.broker_files import Properties
from formats.errors import FormatError
from formats.partition.file_names import BROKER_FILES, DirectoryForm, FileKind, parse_file_name
from snaprebuild.errors import ChangedFileError, ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, first_of, pluralize
from snaprebuild.replay.broker_start import loaded_log_start
from snaprebuild.snapshots.run import RunFacts
from snaprebuild.snapshots.source.broker_properties import (
    expiration_of,
    log_dirs_of,
    log_dirs_online,
    offline_log_dir,
)
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.storage.io_limits.policy import RunLimits, current_limits
from snaprebuild.storage.local.broker_lock import lock_holder
from snaprebuild.storage.log_dir import Discovery, LogDirState, find_partitions, read_leader_epochs
from snaprebuild.storage.partition_dir import PartitionDir, gone_partition
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of
from snaprebuild.storage.store import USUAL_S3, absolute, common_ancestor, relative
from snaprebuild.storage.store_path import store_of

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "IRREGULAR",
    "PartitionSource",
    "Source",
    "check_segments_are_files",
    "irregular_snapshots",
    "is_cleaner_at_work",
    "live_broker_notes",
    "log_start_above",
    "open_source",
    "opened_partition",
    "partition_source",
    "why_skipped",
    "yield_to_brokers",
]


class PartitionSource(msgspec.Struct, frozen=True):
    """A partition with what its broker's files show.

    Attributes:
        directory: the listing.
        log_dir: the small files of its log directory.
        relative: its path below the lowest directory that all paths of the request are in.
        is_tiered: remote storage is on, as far as the checkpoints show.
        is_broker_running: a broker holds the log directory, as far as its lock shows.
        written_by_us: offsets of snapshots that a receipt names, if the log begins with a snapshot: they are no evidence for that one.
        uploads_under_id_zero: once its snapshots are there, remote storage takes its segments under topic id zero (``topic_ids``).
    """

    directory: PartitionDir
    log_dir: LogDirState
    relative: str
    is_tiered: bool = False
    is_broker_running: bool = False
    written_by_us: frozenset[int] = frozenset()
    uploads_under_id_zero: bool = False

    @property
    def topic_kind(self) -> TopicKind:
        """The kind of the topic for tiered storage."""
        return topic_kind_of(self.directory.name.topic)

    @property
    def is_compacted(self) -> bool:
        """Whether the log cleaner of the broker works on this partition (it has a cleaner checkpoint)."""
        return self.directory.topic_partition in (self.log_dir.cleaner_points or {})

    @property
    def can_be_tiered(self) -> bool:
        """Neither internal nor compacted (``UnifiedLog.isRemoteLogEnabled``)."""
        return self.topic_kind is TopicKind.ORDINARY and not self.is_compacted

    @property
    def checkpointed_log_start_offset(self) -> int:
        """The log start offset of the checkpoint; 0 where it has none, as a broker takes it."""
        return (self.log_dir.log_starts or {}).get(self.directory.topic_partition, 0)

    @property
    def log_start_offset(self) -> int:
        """The log start offset that a broker would use."""
        first_base = self.directory.segments[0].base_offset if self.directory.segments else 0
        return loaded_log_start(self.checkpointed_log_start_offset, first_base, is_tiered=self.is_tiered)

    @property
    def remote_from(self) -> int | None:
        """Where the log begins in remote storage, below the first segment on disk; None where it begins on disk, or that is not known."""
        segments = self.directory.segments
        start = self.log_start_offset
        if segments and start < segments[0].base_offset:
            return start
        return None

    @property
    def recovery_point(self) -> int:
        """Below this offset everything was flushed; 0 without a checkpoint, as a broker takes it."""
        return (self.log_dir.recovery_points or {}).get(self.directory.topic_partition, 0)


class Source(msgspec.Struct, frozen=True):
    """The partitions and findings below the paths.

    Attributes:
        partitions: ready to be read, ordered by path.
        findings: about directories that were skipped, refused, or could not be listed.
        expiration_ms: from ``server.properties``, None without one.
        properties: the ``server.properties``, None without one.
        duplicates: those of the findings that are fates of the next start, too.
        skipped: directories that are no source, and that a start of the broker loads all the same.
        facts: what the run reads once.
    """

    partitions: tuple[PartitionSource, ...]
    findings: tuple[Finding, ...]
    expiration_ms: int | None = None
    properties: Properties | None = None
    duplicates: tuple[Finding, ...] = ()
    skipped: tuple[PartitionSource, ...] = ()
    facts: RunFacts = msgspec.field(default_factory=RunFacts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(partition.directory.size_bytes for partition in self.partitions)

    @property
    def log_dirs(self) -> tuple[LogDirState, ...]:
        """The log directories, each once."""
        return tuple({partition.log_dir.path: partition.log_dir for partition in self.partitions}.values())

    @property
    def is_local(self) -> bool:
        """Whether no partition is in an object store."""
        return all(partition.log_dir.store.is_local for partition in self.partitions)


def open_source(
    paths: Iterable[str],
    server_properties: str | None = None,
    selection: Selection = EVERYTHING,
    run: Run | None = None,
    *,
    holds_locks: bool = False,
) -> Source:
    """Finds the selected partitions below ``paths`` and below the ``log.dirs`` of a ``server.properties``.

    Args:
        paths: directories, or prefixes of object stores.
        server_properties: path of the configuration of a broker.
        selection: what is wanted of them.
        run: how object stores are reached, and its facts; None for a run that begins with this call, and the usual stores.
        holds_locks: this process holds the locks of the log directories, so that no broker runs on them.

    Some of several ``log.dirs`` may be offline, as for a broker: each is a finding, and the others are read.

    Raises:
        UsageError: nothing to read from, a path that is no directory, or no directory among the ``log.dirs``.
    """
    facts = RunFacts() if run is None else run.facts
    stores = USUAL_S3 if run is None else run.stores
    properties = facts.properties_if_given(server_properties)
    log_dirs = [] if properties is None else [os.path.abspath(path) for path in log_dirs_of(properties)]
    online, findings = ([], []) if properties is None else log_dirs_online(properties, server_properties)
    typed = list(paths)
    roots = [*typed, *_not_among(online, typed)]
    if not all(roots):
        raise UsageError("a path is empty")
    if not roots:
        raise UsageError("name at least one path, or the --server-properties of a broker")
    discovery = find_partitions(roots, stores)
    findings += _discovery_findings(discovery, log_dirs)
    ancestor = common_ancestor(roots)
    partitions: list[PartitionSource] = []
    skipped: list[PartitionSource] = []
    for log_dir in discovery.log_dirs:
        for directory in log_dir.partitions:
            if not selection.takes(directory):
                continue
            reason = why_skipped(directory, directory.path in discovery.named, holds_lock=holds_locks)
            if reason is None:
                partitions.append(partition_source(directory, log_dir.state, relative(directory.path, ancestor)))
            else:
                skipped.append(PartitionSource(directory, log_dir.state, relative(directory.path, ancestor)))
                findings.append(reason)
    duplicates = _in_two_log_dirs(partitions, log_dirs)
    findings += duplicates
    narrowed = selection.is_narrowed
    directories = [directory for log_dir in discovery.log_dirs for directory in log_dir.partitions]
    if narrowed and not any(map(selection.takes, directories)):
        findings.append(
            Finding(
                "nothing-found",
                Severity.FINDING,
                absolute(roots[0]),
                selection.why_nothing(directories),
                cause=FindingCause.NOTHING_FOUND,
            )
        )
    else:
        names = [directory.topic_partition for directory in directories]
        absent = selection.absent_findings(names, absolute(roots[0]), are_others_read=bool(partitions))
        findings += absent
        if not absent and not partitions and not discovery.gone and not any(finding.severity for finding in findings):
            # A mistyped path must not look like health; the directory of a new broker has no partition yet.
            is_new = any(store_of(root, stores).present(absolute(root), BROKER_FILES) for root in roots)
            if not is_new:
                message = "no partition was found here"
                findings.append(
                    Finding("nothing-found", Severity.FINDING, absolute(roots[0]), message, cause=FindingCause.NOTHING_FOUND)
                )
    source = Source(
        partitions=tuple(partitions),
        findings=tuple(findings),
        expiration_ms=None if properties is None else expiration_of(properties),
        properties=properties,
        duplicates=tuple(duplicates),
        skipped=tuple(skipped),
        facts=facts,
    )
    live = [] if holds_locks else _live_log_dirs(source)
    if not live:
        return source
    return replace(source, partitions=tuple(replace(each, is_broker_running=each.log_dir.path in live) for each in partitions))


def yield_to_brokers(source: Source, limits: RunLimits | None = None) -> None:
    """Makes a run read with low priority if a live broker holds a log directory, where the command wants that.

    Args:
        source: that it reads.
        limits: of the run; None for those of the work that this thread does.
    """
    limits = limits or current_limits()
    limits_of_io = limits.io
    if limits_of_io.adapts_to_broker and (
        limits_of_io.is_low or any(partition.is_broker_running for partition in source.partitions)
    ):
        limits.adapt_to_live_broker(len({partition.directory.device for partition in source.partitions}))


def _discovery_findings(discovery: Discovery, log_dirs: list[str]) -> list[Finding]:
    def of_fault(error: ReadFailedError) -> Finding:
        if error.path in log_dirs:
            return offline_log_dir(error.path, error.message)
        return finding_of_error(error, error.path or "", may_vanish=True)

    return [
        *map(of_fault, discovery.faults),
        *(Finding("duplicate-path", Severity.NOTE, path, "reached before by another path") for path in discovery.duplicates),
        *(finding_of_error(gone_partition(path), path) for path in discovery.gone),
        *(Finding("odd-keys", Severity.FINDING, path, message) for path, message in discovery.left_out),
        *(
            Finding(
                "unreadable-broker-file",
                Severity.FINDING,
                log_dir.state.path,
                fault,
                is_unread=True,
                cause=FindingCause.SETTINGS_UNREADABLE,
            )
            for log_dir in discovery.log_dirs
            for fault in log_dir.state.faults
        ),
    ]


def _not_among(log_dirs: list[str], paths: list[str]) -> list[str]:
    """The log directories of a configuration that are not also named as paths, as the commands after an ``undo`` do."""
    if not paths:
        return log_dirs
    named = {os.path.realpath(path) for path in paths} if log_dirs else set()
    return [each for each in log_dirs if os.path.realpath(each) not in named]


def opened_partition(path: str, run: Run) -> PartitionSource:
    """The one partition whose directory is at ``path``.

    Raises:
        UsageError: there is no such directory, or it is not the directory of one partition of a topic.
        RefusedError: the partition may not be a source.
        ReadFailedError: it cannot be listed.
    """
    expected = "expected the directory of one partition of a topic, <topic>-<partition>"
    try:
        source = open_source([path], run=run)
    except UsageError as error:
        raise UsageError(f"{error.message.partition(': name ')[0]}: {expected}", path=path) from error
    below = sorted({each.directory.topic_partition for each in source.partitions if each.directory.path != path})
    if below:
        raise UsageError(f"{expected}, found {pluralize(len(below), 'partition')} below it ({first_of(below)})", path=path)
    if source.partitions:
        if source.partitions[0].topic_kind is TopicKind.CLUSTER_METADATA:
            raise UsageError(f"is the metadata log of the cluster: {expected}", path=path)
        return source.partitions[0]
    for finding in source.findings:
        if finding.severity is Severity.STORAGE:
            raise ReadFailedError(finding.message, path=finding.path)
        if finding.path == path and finding.cause is not FindingCause.NOTHING_FOUND:
            raise RefusedError(finding.message, path=path)
    raise UsageError(f"{expected}, found no segment in it", path=path)


def _in_two_log_dirs(partitions: Iterable[PartitionSource], log_dirs: Iterable[str]) -> list[Finding]:
    """``LogManager.loadLog`` throws when one broker has a partition twice. Elsewhere equal names are those of replicas, or of copies."""
    own = {os.path.realpath(path) for path in log_dirs}
    first: dict[str, str] = {}
    findings = []
    for partition in partitions:
        if partition.log_dir.path in own:
            other = first.setdefault(partition.directory.topic_partition, partition.directory.path)
            if other != partition.directory.path:
                message = f"is also in {other}: the broker does not start with a partition in two log directories"
                findings.append(Finding("partition-in-two-log-dirs", Severity.DAMAGED, partition.directory.path, message))
    return findings


def live_broker_notes(source: Source) -> list[Finding]:
    """A note for each log directory that a live broker holds; reading is allowed meanwhile, writing is not."""
    message = "a live broker holds this log directory: its files may change while they are read, and nothing is written into it"
    rate = current_limits().io.bytes_per_second
    if rate is not None:
        message += f"; segments are read at {rate} bytes a second at most (max_read_rate)"
    return [Finding("live-broker", Severity.NOTE, path, message, cause=FindingCause.LIVE_BROKER) for path in _live_log_dirs(source)]


def _live_log_dirs(source: Source) -> list[str]:
    """Paths of the log directories that a live broker holds, as far as the lock shows."""
    live = []
    for path in sorted(state.path for state in source.log_dirs if state.is_broker_directory and state.store.is_local):
        with contextlib.suppress(RefusedError):
            if source.facts.holder(path) is not None:
                live.append(path)
    return live


def partition_source(directory: PartitionDir, state: LogDirState, below: str) -> PartitionSource:
    """A partition that was listed, with what its broker's files say.

    Args:
        directory: the listing.
        state: of its log directory.
        below: its path below what all paths have in common.
    """
    partition = PartitionSource(directory, state, below, written_by_us=_written_by_us(directory))
    return replace(partition, is_tiered=True) if _is_tiered(partition) else partition


def _written_by_us(directory: PartitionDir) -> frozenset[int]:
    first = directory.segments[0].base_offset if directory.segments else 0
    if first == 0 or directory.snapshot_at(first) is None:
        return frozenset()
    from snaprebuild.snapshots.receipts.receipt_places import own_snapshots  # needed for such logs alone

    return own_snapshots(directory)


_FORMS = {
    DirectoryForm.DELETE: "the broker will delete this directory",
    DirectoryForm.STRAY: "the partition is no longer assigned to this broker",
    DirectoryForm.FUTURE: "the partition is being moved here from another log directory",
}


def why_skipped(directory: PartitionDir, is_named: bool, *, holds_lock: bool = False) -> Finding | None:
    """Directories that a broker deletes, moves or sets aside, or whose compaction was interrupted, are no source.

    What a broker leaves every day is a note: the directory of a deleted topic, a move to another disk, and the log cleaner at work.

    Args:
        directory: the listing.
        is_named: it was asked for by its path.
        holds_lock: this process holds the lock of its log directory: no broker is at work there.
    """
    severity = Severity.REFUSED if is_named else Severity.FINDING
    form = directory.name.form
    if form is not DirectoryForm.PLAIN:
        severity = Severity.NOTE if form is not DirectoryForm.STRAY and not is_named else severity
        return Finding(
            f"{form.value[1:]}-directory", severity, directory.path, f"{_FORMS[form]}: skipped", cause=FindingCause.WITHOUT_CONCERN
        )
    if not holds_lock and is_cleaner_at_work(directory):
        severity = Severity.REFUSED if is_named else Severity.NOTE
        return Finding("cleaner-at-work", severity, directory.path, "the broker compacts this log now: skipped")
    if directory.swapped:
        message = f"a compaction was interrupted ({directory.swapped[0]}): start and stop a broker first; skipped"
        return Finding(
            "interrupted-compaction", severity, directory.path, message, is_unread=True, cause=FindingCause.WITHOUT_CONCERN
        )
    return None


def is_cleaner_at_work(directory: PartitionDir) -> bool:
    """Whether the files of a compaction are those of a live broker, as far as the lock shows. After a stop it was interrupted."""
    with contextlib.suppress(RefusedError):
        is_local = bool(directory.swapped) and directory.store.is_local
        return is_local and lock_holder(os.path.dirname(directory.path)) is not None
    return False


def _is_tiered(partition: PartitionSource) -> bool:
    """Whether remote storage is on, by the checkpointed log start offset.

    A broker writes one where remote storage is on, or where the log start is above the first segment
    (``LogManager.checkpointLogStartOffsetsInDir``, every minute and at a clean stop). A checkpointed one that is not above the first
    segment therefore means that remote storage is on. There is one exception: the segments below it were deleted within the minute before
    a broker was killed. Then the leader epochs begin no lower than the first segment. With remote storage, the epochs of data that is only
    in remote storage are kept.
    """
    directory = partition.directory
    checkpointed = (partition.log_dir.log_starts or {}).get(partition.directory.topic_partition)
    if checkpointed is None or not directory.segments or not partition.can_be_tiered:
        return False
    first_base = directory.segments[0].base_offset
    if checkpointed >= first_base:
        return checkpointed == first_base
    if partition.log_dir.was_shut_down_cleanly:
        return True
    try:
        epochs = read_leader_epochs(directory)
    except (FormatError, ReadFailedError, ChangedFileError):
        return False  # scan reports the file
    return any(entry.start_offset < first_base for entry in epochs or ())


def log_start_above(partition: PartitionSource, log_end: int) -> list[Finding]:
    """Whether a broker deletes all of a log at its start, because that ends below its log start offset (``LogLoader.recoverLog``)."""
    directory = partition.directory
    start = partition.checkpointed_log_start_offset
    if not directory.segments or log_end >= start:
        return []
    message = (
        f"the log ends at {log_end}, below its log start offset {start}: the next start of a broker deletes all of its segments"
    )
    # A crash takes what was not flushed, also where all records were deleted; while a broker runs the two are not of one moment.
    are_all_deleted = (partition.log_dir.high_watermarks or {}).get(partition.directory.topic_partition) == start
    is_unclean = not partition.log_dir.was_shut_down_cleanly
    is_harmless = is_unclean and (partition.is_broker_running or are_all_deleted)
    severity = Severity.NOTE if is_harmless else Severity.DAMAGED
    return [Finding("log-start-above-log-end", severity, directory.path, message, start)]


def check_segments_are_files(directory: PartitionDir) -> None:
    """A link, pipe or directory under the name of a segment is not followed; without it the log has a hole that no listing shows.

    Raises:
        ReadFailedError: there is one.
    """
    for name in directory.unreadable:
        parsed = parse_file_name(name)
        if parsed is not None and parsed.kind is FileKind.LOG:
            raise ReadFailedError(
                "is named like a segment and is not a regular file: nothing is done here", path=directory.file_path(name)
            )


IRREGULAR = "is not a regular file: it is not followed, and a broker that must write or read it may fail"


def irregular_snapshots(directory: PartitionDir) -> list[Finding]:
    """A finding for each link, pipe, socket, device or directory that has the name of a snapshot: it is never opened."""
    return [
        Finding("not-a-regular-file", Severity.FINDING, os.path.join(directory.path, name), IRREGULAR)
        for name in directory.unreadable
        if name.endswith(FileKind.PRODUCER_SNAPSHOT.value)
    ]
