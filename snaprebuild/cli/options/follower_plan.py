"""What ``follower plan`` may assume of the leader and the follower."""

from __future__ import annotations

from typing import Annotated, Any

import click
import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import ON_OFF, Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import WholeNumber
from snaprebuild.cli.options.description import OptionText

__all__ = ["PlanAssumptions"]


class OffsetOrUnknown(WholeNumber):
    """An offset, or ``unknown`` for -1."""

    name = "N|unknown"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none."""
        return -1 if value in ("unknown", -1) else super().convert(value, param, ctx)


OFFSET = WholeNumber(0, INT64_MAX)


class PlanAssumptions(msgspec.Struct, frozen=True):
    """What the files of the leader do not show of it and of the follower."""

    follower_end: Annotated[
        int, Assumption(OFFSET, OptionText(short="Log end offset of the follower; at 0 it is empty", default="0"))
    ] = 0
    follower_offset: Annotated[
        int | None, Assumption(OFFSET, OptionText(short="Offset that the follower asks for", default="that of follower_end"))
    ] = None
    follower_remote: Annotated[
        bool, Assumption(ON_OFF, OptionText(short="Whether the follower knows of the topic's remote storage", default="on"))
    ] = True
    follower_metadata: Annotated[
        bool, Assumption(ON_OFF, OptionText(short="Whether the follower has read the remote log metadata", default="on"))
    ] = True
    last_tiered_offset: Annotated[
        bool,
        Assumption(
            ON_OFF,
            OptionText(
                short="The follower.fetch.last.tiered.offset.enable of the follower", details="Brokers have it off.", default="on"
            ),
        ),
    ] = True
    highest_remote: Annotated[
        int | None,
        Assumption(
            OffsetOrUnknown(0, INT64_MAX),
            OptionText(
                short="Last offset that the leader knows to be in remote storage, or unknown after an election",
                default="from the metadata log and the store",
            ),
        ),
    ] = None
    log_start: Annotated[
        int | None, Assumption(OFFSET, OptionText(short="Log start of the leader", default="that of its files"))
    ] = None
    log_end: Annotated[
        int | None, Assumption(OFFSET, OptionText(short="Log end of the leader", default="the end of its last segment"))
    ] = None
    last_stable: Annotated[
        int | None, Assumption(OFFSET, OptionText(short="Last stable offset", default="by a replay of the segments on disk"))
    ] = None
    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None
