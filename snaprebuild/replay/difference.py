"""A snapshot on disk beside what the log says: equal, equal after expiry, or in which entries not, and what each costs.

The replay knows some fields for certain and others not: what was deleted, what came before the first retained segment, and what a broker
forgot while a producer was expired. Only a difference in something certain proves a snapshot wrong; everything else is *unverifiable* and
gives no alarm.

Source: section 3.7 of what ``ProducerAppendInfo.maybeValidateDataBatch`` answers to clients, run on 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from snaprebuild.replay.segment_effect import CLEAR, ENDS_CLOSING, ENDS_WITH_DATA, IF, NONE, SET, SegmentEffect, entries_of
from snaprebuild.replay.window import expired_mask

__all__ = ["Comparison", "Difference", "DifferenceKind", "Knowledge", "SnapshotStatus", "compare"]

DIFFERENCES_LISTED_MAX = 1_000
"""Differing entries that a comparison lists; all are counted."""


class SnapshotStatus(Enum):
    """What a snapshot on disk is."""

    EQUAL = "equal"
    EQUAL_AFTER_EXPIRY = "equal_after_expiry"
    """Different only in entries that a broker drops when it loads them now."""
    UNVERIFIABLE = "unverifiable"
    """Different only in what the retained log does not fix."""
    EXTRA = "extra_entries"
    """Holds live entries for which the complete log has no batch."""
    MISSING_ENTRIES = "missing_entries"
    STALE = "stale"
    """Holds an older or another state of a producer than the log."""
    FALSE_EMPTY = "false_empty"
    """Has no entries although the log fixes live ones."""
    CORRUPT = "corrupt"
    """Does not parse, or holds what no snapshot of its name can hold."""


class DifferenceKind(Enum):
    """How one entry differs."""

    MISSING = "missing"
    EXTRA = "extra"
    STALE = "stale"
    FIELD = "field"


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs.

    Attributes:
        producer_id: int64.
        kind: how.
        field: the first field that differs, or None when the whole entry does.
        expected: of that field, or the last offset of the whole entry.
        found: likewise.
        is_certain: the retained log proves it.
        consequence: what a broker with this snapshot would do.
    """

    producer_id: int
    kind: DifferenceKind
    field: str | None
    expected: int | None
    found: int | None
    is_certain: bool
    consequence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A snapshot compared.

    Attributes:
        status: what it is.
        proven_wrong: the retained log contradicts it for certain.
        expected_entries: count of entries by replay; ``found_entries`` of the file.
        difference_count: all entries that differ; ``differences`` lists the first ``DIFFERENCES_LISTED_MAX``, the certain ones first.
        reason: one sentence.
    """

    status: SnapshotStatus
    proven_wrong: bool
    expected_entries: int
    found_entries: int
    difference_count: int
    differences: tuple[Difference, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the replay may claim.

    Attributes:
        is_complete: it began at offset 0 or at a trusted snapshot, so that what it does not know never was.
        doubt: why it proves nothing at all (compaction, damage, gaps), or None.
        first_offset: base offset of the first segment on disk; what lies below is unknown unless ``is_complete``.
        log_start_offset: producers whose batches all lie below it may be absent from a right snapshot.
        as_of_ms: the moment of expiry.
        expiration_ms: see there.
    """

    is_complete: bool
    doubt: str | None
    first_offset: int
    log_start_offset: int
    as_of_ms: int
    expiration_ms: int


def compare(truth: SegmentEffect, found: np.ndarray, offset: int, knowledge: Knowledge) -> Comparison:
    """Compares a snapshot with the replay up to its offset.

    Args:
        truth: the prefix effect, from the first segment on disk (or composed on a trusted snapshot).
        found: entries of the file, of ``ENTRY_DTYPE``, any order.
        offset: the offset in its name.
        knowledge: what the replay may claim.
    """
    expected = entries_of(truth)
    impossible = impossible_entries(found, offset)
    if impossible is not None:
        return Comparison(SnapshotStatus.CORRUPT, True, len(expected), len(found), 0, (), impossible)
    native = found.astype(found.dtype.newbyteorder("="))
    native = native[np.argsort(native["producer_id"], kind="stable")]
    if native.tobytes() == expected.astype(native.dtype).tobytes():
        return Comparison(SnapshotStatus.EQUAL, False, len(expected), len(found), 0, (), "equal to the replay")
    differences = _differences(truth, expected, native, knowledge)
    certain = [difference for difference in differences if difference.is_certain]
    counts = (
        len(expected),
        len(found),
        len(differences),
        (*certain, *(d for d in differences if not d.is_certain))[:DIFFERENCES_LISTED_MAX],
    )
    if not differences:
        reason = "different only in entries that have expired"
        return Comparison(SnapshotStatus.EQUAL_AFTER_EXPIRY, False, *counts, reason)
    if knowledge.doubt is not None:
        return Comparison(SnapshotStatus.UNVERIFIABLE, False, *counts, knowledge.doubt)
    if not certain:
        return Comparison(SnapshotStatus.UNVERIFIABLE, False, *counts, "different only in what the retained log does not fix")
    return Comparison(_status_of(certain, len(found)), True, *counts, f"the log contradicts {len(certain)} entries")


