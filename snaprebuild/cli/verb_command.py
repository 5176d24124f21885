"""A verb as click runs it: options in panels, and settings from the environment and the configuration file.

An option on the command line, before or after the verb, has precedence over the environment, and that over the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
from click.core import ParameterSource
from typer.core import TyperCommand

from snaprebuild.cli.panels import ADVANCED, GLOBAL, PANELS, panel_of
from snaprebuild.cli.streams import tell
from snaprebuild.errors import UsageError

__all__ = ["CONFIG_FILE", "VerbCommand", "given_options", "split_global_options"]

CONFIG_FILE = "/etc/snaprebuild/config.toml"
CONFIG_VARIABLE = "SNAPREBUILD_CONFIG"
CONFIG_BYTES_MAX = 1 << 16

_BEFORE = "snaprebuild.options_before_the_verb"
_FILE = "snaprebuild.configuration_file"
_SETTINGS = frozenset(option for options in GLOBAL.values() for option in options) | {"--impact"}
_FLAGS = frozenset(("--fill-page-cache", "--s3-path-style", "--s3-anonymous", "--s3-requester-pays"))
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
        if name not in _SETTINGS and name != "--config":
            break
        count = 1 if equals or name in _FLAGS else 2
        ctx.meta.setdefault(_BEFORE, []).extend(args[:count])
        del args[:count]
    return args


def given_options(names: Iterable[str]) -> list[str]:
    """Those of the parameters that the command line itself gives."""
    ctx = click.get_current_context()
    return [name for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def _name_of(option: click.Parameter) -> str:
    return max(option.opts, key=len)


class VerbCommand(TyperCommand):
    """Takes ``--config`` and ``--help-all`` beside the options of the verb."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for option in self.params:
            if isinstance(option, click.Option) and _name_of(option) in _SETTINGS:
                option.envvar = "SNAPREBUILD_" + _name_of(option)[2:].replace("-", "_").upper()
                option.show_envvar = False
        config = click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            help=f"Object store, load and Spark settings, in TOML. Default: ${CONFIG_VARIABLE}, else {CONFIG_FILE}.",
        )
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_everything,
            help="Show all options, advanced ones included. Default: no.",
        )
        self.params += [config, everything]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With the options before the verb, and the settings of the configuration file as defaults."""
        args = [*ctx.meta.pop(_BEFORE, ()), *args]
        if not ctx.resilient_parsing:
            ctx.meta[_FILE], ctx.default_map = _configuration(_config_path(args), self.params)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """With -v, lists the settings that are not from the command line."""
        if ctx.params.get("verbose"):
            for option in self.params:
                source = ctx.get_parameter_source(option.name or "")
                if source is ParameterSource.DEFAULT_MAP:
                    tell(f"setting: {_name_of(option)} = {ctx.params[option.name or '']} (from {ctx.meta[_FILE]})")
                elif source is ParameterSource.ENVIRONMENT:
                    tell(f"setting: {_name_of(option)} = {ctx.params[option.name or '']} (from ${option.envvar})")
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
        formatter.write_paragraph()
        formatter.write_text("-h, --help   This page" if is_whole else f"-h, --help   --help-all ({len(options) - 1} options)")


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


def _config_path(args: list[str]) -> str | None:
    """The file that is to be read; None for none. Its name is needed before the other options are looked at."""
    found = None
    for at, word in enumerate(args):
        if word == "--":
            break
        if word == "--config" and at + 1 < len(args):
            found = args[at + 1]
        elif word.startswith("--config="):
            found = word.partition("=")[2]
    if found is not None:
        return found
    return os.environ.get(CONFIG_VARIABLE) or (CONFIG_FILE if os.path.exists(CONFIG_FILE) else None)


def _configuration(path: str | None, params: list[click.Parameter]) -> tuple[str | None, dict[str, Any]]:
    """The settings of the file by the names of the parameters that they set.

    Raises:
        UsageError: the file cannot be read, is no TOML, or sets what only the command line may.
    """
    if path is None:
        return None, {}
    import tomllib

    from snaprebuild.storage.local.regular_file import open_named_file

    with open_named_file(path) as file:
        data = file.read(CONFIG_BYTES_MAX + 1)
    if len(data) > CONFIG_BYTES_MAX:
        raise UsageError(f"is larger than {CONFIG_BYTES_MAX} bytes, and no configuration file", path=path)
    try:
        settings = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"is no TOML: {error}", path=path) from error
    found = {}
    by_name = {_name_of(each): each.name or "" for each in params}
    for key, value in settings.items():
        option = "--" + key.replace("_", "-")
        if option not in _SETTINGS:
            raise UsageError(f"sets {key!r}, which only the command line may; expected one of {', '.join(_known())}", path=path)
        if isinstance(value, dict | float) or (isinstance(value, bool) != (option in _FLAGS)):
            raise UsageError(
                f"{key}: expected {'true or false' if option in _FLAGS else 'a text or a number'}, found {value!r}", path=path
            )
        if option in by_name:
            found[by_name[option]] = value if isinstance(value, bool | list) else str(value)
    return path, found


def _known() -> Iterator[str]:
    return (option[2:].replace("-", "_") for option in sorted(_SETTINGS))
