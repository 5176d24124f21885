"""The mistakes that people make: each is answered with what is wrong, and where there is a way out, with what to do."""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Run, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES, REPOSITORY
from other_user import run_as_user

from snaprebuild.cli.file_kinds import recognize

TABLE = Path(__file__).with_name("mistakes.toml")
TABLES: dict[str, list[tuple[Any, ...]]] = {
    name: [tuple(row) for row in rows] for name, rows in tomllib.loads(TABLE.read_text()).items()
}
ROWS = TABLES["rows"]

LEAST_WITH_ADVICE = 80
"""Rows whose answer says what to do: more may come, none may go."""


def names_of(table: str) -> list[str]:
    """The mistakes of a table."""
    return [mistake for mistake, *_ in TABLES[table]]


def make_tree(root: Path) -> None:
    """The files that the mistakes are made with."""
    logs = copy_of("kafka27-mixed", root).rename(root / "logs")
    (root / "empty").mkdir()
    (root / "a blank").mkdir()
    for words in (
        f"plan {logs} --out {root}/planned --save {root}/plan.json",
        f"plan {logs} --out {root}/planned --save {root}/stale.json",
        f"stage {logs} --to {root}/staged",
        f"rebuild {logs} --out {root}/written --receipt {root}/receipt.jsonl",
        f"scan {logs} --save-json {root}/scan.json",
        f"verify {logs} --save-json {root}/verify.json",
        f"report {root}/scan.json --html {root}/page.html",
    ):
        ran = snaprebuild(*shlex.split(words))
        assert ran.exit_code in (0, 1), (words, ran.stderr)
    plan = (root / "plan.json").read_text()
    (root / "old.json").write_text(re.sub(r"saved-plan/[0-9]+", "saved-plan/1", plan))
    (root / "cut.json").write_text(plan[: plan.rindex("{")])
    (root / "scan.json.gz").write_bytes(gzip.compress((root / "scan.json").read_bytes()))
    (root / "nothing").touch()
    shutil.copy(FIXTURES / "kafka27-mixed/logs/mixed-0" / f"{8231:020d}.snapshot", root)
    for name, value in (
        ("server", str(logs)),
        ("tilde", "~/kafka-logs-of-nobody"),
        ("quoted", f'"{logs}"'),
        ("provider", "${env:LOGS}/a"),
        ("relative", "kafka-logs-of-nobody"),
        ("none", " , "),
    ):
        (root / f"{name}.properties").write_text(f"node.id=1\nlog.dirs={value}\n")
    (root / "typo.toml").write_text("max_request = 4\n")
    os.utime(logs / "mixed-0" / f"{0:020d}.log")  # after the plan, which is stale now


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a mistake changes nothing."""
    root = tmp_path_factory.mktemp("mistakes")
    make_tree(root)
    return root


def ran(command: str, root: Path) -> Run:
    """Runs a row."""
    return snaprebuild(*shlex.split(command.replace("{w}", str(root))))


@pytest.mark.parametrize(("mistake", "command", "exit_code", "says", "do"), ROWS, ids=[row[0] for row in ROWS])
def test_a_mistake_is_answered(
    mistake: str, command: str, exit_code: int, says: str, do: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tree / "state"))
    before = sorted(path for path in tree.rglob("*"))
    run = ran(command, tree)
    answer = f"{run.stdout}{run.stderr}"
    assert run.exit_code == exit_code, answer
    assert says, mistake
    assert says.replace("{w}", str(tree)) in answer
    assert do.replace("{w}", str(tree)) in answer
    assert "Traceback" not in answer
    assert sorted(path for path in tree.rglob("*")) == before


def check_answer(run: Run, root: Path, exit_code: int, says: str, do: str) -> None:
    """Makes sure that a run ends as a row says, with words about what to do."""
    answer = f"{run.stdout}{run.stderr}"
    assert run.exit_code == exit_code, answer
    for words in (says, do):
        assert words
        assert words.replace("{w}", str(root)) in answer
    assert "Traceback" not in answer
    assert "unforeseen" not in answer


@pytest.fixture
def open_tree() -> Iterator[Path]:
    """A tree that every user may enter and read."""
    with tempfile.TemporaryDirectory(prefix="mistakes-") as path:
        root = Path(path)
        root.chmod(0o755)
        copy_of("kafka27-mixed", root).rename(root / "logs")
        (root / "server.properties").write_text(f"node.id=1\nlog.dirs={root / 'logs'}\n")
        (root / "receipt.jsonl").touch()
        (root / "state").mkdir()
        (root / "state").chmod(0o777)
        yield root


@pytest.mark.parametrize(("mistake", "deny", "command", "exit_code", "says", "do"), TABLES["denied"], ids=names_of("denied"))
def test_a_missing_permission_is_answered(
    mistake: str, deny: str, command: str, exit_code: int, says: str, do: str, open_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read and write everything, so a child of root is another user. Everybody else takes the permission from the owner."""
    monkeypatch.setenv("XDG_STATE_HOME", str(open_tree / "state"))
    denied = [open_tree / deny] if deny else [open_tree, *(each for each in (open_tree / "logs").rglob("*") if each.is_dir())]
    if not deny:
        denied.append(open_tree / "logs")
    for each in denied:
        each.chmod(0 if deny else 0o555)
    try:
        words = shlex.split(command.replace("{w}", str(open_tree)))
        run = run_as_user(*words) if os.getuid() == 0 else snaprebuild(*words)
    finally:
        for each in reversed(denied):
            each.chmod(0o755)
    check_answer(run, open_tree, exit_code, says, do)


