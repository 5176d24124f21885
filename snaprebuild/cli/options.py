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
    typer.Option("--offsets", metavar="FROM:TO", help="Only boundaries in this range, both ends included; either may be empty."),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="Table for people, JSON for programs (docs/json.md).")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="Moment for expiry: ms since 1970, ISO 8601, or 'now' (default)."),
]
ExpirationMs = Annotated[
    int | None,
    typer.Option("--expiration-ms", min=1, help="producer.id.expiration.ms (default 86400000, or from --server-properties)."),
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
        UsageError: neither a number, nor a date, nor 'now'.
    """
    if text is None or text == "now":
        return int(time.time() * 1000)
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--as-of: {error}") from error
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
    return Selection(tuple(topics or ()), frozenset(partitions or ()), offset_from, offset_to)


def open_selected(paths: list[str] | None, server_properties: str | None, selection: Selection) -> Source:
    """The source that the options ask for.

    Raises:
        UsageError: as ``open_source``.
    """
    from snaprebuild.operations.source import open_source

    return open_source(paths or [], server_properties, selection)
