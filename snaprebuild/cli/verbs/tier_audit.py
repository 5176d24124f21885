"""The verb ``tier audit``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    as_of_ms,
    selection_of,
)
from snaprebuild.cli.options.engine import EngineOptions, engine_of
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions, opened_tier
from snaprebuild.cli.verb import MeasuredOutput, Result, verb
from snaprebuild.errors import UsageError
from snaprebuild.tier import AuditLevel

if TYPE_CHECKING:
    from snaprebuild.documents import tier as doc
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.engine.clock import Clock
    from snaprebuild.snapshots.run import Run
    from snaprebuild.tier.audit.result import AuditedCopy, AuditedPartition, TierAudit

__all__ = ["tier_audit"]


@verb()
def tier_audit(
    *,
    store: TierLocation,
    topic: Topic = None,
    partition: Partition = None,
    tier_options: TierOptions,
    level: Annotated[
        AuditLevel,
        typer.Option(
            "--level",
            show_default=False,
            help="full: replay every segment. reachable: replay one --expiration-ms, for the snapshots from which a follower "
            "may still start. structure: parse manifests and snapshots only. Default: full.",
        ),
    ] = AuditLevel.FULL,
    local_log_start: Annotated[
        list[str] | None,
        typer.Option(
            "--local-log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            help="First offset on the leader's disk, for each partition; repeatable. For --level reachable. Default: none, "
            "only the last copy counts as reachable.",
        ),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            help="Log directory with the first offset on disk, best the leader's; repeatable. For --level reachable. Default: "
            "none.",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="DIR",
            help="KRaft metadata log of the cluster: __cluster_metadata-0 of any node, or a directory that holds it, also as "
            "s3://BUCKET/PREFIX. Producer ids in remote storage are compared with it. Default: none, they are not compared.",
        ),
    ] = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> Result:
    """Reads only: compares each producer snapshot in remote storage with a replay of the segments there.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. For each
    wrong snapshot it shows what a follower that starts from it would do. Without --metadata-log all complete copies count as
    live. If remote storage begins above offset 0, earlier producers are unknown, and a snapshot from which all later ones
    follow is consistent. Exit code 1 if a snapshot is wrong, suspect, unproven or not read, 4 if one does not parse.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock
    from snaprebuild.storage.store import absolute
    from snaprebuild.tier.audit.audit import tier_audit as audit
    from snaprebuild.tier.audit.reachable import read_local_starts

    out.begin(private_key=tier_options.key_files)
    check_paths([store, *(tier_options.metadata_log or []), *(log_dir or [])])
    check_metadata(metadata)
    if (local_log_start or log_dir) and level is not AuditLevel.REACHABLE:
        raise UsageError("--local-log-start and --log-dir go with --level reachable")
    keys = tier_options.keys()
    clock = Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)
    root, prefix = opened_tier(store, s3, tier_options.key_prefix)
    run = s3.run(clock=clock, jobs=jobs)
    cluster = None if metadata is None else MetadataLogs(absolute(metadata), run).named()
    started = time.perf_counter()
    with engine_of(engine) as chosen:
        result = audit(
            root,
            run,
            level=level,
            selection=selection_of(topic, partition, None),
            metadata_logs=tier_options.metadata_log or (),
            private_keys=keys,
            key_prefix=prefix,
            engine=lambda size_bytes: chosen.reading(size_bytes, None),
            announce=announced,
            local_starts=read_local_starts(local_log_start or (), log_dir or (), run),
            cluster=cluster,
        )
    seconds = time.perf_counter() - started
    findings = [*result.findings, *_of_start(log_dir or (), run)]
    return Result(lambda: _document(result, clock, seconds), findings, lambda: _print(result), answer=lambda: _answer(result))


def _of_start(log_dirs: Sequence[str], run: Run) -> list[Finding]:
    """What the next start does to the logs whose first offsets show what is reachable."""
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, start_concerns
    from snaprebuild.snapshots.source.source import open_source
    from snaprebuild.storage.store import is_object

    local = [each for each in log_dirs if not is_object(each)]
    return start_concerns(open_source(local, run=run), (), without=SNAPSHOTS_ALONE) if local else []


def _document(audit: TierAudit, clock: Clock, seconds: float) -> doc.TierAudit:
    from snaprebuild.broker.status import status_of
    from snaprebuild.cli.render.remote_storage import estimate_of
    from snaprebuild.documents import tier as doc
    from snaprebuild.findings import unread_paths
    from snaprebuild.snapshots.run_record import run_record
    from snaprebuild.tier.audit.result import WRONG, Verdict

    verdicts = Counter(copy.verdict for partition in audit.partitions for copy in partition.copies)
    wrong = sum(verdicts[verdict] for verdict in WRONG)
    unread = len(unread_paths(audit.findings))
    status = status_of((), wrong=wrong, suspect=verdicts[Verdict.SUSPECT], missing=0, waiting=0, unknown=unread)
    return doc.TierAudit(
        run=run_record(),
        store=audit.root,
        level=audit.level.value,
        verified=audit.is_verified,
        as_of_ms=clock.as_of_ms,
        expiration_ms=clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        estimate=estimate_of(audit.cost),
        totals=_totals(audit.partitions),
        partitions=[_partition(each) for each in audit.partitions],
        status=status.word.value,
        counts=status.counts,
    )


