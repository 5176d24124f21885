"""Parts of a receipt: tasks in other processes announce their files, and a run that is killed at any step is taken back by its parts."""

import errno
import functools
import hashlib
import itertools
import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from faulty_store import FaultyStore, faulty_store
from log_dirs import copy_of, files_below, snapshot_name, tree
from open_files import open_below
from receipts import one_partition, steps
from tasks_elsewhere import TasksElsewhere, attempted, rebuilt_elsewhere

from snaprebuild.errors import ReadFailedError, RefusedError, UsageError, WriteFailedError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.destination import snapshot_writers
from snaprebuild.snapshots.destination.rebuilt_snapshot import RebuiltSnapshot
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.receipts import part_files, receipt_parts
from snaprebuild.snapshots.receipts.part_files import PREFIX, PartsPlace, close_parts, part_names
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.undo import UndoResult, undo
from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt
from snaprebuild.storage.local.file_calls import FileCalls
from snaprebuild.storage.local.whole_file import aside_name
from snaprebuild.storage.store import S3Settings


def written_in(receipt: Path) -> list[tuple[str, str]]:
    """Path and bytes of each file that a receipt announces."""
    partitions: dict[int, str] = {}
    found = []
    for step in steps(receipt):
        if step.get("step") == "partition":
            assert step["number"] not in partitions, "each partition has one line"
            partitions[step["number"]] = step["target"]
        elif step.get("step") == "write":
            found.append((os.path.join(partitions[step["number"]], step["name"]), step["sha256"]))
    return found


def parts_in(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "--out"])
def test_the_receipt_is_that_of_one_process(tmp_path: Path, is_in_place: bool) -> None:
    """Files and bytes equal those of one process, there is one whole receipt, and no part is left."""
    logs, here = copy_of("kafka27-mixed", tmp_path / "elsewhere"), copy_of("kafka27-mixed", tmp_path / "here")
    out, receipt, own = tmp_path / "elsewhere" / "out", tmp_path / "parts" / "receipt.jsonl", tmp_path / "own.jsonl"
    options = ("--boundaries", "all", "--out", tmp_path / "here" / "out") if not is_in_place else ()
    assert in_json("rebuild", here, "--receipt", own, "--as-of", "1795270000000", *options).exit_code == 0
    result = rebuilt_elsewhere(logs, None if is_in_place else out, receipt)
    assert result.receipt == str(receipt)
    relative = {(os.path.relpath(path, tmp_path / "elsewhere"), digest) for path, digest in written_in(receipt)}
    assert relative == {(os.path.relpath(path, tmp_path / "here"), digest) for path, digest in written_in(own)}
    last = steps(receipt)[-1]
    assert (last["step"], last["written"]) == ("end", steps(own)[-1]["written"])
    for place in (receipt.parent, out, logs):
        assert parts_in(place) == []
    assert all(name.endswith(".snapshot") for name in (files_below(out) if out.exists() else ()))
    undone = in_json("undo", receipt)
    assert (undone.exit_code, undone.totals) == (0, {"removed": last["written"]})


