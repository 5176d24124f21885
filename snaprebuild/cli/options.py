"""Options that several verbs share, and the values made from them."""

from __future__ import annotations

import datetime
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.operations.source import Selection, Source

__all__ = [
    "AsOf",
    "ExpirationMs",
    "Jobs",
    "Offset",
    "OutputFormat",
    "OutputOption",
    "Partition",
    "Paths",
    "Report",
    "ServerProperties",
    "Topic",
    "Verbose",
    "as_of_ms",
    "open_selected",
]


INT64_MAX = 2**63 - 1

AS_OF_MAX_MS = 253_402_300_799_999
"""The last moment of the year 9999: later ones have no date, and much later ones no place in an int64."""


class OutputFormat(StrEnum):
    """What stdout carries."""

    TABLE = "table"
    JSON = "json"


Paths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH...", help="Partition directory, log directory, or any ancestor of such.")
]
ServerProperties = Annotated[
    str | None, typer.Option("--server-properties", metavar="FILE", help="Read all log.dirs of this broker as one unit.")
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", metavar="PATTERN", help="Only topics like this shell pattern; repeatable.")
]
Partition = Annotated[list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition number; repeatable.")]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offsets",
        metavar="FROM:TO",
        help="Only boundaries in this range, both ends included; either may be empty. One offset means itself.",
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="Table for people, JSON for programs (docs/json.md).")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="Moment for expiry: ms since 1970, ISO 8601, or 'now' (default)."),
]
ExpirationMs = Annotated[
    int | None,
    typer.Option(
        "--expiration-ms", min=1, max=INT64_MAX, help="Default 86400000, or producer.id.expiration.ms of --server-properties."
    ),
]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log decisions to stderr.")]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="FILE", help="Also write a report: inputs, identities, versions, findings, actions."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="N", help="Worker processes (default: the processors of this machine).")
]


def as_of_ms(text: str | None) -> int:
    """The moment for expiry, ms since 1970.

    Raises:
        UsageError: neither a number, nor a date, nor 'now'; before 1970 or after 9999.
    """
    if text is None or text == "now":
        return int(time.time() * 1000)
    try:
        moment_ms = int(text) if text.isdecimal() and len(text) < 20 else _moment_ms(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--as-of: {error}") from error
    if not 0 <= moment_ms <= AS_OF_MAX_MS:
        raise UsageError(f"--as-of: {text} does not lie between 1970 and 9999")
    return moment_ms


def _moment_ms(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def selection_of(topics: list[str] | None, partitions: list[int] | None, offsets: str | None) -> Selection:
    """The selection that the options ask for.

    Raises:
        UsageError: ``--offsets`` is no range.
    """
    from snaprebuild.operations.source import Selection

    offset_from = offset_to = None
    if offsets is not None:
        low, colon, high = offsets.partition(":")
        try:
            offset_from = int(low) if low else None
            offset_to = (int(high) if high else None) if colon else offset_from
        except ValueError as error:
            raise UsageError(f"--offsets: expected FROM:TO, found {offsets!r}") from error
    if offset_from is not None and offset_to is not None and offset_from > offset_to:
        raise UsageError(f"--offsets: nothing lies in {offsets!r}")
    if min(offset_from or 0, offset_to or 0) < 0:
        raise UsageError("--offsets: offsets are not negative")
    return Selection(tuple(topics or ()), frozenset(partitions or ()), offset_from, offset_to)


def open_selected(paths: list[str] | None, server_properties: str | None, selection: Selection) -> Source:
    """The source that the options ask for.

    Raises:
        UsageError: as ``open_source``.
    """
    from snaprebuild.operations.source import open_source

    return open_source(paths or [], server_properties, selection)
