"""Receipts and ``undo``: what was written is taken back, and nothing else, wherever a run or an undo was stopped."""

import errno
import hashlib
import itertools
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, nonzero, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, changes, copy_of, files_below, flip, snapshot_name, tree
from manifests import FIXTURES
from other_process import live_broker
from receipts import one_partition, steps, what_appeared
from sentences import AGAIN

from snaprebuild.cli.render.receipts import UndoView
from snaprebuild.cli.view import Advice
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.snapshots.receipts.receipt_reader import ATTEMPTS_MAX, load_receipt
from snaprebuild.snapshots.receipts.undo import undo
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.file_calls import FileCalls
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_of


def rebuilt(logs: Path, receipt: Path, *options: object) -> Run:
    return in_json("rebuild", logs, "--receipt", receipt, *options)


def actions(run: Run) -> set[str]:
    return {each["action"] for each in run.document["files"]}


# --- the receipt ------------------------------------------------------------------------------------------------------------


def test_a_receipt_names_every_file_with_its_bytes(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    before = tree(logs)
    run = rebuilt(logs, receipt)
    assert run.document["receipt"] == str(receipt)
    appeared, _, _ = changes(before, tree(logs))
    found = steps(receipt)
    partitions = {each["number"]: each for each in found if each.get("step") == "partition"}
    announced = {
        str(Path(partitions[each["number"]]["target"], each["name"]).relative_to(logs)): each
        for each in found
        if each.get("step") == "write"
    }
    assert appeared - {".lock"} == announced.keys()
    for name, about in announced.items():
        data, status = (logs / name).read_bytes(), (logs / name).stat()
        assert about["sha256"] == hashlib.sha256(data).hexdigest()
        assert (about["size_bytes"], about["modified_ns"]) == (len(data), status.st_mtime_ns)
        assert about["entries"] == (len(data) - 10) // 46
    assert found[0]["in_place"]
    assert found[-1] == {"step": "end", "ended_ms": found[-1]["ended_ms"], "written": 14}
    mixed = next(each for each in partitions.values() if each["topic_partition"] == "mixed-0")
    assert [(each["offset"], each["size_bytes"]) for each in mixed["segments"]] == [
        (int(path.stem), path.stat().st_size) for path in sorted((logs / "mixed-0").glob("*.log"))
    ]


def test_documents_have_no_permission_that_the_umask_takes_away(tmp_path: Path) -> None:
    """Snapshots have the mode of their segment all the same: a broker must be able to read them."""
    logs = copy_of("kafka27-mixed", tmp_path)
    documents = [tmp_path / name for name in ("plan", "receipt", "report", "results.jsonl")]
    plan, receipt, report, results = documents
    before = os.umask(0o027)
    try:
        assert snaprebuild("plan", logs, "--save", plan).exit_code == 0
        run = snaprebuild("rebuild", logs, "--receipt", receipt, "--save-json", report, "--results", results)
        assert run.exit_code == 0, run.stderr
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in documents} == dict.fromkeys(
        map(os.path.basename, documents), 0o640
    )
    for name in announced_in(receipt):
        segment = min((logs / "mixed-0").glob("*.log"))
        assert stat.S_IMODE(Path(name).stat().st_mode) == stat.S_IMODE(segment.stat().st_mode)


def announced_in(receipt: Path) -> list[str]:
    return [each.path for each in load_receipt(str(receipt)).files]


