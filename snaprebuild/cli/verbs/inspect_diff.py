"""The verb ``inspect diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import ExpirationMs, S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["inspect_diff"]


@verb()
def inspect_diff(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="A B", hidden=True)] = None,
    as_of: Annotated[
        str | None,
        option(
            "--as-of",
            metavar="TIME",
            short="Leave out what has expired at this time: ISO 8601 (UTC without a zone), milliseconds since 1970, or now",
            default="now with --expiration-ms, else nothing is left out",
        ),
    ] = None,
    expiration_ms: ExpirationMs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows the producers in which two snapshots differ, and what B would cost if A is right.

    A and B are snapshot files of any name, also as s3://BUCKET/KEY. Their entries are compared as a map: the order has no
    meaning. With --as-of or --expiration-ms, entries are left out that a broker drops when it loads the files at that moment. Without
    them every entry counts. Exit code 1 if the snapshots differ, 4 if one is damaged.
    """
    from snaprebuild.cli.runs.inspect_diff import run_inspect_diff

    return run_inspect_diff(
        files=files,
        as_of=as_of,
        expiration_ms=expiration_ms,
        out=out,
        s3=s3,
    )
