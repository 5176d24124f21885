"""The rows of ``test_same_refusals`` that need another user than root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from command import snaprebuild
from log_dirs import tree
from manifests import FIXTURES
from staged_logs import AS_OF

from cli.test_permissions import USER, give, place, run
from cli.test_same_refusals import BELOW, IN_PLACE, INSTALLED, STAGED, Place, answer
from snaprebuild.snapshots.rebuild import run as rebuild_module
from snaprebuild.snapshots.staging import resume, staged_check
from snaprebuild.storage.local import broker_lock

pytestmark = [pytest.mark.full, pytest.mark.root, pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")]
__all__ = ["place"]


@dataclass(frozen=True)
class UserRow:
    """A refusal of a user.

    Attributes:
        name: of the row.
        commands: that have one answer.
        make: gives files to the user, or takes rights away.
        exit_code: of each command.
        text: that each of them prints.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    make: Callable[[Place], None]
    exit_code: int
    text: str


def of_root(there: Place) -> None:
    """Leaves the files to root, as they are copied."""


def without_lock(there: Place) -> None:
    (there.logs / ".lock").unlink()


def one_partition_is_read_only(there: Place) -> None:
    give(there.logs)
    (there.logs / "mixed-0").chmod(0o555)


def of_another_owner(there: Place) -> None:
    for path in (there.logs, *(each for each in there.logs.rglob("*") if each.is_dir())):
        path.chmod(0o777)
    (there.logs / ".lock").chmod(0o666)


def of_another_group(there: Place) -> None:
    give(there.logs)
    for path in there.logs.rglob("*.log"):
        os.chown(path, USER, 0)


def open_stage(there: Place) -> None:
    there.stage.mkdir(exist_ok=True)
    there.stage.chmod(0o777)


def lock_of_another_owner(there: Place) -> None:
    of_another_owner(there)
    (there.logs / ".lock").unlink()


ROWS = (
    UserRow("the lock is root's", IN_PLACE, of_root, 3, "cannot be opened for locking: Permission denied"),
    UserRow("no lock can be made", IN_PLACE, without_lock, 5, "permission denied: "),
    UserRow("the lock would get another owner", IN_PLACE, lock_of_another_owner, 3, "so that the broker's user can open it"),
    UserRow("one partition", IN_PLACE, one_partition_is_read_only, 5, "permission denied: 12 snapshots not written"),
    UserRow("another owner", IN_PLACE, of_another_owner, 3, "the owner and the group differ"),
    UserRow("another group", IN_PLACE, of_another_group, 3, "the group differs"),
    UserRow("output", BELOW, of_root, 5, "permission denied: 14 snapshots not written"),
    UserRow("a stage that is missing", STAGED, of_root, 5, "ermission denied"),
    UserRow("a stage of another owner", STAGED, open_stage, 3, "the owner and the group differ"),
    UserRow("install: the lock is root's", INSTALLED, of_root, 3, "cannot be opened for locking: Permission denied"),
    UserRow("install: one partition", INSTALLED, one_partition_is_read_only, 5, "permission denied: 12 snapshots not written"),
    UserRow("install: another owner", INSTALLED, of_another_owner, 3, "the owner and the group differ"),
)


@pytest.fixture
def there(place: Path) -> Place:
    return Place(place)


def prepared(row: UserRow, there: Place) -> None:
    if row.commands is INSTALLED:
        staged = snaprebuild(*there.words(("stage", "{logs}", "--to", "{stage}")))
        assert staged.exit_code == 0, staged
    row.make(there)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_answer(row: UserRow, there: Place) -> None:
    prepared(row, there)
    answers = [answer(run(*there.words(words), "--output", "json")) for words in row.commands]
    assert {exit_code for exit_code, _ in answers} == {row.exit_code}, answers
    assert all(row.text in str(said) for _, said in answers), answers
    assert [said for _, said in answers[1:]] == [said for _, said in answers[:-1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_write_itself_refuses_as_its_check(row: UserRow, there: Place) -> None:
    """The checks are taken out: what they predict still happens."""
    prepared(row, there)
    with (
        mock.patch.object(resume, "check_staging"),
        mock.patch.object(rebuild_module, "with_preflight", side_effect=lambda *arguments, **_: arguments[0]),
        mock.patch("snaprebuild.snapshots.rebuild.preflight.with_preflight", side_effect=lambda *arguments, **_: arguments[0]),
        mock.patch.object(staged_check, "blocked_in_place", return_value=None),
        mock.patch.object(broker_lock, "check_hold"),
        mock.patch("snaprebuild.snapshots.install.check_hold"),
    ):
        done = run(*there.words(row.commands[-1]), "--output", "json")
    assert done.exit_code == row.exit_code, done


@pytest.mark.parametrize(
    ("name", "commands", "make"),
    [
        ("own files", IN_PLACE, lambda there: give(there.logs)),
        ("own files, no lock yet", IN_PLACE, lambda there: [without_lock(there), give(there.logs)]),
        ("own stage", STAGED, lambda there: [give(there.logs), open_stage(there)]),
        ("output of another's log", BELOW, lambda there: there.root.chmod(0o777)),
    ],
)
def test_nothing_is_refused_where_nothing_is_wrong(
    name: str, commands: tuple[tuple[str, ...], ...], make: Callable[[Place], object], there: Place
) -> None:
    make(there)
    answers = [answer(run(*there.words(words), "--output", "json")) for words in commands]
    assert answers == [(0, [])] * 3, name


@pytest.mark.parametrize(
    ("mode", "exit_code", "text"),
    [(0o755, 5, "cannot be written to: Permission denied"), (0o777, 3, "the owner and the group differ")],
)
def test_a_new_partition_directory(mode: int, exit_code: int, text: str, place: Path) -> None:
    """The log directories are root's, and nothing is announced that cannot be made."""
    shutil.copytree(FIXTURES / "tiered-local" / "remote", place / "remote")
    lost = Path(shutil.copytree(FIXTURES / "follower-lost-state", place / "lost"))
    node = lost / "node1"
    shutil.rmtree(node / "__remote_log_metadata-0")
    (node / ".lock").touch()
    (node / ".lock").chmod(0o666)
    (place / "new").mkdir()
    for log_dir in (node, place / "new"):
        log_dir.chmod(mode)
    before = tree(place)
    build = ("follower", "build", place / "remote", place / "new", "--topic-partition", "mixed-0", *AS_OF)
    metadata = ("tier", "metadata", lost / "remote", "--log-dirs", node)
    for words in (build, metadata):
        answers = [run(*words, *more) for more in (("--dry-run",), ())]
        assert [each.exit_code for each in answers] == [exit_code] * 2, answers
        assert text in answers[0].stderr
        assert answers[0].stderr == answers[1].stderr
    assert tree(place) == before


def test_a_member_of_the_group_of_the_directory(there: Place) -> None:
    """A set-group-ID bit on the directories gives new files the group of the segments."""
    give(there.logs)
    for path in there.logs.rglob("*.log"):
        os.chown(path, USER, 0)
    for path in (there.logs, *(each for each in there.logs.rglob("*") if each.is_dir())):
        os.chown(path, USER, 0)
        path.chmod(0o2775)
    answers = [answer(run(*there.words(words), "--output", "json")) for words in IN_PLACE]
    assert answers == [(0, [])] * 3
