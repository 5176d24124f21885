"""The verb ``cluster image``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import S3Options, SelectionOptions
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import MetadataOffset, MetadataPath, QuorumAssumptions, VoterLogs
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["cluster_image"]


@verb()
def cluster_image(
    *,
    path: MetadataPath,
    metadata_offset: MetadataOffset = None,
    proven_only: Annotated[
        bool,
        option(
            "--proven-only",
            short="Use only what is proven to be committed",
            default="no",
        ),
    ] = False,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    partitions: SelectionOptions,
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
        metadata_offset=metadata_offset,
        proven_only=proven_only,
        voter=voter,
        voter_ids=assumed.voters,
        partitions=partitions,
        out=out,
        s3=s3,
    )
