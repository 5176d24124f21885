"""The verb ``tier repair``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import StoreOrConfigured, TierRepairOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["tier_repair"]


@verb(Load)
def tier_repair(*, store: StoreOrConfigured = None, options: TierRepairOptions, out: OutputOptions, s3: S3Options) -> View:
    """WRITES the right producer snapshots into remote storage, for copies of segments whose snapshot is wrong.

    STORE is a directory or s3://BUCKET/PREFIX with the objects of Aiven's plugin. The command audits it first, and
    repairs only what the segments there prove. It appends the right snapshot to .indexes, and then changes the manifest to name it.
    Each write fails if the object has changed. After an interruption, run the same command again. Exit code 1 if a wrong snapshot
    stays, 3 if one was refused.
    """
    from snaprebuild.cli.runs.tier_repair import run_tier_repair

    return run_tier_repair(store, options, out, s3)
