"""The specification of ``replay.difference``: one producer after the other, in plain Python.

It shares with the code under test the types of its answer and nothing else. What a difference costs is not specified here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.difference import Comparison, ComparisonStatus, DifferenceKind, Knowledge
from snaprebuild.replay.segment_effect import COLUMNS, ENDS_CLOSING, ENDS_WITH_DATA, IF, SET, SegmentEffect
from snaprebuild.replay.window import is_expired

NONE = -1
FIELDS = ("epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch", "current_txn_first_offset")


@dataclass(frozen=True)
class Difference:
    """One entry that differs."""

    producer_id: int
    kind: DifferenceKind
    field: str | None
    expected: int | None
    found: int | None
    is_certain: bool


@dataclass(frozen=True)
class Answer:
    """The right answer about a snapshot."""

    status: ComparisonStatus
    proven_wrong: bool
    expected_entries: int
    found_entries: int
    difference_count: int
    differences: tuple[Difference, ...]
    reason: str


def answer_of(comparison: Comparison) -> Answer:
    """An answer of the code under test, in the terms of the specification."""
    differences = tuple(
        Difference(each.producer_id, each.kind, each.field, each.expected, each.found, each.is_certain)
        for each in comparison.differences
    )
    return Answer(
        comparison.status,
        comparison.proven_wrong,
        comparison.expected_entries,
        comparison.found_entries,
        comparison.difference_count,
        differences,
        comparison.reason,
    )


Known = SimpleNamespace
"""A row of an effect, what the replay knows of a producer: its columns by name, and the ``entry`` that they make."""


def known_of(truth: SegmentEffect) -> dict[int, Known]:
    """Every row of an effect, by producer id."""
    rows = {}
    for at in range(len(truth)):
        row = Known(**{name: getattr(truth, name)[at].item() for name in COLUMNS})
        batch = (row.last_sequence, row.last_offset, row.offset_delta) if row.batch == SET else (-1, -1, 0)
        row.entry = ProducerEntry(row.producer_id, row.epoch, *batch, row.timestamp, row.coordinator_epoch, row.txn_first_offset)
        rows[row.producer_id] = row
    return rows


def specified(truth: SegmentEffect, found: Sequence[ProducerEntry], offset: int, knowledge: Knowledge) -> Answer:
    """The answer that ``compare`` must give; every difference is listed."""
    known = known_of(truth)
    impossible = impossible_because(found, offset)
    if impossible is not None:
        return Answer(ComparisonStatus.CORRUPT, True, len(known), len(found), 0, (), impossible)
    if {row.entry for row in known.values()} == set(found):
        return Answer(ComparisonStatus.EQUAL, False, len(known), len(found), 0, (), "equal to the replay")
    differences = list(differences_in_order(known, {entry.producer_id: entry for entry in found}, knowledge))
    certain = [difference for difference in differences if difference.is_certain]
    uncertain = [difference for difference in differences if not difference.is_certain]
    if not differences:
        status, reason = ComparisonStatus.EQUAL_AFTER_EXPIRY, "different only in entries that have expired"
    elif knowledge.unproven_reason is not None:
        status, reason = ComparisonStatus.UNVERIFIABLE, knowledge.unproven_reason
    elif not certain:
        status, reason = ComparisonStatus.UNVERIFIABLE, "different only in what the retained log does not fix"
    else:
        status, reason = (
            status_of(certain, len(found)),
            f"the log contradicts {len(certain)} {'entry' if len(certain) == 1 else 'entries'}",
        )
    proven_wrong = bool(certain) and knowledge.unproven_reason is None
    return Answer(status, proven_wrong, len(known), len(found), len(differences), (*certain, *uncertain), reason)


def impossible_because(entries: Sequence[ProducerEntry], offset: int) -> str | None:
    """Why no snapshot can hold these entries."""
    twice = [producer_id for producer_id, count in Counter(entry.producer_id for entry in entries).items() if count > 1]
    if twice:
        return f"producer {min(twice)} occurs twice"
    if any(entry.last_offset >= offset or entry.current_txn_first_offset >= offset for entry in entries):
        return f"an entry holds an offset at or above {offset}"
    opened = [entry.current_txn_first_offset for entry in entries if entry.current_txn_first_offset >= 0]
    if len(set(opened)) < len(opened):
        return "two producers have an open transaction from the same offset"
    return None


def status_of(certain: Iterable[Difference], found_entries: int) -> ComparisonStatus:
    kinds = {difference.kind for difference in certain}
    if DifferenceKind.MISSING in kinds and found_entries == 0:
        return ComparisonStatus.FALSE_EMPTY
    if kinds & {DifferenceKind.STALE, DifferenceKind.FIELD}:
        return ComparisonStatus.STALE
    return ComparisonStatus.MISSING_ENTRIES if DifferenceKind.MISSING in kinds else ComparisonStatus.EXTRA


def differences_in_order(known: dict[int, Known], found: dict[int, ProducerEntry], knowledge: Knowledge) -> Iterable[Difference]:
    """Every producer that differs and is not expired on both sides: forgotten and invented transactions first, because they cost most."""
    transactions, others = [], []
    for producer_id in sorted(known.keys() | found.keys()):
        row, entry = known.get(producer_id), found.get(producer_id)
        expected = None if row is None else row.entry
        if expected == entry or (is_gone(expected, knowledge) and is_gone(entry, knowledge)):
            continue
        if row is None:
            assert entry is not None
            difference = Difference(producer_id, DifferenceKind.EXTRA, None, None, entry.last_offset, knowledge.is_complete)
        elif entry is None:
            last = row.entry.last_offset
            difference = Difference(producer_id, DifferenceKind.MISSING, None, last, None, must_be_there(row, knowledge))
        else:
            difference = changed(row, entry, knowledge)
        (transactions if opened_at(expected) != opened_at(entry) else others).append(difference)
    return transactions + others


def is_gone(entry: ProducerEntry | None, knowledge: Knowledge) -> bool:
    return entry is None or is_expired(entry, knowledge.as_of_ms, knowledge.expiration_ms)


def opened_at(entry: ProducerEntry | None) -> int:
    return NONE if entry is None else entry.current_txn_first_offset


def must_be_there(row: Known, knowledge: Knowledge) -> bool:
    # The place of the newest marker is not known, so a producer without a batch counts only where all of the retained log does.
    retained = knowledge.log_start_offset <= knowledge.first_offset or row.entry.last_offset >= knowledge.log_start_offset
    return row.assigned and retained


def changed(row: Known, entry: ProducerEntry, knowledge: Knowledge) -> Difference:
    """By the first field that differs for certain, else by the first that differs."""
    differing = [name for name in FIELDS if getattr(row.entry, name) != getattr(entry, name)]
    certain = [name for name in differing if not is_open(name, row, entry, knowledge)]
    name = (certain or differing)[0]
    older = entry.last_offset < row.entry.last_offset or entry.timestamp < row.entry.timestamp
    kind = DifferenceKind.STALE if older and certain else DifferenceKind.FIELD
    return Difference(entry.producer_id, kind, name, getattr(row.entry, name), getattr(entry, name), bool(certain))


def is_open(name: str, row: Known, entry: ProducerEntry, knowledge: Knowledge) -> bool:
    """Whether a differing field is one that the retained log does not fix."""
    if not row.assigned:
        return not knowledge.is_complete
    if name in ("epoch", "timestamp"):
        return False
    if name == "coordinator_epoch":
        if not row.marked:
            return not knowledge.is_complete
        # A producer that expired and came back has lost it, until the next marker.
        return entry.coordinator_epoch == NONE and row.last_batch_kind == ENDS_WITH_DATA
    if name == "current_txn_first_offset":
        return is_transaction_open(row, entry.current_txn_first_offset, knowledge)
    return is_batch_open(row, entry, knowledge)


def is_transaction_open(row: Known, claimed: int, knowledge: Knowledge) -> bool:
    may_come_in_open = not knowledge.is_complete and not row.txn_is_set and row.fail_open == NONE
    if may_come_in_open and 0 <= claimed < knowledge.first_offset:
        return True
    # A broker that recovered from its log start offset, in the middle of the transaction, lets it begin there.
    return 0 <= row.entry.current_txn_first_offset < min(knowledge.log_start_offset, claimed) and claimed <= row.last_offset


def is_batch_open(row: Known, entry: ProducerEntry, knowledge: Knowledge) -> bool:
    if row.batch == SET:
        # An expired producer that came back with a marker alone has no batch; but one whose marker closed a transaction had not expired.
        # Neither has one whose batch is below the log start offset from which a broker recovered, and whose marker is not.
        came_back = row.last_batch_kind not in (ENDS_WITH_DATA, ENDS_CLOSING)
        cut_off = row.last_batch_kind != ENDS_WITH_DATA and row.last_offset < knowledge.log_start_offset
        return entry.last_offset < 0 and (came_back or cut_off)
    if row.batch == IF and not knowledge.is_complete:
        return entry.last_offset < knowledge.first_offset
    return False
