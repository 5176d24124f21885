"""The verb ``cluster isr``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import QuorumAssumptions, VoterLogs
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["cluster_isr"]


@verb()
def cluster_isr(
    *,
    path: Annotated[str, typer.Argument(metavar="DIR")],
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: checks each change of in-sync replicas in a metadata log against the invariant of KIP-903.

    DIR is a __cluster_metadata-0 directory, a log directory that holds it, or any directory above, also as s3://BUCKET/PREFIX.
    Findings are replicas that joined although their broker was fenced, shutting down or not registered. So are replicas that
    stayed when they should have left, or that lead on a disk without their data. What came before the log's oldest image is
    unknown. Each finding shows whether its record is proven to be committed: by a checkpoint, or by logs of a majority of the
    voters (--voter).
    """
    from snaprebuild.cli.runs.cluster_isr import run_cluster_isr

    return run_cluster_isr(
        path=path,
        voter=voter,
        voter_ids=assumed.voters,
        out=out,
        s3=s3,
    )
