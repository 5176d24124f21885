"""`plan`, a dry run and the run refuse for the same causes: with one exit code, one finding and one text, before anything is written.

``ROWS`` has every refusal that ends a run before its first file. A test fails when a refusal is added without a row.
"""

from __future__ import annotations

import ast
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from command import Run, snaprebuild
from every_verb import VERBS, filled, words_of, written
from log_dirs import copy_of, tree
from other_process import live_broker
from sentences import BROKER_HOLDS, NOT_REPLACED
from staged_logs import AS_OF

import snaprebuild as package
from snaprebuild.cli.main import verbs
from snaprebuild.snapshots.rebuild import run as rebuild_module
from snaprebuild.snapshots.receipts import receipt_places
from snaprebuild.snapshots.staging import resume
from snaprebuild.storage.local.directories import hold_directory

IN_PLACE = (("plan", "{logs}"), ("rebuild", "--dry-run", "{logs}"), ("rebuild", "{logs}"))
BELOW = tuple((*words, "--out", "{out}") for words in IN_PLACE)
WITH_RECEIPT = tuple((*words, "--receipt", "{receipt}") for words in IN_PLACE[1:])
STAGED = tuple((*words, "{logs}", "--to", "{stage}") for words in (("plan",), ("stage", "--dry-run"), ("stage",)))
INSTALLED = (("install", "--plan", "{stage}/plan.jsonl", "--dry-run"), ("install", "--plan", "{stage}/plan.jsonl"))
INSTALLED_WITH_RECEIPT = tuple((*words, "--receipt", "{receipt}") for words in INSTALLED)

Fault = Callable[["Place"], AbstractContextManager[object]]


class Place:
    """A stopped broker of which snapshots are missing, and the directories of the options."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = copy_of("kafka27-mixed", root)
        (self.logs / ".lock").touch()
        self.stage, self.out, self.receipt = root / "stage", root / "out", root / "receipt.jsonl"

    def words(self, words: Sequence[str]) -> list[str]:
        """A command line with the directories in the place of their names."""
        names = {name: os.fspath(value) for name, value in vars(self).items()}
        filled = [each.format(**names) for each in words]
        return filled if words[0] == "install" else [*filled, *AS_OF]


@dataclass(frozen=True)
class Row:
    """A refusal.

    Attributes:
        name: of the row.
        commands: that have one answer.
        fault: makes it, for the time of a run.
        exit_code: of each command.
        text: that each of them prints.
        covers: functions with the ``raise``, as module and name.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    fault: Fault
    exit_code: int
    text: str
    covers: tuple[str, ...] = ()


@contextlib.contextmanager
def lock_is_a_pipe(place: Place) -> Iterator[None]:
    (place.logs / ".lock").unlink()
    os.mkfifo(place.logs / ".lock")
    yield


@contextlib.contextmanager
def mounted(place: Place, change: Callable[[list[int]], None]) -> Iterator[None]:
    """The place as a file system with other numbers; no test needs a mount for it."""
    real = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        values = list(real(path))
        if Path(path).is_relative_to(place.root):
            change(values)
        return os.statvfs_result(values)

    with mock.patch.object(os, "statvfs", statvfs):
        yield


@contextlib.contextmanager
def read_only(place: Place) -> Iterator[None]:
    real = os.access

    def access(path: str, mode: int, *, effective_ids: bool = False) -> bool:
        is_refused = bool(mode & os.W_OK) and Path(path).is_relative_to(place.root)
        return not is_refused and real(path, mode, effective_ids=effective_ids)

    def change(values: list[int]) -> None:
        values[8] |= os.ST_RDONLY

    with mounted(place, change), mock.patch.object(os, "access", access):
        yield


def full(place: Place) -> AbstractContextManager[object]:
    def change(values: list[int]) -> None:
        values[3:5] = [3, 3]

    return mounted(place, change)


def without_inodes(place: Place) -> AbstractContextManager[object]:
    def change(values: list[int]) -> None:
        values[5:8] = [1000, 3, 3]

    return mounted(place, change)


@contextlib.contextmanager
def is_file(place: Place, name: str) -> Iterator[None]:
    (place.root / name).write_text("a file\n")
    yield


