"""The verb ``follower build``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import BuildAssumptions, FollowerBuildOptions
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import TierLocation
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_build"]


@verb(Load)
def follower_build(
    *,
    store: TierLocation,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Log directory of the broker that gets the follower.")],
    options: FollowerBuildOptions,
    assumed: BuildAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES the partition directory of an empty follower that starts where remote storage ends; an existing one is refused.

    STORE is a directory or s3://BUCKET/PREFIX with the objects. Stop the broker of DIR first. Merge the lines that are printed
    into its checkpoints, which are not touched. Then start it: it loads the producers with the log, and fetches the rest from
    its leader. Leader epochs and producers are those of the copy that holds the offset below the target. A snapshot that the
    copies contradict is rebuilt from them, or nothing is written. Before the start `undo RECEIPT` removes the directory; remove
    the lines, too. Exit code 1 if --allow-unproven wrote unproven producers, 3 if they are refused.
    """
    from snaprebuild.cli.runs.follower_build import run_follower_build

    return run_follower_build(store, directory, options, assumed.log_start, out, s3)
