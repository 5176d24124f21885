"""A snapshot at the first offset of a log whose beginning is gone: its entries count where the log or later ones confirm them."""

import json
import random
import shutil
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from budgets import FEWER_EXAMPLES, each_seed
from manifests import FIXTURES
from msgspec.structs import replace
from reference_producer_state import ProducerState
from replays import DAY_MS, EXACT, EXACT_FROM_LOG_START, FIXTURE_AS_OF_MS, NOW, UNPROVEN, YOUNG, Hand, entries_in, put_snapshot, run
from simulated_broker import EXPIRATION_MS, Client, SimulatedBroker, listed

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import read_segment, read_tasks


def test_exact_on_a_trusted_first_snapshot() -> None:
    """With a confirmed snapshot at the first offset: the fold of what is retained, begun on it as a broker would.

    Where something of it is not confirmed, each entry is that of this fold, or of what is retained alone.
    """
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        rng = random.Random(~seed)
        broker = SimulatedBroker(seed, rng.randrange(3, 9))
        deleted = rng.randrange(1, len(broker.segments))
        base = broker.segments[deleted - 1].live
        left = broker.segments[deleted:]
        ends = broker.boundaries[deleted:]
        snapshots = {left[0].base_offset: base.values()}
        for segment, offset in zip(left, ends, strict=True):
            if rng.random() < 0.4:
                snapshots[offset] = segment.live.values()
        with tempfile.TemporaryDirectory() as place:
            result = run(broker.write(Path(place) / "t-0", snapshots, deleted), as_of_ms=broker.clock)
        state = ProducerState()
        state.load(base.values(), 0, EXPIRATION_MS)
        for segment, offset in zip(left, ends, strict=True):
            list(state.append(batch.meaning for batch in segment.batches if batch.meaning is not None))
            found = result.at(offset)
            klass = found.judgement.snapshot_class
            reached[klass.value] += 1
            assert klass in (EXACT, EXACT_FROM_LOG_START, UNPROVEN)
            assert found.is_complete is (klass is EXACT)
            if klass is EXACT_FROM_LOG_START:
                on_log_alone = broker.folded(offset, deleted)
                for producer, entry in entries_in(found.entries).items():
                    assert entry in (state.entries[producer], on_log_alone.get(producer))
                assert entries_in(found.entries).keys() >= on_log_alone.keys()
            else:
                assert entries_in(found.entries) == state.entries
            if klass is EXACT and base == broker.segments[deleted - 1].whole:
                reached["nobody forgotten"] += 1
                assert state.entries == segment.whole

    holds()
    assert reached["EXACT"] >= FEWER_EXAMPLES * 0.5
    assert reached["EXACT_FROM_LOG_START"] >= FEWER_EXAMPLES * 0.2
    assert reached["nobody forgotten"] >= FEWER_EXAMPLES * 0.2


def held_bytes(directory: Path, transactions: int) -> int:
    """Memory that a replay holds which waits for the confirmation of a first snapshot: three segments, five producers."""
    log = Hand(10)
    clients = [Client(producer, is_transactional=True) for producer in range(5)]
    for number in range(3 * transactions):
        if number in (transactions, 2 * transactions):
            log.roll()
        log.data(clients[number % 5], YOUNG)
        log.marker(clients[number % 5], YOUNG)
    listing = log.write(directory, {10: [ProducerEntry(9, 0, 0, 5, 0, YOUNG)]})
    replay = PartitionReplay(
        directory=listing,
        mode=ReplayFrom.AUTO,
        clock=Clock(NOW, EXPIRATION_MS),
        window_index=0,
        stop_index=3,
        first_wanted=0,
    )
    indices = replay.begin()
    tracemalloc.start()
    try:
        for index, task in zip(indices, read_tasks(listing, indices, check_crc=True), strict=True):
            for summary in read_segment(task):
                assert list(replay.take(index, summary)) == []
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_what_is_held_depends_on_producers_and_not_on_their_transactions(tmp_path: Path) -> None:
    held_bytes(tmp_path / "first" / "t-0", 10)  # what is made once and kept
    few, many = held_bytes(tmp_path / "few" / "t-0", 20), held_bytes(tmp_path / "many" / "t-0", 600)
    assert many < 2 * few, "thirty times the transactions, and the same but for what the interpreter itself caches"


def lost_state() -> dict[str, dict[str, list[dict[str, int]]]]:
    manifest = json.loads((FIXTURES / "follower-lost-state" / "manifest.json").read_text())
    found: dict[str, dict[str, list[dict[str, int]]]] = manifest["per_snapshot_offset"]
    return found


