"""The mistakes that people make: each is answered with what is wrong, and where there is a way out, with what to do."""

import gzip
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from command import Run, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES

from snaprebuild.cli.file_kinds import recognize

TABLE = Path(__file__).with_name("mistakes.toml")
ROWS: list[tuple[str, str, int, str, str]] = [tuple(row) for row in tomllib.loads(TABLE.read_text())["rows"]]

LEAST_WITH_ADVICE = 80
"""Rows whose answer says what to do: more may come, none may go."""


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


def test_most_answers_say_what_to_do() -> None:
    assert sum(bool(do) for *_, do in ROWS) >= LEAST_WITH_ADVICE
    assert len({mistake for mistake, *_ in ROWS}) == len(ROWS)


def test_the_files_are_what_their_rows_say(tree: Path) -> None:
    for name, noun in (("plan.json", "a saved plan"), ("scan.json.gz", "a compressed file"), ("nothing", "an empty file")):
        found = recognize(str(tree / name))
        assert found is not None
        assert found.noun == noun
