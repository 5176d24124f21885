"""Nothing of ours is created in a log directory, wherever the environment, the current directory and each option lead.

A broker does not start while an unknown directory is in its log directory. What may be created there: genuine snapshots, ``.lock``, names
that ``--set-aside`` gives, and the new partition of ``follower build``.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from budgets import TIER
from command import snaprebuild, snaprebuild_process
from created_names import created_names
from edited_tree import Place
from every_verb import VERBS, Verb, filled, words_of
from one_file_runs import many_bytes

from formats.partition.file_names import BROKER_FILES, LOCK_FILE_NAME
from snaprebuild.cli.main import verbs
from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.receipts.receipt_places import default_receipt_places
from snaprebuild.snapshots.source.broker_properties import read_server_properties
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs, log_dir_above, protect_log_dirs
from snaprebuild.storage.local.temporary_directory import choose_temporary_directory

GENUINE = re.compile(r"\d{20}\.snapshot(\.tmp)?|\d{20}\.snapshot\.set-aside\S*|\.lock(\.tmp)?|payments-0\S*")
"""Names that may appear in a log directory; the last one is the partition that ``follower build`` makes."""

FILES = {"--receipt", "--save-json", "--metrics", "--save", "--html", "--keys", "--results", "--records-file", "--ledger"}
DIRECTORIES = {"--out", "--to", "--elections", "--cache", "--log-dirs"}
READ = {
    *(
        "--audit",
        "--config",
        "--leader",
        "--log-dir",
        "--metadata",
        "--metadata-log",
        "--peer",
        "--plan",
        "--producer-config",
        "--scenario",
    ),
    "--command-config",
    *("--server-properties", "--transaction-state", "--voter"),
}
"""Options whose value is a path that is only read."""

ONLY_READS = {
    *(
        ("tier metadata", "--log-dirs"),
        ("tier metadata --records-file", "--log-dirs"),
        ("verify --written-by", "--written-by"),
        ("verify", "--written-by"),
        ("plan", "--out"),
        ("plan", "--to"),
        ("tier repair --audit", "--ledger"),
    ),
    *(("rebuild --plan", "--out"), ("rebuild in place", "--out"), ("inspect records", "--out")),
}
"""Where an option of the first two tables creates nothing, or cannot be given."""

WITHOUT_SPARK = {"--cache"}
"""Options that need Spark; ``tests/spark`` has them."""


def _places(logs: Path) -> dict[str, Path]:
    """Places in a log directory, by how they lead into it."""
    return {
        "in it": logs / "x.prom",
        "in a directory of it": logs / "sub" / "x.prom",
        "deep below it": logs / "sub" / "missing" / "x.prom",
        "in a partition": logs / "orders-0" / "x.prom",
        "by a link": logs.parent / "link" / "sub" / "x.prom",
        "by a link to a missing directory": logs.parent / "dangling" / "x.prom",
        "in an empty log directory that server.properties names": logs.parent / "new-disk" / "x.prom",
        "by dots": logs.parent / "elsewhere" / ".." / "logs" / "sub" / "x.prom",
    }


PLACES = tuple(_places(Path("/logs")))
Trees = Callable[[str], Place]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory with a partition and a directory that somebody left in it."""
    made = tmp_path / "logs"
    for name in ("orders-0", "sub"):
        (made / name).mkdir(parents=True)
    (made / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (made / "orders-0" / f"{0:020d}.log").touch()
    (tmp_path / "link").symlink_to(made)
    (tmp_path / "dangling").symlink_to(made / "not-there")
    for name in ("elsewhere", "new-disk", "cwd", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "server.properties").write_text(f"log.dirs={made},{tmp_path / 'new-disk'}\n")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("snaprebuild.storage.local.log_dir_guard._configured", set())
    return made


@dataclass(frozen=True)
class Case:
    """A verb with one of its options."""

    name: str
    option: str

    def __str__(self) -> str:
        return f"{self.name} {self.option}"


def _options(name: str) -> dict[str, str]:
    """Options of a verb whose value is a path, with the word for it in the help."""
    pairs = ((each.opts[0], each.metavar or "") for each in verbs()[words_of(name)].params if isinstance(each, click.Option))
    return {option: metavar for option, metavar in pairs if re.search("FILE|DIR", metavar)}


CASES = [
    Case(name, option)
    for name in VERBS
    for option in _options(name)
    if option in FILES | DIRECTORIES and (name, option) not in ONLY_READS and option not in WITHOUT_SPARK
]


def test_each_option_with_a_path_is_in_one_table() -> None:
    """A new option cannot be forgotten here."""
    options = {option for name in VERBS for option in _options(name)}
    assert options == FILES | DIRECTORIES | READ
    assert len(CASES) >= 60


def _arguments(verb: Verb, root: Path, option: str | None = None, value: Path | None = None) -> list[str]:
    """The command line with another value of an option; without the option where there is none."""
    words = filled(verb.arguments, root)
    if option in words:
        at = words.index(option)
        del words[at : at + 2]
    return words if value is None else [*words, str(option), str(value)]


def _foreign(created: list[str]) -> list[str]:
    return [path for path in created if not GENUINE.fullmatch(os.path.basename(path))]


def _log_dirs(root: Path) -> list[Path]:
    """Directories of the tree of a verb that are log directories."""
    return [path for path in root.iterdir() if path.is_dir() and log_dir_above(str(path)) is not None]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """The tree of a verb, for all runs that are refused and leave it as it is."""

    @functools.cache
    def tree(name: str) -> Place:
        return Place.made(VERBS[name], tmp_path_factory.mktemp("tree"))

    return tree


def _check_option(case: Case, where: str, logs: Path, trees: Trees) -> None:
    place = trees(case.name)
    target = _places(logs)[where]
    if case.option in DIRECTORIES:
        target = target.with_suffix("")
    words = _arguments(place.verb, place.root, case.option, target)
    protect_log_dirs([str(logs.parent / "new-disk")])
    with created_names(logs, logs.parent / "new-disk", *_log_dirs(place.root)) as created:
        ran = snaprebuild(*words, cwd=logs.parent / "cwd")
    # The directory of a document must exist, and a link to nothing is no directory: both are errors of usage.
    is_missing = case.option in FILES or "missing" in where
    assert ran.exit_code in ((2, 3) if is_missing else (3,)), (case, where, ran)
    assert created == [], (case, where)


STRIDE = 8 if TIER == "quick" else 1
"""The quick tier takes each option for a file at one of the eight places, and each one for a directory, which are few, at all."""


@pytest.mark.parametrize("where", PLACES)
def test_options(where: str, logs: Path, trees: Trees) -> None:
    files = [case for case in CASES if case.option in FILES]
    directories = [case for case in CASES if case.option in DIRECTORIES]
    for case in (*directories, *files[PLACES.index(where) % STRIDE :: STRIDE]):
        _check_option(case, where, logs, trees)


TIER_CASES = [case for case in CASES if case.name.startswith("tier ") and case.option in FILES]


@pytest.mark.parametrize("case", TIER_CASES, ids=str)
def test_no_file_is_created_in_a_store(case: Case, logs: Path, trees: Trees) -> None:
    """Whatever has another name there is no object of a plugin, and the next inventory would count it as one of an unknown layout."""
    place = trees(case.name)
    words = _arguments(place.verb, place.root)
    store = Path(words[2])
    by_link = logs.parent / "to-store"
    by_link.symlink_to(store)
    for target in (store / "x.prom", by_link / "x.prom"):
        with created_names(store) as created:
            ran = snaprebuild(*_arguments(place.verb, place.root, case.option, target), cwd=logs.parent / "cwd")
        assert ran.exit_code == 3, (case, ran)
        assert f"is in STORE ({store})" in ran.stderr, (case, ran)
        assert created == [], case


@pytest.mark.parametrize("name", VERBS)
def test_environment(name: str, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME, XDG directories and the directory of temporary files are log directories; receipts go elsewhere."""
    verb = VERBS[name]
    (logs.parent / "tree").mkdir()
    place = Place.made(verb, logs.parent / "tree")
    own = _log_dirs(place.root)
    home = own[0] if own else logs
    _set_environment(monkeypatch, home)
    receipt = "--receipt" if "--receipt" in verb.arguments and name != "verify --written-by" else None
    words = _arguments(verb, place.root, receipt)
    with created_names(logs, *own) as created:
        ran = snaprebuild(*words, cwd=logs.parent / "cwd")
    assert ran.exit_code in (0, 1), ran
    assert _foreign(created) == []
    assert len(list(logs.parent.rglob("snaprebuild-receipt-*"))) == (receipt is not None)


@pytest.mark.parametrize(
    "name", [name for name, verb in VERBS.items() if "--receipt" in verb.arguments and name != "verify --written-by"]
)
def test_no_place_for_a_receipt(name: str, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory is a log directory, too: the run is refused before anything is written."""
    verb = VERBS[name]
    (logs.parent / "tree").mkdir()
    place = Place.made(verb, logs.parent / "tree")
    _set_environment(monkeypatch, logs)
    words = _arguments(verb, place.root, "--receipt")
    # Receipts of runs with another destination may be next to the snapshots; `install` takes a plan, and links into log directories.
    is_elsewhere = "--out" in words or ("--plan" in words and name != "install")
    with created_names(logs, *_log_dirs(place.root)) as created:
        ran = snaprebuild(*words, cwd=logs)
    assert created == []
    assert (ran.exit_code, f"in the log directory {logs}" in ran.stderr) == ((0, False) if is_elsewhere else (2, True)), ran


def _set_environment(monkeypatch: pytest.MonkeyPatch, log_dir: Path) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(log_dir))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)


