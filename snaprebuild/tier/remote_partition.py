"""Remote storage as a broker knows it: per partition the fold of the metadata log, and the files of each copy.

Without a metadata log every complete copy is taken for a finished one, in the order in which the copies were made as far as that is known:
what was given up or superseded since, nobody tells then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from formats import limits
from formats.errors import FormatError, TruncatedError
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_key import AivenObject
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, RemoteSegmentUpdate, SegmentState, TopicIdPartition
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.storage.local.index_hints import read_last_timestamp_hint
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition, UnknownObjects
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import USUAL_S3, Ownership, ReadStore, S3Settings, Store
from snaprebuild.storage.thread_pool import at_once
from snaprebuild.tier.copies import CopyFacts, copy_facts, fault_code, listed_partitions, manifest_bytes, missing_objects
from snaprebuild.tier.inventory import ICEBERG_LACKS, read_remote_logs, unknown_objects
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs

__all__ = ["LOG_KIND", "NOBODY", "RemotePartition", "Tier", "open_tier", "trimmed_epochs"]

LOG_KIND = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}
NOBODY = Ownership(0, 0, 0)


@dataclass(slots=True)
class RemotePartition:
    """A partition in remote storage.

    Attributes:
        id: topic, topic id and number.
        root: location of the store.
        layout: of its objects; None where there are none.
        store: reads the files of a copy.
        log: what a broker knows of it.
        copies: the objects that are there, by segment id.
        is_verified: a metadata log told which copies are live, and all of it could be read.
        settings: how the store is reached, and how much may be read of it.
    """

    id: TopicIdPartition
    root: str
    layout: TierLayout | None
    store: ReadStore
    log: RemoteLog
    copies: dict[bytes, TierCopy] = field(default_factory=dict)
    is_verified: bool = False
    settings: S3Settings = USUAL_S3

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.root}: {self.id.topic}-{self.id.partition} ({uuid_to_text(self.id.topic_id)})"

    def objects_of(self, segment: RemoteSegment) -> TierCopy:
        """The objects of a copy.

        Raises:
            ReadFailedError: there are none, or one that it needs is missing.
        """
        copy = self.copies.get(segment.segment_id)
        missing = () if self.layout is None else missing_objects(self.layout, copy)
        if copy is None or missing:
            what = "its objects are not there" if copy is None else f"objects of it are missing: {', '.join(missing)}"
            raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: {what}", path=self.place)
        return copy

    def directory(self, segment: RemoteSegment) -> PartitionDir:
        """A copy as a partition directory of one segment, with its offset and time index.

        Raises:
            ReadFailedError: as ``objects_of``.
        """
        assert self.layout is not None or not self.copies
        return _directory(self, self.objects_of(segment), segment.size_bytes)

    def file(self, segment: RemoteSegment, kind: LocalTierFile) -> bytes | None:
        """An index or the producer snapshot of a copy, its bytes; None where there is none.

        Raises:
            ReadFailedError: as ``objects_of``; or it cannot be read.
            FormatError: what the store keeps around it is bad.
            RefusedError: it is encrypted, and no key was given; or a limit of the run is used up.
        """
        copy = self.objects_of(segment)
        return self.store.read_small(f"{self.root}/{_stem(self, copy)}{kind}", limits.INDEX_BYTES_MAX)


def _stem(partition: RemotePartition, copy: TierCopy) -> str:
    assert partition.layout is not None
    return copy.objects[LOG_KIND[partition.layout]].key.removesuffix(".log")


def _directory(partition: RemotePartition, copy: TierCopy, segment_bytes: int) -> PartitionDir:
    assert partition.layout is not None
    stored, stem = copy.objects[LOG_KIND[partition.layout]], _stem(partition, copy)
    listed = ListedFile(stored.key, replace(stored.identity, size_bytes=segment_bytes), NOBODY)
    segment = SegmentFiles(copy.base_offset, listed, stem + LocalTierFile.OFFSET_INDEX, stem + LocalTierFile.TIME_INDEX)
    named = PartitionDirectoryName(partition.id.topic, partition.id.partition, DirectoryForm.PLAIN)
    return PartitionDir(partition.root, named, 0, (segment,), store=partition.store)


@dataclass(slots=True)
class Tier:
    """A store, with what a metadata log says of it.

    Attributes:
        root: location.
        store: that holds it.
        has_metadata: a metadata log was given.
        knows_all: and all of it could be read.
        logs: what it says.
        partitions: what the store holds, by topic id and number.
        private_keys: for copies that are encrypted.
        findings: of the store and of the metadata log.
        settings: how the store is reached, and how much may be read of it.
    """

    root: str
    store: Store
    has_metadata: bool
    knows_all: bool
    logs: RemoteLogs
    partitions: dict[tuple[bytes, int], TierPartition]
    private_keys: PrivateKeys
    findings: list[Finding]
    settings: S3Settings = USUAL_S3

    def partition(self, wanted: TopicIdPartition, findings: list[Finding]) -> RemotePartition:
        """What remote storage has of a partition.

        Args:
            wanted: which.
            findings: gets what cannot be read.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        found = self.partitions.get((wanted.topic_id, wanted.partition))
        layout = None if found is None else found.layout
        store: ReadStore = TierStore(self.store, self.private_keys) if layout is TierLayout.AIVEN else self.store
        copies = {} if found is None else {copy.segment_id: copy for copy in found.copies}
        remote = RemotePartition(wanted, self.root, layout, store, RemoteLog(), copies, self.knows_all, self.settings)
        if self.has_metadata:
            remote.log = self.logs.partitions.get(wanted, RemoteLog())
        elif found is not None:
            _fold_objects(remote, self.store, found, findings)
        return remote


