"""The producer snapshots in remote storage, each held against a replay of the segments there.

The copies of a partition that follow one another are read as if they were a partition directory, through the same port as one
(``storage.tier_store``), so that the judgement is that of ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from formats.aiven_encryption import ENCRYPTION_BYTES
from formats.aiven_key import AivenObject
from formats.batch_headers import TailKind
from formats.errors import FormatError
from formats.file_names import DirectoryForm, PartitionDirectoryName
from formats.local_tier_name import LocalTierFile
from formats.partition_metadata import uuid_to_text
from formats.producer_snapshot import write_entries
from formats.remote_log_metadata import TopicIdPartition
from snaprebuild.cluster.remote_log import RemoteLog
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.operations.audit_cost import AuditCost, audit_cost, refuse_cold
from snaprebuild.operations.evidence import Clock
from snaprebuild.operations.findings import Finding, Severity, counted
from snaprebuild.operations.log_facts import log_end_offset
from snaprebuild.operations.proven_snapshots import ProvenSnapshot, ProvenSnapshots
from snaprebuild.operations.replay_partition import BoundaryState
from snaprebuild.operations.schedule import Engine
from snaprebuild.operations.source import PartitionSource, Selection, Source
from snaprebuild.operations.tier_copies import CopyFacts, copy_facts, manifest_bytes, missing_objects
from snaprebuild.operations.tier_inventory import ICEBERG_LACKS, read_remote_logs, unknown_objects
from snaprebuild.operations.tier_levels import AuditLevel
from snaprebuild.operations.verify import PartitionVerdict, SnapshotVerdict, verify
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, Difference, SnapshotStatus, impossible_entries
from snaprebuild.storage.at_once import at_once
from snaprebuild.storage.atomic_file import Ownership
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity, ReadStore, S3Settings, Store
from snaprebuild.storage.tier_listing import TierCopy, TierLayout, TierPartition, UnknownObjects, list_tier
from snaprebuild.storage.tier_store import TierStore

__all__ = ["AuditedCopy", "AuditedPartition", "TierAudit", "Verdict", "tier_audit", "verdict_of"]

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
        copy: its objects.
        proven: the right snapshot, where this one is wrong, the log proves another one, and somebody asked for that.
        unproven: why there is none, where somebody asked.
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
    copy: TierCopy | None = None
    proven: ProvenSnapshot | None = None
    unproven: str = "the replay has no state at its end"

    def not_read(self, why: str) -> None:
        """Says why, unless its size alone has settled the verdict."""
        if self.verdict is Verdict.NOT_READ:
            self.why = why


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
        is_verified: a metadata log that could be read whole told which copies are live.
        damaged_at: the least offset at which an object is damaged or could not be read; None where none is.
    """

    topic: str
    topic_id: bytes
    partition: int
    layout: TierLayout
    copies: list[AuditedCopy]
    bytes_read: int = 0
    is_verified: bool = False
    damaged_at: int | None = None

    def damaged(self, offset: int | None) -> None:
        """That an object is, or could not be read; an offset that nobody tells may be any."""
        at = 0 if offset is None else offset
        self.damaged_at = at if self.damaged_at is None else min(at, self.damaged_at)

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
        cost: what the replay was to read; None where none was meant.
    """

    root: str
    level: AuditLevel
    has_metadata: bool
    partitions: list[AuditedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    cost: AuditCost | None = None


def tier_audit(
    store: Store,
    root: str,
    clock: Clock,
    *,
    level: AuditLevel = AuditLevel.FULL,
    selection: Selection | None = None,
    metadata_logs: Sequence[str] = (),
    private_key_file: str | None = None,
    settings: S3Settings | None = None,
    jobs: int | None = None,
    engine: Engine | None = None,
    keep: ProvenSnapshots | None = None,
    announce: Callable[[AuditCost], None] | None = None,
) -> TierAudit:
    """Looks at every snapshot below a location.

    Args:
        store: that holds it.
        root: the location, absolute.
        clock: for expiry: entries that a load at that moment drops are not compared.
        level: how much is read.
        selection: of partitions; of offsets nothing. None for all.
        metadata_logs: as for ``tier_inventory``.
        private_key_file: PEM, of segments that are encrypted; None without one.
        settings: of object stores that ``metadata_logs`` lead into.
        jobs: worker processes, None for as many as processors.
        engine: reads and replays in place of worker processes of this machine.
        keep: gets the right snapshot of each copy whose own is wrong, where the log proves it; not with an engine.
        announce: told what the replay is going to read, before it does.

    Raises:
        UsageError: nothing of a known layout is there, or the private key is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up, or objects are in a cold storage class and no limit was set.
    """
    selection = selection or Selection()
    audit = TierAudit(root, level, bool(metadata_logs))
    logs = read_remote_logs(metadata_logs, settings or S3Settings(), audit.findings)
    known = {(each.topic_id, each.partition): each for each in logs.partitions}
    knows_all = audit.has_metadata and not audit.findings
    chains, unknown = [], UnknownObjects()
    for found in list_tier(store, root, unknown):
        partition = known.get((found.topic_id, found.partition))
        if not selection.takes_partition(found.topic if partition is None else partition.topic, found.partition):
            continue
        log = None if partition is None else logs.partitions[partition]
        if log is None and knows_all:
            place = f"{root}: {found.topic}-{found.partition} ({uuid_to_text(found.topic_id)})"
            message = f"the metadata log knows none of its {counted(len(found.copies), 'copy', 'copies')}: no broker reads them"
            audit.findings.append(Finding("tier-orphan", Severity.FINDING, place, message))
            continue
        chain = _Chain(audit, store, found, partition, log, private_key_file, keep)
        chain.audited.is_verified = log is not None and knows_all
        chains.append(chain)
    audit.findings += unknown_objects(root, unknown, 0)
    if not chains and not audit.findings:
        narrowed = " that the selection takes" if selection.topics or selection.partitions else ""
        raise UsageError(f"no copy of a segment{narrowed} lies below it", path=root)
    audit.partitions = [chain.audited for chain in chains]
    if level is AuditLevel.FULL:
        audit.cost = audit_cost(each for chain in chains for each in chain.read)
        if announce is not None:
            announce(audit.cost)
        refuse_cold(audit.cost, settings, root)
        source = Source(tuple(chain.source for chain in chains if chain.source is not None), ())
        by_source = {id(chain.source): chain for chain in chains}
        tell = None if keep is None else lambda place, *state: by_source[id(place)].keep_proven(*state)
        result = verify(source, clock, jobs=jobs, engine=engine, tell=tell)
        verdicts = iter(result.partitions)
        for chain in chains:
            if chain.source is not None:
                chain.take(next(verdicts))
    for chain in chains:
        chain.tell()
    return audit


@dataclass(slots=True)
class _Read:
    """A copy whose segment can be read.

    Attributes:
        copy: its objects.
        facts: what they tell.
        audited: what is told of it.
        end_offset: last offset, which is certain.
        rank: of copies that begin at one offset the greatest is the one of the log: by last leader epoch, then by event time.
    """

    copy: TierCopy
    facts: CopyFacts
    audited: AuditedCopy
    end_offset: int
    rank: tuple[int, int]


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
        keep: ProvenSnapshots | None,
    ) -> None:
        self._audit = audit
        self._keep = keep
        self._store: ReadStore = TierStore(store, private_key_file) if found.layout is TierLayout.AIVEN else store
        self._layout = found.layout
        self._has_key = private_key_file is not None
        topic = found.topic if partition is None else partition.topic
        self._named = PartitionDirectoryName(topic, found.partition, DirectoryForm.PLAIN)
        self.audited = AuditedPartition(topic, found.topic_id, found.partition, found.layout, [])
        self._place = f"{audit.root}: {self.audited.name} ({uuid_to_text(found.topic_id)})"
        self._by_end: dict[int, AuditedCopy] = {}
        self._encrypted_for: str | None = None
        self._iceberg = 0
        copies = [copy for copy in found.copies if log is None or log.is_live(copy.segment_id)]
        whole = [copy for copy in copies if not missing_objects(found.layout, copy)]
        facts = at_once(partial(copy_facts, store, audit.root, found.layout), whole, manifest_bytes)
        facts_of = dict(zip((copy.segment_id for copy in whole), facts, strict=True))
        readable = [self._looked_at(copy, facts_of.get(copy.segment_id), log) for copy in copies]
        self._chain = self._following([each for each in readable if each is not None])
        self.source = self._source(store) if self._chain else None

    @property
    def read(self) -> list[tuple[TierLayout, TierCopy]]:
        """What the replay reads."""
        return [(self._layout, each.copy) for each in self._chain]

    def _looked_at(self, copy: TierCopy, facts: CopyFacts | None, log: RemoteLog | None) -> _Read | None:
        """What needs no segment; the copy, if its segment can be read."""
        segment = None if log is None else log.segments.get(copy.segment_id)
        end = None if facts is None else facts.end_offset
        end = end if segment is None else segment.end_offset
        audited = AuditedCopy(copy.segment_id, copy.base_offset, end, copy.size_bytes, copy=copy)
        self.audited.copies.append(audited)
        if facts is None:
            missing = missing_objects(self._layout, copy)
            self._iceberg += missing == ICEBERG_LACKS
            audited.why = f"objects of it are missing: {', '.join(missing)}"
            if segment is not None and missing != ICEBERG_LACKS:
                self._find("tier-lost", Severity.DAMAGED, f"finished, and {audited.why}", copy)
            return None
        if facts.fault is not None:
            audited.why = facts.fault
            self._find("tier-bad-copy", Severity.DAMAGED, facts.fault, copy)
            return None
        least = HEADER_BYTES + (0 if facts.key_id is None else ENCRYPTION_BYTES)
        if facts.snapshot_bytes == 0:
            audited.verdict, audited.why = Verdict.ZERO_BYTES, "it has no bytes: a broker takes it and starts without producers"
        elif facts.snapshot_bytes is not None and facts.snapshot_bytes < least:
            audited.verdict, audited.why = Verdict.CORRUPT, f"it has {facts.snapshot_bytes} bytes, less than a header"
        if self._audit.level is AuditLevel.STRUCTURE:
            return None
        if facts.key_id is not None and not self._has_key:
            self._encrypted_for = facts.key_id
            audited.not_read(f"it is encrypted for the key {facts.key_id!r}")
            return None
        if segment is not None and segment.size_bytes != facts.segment_bytes:
            message = f"its segment has {facts.segment_bytes} bytes, and the metadata log says {segment.size_bytes}"
            self._find("tier-bad-copy", Severity.DAMAGED, message, copy)
            audited.not_read(message)
            return None
        if audited.end_offset is None:
            audited.end_offset = self._end_of(copy, facts, audited)
        if audited.end_offset is None:
            return None
        epochs = facts.leader_epochs if segment is None else [(each.epoch, 0) for each in segment.leader_epochs]
        rank = (max((epoch for epoch, _ in epochs), default=-1), 0 if segment is None else segment.event_timestamp_ms)
        return _Read(copy, facts, audited, audited.end_offset, rank)

    def _end_of(self, copy: TierCopy, facts: CopyFacts, audited: AuditedCopy) -> int | None:
        """Last offset of a segment, where only its batches tell."""
        directory = self._directory([self._segment(copy, facts)], [])
        try:
            return log_end_offset(directory) - 1
        except (FormatError, ReadFailedError) as error:
            audited.not_read(error.message)
            return None

    def _find(self, code: str, severity: Severity, message: str, copy: TierCopy) -> None:
        self.audited.damaged(copy.base_offset)
        text = f"copy {uuid_to_text(copy.segment_id)}: {message}"
        self._audit.findings.append(Finding(code, severity, self._place, text, copy.base_offset))

    def _following(self, readable: list[_Read]) -> list[_Read]:
        """The longest run of copies from the first one on of which each begins where the one before it ends, or behind a gap.

        Copies overlap where leaders changed. Of those that begin at one offset one belongs to the log; where one begins in the middle of
        another, and goes on behind it, nothing is put together from there on.
        """
        chain: list[_Read] = []
        rest = sorted(readable, key=lambda each: (each.copy.base_offset, tuple(-number for number in each.rank)))
        for each in rest:
            reached = chain[-1].end_offset if chain else -1
            if each.end_offset <= reached:
                each.audited.not_read("other copies hold all of its offsets")
            elif each.copy.base_offset <= reached:
                why = f"it begins in the middle of another copy: from {each.copy.base_offset} on copies are not put together"
                for left in rest[rest.index(each) :]:
                    left.audited.not_read(why)
                break
            else:
                chain.append(each)
        return chain

    def _segment(self, copy: TierCopy, facts: CopyFacts) -> SegmentFiles:
        # Names are keys: the objects of one partition may lie below several prefixes.
        stored = copy.objects[_LOG[self._layout]]
        assert facts.segment_bytes is not None
        listed = ListedFile(stored.key, replace(stored.identity, size_bytes=facts.segment_bytes), NOBODY)
        return SegmentFiles(copy.base_offset, listed, transaction_index=facts.index_bytes)

    def _directory(self, segments: list[SegmentFiles], snapshots: list[tuple[int, ListedFile]]) -> PartitionDir:
        root = self._audit.root
        files = tuple(segments), tuple(snapshots)
        return PartitionDir(root, self._named, 0, *files, has_leader_epochs=True, store=self._store)

    def _source(self, store: Store) -> PartitionSource:
        snapshots = []
        for each in self._chain:
            if each.facts.snapshot_bytes:
                name = each.copy.objects[_LOG[self._layout]].key.removesuffix(".log") + LocalTierFile.PRODUCER_SNAPSHOT
                snapshots.append((each.end_offset + 1, ListedFile(name, FileIdentity(each.facts.snapshot_bytes, 0, 0), NOBODY)))
            self._by_end[each.end_offset + 1] = each.audited
        directory = self._directory([self._segment(each.copy, each.facts) for each in self._chain], snapshots)
        return PartitionSource(directory, LogDirState(self._audit.root, store=store), self.audited.name)

    def take(self, verdict: PartitionVerdict) -> None:
        """Takes what the replay says."""
        self.audited.bytes_read = verdict.bytes_read
        for each in verdict.findings:
            if each.severity > Severity.FINDING:
                self.audited.damaged(each.offset)
            if each.code in _TOLD:
                is_object = each.path != self._audit.root
                path, text = (each.path, f"{self.audited.name}: {each.message}") if is_object else (self._place, each.message)
                self._audit.findings.append(replace(each, path=path, message=text))
        for snapshot in verdict.snapshots:
            audited = self._by_end.get(snapshot.offset)
            if audited is not None:
                _judge(audited, snapshot)

    def keep_proven(self, state: BoundaryState, comparison: Comparison | None) -> None:
        """Keeps the right snapshot of a boundary whose own is wrong, if what was replayed proves it."""
        audited = self._by_end.get(state.offset)
        if audited is None or self._keep is None or not (comparison is None or comparison.proven_wrong):
            return
        judgement = state.judgement
        if judgement.snapshot_class is not SnapshotClass.EXACT:
            # What was deleted before the first copy may live on in a later snapshot alone.
            audited.unproven = f"the replay is {judgement.snapshot_class.value}: {judgement.reasons[0]}"
        elif state.segment.tail.kind is not TailKind.CLEAN:
            audited.unproven = f"its segment ends with what is no batch: {state.segment.tail.error}"
        elif (impossible := impossible_entries(state.entries, state.offset)) is not None:
            audited.unproven = f"the replay gives what no broker writes: {impossible}"
        else:
            audited.proven = self._keep.add(judgement.snapshot_class.value, write_entries(state.entries))

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
        if self._encrypted_for is not None:
            message = f"is encrypted for the key {self._encrypted_for!r}: --private-key names the file of its private half"
            self._audit.findings.append(Finding("refused", Severity.REFUSED, self._place, message))
        self._audit.findings += unknown_objects(self._place, UnknownObjects(), self._iceberg)
        unread = [each for each in self.audited.copies if each.verdict is Verdict.NOT_READ]
        if self._audit.level is AuditLevel.FULL and unread:
            message = f"{counted(len(unread), 'snapshot')} not read; the first: {unread[0].why or 'the replay did not come to it'}"
            self._audit.findings.append(Finding("tier-not-audited", Severity.FINDING, self._place, message, unread[0].start_offset))


HEADER_BYTES = 10
"""Of a snapshot: version, checksum, count."""

_LOG = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}

_TOLD = frozenset(
    (
        *("damaged-segment", "damaged-file", "refused", "storage-failed", "unforeseen-error", "bad-checksum", "unsound-boundary"),
        *("transaction-index-differs", "unreadable-transaction-index", "disordered-offsets", "snapshot-above-log-end"),
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


def verdict_of(comparison: Comparison) -> Verdict:
    """What a snapshot is that was held against a replay."""
    found = _VERDICTS[comparison.status]
    return Verdict.UNPROVEN if found in WRONG and not comparison.proven_wrong else found


def _judge(audited: AuditedCopy, snapshot: SnapshotVerdict) -> None:
    comparison = snapshot.comparison
    audited.verdict, audited.why = verdict_of(comparison), comparison.reason
    audited.entries, audited.expected_entries = comparison.found_entries, comparison.expected_entries
    audited.differences, audited.difference_count = comparison.differences, comparison.difference_count
