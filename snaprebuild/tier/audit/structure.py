"""Snapshots in remote storage without a replay: whether each parses, and whether they contradict each other.

This proves nothing. But what a producer wrote below a snapshot is in it, unless the producer has expired since; and nothing goes backwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace

from formats import limits
from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.partition.producer_snapshot import read_entries
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.object_names import LocalTierFile
from snaprebuild.errors import LimitReachedError, ReadFailedError
from snaprebuild.findings import Severity, finding_of_error, pluralize
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.replay.window import Clock
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.audit.contradictions import ParsedSnapshot, SnapshotLine
from snaprebuild.tier.audit.copy_log import CopyLog
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, SnapshotVerdict
from snaprebuild.tier.remote_partition import RemotePartition

__all__ = ["check_structure", "compare_members", "newest_first", "snapshot_entries"]


@dataclass(frozen=True, slots=True)
class _Boundary:
    """Where a snapshot is in the log.

    Attributes:
        offset: of it; None if unknown.
        time_ms: largest timestamp below; None if unknown.
    """

    offset: int | None
    time_ms: int | None


def check_structure(audit: PartitionAudit, log: CopyLog | None, clock: Clock) -> None:
    """Settles the verdicts of ``--level structure``: parses each snapshot, and compares those of the log with each other.

    Args:
        audit: the copies.
        log: these copies, joined; None if some ends are unknown. Then each is taken to end where the next one begins.
        clock: for expiry, where no time is known.

    Raises:
        ReadFailedError: the store as a whole does not answer.
        RefusedError: a limit of the run is used up, or the private key is another one.
    """
    copies = sorted((each for each in audit.readable if each.copy.facts.snapshot_bytes), key=_in_order)
    boundaries = _assumed_boundaries(audit) if log is None else _boundaries(log)

    def unproven() -> Iterator[tuple[CopyAudit, np.ndarray]]:
        for each, entries in _parsed(audit, copies):
            each.settle(SnapshotVerdict.UNPROVEN, "it parses; no segment was replayed")
            each.entries = len(entries)
            yield each, entries

    if log is not None:
        _settle(_compare(unproven(), boundaries, clock))
        return
    compared = _compare(unproven(), boundaries, clock)
    try:
        while compared.limit is None and _read_ends(audit, compared.suspects, boundaries):
            compared = _compare(_parsed(audit, copies), boundaries, clock)
    except LimitReachedError as error:
        compared = dataclasses.replace(compared, limit=error)
    _settle(compared)
    if compared.skipped:
        message = (
            f"{pluralize(len(compared.skipped), 'snapshot')} not compared with others, because it is unknown where the segment "
        )
        message += "ends: add --metadata-log, or use --level full"
        audit.add_finding("tier-not-compared", Severity.NOTE, message, compared.skipped[0].copy.start_offset)


def _read_ends(audit: PartitionAudit, suspects: Sequence[CopyAudit], boundaries: dict[int, _Boundary]) -> bool:
    """Reads where the segments of suspect copies end, which was only assumed. Gives whether one ends elsewhere.

    Records between two copies that are in no copy are in the snapshots above, and not in the one below.
    """
    is_other = False
    for each in suspects:
        if each.copy.end_offset is not None:
            continue
        boundary = boundaries[id(each)]
        offset = _read_boundary(audit, each)
        if offset is None or boundary.offset not in (offset, INT64_MAX):
            boundaries[id(each)] = _Boundary(offset, boundary.time_ms)
            is_other = True
    return is_other


def _read_boundary(audit: PartitionAudit, copy: CopyAudit) -> int | None:
    """The offset after the end of a segment; None if it cannot be read."""
    with contextlib.suppress(FormatError, ReadFailedError):
        audit.remote.read_end(copy.copy)
    return None if copy.copy.end_offset is None else copy.copy.next_offset


def compare_members(log: CopyLog, clock: Clock) -> None:
    """Compares the snapshots of a log with each other, after a replay has judged some of them. Wrong ones are left out.

    The records of a hole are unknown, and those below the window of ``--level reachable``, and the snapshots contradict each other all the
    same.

    Args:
        log: the copies, joined.
        clock: for expiry, where no time is known.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    copies = [each for each in log.members if each.copy.facts.snapshot_bytes and each.verdict not in WRONG]
    _settle(_compare(_parsed(log.audit, copies), _boundaries(log), clock))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Snapshots of one line, compared with each other.

    Attributes:
        taken: those that were compared, in the order of the log.
        skipped: those whose boundary is unknown.
        line: the comparison.
        limit: a limit of the run that ended the reads; None if all were read. Those before count.
    """

    taken: Sequence[CopyAudit]
    skipped: Sequence[CopyAudit]
    line: SnapshotLine
    limit: LimitReachedError | None

    @property
    def suspects(self) -> list[CopyAudit]:
        return [self.taken[number] for number in self.line.suspects]


def _compare(parsed: Iterable[tuple[CopyAudit, np.ndarray]], boundaries: dict[int, _Boundary], clock: Clock) -> _Compared:
    """Compares snapshots with each other."""
    line = SnapshotLine(clock)
    taken = list[CopyAudit]()
    skipped = list[CopyAudit]()
    limit: LimitReachedError | None = None
    try:
        for each, entries in parsed:
            boundary = boundaries.get(id(each))
            if boundary is None or boundary.offset is None or impossible_entries(entries, boundary.offset) is not None:
                skipped.append(each)
                continue
            offset = boundary.offset
            if offset == INT64_MAX:  # of the newest copy nothing shows where it ends
                offset = max(int(entries["last_offset"].max(initial=0)), each.copy.start_offset) + 1
            taken.append(each)
            line.take(ParsedSnapshot(offset, entries, boundary.time_ms))
    except LimitReachedError as error:
        limit = error
    return _Compared(taken, skipped, line, limit)


def _settle(compared: _Compared) -> None:
    """Settles what the comparison shows.

    Raises:
        LimitReachedError: a limit of the run ended the reads.
    """
    for number, reason in compared.line.suspects.items():
        copy = compared.taken[number]
        if copy.copy.end_offset is None:
            copy.settle(
                SnapshotVerdict.UNPROVEN, f"where its segment ends was not read; if it ends where the next one begins, {reason}"
            )
        else:
            copy.suspect(reason)
    for number, note in compared.line.notes.items():
        copy = compared.taken[number]
        copy.note = "" if copy.is_from_zero else note
    if compared.limit is not None:
        raise compared.limit


def _boundaries(log: CopyLog) -> dict[int, _Boundary]:
    """The boundaries of the members of a log."""
    times = log.times()
    return {id(each): _Boundary(each.copy.next_offset, times[each.copy.next_offset]) for each in log.members}


def _assumed_boundaries(audit: PartitionAudit) -> dict[int, _Boundary]:
    """The boundary of each copy, if it ends where the next one begins. None of several copies of one segment has one."""
    ascending = sorted(audit.readable, key=lambda each: each.copy.start_offset)
    bases = [each.copy.start_offset for each in ascending]
    count = Counter(bases)
    boundaries: dict[int, _Boundary] = {}
    largest: int | None = 0
    for number, each in enumerate(ascending):
        audit.remote.read_time(each.copy)
        timestamp_ms = each.copy.max_timestamp_ms
        largest = None if largest is None or timestamp_ms is None else max(largest, timestamp_ms)
        if count[each.copy.start_offset] == 1:
            following = bases[number + 1] if number + 1 < len(bases) else INT64_MAX
            boundaries[id(each)] = _Boundary(following, largest)
    return boundaries


def _parsed(audit: PartitionAudit, copies: Sequence[CopyAudit]) -> Iterator[tuple[CopyAudit, np.ndarray]]:
    """The snapshots that parse. The others get their verdict, and copies that were deleted since the store was listed are left out."""
    for each, entries in zip(copies, map_in_threads(partial(_entries, audit.remote), copies, _snapshot_bytes), strict=True):
        if isinstance(entries, _Unparsed):
            each.settle(SnapshotVerdict.CORRUPT, entries.reason)
        elif isinstance(entries, ReadFailedError):
            if audit.leave_out_deleted([each]):
                continue
            each.not_read(entries.message)
            unread = finding_of_error(entries, audit.remote.place)
            audit.findings.append(replace(unread, offset=each.copy.start_offset))
        else:
            yield each, entries


@dataclass(frozen=True, slots=True)
class _Unparsed:
    """A snapshot that does not parse, or holds what no broker writes."""

    reason: str


def _entries(remote: RemotePartition, copy: CopyAudit) -> np.ndarray | _Unparsed | ReadFailedError:
    """Entries of a snapshot, or why it has none, or why this one cannot be read.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    file = remote.file(copy.copy, LocalTierFile.PRODUCER_SNAPSHOT)
    path = file.path
    size = _snapshot_bytes(copy)
    if size > limits.SNAPSHOT_BYTES_MAX + ENCRYPTION_BYTES:
        return _Unparsed(f"{path}: snapshot: expected at most {limits.SNAPSHOT_BYTES_MAX} bytes, found {size}")
    try:
        data = file.read_small(limits.SNAPSHOT_BYTES_MAX)
        if data is None:
            return ReadFailedError("was deleted since it was listed", path=path, errno=errno.ENOENT)
        entries = read_entries(data, file=path)
    except FormatError as error:
        return _Unparsed(str(error))
    except ReadFailedError as error:
        if error.errno is None:
            raise
        return error
    impossible = impossible_entries(entries, INT64_MAX if copy.copy.end_offset is None else copy.copy.next_offset)
    return entries if impossible is None else _Unparsed(impossible)


def newest_first(copies: Iterable[CopyAudit]) -> list[CopyAudit]:
    """The copies, the one that reaches furthest first."""
    return sorted(copies, key=_in_order, reverse=True)


def snapshot_entries(remote: RemotePartition, copy: CopyAudit) -> np.ndarray | None:
    """Entries of the snapshot of a copy; None if it does not parse, or is gone: the audit has its verdict.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    entries = _entries(remote, copy)
    return None if isinstance(entries, _Unparsed | ReadFailedError) else entries


def _in_order(audit: CopyAudit) -> tuple[int, int]:
    copy = audit.copy
    return copy.start_offset if copy.end_offset is None else copy.end_offset, copy.start_offset


def _snapshot_bytes(copy: CopyAudit) -> int:
    return copy.copy.facts.snapshot_bytes or 0
