"""Segment effects: composed in any way they are the fold, and each cell of the table by which they compose is as written here by hand."""

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from budgets import notices_broken_rules
from effects import CLOSES, FIELDS, any_effect, assert_same, effect_of_data, rows_of, state_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from reference_producer_state import (
    CompletedTransaction,
    DataBatch,
    EmptyControlBatch,
    InvalidTransactionStateError,
    Marker,
    ProducerState,
    producer_batches,
)
from strategies import GeneratedLog, block_sizes, cuts_of, grouped, groupings, incoming_entries, logs

from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot, write_entries
from snaprebuild.replay import segment_effect
from snaprebuild.replay.block_effect import _grouped_effect, effect_of_block, effects_of_parts
from snaprebuild.replay.segment_effect import (
    CLEAR,
    ENDS_CLOSING,
    ENDS_CLOSING_INCOMING,
    ENDS_CLOSING_NOTHING,
    ENDS_WITH_DATA,
    IDENTITY,
    IF,
    KEEP,
    NO_CLOSES,
    SET,
    ClosedTransactions,
    SegmentEffect,
    compose,
    entries_of,
    identity_rows,
)

NONE = -1
STATE_OFFSET = 1000
"""Offset of the state that comes before a log: its transactions begin below."""


def effect_of_log(log: GeneratedLog, block_bytes: int = 8 << 20) -> SegmentEffect:
    return effect_of_data(log.data, block_bytes)


# -------------------------------------------------------------------------------------------------------- the right states


@dataclass(frozen=True)
class Evidence:
    """Facts that a run of batches shows of one producer in addition to its effect."""

    first_epoch: int
    epoch_decreased: bool
    starts_fresh: bool
    end: int


@dataclass(frozen=True)
class Truth:
    """The fold's state after a prefix of the segments; ``entries`` are None where Kafka throws at the batch at ``failure``."""

    entries: dict[int, tuple[int, ...]] | None
    failure: int | None
    completed: tuple[CompletedTransaction, ...]
    evidence: dict[int, Evidence]


@dataclass(frozen=True)
class Case:
    """A state and the segments after it, each as an effect, with the right state after this many segments."""

    state: SegmentEffect
    segments: tuple[SegmentEffect, ...]
    grouping: tuple[int, ...]
    truths: tuple[tuple[int, Truth], ...]


def truths_of(entries: Sequence[ProducerEntry], segments: Sequence[GeneratedLog]) -> Iterator[Truth]:
    state, completed, failure = ProducerState(), [], None
    state.load(entries, now_ms=0, expiration_ms=1 << 62)
    for count, segment in enumerate(segments, start=1):
        try:
            if failure is None:
                for transaction in state.append(segment.meanings):
                    completed.append(transaction)  # noqa: PERF402  (those before an error stay)
        except InvalidTransactionStateError as error:
            failure = error.offset
        known = None if failure is not None else {key: astuple(entry) for key, entry in state.entries.items()}
        yield Truth(known, failure, tuple(completed), evidence_of(segments[:count]))


def evidence_of(segments: Sequence[GeneratedLog]) -> dict[int, Evidence]:
    acting: dict[int, list[DataBatch | Marker]] = {}
    for segment in segments:
        for batch in segment.meanings:
            if not isinstance(batch, EmptyControlBatch):
                acting.setdefault(batch.producer_id, []).append(batch)
    return {
        producer_id: Evidence(
            first_epoch=batches[0].epoch,
            epoch_decreased=any(later.epoch < earlier.epoch for earlier, later in pairwise(batches)),
            starts_fresh=isinstance(batches[0], DataBatch)
            and (batches[0].epoch, batches[0].base_sequence) == (0, 0)
            and batches[0].base_offset < 2**31,
            end=int(end_of(batches)),
        )
        for producer_id, batches in acting.items()
    }


