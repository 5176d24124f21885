"""The verb ``inspect diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import Duration, S3Options, check_paths, clock_at, locations_of
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.engine.clock import Clock

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
    expiration_ms: Annotated[
        int | None,
        option(
            "--expiration-ms",
            metavar="MS",
            click_type=Duration(1, INT64_MAX),
            short="Milliseconds after which the broker forgets an idle producer",
            risk="less than the broker uses hides producers that it would load",
            default="86400000 (one day)",
        ),
    ] = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows the producers in which two snapshots differ, and what B would cost if A is right.

    A and B are snapshot files of any name, also as s3://BUCKET/KEY. Their entries are compared as a map: the order has no
    meaning. With --as-of or --expiration-ms, entries are left out that a broker drops when it loads the files at that moment. Without
    them every entry counts. Exit code 1 if the snapshots differ, 4 if one is damaged.
    """
    from snaprebuild.cli.file_kinds import SNAPSHOT, check_kind
    from snaprebuild.cli.render.inspect import DiffView
    from snaprebuild.inspect.diff import diff_snapshots

    out.begin()
    if files is None or len(files) != 2:
        raise UsageError(f"inspect diff: expected two snapshots, A and B; found {len(files or ())}")
    check_paths(files)
    for path in files:
        check_kind(path, SNAPSHOT)
    path_a, path_b = locations_of(files)
    return DiffView(diff_snapshots(path_a, path_b, _clock_of(as_of, expiration_ms), s3.settings()))


def _clock_of(as_of: str | None, expiration_ms: int | None) -> Clock | None:
    if as_of is None and expiration_ms is None:
        return None
    return clock_at(as_of, expiration_ms)
