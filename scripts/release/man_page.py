"""The manual page snaprebuild(1), from what the command says of itself: the contract, and every verb with its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click
import typer

from snaprebuild import __version__
from snaprebuild.cli.main import app, verbs
from snaprebuild.cli.options.settings import SETTINGS

__all__ = ["man_page"]


def man_page(date: str) -> str:
    """In the man macros of roff.

    Args:
        date: of the page, such as 2026-11-22.
    """
    root = typer.main.get_command(app)
    # One line, which `man -f` shows: the whole first paragraph.
    first, _, rest = inspect.cleandoc(root.help or "").partition("\n\n")
    what = " ".join(first.split()).rstrip(".")
    lines = [
        f'.TH SNAPREBUILD 1 {date} "snaprebuild {__version__}" "User commands"',
        *(".SH NAME", f"snaprebuild \\- {_text(what[0].lower() + what[1:])}"),
        *(".SH SYNOPSIS", ".B snaprebuild", ".I VERB", "[\\fIOPTION\\fR]... [\\fIPATH\\fR]..."),
        *(".SH DESCRIPTION", *_paragraphs(rest), ".SH OPTIONS", *_options(root, "snaprebuild"), ".SH VERBS"),
    ]
    for words, command in verbs().items():
        lines += [f'.SS "{_text(words)}"', *_verb(words, command)]
    lines += [".SH SETTINGS", *_paragraphs("Of --set NAME=VALUE, the environment (SNAPREBUILD_NAME), or the file of --config.")]
    for name, setting in SETTINGS.items():
        lines += _tagged([f"{name} {setting.kind.name}"], setting.help or f"As --{name.replace('_', '-')}.")
    lines += [
        ".SH ENVIRONMENT",
        *_tagged(
            ["SNAPREBUILD_CACHE_DIR"],
            "Where the self-contained file unpacks itself. Default: below XDG_CACHE_HOME, HOME/.cache, /var/tmp or /tmp.",
        ),
        *_tagged(
            ["_SNAPREBUILD_COMPLETE"],
            "bash_source, zsh_source or fish_source: the script for the completion of that shell is printed.",
        ),
    ]
    return "\n".join(lines) + "\n"


def _verb(words: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"snaprebuild {words}", help_option_names=["-h", "--help"])
    yield f".B snaprebuild {_text(words)}"
    yield _text(" ".join(command.collect_usage_pieces(context)))
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    yield from _options(command, words)
    for name, each in getattr(command, "assumptions", {}).items():
        yield from _tagged([f"--assume {name}={each.kind.name}"], each.help)
    yield from _paragraphs(inspect.cleandoc(command.epilog or ""))


def _options(command: click.Command, words: str) -> Iterator[str]:
    context = click.Context(command, info_name=words, help_option_names=["-h", "--help"])
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from _tagged([record[0]], record[1])


def _tagged(names: list[str], text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(', '.join(names))}"
    yield _text(" ".join(text.split()))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with a backspace, which stops click from filling lines, keeps its own."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if not lines:
            continue
        yield ".PP"
        if lines[0].strip() == "\b":
            yield ".nf"
            yield from map(_text, lines[1:])
            yield ".fi"
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _text(text: str) -> str:
    """Characters that roff would take for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("\b", "")
    text = text.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    text = "".join(each if ord(each) < 128 else f"\\[u{ord(each):04X}]" for each in text)
    return f"\\&{text}" if text.startswith(".") else text
