"""``stage`` and ``install``: built next to a running broker, named while it is stopped, and what a rebuild would have written."""

import errno
import hashlib
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import COMMAND, Run, in_json, nonzero, snaprebuild, snaprebuild_process
from documents import validator_of
from log_dirs import EMPTY_SNAPSHOT, changes, copy_of, remove_snapshots, snapshot_name, snapshots_in, tree, truth
from manifests import FIXTURES
from other_process import live_broker
from sentences import NOT_APPROVED, STARTED_ALL_THE_SAME, USES_LOG_DIR, WOULD_DISTURB
from staged_logs import AS_OF, MIXED, bases_of, earlier, installed, installed_here, running, snapshots_below, staged

from snaprebuild.errors import UsageError
from snaprebuild.snapshots.engine import log_facts
from snaprebuild.snapshots.staging import staged_check
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory, to be written to."""
    return copy_of("kafka27-mixed", tmp_path)


@pytest.fixture
def plan(logs: Path, tmp_path: Path) -> Path:
    """Stages everything and returns the plan."""
    staged(logs, tmp_path / "staged")
    return tmp_path / "staged" / "plan.jsonl"


# --- what comes out ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fixture",
    ["kafka27-killed", "kafka4-mixed", *(pytest.param(each, marks=pytest.mark.full) for each in ("magicup", "tiered-local"))],
)
def test_what_a_rebuild_in_place_writes(fixture: str, tmp_path: Path) -> None:
    """Byte for byte, in all partitions of which something was staged; and nothing else changes."""
    one, other = (copy_of(fixture, tmp_path / each) for each in ("one", "other"))
    for directory in (*one.glob("*-[0-9]"), *other.glob("*-[0-9]")):
        if len([*directory.glob("*.log")]) > 1:  # else nothing of it is staged, and the start forgets its producers
            remove_snapshots(directory)
    in_json("rebuild", one, *AS_OF, "--receipt", tmp_path / "one.jsonl")
    staged(other, tmp_path / "staged")
    before = tree(other)
    done = installed(tmp_path / "staged", tmp_path / "other.jsonl")
    assert done.exit_code == 0, done.stderr
    names = {Path(each["path"]).name for each in done.document["partitions"]}
    mine, theirs = (
        {name: data for name, data in snapshots_below(root).items() if Path(name).parent.name in names} for root in (other, one)
    )
    assert len(mine) >= 5
    assert mine == theirs
    appeared, vanished, changed = changes(before, tree(other))
    assert (appeared - {".lock"}, vanished, {name for name in changed if not (other / name).is_dir()}) == (set(mine), set(), set())


def test_a_broker_may_run_while_it_is_staged_and_not_while_it_is_installed(logs: Path, tmp_path: Path) -> None:
    running(logs)
    before = tree(logs)
    with live_broker(logs):
        run = staged(logs, tmp_path / "staged", "--jobs", 1)  # next to a broker workers have the lowest priority
        assert (run.exit_code, run.codes["live-broker"]) == (0, 1)
        assert run.actions("mixed-0") == dict.fromkeys([*MIXED, 7637], "written"), "and the state at the active segment"
        dry = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run")
        assert (dry.exit_code, dry.totals) == (0, {"would_write": 14}), dry.stderr
        refused = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
        assert (refused.exit_code, refused.stdout) == (3, "")
        assert f"{USES_LOG_DIR}. Stop it, then run this command again" in refused.stderr
    appeared, vanished, changed = changes(before, tree(logs))
    assert (appeared, vanished, changed) == ({".lock"}, set(), set())
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.totals == {"written": 14}, "all lie below the recovery point, so that the broker may as well be killed"


@pytest.mark.usefixtures("plan")
def test_a_run_that_was_undone_keeps_nothing_although_the_same_files_are_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    receipts = tmp_path / "state" / "snaprebuild"
    receipts.mkdir(parents=True)
    first = receipts / "snaprebuild-receipt-20260101T000000Z-aaaaaa.jsonl"
    second = receipts / "snaprebuild-receipt-20260101T000001Z-aaaaaa.jsonl"
    assert installed(tmp_path / "staged", first).exit_code == 0
    assert in_json("undo", first).totals == {"removed": 14}
    assert installed(tmp_path / "staged", second).exit_code == 0
    listed = {each["path"]: nonzero(each["files"]) for each in in_json("undo").document["receipts"]}
    assert listed == {str(first): {"replaced": 14}, str(second): {"kept": 14}}


@pytest.mark.usefixtures("plan")
def test_the_circle_of_receipts(logs: Path, tmp_path: Path) -> None:
    receipt, before = tmp_path / "receipt.jsonl", tree(logs)
    done = installed(tmp_path / "staged", receipt)
    assert (done.exit_code, done.totals, done.document["receipt"]) == (0, {"written": 14}, str(receipt))
    for line in receipt.read_text().splitlines():
        validator_of("receipt").validate(json.loads(line))
    assert in_json("verify", logs, *AS_OF).exit_code == 0
    kept = snaprebuild("verify", "--written-by", receipt, "--output", "json")
    assert (kept.exit_code, kept.totals) == (0, {"kept": 14})
    again = installed(tmp_path / "staged", tmp_path / "again.jsonl")
    assert (again.exit_code, again.totals, again.document["receipt"]) == (0, {"equal": 14}, None)
    undone = in_json("undo", receipt)
    assert undone.totals == {"removed": 14}
    appeared, vanished, _ = changes(before, tree(logs))
    assert (appeared - {".lock"}, vanished) == (set(), set())
    assert installed(tmp_path / "staged", tmp_path / "third.jsonl").totals == {"written": 14}, "after an undo, once more"


def test_what_was_staged_as_lines_follows_its_schema(tmp_path: Path) -> None:
    run = staged(copy_of("kafka27-mixed", tmp_path), tmp_path / "staged")
    text = Path(run.document["staged_plan"]).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        validator_of("staged-plan").validate(line)
    mixed = next(each for each in lines if each.get("topic_partition") == "mixed-0")
    for each in mixed["snapshots"]:
        path = Path(mixed["target"], snapshot_name(each["offset"]))
        status = path.stat()
        assert (each["size_bytes"], each["modified_ns"], each["inode"]) == (status.st_size, status.st_mtime_ns, status.st_ino)
        assert each["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [each["offset"] for each in mixed["snapshots"] if each["is_due"]] == MIXED
    assert {each["checked_ctime_ns"] for each in mixed["snapshots"]} == {None}, "nothing has checked them since"


# --- what happened in between -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plan")
def test_what_a_broker_of_2_7_deleted_since_is_installed_too(logs: Path, tmp_path: Path) -> None:
    """It keeps the snapshots of the last two segments alone, and continues to the next: what was there when it was staged may be gone."""
    path = logs / "mixed-0" / snapshot_name(7637)
    before = path.read_bytes()
    path.unlink()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.totals, done.partition("mixed-0")["read_bytes"]) == (0, {"written": 15}, 0)
    assert path.read_bytes() == before


@pytest.mark.usefixtures("plan")
def test_a_log_start_that_moved(logs: Path, tmp_path: Path) -> None:
    """Retention deletes the first segments: their boundaries are not due any more, and the others stay what they were."""
    bases = sorted(int(path.stem) for path in (logs / "mixed-0").glob("*.log"))
    for path in list((logs / "mixed-0").iterdir()):
        if path.name[:20].isdecimal() and int(path.name[:20]) < bases[3]:
            path.unlink()
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 0, done.stderr
    assert done.actions("mixed-0") == dict.fromkeys([offset for offset in MIXED if offset > bases[3]], "written")
    assert done.codes == {"not-due": 3}
    fixture = truth("kafka27-mixed", "mixed-0")
    found = snapshots_in(logs / "mixed-0")
    assert all(found[offset] == fixture[offset] for offset in MIXED if offset > bases[3]), "also producers whose batches are gone"


def another_file(segment: Path) -> None:
    data = segment.read_bytes()
    segment.unlink()
    segment.write_bytes(data)


def one_more(segment: Path) -> None:
    """It begins inside of the fifth: all up to that is what it was."""
    segment.with_name(f"{int(segment.stem) + 1:020d}.log").write_bytes(b"")


@pytest.mark.parametrize(("change", "is_due"), [(another_file, True), (Path.unlink, False), (one_more, True)])
@pytest.mark.usefixtures("plan")
def test_above_a_segment_that_is_another_nothing_is_installed(
    change: Callable[[Path], None], is_due: bool, logs: Path, tmp_path: Path
) -> None:
    fifth = sorted((logs / "mixed-0").glob("*.log"))[5]
    change(fifth)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 3, done.stderr
    below = [offset for offset in MIXED if offset < int(fifth.stem) or (is_due and offset == int(fifth.stem))]
    assert [offset for offset, action in done.actions("mixed-0").items() if action == "written"] == below
    assert done.codes["stale-staged"] == 1
    assert done.actions("logappend-0") == {542: "written", 1015: "written"}, "the others go on"


def test_a_staged_file_that_is_another_is_not_installed(plan: Path, tmp_path: Path) -> None:
    directory = tmp_path / "staged" / "mixed-0.staged"
    first, second, third, fourth, fifth = (directory / snapshot_name(offset) for offset in MIXED[:5])
    first.unlink()
    os.utime(second, ns=(0, 1))
    third.chmod(0o600)
    status = fourth.stat()
    with fourth.open("r+b") as file:  # only its bytes tell
        file.seek(20)
        file.write(b"\xff")
    os.utime(fourth, ns=(status.st_atime_ns, status.st_mtime_ns))
    shutil.copy2(fifth, tmp_path / "copy")  # the same bytes and times, but another file
    (tmp_path / "copy").rename(fifth)
    dry = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", "--dry-run")
    assert [offset for offset, action in dry.actions("mixed-0").items() if action == "refused"] == MIXED[:5]
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes) == (3, {"stale-staged": 5})
    assert [offset for offset, action in done.actions("mixed-0").items() if action == "refused"] == MIXED[:5]
    assert "tart the broker" not in done.document["answer"], "what was refused is still missing"
    for run in (dry, done):
        assert run.document["next_command"].startswith("snaprebuild stage "), "install would refuse them again"


def test_bytes_are_read_unless_they_were_checked_and_the_file_has_not_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    directory = tmp_path / "staged" / "mixed-0.staged"
    read: list[str] = []

    def reading(path: str) -> Fingerprint:
        read.append(Path(path).name)
        return fingerprint_at(path)

    monkeypatch.setattr(staged_check, "fingerprint_at", reading)

    def read_by_install(number: int) -> list[str]:
        read.clear()
        done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / f"{number}.jsonl")
        assert {made.action for each in done.partitions for made in each.boundaries} == {"written"}
        in_json("undo", tmp_path / f"{number}.jsonl")
        return sorted(read)

    staged(logs, tmp_path / "staged", "--topic", "mixed")
    names = [snapshot_name(offset) for offset in MIXED]
    assert read_by_install(1) == names, "nothing has checked them since they were staged"
    staged(logs, tmp_path / "staged", "--topic", "mixed")  # checks what is there
    (directory / names[0]).chmod((directory / names[0]).stat().st_mode)
    assert read_by_install(2) == names[:1]
    assert read_by_install(3) == names, "each has had a second name meanwhile"


@pytest.mark.usefixtures("plan")
def test_a_snapshot_that_appeared_is_kept(logs: Path, tmp_path: Path) -> None:
    same, other = (logs / "mixed-0" / snapshot_name(offset) for offset in MIXED[:2])
    shutil.copy(tmp_path / "staged" / "mixed-0.staged" / same.name, same)
    other.write_bytes(EMPTY_SNAPSHOT)
    before = tree(logs)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.codes) == (1, {"different-file": 1})
    assert {offset: done.actions("mixed-0")[offset] for offset in MIXED[:2]} == {MIXED[0]: "equal", MIXED[1]: "kept"}
    assert not {name for name in changes(before, tree(logs))[2] if not (logs / name).is_dir()}


def test_an_installed_link_whose_bytes_have_changed_is_not_called_equal(logs: Path, tmp_path: Path) -> None:
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    path = tmp_path / "staged" / "mixed-0.staged" / snapshot_name(MIXED[0])
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")  # the file in the log directory is the same one
    again = installed(tmp_path / "staged", tmp_path / "again.jsonl")
    assert (again.exit_code, again.codes) == (1, {"different-file": 1})


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    (directory,) = [path for path in logs.glob("mixed-*") if path.is_dir()]
    remove_snapshots(directory)
    staged(logs, tmp_path / "staged")
    metadata = directory / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert done.exit_code == 3
    assert "another topic has its name now" in done.messages("refused")
    assert not list(directory.glob("*.snapshot"))


@pytest.mark.usefixtures("plan")
def test_partitions_that_went(logs: Path, tmp_path: Path) -> None:
    shutil.rmtree(logs / "logappend-0")
    (logs / "mixed-0").rename(logs / "mixed-0.0123456789abcdef0123456789abcdef-delete")
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl")
    assert (done.exit_code, done.totals) == (1, {"skipped": 14}), "a topic that was deleted is no disk that fails"
    assert done.codes == {"partition-gone": 2}
    assert not [name for name in snapshots_below(logs) if int(Path(name).stem) in MIXED]


def test_after_damage_the_rest_is_staged_again(logs: Path, plan: Path) -> None:
    """Not ``inspect dump``, as other commands say; and nothing calls for a start while a snapshot failed."""
    (logs / "mixed-0" / snapshot_name(8231)).unlink()
    newest = sorted((logs / "mixed-0").glob("*.log"))[-1]
    data = bytearray(newest.read_bytes())
    data[16] = 9
    newest.write_bytes(data)
    done = snaprebuild("install", "--plan", plan)
    assert done.exit_code == 4
    assert "14 snapshots installed in 2 partitions; 1 failed. Next: snaprebuild stage " in done.text


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_disk_that_nothing_can_be_written_to_keeps_no_other_back(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel mounts a disk read-only after an error of its file system: no broker gets the lock there either."""
    one, other = (copy_of("kafka27-mixed", tmp_path / name) for name in ("one", "other"))
    staged(tmp_path, tmp_path / "staged")
    lock = other / ".lock"
    opened = os.open

    def failing(path: str, flags: int, *rest: int, **more: int) -> int:
        in_directory = Path() if more.get("dir_fd") is None else Path(os.readlink(f"/proc/self/fd/{more['dir_fd']}"))
        if flags & (os.O_RDWR | os.O_WRONLY) and (in_directory / path).parent == other and (flags & os.O_CREAT or lock.exists()):
            raise OSError(number, os.strerror(number), path)
        return opened(path, flags, *rest, **more)

    if number != errno.ENOSPC:
        lock.touch()
    before = tree(other)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing)
        done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "receipt.jsonl")
        refused = [each.code for each in done.findings if each.severity]
        assert (done.exit_code, set(refused)) == (5, {"storage-failed"}), done.findings
        assert tree(other) == before
        assert {os.strerror(number) in each.message for each in done.findings if each.severity} == {True}
        actions = {each.path: {made.action for made in each.boundaries if made.action != "equal"} for each in done.partitions}
        assert actions == {
            os.fspath(logs / name): {action}
            for logs, action in ((one, "written"), (other, "failed"))
            for name in ("mixed-0", "logappend-0")
        }
    rest = installed(tmp_path / "staged", tmp_path / "rest.jsonl")
    assert (rest.exit_code, rest.totals) == (0, {"equal": 14, "written": 14}), "once it can be written to again"


