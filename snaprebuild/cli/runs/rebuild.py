"""The work of the verb ``rebuild``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.rebuild_request import RequestOptions
from snaprebuild.cli.render.rebuild import RebuildView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.rebuild_request import begin_run, check_only_plan, new_plan, request_of, request_words, saved_plan
from snaprebuild.cli.runs.run_settings import command_run, run_facts
from snaprebuild.cli.streams import bytes_progress, print_on_stderr
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_plan import rebuild_findings
from snaprebuild.snapshots.rebuild import run as rebuilding
from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path

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
    results_file = begin_run(out, plan, results, {"--receipt": receipt})
    facts = run_facts()
    with engine_of(engine) as chosen:
        if plan is None:
            request = request_of(options, s3, to_dir=to_dir, broker_running=broker_running)
            planned = new_plan(request, chosen)
        else:
            check_only_plan(options, has_destination=to_dir is not None or broker_running)
            planned = saved_plan(plan, is_staged=False)
        chosen.keep_effects((partition.source for partition in planned.partitions), planned.request.s3)
        written = Receipt(receipt or default_receipt_path(planned.request.destination.receipt_directory), planned)
        try:
            with bytes_progress("replaying", planned.min_read_bytes) as progress:
                run = command_run(jobs=jobs, engine=chosen.reading(planned.min_read_bytes, progress))
                result = rebuilding.rebuild(planned, run, dry_run=dry_run, receipt=written, progress=progress)
        except BaseException:
            if written.is_there:
                print_on_stderr(f"receipt of what was written: {shown(written.path)} (`snaprebuild undo` takes it back)")
            raise
    return RebuildView(result, rebuild_findings(result, facts), request_words(), cache=chosen.cache, results_file=results_file)
