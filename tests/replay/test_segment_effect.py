"""Segment effects: composed in any way they are the fold, and every cell of the table by which they compose is needed.

The second half is a mutation check: each cell is broken in turn, in the result of ``compose`` and only for the rows that fall into it, and
the property of the first half must fail. A mutation that survives fails the test.
"""

# ruff: noqa: ARG005  (every mutation has one signature, whatever it needs of it)

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from effects import CLOSES, assert_same, effect_of_data, rows_of, state_of
from hypothesis import given
from hypothesis import strategies as st
from simulated_broker import Client
from strategies import (
    CONTROL,
    GeneratedLog,
    LogBatch,
    batch_of,
    block_sizes,
    cuts_of,
    grouped,
    groupings,
    header_of,
    incoming_entries,
    logs,
)

from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot, write_entries
from snaprebuild.replay import segment_effect
from snaprebuild.replay.block_effect import _grouped_effect, effect_of_block
from snaprebuild.replay.reference.producer_state import (
    CompletedTransaction,
    DataBatch,
    EmptyControlBatch,
    InvalidTransactionStateError,
    Marker,
    ProducerState,
    producer_batches,
)
from snaprebuild.replay.segment_effect import (
    CLEAR,
    ENDS_CLOSING,
    ENDS_CLOSING_INCOMING,
    ENDS_CLOSING_NOTHING,
    ENDS_WITH_DATA,
    IDENTITY,
    IF,
    KEEP,
    SET,
    ClosedTransactions,
    SegmentEffect,
    compose,
    entries_of,
    resolve_closes,
)

Compose = Callable[[SegmentEffect, SegmentEffect], SegmentEffect]
NONE = -1
COLUMNS = [column.name for column in fields(SegmentEffect) if column.name != "closes"]
STATE_OFFSET = 1000
"""Where the state stands that comes before a log: its transactions begin below."""


def effect_of_log(log: GeneratedLog, block_bytes: int = 8 << 20) -> SegmentEffect:
    return effect_of_data(log.data, block_bytes)


# ---------------------------------------------------------------------------------------------------------------- the truth


@dataclass(frozen=True)
class Evidence:
    """What a run of batches shows of one producer beside its effect."""

    first_epoch: int
    epoch_decreased: bool
    starts_fresh: bool
    end: int


@dataclass(frozen=True)
class Truth:
    """What the fold says behind a prefix of the segments; ``entries`` are None where Kafka throws at the batch at ``failure``."""

    entries: dict[int, tuple[int, ...]] | None
    failure: int | None
    completed: tuple[CompletedTransaction, ...]
    evidence: dict[int, Evidence]


@dataclass(frozen=True)
class Case:
    """A state and the segments behind it, each as an effect, with the truth behind so many segments."""

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


def check(case: Case, join: Compose) -> None:
    """The property: joined in any order, effects are the fold, at every boundary."""
    for count, truth in case.truths:
        grouping = case.grouping[count:] + case.grouping[:count]
        evidence = grouped(case.segments[:count], grouping, join)
        check_evidence(evidence, truth)
        for whole in (grouped((case.state, *case.segments[:count]), grouping, join), join(case.state, evidence)):
            assert whole.failure_offset == truth.failure
            if truth.entries is not None:
                assert {entry[0]: entry for entry in entries_of(whole).tolist()} == truth.entries
            assert completed_of(whole, truth.failure) == truth.completed


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


@given(case=cases() | dense_cases())
def test_composed_effects_are_the_fold(case: Case) -> None:
    check(case, compose)


@given(log=logs(), cuts=st.data(), block_bytes=block_sizes)
def test_a_segment_in_blocks_is_the_segment(log: GeneratedLog, cuts: st.DataObject, block_bytes: int) -> None:
    whole = effect_of_log(log)
    assert_same(effect_of_log(log, block_bytes), whole)
    segments = log.segments(cuts.draw(cuts_of(log)))
    assert_same(functools.reduce(compose, [effect_of_log(segment, block_bytes) for segment in segments]), whole)


@given(log=logs(), block_bytes=block_sizes)
def test_the_short_way_for_plain_producers_is_the_long_one(log: GeneratedLog, block_bytes: int) -> None:
    for block in HeaderReader(BytesSegment(log.data), block_bytes=block_bytes):
        rows = np.flatnonzero(block.column("producer_id") >= 0)
        if len(rows):
            assert_same(effect_of_block(block), _grouped_effect(block, rows))