def impossible_entries(entries: np.ndarray, offset: int) -> str | None:
    """Why entries cannot be those of a snapshot at ``offset``, or None: duplicates, or offsets at or above its name."""
    ids = np.sort(entries["producer_id"].astype(np.int64))
    if (ids[1:] == ids[:-1]).any():
        return f"producer {int(ids[1:][ids[1:] == ids[:-1]][0])} stands twice"
    if (entries["last_offset"] >= offset).any() or (entries["current_txn_first_offset"] >= offset).any():
        return f"an entry holds an offset at or above {offset}"
    opened = np.sort(entries["current_txn_first_offset"].astype(np.int64))
    opened = opened[opened >= 0]
    if (opened[1:] == opened[:-1]).any():
        return "two producers have an open transaction from the same offset"
    return None


def _status_of(certain: list[Difference], found_entries: int) -> SnapshotStatus:
    kinds = {difference.kind for difference in certain}
    if DifferenceKind.MISSING in kinds and found_entries == 0:
        return SnapshotStatus.FALSE_EMPTY
    if kinds & {DifferenceKind.STALE, DifferenceKind.FIELD}:
        return SnapshotStatus.STALE
    return SnapshotStatus.MISSING_ENTRIES if DifferenceKind.MISSING in kinds else SnapshotStatus.EXTRA


def _differences(truth: SegmentEffect, expected: np.ndarray, found: np.ndarray, knowledge: Knowledge) -> list[Difference]:
    """Every producer that differs and is not expired on both sides."""
    expected_rows = {int(producer): row for row, producer in enumerate(truth.producer_id.tolist())}
    found_rows = {int(producer): row for row, producer in enumerate(found["producer_id"].tolist())}
    gone_expected = expired_mask(expected, knowledge.as_of_ms, knowledge.expiration_ms)
    gone_found = expired_mask(found, knowledge.as_of_ms, knowledge.expiration_ms)
    # Forgotten and invented transactions come first: they cost most.
    transactions: list[Difference] = []
    others: list[Difference] = []
    for producer in sorted(expected_rows.keys() | found_rows.keys()):
        t, f = expected_rows.get(producer), found_rows.get(producer)
        if (t is None or gone_expected[t]) and (f is None or gone_found[f]):
            continue
        if t is not None and f is not None and expected[t].tolist() == found[f].tolist():
            continue
        differs = transactions if _opened(expected, t) != _opened(found, f) else others
        if f is None:
            assert t is not None
            differs.append(_missing(truth, expected, t, knowledge))
        elif t is None:
            differs.append(_extra(found, f, knowledge))
        else:
            differs.append(_field(truth, expected, t, found[f], knowledge))
    return transactions + others


def _opened(entries: np.ndarray, row: int | None) -> int:
    return NONE if row is None else int(entries["current_txn_first_offset"][row])


def _missing(truth: SegmentEffect, expected: np.ndarray, row: int, knowledge: Knowledge) -> Difference:
    entry = expected[row]
    last, first = int(entry["last_offset"]), int(entry["current_txn_first_offset"])
    # Where the newest marker lies is not known, so a producer without a batch counts only where all of the retained log does.
    retained = knowledge.log_start_offset <= knowledge.first_offset or last >= knowledge.log_start_offset
    certain = bool(truth.assigned[row]) and retained
    if first >= 0:
        cost = f"its transaction, open from {first}, is forgotten: undecided data is read by consumers and uploaded"
    else:
        cost = f"a retry of sequence {int(entry['last_sequence'])} or older is accepted as new (duplicate), and older epochs are not fenced"
    return Difference(int(entry["producer_id"]), DifferenceKind.MISSING, None, last, None, certain, cost)


