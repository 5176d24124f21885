"""The verb ``cluster check``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.rules import Followers

__all__ = ["Leader", "MetadataDirs", "cluster_check"]

MetadataDirs = Annotated[list[str], typer.Argument(metavar="DIR...")]
Leader = Annotated[
    str | None,
    option(
        "--leader",
        metavar="DIR",
        short="Directory of the leader",
        default="from quorum-state",
    ),
]


@verb()
def cluster_check(
    *,
    directories: MetadataDirs,
    leader: Leader = None,
    start_rule: Annotated[
        Followers,
        option(
            "--start-rule",
            short="Requirement for the start offset of a follower",
            details="kafka: none. strict: not beyond the leader's. literal: equal to the leader's, with or without a checkpoint.",
            default="kafka",
        ),
    ] = Followers.KAFKA,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: checks metadata logs of KRaft by rules K1 to K20: can a node start, do the nodes agree, which voter can be elected.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it; several are those of several
    nodes. It is safe while the node runs. Exit code 1 if a rule is violated, 4 if bytes are damaged or missing.
    """
    from snaprebuild.cli.runs.cluster_check import run_cluster_check

    return run_cluster_check(
        directories=directories,
        leader=leader,
        followers=start_rule,
        out=out,
        s3=s3,
    )
