"""Wrong snapshots at the start of a window: what the window contradicts is found, and the headers below it show the rest."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from budgets import FEWER_EXAMPLES, each_seed
from log_dirs import flip
from msgspec.structs import replace
from reference_producer_state import ProducerState
from replays import EXACT, NOW, OLD, YOUNG, Case, Hand, case_of, check, entries_in, run
from simulated_broker import Client, Entries, listed, loaded

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom


def false_empty(case: Case, rng: random.Random) -> Entries | None:
    return {}


def stale(case: Case, rng: random.Random) -> Entries | None:
    """The state at an earlier boundary, or at the first offset."""
    earlier = [offset for offset in case.ends if offset < case.witness]
    return case.live(rng.choice(earlier)) if earlier else None


def in_window(case: Case) -> list[int]:
    """Producers of the witness with a batch in the window."""
    if case.window >= len(case.bases):
        return []
    return sorted(case.touched(case.bases[case.window], case.witness) & case.live(case.witness).keys())


def lacking(case: Case, rng: random.Random) -> Entries | None:
    """Without one producer that has a batch in the window."""
    entries = dict(case.live(case.witness))
    there = in_window(case)
    if not there:
        return None
    del entries[rng.choice(there)]
    return entries


def lying(case: Case, rng: random.Random) -> Entries | None:
    """Wrong in one field of a producer that has a batch in the window; not in those where no batch can contradict."""
    entries = dict(case.live(case.witness))
    there = in_window(case)
    if not there:
        return None
    producer = rng.choice(there)
    entry = entries[producer]
    name = rng.choice(("epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "current_txn_first_offset"))
    if name == "current_txn_first_offset":
        # Anywhere in the window but at a batch of its own; below it nothing would contradict.
        own = {
            batch.header.base_offset
            for segment in case.broker.segments
            for batch in segment.batches
            if batch.header.producer_id == producer
        }
        wrong = [-1, *(at for at in range(case.bases[case.window], case.witness) if at not in own)]
    else:
        wrong = [getattr(entry, name) + step for step in (-1, 1)]
    wrong = [value for value in wrong if value != getattr(entry, name)]
    if not wrong:
        return None
    entries[producer] = replace(entry, **{name: rng.choice(wrong)})
    return entries


@pytest.mark.parametrize("lie", [false_empty, stale, lacking, lying])
def test_a_witness_that_the_window_contradicts_is_not_believed(lie: Callable[[Case, random.Random], Entries | None]) -> None:
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        case = case_of(seed)
        entries = lie(case, random.Random(seed ^ 2))
        if entries is None or loaded(entries.values(), case.as_of_ms) == loaded(case.live(case.witness).values(), case.as_of_ms):
            return
        reached["lies"] += 1
        result = case.replayed({case.witness: entries.values()})
        check(case, result, reached)
        reached["uncovered"] += result.replay.start_index == 0 and result.extensions > 0

    holds()
    assert reached["lies"] >= FEWER_EXAMPLES * 0.2
    assert reached["uncovered"] >= FEWER_EXAMPLES * 0.05


def descendant(case: Case, lost_at: int) -> Entries:
    """The state that a broker saves at the witness if it found nothing at ``lost_at``, and continued from there."""
    state = ProducerState()
    for segment in case.broker.segments:
        if segment.base_offset >= lost_at and segment.base_offset < case.witness:
            list(state.append(batch.meaning for batch in segment.batches if batch.meaning is not None))
    return dict(state.entries)


def test_a_witness_that_comes_from_a_false_empty_snapshot_which_is_still_there_is_not_believed() -> None:
    """Rebuild A and C of the bundled vectors: an empty file, believed by a broker, and everything that it wrote later."""
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        case = case_of(seed)
        lost_at = random.Random(seed ^ 3).choice([offset for offset in (*case.bases, case.ends[-1]) if offset < case.witness])
        entries = descendant(case, lost_at)
        if loaded(entries.values(), case.as_of_ms) == loaded(case.truth(case.witness).values(), case.as_of_ms):
            return
        reached["lies"] += 1
        result = case.replayed({case.witness: entries.values(), lost_at: ()})
        assert result.replay.start_index == 0
        if case.deleted == 0 or lost_at > case.bases[0]:
            check(case, result, reached)

    holds()
    assert reached["lies"] >= FEWER_EXAMPLES * 0.2


def test_a_witness_from_a_lost_state_of_which_no_trace_is_left() -> None:
    """A broker once started without its state. What the window cannot contradict, the headers below it do."""
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES, lambda: reached["found below"] > 0)
    def holds(seed: int) -> None:
        case = case_of(seed, may_delete=False)
        lost_at = random.Random(seed ^ 3).choice([offset for offset in (*case.bases, case.ends[-1]) if offset < case.witness])
        entries = descendant(case, lost_at)
        result = case.replayed({case.witness: entries.values()})
        check(case, result, reached)
        true = loaded(case.truth(case.witness).values(), case.as_of_ms)
        reached["lost"] += any(entry.current_txn_first_offset >= 0 and entries.get(key) != entry for key, entry in true.items())
        reached["found below"] += "its broker once started without its state" in result.replay.start_reason
        reached["proven"] += result.replay.start_index > 0

    holds()
    assert reached["lost"] >= FEWER_EXAMPLES * 0.1
    assert reached["found below"]
    assert reached["proven"] >= FEWER_EXAMPLES * 0.05


@pytest.mark.parametrize("is_honest", [True, False])
def test_an_open_transaction_that_the_witness_lacks(is_honest: bool, tmp_path: Path) -> None:
    """No batch of producer 9 is in the window, and nothing there shows that the topic has transactions."""
    log = Hand()
    log.data(Client(9, is_transactional=True, epoch=1), OLD)
    log.roll()
    idempotent = Client(7, is_transactional=False)
    log.data(idempotent, YOUNG)
    boundary = log.roll()
    log.data(idempotent, YOUNG)
    honest = [ProducerEntry(9, 1, 0, 0, 0, OLD, -1, 0)] if is_honest else []
    directory = log.write(tmp_path / "t-0", {log.end: [ProducerEntry(7, 0, 1, 2, 0, YOUNG), *honest]})
    result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
    assert result.classes[boundary] is EXACT
    assert set(entries_in(result.at(boundary).entries)) == {7, 9}
    assert ("lacks the transaction that producer 9 opened at 0" in result.replay.start_reason) is not is_honest


@pytest.mark.parametrize("mode", [ReplayFrom.AUTO, ReplayFrom.WINDOW])
@pytest.mark.parametrize("has_transactions", [True, False])
def test_what_is_assumed_is_said(has_transactions: bool, mode: ReplayFrom, tmp_path: Path) -> None:
    log = Hand()
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    client = Client(9, is_transactional=has_transactions)
    log.data(client, YOUNG)
    if has_transactions:
        log.marker(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    opened = log.end - 1 if has_transactions else -1
    witness = ProducerEntry(9, 0, 1, log.end - 1, 0, YOUNG, 1 if has_transactions else -1, opened)
    directory = log.write(tmp_path / "t-0", {log.end: [witness]})
    judgement = run(directory, mode, as_of_ms=NOW, window=1, first_wanted=boundary).at(boundary).judgement
    reasons = "; ".join(judgement.reasons)
    if mode is ReplayFrom.WINDOW and has_transactions:
        assert judgement.snapshot_class is SnapshotClass.UNPROVEN
        assert "a broker that once started without its state would have left the same snapshots" in reasons
    else:
        assert judgement.snapshot_class is SnapshotClass.LOAD_EQUIVALENT
        said = "the headers below the window show the same open transactions" if has_transactions else "assumed: no batch below"
        assert said in reasons


def test_damage_below_the_window_hides_what_was_open_there(tmp_path: Path) -> None:
    log, client = Hand(), Client(9, is_transactional=True, epoch=1)
    log.data(client, OLD)
    log.marker(client, OLD)
    log.roll()
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    log.write(tmp_path / "t-0", {log.end: [ProducerEntry(9, 1, 2, 3, 0, YOUNG, 1, 2)]})
    path = tmp_path / "t-0" / f"{0:020d}.log"
    assert (
        run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary).classes[boundary] is SnapshotClass.LOAD_EQUIVALENT
    )
    flip(path, 40)
    assert run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary).classes[boundary] is SnapshotClass.UNSOUND


def test_a_witness_whose_broker_left_a_wrong_snapshot_inside_the_window_is_not_believed(tmp_path: Path) -> None:
    """Later entries may come from it, as in rebuild C of the bundled vectors, even if nothing in the window shows that."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    log.data(client, YOUNG)
    inside = log.roll()
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    for sequence, start in ((0, 1), (1, 0)):
        snapshots = {inside: [ProducerEntry(7, 0, sequence, 1, 0, YOUNG)], log.end: [ProducerEntry(7, 0, 2, 3, 0, YOUNG)]}
        directory = log.write(tmp_path / str(sequence) / "t-0", snapshots)
        result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
        assert result.replay.start_index == start
        assert (f"the snapshot at {inside} is wrong" in result.replay.start_reason) is (start == 0)


def test_a_witness_that_no_broker_can_have_written_is_not_believed(tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    right = ProducerEntry(7, 0, 1, 2, 0, YOUNG)
    directory = log.write(tmp_path / "t-0", {log.end: [replace(right, last_sequence=9), right]})
    result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
    assert result.replay.start_index == 0
    assert "no readable snapshot after the window" in result.replay.start_reason


def test_a_snapshot_that_lies_behind_what_is_replayed_is_no_witness(tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    for _ in range(3):
        log.roll()
        log.data(client, YOUNG)
    witness = [ProducerEntry(7, 0, 2, 3, 0, YOUNG)]
    directory = log.write(tmp_path / "t-0", {log.end: witness})
    whole = run(directory, as_of_ms=NOW, window=1, first_wanted=2)
    assert (whole.replay.start_index, whole.classes[2]) == (1, SnapshotClass.LOAD_EQUIVALENT)
    short = run(directory, as_of_ms=NOW, window=1, first_wanted=2, stop=3)
    assert "is above the end of the replay" in short.replay.start_reason
    assert short.classes == {1: EXACT, 2: EXACT, 3: EXACT}
