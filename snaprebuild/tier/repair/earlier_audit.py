"""The audit of an earlier run, from its document, in the place of one that reads every segment again.

The document has no snapshots. It has the SHA-256 of the right snapshot of each wrong copy. That snapshot is replayed: on the nearest copy
below whose own snapshot has every entry of the audit's replay, over the segments from there on. Only a result with that SHA-256 is written,
so that it is, byte for byte, what the audit proved. A snapshot that lacks expired producers is right, and no start: the right snapshot
of the next copy still has them. Then the segment of that copy is read, too.

What has changed since the audit is refused for its copy alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import write_entries
from formats.remote.object_names import AivenObject, LocalTierFile
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.segment_effect import RunningEffect, effect_of_entries, entries_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.remote.listing import CopyObjects
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import selected_partitions
from snaprebuild.tier.audit.audited_copy import IDENTIFYING, AuditedCopy, AuditedPartition, identity_text
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, SnapshotVerdict, StoreAudit, add_lost_copies
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost, cold_bytes, refuse_cold
from snaprebuild.tier.ledger.segment_reads import SegmentRead, SegmentReadTask, single_segment
from snaprebuild.tier.remote_partition import LOG_OF, place_of
from snaprebuild.tier.remote_store import StoreAccess, list_store, refuse_without_copies

__all__ = ["EarlierAudit", "PresentAudit", "present_audit"]


class EarlierAudit(msgspec.Struct, frozen=True):
    """The document of an audit.

    Attributes:
        path: of the document.
        location: of the store.
        level: how much was read.
        began_ms: when it began at the latest, ms since 1970: what was uploaded since may not be in it.
        clock: when producers expire.
        partitions: with the copies.
        findings: of the audit.
    """

    path: str
    location: str
    level: AuditLevel
    began_ms: int
    clock: Clock
    partitions: tuple[AuditedPartition, ...]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class PresentAudit:
    """An earlier audit, with the copies that are in the store now.

    Attributes:
        audit: the result of the earlier one.
        refused: wrong copies that are refused, by segment id.
        grown: wrong copies whose ``.indexes`` alone has changed, by segment id: as after a repair that was interrupted.
    """

    audit: StoreAudit
    refused: dict[bytes, RefusedError] = field(default_factory=dict)
    grown: dict[bytes, RefusedError] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------------------ replay

    def replay(
        self,
        run: Run,
        proven: ProvenSnapshots,
        due_of: Callable[[PartitionAudit, Sequence[CopyAudit]], list[CopyAudit]],
        announce: Callable[[AuditCost], None] | None,
    ) -> None:
        """Replays the right snapshots of wrong copies. One that is not replayed is refused.

        Args:
            run: reads the segments.
            proven: gets the right snapshots.
            due_of: the copies that are going to be repaired, of wrong ones of a partition.
            announce: called with what is going to be read, apart from manifests.

        Raises:
            RefusedError: a limit of the run ended the reading of manifests, or objects are in a cold storage class without a limit.
        """
        lines = []
        for partition in self.audit.partitions:
            wrong = [each for each in partition.copies if each.verdict in WRONG and each.right_sha256 is not None]
            due = due_of(partition, [each for each in wrong if each.copy.segment_id not in self.refused])
            if due:
                lines.append(_ReplayedLine(self, partition, due))
        # Before a manifest is read.
        listed = cold_bytes(objects for each in lines for objects in each.read_objects)
        refuse_cold(listed, run.stores.max_read_bytes, self.audit.location)
        for line in lines:
            line.read_manifests()
        self.audit.cost = audit_cost(read for each in lines for read in each.reads())
        if announce is not None:
            announce(self.audit.cost)
        refuse_cold(self.audit.cost.cold, run.stores.max_read_bytes, self.audit.location)
        for line in lines:
            line.replay(run, proven)

    def take_changed(self, partition: PartitionAudit, copy: CopyAudit, differences: dict[str, RefusedError]) -> None:
        """Takes a wrong copy whose objects have changed: repaired by now, perhaps repaired in part, or refused.

        Args:
            partition: of the copy.
            copy: that was wrong.
            differences: kinds of the objects that changed, with what was expected and found.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        segment_id = copy.copy.segment_id
        error = next(iter(differences.values()))
        if differences.keys() == {AivenObject.INDEXES}:
            self.grown[segment_id] = error
        elif LOG_OF[copy.copy.layout] not in differences and _is_repaired(partition, copy):
            copy.settle(SnapshotVerdict.RIGHT, "it was repaired since the audit")
            copy.is_exact = True
        else:
            self.refused[segment_id] = error


