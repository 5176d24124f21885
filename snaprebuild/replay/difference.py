"""A snapshot on disk compared with the replay: equal, equal after expiry, or which entries differ, and the consequence of each.

The replay fixes some fields and not others: what was deleted, what was before the first retained segment, and what a broker forgot while a
producer was expired. Only a difference in a field that is fixed proves a snapshot wrong. Every other one is *unverifiable* and raises no
alarm.

Source of the consequences: what ``ProducerAppendInfo.maybeValidateDataBatch`` of 4.3.1 answers to clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated

import msgspec
import numpy as np

from snaprebuild.published import Natural, Part, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.segment_effect import ENDS_CLOSING, ENDS_WITH_DATA, IF, NONE, SET, SegmentEffect, entries_of, sorted_entries
from snaprebuild.replay.window import expired_mask

__all__ = [
    "ENTRY_FIELDS",
    "Comparison",
    "ComparisonStatus",
    "DifferenceKind",
    "EntryDifference",
    "Knowledge",
    "MatchedEntries",
    "VerifiedSnapshot",
    "compare",
    "consequence_of_change",
    "consequence_of_extra",
    "consequence_of_missing",
    "contradicted_producers",
    "impossible_entries",
    "match_entries",
    "next_sequence",
]

_SEQUENCE_MAX = 2**31 - 1

DIFFERENCES_LISTED_MAX = 1_000
"""Differing entries that a comparison lists; all are counted."""

ENTRY_FIELDS = (
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)
"""The fields of a producer's entry, in the order in which differences are looked for."""


# ---------------------------------------------------------------------------------------------------------------- two sets of entries


class MatchedEntries(msgspec.Struct, frozen=True):
    """Entries of two sets, matched by producer id, as ascending rows of these sets.

    Attributes:
        only_a: rows of A whose producers B does not have.
        only_b: rows of B whose producers A does not have.
        changed_a: rows of A whose producers have other fields in B.
        changed_b: the rows of B with the same producers, in the same order.
    """

    only_a: np.ndarray
    only_b: np.ndarray
    changed_a: np.ndarray
    changed_b: np.ndarray

    def __len__(self) -> int:
        """How many producers differ."""
        return len(self.only_a) + len(self.only_b) + len(self.changed_a)


def match_entries(a: np.ndarray, b: np.ndarray) -> MatchedEntries:
    """Matches two sets of entries (of ``ENTRY_DTYPE``), both sorted by producer id without duplicates."""
    ids_a = a["producer_id"].astype(np.int64)
    ids_b = b["producer_id"].astype(np.int64)
    _, in_a, in_b = np.intersect1d(ids_a, ids_b, assume_unique=True, return_indices=True)
    only_a = np.ones(len(a), dtype=bool)
    only_b = np.ones(len(b), dtype=bool)
    only_a[in_a] = False
    only_b[in_b] = False
    differs = np.zeros(len(in_a), dtype=bool)
    for name in ENTRY_FIELDS:
        differs |= a[name][in_a] != b[name][in_b]
    return MatchedEntries(np.flatnonzero(only_a), np.flatnonzero(only_b), in_a[differs], in_b[differs])


# ---------------------------------------------------------------------------------------------------------------- a snapshot and the log


class ComparisonStatus(Enum):
    """The result of comparing a snapshot on disk with the log."""

    EQUAL = "equal"
    EQUAL_AFTER_EXPIRY = "equal_after_expiry"
    """Different only in entries that a broker drops when it loads them now."""
    UNVERIFIABLE = "unverifiable"
    """Different only in what the retained log does not fix."""
    EXTRA = "extra_entries"
    """Has live entries for which the complete log has no batch."""
    MISSING_ENTRIES = "missing_entries"
    STALE = "stale"
    """Has an older or another state of a producer than the log."""
    FALSE_EMPTY = "false_empty"
    """Has no entries although the log fixes live ones."""
    CORRUPT = "corrupt"
    """Does not parse, or contains what no snapshot of its name can contain."""

    @property
    def is_right(self) -> bool:
        """Whether a broker that loads the snapshot now has the same state as the log."""
        return self in (ComparisonStatus.EQUAL, ComparisonStatus.EQUAL_AFTER_EXPIRY)

    @property
    def reason(self) -> str:
        """The reason in findings."""
        return self.value.replace("_", "-")