def test_a_repeated_task_is_announced_twice_and_counted_once(tmp_path: Path) -> None:
    """The second attempt finds the files of the first one, and they are in the receipt once more."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    rebuilt_elsewhere(logs, tmp_path / "out", receipt, TasksElsewhere(attempts=3))
    written = written_in(receipt)
    assert len(written) == 3 * len(set(written))
    assert steps(receipt)[-1]["written"] == len(set(written))
    assert {path for path, _ in written} == {str(path) for path in (tmp_path / "out").rglob("*.snapshot")}


@pytest.mark.parametrize("dies_after", [None, "set aside", "name"])
def test_a_repeated_task_reports_what_the_first_attempt_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: str | None
) -> None:
    """Whatever the first attempt has done with the wrong snapshot, the result is that of one attempt."""
    found = {}
    for name, attempts in (("once", 1), ("twice", 2)):
        logs = one_partition(tmp_path / name)
        (logs / "t-0" / aside_name(2)).write_bytes(b"of another run")
        engine = TasksElsewhere(attempts, functools.partial(die_once, monkeypatch, dies_after) if attempts > 1 else None)
        result = rebuilt_elsewhere(logs, None, tmp_path / f"{name}.jsonl", engine, set_aside=True, replay_from="log-start")
        (partition,) = result.partitions
        codes = [each.code for each in result.findings]
        boundaries = [
            (each.offset, each.action, each.set_aside_name, each.comparison and each.comparison.status, each.entries)
            for each in partition.boundaries
        ]
        found[name] = codes, boundaries
        assert [each["step"] for each in steps(tmp_path / f"{name}.jsonl") if each.get("step") == "set_aside"] == ["set_aside"]
        assert in_json("undo", tmp_path / f"{name}.jsonl").exit_code == 0
    assert found["twice"] == found["once"]
    assert (2, "written", aside_name(2, 2)) in [each[:3] for each in found["once"][1]]


def die_once(monkeypatch: pytest.MonkeyPatch, after: str | None, attempt: int) -> None:
    """Before an attempt: the first one dies when it has set a snapshot aside, or when the new one has its name."""
    create = snapshot_writers.create_snapshot

    def dying(rebuilt: RebuiltSnapshot, *more: Any) -> None:
        if rebuilt.boundary.exists and after == "set aside":
            raise RuntimeError("the task died")
        create(rebuilt, *more)
        if rebuilt.boundary.exists and after == "name":
            raise RuntimeError("the task died")

    if attempt == 0:
        monkeypatch.setattr(snapshot_writers, "create_snapshot", dying)
    else:
        monkeypatch.undo()


def test_a_file_that_another_program_made_after_the_first_attempt_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong snapshot was set aside, and a file that is none of ours has its name: it is not touched."""
    logs = one_partition(tmp_path)
    path = logs / "t-0" / snapshot_name(2)

    def between(attempt: int) -> None:
        die_once(monkeypatch, "set aside", attempt)
        if attempt == 1:
            path.write_bytes(b"of a broker")

    result = rebuilt_elsewhere(
        logs, None, tmp_path / "receipt.jsonl", TasksElsewhere(2, between), set_aside=True, replay_from="log-start"
    )
    assert [each.code for each in result.findings if each.severity >= Severity.FINDING] == ["refused"]
    assert path.read_bytes() == b"of a broker"
    assert path.with_name(aside_name(2)).read_bytes() == b"torn"


def test_a_run_that_writes_nothing_leaves_nothing(tmp_path: Path) -> None:
    logs, out = copy_of("kafka27-mixed", tmp_path), tmp_path / "out"
    rebuilt_elsewhere(logs, out, tmp_path / "first.jsonl")
    before = tree(tmp_path)
    result = rebuilt_elsewhere(logs, out, tmp_path / "new" / "place" / "second.jsonl")
    assert result.receipt is None
    assert tree(tmp_path).keys() == before.keys()


def test_a_receipt_that_cannot_name_the_place_of_its_parts_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, out, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "out", tmp_path / "receipts" / "receipt.jsonl"
    write = os.write

    def full(fd: int, data: Any) -> int:
        if b'"step":"parts"' in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteFailedError, match="No space left on device"):
        rebuilt_elsewhere(logs, out, receipt)
    assert parts_in(out) == []
    assert not receipt.exists()


@pytest.mark.parametrize("is_interrupted", [True, False], ids=["abandoned", "without its last line"])
def test_a_run_that_fails_leaves_no_descriptor_open(tmp_path: Path, is_interrupted: bool) -> None:
    """A server does many runs in one process."""
    logs, out, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "out", tmp_path / "receipt.jsonl"

    class Failing(TasksElsewhere):
        def __call__(self, tasks: Sequence[PartitionTask]) -> None:
            super().__call__(tasks)
            assert open_below(receipt), "the check sees it while it is open"
            if is_interrupted:
                raise KeyboardInterrupt
            for path in parts_in(out):
                path.write_text("damaged\n")

    if is_interrupted:
        with pytest.raises(KeyboardInterrupt):
            rebuilt_elsewhere(logs, out, receipt, Failing())
    else:
        assert any("is not a receipt" in each.message for each in rebuilt_elsewhere(logs, out, receipt, Failing()).findings)
    assert receipt.exists()
    assert not open_below(receipt)


class UndoneMeanwhile(TasksElsewhere):
    """All tasks have ended, and somebody undoes the run before its driver goes on."""

    def __init__(self, receipt: Path) -> None:
        super().__init__()
        self._receipt = receipt
        self.undone: UndoResult | None = None

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        super().__call__(tasks)
        self.undone = undo(load_receipt(str(self._receipt)))