def test_a_run_that_writes_nothing_leaves_none(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka4-mixed", tmp_path), tmp_path / "receipt.jsonl"
    for options in ((), ("--dry-run", "--boundaries", "all")):
        run = rebuilt(logs, receipt, *options)
        assert (run.exit_code, run.document["receipt"]) == (0, None)
    assert not receipt.exists()


def test_where_it_goes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that ``--out`` names has snapshots and nothing else."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    logs = copy_of("kafka27-mixed", tmp_path)
    here = Path(in_json("rebuild", logs).document["receipt"])
    there = Path(in_json("rebuild", logs, "--boundaries", "all", "--out", tmp_path / "out").document["receipt"])
    assert here.parent == there.parent == tmp_path / "state" / "snaprebuild"
    assert all(name.endswith(".snapshot") for name in files_below(tmp_path / "out"))
    assert not [name for name in tree(logs) if "receipt" in name]
    assert steps(there)[0]["in_place"] is False


def test_where_it_goes_for_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)
    logs, out = copy_of("kafka27-mixed", tmp_path), tmp_path / "out"
    assert Path(default_receipt_path(str(out))).parent == out
    assert Path(default_receipt_path(None)).parent == tmp_path
    receipt = Path(in_json("rebuild", logs, "--boundaries", "all", "--out", out).document["receipt"])
    assert receipt.parent == out
    with pytest.raises(UsageError, match="name one with --receipt FILE"):
        default_receipt_path(str(tmp_path / "file" / "out"))
    made = json.loads(snaprebuild("rebuild", logs, "--output", "json", cwd=tmp_path).stdout)["receipt"]
    listed = json.loads(snaprebuild("undo", "--output", "json", cwd=tmp_path).stdout)["receipts"]
    assert (Path(made).parent, [each["path"] for each in listed]) == (tmp_path, [made])


def test_without_a_receipt_they_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    none = in_json("undo")
    assert (none.exit_code, none.document["receipts"], none.document["not_listed"]) == (0, [], 0)
    logs = copy_of("kafka27-mixed", tmp_path)
    done = in_json("rebuild", logs)
    listed = in_json("undo")
    (receipt,) = listed.document["receipts"]
    assert (receipt["path"], nonzero(receipt["files"])) == (done.document["receipt"], {"kept": 14})
    next((logs / "mixed-0").glob("*.snapshot")).unlink()
    (receipt,) = in_json("undo").document["receipts"]
    assert nonzero(receipt["files"]) == {"kept": 13, "removed": 1}
    table = snaprebuild("undo").stdout
    assert table.startswith("1 receipt in")
    assert f"\nNext: snaprebuild undo {receipt['path']} --dry-run\n" in table
    assert f"\n {Path(receipt['path']).name} " in table, "whole, to be copied"
    (tmp_path / "state" / "snaprebuild" / "snaprebuild-receipt-0.jsonl").write_text("no receipt")
    broken = in_json("undo")
    assert (broken.exit_code, len(broken.document["receipts"])) == (1, 1)
    assert in_json("undo", Path(receipt["path"]).name).totals == {"removed": 13, "absent": 1}, "a name of the list"


def test_one_that_cannot_stand_there_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    taken = tmp_path / "taken"
    taken.write_text("")
    before = tree(logs)
    for receipt, code in ((logs / "mixed-0" / "receipt", 3), (logs / "receipt", 3), (taken, 3), (tmp_path / "no" / "file", 2)):
        run = snaprebuild("rebuild", logs, "--receipt", receipt)
        assert run.exit_code == code, run.stderr
    assert tree(logs) == before


# --- undo -------------------------------------------------------------------------------------------------------------------


def test_from_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = in_json("rebuild", FIXTURES / "kafka27-mixed", "--boundaries", "all", "--out", out)
    other = out / "mixed-0" / "of somebody else"
    other.write_text("")
    undone = in_json("undo", run.document["receipt"])
    assert undone.totals == {"removed": 23}
    assert {path for path in out.rglob("*") if path.is_file()} == {other}


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    before = tree(logs)
    with live_broker(logs):
        run = in_json("undo", receipt, "--dry-run")
        table = snaprebuild("undo", receipt, "--dry-run")
    assert (run.exit_code, run.totals) == (0, {"would_remove": 14})
    assert run.codes == {"live-broker": 1}
    assert f"Next: stop the broker. Then: snaprebuild undo {receipt}" in table.text
    assert tree(logs) == before


