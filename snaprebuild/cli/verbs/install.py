"""The verb ``install``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.loading import deadline_after
from snaprebuild.cli.options.common import Deadline, DryRun, Jobs, ReceiptFile, Sha256
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.rebuild import AcceptTopicIdZero
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.cli.wrapped_command import start_after, wrapped_command

__all__ = ["install"]


@verb(collects=False)
def install(
    *,
    plan: Annotated[
        str,
        option(
            "--plan",
            metavar="FILE",
            short="The staged plan: DIR/plan.jsonl, which `stage --to DIR` wrote",
            default="none, it is required",
        ),
    ],
    deadline: Deadline = None,
    dry_run: DryRun = False,
    require_plan: Annotated[
        str | None,
        option(
            "--require-plan",
            metavar="SHA256",
            click_type=Sha256(),
            short="Install only if the plan has this SHA-256, which --dry-run and sha256sum show; else refuse",
            default="any plan",
        ),
    ] = None,
    accept_topic_id_zero: AcceptTopicIdZero = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    out: OutputOptions,
) -> View:
    """WRITES staged snapshots into the log directories of a stopped broker, as hard links, within seconds. Never replaces a file.

    The run locks every log directory of the broker. It links each staged snapshot whose segments are unchanged, and replays the
    segments that were rolled since. The partition with the most bytes that cannot be uploaded comes first. The snapshots take effect
    when the broker next starts. Exit code 1 if a snapshot that is due is not installed, or if the next start does harm. With CMD it
    then becomes CMD, whatever the result is, as `before-start` does.
    """
    command = wrapped_command(as_json=out.as_json)
    until = None if deadline is None else deadline_after(deadline)
    if command is not None:
        start_after(command, deadline=until)
    # After the fork: a module that is damaged ends the work, and CMD starts.
    from snaprebuild.cli.runs.install import run_install

    return run_install(
        plan=plan,
        deadline_seconds=deadline,
        until=until,
        dry_run=dry_run,
        require_plan=require_plan,
        accept_topic_id_zero=accept_topic_id_zero,
        receipt=receipt,
        jobs=jobs,
        starts_broker=command is not None,
        out=out,
    )
