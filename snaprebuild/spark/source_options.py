"""The options of the data sources."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

import pyarrow as pa

from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.typed_paths import with_meant

__all__ = [
    "MODES",
    "SourceOptions",
    "as_location",
    "check_option_names",
    "existing_paths",
    "flag_option",
    "listed_names",
    "mode_option",
    "number_option",
    "paths_option",
    "positive_option",
    "s3_options",
]

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
"""Spark's names: an unreadable file ends the query, becomes a row with ``error``, or is left out."""

OWN = (
    *("path", "paths", "columns", "topics", "partitions", "offsetFrom", "offsetTo", "checkCrc", "mode", "numPartitions"),
    *("pushFilters", "splitSegments"),
    *("s3EndpointUrl", "s3PathStyle", "s3Profile", "s3Anonymous", "s3RequesterPays", "s3SseCKeyFile"),
)

OF_SPARK = ("serialization.format", "location", "owner", "provider", "comment", "external", "is_managed_location", "collation")
"""Options that Spark's catalog adds by itself."""

OF_TABLE = "option."
"""Prefix of the name of each option of a table, which Spark's catalog passes with and without it."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read.

    Attributes:
        paths: partition directories, log directories or their ancestors.
        schema: the requested columns.
        selection: topics, partitions and offsets.
        check_crc: compute checksums, if their column is requested.
        skips_faults: an unreadable file does not end the query.
        reports_faults: an unreadable file becomes a row with ``error``.
        tasks: how many, at most; None for a number that suits the bytes.
        takes_filters: leave files out by the filters of the query.
        splits_segments: a huge segment is read by several tasks.
        s3: how object stores are reached.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    selection: Selection
    check_crc: bool
    skips_faults: bool
    reports_faults: bool
    tasks: int | None
    takes_filters: bool
    splits_segments: bool
    s3: S3Settings

    @classmethod
    def of(cls, options: Mapping[str, str], whole: pa.Schema) -> SourceOptions:
        """Reads the options of a ``DataFrameReader``, whose names are case-insensitive.

        Raises:
            UsageError: one is not known, or has an invalid value.
        """
        check_option_names(options, OWN)
        paths = paths_option(options)
        mode = mode_option(options)
        columns = listed_names(options.get("columns"))
        for name in columns:
            if name not in whole.names:
                message = f"option columns: expected some of {', '.join(whole.names)}, found {name!r}"
                raise UsageError(with_meant(message, name, whole.names))
        offset_from = number_option(options, "offsetFrom")
        offset_to = number_option(options, "offsetTo")
        tasks = positive_option(options, "numPartitions")
        return cls(
            paths=paths,
            schema=pa.schema([whole.field(name) for name in dict.fromkeys(columns)]) if columns else whole,
            selection=Selection(
                topics=tuple(listed_names(options.get("topics"))),
                partitions=frozenset(_converted("partitions", each, _natural) for each in listed_names(options.get("partitions"))),
                offset_from=offset_from,
                offset_to=offset_to,
            ),
            check_crc=flag_option(options, "checkCrc", "true"),
            skips_faults=mode != "FAILFAST",
            reports_faults=mode == "PERMISSIVE",
            tasks=tasks,
            takes_filters=flag_option(options, "pushFilters"),
            splits_segments=flag_option(options, "splitSegments", "true"),
            s3=s3_options(options),
        )


def check_option_names(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Checks the names of options; those that Spark's catalog adds are known.

    Args:
        options: of a ``DataFrameReader``, whose names are case-insensitive.
        known: names of the options; ``path`` and ``paths`` are the first two.

    Raises:
        UsageError: one is not known.
    """
    names = {name.lower() for name in (*known, *OF_SPARK)}
    unknown = sorted(name for name in options if name.lower().removeprefix(OF_TABLE) not in names)
    if unknown:
        name = unknown[0].removeprefix(OF_TABLE)
        raise UsageError(with_meant(f"option {name} is not known: {', '.join(known[2:])} are", name, known[2:]))


def paths_option(options: Mapping[str, str]) -> tuple[str, ...]:
    """The paths of a read, in the form of this package.

    Raises:
        UsageError: there is none, or its scheme is not read.
    """
    paths = [options["path"]] if options.get("path") else json.loads(options.get("paths") or "[]")
    if not paths:
        table = "CREATE TABLE gets its columns from OPTIONS (path ..., columns 'topic, ...'), not from a list"
        raise UsageError(f"name at least one path: load(PATH). {table}")
    return tuple(map(as_location, paths))


