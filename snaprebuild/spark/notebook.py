"""The rebuild for who has a Spark session already: a notebook, or a job of one's own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from snaprebuild.operations import rebuild as in_process
from snaprebuild.operations.plan import make_plan
from snaprebuild.operations.planned import Request
from snaprebuild.operations.rebuild_result import RebuildResult
from snaprebuild.operations.receipt import Receipt
from snaprebuild.spark.effect_files import Effects
from snaprebuild.spark.job import SparkEngine
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["rebuild"]


def rebuild(
    session: SparkSession,
    source: str | Sequence[str],
    *,
    server_properties: str | None = None,
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    out: str | None = None,
    boundaries: str = "missing",
    replay_from: str = "auto",
    set_aside: bool = False,
    check_crc: bool = True,
    drop_expired: bool = False,
    allow_unproven: bool = False,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    metadata: str | None = None,
    s3: S3Settings = USUAL_S3,
    dry_run: bool = False,
    receipt: str | None = None,
    effects: str | None = None,
) -> RebuildResult:
    """Rebuilds the missing snapshots with the executors of ``session``, as ``snaprebuild rebuild --engine spark`` does.

    The arguments are the options of that command, and are checked as they are there.

    Args:
        session: its executors need this package and its dependencies (``session.ship_code`` sends the package).
        source: directories, partition directories, or any above them, which all executors reach by the same path; also ``s3://``.
        server_properties: configuration of a broker, on the driver: all its ``log.dirs`` are read, with its expiration and retention.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        offset_from: least boundary, inclusive; None for no bound.
        offset_to: greatest boundary, inclusive; likewise.
        out: where the snapshots go; None for beside the segments.
        boundaries: ``missing`` or ``all``.
        replay_from: ``auto``, ``window`` or ``log-start``.
        set_aside: replace snapshots that are proven wrong.
        check_crc: compute the checksum of every batch.
        drop_expired: leave expired entries out.
        allow_unproven: write UNPROVEN ones beside the segments, too.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for that of ``server_properties``, else Kafka's default.
        metadata: metadata log of the cluster, which tells whether replicas may be written to; None for each broker's own.
        s3: how object stores are reached, and what the run may ask of them.
        dry_run: write nothing.
        receipt: file on the driver that lists what is written; None leaves none.
        effects: directory, or ``s3://bucket/prefix``, that keeps what closed segments gave, so that the next run reads only new ones.

    Raises:
        UsageError: nothing to read from, an option makes no sense, or ``out`` or ``effects`` is no directory.
        RefusedError: one of them lies in a broker's directory, a limit is used up, or the receipt may not be where it is wanted.
        StorageError: the receipt cannot be written, or an object store tells nothing.
    """
    request = Request(
        paths=(source,) if isinstance(source, str) else tuple(source),
        server_properties=server_properties,
        topics=tuple(topics),
        partitions=tuple(partitions),
        offset_from=offset_from,
        offset_to=offset_to,
        out=out,
        boundaries=boundaries,
        replay_from=replay_from,
        set_aside=set_aside,
        check_crc=check_crc,
        drop_expired=drop_expired,
        allow_unproven=allow_unproven,
        as_of_ms=int(time.time() * 1000) if as_of_ms is None else as_of_ms,
        expiration_ms=expiration_ms,
        metadata=metadata,
        s3=s3,
    ).checked()
    engine = SparkEngine(session)
    plan = make_plan(request, each=engine.each)
    kept = None if receipt is None or dry_run else Receipt(receipt, plan)
    if effects is not None:
        kept_effects = Effects.at(effects, request.s3)
        kept_effects.prepare(partition.source for partition in plan.partitions)
        engine = replace(engine, effects=kept_effects)
    return in_process.rebuild(plan, engine=engine, dry_run=dry_run, receipt=kept)
