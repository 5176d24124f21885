"""The work of the verb ``inspect diff``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import SNAPSHOT, check_kind
from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.render.inspect import DiffView
from snaprebuild.cli.runs.run_settings import clock_at, locations_of, stores_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.inspect.diff import diff_snapshots
from snaprebuild.replay.window import Clock

__all__ = ["run_inspect_diff"]


def run_inspect_diff(
    *,
    files: list[str] | None,
    as_of: str | None,
    expiration_ms: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Compares the producers of two snapshots."""
    out.begin()
    if files is None or len(files) != 2:
        raise UsageError(f"inspect diff: expected two snapshots, A and B; found {len(files or ())}")
    check_paths(files)
    for path in files:
        check_kind(path, SNAPSHOT)
    path_a, path_b = locations_of(files)
    return DiffView(diff_snapshots(path_a, path_b, _clock_of(as_of, expiration_ms), stores_of(s3)))


def _clock_of(as_of: str | None, expiration_ms: int | None) -> Clock | None:
    if as_of is None and expiration_ms is None:
        return None
    return clock_at(as_of, expiration_ms)
