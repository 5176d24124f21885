"""The trace of one producer against the specification fold, and a naive search for the batches that set its fields."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from budgets import FEWER_EXAMPLES, scaled, search_until
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple
from reference_producer_state import (
    DataBatch,
    EmptyControlBatch,
    InvalidTransactionStateError,
    Marker,
    ProducerBatch,
    ProducerState,
)
from simulated_broker import Client, SimulatedBroker
from strategies import CONTROL, TRANSACTIONAL, GeneratedLog, LogBatch, batch_of, cuts_of, header_of, logs

from formats.log.batch_headers import BytesSegment
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.inspect.broker_answer import BATCHES_IN_MEMORY, BatchInMemory, last_sequence_of
from snaprebuild.inspect.producer_trace import ProducerTrace, TraceAnalysis, deciding, traced_rows
from snaprebuild.replay.segment_summary import summarise_pieces

LAST = ("last_sequence", "last_offset", "offset_delta")


def base_offset_of(batch: LogBatch) -> int:
    return batch.header.base_offset


def states_after_each(
    batches: list[LogBatch], producer_id: int
) -> list[tuple[ProducerEntry | None, ProducerEntry | None, LogBatch]]:
    """The entry before and after each batch of a producer, by the fold; up to the first batch on which Kafka throws."""
    state, found = ProducerState(), []
    for batch in batches:
        if batch.meaning is None:
            continue
        before = state.entries.get(producer_id)
        try:
            list(state.append([batch.meaning]))
        except InvalidTransactionStateError:
            break
        if batch.meaning.producer_id == producer_id:
            found.append((before, state.entries.get(producer_id), batch))
    return found


def naive_set_by(steps: list[tuple[ProducerEntry | None, ProducerEntry | None, LogBatch]]) -> dict[str, int]:
    """Base offset of the batch that set each field, derived from how the entry changed and what the batch is."""
    set_by: dict[str, int] = {}
    for before, after, batch in steps:
        assert after is not None
        old, meaning = before or ProducerEntry(after.producer_id), batch.meaning
        at = base_offset_of(batch)
        if isinstance(meaning, DataBatch | Marker):
            set_by["timestamp"] = at
        if after.epoch != old.epoch:
            set_by |= dict.fromkeys(("epoch", *LAST), at)
        if isinstance(meaning, DataBatch):
            set_by |= dict.fromkeys(LAST, at)
        if isinstance(meaning, Marker):
            set_by |= dict.fromkeys(("coordinator_epoch", "current_txn_first_offset"), at)
        elif after.current_txn_first_offset != old.current_txn_first_offset:
            set_by["current_txn_first_offset"] = at
    return set_by


def naive_memory(meanings: list[ProducerBatch]) -> list[tuple[int, int, int]]:
    """The newest batches of the last epoch, as many as a broker keeps: every change of epoch forgets them."""
    found: list[tuple[int, int, int]] = []
    epoch = -1
    for meaning in meanings:
        if isinstance(meaning, DataBatch | Marker) and meaning.epoch != epoch:
            found, epoch = [], meaning.epoch
        if isinstance(meaning, DataBatch):
            last_sequence = last_sequence_of(meaning.base_sequence, meaning.last_offset_delta)
            found.append((meaning.base_sequence, last_sequence, meaning.base_offset))
    return found[-BATCHES_IN_MEMORY:]


def trace_of(segments: list[GeneratedLog], producer_id: int, block_bytes: int) -> ProducerTrace:
    """Traces each segment by itself, block by block."""
    trace = ProducerTrace()
    for segment in segments:
        base = base_offset_of(segment.batches[0]) if segment.batches else 0
        source = BytesSegment(segment.data)
        (piece,) = summarise_pieces(source, base, (), is_last=True, block_bytes=block_bytes, extras=[TraceAnalysis(producer_id)])
        assert len(traced_rows(piece.contents)) <= 10
        trace.take(traced_rows(piece.contents), producer_id)
    return trace


def check(log: GeneratedLog, cuts: list[int], producer_id: int, block_bytes: int, reached: Counter[str]) -> None:
    steps = states_after_each(list(log.batches), producer_id)
    concerned = sum(b.meaning is not None and b.meaning.producer_id == producer_id for b in log.batches)
    if len(steps) < concerned:
        reached["Kafka throws"] += 1
        return
    trace = trace_of(log.segments(cuts), producer_id, block_bytes)
    assert trace.entry == (steps[-1][1] if steps else None)
    assert {name: batch.base_offset for name, batch in trace.set_by.items()} == naive_set_by(steps)
    meanings = [batch.meaning for _, _, batch in steps if batch.meaning is not None]
    assert [astuple(each) for each in trace.in_memory] == naive_memory(meanings)
    positions = {
        base_offset_of(b): (at, b) for part in log.segments(cuts) for b, at in zip(part.batches, part.positions, strict=True)
    }
    starts = [base_offset_of(part.batches[0]) for part in log.segments(cuts) if part.batches]
    for batch in trace.set_by.values():
        assert batch.position_bytes == positions[batch.base_offset][0]
        assert batch.segment == max(start for start in starts if start <= batch.base_offset)
        assert batch.is_data == (not positions[batch.base_offset][1].header.is_control)
    reached["more batches than are kept"] += len(meanings) > 10
    reached["several epochs"] += len({m.epoch for m in meanings if isinstance(m, DataBatch | Marker)}) > 1
    reached["open"] += trace.entry is not None and trace.entry.current_txn_first_offset >= 0
    reached["a batch lost"] += trace.entry is not None and trace.entry.last_offset < 0
    reached["five in memory"] += len(trace.in_memory) == BATCHES_IN_MEMORY


def test_the_trace_is_the_fold_wherever_the_log_is_cut() -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=FEWER_EXAMPLES // 2)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        log = data.draw(logs(max_batches=24, is_dense=True))
        check(log, data.draw(cuts_of(log)), 7, data.draw(st.sampled_from((1, 200, 1 << 20))), reached)

    cases = ("several epochs", "open", "a batch lost")
    search_until(run, lambda: all(reached[what] >= FEWER_EXAMPLES * 0.05 for what in cases))
    for what in cases:
        assert reached[what] >= FEWER_EXAMPLES * 0.05, reached


def test_the_trace_of_long_logs_of_real_clients() -> None:
    reached: Counter[str] = Counter()
    for seed in range(scaled(120)):
        broker = SimulatedBroker(seed, 20, is_steady=True)
        log = broker.log
        cuts = [sum(len(segment.batches) for segment in broker.segments[:at]) for at in range(1, 20, 3)]
        for producer_id in broker.whole.entries:
            check(log, cuts, producer_id, 300, reached)
    for what in ("more batches than are kept", "several epochs", "open", "five in memory"):
        assert reached[what] >= 10, reached


@pytest.mark.parametrize(("closed_first", "cuts"), [(False, []), (True, [3, 12]), (True, list(range(1, 25)))])
def test_a_long_transaction_is_traced_to_its_first_batch(closed_first: bool, cuts: list[int]) -> None:
    client = Client(7, is_transactional=True)
    batches = [client.data(0, 1, 10), client.marker(1, 20, 5, commit=True)] if closed_first else []
    first = len(batches)
    batches += [client.data(first + at, 1, 30 + at) for at in range(25 - first)]
    log = GeneratedLog(tuple(batches))
    check(log, cuts, 7, 1 << 20, Counter())
    assert trace_of(log.segments(cuts), 7, 1 << 20).set_by["current_txn_first_offset"].base_offset == first


def test_a_marker_that_was_compacted_away_makes_an_entry_of_nothing() -> None:
    header = header_of(0, attributes=CONTROL | TRANSACTIONAL, producer_id=7, producer_epoch=2, record_count=0)
    log = GeneratedLog((batch_of(header, b"", EmptyControlBatch(7)),))
    check(log, [], 7, 1 << 20, Counter())
    assert trace_of([log], 7, 1 << 20).entry == ProducerEntry(7)


def test_what_is_kept_may_be_joined_and_cut_down_again() -> None:
    for seed in range(scaled(30)):
        broker = SimulatedBroker(seed, 12, is_steady=True)
        for producer_id in list(broker.whole.entries)[:3]:
            parts = []
            for segment in broker.segments:
                source = BytesSegment(segment.data)
                (piece,) = summarise_pieces(source, segment.base_offset, (), is_last=True, extras=[TraceAnalysis(producer_id)])
                parts.append(traced_rows(piece.contents))
            whole = ProducerTrace()
            whole.take(np.concatenate(parts), producer_id)
            joined = parts[0]
            for _, part in pairwise(parts):
                joined = deciding(np.concatenate((joined, part)))
            once = ProducerTrace()
            once.take(joined, producer_id)
            assert (once.entry, once.set_by, once.in_memory) == (whole.entry, whole.set_by, whole.in_memory)


def test_a_trace_continues_from_a_snapshot() -> None:
    """The batch of the snapshot is in memory, and what no batch sets is unchanged."""
    entry = ProducerEntry(7, 0, 1, 99, 3, 5000, 2, 90)
    trace = ProducerTrace.begun_with(entry)
    assert [astuple(each) for each in trace.in_memory] == [(2**31 - 2, 1, 96)]
    assert trace.memory is not None
    assert asdict(trace.memory) == {"epoch": 0, "batches": (BatchInMemory(2**31 - 2, 1, 96),), "txn_first_offset": 90}
    client = Client(7, is_transactional=True, sequence=2)
    log = GeneratedLog((client.data(100, 1, 6000),))
    (piece,) = summarise_pieces(BytesSegment(log.data), 100, (), is_last=True, extras=[TraceAnalysis(7)])
    trace.take(traced_rows(piece.contents), 7)
    assert trace.entry == ProducerEntry(7, 0, 2, 100, 0, 6000, 2, 90)
    assert set(trace.set_by) == {*LAST, "timestamp"}
    assert [astuple(each) for each in trace.in_memory] == [(2**31 - 2, 1, 96), (2, 2, 100)]
