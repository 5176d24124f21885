"""The verb ``tier metadata``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import StoreOrConfigured
from snaprebuild.cli.options.tier_metadata import TierMetadataOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["tier_metadata"]


@verb()
def tier_metadata(*, store: StoreOrConfigured = None, options: TierMetadataOptions, out: OutputOptions, s3: S3Options) -> View:
    """WRITES the records of __remote_log_metadata that remote storage proves; only shows them without --records-file or --log-dirs.

    STORE is a directory or s3://BUCKET/PREFIX with the objects. Each fact of a record has its source. With --metadata-log the
    command compares the records with the objects. No copy becomes readable that was not: copies below the log start offset,
    deleted and superseded ones get no record. The records are for a topic without any. Exit code 1 if offsets are in no copy, 3 if
    records may not be written, 4 if records and objects differ.
    """
    from snaprebuild.cli.runs.tier_metadata import run_tier_metadata

    return run_tier_metadata(store, options, out, s3)
