"""``follower check`` and ``follower repair`` on a real follower that forgot, and on small ones made by hand."""

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    TRANSACTIONAL,
    batch,
    changes,
    entries_in,
    flip,
    make_log_dir,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    tree,
    write_partition,
)
from manifests import FIXTURES
from other_process import live_broker
from sentences import NO_FINISHED_COPY
from tiers import TOPIC_ID, Copy, epochs_text, id_text, write_tier

from formats.partition.producer_snapshot import ProducerEntry

LOST = FIXTURES / "follower-lost-state"
REMOTE = LOST / "remote"
MANIFEST: dict[str, Any] = json.loads((LOST / "manifest.json").read_text())
RIGHT = {
    int(offset): frozenset(ProducerEntry(**entry) for entry in about["right_entries"])
    for offset, about in MANIFEST["per_snapshot_offset"].items()
}
NOW = ("--as-of", "2026-11-21T14:00:00Z")
"""Minutes after the records."""


def the_replica(run: Run) -> dict[str, Any]:
    (replica,) = run.document["replicas"]
    assert isinstance(replica, dict)
    return replica


def actions(run: Run) -> dict[str, int]:
    """Boundaries of ``follower repair`` by action."""
    return {action: count for action, count in run.document["totals"].items() if count}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The follower that forgot, to be written to."""
    return Path(shutil.copytree(LOST / "node2", tmp_path / "node2"))


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """Its remote storage, to be written to."""
    return Path(shutil.copytree(REMOTE, tmp_path / "remote"))


def remove_copies(remote: Path, *bases: int) -> None:
    for base in bases:
        for path in remote.rglob(f"{base:020d}-*"):
            path.unlink()


def newest_file(remote: Path, suffix: str) -> Path:
    """Path of a file of the copy below the first local segment."""
    (path,) = remote.rglob(f"{508:020d}-*{suffix}")
    return path


# ---------------------------------------------------------------------------------------------------------------- the real one


@pytest.mark.parametrize(
    ("place", "metadata"), [("node2", ()), ("node2/payments-0", ("--metadata-log", LOST / "node1"))], ids=["bucket", "metadata"]
)
def test_the_lost_producers_are_those_of_the_manifest(place: str, metadata: tuple[object, ...]) -> None:
    before = tree(LOST)
    run = in_json("follower check", REMOTE, LOST / place, *NOW, *metadata)
    assert (run.exit_code, run.codes["follower-lost-state"]) == (1, 1)
    replica = the_replica(run)
    assert replica["verdict"] == "lost-producer-state" == MANIFEST["verdict"].lower().replace("_", "-")
    assert (replica["first_offset"], replica["log_start_offset"]) == (MANIFEST["B"], MANIFEST["log_start_offset"])
    assert replica["loss_cause"] == "discarded-at-bootstrap"
    remote, expected = replica["remote"], MANIFEST["expected_snapshot_at_B"]
    assert remote["segment_id"] == expected["remote_segment"]["segment_id"]
    assert (remote["verdict"], remote["class"], remote["entries_source"]) == ("right", "EXACT", "remote-snapshot")
    assert remote["entries"] == len(expected["entries"])
    found = {each["offset"]: each for each in replica["snapshots"]}
    assert found.keys() == RIGHT.keys()
    for offset, about in MANIFEST["per_snapshot_offset"].items():
        snapshot = found[int(offset)]
        lost = [each["producer_id"] for each in snapshot["lost"]]
        assert sorted(lost) == sorted(about["lost_producer_ids"])
        assert (snapshot["lost_count"], snapshot["expired_producers"]) == (len(lost), 0)
        assert snapshot["expected_entries"] == len(about["right_entries"])
        assert snapshot["proven_wrong"]
    assert tree(LOST) == before


def test_the_leader_is_intact() -> None:
    run = in_json("follower check", REMOTE, LOST / "node1", *NOW, "--topic", "payments")
    assert (run.exit_code, run.codes) == (0, {})
    replica = the_replica(run)
    assert (replica["verdict"], replica["first_offset"]) == ("intact", 456)
    assert {each["status"] for each in replica["snapshots"]} == {"equal"}


def test_what_has_expired_is_no_loss() -> None:
    """A day later a broker drops all of them itself."""
    run = in_json("follower check", REMOTE, LOST / "node2", "--as-of", "2026-11-25")
    assert (run.exit_code, the_replica(run)["verdict"]) == (0, "intact")
    first = the_replica(run)["snapshots"][0]
    assert (first["lost_count"], first["expired_producers"]) == (0, 14)
    assert all(each["expired"] for each in first["lost"])


def test_old_copies_are_not_read_where_the_young_ones_settle_it(remote: Path) -> None:
    """Old copies hold expired entries only. A snapshot that the young copies contradict is wrong itself, and does not speak against
    the one below."""
    at_ms = max(each["timestamp"] for each in MANIFEST["expected_snapshot_at_B"]["entries"]) + 1000
    as_of = ("--as-of", datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat())
    sizes = {
        record["body"]["start_offset"]: (record["body"]["segment_size_bytes"], record["body"]["max_timestamp_ms"])
        for record in MANIFEST["rlmm_records"]
        if "start_offset" in record["body"] and record["body"]["start_offset"] < MANIFEST["B"]
    }
    (snapshot,) = remote.rglob(MANIFEST["expected_snapshot_at_B"]["remote_object"])
    for data, origin in ((snapshot.read_bytes(), "remote-snapshot"), (EMPTY_SNAPSHOT, "rebuilt")):
        snapshot.write_bytes(data)
        for expiration_ms in (7_000, 3_000):
            young = [size for size, greatest in sizes.values() if at_ms - greatest < expiration_ms]
            assert 0 < len(young) < len(sizes)
            run = in_json("follower check", remote, LOST / "node2", *as_of, "--expiration-ms", expiration_ms)
            replica = the_replica(run)
            live = [e for e in MANIFEST["expected_snapshot_at_B"]["entries"] if at_ms - e["timestamp"] < expiration_ms]
            assert (replica["verdict"], replica["snapshots"][0]["lost_count"]) == ("lost-producer-state", len(live))
            found = replica["remote"]
            assert (found["entries_source"], found["class"], found["entries"]) == (origin, "EXACT", 14)
            assert found["read_bytes"] == sum(young)


def test_repair_makes_every_snapshot_right(node: Path) -> None:
    before = tree(node)
    receipt = node.parent / "receipt.jsonl"
    run = in_json("follower repair", REMOTE, node, *NOW, "--set-aside", "--receipt", receipt)
    assert (run.exit_code, actions(run)) == (0, {"written": len(RIGHT)})
    assert the_replica(run)["repaired"]
    assert snapshots_in(node / "payments-0") == RIGHT
    added, gone, changed = changes(before, tree(node))
    aside = {f"payments-0/{snapshot_name(offset)}.set-aside.1" for offset in RIGHT}
    assert (added - {".lock"}, gone) == (aside, set())
    assert changed <= {f"payments-0/{snapshot_name(offset)}" for offset in RIGHT} | {"payments-0"}
    at_first = MANIFEST["expected_snapshot_at_B"]
    assert (node / "payments-0" / snapshot_name(561)).read_bytes() == (
        REMOTE / "kafka-tiered-storage" / Path(MANIFEST["remote_dir"]).name / at_first["remote_object"]
    ).read_bytes()

    after = tree(node)
    assert in_json("follower check", REMOTE, node, *NOW).exit_code == 0
    again = in_json("follower repair", REMOTE, node, *NOW, "--set-aside")
    assert (again.exit_code, actions(again), again.document["receipt"]) == (0, {}, None)
    assert tree(node) == after

    undone = in_json("undo", receipt)
    assert undone.exit_code == 0
    added, gone, changed = changes(before, tree(node))
    assert (added - {".lock"}, gone) == (set(), set())
    assert {offset: len(entries) for offset, entries in snapshots_in(node / "payments-0").items()}[561] == 0


def test_nothing_is_replaced_that_was_not_asked_for(node: Path) -> None:
    before = tree(node)
    run = in_json("follower repair", REMOTE, node, *NOW)
    assert (run.exit_code, actions(run)) == (1, {"kept": len(RIGHT)})
    assert "--set-aside replaces it" in run.messages("wrong-snapshot")
    dry = in_json("follower repair", REMOTE, node, *NOW, "--set-aside", "--dry-run")
    assert (dry.exit_code, actions(dry)) == (0, {"would_write": len(RIGHT)})
    added, gone, changed = changes(before, tree(node))
    assert (added - {".lock"}, gone, changed) == (set(), set(), set())


def test_a_live_broker_is_left_alone(node: Path) -> None:
    with live_broker(node):
        before = tree(node)
        run = in_json("follower repair", REMOTE, node, *NOW, "--set-aside")
        assert (run.exit_code, run.stdout) == (3, "")  # before remote storage is read
        assert "holds this log directory: stop the broker first" in run.stderr
        assert tree(node) == before


@pytest.mark.parametrize("corruption", ["replaced-disk", "above-high-watermark"])
def test_a_replica_of_one_segment_is_judged(node: Path, corruption: str) -> None:
    """After an unclean stop nothing but its first snapshot would be written; it is no less asked whether that may be."""
    for path in (node / "payments-0").iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) > 561:
            path.unlink()
    (node / ".kafka_cleanshutdown").unlink()
    if corruption == "replaced-disk":
        meta = node / "meta.properties"
        lines = meta.read_text().splitlines()
        meta.write_text("\n".join(line for line in lines if "directory.id" not in line) + "\ndirectory.id=ab9ZJ6AMRJSTUIzVRVFYag\n")
    else:
        (node / "replication-offset-checkpoint").write_text("0\n1\npayments 0 500\n")
    before = tree(node)
    run = in_json("follower repair", REMOTE, node, *NOW, "--set-aside")
    assert run.exit_code == 3
    if corruption == "replaced-disk":
        assert "REJECTED(R4)" in run.messages("source-rejected")
    else:
        assert "no snapshot is written at 561: nothing above offset 0 is trusted" in run.messages("follower-not-repaired")
    assert {path: found for path, found in tree(node).items() if "lock" not in str(path)} == before


def test_a_snapshot_at_the_log_start_would_be_deleted(node: Path) -> None:
    """At or below the log start a broker drops it; and then nothing below is part of its log."""
    (node / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 561\n")
    run = in_json("follower repair", REMOTE, node, *NOW, "--set-aside")
    assert (run.exit_code, the_replica(run)["verdict"], actions(run)) == (0, "not-bootstrapped", {})


def test_remote_storage_that_does_not_reach(node: Path, remote: Path) -> None:
    remove_copies(remote, 508)
    run = in_json("follower check", remote, node, *NOW)
    assert (run.exit_code, the_replica(run)["verdict"]) == (1, "unknown")
    assert f"{NO_FINISHED_COPY}560" in run.messages("follower-not-checked")
    repaired = in_json("follower repair", remote, node, *NOW, "--set-aside")
    assert (repaired.exit_code, actions(repaired)) == (1, {})


@pytest.mark.parametrize(
    ("data", "verdict", "exit_code"),
    [(EMPTY_SNAPSHOT, "false-empty", 1), (b"", "zero-bytes", 1), (b"\0\1" * 20, "corrupt", 4)],
)
def test_a_wrong_remote_snapshot_is_rebuilt_from_the_copies(
    node: Path, remote: Path, data: bytes, verdict: str, exit_code: int
) -> None:
    """The replica gets the right one. That of remote storage stays wrong, before the repair and after it."""
    newest_file(remote, ".snapshot").write_bytes(data)
    for dry_run in (["--dry-run"], []):
        run = in_json("follower repair", remote, node, *NOW, "--set-aside", *dry_run)
        reported = the_replica(run)["remote"]
        assert (reported["verdict"], reported["entries_source"], reported["class"]) == (verdict, "rebuilt", "EXACT")
        assert (run.exit_code, run.document["status"], run.document["counts"]["wrong"]) == (exit_code, "wrong", 1)
        assert the_replica(run)["repaired"]
    assert snapshots_in(node / "payments-0") == RIGHT
    for words in (("follower check",), ("follower repair", "--dry-run")):
        again = in_json(*words, remote, node, *NOW)
        assert (again.exit_code, again.document["status"], again.document["counts"]["wrong"]) == (exit_code, "wrong", 1)
        assert again.document["next_command"].split()[1:3] == ["tier", "audit"], "no repair of a replica corrects it"


def test_a_snapshot_that_was_not_replayed_repairs_nothing(tmp_path: Path) -> None:
    run = in_json("follower check", REMOTE, LOST / "node2", *NOW, "--proof", "snapshot")
    reported = the_replica(run)["remote"]
    assert (reported["class"], reported["read_bytes"]) == ("UNPROVEN", 0)
    assert (run.exit_code, the_replica(run)["snapshots"][0]["lost_count"]) == (1, 14)


@pytest.mark.parametrize(("wrong", "verdict", "origin"), [(False, "right", "remote-snapshot"), (True, "false-empty", "rebuilt")])
def test_copies_that_begin_above_zero(node: Path, remote: Path, wrong: bool, verdict: str, origin: str) -> None:
    """Retention deleted the first four copies: the snapshots of the others agree about what was in them.

    Where the snapshot that is wanted is wrong, it follows from the first one, which the ones between confirm.
    """
    remove_copies(remote, 0, 56, 116, 173)
    if wrong:
        newest_file(remote, ".snapshot").write_bytes(EMPTY_SNAPSHOT)
    (node / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 235\n")
    run = in_json("follower repair", remote, node, *NOW, "--set-aside")
    reported = the_replica(run)["remote"]
    assert (run.exit_code, reported["verdict"], reported["entries_source"], reported["class"]) == (
        int(wrong),
        verdict,
        origin,
        "EXACT",
    )
    assert reported["replayed_from_offset"] == 235
    assert snapshots_in(node / "payments-0") == RIGHT


def test_copies_above_a_hole_prove_nothing(node: Path, remote: Path) -> None:
    """The log begins at 0, and one copy in the middle is gone: who wrote only below it is not known."""
    remove_copies(remote, 173)
    snapshots = [path for path in remote.rglob("*.snapshot") if int(path.name[:20]) >= 235]
    assert len(snapshots) > 3
    for path in snapshots:
        path.write_bytes(EMPTY_SNAPSHOT)
    before = tree(node)
    run = in_json("follower repair", remote, node, *NOW, "--set-aside")
    reported = the_replica(run)["remote"]
    assert (run.exit_code, reported["class"], reported["replayed_from_offset"]) == (3, "UNPROVEN", 235)
    assert f"{NO_FINISHED_COPY}234" in run.messages("follower-not-repaired")
    assert tree(node) == before


# ---------------------------------------------------------------------------------------------------------------- by hand

MS = 1_795_266_400_000


def small(tmp_path: Path, local_base: int, snapshots: dict[int, bytes]) -> tuple[Path, Path]:
    """Offsets 0 to 5 in two copies, and a replica that has offsets ``local_base`` to 9. Producer 7 has a transaction open
    from 3; 8 and 9 wrote before it, 9 again at the end."""
    first = batch(0, producer_id=9, count=2, timestamp=MS) + batch(2, producer_id=8, timestamp=MS)
    open_from_3 = batch(3, producer_id=7, attributes=TRANSACTIONAL, timestamp=MS)
    second = open_from_3 + batch(4, producer_id=8, sequence=1, timestamp=MS) + batch(5, timestamp=MS)
    rest = batch(6, producer_id=9, sequence=2, timestamp=MS) + batch(7, count=2, timestamp=MS)
    at_3 = [ProducerEntry(8, 0, 0, 2, 0, MS, -1, -1), ProducerEntry(9, 0, 1, 1, 1, MS, -1, -1)]
    remote = write_tier(
        tmp_path / "remote",
        "t",
        0,
        [Copy(0, first, [(0, 0)], snapshot_bytes(at_3)), Copy(3, second, [(0, 0)], snapshot_bytes(AT_6))],
    )
    log_dir = make_log_dir(tmp_path / "logs", log_start_offset_checkpoint="0\n1\nt 0 0\n", recovery_points={"t-0": 9})
    parts = {4: second[len(open_from_3) :], 6: rest} if local_base == 4 else {6: rest}
    directory = write_partition(log_dir / "t-0", parts)
    (directory / "leader-epoch-checkpoint").write_text(epochs_text([(0, 0)]))
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(TOPIC_ID)}")
    for base in parts:
        for suffix in (".index", ".timeindex"):
            (directory / f"{base:020d}{suffix}").write_bytes(b"")
    for offset, data in snapshots.items():
        (directory / snapshot_name(offset)).write_bytes(data)
    return log_dir, remote


AT_6 = [ProducerEntry(7, 0, 0, 3, 0, MS, -1, 3), ProducerEntry(8, 0, 1, 4, 0, MS, -1, -1), ProducerEntry(9, 0, 1, 1, 1, MS, -1, -1)]
AT_9 = frozenset([*AT_6[:2], ProducerEntry(9, 0, 2, 6, 0, MS, -1, -1)])
FORGOT = {6: EMPTY_SNAPSHOT, 9: snapshot_bytes([ProducerEntry(9, 0, 2, 6, 0, MS, -1, -1)])}


def test_open_transactions_come_first(tmp_path: Path) -> None:
    log_dir, remote = small(tmp_path, 6, FORGOT)
    run = in_json("follower check", remote, log_dir, *NOW)
    first, last = the_replica(run)["snapshots"]
    assert [each["producer_id"] for each in first["lost"]] == [7, 8, 9]
    assert [each["producer_id"] for each in last["lost"]] == [7, 8]
    assert first["lost"][0]["open_from"] == 3
    assert "open from 3, is forgotten" in first["lost"][0]["consequence"]
    assert (first["lost_open_transactions"], run.exit_code) == (1, 1)
    assert the_replica(run)["loss_cause"] == "discarded-at-bootstrap"
    table = snaprebuild("follower", "check", remote, log_dir, *NOW)
    assert table.stdout.index("open from 3") < table.stdout.index("a retry of sequence")
    in_json("follower repair", remote, log_dir, *NOW, "--set-aside")
    assert snapshots_in(log_dir / "t-0") == {6: frozenset(AT_6), 9: AT_9}


def test_a_replica_that_begins_inside_of_a_copy(tmp_path: Path) -> None:
    """Segments of a follower need not end where those of the leader did: the copy is replayed up to there."""
    log_dir, remote = small(tmp_path, 4, FORGOT)
    run = in_json("follower repair", remote, log_dir, *NOW, "--set-aside")
    replica = the_replica(run)
    assert (replica["first_offset"], replica["remote"]["entries_source"], replica["remote"]["verdict"]) == (4, "replayed", None)
    at_4 = frozenset([AT_6[0], ProducerEntry(8, 0, 0, 2, 0, MS, -1, -1), AT_6[2]])
    assert snapshots_in(log_dir / "t-0") == {4: at_4, 6: frozenset(AT_6), 9: AT_9}
    assert in_json("follower check", remote, log_dir, *NOW).exit_code == 0


def test_a_missing_first_snapshot_alone_is_no_loss(tmp_path: Path) -> None:
    """A broker loads the newest."""
    log_dir, remote = small(tmp_path, 6, {9: snapshot_bytes(AT_9)})
    run = in_json("follower check", remote, log_dir, *NOW)
    assert (run.exit_code, the_replica(run)["verdict"]) == (0, "intact")
    assert the_replica(run)["snapshots"][0]["entries"] is None


def test_a_snapshot_inside_of_the_last_segment(tmp_path: Path) -> None:
    """A broker loads the newest, wherever it is, and deletes the others of that kind unread."""
    forgot_at_7 = snapshot_bytes([ProducerEntry(9, 0, 2, 6, 0, MS, -1, -1)])
    log_dir, remote = small(tmp_path, 6, {6: snapshot_bytes(AT_6), 7: forgot_at_7})
    found = the_replica(in_json("follower check", remote, log_dir, *NOW))
    assert (found["verdict"], found["loss_cause"]) == ("lost-producer-state", "unknown")
    assert {each["offset"]: each["lost_count"] for each in found["snapshots"] if each["status"]} == {6: 0, 7: 2}
    run = in_json("follower repair", remote, log_dir, *NOW, "--set-aside")
    assert (run.exit_code, actions(run)) == (0, {"equal": 1, "written": 1})
    assert snapshots_in(log_dir / "t-0") == {6: frozenset(AT_6), 7: entries_in(forgot_at_7), 9: AT_9}
    after = the_replica(in_json("follower check", remote, log_dir, *NOW))
    assert (after["verdict"], [each["offset"] for each in after["snapshots"]]) == ("intact", [6, 9])


def test_an_unclean_stop_leaves_the_rest_to_the_broker(tmp_path: Path) -> None:
    """It makes what is above its recovery point again, from what is then right below it."""
    log_dir, remote = small(tmp_path, 4, {4: EMPTY_SNAPSHOT, 6: FORGOT[6], 9: FORGOT[9]})
    (log_dir / ".kafka_cleanshutdown").unlink()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 9\n")
    run = in_json("follower repair", remote, log_dir, *NOW, "--set-aside")
    replica = the_replica(run)
    assert {each["offset"]: each["action"] for each in replica["boundaries"]} == {4: "written", 6: "written", 9: "refused"}
    assert (run.exit_code, replica["repaired"]) == (1, False)
    assert "was not shut down cleanly" in run.messages("wrong-snapshot")
    assert snapshots_in(log_dir / "t-0")[9] == entries_in(FORGOT[9])


def test_no_snapshot_at_all_is_a_loss(tmp_path: Path) -> None:
    """A broker that stopped cleanly begins empty then; what is written needs no --set-aside."""
    log_dir, remote = small(tmp_path, 6, {})
    found = the_replica(in_json("follower check", remote, log_dir, *NOW))
    assert (found["verdict"], found["loss_cause"]) == ("lost-producer-state", "unknown")
    run = in_json("follower repair", remote, log_dir, *NOW)
    assert (run.exit_code, actions(run)) == (0, {"written": 2})
    assert snapshots_in(log_dir / "t-0") == {6: frozenset(AT_6), 9: AT_9}


def test_another_topic_of_the_same_name_shows_nothing(tmp_path: Path) -> None:
    log_dir, remote = small(tmp_path, 6, FORGOT)
    (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(bytes(16)[:-1] + b'1')}")
    run = in_json("follower check", remote, log_dir, *NOW)
    assert (run.exit_code, the_replica(run)["verdict"]) == (1, "unknown")
    assert "has nothing of this partition" in run.messages("follower-not-checked")


def test_a_damaged_copy_is_no_proof(tmp_path: Path) -> None:
    log_dir, remote = small(tmp_path, 6, FORGOT)
    (log,) = remote.rglob("00000000000000000000-*.log")
    flip(log, 70)
    check = in_json("follower check", remote, log_dir, *NOW)
    assert (check.document["counts"]["missing"], check.document["counts"]["unproven"]) == (0, 1), "its snapshots are there"
    assert check.document["next_command"].split()[1:3] == ["tier", "audit"], "a repair would refuse"
    run = in_json("follower repair", remote, log_dir, *NOW, "--set-aside")
    assert run.exit_code == 3
    assert snapshots_in(log_dir / "t-0") == {offset: entries_in(data) for offset, data in FORGOT.items()}


def test_partitions_that_were_never_tiered_are_no_matter() -> None:
    run = in_json("follower check", REMOTE, FIXTURES / "kafka4-mixed" / "logs", *NOW)
    assert (run.exit_code, run.document["totals"]["unknown"]) == (0, 0)
    assert {each["verdict"] for each in run.document["replicas"]} == {"not-bootstrapped"}