def _totals(partitions: list[AuditedPartition]) -> doc.AuditTotals:
    from snaprebuild.documents import tier as doc
    from snaprebuild.tier.audit.result import Verdict

    counts = Counter(copy.verdict for partition in partitions for copy in partition.copies)
    return msgspec.convert({verdict.value: counts[verdict] for verdict in Verdict}, doc.AuditTotals)


def _totals_text(partitions: list[AuditedPartition]) -> str:
    """Those that are not 0."""
    from snaprebuild.tier.audit.result import Verdict

    counts = Counter(copy.verdict for partition in partitions for copy in partition.copies)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def _partition(partition: AuditedPartition) -> doc.AuditedPartition:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import tier as doc
    from snaprebuild.storage.partition_names import named

    return doc.AuditedPartition(
        **named(partition.topic, partition.partition),
        topic_id=uuid_to_text(partition.topic_id),
        layout=partition.layout.value,
        read_bytes=partition.bytes_read,
        replayed_from_offset=partition.replayed_from,
        local_log_start_offset=partition.local_log_start,
        totals=_totals([partition]),
        copies=[_copy(copy) for copy in partition.copies],
    )


def _copy(copy: AuditedCopy) -> doc.AuditedCopy:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import tier as doc

    return doc.AuditedCopy(
        segment_id=uuid_to_text(copy.segment_id),
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        stored_bytes=copy.stored_bytes,
        verdict=copy.verdict.value,
        reason=copy.why,
        entries=copy.entries,
        expected_entries=copy.expected_entries,
        difference_count=copy.difference_count,
        differences=[
            doc.DifferingProducer(producer_id=each.producer_id, kind=each.kind.value, consequence=each.consequence)
            for each in copy.differences
        ],
    )


def _answer(audit: TierAudit) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import COPIES, given_words
    from snaprebuild.findings import pluralize
    from snaprebuild.tier.audit.result import WRONG
    from snaprebuild.tier.repair.repair import would_repair

    wrong = sum(copy.verdict in WRONG for each in audit.partitions for copy in each.copies)
    answer = f"{pluralize(len(audit.partitions), 'partition')}, snapshots: {_totals_text(audit.partitions) or 'none'}"
    if wrong:
        answer = f"{pluralize(wrong, 'snapshot is', 'snapshots are')} wrong in remote storage. {answer}"
    if audit.foreign_producers:
        partitions = pluralize(len(audit.foreign_producers), "partition has", "partitions have")
        answer = f"{partitions} producer ids that the cluster gives out again. {answer}"
    answer += "." if audit.is_verified else "; which copies are live is unverified (--metadata-log)."
    if not wrong:
        return answer, []
    selected = given_words(*COPIES)
    if audit.level is not AuditLevel.FULL:
        return answer, ["tier", "audit", *selected]  # which of them are wrong, and what is right, all segments show
    acting = [each for each in audit.partitions if would_repair(each)]
    if not acting:
        return answer, []
    unverified = [] if all(each.is_verified for each in acting) else ["--allow-unverified"]
    return answer, ["tier", "repair", *selected, *unverified, "--dry-run"]


def _print(audit: TierAudit) -> None:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.result import id_labels, print_table, size_text
    from snaprebuild.tier.audit.result import WRONG

    rows = []
    wrong = []
    ids = id_labels((each.topic, each.topic_id) for each in audit.partitions)
    for each in sorted(audit.partitions, key=lambda one: -sum(copy.verdict in WRONG for copy in one.copies)):
        label = each.name + ids.get((each.topic, each.topic_id), "")
        rows.append((label, each.layout, len(each.copies), size_text(each.bytes_read), _totals_text([each]) or "-"))
        for copy in each.copies:
            if copy.verdict in WRONG:
                entries = "-" if copy.expected_entries is None else f"{copy.entries} of {copy.expected_entries}"
                wrong.append((label, copy.start_offset, uuid_to_text(copy.segment_id), copy.verdict, entries, copy.why))
    if wrong:
        columns = ("partition", "from offset", "segment", "snapshot is", "producers", "why")
        print_table("Wrong snapshots", columns, wrong, right=("from offset",), drop=("segment", "producers"))
    if rows:
        title = "Snapshots in remote storage"
        right = ("copies", "read")
        print_table(title, ("partition", "layout", "copies", "read", "snapshots"), rows, right=right, drop=("layout", "read"))