def present_audit(earlier: EarlierAudit, access: StoreAccess, run: Run, selection: Selection) -> PresentAudit:
    """Compares the objects of an earlier audit with a listing of the store.

    Args:
        earlier: the audit.
        access: to the store.
        run: with the limits.
        selection: of partitions.

    Raises:
        UsageError, ReadFailedError, RefusedError: as ``tier_audit``.
        RefusedError: the audit is of another store, or of none of the topics there.
    """
    root = access.root
    if earlier.location != root.path:
        raise RefusedError(f"is the audit of another store: expected {root.path}, found {earlier.location}", path=earlier.path)
    tier = list_store(access, run.stores)
    audits, findings = selected_partitions(tier, selection)
    audit = StoreAudit(root.path, earlier.level, tier.verified, audits, [*tier.findings, *findings])
    if not audits:
        refuse_without_copies(tier, audit.store_findings, selection)
    audit.store_findings += selection.absent_findings(tier.partition_names, root.path, are_others_read=bool(audits))
    known = {(each.topic_id, each.topic, each.partition): each for each in earlier.partitions}
    if known and not known.keys() & {_key(each) for each in tier.partitions}:
        first = min(known)
        message = (
            f"is the audit of another cluster: none of its topic ids is in {root.path}; expected {first[1]} with id {first[0]}"
        )
        raise RefusedError(message, path=earlier.path)
    present = PresentAudit(audit)
    for partition in audits:
        audited = known.pop(_key(partition.remote.id), None)
        _take_partition(present, partition, audited, earlier.began_ms)
    _take_findings(audit, earlier, known.values())
    return present


def _key(partition: TopicIdPartition) -> tuple[str, str, int]:
    return uuid_to_text(partition.topic_id), partition.topic, partition.partition


def _take_findings(audit: StoreAudit, earlier: EarlierAudit, others: Collection[AuditedPartition]) -> None:
    """Adds the findings of the earlier audit, without those on single wrong snapshots, which a repair has results of.

    Args:
        audit: gets the findings.
        earlier: has them.
        others: partitions that are not selected, or are gone.
    """
    copies = [(_place(audit, each), copy) for each in earlier.partitions for copy in each.copies]
    wrong = {(place, copy.start_offset, copy.verdict.value) for place, copy in copies if copy.verdict in WRONG}
    left_out = {_place(audit, each) for each in others}
    present = {(each.code, each.path, each.message) for each in audit.findings}
    for each in earlier.findings:
        is_known = (each.code, each.path, each.message) in present or (each.path, each.offset, each.reason) in wrong
        if not is_known and each.path not in left_out:
            audit.store_findings.append(each)


def _place(audit: StoreAudit, partition: AuditedPartition) -> str:
    return place_of(audit.location, partition.topic_partition, partition.topic_id)


