"""The words of this command line, for the next command."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource

from snaprebuild.shell_words import option_words

__all__ = ["COPIES", "EXPIRY", "SELECTION", "expiry_words", "given_words", "repeated_words"]

SELECTION = ("paths", "server_properties", "topic", "partition", "topic_partition", "kafka_release")
"""Parameters that select partitions of log directories, and the release that starts them next, of the next command too."""

COPIES = ("store", "topic", "partition", "topic_partition", "metadata_log", "expiration_ms", "as_of")
"""Parameters that select copies in remote storage, and the time at which their producers expire."""

EXPIRY = ("as_of", "expiration_ms")
"""Parameters of the time at which producers expire: with another one the next command may judge the same snapshots otherwise."""

NOT_REPEATED = ("output", "report", "metrics", "verbose", "results", "set", "config", "impact")
"""Parameters of output, and settings, which ``print_answer`` adds."""

WRITES_A_RECEIPT = ("rebuild", "install", "repair")
"""Verbs whose ``--receipt`` is a new file."""


def given_words(*names: str) -> list[str]:
    """The words of the command line that give these parameters, and how stores are reached; for the next command.

    Args:
        names: of parameters of this verb; one that it does not have gives no word.
    """
    return _given((*names, "s3_endpoint_url"))


def expiry_words() -> list[str]:
    """The words of the command line about the time at which producers expire, for a next command that judges what this one judged."""
    return _given(EXPIRY)


def _given(names: Collection[str]) -> list[str]:
    context = click.get_current_context()
    arguments = list[str]()
    words = list[str]()
    for each in context.command.params:
        name = each.name or ""
        if name not in names or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        values = [str(one) for one in (value if isinstance(value, list | tuple) else [value])]
        if isinstance(each, click.Argument):
            arguments += [f"./{one}" if one.startswith("-") else one for one in values]  # else it would be an option
        elif isinstance(value, bool):
            words.append(each.opts[0] if value else each.secondary_opts[0])
        else:
            words += [word for one in values for word in option_words(max(each.opts, key=len), one)]
    return [*arguments, *words]


def repeated_words(*without: str) -> list[str]:
    """The words of this command line, but not those of its output options and of the parameters ``without``."""
    command = click.get_current_context().command
    left_out = {*without, *NOT_REPEATED, *(["receipt"] if command.name in WRITES_A_RECEIPT else [])}
    return given_words(*(each.name or "" for each in command.params if each.name not in left_out))
