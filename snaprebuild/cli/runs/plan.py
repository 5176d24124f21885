"""The work of the verb ``plan``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import EngineName, EngineOptions
from snaprebuild.cli.options.rebuild_request import RequestOptions
from snaprebuild.cli.render.rebuild import RebuildPlanView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.rebuild_request import request_of, request_words
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_plan import judged_plan
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.plan.plan_file import save_plan
from snaprebuild.snapshots.staging.resume import rehearsed

__all__ = ["run_plan"]


def run_plan(
    options: RequestOptions,
    *,
    to_dir: str | None,
    stage: list[str] | None,
    broker_running: bool,
    save: str | None,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Plans what ``rebuild`` or ``stage`` would write, and saves the plan if ``save`` names a file."""
    out.begin({"--save": save})
    request = request_of(options, s3, to_dir=to_dir, stage=stage, broker_running=broker_running)
    if stage and engine.engine is EngineName.SPARK:
        if given_options(["engine"]):
            raise UsageError("--to builds on the disks of the broker, with processes of its machine: not with --engine spark")
        engine = EngineOptions()
    with engine_of(engine) as chosen:
        planned = judged_plan(request, run_of(), measure_rate=True, parallel_map=chosen.planning())
    if save is not None:
        save_plan(planned, save)
    return RebuildPlanView(rehearsed(planned), request_words(), save)
