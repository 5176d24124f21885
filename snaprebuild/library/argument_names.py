"""The arguments of functions of the library in place of options: the command shares its checks and sentences with the library."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from snaprebuild.errors import UsageError
from snaprebuild.library.command_line import OPTIONS

__all__ = ["names_arguments", "with_arguments"]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")

_NAMES = {
    **{option: name for name, option in OPTIONS.items()},
    "--offsets": "offset_from and offset_to",
    "--crc": "check_crc",
}
"""The argument of each option."""

_COMMANDS = re.compile(r"snaprebuild .*|`[^`]*`")


def names_arguments(call: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Makes a ``UsageError`` of a function of the library name its arguments, in place of the options of the command."""

    @functools.wraps(call)
    def named(*values: _Given.args, **arguments: _Given.kwargs) -> _Returned:
        try:
            return call(*values, **arguments)
        except UsageError as error:
            error.message = with_arguments(error.message)
            error.args = (error.message,)
            raise

    return named


def with_arguments(message: str) -> str:
    """A sentence that names arguments in place of options, but for those inside of a command that it proposes."""
    commands = _COMMANDS.findall(message)
    between = [re.sub(r"--[a-z][a-z-]*", lambda found: _NAMES.get(found[0], found[0]), each) for each in _COMMANDS.split(message)]
    return "".join(text + command for text, command in zip(between, [*commands, ""], strict=True))
