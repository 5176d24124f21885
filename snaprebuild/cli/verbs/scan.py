"""The verb ``scan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import Partition, Paths, S3Options, ServerProperties, Topic, open_selected, selection_of
from snaprebuild.cli.options.engine import EngineOptions, engine_of
from snaprebuild.cli.options.io_limits import LoadAlone
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.documents.typed import Document

__all__ = ["scan"]

Details = Annotated[
    bool,
    typer.Option("--details", help="Print every boundary, all rows and all findings. Default: the 20 worst rows."),
]


@verb(LoadAlone, collects=False)
def scan(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topic = None,
    partition: Partition = None,
    details: Details = False,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows missing and suspect snapshots, and which closed segments would block the upload to tiered storage.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Names, sizes, checkpoints, small files and snapshots are read, no segment. Exit code 1 when something is missing or
    wrong.
    """
    from snaprebuild.cli.render.scan_table import print_boundaries, print_scan
    from snaprebuild.snapshots.scan.scan import scan as scan_source

    out.begin()
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    with engine_of(engine) as chosen:
        result = scan_source(source, chosen.planning())
    words = [*(paths or ()), *(("--server-properties", server_properties) if server_properties else ())]
    words += [word for pattern in topic or () for word in ("--topic", pattern)]
    words += [word for number in partition or () for word in ("--partition", str(number))]

    def document() -> Document:
        from snaprebuild.cli.render.scan import scan_document
        from snaprebuild.documents.scan import Request

        request = Request(paths=paths or (), server_properties=server_properties, topics=topic or (), partitions=partition or ())
        return scan_document(result, request)

    def show() -> None:
        print_scan(result, words, all_rows=details)
        if details:
            print_boundaries(result)

    return Result(
        document,
        result.findings,
        show,
        notes=True,
        in_table=frozenset({"missing-snapshots", "no-leader-epochs"}),
        names_unread=True,
        everything=details or out.everything,
    )
