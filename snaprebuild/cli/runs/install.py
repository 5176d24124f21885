"""The work of the verb ``install``, after the process that starts the broker was forked."""

from __future__ import annotations

import time

from snaprebuild.cli.file_kinds import STAGED_PLAN, check_file
from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.render.install import InstallView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import NextStartJudge
from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.errors import UsageError
from snaprebuild.snapshots import install as installing
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan

__all__ = ["run_install"]


def run_install(
    *,
    plan: str,
    deadline_seconds: int | None,
    until: float | None,
    dry_run: bool,
    require_plan: str | None,
    accept_topic_id_zero: bool,
    receipt: str | None,
    jobs: int | None,
    starts_broker: bool,
    out: OutputOptions,
) -> View:
    """Links the snapshots of a staged plan, unless ``dry_run``.

    Args:
        plan: path of the staged plan.
        deadline_seconds: value of ``--deadline``, for the document.
        until: a ``time.monotonic()`` after which no further partition is taken; None for none.
        dry_run: checks everything, and changes nothing.
        require_plan: SHA-256 that the plan must have; None for any.
        accept_topic_id_zero: value of ``--accept-topic-id-zero``.
        receipt: path of the receipt; None for the default.
        jobs: value of ``--jobs``.
        starts_broker: the broker is started afterwards.
        out: where the result goes.
    """
    began = time.perf_counter()
    check_paths([plan])
    out.begin(new_files={"--receipt": receipt}, read={"plan": plan})
    try:
        staged = load_staged_plan(plan)
    except UsageError:
        check_file(plan, STAGED_PLAN)  # not before: a good plan is read once while the broker waits
        raise
    if require_plan is not None:
        staged.require(require_plan)
    load_seconds = time.perf_counter() - began
    receipt_file = default_receipt_path(None) if receipt is None else receipt
    try:
        result = installing.install(
            staged,
            judge_plans,
            NextStartJudge(),
            run_of(jobs=jobs, deadline=until),
            dry_run=dry_run,
            receipt=receipt_file,
            accept_topic_id_zero=accept_topic_id_zero,
        )
    except KeyboardInterrupt:
        if not dry_run:
            undo = "(`snaprebuild undo` takes it back)"
            print_on_stderr(f"receipt of what was installed, if anything was: {shown(receipt_file)} {undo}")
        raise
    return InstallView(
        staged,
        result,
        {"load": load_seconds, **result.phase_seconds},
        deadline_seconds=deadline_seconds,
        starts_broker=starts_broker,
    )
