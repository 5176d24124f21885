"""``verify`` as a user runs it: healthy directories raise no alarm, and each kind of wrong snapshot is told for what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    Entries,
    batch,
    batch_positions,
    copy_of,
    cut,
    flip,
    make_log_dir,
    marker,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    tree,
    truth,
    write_partition,
)
from manifests import FIXTURES, partition_fixtures

from formats.partition.producer_snapshot import ProducerEntry

CLOCKS = ["0", "now", "2200-01-01"]

HEALTHY = {
    (each.fixture, each.partition): each.manifest["broker_snapshots"]
    for each in partition_fixtures()
    if each.fixture != "damaged" and "broker_snapshots" in each.manifest
}


@pytest.mark.parametrize("fixture", sorted({fixture for fixture, _ in HEALTHY} | {"follower-lost-state", "tiered-local"}))
@pytest.mark.parametrize("as_of", ["0", "2200-01-01"])
def test_healthy_directories_raise_no_alarm(fixture: str, as_of: str) -> None:
    """Every snapshot that equals what Kafka's own code replays is equal here, whatever the clock says."""
    before = tree(FIXTURES / fixture)
    run = in_json("verify", f"fixtures/{fixture}", "--as-of", as_of)
    assert run.exit_code == 0, run.stderr
    assert tree(FIXTURES / fixture) == before
    for (of, partition), snapshots in HEALTHY.items():
        if of != fixture:
            continue
        verdicts = run.verdicts(partition)
        assert sorted(verdicts) == sorted(int(name[:20]) for name in snapshots)
        for name, about in snapshots.items():
            verdict = verdicts[int(name[:20])]
            if about["equals_oracle"] is not None:
                assert (verdict == "equal") is about["equals_oracle"]
            assert verdict in ("equal", "equal_after_expiry", "unverifiable")
    if fixture == "tiered-local":
        assert set(run.verdicts("mixed-0").values()) == {"equal"}


def test_missing_boundaries_are_listed_and_no_finding() -> None:
    run = in_json("verify", "fixtures/kafka27-mixed")
    assert run.partition("logappend-0")["missing_offsets"] == [542, 1015]
    assert len(run.partition("mixed-0")["missing_offsets"]) == 12
    assert run.totals == {"equal": 9}
    assert run.document["findings"] == []


def test_a_follower_that_lost_its_producers_cannot_be_told_from_its_own_log() -> None:
    """They wrote below its first segment: nothing on this disk contradicts the snapshots, and nothing proves them."""
    run = in_json("verify", "fixtures/follower-lost-state/node2", "--as-of", "1795266440000")
    verdicts = run.verdicts("payments-0")
    assert set(verdicts.values()) <= {"unverifiable", "equal"}
    assert verdicts[561] == "unverifiable"


# --- wrong ones ------------------------------------------------------------------------------------------------------------

OFFSET = 7045
RIGHT = truth("kafka27-mixed", "mixed-0")[OFFSET]
AS_OF = "1795261244275"
"""The greatest timestamp of the log: nothing that was written within the day before has expired."""


