"""The verb ``undo``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import DryRun, S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["undo"]


@verb()
def undo(
    *,
    receipt: Annotated[str | None, typer.Argument(metavar="[RECEIPT]", hidden=True)] = None,
    last: Annotated[
        bool,
        option(
            "--last",
            short="Take back the newest run that is not undone yet, without naming its receipt",
            default="name RECEIPT",
        ),
    ] = False,
    dry_run: DryRun = False,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """REMOVES the files that a run wrote, and puts back what it set aside. Without RECEIPT and --last, lists the receipts.

    RECEIPT is the file that `rebuild`, `install`, `before-start`, `follower build`, `follower repair`, `tier metadata` or `tier repair`
    left. If a run on Spark was killed and its file is lost, RECEIPT is the directory with its parts (`snaprebuild-part-*.jsonl`). Stop
    the broker first; for remote storage it may run. Only files that still have the bytes and the time of that run are removed. What was
    changed, replaced or written again by a later run is left alone and reported, exit code 1. A second undo finds nothing to do; one
    that was interrupted can be run again.
    """
    from snaprebuild.cli.runs.undo import run_undo

    return run_undo(
        receipt=receipt,
        last=last,
        dry_run=dry_run,
        out=out,
        s3=s3,
    )
