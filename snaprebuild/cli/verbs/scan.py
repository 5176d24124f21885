"""The verb ``scan``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.kafka_release import KafkaRelease
from snaprebuild.cli.options.reading import EngineOptions, LoadAlone
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["scan"]


@verb(LoadAlone, collects=False)
def scan(
    *,
    logs: LogOptions,
    kafka_release: KafkaRelease = None,
    quiet: Annotated[
        bool,
        option(
            "--quiet",
            short="Print only what is wrong: nothing with exit code 0",
            details="For cron.",
            default="print everything",
        ),
    ] = False,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: shows missing and suspect snapshots, and which rolled segments would block the upload to tiered storage.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. It also shows what the broker does at its next start. It reads names, sizes, checkpoints, small files, .txnindex,
    snapshots, the end of the last segment, and the metadata log. Exit code 1 if something is missing or wrong, 4 if the start loses
    records or fails.
    """
    from snaprebuild.cli.runs.scan import run_scan

    return run_scan(
        logs=logs,
        kafka_release=kafka_release,
        quiet=quiet,
        engine=engine,
        out=out,
        s3=s3,
    )
