"""The verb ``cluster advise``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.cluster_advise import AdviseAssumptions
from snaprebuild.cli.options.common import AsOf, S3Options, ServerProperties
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.verbs.simulate_metadata_log import Followers
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.log_start import FollowerMode

__all__ = ["cluster_advise"]


@verb()
def cluster_advise(
    *,
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]")] = None,
    others: Annotated[list[str] | None, typer.Argument(metavar="[OTHER...]")] = None,
    server_properties: ServerProperties = None,
    followers: Followers = FollowerMode.STRICT,
    as_of: AsOf = None,
    assumed: AdviseAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows where each policy would move the start of a metadata log now, and which nodes would have to load a checkpoint.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it. Each OTHER is the
    directory of another node of the quorum; its log end is what that node has fetched. Without DIR, --server-properties names the
    directory. The policies are those of `simulate metadata-log`.
    """
    from snaprebuild.cli.runs.cluster_advise import run_cluster_advise

    return run_cluster_advise(
        directory=directory,
        others=others,
        server_properties=server_properties,
        followers=followers,
        as_of=as_of,
        assumed=assumed,
        out=out,
        s3=s3,
    )
