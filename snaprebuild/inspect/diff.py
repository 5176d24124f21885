"""Two snapshots compared as maps of producers, and the consequence of each difference."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import numpy as np

from formats import limits
from formats.errors import FormatError, LimitExceededError
from formats.partition.file_names import FileKind, parse_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.published import Int64, Natural, Part, one_of
from snaprebuild.replay.difference import (
    ENTRY_FIELDS,
    MatchedEntries,
    consequence_of_change,
    consequence_of_extra,
    consequence_of_missing,
    match_entries,
)
from snaprebuild.replay.segment_effect import sorted_entries
from snaprebuild.replay.window import Clock, expired_mask
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import StorePath, path_of

__all__ = [
    "DiffKind",
    "DiffStatus",
    "DiffTotals",
    "DifferingEntry",
    "EntryField",
    "SnapshotDiff",
    "SnapshotSide",
    "diff_snapshots",
]

ENTRIES_LISTED_MAX = 1_000
"""Differing producers that a diff lists; all are counted."""

TXN = "current_txn_first_offset"


class DiffStatus(StrEnum):
    """How two snapshots compare."""

    EQUAL_BYTES = "equal_bytes"
    EQUAL = "equal"
    """Equal entries: in another order, or with other bytes after them."""
    EQUAL_AFTER_EXPIRY = "equal_after_expiry"
    """A broker that loads either at the given moment has the same state."""
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    """One of them does not parse, or cannot be read."""


class DiffKind(StrEnum):
    """How a producer differs."""

    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"
    CHANGED = "changed"


class SnapshotSide(Part, frozen=True):
    """One of the two snapshots."""

    path: str
    offset: Natural | None = None
    """Offset in its name, if that is a broker's name."""
    size_bytes: Natural | None = None
    entries: Natural | None = None
    """Number of producers; null if the file does not parse."""
    expired_entries: Natural | None = None
    """Entries that a load at as_of_ms drops; null without it."""


EntryField = Annotated[str, one_of(*ENTRY_FIELDS)]
"""A field of an entry of a snapshot, as the file has it."""


class DifferingEntry(Part, frozen=True):
    """A producer that differs."""

    producer_id: Int64
    kind: DiffKind
    a: Mapping[EntryField, int]
    """All fields if only A has the producer; else those that differ."""
    b: Mapping[EntryField, int]
    consequence: str
    """The behaviour of a broker with B, if A is right."""


class DiffTotals(Part, frozen=True):
    """Producers that differ."""

    only_in_a: Natural = 0
    only_in_b: Natural = 0
    changed: Natural = 0

    @property
    def all(self) -> int:
        """Count of all of them."""
        return self.only_in_a + self.only_in_b + self.changed


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """Two snapshots compared.

    Attributes:
        status: how they compare.
        clock: the moment of expiry; None to compare every entry.
        a: the snapshot that is assumed to be correct.
        b: the other snapshot.
        findings: what is wrong with the files, and that they differ.
        totals: differing producers by kind.
        entries: the first ``ENTRIES_LISTED_MAX`` of them: open transactions first, then by id.
    """

    status: DiffStatus
    clock: Clock | None
    a: SnapshotSide
    b: SnapshotSide
    findings: tuple[Finding, ...]
    totals: DiffTotals = field(default_factory=DiffTotals)
    entries: tuple[DifferingEntry, ...] = ()

    @property
    def entries_not_listed(self) -> int:
        """Producers that are counted and not in ``entries``."""
        return self.totals.all - len(self.entries)


def diff_snapshots(path_a: str, path_b: str, clock: Clock | None, stores: S3Settings) -> SnapshotDiff:
    """Compares two snapshots.

    Args:
        path_a: a snapshot: of a file, or the location of an object.
        path_b: another one.
        clock: a moment of expiry; None to compare every entry.
        stores: how object stores are reached.

    Raises:
        UsageError: one of them does not exist.
        RefusedError: a limit of the run is used up.
    """
    findings: list[Finding] = []
    side_a, data_a, entries_a = _read(path_a, clock, stores, findings)
    side_b, data_b, entries_b = _read(path_b, clock, stores, findings)

    if entries_a is None or entries_b is None:
        return SnapshotDiff(DiffStatus.UNREADABLE, clock, side_a, side_b, tuple(findings))
    if data_a == data_b:
        return SnapshotDiff(DiffStatus.EQUAL_BYTES, clock, side_a, side_b, tuple(findings))
    if np.array_equal(entries_a, entries_b):
        return SnapshotDiff(DiffStatus.EQUAL, clock, side_a, side_b, tuple(findings))
    if clock is not None:
        entries_a, entries_b = (each[~expired_mask(each, clock.as_of_ms, clock.expiration_ms)] for each in (entries_a, entries_b))
    match = match_entries(entries_a, entries_b)
    totals = DiffTotals(len(match.only_a), len(match.only_b), len(match.changed_a))
    if not totals.all:
        return SnapshotDiff(DiffStatus.EQUAL_AFTER_EXPIRY, clock, side_a, side_b, tuple(findings))
    message = f"differs from {path_a} in {pluralize(totals.all, 'producer')}"
    findings.append(Finding("snapshots-differ", Severity.FINDING, path_b, message))
    entries = tuple(_listed_entries(entries_a, entries_b, match))
    return SnapshotDiff(
        status=DiffStatus.DIFFERENT, clock=clock, a=side_a, b=side_b, findings=tuple(findings), totals=totals, entries=entries
    )


