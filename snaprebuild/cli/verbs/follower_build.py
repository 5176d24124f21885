"""The verb ``follower build``."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    AllowUnproven,
    DryRun,
    ExpiryOptions,
    Jobs,
    S3Options,
    SelectionOptions,
    ServerProperties,
    TopicIds,
    WholeNumber,
)
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import AcceptOwnLog, Metadata
from snaprebuild.cli.options.remote_storage import ProofOption, RemoteLevel, TierLocation, TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_build"]


class BuildAssumptions(msgspec.Struct, frozen=True):
    """What remote storage does not show."""

    log_start: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT64_MAX),
            OptionText(short="Log start offset of the leader", default="the first copy; refused if others are below a gap"),
        ),
    ] = None


@verb(Load)
def follower_build(
    *,
    store: TierLocation,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Log directory of the broker that gets the follower.")],
    partitions: SelectionOptions,
    topic_id: TopicIds = None,
    target: Annotated[
        int | None,
        option(
            "--target",
            metavar="OFFSET",
            click_type=WholeNumber(1, INT64_MAX),
            short="Offset below which everything comes from remote storage (ListOffsets -6 of the leader)",
            default="the end of the copies of the newest leader epoch",
        ),
    ] = None,
    assumed: BuildAssumptions,
    tier_options: TierOptions,
    proof: ProofOption = RemoteLevel.FULL,
    server_properties: ServerProperties = None,
    metadata: Metadata = None,
    accept_own_log: AcceptOwnLog = False,
    allow_unproven: AllowUnproven = False,
    dry_run: DryRun = False,
    expiry: ExpiryOptions,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES the partition directory of an empty follower that starts where remote storage ends; an existing one is refused.

    STORE is a directory or s3://BUCKET/PREFIX with the objects. Stop the broker of DIR first. Merge the lines that are printed
    into its checkpoints, which are not touched. Then start it: it loads the producers with the log, and fetches the rest from
    its leader. Leader epochs and producers are those of the copy that holds the offset below the target. A snapshot that the
    copies contradict is rebuilt from them, or nothing is written. Exit code 1 if
    --allow-unproven wrote unproven producers, 3 if they are refused.
    """
    from snaprebuild.cli.runs.follower_build import run_follower_build

    return run_follower_build(
        store=store,
        directory=directory,
        partitions=partitions,
        topic_id=topic_id,
        target=target,
        log_start=assumed.log_start,
        tier_options=tier_options,
        level=proof,
        server_properties=server_properties,
        metadata=metadata,
        accept_own_log=accept_own_log,
        allow_unproven=allow_unproven,
        dry_run=dry_run,
        expiry=expiry,
        jobs=jobs,
        out=out,
        s3=s3,
    )