def test_a_run_whose_parts_an_undo_took_keeps_its_receipt(tmp_path: Path) -> None:
    """Nothing keeps an undo from a run with ``--out``. Its receipt is not empty, although the run itself wrote no line about files."""
    logs, out, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "out", tmp_path / "receipt.jsonl"
    engine = UndoneMeanwhile(receipt)
    result = rebuilt_elsewhere(logs, out, receipt, engine)
    assert engine.undone is not None
    assert {each.action for each in engine.undone.files} == {"removed"}
    assert result.receipt == str(receipt)
    assert [each.message for each in result.findings if each.code == "refused" and "closed its parts" in each.message]
    assert len(load_receipt(str(receipt)).files) == len(engine.undone.files)


def test_an_undo_leaves_a_run_alone_that_holds_its_log_directory(tmp_path: Path) -> None:
    """It is refused before it closes a part, so the run goes on and its receipt is whole."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipts" / "receipt.jsonl"
    written: list[set[str]] = []

    class Undone(UndoneMeanwhile):
        def __call__(self, tasks: Sequence[PartitionTask]) -> None:
            super().__call__(tasks)
            written.append(snapshots_in(logs))

    engine = Undone(receipt)
    result = rebuilt_elsewhere(logs, None, receipt, engine)
    assert engine.undone is not None
    assert {each.action for each in engine.undone.files} == {"left"}
    assert {each.code for each in engine.undone.findings} == {"refused"}
    assert result.receipt == str(receipt)
    assert not [each for each in result.findings if each.code == "refused"]
    assert steps(receipt)[-1]["written"] == len(engine.undone.files)
    assert parts_in(receipt.parent) == []
    assert snapshots_in(logs) == written[-1]
    undone = in_json("undo", receipt)
    assert (undone.exit_code, undone.totals) == (0, {"removed": len(engine.undone.files)})


def test_an_undo_before_the_first_file_closes_no_part(tmp_path: Path) -> None:
    """Its log directories are not in the receipt yet. The same holds for one of another machine, and for ``--dry-run``."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipts" / "receipt.jsonl"
    seen: list[int] = []

    def undone(_: int) -> None:
        found = load_receipt(str(receipt))
        undo(found, dry_run=True)
        if not found.files:
            seen.append(len(undo(found).files))

    class OtherMachine(TasksElsewhere):
        def __call__(self, tasks: Sequence[PartitionTask]) -> None:
            super().__call__(tasks)
            logs.rename(tmp_path / "unmounted")
            left = undo(load_receipt(str(receipt)))
            (tmp_path / "unmounted").rename(logs)
            assert {each.action for each in left.files} == {"left"}

    result = rebuilt_elsewhere(logs, None, receipt, OtherMachine(between=undone))
    assert seen == [0]
    assert not [each for each in result.findings if each.code == "refused"]
    assert "end" in steps(receipt)[-1].values()


def test_a_task_without_the_place_of_the_driver_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine may have a directory of the same name, and there the first part is not."""
    logs, out, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "out", tmp_path / "receipt.jsonl"

    def elsewhere(_: int) -> None:
        for path in parts_in(out):
            path.rename(tmp_path / path.name)

    class OnAnotherMachine(TasksElsewhere):
        def __call__(self, tasks: Sequence[PartitionTask]) -> None:
            super().__call__(tasks)
            for path in parts_in(tmp_path):
                path.rename(out / path.name)

    result = rebuilt_elsewhere(logs, out, receipt, OnAnotherMachine(between=elsewhere))
    messages = {each.message for each in result.findings if each.code == "refused"}
    assert any("has no place here" in each and "--receipt FILE" in each for each in messages), result.findings
    assert [name for name in files_below(out) if name.endswith(".snapshot")] == []
    assert not receipt.exists()


# ------------------------------------------------------------------------------------------------------------------ the protocol


def report_of(place: PartsPlace, logs: Path) -> tuple[Any, Any]:
    """The messages of a task about its partition: the report, and the event of a file."""
    from plans import planned

    from snaprebuild.replay.classes import SnapshotClass
    from snaprebuild.snapshots.receipts.receipt_lines import WriteAnnounced
    from snaprebuild.storage.local.fingerprint import Fingerprint

    plan = next(each for each in planned(logs, out=str(logs.parent / "out"), boundaries="all").partitions if each.boundaries)
    event = WriteAnnounced(plan.boundaries[0].offset, SnapshotClass.LOAD_EQUIVALENT, 0, Fingerprint.of(b"", 1))
    return pickle.loads(pickle.dumps(receipt_parts.PartReport(place, 0, plan))), event


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PartsPlace]:
    (tmp_path / "parts").mkdir()
    receipt = tmp_path / "made.jsonl"
    rebuilt_elsewhere(copy_of("kafka27-mixed", tmp_path / "for-the-header"), tmp_path / "made", receipt)
    place = PartsPlace.new(str(tmp_path / "parts"), receipt.read_text().splitlines()[0])
    place.begin()
    yield place
    end_own_parts()


def test_after_the_close_nothing_is_announced(place: PartsPlace, tmp_path: Path) -> None:
    """Neither in a part that is open, nor in a new one. A closed part has all that was announced."""
    report, event = report_of(place, copy_of("kafka27-mixed", tmp_path))
    report(event)
    closed = close_parts(place.directory, place.run)
    with pytest.raises(RefusedError, match="was closed"):
        report(event)
    end_own_parts()
    with pytest.raises(RefusedError, match="has no place here"):
        report(event)
    assert [os.path.join(place.directory, name) for name in part_names(place.directory)[place.run]] == closed
    assert all(path.endswith(".closed.jsonl") for path in closed)
    assert len(load_receipt(place.directory).files) == 1


def test_a_part_that_begins_during_the_close(place: PartsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part is closed after this task has found it, and before its own part is there: the task removes that, and is refused."""
    report, event = report_of(place, copy_of("kafka27-mixed", tmp_path))
    closed: list[str] = []
    original = receipt_parts.JournalFile.__init__

    def made(journal: Any, path: str, first_line: str) -> None:
        closed.extend(close_parts(place.directory, place.run))
        original(journal, path, first_line)

    monkeypatch.setattr(receipt_parts.JournalFile, "__init__", made)
    with pytest.raises(RefusedError, match="has no place here"):
        report(event)
    assert [str(path) for path in parts_in(Path(place.directory))] == closed


