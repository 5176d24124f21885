"""The verdict on each kind of snapshot, compared with Kafka's own classes: right ones raise no alarm, wrong ones are named."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    batch_positions,
    copy_of,
    flip,
    make_log_dir,
    marker,
    snapshot_bytes,
    snapshot_name,
    tree,
    truth,
    write_partition,
)
from manifests import FIXTURES, partition_fixtures
from msgspec.structs import replace
from sentences import NOTHING_BELOW, OPEN_FROM

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import Finding, exit_code_of
from snaprebuild.replay.difference import EntryDifference
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import PartitionVerdict, VerifyResult, verify

DAY_MS = 86_400_000
IN_2200_MS = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp() * 1000)
AS_OF_MS = 1_795_261_244_275
"""The greatest timestamp of ``kafka27-mixed``: nothing that was written within the day before has expired."""


def verified(path: object, as_of_ms: int = AS_OF_MS, jobs: int = 1, **options: object) -> VerifyResult:
    return verify(open_source([str(path)]), Run(clock=Clock(as_of_ms, DAY_MS), jobs=jobs), **options)  # type: ignore[arg-type]


def verdict_on(result: VerifyResult, topic_partition: str) -> PartitionVerdict:
    (found,) = [each for each in result.partitions if each.source.directory.topic_partition == topic_partition]
    return found


def statuses(result: VerifyResult, topic_partition: str) -> dict[int, str]:
    """By offset of the snapshot."""
    return {each.offset: each.comparison.status.value for each in verdict_on(result, topic_partition).outcome.snapshots}


def classes(result: VerifyResult, topic_partition: str) -> list[str | None]:
    found = [each.snapshot_class for each in verdict_on(result, topic_partition).outcome.snapshots]
    return [None if each is None else each.value for each in found]


def codes(result: VerifyResult) -> list[str]:
    return [each.code for each in result.findings]


# --- healthy ---------------------------------------------------------------------------------------------------------------

HEALTHY = {
    (each.fixture, each.partition): each.manifest["broker_snapshots"]
    for each in partition_fixtures()
    if each.fixture != "damaged" and "broker_snapshots" in each.manifest
}


SILENT = sorted({fixture for fixture, _ in HEALTHY} | {"follower-lost-state", "tiered-local"})


@pytest.mark.parametrize(("fixture", "as_of_ms"), [*((each, 0) for each in SILENT), ("kafka27-mixed", IN_2200_MS)])
def test_healthy_directories_raise_no_alarm(fixture: str, as_of_ms: int) -> None:
    """Every snapshot that equals what Kafka's own code replays is equal here, whatever the clock says."""
    before = tree(FIXTURES / fixture)
    result = verified(FIXTURES / fixture, as_of_ms)
    assert exit_code_of(result.findings) == 0
    assert tree(FIXTURES / fixture) == before
    for (of, partition), snapshots in HEALTHY.items():
        if of != fixture:
            continue
        found = statuses(result, partition)
        assert sorted(found) == sorted(int(name[:20]) for name in snapshots)
        for name, about in snapshots.items():
            status = found[int(name[:20])]
            if about["equals_oracle"] is not None:
                assert (status == "equal") is about["equals_oracle"]
            assert status in ("equal", "equal_after_expiry", "unverifiable")
    if fixture == "tiered-local":
        assert set(statuses(result, "mixed-0").values()) == {"equal"}


def test_a_follower_that_lost_its_producers_cannot_be_seen_in_its_own_log() -> None:
    """They wrote below its first segment: nothing on this disk contradicts the snapshots, and nothing proves them."""
    found = statuses(verified(FIXTURES / "follower-lost-state" / "node2", 1_795_266_440_000), "payments-0")
    assert set(found.values()) <= {"unverifiable", "equal"}
    assert found[561] == "unverifiable"


def test_the_nodes_of_a_cluster_wrote_what_a_replay_gives() -> None:
    """Nothing was ever removed from their logs."""
    verdicts = verified(FIXTURES / "kraft-cluster3" / "node1").partitions
    assert {each.comparison.status.value for verdict in verdicts for each in verdict.outcome.snapshots} == {"equal"}


# --- wrong -----------------------------------------------------------------------------------------------------------------

