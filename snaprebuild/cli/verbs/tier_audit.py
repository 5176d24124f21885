"""The verb ``tier audit``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    ExpiryOptions,
    Jobs,
    S3Options,
    SelectionOptions,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.tier import AuditLevel

__all__ = ["tier_audit"]


@verb(Load)
def tier_audit(
    *,
    store: TierLocation,
    partitions: SelectionOptions,
    tier_options: TierOptions,
    level: Annotated[
        AuditLevel,
        option(
            "--level",
            short="full: replay every segment",
            details="reachable: replay one --expiration-ms, for the snapshots from which a follower may still start. structure: "
            "parse manifests and snapshots only.",
            default="full",
        ),
    ] = AuditLevel.FULL,
    local_log_start: Annotated[
        list[str] | None,
        option(
            "--local-log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            short="First offset on the leader's disk, for each partition; repeatable",
            details="For --level reachable.",
            default="none, only the last copy counts as reachable",
        ),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        option(
            "--log-dir",
            metavar="DIR",
            short="Log directory with the first offset on disk, best the leader's; repeatable",
            details="For --level reachable.",
            default="none",
        ),
    ] = None,
    metadata: Metadata = None,
    expiry: ExpiryOptions,
    jobs: Jobs = None,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: compares each producer snapshot in remote storage with a replay of the segments there.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. For each
    wrong snapshot it shows what a follower that starts from it would do. Without --metadata-log all complete copies count as
    live. If remote storage begins above offset 0, earlier producers are unknown, and a snapshot from which all later ones
    follow is consistent. Exit code 1 if a snapshot is wrong, suspect, unproven or not read, 4 if one does not parse.
    """
    from snaprebuild.cli.runs.tier_audit import run_tier_audit

    return run_tier_audit(
        store=store,
        partitions=partitions,
        tier_options=tier_options,
        level=level,
        local_log_start=local_log_start,
        log_dir=log_dir,
        metadata=metadata,
        expiry=expiry,
        jobs=jobs,
        engine=engine,
        out=out,
        s3=s3,
    )
