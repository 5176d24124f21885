"""Completed transactions and last stable offsets of segments, against the fold and against what brokers wrote into ``.txnindex``."""

import random
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from budgets import EXAMPLES, each_seed, notices_broken_rules
from effects import effect_of_data, state_of
from hypothesis import given
from hypothesis import strategies as st
from manifests import FIXTURES, PartitionFixture
from reference_producer_state import InvalidTransactionStateError, ProducerState
from segment_summaries import summarise_segment
from simulated_broker import Client, SimulatedBroker
from strategies import GeneratedLog, cuts_of, logs

from formats.log.batch_headers import BytesSegment
from formats.partition.producer_snapshot import read_entries
from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, aborted_in, compose, effect_of_entries, index_relevant
from snaprebuild.replay.segment_summary import SegmentSummary

ABORTED = struct.Struct(">hqqqq")
Rows = list[tuple[int, ...]]


def rows_of(entries: list[AbortedTransaction]) -> Rows:
    return [(it.version, it.producer_id, it.first_offset, it.last_offset, it.last_stable_offset) for it in entries]


def by_fold(segments: list[GeneratedLog], state: ProducerState) -> list[Rows]:
    """The index of each segment, asked of the fold before each transaction is completed."""
    return [
        [
            (0, it.producer_id, it.first_offset, it.last_offset, state.last_stable_offset(it))
            for it in state.append(segment.meanings)
            if it.is_aborted
        ]
        for segment in segments
    ]


def by_effects(summaries: list[SegmentSummary], before: SegmentEffect = IDENTITY) -> list[Rows]:
    found = []
    for summary in summaries:
        after = compose(before, summary.effect)
        before = after.without_closes()
        still_open = after.txn_first_offset[after.txn_first_offset >= 0]
        found.append(rows_of(aborted_in(after.closes.without_orphans(), still_open)))
    return found


def summaries_of(segments: list[GeneratedLog]) -> list[SegmentSummary]:
    return [summarise_segment(BytesSegment(segment.data), 0, block_bytes=200) for segment in segments]


@notices_broken_rules
@given(st.data())
def test_generated_logs(data: st.DataObject) -> None:
    log = data.draw(logs(max_batches=25))
    segments = log.segments(data.draw(cuts_of(log)))
    try:
        expected = by_fold(segments, ProducerState())
    except InvalidTransactionStateError:
        return
    assert by_effects(summaries_of(segments)) == expected


def test_simulated_brokers() -> None:
    """Many producers, transactions across segments, some that hang; the oldest open one decides."""
    reached: Counter[str] = Counter()

    @each_seed()
    def holds(seed: int) -> None:
        rng = random.Random(~seed)
        broker = SimulatedBroker(seed, rng.randrange(1, 9))
        segments = [GeneratedLog(tuple(segment.batches)) for segment in broker.segments]
        expected = by_fold(segments, ProducerState())
        assert by_effects(summaries_of(segments)) == expected
        # From the state at a boundary on: what was opened below it is known by its first offset.
        start = rng.randrange(len(segments))
        if start:
            state = ProducerState()
            state.load(broker.segments[start - 1].whole.values(), 0, 1 << 60)
            effect = state_of(state.entries.values())
            assert by_effects(summaries_of(segments[start:]), effect) == expected[start:]
        for base, rows in zip((segment.base_offset for segment in broker.segments), expected, strict=True):
            reached["aborted"] += len(rows)
            reached["begun below"] += sum(first < base for _, _, first, _, _ in rows)
            reached["another is older"] += sum(stable < first for _, _, first, _, stable in rows)
            reached["another is younger"] += sum(first < stable < last for _, _, first, last, stable in rows)
            reached["none"] += sum(stable == last + 1 for _, _, _, last, stable in rows)

    holds()
    assert len(reached) == 5
    assert all(reached.values()), reached


def test_few_closes_are_kept() -> None:
    """Whatever number of transactions commits: one for each producer at most, and two for each that was aborted."""
    reached: Counter[str] = Counter()

    @each_seed()
    def holds(seed: int) -> None:
        effect = effect_of_data(SimulatedBroker(seed, 8).log.data)
        kept = index_relevant(effect.closes)
        assert len(kept) <= len(effect) + 2 * int(kept.is_aborted.sum())
        assert np.count_nonzero(kept.is_aborted) == np.count_nonzero(effect.closes.is_aborted)
        assert len(index_relevant(kept)) == len(kept)
        reached["dropped"] += len(effect.closes) - len(kept)

    holds()
    assert reached["dropped"] > EXAMPLES


def test_by_hand() -> None:
    """Three transactions: 7 open from 0, 8 from 1, 9 from 4; aborts at 3, 6, 8.

    ====== ==== ==== ==== ======= ==== ==== ======= ==== =======
    offset 0    1    2    3       4    5    6       7    8
    batch  7    8    7    abort 8 9    7    abort 7 9    abort 9
    ====== ==== ==== ==== ======= ==== ==== ======= ==== =======
    """
    seven, eight, nine = (Client(producer, is_transactional=True) for producer in (7, 8, 9))
    batches = [seven.data(0, 1, 0), eight.data(1, 1, 0), seven.data(2, 1, 0), eight.marker(3, 0, 0, commit=False)]
    batches += [nine.data(4, 1, 0), seven.data(5, 1, 0), seven.marker(6, 0, 0, commit=False), nine.data(7, 1, 0)]
    batches += [nine.marker(8, 0, 0, commit=False)]
    expected = [(0, 8, 1, 3, 0), (0, 7, 0, 6, 4), (0, 9, 4, 8, 9)]
    log = GeneratedLog(tuple(batches))
    for cut in range(len(batches) + 1):
        first, second = by_effects(summaries_of(log.segments([cut])))
        assert first + second == expected
        assert all(row[3] < cut for row in first)


def on_disk(path: Path) -> Rows:
    return list(ABORTED.iter_unpack(path.read_bytes())) if path.exists() else []


def test_transaction_indexes_of_bundled_partitions(partition_fixture: PartitionFixture) -> None:
    summaries = [summarise_segment(BytesSegment(part.path.read_bytes()), part.base_offset) for part in partition_fixture.segments]
    expected = [on_disk(part.path.with_suffix(".txnindex")) for part in partition_fixture.segments]
    if "compacted" in partition_fixture.partition:
        return  # the cleaner rewrites the index and takes out of it what it took out of the log
    assert by_effects(summaries) == expected
    if partition_fixture.partition.endswith("mixed-0"):
        assert sum(map(len, expected)) > 0


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_transaction_indexes_of_a_tiered_partition(node: str) -> None:
    """Begun on the snapshot at the first offset, true or empty: what was aborted here was also opened here."""
    directory = FIXTURES / "follower-lost-state" / node / "payments-0"
    paths = sorted(directory.glob("*.log"))
    summaries = [summarise_segment(BytesSegment(path.read_bytes()), int(path.stem)) for path in paths]
    before = effect_of_entries(read_entries(paths[0].with_suffix(".snapshot").read_bytes()))
    expected = [on_disk(path.with_suffix(".txnindex")) for path in paths]
    assert sum(map(len, expected)) == 3
    assert by_effects(summaries, before) == expected
