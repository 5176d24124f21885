"""The verb ``offsets``, and what verbs on a log and its remote storage share."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from snaprebuild.cli.options.common import (
    INT32_MAX,
    INT64_MAX,
    Jobs,
    OutputFormat,
    OutputOption,
    Partition,
    PrivateKey,
    Report,
    S3Options,
    Topic,
    Verbose,
    WholeNumber,
    key_files,
    quoted,
    takes_s3,
)
from snaprebuild.cli.options.io_limits import reads_gently
from snaprebuild.cli.verbs.tier_inventory import KeyPrefix, MetadataLog, opened_tier
from snaprebuild.followers.answer_profile import Profile
from snaprebuild.followers.list_offsets import OFFSETS_VERSION_MAX, Isolation, SpecialTimestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from snaprebuild.followers.leader_view import PartitionView
    from snaprebuild.followers.offsets import Answer, OffsetsResult, PartitionOffsets
    from snaprebuild.snapshots.last_stable import Known
    from snaprebuild.snapshots.source.source import Source
    from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "HighWatermark",
    "LogPath",
    "OnOff",
    "OptionalStore",
    "RemoteStorage",
    "is_on",
    "known_json",
    "known_text",
    "offsets",
    "opened_log_and_tier",
    "part_json",
    "print_assumed",
    "view_offsets",
]


class Timestamp(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """Milliseconds since 1970, or one of the special timestamps below 0."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none, or no int64."""
        text = str(value)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and -INT64_MAX - 1 <= int(text) <= INT64_MAX):
            self.fail(f"expected milliseconds since 1970, or -6 to -1, found {quoted(text)}", param, ctx)
        return int(text)


class OnOff(StrEnum):
    """A setting."""

    ON = "on"
    OFF = "off"


LogPath = Annotated[str, typer.Argument(metavar="PATH", hidden=True)]
OptionalStore = Annotated[str | None, typer.Argument(metavar="[STORE]", hidden=True)]
HighWatermark = Annotated[
    int | None,
    typer.Option(
        "--high-watermark",
        metavar="N",
        click_type=WholeNumber(0, INT64_MAX),
        help="High watermark of the leader. Default: that of replication-offset-checkpoint, else the log end.",
    ),
]
RemoteStorage = Annotated[
    OnOff | None,
    typer.Option(
        "--remote-storage",
        show_default=False,
        help="The remote.storage.enable of the topics. Default: on where a store holds copies, or a log start is checkpointed as "
        "brokers do with it.",
    ),
]


