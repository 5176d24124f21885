"""The work of the verb ``tier inventory``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import RemoteOptions
from snaprebuild.cli.render.tier import TierInventoryView
from snaprebuild.cli.runs.remote_storage import store_access
from snaprebuild.cli.runs.run_settings import stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.tier import inventory

__all__ = ["run_tier_inventory"]


def run_tier_inventory(store: str, options: RemoteOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Lists the copies of segments in remote storage."""
    out.begin()
    check_directories([store, *(options.metadata_log or [])])
    access = store_access(store, s3, options)
    result, findings = inventory.tier_inventory(access, stores_of(s3), selection_of(options))
    return TierInventoryView(result, findings, options.private_key)
