"""The work of the verb ``cluster check``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.render.quorum import QuorumCheckView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.quorum.rules import Followers
from snaprebuild.snapshots.run import current_time_ms

__all__ = ["run_cluster_check"]


def run_cluster_check(
    *,
    directories: list[str],
    leader: str | None,
    followers: Followers,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Checks metadata logs by rules K1 to K20."""
    out.begin()
    check_directories([*directories, *([] if leader is None else [leader])])
    return QuorumCheckView(check_quorum(directories, followers, leader, current_time_ms(), run_of(s3)))
