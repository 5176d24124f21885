"""The work of the verb ``follower fetch-path``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FetchAssumptions
from snaprebuild.cli.options.remote_storage import ConfiguredOptions
from snaprebuild.cli.render.leader_view import FollowerFetchPathView
from snaprebuild.cli.runs.log_and_tier import open_log_and_tier, store_and_path
from snaprebuild.cli.runs.remote_storage import key_files
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
from snaprebuild.followers.fetch_path import fetch_path

__all__ = ["run_follower_fetch_path"]


def run_follower_fetch_path(
    places: list[str], offset: int, assumed: FetchAssumptions, options: ConfiguredOptions, out: OutputOptions, s3: S3Options
) -> View:
    """Finds what serves a fetch at an offset."""
    out.begin(read={"private key": key_files(options)})
    source, tier = open_log_and_tier(*store_and_path(places), options, s3)
    result, findings = fetch_path(source, tier, offset, assumed.high_watermark, assumed.remote_storage)
    findings += start_concerns(source, findings, without=SNAPSHOTS_ALONE)
    return FollowerFetchPathView(result, findings, source)
