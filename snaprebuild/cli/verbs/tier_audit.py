"""The verb ``tier audit``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import EngineOptions, Load
from snaprebuild.cli.options.remote_storage import StoreOrConfigured, TierAuditOptions
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["tier_audit"]


@verb(Load)
def tier_audit(
    *, store: StoreOrConfigured = None, options: TierAuditOptions, engine: EngineOptions, out: MeasuredOutput, s3: S3Options
) -> View:
    """Reads only: compares each producer snapshot in remote storage with a replay of the segments there.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. For each
    wrong snapshot it shows what a follower that starts from it would do. Without --metadata-log all complete copies count as
    live. If remote storage begins above offset 0, earlier producers are unknown, and a snapshot from which all later ones
    follow is consistent. Exit code 1 if a snapshot is wrong, suspect, unproven or not read, 4 if one does not parse.
    """
    from snaprebuild.cli.runs.tier_audit import run_tier_audit

    return run_tier_audit(store, options, engine, out, s3)
