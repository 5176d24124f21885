"""The running effect against the plain left fold of ``compose``, and against the sequential fold, at every step."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from budgets import EXAMPLES, each_seed, notices_broken_rules
from effects import columns_of, rows_of, state_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple
from reference_producer_state import InvalidTransactionStateError, ProducerState
from simulated_broker import SimulatedBroker
from strategies import GeneratedLog, batch_of, cuts_of, header_of, incoming_entries, logs

from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_effect import COLUMNS, IDENTITY, RunningEffect, SegmentEffect, compose, entries_of, joined, stacked

TRANSACTIONAL = 1 << 4
STATE_OFFSET = 1000
"""Offset of the state that comes before a log."""


def effect_of(log: GeneratedLog) -> SegmentEffect:
    """The effect of a segment of one block, with columns that cannot be written to: shared values must never change."""
    effect = next((effect_of_block(block) for block in HeaderReader(BytesSegment(log.data))), IDENTITY)
    for name in COLUMNS:
        getattr(effect, name).flags.writeable = False
    return effect


def holds(effects: Sequence[SegmentEffect], first: SegmentEffect, asked: Sequence[bool]) -> int:
    """Equal to the left fold at every step, whatever totals were asked for on the way, and afterwards in any order. Most levels at once."""
    folded = list(accumulate((effect.without_closes() for effect in (first, *effects)), compose))
    running, states, levels = RunningEffect(first), [], 0
    for (before, after), effect, is_asked in zip(pairwise(folded), effects, asked, strict=True):
        closes = compose(before, effect).closes
        assert rows_of(running.resolved(effect.closes)) == rows_of(closes)
        running = running.then(effect)
        assert running.failure_offset == after.failure_offset
        opened = after.txn_first_offset != -1
        assert running.open_first_offset.tolist() == after.txn_first_offset[opened].tolist()
        for producer_id in (*after.producer_id[:: 1 + len(after) // 4].tolist(), 12345):
            row = after.chosen(np.flatnonzero(after.producer_id == producer_id))
            assert columns_of(running.of_producer(producer_id)) == columns_of(row)
        levels = max(levels, len(running._levels))
        if is_asked:
            assert columns_of(running.total()) == columns_of(after)
            assert running.total() is running.total(), "the work is done once"
            assert running._levels == (running.total(),)
        states.append((running, after))
    for state, after in states[::-2] + states[::2]:
        total = state.total()
        assert columns_of(total) == columns_of(after)
        assert not len(total.closes)
    return levels


@notices_broken_rules
@given(
    log=logs(start=STATE_OFFSET, max_batches=25) | logs(start=STATE_OFFSET, max_batches=12, is_dense=True),
    entries=st.just(()) | incoming_entries(below=STATE_OFFSET),
    data=st.data(),
)
def test_any_log_in_any_segments(log: GeneratedLog, entries: tuple[ProducerEntry, ...], data: st.DataObject) -> None:
    segments = log.segments(data.draw(cuts_of(log)))
    effects = [effect_of(segment) for segment in segments]
    state = state_of(entries)
    count = len(effects)
    holds(effects, state, data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    # Without anything known before, and from the composed effect of the first ones on: a replay may begin in the middle.
    asked = [False] * count
    holds(effects, IDENTITY, asked)
    if count:
        holds(effects[1:], effects[0], asked[1:])
    by_fold(segments, effects, entries)


def by_fold(segments: Sequence[GeneratedLog], effects: Sequence[SegmentEffect], entries: Sequence[ProducerEntry]) -> None:
    """The sequential fold: states, open transactions and the failure, at the same step."""
    state = ProducerState()
    state.load(entries, now_ms=0, expiration_ms=1 << 62)
    running = RunningEffect(state_of(entries))
    for segment, effect in zip(segments, effects, strict=True):
        running, failure = running.then(effect), None
        try:
            list(state.append(segment.meanings))
        except InvalidTransactionStateError as error:
            failure = error.offset
        assert running.failure_offset == failure
        if failure is not None:
            return
        assert {row[0]: row for row in entries_of(running.total()).tolist()} == {
            key: astuple(entry) for key, entry in state.entries.items()
        }
        opened = [entry.current_txn_first_offset for entry in state.entries.values()]
        assert sorted(running.open_first_offset.tolist()) == sorted(first for first in opened if first >= 0)


def test_simulated_brokers() -> None:
    """Many producers and many segments: several levels at once, transactions that go through them."""
    reached: Counter[str] = Counter()

    @each_seed(EXAMPLES // 2)
    def each(seed: int) -> None:
        batches = 1 + seed % 4
        log = SimulatedBroker(seed, 14).log
        segments = log.segments(range(batches, len(log.batches), batches))
        effects = [effect_of(segment) for segment in segments]
        asked = [seed % 2 and (seed >> at % 64) % 8 == 0 for at in range(len(effects))]
        levels = holds(effects, IDENTITY, asked)
        reached["levels"] = max(reached["levels"], levels)
        reached["incoming"] += any(effect.closes.is_incoming.any() for effect in effects[1:])
        by_fold(segments, effects, ())

    each()
    assert reached["levels"] >= 3
    assert reached["incoming"] > EXAMPLES // 8


def test_plain_data_within_a_transaction_of_an_earlier_segment() -> None:
    """Kafka throws on it. By hand: producer 7 opens a transaction at offset 0 and writes at 1 without one."""
    begins, breaks = (
        GeneratedLog((batch_of(header_of(at, attributes=attributes, producer_id=7, producer_epoch=0, base_sequence=at), b""),))
        for at, attributes in ((0, TRANSACTIONAL), (1, 0))
    )
    running = RunningEffect().then(effect_of(begins))
    assert (running.failure_offset, running.open_first_offset.tolist()) == (None, [0])
    assert running.then(effect_of(breaks)).failure_offset == 1


def test_work_is_by_likes() -> None:
    """A thousand effects of one row each, all of another producer: few levels, and no row is composed often."""
    levels: tuple[SegmentEffect, ...] = ()
    composed = most = 0
    for producer_id in range(1000):
        before = levels
        entry = ProducerEntry(producer_id, epoch=0, last_offset=producer_id)
        levels = stacked(levels, state_of([entry]))
        composed += len(levels[-1]) if len(levels) <= len(before) else 0
        most = max(most, len(levels))
    assert most <= 10
    assert composed <= 10 * 1000
    assert joined(levels).producer_id.tolist() == list(range(1000))
