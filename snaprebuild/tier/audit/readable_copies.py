"""The copies of one partition as an audit reads them: which can be read, where they end, and the log that they make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from formats import limits
from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import HEADER_BYTES
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_key import AivenObject
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.storage.local.index_hints import read_last_entry_hint
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition
from snaprebuild.storage.remote.store import KnownCopy, TierStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.overlaps import CopySpan, RemoteLine, follow_one_another, remote_line
from snaprebuild.tier.audit.result import AuditedCopy, AuditedPartition, Verdict
from snaprebuild.tier.audit.stretches import Stretch, split_at_holes
from snaprebuild.tier.copies import ICEBERG_LACKS, CopyFacts, fault_finding, missing_objects
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.remote_log_dir import RemoteLogDir
from snaprebuild.tier.remote_partition import trimmed_epochs

__all__ = [
    "BAD_COPY",
    "CopyLog",
    "ListedPartition",
    "PartitionCopies",
    "ReadableCopy",
    "epochs_up_to",
    "join_copies",
    "read_copies",
    "read_end",
    "read_ends",
    "read_time",
    "unread_copies",
]

BAD_COPY = "tier-bad-copy"


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition that is audited.

    Attributes:
        copies: that are live, or all if that is unknown.
        log: what the metadata log has of it; None without one.
        unanswered: why a request for the objects of a copy had no answer, by segment id.
    """

    id: TopicIdPartition
    layout: TierLayout
    copies: tuple[TierCopy, ...]
    log: RemoteLog | None
    is_verified: bool
    unanswered: Mapping[bytes, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, found: TierPartition, log: RemoteLog | None, unanswered: Mapping[bytes, str], *, is_verified: bool
    ) -> ListedPartition:
        """From the listing of a store."""
        copies = tuple(copy for copy in found.copies if log is None or _may_be_live(log, copy.segment_id, is_whole_log=is_verified))
        return cls(found.id, found.layout, copies, log, is_verified, unanswered)


def _may_be_live(log: RemoteLog, segment_id: bytes, *, is_whole_log: bool) -> bool:
    """Whether brokers read a copy, as far as the metadata log could be read."""
    is_unknown = segment_id not in log.segments and segment_id not in log.deleted
    return log.is_live(segment_id) or (is_unknown and not is_whole_log)


@dataclass(slots=True)
class ReadableCopy:
    """A copy whose segment can be read.

    Attributes:
        audited: the result; its end offset may be unknown until the segment was opened.
        epochs: leader epochs of the segment; none if unknown.
        event_time_ms: when its copy began, or was finished; 0 if unknown.
        max_timestamp_ms: greatest of its records; None if unknown.
        indexed_offset: of the record with that timestamp, by its time index; None if that was not read.
    """

    copy: TierCopy
    facts: CopyFacts
    audited: AuditedCopy
    epochs: tuple[tuple[int, int], ...]
    event_time_ms: int
    max_timestamp_ms: int | None
    indexed_offset: int | None = None

    @property
    def end_offset(self) -> int | None:
        """Last offset; None as long as it is unknown."""
        return self.audited.end_offset

    @property
    def next_offset(self) -> int:
        """Offset after the last one, which is known."""
        assert self.end_offset is not None
        return self.end_offset + 1

    @property
    def span(self) -> CopySpan:
        """For ``remote_line``; its end is known."""
        last_epoch = self.epochs[-1][0] if self.epochs else -1
        return CopySpan(self.copy.base_offset, self.next_offset - 1, self.epochs, (last_epoch, self.event_time_ms))


@dataclass(slots=True)
class PartitionCopies:
    """The copies of one partition, after their manifests were read.

    Attributes:
        audited: the result.
        undecrypted: copies that no private key decrypts, by the reason.
        iceberg: count of copies that have a manifest alone.
    """

    files: RemoteLogDir
    audited: AuditedPartition
    readable: list[ReadableCopy] = field(default_factory=list)
    undecrypted: dict[str, list[TierCopy]] = field(default_factory=dict)
    iceberg: int = 0

    @property
    def ends_are_known(self) -> bool:
        """Whether no segment has to be opened to find its end."""
        return all(each.end_offset is not None for each in self.readable)


