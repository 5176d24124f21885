"""The verb ``install``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.launch import deadline_after
from snaprebuild.cli.options.common import Jobs, ReceiptFile, Sha256, check_paths, deadline_option
from snaprebuild.cli.options.kafka_release import release_words
from snaprebuild.cli.options.rebuild import AcceptTopicIdZero
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.wrapped_command import start_after, wrapped_command

__all__ = ["install"]


@verb(collects=False)
def install(
    *,
    plan: Annotated[str, typer.Argument(metavar="PLAN", hidden=True)],
    deadline: Annotated[
        int | None,
        deadline_option("Take no further partition after this time; run the same command again later for the rest"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check everything, staged bytes included, and change nothing; the broker may run. Default: install.",
        ),
    ] = False,
    require_plan: Annotated[
        str | None,
        typer.Option(
            "--require-plan",
            metavar="SHA256",
            click_type=Sha256(),
            help="Install only if PLAN has this SHA-256, which --dry-run and sha256sum show; else refuse. Default: any plan.",
        ),
    ] = None,
    accept_topic_id_zero: AcceptTopicIdZero = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    out: OutputOptions,
) -> Result:
    """WRITES staged snapshots into the log directories of a stopped broker, as hard links, within seconds. Never replaces a file.

    PLAN is DIR/plan.jsonl, which `stage --to DIR` wrote. The run locks every log directory of the broker. It links each staged
    snapshot whose segments are unchanged, and replays the segments that were rolled since. The partition with the most bytes
    that cannot be uploaded comes first. The snapshots take effect when the broker next starts. Exit code 1 if a snapshot that is
    due is not installed, or if the next start does harm. With CMD it then becomes CMD, whatever the result is, as `before-start` does.
    """
    command = wrapped_command(as_json=out.as_json)
    until = None if deadline is None else deadline_after(deadline)
    if command is not None:
        start_after(command, deadline=until)
    # After the fork: a module that is damaged ends the work, and CMD starts.
    from snaprebuild.cli.render.install import install_answer, install_document, print_install
    from snaprebuild.cli.render.readiness import answer_with_refusal
    from snaprebuild.cli.render.rebuild import request_words
    from snaprebuild.cli.render.unsafe_start import answer_with_fate
    from snaprebuild.cli.result import shown
    from snaprebuild.cluster.scan_storage import NextStartJudge
    from snaprebuild.cluster.source_check.plan_gate import judge_plans
    from snaprebuild.snapshots.install import install as carry_out
    from snaprebuild.snapshots.receipts.receipt import default_receipt_path
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.staging.staged_plan import load_staged_plan

    began = time.perf_counter()
    check_paths([plan])
    out.begin({"--receipt": receipt}, plan=plan)
    staged = load_staged_plan(plan)
    if require_plan is not None:
        staged.require(require_plan)
    loaded = time.perf_counter() - began
    kept = default_receipt_path(None) if receipt is None else receipt
    try:
        result = carry_out(
            staged,
            judge_plans,
            NextStartJudge(),
            Run(facts=run_facts(), jobs=jobs, deadline=until),
            dry_run=dry_run,
            receipt=kept,
            accept_topic_id_zero=accept_topic_id_zero,
        )
    except KeyboardInterrupt:
        if not dry_run:
            print_on_stderr(f"receipt of what was installed, if anything was: {shown(kept)} (`snaprebuild undo` takes it back)")
        raise
    seconds = {"load": loaded, **result.seconds}

    def answer() -> tuple[str, list[str]]:
        plans = result.plan.partitions
        request = result.plan.request
        text = answer_with_refusal(install_answer(staged, result), (each.source for each in plans), request)
        selected = [*request_words(request), *release_words(request.kafka_release)]
        return answer_with_fate(text, plans, selected, result.plan.fates)

    return Result(
        lambda: install_document(staged, result, seconds, deadline),
        result.findings,
        lambda: print_install(staged, result, seconds),
        answer=answer,
        last=None if command is None else lambda: print_on_stderr(f"snaprebuild: {answer()[0]}"),
    )
