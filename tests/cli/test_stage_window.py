"""``stage`` of a part of the log: from the replay window on, and going on from what an earlier run has staged."""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from budgets import by_turns
from command import Run, in_json, snaprebuild
from log_dirs import copy_of, entries_in, flip, remove_snapshots, snapshot_bytes, snapshot_name, snapshots_in, truth
from moved_in_time import moved_in_time
from other_process import live_broker
from staged_logs import AS_OF, AS_OF_MS, DAY_MS, aged, bases_of, earlier, entries_at, installed, loaded, running, staged

WINDOWED = {"LOAD_EQUIVALENT", "SUPERSET_SAFE"}

LOG = ("kafka4-mixed", "mixed-0", 7, 11)
"""Directory, partition, number of the first young segment, and of the one that is active when it is staged."""


class Aged:
    """A broker's log. Its first segments are older than the lifetime of producers, and have all snapshots. The others have none, except
    that of the active segment, and that of the log end, which its clean stop writes. Later data is not written yet."""

    def __init__(self, tmp_path: Path, fixture: str, partition: str, young: int, active: int) -> None:
        self.root = tmp_path
        self.logs = copy_of(fixture, tmp_path)
        self.name, self.topic = partition, partition.rpartition("-")[0]
        self.directory = self.logs / partition
        self.bases = bases_of(self.directory)
        self.young, self.active = self.bases[young], self.bases[active]
        self.expected = aged(self.logs, partition, self.young)
        for offset in self.expected:
            path = self.directory / snapshot_name(offset)
            if offset <= self.young or offset in (self.active, max(self.expected)):
                path.write_bytes(snapshot_bytes(self.expected[offset]))
            else:
                path.unlink(missing_ok=True)
        self.missing = [base for base in self.bases if base > self.young and base != self.active]
        self.put_back = earlier(self.logs, partition, keep=active)

    def stage(self, *options: object) -> Run:
        return staged(self.logs, self.root / "staged", "--topic", self.topic, *options)

    def install(self, name: str = "receipt.jsonl") -> Run:
        return installed(self.root / "staged", self.root / name)

    def check(self, offsets: list[int], *moments_ms: int) -> None:
        """A broker that loads one of these snapshots at one of these moments has what Kafka's classes made of the whole log."""
        for offset in offsets:
            found = entries_at(self.directory, offset)
            for as_of_ms in (AS_OF_MS, *moments_ms):
                assert loaded(found, as_of_ms) == loaded(self.expected[offset], as_of_ms), (offset, as_of_ms)


