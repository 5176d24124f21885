"""The verb ``fleet``."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import S3Options, WholeNumber
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.kafka_release import KafkaRelease
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["fleet"]

RATE_MAX = 1_000_000
"""MiB per second."""


class FleetAssumptions(msgspec.Struct, frozen=True):
    """Facts about the brokers that the scans do not show."""

    rate: Annotated[
        int | None,
        Assumption(
            WholeNumber(1, RATE_MAX),
            OptionText(
                short="MiB/s that a rebuild reads on these brokers, as `plan` measures it", default="none, no minutes are shown"
            ),
        ),
    ] = None
    retention_bytes: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            OptionText(short="log.retention.bytes of the brokers, -1 for none", default="from --metadata"),
        ),
    ] = None
    down: Annotated[
        list[int] | None,
        Assumption(
            WholeNumber(0, INT32_MAX),
            OptionText(
                short="A broker that counts as stopped; may be given several times", default="none, all brokers start again"
            ),
            is_list=True,
        ),
    ] = None


@verb()
def fleet(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="SCAN.json...", hidden=True)] = None,
    metadata: Metadata = None,
    controller: Annotated[
        list[int] | None,
        option(
            "--controller",
            metavar="ID",
            click_type=WholeNumber(0, INT32_MAX),
            short="A broker that is also a controller and is restarted last; repeatable",
            default="from --metadata",
        ),
    ] = None,
    elections: Annotated[
        str | None,
        option(
            "--elections",
            metavar="DIR",
            short="Write files for kafka-reassign-partitions and kafka-leader-election into DIR, which is new or empty",
            details="Needs --metadata.",
            default="none",
        ),
    ] = None,
    allow_election_risk: Annotated[
        bool,
        option(
            "--allow-election-risk",
            short="Write elections even where they may delete data (KAFKA-20732), or where that is unknown",
            risk="data within retention is lost",
            default="no",
        ),
    ] = False,
    kafka_release: KafkaRelease = None,
    assumed: FleetAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: merges the scans of many brokers, and shows which replicas to elect and which brokers to repair, in which order.

    SCAN.json is what `scan --output json` prints for one broker (its log directories, or its --server-properties). If one replica
    of a partition has every snapshot, the partition needs an election and no rebuild. The other partitions need a repair of
    brokers: the smallest set that holds a replica of each. These brokers restart one at a time, controllers last. Exit code 1
    if segments of a partition cannot be uploaded.
    """
    from snaprebuild.cli.runs.fleet import run_fleet

    return run_fleet(
        files=files,
        metadata=metadata,
        controller=controller,
        elections=elections,
        allow_election_risk=allow_election_risk,
        kafka_release=kafka_release,
        rate=assumed.rate,
        retention_bytes=assumed.retention_bytes,
        down=assumed.down,
        out=out,
        s3=s3,
    )
