"""A verb as click runs it: options in panels, and settings from the environment and the configuration file.

An option on the command line, before or after the verb, has precedence over the environment, and that over the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from typer.core import TyperCommand

from snaprebuild.cli.options.description import OptionText
from snaprebuild.cli.panels import ADVANCED, GLOBAL, PANELS, panel_of
from snaprebuild.cli.streams import print_on_stderr

if TYPE_CHECKING:  # the page of all commands needs none of these
    from snaprebuild.cli.options.assumptions import Assumption
    from snaprebuild.cli.options.settings import SettingValue

__all__ = ["VerbCommand", "given_options", "given_settings", "setting_words", "split_global_options"]

_BEFORE = "snaprebuild.options_before_the_verb"
_SETTINGS = "snaprebuild.settings"
_SETTING_WORDS = "snaprebuild.setting_words"
_BEFORE_THE_VERB = dict.fromkeys(("--impact", *GLOBAL["Global"]), 2) | dict.fromkeys(("-v", "-vv", "--verbose"), 1)
"""Options that may be given there, with the number of words of each: its name, and its value if it has one."""


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")

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
    words = [word for option in ("--config", "--set") for value in values.get(option, ()) for word in (option, value)]
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
        """With the options before the verb."""
        return super().parse_args(ctx, [*ctx.meta.pop(_BEFORE, ()), *args])

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
        """What ``--assume`` can name."""
        return getattr(self.callback, "assumptions", {})

    def invoke(self, ctx: click.Context) -> Any:
        """With -v, lists the settings that the verb uses."""
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
        formatter.write_text(
            "-h, --help   This page" if is_whole else f"-h, --help   --help-all shows all {len(options) - 1} options"
        )

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
