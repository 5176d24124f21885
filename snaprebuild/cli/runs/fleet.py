"""The work of the verb ``fleet``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import SCAN_RESULT, check_file
from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.options.kafka_release import fleet_release_of
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.render.fleet import FleetView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.fleet.cluster_view import read_cluster_view
from snaprebuild.cluster.fleet.elections import write_elections
from snaprebuild.cluster.fleet.merge import merge_scans
from snaprebuild.documents.saved_scans import saved_scans
from snaprebuild.errors import UsageError

__all__ = ["run_fleet"]


def run_fleet(
    *,
    files: list[str] | None,
    metadata: str | None,
    controller: list[int] | None,
    elections: str | None,
    allow_election_risk: bool,
    kafka_release: str | None,
    rate: int | None,
    retention_bytes: int | None,
    down: list[int] | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Merges scans, and writes the files of elections if they are asked for."""
    check_paths(files, elections=elections)
    check_metadata(metadata)
    for path in files or ():
        check_file(path, SCAN_RESULT)
    if elections is not None and metadata is None:
        raise UsageError("--elections needs --metadata, which has the replicas of each partition in order")
    release = fleet_release_of(kafka_release)
    out.begin(read={"scan": files})
    view = None if metadata is None else read_cluster_view(metadata, run_of(s3))
    result = merge_scans(
        saved_scans(files or []),
        view,
        frozenset(controller or ()),
        None if rate is None else rate << 20,
        release=release,
        retention_bytes=retention_bytes,
        allows_risk=allow_election_risk,
        down=frozenset(down or ()),
    )
    election_paths = [] if elections is None else write_elections(result.elections() or (), elections)
    return FleetView(result, view, election_paths)
