"""The verb ``tier repair``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    AllowUnverified,
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    check_paths,
    clock_at,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions, opened_tier
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["tier_repair"]


@verb()
def tier_repair(
    *,
    store: TierLocation,
    topic: Topic = None,
    partition: Partition = None,
    tier_options: TierOptions,
    allow_unverified: AllowUnverified = False,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            short="Show what would be written, and write nothing",
            default="no",
        ),
    ] = False,
    receipt: Annotated[
        str | None,
        option(
            "--receipt",
            metavar="FILE",
            short="Where to record the repair for `undo`; never replaced",
            default="a new file in $XDG_STATE_HOME/snaprebuild (~/.local/state/snaprebuild). If that is in a log directory or "
            "cannot be written to: the current directory",
        ),
    ] = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES the right producer snapshots into remote storage, for copies of segments whose snapshot is wrong.

    STORE is a directory or s3://BUCKET/PREFIX with the objects of Aiven's plugin. The command audits it first, and
    repairs only what the segments there prove. It appends the right snapshot to .indexes, and then changes the manifest to name it.
    Each write fails if the object has changed. After an interruption, run the same command again. Exit code 1 if a wrong snapshot
    stays, 3 if one was refused.
    """
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cli.render.tier import TierRepairView
    from snaprebuild.snapshots.receipts.receipt import default_receipt_path
    from snaprebuild.tier.repair import repair

    out.begin(private_key=tier_options.key_files, receipt=receipt)
    check_paths([store, *(tier_options.metadata_log or [])], receipt=receipt)
    keys = tier_options.keys()
    clock = clock_at(as_of, expiration_ms)
    root, prefix = opened_tier(store, s3, tier_options.key_prefix)
    result = repair.tier_repair(
        root,
        s3.run(clock=clock, jobs=jobs),
        selection=selection_of(topic, partition, None),
        metadata_logs=tier_options.metadata_log or (),
        private_keys=keys,
        key_prefix=prefix,
        announce=announced,
        allow_unverified=allow_unverified,
        undo_path=None if dry_run else receipt or default_receipt_path(None),
    )
    return TierRepairView(result, clock)
