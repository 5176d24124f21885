"""Suggestions for an option that a command does not have: one like it, or the commands that have it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

import click

from snaprebuild.cli.panels import PANELS
from snaprebuild.cli.verb_command import NOTHING, VerbGroup, verbs_of
from snaprebuild.findings import choose_form, first_of

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
    "--payload": ("--print-data-log", "--value-format"),
    "--print-data-log": ("--value-format",),
    "--max-messages": ("--limit",),
    "--from": ("--since",),
    "--since": ("--from",),
    "--starting-offsets": ("--from",),
    "--ending-offsets": ("--until",),
    "--offsets": ("--from",),
    "--offset": ("--from",),
    "--deep-iteration": ("--deep",),
    "--offsets-decoder": ("--decoder offsets",),
    "--transaction-log-decoder": ("--decoder transaction-log",),
    "--cluster-metadata-decoder": ("--decoder cluster-metadata",),
    "--remote-log-metadata-decoder": ("--decoder remote-log-metadata",),
    "--share-group-state-decoder": ("--decoder share-group-state",),
}
"""Options of other programs, or of other commands here, and the words of this one: the first that a command has."""

LETTERS = {"-o": "--output", "-q": "--quiet", "-n": "--dry-run", "-j": "--jobs", "-t": "--topic", "-p": "--partition"}
"""Options of one letter of other programs, and those of this one."""

ALIKE = 0.75
"""The ratio from which on words are alike: `file` is not `profile`."""

_STORE_WORDS = frozenset(("store", "bucket", "remote", "url"))
_DIRECTORY_WORDS = frozenset(
    ("path", "paths", "log-dir", "log-dirs", "dir", "dirs", "directory", "directories", "data-dir", "source", "input")
)
_FILE_WORDS = frozenset(("file", "files", "snapshot", "segment", "input", "input-file", "path"))

ARGUMENT_WORDS = (
    (_STORE_WORDS, ("STORE", "PATH", "DIR")),
    (_DIRECTORY_WORDS, ("PATH", "DIR", "STORE", "FILE", "SCAN.json", "RECEIPT", "SCENARIO", "A")),
    (_FILE_WORDS, ("FILE", "SCAN.json", "RECEIPT", "SCENARIO", "A", "PATH", "DIR", "STORE")),
)
"""Words that somebody puts before an argument as an option, and the arguments that they mean: the first that a command has."""


def unknown_option_text(option: str, ctx: click.Context) -> tuple[str, str]:
    """A sentence about an option that does not exist, and the option that shows the help in which the right one is.

    Args:
        option: as it was typed, with its dashes.
        ctx: of the command, or of a group before its command.
    """
    command = ctx.command
    own = _long_options(command)
    by_option = _commands_by_option(ctx)
    named = _argument_named(option, command)
    if named is not None:
        return _as_argument(option, named, ctx), "--help"
    if option == "--dry-run" and _only_reads(ctx):
        return f"No such option {option!r}: this command only reads", "--help"
    meant = _meant_letter(option, own) or _meant_option(option, own, is_of_another=option in by_option)
    if meant is None and (argument := _argument_meant(option, command)) is not None:
        text = _as_argument(option, argument, ctx)
        singular = option.removesuffix("s")
        return f"{text}. Or did you mean {singular!r}?" if singular != option and singular in own else text, "--help"
    # The right name of an option of another command stands for no option of this one.
    if meant is None and option not in by_option:
        meant = _with_a_common_word(option, own)
    if meant is not None:
        shown = {name for names in PANELS.values() for name in names}
        is_shown = meant.split()[0] in shown or isinstance(command, click.Group)
        return f"No such option {option!r}. Did you mean {meant!r}?", "--help" if is_shown else "--help-all"
    return _of_other_commands(option, by_option)


def _as_argument(option: str, argument: str, ctx: click.Context) -> str:
    forms = [each.metavar or "" for each in ctx.command.params if isinstance(each, click.Argument)]
    arguments = " ".join(forms).replace("...", "")
    if " " not in arguments:
        arguments = arguments.strip("[]")
    return f"No such option {option!r}: {argument} has no option before it: `{ctx.command_path} {arguments}`"


def _meant_letter(option: str, own: Sequence[str]) -> str | None:
    """The option of a command that one letter stands for in other programs, such as ``--output`` for ``-o``; None without one."""
    return LETTERS[option] if LETTERS.get(option) in own else None


def _meant_option(option: str, own: Sequence[str], *, is_of_another: bool) -> str | None:
    """The option of a command that is like another one, or the words for an option of other programs; None without any.

    Args:
        option: as it was typed.
        own: options of the command.
        is_of_another: another command has an option of this name: that is no typing error for one of this command.
    """
    others = {word: meant for word in OTHER_WORDS if (meant := _meant_by(word, own)) is not None}
    if is_of_another and option not in others:
        return None
    close = _closest(option, [*own, *others])
    return others.get(close[0], close[0]) if close else None


def _of_other_commands(option: str, by_option: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The sentence about an option that only other commands have, or that is like one of these; and the option that shows the help."""
    close = _closest(option, by_option)
    if not close:
        return f"No such option {option!r}.", "--help-all"
    commands = by_option[close[0]]
    name = "it" if close[0] == option else close[0]
    verb = choose_form(len(commands), "has", "have")
    return f"No such option {option!r}: {first_of([f'`{each}`' for each in commands])} {verb} {name}", "--help"


def _argument_named(option: str, command: click.Command) -> str | None:
    """The argument of a command that somebody takes for an option, such as RECEIPT for ``--receipt``; None if it has none of this name."""
    name = option.lstrip("-").upper()
    for each in command.params:
        shown = (each.metavar or "").strip("[].")
        if isinstance(each, click.Argument) and name in (shown, (each.name or "").upper()):
            return shown or name
    return None


def _meant_by(word: str, own: Iterable[str]) -> str | None:
    """The words of a command for an option of other programs; None if it has no such option."""
    return next((meant for meant in OTHER_WORDS[word] if meant.split()[0] in own), None)


def _argument_meant(option: str, command: click.Command) -> str | None:
    """The argument of a command that an option of another word means, such as PATH for ``--log-dirs``; None without one."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    forms = {form for each in arguments for form in re.findall(r"[A-Z][A-Z]*(?:\.json)?", each.metavar or "")}
    for words, meant in ARGUMENT_WORDS:
        if option.lstrip("-") in words:
            chosen = next((form for form in meant if form in forms), None)
            if chosen is not None:
                return chosen
    return None


def _with_a_common_word(option: str, own: Iterable[str]) -> str | None:
    """The only option of a command of which one has all words of the other, such as ``--save`` for ``--save-plan``; None without it."""
    words = set(option.lstrip("-").split("-"))
    shorter = []
    longer = []
    for each in own:
        others = set(each.lstrip("-").split("-"))
        if others <= words:
            shorter.append(each)
        elif words <= others:
            longer.append(each)
    alike = shorter or longer
    return alike[0] if len(alike) == 1 else None


def _only_reads(ctx: click.Context) -> bool:
    """Whether a command changes nothing."""
    group = ctx.parent.command.name if ctx.parent is not None else None
    listed = VerbGroup.verbs.get(group or "", {}).get(ctx.command.name or "")
    return listed is not None and listed.changes == NOTHING


def _closest(option: str, known: Iterable[str]) -> list[str]:
    """The option that is most like another one, without their dashes; empty if none is like it."""
    close = difflib.get_close_matches(option.lstrip("-"), [each.removeprefix("--") for each in known], 1, ALIKE)
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
