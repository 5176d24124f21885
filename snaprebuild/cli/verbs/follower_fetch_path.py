"""The verb ``follower fetch-path``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import HighWatermark, RemoteStorage
from snaprebuild.cli.options.common import Partition, S3Options, Topic, WholeNumber
from snaprebuild.cli.options.io_limits import LoadAlone
from snaprebuild.cli.options.log_and_tier import LogPath, OptionalStore, opened_log_and_tier
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.fetch_path import Deletion, Fetch, FetchPathResult, PartitionFetchPath
    from snaprebuild.tier.remote_partition import Tier

__all__ = ["follower_fetch_path"]


class FetchAssumptions(msgspec.Struct, frozen=True):
    """What the files of the leader do not show."""

    high_watermark: HighWatermark = None
    remote_storage: RemoteStorage = None


@verb(LoadAlone)
def follower_fetch_path(
    *,
    path: LogPath,
    store: OptionalStore = None,
    offset: Annotated[
        int,
        typer.Option(
            "--offset",
            metavar="N",
            click_type=WholeNumber(0, INT64_MAX),
            show_default=False,
            help="Offset to fetch. Default: 0.",
        ),
    ] = 0,
    assumed: FetchAssumptions,
    tier_options: TierOptions,
    topic: Topic = None,
    partition: Partition = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: what serves a fetch at an offset, and what deleting the records below it would remove.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX: the leader's. STORE
    is a directory or s3://BUCKET/PREFIX with the copies of its segments. Exit code 1 if nothing serves an offset inside of the
    log, 4 if objects of the copy that holds it are gone.
    """
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
    from snaprebuild.followers.fetch_path import fetch_path as look

    out.begin(private_key=tier_options.key_files)
    source, tier = opened_log_and_tier(path, store, tier_options, topic, partition, s3)
    result = look(source, tier, offset, assumed.high_watermark, assumed.remote_storage)
    findings = [*result.findings, *start_concerns(source, result.findings, without=SNAPSHOTS_ALONE)]
    return Result(lambda: _document(result, tier), findings, lambda: _print(result))


def _document(result: FetchPathResult, tier: Tier | None) -> doc.FollowerFetchPath:
    from snaprebuild.documents import followers as doc

    return doc.FollowerFetchPath(
        store=None if tier is None else tier.location,
        verified=tier is not None and tier.verified,
        offset=result.offset,
        partitions=[_partition(each) for each in result.partitions],
    )


def _partition(place: PartitionFetchPath) -> doc.FetchPathPartition:
    from snaprebuild.cli.render.leader_view import viewed_partition
    from snaprebuild.documents import followers as doc

    return doc.FetchPathPartition(
        **viewed_partition(place.view, place.high_watermark),
        consumer=_fetch(place.consumer),
        follower=_fetch(place.follower),
        delete_records=_deletion(place.deletion),
    )


def _fetch(fetch: Fetch) -> doc.Fetch:
    from snaprebuild.documents import followers as doc

    return doc.Fetch(served=fetch.served.value, source=fetch.source, object_key=fetch.key, reason=fetch.why)


def _deletion(deletion: Deletion) -> doc.Deletion:
    from formats.partition.partition_metadata import uuid_to_text
    from formats.remote.remote_log_metadata import SegmentState
    from snaprebuild.documents import followers as doc

    return doc.Deletion(
        error=deletion.error,
        log_start_offset=deletion.log_start,
        segments=[doc.DeletedSegment(base_offset=each.base_offset, size_bytes=each.size_bytes) for each in deletion.segments],
        segment_bytes=sum(each.size_bytes for each in deletion.segments),
        copies=[
            doc.DeletedCopy(
                segment_id=uuid_to_text(each.segment_id),
                start_offset=each.start_offset,
                end_offset=each.end_offset,
                size_bytes=each.size_bytes,
                phantom=each.state is SegmentState.COPY_SEGMENT_STARTED,
            )
            for each in deletion.copies
        ],
        copy_bytes=sum(each.size_bytes for each in deletion.finished),
        reason=deletion.why,
    )


def _print(result: FetchPathResult) -> None:
    from snaprebuild.cli.render.leader_view import print_assumed, view_offsets
    from snaprebuild.cli.result import labels_of, print_table, print_text, size_text
    from snaprebuild.findings import pluralize

    views = [each.view for each in result.partitions]
    labels = labels_of((view.source for view in views), {view.directory.path: view.topic_id for view in views})
    rows = []
    deleted = []
    reasons = dict[str, None]()
    for each in result.partitions:
        label = labels[each.view.directory.path]
        for who, fetch in (("consumer", each.consumer), ("follower", each.follower)):
            rows.append((label, who, fetch.served, fetch.source or "-", fetch.why))
        if each.consumer.key is not None:
            reasons[f"{label} is read from {each.consumer.key}"] = None
        gone = each.deletion
        local = f"{pluralize(len(gone.segments), 'segment')}, {size_text(sum(it.size_bytes for it in gone.segments))}"
        finished = gone.finished
        remote = f"{pluralize(len(finished), 'copy', 'copies')}, {size_text(sum(it.size_bytes for it in finished))}"
        if len(finished) < len(gone.copies):
            remote += f", {pluralize(len(gone.copies) - len(finished), 'announcement')}"
        reasons[gone.why] = None
        deleted.append((label, gone.error or gone.log_start, local, remote))
    if rows:
        print_table(f"A fetch at {result.offset}", ("partition", "asks", "served", "from", "why"), rows)
        columns = ("partition", "log start", "from disk", "from remote storage")
        print_table(f"DeleteRecords to {result.offset} would remove", columns, deleted)
    print_assumed((each.view, {**view_offsets(each.view), "high watermark": each.high_watermark}) for each in result.partitions)
    print_text(f"{pluralize(len(result.partitions), 'partition')}: {'; '.join(reasons) or 'none'}")