def open_tier(
    store: Store,
    root: str,
    metadata_logs: Sequence[str] = (),
    settings: S3Settings | None = None,
    private_keys: PrivateKeys = NO_KEYS,
    key_prefix: str = "",
    *,
    may_be_empty: bool = False,
) -> Tier:
    """Lists a store and reads the metadata log.

    Args:
        store: that holds it.
        root: the location, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them.
        settings: of the store where it holds objects, and of those that ``metadata_logs`` lead into.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.
        may_be_empty: a store without any object is one to which nothing was uploaded.

    Raises:
        UsageError: neither a copy nor a metadata log is there, and an empty store is no answer.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    findings: list[Finding] = []
    logs = read_remote_logs(metadata_logs, settings or USUAL_S3, findings)
    knows_all = bool(metadata_logs) and not findings
    unknown = UnknownObjects()
    known = {(each.topic_id, each.partition) for each in logs.partitions}
    partitions = {(each.topic_id, each.partition): each for each in listed_partitions(store, root, unknown, known, key_prefix)}
    findings += unknown_objects(root, unknown, 0)
    if not partitions and not metadata_logs and not findings:
        if not may_be_empty:
            raise UsageError("no copy of a segment lies below it", path=root)
        message = "the store is empty: nothing was uploaded, or it is another store or prefix than the brokers'"
        findings.append(Finding("tier-empty", Severity.NOTE, root, message))
    elif not metadata_logs:
        message = "which copies brokers know, and which they have given up, is not verified: --metadata-log tells"
        findings.append(Finding("tier-unverified", Severity.NOTE, root, message))
    return Tier(root, store, bool(metadata_logs), knows_all, logs, partitions, private_keys, findings, settings or USUAL_S3)


# ---------------------------------------------------------------------------------------------------------------- objects alone


def _fold_objects(remote: RemotePartition, store: Store, found: TierPartition, findings: list[Finding]) -> None:
    """Takes every complete copy for a finished one."""
    whole = [copy for copy in found.copies if not missing_objects(found.layout, copy)]
    iceberg = sum(missing_objects(found.layout, copy) == ICEBERG_LACKS for copy in found.copies)
    findings += unknown_objects(remote.place, UnknownObjects(), iceberg)
    if len(whole) + iceberg < len(found.copies):
        left = len(found.copies) - len(whole) - iceberg
        message = f"{pluralize(left, 'copy', 'copies')} left out, because objects are missing"
        findings.append(Finding("tier-unreadable", Severity.FINDING, remote.place, message))
    facts = at_once(partial(copy_facts, store, remote.root, found.layout), whole, manifest_bytes)
    segments = list(_segments(remote, list(zip(whole, facts, strict=True)), findings))
    for segment in sorted(segments, key=lambda each: (each.event_timestamp_ms, each.start_offset)):
        assert segment.id is not None
        remote.log.take(segment)
        remote.log.take(
            RemoteSegmentUpdate(segment.id, segment.broker_id, segment.event_timestamp_ms, None, SegmentState.COPY_SEGMENT_FINISHED)
        )


def _segments(
    remote: RemotePartition, copies: list[tuple[TierCopy, CopyFacts]], findings: list[Finding]
) -> Iterator[RemoteSegment]:
    for copy, facts in copies:
        message, is_unread = facts.fault, facts.is_unread
        if message is None:
            try:
                yield _segment(remote, copy, facts)
            except (FormatError, ReadFailedError) as error:
                message, is_unread = error.message, isinstance(error, ReadFailedError)
        if message is not None:
            code, severity = fault_code(is_unread=is_unread)
            text = f"copy {uuid_to_text(copy.segment_id)}: {message}"
            findings.append(Finding(code, severity, remote.place, text, copy.base_offset, is_unread=is_unread))


def _segment(remote: RemotePartition, copy: TierCopy, facts: CopyFacts) -> RemoteSegment:
    """A copy as its metadata would tell it: from its manifest, else from its files."""
    assert facts.segment_bytes is not None
    directory = _directory(remote, copy, facts.segment_bytes)
    end, epochs, greatest = facts.end_offset, facts.leader_epochs, facts.max_timestamp_ms
    if end is None:
        end = log_end_offset(directory) - 1
        if end < copy.base_offset:
            path = directory.file_path(directory.segments[0].log.name)
            raise TruncatedError("segment", file=path, position=0, expected="a batch", found="none that is whole")
    if not epochs:
        path = f"{remote.root}/{_stem(remote, copy)}{LocalTierFile.LEADER_EPOCHS}"
        data = remote.store.read_small(path, limits.TEXT_FILE_BYTES_MAX) or b""
        epochs = trimmed_epochs(read_leader_epoch_checkpoint(data, file=path), copy.base_offset, end)
    if greatest is None:
        index = directory.segments[0].time_index
        assert index is not None
        greatest = read_last_timestamp_hint(directory.file_path(index), remote.store)
    return RemoteSegment(
        RemoteSegmentId(remote.id, copy.segment_id),
        copy.segment_id,
        copy.base_offset,
        end,
        -1,
        -1 if greatest is None else greatest,
        facts.event_timestamp_ms or 0,
        tuple(LeaderEpochEntry(epoch, start) for epoch, start in epochs),
        facts.segment_bytes,
        None,
        SegmentState.COPY_SEGMENT_STARTED,
        False,
    )


def trimmed_epochs(entries: Sequence[LeaderEpochEntry], first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a segment, of a checkpoint that begins with the log (``LeaderEpochFileCache.epochEntriesInRange``)."""
    inside = [(entry.epoch, entry.start_offset) for entry in entries if first < entry.start_offset <= last]
    before = [entry.epoch for entry in entries if entry.start_offset <= first]
    return ((before[-1], first), *inside) if before else tuple(inside)
