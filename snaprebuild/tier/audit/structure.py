"""Snapshots in remote storage without a replay: whether each parses, and whether they contradict each other.

This proves nothing. But what a producer wrote below a snapshot is in it, unless the producer has expired since; and nothing goes backwards.
"""

from __future__ import annotations

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
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import LimitReachedError, ReadFailedError
from snaprebuild.findings import Severity, finding_of_error, pluralize
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.audit.contradictions import ParsedSnapshot, SnapshotLine
from snaprebuild.tier.audit.readable_copies import CopyLog, PartitionCopies, ReadableCopy, read_end, read_time
from snaprebuild.tier.audit.result import WRONG, Verdict
from snaprebuild.tier.remote_log_dir import RemoteLogDir

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


def check_structure(found: PartitionCopies, log: CopyLog | None, clock: Clock) -> None:
    """Settles the verdicts of ``--level structure``: parses each snapshot, and compares those of the log with each other.

    Args:
        found: the copies.
        log: the same, joined; None if some ends are unknown. Then each is taken to end where the next one begins.
        clock: for expiry, where no time is known.

    Raises:
        ReadFailedError: the store as a whole does not answer.
        RefusedError: a limit of the run is used up, or the private key is another one.
    """
    due = sorted((each for each in found.readable if each.facts.snapshot_bytes), key=_in_order)
    boundaries = _assumed_boundaries(found) if log is None else _boundaries(log)

    def unproven() -> Iterator[tuple[ReadableCopy, np.ndarray]]:
        for each, entries in _parsed(found, due):
            each.audited.settle(Verdict.UNPROVEN, "it parses; no segment was replayed")
            each.audited.entries = len(entries)
            yield each, entries

    if log is not None:
        _settle(_compare(unproven(), boundaries, clock))
        return
    compared = _compare(unproven(), boundaries, clock)
    try:
        while compared.limit is None and _read_ends(found, compared.suspects, boundaries):
            compared = _compare(_parsed(found, due), boundaries, clock)
    except LimitReachedError as error:
        compared = dataclasses.replace(compared, limit=error)
    _settle(compared)
    if compared.skipped:
        message = (
            f"{pluralize(len(compared.skipped), 'snapshot')} not compared with others, because it is unknown where the segment "
        )
        message += "ends: add --metadata-log, or use --level full"
        found.audited.add_finding("tier-not-compared", Severity.NOTE, message, compared.skipped[0].copy.base_offset)


def _read_ends(found: PartitionCopies, suspects: Sequence[ReadableCopy], boundaries: dict[int, _Boundary]) -> bool:
    """Reads where the segments of suspect copies end, which was only assumed. Gives whether one ends elsewhere.

    Records between two copies that are in no copy are in the snapshots above, and not in the one below.
    """
    is_other = False
    for each in suspects:
        if each.end_offset is not None:
            continue
        boundary = boundaries[id(each)]
        offset = _read_boundary(found, each)
        if offset is None or boundary.offset not in (offset, INT64_MAX):
            boundaries[id(each)] = _Boundary(offset, boundary.time_ms)
            is_other = True
    return is_other


def _read_boundary(found: PartitionCopies, copy: ReadableCopy) -> int | None:
    """The offset after the end of a segment; None if it cannot be read."""
    is_read = read_end(found, copy) is None
    return copy.next_offset if is_read and copy.end_offset is not None else None


def compare_members(found: PartitionCopies, log: CopyLog, clock: Clock) -> None:
    """Compares the snapshots of a log with each other, after a replay has judged some of them. Wrong ones are left out.

    The records of a hole are unknown, and those below the window of ``--level reachable``, and the snapshots contradict each other all the
    same.

    Args:
        found: the copies.
        log: the same, joined.
        clock: for expiry, where no time is known.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    due = [each for each in log.members if each.facts.snapshot_bytes and each.audited.verdict not in WRONG]
    _settle(_compare(_parsed(found, due), _boundaries(log), clock))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Snapshots of one line, compared with each other.

    Attributes:
        taken: those that were compared, in the order of the log.
        skipped: those whose boundary is unknown.
        line: the comparison.
        limit: a limit of the run that ended the reads; None if all were read. Those before count.
    """

    taken: Sequence[ReadableCopy]
    skipped: Sequence[ReadableCopy]
    line: SnapshotLine
    limit: LimitReachedError | None

    @property
    def suspects(self) -> list[ReadableCopy]:
        return [self.taken[number] for number in self.line.suspects]


