"""Arguments of the library in place of options: the command shares its checks and sentences with the library.

A sentence for a program names ``as_of_ms`` where that for the command line names ``--as-of``. Commands that it proposes stay as they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from snaprebuild.errors import SnaprebuildError, SnapshotRefusedError
from snaprebuild.typed_paths import did_you_mean

__all__ = [
    "COMMAND_ONLY",
    "OPTIONS",
    "VERBS",
    "check_names",
    "names_arguments",
    "names_members",
    "naming_arguments",
    "parameters_of",
    "reword",
    "with_arguments",
]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_Made = TypeVar("_Made")

OPTIONS = {
    "server_properties": "--server-properties",
    "topics": "--topic",
    "partitions": "--partition",
    "topic_partitions": "--topic-partition",
    "kafka_release": "--kafka-release",
    "out": "--out",
    "broker_running": "--broker-running",
    "boundaries": "--boundaries",
    "replay_from": "--replay-from",
    "set_aside": "--set-aside",
    "drop_expired": "--drop-expired",
    "allow_unproven": "--allow-unproven",
    "accept_topic_id_zero": "--accept-topic-id-zero",
    "as_of_ms": "--as-of",
    "expiration_ms": "--expiration-ms",
    "metadata": "--metadata",
    "bootstrap_server": "--bootstrap-server",
    "command_config": "--command-config",
    "ledger": "--ledger",
    "plan": "--plan",
    "dry_run": "--dry-run",
    "receipt": "--receipt",
    "results": "--results",
    "jobs": "--jobs",
    "impact": "--impact",
    "cache": "--cache",
    "level": "--level",
    "metadata_log": "--metadata-log",
    "local_log_start": "--local-log-start",
    "log_dir": "--log-dir",
}
"""The option of each keyword argument. ``check_crc``, ``offset_from``, ``offset_to`` and ``s3`` have words of another form."""

_NAMES = {
    **{option: name for name, option in OPTIONS.items()},
    "--offsets": "offset_from and offset_to",
    "--crc": "check_crc",
    "--engine": "engine",
    "--topic-id": "topic_ids",
    "--s3-endpoint-url": "endpoint_url of s3",
    "--output json": "the document",
}
"""The argument of each option."""

COMMAND_ONLY = frozenset(
    (
        "--accept-own-log",
        "--allow-unverified",
        "--broker-credentials",
        "--broker-epoch",
        "--i-am-the-leader",
        "--metadata-offset",
        "--peer",
        "--to",
        "--transaction-state",
        "--voter",
    )
)
"""Options that no function of the library has, and that a sentence for a program may name."""

VERBS = frozenset(
    (
        "before-start",
        "cluster",
        "fleet",
        "follower",
        "inspect",
        "install",
        "plan",
        "rebuild",
        "report",
        "scan",
        "simulate",
        "stage",
        "tier",
        "undo",
        "verify",
    )
)
"""First words of the verbs of the program."""

_SENTENCE_END = r"(?:[;:!?)]|(?<!\.)\.)(?=\s|$)"
_QUOTED_WORD = r"(?<=[\s=])'[^']*'"
_COMMANDS = re.compile(
    rf"\bsnaprebuild (?:{'|'.join(sorted(VERBS))})(?![\w-])(?:{_QUOTED_WORD}|(?!{_SENTENCE_END}).)*"  # up to the end of the sentence
    r"|`[^-`][^`]*`"
)
"""Commands in a sentence. Text in backticks that begins with an option is no command."""

_OPTION = re.compile(r"(?<![\w/.-])--(?:set (?=\w+=)|output json\b|[a-z][a-z0-9-]*+(?! of the command))")
"""An option, but none of a sentence that was changed already: a function of the library may call another one."""


def names_arguments(call: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Makes each error of a function of the library name its arguments, in place of the options of the command.

    A keyword argument that does not exist is a ``TypeError`` that names those that do.
    """
    known = parameters_of(call)

    @functools.wraps(call)
    def named(*values: _Given.args, **arguments: _Given.kwargs) -> _Returned:
        check_names(call, arguments, known)
        with naming_arguments():
            return call(*values, **arguments)

    return named


def names_members(cls: type[_Made]) -> type[_Made]:
    """Decorates a public data class: ``names_arguments`` for the arguments that make a value of it."""
    cls.__init__ = names_arguments(cls.__init__)  # type: ignore[method-assign]  # a data class has made this method itself
    return cls


def parameters_of(call: Callable[..., object]) -> tuple[str, ...]:
    """The names of the parameters of a function, without ``self`` and ``**options``."""
    code = call.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[1:] if names[:1] == ("self",) else names


def check_names(call: Callable[..., object], given: Iterable[str], known: Sequence[str]) -> None:
    """Makes sure that the keyword arguments of a call exist.

    Args:
        call: the function.
        given: names of the arguments.
        known: names of those that exist.

    Raises:
        TypeError: one does not; the name of an option of the command, such as ``as_of``, is answered with the argument in its place.
    """
    for name in given:
        if name not in known:
            function = call.__qualname__.removesuffix(".__init__")
            option = _NAMES.get(f"--{name.replace('_', '-')}")
            meant = f"did you mean {option!r}?" if option in known else did_you_mean(name, known)
            advice = f"; {meant}" if meant else "."
            raise TypeError(f"{function}: there is no argument {name!r}{advice} It takes {', '.join(known)}")


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Makes each error that leaves the block name arguments, in place of the options of the command."""
    try:
        yield
    except SnaprebuildError as error:
        reword(error, with_arguments)
        raise


def reword(error: SnaprebuildError, reworded: Callable[[str], str]) -> None:
    """Changes the sentences of an error.

    Args:
        error: that someone will read.
        reworded: a sentence with the names that this reader writes.
    """
    error.message = reworded(error.message)
    error.args = (error.message,)
    if isinstance(error, SnapshotRefusedError):
        error.reasons = tuple(map(reworded, error.reasons))


def with_arguments(message: str) -> str:
    """A sentence that names arguments in place of options, but for those inside of a command that it proposes."""
    if "--" not in message:
        return message
    commands = _COMMANDS.findall(message)
    between = [_OPTION.sub(_argument_of, each) for each in _COMMANDS.split(message)]
    return "".join(text + command for text, command in zip(between, [*commands, ""], strict=True))


def _argument_of(found: re.Match[str]) -> str:
    option = found[0]
    if option.startswith("--set "):
        return ""
    if option in COMMAND_ONLY:
        return f"{option} of the command"
    return _NAMES.get(option, option)