class DifferenceKind(Enum):
    """How one entry differs."""

    MISSING = "missing"
    EXTRA = "extra"
    STALE = "stale"
    FIELD = "field"


class EntryDifference(msgspec.Struct, frozen=True):
    """One entry that differs.

    Attributes:
        field: the first field that differs, or None if the whole entry does.
        expected: by the log: value of that field, or the last offset of the whole entry.
        found: the same of the snapshot.
        is_certain: the retained log proves it.
        consequence: what a broker with this snapshot would do.
        open_from: first offset of the transaction that is open by the log; None without one, and for an entry that the log does not have.
    """

    producer_id: int
    kind: DifferenceKind
    field: Annotated[str, one_of(*ENTRY_FIELDS)] | None
    expected: int | None
    found: int | None
    is_certain: bool
    consequence: str
    open_from: int | None = None


class Comparison(msgspec.Struct):
    """A snapshot compared with the log.

    Attributes:
        proven_wrong: the retained log contradicts it for certain.
        expected_entries: count of entries by replay.
        found_entries: count of entries of the file.
        difference_count: all entries that differ.
        differences: the first ``DIFFERENCES_LISTED_MAX`` of them, the certain ones first; code that keeps many comparisons may shorten it.
        reason: one sentence.
        certain_count: entries that prove it wrong.
        excused_timestamp: greatest timestamp of the entries that differ and count as equal, because a load at the moment of expiry drops
            them; -1 for none.
        excused_count: entries that differ and were not judged, because a load at the moment of expiry drops them.
    """

    status: ComparisonStatus
    proven_wrong: bool
    expected_entries: int
    found_entries: int
    difference_count: int
    differences: tuple[EntryDifference, ...]
    reason: str
    certain_count: int = 0
    excused_timestamp: int = -1
    excused_count: int = 0

    @classmethod
    def corrupt(cls, reason: str, *, expected_entries: int = 0, found_entries: int = 0) -> Comparison:
        """The comparison of a snapshot that no broker has written as it is, whatever the log contains."""
        return cls(
            status=ComparisonStatus.CORRUPT,
            proven_wrong=True,
            expected_entries=expected_entries,
            found_entries=found_entries,
            difference_count=0,
            differences=(),
            reason=reason,
        )


class Knowledge(msgspec.Struct, frozen=True):
    """Limits of the claims of a replay.

    Attributes:
        is_complete: it began at offset 0 or at a trusted snapshot: a producer that it does not have never wrote.
        unproven_reason: the reason why it proves nothing at all (compaction, damage, gaps), or None.
        first_offset: base offset of the first segment on disk; everything below it is unknown unless ``is_complete``.
        log_start_offset: producers whose batches are all below it may be absent from a correct snapshot.
        as_of_ms: the moment of expiry.
        expiration_ms: ``producer.id.expiration.ms``.
    """

    is_complete: bool
    unproven_reason: str | None
    first_offset: int
    log_start_offset: int
    as_of_ms: int
    expiration_ms: int


