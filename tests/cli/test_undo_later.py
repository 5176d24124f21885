"""A receipt takes back only what its own run wrote, and what still is its file: a later run may have linked the same staged file again."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import copy_of, tree

from snaprebuild.errors import OutcomeUnknownError
from snaprebuild.snapshots.receipts import undo as undoing

pytestmark = pytest.mark.usefixtures("own_state_home")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory whose missing snapshots are staged."""
    copy = copy_of("kafka27-mixed", tmp_path)
    assert snaprebuild("stage", copy, "--to", tmp_path / "staged").exit_code == 0
    return copy


def installed(tmp_path: Path, *options: object) -> Path:
    """Installs what is staged; the receipt of the run."""
    run = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", *options)
    assert run.document["totals"]["written"] == 14, run
    return Path(run.document["receipt"])


def snapshots_of(logs: Path) -> set[str]:
    return {name for name in tree(logs) if name.endswith(".snapshot")}


def left_of(run: Run) -> set[str]:
    """Why files were left alone."""
    assert (run.exit_code, run.document["totals"]["removed"]) == (1, 0), run
    return {each["reason"] for each in run.document["files"]}


def test_the_receipt_of_an_earlier_install_leaves_what_a_later_one_linked(logs: Path, tmp_path: Path) -> None:
    before = snapshots_of(logs)
    first = installed(tmp_path)
    assert in_json("undo", first).document["totals"]["removed"] == 14
    assert snapshots_of(logs) == before
    second = installed(tmp_path)
    after = tree(logs)
    for options in (("--dry-run",), ()):
        run = in_json("undo", first, *options)
        assert left_of(run) == {
            f"a later run wrote it again, and only the receipt of that run takes it back: snaprebuild undo {second}"
        }
        assert tree(logs) == after
    assert in_json("undo", second).document["totals"]["removed"] == 14
    assert snapshots_of(logs) == before
    assert in_json("undo", first).exit_code == 0
    assert snapshots_of(logs) == before


def test_the_later_receipt_is_found_next_to_the_earlier_one(logs: Path, tmp_path: Path) -> None:
    """Both were put elsewhere by ``--receipt``."""
    (tmp_path / "receipts").mkdir()
    first = installed(tmp_path, "--receipt", tmp_path / "receipts" / "monday.jsonl")
    for name in snapshots_of(logs) - set(tree(copy_of("kafka27-mixed", tmp_path / "other"))):
        (logs / name).unlink()  # by hand, so that no receipt records it
    second = installed(tmp_path, "--receipt", tmp_path / "receipts" / "tuesday.jsonl")
    after = tree(logs)
    (reason,) = left_of(in_json("undo", first))
    assert reason.endswith(f"snaprebuild undo {second}")
    assert tree(logs) == after


@pytest.mark.parametrize("is_undone", [True, False], ids=["by its receipt", "by hand"])
def test_a_later_run_that_was_taken_back_is_in_nobodys_way(logs: Path, tmp_path: Path, is_undone: bool) -> None:
    """It had set a damaged file aside and written a new one. Then the file of the first run was brought back from a backup."""
    first, second = tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"
    assert in_json("rebuild", logs, "--receipt", first).document["totals"]["written"] == 14
    written = logs / "mixed-0" / f"{583:020}.snapshot"
    data = written.read_bytes()
    status = written.stat()
    written.write_bytes(bytes(len(data)))
    assert in_json("rebuild", logs, "--receipt", second, "--set-aside").document["totals"]["written"] == 1
    assert in_json("undo", first, "--dry-run").document["totals"]["left"] == 1
    if is_undone:
        assert in_json("undo", second).document["totals"]["removed"] == 1
    written.write_bytes(data)
    os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))
    run = in_json("undo", first)
    assert (run.exit_code, run.totals) == (0, {"removed": 14})


def test_a_later_receipt_that_nobody_finds(logs: Path, tmp_path: Path) -> None:
    """The first one records that its files were removed: what is there with the same bytes and time is of somebody else."""
    first = installed(tmp_path)
    assert in_json("undo", first).document["totals"]["removed"] == 14
    (tmp_path / "elsewhere").mkdir()
    installed(tmp_path, "--receipt", tmp_path / "elsewhere" / "receipt.jsonl")
    after = tree(logs)
    (reason,) = left_of(in_json("undo", first))
    assert reason.startswith("an earlier `undo` of this receipt removed it. It is there again")
    assert tree(logs) == after