def end_of(batches: Sequence[DataBatch | Marker]) -> np.uint8:
    if isinstance(batches[-1], DataBatch):
        return ENDS_WITH_DATA
    before = list(batches[:-1])
    markers = [index for index, batch in enumerate(before) if isinstance(batch, Marker)]
    stretch = before[markers[-1] + 1 :] if markers else before
    if any(isinstance(batch, DataBatch) and batch.is_transactional for batch in stretch):
        return ENDS_CLOSING
    return ENDS_CLOSING_NOTHING if markers else ENDS_CLOSING_INCOMING


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any log in any segments."""
    log = draw(logs(start=STATE_OFFSET, min_batches=1))
    # Nothing in front of half of the logs: the state is the identity then.
    entries = draw(st.just(()) | incoming_entries(below=STATE_OFFSET))
    return case_of(log.segments(draw(cuts_of(log))), entries, draw(groupings))


@st.composite
def dense_cases(draw: st.DrawFn) -> Case:
    """One or two producers, and every batch a segment: what is joined with what is left to the grouping."""
    log = draw(logs(start=STATE_OFFSET, min_batches=5, max_batches=9, is_dense=True))
    entries = draw(incoming_entries(below=STATE_OFFSET, pool=(7, 8)))
    return case_of(log.segments(range(1, len(log.batches))), entries, draw(groupings))


def case_of(segments: Sequence[GeneratedLog], entries: Sequence[ProducerEntry], grouping: tuple[int, ...]) -> Case:
    state = state_of(entries)
    effects = tuple(effect_of_log(segment) for segment in segments)
    return Case(state, effects, grouping, tuple(enumerate(truths_of(entries, segments), start=1)))


def completed_of(effect: SegmentEffect, failure: int | None) -> tuple[CompletedTransaction, ...]:
    closes = effect.closes.without_orphans()
    if failure is not None:
        closes = closes.chosen(closes.marker_offset < failure)
    columns = (closes.producer_id, closes.first_offset, closes.marker_offset, closes.is_aborted)
    return tuple(CompletedTransaction(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def check_evidence(effect: SegmentEffect, truth: Truth) -> None:
    names = ("producer_id", "first_epoch", "epoch_decreased", "starts_fresh", "last_batch_kind")
    rows = zip(*(getattr(effect, name)[effect.assigned].tolist() for name in names), strict=True)
    assert {producer_id: Evidence(*evidence) for producer_id, *evidence in rows} == truth.evidence


# ---------------------------------------------------------------------------------------------------------------- properties


@notices_broken_rules
@given(case=cases() | dense_cases())
def test_composed_effects_are_the_fold(case: Case) -> None:
    """Joined in any order, at every boundary."""
    for count, truth in case.truths:
        grouping = case.grouping[count:] + case.grouping[:count]
        evidence = grouped(case.segments[:count], grouping, compose)
        check_evidence(evidence, truth)
        for whole in (grouped((case.state, *case.segments[:count]), grouping, compose), compose(case.state, evidence)):
            assert whole.failure_offset == truth.failure
            if truth.entries is not None:
                assert {entry[0]: entry for entry in entries_of(whole).tolist()} == truth.entries
            assert completed_of(whole, truth.failure) == truth.completed


@notices_broken_rules
@given(log=logs(), cuts=st.data(), block_bytes=block_sizes)
def test_a_segment_in_blocks_is_the_segment(log: GeneratedLog, cuts: st.DataObject, block_bytes: int) -> None:
    whole = effect_of_log(log)
    assert_same(effect_of_log(log, block_bytes), whole)
    segments = log.segments(cuts.draw(cuts_of(log)))
    assert_same(functools.reduce(compose, [effect_of_log(segment, block_bytes) for segment in segments]), whole)


@notices_broken_rules
@given(log=logs(), block_bytes=block_sizes)
def test_the_short_way_for_plain_producers_is_the_long_one(log: GeneratedLog, block_bytes: int) -> None:
    for block in HeaderReader(BytesSegment(log.data), block_bytes=block_bytes):
        rows = np.flatnonzero(block.column("producer_id") >= 0)
        if len(rows):
            assert_same(effect_of_block(block), _grouped_effect(block, rows))


@notices_broken_rules
@given(log=logs(), data=st.data())
def test_associative_with_a_unit(log: GeneratedLog, data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(st.integers(0, len(log.batches)), st.integers(0, len(log.batches)))))
    a, b, c = map(effect_of_log, log.segments([low, high]))
    assert_same(compose(compose(a, b), c), compose(a, compose(b, c)))
    for effect in (a, b, c):
        assert_same(compose(IDENTITY, effect), effect)
        assert_same(compose(effect, IDENTITY), effect)


@notices_broken_rules
@given(log=logs())
def test_batches_of_the_fold_are_what_the_log_means(log: GeneratedLog) -> None:
    found = [batch for block in HeaderReader(BytesSegment(log.data), block_bytes=300) for batch in producer_batches(block)]
    assert found == log.meanings


@notices_broken_rules
@given(
    entries=st.lists(
        st.builds(ProducerEntry, producer_id=st.integers(-3, 3), epoch=st.integers(-1, 9), last_offset=st.integers(0, 9))
    )
)
def test_a_state_is_an_effect(entries: list[ProducerEntry]) -> None:
    """In any order; of two entries of one producer the last counts, as when a broker loads them."""
    effect = state_of(entries)
    expected = {entry.producer_id: entry for entry in entries}
    assert entries_of(effect).tolist() == sorted(astuple(entry) for entry in expected.values())
    state = ProducerState()
    state.load(entries, now_ms=0, expiration_ms=1 << 62)
    assert state.entries == expected


@notices_broken_rules
@given(entries=incoming_entries(below=STATE_OFFSET))
def test_a_state_forgets_what_was_before(entries: tuple[ProducerEntry, ...]) -> None:
    state = state_of(entries)
    older = replace(
        ProducerEntry(7), epoch=8, last_sequence=8, last_offset=8, timestamp=8, coordinator_epoch=8, current_txn_first_offset=8
    )
    before = state_of([older])
    expected = {older.producer_id: astuple(older)} | {entry.producer_id: astuple(entry) for entry in entries}
    assert {entry[0]: entry for entry in entries_of(compose(before, state)).tolist()} == expected
    assert frozenset(parse_snapshot(write_entries(entries_of(state)))) == frozenset(entries)


def test_an_entry_without_a_batch_has_no_sequence() -> None:
    """The file may hold one; a broker ignores it, and every negative first offset is none."""
    odd = ProducerEntry(
        7, 2, last_sequence=77, last_offset=-1, offset_delta=5, timestamp=9, coordinator_epoch=3, current_txn_first_offset=-7
    )
    (entry,) = entries_of(state_of([odd])).tolist()
    assert entry == (7, 2, -1, -1, 0, 9, 3, -1)


# ---------------------------------------------------------------------------------------------------------------- the table

Row = dict[str, int]
BATCH = ("batch", "batch_epoch", "last_sequence", "last_offset", "offset_delta")
TRANSACTION = ("txn_is_set", "txn_first_offset")


def first_of(*offsets: int) -> int:
    return min((offset for offset in offsets if offset != NONE), default=NONE)


def written_by_hand(a: Row, b: Row) -> Row:
    """The table of ``segment_effect`` for one producer that is in both."""
    is_open = a["txn_first_offset"] != NONE
    result = dict(a)
    result |= {name: a[name] | b[name] for name in ("assigned", "marked", "txn_is_set", "epoch_decreased")}
    if b["marked"]:
        result["coordinator_epoch"] = b["coordinator_epoch"]
    if b["txn_is_set"] or not is_open:
        result["txn_first_offset"] = b["txn_first_offset"]
    if b["assigned"]:
        result |= {name: b[name] for name in ("epoch", "timestamp", "last_batch_kind")}
        if b["last_batch_kind"] == ENDS_CLOSING_INCOMING and (is_open or a["txn_is_set"]):
            result["last_batch_kind"] = int(ENDS_CLOSING if is_open else ENDS_CLOSING_NOTHING)
        if a["assigned"] and b["first_epoch"] < a["epoch"]:
            result["epoch_decreased"] = True
    if not a["assigned"]:
        result |= {name: b[name] for name in ("first_epoch", "starts_fresh")}
    # A failure on an open transaction is certain where one is open, impossible where none is, and stays a condition where nothing is known.
    result["fail_always"] = first_of(a["fail_always"], b["fail_always"], b["fail_open"] if is_open else NONE)
    result["fail_open"] = first_of(a["fail_open"], NONE if is_open or a["txn_is_set"] else b["fail_open"])
    return result | batch_by_hand(a, b)


def batch_by_hand(a: Row, b: Row) -> Row:
    """KEEP: what ``a`` says. IF(e): the batch of ``a`` if it was written in epoch e, and IF(e) if ``a`` says nothing."""
    if b["batch"] == KEEP:
        return {name: a[name] for name in BATCH}
    if b["batch"] != IF or a["batch"] == KEEP:
        return {name: b[name] for name in BATCH}
    epoch = a["epoch"] if a["batch"] == SET else a["batch_epoch"]
    if a["batch"] != CLEAR and epoch == b["batch_epoch"]:
        return {name: a[name] for name in BATCH}
    return {"batch": int(CLEAR), **{name: default_of(name) for name in BATCH[1:]}}


def default_of(name: str) -> int:
    return segment_effect.COLUMNS[name][1]


def effect_rows(effect: SegmentEffect) -> dict[int, Row]:
    """By producer id."""
    columns = zip(*(getattr(effect, name).tolist() for name in FIELDS), strict=True)
    return {row[0]: dict(zip(FIELDS, row, strict=True)) for row in columns}


def test_each_cell_of_the_table() -> None:
    rng = random.Random(7)
    first, then = (any_effect(rng, sorted(rng.sample(range(12_000), 9_000))) for _ in range(2))
    before, after, found = effect_rows(first), effect_rows(then), effect_rows(compose(first, then))
    assert list(found) == sorted(before.keys() | after.keys())
    cells = {name: set[object]() for name in ("batch", "transaction", "failure", "evidence")}
    for producer_id, row in found.items():
        a, b = before.get(producer_id), after.get(producer_id)
        if a is None or b is None:
            assert row == (a or b)
            continue
        assert row == written_by_hand(a, b), (a, b)
        known = a["epoch"] if a["batch"] == SET else a["batch_epoch"]
        cells["batch"].add((a["batch"], b["batch"], known == b["batch_epoch"]))
        opened = tuple((each["txn_is_set"], each["txn_first_offset"] != NONE) for each in (a, b))
        cells["transaction"].add(opened)
        cells["failure"].add((*opened[0], *(each[name] != NONE for each in (a, b) for name in ("fail_always", "fail_open"))))
        step = (b["first_epoch"] > a["epoch"]) - (b["first_epoch"] < a["epoch"])
        cells["evidence"].add((a["assigned"], b["assigned"], step, *opened[0], b["last_batch_kind"]))
    assert {name: len(each) for name, each in cells.items()} == {
        "batch": 4 * 4 * 2,
        "transaction": 4 * 4,
        "failure": 4 * 4 * 4,
        "evidence": 2 * 2 * 3 * 4 * 4,
    }


INC, CONST = True, False
OWN, OPEN = 7, 3
"""First offsets: of the marker itself, and of the transaction that is open before."""
RESOLVED: dict[str, tuple[dict[str, object], tuple[bool, int], tuple[bool, int] | None]] = {
    # What is known of the transaction before, and what becomes of INC(own) and of INC(none); None for a marker that closes nothing.
    "SET(x)": ({"txn_is_set": True, "txn_first_offset": OPEN}, (CONST, OPEN), (CONST, OPEN)),
    "SET(none)": ({"txn_is_set": True, "txn_first_offset": NONE}, (CONST, OWN), None),
    "KEEP_OR_SET(x)": ({"txn_is_set": False, "txn_first_offset": OPEN}, (INC, OPEN), (INC, OPEN)),
    "KEEP_OR_SET(none)": ({"txn_is_set": False, "txn_first_offset": NONE}, (INC, OWN), (INC, NONE)),
    "unknown": ({}, (INC, OWN), (INC, NONE)),
}


def test_which_transaction_a_marker_closes() -> None:
    rows = [values for values, *_ in RESOLVED.values() if values]
    columns = identity_rows(np.arange(len(rows)))
    for name in TRANSACTION:
        columns[name] = np.array([values[name] for values in rows], dtype=columns[name].dtype)
    earlier = [(0, CONST, 1, 50, True), (1, CONST, 2, 51, False)]
    found: list[tuple[object, ...]] = []
    expected: list[tuple[object, ...]] = []
    for producer_id, (_, with_own, without) in enumerate(RESOLVED.values()):
        for marker, resolved in (((INC, OWN), with_own), ((INC, NONE), without), ((CONST, OWN), (CONST, OWN))):
            place = 100 + len(found)
            found.append((producer_id, *marker, place, place % 2 == 0))
            expected += [] if resolved is None else [(producer_id, *resolved, place, place % 2 == 0)]
    first = with_closes(SegmentEffect(**columns, closes=NO_CLOSES), earlier)
    assert rows_of(compose(first, with_closes(IDENTITY, found)).closes) == [*earlier, *expected]


def with_closes(effect: SegmentEffect, rows: Sequence[tuple[object, ...]]) -> SegmentEffect:
    types = [getattr(NO_CLOSES, name).dtype for name in CLOSES]
    columns = (np.array(column, dtype=dtype) for column, dtype in zip(zip(*rows, strict=True), types, strict=True))
    return effect.with_closes(ClosedTransactions(*columns))


@notices_broken_rules
@given(logs(min_batches=1, max_batches=24) | logs(min_batches=1, max_batches=24, is_dense=True), st.data())
def test_the_parts_of_a_block_computed_together(log: GeneratedLog, data: st.DataObject) -> None:
    (block,) = HeaderReader(BytesSegment(log.data))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(block)))) | {0, len(block)})
    parts = effects_of_parts(block, np.array(cuts[:-1]))
    for (start, stop), found in zip(pairwise(cuts), parts, strict=True):
        assert_same(found, effect_of_block(block.part(start, stop)))
