"""The verb ``follower plan``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerPlanOptions, PlanAssumptions
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import LogPath, TierLocation
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_plan"]


@verb(Load)
def follower_plan(
    *, store: TierLocation, path: LogPath, options: FollowerPlanOptions, assumed: PlanAssumptions, out: OutputOptions, s3: S3Options
) -> View:
    """Reads only: how an empty follower would start from remote storage (KIP-1023), and what it would replicate.

    STORE is a directory or s3://BUCKET/PREFIX with the copies of the leader's segments. PATH is a partition directory, a log
    directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. It shows the row of the table in
    docs/reference/offsets.md, the requests and answers, and the follower's log after each. Exit code 1 if it would never start or
    if offsets contradict one another.
    """
    from snaprebuild.cli.runs.follower_plan import run_follower_plan

    return run_follower_plan(store, path, options, assumed, out, s3)
