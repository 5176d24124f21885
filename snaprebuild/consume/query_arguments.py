"""The arguments of a query for records, of the function and of the data source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.argument_checks import check_number, check_patterns, check_text
from snaprebuild.consume.record_query import EARLIEST, LATEST, Offsets, RecordQuery
from snaprebuild.errors import UsageError
from snaprebuild.typed_paths import with_meant

__all__ = [
    "assigned_partitions",
    "check_one_selection",
    "chosen_columns",
    "moments_of",
    "offsets_of",
    "pattern_of",
    "topic_ids_from",
]


def check_one_selection(query: RecordQuery) -> None:
    """Raises UsageError if topics are selected in more than one way, or a range is, or if it ends before it begins."""
    ways = [bool(query.topics), bool(query.subscribe), query.subscribe_pattern is not None, bool(query.assign)]
    if sum(ways) > 1:
        raise UsageError("select topics in one way: by name or pattern, by a regular expression, or by partitions")
    if query.starting_timestamp is not None and query.starting_offsets != EARLIEST:
        raise UsageError("give a starting offset or a starting timestamp, not both")
    if query.ending_timestamp is not None and query.ending_offsets != LATEST:
        raise UsageError("give an ending offset or an ending timestamp, not both")
    begin = query.starting_timestamp
    end = query.ending_timestamp
    if isinstance(begin, int) and isinstance(end, int) and begin > end:
        raise UsageError(f"the range begins at {begin} ms and ends before, at {end} ms")


def offsets_of(name: str, value: Any, words: Mapping[str, int]) -> Offsets:
    """The offsets of an argument.

    Args:
        name: of the argument.
        value: a word, an offset for each partition by topic and number, or the JSON of that.
        words: the words that are allowed, and their offsets.

    Raises:
        UsageError: it is something else.
    """
    expected = f"{name}: expected {' or '.join(words)}, or offsets by topic and partition"
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    return _by_partition(name, value, expected, lambda offset: _offset(name, offset, words))


def moments_of(name: str, value: Any) -> Mapping[str, Mapping[int, int]]:
    """The times of an argument, ms since 1970 by topic and number of the partition, or the JSON of that.

    Raises:
        UsageError: it is something else.
    """
    expected = f"{name}: expected times by topic and partition"
    return _by_partition(name, value, expected, lambda moment: check_number(name, moment, 0, INT64_MAX))


def _by_partition(name: str, value: Any, expected: str, check: Callable[[Any], int]) -> dict[str, dict[int, int]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise UsageError(f"{expected}, found {value!r}") from None
    if not isinstance(value, Mapping) or not value:
        raise UsageError(f"{expected}, found {value!r}")
    numbers: dict[str, dict[int, int]] = {}
    for topic, by_number in value.items():
        check_text(name, topic)
        if not isinstance(by_number, Mapping):
            raise UsageError(f"{expected}, found {by_number!r} for {topic}")
        numbers[topic] = {_number(name, number): check(each) for number, each in by_number.items()}
    return numbers


def _number(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value[:11])
    return check_number(name, value, 0, 2**31 - 1)


def _offset(name: str, value: Any, words: Mapping[str, int]) -> int:
    number = check_number(name, value, EARLIEST, INT64_MAX - 1)
    if number < 0 and number not in words.values():
        allowed = ", ".join(f"{offset} ({word})" for word, offset in words.items())
        raise UsageError(f"{name}: expected an offset or {allowed}, found {number}")
    return number


def pattern_of(name: str, value: Any) -> str | None:
    """The regular expression of an argument; None without one.

    Raises:
        UsageError: it is none.
    """
    if value is None:
        return None
    text = check_text(name, value)
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"{name}: is no regular expression: {error}") from None
    return text


def assigned_partitions(name: str, value: Any) -> frozenset[tuple[str, int]]:
    """Topics and numbers of partitions, from lists of numbers by topic; none for None.

    Raises:
        UsageError: it is something else.
    """
    if value is None:
        return frozenset()
    if not isinstance(value, Mapping) or not value:
        raise UsageError(f"{name}: expected numbers of partitions by topic, found {value!r}")
    pairs = set()
    for topic, numbers in value.items():
        check_text(name, topic)
        if isinstance(numbers, str) or not isinstance(numbers, Sequence) or not numbers:
            raise UsageError(f"{name}: expected a list of numbers for {topic}, found {numbers!r}")
        pairs |= {(topic, check_number(name, number, 0, 2**31 - 1)) for number in numbers}
    return frozenset(pairs)


def topic_ids_from(name: str, value: Any) -> dict[str, bytes]:
    """Topic ids, 16 bytes each, by topic; none for None.

    Raises:
        UsageError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: expected topic ids by topic, found {value!r}")
    ids = {}
    for topic, text in value.items():
        check_text(name, topic)
        try:
            ids[topic] = uuid_from_text(check_text(name, text))
        except FormatError as error:
            raise UsageError(f"{name}: {error.message}") from error
    return ids


def chosen_columns(name: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns, each once.

    Raises:
        UsageError: one is not known.
    """
    names = tuple(dict.fromkeys(check_patterns(name, value)))
    for each in names:
        if each not in known:
            raise UsageError(with_meant(f"{name}: expected some of {', '.join(known)}, found {each!r}", each, known))
    return names
