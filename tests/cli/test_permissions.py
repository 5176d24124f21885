"""The rows of docs/reference/permissions.md that say `run`: with exactly these rights, and with one fewer."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
from log_dirs import copy_of, snapshots_in, truth
from other_user import USER
from other_user import run_as_user as run
from staged_logs import AS_OF

pytestmark = [pytest.mark.full, pytest.mark.root, pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user can enter, with one for receipts."""
    with tempfile.TemporaryDirectory(prefix="permissions-") as path:
        Path(path).chmod(0o755)
        (Path(path) / "state").mkdir()
        os.chown(Path(path) / "state", USER, USER)
        monkeypatch.setenv("XDG_STATE_HOME", f"{path}/state")
        yield Path(path)


@pytest.fixture
def logs(place: Path) -> Path:
    """Readable for all, writable for root only."""
    return copy_of("kafka27-mixed", place)


def give(logs: Path) -> None:
    """To the user, as if it was the broker's."""
    for path in (logs, *logs.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)


READING = {
    "scan": ("scan",),
    "plan --out": ("plan", "--out", "{state}/out", *AS_OF),
    "verify": ("verify", *AS_OF),
    "rebuild --dry-run --out": ("rebuild", "--dry-run", "--out", "{state}/out", *AS_OF),
    "inspect transactions": ("inspect", "transactions"),
    "inspect stats": ("inspect", "stats"),
}


@pytest.mark.parametrize("name", READING)
def test_reading(name: str, place: Path, logs: Path) -> None:
    words = [each.format(state=place / "state") for each in READING[name]]
    whole = run(*words, logs, "--output", "json")
    assert whole.exit_code in (0, 1)
    assert '"unread": 0' in re.sub(r'"unread":(?=\d)', '"unread": ', whole.stdout)
    (logs / "mixed-0").chmod(0o700)
    less = run(*words, logs)
    assert less.exit_code == 5
    assert "mixed-0" in less.stderr
    assert "ermission denied" in less.stderr


@pytest.mark.parametrize("words", [("plan", *AS_OF), ("rebuild", "--dry-run", *AS_OF)], ids=" ".join)
def test_what_this_user_cannot_write_in_place(words: tuple[str, ...], place: Path, logs: Path) -> None:
    """Everything is read and shown, and the exit code is that of the run: see ``test_same_refusals_of_users``."""
    run_of_user = run(*words, logs, "--output", "json")
    assert run_of_user.exit_code == 5
    assert '"unread": 0' in re.sub(r'"unread":(?=\d)', '"unread": ', run_of_user.stdout)
    give(logs)
    assert run(*words, logs).exit_code == 0


@pytest.mark.parametrize("words", [("rebuild", *AS_OF), ("before-start",)], ids=" ".join)
def test_writing_as_the_owner(words: tuple[str, ...], place: Path, logs: Path) -> None:
    give(logs)
    before = {name: set(snapshots_in(logs / name)) for name in ("mixed-0", "logappend-0")}
    (logs / "mixed-0").chmod(0o555)
    less = run(*words, logs)
    assert less.exit_code == 5
    assert set(snapshots_in(logs / "mixed-0")) == before["mixed-0"]
    assert set(snapshots_in(logs / "logappend-0")) > before["logappend-0"], "the other partition is done"
    (logs / "mixed-0").chmod(0o755)
    assert run(*words, logs).exit_code == 0
    written = [path for path in (logs / "mixed-0").glob("*.snapshot") if int(path.stem) not in before["mixed-0"]]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(USER, USER)}
    assert len(written) == 12


def test_writing_as_another_user(place: Path, logs: Path) -> None:
    """The directories are open to all, and the segments belong to root."""
    for path in (logs, *(each for each in logs.rglob("*") if each.is_dir())):
        path.chmod(0o777)
    before = sorted(path.name for path in (logs / "mixed-0").iterdir())
    done = run("rebuild", logs, *AS_OF)
    assert done.exit_code in (3, 5)
    assert sorted(path.name for path in (logs / "mixed-0").iterdir()) == before


def test_undo(place: Path, logs: Path) -> None:
    give(logs)
    receipt = place / "state" / "receipt.jsonl"
    assert run("rebuild", logs, "--receipt", receipt, *AS_OF).exit_code == 0
    count = len(snapshots_in(logs / "mixed-0"))
    (logs / "mixed-0").chmod(0o555)
    assert run("undo", receipt).exit_code == 5
    assert len(snapshots_in(logs / "mixed-0")) == count
    (logs / "mixed-0").chmod(0o755)
    assert run("undo", receipt).exit_code == 0
    assert len(snapshots_in(logs / "mixed-0")) == 3


def test_staging_and_installing(place: Path, logs: Path) -> None:
    give(logs)
    staged = place / "staged"
    less = run("stage", logs, "--to", staged, *AS_OF)
    assert less.exit_code in (3, 5), "the directory above belongs to root"
    staged.mkdir()
    os.chown(staged, USER, USER)
    assert run("stage", logs, "--to", staged, *AS_OF).exit_code == 0
    assert run("install", "--plan", staged / "plan.jsonl").exit_code == 0
    assert len(snapshots_in(logs / "mixed-0")) == 15


def test_staged_by_root_and_installed_by_the_user_of_the_broker(place: Path, logs: Path) -> None:
    """The directories and the plan get the owner of the segments: both users may stage and install there, one after the other."""
    give(logs)
    kafka = truth("kafka27-mixed", "mixed-0")
    before = set(snapshots_in(logs / "mixed-0"))
    staged = place / "staged"
    for umask in (0o022, 0o077):
        old = os.umask(umask)
        try:
            assert command.snaprebuild("stage", logs, "--to", staged, *AS_OF, "--topic", "mixed").exit_code == 0
        finally:
            os.umask(old)
        for path in (staged, *staged.rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (USER, USER), path
        done = run("install", "--plan", staged / "plan.jsonl", "--receipt", place / "state" / f"{umask}.jsonl")
        assert (done.exit_code, "12 snapshots installed" in done.stdout) == (0, True), done.stderr
        found = snapshots_in(logs / "mixed-0")
        assert {offset: found[offset] for offset in set(found) - before} == {
            offset: kafka[offset] for offset in set(found) - before
        }
        assert run("undo", place / "state" / f"{umask}.jsonl").exit_code == 0
        again = run("stage", logs, "--to", staged, *AS_OF)
        assert again.exit_code == 0, again.stderr
        shutil.rmtree(staged)
    assert run("stage", logs, "--to", place / "state" / "staged", *AS_OF).exit_code == 0
    last = command.snaprebuild("stage", logs, "--to", place / "state" / "staged", *AS_OF)
    assert last.exit_code == 0, "and root after the user"
    assert run("install", "--plan", place / "state" / "staged" / "plan.jsonl").exit_code == 0