@contextlib.contextmanager
def in_log_dir(place: Place) -> Iterator[None]:
    place.stage = place.out = place.logs / "inside"
    place.receipt = place.logs / "receipt.jsonl"
    yield


@contextlib.contextmanager
def in_the_kernel(place: Place) -> Iterator[None]:
    place.out = Path("/proc/snaprebuild-out")
    place.receipt = Path("/proc/snaprebuild-receipt.jsonl")
    yield


@contextlib.contextmanager
def other_file_system(place: Place) -> Iterator[None]:
    place.stage = Path("/dev/shm", f"snaprebuild-{secrets.token_hex(8)}")
    assert os.stat("/dev/shm").st_dev != place.root.stat().st_dev
    yield


@contextlib.contextmanager
def staged_for_another_broker(place: Place) -> Iterator[None]:
    other = Place(place.root / "other")
    other.stage = place.stage
    assert snaprebuild(*other.words(("stage", "{logs}", "--to", "{stage}"))).exit_code == 0
    yield


def held(place: Place) -> AbstractContextManager[object]:
    return live_broker(place.logs)


def stage_is_held(place: Place) -> AbstractContextManager[object]:
    return hold_directory(os.fspath(place.stage))


@contextlib.contextmanager
def without_place_for_a_receipt(place: Place) -> Iterator[None]:
    with (
        mock.patch.dict(os.environ, XDG_STATE_HOME=os.fspath(place.logs / "state")),
        mock.patch.object(receipt_places, "current_directory", return_value=os.fspath(place.logs)),
    ):
        yield


def named(name: str) -> Fault:
    return lambda place: is_file(place, name)


ROWS = (
    Row("a broker holds the lock", IN_PLACE[1:], held, 3, "Stop it, then run this command again", ("broker_lock._held_refusal",)),
    Row("the lock is unknown", IN_PLACE, lock_is_a_pipe, 3, "is not a regular file", ("broker_lock._open_existing",)),
    Row("read-only", IN_PLACE, read_only, 5, "is mounted read-only", ("broker_lock.check_hold",)),
    Row("read-only output", BELOW, read_only, 5, "Read-only file system", ("write_checks.check_new_files",)),
    Row("read-only stage", STAGED, read_only, 5, "Read-only file system"),
    Row("no room", IN_PLACE, full, 5, "No space left on device: 14 files need", ("write_checks.check_room",)),
    Row("no room for output", BELOW, full, 5, "No space left on device: 14 files need"),
    Row("no room to stage", STAGED, full, 5, "No space left on device: 16 files need"),
    Row("no inodes", IN_PLACE, without_inodes, 5, "14 inodes, and 3 are free"),
    Row("output in a log directory", BELOW, in_log_dir, 3, "--out leads into", ("output_directory.check_output",)),
    Row("output is a file", BELOW, named("out"), 2, "it is not a directory"),
    Row("stage in a log directory", STAGED, in_log_dir, 3, "--to leads into", ("output_directory.staged_directories",)),
    Row("stage is a file", STAGED, named("stage"), 2, "--to: expected a directory, found the file"),
    Row("stage on another file system", STAGED, other_file_system, 2, "no --to directory is on its file system"),
    Row("another run stages", STAGED, stage_is_held, 3, "another run stages into this directory", ("directories._locked",)),
    Row(
        "stage of another broker",
        STAGED,
        staged_for_another_broker,
        3,
        "holds what was staged for",
        ("resume._check_targets",),
    ),
    Row("output in a file system of the kernel", BELOW, in_the_kernel, 5, "(proc) takes no files"),
    Row("receipt in a file system of the kernel", WITH_RECEIPT, in_the_kernel, 5, "(proc) takes no files"),
    Row("receipt is taken", WITH_RECEIPT, named("receipt.jsonl"), 3, "already exists", ("document_file.check_new_place",)),
    Row(
        "receipt in a log directory",
        WITH_RECEIPT,
        in_log_dir,
        3,
        "is in a directory of a broker",
        ("receipt.check_place", "log_dir_guard.check_outside_log_dirs"),
    ),
    Row("no place for a receipt", IN_PLACE[1:], without_place_for_a_receipt, 2, "a receipt can be written neither to"),
    Row("install: no place for a receipt", INSTALLED, without_place_for_a_receipt, 2, "a receipt can be written neither to"),
    Row("install: the lock is unknown", INSTALLED, lock_is_a_pipe, 3, "is not a regular file"),
    Row("install: read-only", INSTALLED, read_only, 5, "is mounted read-only"),
    Row("install: receipt is taken", INSTALLED_WITH_RECEIPT, named("receipt.jsonl"), 3, "already exists"),
)