@reads_gently
@takes_s3
def offsets(
    s3: S3Options,
    path: LogPath,
    store: OptionalStore = None,
    timestamp: Annotated[
        list[int] | None,
        typer.Option(
            "--timestamp",
            metavar="T",
            click_type=Timestamp(),
            help="Timestamp that is asked for, in milliseconds since 1970, or -1 latest, -2 earliest, -3 greatest timestamp, -4 earliest "
            "local, -5 latest tiered, -6 earliest pending upload; repeatable. Default: -1 to -6.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            "--isolation",
            show_default=False,
            help="Who asks: a follower (replica), or a consumer with this isolation.level. read_committed replays the segments on disk "
            "for the last stable offset. Default: read_uncommitted.",
        ),
    ] = Isolation.READ_UNCOMMITTED,
    api_version: Annotated[
        int,
        typer.Option(
            "--api-version",
            metavar="N",
            click_type=WholeNumber(0, OFFSETS_VERSION_MAX),
            show_default=False,
            help=f"Version of the request. Default: {OFFSETS_VERSION_MAX}, as of Kafka 4.2.",
        ),
    ] = OFFSETS_VERSION_MAX,
    profile: Annotated[
        Profile,
        typer.Option(
            "--profile",
            show_default=False,
            help="Whose answer to -6: of brokers since 4.2, or of the proposal (seed), which neither compares it with the log end nor "
            "raises it to the log start. Default: kafka-4.3.",
        ),
    ] = Profile.KAFKA,
    leader_epoch: Annotated[
        int | None,
        typer.Option(
            "--leader-epoch",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            help="Leader epoch of today. A leader that the checkpoint does not know yet is new, and begins at the log end. Default: the "
            "last one of the checkpoint, whose leader has settled.",
        ),
    ] = None,
    high_watermark: HighWatermark = None,
    remote_storage: RemoteStorage = None,
    metadata_log: MetadataLog = None,
    key_prefix: KeyPrefix = "",
    private_key: PrivateKey = None,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: what the leader would answer to ListOffsets, and which rule decides.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. STORE
    is a directory or s3://BUCKET/PREFIX with the copies of its segments; without it nothing is told of what is in remote storage.
    Timestamps from 0 on are looked for there first, then on disk. What no file tells is assumed, and marked with a star.
    """
    from snaprebuild.cli.result import begin, leave, verdict_document
    from snaprebuild.followers.offsets import OffsetsQuestion, list_offsets
    from snaprebuild.replay.expiry import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.window_proof import Clock

    begin(verbose, {"--report": report}, private_key=key_files(private_key))
    source, tier = opened_log_and_tier(path, store, metadata_log, private_key, key_prefix, topic, partition, s3)
    asked = tuple(timestamp) if timestamp else tuple(map(int, SpecialTimestamp))
    question = OffsetsQuestion(asked, isolation, api_version, profile, leader_epoch, high_watermark, is_on(remote_storage))
    result = list_offsets(source, tier, question, Clock(int(time.time() * 1000), DEFAULT_EXPIRATION_MS), jobs)
    leave(
        lambda: verdict_document("offsets", 1, _body(result, tier), result.findings),
        result.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: _print(result),
        report=report,
        everything=verbose > 0,
    )


def is_on(setting: OnOff | None) -> bool | None:
    """A setting as a value; None where it is not given."""
    return None if setting is None else setting is OnOff.ON


def opened_log_and_tier(
    path: str,
    store: str | None,
    metadata_log: list[str] | None,
    private_key: list[str] | None,
    key_prefix: str,
    topic: list[str] | None,
    partition: list[int] | None,
    s3: S3Options,
) -> tuple[Source, Tier | None]:
    """The log and the store that arguments and options ask for.

    Raises:
        UsageError: a path leads nowhere, or the key is none; or a metadata log is given, and no store.
    """
    from snaprebuild.cli.options.common import check_paths, selection_of
    from snaprebuild.errors import UsageError
    from snaprebuild.snapshots.source.source import open_source
    from snaprebuild.storage.private_keys import PrivateKeys
    from snaprebuild.tier.remote_partition import open_tier

    check_paths([path, *([] if store is None else [store]), *(metadata_log or [])])
    if store is None and (metadata_log or private_key or key_prefix):
        raise UsageError("--metadata-log, --private-key and --key-prefix belong to a STORE: name it after PATH")
    keys = PrivateKeys.of(private_key or ())  # checked before anything is asked of the store
    source = open_source([path], None, selection_of(topic, partition, None), s3.settings())
    if store is None:
        return source, None
    place, root, settings, prefix = opened_tier(store, s3, key_prefix)
    return source, open_tier(place, root, metadata_log or (), settings, keys, prefix, may_be_empty=True)


def known_json(known: Known | None) -> dict[str, object] | None:
    """An offset with its origin."""
    return None if known is None else {"offset": known.value, "origin": known.origin, "assumed": known.is_assumed}


def part_json(view: PartitionView) -> dict[str, object]:
    """What documents of these verbs begin a partition with."""
    from formats.partition.partition_metadata import uuid_to_text

    return {
        "path": view.directory.path,
        "topic_partition": view.source.topic_partition,
        "topic_id": None if view.topic_id is None else uuid_to_text(view.topic_id),
        "remote_storage": {"on": view.has_remote, "origin": view.has_remote_origin, "assumed": view.has_remote_assumed},
        "log_start": known_json(view.log_start),
        "local_start": known_json(view.local_start),
        "highest_remote": known_json(view.highest_remote),
    }


def view_offsets(view: PartitionView) -> dict[str, Known | None]:
    """The offsets that tables of these verbs are made from, by name."""
    return {
        "log start": view.log_start,
        "local start": view.local_start,
        "highest remote": view.highest_remote,
        "log end": view.log_end,
    }


def known_text(known: Known | None) -> str:
    """An offset for a person, with a star where it is assumed."""
    return "-" if known is None else f"{known.value}{'*' if known.is_assumed else ''}"


def print_assumed(taken: Iterable[tuple[PartitionView, Mapping[str, Known | None]]]) -> None:
    """One line with what no file tells of the partitions: of the offsets that are named, and whether remote storage is on."""
    from snaprebuild.cli.result import print_text

    assumed = dict[str, None]()
    for view, named in taken:
        assumed |= {f"{what} ({known.origin})": None for what, known in named.items() if known is not None and known.is_assumed}
        if view.has_remote_assumed:
            assumed[f"remote storage is {'on' if view.has_remote else 'off'} ({view.has_remote_origin})"] = None
    if assumed:
        print_text(f"* assumed: {'; '.join(assumed)}")


def _body(result: OffsetsResult, tier: Tier | None) -> dict[str, object]:
    question = result.question
    return {
        "store": None if tier is None else tier.root,
        "verified": tier is not None and tier.knows_all,
        "isolation": question.isolation.value,
        "api_version": question.version,
        "profile": question.profile.value,
        "partitions": [_partition(each) for each in result.partitions],
    }


def _partition(partition: PartitionOffsets) -> dict[str, object]:
    view = partition.view
    return {
        **part_json(view),
        "last_stable": known_json(partition.last_stable),
        "high_watermark": known_json(partition.high_watermark),
        "log_end": known_json(view.log_end),
        "leader_epoch": {
            "epoch": partition.leader_epoch.value,
            "origin": partition.leader_epoch.origin,
            "assumed": partition.leader_epoch.is_assumed,
        },
        "answers": [_answer(each) for each in partition.answers],
    }


def _answer(answer: Answer) -> dict[str, object]:
    listed = answer.listed
    return {
        "timestamp": answer.timestamp,
        "offset": None if listed is None else listed.offset,
        "record_timestamp": None if listed is None else listed.timestamp,
        "leader_epoch": None if listed is None else listed.leader_epoch,
        "error": None if listed is None or listed.error is None else listed.error.value,
        "found_in": answer.found_in,
        "why": answer.why,
    }


NAMES = {
    SpecialTimestamp.LATEST: "latest",
    SpecialTimestamp.EARLIEST: "earliest",
    SpecialTimestamp.MAX_TIMESTAMP: "max timestamp",
    SpecialTimestamp.EARLIEST_LOCAL: "earliest local",
    SpecialTimestamp.LATEST_TIERED: "latest tiered",
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: "pending upload",
}


def _print(result: OffsetsResult) -> None:
    from snaprebuild.cli.result import labels_of, print_table, print_text
    from snaprebuild.findings import counted

    views = [each.view for each in result.partitions]
    labels = labels_of((view.source for view in views), {view.directory.path: view.topic_id for view in views})
    rows, inputs = [], []
    taken: list[tuple[PartitionView, dict[str, Known | None]]] = []
    for each in result.partitions:
        label, view = labels[each.view.directory.path], each.view
        for answer in each.answers:
            listed, name = answer.listed, {int(special): name for special, name in NAMES.items()}.get(answer.timestamp)
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
        print_table("Taken from", ("partition", *columns), inputs, right=columns)
    print_assumed(taken)
    print_text(f"{counted(len(result.partitions), 'partition')}, {counted(len(rows), 'answer')}")
