"""The work of the verb ``follower plan``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerPlanOptions, PlanAssumptions
from snaprebuild.cli.render.leader_view import FollowerPlanView
from snaprebuild.cli.runs.log_and_tier import open_log_and_tier
from snaprebuild.cli.runs.remote_storage import key_files
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
from snaprebuild.followers.bootstrap_rules import BootstrapFollower
from snaprebuild.followers.plan import LeaderAssumptions, plan_followers

__all__ = ["run_follower_plan"]


def run_follower_plan(
    store: str, path: str, options: FollowerPlanOptions, assumed: PlanAssumptions, out: OutputOptions, s3: S3Options
) -> View:
    """Plans how an empty follower would start from remote storage."""
    out.begin(read={"private key": key_files(options)})
    source, tier = open_log_and_tier(store, path, options, s3)
    assert tier is not None
    fetch_offset = assumed.follower_offset
    if fetch_offset is None:
        fetch_offset = assumed.follower_end
    follower = BootstrapFollower(
        fetch_offset=fetch_offset,
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
    plan, findings = plan_followers(source, tier, follower, options.profile, leader, run_of(s3, jobs=options.jobs))
    findings += start_concerns(source, findings, without=SNAPSHOTS_ALONE)
    return FollowerPlanView(plan, findings, source)
