"""The work of the verb ``tier repair``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import ExpiryOptions, S3Options, SelectionOptions
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.render.tier import TierRepairView
from snaprebuild.cli.runs.remote_storage import announced, key_files, private_keys, tier_root
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.tier.repair import repair

__all__ = ["run_tier_repair"]


def run_tier_repair(
    *,
    store: str,
    partitions: SelectionOptions,
    tier_options: TierOptions,
    allow_unverified: bool,
    dry_run: bool,
    receipt: str | None,
    expiry: ExpiryOptions,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Writes the right snapshots into remote storage, unless ``dry_run``."""
    out.begin(private_key=key_files(tier_options), receipt=receipt)
    check_directories([store, *(tier_options.metadata_log or [])], receipt=receipt)
    keys = private_keys(tier_options)
    clock = clock_at(expiry.as_of, expiry.expiration_ms)
    root, prefix = tier_root(store, s3, tier_options)
    result = repair.tier_repair(
        root,
        run_of(s3, clock=clock, jobs=jobs),
        selection=selection_of(partitions),
        metadata_logs=tier_options.metadata_log or (),
        private_keys=keys,
        key_prefix=prefix,
        announce=announced,
        allow_unverified=allow_unverified,
        undo_path=None if dry_run else receipt or default_receipt_path(None),
    )
    return TierRepairView(result, clock)
