"""One partition as its leader sees it: the log on disk and the copies in remote storage, and where each offset was taken from.

A disk does not hold all that a broker knows. The rest is assumed, and marked so.

Source: ``UnifiedLog``, ``LogLoader``, ``RemoteLogManager`` (``findLogStartOffset``, ``findHighestRemoteOffset``); 4.3.1.
"""

from __future__ import annotations

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA, REPLICATION_OFFSET_CHECKPOINT
from formats.partition.partition_metadata import uuid_text_or_none
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.published import Part
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.last_stable import KnownOffset
from snaprebuild.snapshots.source.second_look import with_new_listings
from snaprebuild.snapshots.source.source import (
    PartitionSource,
    Source,
    check_segments_are_files,
    live_broker_notes,
)
from snaprebuild.storage.log_dir import read_leader_epochs, read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.partition_names import TopicPartition, names_of
from snaprebuild.tier.remote_log import highest_remote_offset
from snaprebuild.tier.remote_partition import RemotePartition
from snaprebuild.tier.remote_store import Tier, unrecorded_finding, unrecorded_states

__all__ = ["PartitionView", "RemoteStorageSetting", "ViewedPartition", "view_partition", "view_partitions"]

FIRST_COPY = "the first copy in remote storage, as a broker that becomes leader takes it"
FIRST_SEGMENT = "the first segment on disk"
NEVER_TIERED = "internal and compacted topics have none"


class RemoteStorageSetting(Part, frozen=True):
    """The topic's remote.storage.enable, as far as it is known."""

    enabled: bool
    source: str
    """File, option or rule that shows it."""
    assumed: bool
    """No file or option contains it."""


class ViewedPartition(TopicPartition, frozen=True):
    """A partition of a leader and its offsets."""

    path: str
    """Path of the directory."""
    topic_id: str | None
    """From partition.metadata, as Kafka prints ids; null if the directory has none."""
    remote_storage_setting: RemoteStorageSetting
    log_start: KnownOffset
    local_log_start: KnownOffset
    highest_remote: KnownOffset | None
    """Last offset in remote storage from the view of a leader; null without a store."""
    high_watermark: KnownOffset
    log_end: KnownOffset


class PartitionView(ViewedPartition, frozen=True):
    """A partition of a leader with its files.

    Attributes:
        source: the partition on disk.
        leader_epochs: of the leader epoch checkpoint, ascending, cut at the log start and the log end as a broker does.
        remote: what remote storage has of it; None if no store was named, or which of its partitions it is is unknown.
        findings: what could not be read, or is missing.
    """

    source: PartitionSource
    leader_epochs: tuple[LeaderEpochEntry, ...]
    remote: RemotePartition | None
    findings: tuple[Finding, ...] = ()

    @property
    def directory(self) -> PartitionDir:
        """The listing of its directory."""
        return self.source.directory

    def with_high_watermark(self, assumed: int | None) -> PartitionView:
        """The partition with an assumed high watermark, as a broker limits it (``UnifiedLog.updateHighWatermark``); None for its own."""
        if assumed is None:
            return self
        offset = _clamped(assumed, self.log_start.offset, self.log_end.offset)
        return replace(self, high_watermark=KnownOffset(offset, "--assume high_watermark", assumed=False))