def test_an_undo_that_was_killed_before_a_later_install(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had announced what it removes, and recorded no end."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    first = installed(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(undoing, "sync_directory", killed)
        assert snaprebuild("undo", first).exit_code == 130
    announced = first.read_text().splitlines()
    assert any('"undoing"' in line for line in announced)
    assert not any('"undone"' in line for line in announced)
    assert in_json("undo", first).exit_code == 0
    first.write_text("\n".join(announced) + "\n")  # as if the second undo had been killed, too
    second = installed(tmp_path)
    after = tree(logs)
    (reason,) = left_of(in_json("undo", first))
    assert str(second) in reason
    assert tree(logs) == after


def test_what_a_power_failure_brings_back_is_still_of_the_run(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object) -> None:
        raise OutcomeUnknownError("the directory cannot be synced", path=str(logs))

    before = snapshots_of(logs)
    receipt = installed(tmp_path)
    saved = tmp_path / "saved"
    shutil.copytree(logs, saved, copy_function=os.link)
    with monkeypatch.context() as patch:
        patch.setattr(undoing, "sync_directory", failed)
        assert in_json("undo", receipt).exit_code == 5
    assert snapshots_of(logs) == before
    for name in snapshots_of(saved) - before:
        os.link(saved / name, logs / name)
    assert in_json("undo", receipt).document["totals"]["removed"] == 14
    assert snapshots_of(logs) == before


def test_a_file_of_a_broker_with_the_same_bytes_stays(logs: Path, tmp_path: Path) -> None:
    """It has a time of its own."""
    receipt = installed(tmp_path)
    written = logs / "mixed-0" / f"{583:020}.snapshot"
    data = written.read_bytes()
    written.unlink()
    written.write_bytes(data)
    run = in_json("undo", receipt)
    assert (run.exit_code, run.document["totals"]["removed"], run.document["totals"]["left"]) == (1, 13, 1)
    assert written.read_bytes() == data


def test_a_receipt_of_another_host_takes_nothing_away(logs: Path, tmp_path: Path) -> None:
    """It names the same paths, which are other files there."""
    first = installed(tmp_path)
    copied = first.with_name("snaprebuild-receipt-29990101T000000Z-aaaaaa.jsonl")
    lines = first.read_text()
    later = lines.replace(f'"host":"{socket.gethostname()}"', '"host":"elsewhere"').replace('"began_ms":1', '"began_ms":9', 1)
    assert later.count("elsewhere") == 1
    copied.write_text(later)
    assert in_json("undo", first).document["totals"]["removed"] == 14


def test_a_directory_in_place_of_a_receipt(logs: Path, tmp_path: Path) -> None:
    receipt = installed(tmp_path)
    run = snaprebuild("undo", receipt.parent)
    assert (run.exit_code, run.stdout) == (2, "")
    assert f"has no part of a receipt: its newest receipt is {receipt}" in run.stderr
    run = snaprebuild("undo", logs)
    assert "has no part of a receipt: name the file that the run left" in run.stderr


def test_last_says_where_receipts_are_that_it_does_not_see(tmp_path: Path) -> None:
    """A user without a home, as service accounts often are, has the receipt in the directory of ``--out``."""
    copy = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "state").write_text("no directory")
    (tmp_path / "current").mkdir()
    run = in_json("rebuild", copy, "--out", tmp_path / "out")
    receipt = Path(run.document["receipt"])
    assert receipt.parent == tmp_path / "out"
    missed = snaprebuild("undo", "--last", cwd=tmp_path / "current")
    assert (missed.exit_code, missed.stdout) == (2, "")
    assert "DIR/snaprebuild-receipt-*.jsonl, where DIR is that of --out" in missed.stderr
    named = snaprebuild("undo", tmp_path / "out")
    assert f"its newest receipt is {receipt}" in named.stderr
    assert snaprebuild("undo", receipt).exit_code == 0