@given(log=logs(), data=st.data())
def test_associative_with_a_unit(log: GeneratedLog, data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(st.integers(0, len(log.batches)), st.integers(0, len(log.batches)))))
    a, b, c = map(effect_of_log, log.segments([low, high]))
    assert_same(compose(compose(a, b), c), compose(a, compose(b, c)))
    for effect in (a, b, c):
        assert_same(compose(IDENTITY, effect), effect)
        assert_same(compose(effect, IDENTITY), effect)


@given(log=logs(start=STATE_OFFSET), entries=incoming_entries(below=STATE_OFFSET), data=st.data())
def test_prefix_scan_without_closes_is_the_same_state(
    log: GeneratedLog, entries: tuple[ProducerEntry, ...], data: st.DataObject
) -> None:
    segments = [effect_of_log(segment) for segment in log.segments(data.draw(cuts_of(log)))]
    state = state_of(entries)
    whole = list(accumulate([state, *segments], compose))
    prefixes = list(accumulate([state, *(segment.without_closes() for segment in segments)], compose))
    closed: list[tuple[object, ...]] = []
    for (before, after), expected, segment in zip(pairwise(prefixes), whole[1:], segments, strict=True):
        assert len(after.closes) == 0
        for name in COLUMNS:
            assert getattr(after, name).tolist() == getattr(expected, name).tolist()
        # What a scan without them leaves out is found again from the state in front of each segment.
        closed += rows_of(resolve_closes(before, segment.closes).without_orphans())
        assert closed == rows_of(expected.closes.without_orphans())


@given(log=logs())
def test_batches_of_the_fold_are_what_the_log_means(log: GeneratedLog) -> None:
    found = [batch for block in HeaderReader(BytesSegment(log.data), block_bytes=300) for batch in producer_batches(block)]
    assert found == log.meanings


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


def test_of_two_failures_the_first_is_told() -> None:
    """Outside of the incoming transaction at 1000, outside of the own one at 1020, and at 1030 once more."""
    effect = functools.reduce(compose, (spelled(letter, place)[1] for place, letter in enumerate((2, 0, 2, 3))))
    assert (effect.fail_open.tolist(), effect.fail_always.tolist()) == ([1000], [1020])
    assert effect.failure_offset == 1020
    opened = state_of(STATES[1])
    assert compose(opened, effect).failure_offset == 1000
    assert IDENTITY.failure_offset is None


# ---------------------------------------------------------------------------------------------------------------- mutations

Where = dict[str, object]
FEATURES: dict[str, Callable[[SegmentEffect, SegmentEffect], np.ndarray]] = {
    **{f"a.{name}": lambda a, b, name=name: getattr(a, name) for name in COLUMNS},
    **{f"b.{name}": lambda a, b, name=name: getattr(b, name) for name in COLUMNS},
    "a.is_open": lambda a, b: a.txn_first_offset != NONE,
    "b.is_open": lambda a, b: b.txn_first_offset != NONE,
    "a.fails": lambda a, b: a.fail_always != NONE,
    "b.fails": lambda a, b: b.fail_always != NONE,
    "a.fails_if_open": lambda a, b: a.fail_open != NONE,
    "b.fails_if_open": lambda a, b: b.fail_open != NONE,
    "same epoch": lambda a, b: np.where(a.batch == SET, a.epoch, a.batch_epoch) == b.batch_epoch,
    "epoch step": lambda a, b: np.sign(b.first_epoch.astype(np.int64) - a.epoch),
}
"""What decides into which cell of the table a producer falls; ``a`` and ``b`` have a row for every producer of the result."""


