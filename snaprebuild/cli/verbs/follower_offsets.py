"""The verb ``follower offsets``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import Jobs, S3Options, SelectionOptions, WholeNumber
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.log_and_tier import StoreAndPath
from snaprebuild.cli.options.remote_storage import ProfileOption, TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.followers import Profile
from snaprebuild.followers.list_offsets import OFFSETS_VERSION_MAX, Isolation

__all__ = [
    "follower_offsets",
]


class OffsetsAssumptions(msgspec.Struct, frozen=True):
    """What the files of the leader do not show."""

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


@verb(Load)
def follower_offsets(
    *,
    places: StoreAndPath,
    timestamp: Annotated[
        list[int] | None,
        option(
            "--timestamp",
            metavar="T",
            click_type=WholeNumber(-INT64_MAX - 1, INT64_MAX),
            short="Timestamp to look up in ms since 1970, or -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 "
            "latest tiered, -6 earliest pending upload; repeatable",
            default="-1 to -6",
        ),
    ] = None,
    isolation: Annotated[
        Isolation,
        option(
            "--isolation",
            short="Who asks: a follower (replica), or a consumer with this isolation.level",
            default="read_uncommitted",
        ),
    ] = Isolation.READ_UNCOMMITTED,
    api_version: Annotated[
        int,
        option(
            "--api-version",
            metavar="N",
            click_type=WholeNumber(0, OFFSETS_VERSION_MAX),
            short="Version of the ListOffsets request",
            default="11, as of Kafka 4.2",
        ),
    ] = OFFSETS_VERSION_MAX,
    profile: ProfileOption = Profile.KAFKA,
    assumed: OffsetsAssumptions,
    tier_options: TierOptions,
    partitions: SelectionOptions,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: what the leader would answer to ListOffsets, and which rule decides.

    STORE is a directory or s3://BUCKET/PREFIX with the copies of the leader's segments. PATH is a partition directory, a log
    directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's; without it the answers from remote storage are
    unknown. Timestamps from 0 on are looked for there first, then on disk. What no file shows is assumed, and marked with a
    star.
    """
    from snaprebuild.cli.runs.follower_offsets import run_follower_offsets

    return run_follower_offsets(
        places=places,
        timestamp=timestamp,
        isolation=isolation,
        api_version=api_version,
        profile=profile,
        leader_epoch=assumed.leader_epoch,
        high_watermark=assumed.high_watermark,
        remote_storage=assumed.remote_storage,
        tier_options=tier_options,
        partitions=partitions,
        jobs=jobs,
        out=out,
        s3=s3,
    )
