"""A path with a typing error is refused before anything is read or written: ``--out s3:/bucket`` is no directory ``s3:``."""

import re
from pathlib import Path

import click
import pytest
from command import snaprebuild

from snaprebuild import Partition, scan
from snaprebuild.argument_checks import check_path
from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.description import PATHS
from snaprebuild.cli.value_text import shown
from snaprebuild.errors import UsageError

VERBS = sorted(verbs())
WRONG = ("s3:/bucket/x", "s3:bucket/x", "s3//bucket/x")


def parameters_with_a_path(command: click.Command) -> list[click.Parameter]:
    return [each for each in command.params if isinstance(each, click.Argument) or each.metavar in PATHS]


def words_of(parameter: click.Parameter, path: str) -> list[str]:
    if isinstance(parameter, click.Argument):
        return [path] * max(parameter.nargs, 1)
    if parameter.metavar == "[ID=]DIR":
        path = f"1={path}"
    return [parameter.opts[0], path]


def required_words(command: click.Command, without: click.Parameter) -> list[str]:
    """Words of all parameters that a command cannot do without, but for one."""
    words = []
    for each in command.params:
        if each.required and each is not without:
            value = "1" if isinstance(each, click.Option) and each.metavar not in PATHS else "here"
            words += words_of(each, value)
    return words


def refusal_of(command: click.Command, parameter: click.Parameter, path: str) -> str:
    words = [*required_words(command, parameter), *words_of(parameter, path)]
    with pytest.raises(UsageError) as caught:
        command.make_context(command.name, words)
    return str(caught.value)


def test_each_option_with_a_path_is_known() -> None:
    for verb, command in verbs().items():
        for each in command.params:
            if isinstance(each, click.Option) and re.search("FILE|DIR|PATH|RECEIPT|STORE", each.metavar or ""):
                assert each.metavar in PATHS, (verb, each.opts)


@pytest.mark.parametrize("verb", VERBS)
def test_a_location_of_an_object_without_a_slash(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = verbs()[verb]
    for parameter in parameters_with_a_path(command):
        if parameter.name == "config":
            continue  # read before the others, and explained where it is read
        for path in WRONG:
            expected = f"{path}: is no location in an object store: write s3://bucket/x; a local path is ./{path}"
            assert refusal_of(command, parameter, path) == expected
        text = refusal_of(command, parameter, "hdfs:/user:secret@host/x")
        assert text == "hdfs:/...: expected a path, or s3://BUCKET/PREFIX; a local path is ./hdfs:/..."


@pytest.mark.parametrize("verb", VERBS)
def test_a_beginning_that_the_shell_was_to_expand(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = verbs()[verb]
    for parameter in parameters_with_a_path(command):
        if isinstance(parameter, click.Argument) or parameter.name == "config" or parameter.metavar == "[ID=]DIR":
            continue  # these are read only, and an absent path is explained where it is read
        for path, part in (("~/x", "the shell expands ~"), ("$OUT/x", "the shell replaces $OUT"), ("'x'", "the quotes are a part")):
            assert part in refusal_of(command, parameter, path)


def test_the_settings_file_is_explained_too() -> None:
    run = snaprebuild("scan", "fixtures/magic0", "--config", "s3:/bucket/x")
    assert run.exit_code == 2
    assert "write s3://bucket/x" in run.stderr


def test_directories_with_such_names_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("s3:", "s3", "~"):
        (tmp_path / name).mkdir()
    command = verbs()["rebuild"]
    for path in ("./s3:/bucket", "s3//bucket", "~/x", str(tmp_path / "s3:" / "bucket"), "s3://bucket/x", "a:b"):
        assert command.make_context("rebuild", ["logs", "--out", path]).params["directory"] == path
    assert shown(str(tmp_path / "s3:" / "bucket")) == "./s3:/bucket"


def test_paths_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: Partition("s3:/bucket/x-0"),
        lambda: scan("s3:/bucket/x-0"),
        lambda: check_path("out", Path("s3:/bucket/x-0")),
    ):
        with pytest.raises(UsageError, match=re.escape("write s3://bucket/x-0; a local path is ./s3:/bucket/x-0")):
            call()
