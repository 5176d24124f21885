"""The verb ``cluster history``."""

from __future__ import annotations

from typing import Annotated

from formats.limits import INT32_MAX
from snaprebuild.cli.options.common import S3Options, SelectionOptions, WholeNumber
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import MetadataPath, QuorumAssumptions, VoterLogs
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["cluster_history"]


@verb()
def cluster_history(
    *,
    path: MetadataPath,
    partitions: SelectionOptions,
    broker: Annotated[
        int | None,
        option(
            "--broker",
            metavar="ID",
            click_type=WholeNumber(0, INT32_MAX),
            short="Show the registrations of this broker or controller, and how many partitions it leads",
            default="none",
        ),
    ] = None,
    since: Annotated[
        str | None,
        option(
            "--since",
            metavar="OFFSET|TIME",
            short="First offset or time (ISO 8601, UTC without a zone) of the history; what was before is one entry",
            default="the start of the log",
        ),
    ] = None,
    until: Annotated[
        str | None,
        option(
            "--until",
            metavar="OFFSET|TIME",
            short="Last offset or time of the history",
            default="the end of the log",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: the history of selected partitions (--topic) or of a broker (--broker), as the metadata log has it.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX.
    The history begins with the log, or with the oldest whole checkpoint at its beginning. A chart shows who led and who was in
    sync, the table below it each change; --since and --until choose a part. A topic that was deleted and created again is another
    one, with another id.
    """
    from snaprebuild.cli.runs.cluster_history import run_cluster_history

    return run_cluster_history(
        path=path,
        partitions=partitions,
        broker=broker,
        since=since,
        until=until,
        voter=voter,
        voter_ids=assumed.voters,
        out=out,
        s3=s3,
    )
