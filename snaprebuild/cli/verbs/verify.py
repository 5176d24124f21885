"""The verb ``verify``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    ExpiryOptions,
    Jobs,
    LogOptions,
    Offset,
    S3Options,
    check_paths,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.kafka_release import KafkaRelease
from snaprebuild.cli.options.reading import CachingEngine, Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["verify"]


@verb(Load)
def verify(
    *,
    logs: LogOptions,
    crc: CrcOption = Crc.CHECK,
    expiry: ExpiryOptions,
    offsets: Offset = None,
    kafka_release: KafkaRelease = None,
    jobs: Jobs = None,
    engine: CachingEngine,
    written_by: Annotated[
        str | None,
        option(
            "--written-by",
            metavar="RECEIPT",
            short="Check the files of this receipt instead of PATH: kept, removed or replaced, and why",
            details="Replays nothing.",
            default="none",
        ),
    ] = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: replays each partition and compares every snapshot on disk with the result.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read, from the first one on disk. Exit code 1 if a snapshot is proven wrong, or is suspect to
    `scan` and not proven right. A missing one is counted, and is no finding by itself. It also reports what the broker does at its
    next start, as `scan` does.
    """
    check_paths(logs.paths, written_by=written_by)
    if written_by is not None:
        from snaprebuild.cli.runs.verify_receipt import run_verify_receipt

        return run_verify_receipt(written_by, out=out)
    from snaprebuild.cli.runs.verify import run_verify

    return run_verify(
        logs=logs,
        crc=crc,
        expiry=expiry,
        offsets=offsets,
        kafka_release=kafka_release,
        jobs=jobs,
        engine=engine,
        out=out,
        s3=s3,
    )
