"""The producer snapshots in remote storage, each held against a replay of the segments there.

The copies of a partition that follow one another are read as if they were a partition directory, through the same port as one
(``storage.tier_store``), so that the judgement is that of ``verify``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from formats.aiven_key import AivenObject
from formats.file_names import DirectoryForm, PartitionDirectoryName
from formats.local_tier_name import LocalTierFile
from formats.partition_metadata import uuid_to_text
from formats.remote_log_metadata import SegmentState, TopicIdPartition
from snaprebuild.cluster.remote_log import RemoteLog
from snaprebuild.errors import UsageError
from snaprebuild.operations.evidence import Clock
from snaprebuild.operations.findings import Finding, Severity, counted
from snaprebuild.operations.schedule import Engine
from snaprebuild.operations.source import PartitionSource, Source
from snaprebuild.operations.tier_copies import CopyFacts, copy_facts, missing_objects
from snaprebuild.operations.tier_inventory import read_remote_logs
from snaprebuild.operations.tier_levels import AuditLevel
from snaprebuild.operations.verify import PartitionVerdict, SnapshotVerdict, verify
from snaprebuild.replay.difference import Difference, SnapshotStatus
from snaprebuild.storage.at_once import at_once
from snaprebuild.storage.atomic_file import Ownership
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity, S3Settings, Store
from snaprebuild.storage.tier_listing import TierCopy, TierLayout, TierPartition, UnknownObjects, list_tier
from snaprebuild.storage.tier_store import TierStore

__all__ = ["AuditedCopy", "AuditedPartition", "TierAudit", "Verdict", "tier_audit"]

NOBODY = Ownership(0, 0, 0)
"""Of an object."""


class Verdict(StrEnum):
    """What the snapshot of a copy is."""

    RIGHT = "right"
    """Equal, or different only in what a broker drops when it loads it."""
    UNPROVEN = "unproven"
    """Nothing contradicts it, and nothing proves it: what would is not in remote storage."""
    FALSE_EMPTY = "false-empty"
    ZERO_BYTES = "zero-bytes"
    """A broker takes it, and starts without producers."""
    CORRUPT = "corrupt"
    MISSING_PRODUCERS = "missing-producers"
    WRONG = "wrong"
    """It holds what the log contradicts: an older state, or producers that never were."""
    NOT_READ = "not-read"
    """Its copy is not among those that follow one another, or the replay did not come to it."""


WRONG = (Verdict.FALSE_EMPTY, Verdict.ZERO_BYTES, Verdict.CORRUPT, Verdict.MISSING_PRODUCERS, Verdict.WRONG)


@dataclass(slots=True)
class AuditedCopy:
    """A copy.

    Attributes:
        segment_id: 16 bytes.
        start_offset: of the segment.
        end_offset: last offset; None where nothing tells.
        stored_bytes: of its objects.
        verdict: on its snapshot.
        why: in words.
        entries: of the snapshot; None where it was not read.
        expected_entries: by replay; likewise.
        differences: producers that differ, the certain ones first, at most 1,000; each with what a follower that starts from the snapshot
            would do.
        difference_count: all of them.
    """

    segment_id: bytes
    start_offset: int
    end_offset: int | None
    stored_bytes: int
    verdict: Verdict = Verdict.NOT_READ
    why: str = ""
    entries: int | None = None
    expected_entries: int | None = None
    differences: tuple[Difference, ...] = ()
    difference_count: int = 0


@dataclass(slots=True)
class AuditedPartition:
    """A partition.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        layout: of its objects.
        copies: that are live, or complete where nobody tells; by start offset.
        bytes_read: of segments.
    """

    topic: str
    topic_id: bytes
    partition: int
    layout: TierLayout
    copies: list[AuditedCopy]
    bytes_read: int = 0

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class TierAudit:
    """A store.

    Attributes:
        root: its location.
        level: how much was read.
        has_metadata: a metadata log told which copies are live.
        partitions: in the order of the store.
        findings: what is wrong.
    """

    root: str
    level: AuditLevel
    has_metadata: bool
    partitions: list[AuditedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def tier_audit(
    store: Store,
    root: str,
    clock: Clock,
    *,
    level: AuditLevel = AuditLevel.FULL,
    metadata_logs: Sequence[str] = (),
    private_key_file: str | None = None,
    settings: S3Settings | None = None,
    jobs: int | None = None,
    engine: Engine | None = None,
) -> TierAudit:
    """Looks at every snapshot below a location.

    Args:
        store: that holds it.
        root: the location, absolute.
        clock: for expiry: entries that a load at that moment drops are not compared.
        level: how much is read.
        metadata_logs: as for ``tier_inventory``.
        private_key_file: PEM, of segments that are encrypted; None without one.
        settings: of object stores that ``metadata_logs`` lead into.
        jobs: worker processes, None for as many as processors.
        engine: reads and replays in place of worker processes of this machine.

    Raises:
        UsageError: nothing of a known layout is there, or the private key is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    audit = TierAudit(root, level, bool(metadata_logs))
    logs = read_remote_logs(metadata_logs, settings or S3Settings(), audit.findings)
    known = {(each.topic_id, each.partition): each for each in logs.partitions}
    chains = []
    for found in list_tier(store, root, UnknownObjects()):
        partition = known.get((found.topic_id, found.partition))
        log = None if partition is None else logs.partitions[partition]
        chains.append(_Chain(audit, store, found, partition, log, private_key_file))
    if not chains:
        raise UsageError("no copy of a segment lies below it", path=root)
    audit.partitions = [chain.audited for chain in chains]
    if level is AuditLevel.FULL:
        source = Source(tuple(chain.source for chain in chains if chain.source is not None), ())
        result = verify(source, clock, jobs=jobs, engine=engine)
        verdicts = iter(result.partitions)
        for chain in chains:
            if chain.source is not None:
                chain.take(next(verdicts))
    for chain in chains:
        chain.tell()
    return audit


