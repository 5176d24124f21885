"""The verb ``cluster source``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    Jobs,
    LogOptions,
    S3Options,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import (
    AcceptOwnLog,
    BrokerEpoch,
    LeaderByWord,
    Metadata,
    MetadataOffset,
    Peers,
    QuorumAssumptions,
    VoterLogs,
)
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.snapshots.plan.source_verdict import Purpose

__all__ = ["cluster_source"]


@verb(Load)
def cluster_source(
    *,
    logs: LogOptions,
    purpose: Annotated[
        Purpose,
        option(
            "--purpose",
            short="What the replicas are the source of",
            details="rebuild: snapshots of their own segments. upload: copies in remote storage. bootstrap: the log of another replica.",
            default="rebuild",
        ),
    ] = Purpose.REBUILD,
    metadata: Metadata = None,
    metadata_offset: MetadataOffset = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    peer: Peers = None,
    i_am_the_leader: LeaderByWord = False,
    accept_own_log: AcceptOwnLog = False,
    broker_epoch: BrokerEpoch = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows whether replicas may be the source of snapshots, of uploads, or of another replica, and which rule decides.

    PATH is a partition directory, a log directory, or any directory above them; several may be named, also as s3://BUCKET/PREFIX.
    The verdict is TRUSTED, TRUSTED_BELOW an offset, UNKNOWN if evidence is missing that should exist, or REJECTED by the first
    rule that fails. Evidence that a cluster cannot have is not missing: before KRaft there is no metadata log. Exit code 1 if a verdict
    is UNKNOWN, or only directories that no broker serves are REJECTED; 3 if any other replica is REJECTED.
    """
    from snaprebuild.cli.runs.cluster_source import run_cluster_source

    return run_cluster_source(
        logs=logs,
        purpose=purpose,
        metadata=metadata,
        metadata_offset=metadata_offset,
        voter=voter,
        voter_ids=assumed.voters,
        peer=peer,
        i_am_the_leader=i_am_the_leader,
        accept_own_log=accept_own_log,
        broker_epoch=broker_epoch,
        jobs=jobs,
        out=out,
        s3=s3,
    )
