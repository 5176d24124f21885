"""The work of the verb ``follower offsets``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import OffsetsAssumptions, OffsetsOptions
from snaprebuild.cli.render.leader_view import FollowerOffsetsView
from snaprebuild.cli.runs.log_and_tier import open_log_and_tier, store_and_path
from snaprebuild.cli.runs.remote_storage import key_files
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
from snaprebuild.followers.list_offsets import SpecialTimestamp
from snaprebuild.followers.offsets import OffsetsRequest, list_offsets

__all__ = ["run_follower_offsets"]


def run_follower_offsets(
    places: list[str], options: OffsetsOptions, assumed: OffsetsAssumptions, out: OutputOptions, s3: S3Options
) -> View:
    """Answers ListOffsets as the leader would."""
    out.begin(read={"private key": key_files(options)})
    source, tier = open_log_and_tier(*store_and_path(places), options, s3)
    request = OffsetsRequest(
        timestamps=tuple(options.timestamp or map(int, SpecialTimestamp)),
        isolation=options.isolation,
        api_version=options.api_version,
        profile=options.profile,
        leader_epoch=assumed.leader_epoch,
        high_watermark=assumed.high_watermark,
        remote_storage=assumed.remote_storage,
    )
    result, findings = list_offsets(source, tier, request, run_of(s3, jobs=options.jobs))
    findings += start_concerns(source, findings, without=SNAPSHOTS_ALONE)
    return FollowerOffsetsView(result, findings, source)