class _Chain:
    """The copies of a partition that follow one another, as a partition directory."""

    def __init__(
        self,
        audit: TierAudit,
        store: Store,
        found: TierPartition,
        partition: TopicIdPartition | None,
        log: RemoteLog | None,
        private_key_file: str | None,
    ) -> None:
        self._audit = audit
        self._layout = found.layout
        topic = found.topic if partition is None else partition.topic
        copies = [copy for copy in found.copies if _may_be_read(copy, found.layout, log, has_metadata=audit.has_metadata)]
        facts = list(at_once(partial(copy_facts, store, audit.root, found.layout), copies))
        self.audited = AuditedPartition(topic, found.topic_id, found.partition, found.layout, [])
        self._place = f"{audit.root}: {self.audited.name} ({uuid_to_text(found.topic_id)})"
        self._by_end: dict[int, AuditedCopy] = {}
        self._encrypted_for: str | None = None
        chain: list[tuple[TierCopy, CopyFacts, AuditedCopy]] = []
        for copy, each in zip(copies, facts, strict=True):
            end = each.end_offset
            if log is not None and copy.segment_id in log.segments:
                end = log.segments[copy.segment_id].end_offset
            audited = AuditedCopy(copy.segment_id, copy.base_offset, end, copy.size_bytes)
            self.audited.copies.append(audited)
            self._look(audited, each)
            reached = chain[-1][2].end_offset if chain else None
            if each.key_id is not None and private_key_file is None:
                audited.why = f"it is encrypted for the key {each.key_id!r}"
                self._encrypted_for = each.key_id
                continue
            if each.fault is not None or each.segment_bytes is None:
                continue
            if reached is not None and copy.base_offset <= reached:
                audited.why = f"another copy holds offset {copy.base_offset}, too"
                continue
            chain.append((copy, each, audited))
        self._chain = chain
        self.source = self._source(store, topic, found.partition, private_key_file) if chain else None

    def _look(self, audited: AuditedCopy, facts: CopyFacts) -> None:
        """What needs no reading."""
        if facts.fault is not None:
            audited.why = facts.fault
        elif facts.snapshot_bytes == 0:
            audited.verdict, audited.why = (
                Verdict.ZERO_BYTES,
                "the snapshot has no bytes: a broker takes it and starts without producers",
            )
        elif facts.snapshot_bytes is not None and facts.snapshot_bytes < HEADER_BYTES:
            audited.verdict, audited.why = Verdict.CORRUPT, f"the snapshot has {facts.snapshot_bytes} bytes, less than its header"

    def _source(self, store: Store, topic: str, partition: int, private_key_file: str | None) -> PartitionSource:
        is_aiven = self._layout is TierLayout.AIVEN
        holder: Store = TierStore(store, private_key_file) if is_aiven else store
        directory_key, _, _ = self._chain[0][0].objects[_LOG[self._layout]].key.rpartition("/")
        path = f"{self._audit.root}/{directory_key}" if directory_key else self._audit.root
        segments, snapshots = [], []
        for place, (copy, facts, audited) in enumerate(self._chain):
            stored = copy.objects[_LOG[self._layout]]
            name = stored.key.rpartition("/")[2]
            assert facts.segment_bytes is not None
            identity = replace(stored.identity, size_bytes=facts.segment_bytes)
            segments.append(SegmentFiles(copy.base_offset, ListedFile(name, identity, NOBODY), transaction_index=facts.index_bytes))
            following = self._chain[place + 1][0].base_offset if place + 1 < len(self._chain) else None
            end = following if audited.end_offset is None else audited.end_offset + 1
            if end is not None and facts.snapshot_bytes:
                snapshot = name.removesuffix(".log") + LocalTierFile.PRODUCER_SNAPSHOT
                snapshots.append((end, ListedFile(snapshot, FileIdentity(facts.snapshot_bytes, 0, 0), NOBODY)))
                self._by_end[end] = audited
        named = PartitionDirectoryName(topic, partition, DirectoryForm.PLAIN)
        directory = PartitionDir(path, named, 0, tuple(segments), tuple(snapshots), has_leader_epochs=True, store=holder)
        return PartitionSource(directory, LogDirState(path, store=holder), directory_key)

    def take(self, verdict: PartitionVerdict) -> None:
        """Takes what the replay says."""
        self.audited.bytes_read = verdict.bytes_read
        self._audit.findings += [replace(each, path=self._place) for each in verdict.findings if each.code in _TOLD]
        for snapshot in verdict.snapshots:
            audited = self._by_end.get(snapshot.offset)
            if audited is not None:
                _judge(audited, snapshot)

    def tell(self) -> None:
        """The findings of the partition."""
        for audited in self.audited.copies:
            severity = Severity.DAMAGED if audited.verdict is Verdict.CORRUPT else Severity.FINDING
            if audited.verdict in WRONG:
                message = f"the snapshot of the segment {uuid_to_text(audited.segment_id)} is {audited.verdict}: {audited.why}"
                if audited.differences:
                    first, more = audited.differences[0], audited.difference_count - 1
                    message += f". A follower that starts from it, of producer {first.producer_id}: {first.consequence}"
                    message += f"; and {counted(more, 'producer')} more" if more else ""
                self._audit.findings.append(Finding("tier-wrong-snapshot", severity, self._place, message, audited.start_offset))
        if self._encrypted_for is not None and self._audit.level is AuditLevel.FULL:
            message = f"is encrypted for the key {self._encrypted_for!r}: --private-key names the file of its private half"
            self._audit.findings.append(Finding("refused", Severity.REFUSED, self._place, message))
        unread = [each for each in self.audited.copies if each.verdict is Verdict.NOT_READ]
        if self._audit.level is AuditLevel.FULL and unread:
            message = (
                f"{counted(len(unread), 'snapshot')} not read, the first because {unread[0].why or 'the replay did not come to it'}"
            )
            self._audit.findings.append(Finding("tier-not-audited", Severity.FINDING, self._place, message, unread[0].start_offset))