def read_copies(root: StorePath, listed: ListedPartition, private_keys: PrivateKeys) -> PartitionCopies:
    """Reads the manifests.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    files = RemoteLogDir(listed.id, root, listed.layout, root.store)
    where = listed.id.topic, listed.id.topic_id, listed.id.partition, listed.layout, files.place
    found = PartitionCopies(files, AuditedPartition(*where, is_verified=listed.is_verified))
    whole = [copy for copy in listed.copies if not missing_objects(listed.layout, copy)]
    facts_of = dict(zip((copy.segment_id for copy in whole), files.facts_of(whole), strict=True))
    segments = {} if listed.log is None else listed.log.segments
    for copy in listed.copies:
        segment = segments.get(copy.segment_id)
        facts = facts_of.get(copy.segment_id)
        end = segment.end_offset if segment is not None else None if facts is None else facts.end_offset
        audited = AuditedCopy(copy.segment_id, copy.base_offset, end, copy.size_bytes, copy=copy)
        found.audited.copies.append(audited)
        if facts is None:
            lacks = missing_objects(listed.layout, copy)
            _incomplete(found, audited, lacks, listed.unanswered.get(copy.segment_id), is_recorded=segment is not None)
        elif _is_readable(found, audited, copy, facts, segment, private_keys):
            found.readable.append(_readable(copy, facts, audited, segment))
    there = {copy.segment_id for copy in listed.copies}
    for segment in segments.values():
        if listed.log is not None and segment.segment_id not in there and listed.log.is_live(segment.segment_id):
            audited = AuditedCopy(segment.segment_id, segment.start_offset, segment.end_offset, 0, why="its objects are gone")
            found.audited.copies.append(audited)
            unanswered = listed.unanswered.get(segment.segment_id)
            if unanswered is None:
                _lost(found, audited, "finished, and its objects are gone")
            else:
                _unanswered(found, audited, unanswered)
    found.audited.copies.sort(key=lambda each: each.start_offset)
    if listed.layout is TierLayout.AIVEN:
        known = sorted(filter(None, (_known(files, each) for each in found.readable)), key=lambda each: each.stem)
        found.files = replace(files, store=TierStore(root.store, private_keys, tuple(known)))
    return found


def unread_copies(root: StorePath, listed: ListedPartition, limit: str) -> PartitionCopies:
    """The copies of a partition that a limit of the run kept from being read."""
    files = RemoteLogDir(listed.id, root, listed.layout, root.store)
    audited = AuditedPartition(
        listed.id.topic, listed.id.topic_id, listed.id.partition, listed.layout, files.place, is_verified=listed.is_verified
    )
    segments = {} if listed.log is None else listed.log.segments
    for copy in listed.copies:
        segment = segments.get(copy.segment_id)
        end = None if segment is None else segment.end_offset
        audited.copies.append(AuditedCopy(copy.segment_id, copy.base_offset, end, copy.size_bytes, copy=copy))
    audited.limit = limit
    return PartitionCopies(files, audited)


def _incomplete(
    found: PartitionCopies, audited: AuditedCopy, missing: tuple[str, ...], unanswered: str | None, *, is_recorded: bool
) -> None:
    found.iceberg += missing == ICEBERG_LACKS
    audited.why = f"objects of it are missing: {', '.join(missing)}"
    if unanswered is not None:
        _unanswered(found, audited, unanswered)
    elif is_recorded and missing != ICEBERG_LACKS:
        _lost(found, audited, f"finished, and {audited.why}")


def _unanswered(found: PartitionCopies, audited: AuditedCopy, why: str) -> None:
    """The listing lacks objects of a copy, and whether they are there is unknown."""
    audited.why = f"the listing lacks objects of it, and a request for these had no answer: {why}"
    found.audited.damaged(audited.start_offset)
    fault = fault_finding(found.audited.place, audited.segment_id, audited.start_offset, audited.why, is_unread=True)
    found.audited.findings.append(fault)


def _lost(found: PartitionCopies, audited: AuditedCopy, message: str) -> None:
    _damaged(found, audited, message, "tier-lost")


def _damaged(found: PartitionCopies, audited: AuditedCopy, message: str, code: str = BAD_COPY) -> None:
    found.audited.damaged(audited.start_offset)
    _add_bad_copy(found, audited, message, code)


def _add_bad_copy(found: PartitionCopies, audited: AuditedCopy, message: str, code: str = BAD_COPY) -> None:
    text = f"copy {uuid_to_text(audited.segment_id)}: {message}"
    found.audited.add_finding(code, Severity.DAMAGED, text, audited.start_offset)


def _is_readable(
    found: PartitionCopies,
    audited: AuditedCopy,
    copy: TierCopy,
    facts: CopyFacts,
    segment: RemoteSegment | None,
    private_keys: PrivateKeys,
) -> bool:
    """Whether the segment of a complete copy can be read; what is wrong with the copy by its manifest and sizes."""
    if facts.fault is not None:
        audited.why = facts.fault
        found.audited.damaged(copy.base_offset)
        fault = fault_finding(found.audited.place, copy.segment_id, copy.base_offset, facts.fault, is_unread=facts.is_unread)
        found.audited.findings.append(fault)
        return False
    if facts.torn_index is not None:
        _add_bad_copy(found, audited, facts.torn_index)
    least = HEADER_BYTES + (0 if facts.key_id is None else ENCRYPTION_BYTES)
    if facts.snapshot_bytes == 0:
        audited.settle(Verdict.ZERO_BYTES, "it has no bytes: a broker takes it and starts without producers")
    elif facts.snapshot_bytes is not None and facts.snapshot_bytes < least:
        audited.settle(Verdict.CORRUPT, f"it has {facts.snapshot_bytes} bytes, less than a header")
    encryption = None if facts.manifest is None else read_aiven_manifest(facts.manifest).encryption
    if encryption is not None and (key_fault := private_keys.fault(encryption)) is not None:
        audited.not_read(f"it {key_fault}")
        found.undecrypted.setdefault(key_fault, []).append(copy)
        return False
    if segment is not None and segment.size_bytes != facts.segment_bytes:
        message = f"its segment has {facts.segment_bytes} bytes, and the metadata log has {segment.size_bytes}"
        _damaged(found, audited, message)
        audited.not_read(message)
        return False
    return True


def _readable(copy: TierCopy, facts: CopyFacts, audited: AuditedCopy, segment: RemoteSegment | None) -> ReadableCopy:
    if segment is None:
        return ReadableCopy(
            copy, facts, audited, facts.leader_epochs, facts.event_timestamp_ms or 0, _timestamp(facts.max_timestamp_ms)
        )
    epochs = tuple((each.epoch, each.start_offset) for each in segment.leader_epochs)
    return ReadableCopy(copy, facts, audited, epochs, segment.event_timestamp_ms, _timestamp(segment.max_timestamp_ms))


def _timestamp(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _known(files: RemoteLogDir, each: ReadableCopy) -> KnownCopy | None:
    """The facts that ``TierStore`` need not read again; None if the objects are below several prefixes."""
    stem = files.name(each.copy).removesuffix(LocalTierFile.LOG)
    indexes = each.copy.objects.get(AivenObject.INDEXES)
    if each.facts.manifest is None or indexes is None or indexes.key != f"{stem}.{AivenObject.INDEXES}":
        return None
    return KnownCopy(f"{files.root}/{stem}", each.facts.manifest, indexes.identity)


# ---------------------------------------------------------------------------------------------------------------- ends


def read_time(found: PartitionCopies, copy: ReadableCopy) -> None:
    """Reads the greatest timestamp of a copy from its time index, if nothing else has it."""
    if copy.max_timestamp_ms is None:
        last = read_last_entry_hint(found.files.file(copy.copy, LocalTierFile.TIME_INDEX))
        if last is not None:
            copy.max_timestamp_ms = last.timestamp
            copy.indexed_offset = copy.copy.base_offset + last.relative_offset


def read_end(found: PartitionCopies, copy: ReadableCopy) -> str | None:
    """Reads the end of a segment, if nothing else has it. Gives why that cannot be read; None if it was.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    if copy.end_offset is not None:
        return None
    segment = found.files.segment(copy.copy, copy.facts, with_indexes=True)
    try:
        end = log_end_offset(found.files.directory([segment])) - 1
    except (FormatError, ReadFailedError) as error:
        return error.message
    copy.audited.end_offset = end if end >= copy.copy.base_offset else None
    return None


