"""The work of the verb ``cluster isr``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import voter_log_of
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
    others = tuple(voter_log_of(each) for each in voter or ())
    check_directories([path, *(each for _, each in others)])
    return IsrView(isr_check(IsrQuestion(path, others, voter_ids), run_of(s3)))