def _read(
    path: str, clock: Clock | None, stores: S3Settings, findings: list[Finding]
) -> tuple[SnapshotSide, bytes, np.ndarray | None]:
    """A side with its bytes and its entries by producer id; None for the entries if it cannot be compared."""
    name = parse_file_name(os.path.basename(path))
    offset = name.offset if name is not None and name.kind is FileKind.PRODUCER_SNAPSHOT else None
    data = b""
    file = path_of(path, stores)
    if file.is_local and not os.path.lexists(path):
        raise UsageError("no such file", path=path)
    try:
        data = _bytes_of(file)
        entries = read_entries(data, file=path)
    except ReadFailedError as error:
        findings.append(finding_of_error(error, path, may_vanish=True))
        return SnapshotSide(path, offset), data, None
    except FormatError as error:
        findings.append(finding_of_error(error, path))
        return SnapshotSide(path, offset, len(data)), data, None
    entries = sorted_entries(entries)
    expired = None if clock is None else int(expired_mask(entries, clock.as_of_ms, clock.expiration_ms).sum())
    side = SnapshotSide(path, offset, len(data), len(entries), expired)
    ids = entries["producer_id"].astype(np.int64)
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        message = f"producer {int(twice[0])} occurs twice: a snapshot has each producer once"
        findings.append(Finding("impossible-entries", Severity.DAMAGED, path, message))
        return side, data, None
    return side, data, entries


def _bytes_of(file: StorePath) -> bytes:
    with file.open(may_grow=True) as source:
        size = source.size_bytes
    if size > limits.SNAPSHOT_BYTES_MAX:  # no broker could load it
        raise LimitExceededError("snapshot", file=file.path, expected=f"at most {limits.SNAPSHOT_BYTES_MAX} bytes", found=size)
    data = file.read_small(limits.SNAPSHOT_BYTES_MAX)
    if data is None:
        raise ReadFailedError("was removed meanwhile", path=file.path, errno=errno.ENOENT)
    return data


def _listed_entries(a: np.ndarray, b: np.ndarray, match: MatchedEntries) -> list[DifferingEntry]:
    """The producers that are listed: open transactions first, because a forgotten or invented one costs most."""
    entries = [*_entries_of_one_side(a, b, match), *_entries_of_both(a, b, match)]
    entries.sort(key=lambda entry: (not _concerns_transaction(entry), entry.producer_id))
    return entries[:ENTRIES_LISTED_MAX]


def _entries_of_one_side(a: np.ndarray, b: np.ndarray, match: MatchedEntries) -> Iterator[DifferingEntry]:
    for row in _listed(match.only_a, a[TXN][match.only_a] >= 0):
        yield DifferingEntry(int(a[row]["producer_id"]), DiffKind.ONLY_IN_A, _fields(a[row]), {}, consequence_of_missing(a[row]))
    for row in _listed(match.only_b, b[TXN][match.only_b] >= 0):
        yield DifferingEntry(int(b[row]["producer_id"]), DiffKind.ONLY_IN_B, {}, _fields(b[row]), consequence_of_extra(b[row]))


def _entries_of_both(a: np.ndarray, b: np.ndarray, match: MatchedEntries) -> Iterator[DifferingEntry]:
    rows_a = match.changed_a
    rows_b = match.changed_b
    for index in _listed(np.arange(len(rows_a)), a[TXN][rows_a] != b[TXN][rows_b]):
        entry = a[rows_a[index]]
        other = b[rows_b[index]]
        names = [each for each in ENTRY_FIELDS if entry[each] != other[each]]
        # Of several fields the open transaction has the worst consequence.
        worst = TXN if TXN in names else names[0]
        consequence = consequence_of_change(worst, entry, other)
        yield DifferingEntry(int(entry["producer_id"]), DiffKind.CHANGED, _fields(entry, names), _fields(other, names), consequence)


def _listed(rows: np.ndarray, concerns_transaction: np.ndarray) -> list[int]:
    """The rows that may be listed; no more become objects."""
    listed: list[int] = rows[np.argsort(~concerns_transaction, kind="stable")[:ENTRIES_LISTED_MAX]].tolist()
    return listed


def _fields(entry: np.void, names: Sequence[str] = ENTRY_FIELDS) -> dict[str, int]:
    return {name: int(entry[name]) for name in names}


def _concerns_transaction(entry: DifferingEntry) -> bool:
    return entry.a.get(TXN, -1) != entry.b.get(TXN, -1)