def mode_option(options: Mapping[str, str]) -> str:
    """The mode, one of ``MODES``.

    Raises:
        UsageError: it is none of them.
    """
    mode = options.get("mode", MODES[0]).upper()
    if mode not in MODES:
        message = f"option mode: expected one of {', '.join(MODES)}, found {options['mode']!r}"
        raise UsageError(with_meant(message, mode, MODES))
    return mode


def s3_options(options: Mapping[str, str]) -> S3Settings:
    """How object stores are reached.

    Raises:
        UsageError: an option has an invalid value.
    """
    return S3Settings(
        endpoint_url=options.get("s3EndpointUrl"),
        path_style=flag_option(options, "s3PathStyle"),
        profile=options.get("s3Profile"),
        anonymous=flag_option(options, "s3Anonymous"),
        requester_pays=flag_option(options, "s3RequesterPays"),
        sse_c_key_file=options.get("s3SseCKeyFile"),
    )


def existing_paths(patterns: Iterable[str], s3: S3Settings) -> tuple[str, ...]:
    """Paths, each pattern replaced by its present matches.

    Raises:
        UsageError: a path does not exist, or nothing matches a pattern.
        ReadFailedError: an object store cannot be listed.
    """
    return tuple(path for pattern in patterns for path in _matching(path_of(pattern, s3)))


def as_location(path: str) -> str:
    """Converts a path or URI of Hadoop to the form of this package.

    Raises:
        UsageError: files of this scheme are not read.
    """
    scheme, _, rest = path.partition(":")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) or not rest.startswith("/"):
        return path
    if scheme.lower() == "file":
        return "/" + rest.removeprefix("//").lstrip("/")
    if scheme.lower() in ("s3", "s3a", "s3n"):
        return f"s3://{rest.lstrip('/')}"
    raise UsageError(f"{scheme}: is not read: name a directory, file:// or s3://", path=path)


def _matching(pattern: StorePath) -> list[str]:
    """The directories that a path or pattern (``*``, ``?``, ``[...]``, ``{a,b}``) names."""
    path = pattern.path
    if not pattern.is_local:
        below = _prefixes(pattern) if glob.has_magic(path) or "{" in path else [path]
        directories = [each for each in below if next(iter(pattern.at(each).list_below()), None) is not None]
    elif os.path.exists(path):
        directories = [path]
    else:
        directories = sorted({each for alternative in _alternatives(path) for each in glob.glob(alternative)})
    if not directories:
        raise UsageError("does not exist", path=path)
    return directories


def _prefixes(location: StorePath) -> list[str]:
    """The prefixes in an object store that match a pattern, as deep as the pattern."""
    bucket, *parts = location.path.removeprefix("s3://").strip("/").split("/")
    fixed = list(takewhile(lambda part: not (glob.has_magic(part) or "{" in part), parts))
    root = "/".join((f"s3://{bucket}", *fixed))
    patterns = [[fnmatch.translate(part) for part in each.split("/")] for each in _alternatives("/".join(parts[len(fixed) :]))]
    prefixes = set()
    for key, _ in location.at(root).list_below():
        names = key.split("/")[:-1]
        for pattern in patterns:
            if len(names) >= len(pattern) and all(map(re.match, pattern, names)):
                prefixes.add("/".join((root, *names[: len(pattern)])))
    return sorted(prefixes)


def _alternatives(pattern: str) -> list[str]:
    """A pattern with braces as patterns without, one for each combination of alternatives."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    before = pattern[: braces.start()]
    after = pattern[braces.end() :]
    return [each for part in braces[1].split(",") for each in _alternatives(before + part + after)]


def listed_names(text: str | None) -> list[str]:
    """Names with commas between them."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def number_option(options: Mapping[str, str], name: str) -> int | None:
    """The value of an option that is a number, 0 or more; None without it.

    Raises:
        UsageError: it is something else.
    """
    text = options.get(name)
    return None if text is None else _converted(name, text, _natural)


def positive_option(options: Mapping[str, str], name: str) -> int | None:
    """The value of an option that is a number, 1 or more; None without it.

    Raises:
        UsageError: it is something else.
    """
    number = number_option(options, name)
    if number == 0:
        raise UsageError(f"option {name}: expected 1 or more, found 0")
    return number


def flag_option(options: Mapping[str, str], name: str, otherwise: str = "false") -> bool:
    """The value of an option that is true or false.

    Args:
        options: of the read.
        name: of the option.
        otherwise: the value if it is not given.

    Raises:
        UsageError: it is something else.
    """
    return _converted(name, options.get(name, otherwise), _boolean)


def _converted(name: str, text: str, convert: Callable[[str], _Value]) -> _Value:
    try:
        return convert(text.strip())
    except ValueError as error:
        raise UsageError(f"option {name}: {error}, found {text!r}") from None


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ValueError("expected a number, 0 or more")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"