MODULES = ("broker_lock", "write_checks", "directories", "document_file", "log_dir_guard", "output_directory", "resume", "receipt")
"""Modules with the refusals that a run has before its first file. Refusals of ``log_dirs`` that a plan cannot read are in other
tests."""

NO_ROWS = {
    "receipt._join": "Spark alone, where an undo ends the run: tests/snapshots/test_receipt_parts.py",
    "broker_lock._check_create": "needs another user: test_as_another_user",
    "broker_lock._owner_of_lock": "a log directory whose own status cannot be read is listed by no plan",
    "broker_lock._no_locks": "a file system without record locks: tests/storage/test_broker_lock.py",
    "broker_lock._create": "`hold` alone, after its check",
    "broker_lock._locked": "`hold` alone: the lock file keeps being replaced meanwhile",
    "broker_lock._take": "`hold` alone, after its check",
    "broker_lock.lock_holder": "answers who holds the lock; a note",
    "broker_lock.verify": "before each file that is written",
    "write_checks.check_owner": "needs another user: test_as_another_user",
    "directories.is_taken": "the name of one file",
    "directories.opened": "one file is written, after its checks",
    "directories.check_names": "an error of this program",
    "directories._make_one": "another program makes a file of that name meanwhile",
    "directories.sync_entries": "a directory that was made cannot be synced",
    "document_file.check_place": "the name of a document, before anything is planned: tests/cli/usage_errors.txt",
    "document_file._check_write": "the file of an option: tests/cli/test_output_files.py",
    "document_file._published": "a document is written",
    "output_directory._names_in": "an object store does not answer",
    "receipt.default_receipt_path": "a usage error: two rows have it",
    "resume._make_stage": "`stage` alone, after its check",
    "resume.staging": "passes on",
    "resume._check_files": "decides whether an earlier stage is continued; no refusal",
    "resume.resumed_plan": "as above",
    "resume._staged_state": "as above",
    "resume._effect_of": "as above",
}
"""Functions that raise, and have no row, with the reason."""


def answer(run: Run) -> tuple[int, object]:
    """The answer that a row compares: the exit code and all findings that are more than notes, or the error in the place of a
    result.

    A cause that concerns many partitions is one finding.
    """
    if not run.stdout:
        return run.exit_code, run.stderr
    findings = [each for each in run.document["findings"] if each["severity"] != "note"]
    assert all(findings.count(each) == 1 for each in findings), findings
    return run.exit_code, sorted((each["code"], each["path"], each["message"]) for each in findings)


def prepared(row: Row, root: Path) -> Place:
    place = Place(root)
    if row.commands in (INSTALLED, INSTALLED_WITH_RECEIPT):
        assert snaprebuild(*place.words(("stage", "{logs}", "--to", "{stage}"))).exit_code == 0
    if row.fault is stage_is_held:
        place.stage.mkdir()
    return place


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_answer(row: Row, tmp_path: Path) -> None:
    place = prepared(row, tmp_path)
    with row.fault(place):
        before = tree(tmp_path)
        answers = [answer(snaprebuild(*place.words(words), "--output", "json")) for words in row.commands]
        assert tree(tmp_path) == before, "nothing was written"
    assert {exit_code for exit_code, _ in answers} == {row.exit_code}, answers
    assert all(row.text in str(said) for _, said in answers), answers
    assert [said for _, said in answers[1:]] == [said for _, said in answers[:-1]]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.fault in (held, lock_is_a_pipe, stage_is_held)], ids=lambda row: row.name
)
def test_the_write_itself_refuses_as_its_check(row: Row, tmp_path: Path) -> None:
    """The checks are taken out: what they predict still happens."""
    place = prepared(row, tmp_path)
    with (
        row.fault(place),
        mock.patch.object(resume, "check_staging"),
        mock.patch.object(rebuild_module, "with_preflight", side_effect=lambda *arguments, **_: arguments[0]),
    ):
        run = snaprebuild(*place.words(row.commands[-1]), "--output", "json")
    assert run.exit_code == row.exit_code
    assert row.text in run.stdout + run.stderr


