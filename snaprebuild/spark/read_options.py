"""The options of the data sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from snaprebuild.errors import UsageError
from snaprebuild.operations.source import Selection
from snaprebuild.storage.store import S3Settings

__all__ = ["MODES", "ReadOptions"]

MODES = ("fail", "skip")

OWN = (
    *("path", "paths", "columns", "topics", "partitions", "offsetFrom", "offsetTo", "checkCrc", "mode", "numPartitions"),
    *("pushFilters", "splitSegments"),
    *("s3EndpointUrl", "s3PathStyle", "s3Profile", "s3Anonymous", "s3RequesterPays", "s3SseCKeyFile"),
)

OF_SPARK = ("serialization.format",)
"""Options that Spark's catalog adds by itself."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for.

    Attributes:
        paths: partition directories, log directories or their ancestors.
        schema: the columns that are wanted.
        selection: topics, partitions and offsets.
        check_crc: compute checksums, where their column is wanted.
        skips_faults: what cannot be read becomes a row that tells so, and does not end the query.
        tasks: how many, at most; None for what the bytes ask for.
        takes_filters: leave files out by the filters of the query.
        splits_segments: a huge segment is read by several tasks.
        s3: how object stores are reached.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    selection: Selection
    check_crc: bool
    skips_faults: bool
    tasks: int | None
    takes_filters: bool
    splits_segments: bool
    s3: S3Settings

    @classmethod
    def of(cls, options: Mapping[str, str], whole: pa.Schema) -> ReadOptions:
        """From the options of a ``DataFrameReader``, whose names know no case.

        Raises:
            UsageError: one is not known, or its value makes no sense.
        """
        known = {name.lower() for name in (*OWN, *OF_SPARK)}
        unknown = sorted(name for name in options if name.lower() not in known)
        if unknown:
            raise UsageError(f"option {unknown[0]} is not known: {', '.join(OWN[2:])} are")
        paths = [options["path"]] if options.get("path") else json.loads(options.get("paths") or "[]")
        if not paths:
            raise UsageError("name at least one path: load(PATH)")
        mode = options.get("mode", "fail").lower()
        if mode not in MODES:
            raise UsageError(f"option mode: expected {' or '.join(MODES)}, found {mode!r}")
        columns = _listed(options.get("columns"))
        for name in columns:
            if name not in whole.names:
                raise UsageError(f"option columns: expected some of {', '.join(whole.names)}, found {name!r}")
        offset_from, offset_to, tasks = (_number(options, name) for name in ("offsetFrom", "offsetTo", "numPartitions"))
        if tasks == 0:
            raise UsageError("option numPartitions: expected 1 or more, found 0")
        return cls(
            paths=tuple(paths),
            schema=pa.schema([whole.field(name) for name in dict.fromkeys(columns)]) if columns else whole,
            selection=Selection(
                topics=tuple(_listed(options.get("topics"))),
                partitions=frozenset(_converted("partitions", each, _natural) for each in _listed(options.get("partitions"))),
                offset_from=offset_from,
                offset_to=offset_to,
            ),
            check_crc=_converted("checkCrc", options.get("checkCrc", "true"), _boolean),
            skips_faults=mode == "skip",
            tasks=tasks,
            takes_filters=_flag(options, "pushFilters"),
            splits_segments=_converted("splitSegments", options.get("splitSegments", "true"), _boolean),
            s3=S3Settings(
                endpoint_url=options.get("s3EndpointUrl"),
                path_style=_flag(options, "s3PathStyle"),
                profile=options.get("s3Profile"),
                anonymous=_flag(options, "s3Anonymous"),
                requester_pays=_flag(options, "s3RequesterPays"),
                sse_c_key_file=options.get("s3SseCKeyFile"),
            ),
        )


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    return None if text is None else _converted(name, text, _natural)


def _flag(options: Mapping[str, str], name: str) -> bool:
    return _converted(name, options.get(name, "false"), _boolean)


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
