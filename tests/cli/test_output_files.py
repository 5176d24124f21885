"""Files that a command writes at its end: whether they can be written is checked before the work, which may take hours."""

import os
import tempfile
from pathlib import Path

import click
import pytest
from command import snaprebuild
from every_verb import VERBS, Verb, filled, words_of, written
from other_user import run_as_user

from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.description import PATHS

WRITTEN = ("--save-json", "--metrics", "--save", "--html", "--results", "--keys", "--records-file", "--receipt")
"""Options that name a file which a run writes."""
OPENED = ("--ledger",)
"""Options of a file that a run opens before the work and appends to."""
DIRECTORIES = ("--out", "--to", "--cache")
READ = (
    *(
        "--audit",
        "--config",
        "--server-properties",
        "--metadata",
        "--metadata-log",
        "--plan",
        "--written-by",
        "--scenario",
        "--log-dir",
    ),
    *("--log-dirs", "--producer-config", "--command-config", "--elections", "--leader", "--peer", "--transaction-state", "--voter"),
)
STARTS_A_BROKER = ("before-start",)
"""It prepares a broker also if its result cannot be written; the exit code then shows it."""
NOWHERE = "/proc/snaprebuild-result"
"""No user can create a file there."""


def options_with_paths() -> list[tuple[str, str]]:
    """Each option of each verb that takes a path."""
    return [
        (verb, max(each.opts, key=len))
        for verb, command in verbs().items()
        for each in command.params
        if isinstance(each, click.Option) and each.metavar in PATHS
    ]


CASES = [(verb, option) for verb, option in options_with_paths() if option in WRITTEN and verb not in STARTS_A_BROKER]


def test_each_option_with_a_path_is_read_or_written() -> None:
    assert {option for _, option in options_with_paths()} == {*WRITTEN, *OPENED, *DIRECTORIES, *READ}


def row_of(verb: str) -> Verb:
    """The first row of a verb."""
    return next(row for name, row in VERBS.items() if words_of(name) == verb)


def without(words: list[str], option: str) -> list[str]:
    """The words without an option and its value."""
    if option not in words:
        return words
    place = words.index(option)
    return words[:place] + words[place + 2 :]


@pytest.mark.parametrize(("verb", "option"), CASES, ids=[f"{verb} {option}" for verb, option in CASES])
def test_a_file_that_cannot_be_written_ends_a_run_before_its_work(verb: str, option: str, tmp_path: Path) -> None:
    """A file that the run would read is not there, so a run that began its work would miss it."""
    row = row_of(verb)
    if row.makes:  # a file of ours is looked at before
        written(row, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    path = NOWHERE + {"--metrics": ".prom", "--results": ".jsonl"}.get(option, "")
    run = snaprebuild(*without(filled(row.arguments, tmp_path), option), option, path)
    assert run.exit_code == 5, run
    assert f"{path}: cannot be written: a file system of the kernel (proc) takes no files" in run.error.replace("\n  ", " ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["--save-json", "--receipt"])
def test_a_broker_is_prepared_without_a_place_for_the_result(option: str, tmp_path: Path) -> None:
    row = VERBS["before-start"]
    written(row, tmp_path)
    run = snaprebuild(*without(filled(row.arguments, tmp_path), option), option, NOWHERE)
    assert run.exit_code == 5, run
    assert NOWHERE in run.stderr
    if option != "--receipt":  # without which nothing is written into a log directory
        assert list((tmp_path / "bare/payments-0").glob("*056.snapshot"))


@pytest.mark.parametrize("option", ["--save-json", "--metrics"])
@pytest.mark.parametrize("reader", ["verify --written-by", "undo", "install", "tier audit --ledger"])
def test_a_file_that_a_later_command_needs_is_not_replaced(reader: str, option: str, tmp_path: Path) -> None:
    """The receipt, the ledger and the staged plan of another run: they cannot be made again."""
    row = VERBS[reader]
    written(row, tmp_path)
    if reader == "tier audit --ledger":
        snaprebuild(*filled(row.arguments, tmp_path))
    name = {"install": "staged/plan.jsonl", "tier audit --ledger": "out"}.get(reader, "receipt.jsonl")
    lasting = (tmp_path / name).rename(tmp_path / "kept.prom")
    content = lasting.read_bytes()
    run = snaprebuild("scan", tmp_path, option, lasting)
    assert run.exit_code == 3, run
    assert "is not replaced: a later command needs this file" in run.error.replace("\n  ", " ")
    assert lasting.read_bytes() == content


@pytest.mark.parametrize("name", [name for name, row in VERBS.items() if row.makes])
def test_a_document_that_a_command_reads_is_not_replaced_by_its_result(name: str, tmp_path: Path) -> None:
    row = VERBS[name]
    written(row, tmp_path)
    words = filled(row.arguments, tmp_path)
    read = [Path(word) for word in words if os.path.isfile(word)]
    assert read
    for document in read:
        content = document.read_bytes()
        run = snaprebuild(*words, "--save-json", document)
        assert run.exit_code == 2, run
        assert "and --save-json name one file" in run.error.replace("\n  ", " ")
        assert document.read_bytes() == content


def test_a_ledger_and_a_result_are_two_files(tmp_path: Path) -> None:
    row = VERBS["tier audit --ledger"]
    written(row, tmp_path)
    run = snaprebuild(*filled(row.arguments, tmp_path), "--save-json", tmp_path / "out")
    assert run.exit_code == 2
    assert "the ledger and --save-json name one file" in run.error.replace("\n  ", " ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run as another user")
def test_a_result_of_another_user_in_a_sticky_directory() -> None:
    """In a directory like `/tmp` a user may create files, but replace none of other users."""
    with tempfile.TemporaryDirectory(prefix="sticky-") as place:
        Path(place).chmod(0o1777)
        older = Path(place) / "scan.json"
        older.write_text('{"schema": "snaprebuild.scan/4"}')
        older.chmod(0o644)
        run = run_as_user("scan", f"{place}/nowhere", "--save-json", older)
    assert run.exit_code == 5
    assert f"{older}: cannot be written: Operation not permitted" in run.error.replace("\n  ", " ")