@dataclass(frozen=True)
class Mutation:
    """``compose`` with one cell of its table wrong.

    Attributes:
        where: the features of the cell.
        wrong: other values of some columns of the result: ``a`` or ``b`` for what those have, ``not`` for the opposite, a function of
            both and of the result, or a constant.
    """

    where: Where
    wrong: dict[str, object]

    @property
    def name(self) -> str:
        def text(values: dict[str, object]) -> str:
            return " ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in values.items())

        return f"{text(self.wrong)} where {text(self.where)}"

    def __call__(self, first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
        result = compose(first, then)
        a, b = (segment_effect.aligned(effect, result.producer_id) for effect in (first, then))
        rows = np.ones(len(result), dtype=bool)
        for feature, value in self.where.items():
            rows &= FEATURES[feature](a, b) == value
        if not rows.any():
            return result
        columns = {name: getattr(result, name) for name in COLUMNS}
        for name, wrong in self.wrong.items():
            sources = {"a": getattr(a, name), "b": getattr(b, name), "not": ~columns[name]}
            values = wrong(a, b, result) if callable(wrong) else sources.get(str(wrong), wrong)
            columns[name] = np.where(rows, values, columns[name]).astype(columns[name].dtype)
        return SegmentEffect(**columns, closes=result.closes)


@dataclass(frozen=True)
class Forgotten:
    """``compose`` that loses the producers of ``cell``: the first value of the table, ``touched``."""

    name: str
    in_first: bool
    in_then: bool

    def __call__(self, first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
        result = compose(first, then)
        ids = result.producer_id
        lost = (np.isin(ids, first.producer_id) == self.in_first) & (np.isin(ids, then.producer_id) == self.in_then)
        return result.chosen(~lost)


@dataclass(frozen=True)
class WrongClose:
    """``compose`` with one cell of the resolution of ``closes`` wrong: which first offset a marker of ``then`` closes.

    Attributes:
        is_incoming: the cell is about INC (True) or CONST (False).
        has_own: with a first offset of its own, or none.
        before: what ``first`` says about the transaction of that producer.
        wrong: what becomes of it: INC or CONST, and which offset (its own, the one that was open, or a number); None if it is missing.
    """

    is_incoming: bool
    has_own: bool
    before: str
    wrong: tuple[bool, str | int] | None

    @property
    def name(self) -> str:
        kind = f"{'INC' if self.is_incoming else 'CONST'}({'x' if self.has_own else 'none'})"
        became = "missing" if self.wrong is None else f"{'INC' if self.wrong[0] else 'CONST'}({self.wrong[1]})"
        return f"close {kind} after {self.before} is {became}"

    def __call__(self, first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
        found: list[tuple[object, ...]] = []
        for producer_id, is_incoming, own, marker_offset, is_aborted in rows_of(then.closes):
            before, opened = state_before(first, producer_id)
            resolved = resolution_of(is_incoming, own, before, opened)
            if (self.is_incoming, self.has_own, self.before) == (is_incoming, own != NONE, before):
                offsets = {"own": own, "opened": opened}
                resolved = self.wrong and (self.wrong[0], offsets.get(self.wrong[1], self.wrong[1]))
            if resolved is not None:
                found.append((producer_id, *resolved, marker_offset, is_aborted))
        return with_closes(compose(first, then), [*rows_of(first.closes), *found])


def with_closes(effect: SegmentEffect, rows: Sequence[tuple[object, ...]]) -> SegmentEffect:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(CLOSES)
    types = [getattr(effect.closes, name).dtype for name in CLOSES]
    arrays = [np.array(column, dtype=dtype) for column, dtype in zip(columns, types, strict=True)]
    return SegmentEffect(**{name: getattr(effect, name) for name in COLUMNS}, closes=ClosedTransactions(*arrays))


def state_before(effect: SegmentEffect, producer_id: object) -> tuple[str, int]:
    where = np.flatnonzero(effect.producer_id == producer_id)
    if not len(where):
        return "unknown", NONE
    opened = int(effect.txn_first_offset[where[0]])
    return ("SET" if effect.txn_is_set[where[0]] else "KEEP_OR_SET") + ("(x)" if opened != NONE else "(none)"), opened


def resolution_of(is_incoming: bool, own: int, before: str, opened: int) -> tuple[bool, int] | None:
    """The table, once more and by hand."""
    if not is_incoming:
        return False, own
    match before:
        case "SET(x)":
            return False, opened
        case "SET(none)":
            return (False, own) if own != NONE else None
        case "KEEP_OR_SET(x)":
            return True, opened
        case _:
            return True, own


@dataclass(frozen=True)
class WrongList:
    """``compose`` with a mistake in how the two lists of ``closes`` are put together."""

    name: str
    wrong: Callable[[list[tuple[object, ...]], int], list[tuple[object, ...]]]

    def __call__(self, first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
        result = compose(first, then)
        return with_closes(result, self.wrong(rows_of(result.closes), len(first.closes)))


AnyMutation = Mutation | Forgotten | WrongClose | WrongList
BOTH = (False, True)
KINDS = (KEEP, IF, SET, CLEAR)
BATCH = ("batch", "batch_epoch", "last_sequence", "last_offset", "offset_delta")
NO_BATCH = {name: segment_effect.COLUMNS[name][1] for name in BATCH[1:]}


def last_writer_wins() -> Iterator[Mutation]:
    """E, T, C: b's constant, else a's."""
    for flag, names in (("assigned", ("epoch", "timestamp")), ("marked", ("coordinator_epoch",))):
        for in_a, in_b in itertools.product(BOTH, repeat=2):
            where: Where = {f"a.{flag}": in_a, f"b.{flag}": in_b}
            yield Mutation(where, {flag: "not"})
            if in_a or in_b:
                yield from (Mutation(where, {name: "a" if in_b else "b"}) for name in names)


def batch_result(kind_a: np.uint8, kind_b: np.uint8, equal: bool | None) -> np.uint8:
    """The table, by hand: what the cell should give."""
    if kind_b == KEEP:
        return kind_a
    if kind_b in (SET, CLEAR):
        return kind_b
    if kind_a == KEEP:
        return IF
    return kind_a if equal else CLEAR


def last_epoch(_a: SegmentEffect, _b: SegmentEffect, r: SegmentEffect) -> np.ndarray:
    return r.epoch


def another_epoch(_a: SegmentEffect, _b: SegmentEffect, r: SegmentEffect) -> np.ndarray:
    return np.where(r.batch_epoch == 0, 1, 0)


def batches() -> Iterator[Mutation]:
    """B: every pair, IF(e) with the epoch that it asks for and without."""
    for kind_a, kind_b in itertools.product(KINDS, repeat=2):
        for equal in BOTH if kind_b == IF and kind_a in (IF, SET) else (None,):
            where: Where = {"a.batch": kind_a, "b.batch": kind_b} | ({} if equal is None else {"same epoch": equal})
            right = batch_result(kind_a, kind_b, equal)
            yield from (Mutation(where, {"batch": kind, **NO_BATCH}) for kind in (KEEP, CLEAR) if kind != right)
            if (right == CLEAR != kind_a) or kind_a == kind_b == SET:
                yield Mutation(where, dict.fromkeys(BATCH, "a"))
            if right == CLEAR != kind_b:
                yield Mutation(where, {"batch": IF, **NO_BATCH, "batch_epoch": last_epoch})
            if right == IF:
                yield Mutation(where, {"batch_epoch": another_epoch})
            if right == SET:
                yield from (Mutation(where, {name: NO_BATCH[name] - 1}) for name in BATCH[2:])


def stays_open(a: SegmentEffect, _b: SegmentEffect, _r: SegmentEffect) -> np.ndarray:
    return np.where(a.txn_first_offset != NONE, a.txn_first_offset, 5)


def transactions() -> Iterator[Mutation]:
    """X: every pair of KEEP_OR_SET and SET, with a first offset and without."""
    for a_set, a_open, b_set, b_open in itertools.product(BOTH, repeat=4):
        where: Where = {"a.txn_is_set": a_set, "a.is_open": a_open, "b.txn_is_set": b_set, "b.is_open": b_open}
        yield Mutation(where, {"txn_is_set": "not"})
        yield Mutation(where, {"txn_first_offset": NONE if b_open or (a_open and not b_set) else stays_open})
        if a_open and b_open:
            yield Mutation(where, {"txn_first_offset": "a" if b_set else "b"})


def b_fail_open(_a: SegmentEffect, b: SegmentEffect, _r: SegmentEffect) -> np.ndarray:
    return b.fail_open


CAUGHT_OPEN = {"b.fails_if_open": True, "a.is_open": True, "a.fails": False, "b.fails": False}
UNDECIDED = {"b.fails_if_open": True, "a.is_open": False, "a.txn_is_set": False}
NOT_OPEN = {"b.fails_if_open": True, "a.is_open": False, "a.txn_is_set": True}
FAILURES = [
    Mutation({"a.fails": True}, {"fail_always": NONE}),
    Mutation({"a.fails": False, "b.fails": True}, {"fail_always": NONE}),
    *(Mutation({**CAUGHT_OPEN, "a.txn_is_set": is_set}, {"fail_always": NONE}) for is_set in BOTH),
    *(Mutation({**CAUGHT_OPEN, "a.txn_is_set": is_set}, {"fail_always": NONE, "fail_open": "b"}) for is_set in BOTH),
    Mutation({**UNDECIDED, "a.fails_if_open": False}, {"fail_open": NONE}),
    Mutation(UNDECIDED, {"fail_always": b_fail_open}),
    Mutation(NOT_OPEN, {"fail_open": "b"}),
    Mutation(NOT_OPEN, {"fail_always": b_fail_open}),
    Mutation({"a.fails_if_open": True}, {"fail_open": NONE}),
    # Of two failures the second is told.
    Mutation({**UNDECIDED, "a.fails_if_open": True}, {"fail_open": "b"}),
    Mutation({"a.fails": True, "b.fails": True}, {"fail_always": "b"}),
    Mutation({"a.fails": True, "b.fails_if_open": True, "a.is_open": True}, {"fail_always": b_fail_open}),
    Mutation({"a.fails": False, "b.fails": True, "b.fails_if_open": True, "a.is_open": True}, {"fail_always": "b"}),
]


def of_either(a: SegmentEffect, b: SegmentEffect, _r: SegmentEffect) -> np.ndarray:
    return a.epoch_decreased | b.epoch_decreased


def another_end(_a: SegmentEffect, _b: SegmentEffect, r: SegmentEffect) -> np.ndarray:
    return (r.last_batch_kind + 1) % 4


OF_BOTH, ONLY_A, ONLY_B = ({"a.assigned": in_a, "b.assigned": in_b} for in_a, in_b in ((True, True), (True, False), (False, True)))
EVIDENCE = [
    *(
        Mutation(where, {name: source})
        for name in ("first_epoch", "starts_fresh")
        for where, source in ((OF_BOTH, "b"), (ONLY_A, "b"), (ONLY_B, "a"))
    ),
    Mutation({"a.epoch_decreased": True}, {"epoch_decreased": "b"}),
    Mutation({"b.epoch_decreased": True}, {"epoch_decreased": "a"}),
    Mutation({**OF_BOTH, "epoch step": -1}, {"epoch_decreased": of_either}),
    Mutation({**OF_BOTH, "epoch step": 0}, {"epoch_decreased": True}),
    Mutation(ONLY_A, {"last_batch_kind": another_end}),
    *(
        Mutation({**OF_BOTH, "b.last_batch_kind": end}, {"last_batch_kind": another_end})
        for end in (ENDS_WITH_DATA, ENDS_CLOSING, ENDS_CLOSING_NOTHING)
    ),
    *(
        Mutation(
            {"b.last_batch_kind": ENDS_CLOSING_INCOMING, "a.txn_is_set": is_set, "a.is_open": is_open},
            {"last_batch_kind": another_end},
        )
        for is_set, is_open in itertools.product(BOTH, repeat=2)
    ),
]


INC, CONST = True, False
WRONG_CLOSES: dict[str, list[tuple[bool, str | int] | None]] = {
    "SET(x)": [(INC, "opened"), None],
    "SET(none)": [(INC, "own")],
    "KEEP_OR_SET(x)": [(INC, "own"), (CONST, "opened"), None],
    "KEEP_OR_SET(none)": [None],
    "unknown": [None],
}
"""What becomes of an INC by mistake, by the state before it."""


def closes() -> Iterator[AnyMutation]:
    """INC(x) against every state; a wrong CONST, a wrong INC, a close that should not be there, one that is missing."""
    for before, wrong in WRONG_CLOSES.items():
        yield from (WrongClose(INC, has_own, before, each) for each in wrong for has_own in BOTH)
        if "KEEP_OR_SET(x)" != before != "SET(none)":
            yield WrongClose(INC, True, before, (CONST, "own"))
        yield from (WrongClose(CONST, True, before, each) for each in (None, (INC, "own")))
        if "(x)" in before:
            yield WrongClose(CONST, True, before, (CONST, "opened"))
    yield WrongClose(INC, True, "SET(none)", None)
    yield WrongClose(INC, False, "SET(none)", (CONST, 5))
    yield WrongList("closes-b-before-a", lambda rows, count: [*rows[count:], *rows[:count]])
    yield WrongList("closes-of-a-lost", lambda rows, count: rows[count:])
    yield WrongList("closes-of-b-lost", lambda rows, count: rows[:count])
    yield WrongList(
        "closes-aborted-of-a", lambda rows, count: [(*row[:4], not row[4]) if i < count else row for i, row in enumerate(rows)]
    )
    yield WrongList(
        "closes-aborted-of-b", lambda rows, count: [(*row[:4], not row[4]) if i >= count else row for i, row in enumerate(rows)]
    )


MUTATIONS: list[AnyMutation] = [
    Forgotten("touched-by-a-only", in_first=True, in_then=False),
    Forgotten("touched-by-b-only", in_first=False, in_then=True),
    Forgotten("touched-by-both", in_first=True, in_then=True),
    *last_writer_wins(),
    *batches(),
    *transactions(),
    *FAILURES,
    *closes(),
    *EVIDENCE,
]


def empty_control(offset: int, producer_id: int) -> LogBatch:
    header = header_of(offset, attributes=CONTROL, producer_id=producer_id, producer_epoch=5, record_count=0)
    return batch_of(header, b"", EmptyControlBatch(producer_id))


LETTERS: tuple[Callable[[int], LogBatch], ...] = (
    lambda offset: Client(7, True).data(offset, 2, offset),
    lambda offset: Client(7, True, epoch=1, sequence=3).data(offset, 3, offset),
    lambda offset: Client(7, False).data(offset, 4, offset),
    lambda offset: Client(7, False, epoch=1, sequence=8).data(offset, 5, offset),
    lambda offset: Client(7, True).marker(offset, offset, 4, commit=True),
    lambda offset: Client(7, True, epoch=1).marker(offset, offset, 3, commit=False),
    lambda offset: Client(7, True, epoch=1).marker(offset, offset, 6, commit=True),
    lambda offset: empty_control(offset, 7),
    lambda offset: Client(8, True, sequence=5).data(offset, 1, offset),
    lambda offset: Client(8, True).marker(offset, offset, 1, commit=False),
    lambda offset: empty_control(offset, 8),
)
"""An alphabet: a random log over it meets every cell of the table soon."""

STATES: tuple[tuple[ProducerEntry, ...], ...] = (
    (),
    (ProducerEntry(7, 0, 9, 900, 9, 99, 2, 890),),
    (ProducerEntry(7, 1, -1, -1, 0, 98, -1, 880), ProducerEntry(8, 0, 7, 950, 0, 97, 7, 950)),
    (ProducerEntry(7, 1, 6, 905, 1, 96, 1, -1),),
)


@functools.cache
def spelled(letter: int, place: int) -> tuple[LogBatch, SegmentEffect]:
    """The batch of a letter at a place of the log, and its effect, through bytes and the reader."""
    batch = LETTERS[letter](STATE_OFFSET + 10 * place)
    return batch, effect_of_log(GeneratedLog((batch,)))


def random_cases(count: int) -> Iterator[Case]:
    """Short logs over the alphabet behind a state, joined in any way: always the same ones, whatever the version of Hypothesis."""
    chance = random.Random(2024)
    for _ in range(count):
        word = chance.choices(range(len(LETTERS)), k=chance.randint(1, 6))
        batches, effects = zip(*(spelled(letter, place) for place, letter in enumerate(word)), strict=True)
        entries = chance.choice(STATES)
        ((_, truth),) = enumerate(truths_of(entries, [GeneratedLog(batches)]))
        state = state_of(entries)
        yield Case(state, effects, tuple(chance.choices(range(60), k=11)), ((len(word), truth),))


class Corpus:
    """``random_cases``, kept for the next mutation."""

    CASES = 20_000
    """Twice and more of what the rarest cell needs."""

    def __init__(self) -> None:
        self._made: list[Case] = []
        self._source = random_cases(self.CASES)

    def __iter__(self) -> Iterator[Case]:
        yield from self._made
        for case in self._source:
            self._made.append(case)
            yield case


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


def fails(case: Case, join: Compose) -> bool:
    try:
        check(case, join)
    except AssertionError:
        return True
    return False


def test_names_of_mutations_are_unique() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) > 150


def test_nothing_fails_without_a_mutation(corpus: Corpus) -> None:
    harmless = WrongClose(INC, True, "KEEP_OR_SET(x)", (INC, "opened"))
    for case in itertools.islice(corpus, 600):
        check(case, compose)
    for case in itertools.islice(corpus, 100):
        check(case, harmless)
        check(case, WrongList("right", lambda rows, count: rows))


@pytest.mark.full
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_each_cell_is_needed(mutation: AnyMutation, corpus: Corpus) -> None:
    assert any(fails(case, mutation) for case in corpus), "the property does not see that this cell is wrong"
