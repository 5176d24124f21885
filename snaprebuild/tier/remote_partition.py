"""Remote storage as a broker knows it: per partition the fold of the metadata log, the files of each copy, and chains of copies.

Without a metadata log every complete copy counts as finished, in the order in which the copies were made as far as that is known. It is
then unknown which of them brokers gave up or superseded since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from formats import limits
from formats.errors import FormatError, TruncatedError
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, RemoteSegmentUpdate, SegmentState, TopicIdPartition
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.local.index_hints import read_last_timestamp_hint
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.copies import ICEBERG_LACKS, CopyFacts, fault_finding, missing_objects
from snaprebuild.tier.listing import UNVERIFIED, list_store, unreadable_objects
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs
from snaprebuild.tier.remote_log_dir import RemoteLogDir

__all__ = ["RemoteChain", "RemotePartition", "Tier", "open_tier", "trimmed_epochs"]


@dataclass(slots=True)
class RemotePartition:
    """A partition in remote storage.

    Attributes:
        files: of its copies.
        log: what a broker knows of it.
        copies: the objects that are there, by segment id.
        is_verified: a metadata log that could be read whole has the live copies.
        stores: how the store is reached, and how much may be read of it.
        findings: about copies that cannot be read.
    """

    files: RemoteLogDir
    log: RemoteLog
    copies: dict[bytes, TierCopy] = field(default_factory=dict)
    is_verified: bool = False
    stores: S3Settings = USUAL_S3
    findings: tuple[Finding, ...] = ()

    @property
    def id(self) -> TopicIdPartition:
        """Topic, topic id and number."""
        return self.files.id

    @property
    def place(self) -> str:
        """For messages."""
        return self.files.place

    @property
    def live(self) -> list[RemoteSegment]:
        """Copies from which reads are served."""
        return [each for each in self.log.segments.values() if self.log.is_live(each.segment_id)]

    def objects_of(self, segment: RemoteSegment) -> TierCopy:
        """The objects of a copy.

        Raises:
            ReadFailedError: there are none, or one that it needs is missing.
        """
        copy = self.copies.get(segment.segment_id)
        missing = missing_objects(self.files.layout, copy)
        if copy is None or missing:
            what = "its objects are not there" if copy is None else f"objects of it are missing: {', '.join(missing)}"
            raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: {what}", path=self.place)
        return copy

    def directory(self, segment: RemoteSegment) -> PartitionDir:
        """A copy as a partition directory of one segment, with its offset and time index.

        Raises:
            ReadFailedError: as ``objects_of``.
        """
        facts = CopyFacts(segment_bytes=segment.size_bytes)
        return self.files.directory([self.files.segment(self.objects_of(segment), facts, with_indexes=True)])

    def file(self, segment: RemoteSegment, kind: LocalTierFile) -> bytes:
        """A small file that each copy has, as the producer snapshot and the leader epochs.

        Raises:
            ReadFailedError: as ``objects_of``; or it cannot be read, or is absent.
            FormatError, RefusedError: as ``RemoteLogDir.read``.
        """
        data = self.files.read(self.objects_of(segment), kind)
        if data is None:
            raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: it has no {kind}", path=self.place)
        return data

    def leader_epochs_at(self, segment: RemoteSegment) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log up to the end of a copy: all entries.

        Raises:
            ReadFailedError, FormatError, RefusedError: as ``file``.
        """
        data = self.file(segment, LocalTierFile.LEADER_EPOCHS)
        return read_leader_epoch_checkpoint(data, file=f"{self.place}: copy {uuid_to_text(segment.segment_id)}")

    def chain_below(self, epochs: Sequence[LeaderEpochEntry], end: int) -> RemoteChain | None:
        """The copies below an offset, of the log with these leader epochs; None where none holds the offset right below.

        Args:
            epochs: of the log, ascending.
            end: offset after the last one that is wanted.
        """
        found: list[RemoteSegment] = []
        wanted = end - 1
        why = "the log begins here"
        while wanted >= 0:
            epoch = epoch_of(epochs, wanted)
            segment = None if epoch is None else self.log.lookup(epoch, wanted)
            if segment is None:
                why = f"no finished copy holds offset {wanted} of leader epoch {epoch}"
                break
            if found and segment.end_offset >= found[-1].start_offset:
                why = f"the copy that holds {wanted} overlaps the next one"
                break
            found.append(segment)
            wanted = segment.start_offset - 1
        return RemoteChain(self, tuple(reversed(found)), why) if found else None


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
    _facts: dict[bytes, CopyFacts] = field(default_factory=dict, compare=False)

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
        files = self.remote.files
        self._read_facts(*segments, *snapshots)
        listed = []
        for each in snapshots:
            snapshot = files.snapshot(self.remote.objects_of(each), self._facts[each.segment_id])
            if snapshot is not None:
                listed.append((each.end_offset + 1, snapshot))
        return files.source(files.directory([self._segment(each) for each in segments], listed))

    def _read_facts(self, *segments: RemoteSegment) -> None:
        """Reads each manifest once, when its copy is first wanted."""
        files = self.remote.files
        unknown = {each.segment_id: self.remote.objects_of(each) for each in segments if each.segment_id not in self._facts}
        self._facts.update(zip(unknown, files.facts_of(list(unknown.values())), strict=True))

    def _segment(self, segment: RemoteSegment) -> SegmentFiles:
        files = self.remote.files
        copy = self.remote.objects_of(segment)
        facts = self._facts[segment.segment_id]
        location = files.path(copy)
        if facts.fault is not None:
            raise ReadFailedError(facts.fault, path=location)
        if facts.key_id is not None and facts.manifest is not None and isinstance(files.store, TierStore):
            files.store.data_key(read_aiven_manifest(facts.manifest), location)
        if facts.segment_bytes != segment.size_bytes:
            message = f"has {facts.segment_bytes} bytes, and the metadata log has {segment.size_bytes}"
            raise ReadFailedError(message, path=location)
        return files.segment(copy, facts)


