"""The verb ``follower offsets``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import OffsetsAssumptions, OffsetsOptions
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import StoreAndPath
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_offsets"]


@verb(Load)
def follower_offsets(
    *, places: StoreAndPath, options: OffsetsOptions, assumed: OffsetsAssumptions, out: OutputOptions, s3: S3Options
) -> View:
    """Reads only: what the leader would answer to ListOffsets, and which rule decides.

    STORE is a directory or s3://BUCKET/PREFIX with the copies of the leader's segments. PATH is a partition directory, a log
    directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's; without it the answers from remote storage are
    unknown. Timestamps from 0 on are looked for there first, then on disk. What no file shows is assumed, and marked with a
    star.
    """
    from snaprebuild.cli.runs.follower_offsets import run_follower_offsets

    return run_follower_offsets(places, options, assumed, out, s3)