def _extra(found: np.ndarray, row: int, knowledge: Knowledge) -> Difference:
    entry = found[row]
    first = int(entry["current_txn_first_offset"])
    certain = knowledge.is_complete
    if first >= 0:
        cost = f"a transaction that never was stays open from {first}: readers of committed data, compaction and tiering stop there"
    else:
        cost = "a producer that never wrote here is held to a sequence that it does not know"
    return Difference(int(entry["producer_id"]), DifferenceKind.EXTRA, None, None, int(entry["last_offset"]), certain, cost)


_FIELDS = (
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)


def _field(truth: SegmentEffect, expected: np.ndarray, row: int, found: np.void, knowledge: Knowledge) -> Difference:
    entry = expected[row]
    differing = [name for name in _FIELDS if entry[name] != found[name]]
    certain = [name for name in differing if not _is_open(name, truth, row, found, knowledge)]
    name = (certain or differing)[0]
    older = found["last_offset"] < entry["last_offset"] or found["timestamp"] < entry["timestamp"]
    kind = DifferenceKind.STALE if older and certain else DifferenceKind.FIELD
    values = int(entry[name]), int(found[name])
    return Difference(int(entry["producer_id"]), kind, name, *values, bool(certain), _cost_of(name, entry, found))


def _is_open(name: str, truth: SegmentEffect, row: int, found: np.void, knowledge: Knowledge) -> bool:
    """Whether a differing field is one that the retained log does not fix."""
    if not truth.assigned[row]:
        return not knowledge.is_complete
    if name in ("epoch", "timestamp"):
        return False
    if name == "coordinator_epoch":
        if not truth.marked[row]:
            return not knowledge.is_complete
        # A producer that expired and came back has lost it, until the next marker.
        return bool(found[name] == NONE and truth.end[row] == ENDS_WITH_DATA)
    if name == "current_txn_first_offset":
        return _is_transaction_open(truth, row, found, knowledge)
    return _is_batch_open(truth, row, found, knowledge)


def _is_transaction_open(truth: SegmentEffect, row: int, found: np.void, knowledge: Knowledge) -> bool:
    first, claimed = int(truth.txn_first_offset[row]), int(found["current_txn_first_offset"])
    may_come_in_open = not knowledge.is_complete and not truth.txn_is_set[row] and truth.fail_open[row] == NONE
    if may_come_in_open and 0 <= claimed < knowledge.first_offset:
        return True
    # A broker that recovered from its log start offset, in the middle of the transaction, lets it begin there.
    return 0 <= first < knowledge.log_start_offset and first < claimed <= int(truth.last_offset[row])


def _is_batch_open(truth: SegmentEffect, row: int, found: np.void, knowledge: Knowledge) -> bool:
    has_none = found["last_offset"] < 0
    if truth.batch[row] == SET:
        # An expired producer that came back with a marker alone has no batch; but one whose marker closed a transaction had not expired.
        # Neither has one whose batch lies below the log start offset from which a broker recovered, and whose marker does not.
        came_back = truth.end[row] not in (ENDS_WITH_DATA, ENDS_CLOSING)
        cut_off = truth.end[row] != ENDS_WITH_DATA and truth.last_offset[row] < knowledge.log_start_offset
        return bool(has_none and (came_back or cut_off))
    if truth.batch[row] == IF and not knowledge.is_complete:
        return bool(found["last_offset"] < knowledge.first_offset)
    assert truth.batch[row] in (IF, CLEAR)
    return False


def _cost_of(name: str, entry: np.void, found: np.void) -> str:
    if name == "current_txn_first_offset":
        if found[name] < 0:
            return f"its transaction, open from {int(entry[name])}, is forgotten: undecided data is read and uploaded"
        if entry[name] < 0:
            return f"a closed transaction stays open from {int(found[name])}: readers of committed data, compaction and tiering stop there"
        return "the last stable offset is wrong while its transaction is open"
    if name == "coordinator_epoch":
        return "an old transaction coordinator is not fenced, or a current one is"
    if name == "epoch":
        return "a fenced epoch is accepted, or the current one is refused (InvalidProducerEpoch)"
    if name == "timestamp":
        return "the producer expires too early or too late"
    following = int(entry["last_sequence"]) + 1
    return f"the healthy producer's next batch, sequence {following}, is refused (OutOfOrderSequence), or a retry is accepted twice"
