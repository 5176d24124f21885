"""The verb ``cluster source``."""

from __future__ import annotations

import os
from typing import Annotated

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import (
    Jobs,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    WholeNumber,
    check_directories,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import (
    AcceptOwnLog,
    BrokerEpoch,
    LeaderByWord,
    Metadata,
    Peers,
    QuorumAssumptions,
    VoterLogs,
    check_metadata,
    voter_log_of,
)
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.plan.source_verdict import Purpose

__all__ = ["cluster_source"]


@verb(Load)
def cluster_source(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
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
    offset: Annotated[
        int | None,
        option(
            "--offset",
            metavar="OFFSET",
            click_type=WholeNumber(0, INT64_MAX),
            short="Last offset of the metadata log to use",
            default="all of it",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    peer: Peers = None,
    i_am_the_leader: LeaderByWord = False,
    accept_own_log: AcceptOwnLog = False,
    broker_epoch: BrokerEpoch = None,
    topic: Topic = None,
    partition: Partition = None,
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
    from snaprebuild.cli.render.source import SourceView
    from snaprebuild.cluster.source_check.check import SourceQuestion, check_sources, start_findings
    from snaprebuild.storage.store import absolute

    out.begin()
    check_directories([*(paths or ()), *(peer or ())], server_properties=server_properties)
    if not paths and server_properties is None:
        raise UsageError("name at least one path, or the --server-properties of a broker")
    check_metadata(metadata)
    question = SourceQuestion(
        paths=tuple(absolute(path) for path in paths or ()),
        server_properties=None if server_properties is None else os.path.abspath(server_properties),
        purpose=purpose,
        metadata=None if metadata is None else absolute(metadata),
        requested_offset=offset,
        peers=tuple(absolute(path) for path in peer or ()),
        i_am_the_leader=i_am_the_leader,
        accept_own_log=accept_own_log,
        broker_epoch=broker_epoch,
        selection=selection_of(topic, partition, None),
        voters=tuple(voter_log_of(each) for each in voter or ()),
        voter_ids=assumed.voters,
    )
    run = s3.run(jobs=jobs)
    result = check_sources(question, run)
    return SourceView(result, [*result.findings, *start_findings(result, run)], everything=out.everything)
