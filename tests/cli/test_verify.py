"""``verify`` as a user runs it, also with ``--written-by``. tests/snapshots/test_verify_verdicts.py has the verdicts."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from documents import check
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    batch_positions,
    copy_of,
    flip,
    make_log_dir,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    tree,
    truth,
    write_partition,
)
from manifests import FIXTURES
from msgspec.structs import replace
from other_process import live_broker
from receipts import steps
from sentences import BROKER_HAD_NO_REASON, RETRY_OF_SEQUENCE

from snaprebuild.cli.runs import run_settings, scan
from snaprebuild.snapshots.receipts import undo as undo_module
from snaprebuild.snapshots.receipts.receipt_lines import UndoingStep, UndoneStep
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.undo import undo


def test_selection() -> None:
    run = in_json("verify", "fixtures/kafka27-mixed", "--topic", "mixed", "--offsets", "7637:")
    assert run.verdicts("mixed-0") == {7637: "equal", 8231: "equal"}
    assert len(run.document["partitions"]) == 1


def test_partitions_that_need_somebody_come_first(tmp_path: Path) -> None:
    """The order is damaged, wrong, missing. Healthy ones come last."""
    logs = copy_of("kafka4-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7350)).write_bytes(EMPTY_SNAPSHOT)
    remove_snapshots(logs / "logappend-0", 1805)
    remove_snapshots(logs / "plain-0")
    segment = sorted((logs / "deleted-0").glob("*.log"))[0]
    flip(segment, 100)
    run = snaprebuild("verify", logs)
    rows = [line.split() for line in run.stdout.partition(" ────")[2].splitlines()[1:5]]
    assert [row[0] for row in rows][:2] == ["deleted-0", "mixed-0"]
    assert " ".join(rows[0]).endswith("; not judged to the end")
    missing = [0 if row[2] == "-" else int(row[2]) for row in rows[2:]]
    assert missing == sorted(missing, reverse=True)
    assert "1 partition not judged to the end." in run.text


def test_a_suspect_snapshot_that_nothing_disproves(tmp_path: Path) -> None:
    """`verify` is never greener than `scan`, unless it proves the snapshot right. One of a log that is only unverifiable stays silent."""
    lost = FIXTURES / "follower-lost-state"
    run = in_json("verify", lost)
    assert (run.exit_code, run.document["status"], run.document["counts"]["suspect"]) == (1, "suspect", 1)
    assert run.codes["suspect-snapshot"] == in_json("scan", lost).codes["suspect-snapshot"] == 1
    text = snaprebuild("verify", lost)
    assert text.stdout.startswith("1 snapshot is suspect. 5 partitions: 15 equal, 2 unverifiable.\n")
    assert "Next: nothing to do" not in text.stdout
    healthy = in_json("verify", lost / "node1")
    assert (healthy.exit_code, healthy.document["status"]) == (0, "healthy")
    assert "unverifiable" in healthy.verdicts("payments-0").values()


@pytest.mark.parametrize(("fixture", "verb"), [("kafka4-compacted", "plan --boundaries all --out"), ("kafka4-mixed", "plan")])
def test_a_log_without_a_snapshot_has_something_to_do(fixture: str, verb: str, tmp_path: Path) -> None:
    """The broker forgets all producers of it at its next start: `verify` reports it as `scan` does."""
    logs = copy_of(fixture, tmp_path)
    for path in logs.glob("*/*.snapshot"):
        if not path.name.startswith("0" * 20):
            path.unlink()
    scanned, verified = (
        sorted(
            (each["path"], each["severity"], each["message"])
            for each in run.document["findings"]
            if each["code"] == "empty-at-next-start"
        )
        for run in (in_json("scan", logs), in_json("verify", logs))
    )
    assert scanned
    assert verified == scanned
    text = snaprebuild("verify", logs)
    assert text.exit_code == snaprebuild("scan", logs).exit_code
    assert "the broker writes EMPTY snapshots in" in text.stdout
    (following,) = [line for line in text.stdout.splitlines() if line.startswith("Next: ")]
    assert set(verb.split()) <= set(following.split())


def test_checksums_are_not_computed_where_that_is_asked(tmp_path: Path) -> None:
    path = copy_of("kafka4-mixed", tmp_path) / "mixed-0" / f"{2430:020d}.log"
    flip(path, batch_positions(path)[3] + 61 + 2)
    assert in_json("verify", path.parent).exit_code == 4
    assert in_json("verify", path.parent, "--crc", "skip").exit_code == 0


def test_the_expiration_of_the_broker_counts(tmp_path: Path) -> None:
    logs, right = copy_of("kafka27-mixed", tmp_path), truth("kafka27-mixed", "mixed-0")[7045]
    gone = max((e for e in right if e.current_txn_first_offset < 0 and e.coordinator_epoch < 0), key=lambda e: e.timestamp)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(snapshot_bytes(right - {gone}))
    properties = tmp_path / "server.properties"
    for expiration, verdict in ((5000, "equal_after_expiry"), (5001, "missing_entries")):
        properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms={expiration}\n")
        run = in_json("verify", "--server-properties", properties, "--as-of", gone.timestamp + 5000)
        assert run.document["expiration_ms"] == expiration
        assert run.verdicts("mixed-0")[7045] == verdict


def test_a_moment_that_hides_contradictions_is_named() -> None:
    """`damaged/stale` is a snapshot that two entries of the log contradict, until their producers expire."""
    path = "fixtures/damaged/stale"
    seen = in_json("verify", path, "--as-of", "1795261244275")
    hidden = in_json("verify", path, "--as-of", "2099-01-01T00:00:00Z")
    (contradicted,) = [each["comparison"] for each in snapshots_of(seen) if each["comparison"]["proven_wrong"]]
    (excused,) = [each["comparison"] for each in snapshots_of(hidden) if each["comparison"]["excused_count"]]
    assert (seen.exit_code, hidden.exit_code) == (1, 0)
    assert excused["excused_count"] == contradicted["certain_count"] == 2
    text = (
        "2 entries that differ in 1 snapshot are not judged, because the producers have expired by 2099-01-01 00:00:00Z (--as-of)."
    )
    assert text in hidden.document["answer"]
    assert "not judged" not in seen.document["answer"]
    rebuilt = in_json("rebuild", path, "--dry-run", "--boundaries", "all", "--as-of", "2099-01-01T00:00:00Z")
    assert text in rebuilt.document["answer"], "a rebuild keeps this snapshot, and says what it did not judge"


def test_what_scan_suspects_and_time_has_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scan` proposes this command for a suspect snapshot, and gives it no time: the answer says why the snapshot is no fault."""
    monkeypatch.setattr(run_settings, "as_of_ms", lambda _: 4_070_908_800_000)  # it is now 2099-01-01
    run = in_json("verify", "fixtures/damaged/false-empty")
    assert (run.exit_code, run.document["next_command"]) == (0, None)
    assert "expired by 2099-01-01 00:00:00Z. A broker that starts then drops them" in run.document["answer"]
    assert "a snapshot that `scan` suspects may be harmless" in run.document["answer"]
    assert "--as-of" not in run.document["answer"]


