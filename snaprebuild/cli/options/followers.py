"""Options of the verbs on followers, and what they may assume of a leader or a follower."""

from __future__ import annotations

from typing import Annotated, Any

import click
import msgspec

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import ON_OFF, Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import (
    AllowUnproven,
    DryRun,
    Jobs,
    ReceiptFile,
    TopicIds,
    WholeNumber,
)
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.metadata import AcceptOwnLog, Metadata
from snaprebuild.cli.options.rebuild import SetAside
from snaprebuild.cli.options.remote_storage import ConfiguredOptions, ProfileOption, ProofOption, RemoteLevel, RemoteReplayOptions
from snaprebuild.followers import Profile
from snaprebuild.followers.list_offsets import OFFSETS_VERSION_MAX, Isolation

__all__ = [
    "BuildAssumptions",
    "FetchAssumptions",
    "FollowerBuildOptions",
    "FollowerCheckOptions",
    "FollowerPlanOptions",
    "FollowerRepairOptions",
    "OffsetsAssumptions",
    "OffsetsOptions",
    "PlanAssumptions",
]


class OffsetOrUnknown(WholeNumber):
    """An offset, or ``unknown`` for -1."""

    name = "N|unknown"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none."""
        return -1 if value in ("unknown", -1) else super().convert(value, param, ctx)


OFFSET = WholeNumber(0, INT64_MAX)


class PlanAssumptions(msgspec.Struct, frozen=True):
    """Facts of the leader and the follower that the files of the leader do not have: values that `follower plan` assumes."""

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


class OffsetsAssumptions(msgspec.Struct, frozen=True):
    """Facts of the leader that its files do not have: values that `follower offsets` assumes."""

    leader_epoch: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT32_MAX),
            OptionText(
                short="Current leader epoch",
                details="An epoch above the checkpoint begins at the log end.",
                default="the last one of the checkpoint",
            ),
        ),
    ] = None
    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None


class FetchAssumptions(msgspec.Struct, frozen=True):
    """Facts of the leader that its files do not have: values that `follower fetch-path` assumes."""

    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None


class BuildAssumptions(msgspec.Struct, frozen=True):
    """Facts of the leader that remote storage does not have: values that `follower build` assumes."""

    log_start: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT64_MAX),
            OptionText(short="Log start offset of the leader", default="the first copy; refused if others are below a gap"),
        ),
    ] = None


class FollowerPlanOptions(ConfiguredOptions, frozen=True):
    """Whose rules decide how a follower starts."""

    profile: ProfileOption = Profile.KAFKA
    jobs: Jobs = None


class LookupTime(WholeNumber):
    """A timestamp of a ListOffsets request in milliseconds since 1970, or the number of a place in the log."""

    def hint(self, text: str) -> str:
        """Ends the sentence about a text that is none: the number of a place that Kafka's tool takes by its name, or the unit."""
        number = {"latest": -1, "earliest": -2, "max-timestamp": -3}.get(text)
        if number is not None:
            return f"; {text} is {number}"
        return "; a time is in milliseconds since 1970"


class OffsetsOptions(ConfiguredOptions, frozen=True):
    """The ListOffsets request, and whose rules decide the answer."""

    timestamp: Annotated[
        list[int] | None,
        option(
            "--timestamp",
            metavar="T",
            click_type=LookupTime(-INT64_MAX - 1, INT64_MAX),
            short="Timestamp to look up in ms since 1970, or -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 "
            "latest tiered, -6 earliest pending upload; repeatable",
            default="-1 to -6",
        ),
    ] = None
    isolation: Annotated[
        Isolation,
        option(
            "--isolation",
            short="Who asks: a follower (replica), or a consumer with this isolation.level",
            default="read_uncommitted",
        ),
    ] = Isolation.READ_UNCOMMITTED
    api_version: Annotated[
        int,
        option(
            "--api-version",
            metavar="N",
            click_type=WholeNumber(0, OFFSETS_VERSION_MAX),
            short="Version of the ListOffsets request",
            default="11, as of Kafka 4.2",
        ),
    ] = OFFSETS_VERSION_MAX
    profile: ProfileOption = Profile.KAFKA
    jobs: Jobs = None


class FollowerCheckOptions(RemoteReplayOptions, frozen=True):
    """How much of remote storage is read for the state of a replica."""

    proof: ProofOption = RemoteLevel.FULL


class FollowerRepairOptions(RemoteReplayOptions, frozen=True):
    """The treatment of wrong snapshots, and the place of the receipt."""

    set_aside: SetAside = False
    dry_run: DryRun = False
    receipt: ReceiptFile = None


class FollowerBuildOptions(RemoteReplayOptions, frozen=True):
    """Which follower is built, from what, and the evidence that its broker may get it."""

    topic_id: TopicIds = None
    target: Annotated[
        int | None,
        option(
            "--target",
            metavar="OFFSET",
            click_type=WholeNumber(1, INT64_MAX),
            short="Offset below which everything comes from remote storage (ListOffsets -6 of the leader)",
            default="the end of the copies of the newest leader epoch",
        ),
    ] = None
    proof: ProofOption = RemoteLevel.FULL
    metadata: Metadata = None
    accept_own_log: AcceptOwnLog = False
    allow_unproven: AllowUnproven = False
    dry_run: DryRun = False
    receipt: ReceiptFile = None
