"""The work of the verb ``rebuild``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import EngineOptions
from snaprebuild.cli.options.rebuild_request import RequestOptions
from snaprebuild.cli.render.rebuild import RebuildView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.rebuild_request import begin_run, check_only_plan, new_plan, request_of, request_words, saved_plan
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.streams import bytes_progress, notes_on_stderr
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_rebuild import judged_rebuild

__all__ = ["run_rebuild"]


def run_rebuild(
    options: RequestOptions,
    *,
    to_dir: str | None,
    broker_running: bool,
    plan: str | None,
    dry_run: bool,
    receipt: str | None,
    jobs: int | None,
    engine: EngineOptions,
    results: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Writes the snapshots of a new or a saved plan, unless ``dry_run``."""
    results_file = begin_run(out, plan, results, receipt=receipt)
    with engine_of(engine) as chosen:
        if plan is None:
            request = request_of(options, s3, to_dir=to_dir, broker_running=broker_running)
            planned = new_plan(request, chosen)
        else:
            check_only_plan(options, has_destination=to_dir is not None or broker_running)
            planned = saved_plan(plan, is_staged=False)
        chosen.keep_effects((partition.source for partition in planned.partitions), planned.request.s3)
        with notes_on_stderr(), bytes_progress("replaying", planned.min_read_bytes) as progress:
            run = run_of(jobs=jobs, engine=chosen.reading(planned.min_read_bytes, progress))
            rebuilt = judged_rebuild(planned, run, dry_run=dry_run, receipt=receipt, progress=progress)
    return RebuildView(rebuilt.result, rebuilt.findings, request_words(), cache=chosen.cache, results_file=results_file)
