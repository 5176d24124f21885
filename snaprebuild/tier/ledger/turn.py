"""One run of an audit with a ledger: what is due, what is read, what the judges get, and what is proven at the end.

Reading and judging are apart. Segments are read in the order in which they are due, as far as the limits of the run allow, and the ledger
keeps a summary of each. The audit then judges every partition by what the ledger has, exactly as if it had read it itself. A segment that
was not read yet ends the replay of its partition like a limit of the run.

A round is over when all copies that the last run knew were read since it began. The next run then begins a new round, and reads the
segment first that was read first. A new copy, and one whose objects have changed, comes before all that. So does a segment that was read
later than now, as under a clock that was wrong: when it was read is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec
from msgspec import structs

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.errors import LimitReachedError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, choose_form, pluralize
from snaprebuild.snapshots.engine.partition_task import Engine, PartitionTask, run_tasks_here
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_tasks
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.remote.listing import CopyObjects
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.s3.request_limits import BYTES, OPTIONS, REQUESTS, limit_used_up, meter_of
from snaprebuild.storage.store import ReadStore
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, ProofKind, SnapshotVerdict
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost
from snaprebuild.tier.ledger.kept_store import KeptStore
from snaprebuild.tier.ledger.kept_summary import without_first_events
from snaprebuild.tier.ledger.ledger_file import AuditLedger, CopyKey, CopyLine
from snaprebuild.tier.ledger.progress import LedgerProgress
from snaprebuild.tier.ledger.segment_reads import SegmentRead, SegmentReadTask, single_segment
from snaprebuild.tier.remote_partition import LOG_OF, RemoteCopy
from snaprebuild.tier.remote_store import Tier

__all__ = ["LedgerTurn", "ReplayedPart", "copy_key"]

PROVEN = (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)

FAILED_BEFORE = "could not be read by an earlier run, and was not read since"

TAKEN_AT_ONCE = 10_000
"""Segments whose tasks are in memory at a time."""


def copy_key(copy: CopyObjects) -> CopyKey:
    """Identifies a copy with its objects as they were listed."""
    digest = hashlib.blake2b(digest_size=16)
    for kind, each in sorted(copy.by_kind.items()):
        identity = each.identity
        mark = (identity.inode, identity.modified_ns) if identity.etag is None else identity.etag
        digest.update(repr((str(kind), each.key, identity.size_bytes, mark)).encode(errors="surrogateescape"))
    return CopyKey(uuid_to_text(copy.segment_id), digest.hexdigest())


class ReplayedPart(msgspec.Struct, frozen=True):
    """The part of a partition that is replayed.

    Attributes:
        audit: of the partition.
        source: the copies as a directory.
        first_index: of the first segment that is read.
    """

    audit: PartitionAudit
    source: PartitionSource
    first_index: int


@dataclass(frozen=True, slots=True)
class _Due:
    """A segment to be read.

    Attributes:
        part: that it is in.
        index: in the directory of the part.
        task: reads it.
        copy: of the segment.
        read_ms: when it was read last; None if it never was.
    """

    part: ReplayedPart
    index: int
    task: ReadTask
    copy: RemoteCopy
    read_ms: int | None

    @property
    def order(self) -> tuple[bool, int]:
        """Sorts segments: at first those that were never read, by age; then the others, by the moment when they were read."""
        return (False, _uploaded_ms(self.copy)) if self.read_ms is None else (True, self.read_ms)

    @property
    def stored_bytes(self) -> int:
        """Size of the object with the segment."""
        return _log_object_bytes(self.copy)

    def reads(self) -> CopyRead:
        """The reads of its copy that judge the snapshot at its end."""
        return CopyRead.of(self.copy, segment=True, compared=self.copy.facts.index_hits is not None, snapshots=1, index=True)

    def needs(self) -> tuple[int, int]:
        """Requests and bytes that these reads take."""
        parts = self.reads().parts
        return sum(requests for _, _, requests in parts), sum(size for _, size, _ in parts)


def _log_object_bytes(copy: RemoteCopy) -> int:
    return copy.objects.by_kind[LOG_OF[copy.layout]].identity.size_bytes


def _uploaded_ms(copy: RemoteCopy) -> int:
    """When the object with the segment was written; 0 if it is gone."""
    listed = copy.objects.by_kind.get(LOG_OF[copy.layout])
    return 0 if listed is None else max(listed.identity.modified_ns // 1_000_000, 0)


@dataclass(slots=True)
class LedgerTurn:
    """One run with a ledger.

    Attributes:
        ledger: open.
        run: with the limits.
        begins_rounds: a run after a round that is over reads everything again.
        limit: the limit that ended the reading of segments, in words; None as long as none did.
        began_ms: when the turn began.
        read_segments: that this run has read.
        read_bytes: of the objects with them.
    """

    ledger: AuditLedger
    run: Run
    begins_rounds: bool = True
    limit: str | None = None
    began_ms: int = field(default_factory=current_time_ms)
    read_segments: int = 0
    read_bytes: int = 0
    _keys: dict[str, CopyKey] = field(default_factory=dict)
    _listed: set[CopyKey] = field(default_factory=set)
    _copies: dict[str, RemoteCopy] = field(default_factory=dict)
    _failures: dict[str, SnaprebuildError | FormatError] = field(default_factory=dict)
    _taken: list[_Due] = field(default_factory=list)
    _left: list[_Due] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------------------ before

    @classmethod
    def begun(cls, ledger: AuditLedger, run: Run, tier: Tier, *, begins_rounds: bool) -> Self:
        """Begins a turn with a listing, whose objects are read through the ledger from now on, each part once."""
        turn = cls(ledger, run, begins_rounds)
        turn._take_listing(tier)
        return turn

    def _take_listing(self, tier: Tier) -> None:
        root = tier.base.path
        for partition in tier.partitions.values():
            for copy in partition.copies:
                key = copy_key(copy)
                self._listed.add(key)
                for each in copy.by_kind.values():
                    self._keys[f"{root}/{each.key}"] = key
        tier.reads = KeptStore(tier.base.store, self.ledger, self._keys)

    # ------------------------------------------------------------------------------------------------------ reading

    def plan(self, parts: Iterable[ReplayedPart]) -> AuditCost:
        """Takes what is due of segments, within the limits of the run. Begins a round if the last one is over.

        Args:
            parts: that are going to be replayed.

        Returns:
            The cost of what ``read`` is going to read, and of judging it.

        Raises:
            WriteFailedError: the ledger cannot be written.
        """
        planned = [each for part in parts for each in self._planned(part)]
        known = [each for each in planned if self._is_known(each.copy)]
        is_over = self.ledger.round_began_ms > self.began_ms or all(self._was_tried_in_round(each.copy) for each in known)
        if self.begins_rounds and known and is_over:
            self.ledger.begin_round()
        began_ms = self.ledger.round_began_ms
        due = [each for each in planned if self._is_due(each, began_ms)]
        due.sort(key=lambda each: each.order)
        for each in planned:
            self._record_seen(each)
        count = self._within_limits(due)
        self._taken = due[:count]
        self._left = due[count:]
        return audit_cost(each.reads() for each in self._taken)

    def read(self, engine: Callable[[int], Engine | None]) -> None:
        """Reads the segments that were planned. What cannot be read is an error of its partition later.

        Args:
            engine: makes, from the bytes of the segments, what reads in place of worker processes of this machine, or None.

        Raises:
            WriteFailedError: the ledger cannot be written.
        """
        for start in range(0, len(self._taken), TAKEN_AT_ONCE):
            some = self._taken[start : start + TAKEN_AT_ONCE]
            size_bytes = sum(each.stored_bytes for each in some)
            reading = structs.replace(self.run, engine=engine(size_bytes))
            run_tasks([self._reader(each) for each in some], reading)
        self._left += [each for each in self._taken if self._is_left(each)]

    def _planned(self, part: ReplayedPart) -> Iterator[_Due]:
        """The segments of a part that is replayed."""
        remote = part.audit.remote
        copies = {remote.file_path(each.copy): each.copy for each in part.audit.readable}
        self._copies |= copies
        directory = part.source.directory
        indices = range(part.first_index, len(directory.segments))
        cuts = sorted(set(directory.snapshot_offsets))
        for index, task in zip(
            indices, read_tasks(directory, indices, check_crc=True, cuts=cuts, with_first_events=True), strict=True
        ):
            copy = copies[task.path]
            plain = structs.replace(task, store=_without_ledger(task.store))
            yield _Due(part, index, plain, copy, self._past(self.ledger.read_ms(copy_key(copy.objects), task)))

    def _past(self, moment_ms: int | None) -> int | None:
        """A moment of the ledger; None if it is later than the begin of this turn, so that a clock was wrong."""
        if moment_ms is None or moment_ms > self.began_ms:
            return None
        return moment_ms

    def _is_due(self, each: _Due, began_ms: int) -> bool:
        """Whether a segment is to be read: it never was, could not be read the last time, or was read before the round began."""
        if each.read_ms is None or self._failed_last(each.copy):
            return True
        return self.begins_rounds and each.read_ms < began_ms

    def _failed_last(self, copy: RemoteCopy) -> bool:
        """Whether the segment of a copy could not be read when that was tried last, by any run."""
        line = self._line_of(copy)
        return line is not None and line.failed_ms is not None and line.mark == copy_key(copy.objects).mark

    def _is_known(self, copy: RemoteCopy) -> bool:
        """Whether an earlier run has recorded a copy with these objects."""
        line = self.ledger.copies.get(uuid_to_text(copy.segment_id))
        return line is not None and line.mark == copy_key(copy.objects).mark

    def _was_tried_in_round(self, copy: RemoteCopy) -> bool:
        """Whether the segment of a copy was read since the round began, or could not be read."""
        line = self.ledger.copies.get(uuid_to_text(copy.segment_id))
        tried_ms = [self.ledger.last_read_ms(copy_key(copy.objects)), None if line is None else line.failed_ms]
        known_ms = [each for each in map(self._past, tried_ms) if each is not None]
        return max(known_ms, default=-1) >= self.ledger.round_began_ms

    def _within_limits(self, due: Sequence[_Due]) -> int:
        """How many of the segments may be read; ``limit`` has the reason if not all."""
        limits = (self.run.stores.max_requests, self.run.stores.max_read_bytes)
        meter = meter_of(self.run.stores.run)
        used = [meter.requests, meter.read_bytes]
        for number, each in enumerate(due):
            needs = each.needs()
            for kind in (REQUESTS, BYTES):
                most = limits[kind]
                used[kind] += needs[kind]
                if most is not None and used[kind] > most and not (kind == REQUESTS and each.task.store.is_local):
                    self.limit = limit_used_up(OPTIONS[kind], most).message
                    return number
        return len(due)

    def _reader(self, due: _Due) -> SegmentReadTask:
        return SegmentReadTask(single_segment(due.part.source, due.task, due.index), due.task, self._take)

    def _take(self, task: ReadTask, read: SegmentRead) -> None:
        """Takes what was read of a segment."""
        copy = self._copies[task.path]
        if isinstance(read, tuple):
            self.ledger.keep_segment(copy_key(copy.objects), task, read)
            self._record_failure(copy, None)
            self.read_segments += 1
            self.read_bytes += _log_object_bytes(copy)
            return
        self._failures[task.path] = read
        if isinstance(read, LimitReachedError):
            self.limit = self.limit or read.message
        else:
            self._record_failure(copy, current_time_ms())

    def _record_failure(self, copy: RemoteCopy, failed_ms: int | None) -> None:
        """Records that the segment of a copy could not be read; None that it could."""
        line = self.ledger.copies[uuid_to_text(copy.segment_id)]
        self.ledger.record(structs.replace(line, failed_ms=failed_ms))

    def _is_left(self, due: _Due) -> bool:
        return isinstance(self._failures.get(due.task.path), LimitReachedError)

    def _record_seen(self, due: _Due) -> None:
        """Records a copy that is to be read: the next round waits for it."""
        if not self._is_known(due.copy):
            old = self.ledger.copies.get(uuid_to_text(due.copy.segment_id))
            verdict = SnapshotVerdict.NOT_READ if old is None or old.proof is None else SnapshotVerdict.UNPROVEN
            self.ledger.record(self._line(due.part.audit, due.copy, verdict, None, None))

    # ------------------------------------------------------------------------------------------------------ judging

    def judging(self, _: int) -> Engine:
        """The engine that judges, whatever the bytes of the segments are."""
        return self.judge

    def judge(self, tasks: Sequence[PartitionTask]) -> None:
        """Runs tasks with the summaries of the ledger; see ``partition_task.Engine``. No segment is read."""
        run_tasks_here(tasks, self._kept)

    def _kept(self, tasks: Sequence[ReadTask]) -> list[Pieces | Exception]:
        return [self._kept_pieces(task) for task in tasks]

    def _kept_pieces(self, task: ReadTask) -> Pieces | Exception:
        failure = self._failures.get(task.path)
        if failure is not None:
            return failure
        copy = self._copies[task.path]
        if self._failed_last(copy):
            return ReadFailedError(FAILED_BEFORE, path=task.path)
        key = copy_key(copy.objects)
        pieces = self.ledger.pieces(key, task)
        if pieces is None:
            return LimitReachedError(self.limit or "the segment is read by a later run")
        if not task.with_first_events:
            pieces = tuple(without_first_events(each) for each in pieces)
        read_ms = self.ledger.last_read_ms(key)
        if read_ms is not None and read_ms < self.began_ms:
            pieces = tuple(structs.replace(each, read_bytes=0) for each in pieces)
        return pieces

    # ------------------------------------------------------------------------------------------------------ the end

    def settle(self, audit: PartitionAudit) -> None:
        """Adds what earlier runs have proven of the copies of a partition, and records what is proven now.

        A copy that waits for its turn keeps its proof if its objects are the same.

        Raises:
            WriteFailedError: the ledger cannot be written.
        """
        lost = list[CopyAudit]()
        was_limited = audit.limit is not None
        for each in audit.copies:
            if each.copy.missing:
                continue
            line = self._line_of(each.copy)
            is_open = each.verdict in (SnapshotVerdict.UNPROVEN, SnapshotVerdict.NOT_READ)
            is_waiting = was_limited and is_open
            failed = self._failed_last(each.copy)
            if is_waiting and failed:
                each.settle(SnapshotVerdict.UNPROVEN, f"its segment {FAILED_BEFORE}")
                is_waiting = False
            is_same = line is not None and line.mark == copy_key(each.copy.objects).mark
            has_proof = line is not None and line.proof is not None and is_same and not failed
            if is_waiting and has_proof:
                assert line is not None
                each.settle(line.verdict, "an earlier run proved it")
                each.proof = line.proof
                each.proven_ms = line.proven_ms
                continue
            if is_waiting:
                each.settle(SnapshotVerdict.NOT_READ, f"it waits for a later run: {audit.limit}")
                each.is_waiting = True
                if line is not None and line.verdict is SnapshotVerdict.UNPROVEN:
                    lost.append(each)
                continue
            if is_open and line is not None and line.proof is not None:
                if has_proof and self._is_by_retention(audit):
                    each.settle(SnapshotVerdict.CONSISTENT, "an earlier run proved it with copies that retention has deleted since")
                    each.proof = ProofKind.EARLIER
                else:
                    lost.append(each)
            self._record(audit, each, line)
        if lost:
            message = f"{pluralize(len(lost), 'snapshot')} proven by an earlier run, and not any more; the first, {lost[0].snapshot_name}: "
            audit.add_finding("tier-newly-unproven", Severity.FINDING, f"{message}{lost[0].reason}", lost[0].copy.start_offset)

    def _line_of(self, copy: RemoteCopy) -> CopyLine | None:
        return self.ledger.copies.get(uuid_to_text(copy.segment_id))

    def _is_by_retention(self, audit: PartitionAudit) -> bool:
        """Whether nothing but retention can be the reason that a snapshot is not proven any more."""
        verdicts = {each.verdict for each in audit.copies}
        is_whole = audit.damaged_at is None and not audit.has_gap
        return is_whole and SnapshotVerdict.SUSPECT not in verdicts and not verdicts & set(WRONG) and audit.begins_by_retention

    def _record(self, audit: PartitionAudit, copy: CopyAudit, old: CopyLine | None) -> None:
        proof = copy.proof
        if copy.verdict in PROVEN and proof is None:
            proof = _proof_of(copy)
        proven_ms = None
        if proof is ProofKind.EARLIER and old is not None:
            proven_ms = old.proven_ms
        elif proof is not None:
            proven_ms = self.ledger.last_read_ms(copy_key(copy.copy.objects)) or self.began_ms
        copy.proof = proof
        copy.proven_ms = proven_ms
        if proof is not None or old is not None or copy.verdict is not SnapshotVerdict.NOT_READ:
            self.ledger.record(self._line(audit, copy.copy, copy.verdict, proof, proven_ms))

    def _line(
        self,
        audit: PartitionAudit,
        copy: RemoteCopy,
        verdict: SnapshotVerdict,
        proof: ProofKind | None,
        proven_ms: int | None,
    ) -> CopyLine:
        remote = audit.remote
        log = copy.objects.by_kind.get(LOG_OF[copy.layout])
        old = self._line_of(copy)
        key = copy_key(copy.objects)
        return CopyLine(
            topic=remote.id.topic,
            topic_id=uuid_to_text(remote.id.topic_id),
            partition=remote.id.partition,
            segment_id=key.segment_id,
            mark=key.mark,
            start_offset=copy.start_offset,
            end_offset=copy.end_offset,
            size_bytes=copy.objects.size_bytes,
            etag=None if log is None else log.identity.etag,
            uploaded_ms=_uploaded_ms(copy),
            verdict=verdict,
            proof=proof,
            proven_ms=proven_ms,
            failed_ms=None if old is None or old.mark != key.mark else old.failed_ms,
        )

    def progress(self, audits: Sequence[PartitionAudit]) -> LedgerProgress:
        """The present counts of the ledger for some partitions."""
        copies = [each for audit in audits for each in audit.copies]
        proven = [each for each in copies if each.verdict in PROVEN]
        now_ms = current_time_ms()
        since_ms = [min(each.proven_ms, now_ms) for each in proven if each.proven_ms is not None]
        unproven_ms = [_uploaded_ms(each.copy) for each in copies if each.verdict not in PROVEN]
        return LedgerProgress(
            path=self.ledger.path,
            copies=len(copies),
            proven=len(proven),
            since_ms=min(since_ms, default=None),
            round_began_ms=self.ledger.round_began_ms,
            read_segments=self.read_segments,
            read_bytes=self.read_bytes,
            due_segments=len(self._left),
            due_bytes=sum(each.stored_bytes for each in self._left),
            oldest_unproven_ms=min(unproven_ms, default=None),
        )

    def end(self, location: str, audits: Sequence[PartitionAudit]) -> list[Finding]:
        """Forgets copies that are not in the store any more, or have other objects.

        Args:
            location: of the store.
            audits: of the partitions that are selected.

        Returns:
            The finding about a limit that ended the run, if one did. It is a note if the run has come any further.

        Raises:
            WriteFailedError: the ledger cannot be written.
        """
        self.ledger.drop_all_but(self._listed)
        limit = self.limit or next((each.limit for each in audits if each.limit is not None), None)
        if limit is None:
            return []
        count = pluralize(len(self._left), "segment")
        waits = choose_form(len(self._left), "waits", "wait")
        if self.read_segments or self.ledger.has_grown:
            return [Finding("tier-waits", Severity.NOTE, location, f"{limit}; {count} of this round {waits} for the next run")]
        message = f"{limit}, and nothing was read: {count} {waits}, and the first needs more than the limit allows"
        return [Finding("tier-limit", Severity.FINDING, location, message, is_unread=True)]


def _proof_of(copy: CopyAudit) -> ProofKind:
    if copy.is_from_zero:
        return ProofKind.FROM_OFFSET_0
    return ProofKind.CONFIRMED if copy.verdict is SnapshotVerdict.RIGHT else ProofKind.CONSISTENT


def _without_ledger(store: ReadStore) -> ReadStore:
    """The store that reads a segment, as it is sent to other processes."""
    if isinstance(store, TierStore):
        base = store.base
        return store if not isinstance(base, KeptStore) else store.over(base.base)
    return store.base if isinstance(store, KeptStore) else store