HEADER_BYTES = 10
"""Of a snapshot: version, checksum, count."""

_LOG = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}

_TOLD = frozenset(
    (
        *("damaged-segment", "damaged-file", "refused", "storage-failed", "unforeseen-error", "bad-checksum", "unsound-boundary"),
        *("transaction-index-differs", "unreadable-transaction-index"),
    )
)
"""What ``verify`` finds that concerns the objects, and not a broker's directory."""

_VERDICTS = {
    SnapshotStatus.EQUAL: Verdict.RIGHT,
    SnapshotStatus.EQUAL_AFTER_EXPIRY: Verdict.RIGHT,
    SnapshotStatus.UNVERIFIABLE: Verdict.UNPROVEN,
    SnapshotStatus.EXTRA: Verdict.WRONG,
    SnapshotStatus.MISSING_ENTRIES: Verdict.MISSING_PRODUCERS,
    SnapshotStatus.STALE: Verdict.WRONG,
    SnapshotStatus.FALSE_EMPTY: Verdict.FALSE_EMPTY,
    SnapshotStatus.CORRUPT: Verdict.CORRUPT,
}


def _judge(audited: AuditedCopy, snapshot: SnapshotVerdict) -> None:
    comparison = snapshot.comparison
    audited.verdict, audited.why = _VERDICTS[comparison.status], comparison.reason
    if audited.verdict in WRONG and not comparison.proven_wrong:
        audited.verdict = Verdict.UNPROVEN
    audited.entries, audited.expected_entries = comparison.found_entries, comparison.expected_entries
    audited.differences, audited.difference_count = comparison.differences, comparison.difference_count


def _may_be_read(copy: TierCopy, layout: TierLayout, log: RemoteLog | None, *, has_metadata: bool) -> bool:
    if missing_objects(layout, copy):
        return False
    if not has_metadata:
        return True
    segment = None if log is None else log.segments.get(copy.segment_id)
    if segment is None or log is None:
        return False
    return segment.state is SegmentState.COPY_SEGMENT_FINISHED and log.is_referenced(segment)
