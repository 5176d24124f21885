"""What was probably meant by an option that a command does not have: one like it, or the commands that have it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from snaprebuild.cli.panels import PANELS
from snaprebuild.cli.verb_command import NOTHING, VerbGroup, verbs_of
from snaprebuild.findings import first_of

__all__ = ["unknown_option_text"]

OTHER_WORDS = {
    "--json": ("--output json",),
    "--format": ("--output",),
    "--threads": ("--jobs",),
    "--workers": ("--jobs",),
    "--check": ("--dry-run",),
    "--out": ("--to",),
    "--output-dir": ("--out", "--to"),
    "--output-directory": ("--out", "--to"),
    "--receipt": ("--written-by",),
    "--payload": ("--print-data-log",),
    "--deep-iteration": ("--deep",),
    "--offsets-decoder": ("--decoder offsets",),
    "--transaction-log-decoder": ("--decoder transaction-log",),
    "--cluster-metadata-decoder": ("--decoder cluster-metadata",),
    "--remote-log-metadata-decoder": ("--decoder remote-log-metadata",),
    "--share-group-state-decoder": ("--decoder share-group-state",),
}
"""Options of other programs, or of other commands here, and the words of this one: the first that a command has."""

ARGUMENT_WORDS = {
    "PATH": ("path", "paths", "log-dir", "log-dirs", "dir", "dirs", "directory", "directories", "data-dir", "source", "input"),
    "DIR": ("path", "log-dir", "log-dirs", "dir", "dirs", "directory", "directories", "data-dir", "input"),
    "FILE": ("file", "files", "snapshot", "segment", "input", "input-file", "path"),
    "STORE": ("store", "bucket", "remote", "url"),
}
"""Arguments by the form in the help, and the words that somebody puts before one as an option."""


def unknown_option_text(option: str, ctx: click.Context) -> tuple[str, str]:
    """A sentence about an option that does not exist, and the option that shows the help in which the right one is.

    Args:
        option: as it was typed, with its dashes.
        ctx: of the command, or of a group before its command.
    """
    command = ctx.command
    argument = _argument_named(option, command)
    if argument is not None:
        return f"No such option {option!r}: {argument} has no option before it: `{ctx.command_path} {argument}`", "--help"
    if option == "--dry-run" and _only_reads(ctx):
        return f"No such option {option!r}: this command only reads", "--help"
    own = _long_options(command)
    by_option = _commands_by_option(ctx)
    others_words = {word: meant for word in OTHER_WORDS if (meant := _meant_by(word, own)) is not None}
    words = [*own, *others_words]
    # The right name of an option of another command is no typing error for one of this command.
    close = [] if option in by_option and option not in words else _closest(option, words)
    argument = None if close else _argument_meant(option, command)
    if argument is not None:
        return f"No such option {option!r}: {argument} has no option before it: `{ctx.command_path} {argument}`", "--help"
    if not close and option not in by_option:
        close = _with_a_common_word(option, own)
    if close:
        meant = others_words.get(close[0], close[0])
        shown = {name for names in PANELS.values() for name in names}
        is_shown = meant.split()[0] in shown or isinstance(command, click.Group)
        return f"No such option {option!r}. Did you mean {meant!r}?", "--help" if is_shown else "--help-all"
    others = _closest(option, by_option)
    if not others:
        return f"No such option {option!r}.", "--help-all"
    commands = by_option[others[0]]
    named = "it" if others[0] == option else others[0]
    return (
        f"No such option {option!r}: {first_of([f'`{each}`' for each in commands])} {'has' if len(commands) == 1 else 'have'} {named}",
        "--help",
    )


def _argument_named(option: str, command: click.Command) -> str | None:
    """The argument of a command that somebody takes for an option, such as RECEIPT for ``--receipt``; None if it has none of this name."""
    name = option.lstrip("-").upper()
    for each in command.params:
        if isinstance(each, click.Argument) and name in ((each.metavar or "").strip("[]."), (each.name or "").upper()):
            return name
    return None


def _meant_by(word: str, own: Iterable[str]) -> str | None:
    """The words of a command for an option of other programs; None if it has no such option."""
    return next((meant for meant in OTHER_WORDS[word] if meant.split()[0] in own), None)


def _argument_meant(option: str, command: click.Command) -> str | None:
    """The argument of a command that an option of another word means, such as PATH for ``--log-dirs``; None without one."""
    for each in command.params:
        form = (each.metavar or "").strip("[].") if isinstance(each, click.Argument) else ""
        if option.lstrip("-") in ARGUMENT_WORDS.get(form, ()):
            return form
    return None


def _with_a_common_word(option: str, own: Iterable[str]) -> list[str]:
    """The only option of a command of which one has all words of the other, such as ``--save`` for ``--save-plan``; empty without it."""
    words = set(option.lstrip("-").split("-"))
    alike = []
    for each in own:
        others = set(each.lstrip("-").split("-"))
        if words <= others or others <= words:
            alike.append(each)
    if len(alike) > 1:
        alike = [each for each in alike if set(each.lstrip("-").split("-")) <= words]
    return alike if len(alike) == 1 else []


def _only_reads(ctx: click.Context) -> bool:
    """Whether a command changes nothing."""
    group = ctx.parent.command.name if ctx.parent is not None else None
    listed = VerbGroup.verbs.get(group or "", {}).get(ctx.command.name or "")
    return listed is not None and listed.changes == NOTHING


def _closest(option: str, known: Iterable[str]) -> list[str]:
    """The option that is most like another one, without their dashes; empty if none is like it."""
    close = difflib.get_close_matches(option.lstrip("-"), [each.removeprefix("--") for each in known], 1, 0.7)
    return [f"--{each}" for each in close]


def _long_options(command: click.Command) -> list[str]:
    return [name for each in command.params if isinstance(each, click.Option) for name in each.opts if name.startswith("--")]


def _commands_by_option(ctx: click.Context) -> dict[str, list[str]]:
    """The commands that have each option, in the order of the help; all of their modules are loaded."""
    root = ctx.find_root().command
    by_option: dict[str, list[str]] = {}
    if isinstance(root, VerbGroup):
        for name, command in verbs_of(root).items():
            for option in _long_options(command):
                by_option.setdefault(option, []).append(name)
    return by_option
