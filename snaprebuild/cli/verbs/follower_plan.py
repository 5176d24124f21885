"""The verb ``follower plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import ON_OFF, Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import Jobs, Partition, S3Options, Topic, WholeNumber
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.log_and_tier import LogPath, opened_log_and_tier
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.followers import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from formats.partition.checkpoint_file import LeaderEpochEntry
    from snaprebuild.documents import follower_plan as doc
    from snaprebuild.followers.bootstrap_plan import BootstrapPlan, PlannedBootstrap
    from snaprebuild.followers.bootstrap_rules import AuxiliaryState, Decision
    from snaprebuild.tier.remote_partition import Tier

__all__ = ["follower_plan"]


class OffsetOrUnknown(WholeNumber):
    """An offset, or ``unknown`` for -1."""

    name = "N|unknown"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none."""
        return -1 if value in ("unknown", -1) else super().convert(value, param, ctx)


OFFSET = WholeNumber(0, INT64_MAX)


class PlanAssumptions(msgspec.Struct, frozen=True):
    """What the files of the leader do not show of it and of the follower."""

    follower_end: Annotated[int, Assumption(OFFSET, "Log end offset of the follower; at 0 it is empty. Default: 0.")] = 0
    follower_offset: Annotated[
        int | None, Assumption(OFFSET, "Offset that the follower asks for. Default: that of follower_end.")
    ] = None
    follower_remote: Annotated[
        bool, Assumption(ON_OFF, "Whether the follower knows of the topic's remote storage. Default: on.")
    ] = True
    follower_metadata: Annotated[
        bool, Assumption(ON_OFF, "Whether the follower has read the remote log metadata. Default: on.")
    ] = True
    last_tiered_offset: Annotated[
        bool,
        Assumption(ON_OFF, "The follower.fetch.last.tiered.offset.enable of the follower. Brokers have it off. Default: on."),
    ] = True
    highest_remote: Annotated[
        int | None,
        Assumption(
            OffsetOrUnknown(0, INT64_MAX),
            "Last offset that the leader knows to be in remote storage, or unknown after an election. Default: from the "
            "metadata log and the store.",
        ),
    ] = None
    log_start: Annotated[int | None, Assumption(OFFSET, "Log start of the leader. Default: that of its files.")] = None
    log_end: Annotated[int | None, Assumption(OFFSET, "Log end of the leader. Default: the end of its last segment.")] = None
    last_stable: Annotated[int | None, Assumption(OFFSET, "Last stable offset. Default: by a replay of the segments on disk.")] = (
        None
    )
    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None


