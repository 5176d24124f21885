"""The verb ``inspect dump``."""

from __future__ import annotations

from typing import Annotated

import typer

from formats.partition.file_names import DumpedKind
from snaprebuild.cli.options.common import Offset, S3Options
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.reading import LoadAlone
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.inspect.decoder_names import Decoder

__all__ = ["inspect_dump"]


@verb(LoadAlone)
def inspect_dump(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", hidden=True)] = None,
    kind: Annotated[
        DumpedKind | None,
        option(
            "--file-kind",
            metavar="KIND",
            short="Kind of every FILE: log, snapshot, offset-index, time-index, transaction-index, kraft-checkpoint, "
            "leader-epoch-checkpoint, offset-checkpoint, partition-metadata, meta-properties, clean-shutdown, "
            "quorum-state",
            default="by name, else by first bytes",
        ),
    ] = None,
    deep: Annotated[
        bool,
        option(
            "--deep",
            short="Show each record of a batch, decompressed",
            default="batches only",
        ),
    ] = False,
    payload: Annotated[
        bool,
        option(
            "--print-data-log",
            short="Show keys and values, with --output json also values of headers; implies --deep",
            default="sizes only",
        ),
    ] = False,
    decoder: Annotated[
        Decoder | None,
        option(
            "--decoder",
            metavar="NAME",
            short="Decode the records of Kafka's own topics: offsets, transaction-log, cluster-metadata, "
            "remote-log-metadata, share-group-state, or auto for the topic of the directory; implies --deep",
            default="not decoded",
        ),
    ] = None,
    kafka_release: Annotated[
        str | None,
        option(
            "--kafka-release",
            metavar="X.Y.Z",
            short="Print decoded records as kafka-dump-log of this release does",
            default="the newest one",
        ),
    ] = None,
    offsets: Offset = None,
    out: OutputOptions,
    s3: S3Options,
) -> None:
    """Reads only: shows the contents of files of a log directory, and whether they are whole.

    FILE is a segment, an index, a snapshot, a checkpoint or another file of a broker or a remote tier, also as s3://BUCKET/KEY.
    The lines are those of kafka-dump-log; with --output json there is one object per line. Keys and values are shown only with
    --print-data-log or --decoder. An index is compared with the log in the same directory.
    Exit code 1 if an index differs from the log, 4 if a file is damaged.
    """
    from snaprebuild.cli.runs.inspect_dump import run_inspect_dump

    run_inspect_dump(
        files=files,
        kind=kind,
        deep=deep,
        payload=payload,
        decoder=decoder,
        kafka_release=kafka_release,
        offsets=offsets,
        out=out,
        s3=s3,
    )
