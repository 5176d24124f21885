"""The verb ``report``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents.report import Report
    from snaprebuild.report.make import ReportResult

__all__ = ["report"]

PAGE = "snaprebuild-report.html"

TITLE_CHARS_MAX = 200


@verb()
def report(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", hidden=True)] = None,
    html: Annotated[
        str,
        typer.Option(
            "--html",
            metavar="FILE",
            show_default=False,
            help="Path of the page; an older page of this program is replaced. Default: snaprebuild-report.html.",
        ),
    ] = PAGE,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page. Default: by content.")] = None,
    out: OutputOptions,
) -> Result:
    """Reads only: writes one HTML page from the JSON results of other commands. Any browser opens it, without a network.

    FILE is what scan, fleet, verify, tier audit or inspect transactions print with --output json, or a receipt of rebuild. Several
    make one page, with one entry for each partition. The page shows the segments of each partition, the state of each boundary, the
    producers that a wrong snapshot forgets, and open transactions. Exit code 0 if the page is written, whatever it shows.
    """
    from snaprebuild.report.make import make_report

    check_paths(files, html=html)
    out.begin({"--html": html}, **{f"document {number}": path for number, path in enumerate(files or (), 1)})
    if title is not None and not 0 < len(title) <= TITLE_CHARS_MAX:
        raise UsageError(f"--title: expected 1 to {TITLE_CHARS_MAX} characters, found {len(title)}")
    result = make_report(files or [], html, title)
    return Result(lambda: _document(result), [], lambda: _print(result))


def _document(result: ReportResult) -> Report:
    from snaprebuild.documents.report import Report, Source
    from snaprebuild.report.page_status import first_document, page_totals

    page = result.page
    first = first_document(page.documents)
    shown = page.partitions()
    return Report(
        unread=len(page.unread_paths),
        unread_paths=page.unread_paths,
        page=result.path,
        title=page.title,
        size_bytes=result.size_bytes,
        documents=[
            Source(
                path=head.path,
                schema=head.schema,
                snaprebuild=head.program,
                lacks=document.lacks,
                made=document.made,
                host=document.host,
                command=document.command,
                cluster_ids=document.clusters,
            )
            for head, document in zip(result.heads, page.documents, strict=True)
        ],
        partitions=page.partition_count,
        partitions_left=page.partition_count - len(shown),
        totals=page_totals(page),
        page_findings=len(page.findings),
        page_findings_left=page.findings_left,
        page_answer=first.answer,
        page_next_command=first.next_command,
        page_exit_code=first.exit_code,
    )


def _print(result: ReportResult) -> None:
    from msgspec.structs import asdict

    from snaprebuild.cli.result import print_table, print_text, shown, size_text
    from snaprebuild.findings import first_of, pluralize
    from snaprebuild.report.page_status import page_totals

    page = result.page
    if page.unread_paths:
        unread = first_of([shown(path) for path in page.unread_paths])
        print_text(f"INCOMPLETE: the documents do not cover what could not be read: {unread}.")
    counts = Counter(number for partition in page.partitions() for number in partition.documents)
    rows = [(shown(head.path), head.schema, head.program, counts[number]) for number, head in enumerate(result.heads)]
    print_table("Documents", ("file", "form", "written by", "partitions"), rows, right=("partitions",))
    totals = ", ".join(
        f"{'unknown' if count is None else count} {name.replace('_', ' ')}"
        for name, count in asdict(page_totals(page)).items()
        if name not in ("stuck_bytes", "waiting_segments")
    )
    print_text(f"{pluralize(page.partition_count, 'partition')}: {totals}")
    left = page.partition_count - len(page.partitions())
    if left:
        print_text(f"{pluralize(left, 'partition')} with the least to say left out of the page")
    print_text(f"page: {shown(result.path)}, {size_text(result.size_bytes)}; open it in a browser, it needs no network")
