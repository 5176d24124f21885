"""The verb ``cluster isr``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_directories
from snaprebuild.cli.options.metadata import QuorumAssumptions, VoterLogs, voter_log_of
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["cluster_isr"]


@verb()
def cluster_isr(
    *,
    path: Annotated[str, typer.Argument(metavar="DIR")],
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: checks each change of in-sync replicas in a metadata log against the invariant of KIP-903.

    DIR is a __cluster_metadata-0 directory, a log directory that holds it, or any directory above, also as s3://BUCKET/PREFIX.
    Findings are replicas that joined although their broker was fenced, shutting down or not registered. So are replicas that
    stayed when they should have left, or that lead on a disk without their data. What came before the log's oldest image is
    unknown. Each finding shows whether its record is proven to be committed: by a checkpoint, or by logs of a majority of the
    voters (--voter).
    """
    from snaprebuild.cli.render.metadata import IsrView
    from snaprebuild.cluster.metadata.isr_check import IsrQuestion, isr_check

    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_directories([path, *(each for _, each in others)])
    return IsrView(isr_check(IsrQuestion(path, others, assumed.voters), s3.run()))