@verb(Load)
def follower_plan(
    *,
    path: LogPath,
    store: TierLocation,
    profile: Annotated[
        Profile,
        typer.Option(
            "--profile",
            show_default=False,
            help="Rules that decide: those of KIP-1023 (kip-1023), or of Kafka 4.3 and 4.4, which differ if remote storage has "
            "nothing usable. Default: kip-1023.",
        ),
    ] = Profile.PROPOSAL,
    assumed: PlanAssumptions,
    tier_options: TierOptions,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: how an empty follower would start from remote storage (KIP-1023), and what it would replicate.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. STORE
    is a directory or s3://BUCKET/PREFIX with the copies of its segments. It shows the row of the table in docs/reference/offsets.md,
    the requests and answers, and the follower's log after each. Exit code 1 if it would never start or if offsets contradict one
    another.
    """
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
    from snaprebuild.followers.bootstrap_plan import Supposed, plan_bootstrap
    from snaprebuild.followers.bootstrap_rules import Follower

    out.begin(private_key=tier_options.key_files)
    source, tier = opened_log_and_tier(path, store, tier_options, topic, partition, s3)
    assert tier is not None
    follower = Follower(
        fetch_offset=assumed.follower_end if assumed.follower_offset is None else assumed.follower_offset,
        log_end=assumed.follower_end,
        last_tiered_enabled=assumed.last_tiered_offset,
        has_remote=assumed.follower_remote,
        metadata_is_ready=assumed.follower_metadata,
    )
    supposed = Supposed(
        assumed.log_start,
        assumed.log_end,
        assumed.highest_remote,
        assumed.high_watermark,
        assumed.last_stable,
        assumed.remote_storage,
    )
    plan = plan_bootstrap(source, tier, follower, profile, supposed, s3.run(jobs=jobs))
    findings = [*plan.findings, *start_concerns(source, plan.findings, without=SNAPSHOTS_ALONE)]
    return Result(lambda: _document(plan, tier), findings, lambda: _print(plan, tier))


def _document(plan: BootstrapPlan, tier: Tier) -> doc.FollowerPlan:
    from snaprebuild.documents import follower_plan as doc

    return doc.FollowerPlan(
        store=tier.location,
        verified=tier.verified,
        profile=plan.profile.value,
        partitions=[_partition(each) for each in plan.partitions],
        unknown_objects=tier.unknown.count,
    )


def _partition(planned: PlannedBootstrap) -> doc.PlanPartition:
    from snaprebuild.cli.render.leader_view import known_offset, viewed_partition
    from snaprebuild.cli.render.remote_storage import leader_epochs_of
    from snaprebuild.documents import follower_plan as doc

    follower = planned.follower
    share = planned.share
    return doc.PlanPartition(
        **viewed_partition(planned.view, planned.high_watermark),
        last_stable=known_offset(planned.last_stable),
        pending_upload_offset=planned.leader.pending_upload,
        order_faults=planned.faults,
        follower=doc.EmptyFollower(
            fetch_offset=follower.fetch_offset,
            log_end_offset=follower.log_end,
            last_tiered_enabled=follower.last_tiered_enabled,
            has_remote=follower.has_remote,
            metadata_is_ready=follower.metadata_is_ready,
            is_compacted=follower.is_compacted,
        ),
        decision=_decision(planned.decision),
        then=None if planned.then is None else _decision(planned.then),
        calls=[msgspec.convert(each, doc.Call, from_attributes=True) for each in planned.calls],
        state=None if planned.state is None else _state(planned.state, planned.state_epochs),
        steps=[
            doc.Step(
                after=each.after,
                log_start_offset=each.log_start,
                local_start_offset=each.local_start,
                log_end_offset=each.log_end,
                leader_epochs=leader_epochs_of(each.epochs),
            )
            for each in planned.steps
        ],
        share=doc.Share(replicated_bytes=share.replicated, local_bytes=share.local, all_bytes=share.everything),
        drawback=planned.drawback,
    )


def _decision(decision: Decision) -> doc.Decision:
    from snaprebuild.documents import follower_plan as doc

    return doc.Decision(
        row=decision.row,
        action=decision.action.value,
        offset=decision.offset,
        log_start_offset=decision.log_start,
        reason=decision.why,
    )


def _state(state: AuxiliaryState, epochs: Sequence[LeaderEpochEntry]) -> doc.RestoredState:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.render.remote_storage import leader_epochs_of
    from snaprebuild.documents import follower_plan as doc

    return doc.RestoredState(
        segment_id=uuid_to_text(state.segment.segment_id),
        start_offset=state.segment.start_offset,
        end_offset=state.segment.end_offset,
        epoch=state.epoch,
        next_offset=state.next_offset,
        leader_epochs=leader_epochs_of(epochs),
    )


def _print(plan: BootstrapPlan, tier: Tier) -> None:
    from snaprebuild.cli.render.leader_view import known_text, print_assumed, view_offsets
    from snaprebuild.cli.result import labels_of, print_table, print_text, size_text
    from snaprebuild.findings import pluralize

    views = [each.view for each in plan.partitions]
    labels = labels_of((view.source for view in views), {view.directory.path: view.topic_id for view in views})
    rows = []
    calls = []
    steps = []
    for each in plan.partitions:
        label = labels[each.view.directory.path]
        decision = each.last
        share = each.share
        if each.then is not None:
            first = each.decision
            at = "-" if first.offset is None else first.offset
            rows.append((label, first.row, f"{first.action} {at}: {first.why}"))
        start = "-" if decision.offset is None else each.state.next_offset if each.state is not None else decision.offset
        replicated = (
            "" if share.replicated is None else f", replicate {size_text(share.replicated)} of {size_text(share.everything)}"
        )
        if share.replicated is not None and share.everything:
            replicated += f" ({100 * share.replicated / share.everything:.0f} %)"
        rows.append((label, decision.row, f"{decision.action} {start}{replicated}: {decision.why}"))
        calls += [
            (label, f"{call.api} {call.asks}", call.offset, "-" if call.leader_epoch < 0 else call.leader_epoch)
            for call in each.calls
        ]
        for step in each.steps:
            epochs = " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in step.epochs)
            steps.append((label, step.log_start, step.local_start, step.log_end, epochs or "-", step.after))
    if rows:
        print_table(f"Bootstrap ({plan.profile})", ("partition", "row", "the follower will"), rows, right=("row",))
    if calls:
        print_table("Requests to the leader", ("partition", "request", "offset", "epoch"), calls, right=("offset", "epoch"))
    if steps:
        columns = ("partition", "log start", "local start", "log end", "leader epochs", "after")
        print_table("The follower's log", columns, steps, right=columns[1:4], drop=("log start",))
    for each in plan.partitions:
        view = each.view
        order = (
            f"log end {view.log_end.value} >= last stable {known_text(each.last_stable)} >= local start {view.local_start.value}"
        )
        if each.leader.pending_upload > view.log_start.value:
            order += f", last stable >= highest remote {known_text(view.highest_remote)} >= log start {known_text(view.log_start)}"
        name = labels[view.directory.path]
        print_text(f"{name}: {order}: {'; '.join(each.faults) or 'in order'}")
        if each.drawback is not None:
            print_text(f"{name}: {each.drawback}")
    print_assumed(
        (each.view, {**view_offsets(each.view), "last stable": each.last_stable, "high watermark": each.high_watermark})
        for each in plan.partitions
    )
    print_text(pluralize(len(plan.partitions), "partition"))
    if tier.unknown.count:
        objects = pluralize(tier.unknown.count, "object")
        print_text(f"Not covered: {objects} in the store whose layout this version of snaprebuild does not know.")
