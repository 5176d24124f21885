"""The verb ``follower fetch-path``."""

from __future__ import annotations

from snaprebuild.cli.options.common import LogOffset, S3Options
from snaprebuild.cli.options.followers import FetchAssumptions
from snaprebuild.cli.options.reading import LoadAlone
from snaprebuild.cli.options.remote_storage import ConfiguredOptions, StoreAndPath
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_fetch_path"]


@verb(LoadAlone)
def follower_fetch_path(
    *,
    places: StoreAndPath,
    offset: LogOffset = None,
    assumed: FetchAssumptions,
    options: ConfiguredOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: what serves a fetch at an offset, and what deleting the records below it would remove.

    STORE is a directory or s3://BUCKET/PREFIX with the copies of the leader's segments. PATH is a partition directory, a log
    directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. Exit code 1 if nothing serves an offset inside of the
    log, 4 if objects of the copy that holds it are gone.
    """
    from snaprebuild.cli.runs.follower_fetch_path import run_follower_fetch_path

    return run_follower_fetch_path(places, offset or 0, assumed, options, out, s3)