def test_each_refusal_has_a_row() -> None:
    raising = set()
    for path in Path(package.__file__).parent.rglob("*.py"):
        if path.stem in MODULES and path.parent.name in ("local", "destination", "staging", "receipts"):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef) and any(_raises(each) for each in ast.walk(function)):
                    raising.add(f"{path.stem}.{function.name}")
    covered = {each for row in ROWS for each in row.covers}
    assert raising - covered - NO_ROWS.keys() == set(), "add a row, or the reason why there is none"
    assert not covered & NO_ROWS.keys()


def _raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and node.exc is not None


def test_a_plan_is_made_before_the_stop(tmp_path: Path) -> None:
    """A live broker is no fault of a plan: it names the broker, and ends with `stage`, which is not refused."""
    place = Place(tmp_path)
    with live_broker(place.logs):
        plan = snaprebuild(*place.words(IN_PLACE[0]))
        assert (plan.exit_code, f"{BROKER_HOLDS}{place.logs}. Next: snaprebuild stage" in plan.text) == (0, True)
        assert snaprebuild(*place.words(STAGED[2])).exit_code == 0


NEW_FILES = ("--receipt", "--records-file")
"""Options that name a file which is never replaced."""
DRY_RUNS = [
    (name, option)
    for name, each in VERBS.items()
    for option in NEW_FILES
    if {"--dry-run", option} <= {word for one in verbs()[words_of(" ".join(each.arguments[:2]))].params for word in one.opts}
    # It goes with --log-dirs: tests/tier/test_tier_metadata.py.
    if (each.arguments[:2], option) != (("tier", "metadata"), "--receipt")
]


@pytest.mark.parametrize(("name", "option"), DRY_RUNS)
def test_a_dry_run_refuses_a_file_that_is_there(name: str, option: str, tmp_path: Path) -> None:
    verb = VERBS[name]
    written(verb, tmp_path)
    file = tmp_path / "is-there"
    file.write_text('{"schema":"snaprebuild.scan/4"}\n')
    words = list(verb.arguments)
    if option in words:
        words[words.index(option) + 1] = os.fspath(file)
    else:
        words += [option, os.fspath(file)]
    if name == "install":
        (tmp_path / "bare" / ".lock").touch()  # it locks the directory first, with the file that a broker makes
    before = tree(tmp_path)
    answers = [answer(snaprebuild(*filled(tuple(words), tmp_path), *more)) for more in ((), ("--dry-run",))]
    assert tree(tmp_path) == before
    assert answers[0] == answers[1], answers
    assert answers[0][0] == 3, answers
    assert NOT_REPLACED in str(answers), answers


HEALTHY = {
    "in place": IN_PLACE,
    "out": BELOW,
    "stage": STAGED,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_refused_where_nothing_is_wrong(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    answers = [answer(snaprebuild(*place.words(words), "--output", "json")) for words in HEALTHY[name]]
    assert answers == [(0, [])] * 3


@pytest.mark.parametrize("fault", [full, read_only, without_inodes])
def test_what_an_earlier_run_wrote_needs_no_room(fault: Fault, tmp_path: Path) -> None:
    """Nothing is left to write: equal files are compared, and nothing is wrong."""
    place = Place(tmp_path)
    for words in (BELOW[2], STAGED[2]):
        assert snaprebuild(*place.words(words)).exit_code == 0
    with fault(place):
        # The staged plan is written again.
        for words in (*BELOW, *(() if fault is read_only else STAGED)):
            assert snaprebuild(*place.words(words)).exit_code == 0, words
