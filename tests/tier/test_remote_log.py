"""The fold of remote log metadata: what Kafka's own cache answered, and every transition."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import FIXTURES
from remote_records import PARTITION, copy, epochs, finished, folded, update

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import DeleteState, PartitionDeletion, RemoteSegment, SegmentState, read_remote_log_record
from snaprebuild.tier.remote_log import LogLineage, RemoteLogs, epoch_end_offset, epoch_end_offsets

STARTED, FINISHED, DELETING, DELETED = SegmentState


def test_what_the_cache_of_kafka_answered() -> None:
    """``RemoteLogMetadataCache`` of 4.3.1 on the records that a 3.9.2 broker wrote while it met the NullPointerException."""
    manifest = json.loads((FIXTURES / "tiered-local" / "manifest.json").read_text())
    logs = RemoteLogs()
    for record in manifest["records"]:
        logs.take(read_remote_log_record(bytes.fromhex(record["value_hex"])))
    (log,) = logs.partitions.values()
    assert len(manifest["cache_lookup_epoch_offset"]) == 13
    for reported in manifest["cache_lookup_epoch_offset"]:
        found = log.lookup(reported["epoch"], reported["from_offset"])
        assert (None if found is None else str(found.id)) == reported["segment_id"]
    assert [log.highest_offset(reported["epoch"]) for reported in manifest["cache_highest_offset_for_epoch"]] == [6389]
    states = [segment.state for segment in log.segments.values()]
    assert (states.count(STARTED), states.count(FINISHED), log.dropped) == (13, 12, 0)
    assert {str(segment.id): segment.state.name for segment in log.segments.values()} == {
        reported["segment_id"]: reported["state"] for reported in manifest["remote_segments"]
    }
    assert [segment.start_offset for segment in log.listed(0)] == sorted(
        reported["start_offset"] for reported in manifest["remote_segments"]
    )


def test_an_update_changes_what_it_shows() -> None:
    segment = copy(1, 0, 9)
    log = folded(segment, update(segment, FINISHED))
    assert log.lookup(0, 0) == replace(segment, broker_id=2, event_timestamp_ms=300, custom_metadata=b"\x07", state=FINISHED)


@pytest.mark.parametrize("state", [None, *SegmentState])
@pytest.mark.parametrize("target", [STARTED, FINISHED, DELETING, DELETED])
def test_transitions(state: SegmentState | None, target: SegmentState) -> None:
    """``RemoteLogSegmentState.isValidTransition``; what is deleted is forgotten, so that any update finds nothing."""
    segment = copy(1, 0, 9)
    ways = {None: (), STARTED: (), FINISHED: (FINISHED,), DELETING: (DELETING,), DELETED: (DELETING, DELETED)}
    before = () if state is None else (segment, *(update(segment, each) for each in ways[state]))
    log = folded(*before)
    log.take(segment if target is STARTED else update(segment, target))
    allowed = {
        None: {STARTED},
        STARTED: {STARTED, FINISHED, DELETING},
        FINISHED: {FINISHED, DELETING},
        DELETING: {DELETING, DELETED},
        DELETED: {STARTED},
    }
    assert log.dropped == (target not in allowed[state])
    known = log.segments.get(segment.segment_id)
    expected = target if not log.dropped else state
    assert (None if known is None else known.state) == (None if expected is DELETED else expected)


def test_a_later_copy_of_the_same_range_takes_over() -> None:
    first, second = copy(1, 0, 9), copy(2, 0, 9)
    log = finished(first, second)
    assert log.lookup(0, 5) == replace_state(second)
    assert not log.is_referenced(replace_state(first))
    assert log.is_referenced(replace_state(second))


def replace_state(segment: RemoteSegment) -> RemoteSegment:
    return replace(segment, broker_id=2, event_timestamp_ms=300, custom_metadata=b"\x07", state=FINISHED)


def test_a_smaller_copy_does_not_push_out_what_reaches_further() -> None:
    """Kafka's map works so: it keeps the one that begins before, until the offset where the smaller one begins."""
    large, small = copy(1, 0, 99), copy(2, 50, 60)
    log = finished(large, small)
    assert log.lookup(0, 10) == replace_state(large)
    assert log.lookup(0, 55) == replace_state(small)
    assert log.lookup(0, 70) is None
    assert log.highest_offset(0) == 99


def test_a_larger_copy_pushes_out_all_that_begin_behind_it() -> None:
    log = finished(copy(1, 0, 9), copy(2, 10, 19), copy(3, 20, 29), copy(4, 10, 40))
    assert [log.lookup(0, offset).segment_id[-1] for offset in (0, 9, 10, 25, 40)] == [1, 1, 4, 4, 4]  # type: ignore[union-attr]
    assert log.lookup(0, 41) is None
    assert [segment.segment_id[-1] for segment in log.listed(0)] == [1, 4, 2, 3]


def test_epochs_of_a_segment_end_where_the_next_begins() -> None:
    log = finished(copy(1, 0, 2, (0, 0)), copy(2, 3, 5, (1, 3), (2, 5)))
    assert log.lookup(1, 4) is not None
    assert log.lookup(1, 5) is None
    assert log.lookup(2, 5) is not None
    assert log.lookup(3, 5) is None
    assert [log.highest_offset(epoch) for epoch in (0, 1, 2, 3)] == [2, 4, 5, None]
    assert log.epochs == [0, 1, 2]


