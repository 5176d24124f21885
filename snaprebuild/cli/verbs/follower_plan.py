"""The verb ``follower plan``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import Jobs, PartitionOptions, S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.follower_plan import PlanAssumptions
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.log_and_tier import LogPath
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.followers import Profile

__all__ = ["follower_plan"]


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
    partitions: PartitionOptions,
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
    from snaprebuild.cli.runs.follower_plan import run_follower_plan

    return run_follower_plan(
        path=path,
        store=store,
        profile=profile,
        assumed=assumed,
        tier_options=tier_options,
        partitions=partitions,
        jobs=jobs,
        out=out,
        s3=s3,
    )