def test_a_window_that_was_staged_and_the_log_that_continued(tmp_path: Path) -> None:
    case = Aged(tmp_path, *LOG)
    with live_broker(case.logs):
        run = case.stage()
    about = run.partition(case.name)
    assert run.exit_code == 0, run.stderr
    begin = about["replay_from_offset"]
    assert 0 < begin <= case.young, about["replay_reason"]
    assert {each["class"] for each in about["boundaries"]} <= WINDOWED
    due = [base for base in case.missing if base < case.active]
    assert run.actions(case.name) == dict.fromkeys([*due, case.active], "written")
    plan = json.loads((tmp_path / "staged" / "plan.jsonl").read_text().splitlines()[1])
    assert plan["first_offset"] == begin
    assert {each["class"] for each in plan["snapshots"]} == {each["class"] for each in about["boundaries"]}

    case.put_back()
    remove_snapshots(case.directory, *case.missing)
    done = case.install()
    about = done.partition(case.name)
    assert done.exit_code == 0, done.stderr
    assert done.actions(case.name) == dict.fromkeys(case.missing, "written")
    assert {each["class"] for each in about["boundaries"]} <= WINDOWED, "what is replayed on the staged state is worth no more"
    later = [path.stat().st_size for path in case.directory.glob("*.log") if case.active <= int(path.stem) < case.bases[-1]]
    assert about["read_bytes"] == sum(later), "and nothing below"
    # Some of the producers are dropped at the second moment, and all of them at the third.
    ages = sorted(entry.timestamp for entry in case.expected[case.bases[-1]] if entry.timestamp > AS_OF_MS - DAY_MS)
    case.check(case.missing, ages[len(ages) // 2] + DAY_MS, AS_OF_MS + 2 * DAY_MS)
    live = [len(loaded(case.expected[offset])) for offset in case.missing]
    assert min(live) > 0, "else nothing was compared"

    assert in_json("verify", case.logs, *AS_OF, "--topic", case.topic).exit_code == 0


def test_spark_stages_nothing(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    saved = tmp_path / "plan.jsonl"
    assert snaprebuild("plan", logs, "--to", tmp_path / "staged", *AS_OF, "--save", saved).exit_code == 0
    other = snaprebuild("rebuild", "--plan", saved, "--engine", "spark")
    assert (other.exit_code, "is one of `stage`: run snaprebuild stage --plan" in other.stderr) == (2, True)
    assert not (tmp_path / "staged").exists()


# --- staging again ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gone_on(tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """``mixed-0`` without its snapshots, staged up to its ninth segment; and what lets the log go on."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(running(logs), "mixed-0", keep=8)
    assert staged(logs, tmp_path / "staged", "--topic", "mixed").exit_code == 0
    return logs, put_back


def size_from(directory: Path, begin: int, end: int) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log") if begin <= int(path.stem) < end)


def test_staging_again_reads_only_what_closed_since(gone_on: tuple[Path, Callable[[], None]], tmp_path: Path) -> None:
    logs, put_back = gone_on
    directory, bases = logs / "mixed-0", bases_of(logs / "mixed-0")
    nothing = staged(logs, tmp_path / "staged", "--topic", "mixed")
    assert (nothing.totals, nothing.partition("mixed-0")["read_bytes"]) == ({"equal": 8}, 0)
    assert nothing.codes["staged-earlier"] == 1
    put_back()
    active = bases_of(directory)[-1]
    planned = in_json("plan", logs, "--to", tmp_path / "staged", "--topic", "mixed", *AS_OF)
    assert planned.partition("mixed-0")["min_read_bytes"] == size_from(directory, bases[8], active)
    dry = staged(logs, tmp_path / "staged", "--topic", "mixed", "--dry-run")
    assert dry.totals == {"equal": 8, "would_write": 6}
    again = staged(logs, tmp_path / "staged", "--topic", "mixed")
    assert (again.exit_code, again.totals) == (0, {"equal": 8, "written": 6}), again.stderr
    assert again.partition("mixed-0")["read_bytes"] == size_from(directory, bases[8], active)
    assert {each["class"] for each in again.partition("mixed-0")["boundaries"]} == {"EXACT"}
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 0, done.stderr
    assert done.partition("mixed-0")["read_bytes"] == 0
    expected = truth("kafka27-mixed", "mixed-0")
    found = snapshots_in(directory)
    assert found == {offset: expected[offset] for offset in bases_of(directory)[1:]}
    assert staged(logs, tmp_path / "staged", "--topic", "mixed").totals == {}, "nothing is missing any more"


def test_staging_again_behind_a_window(tmp_path: Path) -> None:
    case = Aged(tmp_path, *LOG)
    first = case.stage().partition(case.name)["replay_from_offset"]
    case.put_back()
    remove_snapshots(case.directory, *case.missing)
    again = case.stage("--as-of", "2026-11-21T13:00:00Z")
    assert again.exit_code == 0, again.stderr
    assert again.partition(case.name)["read_bytes"] == size_from(case.directory, case.active, case.bases[-1])
    plan = json.loads((tmp_path / "staged" / "plan.jsonl").read_text().splitlines()[1])
    assert plan["first_offset"] == first, "what lies below the window rests on it still"
    done = case.install()
    assert (done.exit_code, done.partition(case.name)["read_bytes"]) == (0, 0), done.stderr
    assert {each["class"] for each in done.partition(case.name)["boundaries"]} <= WINDOWED
    case.check(case.missing)


def test_a_broker_of_2_7_deletes_snapshots_between_two_stagings(tmp_path: Path) -> None:
    """A snapshot that was there at the first staging, and so was not staged, is among others that were staged."""
    logs = running(copy_of("kafka27-mixed", tmp_path))
    directory = logs / "mixed-0"
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    remove_snapshots(directory, 7045, 7637)
    again = staged(logs, tmp_path / "staged", "--topic", "mixed")
    actions = again.actions("mixed-0")
    assert (actions.pop(7045), set(actions.values())) == ("written", {"equal"})
    below = max(base for base in bases_of(directory) if base < 7045)
    assert again.partition("mixed-0")["read_bytes"] == size_from(directory, below, 7045)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 0, done.stderr
    expected, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(directory)
    assert all(found[offset] == expected[offset] for offset in bases_of(directory)[1:])


def others(logs: Path, stage: Path, what: str) -> tuple[object, ...]:
    """Makes something another one than it was when it was staged; or gives options that do."""
    directory = logs / "mixed-0"
    segment = sorted(directory.glob("*.log"))[4]
    if what == "a segment":
        data = segment.read_bytes()
        segment.unlink()
        segment.write_bytes(data)
    elif what == "a byte of a staged file":
        flip(sorted((stage / "mixed-0.staged").glob("*.snapshot"))[2], 20)
    elif what == "a staged file that is gone":
        sorted((stage / "mixed-0.staged").glob("*.snapshot"))[2].unlink()
    elif what == "owner or mode":
        segment.chmod(0o600)
    options = {
        "no checksums": ("--crc", "skip"),
        "an earlier moment": ("--as-of", "2026-11-21T11:59:59Z"),
        "another expiration": ("--expiration-ms", 2 * DAY_MS),
        "from elsewhere": ("--replay-from", "log-start"),
    }
    return options.get(what, ())


CHANGES = ("a segment", "a byte of a staged file", "a staged file that is gone", "owner or mode")
OPTIONS = ("no checksums", "an earlier moment", "another expiration", "from elsewhere")


@pytest.mark.parametrize("what", by_turns([*CHANGES, *OPTIONS]))
def test_what_is_another_is_read_again(what: str, gone_on: tuple[Path, Callable[[], None]], tmp_path: Path) -> None:
    logs, put_back = gone_on
    put_back()
    directory = logs / "mixed-0"
    options = others(logs, tmp_path / "staged", what)
    again = staged(logs, tmp_path / "staged", "--topic", "mixed", *options)
    assert again.partition("mixed-0")["read_bytes"] == size_from(directory, 0, bases_of(directory)[-1])
    assert "staged-earlier" not in again.codes
    assert (again.exit_code, "different-file" in again.codes) == (0, False), again.stderr
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, set(done.actions("mixed-0").values())) == (0, {"written"}), done.stderr
    expected, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(directory)
    assert found == {offset: expected[offset] for offset in bases_of(directory)[1:]}


def test_what_is_staged_again_replaces_what_was_staged(gone_on: tuple[Path, Callable[[], None]], tmp_path: Path) -> None:
    """The log has grown, and holds other batches: other bytes at the same boundaries. What was installed of the earlier ones stays."""
    logs, put_back = gone_on
    directory, stage = logs / "mixed-0", tmp_path / "staged"
    before, plan = snapshots_in(stage / "mixed-0.staged"), (stage / "plan.jsonl").read_bytes()
    first = min(before)
    os.link(stage / "mixed-0.staged" / snapshot_name(first), tmp_path / "installed")
    put_back()
    moved_in_time(directory, tmp_path / "moved", 1_000)
    for path in (tmp_path / "moved").glob("*.log"):
        path.rename(directory / path.name)
    again = staged(logs, stage, "--topic", "mixed")
    assert (again.exit_code, set(again.actions("mixed-0").values())) == (0, {"written"}), again.stderr
    after = snapshots_in(stage / "mixed-0.staged")
    assert [offset for offset in before if before[offset] == after[offset]] == []
    assert entries_in((tmp_path / "installed").read_bytes()) == before[first], "a link to a staged file keeps its bytes"
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "plan.jsonl").write_bytes(plan)
    assert "stale-staged" in in_json("install", "--plan", tmp_path / "earlier" / "plan.jsonl", "--dry-run").codes
    done = installed(stage, tmp_path / "receipt.jsonl")
    assert (done.exit_code, set(done.actions("mixed-0").values())) == (0, {"written"}), done.stderr
    assert snapshots_in(directory) == after


# --- several disks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A directory on another file system than temporary ones."""
    directory = Path("/dev/shm", f"snaprebuild-{secrets.token_hex(8)}")
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def test_each_disk_has_its_own_stage(tmp_path: Path, other_disk: Path) -> None:
    disks = (tmp_path, other_disk)
    assert len({os.stat(disk).st_dev for disk in disks}) == 2, "this needs two file systems"
    logs = [copy_of("kafka27-mixed", tmp_path), copy_of("kafka27-mixed", other_disk)]  # of one broker
    for name in ("logappend-0", "deleted-0", "plain-0"):
        shutil.rmtree(logs[1] / name)
    (logs[1] / "mixed-0").rename(logs[1] / "other-0")
    for name in ("recovery-point", "replication"):
        path = logs[1] / f"{name}-offset-checkpoint"
        path.write_text(path.read_text().replace("mixed 0", "other 0"))
    remove_snapshots(logs[1] / "other-0")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs[0]},{logs[1]}\n")
    stages = [disk / "staged" for disk in disks]
    one = snaprebuild("stage", "--server-properties", properties, "--to", stages[0], *AS_OF)
    assert (one.exit_code, "name another one (--to is repeatable)" in one.stderr) == (2, True)
    put_back = earlier(logs[1], "other-0", keep=11)
    run = in_json("stage", "--server-properties", properties, "--to", stages[0], "--to", stages[1], *AS_OF)
    assert run.exit_code == 0, run.stderr
    put_back()
    assert run.partition("other-0")["target"] == str(stages[1] / "other-0.staged")
    assert {run.partition(name)["target"] for name in ("mixed-0", "logappend-0")} == {
        str(stages[0] / f"{name}.staged") for name in ("mixed-0", "logappend-0")
    }
    assert [str(path.relative_to(stage)) for stage in stages for path in stage.glob("plan*")] == ["plan.jsonl"]
    with live_broker(logs[1]):
        assert installed(stages[0], tmp_path / "none.jsonl").exit_code == 3, "every log directory is held"
    assert not (tmp_path / "none.jsonl").exists()
    done = installed(stages[0], tmp_path / "receipt.jsonl")
    assert done.exit_code == 0, done.stderr
    for directory, fixture, partition in (
        (logs[0] / "mixed-0", "kafka27-mixed", "mixed-0"),
        (logs[0] / "logappend-0", "kafka27-mixed", "logappend-0"),
        (logs[1] / "other-0", "kafka27-mixed", "mixed-0"),
    ):
        expected, found = truth(fixture, partition), snapshots_in(directory)
        assert all(found[offset] == expected[offset] for offset in done.actions(directory.name))
        assert found.keys() >= set(bases_of(directory)[1:])
        staged_file = stages[logs.index(directory.parent)] / f"{directory.name}.staged"
        linked = [path for path in staged_file.iterdir() if path.samefile(directory / path.name)]
        assert len(linked) >= 2
        assert {path.stat().st_dev for path in linked} == {os.stat(directory).st_dev}
    # One of the disks is gone: what is on the other is installed, and the exit code shows that.
    assert in_json("undo", tmp_path / "receipt.jsonl").exit_code == 0
    shutil.rmtree(logs[1])
    rest = installed(stages[0], tmp_path / "rest.jsonl")
    assert (rest.exit_code, rest.codes["offline-log-dir"]) == (5, 1)
    assert set(rest.actions("mixed-0").values()) == {"written"}
