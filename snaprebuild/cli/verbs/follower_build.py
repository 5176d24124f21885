"""The verb ``follower build``."""

from __future__ import annotations

import os
import re
from typing import Annotated

import msgspec
import typer

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import AsOf, ExpirationMs, Jobs, S3Options, WholeNumber, clock_at, quoted
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.metadata import AcceptOwnLog, Metadata, check_metadata
from snaprebuild.cli.options.remote_storage import LevelOption, RemoteLevel, TierLocation, TierOptions, open_tier
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

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


@verb()
def follower_build(
    *,
    store: TierLocation,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Log directory of the broker that gets the follower.")],
    topic_partition: Annotated[
        str,
        option(
            "--topic-partition",
            metavar="TOPIC-N",
            short="The partition, TOPIC-NUMBER",
            default="none, it is required",
        ),
    ],
    topic_id: Annotated[
        str | None,
        option(
            "--topic-id",
            metavar="ID",
            short="Id of the topic, if several had its name",
            default="the only one",
        ),
    ] = None,
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
    level: LevelOption = RemoteLevel.FULL,
    server_properties: Annotated[
        str | None,
        option(
            "--server-properties",
            metavar="FILE",
            short="Configuration of the broker of DIR; refused if another of its log.dirs has the partition",
            default="none, only DIR is checked",
        ),
    ] = None,
    metadata: Metadata = None,
    accept_own_log: AcceptOwnLog = False,
    allow_unproven: Annotated[
        bool,
        option(
            "--allow-unproven",
            short="Write unproven producers too",
            risk="a retry is accepted as a new record, or an open transaction is forgotten",
            default="refuse",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            short="Show what would be built, and write nothing",
            default="no",
        ),
    ] = False,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
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
    from snaprebuild.cli.render.followers import FollowerBuildView
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cluster.scan_storage import OF_ONE_LOG, local_start_concerns
    from snaprebuild.followers import bootstrap_build
    from snaprebuild.snapshots.source.broker_properties import log_dirs_of
    from snaprebuild.storage.store import absolute, is_object

    out.begin(private_key=tier_options.key_files)
    check_metadata(metadata)
    if not directory or is_object(directory):
        raise UsageError("DIR is a directory of this machine, where a broker finds it", path=directory or None)
    topic, partition = _topic_and_partition(topic_partition)
    request = bootstrap_build.BuildRequest(topic, partition, _topic_id(topic_id), target, assumed.log_start)
    properties = None if server_properties is None else run_facts().properties(server_properties)
    log_dirs = () if properties is None else log_dirs_of(properties)
    log_dir = absolute(directory)
    run = s3.run(clock=clock_at(as_of, expiration_ms), jobs=jobs)
    bootstrap_build.check_log_dir(log_dir, topic_partition, log_dirs)  # before anything is asked of the store
    tier = open_tier(store, s3, tier_options)
    plan = bootstrap_build.plan_build(tier, request, run, replays=level is RemoteLevel.FULL, announce=announced)
    verdict = None
    findings = [*tier.metadata_findings]
    concerns = []
    if os.path.isdir(log_dir):
        # Before the build, which adds a partition. What the start does to the other partitions is not its question.
        concerns = local_start_concerns([log_dir], run, server_properties, without=OF_ONE_LOG)
        location = None if metadata is None else absolute(metadata)
        verdict, evidence_findings = bootstrap_build.judge_target(
            plan, log_dir, properties, location, run, accept_own_log=accept_own_log, clock=run.clock
        )
        findings += evidence_findings
    if dry_run:
        bootstrap_build.check_build(plan, log_dir, log_dirs=log_dirs, allow_unproven=allow_unproven)
    else:
        bootstrap_build.build_follower(plan, log_dir, log_dirs=log_dirs, allow_unproven=allow_unproven)
    findings += [*bootstrap_build.build_findings(plan, log_dir), *concerns]
    return FollowerBuildView(plan, tier, verdict, findings, log_dir=log_dir, dry_run=dry_run)


def _topic_and_partition(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"([A-Za-z0-9._-]+)-(0|[1-9][0-9]{0,9})", text)
    if match is None or int(match[2]) >= 2**31:
        raise UsageError(f"--topic-partition: expected TOPIC-N, found {quoted(text)}")
    return match[1], int(match[2])


def _topic_id(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return uuid_from_text(text)
    except FormatError as error:
        raise UsageError(f"--topic-id: {error.message}") from error
