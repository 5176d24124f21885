"""The verb ``tier inventory``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import StoreOrConfigured, TierInventoryOptions
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["tier_inventory"]


@verb()
def tier_inventory(*, store: StoreOrConfigured = None, options: TierInventoryOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Reads only: lists the copies of segments in remote storage, and the state of each with what proves it.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. One manifest
    is read for each copy. --metadata-log has the records of the copies, --metadata the removals of topics. Exit code 1 if
    objects are left over or missing, 4 if finished copies have lost objects.
    """
    from snaprebuild.cli.runs.tier_inventory import run_tier_inventory

    return run_tier_inventory(store, options, out, s3)
