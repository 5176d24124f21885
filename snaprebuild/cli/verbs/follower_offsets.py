"""The verb ``follower offsets``, and what verbs on a log and its remote storage share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption, HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import Jobs, Partition, S3Options, Topic, WholeNumber
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.log_and_tier import LogPath, OptionalStore, opened_log_and_tier
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.followers import Profile
from snaprebuild.followers.list_offsets import OFFSETS_VERSION_MAX, Isolation, SpecialTimestamp

if TYPE_CHECKING:
    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.leader_view import PartitionView
    from snaprebuild.followers.offsets import Answer, OffsetsResult, PartitionOffsets
    from snaprebuild.snapshots.last_stable import Known
    from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "follower_offsets",
]


class OffsetsAssumptions(msgspec.Struct, frozen=True):
    """What the files of the leader do not show."""

    leader_epoch: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT32_MAX),
            "Current leader epoch. An epoch above the checkpoint begins at the log end. Default: the last one of the checkpoint.",
        ),
    ] = None
    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None


@verb(Load)
def follower_offsets(
    *,
    path: LogPath,
    store: OptionalStore = None,
    timestamp: Annotated[
        list[int] | None,
        typer.Option(
            "--timestamp",
            metavar="T",
            click_type=WholeNumber(-INT64_MAX - 1, INT64_MAX),
            help="Timestamp to look up in ms since 1970, or -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 "
            "latest tiered, -6 earliest pending upload; repeatable. Default: -1 to -6.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            "--isolation",
            show_default=False,
            help="Who asks: a follower (replica), or a consumer with this isolation.level. Default: read_uncommitted.",
        ),
    ] = Isolation.READ_UNCOMMITTED,
    api_version: Annotated[
        int,
        typer.Option(
            "--api-version",
            metavar="N",
            click_type=WholeNumber(0, OFFSETS_VERSION_MAX),
            show_default=False,
            help="Version of the ListOffsets request. Default: 11, as of Kafka 4.2.",
        ),
    ] = OFFSETS_VERSION_MAX,
    profile: Annotated[
        Profile,
        typer.Option(
            "--profile",
            show_default=False,
            help="Answer to -6: that of Kafka since 4.2, or of KIP-1023 (kip-1023), which neither compares it with the log end "
            "nor raises it to the log start. Default: kafka-4.3.",
        ),
    ] = Profile.KAFKA,
    assumed: OffsetsAssumptions,
    tier_options: TierOptions,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: what the leader would answer to ListOffsets, and which rule decides.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. STORE
    is a directory or s3://BUCKET/PREFIX with the copies of its segments; without it the answers from remote storage are
    unknown. Timestamps from 0 on are looked for there first, then on disk. What no file shows is assumed, and marked with a
    star.
    """
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
    from snaprebuild.followers.offsets import OffsetsQuestion, list_offsets

    out.begin(private_key=tier_options.key_files)
    source, tier = opened_log_and_tier(path, store, tier_options, topic, partition, s3)
    asked = tuple(timestamp) if timestamp else tuple(map(int, SpecialTimestamp))
    question = OffsetsQuestion(
        asked, isolation, api_version, profile, assumed.leader_epoch, assumed.high_watermark, assumed.remote_storage
    )
    result = list_offsets(source, tier, question, s3.run(jobs=jobs))
    findings = [*result.findings, *start_concerns(source, result.findings, without=SNAPSHOTS_ALONE)]
    return Result(lambda: _document(result, tier), findings, lambda: _print(result))


def _document(result: OffsetsResult, tier: Tier | None) -> doc.FollowerOffsets:
    from snaprebuild.documents import followers as doc

    question = result.question
    return doc.FollowerOffsets(
        store=None if tier is None else tier.location,
        verified=tier is not None and tier.verified,
        isolation=question.isolation.value,
        api_version=question.version,
        profile=question.profile.value,
        partitions=[_partition(each) for each in result.partitions],
    )


def _partition(partition: PartitionOffsets) -> doc.OffsetsPartition:
    from snaprebuild.cli.render.leader_view import known_offset, viewed_partition
    from snaprebuild.documents import followers as doc

    epoch = partition.leader_epoch
    return doc.OffsetsPartition(
        **viewed_partition(partition.view, partition.high_watermark),
        last_stable=None if partition.last_stable is None else known_offset(partition.last_stable),
        leader_epoch=doc.CurrentLeaderEpoch(epoch=epoch.value, origin=epoch.origin, assumed=epoch.is_assumed),
        answers=[_answer(each) for each in partition.answers],
    )


def _answer(answer: Answer) -> doc.Answer:
    from snaprebuild.documents import followers as doc

    listed = answer.listed
    return doc.Answer(
        timestamp_ms=answer.timestamp,
        offset=None if listed is None else listed.offset,
        record_timestamp_ms=None if listed is None else listed.timestamp,
        leader_epoch=None if listed is None else listed.leader_epoch,
        error=None if listed is None or listed.error is None else listed.error.value,
        found_in=answer.found_in,
        reason=answer.why,
    )


NAMES = {
    SpecialTimestamp.LATEST: "latest",
    SpecialTimestamp.EARLIEST: "earliest",
    SpecialTimestamp.MAX_TIMESTAMP: "max timestamp",
    SpecialTimestamp.EARLIEST_LOCAL: "earliest local",
    SpecialTimestamp.LATEST_TIERED: "latest tiered",
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: "pending upload",
}


def _print(result: OffsetsResult) -> None:
    from snaprebuild.cli.render.leader_view import known_text, print_assumed
    from snaprebuild.cli.result import labels_of, print_table, print_text
    from snaprebuild.findings import pluralize

    views = [each.view for each in result.partitions]
    labels = labels_of((view.source for view in views), {view.directory.path: view.topic_id for view in views})
    rows = []
    inputs = []
    taken: list[tuple[PartitionView, dict[str, Known | None]]] = []
    for each in result.partitions:
        label = labels[each.view.directory.path]
        view = each.view
        for answer in each.answers:
            listed = answer.listed
            name = {int(special): name for special, name in NAMES.items()}.get(answer.timestamp)
            shown = "not known" if listed is None else listed.error.value if listed.error is not None else str(listed.offset)
            epoch = "-" if listed is None or listed.leader_epoch < 0 else listed.leader_epoch
            why = answer.why if answer.found_in is None else f"{answer.why}, in {answer.found_in}"
            rows.append((label, answer.timestamp if name is None else f"{answer.timestamp} {name}", shown, epoch, why))
        named = {
            "log start": view.log_start,
            "local start": view.local_start,
            "highest remote": view.highest_remote,
            "last stable": each.last_stable,
            "high watermark": each.high_watermark,
            "log end": view.log_end,
        }
        inputs.append((label, *map(known_text, named.values())))
        taken.append((view, {**named, "leader epoch": each.leader_epoch}))
    if rows:
        print_table("ListOffsets", ("partition", "asked", "offset", "epoch", "rule"), rows, right=("offset", "epoch"))
        columns = ("log start", "local start", "highest remote", "last stable", "high watermark", "log end")
        print_table("Taken from", ("partition", *columns), inputs, right=columns, drop=("high watermark",))
    print_assumed(taken)
    print_text(f"{pluralize(len(result.partitions), 'partition')}, {pluralize(len(rows), 'answer')}")
