"""The work of the verb ``stage``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import EngineOptions
from snaprebuild.cli.options.rebuild_request import RequestOptions
from snaprebuild.cli.render.rebuild import RebuildView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.rebuild_request import begin_run, check_only_plan, new_plan, request_of, request_words, saved_plan
from snaprebuild.cli.runs.run_settings import run_facts, run_of
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_plan import rebuild_findings
from snaprebuild.errors import UsageError
from snaprebuild.snapshots import stage as staging

__all__ = ["run_stage"]


def run_stage(
    options: RequestOptions,
    *,
    to: list[str] | None,
    plan: str | None,
    dry_run: bool,
    jobs: int | None,
    results: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Writes the snapshots of a new or a saved plan to a staging directory, unless ``dry_run``."""
    results_file = begin_run(out, plan, results)
    facts = run_facts()
    with engine_of(EngineOptions()) as here:
        if plan is None:
            if not to:
                raise UsageError("--to is missing: name a directory on the file system of the log directory, outside of it")
            planned = new_plan(request_of(options, s3, stage=to), here)
        else:
            check_only_plan(options, has_destination=bool(to))
            planned = saved_plan(plan, is_staged=True)
    with (
        staging.resumed(planned, dry_run=dry_run) as (planned, before),
        bytes_progress("replaying", planned.min_read_bytes) as progress,
    ):
        result = staging.stage(planned, before, run_of(jobs=jobs), dry_run=dry_run, progress=progress)
    return RebuildView(result, rebuild_findings(result, facts), request_words(), results_file=results_file)
