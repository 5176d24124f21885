"""The verb ``inspect stats``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    LogOptions,
    S3Options,
    WholeNumber,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["inspect_stats"]

TOP_DEFAULT = 10
TOP_MAX = 100_000

Top = Annotated[
    int,
    option(
        "--top",
        metavar="N",
        click_type=WholeNumber(1, TOP_MAX),
        short="Topics, partitions and producers in the tables, and partitions with segments in the JSON document",
        default="10",
    ),
]
CrcCompared = Annotated[
    Crc,
    option(
        "--crc",
        short="check: compute the checksum of every batch",
        details="skip: read headers only.",
        risk="damaged batches are counted as they are",
        default="skip",
    ),
]


@verb(Load)
def inspect_stats(
    *,
    logs: LogOptions,
    top: Top = TOP_DEFAULT,
    crc: CrcCompared = Crc.SKIP,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: counts producers, what they cost and what an expiration would keep of them, and batches by kind.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. The headers of every segment are read. Only the retained log counts: a producer whose batches were all deleted is not
    seen. Damage is a finding, and what can be read is counted.
    """
    from snaprebuild.cli.runs.inspect_stats import run_inspect_stats

    return run_inspect_stats(
        logs=logs,
        top=top,
        crc=crc,
        as_of=as_of,
        expiration_ms=expiration_ms,
        jobs=jobs,
        out=out,
        s3=s3,
    )