def wrong_at(tmp_path: Path, data: bytes, as_of: str = AS_OF, *, code: int = 1) -> tuple[str, dict[int, dict[str, object]], str]:
    """Verdict on ``data`` at 7045, its differences by producer id, and what stderr and the tables said."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(OFFSET)).write_bytes(data)
    before = tree(logs)
    run = in_json("verify", logs, "--as-of", as_of)
    assert run.exit_code == code, run.stderr
    assert tree(logs) == before
    verdicts = run.verdicts("mixed-0")
    assert {verdicts[7637], verdicts[8231]} == {"equal"}
    (snapshot,) = [each for each in run.partition("mixed-0")["snapshots"] if each["offset"] == OFFSET]
    table = snaprebuild("verify", logs, "--as-of", as_of)
    assert table.exit_code == code
    return (
        verdicts[OFFSET],
        {each["producer_id"]: each for each in snapshot["comparison"]["differences"]},
        table.stdout + table.stderr,
    )


def without(entries: Iterable[ProducerEntry], *gone: ProducerEntry) -> bytes:
    return snapshot_bytes(entry for entry in entries if entry not in gone)


def instead(entries: Entries, old: ProducerEntry, **fields: int) -> bytes:
    return snapshot_bytes({*(entries - {old}), replace(old, **fields)})


def idempotent() -> ProducerEntry:
    """The producer with the newest batch that has no open transaction and wrote without transactions."""
    return max((e for e in RIGHT if e.current_txn_first_offset < 0 and e.coordinator_epoch < 0), key=lambda e: e.timestamp)


def in_transaction() -> ProducerEntry:
    """The one that hangs, from 6913."""
    (found,) = [entry for entry in RIGHT if entry.current_txn_first_offset == 6913]
    return found


@pytest.mark.parametrize("as_of", [AS_OF, "now", "2200-01-01"])
def test_a_false_empty(as_of: str, tmp_path: Path) -> None:
    verdict, differences, told = wrong_at(tmp_path, EMPTY_SNAPSHOT, as_of)
    assert verdict == "false_empty"
    hanging = differences[in_transaction().producer_id]
    assert hanging["kind"] == "missing"
    assert hanging["is_certain"]
    assert (
        hanging["consequence"] == "its transaction, open from 6913, is forgotten: undecided data is read by consumers and uploaded"
    )
    assert "false empty" in told
    if as_of == "2200-01-01":
        assert set(differences) == {in_transaction().producer_id}, "everything else has expired"
        assert "open from 6913, is forgotten" in " ".join(told.split())


def test_a_missing_producer(tmp_path: Path) -> None:
    gone = idempotent()
    verdict, differences, _ = wrong_at(tmp_path, without(RIGHT, gone))
    assert verdict == "missing_entries"
    assert set(differences) == {gone.producer_id}
    consequence = str(differences[gone.producer_id]["consequence"])
    assert (
        consequence
        == f"a retry of sequence {gone.last_sequence} or older is accepted as new (duplicate), and older epochs are not fenced"
    )


def test_a_missing_producer_that_has_expired(tmp_path: Path) -> None:
    """A broker drops it when it loads the file: as good as equal."""
    gone = idempotent()
    verdict, differences, _ = wrong_at(tmp_path, without(RIGHT, gone), str(gone.timestamp + 86_400_000), code=0)
    assert (verdict, differences) == ("equal_after_expiry", {})
    verdict, _, _ = wrong_at(tmp_path / "a ms before", without(RIGHT, gone), str(gone.timestamp + 86_399_999))
    assert verdict == "missing_entries"


def test_a_forgotten_transaction(tmp_path: Path) -> None:
    hanging = in_transaction()
    verdict, differences, _ = wrong_at(tmp_path, instead(RIGHT, hanging, current_txn_first_offset=-1), "2200-01-01")
    assert verdict == "stale"
    assert differences[hanging.producer_id]["field"] == "current_txn_first_offset"
    assert (differences[hanging.producer_id]["expected"], differences[hanging.producer_id]["found"]) == (6913, -1)
    assert "is forgotten" in str(differences[hanging.producer_id]["consequence"])


def test_a_transaction_that_never_was(tmp_path: Path) -> None:
    other = idempotent()
    verdict, differences, _ = wrong_at(tmp_path, instead(RIGHT, other, current_txn_first_offset=6000))
    assert verdict == "stale"
    assert "a closed transaction stays open from 6000" in str(differences[other.producer_id]["consequence"])


def test_a_stale_producer(tmp_path: Path) -> None:
    """The state of the boundary before: a healthy producer is refused."""
    verdict, differences, _ = wrong_at(tmp_path, snapshot_bytes(truth("kafka27-mixed", "mixed-0")[6390]))
    assert verdict == "stale"
    older = {entry.producer_id: entry for entry in truth("kafka27-mixed", "mixed-0")[6390]}
    expected = {entry.producer_id for entry in RIGHT if older.get(entry.producer_id) != entry}
    assert set(differences) == expected
    assert any("OutOfOrderSequence" in str(each["consequence"]) for each in differences.values())


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [("epoch", 1, "epoch"), ("last_sequence", -1, "is refused"), ("timestamp", -5, "expires too early")],
)
def test_one_wrong_field(field: str, change: int, says: str, tmp_path: Path) -> None:
    other = idempotent()
    verdict, differences, _ = wrong_at(tmp_path, instead(RIGHT, other, **{field: getattr(other, field) + change}))
    assert verdict == "stale"
    difference = differences[other.producer_id]
    assert difference["field"] == field
    assert (difference["expected"], difference["found"]) == (getattr(other, field), getattr(other, field) + change)
    assert says in str(difference["consequence"])


def test_a_producer_that_never_was(tmp_path: Path) -> None:
    stranger = ProducerEntry(999_999, 3, 5, 7000, 0, int(AS_OF) - 1000)
    verdict, differences, _ = wrong_at(tmp_path, snapshot_bytes({*RIGHT, stranger}))
    assert verdict == "extra_entries"
    assert differences[999_999]["kind"] == "extra"


CORRUPT = {
    "torn": snapshot_bytes(RIGHT)[:-20],
    "no bytes": b"",
    "bad checksum": snapshot_bytes(RIGHT)[:-1] + b"\x07",
    "version 2": b"\0\2" + snapshot_bytes(RIGHT)[2:],
    "an offset above its name": instead(RIGHT, idempotent(), last_offset=OFFSET),
    "a producer twice": snapshot_bytes([*RIGHT, idempotent()]),
}


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_one(kind: str, tmp_path: Path) -> None:
    verdict, _, told = wrong_at(tmp_path, CORRUPT[kind])
    assert verdict in (("corrupt",) if kind != "an offset above its name" and kind != "a producer twice" else ("corrupt", "stale"))
    assert "wrong-snapshot" in told


def test_another_order_is_equal(tmp_path: Path) -> None:
    verdict, differences, _ = wrong_at(tmp_path, snapshot_bytes(sorted(RIGHT, key=lambda entry: -entry.last_offset)), code=0)
    assert (verdict, differences) == ("equal", {})


# Two segments: 7 writes 0 to 2, 3 to 4 and 8 to 9; 8 writes 5 to 7 and 10.
TWO_SEGMENTS = {
    0: batch(0, producer_id=7, count=3) + batch(3, producer_id=7, sequence=3, count=2) + batch(5, producer_id=8, count=3),
    8: batch(8, producer_id=7, sequence=5, count=2) + batch(10, producer_id=8, sequence=3),
}
MIDDLE = ProducerEntry(7, 0, 4, 4, 1, 1_000)
LATER = {ProducerEntry(7, 0, 6, 9, 1, 1_000), ProducerEntry(8, 0, 2, 7, 2, 1_000)}


def middle_of_segments(tmp_path: Path, snapshots: dict[int, bytes], segments: Mapping[int, bytes] = TWO_SEGMENTS) -> Run:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", segments)
    for offset, data in snapshots.items():
        (logs / "t-0" / snapshot_name(offset)).write_bytes(data)
    return in_json("verify", logs, "--as-of", "2000")


def test_snapshots_in_the_middle_of_segments(tmp_path: Path) -> None:
    """What a clean stop leaves, when the broker goes on in the same segment; or the cleaner, when it joins segments."""
    run = middle_of_segments(tmp_path, {5: snapshot_bytes([MIDDLE]), 10: snapshot_bytes(LATER)})
    assert run.exit_code == 0
    assert run.verdicts("t-0") == {5: "equal", 10: "equal"}
    assert {each["class"] for each in run.partition("t-0")["snapshots"]} == {"EXACT"}
    assert run.partition("t-0")["missing_offsets"] == [8, 11]
    assert run.partition("t-0")["read_bytes"] == sum(map(len, TWO_SEGMENTS.values()))


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([], "false_empty"),
        ([replace(MIDDLE, last_sequence=2, last_offset=2, offset_delta=2)], "stale"),
        ([MIDDLE, ProducerEntry(9, 0, 0, 1, 0, 1_000)], "extra_entries"),
        ([replace(MIDDLE, current_txn_first_offset=3)], "stale"),
        ([replace(MIDDLE, last_offset=5)], "corrupt"),
    ],
)
def test_a_wrong_snapshot_in_the_middle_of_a_segment(entries: list[ProducerEntry], verdict: str, tmp_path: Path) -> None:
    run = middle_of_segments(tmp_path, {5: snapshot_bytes(entries), 10: snapshot_bytes(LATER)})
    assert run.exit_code == 1
    assert run.verdicts("t-0") == {5: verdict, 10: "equal"}
    assert run.codes == {"wrong-snapshot": 1}


def test_a_snapshot_inside_a_batch_is_none_of_this_log(tmp_path: Path) -> None:
    """Whatever it holds: a log ends with a batch. What lies behind it is judged as if it were not there."""
    for offset, entries in ((4, [replace(MIDDLE, last_sequence=2, last_offset=2, offset_delta=2)]), (9, [])):
        run = middle_of_segments(tmp_path / str(offset), {offset: snapshot_bytes(entries), 10: snapshot_bytes(LATER)})
        assert run.exit_code == 1
        assert run.verdicts("t-0") == {offset: "corrupt", 10: "equal"}
        assert "is inside the batch that begins at" in run.messages("wrong-snapshot")
        assert run.partition("t-0")["missing_offsets"] == [8, 11]


def test_a_damaged_batch_accuses_no_snapshot(tmp_path: Path) -> None:
    """That 4 lies inside it says a batch that may be anything."""
    data = bytearray(TWO_SEGMENTS[0])
    data[len(batch(0, producer_id=7, count=3)) + 30] ^= 1
    run = middle_of_segments(tmp_path, {4: EMPTY_SNAPSHOT}, {**TWO_SEGMENTS, 0: bytes(data)})
    assert run.verdicts("t-0") == {4: "unverifiable"}
    assert run.codes == {"bad-checksum": 1}


def test_snapshots_in_a_gap_prove_nothing_and_hide_nothing(tmp_path: Path) -> None:
    """The batches that would tell are gone; before the gap all is well, and the finding about it stands where it stood."""
    gap = {0: batch(0, producer_id=7, count=3) + batch(6, producer_id=8, count=2), 8: TWO_SEGMENTS[8]}
    first = ProducerEntry(7, 0, 2, 2, 2, 1_000)
    snapshots = {3: snapshot_bytes([first]), 4: snapshot_bytes([replace(first, last_sequence=9)]), 6: EMPTY_SNAPSHOT}
    run = middle_of_segments(tmp_path, snapshots, gap)
    assert run.verdicts("t-0") == {3: "equal", 4: "unverifiable", 6: "unverifiable"}
    assert [each["class"] for each in run.partition("t-0")["snapshots"]] == ["EXACT", "UNSOUND", "UNSOUND"]
    assert [(finding["code"], finding["offset"]) for finding in run.document["findings"]] == [("unsound-boundary", 8)]


def test_snapshots_at_offsets_to_which_no_log_leads(tmp_path: Path) -> None:
    """Below the first segment, and above the log end: nothing to compare with, unless they do not even parse."""
    segments = {8: TWO_SEGMENTS[8]}
    snapshots = {5: EMPTY_SNAPSHOT, 6: b"torn", 12: snapshot_bytes(LATER), 99: EMPTY_SNAPSHOT}
    run = middle_of_segments(tmp_path, snapshots, segments)
    assert run.exit_code == 1
    assert run.verdicts("t-0") == {5: "unverifiable", 6: "corrupt", 12: "unverifiable", 99: "unverifiable"}
    reasons = {each["offset"]: each["comparison"]["reason"] for each in run.partition("t-0")["snapshots"]}
    assert reasons[5] == "nothing before the first segment is on disk"
    assert reasons[12] == "is above the log end 11"
    assert {each["class"] for each in run.partition("t-0")["snapshots"]} == {None}


def test_only_selected_offsets_cut_a_segment(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", TWO_SEGMENTS)
    for offset in (5, 10):
        (logs / "t-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("verify", logs, "--as-of", "2000", "--offsets", "6:")
    assert run.verdicts("t-0") == {10: "false_empty"}


def test_real_snapshots_in_the_middle_of_segments() -> None:
    """A broker and a KRaft node that were stopped and started; segments that the cleaner joined, from where it had not yet been."""
    assert in_json("verify", "fixtures/tiered-local").verdicts("__remote_log_metadata-0") == {13: "equal", 37: "equal"}
    assert in_json("verify", "fixtures/kraft-metadata").verdicts("__cluster_metadata-0")[396] == "equal"
    verdicts = in_json("verify", "fixtures/kafka27-compacted", "--as-of", "0").verdicts("compacted-0")
    assert [verdicts[offset] for offset in (1308, 1318, 1323)] == ["equal"] * 3


def test_without_its_first_segments_nothing_is_certain_but_what_is_retained(tmp_path: Path) -> None:
    """Retention took the first segments: a snapshot that knows more than the log is healthy, one that knows less than the rest is not."""
    logs = copy_of("kafka4-mixed", tmp_path)
    for base in (0, 687, 1231):
        for path in (logs / "mixed-0").glob(f"{base:020d}.*"):
            path.unlink()
    run = in_json("verify", logs, "--topic", "mixed", "--as-of", AS_OF)
    assert run.exit_code == 0
    assert set(run.verdicts("mixed-0").values()) <= {"equal", "unverifiable"}
    (logs / "mixed-0" / snapshot_name(5223)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("verify", logs, "--topic", "mixed", "--as-of", AS_OF)
    assert run.exit_code == 1
    assert run.verdicts("mixed-0")[5223] == "false_empty"


# --- damage, selection, report ---------------------------------------------------------------------------------------------


def test_a_flipped_bit_proves_nothing_above_it(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    path = logs / "mixed-0" / f"{2430:020d}.log"
    flip(path, batch_positions(path)[3] + 61 + 2)
    run = in_json("verify", logs, "--topic", "mixed")
    assert run.exit_code == 4
    assert run.codes == {"bad-checksum": 1}
    verdicts = run.verdicts("mixed-0")
    assert {verdict for offset, verdict in verdicts.items() if offset <= 2430} == {"equal"}
    assert in_json("verify", logs, "--topic", "mixed", "--crc", "skip").exit_code == 0
    # Above it even a false empty is not proven.
    (logs / "mixed-0" / snapshot_name(3017)).write_bytes(EMPTY_SNAPSHOT)
    assert in_json("verify", logs, "--topic", "mixed").verdicts("mixed-0")[3017] == "unverifiable"


def test_a_torn_segment_in_the_middle(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    cut(logs / "mixed-0" / f"{2430:020d}.log", -37)
    run = in_json("verify", logs)
    assert run.exit_code == 4
    verdicts = run.verdicts("mixed-0")
    assert all(verdict == ("equal" if offset <= 2430 else "unverifiable") for offset, verdict in verdicts.items())
    assert set(run.verdicts("logappend-0").values()) == {"equal"}


def test_a_transaction_index_that_lies(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / f"{583:020d}.txnindex"
    path.write_bytes(path.read_bytes()[34:])
    run = in_json("verify", logs)
    assert run.exit_code == 1
    assert str(path) in run.messages("transaction-index-differs")


def test_selection() -> None:
    run = in_json("verify", "fixtures/kafka27-mixed", "--topic", "mixed", "--offsets", "7637:")
    assert run.verdicts("mixed-0") == {7637: "equal", 8231: "equal"}
    assert len(run.document["partitions"]) == 1


def test_details_and_tables(tmp_path: Path) -> None:
    run = snaprebuild("verify", "fixtures/kafka27-mixed", "-v")
    assert run.exit_code == 0
    assert re.search(r"mixed-0 +3 +12 +3 equal", run.stdout)
    assert re.search(r"mixed-0 +8231 +equal +35 +35 ", run.stdout)
    assert not [line for line in run.stderr.splitlines() if not line.startswith("I ")], "decisions alone"


def test_the_expiration_of_the_broker_counts(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    gone = idempotent()
    (logs / "mixed-0" / snapshot_name(OFFSET)).write_bytes(without(RIGHT, gone))
    properties = tmp_path / "server.properties"
    as_of = str(gone.timestamp + 5000)
    for expiration, verdict in ((5000, "equal_after_expiry"), (5001, "missing_entries")):
        properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms={expiration}\n")
        run = in_json("verify", "--server-properties", properties, "--as-of", as_of)
        assert run.document["expiration_ms"] == expiration
        assert run.verdicts("mixed-0")[OFFSET] == verdict


def test_what_is_not_listed_is_counted(tmp_path: Path) -> None:
    """1,500 producers are not in the file, of which 1,000 are listed in JSON and 10 in the table."""
    logs = make_log_dir(tmp_path / "logs")
    data = b"".join(batch(producer, producer_id=producer) for producer in range(1500))
    write_partition(logs / "t-0", {0: data})
    (logs / "t-0" / snapshot_name(1500)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("verify", logs, "--as-of", "1000")
    (comparison,) = [each["comparison"] for each in run.partition("t-0")["snapshots"]]
    assert (comparison["difference_count"], comparison["certain_count"], len(comparison["differences"])) == (1500, 1500, 1000)
    assert run.document["differences_not_listed"] == 500
    table = snaprebuild("verify", logs, "--as-of", "1000").text
    assert "and 1490 more (--output json lists 990 of them)" in table
    assert "500 entries that differ are counted and not listed" in table


def test_what_a_marker_leaves(tmp_path: Path) -> None:
    """Made by hand: a transaction that ends with a marker of the next epoch (transaction.version 2) leaves no batch."""
    logs = make_log_dir(tmp_path / "logs")
    first = batch(0, producer_id=7, count=3, attributes=0x10) + marker(3, 7, epoch=1, coordinator_epoch=8, timestamp=50)
    write_partition(logs / "t-0", {0: first, 4: batch(4, producer_id=8)})
    right = {ProducerEntry(7, 1, -1, -1, 0, 50, 8, -1)}
    for entries, verdict in ((right, "equal"), ({replace(next(iter(right)), coordinator_epoch=9)}, "stale")):
        remove_snapshots(logs / "t-0")
        (logs / "t-0" / snapshot_name(4)).write_bytes(snapshot_bytes(entries))
        assert in_json("verify", logs, "--as-of", "60").verdicts("t-0") == {4: verdict}
