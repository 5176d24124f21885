"""The verb ``follower plan``."""

from __future__ import annotations

from typing import Annotated, Any

import click
import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import ON_OFF, Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import Jobs, Partition, S3Options, Topic, WholeNumber
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.log_and_tier import LogPath, opened_log_and_tier
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.followers import Profile

__all__ = ["follower_plan"]


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


@verb(Load)
def follower_plan(
    *,
    path: LogPath,
    store: TierLocation,
    profile: Annotated[
        Profile,
        option(
            "--profile",
            short="Rules that decide: those of KIP-1023 (kip-1023), or of Kafka 4.3 and 4.4, which differ if remote storage "
            "has nothing usable",
            default="kip-1023",
        ),
    ] = Profile.PROPOSAL,
    assumed: PlanAssumptions,
    tier_options: TierOptions,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: how an empty follower would start from remote storage (KIP-1023), and what it would replicate.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. STORE
    is a directory or s3://BUCKET/PREFIX with the copies of its segments. It shows the row of the table in docs/reference/offsets.md,
    the requests and answers, and the follower's log after each. Exit code 1 if it would never start or if offsets contradict one
    another.
    """
    from snaprebuild.cli.render.leader_view import FollowerPlanView
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
    from snaprebuild.followers.bootstrap_plan import LeaderAssumptions, plan_bootstrap
    from snaprebuild.followers.bootstrap_rules import BootstrapFollower

    out.begin(private_key=tier_options.key_files)
    source, tier = opened_log_and_tier(path, store, tier_options, topic, partition, s3)
    assert tier is not None
    follower = BootstrapFollower(
        fetch_offset=assumed.follower_end if assumed.follower_offset is None else assumed.follower_offset,
        log_end_offset=assumed.follower_end,
        last_tiered_enabled=assumed.last_tiered_offset,
        has_remote=assumed.follower_remote,
        metadata_is_ready=assumed.follower_metadata,
        is_compacted=False,
    )
    leader = LeaderAssumptions(
        log_start=assumed.log_start,
        log_end=assumed.log_end,
        highest_remote=assumed.highest_remote,
        high_watermark=assumed.high_watermark,
        last_stable=assumed.last_stable,
        remote_storage=assumed.remote_storage,
    )
    plan, findings = plan_bootstrap(source, tier, follower, profile, leader, s3.run(jobs=jobs))
    findings += start_concerns(source, findings, without=SNAPSHOTS_ALONE)
    return FollowerPlanView(plan, findings, source)