def compare(replayed: SegmentEffect, found: np.ndarray, offset: int, knowledge: Knowledge) -> Comparison:
    """Compares a snapshot with the replay up to its offset.

    Args:
        replayed: the prefix effect, from the first segment on disk (or composed on a trusted snapshot).
        found: entries of the file, of ``ENTRY_DTYPE``, any order.
        offset: the offset in its name.
        knowledge: what the replay may claim.
    """
    expected = entries_of(replayed)
    impossible = impossible_entries(found, offset)
    if impossible is not None:
        return _without_differences(ComparisonStatus.CORRUPT, expected, found, impossible)
    found = sorted_entries(found)
    if expected.tobytes() == found.tobytes():
        return _without_differences(ComparisonStatus.EQUAL, expected, found, "equal to the replay")
    match = match_entries(expected, found)
    missing, extra, changed = _differing(replayed, expected, found, match, knowledge)
    difference_count = len(missing) + len(extra) + len(changed)
    excused_count = len(match) - difference_count
    ranked = sorted((*missing.first(), *extra.first(), *changed.first()), key=lambda each: (each[0], each[1].producer_id))
    counts = (
        len(expected),
        len(found),
        difference_count,
        tuple(difference for _, difference in ranked[:DIFFERENCES_LISTED_MAX]),
    )
    if not ranked:
        reason = "different only in entries that have expired"
        excused = _excused_timestamp(expected, found, match)
        return Comparison(
            ComparisonStatus.EQUAL_AFTER_EXPIRY,
            False,
            *counts,
            reason,
            excused_timestamp=excused,
            excused_count=excused_count,
        )
    if knowledge.unproven_reason is not None:
        return Comparison(ComparisonStatus.UNVERIFIABLE, False, *counts, knowledge.unproven_reason, excused_count=excused_count)
    certain_count = missing.certain_count + extra.certain_count + changed.certain_count
    if not certain_count:
        reason = "different only in what the retained log does not fix"
        return Comparison(ComparisonStatus.UNVERIFIABLE, False, *counts, reason, excused_count=excused_count)
    entries = "1 entry" if certain_count == 1 else f"{certain_count} entries"
    reason = f"the log contradicts {entries}"
    status = _status_of(missing, changed, len(found))
    return Comparison(status, True, *counts, reason, certain_count, excused_count=excused_count)


def contradicted_producers(replayed: SegmentEffect, found: np.ndarray, knowledge: Knowledge) -> np.ndarray:
    """The ids of all producers whose entries the retained log contradicts for certain: int64, ascending.

    Args:
        replayed: as of ``compare``.
        found: entries of the file, of ``ENTRY_DTYPE``, any order, without two of one producer.
        knowledge: what the replay may claim.
    """
    if knowledge.unproven_reason is not None:
        return np.zeros(0, dtype=np.int64)
    expected = entries_of(replayed)
    found = sorted_entries(found)
    parts = _differing(replayed, expected, found, match_entries(expected, found), knowledge)
    ids: np.ndarray = np.sort(np.concatenate([each.producer_ids[each.is_certain] for each in parts]))
    return ids


def _without_differences(status: ComparisonStatus, expected: np.ndarray, found: np.ndarray, reason: str) -> Comparison:
    """The result for a snapshot whose entries need not be compared one by one."""
    return Comparison(
        status=status,
        proven_wrong=status is ComparisonStatus.CORRUPT,
        expected_entries=len(expected),
        found_entries=len(found),
        difference_count=0,
        differences=(),
        reason=reason,
    )


def impossible_entries(entries: np.ndarray, offset: int) -> str | None:
    """Why entries cannot be those of a snapshot at ``offset``, or None: duplicates, or offsets at or above its name."""
    ids = np.sort(entries["producer_id"].astype(np.int64))
    if (ids[1:] == ids[:-1]).any():
        return f"producer {int(ids[1:][ids[1:] == ids[:-1]][0])} occurs twice"
    if (entries["last_offset"] >= offset).any() or (entries["current_txn_first_offset"] >= offset).any():
        return f"an entry holds an offset at or above {offset}"
    opened = np.sort(entries["current_txn_first_offset"].astype(np.int64))
    opened = opened[opened >= 0]
    if (opened[1:] == opened[:-1]).any():
        return "two producers have an open transaction from the same offset"
    return None


class _Differing(msgspec.Struct, frozen=True):
    """Producers that differ in one way and have not expired on both sides, ascending by id.

    A snapshot may have a million of them, so these are columns, and only the listed ones become a ``EntryDifference``.

    Attributes:
        producer_ids: int64 (n,).
        is_certain: bool (n,), the retained log proves it.
        is_transaction: bool (n,), the open transactions differ.
        difference: makes the ``EntryDifference`` of the producer at an index.
    """

    producer_ids: np.ndarray
    is_certain: np.ndarray
    is_transaction: np.ndarray
    difference: Callable[[int], EntryDifference]

    def __len__(self) -> int:
        return len(self.is_certain)

    @property
    def certain_count(self) -> int:
        return int(np.count_nonzero(self.is_certain))

    def first(self) -> Iterator[tuple[int, EntryDifference]]:
        """The differences that may be listed, with their ranks: certain ones first, and of these the open transactions, which cost most."""
        rank = 2 * (~self.is_certain).astype(np.uint8) + ~self.is_transaction
        for index in np.argsort(rank, kind="stable")[:DIFFERENCES_LISTED_MAX].tolist():
            yield int(rank[index]), self.difference(index)