def test_a_dry_run_shows_what_is_mounted_read_only(plan: Path, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(logs)
    values = [*found[:8], found.f_flag | os.ST_RDONLY, *found[9:]]
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values) if path == os.fspath(logs) else found)
    done = installed_here(plan, None, dry_run=True)
    assert done.exit_code == 5
    assert {(each.path, each.message.partition(".")[0]) for each in done.findings} == {(os.fspath(logs), "is mounted read-only")}
    assert {made.action for each in done.partitions for made in each.boundaries} == {"failed"}


# --- the deadline -----------------------------------------------------------------------------------------------------------


def test_the_most_blocked_come_first_and_a_deadline_ends_it(plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = installed(tmp_path / "staged", tmp_path / "none.jsonl", "--deadline", 0)
    assert (none.exit_code, none.totals, none.document["receipt"]) == (1, {"skipped": 14}, None)
    again = f"snaprebuild install --plan {tmp_path / 'staged' / 'plan.jsonl'}"
    assert none.document["next_command"] == again, "what is staged is still right"
    moments = itertools.chain([1.0], itertools.repeat(3.0))  # the first partition comes before the deadline, the second after it
    monkeypatch.setattr(log_facts, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    one = installed_here(plan, tmp_path / "one.jsonl", deadline=2.0)
    monkeypatch.undo()
    assert [each.plan.source.directory.topic_partition for each in one.partitions] == ["mixed-0", "logappend-0"], (
        "the most blocked first"
    )
    assert [{each.action for each in partition.boundaries} for partition in one.partitions] == [{"written"}, {"skipped"}]
    rest = installed(tmp_path / "staged", tmp_path / "rest.jsonl")
    assert (rest.exit_code, rest.totals) == (0, {"equal": 12, "written": 2})


def test_a_deadline_between_the_links_and_what_closed_since(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(logs, "mixed-0", keep=8)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    put_back()
    moments = itertools.chain([1.0], itertools.repeat(3.0))
    monkeypatch.setattr(log_facts, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "one.jsonl", deadline=2.0)
    monkeypatch.undo()
    (partition,) = done.partitions
    boundaries = [*bases_of(logs / "mixed-0")[1:], 8231]
    assert {each.offset: each.action for each in partition.boundaries} == {
        offset: "written" if number < 8 else "skipped" for number, offset in enumerate(boundaries)
    }, "each boundary that is due is told of"
    assert (done.exit_code, {each.code for each in done.findings if each.severity}) == (1, {"deadline-passed"})
    rest = installed(tmp_path / "staged", tmp_path / "rest.jsonl")
    assert (rest.exit_code, rest.totals) == (0, {"equal": 8, "written": len(boundaries) - 8})


# --- places and plans -------------------------------------------------------------------------------------------------------


def test_places_that_are_refused(logs: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    properties = tmp_path / "server.properties"
    (tmp_path / "new disk").mkdir()
    properties.write_text(f"log.dirs={logs},{tmp_path / 'new disk'}\n")
    for place in (logs, logs / "staged", logs / "mixed-0" / "staged"):
        run = snaprebuild("stage", logs, "--to", place)
        assert run.exit_code == 3, place
        assert "log directory" in run.stderr or WOULD_DISTURB in run.stderr
    inside = snaprebuild("stage", "--server-properties", properties, "--to", tmp_path / "new disk" / "staged")
    assert (inside.exit_code, "no broker starts" in inside.stderr) == (3, True), "also one that is still empty"
    other = Path("/dev/shm", f"snaprebuild-{secrets.token_hex(8)}")  # another file system
    elsewhere = snaprebuild("stage", logs, "--to", other)
    assert (elsewhere.exit_code, "no link is possible" in elsewhere.stderr) == (2, True)
    assert not other.exists()
    (tmp_path / "new disk").rmdir()
    properties.unlink()
    assert tree(tmp_path) == before


def test_only_the_approved_plan_is_installed(logs: Path, plan: Path, tmp_path: Path) -> None:
    approved = hashlib.sha256(plan.read_bytes()).hexdigest()
    dry = in_json("install", "--plan", plan, "--dry-run")
    assert dry.document["plan_sha256"] == approved
    assert f"SHA-256 of the plan: {approved}" in snaprebuild("install", "--plan", plan, "--dry-run").stdout
    staged(logs, tmp_path / "staged")  # a later run writes another plan of the same snapshots
    changed, before = hashlib.sha256(plan.read_bytes()).hexdigest(), tree(logs)
    assert changed != approved
    for options in (("--dry-run",), ("--receipt", tmp_path / "refused.jsonl")):
        refused = snaprebuild("install", "--plan", plan, "--require-plan", approved, *options)
        assert (refused.exit_code, refused.stdout) == (3, "")
        assert f"{NOT_APPROVED}: its SHA-256 is {changed}, --require-plan has {approved}" in refused.stderr
    assert (tree(logs), (tmp_path / "refused.jsonl").exists()) == (before, False)
    done = installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--require-plan", changed.upper())
    assert (done.exit_code, done.totals) == (0, {"written": 14}), done.stderr
    for word in ("", "0" * 63, "z" * 64):
        assert snaprebuild("install", "--plan", plan, "--require-plan", word).exit_code == 2


def test_a_plan_that_is_none(plan: Path, tmp_path: Path) -> None:
    whole = plan.read_text().splitlines(keepends=True)
    older = [whole[0].replace("staged-plan/7", "staged-plan/6"), *whole[1:]]
    for lines, said in (
        ([], "is an empty file, not a staged plan"),
        (whole[:-1], "is not a staged plan: line"),
        (whole[:1] + whole[2:], "is not a staged plan: line"),
        (older, "is of another version: line 1: expected snaprebuild.staged-plan/7, found 'snaprebuild.staged-plan/6'"),
    ):
        plan.write_text("".join(lines))
        run = snaprebuild("install", "--plan", plan)
        assert run.exit_code == 2, run.stderr
        assert said in run.stderr
    assert snaprebuild("install", "--plan", tmp_path / "none").exit_code == 2
    with pytest.raises(UsageError, match="line 1"):
        load_staged_plan(str(FIXTURES / "kafka27-mixed" / "manifest.json"))


# --- before a command -------------------------------------------------------------------------------------------------------


def wrapped(plan: Path, *command: object) -> Run:
    return snaprebuild_process(
        "install", "--plan", plan, "--deadline", 60, "--receipt", plan.parent / "receipt.jsonl", "--", *command
    )


def test_the_command_starts_after_the_installation(plan: Path, logs: Path) -> None:
    run = wrapped(plan, "sh", "-c", f"cat {logs}/mixed-0/{snapshot_name(MIXED[1])} | wc -c; exit 7")
    assert (run.exit_code, run.stdout.strip().isdecimal()) == (7, True)
    answer = "14 snapshots installed in 2 partitions. Start the broker: it then uses the new snapshots."
    assert run.stderr == f"snaprebuild: {answer} Kafka 2.7 and older delete such files within a minute.\n"
    assert set(MIXED[1:]) <= set(snapshots_in(logs / "mixed-0"))


@pytest.mark.parametrize("reason", ["no plan", "another segment", "a broker runs"])
def test_the_command_starts_whatever_happens(reason: str, plan: Path, logs: Path) -> None:
    """With a broker the installation comes before the command that rebuilds the rest."""
    if reason == "no plan":
        plan.unlink()
    elif reason == "another segment":
        for log in (logs / "mixed-0").glob("*.log"):
            log.write_bytes(log.read_bytes()[:-1] + b"x")
    with live_broker(logs) if reason == "a broker runs" else nullcontext():
        rest = (*COMMAND, "before-start", logs, "--deadline", 60, "--jobs", 1, "--") if reason == "a broker runs" else ()
        run = wrapped(plan, *rest, "echo", "started")
    assert (run.exit_code, run.stdout) == (0, "started\n")
    assert STARTED_ALL_THE_SAME in run.stderr