@pytest.mark.parametrize("as_of_ms", [FIXTURE_AS_OF_MS, FIXTURE_AS_OF_MS + 30 * DAY_MS])
@pytest.mark.parametrize("gone", [(), (508, 561, 624, 676, 727, 790)])
def test_true_first_snapshot_of_a_tiered_leader(gone: tuple[int, ...], as_of_ms: int, tmp_path: Path) -> None:
    """Kafka's answer over the whole log, of which this replica has only the end.

    With all of its snapshots everything is exact. With the last one alone the batches of some producers are between the first offset and
    the evidence, so nothing confirms what they had before.
    """
    path = Path(shutil.copytree(FIXTURES / "follower-lost-state/node1/payments-0", tmp_path / "payments-0"))
    for offset in gone:
        (path / f"{offset:020d}.snapshot").unlink()
    result = run(listed(path), as_of_ms=as_of_ms, expiration_ms=DAY_MS)
    right = {int(offset): {ProducerEntry(**entry) for entry in about["right_entries"]} for offset, about in lost_state().items()}
    assert set(right) == {561, 624, 676, 727, 790, 833}
    assert set(result.classes) == {508, *right}
    proven = {833} if gone else {508, *right}
    assert {offset for offset, klass in result.classes.items() if klass is EXACT} == proven
    assert set(result.classes.values()) <= {EXACT, EXACT_FROM_LOG_START}
    for offset, entries in right.items():
        found = set(entries_in(result.at(offset).entries).values())
        assert found == entries if offset in proven else found < entries
    from_start = run(listed(path), ReplayFrom.LOG_START, as_of_ms=as_of_ms, expiration_ms=DAY_MS)
    assert set(from_start.classes.values()) == {EXACT_FROM_LOG_START}
    assert set(entries_in(from_start.at(833).entries).values()) < right[833]


def test_first_snapshot_without_a_later_one_proves_nothing(tmp_path: Path) -> None:
    source = FIXTURES / "follower-lost-state/node1/payments-0"
    alone = Path(shutil.copytree(source, tmp_path / "alone" / "payments-0"))
    for path in alone.glob("*.snapshot"):
        if path.stem != f"{456:020d}":
            path.unlink()
    result = run(listed(alone), as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT_FROM_LOG_START}
    why = "no later snapshot confirms"
    assert all(any(why in reason for reason in state.judgement.reasons) for state in result.states)


def test_later_snapshot_that_the_log_contradicts_is_no_evidence(tmp_path: Path) -> None:
    """It is wrong itself: that of a broker which had lost its state."""
    path = Path(shutil.copytree(FIXTURES / "follower-lost-state/node1/payments-0", tmp_path / "payments-0"))
    shutil.copy(FIXTURES / f"follower-lost-state/node2/payments-0/{676:020d}.snapshot", path)
    result = run(listed(path), as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT}


def test_first_snapshot_on_which_no_broker_could_go_on_is_not_used(tmp_path: Path) -> None:
    """It claims a transaction of a producer that then writes outside of it; a later snapshot repeats the lie."""
    log = Hand(10)
    client = Client(7, is_transactional=False, sequence=3)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(Client(8, is_transactional=False), YOUNG)
    last = log.roll()
    log.data(Client(8, is_transactional=False, sequence=1), YOUNG)
    lie = ProducerEntry(7, 0, 2, 9, 0, YOUNG, current_txn_first_offset=4)
    later = replace(lie, last_sequence=3, last_offset=10)
    directory = log.write(tmp_path / "t-0", {10: [lie], boundary: [later]})
    result = run(directory, as_of_ms=NOW)
    assert result.classes == dict.fromkeys((boundary, last, log.end), EXACT_FROM_LOG_START)
    assert result.replay.damage is None
    assert any(
        "7 has current_txn_first_offset 4 in the snapshot at 10" in reason for reason in result.at(boundary).judgement.reasons
    )


def test_snapshots_behind_damage_do_not_speak_against_the_first_one(tmp_path: Path) -> None:
    log = Hand(10)
    client = Client(7, is_transactional=False, sequence=3)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    torn = log.roll()
    log.data(client, YOUNG)
    right = {
        at: [ProducerEntry(7, 0, at - 8, at - 1, 0, YOUNG), ProducerEntry(3, 0, 0, 2, 0, YOUNG)]
        for at in (10, boundary, torn, log.end)
    }
    log.write(tmp_path / "t-0", right)
    path = tmp_path / "t-0" / f"{boundary:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    result = run(listed(path.parent), as_of_ms=NOW)
    assert result.classes == {boundary: EXACT}
    assert result.replay.damage is not None


def test_false_empty_first_snapshot_of_a_follower_adds_nothing() -> None:
    directory = listed(FIXTURES / "follower-lost-state/node2/payments-0")
    result = run(directory, as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT_FROM_LOG_START}
    assert any("is empty, and producers that wrote before" in reason for reason in result.at(624).judgement.reasons)


def test_wrong_first_snapshot_is_not_confirmed_by_snapshots_of_which_all_has_expired(tmp_path: Path) -> None:
    """Compared after expiry alone, nothing would be left to differ."""
    path = Path(shutil.copytree(FIXTURES / "follower-lost-state/node1/payments-0", tmp_path / "payments-0"))
    manifest = json.loads((FIXTURES / "follower-lost-state/manifest.json").read_text())
    right = [ProducerEntry(**entry) for entry in manifest["leader"]["snapshots"][f"{456:020d}.snapshot"]["entries"]]
    put_snapshot(path, 456, [replace(right[0], last_sequence=right[0].last_sequence - 1), *right[1:]])
    result = run(listed(path), as_of_ms=FIXTURE_AS_OF_MS + 30 * DAY_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT_FROM_LOG_START}
