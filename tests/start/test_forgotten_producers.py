"""No command that writes ends with exit code 0 while `scan` proves that the next start forgets the producers of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.test_next_command import next_words
from command import Run, in_json, snaprebuild
from log_dirs import copy_of, remove_snapshots, snapshot_name, truth
from snapshot_states import stopped_without

FORGETS = "empty-at-next-start"
STAGED = 4142
"""A boundary of ``mixed-0`` without a snapshot, so that there is something to stage."""
ONE_SEGMENT = "plain-0"
LOG_END = 452


pytestmark = pytest.mark.usefixtures("own_state_home")


def log_dir(place: Path) -> Path:
    """``plain-0`` has no snapshot, and ``mixed-0`` lacks one."""
    logs = Path(stopped_without(place)[0])
    (logs / "mixed-0" / snapshot_name(STAGED)).unlink()
    return logs


def forgotten(logs: Path) -> list[str]:
    """The partitions whose producers the next start forgets, as `scan` reports them."""
    return [each["path"] for each in in_json("scan", logs).document["findings"] if each["code"] == FORGETS]


def first_line(run: Run) -> str:
    return run.stdout.splitlines()[0]


@pytest.mark.parametrize("selection", [(), ("--topic", "mixed")], ids=["all topics", "one topic"])
def test_install_judges_every_partition(selection: tuple[str, ...], tmp_path: Path) -> None:
    """Also one of which nothing was staged. Its next command mends the directory, and then it has nothing to report."""
    logs = log_dir(tmp_path)
    staged = snaprebuild("stage", logs, "--to", tmp_path / "staged", *selection)
    assert staged.exit_code == (0 if selection else 1), "a stopped broker writes no snapshot at the log end any more"
    plan = tmp_path / "staged" / "plan.jsonl"
    assert forgotten(logs) == [str(logs / ONE_SEGMENT)]
    for options in (("--dry-run",), ()):
        run = snaprebuild("install", "--plan", plan, *options)
        assert run.exit_code == 1, run
        assert ONE_SEGMENT in first_line(run)
    assert (logs / "mixed-0" / snapshot_name(STAGED)).exists()
    words = next_words(run)
    assert words == ["before-start", str(logs)]
    assert snaprebuild(*words).exit_code == 0
    assert not forgotten(logs)
    assert LOG_END in truth("kafka4-mixed", ONE_SEGMENT)
    again = in_json("install", "--plan", plan)
    assert (again.exit_code, again.codes) == (0, {}), again
    assert next_words(snaprebuild("install", "--plan", plan)) == []


def test_install_itself_writes_what_a_start_would_forget(tmp_path: Path) -> None:
    """All snapshots of a partition are missing after a clean stop, also that at the log end. A dry run reports none of them."""
    logs = copy_of("kafka4-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0", *truth("kafka4-mixed", "mixed-0"))
    assert forgotten(logs) == [str(logs / "mixed-0")]
    staged = in_json("stage", logs, "--to", tmp_path / "staged")
    assert staged.exit_code == 0, staged
    plan = tmp_path / "staged" / "plan.jsonl"
    for options in (("--dry-run",), ()):
        run = in_json("install", "--plan", plan, *options)
        assert (run.exit_code, FORGETS in run.codes) == (0, False), run
    assert not forgotten(logs)


@pytest.mark.parametrize("verb", ["rebuild", "before-start", "stage", "install", "rebuild --topic mixed", "stage --topic mixed"])
def test_no_command_is_greener(verb: str, tmp_path: Path) -> None:
    """The state after it is judged by `scan` of the same selection, or of everything where a broker starts next."""
    logs = log_dir(tmp_path)
    name, *options = verb.split()
    if name in ("stage", "install"):
        words: list[object] = ["stage", logs, "--to", tmp_path / "staged", *options]
    else:
        words = [name, logs, *options]
    run = snaprebuild(*words)
    if name == "install":
        run = snaprebuild("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    left = [each for each in forgotten(logs) if not options]
    assert not left or run.exit_code != 0, run
    assert not left or next_words(run) not in ([], ["verify"])


def test_what_is_never_uploaded_has_no_exit_code(tmp_path: Path) -> None:
    """The rule is that of `scan`: nothing is written next to a compacted log, so that an alarm would never end."""
    logs = log_dir(tmp_path)
    (logs / "cleaner-offset-checkpoint").write_text(f"0\n1\nplain 0 {LOG_END}\n")
    assert snaprebuild("stage", logs, "--to", tmp_path / "staged").exit_code == 0
    run = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    assert (run.exit_code, run.codes.get(FORGETS)) == (0, 1)


def test_after_the_deadline_the_start_is_not_called_safe(tmp_path: Path) -> None:
    """Nothing is left to judge it with: the answer says so, and does not say to start the broker."""
    logs = log_dir(tmp_path)
    snaprebuild("stage", logs, "--to", tmp_path / "staged")
    run = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--deadline", 0)
    assert (run.exit_code, FORGETS in run.codes) == (1, False)
    late = [each["path"] for each in run.document["findings"] if each["code"] == "deadline-passed"]
    assert sorted(late) == [str(logs), str(logs / "mixed-0")]
    assert "was not judged: the deadline has passed" in run.document["answer"]
