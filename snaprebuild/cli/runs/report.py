"""The work of the verb ``report``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import REPORTED, check_file
from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.render.report import ReportView, partition_next_command
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.report.make import make_report

__all__ = ["run_report"]

TITLE_CHARS_MAX = 200


def run_report(
    *,
    files: list[str] | None,
    html: str,
    title: str | None,
    out: OutputOptions,
) -> View:
    """Writes the page of the documents."""
    check_paths(files, html=html)
    for path in files or ():
        check_file(path, REPORTED)
    out.begin({"--html": html}, read={"document": files})
    if title is not None and not 0 < len(title) <= TITLE_CHARS_MAX:
        raise UsageError(f"--title: expected 1 to {TITLE_CHARS_MAX} characters, found {len(title)}")
    return ReportView(make_report(files or [], html, title, partition_next_command))