def _take_partition(present: PresentAudit, partition: PartitionAudit, audited: AuditedPartition | None, began_ms: int) -> None:
    """Takes the verdicts on the copies whose objects have not changed.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    known = {} if audited is None else {each.segment_id: each for each in audited.copies}
    others = []
    changed = []
    for each in partition.copies:
        earlier = known.get(uuid_to_text(each.copy.segment_id))
        if earlier is None:
            others.append(each)
            each.is_waiting = _modified_ms(each) >= began_ms
            each.not_read("it is newer than the audit" if each.is_waiting else "it is not in the audit")
            continue
        _take_copy(partition, each, earlier)
        differences = _differences(partition, each, earlier)
        if differences and each.verdict in WRONG:
            present.take_changed(partition, each, differences)
        elif differences:
            error = next(iter(differences.values()))
            each.settle(SnapshotVerdict.NOT_READ, error.message)
            each.is_exact = False
            changed.append(error)
    if any(each.verdict in WRONG for each in partition.copies):
        # Where new copies begin and end shows whether any shares offsets with one that is repaired.
        partition.remote.read_facts([each.copy for each in others if not each.copy.missing])
    if audited is not None and audited.damaged_from_offset is not None:
        partition.damaged(audited.damaged_from_offset)
    add_lost_copies(partition)
    if changed:
        count = pluralize(len(changed), "copy that was not wrong has", "copies that were not wrong have")
        message = f"{count} changed since the audit; the first: {changed[0].path} {changed[0].message}"
        partition.findings.append(Finding("tier-not-audited", Severity.FINDING, partition.remote.place, message))
    newer = [each for each in others if each.is_waiting]
    older = [each for each in others if not each.is_waiting]
    if older:
        message = f"{pluralize(len(older), 'copy is', 'copies are')} not in the audit: audit without options that select partitions"
        partition.add_finding("tier-not-audited", Severity.FINDING, message, older[0].copy.start_offset)
    if newer:
        message = f"{pluralize(len(newer), 'copy is', 'copies are')} newer than the audit, and not judged"
        start = newer[0].copy.start_offset
        partition.findings.append(Finding("tier-waits", Severity.NOTE, partition.remote.place, message, start))


def _modified_ms(copy: CopyAudit) -> int:
    """When an object of a copy was last written, ms since 1970."""
    return max((each.identity.modified_ns for each in copy.copy.objects.by_kind.values()), default=0) // 1_000_000


def _take_copy(partition: PartitionAudit, copy: CopyAudit, earlier: AuditedCopy) -> None:
    """Takes the result of the earlier audit for a copy."""
    if copy.copy.end_offset is None:
        copy.copy.end_offset = earlier.end_offset
    if copy.copy.missing:
        return
    copy.settle(earlier.verdict, earlier.reason)
    copy.entries = earlier.entries
    copy.expected_entries = earlier.expected_entries
    copy.right_sha256 = earlier.right_sha256
    copy.unproven = earlier.unproven_reason
    copy.is_exact = earlier.is_exact
    if earlier.is_damaged:
        partition.damaged_ids.add(copy.copy.segment_id)


def _differences(partition: PartitionAudit, copy: CopyAudit, earlier: AuditedCopy) -> dict[str, RefusedError]:
    """The objects of a copy that are others than those of the earlier audit, by kind, with what was expected and found."""
    errors = {}
    place = partition.remote.base.path
    by_kind = copy.copy.objects.by_kind
    if not earlier.objects and not copy.copy.missing:
        log = LOG_OF[copy.copy.layout]
        message = "is not identified by the audit, whose program was older: audit again"
        return {log: RefusedError(message, path=f"{place}/{by_kind[log].key}")}
    for each in earlier.objects:
        listed = by_kind.get(each.suffix)
        if listed is not None and not each.is_same(listed.identity):
            message = f"changed since the audit: expected {each.text}, found {identity_text(listed.identity)}"
            errors[each.suffix] = RefusedError(message, path=f"{place}/{listed.key}")
    audited = {each.suffix for each in earlier.objects}
    for kind in IDENTIFYING[copy.copy.layout]:
        if audited and kind in by_kind and kind not in audited:
            errors[kind] = RefusedError("is not in the audit: audit again", path=f"{place}/{by_kind[kind].key}")
    return errors


def _is_repaired(partition: PartitionAudit, copy: CopyAudit) -> bool:
    """Whether the snapshot of a copy is the right one by now. It is read, with the manifest.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    remote = partition.remote
    remote.read_facts([copy.copy])
    if copy.copy.facts.fault is not None:
        return False
    try:
        data = remote.file(copy.copy, LocalTierFile.PRODUCER_SNAPSHOT).read_small(SNAPSHOT_BYTES_MAX)
    except (FormatError, ReadFailedError):
        return False
    return data is not None and hashlib.sha256(data).hexdigest() == copy.right_sha256


