"""The work of the verb ``cluster source``."""

from __future__ import annotations

import os

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.metadata import check_metadata, voter_logs_of
from snaprebuild.cli.render.source import SourceView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.source_check.check import check_sources, start_findings
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.storage.store import absolute

__all__ = ["run_cluster_source"]


def run_cluster_source(
    *,
    logs: LogOptions,
    purpose: Purpose,
    metadata: str | None,
    metadata_offset: int | None,
    voter: list[str] | None,
    voter_ids: tuple[int, ...] | None,
    peer: list[str] | None,
    i_am_the_leader: bool,
    accept_own_log: bool,
    broker_epoch: int | None,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Decides whether replicas may be a source."""
    out.begin()
    check_directories([*(logs.paths or ()), *(peer or ())], server_properties=logs.server_properties)
    if not logs.paths and logs.server_properties is None:
        raise UsageError("name at least one path, or the --server-properties of a broker")
    check_metadata(metadata)
    voters = voter_logs_of(voter)
    question = SourceQuestion(
        paths=tuple(absolute(path) for path in logs.paths or ()),
        server_properties=None if logs.server_properties is None else os.path.abspath(logs.server_properties),
        purpose=purpose,
        metadata=None if metadata is None else absolute(metadata),
        requested_offset=metadata_offset,
        peers=tuple(absolute(path) for path in peer or ()),
        i_am_the_leader=i_am_the_leader,
        accept_own_log=accept_own_log,
        broker_epoch=broker_epoch,
        selection=selection_of(logs),
        voters=tuple(location for _, location in voters),
        named_voters={location: node_id for node_id, location in voters if node_id is not None},
        voter_ids=voter_ids,
    )
    run = run_of(s3, jobs=jobs)
    result = check_sources(question, run)
    return SourceView(result, [*result.findings, *start_findings(result, run)], everything=out.everything)