OFFSET = 7045
RIGHT = truth("kafka27-mixed", "mixed-0")[OFFSET]
IDEMPOTENT = max((e for e in RIGHT if e.current_txn_first_offset < 0 and e.coordinator_epoch < 0), key=lambda e: e.timestamp)
"""The producer with the newest batch that has no open transaction and wrote without transactions."""
(HANGING,) = (entry for entry in RIGHT if entry.current_txn_first_offset == 6913)


def judged(tmp_path: Path, data: bytes, as_of_ms: int = AS_OF_MS) -> tuple[str, dict[int, EntryDifference], list[Finding]]:
    """Status of ``data`` at 7045 and its differences by producer id; the snapshots around it are equal, and nothing is written."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(OFFSET)).write_bytes(data)
    before = tree(logs)
    result = verified(logs, as_of_ms)
    assert tree(logs) == before
    found = statuses(result, "mixed-0")
    assert {found[7637], found[8231]} == {"equal"}
    (snapshot,) = [each for each in verdict_on(result, "mixed-0").outcome.snapshots if each.offset == OFFSET]
    return found[OFFSET], {each.producer_id: each for each in snapshot.comparison.differences}, result.findings


@pytest.mark.parametrize(
    ("entry", "changes", "status", "consequence"),
    [
        (IDEMPOTENT, None, "missing_entries", "is accepted as new (duplicate), and older epochs are not fenced"),
        (HANGING, {"current_txn_first_offset": -1}, "stale", f"{OPEN_FROM}6913, is forgotten"),
        (IDEMPOTENT, {"current_txn_first_offset": 6000}, "stale", "a closed transaction stays open from 6000"),
        (IDEMPOTENT, {"epoch": 77}, "stale", "epoch"),
        (IDEMPOTENT, {"last_sequence": 0}, "stale", "is refused"),
        (IDEMPOTENT, {"timestamp": AS_OF_MS - 77}, "stale", "expires too early"),
    ],
)
def test_one_wrong_entry(
    entry: ProducerEntry, changes: dict[str, int] | None, status: str, consequence: str, tmp_path: Path
) -> None:
    instead = set() if changes is None else {replace(entry, **changes)}
    found, differences, findings = judged(tmp_path, snapshot_bytes(RIGHT - {entry} | instead))
    assert (found, exit_code_of(findings), set(differences)) == (status, 1, {entry.producer_id})
    difference = differences[entry.producer_id]
    assert consequence in difference.consequence
    for field, value in (changes or {}).items():
        assert (difference.field, difference.expected, difference.found) == (field, getattr(entry, field), value)


def test_a_false_empty(tmp_path: Path) -> None:
    """Open transactions do not expire; in 2200 everything else has."""
    for as_of_ms, missing in ((AS_OF_MS, None), (IN_2200_MS, {HANGING.producer_id})):
        status, differences, findings = judged(tmp_path / str(as_of_ms), EMPTY_SNAPSHOT, as_of_ms)
        assert (status, exit_code_of(findings)) == ("false_empty", 1)
        hanging = differences[HANGING.producer_id]
        assert (hanging.kind.value, hanging.is_certain) == ("missing", True)
        assert hanging.consequence.startswith(f"{OPEN_FROM}6913, is forgotten")
        assert missing is None or set(differences) == missing


def test_what_a_marker_leaves(tmp_path: Path) -> None:
    """Made by hand: a transaction that ends with a marker of the next epoch (transaction.version 2) leaves no batch."""
    first = batch(0, producer_id=7, count=3, attributes=0x10) + marker(3, 7, epoch=1, coordinator_epoch=8, timestamp=50)
    right = ProducerEntry(7, 1, -1, -1, 0, 50, 8, -1)
    directory = write_partition(make_log_dir(tmp_path / "logs") / "t-0", {0: first, 4: batch(4, producer_id=8)})
    for entry, status in ((right, "equal"), (replace(right, coordinator_epoch=9), "stale")):
        (directory / snapshot_name(4)).write_bytes(snapshot_bytes([entry]))
        assert statuses(verified(tmp_path / "logs", 60), "t-0") == {4: status}


# --- in the middle of segments ---------------------------------------------------------------------------------------------

# Two segments: 7 writes 0 to 2, 3 to 4 and 8 to 9; 8 writes 5 to 7 and 10.
TWO_SEGMENTS = {
    0: batch(0, producer_id=7, count=3) + batch(3, producer_id=7, sequence=3, count=2) + batch(5, producer_id=8, count=3),
    8: batch(8, producer_id=7, sequence=5, count=2) + batch(10, producer_id=8, sequence=3),
}
MIDDLE = ProducerEntry(7, 0, 4, 4, 1, 1_000)
LATER = {ProducerEntry(7, 0, 6, 9, 1, 1_000), ProducerEntry(8, 0, 2, 7, 2, 1_000)}


def middle_of_segments(
    tmp_path: Path, snapshots: dict[int, bytes], segments: Mapping[int, bytes] = TWO_SEGMENTS, **options: object
) -> VerifyResult:
    directory = write_partition(make_log_dir(tmp_path / "logs") / "t-0", segments)
    for offset, data in snapshots.items():
        (directory / snapshot_name(offset)).write_bytes(data)
    return verified(tmp_path / "logs", 2000, **options)


def test_snapshots_in_the_middle_of_segments(tmp_path: Path) -> None:
    """A clean stop leaves them, when the broker continues in the same segment; or the cleaner, when it joins segments."""
    result = middle_of_segments(tmp_path, {5: snapshot_bytes([MIDDLE]), 10: snapshot_bytes(LATER)})
    assert (codes(result), statuses(result, "t-0")) == ([], {5: "equal", 10: "equal"})
    assert classes(result, "t-0") == ["EXACT", "EXACT"]
    verdict = verdict_on(result, "t-0")
    assert (list(verdict.missing), verdict.outcome.read_bytes) == ([8, 11], sum(map(len, TWO_SEGMENTS.values())))


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ([], "false_empty"),
        ([replace(MIDDLE, last_sequence=2, last_offset=2, offset_delta=2)], "stale"),
        ([MIDDLE, ProducerEntry(9, 0, 0, 1, 0, 1_000)], "extra_entries"),
        ([replace(MIDDLE, last_offset=5)], "corrupt"),
    ],
)
def test_a_wrong_snapshot_in_the_middle_of_a_segment(entries: list[ProducerEntry], status: str, tmp_path: Path) -> None:
    result = middle_of_segments(tmp_path, {5: snapshot_bytes(entries), 10: snapshot_bytes(LATER)})
    assert (statuses(result, "t-0"), codes(result)) == ({5: status, 10: "equal"}, ["wrong-snapshot"])


def test_a_snapshot_inside_a_batch_is_none_of_this_log(tmp_path: Path) -> None:
    """Whatever it holds: a log ends with a batch. What is after it is judged as if it were not there."""
    for offset, entries in ((4, [replace(MIDDLE, last_sequence=2, last_offset=2, offset_delta=2)]), (9, [])):
        result = middle_of_segments(tmp_path / str(offset), {offset: snapshot_bytes(entries), 10: snapshot_bytes(LATER)})
        assert statuses(result, "t-0") == {offset: "corrupt", 10: "equal"}
        (finding,) = result.findings
        assert "is inside the batch that begins at" in finding.message
        assert list(verdict_on(result, "t-0").missing) == [8, 11]


def test_a_damaged_batch_accuses_no_snapshot(tmp_path: Path) -> None:
    """Only a batch that may be anything says that 4 is inside it."""
    data = bytearray(TWO_SEGMENTS[0])
    data[len(batch(0, producer_id=7, count=3)) + 30] ^= 1
    result = middle_of_segments(tmp_path, {4: EMPTY_SNAPSHOT}, {**TWO_SEGMENTS, 0: bytes(data)})
    assert (statuses(result, "t-0"), codes(result)) == ({4: "unverifiable"}, ["bad-checksum"])


def test_snapshots_in_a_gap_prove_nothing_and_hide_nothing(tmp_path: Path) -> None:
    """The batches that would show it are gone; before the gap all is well, and the finding about it is unchanged."""
    gap = {0: batch(0, producer_id=7, count=3) + batch(6, producer_id=8, count=2), 8: TWO_SEGMENTS[8]}
    first = ProducerEntry(7, 0, 2, 2, 2, 1_000)
    snapshots = {3: snapshot_bytes([first]), 4: snapshot_bytes([replace(first, last_sequence=9)]), 6: EMPTY_SNAPSHOT}
    result = middle_of_segments(tmp_path, snapshots, gap)
    assert statuses(result, "t-0") == {3: "equal", 4: "unverifiable", 6: "unverifiable"}
    assert classes(result, "t-0") == ["EXACT", "UNSOUND", "UNSOUND"]
    assert [(each.code, each.offset) for each in result.findings] == [("unsound-boundary", 8)]


def test_snapshots_at_offsets_to_which_no_log_leads(tmp_path: Path) -> None:
    """Below the first segment, and above the log end: nothing to compare with, unless they do not even parse."""
    snapshots = {5: EMPTY_SNAPSHOT, 6: b"torn", 12: snapshot_bytes(LATER), 99: EMPTY_SNAPSHOT}
    result = middle_of_segments(tmp_path, snapshots, {8: TWO_SEGMENTS[8]})
    assert exit_code_of(result.findings) == 1
    assert statuses(result, "t-0") == {5: "unverifiable", 6: "corrupt", 12: "unverifiable", 99: "unverifiable"}
    reasons = {each.offset: each.comparison.reason for each in verdict_on(result, "t-0").outcome.snapshots}
    assert reasons[5] == NOTHING_BELOW
    assert reasons[12] == "is above the log end 11"
    assert set(classes(result, "t-0")) == {None}


def test_only_selected_offsets_cut_a_segment(tmp_path: Path) -> None:
    empty = {5: EMPTY_SNAPSHOT, 10: EMPTY_SNAPSHOT}
    assert statuses(middle_of_segments(tmp_path, empty, selection=Selection(offset_from=6)), "t-0") == {10: "false_empty"}


def test_real_snapshots_in_the_middle_of_segments() -> None:
    """A broker and a KRaft node that were stopped and started; segments that the cleaner joined, from where it had not yet been."""
    assert statuses(verified(FIXTURES / "tiered-local"), "__remote_log_metadata-0") == {13: "equal", 37: "equal"}
    assert statuses(verified(FIXTURES / "kraft-metadata"), "__cluster_metadata-0")[396] == "equal"
    found = statuses(verified(FIXTURES / "kafka27-compacted", 0), "compacted-0")
    assert [found[offset] for offset in (1308, 1318, 1323)] == ["equal"] * 3


# --- a part of the log -----------------------------------------------------------------------------------------------------


def test_without_its_first_segments_nothing_is_certain_but_what_is_retained(tmp_path: Path) -> None:
    """Retention took the first segments: a snapshot that knows more than the log is healthy, one that knows less than the rest is not."""
    directory = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    for base in (0, 687, 1231):
        for path in directory.glob(f"{base:020d}.*"):
            path.unlink()
    result = verified(directory)
    assert exit_code_of(result.findings) == 0
    assert set(statuses(result, "mixed-0").values()) <= {"equal", "unverifiable"}
    (directory / snapshot_name(5223)).write_bytes(EMPTY_SNAPSHOT)
    assert statuses(verified(directory), "mixed-0")[5223] == "false_empty"


def test_a_flipped_bit_proves_nothing_above_it(tmp_path: Path) -> None:
    directory = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    path = directory / f"{2430:020d}.log"
    flip(path, batch_positions(path)[3] + 61 + 2)
    (directory / snapshot_name(3017)).write_bytes(EMPTY_SNAPSHOT)
    result = verified(directory)
    assert (exit_code_of(result.findings), codes(result)) == (4, ["bad-checksum"])
    found = statuses(result, "mixed-0")
    assert {status for offset, status in found.items() if offset <= 2430} == {"equal"}
    assert found[3017] == "unverifiable", "above it even a false empty is not proven"


def test_a_transaction_index_that_lies(tmp_path: Path) -> None:
    path = copy_of("kafka27-mixed", tmp_path) / "mixed-0" / f"{583:020d}.txnindex"
    path.write_bytes(path.read_bytes()[34:])
    result = verified(path.parent)
    assert (exit_code_of(result.findings), codes(result)) == (1, ["transaction-index-differs"])
    assert result.findings[0].path == str(path)
