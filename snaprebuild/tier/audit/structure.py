"""Snapshots in remote storage without a replay: whether each parses, and whether each is consistent with the snapshots before it.

This proves nothing. But what a producer wrote below a snapshot is in it, unless the producer has expired since; and nothing goes backwards.
"""

from __future__ import annotations

import errno
from collections import deque
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
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import finding_of_error
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.replay.segment_effect import lookup
from snaprebuild.replay.window import expired_mask
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.audit.readable_copies import CopyLog, PartitionCopies, ReadableCopy
from snaprebuild.tier.audit.result import AuditedCopy, Verdict
from snaprebuild.tier.remote_log_dir import RemoteLogDir

__all__ = ["Inconsistency", "ParsedSnapshot", "check_structure", "inconsistency"]


@dataclass(frozen=True, slots=True, eq=False)
class ParsedSnapshot:
    """A snapshot that parses.

    Attributes:
        offset: its boundary.
        entries: of ``ENTRY_DTYPE``, any order.
        time_ms: when its segment ended, by the greatest timestamp of its records; None if unknown.
    """

    offset: int
    entries: np.ndarray
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """Two snapshots that contradict each other.

    Attributes:
        is_earlier: the earlier one is suspect, else the later one.
    """

    is_earlier: bool
    why: str


def check_structure(found: PartitionCopies, log: CopyLog | None, clock: Clock) -> None:
    """Settles the verdicts of ``--level structure``: parses each snapshot, and compares it with the last ones that are not suspect.

    Args:
        found: the copies.
        log: the same, joined; None if some ends are unknown.
        clock: for expiry.

    Raises:
        ReadFailedError: the store as a whole does not answer.
        RefusedError: a limit of the run is used up, or the private key is another one.
    """
    left = set() if log is None else {id(found.readable[number]) for number in log.line.left}
    due = sorted((each for each in found.readable if each.facts.snapshot_bytes), key=_in_order)
    trusted: deque[tuple[ParsedSnapshot, AuditedCopy]] = deque(maxlen=2)
    for each, entries in zip(due, map_in_threads(partial(_entries, found.files), due, _snapshot_bytes), strict=True):
        audited = each.audited
        if isinstance(entries, _Unparsed):
            audited.settle(Verdict.CORRUPT, entries.why)
            continue
        if isinstance(entries, ReadFailedError):
            audited.not_read(entries.message)
            unread = finding_of_error(entries, found.audited.place)
            found.audited.findings.append(replace(unread, offset=each.copy.base_offset))
            continue
        audited.settle(Verdict.UNPROVEN, "it parses; no segment was replayed")
        audited.entries = len(entries)
        if id(each) in left or each.end_offset is None:
            continue
        parsed = ParsedSnapshot(each.next_offset, entries, each.max_timestamp_ms)
        while trusted and audited.verdict is not Verdict.SUSPECT:
            conflict = inconsistency(trusted[-1][0], parsed, clock)
            if conflict is None:
                break
            suspect = trusted.pop()[1] if conflict.is_earlier else audited
            suspect.settle(Verdict.SUSPECT, conflict.why)
        if audited.verdict is not Verdict.SUSPECT:
            trusted.append((parsed, audited))


@dataclass(frozen=True, slots=True)
class _Unparsed:
    """A snapshot that does not parse, or holds what no broker writes."""

    why: str


def _entries(files: RemoteLogDir, copy: ReadableCopy) -> np.ndarray | _Unparsed | ReadFailedError:
    """Entries of a snapshot, or why it has none, or why this one cannot be read.

    Raises:
        ReadFailedError, RefusedError: as ``check_structure``.
    """
    path = files.path(copy.copy, LocalTierFile.PRODUCER_SNAPSHOT)
    size = _snapshot_bytes(copy)
    if size > limits.SNAPSHOT_BYTES_MAX + ENCRYPTION_BYTES:
        return _Unparsed(f"{path}: snapshot: expected at most {limits.SNAPSHOT_BYTES_MAX} bytes, found {size}")
    try:
        data = files.store.read_small(path, limits.SNAPSHOT_BYTES_MAX)
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


def _in_order(copy: ReadableCopy) -> tuple[int, int]:
    return copy.copy.base_offset if copy.end_offset is None else copy.end_offset, copy.copy.base_offset


def _snapshot_bytes(copy: ReadableCopy) -> int:
    return copy.facts.snapshot_bytes or 0


def inconsistency(earlier: ParsedSnapshot, later: ParsedSnapshot, clock: Clock) -> Inconsistency | None:
    """The suspect one of two snapshots that contradict each other; None if they do not.

    Args:
        earlier: a snapshot.
        later: one at a greater offset, or at the same.
        clock: for expiry, if the time of the later one is unknown.
    """
    before, after = _sorted(earlier.entries), _sorted(later.entries)
    before_ids, after_ids = before["producer_id"].astype(np.int64), after["producer_id"].astype(np.int64)
    row, found = lookup(before_ids, after_ids)
    known = after[found], before[row[found]]

    # The later one has batches from below the earlier one.
    below = (after["last_offset"] >= 0) & (after["last_offset"] < earlier.offset)
    unknown = below & ~found
    if unknown.any():
        return Inconsistency(True, _lacks(after[unknown], len(before), f"the one at {later.offset} has a batch of it from before"))
    is_newer = (known[0]["last_offset"] > known[1]["last_offset"]) & (known[0]["last_offset"] < earlier.offset)
    if is_newer.any():
        newer = known[0][is_newer]
        producer, last = int(newer["producer_id"][0]), int(newer["last_offset"][0])
        why = f"the one at {later.offset} has a batch of producer {producer} at {last}, and this one an older state"
        return Inconsistency(True, why)

    # The earlier one has what the later one must have kept.
    now = clock.as_of_ms if later.time_ms is None else later.time_ms
    _, kept = lookup(after_ids, before_ids)
    lost = ~kept & ~expired_mask(before, now, clock.expiration_ms)
    if lost.any():
        return Inconsistency(False, _lacks(before[lost], len(after), f"the one at {earlier.offset} has it, not expired"))
    is_older = (known[0]["last_offset"] >= 0) & (known[0]["last_offset"] < known[1]["last_offset"])
    if is_older.any():
        producer = int(known[0]["producer_id"][is_older][0])
        return Inconsistency(False, f"it has an older state of producer {producer} than the one at {earlier.offset}")
    return None


def _sorted(entries: np.ndarray) -> np.ndarray:
    return entries[np.argsort(entries["producer_id"].astype(np.int64), kind="stable")]


def _lacks(entries: np.ndarray, count: int, because: str) -> str:
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    what = "it is empty, and lacks" if not count else "it lacks"
    return f"{what} producer {int(entries['producer_id'][0])}{more}: {because}"
