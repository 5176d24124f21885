"""The work of the verb ``cluster isr``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import voter_logs_of
from snaprebuild.cli.render.metadata import IsrView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.metadata.isr_check import IsrQuestion, isr_check

__all__ = ["run_cluster_isr"]


def run_cluster_isr(
    *,
    path: str,
    voter: list[str] | None,
    voter_ids: tuple[int, ...] | None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Checks each change of in-sync replicas."""
    out.begin()
    others = voter_logs_of(voter)
    check_directories([path])
    return IsrView(isr_check(IsrQuestion(path, others, voter_ids), run_of(s3)))