def _status_of(missing: _Differing, changed: _Differing, found_entries: int) -> ComparisonStatus:
    """The status of a snapshot that the log contradicts for certain."""
    if missing.certain_count and found_entries == 0:
        return ComparisonStatus.FALSE_EMPTY
    if changed.certain_count:
        return ComparisonStatus.STALE
    return ComparisonStatus.MISSING_ENTRIES if missing.certain_count else ComparisonStatus.EXTRA


def _differing(
    replayed: SegmentEffect, expected: np.ndarray, found: np.ndarray, match: MatchedEntries, knowledge: Knowledge
) -> tuple[_Differing, _Differing, _Differing]:
    """Producers that are missing, extra, and changed. Both arrays of entries are sorted by producer id, without duplicates."""
    expected_is_live = ~expired_mask(expected, knowledge.as_of_ms, knowledge.expiration_ms)
    found_is_live = ~expired_mask(found, knowledge.as_of_ms, knowledge.expiration_ms)
    live = expected_is_live[match.changed_a] | found_is_live[match.changed_b]
    return (
        _missing(replayed, expected, match.only_a[expected_is_live[match.only_a]], knowledge),
        _extra(found, match.only_b[found_is_live[match.only_b]], knowledge),
        _changed(replayed, expected, found, match.changed_a[live], match.changed_b[live], knowledge),
    )


def _excused_timestamp(expected: np.ndarray, found: np.ndarray, match: MatchedEntries) -> int:
    """Greatest timestamp of the entries that differ, all of which have expired."""
    rows = expected[match.only_a], found[match.only_b], expected[match.changed_a], found[match.changed_b]
    return max((int(each["timestamp"].max()) for each in rows if len(each)), default=-1)


def _missing(replayed: SegmentEffect, expected: np.ndarray, rows: np.ndarray, knowledge: Knowledge) -> _Differing:
    # The offset of the newest marker is unknown, so a producer without a batch counts only if the log start is at the first segment.
    all_retained = knowledge.log_start_offset <= knowledge.first_offset
    is_certain = replayed.assigned[rows] & (all_retained | (expected["last_offset"][rows] >= knowledge.log_start_offset))

    def difference(index: int) -> EntryDifference:
        entry = expected[rows[index]]
        producer_id = int(entry["producer_id"])
        last = int(entry["last_offset"])
        certain = bool(is_certain[index])
        consequence = consequence_of_missing(entry)
        return EntryDifference(
            producer_id=producer_id,
            kind=DifferenceKind.MISSING,
            field=None,
            expected=last,
            found=None,
            is_certain=certain,
            consequence=consequence,
            open_from=_open_from(entry),
        )

    return _Differing(_ids(expected, rows), is_certain, expected["current_txn_first_offset"][rows] != NONE, difference)


