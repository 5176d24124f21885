"""Checks of values that a program, or a command line, gives: each returns the value in the one form that the code works with.

A value that makes no sense is a ``UsageError`` that begins with the name of its argument. Numbers of numpy are numbers; ``True`` is none.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.errors import UsageError
from snaprebuild.typed_paths import check_scheme

__all__ = [
    "AS_OF_MAX_MS",
    "JOBS_MAX",
    "NOT_MS",
    "check_callable",
    "check_flag",
    "check_instance",
    "check_jobs",
    "check_moment",
    "check_number",
    "check_offset",
    "check_one_of",
    "check_partitions",
    "check_path",
    "check_paths",
    "check_patterns",
    "check_period",
    "check_seconds",
    "check_size",
    "check_text",
    "optional",
]

JOBS_MAX = 1024
"""Worker processes; more than any machine has processors or disks for."""

AS_OF_MAX_MS = 253_402_300_799_999
"""The last moment of the year 9999: later ones have no date, and much later ones no place in an int64."""

NOT_MS = range(10**6, 10**11)
"""Numbers that as milliseconds are between 1970 and 1973, long before Kafka: who types one means seconds, or a date without dashes."""

SHOWN_CHARACTERS_MAX = 60

Value = TypeVar("Value")
Check = Callable[[str, Any], Value]


def optional(check: Check[Value]) -> Check[Value | None]:
    """The check of a value that may be None."""

    def checked(name: str, value: Any) -> Value | None:
        return None if value is None else check(name, value)

    return checked


def check_path(name: str, value: Any) -> str:
    """A path in any form that ``open`` takes, as text. ``s3:/bucket`` is none, and nothing expands ``~``."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise UsageError(f"{name}: expected a path, found {_shown(value)}")
    text = os.fsdecode(value)
    if not text:
        raise UsageError(f"{name}: the path is empty")
    _check_encodable(name, text)
    check_scheme(text)
    if text.startswith("~") and not os.path.lexists(text.partition("/")[0]):
        raise UsageError(f"{name}: Python does not expand ~: use os.path.expanduser, or write {os.path.expanduser(text)}")
    return text


def check_paths(name: str, value: Any) -> tuple[str, ...]:
    """One path or several."""
    if isinstance(value, str | bytes | os.PathLike):
        return (check_path(name, value),)
    return tuple(check_path(name, each) for each in _values(name, value, "a path or several"))


def check_text(name: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected a text, found {_shown(value)}")
    if not value:
        raise UsageError(f"{name}: the text is empty")
    _check_encodable(name, value)
    return value


def check_patterns(name: str, value: Any) -> tuple[str, ...]:
    """One text or several; none of them is empty."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes):
        raise UsageError(f"{name}: expected a text, found {_shown(value)}")
    return tuple(check_text(name, each) for each in _values(name, value, "a text or several"))


def check_partitions(name: str, value: Any) -> tuple[int, ...]:
    """One number of a partition or several."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        value = (value,)
    return tuple(check_number(name, each, 0, INT32_MAX) for each in value)


def check_number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number from ``least`` to ``most``."""
    number = _whole_number(name, value)
    if number < least and most == INT64_MAX:
        raise UsageError(f"{name}: expected {least} or more, found {number}")
    if not least <= number <= most:
        raise UsageError(f"{name}: expected a number from {least} to {most}, found {number}")
    return number


def _whole_number(name: str, value: Any) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise UsageError(f"{name}: expected a whole number, found {_shown(value)}")
    return number


def check_offset(name: str, value: Any) -> int:
    """An offset of a log."""
    return check_number(name, value, 0, INT64_MAX)


def check_size(name: str, value: Any) -> int:
    """A number of bytes, or of bytes a second, that is more than none."""
    return check_number(name, value, 1, INT64_MAX)


def check_period(name: str, value: Any) -> int:
    """A number of milliseconds that is more than none."""
    return check_number(name, value, 1, INT64_MAX)


def check_jobs(name: str, value: Any) -> int:
    """A number of worker processes."""
    return check_number(name, value, 1, JOBS_MAX)


def check_moment(name: str, value: Any) -> int:
    """A moment from 1970 to 9999, ms since 1970. Seconds are refused: nothing that Kafka wrote is as old as they are in milliseconds."""
    moment_ms = _whole_number(name, value)
    if moment_ms in NOT_MS:
        raise UsageError(f"{name}: expected milliseconds since 1970; {moment_ms} ms are before 1974: are they seconds?")
    if not 0 <= moment_ms <= AS_OF_MAX_MS:
        raise UsageError(f"{name}: {_shown(moment_ms)} is not between 1970 and 9999")
    return moment_ms


def check_seconds(name: str, value: Any) -> float:
    """A number of seconds, 0 or more; infinity is no limit."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UsageError(f"{name}: expected a number of seconds, found {_shown(value)}")
    seconds = float(value)
    if math.isnan(seconds) or seconds < 0:
        raise UsageError(f"{name}: expected 0 or more, found {seconds}")
    return seconds


def check_flag(name: str, value: Any) -> bool:
    """True or False. A text such as "no" would count as True."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}: expected True or False, found {_shown(value)}")
    return value


def check_one_of(values: Collection[str]) -> Check[str]:
    """The check of a text that is one of a few."""

    def checked(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise UsageError(f"{name}: expected {', '.join(values)}, found {_shown(value)}")
        return str(value)

    return checked


def check_callable(name: str, value: Any) -> Callable[..., Any]:
    """Something that can be called."""
    if not callable(value):
        raise UsageError(f"{name}: expected a function, found {_shown(value)}")
    found: Callable[..., Any] = value
    return found


def check_instance(kind: type[Value], *others: type[Any]) -> Check[Value]:
    """The check of a value of some classes."""

    def checked(name: str, value: Any) -> Value:
        if not isinstance(value, (kind, *others)):
            raise UsageError(f"{name}: expected {kind.__name__}, found {_shown(value)}")
        return cast("Value", value)

    return checked


def _values(name: str, value: Any, expected: str) -> Iterable[Any]:
    if not isinstance(value, Iterable):
        raise UsageError(f"{name}: expected {expected}, found {_shown(value)}")
    return value


def _check_encodable(name: str, text: str) -> None:
    """No path of this machine has other characters, and neither has a command line."""
    try:
        is_encodable = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_encodable = False
    if not is_encodable:
        raise UsageError(f"{name}: no name has these characters: {_shown(text)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 3]}..."
