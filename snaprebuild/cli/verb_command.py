"""Verbs as click runs them: loaded when asked for, options in panels, settings from the environment and the configuration file.

An option on the command line, before or after the verb, has precedence over the environment, and that over the file. A help that lists
the verbs of a group, and a run of one, load none of the others.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click
import typer
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup

from snaprebuild.cli.options.description import PATHS, OptionText
from snaprebuild.cli.panels import ADVANCED, GLOBAL, PANELS, panel_of
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.shell_words import option_words, shell_word
from snaprebuild.typed_paths import check_new_path, check_scheme

if TYPE_CHECKING:  # the page of all commands needs none of these
    from snaprebuild.cli.options.assumptions import Assumption
    from snaprebuild.cli.options.settings import SettingValue

__all__ = [
    "NOTHING",
    "ListedVerb",
    "VerbCommand",
    "VerbGroup",
    "given_options",
    "given_settings",
    "setting_words",
    "split_global_options",
    "verbs_of",
]

_BEFORE = "snaprebuild.options_before_the_verb"
_SETTINGS = "snaprebuild.settings"
_SETTING_WORDS = "snaprebuild.setting_words"
_BEFORE_THE_VERB = dict.fromkeys(("--impact", *GLOBAL["Global"]), 2) | dict.fromkeys(("-v", "-vv", "--verbose"), 1)
"""Options that may be given there, with the number of words of each: its name, and its value if it has one."""


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")

_ID = re.compile(r"\A[0-9]+=")
"""The id of a voter, which may come before its directory."""

_NEGATIVE = re.compile(r"-[0-9]+")

_ORDER = {name: panel for panel, names in (PANELS | GLOBAL).items() for name in names}
"""Options in the order of the help, and the panel of each."""

_OWN_TEXTS = {
    "set": OptionText(short="A setting of this run; repeatable", default="the environment, else the file of --config"),
    "config": OptionText(
        short="Settings of object stores, load, remote storage and Spark, in TOML",
        default="$SNAPREBUILD_CONFIG, else /etc/snaprebuild/config.toml",
    ),
    "help_all": OptionText(short="Show all options, advanced ones included", default="no"),
}
"""Options that every verb has."""


def split_global_options(ctx: click.Context, args: list[str]) -> list[str]:
    """Keeps the global options before a verb for the verb; returns the other arguments."""
    args = list(args)
    while args:
        name, equals, _ = args[0].partition("=")
        if name not in _BEFORE_THE_VERB:
            break
        count = 1 if equals else _BEFORE_THE_VERB[name]
        ctx.meta.setdefault(_BEFORE, []).extend(args[:count])
        del args[:count]
    return args


def given_settings() -> dict[str, SettingValue]:
    """The settings of this run by name."""
    ctx = click.get_current_context(silent=True)
    settings: dict[str, SettingValue] = {} if ctx is None else ctx.meta.get(_SETTINGS, {})
    return settings


def setting_words() -> list[str]:
    """The words of the command line that give settings, for a next command: each verb takes them, and ignores what it does not use."""
    ctx = click.get_current_context()
    values: dict[str, list[str]] = ctx.meta.get(_SETTING_WORDS, {})
    words = [word for option in ("--config", "--set") for value in values.get(option, ()) for word in option_words(option, value)]
    if "impact" in ctx.params and ctx.get_parameter_source("impact") is ParameterSource.COMMANDLINE:
        words += ["--set", f"impact={ctx.params['impact']}"]
    return words


def given_options(names: Iterable[str]) -> list[str]:
    """The parameters and settings that the command line itself gives, out of some names."""
    ctx = click.get_current_context()
    settings = given_settings()
    return [
        name
        for name in names
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE or (name in settings and settings[name].origin == "--set")
    ]


def _name_of(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def _takes_value(parameter: click.Parameter) -> bool:
    """Whether a parameter is an option that is followed by its value."""
    return isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count


def _may_be_value(word: str, option: click.Parameter) -> bool:
    """Whether the word after an option is its value: it is no option, but may be ``-``, or a negative number where a number goes."""
    if not word.startswith("-") or word == "-":
        return True
    from snaprebuild.cli.options.common import WholeNumber

    return isinstance(option.type, WholeNumber) and _NEGATIVE.fullmatch(word) is not None


def _check_paths(ctx: click.Context) -> None:
    """Makes sure that no path of the command line has a typing error that would make it another path.

    Raises:
        UsageError: one has.
    """
    for each in ctx.command.params:
        value = ctx.params.get(each.name or "")
        is_option = isinstance(each, click.Option)
        if value is None or (is_option and each.metavar not in PATHS):
            continue
        paths = [value] if isinstance(value, str) else value
        for path in paths:
            check_scheme(_ID.sub("", path))
            if is_option:
                check_new_path(path)


@contextmanager
def _errors_of(ctx: click.Context) -> Iterator[None]:
    """Errors of click's parser get the context of the command, so that the answer names the help of this command."""
    try:
        yield
    except click.UsageError as error:
        if error.ctx is None:
            error.ctx = ctx
        raise


