"""The verb ``cluster isr``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import QuorumAssumptions, VoterLogs, voter_log_of
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.isr_check import IsrCheckResult, IsrEvent
    from snaprebuild.documents import cluster as doc

__all__ = ["cluster_isr"]


@verb()
def cluster_isr(
    *,
    path: Annotated[str, typer.Argument(metavar="DIR")],
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: checks each change of in-sync replicas in a metadata log against the invariant of KIP-903.

    DIR is a __cluster_metadata-0 directory, a log directory that holds it, or any directory above, also as s3://BUCKET/PREFIX.
    Findings are replicas that joined although their broker was fenced, shutting down or not registered. So are replicas that
    stayed when they should have left, or that lead on a disk without their data. What came before the log's oldest image is
    unknown. Each finding shows whether its record is proven to be committed: by a checkpoint, or by logs of a majority of the
    voters (--voter).
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cluster.metadata.isr_check import IsrQuestion
    from snaprebuild.cluster.metadata.isr_check import isr_check as check

    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_paths([path, *(each for _, each in others)])
    result = check(IsrQuestion(path, others, assumed.voters), s3.run())
    return Result(lambda: _document(result), result.findings, lambda: _print(result))


def _document(result: IsrCheckResult) -> doc.ClusterIsr:
    from snaprebuild.cli.render.shared_parts import unknown_contents
    from snaprebuild.documents import cluster as doc

    return doc.ClusterIsr(
        path=result.log.path,
        known_from=result.known_from,
        checkpoint=None if result.checkpoint is None else result.checkpoint.path,
        end_offset=result.end_offset,
        proven_end_offset=result.proof.end_offset,
        isr_changes=result.changes,
        joins=result.joins,
        totals={fault.value: count for fault, count in result.counts.items()},
        events=(_event(each, result.is_proven(each)) for each in result.events),
        unknown_contents=unknown_contents(result.log.unknown, result.log.other_files),
    )


def _event(event: IsrEvent, is_proven: bool) -> doc.IsrEvent:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import cluster as doc
    from snaprebuild.storage.partition_names import named

    return doc.IsrEvent(
        **named(event.topic, event.partition),
        fault=event.fault.value,
        offset=event.offset,
        is_proven=is_proven,
        timestamp_ms=event.timestamp_ms,
        leader_epoch=event.leader_epoch,
        topic_id=uuid_to_text(event.topic_id),
        broker=event.broker_id,
        kind=event.kind.value,
        isr_before=event.isr_before,
        isr=event.isr,
        broker_epoch=event.broker_epoch,
        left_offset=event.left_offset,
        gone_directories=[uuid_to_text(each) for each in event.gone_directories],
    )


def _print(result: IsrCheckResult) -> None:
    from snaprebuild.cli.result import print_table, print_text, time_text, unless_unread
    from snaprebuild.cluster.metadata.proof import unproven_reason
    from snaprebuild.findings import pluralize

    rows = [
        (
            f"{each.offset}{'' if result.is_proven(each) else '*'}",
            time_text(each.timestamp_ms),
            f"{each.topic}-{each.partition}",
            each.broker_id,
            "-" if each.broker_epoch is None else each.broker_epoch,
            ", ".join(map(str, each.isr_before)) or "-",
            ", ".join(map(str, each.isr)) or "-",
            each.kind.value,
            each.fault.value,
        )
        for each in result.events
    ]
    if rows:
        columns = ("offset", "time", "partition", "broker", "epoch", "in sync before", "after", "how", "what")
        print_table(
            "Replicas that joined or stayed in sync, and the evidence for it",
            columns,
            rows,
            right=("offset", "epoch"),
            drop=("epoch", "time"),
        )
    where = "its beginning" if result.checkpoint is None else "a checkpoint, before which nothing is known"
    print_text(
        f"offsets {result.known_from} to {result.end_offset - 1}, from {where}: "
        f"{pluralize(result.changes, 'change')} of in-sync replicas, {pluralize(result.joins, 'replica')} joined"
    )
    end = result.proof.end_offset
    if result.end_offset > end:
        print_text(f"offsets from {end} on, marked with a star, are not proven to be committed: {unproven_reason(result.proof)}")
    else:
        print_text(unless_unread("all of it is proven to be committed", result.findings))
    if result.log.unknown:
        print_text(f"Not covered: {result.log.unknown.sentence}.")
