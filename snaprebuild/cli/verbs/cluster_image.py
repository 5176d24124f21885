"""The verb ``cluster image``."""

from __future__ import annotations

from typing import Annotated, Any

import click

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import S3Options, Topic, quoted
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import MetadataPath, QuorumAssumptions, VoterLogs
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["cluster_image"]


class OffsetOrProven(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """An offset, or the word for the last one that is proven."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error if it is neither."""
        text = str(value)
        if text != "proven" and not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= INT64_MAX):
            self.fail(f"expected an offset or 'proven', found {quoted(text)}", param, ctx)
        return text


@verb()
def cluster_image(
    *,
    path: MetadataPath,
    offset: Annotated[
        str | None,
        option(
            "--offset",
            metavar="OFFSET",
            click_type=OffsetOrProven(),
            short="Last offset to use, or 'proven' for the last offset that is proven to be committed",
            default="all of the log",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    topic: Topic = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows the cluster as a metadata log describes it, and how much of that is proven to be committed.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX.
    The image is the newest whole checkpoint and the log after it: brokers, controllers, topics with their partitions, features,
    configurations, ACLs, credentials, quotas. Secrets are masked as a broker masks them. The end of one log may not be
    committed. Proven is what a checkpoint holds, and what the logs of a majority of the voters share (--voter).
    """
    from snaprebuild.cli.runs.cluster_image import run_cluster_image

    return run_cluster_image(
        path=path,
        offset=offset,
        voter=voter,
        voter_ids=assumed.voters,
        topic=topic,
        out=out,
        s3=s3,
    )
