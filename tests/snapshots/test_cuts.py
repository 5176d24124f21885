"""The state at offsets inside segments: that of the fold over every batch which ends below, and nothing else changes for it."""

import shutil
from collections import Counter
from pathlib import Path

from budgets import FEWER_EXAMPLES, search_until
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import write_partition
from reference_producer_state import InvalidTransactionStateError, ProducerState
from replays import EXACT, EXACT_FROM_LOG_START, NOW, UNSOUND, YOUNG, Hand, Run, entries_in, put_snapshot, run
from sentences import NOT_ON_DISK
from simulated_broker import Client, listed
from strategies import GeneratedLog, logs

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.segment_effect import aborted_in
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import read_tasks


def at_boundaries(result: Run) -> list[tuple[object, ...]]:
    """Everything that is handed out at boundaries, in a form that can be compared, with what belongs into each ``.txnindex``."""
    found: list[tuple[object, ...]] = []
    for state in result.states:
        if state.is_cut:
            assert state.closes is None
            continue
        assert state.closes is not None
        facts = (state.offset, state.is_log_end, state.judgement.snapshot_class, state.is_complete, state.replayed_from_offset)
        found.append((*facts, state.entries.tolist(), aborted_in(state.closes.without_orphans(), state.prefix.open_first_offset)))
    return found


def segments_of(log: GeneratedLog, at: list[int]) -> dict[int, bytes]:
    """Segments that begin before the batches with these indices, each at the offset where the one before ends."""
    found, base = {}, 0
    for low, high in zip([0, *at], [*at, len(log.batches)], strict=True):
        found[base] = b"".join(batch.data for batch in log.batches[low:high])
        base = log.batches[high - 1].header.last_offset + 1
    return found


def folded(log: GeneratedLog, offset: int) -> dict[int, ProducerEntry] | None:
    """The fold of what ends below ``offset``; None where Kafka throws on it."""
    state = ProducerState()
    try:
        list(state.append(each.meaning for each in log.batches if each.header.last_offset < offset and each.meaning is not None))
    except InvalidTransactionStateError:
        return None
    return dict(state.entries)


def test_any_offsets_of_odd_logs(tmp_path: Path) -> None:
    """With gaps, old messages, and whatever no legal log shows."""
    reached: Counter[str] = Counter()

    @settings(max_examples=FEWER_EXAMPLES)
    @given(logs(min_batches=1, max_batches=20, start=0), st.data())
    def holds(log: GeneratedLog, data: st.DataObject) -> None:
        at = sorted(data.draw(st.sets(st.integers(1, max(len(log.batches) - 1, 1)), max_size=3)) - {len(log.batches)})
        ends = [end for batch in log.batches for end in (batch.header.base_offset, batch.header.last_offset + 1)]
        near = sorted({end + step for end in ends for step in (-1, 0, 1) if end + step >= 0})
        cuts = sorted(data.draw(st.sets(st.sampled_from(near), max_size=8)))
        segments = segments_of(log, at)
        directory = listed(write_partition(tmp_path / "t-0", segments))
        try:
            result = run(directory, ReplayFrom.LOG_START, cuts=cuts)
            plain = run(directory, ReplayFrom.LOG_START)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        assert at_boundaries(result) == at_boundaries(plain)
        assert result.replay.damage == plain.replay.damage
        inside = {cut for cut in cuts if cut not in segments and cut < max(ends)}
        assert {state.offset for state in result.states if state.is_cut} == {cut for cut in inside if folded(log, cut) is not None}
        for state in result.states:
            assert entries_in(state.entries) == folded(log, state.offset)
            if state.is_cut:
                reached[state.judgement.snapshot_class.value] += 1
                reached["inside"] += state.segment.cut_batch_offset is not None

    cases = ("UNSOUND", "inside")
    search_until(holds, lambda: all(reached[name] > FEWER_EXAMPLES * 0.05 for name in cases))
    assert all(reached[name] > FEWER_EXAMPLES * 0.05 for name in cases), reached


def test_a_snapshot_at_the_first_offset_counts_once(tmp_path: Path) -> None:
    """It is what the first piece is composed on, and no other piece of its segment."""
    log = Hand(10)
    client = Client(7, is_transactional=False, sequence=3)
    for _ in range(4):
        log.data(client, YOUNG)
    log.write(tmp_path / "t-0")
    other = ProducerEntry(3, 0, 0, 2, 0, YOUNG)
    for offset in (10, 14):
        put_snapshot(tmp_path / "t-0", offset, [other, ProducerEntry(7, 0, offset - 8, offset - 1, 0, YOUNG)])
    result = run(listed(tmp_path / "t-0"), as_of_ms=NOW, cuts=(11, 13))
    # A producer that neither snapshot has may have expired between them: times are known at the ends of segments only.
    assert result.classes == {11: EXACT_FROM_LOG_START, 13: EXACT_FROM_LOG_START, 14: EXACT}
    for state in result.states:
        assert entries_in(state.entries) == {3: other, 7: ProducerEntry(7, 0, state.offset - 8, state.offset - 1, 0, YOUNG)}


def test_a_hole_counts_at_a_cut_inside_it_and_behind_it_but_not_before(tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG, 3)
    log.end = 6
    log.data(client, YOUNG, 3)
    result = run(log.write(tmp_path / "t-0"), ReplayFrom.LOG_START, as_of_ms=NOW, cuts=(2, 3, 5, 6, 7))
    assert result.classes == {2: EXACT, 3: EXACT, 5: UNSOUND, 6: UNSOUND, 7: UNSOUND, 9: UNSOUND}
    assert result.at(5).judgement.reasons == ("no batch ends at 5: the last one below it ends at 3",)
    assert result.at(7).judgement.reasons == ("no batch ends at 6: the last one below it ends at 3",)
    assert result.at(9).judgement.reasons == (f"3 offsets between 3 and 9 {NOT_ON_DISK} (compacted or deleted)",)
    assert [len(result.at(offset).entries) for offset in (2, 3, 5, 6, 7)] == [0, 1, 1, 1, 1]


def test_each_segment_is_cut_where_the_offsets_lie_inside_it(tmp_path: Path) -> None:
    directory = listed(write_partition(tmp_path / "t-0", {10: b"", 20: b"", 30: b""}))
    tasks = read_tasks(directory, (2, 0, 1), check_crc=True, cuts=(5, 10, 11, 19, 20, 25, 30, 31, 99))
    assert [task.cuts for task in tasks] == [(31, 99), (11, 19), (25,)]
    assert [task.cuts for task in read_tasks(directory, range(3), check_crc=True)] == [(), (), ()]
