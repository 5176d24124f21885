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

from snaprebuild.cli.panels import ADVANCED, GLOBAL, PANELS, panel_of
from snaprebuild.cli.streams import print_on_stderr

if TYPE_CHECKING:
    from snaprebuild.cli.options.assumptions import Assumption
    from snaprebuild.cli.options.settings import Given

__all__ = ["VerbCommand", "given_options", "given_settings", "setting_words", "split_global_options"]

_BEFORE = "snaprebuild.options_before_the_verb"
_SETTINGS = "snaprebuild.settings"
_SETTING_WORDS = "snaprebuild.setting_words"
_BEFORE_THE_VERB = dict.fromkeys(("--impact", *GLOBAL["Global"]), 2) | dict.fromkeys(("-v", "-vv", "--verbose"), 1)
"""Options that may be given there, with the number of words of each: its name, and its value if it has one."""
_FIRST_SENTENCE = re.compile(r"(.+?[^.])\.(?= |$)", re.DOTALL)
_DEFAULT = re.compile(r" Default: (.+?)\.$", re.DOTALL)
_RISK = re.compile(r"Risk[^:]*: [^.]*\.")
_NO_DEFAULT = ("no", "none", "all")
DEFAULT_CHARACTERS_MAX = 40
RISKY_IN_SHORT = ("--i-am-the-leader", "--allow-unverified")


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


def given_settings() -> dict[str, Given]:
    """The settings of this run by name."""
    ctx = click.get_current_context(silent=True)
    found: dict[str, Given] = {} if ctx is None else ctx.meta.get(_SETTINGS, {})
    return found


def setting_words() -> list[str]:
    """The words of the command line that give settings, for a next command: each verb takes them, and ignores what it does not use."""
    ctx = click.get_current_context()
    words: list[str] = [*ctx.meta.get(_SETTING_WORDS, ())]
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
            help="A setting of this run; repeatable. Default: the environment, else the file of --config.",
        )
        config = click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            help="Settings of object stores, load, remote storage and Spark, in TOML. Default: $SNAPREBUILD_CONFIG, else "
            "/etc/snaprebuild/config.toml.",
        )
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_everything,
            help="Show all options, advanced ones included. Default: no.",
        )
        self.params += [of_run, config, everything]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With the options before the verb, and the settings as defaults of the options that have their names."""
        args = [*ctx.meta.pop(_BEFORE, ()), *args]
        if not ctx.resilient_parsing:
            from snaprebuild.cli.options.settings import read_settings

            found, _, _ = self.make_parser(ctx).parse_args(list(args))
            settings = read_settings(found.get("set", ()), found.get("config"))
            ctx.meta[_SETTINGS] = settings
            named = [word for each in found.get("set", ()) for word in ("--set", each)]
            ctx.meta[_SETTING_WORDS] = [*(["--config", found["config"]] if found.get("config") else []), *named]
            ctx.default_map = {each.name or "": str(settings[each.name].value) for each in self.params if each.name in settings}
        return super().parse_args(ctx, args)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that the verb uses, without those that are options too."""
        return getattr(self.callback, "settings", ())

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
        options = [each for each in self.params if isinstance(each, click.Option) and not each.hidden]
        order = [*PANELS, ADVANCED, *GLOBAL] if is_whole else list(PANELS)
        for panel in order:
            named = {_name_of(each): each for each in options if panel_of(_name_of(each)) == panel}
            ranked = [named[name] for name in (PANELS | GLOBAL).get(panel, named) if name in named]
            lines = [_line(each, ctx, is_whole=is_whole) for each in ranked if _name_of(each) != "--help-all"]
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


def _show_everything(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_show_everything.__name__] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _line(option: click.Option, ctx: click.Context, *, is_whole: bool) -> tuple[str, str]:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if not option.is_flag and not option.count:
        names += f" {option.metavar or option.type.get_metavar(option, ctx) or option.type.name.upper()}"
    text = option.help or ""
    return names, text if is_whole else _in_short(_name_of(option), text)


def _in_short(name: str, text: str) -> str:
    """The first sentence, the risk, and the default where it is short."""
    first = _FIRST_SENTENCE.match(text)
    default = _DEFAULT.search(text)
    kept = first[1] if first else text
    if name in RISKY_IN_SHORT and (risk := _RISK.search(text)):
        kept += f". {risk[0][:-1]}"
    if default and default[1] not in _NO_DEFAULT and len(default[1]) <= DEFAULT_CHARACTERS_MAX:
        kept += f" [{default[1]}]"
    return kept
