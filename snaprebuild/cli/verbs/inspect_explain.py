"""The verb ``inspect explain``."""

from __future__ import annotations

from typing import Annotated

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.common import (
    ExpiryOptions,
    Jobs,
    LogOffset,
    LogOptions,
    S3Options,
    WholeNumber,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["inspect_explain"]

EPOCH_MAX = 2**15 - 1


@verb(Load)
def inspect_explain(
    *,
    producer_id: Annotated[
        int | None,
        option(
            "--producer-id",
            metavar="N",
            click_type=WholeNumber(0, INT64_MAX),
            short="Producer to explain",
            default="none, it is required unless PATH is a snapshot",
        ),
    ] = None,
    offset: LogOffset = None,
    sequence: Annotated[
        int | None,
        option(
            "--sequence",
            metavar="S",
            click_type=WholeNumber(0, INT32_MAX),
            short="First sequence of the batch in question",
            default="the next, the last again, one after a gap, a new epoch",
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        option(
            "--epoch",
            metavar="E",
            click_type=WholeNumber(0, EPOCH_MAX),
            short="Epoch of the batch in question",
            default="that of the producer",
        ),
    ] = None,
    logs: LogOptions,
    crc: CrcOption = Crc.CHECK,
    expiry: ExpiryOptions,
    jobs: Jobs = None,
    kafka_release: Annotated[
        str | None,
        option("--kafka-release", metavar="X.Y.Z", short="Release of Kafka that the broker runs next", default="4.4"),
    ] = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: explains what is wrong with one snapshot, or the state of one producer.

    PATH is a snapshot in the directory of its partition, also as s3://BUCKET/KEY: it is compared with a replay of the log. For
    entries that the log contradicts: since which snapshot they are wrong, the batches that set the right values, and what to run.

    With --producer-id, PATH is a partition directory or any directory above; several may be named. Shown are the batch that set each
    field, and what a broker answers to the next one, now and after a start. Exit code 1 if the snapshot is wrong, no partition has
    the producer, OFFSET is not in a log, or a log lost its end.
    """
    from snaprebuild.cli.runs.inspect_explain import run_inspect_explain

    return run_inspect_explain(
        producer_id=producer_id,
        offset=offset,
        sequence=sequence,
        epoch=epoch,
        logs=logs,
        crc=crc,
        expiry=expiry,
        jobs=jobs,
        kafka_release=kafka_release,
        out=out,
        s3=s3,
    )