def read_ends(found: PartitionCopies) -> PartitionCopies:
    """Reads the ends of segments that nothing else has, and other files for what else is unknown. Gives those whose end is known now."""
    if found.ends_are_known:
        return found
    readable = []
    for each in found.readable:
        fault = read_end(found, each)
        if fault is not None:
            each.audited.not_read(fault)
        elif each.end_offset is not None:
            readable.append(each)
    for each in readable:
        each.epochs = each.epochs or _segment_epochs(found.files, each)
        read_time(found, each)
    return replace(found, readable=[each for each in readable if not _has_lost_its_end(found, each)])


def _has_lost_its_end(found: PartitionCopies, copy: ReadableCopy) -> bool:
    """Whether the segment ends below an offset that its time index names, and the next copy does not begin at its end.

    Its snapshot is of the offset where the segment once ended. Where a metadata log or a manifest has the end, it is not read here.
    """
    indexed = copy.indexed_offset
    end = copy.next_offset
    if indexed is None or indexed < end:
        return False
    following = min((each.start_offset for each in found.audited.copies if each.start_offset > copy.copy.base_offset), default=None)
    if following is not None and (following <= end or following <= indexed):
        return False
    copy.audited.end_offset = None
    copy.audited.why = f"its segment ends at {end - 1}, and its time index names offset {indexed}: the segment has lost its end"
    _damaged(found, copy.audited, copy.audited.why)
    return True


