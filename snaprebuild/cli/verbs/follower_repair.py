"""The verb ``follower repair``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerRepairOptions
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import LogPath, TierLocation
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_repair"]


@verb(Load)
def follower_repair(
    *, store: TierLocation, path: LogPath, options: FollowerRepairOptions, out: OutputOptions, s3: S3Options
) -> View:
    """WRITES the right snapshots into replicas that lost their producer state; wrong ones are replaced with --set-aside only.

    STORE and PATH are those of `follower check`. Stop the broker first. Each replica gets what remote storage has at its first
    local offset, and every snapshot above it anew, because a broker loads the newest. Nothing is written where the state is not
    proven, or where a broker would delete it (at or below the log start). `undo` takes it back. Exit code 1 if a snapshot
    stays wrong, 3 if one cannot be repaired; with --dry-run as if it had been written, so 0 if all would be right then.
    """
    from snaprebuild.cli.runs.follower_repair import run_follower_repair

    return run_follower_repair(store, path, options, out, s3)
