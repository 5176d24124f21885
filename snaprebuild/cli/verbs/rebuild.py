"""The verbs ``plan``, ``rebuild`` and ``stage``."""

from __future__ import annotations

from snaprebuild.cli.options.common import DryRun, Jobs, ReceiptFile, S3Options
from snaprebuild.cli.options.reading import CachingEngine, EngineOptions, Load, LoadAlone
from snaprebuild.cli.options.rebuild_request import BrokerRunning, Out, RequestOptions, Results, Save, SavedPlan, StageTo
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["plan", "rebuild", "stage"]


@verb(LoadAlone, collects=False)
def plan(
    *,
    options: RequestOptions,
    directory: Out = None,
    to: StageTo = None,
    broker_running: BrokerRunning = False,
    save: Save = None,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows what `rebuild` would write, from where it would replay and why, and what that costs.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. The plan is that of `rebuild` with the same options, or of `stage` with --to. It reads the end of the last segment of
    each partition, and a sample that shows the speed. Exit code 1 if a wanted boundary is not planned, or if the next start of the
    broker does harm, as `scan` shows it.
    """
    from snaprebuild.cli.runs.plan import run_plan

    return run_plan(
        options,
        to_dir=directory,
        stage=to,
        broker_running=broker_running,
        save=save,
        engine=engine,
        out=out,
        s3=s3,
    )


@verb(Load)
def rebuild(
    *,
    options: RequestOptions,
    directory: Out = None,
    broker_running: BrokerRunning = False,
    plan: SavedPlan = None,
    dry_run: DryRun = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    engine: CachingEngine,
    results: Results = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES the missing snapshots into log directories. Never replaces an existing file.

    Stop the broker first. PATH is a partition directory, a log directory, or any directory above them; several may be named. The
    snapshots take effect when the broker next starts. Broker still running? Use `stage` now and `install` after the stop. Exit code 1
    if a wanted snapshot is not written, or if the next start does harm.
    """
    from snaprebuild.cli.runs.rebuild import run_rebuild

    return run_rebuild(
        options,
        to_dir=directory,
        broker_running=broker_running,
        plan=plan,
        dry_run=dry_run,
        receipt=receipt,
        jobs=jobs,
        engine=engine,
        results=results,
        out=out,
        s3=s3,
    )


@verb(Load)
def stage(
    *,
    options: RequestOptions,
    to: StageTo = None,
    plan: SavedPlan = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    results: Results = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES missing snapshots to a staging directory while the broker runs. Log directories are not changed.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. After the stop of the broker,
    `install --plan DIR/plan.jsonl` links the snapshots. Run it again later: only segments that were rolled since are replayed. Exit code 1
    if a wanted snapshot is not staged, or if the next start does harm.
    """
    from snaprebuild.cli.runs.stage import run_stage

    return run_stage(
        options,
        to=to,
        plan=plan,
        dry_run=dry_run,
        jobs=jobs,
        results=results,
        out=out,
        s3=s3,
    )
