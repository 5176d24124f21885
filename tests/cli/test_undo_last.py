"""``undo --last``: the newest run that is not undone, and a refusal where that is not clear."""

import json
import os
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild, snaprebuild_process
from log_dirs import copy_of, tree
from manifests import AIVEN, LONG_AGO


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of receipts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "current").mkdir()
    return tmp_path / "state" / "snaprebuild"


def rebuilt(logs: Path, *options: object) -> Path:
    """Runs a rebuild; its receipt."""
    run = in_json("rebuild", logs, *options)
    assert run.exit_code == 0, run.stderr
    return Path(run.document["receipt"])


def made_at(receipt: Path, began_ms: int) -> Path:
    """Sets the moment of a run: two runs of a test may begin in one millisecond."""
    first, _, rest = receipt.read_text().partition("\n")
    header = {**json.loads(first), "began_ms": began_ms}
    receipt.write_text(json.dumps(header, separators=(",", ":")) + f"\n{rest}")
    return receipt


def last(*options: object) -> Run:
    return in_json("undo", "--last", *options)


def test_each_one_takes_back_the_run_before(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    first = made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    between = tree(logs)
    second = made_at(rebuilt(logs), 2000)
    after = tree(logs)
    dry = last("--dry-run")
    assert (dry.exit_code, dry.document["receipt"], dry.document["dry_run"]) == (0, str(second), True)
    assert f"Its receipt is {second}." in dry.document["answer"]
    assert dry.document["next_command"] == f"snaprebuild undo {second}"
    assert tree(logs) == after
    assert last().document["receipt"] == str(second)
    assert tree(logs).keys() == between.keys()
    undone = last()
    assert (undone.document["receipt"], undone.document["totals"]["removed"]) == (str(first), 12)
    assert tree(logs).keys() - {".lock"} == before.keys()
    nothing = snaprebuild("undo", "--last")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "each run of 2 receipts" in nothing.stderr


def test_the_moment_counts_and_not_the_name(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    newer = made_at(rebuilt(logs, "--topic", "mixed"), 2000)
    older = made_at(rebuilt(logs), 1000)
    assert last("--dry-run").document["receipt"] == str(newer)
    newer.rename(newer.with_name("snaprebuild-receipt-00000000T000000Z-000000.jsonl"))
    assert last("--dry-run").document["receipt"] != str(older)


def test_a_newer_run_with_its_receipt_elsewhere_is_the_last(state: Path, tmp_path: Path) -> None:
    """The guide names the receipt of an install: --last took back the older rebuild."""
    logs = copy_of("kafka27-mixed", tmp_path)
    first = made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    elsewhere = rebuilt(logs, "--receipt", tmp_path / "elsewhere.jsonl")
    assert elsewhere == tmp_path / "elsewhere.jsonl"
    dry = last("--dry-run")
    assert dry.document["receipt"] == str(elsewhere)
    assert "The newest run of this user on this host was `rebuild`" in dry.document["answer"]
    listed = snaprebuild("undo", "--output", "json").document["receipts"]
    assert sorted(each["path"] for each in listed) == sorted([str(elsewhere), str(first)])
    assert str(elsewhere) in snaprebuild("undo").stdout, "its path: it is in another directory"
    assert last().document["receipt"] == str(elsewhere)
    assert last("--dry-run").document["receipt"] == str(first), "the other one is undone"


def test_each_verb_with_a_receipt_registers_it(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    snaprebuild("stage", logs, "--to", tmp_path / "staged")
    receipts = [tmp_path / f"{name}.jsonl" for name in ("rebuild", "install", "before-start")]
    runs = (
        ("rebuild", logs, "--topic", "logappend", "--receipt", receipts[0]),
        ("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--receipt", receipts[1]),
        ("before-start", logs, "--receipt", receipts[2]),
    )
    for words, receipt in zip(runs, receipts, strict=True):
        run = snaprebuild(*words)
        assert run.exit_code == 0, run.stderr
        if receipt.exists():
            assert last("--dry-run").document["receipt"] == str(receipt)
    assert {link.readlink() for link in state.iterdir()} == {each for each in receipts if each.exists()}
    assert len(list(state.iterdir())) >= 2


def test_a_run_that_writes_nothing_registers_nothing(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    rebuilt(logs)
    before = sorted(state.iterdir())
    assert snaprebuild("rebuild", logs, "--receipt", tmp_path / "nothing.jsonl").exit_code == 0
    assert sorted(state.iterdir()) == before


def test_no_older_run_stands_for_one_whose_receipt_is_gone(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    first = made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    elsewhere = rebuilt(logs, "--receipt", tmp_path / "elsewhere.jsonl")
    elsewhere.unlink()
    before = tree(logs)
    run = snaprebuild("undo", "--last")
    assert (run.exit_code, run.stdout) == (2, "")
    (link,) = (each for each in state.iterdir() if each.is_symlink())
    assert f"--last: the receipt of a later run, {elsewhere}, is gone: name the receipt of the run to take back" in run.stderr
    assert f"remove {link}" in run.stderr
    assert tree(logs) == before
    listed = in_json("undo")
    assert (listed.exit_code, [each["path"] for each in listed.document["receipts"]]) == (0, [str(first)])
    link.unlink()
    assert last("--dry-run").document["receipt"] == str(first)


def test_a_state_directory_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on, and says that its receipt must be named."""
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild_process("rebuild", logs, "--receipt", tmp_path / "elsewhere.jsonl")
    assert run.exit_code == 0, run.stderr
    assert "`undo --last` will not see this run, because the state directory of the user cannot be written to" in run.stderr
    assert f"Its receipt is {tmp_path / 'elsewhere.jsonl'}" in run.stderr


def test_a_run_whose_files_are_all_gone_does_not_stand_in_the_way(state: Path, tmp_path: Path) -> None:
    """A broker deletes snapshots: what is gone cannot be taken back, and the list proposes the older run, too."""
    logs = copy_of("kafka27-mixed", tmp_path)
    first = made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    second = made_at(rebuilt(logs), 2000)
    written = {each["name"] for each in map(json.loads, second.read_text().splitlines()) if each.get("step") == "write"}
    gone = [path for path in logs.glob("logappend-0/*.snapshot") if path.name in written]
    assert len(gone) == len(written)
    for path in gone:
        path.unlink()
    assert last("--dry-run").document["receipt"] == str(first)
    assert in_json("undo").document["next_command"] == f"snaprebuild undo {first} --dry-run"


def test_what_was_changed_since_is_no_undone_run(state: Path, tmp_path: Path) -> None:
    """A run whose files are all other ones now is the last run all the same: no older one is taken back in its place."""
    logs = copy_of("kafka27-mixed", tmp_path)
    made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    second = made_at(rebuilt(logs), 2000)
    written = [each for each in map(json.loads, second.read_text().splitlines()) if each.get("step") == "write"]
    for path in logs.glob("logappend-0/*.snapshot"):
        if path.name in {each["name"] for each in written}:
            path.write_bytes(path.read_bytes() + b"other")
    run = last()
    assert (run.exit_code, run.document["receipt"]) == (1, str(second))
    assert run.document["totals"]["removed"] == 0
    assert run.document["totals"]["left"] == len(written)


def test_without_a_receipt(state: Path, tmp_path: Path) -> None:
    run = snaprebuild("undo", "--last", cwd=tmp_path / "current")
    assert (run.exit_code, run.stdout) == (2, "")
    assert f"--last: no receipt is in {state} or {tmp_path / 'current'}" in run.stderr


def test_two_places(state: Path, tmp_path: Path) -> None:
    """The state directory of the user, and the current one, which a user without a home has."""
    current = tmp_path / "current"
    logs = copy_of("kafka27-mixed", tmp_path)
    here = rebuilt(logs, "--topic", "mixed")
    there = made_at(rebuilt(logs), 5000).rename(current / "snaprebuild-receipt-20260101T000000Z-aaaaaa.jsonl")
    before = tree(logs)
    run = snaprebuild("undo", "--last", cwd=current)
    assert (run.exit_code, run.stdout) == (2, "")
    assert f"it is not clear which run is the last: name the receipt, {here} or {there}" in run.stderr
    assert tree(logs) == before
    assert snaprebuild("undo", there).exit_code == 0
    run = snaprebuild("undo", "--last", "--dry-run", "--output", "json", cwd=current)
    assert run.document["receipt"] == str(here), "the other one is undone"


def test_two_runs_of_one_moment(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    receipts = {made_at(rebuilt(logs, "--topic", "mixed"), 7000), made_at(rebuilt(logs), 7000)}
    run = snaprebuild("undo", "--last")
    assert (run.exit_code, run.stdout) == (2, "")
    assert all(str(each) in run.stderr for each in receipts)


def test_a_receipt_that_is_none(state: Path, tmp_path: Path) -> None:
    """It may be of the newest run: no other one is taken for that."""
    logs = copy_of("kafka27-mixed", tmp_path)
    rebuilt(logs)
    torn = state / "snaprebuild-receipt-20990101T000000Z-bbbbbb.jsonl"
    torn.write_text("torn")
    run = snaprebuild("undo", "--last")
    assert (run.exit_code, run.stdout) == (2, "")
    assert f"{torn}: is not a receipt" in run.stderr
    listed = in_json("undo")
    assert (listed.exit_code, listed.document["next_command"]) == (1, None), "the list guesses no more than --last does"
    assert "Next: move away what stderr lists, or name the receipt of the run to `undo`." in snaprebuild("undo").stdout


def test_a_receipt_that_is_damaged_behind_its_first_line(state: Path, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    made_at(rebuilt(logs, "--topic", "mixed"), 1000)
    newest = made_at(rebuilt(logs), 2000)
    lines = newest.read_text().splitlines()
    newest.write_text("\n".join([lines[0], "damaged", *lines[2:], ""]))
    run = snaprebuild("undo", "--last")
    assert (run.exit_code, run.stdout) == (2, "")
    assert str(newest) in run.stderr
    listed = in_json("undo")
    assert (listed.exit_code, listed.document["next_command"]) == (1, None)


def test_a_name_and_last(state: Path) -> None:
    run = snaprebuild("undo", "r.jsonl", "--last")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "no RECEIPT goes with it" in run.stderr


def test_a_repair_of_remote_storage(state: Path, tmp_path: Path) -> None:
    """Its receipt records no undo: the store shows whether it was taken back."""
    import shutil

    store = tmp_path / "store"
    shutil.copytree(AIVEN / "diseased" / "store", store)
    logs = copy_of("kafka27-mixed", tmp_path)
    made_at(rebuilt(logs), 1000)
    before = tree(store)
    repaired = in_json("tier repair", store, *LONG_AGO, "--allow-unverified", "--jobs", 1)
    receipt = repaired.document["receipt"]
    assert os.path.dirname(receipt) == str(state)
    run = last()
    assert run.document["undone_receipt"] == receipt
    assert f"of this user on this host was `tier repair`. Its receipt is {receipt}." in run.document["answer"]
    assert {name: each[-1] for name, each in tree(store).items()}.keys() == before.keys()
    assert "receipt" in last("--dry-run").document
    assert last("--dry-run").document["schema"].startswith("snaprebuild.undo/"), "the older run is next"