def _compare(parsed: Iterable[tuple[ReadableCopy, np.ndarray]], boundaries: dict[int, _Boundary], clock: Clock) -> _Compared:
    """Compares snapshots with each other."""
    line = SnapshotLine(clock)
    taken = list[ReadableCopy]()
    skipped = list[ReadableCopy]()
    limit: LimitReachedError | None = None
    try:
        for each, entries in parsed:
            boundary = boundaries.get(id(each))
            if boundary is None or boundary.offset is None or impossible_entries(entries, boundary.offset) is not None:
                skipped.append(each)
                continue
            offset = boundary.offset
            if offset == INT64_MAX:  # of the newest copy nothing shows where it ends
                offset = max(int(entries["last_offset"].max(initial=0)), each.copy.base_offset) + 1
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
    for number, why in compared.line.suspects.items():
        copy = compared.taken[number]
        if copy.end_offset is None:
            copy.audited.settle(
                Verdict.UNPROVEN, f"where its segment ends was not read; if it ends where the next one begins, {why}"
            )
        else:
            copy.audited.suspect(why)
    for number, why in compared.line.notes.items():
        audited = compared.taken[number].audited
        audited.note = "" if audited.is_from_zero else why
    if compared.limit is not None:
        raise compared.limit


def _boundaries(log: CopyLog) -> dict[int, _Boundary]:
    """The boundaries of the members of a log."""
    times = log.times()
    return {id(each): _Boundary(each.next_offset, times[each.next_offset]) for each in log.members}


def _assumed_boundaries(found: PartitionCopies) -> dict[int, _Boundary]:
    """The boundary of each copy, if it ends where the next one begins. None of several copies of one segment has one."""
    ascending = sorted(found.readable, key=lambda each: each.copy.base_offset)
    bases = [each.copy.base_offset for each in ascending]
    count = Counter(bases)
    boundaries: dict[int, _Boundary] = {}
    largest: int | None = 0
    for number, each in enumerate(ascending):
        read_time(found, each)
        largest = None if largest is None or each.max_timestamp_ms is None else max(largest, each.max_timestamp_ms)
        if count[each.copy.base_offset] == 1:
            following = bases[number + 1] if number + 1 < len(bases) else INT64_MAX
            boundaries[id(each)] = _Boundary(following, largest)
    return boundaries


def _parsed(found: PartitionCopies, due: Sequence[ReadableCopy]) -> Iterator[tuple[ReadableCopy, np.ndarray]]:
    """The snapshots that parse. The others get their verdict."""
    for each, entries in zip(due, map_in_threads(partial(_entries, found.files), due, _snapshot_bytes), strict=True):
        if isinstance(entries, _Unparsed):
            each.audited.settle(Verdict.CORRUPT, entries.why)
        elif isinstance(entries, ReadFailedError):
            each.audited.not_read(entries.message)
            unread = finding_of_error(entries, found.audited.place)
            found.audited.findings.append(replace(unread, offset=each.copy.base_offset))
        else:
            yield each, entries


@dataclass(frozen=True, slots=True)
class _Unparsed:
    """A snapshot that does not parse, or holds what no broker writes."""

    why: str


def _entries(files: RemoteLogDir, copy: ReadableCopy) -> np.ndarray | _Unparsed | ReadFailedError:
    """Entries of a snapshot, or why it has none, or why this one cannot be read.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    file = files.file(copy.copy, LocalTierFile.PRODUCER_SNAPSHOT)
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
    impossible = impossible_entries(entries, INT64_MAX if copy.end_offset is None else copy.next_offset)
    return entries if impossible is None else _Unparsed(impossible)


def newest_first(copies: Iterable[ReadableCopy]) -> list[ReadableCopy]:
    """The copies, the one that reaches furthest first."""
    return sorted(copies, key=_in_order, reverse=True)


def snapshot_entries(files: RemoteLogDir, copy: ReadableCopy) -> np.ndarray | None:
    """Entries of the snapshot of a copy; None if it does not parse, or is gone: the audit has its verdict.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    entries = _entries(files, copy)
    return None if isinstance(entries, _Unparsed | ReadFailedError) else entries


def _in_order(copy: ReadableCopy) -> tuple[int, int]:
    return copy.copy.base_offset if copy.end_offset is None else copy.end_offset, copy.copy.base_offset


def _snapshot_bytes(copy: ReadableCopy) -> int:
    return copy.facts.snapshot_bytes or 0