def _segment_epochs(files: RemoteLogDir, copy: ReadableCopy) -> tuple[tuple[int, int], ...]:
    """Leader epochs of a segment, from its leader epoch checkpoint."""
    entries = [LeaderEpochEntry(*entry) for entry in epochs_up_to(files, copy)]
    return trimmed_epochs(entries, copy.copy.base_offset, copy.next_offset - 1)


def epochs_up_to(files: RemoteLogDir, copy: ReadableCopy) -> tuple[tuple[int, int], ...]:
    """Leader epochs of the log up to the end of a copy; none if they cannot be read."""
    try:
        data = files.read(copy.copy, LocalTierFile.LEADER_EPOCHS, limits.TEXT_FILE_BYTES_MAX)
        return tuple((entry.epoch, entry.start_offset) for entry in read_leader_epoch_checkpoint(data or b""))
    except (FormatError, ReadFailedError):
        return ()


# ---------------------------------------------------------------------------------------------------------------- the log


@dataclass(frozen=True, slots=True)
class CopyLog:
    """Copies of one partition, joined to the log that they are copies of.

    Attributes:
        copies: those that can be read.
        line: which of them, and how much of each.
        stretches: the log without its holes; none if no copy can be read.
        by_name: the results, by name of the snapshot in that directory.
        by_end: those of copies without a snapshot, by the offset after their end.
    """

    files: RemoteLogDir
    audited: AuditedPartition
    copies: Sequence[ReadableCopy]
    line: RemoteLine
    stretches: tuple[Stretch, ...]
    by_name: dict[str, AuditedCopy]
    by_end: dict[int, AuditedCopy]

    @property
    def parts(self) -> list[ReadableCopy]:
        """The copies that are replayed, in the order of the log."""
        return [self.copies[part.number] for part in self.line.parts]

    @property
    def members(self) -> list[ReadableCopy]:
        """The copies whose ends are boundaries of the log."""
        found = [self.copies[number] for number in self.line.members]
        return sorted(found, key=lambda each: (each.next_offset, each.copy.base_offset))

    def members_of(self, stretch: Stretch) -> list[ReadableCopy]:
        """The members whose ends are in a stretch."""
        return [each for each in self.members if stretch.holds_boundary(each.next_offset)]

    def parts_of(self, stretch: Stretch) -> list[ReadableCopy]:
        """The copies of a stretch that are replayed."""
        bases = {segment.base_offset for segment in stretch.source.directory.segments}
        return [each for each in self.parts if each.copy.base_offset in bases]

    def times(self) -> dict[int, int | None]:
        """Largest timestamp below the end of each member, by that end; None if one below is unknown."""
        found: dict[int, int | None] = {}
        largest: int | None = 0
        for each in self.members:
            known = each.max_timestamp_ms
            largest = None if largest is None or known is None else max(largest, known)
            found[each.next_offset] = largest
        return found


def join_copies(found: PartitionCopies) -> CopyLog:
    """Joins copies whose ends are known to one log."""
    epochs: tuple[tuple[int, int], ...] = ()
    readable = found.readable
    files = found.files
    if not follow_one_another([each.span for each in readable]):
        for each in readable:
            each.epochs = each.epochs or _segment_epochs(files, each)
        newest = max(readable, key=lambda each: (*each.span.rank[:1], each.next_offset, each.event_time_ms))
        epochs = epochs_up_to(files, newest) or newest.epochs
    line = remote_line([each.span for each in readable], epochs)
    for number, why in line.left.items():
        readable[number].audited.not_read(why)
    log = CopyLog(files, found.audited, readable, line, (), {}, {})
    if not line.parts:
        return log
    segments = [(_part(files, readable[part.number], part.until), part.until) for part in line.parts]
    snapshots = []
    for each in log.members:
        listed = files.snapshot(each.copy, each.facts)
        if listed is None:
            log.by_end[each.next_offset] = each.audited
        else:
            log.by_name[listed.name] = each.audited
            snapshots.append((each.next_offset, listed))
    there = {id(each.audited) for each in readable}
    unread = [each for each in found.audited.copies if id(each) not in there]
    return replace(log, stretches=split_at_holes(files, segments, snapshots, unread))


def _part(files: RemoteLogDir, each: ReadableCopy, until: int) -> SegmentFiles:
    return files.segment(each.copy, each.facts, until=until if until < each.next_offset else None)
