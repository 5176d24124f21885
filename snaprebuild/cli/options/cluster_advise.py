"""Assumptions of ``cluster advise`` about a quorum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import click
import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import WholeNumber, quoted
from snaprebuild.cli.options.description import OptionText

__all__ = ["AdviseAssumptions"]


class ReaderOffset(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """The next offset of a reader: NAME:OFFSET."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self._pattern = re.compile(f"({pattern}):([0-9]{{1,19}})")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Both parts; a usage error if it has others."""
        match = self._pattern.fullmatch(value)
        if match is None or int(match[2]) > INT64_MAX:
            self.fail(f"expected {self.name}, found {quoted(value)}", param, ctx)
        return match[1], int(match[2])


class AdviseAssumptions(msgspec.Struct, frozen=True):
    """Facts about the quorum that the directories do not show."""

    replica: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReaderOffset("ID:OFFSET", "[0-9]{1,60}"),
            OptionText(short="Next offset that a live replica fetches; repeatable", default="the end of OTHER"),
            is_list=True,
        ),
    ] = ()
    listener: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReaderOffset("NAME:OFFSET", "[A-Za-z0-9._-]{1,60}"),
            OptionText(short="Next offset that a listener of this node reads; repeatable", default="none"),
            is_list=True,
        ),
    ] = ()
    leader_start: Annotated[
        tuple[str, int] | None,
        Assumption(
            ReaderOffset("OFFSET:EPOCH", "[0-9]{1,19}"), OptionText(short="Start of the leader's log", default="from OTHER")
        ),
    ] = None
    max_retention_bytes: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            OptionText(short="metadata.max.retention.bytes, -1 for none", default="that of --server-properties, else 104857600"),
        ),
    ] = None
    max_retention_ms: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            OptionText(
                short="metadata.max.retention.ms, -1 for none", default="that of --server-properties, else 604800000, 7 days"
            ),
        ),
    ] = None
    lag_time_max_ms: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT64_MAX),
            OptionText(short="Longest time that kafka-14932 waits for readers", default="604800000, 7 days"),
        ),
    ] = None
