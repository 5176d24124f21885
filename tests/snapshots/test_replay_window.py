"""Replays that begin inside the log: what each class claims holds, whatever the log, and no matter who wrote its snapshots."""

import random
from collections import Counter
from pathlib import Path

import pytest
from budgets import FEWER_EXAMPLES, each_seed
from log_dirs import flip
from reference_producer_state import ProducerState
from replays import (
    EXACT,
    NOW,
    OLD,
    PROVEN,
    UNPROVEN,
    UNSOUND,
    WEAK,
    YOUNG,
    Case,
    Hand,
    case_of,
    check,
    difference,
    entries_in,
    run,
    windowed,
)
from simulated_broker import Client, listed, loaded
from strategies import LogBatch

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.source.source import open_source


def some_offsets(case: Case, rng: random.Random) -> list[int]:
    return sorted({rng.randrange(case.bases[0], case.broker.end_offset + 1) for _ in range(6)})


def test_auto_is_sound() -> None:
    """At every offset that is called load-equivalent, a broker that loads its state has that of the whole log; inside segments
    too."""
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        case = case_of(seed)
        rng = random.Random(seed ^ 1)
        snapshots = {case.witness: case.live(case.witness) if rng.random() < 0.7 else case.broker.forget(case.witness)}
        for offset in case.ends:
            if offset < case.witness and rng.random() < 0.2:
                snapshots[offset] = case.live(offset)
        result = case.replayed({at: entries.values() for at, entries in snapshots.items()}, cuts=some_offsets(case, rng))
        assert {state.offset for state in result.states} >= {
            offset for offset in case.ends if case.first_wanted <= offset <= case.witness
        }
        check(case, result, reached)

    holds()
    assert reached["LOAD_EQUIVALENT"] >= FEWER_EXAMPLES * 0.06
    assert reached["SUPERSET_SAFE"] >= FEWER_EXAMPLES * 0.08
    assert reached["EXACT"] >= FEWER_EXAMPLES * 0.3
    assert reached["EXACT_FROM_LOG_START"] >= FEWER_EXAMPLES * 0.06
    assert reached["window"] >= FEWER_EXAMPLES * 0.08
    assert reached["extended by some"] >= FEWER_EXAMPLES * 0.003
    assert reached["gave up"] >= FEWER_EXAMPLES * 0.06
    assert reached["cut LOAD_EQUIVALENT"] + reached["cut SUPERSET_SAFE"] > FEWER_EXAMPLES * 0.05, reached
    assert reached["cut EXACT"] > FEWER_EXAMPLES * 0.05, reached


def test_replay_goes_back_until_the_previous_marker_is_found(tmp_path: Path) -> None:
    """Segments 10 and 11 are young. What the transaction in 10 needs is in 5: replay begins at 9, at 8, at 6, and then at 3."""
    log, client = Hand(), Client(9, is_transactional=True, epoch=1)
    everything = []
    for index in range(12):
        if index:
            boundary = log.roll()
        timestamp = OLD if index < 10 else YOUNG
        everything.append(log.add(Client(100 + index, is_transactional=False).data(log.end, 1, timestamp)))
        if index == 5:
            everything.append(log.add(client.marker(log.end, OLD, 6, commit=True)))
        if index == 10:
            everything.append(log.add(client.data(log.end, 1, YOUNG)))
            truth = ProducerState()
            list(truth.append(batch.meaning for batch in everything if batch.meaning is not None))
    everything.append(log.add(client.marker(log.end, YOUNG, 7, commit=True)))
    whole = ProducerState()
    list(whole.append(batch.meaning for batch in everything if batch.meaning is not None))
    directory = log.write(tmp_path / "t-0", {log.end: loaded(whole.entries.values(), NOW).values()})
    result = run(directory, as_of_ms=NOW, window=10, first_wanted=boundary)
    assert (result.replay.start_index, result.extensions) == (3, 4)
    assert result.replay.start_reason.startswith("extended back: producer 9")
    state = result.at(boundary)
    assert state.judgement.snapshot_class is SnapshotClass.SUPERSET_SAFE
    assert loaded(entries_in(state.entries).values(), NOW) == loaded(truth.entries.values(), NOW)
    assert entries_in(state.entries)[9].coordinator_epoch == 6
    assert set(entries_in(state.entries)) == {9, *range(103, 111)}
    # At the log end the marker says all: nothing more than the window is needed.
    at_end = run(directory, as_of_ms=NOW, window=10, first_wanted=log.end)
    assert (at_end.replay.start_index, at_end.extensions) == (10, 0)
    assert entries_in(at_end.at(log.end).entries) == loaded(whole.entries.values(), NOW)


