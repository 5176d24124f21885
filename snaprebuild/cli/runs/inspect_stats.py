"""The work of the verb ``inspect stats``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.render.stats import StatsView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import clock_of, open_logs
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.inspect.stats import collect_statistics

__all__ = ["run_inspect_stats"]


def run_inspect_stats(
    *,
    logs: LogOptions,
    top: int,
    crc: Crc,
    as_of: str | None,
    expiration_ms: int | None,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Counts producers and batches."""
    out.begin()
    source = open_logs(logs, s3)
    run = run_of(s3, clock=clock_of(source, as_of, expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("counting", source.size_bytes) as progress:
        result = collect_statistics(source, run, top=top, check_crc=crc is Crc.CHECK, progress=progress)
    seconds = time.perf_counter() - started
    return StatsView(result, seconds, top=top, all_segments=out.everything)