@pytest.mark.full
def test_workers(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that forks workers has its socket in the directory of temporary files."""
    many_bytes(logs)
    _set_environment(monkeypatch, logs)
    with created_names(logs) as created:
        run = snaprebuild_process("inspect", "stats", logs, "--jobs", "2", cwd=logs)
    assert run.exit_code == 0, run
    assert created == []


@pytest.mark.full
@pytest.mark.parametrize(("variables", "is_named"), [({}, True), ({"PYTHONDONTWRITEBYTECODE": "1"}, False)])
def test_compiled_modules(variables: dict[str, str], is_named: bool, logs: Path) -> None:
    """The interpreter caches its own modules before any code of ours runs; what it has created is named, and nothing follows."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | variables
    environment["PYTHONPYCACHEPREFIX"] = str(logs / "sub")
    command = [sys.executable, "-m", "snaprebuild", "--version"]
    done = subprocess.run(command, env=environment, cwd=logs.parent / "cwd", capture_output=True, text=True, check=True)
    assert (f"({logs / 'sub'}) leads into the log directory {logs}: Python has cached" in done.stderr) == is_named, done
    assert any((logs / "sub").rglob("*.pyc")) == is_named
    assert not any((logs / "sub").rglob("click"))


# ------------------------------------------------------------------------------------------------------------- what is a log directory


@pytest.mark.parametrize("name", [name for name in BROKER_FILES if name != LOCK_FILE_NAME])
def test_each_file_of_a_broker_makes_a_log_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert log_dir_above(str(tmp_path / "a" / "b")) == str(tmp_path)
    with pytest.raises(RefusedError, match=re.escape(f"is in a directory of a broker ({tmp_path})")):
        check_outside_log_dirs(str(tmp_path / "a"))


def test_a_lock_counts_with_a_partition_only(tmp_path: Path) -> None:
    """Other programs have files of this name, in homes as well, and homes have directories that are named like a partition."""
    (tmp_path / LOCK_FILE_NAME).touch()
    (tmp_path / "notes-1").touch()
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2" / "x.log").touch()
    assert log_dir_above(str(tmp_path)) is None
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").touch()
    assert log_dir_above(str(tmp_path)) == str(tmp_path)


HEALTHY = ("home", "home/.cache", "var/log/app-1", "data", "orders-0", "backup/orders-0.old")
"""Directories that are none."""


@pytest.mark.parametrize("name", HEALTHY)
def test_other_directories_are_none(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "x.log").touch()
    (tmp_path / name / "lock").touch()
    assert log_dir_above(str(tmp_path / name / "new" / "file")) is None


def test_what_we_wrote_below_out_is_none(tmp_path: Path) -> None:
    """Several threads make and fill such a directory at once."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{7:020d}.snapshot").touch()
    assert log_dir_above(str(tmp_path / "orders-0")) is None


def test_a_configuration_names_log_directories(logs: Path) -> None:
    assert log_dir_above(str(logs.parent / "new-disk")) is None
    properties = logs.parent / "server.properties"
    run = snaprebuild("scan", "--server-properties", properties, "--save-json", logs.parent / "new-disk" / "scan.json")
    assert (run.exit_code, f"in a directory of a broker ({logs.parent / 'new-disk'})" in run.stderr) == (3, True), run
    assert list((logs.parent / "new-disk").iterdir()) == []
    read_server_properties(str(properties))
    assert log_dir_above(str(logs.parent / "new-disk" / "x")) == str(logs.parent / "new-disk")


# --------------------------------------------------------------------------------------------------------------------- temporary files

CHOICES = {
    ("logs", "cwd"): "usual",
    ("logs/sub", "cwd"): "usual",
    ("link", "logs"): "usual",
    ("tmp", "logs"): "tmp",
    ("tmp", "cwd"): "unchanged",
    ("", "cwd"): "unchanged",
    ("", "logs"): "usual",
}
"""TMPDIR and the current directory, and what is chosen."""


@pytest.mark.parametrize(("named", "current"), CHOICES)
def test_temporary_directory(named: str, current: str, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = logs.parent
    monkeypatch.setenv("TMPDIR", str(base / named) if named else "")
    for name in ("TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(base / current)
    choose_temporary_directory()
    expected = {"usual": "/tmp", "tmp": str(base / "tmp"), "unchanged": None}[CHOICES[named, current]]
    assert tempfile.tempdir == expected
    assert os.environ["TMPDIR"] == (expected or (str(base / named) if named else ""))


def test_a_current_directory_that_was_removed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update may remove it. Nothing can be created there, so that it decides nothing."""
    gone = logs.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("TMPDIR", str(logs))
    choose_temporary_directory()
    assert tempfile.tempdir == "/tmp"
    monkeypatch.setenv("XDG_STATE_HOME", str(logs.parent / "state"))
    assert default_receipt_places() == [str(logs.parent / "state" / "snaprebuild")]


def test_no_temporary_directory(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snaprebuild.storage.local.temporary_directory._USUAL_PLACES", ())
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(logs))
    monkeypatch.chdir(logs)
    with pytest.raises(RefusedError, match=re.escape(f"outside of the log directory {logs}: name one with TMPDIR")):
        choose_temporary_directory()
