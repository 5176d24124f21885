"""The verb ``report``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["report"]

PAGE = "snaprebuild-report.html"

TITLE_CHARS_MAX = 200


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
    from snaprebuild.cli.file_kinds import REPORTED, check_file
    from snaprebuild.cli.render.report import ReportView
    from snaprebuild.report.make import make_report

    check_paths(files, html=html)
    for path in files or ():
        check_file(path, REPORTED)
    out.begin({"--html": html}, **{f"document {number}": path for number, path in enumerate(files or (), 1)})
    if title is not None and not 0 < len(title) <= TITLE_CHARS_MAX:
        raise UsageError(f"--title: expected 1 to {TITLE_CHARS_MAX} characters, found {len(title)}")
    return ReportView(make_report(files or [], html, title))
