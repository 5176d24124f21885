"""Verbs that are loaded when they are asked for: a help that lists them, and a run of one, need none of the others."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, NamedTuple

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup

from snaprebuild.cli.verb_command import split_global_options

__all__ = ["Verb", "VerbGroup"]

PROGRAM = "snaprebuild"
PACKAGE = "snaprebuild.cli.verbs"

EVERYDAY_COUNT = 9
"""The first verbs of the program are everyday commands."""


class Verb(NamedTuple):
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


class _Commands(MutableMapping[str, click.Command]):
    """Commands of a group by name: who takes one, or walks over them, has it loaded; who asks for names alone has not."""

    def __init__(self, verbs: dict[str, Verb], loaded: MutableMapping[str, click.Command]) -> None:
        self.verbs = verbs
        self.loaded = dict(loaded)

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.loaded:
            self.loaded[name] = self.verbs[name].load()
        return self.loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self.loaded[name] = command

    def __delitem__(self, name: str) -> None:
        self.loaded.pop(name, None)
        self.verbs.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.verbs or name in self.loaded

    def __iter__(self) -> Iterator[str]:
        return iter([*self.verbs, *(name for name in self.loaded if name not in self.verbs)])

    def __len__(self) -> int:
        return len({*self.verbs, *self.loaded})

    def lines(self) -> dict[str, click.Command]:
        """Stand-ins that have nothing but a name and a line of help."""
        known = {name: verb.short_help for name, verb in self.verbs.items()}
        known |= {name: command.get_short_help_str(1000) for name, command in self.loaded.items() if name not in known}
        return {name: click.Command(name, short_help=line) for name, line in known.items()}


class VerbGroup(TyperGroup):
    """A group whose verbs are listed in `verbs`, by the name of the group."""

    verbs: ClassVar[dict[str, dict[str, Verb]]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._known = _Commands(self.verbs.get(self.name or "", {}), self.commands)
        self.commands = self._known

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the list."""
        return list(self._known)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """A name that only a group has is suggested with the name of its group."""
        meant = [f"{group} {args[0]}" for group, verbs in self.verbs.items() if group != PROGRAM and args[0] in verbs]
        if self.name == PROGRAM and meant and args[0] not in self._known:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, meant))}?")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Global options may be given before the verb."""
        return super().parse_args(ctx, split_global_options(ctx, args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs, what each is for, and what it changes."""
        if self.name != PROGRAM:
            _write_table(formatter, "Commands", [(each.name, each.short_help, each.changes) for each in self._known.verbs.values()])
            return
        rows = [(each.name, each.short_help, each.changes) for each in self._known.verbs.values()]
        _write_table(formatter, "Everyday commands", rows[:EVERYDAY_COUNT])
        groups = [(name, each.short_help, "") for name, each in self._known.lines().items() if name not in self._known.verbs]
        _write_table(formatter, "More commands (snaprebuild GROUP --help)", [*groups, *rows[EVERYDAY_COUNT:]])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of verbs, or of options."""
        lines = self._known.lines()
        names = [CompletionItem(name, help=lines[name].short_help) for name in lines if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _write_table(formatter: click.HelpFormatter, title: str, rows: Sequence[tuple[str, str | None, str]]) -> None:
    """Each row on a line of its own, within 80 columns."""
    title = f"{title:<62}changes" if any(changes for *_, changes in rows) else title
    formatter.write(f"\n{title}\n")
    for name, text, changes in rows:
        formatter.write(f"  {name:<13}{text:<47}{changes}".rstrip() + "\n")
