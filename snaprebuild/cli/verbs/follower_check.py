"""The verb ``follower check``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerCheckOptions
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import LogPath, TierLocation
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["follower_check"]


@verb(Load)
def follower_check(
    *, store: TierLocation, path: LogPath, options: FollowerCheckOptions, out: MeasuredOutput, s3: S3Options
) -> View:
    """Reads only: finds replicas that lost their producer state when they started from remote storage, and what they lost.

    STORE is a directory or s3://BUCKET/PREFIX with the objects. PATH is a partition directory, a log directory, or any directory
    above them. The right state at the first local offset is the snapshot of the copy that ends there, compared with a replay
    of the copies. Above it the replica's own segments are added. Producers that have expired at --as-of are no loss. Exit code
    1 if a replica lost producers or cannot be checked.
    """
    from snaprebuild.cli.runs.follower_check import run_follower_check

    return run_follower_check(store, path, options, out, s3)