@pytest.mark.parametrize(("now_s", "end"), [(4_070_908_800, "; harmless if only expired producers differ."), (1_795_266_500, ".")])
def test_scan_agrees_with_verify_on_what_has_expired(now_s: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a replay shows whether other producers are missing, so that the snapshot stays suspect."""
    monkeypatch.setattr(scan, "current_time_ms", lambda: now_s * 1000)
    scanned = in_json("scan", "fixtures/damaged/false-empty")
    assert scanned.document["answer"] == f"1 snapshot suspect, none missing in 1 partition{end}"
    assert (scanned.exit_code, scanned.document["counts"]["suspect"]) == (1, 1)
    assert scanned.document["next_command"].split()[:2] == ["snaprebuild", "verify"]


def snapshots_of(run: Run) -> list[dict[str, Any]]:
    return [each for partition in run.document["partitions"] for each in partition["snapshots"]]


def test_details_and_tables() -> None:
    run = snaprebuild("verify", "fixtures/kafka27-mixed", "-v")
    assert run.exit_code == 0
    assert re.search(r"mixed-0 +3 +12 +3 equal", run.stdout)
    assert re.search(r"mixed-0 +8231 +equal +35 +35 ", run.stdout)
    assert not [line for line in run.stderr.splitlines() if not line.startswith("I ")], "decisions alone"


def test_what_is_not_listed_is_counted(tmp_path: Path) -> None:
    """1,500 producers are not in the file, of which 1,000 are listed in JSON and 10 in the table."""
    logs = make_log_dir(tmp_path / "logs")
    data = b"".join(batch(producer, producer_id=producer) for producer in range(1500))
    write_partition(logs / "t-0", {0: data})
    (logs / "t-0" / f"{0:020d}.index").touch()
    (logs / "t-0" / snapshot_name(1500)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("verify", logs, "--as-of", "1000")
    (comparison,) = [each["comparison"] for each in run.partition("t-0")["snapshots"]]
    assert (comparison["difference_count"], comparison["certain_count"], len(comparison["differences"])) == (1500, 1500, 1000)
    assert (run.exit_code, run.codes, run.document["differences_not_listed"]) == (1, {"wrong-snapshot": 1}, 500)
    table = snaprebuild("verify", logs, "--as-of", "1000").text
    assert f"{RETRY_OF_SEQUENCE}0 or older is accepted as new (duplicate)" in table
    assert "and 1490 more (--output json lists 990 of them)" in table
    assert "500 entries that differ are counted and not listed" in table


def reported(receipt: Path) -> Run:
    run = snaprebuild("verify", "--written-by", receipt, "--output", "json")
    check(run.document)
    assert run.document["schema"] == "snaprebuild.verify-receipt/2"
    assert run.document["exit_code"] == run.exit_code
    return run


def rebuilt(logs: Path, receipt: Path, *options: object) -> None:
    run = snaprebuild("rebuild", logs, "--receipt", receipt, *options)
    assert run.exit_code == 0, run.stderr


def reasons(run: Run) -> dict[int, str]:
    return {each["offset"]: f"{each['status']}: {each['reason']}" for each in run.document["files"] if each["status"] != "kept"}


def of_ten_segments(tmp_path: Path) -> tuple[Path, Path]:
    """One batch in each, base offsets 0 to 9; all snapshots from 1 to the log end 10 are ours."""
    logs, receipt = make_log_dir(tmp_path / "logs", recovery_points={"t-0": 10}), tmp_path / "receipt.jsonl"
    write_partition(logs / "t-0", {offset: batch(offset, producer_id=7, sequence=offset) for offset in range(10)})
    for offset in range(10):
        (logs / "t-0" / f"{offset:020d}.index").write_bytes(b"")
    rebuilt(logs, receipt)
    return logs, receipt


def test_all_of_them(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    before = tree(tmp_path)
    with live_broker(logs):
        run = reported(receipt)
    assert (run.exit_code, run.totals, run.codes) == (0, {"kept": 14}, {"live-broker": 1})
    assert {name: facts for name, facts in tree(tmp_path).items() if facts != before.get(name)} == {}
    shown = snaprebuild("verify", "--written-by", receipt)
    assert shown.exit_code == 0
    assert "14 snapshots written: 14 kept" in shown.stdout


def test_what_a_broker_takes_is_explained(tmp_path: Path) -> None:
    """Retention deletes what is below the log start; the snapshot at the log end is deleted when the log has grown past it."""
    logs, receipt = of_ten_segments(tmp_path)
    for offset in range(3):
        (logs / "t-0" / f"{offset:020d}.log").unlink()
    remove_snapshots(logs / "t-0", 1, 2, 3, 10)
    with (logs / "t-0" / f"{9:020d}.log").open("ab") as last:
        last.write(batch(10, producer_id=7, sequence=10))
    run = reported(receipt)
    assert run.exit_code == 0
    below = "removed: the log now starts at 3: a broker deletes snapshots at or below that"
    assert reasons(run) == {
        **dict.fromkeys((1, 2, 3), below),
        10: "removed: no segment begins there: a broker removes such snapshots when it starts",
    }
    assert run.codes == {"taken-by-broker": 4}


def test_a_log_that_was_cut(tmp_path: Path) -> None:
    logs, receipt = of_ten_segments(tmp_path)
    for offset in (8, 9):
        (logs / "t-0" / f"{offset:020d}.log").unlink()
        (logs / "t-0" / f"{offset:020d}.index").unlink()
    remove_snapshots(logs / "t-0", 9, 10)
    run = reported(receipt)
    assert run.exit_code == 0
    assert set(reasons(run).values()) == {"removed: the log now ends at 8: it was cut, and the snapshots above with it"}


def test_what_no_one_explains_is_a_finding(tmp_path: Path) -> None:
    logs, receipt = of_ten_segments(tmp_path)
    partition = logs / "t-0"
    remove_snapshots(partition, 4)
    (partition / snapshot_name(5)).write_bytes(EMPTY_SNAPSHOT)
    data = (partition / snapshot_name(6)).read_bytes()
    (partition / snapshot_name(6)).unlink()
    (partition / snapshot_name(6)).write_bytes(data)
    os.utime(partition / snapshot_name(6), ns=(0, 1))
    (partition / snapshot_name(7)).rename(tmp_path / "moved")
    (partition / snapshot_name(7)).symlink_to(tmp_path / "moved")
    run = reported(receipt)
    assert run.exit_code == 5, "what cannot be read weighs most"
    found = reasons(run)
    assert found[4] == "removed: it is still due, and a broker had no reason to remove it"
    assert found[5].startswith(BROKER_HAD_NO_REASON)
    assert found[7].startswith("unreadable: ")
    assert sorted(found) == [4, 5, 7], "with the same bytes it is kept, whoever wrote it"
    assert run.codes == {"lost-snapshot": 2, "storage-failed": 1}
    assert "Snapshots that are not as they were written" in snaprebuild("verify", "--written-by", receipt).stdout


def test_what_the_start_removes_for_a_missing_index(tmp_path: Path) -> None:
    """``LogLoader`` recovers a segment without an offset index, and its own replay takes every snapshot above away.

    Receipts of 0.1.0 name such segments. Now nothing is written above one.
    """
    logs, receipt = make_log_dir(tmp_path / "logs", recovery_points={"t-0": 10}), tmp_path / "receipt.jsonl"
    write_partition(logs / "t-0", {offset: batch(offset, producer_id=7, sequence=offset) for offset in range(10)})
    assert snaprebuild("rebuild", logs, "--receipt", receipt).exit_code == 0
    text = receipt.read_text()
    assert text.count('"without_index":[]') == 1
    receipt.write_text(text.replace('"without_index":[]', '"without_index":[4]'))
    remove_snapshots(logs / "t-0", 6, 7)
    (logs / "t-0" / snapshot_name(5)).write_bytes(EMPTY_SNAPSHOT)  # in place of the broker's own
    run = reported(receipt)
    found = reasons(run)
    assert set(found) == {5, 6, 7}
    assert {found[offset] for offset in (6, 7)} == {
        "removed: the start of the broker removes it, because an offset index was missing below: it is due again"
    }
    assert found[5].startswith("replaced: the start of the broker rebuilds it")
    assert run.exit_code == 1


def test_what_a_start_after_a_crash_writes_anew(tmp_path: Path) -> None:
    """It recovers the segment that holds the recovery point, here the last one: the snapshot after that is the broker's own then.

    The same producers in another order are other bytes: ``ProducerStateManager`` writes them as they lie in its map.
    """
    logs, receipt = of_ten_segments(tmp_path)
    (logs / ".kafka_cleanshutdown").unlink()
    for offset in (9, 10):
        (logs / "t-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)  # in place of the broker's own
    run = reported(receipt)
    assert reasons(run)[10].startswith("replaced: a start after an unclean stop rebuilds it")
    assert reasons(run)[9].startswith(BROKER_HAD_NO_REASON)
    assert (run.exit_code, run.codes) == (1, {"taken-by-broker": 1, "lost-snapshot": 1})


def test_a_partition_that_was_deleted(tmp_path: Path) -> None:
    logs, receipt = of_ten_segments(tmp_path)
    (logs / "t-0").rename(tmp_path / "elsewhere")
    run = reported(receipt)
    assert (run.exit_code, set(reasons(run).values())) == (0, {"removed: its partition directory is gone"})


def test_files_in_out(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.jsonl"
    rebuilt(FIXTURES / "magicup", receipt, "--out", tmp_path / "out", "--boundaries", "all")
    assert reported(receipt).totals == {"kept": 7}
    next((tmp_path / "out").rglob("*.snapshot")).unlink()
    run = reported(receipt)
    assert (run.exit_code, run.codes) == (1, {"lost-snapshot": 1})


def test_what_was_undone_is_not_lost(tmp_path: Path) -> None:
    logs, receipt = of_ten_segments(tmp_path)
    assert snaprebuild("undo", receipt, "--dry-run").exit_code == 0
    remove_snapshots(logs / "t-0", 4)
    assert reported(receipt).codes == {"lost-snapshot": 1}, "a dry run undoes nothing"
    undone = snaprebuild("undo", receipt)
    assert undone.exit_code == 0
    assert "before the run" not in undone.stdout, "a broker may have written since"
    steps(receipt)
    run = reported(receipt)
    assert (run.exit_code, run.totals) == (1, {"removed": 10})
    assert run.codes == {"undone": 9, "lost-snapshot": 1}, "what undo did not find was lost before"
    assert reasons(run)[5] == "removed: `undo` removed it"
    before = receipt.read_bytes()
    assert snaprebuild("undo", receipt).exit_code == 0
    assert receipt.read_bytes() == before, "nothing was left to remove"
    rebuilt(logs, tmp_path / "second.jsonl")
    again = reported(receipt)
    assert (again.exit_code, again.totals) == (0, {"kept": 1, "replaced": 9}), "the same bytes are those of the second run"
    assert again.codes == {"undone": 9}
    assert reported(tmp_path / "second.jsonl").totals == {"kept": 10}
    (logs / "t-0" / snapshot_name(5)).write_bytes(EMPTY_SNAPSHOT)
    assert reported(receipt).codes == {"undone": 9}
    assert reported(tmp_path / "second.jsonl").codes == {"lost-snapshot": 1}


class Killed(BaseException):
    """Acts as SIGKILL: nothing after it runs."""


@pytest.mark.parametrize("removed", [0, 1, 10])
def test_an_undo_that_is_killed(removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each file, and before the last line: no snapshot is called lost, and the next undo ends the matter."""
    logs, receipt = of_ten_segments(tmp_path)
    left = iter(range(removed))
    remove, record = undo_module.remove_file, undo_module.record_undo

    def dying_remove(fd: int, name: str, is_ours: Callable[[int], bool]) -> bool:
        if next(left, None) is None:
            raise Killed
        return remove(fd, name, is_ours)

    def dying_record(path: str, step: type[UndoingStep | UndoneStep], offsets: Mapping[int, Sequence[int]]) -> None:
        if step is UndoneStep:
            raise Killed
        record(path, step, offsets)

    with monkeypatch.context() as patch:
        patch.setattr(undo_module, "remove_file", dying_remove)
        patch.setattr(undo_module, "record_undo", dying_record)
        with pytest.raises(Killed):
            undo(load_receipt(str(receipt)))
    there = len(list((logs / "t-0").glob("*.snapshot")))
    assert there == 10 - removed
    run = reported(receipt)
    assert run.codes == ({"undone": removed} if removed else {})
    assert run.totals == {name: count for name, count in (("kept", there), ("removed", removed)) if count}
    assert snaprebuild("undo", receipt).exit_code == 0
    assert reported(receipt).codes == {"undone": 10}
    steps(receipt)


def test_an_undo_of_a_run_that_was_killed_in_the_middle_of_a_line(tmp_path: Path) -> None:
    _, receipt = of_ten_segments(tmp_path)
    whole = receipt.read_bytes()
    cut = whole.rindex(b"\n", 0, len(whole) - 1) + 10
    receipt.write_bytes(whole[:cut])
    assert snaprebuild("undo", receipt).exit_code == 0
    assert receipt.read_bytes().startswith(whole[: cut - 9]), "up to the last whole line"
    steps(receipt)
    assert reported(receipt).codes == {"undone": 10}


def test_a_receipt_that_cannot_be_written_is_no_failure_of_undo(tmp_path: Path) -> None:
    _, receipt = of_ten_segments(tmp_path)
    result = undo(replace(load_receipt(str(receipt)), path=str(tmp_path / "no" / "receipt")))
    assert [each.code for each in result.findings] == ["receipt-not-updated"]
    assert {each.action for each in result.files} == {"removed"}


@pytest.mark.parametrize("is_started", [False, True], ids=["no start since", "stopped again since"])
def test_before_the_next_start_there_is_something_to_do(is_started: bool, tmp_path: Path) -> None:
    """No broker has loaded the files, as the marker of the stop before the run shows: a start removes it."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    assert in_json("rebuild", logs, "--receipt", receipt).exit_code == 0
    if is_started:
        (logs / ".kafka_cleanshutdown").unlink()
        (logs / ".kafka_cleanshutdown").touch()
    run = snaprebuild("verify", "--written-by", receipt)
    assert run.exit_code == 0
    assert ("No broker has started since." in run.text) == (not is_started)
    assert ("Next: nothing to do." in run.text) == is_started
