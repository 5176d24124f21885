"""The verb ``report``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["report"]

PAGE = "snaprebuild-report.html"


@verb()
def report(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", hidden=True)] = None,
    html: Annotated[
        str,
        option(
            "--html",
            metavar="FILE",
            short="Path of the page; an older page of this program is replaced",
            default="snaprebuild-report.html",
        ),
    ] = PAGE,
    title: Annotated[
        str | None,
        option(
            "--title",
            metavar="TEXT",
            short="Title of the page",
            default="by content",
        ),
    ] = None,
    out: OutputOptions,
) -> View:
    """Reads only: writes one HTML page from the JSON results of other commands. Any browser opens it, without a network.

    FILE is what scan, fleet, verify, tier audit or inspect transactions print with --output json, or a receipt of rebuild. Several
    make one page, with one entry for each partition. The page shows the segments of each partition, the state of each boundary, the
    producers that a wrong snapshot forgets, and open transactions. Exit code 0 if the page is written, whatever it shows.
    """
    from snaprebuild.cli.runs.report import run_report

    return run_report(
        files=files,
        html=html,
        title=title,
        out=out,
    )
