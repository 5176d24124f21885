"""``--assume NAME=VALUE``: values that only a live cluster has, which the user supplies. Each verb has its own table of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import click
import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import OneOf, WholeNumber, quoted
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.errors import UsageError

__all__ = ["ON_OFF", "AssumeOption", "Assumption", "HighWatermark", "RemoteStorage", "read_assumptions"]


ON_OFF = OneOf({"on": True, "off": False})


class Assumption(msgspec.Struct, frozen=True):
    """A value that a verb can be given.

    Attributes:
        kind: converts the text.
        text: what it is.
        is_list: may be given several times.
    """

    kind: click.ParamType  # type: ignore[type-arg]
    text: OptionText
    is_list: bool = False

    @property
    def help(self) -> str:
        """All sentences."""
        return self.text.whole


AssumeOption = Annotated[
    list[str] | None,
    option(
        "--assume",
        metavar="NAME=VALUE",
        short="A value that only the live cluster has; repeatable",
        details="--help-all lists the names.",
        default="what the files show",
    ),
]

HighWatermark = Annotated[
    int | None,
    Assumption(
        WholeNumber(0, INT64_MAX),
        OptionText(short="High watermark of the leader", default="that of replication-offset-checkpoint, else the log end"),
    ),
]
RemoteStorage = Annotated[
    bool | None,
    Assumption(
        ON_OFF,
        OptionText(
            short="remote.storage.enable of the topics",
            default="on if a store holds copies, or a log start is checkpointed as with remote storage",
        ),
    ),
]


def read_assumptions(texts: Iterable[str], known: Mapping[str, Assumption]) -> dict[str, Any]:
    """The values by name.

    Args:
        texts: NAME=VALUE each.
        known: the names of the verb.

    Raises:
        UsageError: a name is unknown or given twice, or its value has another type.
    """
    values: dict[str, Any] = {}
    for text in texts:
        typed_name, equals, value = text.partition("=")
        name = typed_name.replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--assume: expected NAME=VALUE with one of {', '.join(known)}; found {quoted(text)}")
        if name in values and not known[name].is_list:
            raise UsageError(f"--assume: {name} is given twice")
        try:
            converted = known[name].kind.convert(value, None, None)
        except click.BadParameter as error:
            raise UsageError(f"--assume {name}: {error.message}") from None
        values[name] = [*values.get(name, ()), converted] if known[name].is_list else converted
    return values