# ---------------------------------------------------------------------------------------------------------------- replay


SEGMENTS_AT_ONCE = 256
"""Segments of one partition of which the effects are in memory."""


@dataclass(frozen=True, slots=True)
class _Replay:
    """The replay of one right snapshot.

    Attributes:
        copy: whose snapshot is wrong.
        start: number of the copy on whose snapshot it begins, in the line; None for no producers, at offset 0.
        parts: numbers of the copies whose segments are read, ascending; the last one is that of ``copy``.
    """

    copy: CopyAudit
    start: int | None
    parts: range


class _ReplayedLine:
    """The copies of one partition, and the replays of right snapshots over them."""

    def __init__(self, present: PresentAudit, partition: PartitionAudit, due: Sequence[CopyAudit]) -> None:
        """Plans the replays."""
        self._present = present
        self._remote = partition.remote
        self._copies = sorted(partition.copies, key=lambda each: each.copy.start_offset)
        self._due = {id(each) for each in due}
        planned = (self._planned(number) for number, each in enumerate(self._copies) if id(each) in self._due)
        self._replays = [replay for replay in planned if replay is not None]
        self._read = sorted({number for each in self._replays for number in each.parts})
        self._wrong = {id(each.copy) for each in self._replays}
        self._starts = {each.start for each in self._replays if each.start is not None and not self._is_wrong(each.start)}

    @property
    def read_objects(self) -> list[CopyObjects]:
        """The objects of the copies whose segments are read."""
        return [self._copies[number].copy.objects for number in self._read]

    def read_manifests(self) -> None:
        """Reads the manifests of the copies of which something is read.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        self._remote.read_facts([self._copies[number].copy for number in sorted({*self._read, *self._starts})])

    def _is_wrong(self, number: int) -> bool:
        return id(self._copies[number]) in self._wrong

    def _planned(self, last: int) -> _Replay | None:
        """The replay of the right snapshot of the copy with this number; None if the copy is refused.

        The replay of a wrong one below goes on, if there is one before a snapshot on which a replay may begin.
        """
        copy = self._copies[last]
        first = last
        while self._copies[first].copy.start_offset > 0:
            below = first - 1
            if below < 0 or self._copies[below].copy.end_offset != self._copies[first].copy.start_offset - 1:
                at = self._copies[first].copy.start_offset
                self._refuse(copy, f"no copy below {at} has a snapshot on which its right one can be replayed: audit again")
                return None
            under = self._copies[below]
            if under.is_exact or (id(under) in self._due and under.copy.segment_id not in self._present.refused):
                return _Replay(copy, below, range(first, last + 1))
            if under.copy.missing or under.verdict is SnapshotVerdict.NOT_READ or under.copy.segment_id in self._present.refused:
                reason = under.reason or "its objects have changed"
                self._refuse(copy, f"the copy below it, from {under.copy.start_offset} on, cannot be replayed: {reason}")
                return None
            first = below
        return _Replay(copy, None, range(first, last + 1))

    def _refuse(self, copy: CopyAudit, message: str) -> None:
        log = copy.copy.objects.by_kind[LOG_OF[copy.copy.layout]]
        self._present.refused[copy.copy.segment_id] = RefusedError(message, path=f"{self._remote.base.path}/{log.key}")

    def reads(self) -> Iterator[CopyRead]:
        """The reads of the replays, apart from the manifests."""
        for number in sorted({*self._read, *self._starts}):
            copy = self._copies[number].copy
            yield CopyRead.of(copy, segment=number in self._read, snapshots=int(number in self._starts))

    def replay(self, run: Run, proven: ProvenSnapshots) -> None:
        """Reads the segments, and replays the right snapshots. One that is not that of the audit is refused."""
        reads = self._segment_reads(run)
        below: RunningEffect | None = None
        for each in self._replays:
            own = itertools.islice(reads, len(each.parts))  # no segment is of two replays
            try:
                state = self._state(each, below, own)
                data = write_entries(entries_of(state.total()))
                self._check(each, data)
            except (SnaprebuildError, FormatError) as error:
                self._refuse(each.copy, f"its right snapshot could not be replayed: {error.message}")
                below = None
            else:
                below = state
                each.copy.proven = proven.add(SnapshotClass.EXACT.value, data)
            deque(own, maxlen=0)  # an error leaves some

    def _segment_reads(self, run: Run) -> Iterator[SegmentRead]:
        """Reads the segments, ascending. A run with many copies cannot hold all of it."""
        for first in range(0, len(self._read), SEGMENTS_AT_ONCE):
            numbers = self._read[first : first + SEGMENTS_AT_ONCE]
            found: dict[int, SegmentRead] = {}
            tasks = []
            for number in numbers:
                try:
                    directory = self._directory(number)
                except (SnaprebuildError, FormatError) as error:
                    found[number] = error
                    continue
                (read,) = read_tasks(directory, [0], check_crc=True)
                tasks.append(SegmentReadTask(single_segment(self._remote.source(directory), read, 0), read, _into(found, number)))
            run_tasks(tasks, run)
            yield from (found.pop(number) for number in numbers)

    def _directory(self, number: int) -> PartitionDir:
        """One copy as a directory.

        Raises:
            FormatError, ReadFailedError: its manifest is damaged, or was not handed out.
        """
        copy = self._copies[number].copy
        self._remote.check_facts(copy)
        files = replace(self._remote.segment_files(copy), index_hits=None, compared_bytes=())  # the audit has compared the indexes
        return self._remote.directory([files], log_end_offset=copy.next_offset)

    def _state(self, replay: _Replay, below: RunningEffect | None, reads: Iterable[SegmentRead]) -> RunningEffect:
        """The producers at the end of a copy.

        Args:
            replay: of its right snapshot.
            below: the result of the replay before; None if that one was refused.
            reads: of its segments.

        Raises:
            SnaprebuildError, FormatError: a snapshot or a segment cannot be read.
        """
        if replay.start is None:
            state = RunningEffect()
        elif below is not None and self._is_wrong(replay.start):
            state = below
        else:
            state = RunningEffect(effect_of_entries(self._entries(replay.start)))
        for read in reads:
            if not isinstance(read, tuple):
                raise read
            for piece in read:
                state = state.then(piece.effect)
        return state

    def _entries(self, number: int) -> np.ndarray:
        """The entries of a snapshot on which a replay begins.

        Raises:
            FormatError, ReadFailedError: it cannot be read.
            RefusedError: its own replay was refused, or a limit of the run is used up.
        """
        copy = self._copies[number].copy
        if self._is_wrong(number):
            raise RefusedError(f"the snapshot below, of the copy from {copy.start_offset} on, was not replayed")
        listed = self._remote.snapshot_file(copy)
        directory = self._remote.directory([], [] if listed is None else [(copy.next_offset, listed)])
        entries = read_snapshot_file(directory, copy.next_offset)
        if entries is None:
            raise RefusedError("is gone since the store was listed", path=self._remote.file_path(copy))
        return entries

    def _check(self, replay: _Replay, data: bytes) -> None:
        """Compares a replayed snapshot with the one that the audit proved.

        Raises:
            RefusedError: it is another one.
        """
        found = hashlib.sha256(data).hexdigest()
        if found != replay.copy.right_sha256:
            start = self._copies[replay.parts[0]].copy.start_offset
            raise RefusedError(f"expected SHA-256 {replay.copy.right_sha256}, found {found} by a replay from {start} on")


def _into(found: dict[int, SegmentRead], number: int) -> Callable[[ReadTask, SegmentRead], None]:
    return lambda _, read: found.__setitem__(number, read)