def test_window_mode_claims_nothing_that_is_not_proven() -> None:
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        case = case_of(seed)
        rng = random.Random(seed ^ 4)
        has_witness = rng.random() < 0.5
        snapshots = {case.witness: case.live(case.witness).values()} if has_witness else {}
        result = case.replayed(snapshots, ReplayFrom.WINDOW, some_offsets(case, rng))
        assert result.extensions == 0
        assert [state.offset for state in result.states if not state.is_cut] == case.ends[: case.stop]
        start = result.replay.start_index
        assert start == min(case.window, case.stop, len(case.bases) - 1)
        if start == 0:
            return
        for state in result.states:
            klass = state.judgement.snapshot_class
            assert not state.is_complete
            if state.offset <= case.bases[start]:
                assert (klass, len(state.entries)) == (UNPROVEN, 0)
                reached["below"] += 1
            elif klass in PROVEN:
                assert has_witness
                assert not difference(case, state)
                reached["proven"] += 1
            else:
                assert klass in WEAK
                if not has_witness:
                    assert "nothing proves what is below the window: no readable snapshot" in state.judgement.reasons[0]
                gaps = {reason[-3:-1] for reason in state.judgement.reasons if reason.endswith(")")} & {"G1", "G2", "G3", "G4"}
                assert (klass is UNSOUND) == bool(gaps - {"G4"})
                reached.update(gaps)
                # Where no gap is named for a producer of the window, its entry is right all the same.
                named = {int(reason.split()[1][:-1]) for reason in state.judgement.reasons if reason.startswith("producer ")}
                if len(state.judgement.reasons) < 10:
                    seen = case.touched(case.bases[start], state.offset)
                    assert not (difference(case, state) & seen) - named

    holds()
    assert all(reached[name] for name in ("below", "G1", "G2", "G3", "G4")), reached


def test_damage_in_the_window_sends_auto_to_the_first_segment(tmp_path: Path) -> None:
    log = Hand()
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    client = Client(7, is_transactional=False)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    log.write(tmp_path / "t-0", {log.end: [ProducerEntry(7, 0, 1, 2, 0, YOUNG)]})
    path = tmp_path / "t-0" / f"{boundary:020d}.log"
    healthy = run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary)
    assert (healthy.replay.start_index, healthy.classes[boundary]) == (1, SnapshotClass.LOAD_EQUIVALENT)
    flip(path, 30)  # its base timestamp, which is in no entry: only the checksum shows
    result = run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary)
    assert result.replay.start_index == 0
    assert result.classes == {1: EXACT, boundary: EXACT, log.end: UNSOUND}
    by_letter = run(listed(path.parent), ReplayFrom.WINDOW, as_of_ms=NOW, window=1, first_wanted=boundary)
    assert by_letter.classes == {1: UNPROVEN, boundary: UNPROVEN, log.end: UNSOUND}


@pytest.mark.parametrize("beyond", [False, True], ids=["no wrap is possible", "the sequence wrapped"])
def test_a_sequence_that_wraps_is_no_new_producer(beyond: bool, tmp_path: Path) -> None:
    """0 follows 2147483647 in the same epoch, and the transaction continues. Below offset 2147483648 that cannot be."""
    log, client = Hand(2**31 if beyond else 0), Client(9, is_transactional=True)
    other = Client(10, is_transactional=False)
    everything: list[LogBatch] = []
    if beyond:
        client.sequence = 2**31 - 1
        everything.append(log.add(client.data(log.end, 1, OLD)))
        client.sequence = 0
    everything.append(log.add(other.data(log.end, 1, OLD)))
    log.roll()
    everything.append(log.add(other.data(log.end, 1, YOUNG)))
    boundary = log.roll()
    true = ProducerState()
    list(true.append(batch.meaning for batch in everything if batch.meaning is not None))
    behind = [client.data(log.end, 1, YOUNG), client.marker(log.end + 1, YOUNG, 7, commit=True)]
    everything += [log.add(batch) for batch in behind]
    whole = ProducerState()
    list(whole.append(batch.meaning for batch in everything if batch.meaning is not None))
    directory = log.write(tmp_path / "t-0", {log.end: loaded(whole.entries.values(), NOW).values()})
    result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
    state = result.at(boundary)
    assert loaded(entries_in(state.entries).values(), NOW) == loaded(true.entries.values(), NOW)
    expected = (0, SnapshotClass.EXACT_FROM_LOG_START) if beyond else (1, SnapshotClass.LOAD_EQUIVALENT)
    assert (result.replay.start_index, state.judgement.snapshot_class) == expected


def old_client(root: Path) -> tuple[Hand, int]:
    """A client of 1.0 to 2.4 whose batches were deleted begins again at sequence 0 in the same epoch (UNKNOWN_PRODUCER_ID).

    The broker, of 1.0 to 2.3, forgot its open transaction with them. The first segment holds them still. Returns the log, and a boundary.
    """
    log, client, other = Hand(), Client(9, is_transactional=True), Client(10, is_transactional=False)
    log.data(client, OLD, 3)
    log.data(other, OLD)
    log.roll()
    log.data(other, YOUNG)
    boundary = log.roll()
    client.sequence = 0
    log.data(client, YOUNG)
    log.marker(client, YOUNG)
    log.data(other, YOUNG)
    (root / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 3\n")
    return log, boundary


def test_a_client_that_begins_again_at_sequence_0(tmp_path: Path) -> None:
    log, boundary = old_client(tmp_path)
    live = [ProducerEntry(9, 0, 0, boundary, 0, YOUNG, 1), ProducerEntry(10, 0, 2, log.end - 1, 0, YOUNG)]
    log.write(tmp_path / "t-0", {log.end: live})
    result = windowed(tmp_path / "t-0", boundary)
    assert result.classes[boundary] is EXACT
    assert entries_in(result.at(boundary).entries)[9].current_txn_first_offset == 0
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 0\n")
    (partition,) = open_source([str(tmp_path / "t-0")]).partitions
    assert partition.log_start_offset == 0, "nothing was deleted, so that no client had to begin again"