def test_deletion() -> None:
    segment, following = copy(1, 0, 9), copy(2, 10, 19)
    log = finished(segment, following)
    log.take(update(segment, DELETING))
    assert log.lookup(0, 5) is None
    assert [each.state for each in log.listed(0)] == [DELETING, FINISHED]
    log.take(update(segment, DELETED))
    assert list(log.listed(0)) == [replace_state(following)]
    assert log.highest_offset(0) == 19


def test_deletion_of_a_partition() -> None:
    logs = RemoteLogs()
    logs.take(copy(1, 0, 9))
    for state in DeleteState:
        logs.take(PartitionDeletion(PARTITION, 1, 1, state))
        assert bool(logs.deletions) is bool(logs.partitions) is (state is not DeleteState.DELETE_PARTITION_FINISHED)


@pytest.mark.parametrize(
    ("segment", "log", "log_end", "expected"),
    [
        (copy(1, 0, 9, (0, 0)), epochs((0, 0)), 10, True),
        (copy(1, 0, 9, (0, 0)), epochs((0, 0)), 9, False),  # beyond the end
        (copy(1, 0, 9, (1, 0)), epochs((0, 0)), 99, False),  # an epoch that never was
        (copy(1, 0, 9, (0, 0)), epochs((1, 0)), 99, False),  # before the first
        (copy(1, 0, 9, (0, 0), (2, 5)), epochs((0, 0), (2, 5)), 99, True),
        (copy(1, 0, 9, (0, 0), (2, 5)), epochs((0, 0), (2, 6)), 99, False),  # another history
        (copy(1, 0, 9, (0, 0), (2, 5)), epochs((0, 0), (1, 5), (2, 5)), 99, True),  # nothing was written in epoch 1
        (copy(1, 0, 9, (0, 0), (3, 5)), epochs((0, 0), (2, 5), (3, 8)), 99, False),
        (copy(1, 0, 9, (0, 0)), epochs((0, 0), (2, 9)), 99, False),  # it continues where the log had another leader
        (copy(1, 0, 8, (0, 0)), epochs((0, 0), (2, 9)), 99, True),
        # The log begins inside the segment: what comes before is not compared.
        (copy(1, 14, 150, (5, 14), (7, 15), (9, 100)), epochs((7, 51), (9, 100)), 999, True),
        (copy(1, 3, 9, (1, 3)), epochs((0, 0), (1, 5)), 99, False),  # the epoch began later
        (copy(1, 5, 9, (1, 5)), epochs((0, 0), (1, 5)), 99, True),
        (copy(1, 3, 9, (1, 3)), epochs((1, 5)), 99, True),
        (copy(1, 0, 9, (0, 0), (4, 5)), epochs((3, 4), (5, 20)), 99, False),
    ],
)
def test_lineage(segment: RemoteSegment, log: tuple[LeaderEpochEntry, ...], log_end: int, expected: bool) -> None:
    assert LogLineage(log, log_end).holds(segment) is expected


def test_a_copy_without_leader_epochs_is_of_no_log() -> None:
    """Kafka makes no such copy (``RemoteLogSegmentMetadata`` refuses it), and a record may tell of one."""
    nobody = replace(copy(1, 0, 9), leader_epochs=())
    assert not LogLineage(epochs((0, 0)), 99).holds(nobody)
    assert epoch_end_offsets(nobody) == {}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8))
def test_ends_of_all_epochs_are_those_of_each(pairs: list[tuple[int, int]]) -> None:
    segment = replace(copy(1, 0, 9), leader_epochs=epochs(*pairs))
    assert epoch_end_offsets(segment) == {epoch: epoch_end_offset(segment, epoch) for epoch, _ in pairs}


class Counting(int):
    """A leader epoch that counts how often it is compared."""

    compared = 0

    def __gt__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) > int(other)

    def __lt__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) < int(other)

    def __ge__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) >= int(other)

    __hash__ = int.__hash__


def test_many_leader_epochs_are_not_compared_each_with_each() -> None:
    """A record of 1 MiB has 80,000 of them: 45 s, and 11 minutes for the lineage."""
    count = 2_000
    many = tuple(LeaderEpochEntry(Counting(number), number) for number in range(count))
    segment = replace(copy(1, 0, count, (0, 0)), leader_epochs=many)
    Counting.compared = 0
    log = folded(segment, update(segment, FINISHED))
    assert log.highest_offset(count - 1) == count
    assert LogLineage(many, count + 1).holds(segment)
    assert Counting.compared < 100 * count


def test_a_tombstone_removes_the_copy_of_its_key() -> None:
    """KIP-1266: keys and compaction. A key may be any bytes; records up to 4.4 have none."""
    first, second, logs = copy(1, 0, 9), copy(2, 10, 19), RemoteLogs()
    for segment, key in ((first, b"1"), (second, b"2")):
        logs.take_keyed(key, segment)
        logs.take_keyed(key, update(segment, FINISHED))
    logs.take_keyed(b"1", None)
    log = logs.partitions[PARTITION]
    assert set(log.segments) == {second.segment_id}
    assert (log.lookup(0, 5), log.lookup(0, 15) is not None, list(log.listed(0))) == (None, True, [log.segments[second.segment_id]])
    logs.take_keyed(b"3", None)
    logs.take_keyed(None, None)
    assert logs.dropped == 2
