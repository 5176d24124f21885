"""The verb ``follower build``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import AsOf, ExpirationMs, Jobs, S3Options, WholeNumber, as_of_ms, quoted
from snaprebuild.cli.options.metadata import AcceptOwnLog, Metadata, check_metadata
from snaprebuild.cli.options.remote_storage import (
    LevelOption,
    RemoteLevel,
    TierLocation,
    TierOptions,
    announced,
    leader_epochs_of,
    open_tier,
    remote_state_of,
)
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from formats.partition.checkpoint_file import OffsetCheckpointEntry
    from snaprebuild.cluster.source_check.verdict import SourceVerdict
    from snaprebuild.documents import followers as doc
    from snaprebuild.findings import Finding
    from snaprebuild.followers.bootstrap_build import FollowerPlan, PartitionWanted

__all__ = ["follower_build"]


class BuildAssumptions(msgspec.Struct, frozen=True):
    """What remote storage does not show."""

    log_start: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT64_MAX), "Log start offset of the leader. Default: the first copy; refused if others are below a gap."
        ),
    ] = None


@verb()
def follower_build(
    *,
    store: TierLocation,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Log directory of the broker that gets the follower.")],
    topic_partition: Annotated[
        str,
        typer.Option(
            "--topic-partition",
            metavar="TOPIC-N",
            help="The partition, TOPIC-NUMBER. Default: none, it is required.",
        ),
    ],
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="Id of the topic, if several had its name. Default: the only one."),
    ] = None,
    target: Annotated[
        int | None,
        typer.Option(
            "--target",
            metavar="OFFSET",
            click_type=WholeNumber(1, INT64_MAX),
            help="Offset below which everything comes from remote storage (ListOffsets -6 of the leader). Default: the end of "
            "the copies of the newest leader epoch.",
        ),
    ] = None,
    assumed: BuildAssumptions,
    tier_options: TierOptions,
    level: LevelOption = RemoteLevel.FULL,
    server_properties: Annotated[
        str | None,
        typer.Option(
            "--server-properties",
            metavar="FILE",
            help="Configuration of the broker of DIR; refused if another of its log.dirs has the partition. Default: none, "
            "only DIR is checked.",
        ),
    ] = None,
    metadata: Metadata = None,
    accept_own_log: AcceptOwnLog = False,
    allow_unproven: Annotated[
        bool,
        typer.Option(
            "--allow-unproven",
            help="Write unproven producers too. Risk: a retry is accepted as a new record, or an open transaction is "
            "forgotten. Default: refuse.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be built, and write nothing. Default: write it.")
    ] = False,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """WRITES the partition directory of an empty follower that starts where remote storage ends; an existing one is refused.

    STORE is a directory or s3://BUCKET/PREFIX with the objects. Stop the broker of DIR first. Merge the lines that are printed
    into its checkpoints, which are not touched. Then start it: it loads the producers with the log, and fetches the rest from
    its leader. Leader epochs and producers are those of the copy that holds the offset below the target. A snapshot that the
    copies contradict is rebuilt from them, or nothing is written. Exit code 1 if
    --allow-unproven wrote unproven producers, 3 if they are refused.
    """
    from snaprebuild.cluster.scan_storage import OF_ONE_LOG, start_concerns
    from snaprebuild.followers.bootstrap_build import build_follower, check_build, check_log_dir, judge_target, plan_follower
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock
    from snaprebuild.snapshots.source.broker_properties import log_dirs_of
    from snaprebuild.snapshots.source.source import open_source
    from snaprebuild.storage.store import absolute, is_object

    out.begin(private_key=tier_options.key_files)
    check_metadata(metadata)
    if not directory or is_object(directory):
        raise UsageError("DIR is a directory of this machine, where a broker finds it", path=directory or None)
    wanted = _wanted(topic_partition, topic_id, target, assumed.log_start)
    properties = None if server_properties is None else run_facts().properties(server_properties)
    log_dirs = () if properties is None else log_dirs_of(properties)
    clock = Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)
    check_log_dir(absolute(directory), topic_partition, log_dirs)  # before anything is asked of the store
    tier = open_tier(store, s3, tier_options)
    run = s3.run(clock=clock, jobs=jobs)
    plan = plan_follower(tier, wanted, run, replays=level is RemoteLevel.FULL, announce=announced)
    place = absolute(directory)
    verdict = None
    found = list["Finding"]()
    of_start = list["Finding"]()
    if os.path.isdir(place):
        # Before the build, which adds a partition. What the start does to the other partitions is not its question.
        of_start = start_concerns(open_source([place], server_properties, run=run), (), without=OF_ONE_LOG)
        location = None if metadata is None else absolute(metadata)
        verdict, found = judge_target(plan, place, properties, location, run, accept_own_log=accept_own_log, clock=clock)
    if dry_run:
        check_build(plan, place, log_dirs=log_dirs, allow_unproven=allow_unproven)
    else:
        build_follower(plan, place, log_dirs=log_dirs, allow_unproven=allow_unproven)
    findings = [*tier.metadata_findings, *found, *_findings(plan, place), *of_start]
    return Result(
        lambda: _document(plan, tier.root, place, dry_run, tier.is_whole_log, verdict),
        findings,
        lambda: _print(plan, place, dry_run),
    )


def _wanted(topic_partition: str, topic_id: str | None, target: int | None, log_start: int | None) -> PartitionWanted:
    from formats.errors import FormatError
    from formats.partition.partition_metadata import uuid_from_text
    from snaprebuild.followers.bootstrap_build import PartitionWanted

    match = re.fullmatch(r"([A-Za-z0-9._-]+)-(0|[1-9][0-9]{0,9})", topic_partition)
    if match is None or int(match[2]) >= 2**31:
        raise UsageError(f"--topic-partition: expected TOPIC-N, found {quoted(topic_partition)}")
    try:
        number = None if topic_id is None else uuid_from_text(topic_id)
    except FormatError as error:
        raise UsageError(f"--topic-id: {error.message}") from error
    return PartitionWanted(match[1], int(match[2]), number, target, log_start)


def _findings(plan: FollowerPlan, place: str) -> list[Finding]:
    import os

    from snaprebuild.findings import Finding, Severity

    path = os.path.join(place, plan.directory_name)
    found = [*plan.state.findings, *(Finding("bootstrap-warning", Severity.NOTE, path, each) for each in plan.warnings)]
    if not plan.state.judgement.snapshot_class.is_allowed_in_place:
        message = f"its producers are {plan.state.judgement.snapshot_class.value}: {plan.state.judgement.reasons[0]}"
        found.append(Finding("bootstrap-unproven", Severity.FINDING, path, message, plan.next_offset))
    return found


def _document(
    plan: FollowerPlan, root: str, place: str, dry_run: bool, verified: bool, verdict: SourceVerdict | None
) -> doc.FollowerBuild:
    import os

    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.render.shared_parts import source_verdict
    from snaprebuild.documents import followers as doc
    from snaprebuild.documents.common import named

    return doc.FollowerBuild(
        store=root,
        verified=verified,
        dry_run=dry_run,
        **named(plan.topic, plan.number),
        topic_id=uuid_to_text(plan.topic_id),
        path=os.path.join(place, plan.directory_name),
        target_offset=plan.target,
        target_epoch=plan.epoch,
        next_offset=plan.next_offset,
        log_start_offset=plan.log_start,
        local_start_offset=plan.next_offset,
        leader_epochs=leader_epochs_of(plan.epochs),
        remote=remote_state_of(plan.state),
        files=[doc.FollowerFile(name=each.name, size_bytes=len(each.data), sha256=each.sha256) for each in plan.files],
        checkpoints=msgspec.convert({name: _line(entry) for name, entry in plan.checkpoints.items()}, doc.Checkpoints),
        warnings=plan.warnings,
        verdict=source_verdict(verdict),
        takes_effect="when a broker next loads the log, at its start",
    )


def _line(entry: OffsetCheckpointEntry) -> doc.CheckpointLine:
    from snaprebuild.documents import followers as doc
    from snaprebuild.documents.common import named

    return doc.CheckpointLine(**named(entry.topic, entry.partition), offset=entry.offset)


def _print(plan: FollowerPlan, place: str, dry_run: bool) -> None:
    import os

    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.result import print_line, print_table, print_text, shown
    from snaprebuild.findings import pluralize

    klass = plan.state.judgement.snapshot_class.value
    epochs = " ".join(f"{each.epoch}:{each.start_offset}" for each in plan.epochs)
    copy = uuid_to_text(plan.segment.segment_id)
    row = (plan.directory_name, plan.log_start, plan.next_offset, len(plan.state.entries), klass, copy, epochs)
    columns = ("partition", "log start", "fetches from", "producers", "class", "of the copy", "leader epochs")
    title = "Dry run: nothing was written" if dry_run else "Follower"
    print_table(title, columns, [row], right=("log start", "fetches from", "producers"), drop=("of the copy", "producers"))
    for each in plan.warnings:
        print_text(f"note: {each}")
    print_text("Lines to merge into the checkpoints")
    for name, entry in plan.checkpoints.items():
        print_line(f" {name}: {entry.topic} {entry.partition} {entry.offset}")
    if dry_run:
        return
    written = os.path.join(shown(place), plan.directory_name)
    print_text(f"written: {written} ({pluralize(len(plan.files), 'file')}); it takes effect when the broker next starts")
