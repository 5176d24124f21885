"""Several runs of ``stage`` into one directory: what the last one knows counts, and what each was asked for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import batch_positions, copy_of, flip, remove_snapshots, snapshot_bytes, snapshot_name, snapshots_in, truth
from manifests import CLUSTER, FIXTURES
from plans import make_plan
from sentences import CONFIGURATION_UNREAD, NO_START, STAGE_AGAIN
from staged_logs import AS_OF, DAY_MS, aged, bases_of, earlier, installed, running, staged

from snaprebuild.snapshots import stage as module
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.staging.resume import resume_staging, staging


def rows_of(stage: Path) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in (stage / "plan.jsonl").read_text().splitlines()[1:-1]]
    return {line["topic_partition"]: line for line in lines}


def test_a_directory_that_gets_no_file_is_not_created(tmp_path: Path) -> None:
    """Both are on the file system of the log directory: the first one gets everything."""
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild("stage", logs, "--to", tmp_path / "first", "--to", tmp_path / "second")
    assert run.exit_code == 0, run.stderr
    assert (tmp_path / "first" / "plan.jsonl").exists()
    assert not (tmp_path / "second").exists()


def test_stage_explains_why_it_makes_more_than_plan_lists(tmp_path: Path) -> None:
    """The broker was killed: snapshots above the recovery point are for the next clean stop."""
    logs = copy_of("kafka4-mixed", tmp_path)
    (logs / ".kafka_cleanshutdown").unlink()
    checkpoint = logs / "recovery-point-offset-checkpoint"
    lines = ["mixed 0 5223" if line.startswith("mixed 0 ") else line for line in checkpoint.read_text().splitlines()]
    checkpoint.write_text("\n".join(lines) + "\n")
    remove_snapshots(logs / "mixed-0", 3017, 7350, 7875)
    assert sum(len(each["boundaries"]) for each in in_json("plan", logs).document["partitions"]) == 1
    run = snaprebuild("stage", logs, "--to", tmp_path / "staged")
    assert run.stdout.startswith("3 snapshots staged in 1 of ")
    assert "2 of them are for a clean stop: after the unclean one the broker makes them itself at its start." in run.text
    assert installed(tmp_path / "staged", tmp_path / "receipt.jsonl").totals["written"] == 1


# --- what a later run has disproved -----------------------------------------------------------------------------------------


def test_what_a_later_run_finds_unsound_is_not_installed(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    segment = min((logs / "logappend-0").glob("*.log"))
    flip(segment, batch_positions(segment)[1] - 2)  # in the last record: a header shows nothing of it
    before = snapshots_in(logs / "logappend-0")
    first = staged(logs, tmp_path / "staged", "--crc", "skip")
    assert (first.exit_code, set(first.actions("logappend-0").values())) == (0, {"written"})
    again = staged(logs, tmp_path / "staged", "--topic", "logappend")
    assert (again.exit_code, set(again.actions("logappend-0").values())) == (4, {"refused"})
    assert again.document["staged_plan"] is None
    assert list(rows_of(tmp_path / "staged")) == ["mixed-0"], "which the second run did not look at"
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.totals) == (1, {"written": 12})
    assert f"2 {STAGE_AGAIN}" in done.messages("not-staged")
    assert snapshots_in(logs / "logappend-0") == before


def test_what_a_later_run_does_not_allow_is_not_installed(tmp_path: Path) -> None:
    """Only remote storage has what is below the first segment of the follower, so that nothing proves the state there."""
    node = Path(shutil.copytree(FIXTURES / "follower-lost-state" / "node2", tmp_path / "node"))
    remove_snapshots(node / "payments-0")
    options = ("--topic", "payments", "--replay-from", "window")
    first = staged(node, tmp_path / "staged", *options, "--allow-unproven")
    assert {each["class"] for each in first.partition("payments-0")["boundaries"]} == {"UNPROVEN"}
    assert set(rows_of(tmp_path / "staged")) == {"payments-0"}
    again = staged(node, tmp_path / "staged", *options)
    assert set(again.actions("payments-0").values()) == {"refused"}
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.totals, snapshots_in(node / "payments-0")) == ({}, {})


def test_a_replica_that_a_later_run_rejects_gets_nothing(tmp_path: Path) -> None:
    """Its own metadata log knows nothing of the later registration."""
    node = Path(shutil.copytree(CLUSTER / "old" / "node3-clean-stopped", tmp_path / "node"))
    for partition in node.glob("orders-*"):
        remove_snapshots(partition)
    assert staged(node, tmp_path / "staged", "--topic", "orders").exit_code == 0
    assert set(rows_of(tmp_path / "staged")) == {"orders-0", "orders-1", "orders-2"}
    again = staged(
        node, tmp_path / "staged", "--metadata", CLUSTER / "node1", "--topic", "orders", "--partition", 0, "--partition", 1
    )
    assert (again.exit_code, again.codes["source-rejected"]) == (3, 2)
    assert set(rows_of(tmp_path / "staged")) == {"orders-2"}


# --- two at once ------------------------------------------------------------------------------------------------------------

HOLDS = """
import sys
from snaprebuild.storage.local.directories import hold_directory
with hold_directory(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_directory_is_staged_into_by_one_run_at_a_time(tmp_path: Path) -> None:
    logs, stage = copy_of("kafka27-mixed", tmp_path), tmp_path / "staged"
    assert staged(logs, stage, "--topic", "logappend").exit_code == 0
    plan = (stage / "plan.jsonl").read_bytes()
    command = [sys.executable, "-c", HOLDS, str(stage)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        run = snaprebuild("stage", logs, "--to", stage, *AS_OF, "--topic", "mixed")
        assert (run.exit_code, "another run stages into this directory" in run.stderr) == (3, True), run.stderr
        dry = snaprebuild("stage", logs, "--to", stage, *AS_OF, "--topic", "mixed", "--dry-run")
        assert (dry.exit_code, dry.stderr) == (3, run.stderr), "as the run"
        assert (stage / "plan.jsonl").read_bytes() == plan
        other.kill()
    assert staged(logs, stage, "--topic", "mixed").exit_code == 0, "a run that was killed holds nothing"
    assert set(rows_of(stage)) == {"logappend-0", "mixed-0"}
    assert {path.name for path in stage.iterdir()} == {"plan.jsonl", "logappend-0.staged", "mixed-0.staged"}


def test_a_run_holds_the_directory_until_its_plan_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    request = RebuildRequest((str(logs),), stage=(str(tmp_path / "staged"),), as_of_ms=1_795_262_400_000).checked()
    save, refused = module.save_staged_plan, []

    def saved(plan: object, owner: object) -> None:
        refused.append(staged(logs, tmp_path / "staged", "--topic", "mixed").exit_code)
        save(plan, owner)

    monkeypatch.setattr(module, "save_staged_plan", saved)
    plan = make_plan(request)
    with staging(plan, dry_run=False) as before:
        module.stage(resume_staging(plan, before), before, Run(jobs=1))
    assert refused == [3]


# --- what each run was asked for --------------------------------------------------------------------------------------------


def test_offsets_of_a_later_run_do_not_narrow_what_others_have_staged(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(running(logs), "mixed-0", keep=8)
    assert staged(logs, tmp_path / "staged").exit_code == 0
    narrow = staged(logs, tmp_path / "staged", "--topic", "logappend", "--offsets", "0:600")
    assert (narrow.exit_code, narrow.codes["staged-earlier"]) == (0, 1)
    put_back()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, set(done.actions("mixed-0").values())) == (0, {"written"}), done.stderr
    expected, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(logs / "mixed-0")
    assert found == {offset: expected[offset] for offset in bases_of(logs / "mixed-0")[1:]}, "also those that rolled since"


@pytest.fixture
def of_a_window(tmp_path: Path) -> Path:
    """``mixed-0`` rests on a replay window and ``logappend-0`` on its whole log, both staged for a broker's configuration."""
    logs = copy_of("kafka4-mixed", tmp_path)
    directory = logs / "mixed-0"
    bases = bases_of(directory)
    expected = aged(logs, "mixed-0", bases[7])
    for offset in expected:
        path = directory / snapshot_name(offset)
        if offset <= bases[7] or offset in (bases[11], max(expected)):
            path.write_bytes(snapshot_bytes(expected[offset]))
        else:
            path.unlink(missing_ok=True)
    earlier(logs, "mixed-0", keep=11)
    remove_snapshots(logs / "logappend-0", *bases_of(logs / "logappend-0"))
    (tmp_path / "server.properties").write_text(f"log.dirs={logs}\nproducer.id.expiration.ms={DAY_MS}\n")
    options = ("--server-properties", tmp_path / "server.properties", "--to", tmp_path / "staged", *AS_OF)
    run = in_json("stage", *options, "--topic", "mixed", "--topic", "logappend")
    assert run.exit_code == 0, run.stderr
    assert run.partition("mixed-0")["replay_from_offset"] > 0
    assert {each["class"] for each in run.partition("logappend-0")["boundaries"]} == {"EXACT"}
    return logs


def test_a_later_run_without_the_configuration_does_not_forget_it(of_a_window: Path, tmp_path: Path) -> None:
    for topic in ("logappend", "mixed"):
        assert staged(of_a_window, tmp_path / "staged", "--topic", topic).codes["staged-earlier"] == 1
        properties = tmp_path / "server.properties"
        properties.write_text(f"log.dirs={of_a_window}\nproducer.id.expiration.ms={30 * DAY_MS}\n")
        done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--dry-run")
        assert (done.exit_code, set(done.actions("mixed-0").values())) == (3, {"refused"})
        assert "has 2592000000 now" in done.messages("refused")
        assert set(done.actions("logappend-0").values()) == {"would_write"}
        properties.write_text(f"log.dirs={of_a_window}\nproducer.id.expiration.ms={DAY_MS}\n")
        assert installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--dry-run").exit_code == 0


def test_without_the_configuration_only_what_rests_on_a_window_is_refused(of_a_window: Path, tmp_path: Path) -> None:
    (tmp_path / "server.properties").unlink()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes["refused"]) == (3, 1)
    assert CONFIGURATION_UNREAD in done.messages("refused")
    assert set(done.actions("mixed-0").values()) == {"refused"}
    assert set(done.actions("logappend-0").values()) == {"written"}


def test_without_the_configuration_what_closed_since_is_not_installed(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(running(logs), "mixed-0", keep=8)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\n")
    options = ("--server-properties", properties, "--to", tmp_path / "staged", *AS_OF, "--topic", "mixed")
    assert in_json("stage", *options).exit_code == 0
    put_back()
    properties.unlink()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.totals) == (1, {"written": 8, "failed": 6})
    assert CONFIGURATION_UNREAD in done.messages("not-staged")


# --- a broker that does not start -------------------------------------------------------------------------------------------


def test_nothing_is_staged_for_a_broker_that_does_not_start(tmp_path: Path) -> None:
    """Neither the missing snapshots, nor the existing ones that a later replay would begin from: no plan would name them."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "unknown").mkdir()
    ran = snaprebuild("stage", logs, "--to", tmp_path / "staged")
    assert ran.exit_code == 3
    answer = " ".join(ran.stdout.split())
    assert answer.startswith(f"{NO_START}a directory that is no partition (unknown). Nothing was staged; 14 snapshots")
    assert not (tmp_path / "staged").exists()
    planned = in_json("plan", logs, "--to", tmp_path / "staged").document
    assert sum(len(each["boundaries"]) for each in planned["partitions"]) == 0
    (logs / "unknown").rmdir()
    assert snaprebuild("stage", logs, "--to", tmp_path / "staged").stdout.startswith("16 snapshots staged")
    assert len(rows_of(tmp_path / "staged")) == 2


@pytest.mark.parametrize("is_complete", [False, True], ids=["snapshots are missing", "some were installed by hand"])
def test_a_broker_that_does_not_start_loses_nothing_that_was_staged(is_complete: bool, tmp_path: Path) -> None:
    """The second run writes nothing, and proves nothing about the files of the first one."""
    logs = copy_of("kafka27-mixed", tmp_path)
    assert staged(logs, tmp_path / "staged").exit_code == 0
    if is_complete:
        for path in (tmp_path / "staged" / "logappend-0.staged").glob("*.snapshot"):
            shutil.copyfile(path, logs / "logappend-0" / path.name)
    before = rows_of(tmp_path / "staged")
    (logs / "unknown").mkdir()
    again = staged(logs, tmp_path / "staged")
    assert (again.exit_code, again.document["staged_plan"]) == (3, None)
    assert rows_of(tmp_path / "staged") == before
    refused = snaprebuild("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    assert refused.exit_code == 3
    assert refused.text.startswith(f"{NO_START}a directory that is no partition (unknown).")
    (logs / "unknown").rmdir()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.totals["written"]) == (0, 12 if is_complete else 14)
    expected = truth("kafka27-mixed", "mixed-0")
    found = snapshots_in(logs / "mixed-0")
    assert found == {offset: expected[offset] for offset in found}
    assert len(found) == 15


def test_an_install_of_nothing_judges_the_start(tmp_path: Path) -> None:
    """The plan names no partition any more, and all the same the broker starts next."""
    logs = copy_of("kafka27-mixed", tmp_path)
    segment = min((logs / "logappend-0").glob("*.log"))
    flip(segment, batch_positions(segment)[1] - 2)
    assert staged(logs, tmp_path / "staged", "--topic", "logappend", "--crc", "skip").exit_code == 0
    assert staged(logs, tmp_path / "staged", "--topic", "logappend").exit_code == 4
    assert rows_of(tmp_path / "staged") == {}
    (logs / "unknown").mkdir()
    done = snaprebuild("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    assert done.exit_code == 4
    assert done.text.startswith(f"{NO_START}a directory that is no partition (unknown). Nothing was installed")
