"""Transactions of simulated logs against the sequential fold, which is asked batch by batch, and against a naive search."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from budgets import each_seed, scaled
from log_dirs import TRANSACTIONAL, batch, marker, snapshot_bytes, snapshot_name, write_partition
from reference_producer_state import DataBatch, Marker, ProducerState
from simulated_broker import Client, SimulatedBroker
from strategies import LogBatch

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.inspect.late_transactions import abort_commands
from snaprebuild.inspect.transaction_model import OPEN_LISTED_MAX, AbortCommands, PartitionTransactions
from snaprebuild.inspect.transactions import read_transactions
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

EXPIRATION_MS = 1000
LOGS = scaled(150)


def reported(directory: Path, *, as_of_ms: int = 0, late_ms: int = 1000) -> PartitionTransactions:
    (found,) = read_transactions(open_source([str(directory)]), Run(clock=Clock(as_of_ms, EXPIRATION_MS)), late_ms).partitions
    return found


def naive_counts(batches: list[LogBatch], *, begins_at_zero: bool) -> Counter[str]:
    """Counts the transactions that each marker closed, by the fold; nothing else is known of a producer before its first batch."""
    state, counts, seen = ProducerState(), Counter[str](), set()
    for each in batches:
        meaning = each.meaning
        if meaning is None:
            continue
        completed = list(state.append([meaning]))
        if isinstance(meaning, Marker):
            if completed:
                counts["aborted" if completed[0].is_aborted else "committed"] += 1
            else:
                is_first = meaning.producer_id not in seen
                counts["unknown" if is_first and not begins_at_zero else "empty"] += 1
            seen.add(meaning.producer_id)
    return counts


def test_simulated_logs() -> None:
    """They hold everything that is reported."""
    reached: Counter[str] = Counter()
    kinds = ("committed", "aborted", "empty", "unknown", "open")
    each_seed(LOGS, lambda: all(reached[kind] >= 20 for kind in kinds))(lambda seed: reported_as_counted(seed, reached))()
    assert all(reached[kind] >= 20 for kind in kinds), reached


def reported_as_counted(seed: int, reached: Counter[str]) -> None:
    broker = SimulatedBroker(seed, 10)
    deleted = seed % 4
    segments = broker.segments[deleted:]
    batches = [each for segment in segments for each in segment.batches]
    as_of_ms, late_ms = broker.clock + 700, 600
    with TemporaryDirectory() as place:
        broker.write(Path(place) / "t-0", {}, deleted)
        found = reported(Path(place) / "t-0", as_of_ms=as_of_ms, late_ms=late_ms)
    counts = naive_counts(batches, begins_at_zero=segments[0].base_offset == 0)
    assert Counter({name: getattr(found.reported.totals, name) for name in ("committed", "aborted", "empty", "unknown")}) == counts

    state = ProducerState()
    list(state.append(each.meaning for each in batches if each.meaning is not None))
    open_now = sorted(state.ongoing.items())
    assert [(each.first_offset, each.producer_id) for each in found.reported.open] == open_now
    assert found.reported.totals.open == len(open_now)
    reached.update(counts, open=len(open_now))
    assert found.reported.last_stable_offset == (open_now[0][0] if open_now else broker.end_offset)
    by_offset = {each.header.base_offset: each for each in batches}
    lates = []
    for each in found.reported.open:
        entry, first = state.entries[each.producer_id], by_offset[each.first_offset]
        assert (each.epoch, each.coordinator_epoch) == (entry.epoch, entry.coordinator_epoch)
        assert each.since_ms == (None if first.header.max_timestamp < 0 else first.header.max_timestamp)
        lates.append(entry.timestamp > 0 and as_of_ms - entry.timestamp > late_ms)
        assert each.is_late == lates[-1]
        (segment,) = [s for s in segments if first in s.batches]
        assert each.position_bytes == sum(len(b.data) for b in segment.batches[: segment.batches.index(first)])
        own = [b.meaning for b in batches if b.meaning is not None and b.meaning.producer_id == each.producer_id]
        starts = isinstance(own[0], DataBatch) and (own[0].epoch, own[0].base_sequence) == (0, 0)
        closed_before = any(isinstance(meaning, Marker) for meaning in own)
        assert each.may_have_begun_before == (segments[0].base_offset > 0 and not closed_before and not starts)
    assert found.reported.totals.late == sum(lates)
    assert found.reported.counts_as_late == bool(lates and lates[0])
    if open_now:
        stable = open_now[0][0]
        above = [s for s in segments if s.base_offset > stable]
        at = max((s for s in segments if s.base_offset <= stable), key=lambda s: s.base_offset)
        position = found.reported.open[0].position_bytes
        assert position is not None
        assert found.reported.held_bytes == len(at.data) - position + sum(len(s.data) for s in above)
        assert found.reported.held_offsets == broker.end_offset - stable
        closed = [s for s in (at, *above) if s is not segments[-1]]
        assert (found.reported.held_segments, found.reported.held_segment_bytes) == (len(closed), sum(len(s.data) for s in closed))


def in_transaction(offset: int, producer_id: int, **fields: int) -> bytes:
    return batch(offset, producer_id=producer_id, attributes=TRANSACTIONAL, **fields)


@pytest.mark.parametrize(("as_of_ms", "is_late"), [(2000, False), (2001, True)])
def test_late_is_longer_than_and_not_as_long_as(as_of_ms: int, is_late: bool, tmp_path: Path) -> None:
    """``hasLateTransaction``: current time - last timestamp > limit."""
    write_partition(tmp_path / "t-0", {0: in_transaction(0, 7, timestamp=10) + in_transaction(1, 7, sequence=1, timestamp=1000)})
    found = reported(tmp_path / "t-0", as_of_ms=as_of_ms, late_ms=1000)
    assert (
        found.reported.open[0].is_late,
        found.reported.totals.late,
        found.reported.open[0].since_ms,
        found.reported.open[0].last_ms,
    ) == (is_late, is_late, 10, 1000)


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_without_a_timestamp_nothing_is_late(timestamp: int, tmp_path: Path) -> None:
    """``hasLateTransaction``: last timestamp > 0."""
    write_partition(tmp_path / "t-0", {0: in_transaction(0, 7, timestamp=timestamp)})
    found = reported(tmp_path / "t-0", as_of_ms=10**12)
    assert (found.reported.totals.open, found.reported.totals.late, found.findings) == (1, 0, [])


def test_a_broker_counts_a_partition_by_its_oldest_transaction(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: in_transaction(0, 7, timestamp=9000) + in_transaction(1, 8, timestamp=10)})
    found = reported(tmp_path / "t-0", as_of_ms=9000)
    assert ([each.is_late for each in found.reported.open], found.reported.counts_as_late) == ([False, True], False)
    (finding,) = found.findings
    assert (finding.code, finding.offset) == ("late-transaction", 1)


def test_of_many_open_transactions_the_oldest_are_listed(tmp_path: Path) -> None:
    count = OPEN_LISTED_MAX + 5
    data = b"".join(in_transaction(at, 1000 - at, timestamp=10) for at in range(count))
    write_partition(tmp_path / "t-0", {0: data})
    found = reported(tmp_path / "t-0", as_of_ms=10**6)
    assert [each.first_offset for each in found.reported.open] == list(range(OPEN_LISTED_MAX))
    assert (found.reported.totals.open, found.reported.totals.late) == (count, count)


def test_a_snapshot_knows_of_a_transaction_that_began_below_the_log(tmp_path: Path) -> None:
    entry = ProducerEntry(7, 2, 9, 99, 4, 5000, 3, 90)
    directory = write_partition(tmp_path / "t-0", {100: batch(100), 101: batch(101)})
    blind = reported(directory)
    assert (blind.reported.open, [each.code for each in blind.findings]) == ([], ["transactions-before-log-start"])
    for offset in (100, 101):
        (directory / snapshot_name(offset)).write_bytes(snapshot_bytes([entry]))
    found = reported(directory)
    assert (found.reported.last_stable_offset, found.reported.held_offsets, found.reported.held_bytes, found.findings) == (
        90,
        12,
        None,
        [],
    )
    (one,) = found.reported.open
    assert (one.first_offset, one.coordinator_epoch, one.since_ms, one.position_bytes) == (90, 3, None, None)
    assert not one.may_have_begun_before


def test_a_marker_closes_what_the_snapshot_knows(tmp_path: Path) -> None:
    entry = ProducerEntry(7, 2, 9, 99, 4, 5000, 0, 90)
    directory = write_partition(tmp_path / "t-0", {100: batch(100) + marker(101, 7, epoch=2, commit=False), 102: batch(102)})
    assert reported(directory).reported.totals.unknown == 1
    (directory / snapshot_name(100)).write_bytes(snapshot_bytes([entry]))
    after = ProducerEntry(7, 2, 9, 99, 4, 1000, 0, -1)
    (directory / snapshot_name(102)).write_bytes(snapshot_bytes([after]))
    counts = reported(directory).reported.totals
    assert (counts.committed, counts.aborted, counts.empty, counts.unknown) == (0, 1, 0, 0)


def test_commands(tmp_path: Path) -> None:
    client = Client(7, is_transactional=True, epoch=3)
    batches = [client.data(0, 1, 10), client.marker(1, 20, 5, commit=True), client.data(2, 1, 30)]
    write_partition(tmp_path / "a.topic-11", {0: b"".join(each.data for each in batches)})
    found = reported(tmp_path / "a.topic-11")
    command = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic a.topic --partition 11"
    assert abort_commands(found.source, found.reported.open[0]) == AbortCommands(
        since_3_0=f"{command} --start-offset 2",
        before_3_0=f"{command} --producer-id 7 --producer-epoch 3 --coordinator-epoch 5",
    )
    write_partition(tmp_path / "b-0", {0: in_transaction(0, 7)})
    fresh = reported(tmp_path / "b-0")
    assert abort_commands(fresh.source, fresh.reported.open[0]).before_3_0.endswith("--coordinator-epoch 0")


def test_an_empty_log(tmp_path: Path) -> None:
    found = reported(write_partition(tmp_path / "t-0", {0: b""}))
    assert (found.reported.log_end_offset, found.reported.last_stable_offset, found.reported.open) == (None, None, [])