@dataclass(slots=True)
class Tier:
    """A store, with what a metadata log has of it.

    Attributes:
        base: where the objects are.
        has_metadata: a metadata log was given.
        is_whole_log: and all of it could be read.
        partitions: of the store.
        private_keys: for copies that are encrypted.
        findings: about the store and the metadata log.
        stores: how the store is reached, and how much may be read of it.
        unknown_objects: count of objects in the store of no known layout.
    """

    base: StorePath
    has_metadata: bool
    is_whole_log: bool
    logs: RemoteLogs
    partitions: dict[TopicIdPartition, TierPartition]
    private_keys: PrivateKeys
    findings: list[Finding]
    stores: S3Settings = USUAL_S3
    unknown_objects: int = 0

    @property
    def root(self) -> str:
        """Location of the store."""
        return self.base.path

    @property
    def metadata_findings(self) -> list[Finding]:
        """Findings of the metadata logs, without those about other partitions of the store."""
        return [each for each in self.findings if each.cause is FindingCause.METADATA_TOPIC]

    def partition(self, wanted: TopicIdPartition) -> RemotePartition:
        """The partition in remote storage.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        found = self.partitions.get(wanted)
        layout = TierLayout.AIVEN if found is None else found.layout
        store = self.base.store
        files = RemoteLogDir(
            wanted, self.base, layout, TierStore(store, self.private_keys) if layout is TierLayout.AIVEN else store
        )
        copies = {} if found is None else {copy.segment_id: copy for copy in found.copies}
        log = RemoteLog()
        findings = list[Finding]()
        if self.has_metadata:
            log = self.logs.partitions.get(wanted, log)
        elif found is not None:
            log, findings = _log_of_objects(files, found)
        return RemotePartition(files, log, copies, self.is_whole_log, self.stores, tuple(findings))

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
            raise UsageError(f"has copies of several topics called {topic}: name one with --topic-id, of {among}", path=self.root)
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
    listing = list_store(root, metadata_logs, stores, key_prefix)
    findings = [*listing.findings, *unreadable_objects(root.path, listing.unknown)]
    if not listing.partitions and not metadata_logs and not findings:
        if not may_be_empty:
            raise UsageError("has no copy of a segment", path=root.path)
        message = "the store is empty: nothing was uploaded, or it is another store or prefix than the brokers'"
        findings.append(Finding("tier-empty", Severity.NOTE, root.path, message))
    elif not metadata_logs:
        findings.append(Finding("tier-unverified", Severity.NOTE, root.path, UNVERIFIED))
    partitions = {each.id: each for each in listing.partitions}
    known = listing.has_metadata, listing.is_whole_log, listing.logs
    return Tier(root, *known, partitions, private_keys, findings, stores, listing.unknown.count)


# ---------------------------------------------------------------------------------------------------------------- objects alone


def _log_of_objects(files: RemoteLogDir, found: TierPartition) -> tuple[RemoteLog, list[Finding]]:
    """Takes every complete copy for a finished one; and what cannot be read."""
    missing = [missing_objects(files.layout, copy) for copy in found.copies]
    whole = [copy for copy, lacks in zip(found.copies, missing, strict=True) if not lacks]
    iceberg = missing.count(ICEBERG_LACKS)
    findings = unreadable_objects(files.place, iceberg=iceberg)
    left = len(found.copies) - len(whole) - iceberg
    if left:
        message = f"{pluralize(left, 'copy', 'copies')} left out, because objects are missing"
        findings.append(Finding("tier-unreadable", Severity.FINDING, files.place, message))
    segments = []
    for copy, facts in zip(whole, files.facts_of(whole), strict=True):
        fault = facts.fault
        is_unread = facts.is_unread
        if fault is None:
            try:
                segments.append(_segment(files, copy, facts))
                continue
            except (FormatError, ReadFailedError) as error:
                fault = error.message
                is_unread = isinstance(error, ReadFailedError)
        findings.append(fault_finding(files.place, copy.segment_id, copy.base_offset, fault, is_unread=is_unread))
    log = RemoteLog()
    for segment in sorted(segments, key=lambda each: (each.event_timestamp_ms, each.start_offset)):
        assert segment.id is not None
        log.take(segment)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        log.take(RemoteSegmentUpdate(segment.id, segment.broker_id, segment.event_timestamp_ms, None, finished))
    return log, findings


def _segment(files: RemoteLogDir, copy: TierCopy, facts: CopyFacts) -> RemoteSegment:
    """A copy as its metadata would have it: from its manifest, else from its files."""
    assert facts.segment_bytes is not None
    end = facts.end_offset
    epochs = facts.leader_epochs
    greatest = facts.max_timestamp_ms
    if end is None:
        end = log_end_offset(files.directory([files.segment(copy, facts, with_indexes=True)])) - 1
        if end < copy.base_offset:
            raise TruncatedError("segment", file=files.path(copy), position=0, expected="a batch", found="none that is whole")
    if not epochs:
        file = files.file(copy, LocalTierFile.LEADER_EPOCHS)
        data = file.read_small(limits.TEXT_FILE_BYTES_MAX) or b""
        epochs = trimmed_epochs(read_leader_epoch_checkpoint(data, file=file.path), copy.base_offset, end)
    if greatest is None:
        greatest = read_last_timestamp_hint(files.file(copy, LocalTierFile.TIME_INDEX))
    return RemoteSegment(
        id=RemoteSegmentId(files.id, copy.segment_id),
        segment_id=copy.segment_id,
        start_offset=copy.base_offset,
        end_offset=end,
        broker_id=-1,
        max_timestamp_ms=-1 if greatest is None else greatest,
        event_timestamp_ms=facts.event_timestamp_ms or 0,
        leader_epochs=tuple(LeaderEpochEntry(epoch, start) for epoch, start in epochs),
        size_bytes=facts.segment_bytes,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=False,
    )


def trimmed_epochs(entries: Sequence[LeaderEpochEntry], first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a segment, of a checkpoint that begins with the log (``LeaderEpochFileCache.epochEntriesInRange``)."""
    inside = [(entry.epoch, entry.start_offset) for entry in entries if first < entry.start_offset <= last]
    before = [entry.epoch for entry in entries if entry.start_offset <= first]
    return ((before[-1], first), *inside) if before else tuple(inside)