class VerbCommand(TyperCommand):
    """Takes ``--config``, ``--set`` and ``--help-all`` next to the options of the verb."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        of_run = click.Option(
            ["--set"],
            metavar="NAME=VALUE",
            multiple=True,
            expose_value=False,
            is_eager=True,
            callback=_take_settings,
            help=_OWN_TEXTS["set"].whole,
        )
        config = click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_take_settings,
            help=_OWN_TEXTS["config"].whole,
        )
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_everything,
            help=_OWN_TEXTS["help_all"].whole,
        )
        self.params += [of_run, config, everything]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses a command line with the options before the verb.

        Raises:
            click.UsageError: the words are no command line of this verb.
        """
        words = [*ctx.meta.pop(_BEFORE, ()), *args]
        if not ctx.resilient_parsing:
            self._check_that_values_follow(ctx, words)
        with _errors_of(ctx):
            rest = super().parse_args(ctx, words)
        if not ctx.resilient_parsing:
            _check_paths(ctx)
        return rest

    def _check_that_values_follow(self, ctx: click.Context, words: Sequence[str]) -> None:
        """Makes sure that the word after each option with a value is no option: click would take it as the value.

        Raises:
            click.UsageError: an option has no value.
        """
        options = {name: each for each in self.params if _takes_value(each) for name in each.opts}
        following = iter(words)
        for word in following:
            if word == "--":
                return
            if word not in options:
                continue
            value = next(following, None)
            if value is None:
                ctx.fail(f"{word} needs a value")
            if not _may_be_value(value, options[word]):
                ctx.fail(f"{word} needs a value; found {value!r}. If that is the value, write {shell_word(f'{word}={value}')}")

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that the verb uses, without those that are options too."""
        return getattr(self.callback, "settings", ())

    @property
    def texts(self) -> dict[str, OptionText]:
        """The descriptions of its options by the names of their parameters."""
        return _OWN_TEXTS | getattr(self.callback, "texts", {})

    @property
    def assumptions(self) -> dict[str, Assumption]:
        """Names that ``--assume`` takes."""
        return getattr(self.callback, "assumptions", {})

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb; with -v, lists the settings that it uses."""
        if ctx.params.get("verbose"):
            for name, (value, origin) in given_settings().items():
                if name in self.settings or ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                    print_on_stderr(f"setting: {name} = {value} (from {origin})")
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options by panel: the everyday ones in short, or all of them with their defaults and risks."""
        is_whole = bool(ctx.meta.get(_show_everything.__name__))
        named = set() if is_whole else self._named_in_text()
        options = [each for each in self.params if isinstance(each, click.Option) and not each.hidden]
        for panel in (*PANELS, ADVANCED, *GLOBAL):
            is_shown = is_whole or panel in PANELS
            own = {name: each for each in options if panel_of(name := _name_of(each)) == panel and (is_shown or name in named)}
            ranked = [own[name] for name in own if name not in _ORDER]
            ranked = [*(own[name] for name in _ORDER if name in own), *ranked]
            lines = [(_names(each, ctx), self._text(each, is_whole=is_whole)) for each in ranked if _name_of(each) != "--help-all"]
            if lines:
                with formatter.section(panel):
                    formatter.write_dl(lines)
        if is_whole and self.assumptions:
            with formatter.section("Assumptions (--assume NAME=VALUE)"):
                formatter.write_dl([(f"{name} {each.kind.name}", each.help) for name, each in self.assumptions.items()])
        if is_whole and self.settings:
            from snaprebuild.cli.options.settings import SETTINGS

            with formatter.section("Settings (--set NAME=VALUE, the environment as SNAPREBUILD_NAME, or --config)"):
                formatter.write_dl([(f"{name} {SETTINGS[name].kind.name}", SETTINGS[name].help) for name in self.settings])
        formatter.write_paragraph()
        if is_whole:
            formatter.write_text("-h, --help   This page")
        else:
            formatter.write_text(f"-h, --help   --help-all shows all {len(options) - 1} options")

    def _text(self, option: click.Option, *, is_whole: bool) -> str:
        text = self.texts[option.name or ""]
        if is_whole:
            return text.whole
        return text.brief_of_flag if option.is_flag else text.brief

    def _named_in_text(self) -> set[str]:
        """The options that the description, the examples, and the lines of the short help name."""
        texts = [self.help or "", self.epilog or ""]
        shown = (each for each in self.params if isinstance(each, click.Option) and panel_of(_name_of(each)) in PANELS)
        texts += [self._text(each, is_whole=False) for each in shown]
        return set(_OPTION.findall(" ".join(texts)))


def _take_settings(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """Reads the settings once the values of --set and --config are known, and makes them defaults of the options of their names."""
    from snaprebuild.cli.options.settings import read_settings

    values = ctx.meta.setdefault(_SETTING_WORDS, {})
    values[option.opts[0]] = [value] if isinstance(value, str) else list(value or ())
    if len(values) == 2 and not ctx.resilient_parsing:
        settings = read_settings(values["--set"], next(iter(values["--config"]), None))
        ctx.meta[_SETTINGS] = settings
        named = {each.name for each in ctx.command.params}
        ctx.default_map = {name: str(each.value) for name, each in settings.items() if name in named}


def _show_everything(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set:
        ctx.meta[_show_everything.__name__] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _names(option: click.Option, ctx: click.Context) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if not option.is_flag and not option.count:
        names += f" {option.metavar or option.type.get_metavar(option, ctx) or option.type.name.upper()}"
    return names


# ------------------------------------------------------------------------------------------------------------------- groups


PROGRAM = "snaprebuild"
PACKAGE = "snaprebuild.cli.verbs"

FIRST_COMMANDS = {
    "snaprebuild": "scan",
    "inspect": "stats",
    "tier": "inventory",
    "follower": "plan",
    "cluster": "check",
    "simulate": "isr --scenario",
}
"""The command of each group that somebody most likely wants with a path alone."""

OPTIONS_OF_OTHERS = {"help": "--help", "version": "--version"}
"""Commands of other programs that are options here."""

NOTHING = "nothing"
"""The changes of a verb that only reads."""

EVERYDAY_COUNT = 9
"""The first verbs of the program are everyday commands."""


class ListedVerb(NamedTuple):
    """A verb before its module is loaded."""

    name: str
    """Name of one word."""
    module: str
    """Inside the package of the command."""
    function: str
    short_help: str
    """Line in the help of the group."""
    changes: str
    """Files or objects that the verb changes."""
    epilog: str
    """The last lines of its help."""
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
        """Names of the verbs, in the order of the list."""
        return [*self._own, *(name for name in self.commands if name not in self._own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb or group of a name, loaded."""
        if cmd_name in self._own and cmd_name not in self.commands:
            self.commands[cmd_name] = self._own[cmd_name].load()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """A name that another group has, or the program itself, is suggested with the words that it is called by."""
        if args[0] not in self.list_commands(ctx):
            meant = [] if "/" in args[0] else self._meant(args[0], ctx)
            if not meant and ("/" in args[0] or os.path.lexists(args[0])):
                ctx.fail(f"{args[0]} is a path, and a command comes before it: {self._with_path(args[0], ctx)}")
            if meant:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, meant))}?")
        return super().resolve_command(ctx, args)

    def _with_path(self, path: str, ctx: click.Context) -> str:
        """A command of the group with a path that somebody typed in its place."""
        first = FIRST_COMMANDS[self.name or PROGRAM]
        if self.name == "inspect" and not os.path.isdir(path):
            first = "dump"
        return f"`{ctx.command_path} {first} {shell_word(path)}`"

    def _meant(self, name: str, ctx: click.Context) -> list[str]:
        """The verbs of this name elsewhere, as they are called; else those with a name that is like it, here or elsewhere."""
        if name in OPTIONS_OF_OTHERS:
            return [OPTIONS_OF_OTHERS[name]]
        before = "" if self.name == PROGRAM else f"{PROGRAM} "
        names: dict[str, list[str]] = {}
        for group, verbs in self.verbs.items():
            if group == self.name:
                continue
            start = before if group == PROGRAM else f"{before}{group} "
            for verb in verbs:
                names.setdefault(verb, []).append(f"{start}{verb}")
        if name in names:
            return names[name]
        import difflib

        own = difflib.get_close_matches(name, self.list_commands(ctx), 1)
        return own or [called for close in difflib.get_close_matches(name, names, 2) for called in names[close]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Global options may be given before the verb."""
        with _errors_of(ctx):
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