@pytest.mark.root
@pytest.mark.parametrize(("mistake", "command", "exit_code", "says", "do"), TABLES["read_only"], ids=names_of("read_only"))
def test_a_read_only_disk_is_answered(mistake: str, command: str, exit_code: int, says: str, do: str, open_tree: Path) -> None:
    mounts = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"'
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    inside = [*unshare, "sh", "-ec", mounts, "sh", str(open_tree)]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a file system here")
    words = shlex.split(command.replace("{w}", str(open_tree)))
    check_answer(ran_elsewhere([*inside, sys.executable, "-m", "snaprebuild", *words]), open_tree, exit_code, says, do)


WITHOUT = """import importlib.abc, sys
package = sys.argv[1]
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from snaprebuild.__main__ import main
sys.argv[:2] = ["snaprebuild"]
main()
"""


@pytest.mark.parametrize(
    ("mistake", "package", "command", "exit_code", "says", "do"), TABLES["without_package"], ids=names_of("without_package")
)
def test_a_missing_package_is_answered(
    mistake: str, package: str, command: str, exit_code: int, says: str, do: str, open_tree: Path
) -> None:
    words = shlex.split(command.replace("{w}", str(open_tree)))
    check_answer(ran_elsewhere([sys.executable, "-c", WITHOUT, package, *words]), open_tree, exit_code, says, do)


def ran_elsewhere(command: list[str]) -> Run:
    """Runs a command in a process of its own; receipts go to a place of their own."""
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "XDG_STATE_HOME": state, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return Run(done.returncode, done.stdout, done.stderr)


def test_most_answers_say_what_to_do() -> None:
    assert sum(bool(do) for *_, do in ROWS) >= LEAST_WITH_ADVICE
    mistakes = [mistake for name in TABLES for mistake in names_of(name)]
    assert len(set(mistakes)) == len(mistakes)


def test_the_files_are_what_their_rows_say(tree: Path) -> None:
    for name, noun in (("plan.json", "a saved plan"), ("scan.json.gz", "a compressed file"), ("nothing", "an empty file")):
        found = recognize(str(tree / name))
        assert found is not None
        assert found.noun == noun