def test_a_live_broker_is_refused(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    before = tree(logs)
    with live_broker(logs):
        run = in_json("undo", receipt)
        table = snaprebuild("undo", receipt)
    assert f"Next: {AGAIN}" in table.text
    assert (run.exit_code, run.codes, run.totals) == (3, {"refused": 1}, {"left": 14})
    assert tree(logs) == before


def test_what_was_changed_since_is_left(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    mixed = logs / "mixed-0"
    flip(mixed / snapshot_name(583), 20)  # the time stays
    (mixed / snapshot_name(1151)).write_bytes(EMPTY_SNAPSHOT)
    same = mixed / snapshot_name(1662)
    data = same.read_bytes()
    same.unlink()
    same.write_bytes(data)
    os.utime(same, ns=(0, 1))
    moved = mixed / snapshot_name(2181)
    moved.rename(tmp_path / "moved")
    moved.symlink_to(tmp_path / "moved")
    (mixed / snapshot_name(2596)).unlink()
    before = tree(logs)
    run = in_json("undo", receipt)
    assert run.exit_code == 1
    left = {each["offset"]: each["reason"] for each in run.document["files"] if each["action"] == "left"}
    assert sorted(left) == [583, 1151, 1662, 2181]
    assert "was changed or replaced" in left[583]
    assert "another program wrote it" in left[1662]
    assert run.totals == {"left": 4, "removed": 9, "absent": 1}
    assert run.codes == {"left-alone": 4}
    assert (tmp_path / "moved").exists()
    assert not changes(before, tree(logs))[0]
    assert in_json("undo", receipt).totals == {"left": 4, "absent": 10}


def test_a_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    (logs / "mixed-0").rename(tmp_path / "mixed-0")
    (logs / "mixed-0").symlink_to(tmp_path / "mixed-0")
    before = tree(tmp_path / "mixed-0")
    run = in_json("undo", receipt)
    assert (run.exit_code, run.totals) == (1, {"removed": 2, "left": 12})
    assert tree(tmp_path / "mixed-0") == before


def test_the_last_line_does_not_say_that_all_is_as_it_was_where_something_stays(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    (logs / "mixed-0" / snapshot_name(1151)).write_bytes(EMPTY_SNAPSHOT)
    run = snaprebuild("undo", receipt)
    assert run.exit_code == 1
    assert "What the run wrote is removed, except what was left alone." in run.text
    assert run.text.endswith("/.lock stays: a broker makes the same file.")
    assert in_json("undo", receipt, "--dry-run").document["lock_files"] == [str(logs / ".lock")]


def test_what_is_not_mounted_is_not_gone(tmp_path: Path) -> None:
    """The log directory shows that a partition was deleted; without it nothing is known."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    (logs / "mixed-0").rename(tmp_path / "deleted")
    assert in_json("undo", receipt, "--dry-run").totals == {"would_remove": 2, "absent": 12}
    logs.rename(tmp_path / "elsewhere")
    for mount_point in (False, True):
        if mount_point:
            logs.mkdir()
        run = in_json("undo", receipt)
        assert (run.exit_code, run.totals) == (1, {"left": 14})
        assert "a volume that is not mounted" in run.messages("left-alone")
        reported = snaprebuild("verify", "--written-by", receipt, "--output", "json")
        assert (reported.exit_code, reported.codes) == (1, {"lost-snapshot": 14})


def test_a_file_that_is_replaced_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    theirs = b"of somebody without a lock"

    def replaced(fd: int, path: str) -> Fingerprint:
        found = fingerprint_of(fd, path)
        if path.endswith(snapshot_name(3)):
            Path(f"{path}.new").write_bytes(theirs)
            os.replace(f"{path}.new", path)
        return found

    monkeypatch.setattr("snaprebuild.snapshots.receipts.undo.fingerprint_of", replaced)
    result = undo(load_receipt(str(receipt)))
    assert {each.offset: each.action for each in result.files} == {1: "removed", 3: "left", 4: "removed"}
    assert (logs / "t-0" / snapshot_name(3)).read_bytes() == theirs


def test_a_lock_that_is_lost_ends_the_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts between two files; also before the temporary name of a run that was killed."""
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    for offset in (3, 4):
        os.link(logs / "t-0" / snapshot_name(offset), logs / "t-0" / f"{snapshot_name(offset)}.tmp")
    calls = itertools.count()

    def verify(self: HeldLock) -> None:
        if next(calls) >= 1:
            raise RefusedError("was removed or replaced while it was held", path=self.path)

    monkeypatch.setattr(HeldLock, "verify", verify)
    result = undo(load_receipt(str(receipt)))
    assert {each.offset: each.action for each in result.files} == {1: "removed", 3: "left", 4: "left"}
    assert [finding.code for finding in result.findings] == ["refused"]
    assert exit_code_of(result.findings) == 3


def test_a_lock_that_is_lost_behind_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt, "--set-aside")
    calls = itertools.count()

    def verify(self: HeldLock) -> None:
        if next(calls) >= 2:
            raise RefusedError("was removed or replaced while it was held", path=self.path)

    monkeypatch.setattr(HeldLock, "verify", verify)
    result = undo(load_receipt(str(receipt)))
    about = {each.offset: (each.action, each.set_aside_file and each.set_aside_file.action) for each in result.files}
    assert about == {1: ("removed", None), 2: ("removed", "left"), 3: ("left", None), 4: ("left", None)}
    assert exit_code_of(result.findings) == 3
    assert not (logs / "t-0" / snapshot_name(2)).exists()
    monkeypatch.undo()
    assert exit_code_of(undo(load_receipt(str(receipt))).findings) == 0
    assert (logs / "t-0" / snapshot_name(2)).read_bytes() == b"torn"


def test_a_device_that_fails_ends_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    stat = os.stat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if path == snapshot_name(3):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    monkeypatch.setattr("os.stat", failing)
    result = undo(load_receipt(str(receipt)))
    assert {each.offset: each.action for each in result.files} == {1: "removed", 3: "failed", 4: "removed"}
    assert exit_code_of(result.findings) == 5
    assert UndoView(result, "receipt").answer()[1] == Advice("correct what stderr lists", ("undo", "receipt"))


def test_a_removal_that_cannot_be_synced_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)

    def broken(_self: FileCalls, _fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FileCalls, "fsync", broken)
    result = undo(load_receipt(str(receipt)))
    assert exit_code_of(result.findings) == 5
    assert "a power failure may bring back what was removed" in result.findings[0].message


def test_the_order_of_two_undos(tmp_path: Path) -> None:
    """A run was stopped after it had set a snapshot aside, and the next one wrote its successor: two receipts, in any order."""
    logs, first, second = one_partition(tmp_path), tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    before = tree(logs)
    rebuilt(logs, first, "--set-aside")
    for offset in (2, 3):
        (logs / "t-0" / snapshot_name(offset)).unlink()
    rebuilt(logs, second)
    run = in_json("undo", first)
    assert (run.exit_code, run.codes) == (1, {"left-alone": 3}), "two files of the other run, and the name that one of them takes"
    assert [in_json("undo", each).exit_code for each in (second, first)] == [0, 0]
    assert what_appeared(before, logs) == {".lock"}


def set_aside_two(tmp_path: Path) -> tuple[Path, Path, dict[str, tuple[object, ...]]]:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    for offset in (7045, 8231):
        (logs / "mixed-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    before = tree(logs)
    run = rebuilt(logs, receipt, "--set-aside")
    assert run.exit_code == 0
    assert [each["set_aside_name"] is not None for each in run.partition("mixed-0")["boundaries"]].count(True) == 2
    return logs, receipt, before


def test_what_was_set_aside_returns(tmp_path: Path) -> None:
    logs, receipt, before = set_aside_two(tmp_path)
    run = in_json("undo", receipt)
    assert (run.exit_code, run.totals) == (0, {"removed": 16})
    assert [each["set_aside_file"]["action"] for each in run.document["files"] if each["set_aside_file"]] == ["put_back"] * 2
    appeared, vanished, changed = changes(before, tree(logs))
    assert (appeared, vanished, {name for name in changed if name.endswith("snapshot")}) == ({".lock"}, set(), set())
    after = tree(logs)
    again = in_json("undo", receipt)
    assert (again.exit_code, again.totals) == (0, {"absent": 16})
    assert tree(logs) == after
    state = snaprebuild("verify", "--written-by", receipt, "--output", "json")
    assert (state.exit_code, state.totals) == (0, {"removed": 16}), "nothing of the run is there, and nobody replaced it"
    assert sum(each["reason"].endswith("put the snapshot back that was set aside") for each in state.document["files"]) == 2
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(b"of a broker")
    replaced = snaprebuild("verify", "--written-by", receipt, "--output", "json")
    assert replaced.totals == {"removed": 15, "replaced": 1}


def test_what_was_set_aside_stays_where_its_name_is_taken(tmp_path: Path) -> None:
    logs, receipt, _ = set_aside_two(tmp_path)
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(b"of a broker")
    aside = logs / "mixed-0" / f"{snapshot_name(7045)}.set-aside.1"
    aside.write_bytes(b"changed")
    run = in_json("undo", receipt)
    assert run.exit_code == 1
    about = {
        each["offset"]: (each["action"], each["set_aside_file"]["action"])
        for each in run.document["files"]
        if each["set_aside_file"]
    }
    assert about == {7045: ("removed", "left"), 8231: ("left", "left")}
    assert (logs / "mixed-0" / snapshot_name(8231)).read_bytes() == b"of a broker"
    assert aside.read_bytes() == b"changed"
    assert not (logs / "mixed-0" / snapshot_name(7045)).exists()


def test_attempts_at_one_snapshot_have_a_limit(tmp_path: Path) -> None:
    """Each would be compared with all before it."""
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    lines = receipt.read_text().splitlines()
    number = next(number for number, line in enumerate(lines) if json.loads(line).get("step") == "write")
    again = [json.dumps({**json.loads(lines[number]), "modified_ns": each}) for each in range(ATTEMPTS_MAX + 1)]
    receipt.write_text("\n".join([*lines[:number], *again, ""]))
    (file,) = load_receipt(str(receipt)).files
    assert len(file.fingerprints) == len(again)
    receipt.write_text("\n".join([*lines[: number + 1], *again, ""]))
    with pytest.raises(UsageError, match="more than 100 attempts"):
        load_receipt(str(receipt))


@pytest.mark.parametrize(
    ("step", "field", "value", "said"),
    [
        ("write", "name", "../x", ""),
        ("write", "name", "meta.properties", ""),
        ("write", "offset", -1, ""),
        ("write", "sha256", "0", ""),
        ("write", "size_bytes", "1", ""),
        ("write", "number", 77, ""),
        ("partition", "target", "/logs/\ud800", "expected `str` matching"),
        ("partition", "target", "logs", "expected `str` matching"),
    ],
)
def test_a_receipt_that_was_tampered_with(step: str, field: str, value: object, said: str, tmp_path: Path) -> None:
    """Only files with the names of snapshots are ever removed, whatever it contains."""
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    lines = receipt.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if json.loads(line).get("step") == step)
    lines[at] = json.dumps({**json.loads(lines[at]), field: value})
    receipt.write_text("\n".join(lines) + "\n")
    before = tree(logs)
    run = snaprebuild("undo", receipt)
    assert run.exit_code == 2
    assert f"is damaged: line {at + 1}: {said}" in run.stderr
    assert tree(logs) == before


# --- cut short -------------------------------------------------------------------------------------------------------------


def test_half_a_line_at_the_end(tmp_path: Path) -> None:
    """A power failure leaves a part of the receipt. Every prefix is a receipt, as long as its header is whole."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt(logs, receipt)
    data = receipt.read_bytes()
    header = data.index(b"\n") + 1
    for size in (header, header + 10, len(data) - 1, len(data) - 60):
        cut = tmp_path / f"{size}.jsonl"
        cut.write_bytes(data[:size])
        run = in_json("undo", cut, "--dry-run")
        assert run.exit_code == 0
        assert run.document["ended"] is False
        assert actions(run) <= {"would_remove"}
