"""The command lines of units, manifests and plays: each has the form that the program of this checkout takes. Nothing is run."""

import re
import shlex

import click
import pytest
from manifests import REPOSITORY

from snaprebuild.cli.main import app

DEPLOY = REPOSITORY / "scripts" / "deploy"

IN_A_PLAY = re.compile(r"snaprebuild_command\s+\+ \[([^\]]+)\]")
IN_A_MANIFEST = re.compile(r"(?:command|args): \[(snaprebuild, [^\]]+)\]")
ARGUMENTS_OF_A_JOB = re.compile(r"args:\n((?: +- .+\n)+)")
IN_A_UNIT = re.compile(r"^ExecStart=[-@:+!|]*\S*/snaprebuild ((?:.+\\\n)*.+)$", re.MULTILINE)

VALUE = "1"
"""In place of a variable: a number is a text and a path, too."""

SHA256 = "0" * 64


def words_of_a_play(items: str) -> list[str]:
    """Words of a list of Jinja: texts, and variables with filters."""
    words = [item.strip() for item in items.split(",")]
    return [word.strip("'") if word.startswith("'") else SHA256 if word.endswith("sha256") else VALUE for word in words]


def words_of_a_list(items: str) -> list[str]:
    """Words of a list of YAML."""
    return [item.strip().strip("\"'") for item in items.split(",")]


def command_lines() -> dict[str, list[str]]:
    """The words after the name of the program, up to a CMD that it starts, by file and number."""
    found = {}
    for path in sorted(
        each for each in DEPLOY.rglob("*") if each.is_file() and each.suffix in (".yml", ".yaml", ".service", ".conf")
    ):
        text = path.read_text()
        lines = [words_of_a_play(each) for each in IN_A_PLAY.findall(text)]
        lines += [words_of_a_list(each)[1:] for each in IN_A_MANIFEST.findall(text)]
        blocks = ARGUMENTS_OF_A_JOB.findall(text)
        lines += [[line.strip().removeprefix("- ").strip("\"'") for line in block.splitlines()] for block in blocks]
        units = [each.replace("\\\n", " ") for each in IN_A_UNIT.findall(text)]
        lines += [shlex.split(re.sub(r"\$\{[A-Z_]+\}", VALUE, each)) for each in units]
        for number, words in enumerate(lines):
            if words[:1] != ["--version"]:
                found[f"{path.relative_to(DEPLOY)} {number}"] = words[: words.index("--")] if "--" in words else words
    return found


LINES = command_lines()


class ParsedError(Exception):
    """The command line was taken; its text is the command."""


@pytest.mark.parametrize("place", LINES)
def test_a_deployed_command_line_is_taken(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke = click.Command.invoke

    def stop(self: click.Command, context: click.Context) -> object:
        if isinstance(self, click.Group):
            return invoke(self, context)
        raise ParsedError(context.command_path)

    monkeypatch.setattr(click.Command, "invoke", stop)
    with pytest.raises(ParsedError):
        app(LINES[place], prog_name="snaprebuild", standalone_mode=False)


def test_every_way_of_deployment_is_looked_at() -> None:
    verbs = {words[0] for words in LINES.values()}
    assert verbs >= {"scan", "plan", "stage", "install", "verify", "rebuild", "before-start"}
    assert {place.partition("/")[0] for place in LINES} >= {"ansible", "kubernetes", "packages"}
