"""Remote storage as a broker knows it: per partition the fold of the metadata log, the copies of segments, and chains of copies.

Without a metadata log every complete copy counts as finished, in the order in which the copies were made as far as that is known. It is
then unknown which of them brokers gave up or superseded since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from formats import limits
from formats.errors import FormatError, TruncatedError
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_key import AivenObject
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, RemoteSegmentUpdate, SegmentState, TopicIdPartition
from snaprebuild.errors import DamagedCopyError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles, read_last_entry_hint
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import ListedPartition, TierLayout, UnknownObjects
from snaprebuild.storage.remote.store import CachedManifest, TierStore
from snaprebuild.storage.store import USUAL_S3, FileIdentity, Ownership, ReadStore, S3Settings
from snaprebuild.storage.store_path import ReadPath, StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.listing import UNVERIFIED, list_partitions, read_remote_logs, unreadable_objects
from snaprebuild.tier.remote_copy import ICEBERG_LACKS, LOG_OF, UNREAD, RemoteCopy, copy_facts, fault_finding, manifest_bytes
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs

__all__ = ["RemoteChain", "RemotePartition", "Tier", "list_store", "open_tier", "refuse_without_copies"]

NO_OWNER = Ownership(0, 0, 0)


@dataclass(slots=True)
class RemotePartition:
    """A partition in remote storage, also as a partition directory, which ``verify`` and a replay read like any other.

    Names of files are keys below the root of the store: the objects of one partition may be below several prefixes. The parts of one object
    in Aiven's layout have the names that ``TierStore`` understands.

    Attributes:
        id: topic, topic id and number.
        base: where the objects of its copies are.
        layout: of the objects.
        store: reads the files of a copy: that of ``base``, or a ``TierStore`` on it.
        log: what a broker knows of it.
        copies: by segment id, ascending by start offset: those with objects, and those that the metadata log alone has.
        verified: a metadata log that could be read whole has the live copies.
        private_keys: for copies that are encrypted.
        stores: how the store is reached, and how much may be read of it.
        findings: about copies that cannot be read.
    """

    id: TopicIdPartition
    base: StorePath
    layout: TierLayout
    store: ReadStore
    log: RemoteLog
    copies: dict[bytes, RemoteCopy] = field(default_factory=dict)
    verified: bool = False
    private_keys: PrivateKeys = NO_KEYS
    stores: S3Settings = USUAL_S3
    findings: tuple[Finding, ...] = ()

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.base.path}: {self.id.topic}-{self.id.partition} ({uuid_to_text(self.id.topic_id)})"

    @property
    def live(self) -> list[RemoteSegment]:
        """Copies from which reads are served."""
        return [each for each in self.log.segments.values() if self.log.is_live(each.segment_id)]

    @property
    def has_objects(self) -> bool:
        """Whether the store has objects of any copy."""
        return any(each.objects.by_kind for each in self.copies.values())

    def may_be_live(self, copy: RemoteCopy) -> bool:
        """Whether brokers read a copy, as far as the metadata log could be read."""
        is_unknown = copy.record is None and copy.segment_id not in self.log.deleted
        return self.log.is_live(copy.segment_id) or (is_unknown and not self.verified)

    @property
    def incomplete(self) -> list[RemoteCopy]:
        """Copies that brokers read, or may read, and that lack objects. Those of Iceberg need none, and of others it may be unknown."""
        copies = (each for each in self.copies.values() if each.missing and each.missing != ICEBERG_LACKS)
        return [each for each in copies if each.unanswered is None and self.may_be_live(each)]

    def complete_copy(self, segment: RemoteSegment) -> RemoteCopy:
        """The copy of a record, with all objects that it needs.

        Raises:
            DamagedCopyError: there are none, or one that it needs is missing.
            ReadFailedError: whether they are there is unknown.
        """
        copy = self.copies.get(segment.segment_id)
        name = f"copy {uuid_to_text(segment.segment_id)}"
        if copy is not None and copy.missing and copy.unanswered is not None:
            raise ReadFailedError(f"{name}: the request for objects that the listing lacks: {copy.unanswered}", path=self.place)
        if copy is None or not copy.objects.by_kind:
            raise DamagedCopyError(f"{name}: its objects are not there", path=self.place)
        if copy.missing:
            raise DamagedCopyError(f"{name}: objects of it are missing: {', '.join(copy.missing)}", path=self.place)
        return copy

    # -------------------------------------------------------------------------------------------- copies as a partition directory

    def file_name(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Name of a file of a copy."""
        return copy.objects.by_kind[LOG_OF[self.layout]].key.removesuffix(LocalTierFile.LOG) + kind

    def file_path(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Location of a file of a copy."""
        return f"{self.base.path}/{self.file_name(copy, kind)}"

    def file(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> ReadPath:
        """A file of a copy, to be read."""
        return ReadPath(self.store, self.file_path(copy, kind))

    def segment_files(self, copy: RemoteCopy, *, until: int | None = None, with_indexes: bool = False) -> SegmentFiles:
        """A copy as a segment of the directory.

        Args:
            copy: with a record, or with facts.
            until: offset after the last one that is taken; None for all.
            with_indexes: its offset and time index may be read as those of a directory; they are not compared with the segment.
        """
        assert copy.segment_bytes is not None
        facts = UNREAD if with_indexes else copy.facts
        identity = replace(copy.objects.by_kind[LOG_OF[self.layout]].identity, size_bytes=copy.segment_bytes)
        offset_index, time_index = (
            self.file_name(copy, kind) if with_indexes else None for kind in (LocalTierFile.OFFSET_INDEX, LocalTierFile.TIME_INDEX)
        )
        return SegmentFiles(
            base_offset=copy.start_offset,
            log=ListedFile(self.file_name(copy), identity, NO_OWNER),
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=facts.index_bytes,
            until_offset=until,
            index_hits=facts.index_hits,
            compared_bytes=tuple(size for _, size in facts.compared),
        )

    def snapshot_file(self, copy: RemoteCopy) -> ListedFile | None:
        """The producer snapshot of a copy with facts as a file of the directory; None where it has no bytes."""
        size_bytes = copy.facts.snapshot_bytes
        if not size_bytes:
            return None
        # As it was listed where it is a file of its own, which a reader compares with the file that it opens.
        own = copy.objects.by_kind.get(LocalTierFile.PRODUCER_SNAPSHOT)
        identity = FileIdentity(size_bytes, 0, 0) if own is None else own.identity
        return ListedFile(self.file_name(copy, LocalTierFile.PRODUCER_SNAPSHOT), identity, NO_OWNER)

    def directory(
        self,
        segments: Iterable[SegmentFiles],
        snapshots: Iterable[tuple[int, ListedFile]] = (),
        log_end_offset: int | None = None,
    ) -> PartitionDir:
        """Copies that follow one another as a partition directory."""
        named = PartitionDirectoryName(self.id.topic, self.id.partition, DirectoryForm.PLAIN)
        return PartitionDir(
            self.base.path,
            named,
            0,
            tuple(segments),
            tuple(snapshots),
            has_leader_epochs=True,
            store=self.store,
            log_end_offset=log_end_offset,
        )

    def source(self, directory: PartitionDir) -> PartitionSource:
        """A directory of this partition as a source."""
        return PartitionSource(directory, LogDirState(self.base.path, store=self.base.store), directory.topic_partition)

    # ------------------------------------------------------------------------------------------------------------ what is read

    def read_facts(self, copies: Iterable[RemoteCopy]) -> None:
        """Reads the manifests of copies that have objects, each once; the files of these copies are read with them from then on.

        Raises:
            RefusedError: a limit of the run is used up; then none of the copies has facts.
        """
        unread = [each for each in copies if each.facts is UNREAD]
        objects = [each.objects for each in unread]
        facts_of = partial(copy_facts, self.base, self.layout)
        # All of them first: no copy has facts if a limit ends the reads.
        for copy, facts in zip(unread, list(map_in_threads(facts_of, objects, manifest_bytes)), strict=True):
            copy.take_facts(facts)
        if self.layout is TierLayout.AIVEN and unread:
            manifests = [each for copy in self.copies.values() if (each := self._manifest_of(copy)) is not None]
            manifests.sort(key=lambda each: each.stem)
            self.store = TierStore(self.base.store, self.private_keys, tuple(manifests))

    def _manifest_of(self, copy: RemoteCopy) -> CachedManifest | None:
        """The manifest of a copy; None if it was not read, or if the objects are below several prefixes."""
        facts = copy.facts
        if facts.manifest is None or facts.fault is not None or copy.missing:
            return None
        stem = self.file_name(copy).removesuffix(LocalTierFile.LOG)
        indexes = copy.objects.by_kind[AivenObject.INDEXES]
        if indexes.key != f"{stem}.{AivenObject.INDEXES}":
            return None
        return CachedManifest(f"{self.base.path}/{stem}", facts.manifest, indexes.identity)

    def read_end(self, copy: RemoteCopy) -> None:
        """Reads where a segment ends, if nothing else has it; it stays unknown if no batch is whole.

        Raises:
            FormatError, ReadFailedError: the segment cannot be read.
            RefusedError: a limit of the run is used up.
        """
        if copy.end_offset is None:
            end = log_end_offset(self.directory([self.segment_files(copy, with_indexes=True)])) - 1
            copy.end_offset = end if end >= copy.start_offset else None

    def read_epochs(self, copy: RemoteCopy) -> None:
        """Reads the leader epochs of a segment whose end is known, if nothing else has them.

        Raises:
            FormatError, ReadFailedError: the leader epoch checkpoint cannot be read.
            RefusedError: a limit of the run is used up.
        """
        if not copy.leader_epochs:
            entries = self.read_log_epochs(copy)
            copy.leader_epochs = _trimmed_epochs(entries, copy.start_offset, copy.next_offset - 1)

    def read_log_epochs(self, copy: RemoteCopy) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries.

        Raises:
            FormatError, ReadFailedError, RefusedError: as ``read_epochs``.
        """
        file = self.file(copy, LocalTierFile.LEADER_EPOCHS)
        data = file.read_small(limits.TEXT_FILE_BYTES_MAX) or b""
        return read_leader_epoch_checkpoint(data, file=file.path)

    def read_time(self, copy: RemoteCopy) -> None:
        """Reads the greatest timestamp of a copy from the end of its time index, if nothing else has it."""
        if copy.max_timestamp_ms is None:
            last = read_last_entry_hint(self.file(copy, LocalTierFile.TIME_INDEX))
            if last is not None:
                copy.max_timestamp_ms = last.timestamp
                copy.indexed_offset = copy.start_offset + last.relative_offset

    def directory_of(self, segment: RemoteSegment) -> PartitionDir:
        """A copy as a partition directory of one segment, with its offset and time index.

        Raises:
            ReadFailedError: as ``complete_copy``.
        """
        return self.directory([self.segment_files(self.complete_copy(segment), with_indexes=True)])

    def read_file(self, segment: RemoteSegment, kind: LocalTierFile) -> bytes:
        """A small file that each copy has, as the producer snapshot and the leader epochs.

        Raises:
            ReadFailedError: as ``complete_copy``; or it cannot be read, or is absent.
            FormatError: what the store keeps around it is bad.
            RefusedError: it is encrypted, and no key was given; or a limit of the run is used up.
        """
        data = self.file(self.complete_copy(segment), kind).read_small(limits.INDEX_BYTES_MAX)
        if data is None:
            raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: it has no {kind}", path=self.place)
        return data

    def leader_epochs_at(self, segment: RemoteSegment) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries.

        Raises:
            ReadFailedError, FormatError, RefusedError: as ``read_file``.
        """
        data = self.read_file(segment, LocalTierFile.LEADER_EPOCHS)
        return read_leader_epoch_checkpoint(data, file=f"{self.place}: copy {uuid_to_text(segment.segment_id)}")

    def chain_below(self, epochs: Sequence[LeaderEpochEntry], end: int) -> RemoteChain | None:
        """The copies below an offset, of the log with these leader epochs; None where none holds the offset right below.

        Args:
            epochs: of the log, ascending.
            end: offset after the last one that is wanted.
        """
        segments: list[RemoteSegment] = []
        offset = end - 1
        reason = "the log begins here"
        while offset >= 0:
            epoch = epoch_of(epochs, offset)
            segment = None if epoch is None else self.log.lookup(epoch, offset)
            if segment is None:
                reason = f"no finished copy holds offset {offset} of leader epoch {epoch}"
                break
            if segments and segment.end_offset >= segments[-1].start_offset:
                reason = f"the copy that holds {offset} overlaps the next one"
                break
            segments.append(segment)
            offset = segment.start_offset - 1
        return RemoteChain(self, tuple(reversed(segments)), reason) if segments else None


@dataclass(frozen=True, slots=True)
class RemoteChain:
    """Copies that follow one another without a gap, up to an offset.

    Attributes:
        segments: ascending; the last one holds the offset below the wanted end.
        ends_at: why no copy precedes the first one.
    """

    remote: RemotePartition
    segments: tuple[RemoteSegment, ...]
    ends_at: str

    @property
    def start_offset(self) -> int:
        """Start offset of the first copy."""
        return self.segments[0].start_offset

    def source(self, segments: Sequence[RemoteSegment], snapshots: Sequence[RemoteSegment] = ()) -> PartitionSource:
        """Some of the copies as a partition directory.

        Args:
            segments: in a row.
            snapshots: copies whose producer snapshots are in the directory.

        Raises:
            ReadFailedError: objects are missing, or of another size than they should be.
            RefusedError: they are encrypted for a key that was not given.
        """
        copies = [self.remote.complete_copy(each) for each in (*segments, *snapshots)]
        self.remote.read_facts({each.segment_id: each for each in copies}.values())
        listed = []
        for each in snapshots:
            snapshot = self.remote.snapshot_file(self.remote.complete_copy(each))
            if snapshot is not None:
                listed.append((each.end_offset + 1, snapshot))
        return self.remote.source(self.remote.directory([self._segment(each) for each in segments], listed))

    def _segment(self, segment: RemoteSegment) -> SegmentFiles:
        copy = self.remote.complete_copy(segment)
        facts = copy.facts
        store = self.remote.store
        location = self.remote.file_path(copy)
        if facts.fault is not None:
            error = ReadFailedError if facts.is_unread else DamagedCopyError
            raise error(facts.fault, path=location)
        if facts.key_id is not None and facts.manifest is not None and isinstance(store, TierStore):
            store.data_key(read_aiven_manifest(facts.manifest), location)
        if facts.segment_bytes != segment.size_bytes:
            message = f"has {facts.segment_bytes} bytes, and the metadata log has {segment.size_bytes}"
            raise DamagedCopyError(message, path=location)
        return self.remote.segment_files(copy)


@dataclass(slots=True)
class Tier:
    """A store, with what a metadata log has of it.

    Attributes:
        base: where the objects are.
        has_metadata: a metadata log was given.
        verified: and all of it could be read: brokers have no copy that it does not have.
        logs: of the metadata.
        partitions: of the listing, in the order of the store.
        unknown: objects of no known layout.
        unanswered: finished copies that lack objects in the listing, and why a request for these had no answer, by segment id.
        private_keys: for copies that are encrypted.
        findings: about the store and the metadata log.
        stores: how the store is reached, and how much may be read of it.
    """

    base: StorePath
    has_metadata: bool
    verified: bool
    logs: RemoteLogs
    partitions: dict[TopicIdPartition, ListedPartition]
    unknown: UnknownObjects = field(default_factory=UnknownObjects)
    unanswered: dict[bytes, str] = field(default_factory=dict)
    private_keys: PrivateKeys = NO_KEYS
    findings: list[Finding] = field(default_factory=list)
    stores: S3Settings = USUAL_S3

    @property
    def metadata_findings(self) -> list[Finding]:
        """Findings of the metadata logs, without those about other partitions of the store."""
        return [each for each in self.findings if each.cause is FindingCause.METADATA_TOPIC]

    def listed_partition(self, partition: TopicIdPartition) -> RemotePartition:
        """The partition as the listing and the metadata log have it: no object was read."""
        listed = self.partitions.get(partition)
        # Without objects it has the layout of the first partition of the store.
        sample = next(iter(self.partitions.values()), None) if listed is None else listed
        layout = TierLayout.AIVEN if sample is None else sample.layout
        store = TierStore(self.base.store, self.private_keys) if layout is TierLayout.AIVEN else self.base.store
        log = self.logs.partitions.get(partition, RemoteLog())
        objects = {} if listed is None else {each.segment_id: each for each in listed.copies}
        copies = [RemoteCopy.of(layout, each, log.segments.get(segment_id)) for segment_id, each in objects.items()]
        copies += [RemoteCopy.of(layout, None, each) for each in log.segments.values() if each.segment_id not in objects]
        for copy in copies:
            copy.unanswered = self.unanswered.get(copy.segment_id)
        copies.sort(key=lambda copy: copy.start_offset)
        by_id = {copy.segment_id: copy for copy in copies}
        return RemotePartition(partition, self.base, layout, store, log, by_id, self.verified, self.private_keys, self.stores)

    def partition(self, partition: TopicIdPartition) -> RemotePartition:
        """The partition as a broker knows it: without a metadata log every complete copy is taken for a finished one.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        remote = self.listed_partition(partition)
        if not self.has_metadata and remote.copies:
            _take_all_for_finished(remote)
        elif incomplete := remote.incomplete:
            message = (
                f"{pluralize(len(incomplete), 'copy', 'copies')} finished, and objects of them are missing: reads of them fail"
            )
            remote.findings = (Finding("tier-lost", Severity.DAMAGED, remote.place, message, incomplete[0].start_offset),)
        return remote

    def partition_named(self, topic: str, number: int, topic_id: bytes | None) -> RemotePartition | None:
        """The partition of a name in remote storage; None if there is none.

        Args:
            topic: name.
            number: of the partition.
            topic_id: 16 bytes; None for the only topic of that name.

        Raises:
            UsageError: several topics had that name.
            RefusedError: a limit of the run is used up.
        """
        known = {*self.partitions, *self.logs.partitions}
        ids = sorted({each.topic_id for each in known if (each.topic, each.partition) == (topic, number)})
        if topic_id is not None:
            ids = [topic_id] if topic_id in ids else []
        if len(ids) > 1:
            among = ", ".join(map(uuid_to_text, ids))
            raise UsageError(
                f"has copies of several topics called {topic}: name one with --topic-id {topic}=ID, of {among}", path=self.base.path
            )
        return self.partition(TopicIdPartition(topic, ids[0], number)) if ids else None


def open_tier(
    root: StorePath,
    metadata_logs: Sequence[str] = (),
    stores: S3Settings = USUAL_S3,
    private_keys: PrivateKeys = NO_KEYS,
    key_prefix: str = "",
    *,
    may_be_empty: bool = False,
) -> Tier:
    """Lists a store and reads the metadata log.

    Args:
        root: of the store, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them.
        stores: how the store is reached where it holds objects, and those that ``metadata_logs`` are in.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.
        may_be_empty: a store without any object is one to which nothing was uploaded.

    Raises:
        UsageError: neither a copy nor a metadata log is there, and an empty store is no answer.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    tier = list_store(root, metadata_logs, stores, private_keys, key_prefix)
    tier.findings += unreadable_objects(root.path, tier.unknown)
    if not tier.partitions and not metadata_logs:
        if not may_be_empty:
            refuse_without_copies(tier, tier.findings)
        message = "the store is empty: nothing was uploaded, or it is another store or prefix than the brokers'"
        tier.findings.append(Finding("tier-empty", Severity.NOTE, root.path, message))
    elif not metadata_logs:
        tier.findings.append(Finding("tier-unverified", Severity.NOTE, root.path, UNVERIFIED))
    return tier


def refuse_without_copies(tier: Tier, findings: Iterable[Finding], selection: Selection = EVERYTHING) -> None:
    """Refuses an answer about a store without a copy: it would be one about nothing.

    Args:
        tier: the store.
        findings: of it; one that is more than a note is an answer.
        selection: of partitions.

    Raises:
        UsageError: no finding is more than a note.
    """
    if any(each.severity > Severity.NOTE for each in findings):
        return
    narrowed = " that the selection takes" if selection.is_narrowed else ""
    others = ""
    if tier.unknown.count:
        others = f"; it has {pluralize(tier.unknown.count, 'object')} of no known layout, the first {tier.unknown.first!r}"
    hint = selection.hint({each.topic for each in tier.partitions})
    raise UsageError(f"has no copy of a segment{narrowed}{hint}{others}", path=tier.base.path)


def list_store(
    root: StorePath,
    metadata_logs: Sequence[str],
    stores: S3Settings,
    private_keys: PrivateKeys = NO_KEYS,
    key_prefix: str = "",
) -> Tier:
    """Lists a store and reads the metadata logs; an empty store is no error.

    Args:
        root: of the store, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them, or good copies look unreferenced.
        stores: how the object stores are reached that ``metadata_logs`` are in.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.

    Raises:
        UsageError: there is no partition of ``__remote_log_metadata``.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    logs, findings = read_remote_logs(metadata_logs, stores)
    unknown = UnknownObjects()
    partitions, unanswered = list_partitions(root, logs, key_prefix, unknown)
    return Tier(
        base=root,
        has_metadata=bool(metadata_logs),
        verified=bool(metadata_logs) and not findings,
        logs=logs,
        partitions={each.id: each for each in partitions},
        unknown=unknown,
        unanswered=unanswered,
        private_keys=private_keys,
        findings=findings,
        stores=stores,
    )


# ---------------------------------------------------------------------------------------------------------------- objects alone


def _take_all_for_finished(remote: RemotePartition) -> None:
    """Takes every complete copy for a finished one, and adds the findings about those that cannot be read.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    complete = [copy for copy in remote.copies.values() if not copy.missing]
    iceberg = sum(copy.missing == ICEBERG_LACKS for copy in remote.copies.values())
    findings = unreadable_objects(remote.place, iceberg=iceberg)
    left = len(remote.copies) - len(complete) - iceberg
    if left:
        message = f"{pluralize(left, 'copy', 'copies')} left out, because objects are missing"
        findings.append(Finding("tier-unreadable", Severity.FINDING, remote.place, message))
    remote.read_facts(complete)
    segments = []
    for copy in complete:
        facts = copy.facts
        fault = facts.fault
        is_unread = facts.is_unread
        if fault is None:
            try:
                segments.append(_segment_of(remote, copy))
                continue
            except (FormatError, ReadFailedError) as error:
                fault = error.message
                is_unread = isinstance(error, ReadFailedError)
        findings.append(fault_finding(remote.place, copy, fault, is_unread=is_unread))
    for segment in sorted(segments, key=lambda each: (each.event_timestamp_ms, each.start_offset)):
        assert segment.id is not None
        remote.log.take(segment)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        remote.log.take(RemoteSegmentUpdate(segment.id, segment.broker_id, segment.event_timestamp_ms, None, finished))
    remote.findings = tuple(findings)


def _segment_of(remote: RemotePartition, copy: RemoteCopy) -> RemoteSegment:
    """A copy as its record would have it: from its manifest, else from its files."""
    remote.read_end(copy)
    if copy.end_offset is None:
        path = remote.file_path(copy)
        raise TruncatedError("segment", file=path, position=0, expected="a batch", found="none that is whole")
    remote.read_epochs(copy)
    remote.read_time(copy)
    assert copy.segment_bytes is not None
    return RemoteSegment(
        id=RemoteSegmentId(remote.id, copy.segment_id),
        segment_id=copy.segment_id,
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        broker_id=-1,
        max_timestamp_ms=-1 if copy.max_timestamp_ms is None else copy.max_timestamp_ms,
        event_timestamp_ms=copy.event_timestamp_ms,
        leader_epochs=copy.leader_epochs,
        size_bytes=copy.segment_bytes,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=False,
    )


def _trimmed_epochs(entries: Sequence[LeaderEpochEntry], first: int, last: int) -> tuple[LeaderEpochEntry, ...]:
    """The epochs of a segment, of a checkpoint that begins with the log (``LeaderEpochFileCache.epochEntriesInRange``)."""
    inside = [entry for entry in entries if first < entry.start_offset <= last]
    before = [entry.epoch for entry in entries if entry.start_offset <= first]
    return (LeaderEpochEntry(before[-1], first), *inside) if before else tuple(inside)
