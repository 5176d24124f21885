"""Two snapshots side by side, as the maps that they are, and what each difference would cost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from formats import limits
from formats.errors import FormatError, LimitExceededError
from formats.partition.file_names import FileKind, parse_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.replay.difference import ENTRY_FIELDS, cost_of_change, cost_of_extra, cost_of_missing
from snaprebuild.replay.window import expired_mask
from snaprebuild.snapshots.engine.partition_replay import Clock
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store
from snaprebuild.storage.stores import store_of

__all__ = ["DiffKind", "DiffStatus", "EntryDiff", "SnapshotDiff", "SnapshotSide", "diff_snapshots"]

ENTRIES_LISTED_MAX = 1_000
"""Differing producers that a diff lists; all are counted."""


class DiffStatus(Enum):
    """How two snapshots compare."""

    EQUAL_BYTES = "equal_bytes"
    EQUAL = "equal"
    """The same entries: in another order, or with other bytes behind them."""
    EQUAL_AFTER_EXPIRY = "equal_after_expiry"
    """A broker that loads either at the moment asked for has the same state."""
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    """One of them does not parse, or cannot be read."""


class DiffKind(Enum):
    """In what a producer differs."""

    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class SnapshotSide:
    """One of the two snapshots.

    Attributes:
        path: as it was given.
        offset: in its name as a broker writes it, or None.
        size_bytes: of the file; None where it could not be read.
        entries: count of producers; None where the file does not parse. ``expired``: those that a load at the moment drops.
        expired: see there; None without a moment.
    """

    path: str
    offset: int | None = None
    size_bytes: int | None = None
    entries: int | None = None
    expired: int | None = None


@dataclass(frozen=True, slots=True)
class EntryDiff:
    """A producer that differs.

    Attributes:
        producer_id: int64.
        kind: where it stands.
        a: the fields of the whole entry where it stands in A alone, those that differ where it stands in both, else empty.
        b: likewise.
        consequence: what a broker would do that has B where A is right.
    """

    producer_id: int
    kind: DiffKind
    a: dict[str, int]
    b: dict[str, int]
    consequence: str


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """Two snapshots compared.

    Attributes:
        status: how.
        clock: the moment of expiry, None where expiry was not asked for.
        a: the one that is taken to be right.
        b: the other.
        counts: producers by kind.
        entries: the first ``ENTRIES_LISTED_MAX`` of them: open transactions first, then by id.
        findings: what is wrong with the files, and that they differ.
    """

    status: DiffStatus
    clock: Clock | None
    a: SnapshotSide
    b: SnapshotSide
    counts: dict[DiffKind, int]
    entries: tuple[EntryDiff, ...]
    findings: tuple[Finding, ...]


def diff_snapshots(path_a: str, path_b: str, clock: Clock | None = None, settings: S3Settings = USUAL_S3) -> SnapshotDiff:
    """Compares two snapshots.

    Args:
        path_a: a snapshot: of a file, or the location of an object.
        path_b: another one.
        clock: a moment of expiry; None to compare every entry.
        settings: how object stores are reached.

    Raises:
        UsageError: one of them does not exist.
        RefusedError: a limit of the run is used up.
    """
    findings: list[Finding] = []
    side_a, data_a, entries_a = _read(path_a, clock, settings, findings)
    side_b, data_b, entries_b = _read(path_b, clock, settings, findings)
    none = dict.fromkeys(DiffKind, 0)
    if entries_a is None or entries_b is None:
        return SnapshotDiff(DiffStatus.UNREADABLE, clock, side_a, side_b, none, (), tuple(findings))
    if data_a == data_b:
        return SnapshotDiff(DiffStatus.EQUAL_BYTES, clock, side_a, side_b, none, (), ())
    if np.array_equal(entries_a, entries_b):
        return SnapshotDiff(DiffStatus.EQUAL, clock, side_a, side_b, none, (), ())
    if clock is not None:
        entries_a, entries_b = (each[~expired_mask(each, clock.as_of_ms, clock.expiration_ms)] for each in (entries_a, entries_b))
    differing = _Differing(entries_a, entries_b)
    counts = differing.counts
    if not any(counts.values()):
        return SnapshotDiff(DiffStatus.EQUAL_AFTER_EXPIRY, clock, side_a, side_b, none, (), ())
    message = f"differs from {path_a} in {counted(sum(counts.values()), 'producer')}"
    findings.append(Finding("snapshots-differ", Severity.FINDING, path_b, message))
    return SnapshotDiff(DiffStatus.DIFFERENT, clock, side_a, side_b, counts, tuple(differing.first()), tuple(findings))


def _read(
    path: str, clock: Clock | None, settings: S3Settings, findings: list[Finding]
) -> tuple[SnapshotSide, bytes, np.ndarray | None]:
    """A side with its bytes and its entries by producer id; None for the entries where it cannot be compared."""
    name = parse_file_name(os.path.basename(path))
    offset = name.offset if name is not None and name.kind is FileKind.PRODUCER_SNAPSHOT else None
    data = b""
    store = store_of(path, settings)
    if store.is_local and not os.path.lexists(path):
        raise UsageError("no such file", path=path)
    try:
        data = _bytes_of(path, store)
        entries = read_entries(data, file=path)
    except ReadFailedError as error:
        findings.append(finding_of_error(error, path, may_vanish=True))
        return SnapshotSide(path, offset), data, None
    except FormatError as error:
        findings.append(finding_of_error(error, path))
        return SnapshotSide(path, offset, len(data)), data, None
    entries = entries[np.argsort(entries["producer_id"].astype(np.int64), kind="stable")]
    expired = None if clock is None else int(expired_mask(entries, clock.as_of_ms, clock.expiration_ms).sum())
    side = SnapshotSide(path, offset, len(data), len(entries), expired)
    ids = entries["producer_id"].astype(np.int64)
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        message = f"producer {int(twice[0])} stands twice: this is no map of producers"
        findings.append(Finding("impossible-entries", Severity.DAMAGED, path, message))
        return side, data, None
    return side, data, entries


def _bytes_of(path: str, store: Store) -> bytes:
    with store.open_bytes(path) as source:
        size = source.size_bytes
    if size > limits.SNAPSHOT_BYTES_MAX:  # no broker could load it
        raise LimitExceededError("snapshot", file=path, expected=f"at most {limits.SNAPSHOT_BYTES_MAX} bytes", found=size)
    data = store.read_small(path, limits.SNAPSHOT_BYTES_MAX)
    if data is None:
        raise ReadFailedError("was removed meanwhile", path=path, errno=errno.ENOENT)
    return data


class _Differing:
    """Which producers differ, as rows of both arrays, which ascend by producer id without duplicates."""

    def __init__(self, entries_a: np.ndarray, entries_b: np.ndarray) -> None:
        self._a, self._b = entries_a, entries_b
        ids_a, ids_b = (each["producer_id"].astype(np.int64) for each in (entries_a, entries_b))
        _, in_a, in_b = np.intersect1d(ids_a, ids_b, assume_unique=True, return_indices=True)
        differs = np.zeros(len(in_a), dtype=bool)
        for name in ENTRY_FIELDS:
            differs |= entries_a[name][in_a] != entries_b[name][in_b]
        self._changed = in_a[differs], in_b[differs]
        self._only_a = np.setdiff1d(np.arange(len(ids_a)), in_a, assume_unique=True)
        self._only_b = np.setdiff1d(np.arange(len(ids_b)), in_b, assume_unique=True)

    @property
    def counts(self) -> dict[DiffKind, int]:
        """Producers of each kind."""
        sizes = (len(self._only_a), len(self._only_b), len(self._changed[0]))
        return dict(zip(DiffKind, sizes, strict=True))

    def first(self) -> list[EntryDiff]:
        """Those that are listed: a forgotten or invented transaction costs most."""
        found = [*self._of_one_side(), *self._of_both()]
        found.sort(key=lambda each: (not _concerns_transaction(each), each.producer_id))
        return found[:ENTRIES_LISTED_MAX]

    def _of_one_side(self) -> Iterator[EntryDiff]:
        for row in _listed(self._a["current_txn_first_offset"][self._only_a] >= 0):
            entry = self._a[self._only_a[row]]
            yield EntryDiff(int(entry["producer_id"]), DiffKind.ONLY_IN_A, _fields(entry), {}, cost_of_missing(entry))
        for row in _listed(self._b["current_txn_first_offset"][self._only_b] >= 0):
            entry = self._b[self._only_b[row]]
            yield EntryDiff(int(entry["producer_id"]), DiffKind.ONLY_IN_B, {}, _fields(entry), cost_of_extra(entry))

    def _of_both(self) -> Iterator[EntryDiff]:
        rows_a, rows_b = self._changed
        name = "current_txn_first_offset"
        for row in _listed(self._a[name][rows_a] != self._b[name][rows_b]):
            entry, other = self._a[rows_a[row]], self._b[rows_b[row]]
            names = [each for each in ENTRY_FIELDS if entry[each] != other[each]]
            # Of several fields the consequence of the transaction weighs most.
            worst = name if name in names else names[0]
            yield EntryDiff(
                int(entry["producer_id"]),
                DiffKind.CHANGED,
                {each: int(entry[each]) for each in names},
                {each: int(other[each]) for each in names},
                cost_of_change(worst, entry, other),
            )


def _listed(concerns_transaction: np.ndarray) -> list[int]:
    """Indices of the producers that may be listed; no more become objects."""
    order: list[int] = np.argsort(~concerns_transaction, kind="stable")[:ENTRIES_LISTED_MAX].tolist()
    return order


def _fields(entry: np.void) -> dict[str, int]:
    return {name: int(entry[name]) for name in ENTRY_FIELDS}


def _concerns_transaction(entry: EntryDiff) -> bool:
    name = "current_txn_first_offset"
    return entry.a.get(name, -1) != entry.b.get(name, -1)
