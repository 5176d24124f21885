"""The work of the verb ``follower offsets``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options, SelectionOptions
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.render.leader_view import FollowerOffsetsView
from snaprebuild.cli.runs.log_and_tier import open_log_and_tier, store_and_path
from snaprebuild.cli.runs.remote_storage import key_files
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
from snaprebuild.followers import Profile
from snaprebuild.followers.list_offsets import Isolation, SpecialTimestamp
from snaprebuild.followers.offsets import OffsetsRequest, list_offsets

__all__ = ["run_follower_offsets"]


def run_follower_offsets(
    *,
    places: list[str],
    timestamp: list[int] | None,
    isolation: Isolation,
    api_version: int,
    profile: Profile,
    leader_epoch: int | None,
    high_watermark: int | None,
    remote_storage: bool | None,
    tier_options: TierOptions,
    partitions: SelectionOptions,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Answers ListOffsets as the leader would."""
    out.begin(private_key=key_files(tier_options))
    source, tier = open_log_and_tier(*store_and_path(places), tier_options, partitions, s3)
    request = OffsetsRequest(
        timestamps=tuple(timestamp) if timestamp else tuple(map(int, SpecialTimestamp)),
        isolation=isolation,
        api_version=api_version,
        profile=profile,
        leader_epoch=leader_epoch,
        high_watermark=high_watermark,
        remote_storage=remote_storage,
    )
    result, findings = list_offsets(source, tier, request, run_of(s3, jobs=jobs))
    findings += start_concerns(source, findings, without=SNAPSHOTS_ALONE)
    return FollowerOffsetsView(result, findings, source)