def view_partitions(source: Source, tier: Tier | None, remote_storage: bool | None) -> tuple[list[PartitionView], list[Finding]]:
    """Views every partition of a source that can be read. Gives the findings about all of them, the source and the store, too.

    Args:
        source: from ``open_source``.
        tier: the store, or None.
        remote_storage: ``remote.storage.enable`` of the topics; None to take it from checkpoints and copies.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    findings = [*source.findings]
    if tier is not None:
        findings += tier.findings
    findings += live_broker_notes(source)
    views = []
    for partition in source.partitions:
        try:
            view = view_partition(partition, tier, remote_storage)
        except (FormatError, SnaprebuildError) as error:
            findings.append(finding_of_error(error, partition.directory.path))
        else:
            views.append(view)
            findings += view.findings
    return views, findings


def view_partition(source: PartitionSource, tier: Tier | None = None, remote_storage: bool | None = None) -> PartitionView:
    """Reads the ends of a log, and its small files.

    Args:
        source: the partition.
        tier: the store that its segments are copied to; None where none was named.
        remote_storage: ``remote.storage.enable`` of the topic; None to take it from checkpoints and copies.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: one does not parse.
        RefusedError: a limit of the run is used up.
    """
    return with_new_listings(lambda now: _view_of(now, tier, remote_storage), source)


def _view_of(source: PartitionSource, tier: Tier | None, remote_storage: bool | None) -> PartitionView:
    directory = source.directory
    findings = list[Finding]()
    check_segments_are_files(directory)
    end = log_end_offset(directory) if directory.segments else None
    epochs = read_leader_epochs(directory) or ()
    epochs = _cut(epochs, source.checkpointed_log_start_offset, end)
    topic_id = read_topic_id(directory)
    remote = None
    if tier is not None and source.can_be_tiered and remote_storage is not False:
        remote, remote_findings = _remote_of(source, topic_id, tier)
        findings += remote_findings
    if remote_storage and not source.can_be_tiered:
        message = f"remote storage is not on, as --assume remote_storage has it: {NEVER_TIERED}"
        findings.append(Finding("never-tiered", Severity.FINDING, directory.path, message))
    setting = _remote_storage(source, tier, remote, remote_storage)
    log_start, local_log_start = _starts(source, epochs, remote, has_remote=setting.enabled)
    highest_remote: KnownOffset | None = KnownOffset(-1, "remote storage is off", assumed=False)
    if setting.enabled:
        epochs = _cut(epochs, log_start.offset, end)
    log_end = KnownOffset(local_log_start.offset, "no segment is on disk", assumed=True)
    if end is not None:
        log_end = KnownOffset(max(end, local_log_start.offset), "the last whole batch on disk", assumed=False)
    if setting.enabled:
        highest_remote = _highest_remote(remote, epochs, log_end.offset)
    return PartitionView(
        **names_of(directory),
        path=directory.path,
        topic_id=uuid_text_or_none(topic_id),
        remote_storage_setting=setting,
        log_start=log_start,
        local_log_start=local_log_start,
        highest_remote=highest_remote,
        high_watermark=_high_watermark(source, log_start.offset, log_end.offset),
        log_end=log_end,
        source=source,
        leader_epochs=epochs,
        remote=remote if setting.enabled else None,
        findings=tuple(findings),
    )


def _remote_storage(
    source: PartitionSource, tier: Tier | None, remote: RemotePartition | None, assumed: bool | None
) -> RemoteStorageSetting:
    """Whether remote storage is on, and the evidence."""
    if not source.can_be_tiered:
        return RemoteStorageSetting(False, NEVER_TIERED, assumed=False)
    if assumed is not None:
        return RemoteStorageSetting(assumed, "--assume remote_storage", assumed=False)
    if remote is not None and (remote.has_objects or remote.log.segments):
        return RemoteStorageSetting(True, "copies of its segments are in the store", assumed=False)
    if source.is_tiered:
        return RemoteStorageSetting(True, LOG_START_OFFSET_CHECKPOINT, assumed=False)
    if tier is not None and remote is None:
        return RemoteStorageSetting(True, "a store is named, and its copies of the partition are unknown", assumed=True)
    return RemoteStorageSetting(False, "neither a checkpointed log start nor a copy shows it", assumed=True)


def _remote_of(source: PartitionSource, topic_id: bytes | None, tier: Tier) -> tuple[RemotePartition | None, list[Finding]]:
    name = source.directory.name
    if topic_id is None:
        message = f"has no {PARTITION_METADATA}, which has the topic id: its copies in remote storage are unknown"
        return None, [Finding("topic-id-unknown", Severity.FINDING, source.directory.path, message)]
    partition = TopicIdPartition(name.topic, topic_id, name.partition)
    if tier.verified and partition not in tier.logs.partitions and partition in tier.partitions:
        copies = tier.partitions[partition].copies
        ids = [copy.segment_id for copy in copies]
        (state,) = set(unrecorded_states(tier.logs, partition, ids, verified=True).values())
        assert state is not None
        place = f"{tier.base.path}: {source.directory.topic_partition}"
        first = copies[0].base_offset
        return None, [unrecorded_finding(tier.logs, partition, place, state, len(copies), first)]
    remote = tier.partition(partition)
    findings = list(remote.findings)
    segments = source.directory.segments
    if source.is_tiered and not remote.log.segments and segments and source.checkpointed_log_start_offset < segments[0].base_offset:
        first = segments[0].base_offset
        message = f"the log starts at {source.checkpointed_log_start_offset}, the disk begins at {first}, and the store has no copy"
        findings.append(Finding("remote-part-missing", Severity.FINDING, source.directory.path, f"{message}: is it the right one?"))
    return remote, findings


def _starts(
    source: PartitionSource, epochs: tuple[LeaderEpochEntry, ...], remote: RemotePartition | None, *, has_remote: bool
) -> tuple[KnownOffset, KnownOffset]:
    """Log start offset and local log start offset, as the broker has them after its start and, with a store, as the leader."""
    segments = source.directory.segments
    checkpointed = (source.log_dir.log_starts or {}).get(source.directory.topic_partition)
    first = segments[0].base_offset if segments else None
    if has_remote:
        start = KnownOffset(0, f"not in {LOG_START_OFFSET_CHECKPOINT}", assumed=True)
        if checkpointed is not None:
            start = KnownOffset(checkpointed, LOG_START_OFFSET_CHECKPOINT, assumed=False)
        if remote is not None:
            listed = next((copy.start_offset for entry in epochs for copy in remote.log.listed(entry.epoch)), None)
            if listed is None and first is not None and first > start.offset:
                start = KnownOffset(first, f"{FIRST_SEGMENT}: nothing is in remote storage", assumed=not remote.verified)
            elif listed is not None and listed > start.offset:
                start = KnownOffset(listed, FIRST_COPY, assumed=not remote.verified)
    elif checkpointed is not None and checkpointed >= (first or 0):
        start = KnownOffset(checkpointed, LOG_START_OFFSET_CHECKPOINT, assumed=False)
    else:
        start = KnownOffset(first or 0, FIRST_SEGMENT, assumed=first is None)
    if first is not None and first >= start.offset:
        return start, KnownOffset(first, FIRST_SEGMENT, assumed=False)
    return start, KnownOffset(start.offset, start.source, assumed=start.assumed)


def _cut(epochs: tuple[LeaderEpochEntry, ...], log_start: int, log_end: int | None) -> tuple[LeaderEpochEntry, ...]:
    """Leader epochs that are of the log (``truncateFromStart`` and ``truncateFromEnd`` of ``LeaderEpochFileCache``).

    One that begins at the log end stays: that of a leader without a batch yet. A broker removes it when it loads the log, and adds it
    again when it becomes leader.
    """
    before = [entry for entry in epochs if entry.start_offset <= log_start]
    first = (LeaderEpochEntry(before[-1].epoch, log_start),) if before else ()
    return (
        *first,
        *(entry for entry in epochs if log_start < entry.start_offset and (log_end is None or entry.start_offset <= log_end)),
    )


def _high_watermark(source: PartitionSource, log_start: int, log_end: int) -> KnownOffset:
    marks = source.log_dir.high_watermarks
    mark = None if marks is None else marks.get(source.directory.topic_partition)
    if mark is None:
        return KnownOffset(log_end, f"not in {REPLICATION_OFFSET_CHECKPOINT}: everything is taken for replicated", assumed=True)
    return KnownOffset(_clamped(mark, log_start, log_end), REPLICATION_OFFSET_CHECKPOINT, assumed=False)


def _clamped(mark: int, log_start: int, log_end: int) -> int:
    """A high watermark as a broker takes it (``UnifiedLog.updateHighWatermark``)."""
    return min(max(mark, log_start), log_end)


def _highest_remote(remote: RemotePartition | None, epochs: tuple[LeaderEpochEntry, ...], log_end: int) -> KnownOffset | None:
    if remote is None:
        return None
    if remote.verified:
        source = "the metadata log, folded as a leader does"
    else:
        source = "the copies in the store, all taken for live"
    if not remote.verified and not remote.has_objects:
        source = "the store has no copy: nothing was uploaded, or it is another store or prefix"
    return KnownOffset(highest_remote_offset(remote.log, epochs, log_end), source, assumed=not remote.verified)
