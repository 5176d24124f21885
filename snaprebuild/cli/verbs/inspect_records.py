"""The verb ``inspect records``."""

from __future__ import annotations

from typing import Annotated

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import S3Options, WholeNumber
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.reading import EngineOptions, Load
from snaprebuild.cli.options.records import IsolationOption, PayloadFormat, RecordPlaces
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["inspect_records"]


@verb(Load)
def inspect_records(
    *,
    places: RecordPlaces,
    begin: Annotated[
        str | None,
        option(
            "--from",
            metavar="OFFSET|TIME",
            short="Begin with this offset, or with the first record at or after this time (ISO 8601, UTC without a zone)",
            default="the log start offset",
        ),
    ] = None,
    until: Annotated[
        str | None,
        option(
            "--until",
            metavar="OFFSET|TIME",
            short="Stop before this offset, or before the first record at or after this time",
            default="the last stable offset",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            metavar="N",
            click_type=WholeNumber(1, INT64_MAX),
            short="Records of all partitions together, at most",
            details="1000000 without --out.",
            default="100, with --out all",
        ),
    ] = None,
    isolation: Annotated[
        IsolationOption,
        option(
            "--isolation",
            short="Which records are shown: read_committed leaves out aborted and open transactions",
            details="all has control records too.",
            default="read_committed",
        ),
    ] = IsolationOption.READ_COMMITTED,
    key_format: Annotated[
        PayloadFormat | None,
        option("--key-format", short="Show keys in this form", default="their sizes only"),
    ] = None,
    value_format: Annotated[
        PayloadFormat | None,
        option("--value-format", short="Show values in this form", default="their sizes only"),
    ] = None,
    internal_topics: Annotated[
        bool,
        option(
            "--internal-topics",
            short="Also read Kafka's own topics, such as __consumer_offsets",
            details="They hold groups, transactional ids and credentials.",
            default="no",
        ),
    ] = False,
    directory: Annotated[
        str | None,
        option(
            "--out",
            metavar="DIR",
            short="Write whole records to files of Parquet in a new directory, with a manifest",
            default="show them",
        ),
    ] = None,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows the records of partitions, as a consumer would get them, without a broker.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be named.
    STORE is remote storage, a directory or s3://BUCKET/PREFIX: its copies are read below the log on disk, or alone without PATH.
    Offsets, times and sizes are shown; keys and values only with --key-format and --value-format. The range of a partition ends at
    its high watermark or last stable offset, by the checkpoints of its broker. Damage is a finding, and what can be read is shown.
    Needs the extra `records` (pyarrow). With --engine spark tasks write the files of --out, which all machines must share.
    Exit code 1 if offsets of the range are not there.
    """
    from snaprebuild.cli.runs.inspect_records import run_inspect_records

    return run_inspect_records(
        places=places,
        begin=begin,
        until=until,
        limit=limit,
        isolation=isolation,
        key_format=key_format,
        value_format=value_format,
        internal_topics=internal_topics,
        directory=directory,
        engine=engine,
        out=out,
        s3=s3,
    )