def _ids(entries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    ids: np.ndarray = entries["producer_id"][rows].astype(np.int64)
    return ids


def _open_from(entry: np.void) -> int | None:
    first = int(entry["current_txn_first_offset"])
    return None if first == NONE else first


def _extra(found: np.ndarray, rows: np.ndarray, knowledge: Knowledge) -> _Differing:
    def difference(index: int) -> EntryDifference:
        entry = found[rows[index]]
        producer_id = int(entry["producer_id"])
        last = int(entry["last_offset"])
        return EntryDifference(
            producer_id=producer_id,
            kind=DifferenceKind.EXTRA,
            field=None,
            expected=None,
            found=last,
            is_certain=knowledge.is_complete,
            consequence=consequence_of_extra(entry),
        )

    is_certain = np.full(len(rows), knowledge.is_complete)
    return _Differing(_ids(found, rows), is_certain, found["current_txn_first_offset"][rows] != NONE, difference)


def _changed(
    replayed: SegmentEffect, expected: np.ndarray, found: np.ndarray, rows: np.ndarray, found_rows: np.ndarray, knowledge: Knowledge
) -> _Differing:
    """Producers with a field that differs: by the first field that differs for certain, or the first that differs."""
    is_undetermined = _undetermined_fields(replayed, rows, found, found_rows, knowledge)
    field = np.full(len(rows), NONE, dtype=np.int8)
    is_certain = np.zeros(len(rows), dtype=bool)
    for number, name in enumerate(ENTRY_FIELDS):
        differs = expected[name][rows] != found[name][found_rows]
        first_certain = differs & ~is_undetermined[name] & ~is_certain
        field[first_certain | (differs & (field == NONE))] = number
        is_certain |= first_certain

    def difference(index: int) -> EntryDifference:
        entry = expected[rows[index]]
        other = found[found_rows[index]]
        name = ENTRY_FIELDS[field[index]]
        certain = bool(is_certain[index])
        older = other["last_offset"] < entry["last_offset"] or other["timestamp"] < entry["timestamp"]
        kind = DifferenceKind.STALE if older and certain else DifferenceKind.FIELD
        values = int(entry[name]), int(other[name])
        consequence = consequence_of_change(name, entry, other)
        return EntryDifference(int(entry["producer_id"]), kind, name, *values, certain, consequence, _open_from(entry))

    is_transaction = expected["current_txn_first_offset"][rows] != found["current_txn_first_offset"][found_rows]
    return _Differing(_ids(expected, rows), is_certain, is_transaction, difference)


def _undetermined_fields(
    replayed: SegmentEffect, rows: np.ndarray, found: np.ndarray, found_rows: np.ndarray, knowledge: Knowledge
) -> dict[str, np.ndarray]:
    """For each field, the producers for which the retained log does not fix it, so that the value in the file may be correct."""
    assigned = replayed.assigned[rows]
    fixed = np.zeros(len(rows), dtype=bool)
    batch = _is_batch_undetermined(replayed, rows, found["last_offset"][found_rows], knowledge)
    is_undetermined = dict.fromkeys(ENTRY_FIELDS, batch) | {
        "epoch": fixed,
        "timestamp": fixed,
        "coordinator_epoch": _is_coordinator_epoch_undetermined(replayed, rows, found["coordinator_epoch"][found_rows], knowledge),
        "current_txn_first_offset": _is_transaction_undetermined(
            replayed, rows, found["current_txn_first_offset"][found_rows], knowledge
        ),
    }
    return {name: np.where(assigned, mask, not knowledge.is_complete) for name, mask in is_undetermined.items()}


def _is_coordinator_epoch_undetermined(
    replayed: SegmentEffect, rows: np.ndarray, claimed: np.ndarray, knowledge: Knowledge
) -> np.ndarray:
    # A producer that expired and came back has no coordinator epoch until the next marker.
    lost = (claimed == NONE) & (replayed.last_batch_kind[rows] == ENDS_WITH_DATA)
    return np.where(replayed.marked[rows], lost, not knowledge.is_complete)


def _is_transaction_undetermined(
    replayed: SegmentEffect, rows: np.ndarray, claimed: np.ndarray, knowledge: Knowledge
) -> np.ndarray:
    may_come_in_open = ~replayed.txn_is_set[rows] & (replayed.fail_open[rows] == NONE) & (not knowledge.is_complete)
    came_in_open = may_come_in_open & (claimed >= 0) & (claimed < knowledge.first_offset)
    # For a broker that recovered from a log start offset inside the transaction, it begins there.
    first = replayed.txn_first_offset[rows]
    begins_late = (first >= 0) & (first < knowledge.log_start_offset) & (first < claimed) & (claimed <= replayed.last_offset[rows])
    is_undetermined: np.ndarray = came_in_open | begins_late
    return is_undetermined


def _is_batch_undetermined(replayed: SegmentEffect, rows: np.ndarray, claimed: np.ndarray, knowledge: Knowledge) -> np.ndarray:
    # A producer that expired and came back with only a marker has no batch; but one whose marker closed a transaction had not expired.
    # A producer also has no batch if that is below the log start offset from which a broker recovered, and its marker is not.
    last_kind = replayed.last_batch_kind[rows]
    batch = replayed.batch[rows]
    came_back = (last_kind != ENDS_WITH_DATA) & (last_kind != ENDS_CLOSING)
    cut_off = (last_kind != ENDS_WITH_DATA) & (replayed.last_offset[rows] < knowledge.log_start_offset)
    has_none = (batch == SET) & (claimed < 0) & (came_back | cut_off)
    # A batch that was deleted before the first marker of its producer is not known either.
    was_deleted = (batch == IF) & (claimed < knowledge.first_offset) & (not knowledge.is_complete)
    is_undetermined: np.ndarray = has_none | was_deleted
    return is_undetermined


def consequence_of_missing(entry: np.void) -> str:
    """The consequence if a broker does not have ``entry`` (of ``ENTRY_DTYPE``) and should."""
    first = int(entry["current_txn_first_offset"])
    if first >= 0:
        return f"its transaction, open from {first}, is forgotten: undecided data is read by consumers and uploaded"
    sequence = int(entry["last_sequence"])
    if sequence < 0:
        return "older epochs are not fenced"
    return f"a retry of sequence {sequence} or older is accepted as new (duplicate), and older epochs are not fenced"


def consequence_of_extra(entry: np.void) -> str:
    """The consequence if a broker has ``entry`` (of ``ENTRY_DTYPE``) and should not."""
    first = int(entry["current_txn_first_offset"])
    if first >= 0:
        return f"a transaction that never was stays open from {first}: readers of committed data, compaction and tiering stop there"
    return "a producer that never wrote here is held to a sequence that it does not know"


def consequence_of_change(name: str, entry: np.void, found: np.void) -> str:
    """The consequence if a broker has ``found`` instead of ``entry``, which differ in the field ``name``."""
    if name == "current_txn_first_offset":
        if found[name] < 0:
            return f"its transaction, open from {int(entry[name])}, is forgotten: undecided data is read and uploaded"
        if entry[name] < 0:
            return f"a closed transaction stays open from {int(found[name])}: readers of committed data, compaction and tiering stop there"
        return "the last stable offset is wrong while its transaction is open"
    if name in _CONSEQUENCE_OF_CHANGE:
        return _CONSEQUENCE_OF_CHANGE[name]
    if name in ("last_offset", "offset_delta") and entry["last_sequence"] == found["last_sequence"]:
        # ProducerStateEntry.findDuplicateBatch compares both sequences, and the first follows from the delta.
        if entry["offset_delta"] != found["offset_delta"]:
            return "a retry of its newest batch is refused (OutOfOrderSequence) and not recognised"
        return "a retry of its newest batch is acknowledged with a wrong offset"
    following = next_sequence(int(entry["last_sequence"]))
    return f"the healthy producer's next batch, sequence {following}, is refused (OutOfOrderSequence), or a retry is accepted twice"


_CONSEQUENCE_OF_CHANGE = {
    "coordinator_epoch": "an old transaction coordinator is not fenced, or a current one is",
    "epoch": "a fenced epoch is accepted, or the current one is refused (InvalidProducerEpoch)",
    "timestamp": "the producer expires too early or too late",
}


def next_sequence(last_sequence: int) -> int:
    """The sequence after another one (``DefaultRecordBatch.incrementSequence``): 0 after -1 (none) and after 2^31 - 1."""
    return 0 if last_sequence in (-1, _SEQUENCE_MAX) else last_sequence + 1


class VerifiedSnapshot(Part, frozen=True):
    """A snapshot compared with the replay."""

    offset: Natural
    name: str
    """Name of the file."""
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the replay at this offset; null at or below the first base offset, above the log end, and above damage."""
    comparison: Comparison
