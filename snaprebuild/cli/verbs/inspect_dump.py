"""The verb ``inspect dump``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from formats.limits import INT64_MAX, INT64_MIN
from formats.partition.file_names import DumpedKind
from snaprebuild.cli.options.common import S3Options, Verbose, check_paths, locations_of, offsets_range
from snaprebuild.cli.options.io_limits import LoadAlone
from snaprebuild.cli.verb import verb
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding

__all__ = ["inspect_dump"]


class DumpOutput(StrEnum):
    """What stdout carries."""

    TEXT = "text"
    JSON = "json"


@verb(LoadAlone)
def inspect_dump(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", hidden=True)] = None,
    kind: Annotated[
        DumpedKind | None,
        typer.Option(
            "--file-kind",
            metavar="KIND",
            help="Kind of every FILE: log, snapshot, offset-index, time-index, transaction-index, kraft-checkpoint, "
            "leader-epoch-checkpoint, offset-checkpoint, partition-metadata, meta-properties, clean-shutdown, "
            "quorum-state. Default: by name, else by first bytes.",
        ),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Show each record of a batch, decompressed. Default: batches only.")] = False,
    payload: Annotated[
        bool, typer.Option("--payload", help="Show keys, values and headers too; implies --deep. Default: sizes only.")
    ] = False,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets",
            metavar="FROM:TO",
            help="Show only this range of offsets, both ends included. FROM: and :TO leave one end open, N is one offset. All "
            "of a file is checked. Default: all.",
        ),
    ] = None,
    output: Annotated[
        DumpOutput,
        typer.Option(
            "--output",
            show_default=False,
            help="Format of the result: text for people, json for programs, one object per line. Default: text.",
        ),
    ] = DumpOutput.TEXT,
    verbose: Verbose = 0,
    s3: S3Options,
) -> None:
    """Reads only: shows the contents of files of a log directory, and whether they are whole.

    FILE is a segment, an index, a snapshot, a checkpoint or another file of a broker or a remote tier, also as s3://BUCKET/KEY.
    The lines are those of kafka-dump-log. An index is compared with the log in the same directory. Exit code 1 if
    an index differs from the log, 4 if a file is damaged.
    """
    from snaprebuild.cli.render.dump import write_dumps
    from snaprebuild.cli.result import begin, emit_streamed_and_exit
    from snaprebuild.inspect.dump import open_dumps
    from snaprebuild.inspect.dump_items import DumpRequest

    begin(verbose, {})
    if not files:
        raise UsageError("inspect dump: no FILE is named")
    check_paths(files)
    locations = locations_of(files)
    stores = s3.settings()
    offset_from, offset_to = offsets_range(offsets)
    request = DumpRequest(
        kind,
        deep=deep or payload,
        payload=payload,
        offset_from=INT64_MIN if offset_from is None else offset_from,
        offset_to=INT64_MAX if offset_to is None else offset_to,
    )
    findings: list[Finding] = []
    emit_streamed_and_exit(
        lambda: write_dumps(
            open_dumps(locations, request, stores), findings, as_json=output is DumpOutput.JSON, payload=request.payload
        ),
        findings,
        everything=verbose > 0,
    )
