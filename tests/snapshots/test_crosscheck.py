"""Surviving snapshots and transaction indexes next to a replay: healthy ones raise nothing, wherever replay began."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from budgets import FEWER_EXAMPLES, each_seed
from hypothesis import given
from hypothesis import strategies as st
from index_reference import write_transaction_index
from log_dirs import make_log_dir
from msgspec.structs import replace
from replays import NOW, PROVEN, YOUNG, Hand, case_of, run
from simulated_broker import EXPIRATION_MS, Client, SimulatedBroker

from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.findings import Finding
from snaprebuild.replay.difference import Comparison, ComparisonStatus, DifferenceKind, EntryDifference
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine import crosscheck
from snaprebuild.snapshots.engine.crosscheck import CrossCheck, ListedDifferences
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.source.source import PartitionSource, open_source


def source_of(path: Path) -> PartitionSource:
    (source,) = open_source([str(path)]).partitions
    return source


def test_healthy_snapshots_raise_nothing_in_any_mode(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        case = case_of(seed)
        rng = random.Random(seed ^ 5)
        chosen = {offset for offset in case.ends if rng.random() < 0.6} | {case.witness}
        directory = case.broker.write(tmp_path / "t-0", {at: case.live(at).values() for at in chosen}, case.deleted)
        try:
            source = source_of(tmp_path / "t-0")
            for mode in ReplayFrom:
                cross = CrossCheck(source, Clock(case.as_of_ms, EXPIRATION_MS))
                for state in case.run(directory, mode).states:
                    comparison = cross.snapshot(state)
                    assert (comparison is None) is (state.offset not in chosen)
                    assert cross.transaction_index(state) is None or state.closes is not None
                    if comparison is None:
                        continue
                    assert not comparison.proven_wrong, (mode, comparison)
                    if state.judgement.snapshot_class in PROVEN:
                        reached[comparison.status.value] += 1
        finally:
            shutil.rmtree(tmp_path / "t-0")

    holds()
    # Nearly always equal: what a window does not know, the snapshot after it has settled.
    assert reached["equal_after_expiry"] + reached["equal"] >= FEWER_EXAMPLES * 0.1
    assert reached["unverifiable"] <= FEWER_EXAMPLES * 0.05


# ---------------------------------------------------------------------------------------------------------------- listed


@given(st.data())
def test_what_a_run_lists_is_the_beginning_of_its_result_whatever_is_compared_first(data: st.DataObject) -> None:
    """And at no time more than the limit is kept."""
    sizes = data.draw(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 9)), st.integers(0, 5), max_size=12))
    limit = data.draw(st.integers(0, 20))
    comparisons = {}
    listed = ListedDifferences()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crosscheck, "DIFFERENCES_OF_A_RUN_MAX", limit)
        for place, offset in data.draw(st.permutations(sorted(sizes))):
            count = sizes[place, offset]
            differences = tuple(EntryDifference(each, DifferenceKind.EXTRA, None, None, 5, True, "") for each in range(count))
            comparison = Comparison(ComparisonStatus.EXTRA, True, 0, count, count, differences, "", count)
            comparisons[place, offset] = comparison
            listed.add(place, offset, comparison)
            assert sum(len(each.differences) for each in comparisons.values()) <= limit
    everything = [(key, producer) for key in sorted(sizes) for producer in range(sizes[key])]
    kept = [(key, each.producer_id) for key in sorted(sizes) for each in comparisons[key].differences]
    assert kept == everything[:limit]
    assert all(comparisons[key].difference_count == comparisons[key].certain_count == size for key, size in sizes.items())


# ---------------------------------------------------------------------------------------------------------------- .txnindex


def aborting() -> tuple[Hand, list[AbortedTransaction]]:
    """Two transactions that are aborted one after the other, an orphan marker between them, and one that begins after both."""
    log = Hand()
    one, two, three = (Client(producer, is_transactional=True) for producer in (7, 8, 9))
    log.data(one, YOUNG)
    first = AbortedTransaction(0, 7, 0, log.marker(one, YOUNG, commit=False), 2)
    log.marker(three, YOUNG, commit=False)
    begins = log.data(two, YOUNG)
    second = AbortedTransaction(0, 8, begins, log.marker(two, YOUNG, commit=False), log.end)
    log.data(three, YOUNG)
    log.roll()
    log.data(one, YOUNG)
    assert second == AbortedTransaction(0, 8, 3, 4, 5)
    return log, [first, second]


ORPHAN = AbortedTransaction(0, 9, 2, 2, 3)


def found_in(tmp_path: Path, entries: list[AbortedTransaction] | None) -> Finding | None:
    log, _ = aborting()
    directory = log.write(tmp_path / "t-0")
    if entries is not None:
        (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(write_transaction_index(entries))
    result = run(directory, as_of_ms=NOW)
    cross = CrossCheck(source_of(tmp_path / "t-0"), Clock(NOW, EXPIRATION_MS))
    finding = cross.transaction_index(result.states[0])
    assert cross.transaction_index(result.states[1]) is None
    return finding


@pytest.mark.parametrize(
    "change",
    [
        lambda one, two: [one, two],
        # KAFKA-10702: up to 2.7 an abort marker for nothing is listed as well.
        lambda one, two: [one, ORPHAN, two],
        # A follower that got everything in one fetch: what began after the marker was in already.
        lambda one, two: [replace(one, last_stable_offset=3), replace(two, last_stable_offset=6)],
    ],
)
def test_indexes_that_brokers_write(change: Callable[..., list[AbortedTransaction]], tmp_path: Path) -> None:
    _, expected = aborting()
    assert found_in(tmp_path, change(*expected)) is None


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda one, _: [one], "1 instead of 2, first difference at 1"),
        (lambda _, two: [two], "1 instead of 2, first difference at 0"),
        (lambda *_: None, "0 instead of 2, first difference at 0"),
        (lambda *_: [], "0 instead of 2, first difference at 0"),
        (lambda one, two: [one, ORPHAN, two, AbortedTransaction(0, 9, 5, 6, 7)], "first difference at 3"),
        (lambda one, two: [replace(one, producer_id=8), two], "first difference at 0"),
        (lambda one, two: [one, replace(two, first_offset=2)], "first difference at 1"),
        (lambda one, two: [one, replace(two, last_offset=5)], "first difference at 1"),
        (lambda one, two: [one, replace(two, last_stable_offset=4)], "first difference at 1"),
        (lambda one, two: [replace(one, last_stable_offset=1), two], "first difference at 0"),
    ],
)
def test_indexes_that_no_broker_writes(change: Callable[..., list[AbortedTransaction] | None], where: str, tmp_path: Path) -> None:
    _, expected = aborting()
    finding = found_in(tmp_path, change(*expected))
    assert finding is not None
    assert finding.code == "transaction-index-differs"
    assert where in finding.message


@pytest.mark.parametrize("is_clean", [False, True])
def test_indexes_of_a_broker_at_work(is_clean: bool, tmp_path: Path) -> None:
    """It writes the marker first, and may have aborted more since the log was read; a segment that it deletes loses its log first."""
    log, (one, two) = aborting()
    begins = log.end - 1
    marker = log.marker(Client(7, is_transactional=True), YOUNG, commit=False)
    right = AbortedTransaction(0, 7, begins, marker, 5)  # another transaction is open since 5
    make_log_dir(tmp_path, clean=is_clean)
    directory = log.write(tmp_path / "t-0")
    result, source = run(directory, as_of_ms=NOW), source_of(tmp_path / "t-0")
    first, last = (tmp_path / "t-0" / f"{each.base_offset:020d}.txnindex" for each in directory.segments)
    later = AbortedTransaction(0, 9, 5, log.end, log.end + 1)

    def differs(path: Path, entries: list[AbortedTransaction]) -> bool:
        path.write_bytes(write_transaction_index(entries))
        state = result.states[0 if path == first else 1]
        return CrossCheck(source, Clock(NOW, EXPIRATION_MS)).transaction_index(state) is not None

    assert not differs(last, [right])
    assert differs(last, []) is is_clean
    assert differs(last, [right, later]) is is_clean
    assert differs(last, [replace(right, producer_id=8)])
    assert not differs(first, [one, two])
    assert differs(first, [one])
    first.with_suffix(".log").unlink()
    assert differs(first, [one]) is is_clean


def test_last_stable_offset_below_an_older_transaction_is_not_negotiable(tmp_path: Path) -> None:
    """Only where nothing else was open may a later one be named."""
    log = Hand()
    one, two = (Client(producer, is_transactional=True) for producer in (7, 8))
    log.data(one, YOUNG)
    log.data(two, YOUNG)
    marker = log.marker(two, YOUNG, commit=False)
    log.data(two, YOUNG)
    directory = log.write(tmp_path / "t-0")
    for stable, is_right in ((0, True), (3, False), (4, False)):
        entry = AbortedTransaction(0, 8, 1, marker, stable)
        (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(write_transaction_index([entry]))
        cross = CrossCheck(source_of(tmp_path / "t-0"), Clock(NOW, EXPIRATION_MS))
        assert (cross.transaction_index(run(directory, as_of_ms=NOW).states[0]) is None) is is_right


def test_index_of_a_partition_whose_beginning_was_deleted_shows_nothing(tmp_path: Path) -> None:
    broker = SimulatedBroker(5, 6)
    directory = broker.write(tmp_path / "t-0", {}, deleted=2)
    cross = CrossCheck(source_of(tmp_path / "t-0"), Clock(broker.clock, EXPIRATION_MS))
    assert all(cross.transaction_index(state) is None for state in run(directory, as_of_ms=broker.clock).states)


def test_index_that_cannot_be_read(tmp_path: Path) -> None:
    log, _ = aborting()
    directory = log.write(tmp_path / "t-0")
    (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(b"odd")
    cross = CrossCheck(source_of(tmp_path / "t-0"), Clock(NOW, EXPIRATION_MS))
    finding = cross.transaction_index(run(directory, as_of_ms=NOW).states[0])
    assert finding is not None
    assert finding.code == "unreadable-transaction-index"
