"""Verbs that are loaded when they are asked for: a help that lists them, and a run of one, need none of the others."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup

from snaprebuild.cli.verb_command import split_global_options

__all__ = ["ListedVerb", "VerbGroup", "verbs_of"]

PROGRAM = "snaprebuild"
PACKAGE = "snaprebuild.cli.verbs"

EVERYDAY_COUNT = 9
"""The first verbs of the program are everyday commands."""


class ListedVerb(NamedTuple):
    """What is known of a verb before its module is loaded."""

    name: str
    """Its own, of one word."""
    module: str
    """Inside the package of the command."""
    function: str
    short_help: str
    """Its line in the help of the group."""
    changes: str
    """What it changes."""
    epilog: str
    """What its help ends with."""
    cls: type[TyperCommand]

    def load(self) -> click.Command:
        """Imports the module, and builds the options of the function."""
        function = getattr(importlib.import_module(f"{PACKAGE}.{self.module}"), self.function)

        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(self.name, cls=self.cls, short_help=self.short_help, epilog=self.epilog)(function)
        return typer.main.get_command(alone)


class VerbGroup(TyperGroup):
    """A group whose verbs are listed in `verbs`, by the name of the group; one that is asked for is loaded."""

    verbs: ClassVar[dict[str, dict[str, ListedVerb]]] = {}

    @property
    def _own(self) -> dict[str, ListedVerb]:
        return self.verbs.get(self.name or "", {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the list."""
        return [*self._own, *(name for name in self.commands if name not in self._own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb or group of a name, loaded."""
        if cmd_name in self._own and cmd_name not in self.commands:
            self.commands[cmd_name] = self._own[cmd_name].load()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """A name that another group has, or the program itself, is suggested with the words that it is called by."""
        if args[0] not in self.list_commands(ctx):
            meant = self._meant(args[0], ctx)
            if meant:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, meant))}?")
        return super().resolve_command(ctx, args)

    def _meant(self, name: str, ctx: click.Context) -> list[str]:
        """The verbs of this name elsewhere, as they are called; else those with a name that is like it, here or elsewhere."""
        before = "" if self.name == PROGRAM else f"{PROGRAM} "
        names: dict[str, list[str]] = {}
        for group, verbs in self.verbs.items():
            for verb in verbs if group != self.name else ():
                names.setdefault(verb, []).append(f"{before}{verb}" if group == PROGRAM else f"{before}{group} {verb}")
        if name in names:
            return names[name]
        import difflib

        own = difflib.get_close_matches(name, self.list_commands(ctx), 1)
        return own or [called for close in difflib.get_close_matches(name, names, 2) for called in names[close]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Global options may be given before the verb."""
        return super().parse_args(ctx, split_global_options(ctx, args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs, what each is for, and what it changes."""
        rows = [(each.name, each.short_help, each.changes) for each in self._own.values()]
        if self.name != PROGRAM:
            _write_table(formatter, "Commands", rows)
            return
        groups = [(name, each.get_short_help_str(1000), "") for name, each in self.commands.items() if name not in self._own]
        _write_table(formatter, "Everyday commands", rows[:EVERYDAY_COUNT])
        _write_table(formatter, "More commands (snaprebuild GROUP --help)", [*groups, *rows[EVERYDAY_COUNT:]])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of verbs, or of options."""
        helps = {name: each.short_help for name, each in self._own.items()}
        helps |= {name: each.get_short_help_str(1000) for name, each in self.commands.items() if name not in helps}
        names = [CompletionItem(name, help=text) for name, text in helps.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def verbs_of(group: click.Group) -> dict[str, click.Command]:
    """Every verb of the program or of a group, loaded, by the words that it is called by, in the order of the help."""
    ctx = click.Context(group)
    commands: dict[str, click.Command] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            commands |= {f"{name} {own}": each for own, each in verbs_of(command).items()}
        elif command is not None:
            commands[name] = command
    return commands


def _write_table(formatter: click.HelpFormatter, title: str, rows: Sequence[tuple[str, str | None, str]]) -> None:
    """Each row on a line of its own, within 80 columns."""
    title = f"{title:<62}changes" if any(changes for *_, changes in rows) else title
    formatter.write(f"\n{title}\n")
    for name, text, changes in rows:
        formatter.write(f"  {name:<13}{text:<47}{changes}".rstrip() + "\n")