def test_a_part_that_begins_when_the_others_are_listed(place: PartsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not in the list, so its task must not get further: the first part is closed by then."""
    report, event = report_of(place, copy_of("kafka27-mixed", tmp_path))
    listed = part_files.part_names

    def then_another(directory: str) -> dict[str, list[str]]:
        names = listed(directory)
        with pytest.raises(RefusedError, match="has no place here"):
            report(event)
        return names

    monkeypatch.setattr(part_files, "part_names", then_another)
    assert len(close_parts(place.directory, place.run)) == 1


@pytest.mark.parametrize("is_removed", [True, False], ids=["and is removed by its task", "and stays"])
def test_a_part_that_appears_after_the_others_were_closed(
    place: PartsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """Its task has not yet found that the first part is closed. What is returned is closed, and is there."""
    report, event = report_of(place, copy_of("kafka27-mixed", tmp_path))
    report(event)
    listed = part_files.part_names
    late = Path(place.path_of("a" * 16))
    lists = itertools.count()

    def with_late_one(directory: str) -> dict[str, list[str]]:
        is_there = next(lists) == 1
        if is_there:
            late.write_text(place.header + "\n")
        names = listed(directory)
        if is_there and is_removed:
            late.unlink()
        return names

    monkeypatch.setattr(part_files, "part_names", with_late_one)
    closed = close_parts(place.directory, place.run)
    assert len(closed) == (2 if is_removed else 3)
    assert closed == [str(path) for path in parts_in(Path(place.directory))]
    assert all(path.endswith(".closed.jsonl") for path in closed)


def test_parts_are_not_among_the_files_of_a_broker(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with pytest.raises(RefusedError, match="directory of a broker"):
        PartsPlace.new(str(logs), "{}").begin()
    assert parts_in(logs) == []


# ------------------------------------------------------------------------------------------------------------------ killed runs

CHANGING = ((FileCalls, ("open", "link", "rename_noreplace", "unlink")), (os, ("write", "fsync", "mkdir", "rename", "unlink")))


def dying(call: Callable[..., Any], calls: Iterator[int], last: int) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return counted


def dies(last: int, action: Callable[[], object]) -> bool:
    """Does something in a fork, which dies before its n-th call that changes something. False if it came to its end."""
    process = os.fork()
    if process == 0:
        calls = itertools.count()
        for where, names in CHANGING:
            for name in names:
                setattr(where, name, dying(getattr(where, name), calls, last))
        try:
            action()
        except BaseException:  # the parent reports it
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def snapshots_in(directory: Path) -> set[str]:
    return {str(path) for path in directory.rglob("*.snapshot")} if directory.exists() else set()


def leftover(names: set[str]) -> set[str]:
    """Names other than those that may stay of a killed run: its receipt, the lock, and a temporary name without a whole file."""
    return {name for name in names if not name.endswith((".lock", ".tmp", ".jsonl"))}


def has_a_line(path: Path) -> bool:
    return path.exists() and b"\n" in path.read_bytes()


def named_receipt(receipt: Path, parts: list[Path], *, is_lost: bool) -> Path | None:
    """The path for ``undo`` after a run was killed: the receipt, or if that is lost the directory of the parts. None without a
    line."""
    if is_lost and receipt.exists() and '"step":"parts"' in receipt.read_text() and '"step":"joined"' not in receipt.read_text():
        receipt.unlink()
    if has_a_line(receipt):
        return receipt
    return parts[0].parent if any(map(has_a_line, parts)) else None


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.night), pytest.param(5, marks=pytest.mark.full), 29])
@pytest.mark.parametrize("is_lost", [False, True], ids=["by the receipt", "by the directory of the parts"])
@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "--out"])
def test_a_run_that_is_killed_at_each_step_is_taken_back(
    tmp_path: Path, is_in_place: bool, attempts: int, is_lost: bool, stride: int
) -> None:
    """Its parts list each file that has its name. Then the run is repeated, and is whole."""
    options = {"set_aside": True, "replay_from": "log-start"} if is_in_place else {}
    logs = one_partition(tmp_path / "undisturbed")
    undisturbed = outcome_of(rebuilt_elsewhere(logs, None if is_in_place else tmp_path / "out", tmp_path / "receipt", **options))
    assert "written" in undisturbed[1]
    ways: set[str] = set()
    for last in itertools.count(step=stride):
        place = tmp_path / f"{last}"
        logs, out, receipt = one_partition(place), place / "out", place / "receipts" / "first.jsonl"
        receipt.parent.mkdir()
        before, names = tree(logs), set(files_below(place))
        run = functools.partial(rebuilt_elsewhere, logs, None if is_in_place else out, receipt, TasksElsewhere(attempts), **options)
        if not dies(last, run):
            break
        written = snapshots_in(place) - {str(logs / name) for name in before}
        named = named_receipt(receipt, parts_in(receipt.parent) + parts_in(out), is_lost=is_lost)
        if named is None:
            assert written == set()
            continue
        ways.add("directory" if named.is_dir() else "receipt")
        files = load_receipt(str(named)).files
        assert written <= {file.path for file in files}
        undone = in_json("undo", named)
        assert undone.exit_code == 0, (last, undone.stderr)
        assert leftover(set(files_below(place))) == leftover(names)
        assert {name: about for name, about in tree(logs).items() if about_snapshot(name)} == {
            name: about for name, about in before.items() if about_snapshot(name)
        }
        assert set(in_json("undo", named).totals) <= {"absent"}, "a second one finds nothing"
        again = rebuilt_elsewhere(logs, None if is_in_place else out, place / "again.jsonl", **options)
        assert outcome_of(again) == undisturbed
    assert last > 30
    if stride == 1:
        assert ways == ({"receipt", "directory"} if is_lost else {"receipt"})


def outcome_of(result: RebuildResult) -> tuple[set[str], list[str]]:
    """Codes of the findings, and what was done with each boundary."""
    return {each.code for each in result.findings}, [each.action.value for each in result.partitions[0].boundaries]


def about_snapshot(name: str) -> bool:
    return ".snapshot" in name and not name.endswith(".tmp")


class KilledAtTheEnd(TasksElsewhere):
    """All tasks have ended, and the driver is killed before it hears of it."""

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        for task in tasks:
            sent = pickle.dumps(task.job())
            for _ in range(2):
                attempted(sent)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.full), 7])
@pytest.mark.parametrize("is_lost", [False, True], ids=["by the receipt", "by the directory of the parts"])
def test_an_undo_that_is_killed_at_each_step_is_repeated(tmp_path: Path, is_lost: bool, stride: int) -> None:
    """It joins the parts first: what it has joined and not yet removed is there twice, and counts once."""
    for last in itertools.count(step=stride):
        place = tmp_path / f"{last}"
        logs, out, receipt = one_partition(place), place / "out", place / "receipts" / "first.jsonl"
        receipt.parent.mkdir()
        names = set(files_below(place))
        assert dies(-1, functools.partial(rebuilt_elsewhere, logs, out, receipt, KilledAtTheEnd()))
        assert len(parts_in(out)) == 3
        named = named_receipt(receipt, parts_in(out), is_lost=is_lost)
        assert named is not None
        assert [each.status for each in verify_receipt(load_receipt(str(named))).files] == ["kept"] * 4
        is_killed = dies(last, lambda named=named: undo(load_receipt(str(named))))
        undone = in_json("undo", named)
        assert undone.exit_code == 0, (last, undone.stderr)
        assert leftover(set(files_below(place))) == leftover(names)
        assert parts_in(out) == ([] if not is_lost else parts_in(out)[:1])
        assert {each.reason for each in verify_receipt(load_receipt(str(named))).files} == {"`undo` removed it"}
        if not is_killed:
            break
    assert last > 10


# ------------------------------------------------------------------------------------------------------------------ untrusted, objects


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"step":"write","number":0}', "line 2"),
        ('{"step":"written","number":7,"offset":0}', "names a partition or file that no line above names"),
        ("[]", "expected an object"),
    ],
)
def test_a_damaged_part_is_named(place: PartsPlace, tmp_path: Path, line: str, says: str) -> None:
    """Nothing is removed by a receipt of which a part cannot be read."""
    part = Path(place.path_of("0123456789abcdef"))
    part.write_text(f"{place.header}\n{line}\n")
    run = snaprebuild("undo", place.directory)
    assert run.exit_code == 2
    assert f"{part}: " in run.stderr
    assert says in run.stderr
    assert part.exists()


def test_parts_of_several_runs_are_not_mixed(place: PartsPlace, tmp_path: Path) -> None:
    """Neither by their names, nor by a part with the header of another run."""
    header = json.loads(place.header)
    part = Path(place.path_of("0123456789abcdef"))
    part.write_text(json.dumps({**header, "began_ms": 1}, separators=(",", ":")) + "\n")
    with pytest.raises(UsageError, match="the header of another run"):
        load_receipt(place.directory)
    part.unlink()
    PartsPlace.new(place.directory, place.header).begin()
    with pytest.raises(UsageError, match="parts of receipts of 2 runs"):
        load_receipt(place.directory)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no part of a receipt"):
        load_receipt(str(tmp_path / "empty"))


def test_a_receipt_whose_parts_are_elsewhere_is_no_empty_one(tmp_path: Path) -> None:
    """A volume that is not mounted: an undo that finds nothing to do would be wrong."""
    logs, out, receipt = one_partition(tmp_path), tmp_path / "out", tmp_path / "receipt.jsonl"
    assert dies(-1, functools.partial(rebuilt_elsewhere, logs, out, receipt, KilledAtTheEnd()))
    out.rename(tmp_path / "unmounted")
    with pytest.raises(ReadFailedError, match=f"its parts are not in {out}") as caught:
        load_receipt(str(receipt))
    assert caught.value.path == str(receipt), "for whoever asked for --last"
    out.mkdir()
    with pytest.raises(ReadFailedError, match=f"its parts are not in {out}"):
        load_receipt(str(receipt))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with faulty_store() as running:
        yield running


def test_objects_show_their_run_and_are_listed_with_the_outcome(bucket: FaultyStore, tmp_path: Path) -> None:
    """No part is in the bucket. The receipt names the run from the beginning, and at the end each object."""
    logs, receipt = one_partition(tmp_path), tmp_path / "receipt.jsonl"
    s3 = S3Settings(endpoint_url=bucket.endpoint, path_style=True)
    seen: list[dict[str, Any]] = []

    def before(attempt: int) -> None:
        seen.extend(steps(receipt))

    result = rebuilt_elsewhere(logs, "s3://b/out", receipt, TasksElsewhere(attempts=2, between=before), s3=s3)
    assert {each.action for each in result.partitions[0].boundaries} == {"written"}
    assert [each.get("step") for each in seen[:2]] == [None, "objects"], "before anything is written"
    objects = {name: data for name, data in bucket.objects.items() if name.endswith(".snapshot")}
    assert {bucket.metadata[name]["x-amz-meta-snaprebuild-run"] for name in objects} == {seen[1]["run"]}
    assert set(written_in(receipt)) == {(f"s3://{name}", hashlib.sha256(data).hexdigest()) for name, data in objects.items()}
    assert not [name for name in bucket.objects if PREFIX in name]
    bucket.objects.clear()
    receipt.unlink()
    assert dies(-1, functools.partial(rebuilt_elsewhere, logs, "s3://b/out", receipt, KilledAtTheEnd(), s3=s3))
    with pytest.raises(RefusedError, match=r"names objects.*each has [0-9a-f]{16} in its metadata `snaprebuild-run`"):
        load_receipt(str(receipt))
