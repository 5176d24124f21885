"""The verb ``tier repair``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    AllowUnverified,
    ExpiryOptions,
    Jobs,
    PartitionOptions,
    S3Options,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["tier_repair"]


@verb()
def tier_repair(
    *,
    store: TierLocation,
    partitions: PartitionOptions,
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
    expiry: ExpiryOptions,
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
    from snaprebuild.cli.runs.tier_repair import run_tier_repair

    return run_tier_repair(
        store=store,
        partitions=partitions,
        tier_options=tier_options,
        allow_unverified=allow_unverified,
        dry_run=dry_run,
        receipt=receipt,
        expiry=expiry,
        jobs=jobs,
        out=out,
        s3=s3,
    )
