"""The rebuild for who has a Spark session already: a notebook, or a job of one's own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from snaprebuild.operations import rebuild as in_process
from snaprebuild.operations.plan import make_plan
from snaprebuild.operations.planned import Request
from snaprebuild.operations.rebuild_result import RebuildResult
from snaprebuild.operations.receipt import Receipt
from snaprebuild.spark.effect_files import Effects
from snaprebuild.spark.job import SparkEngine

__all__ = ["rebuild"]


def rebuild(
    session: SparkSession,
    source: str | Sequence[str],
    *,
    out: str | None = None,
    boundaries: str = "missing",
    replay_from: str = "auto",
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    check_crc: bool = True,
    drop_expired: bool = False,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    dry_run: bool = False,
    receipt: str | None = None,
    effects: str | None = None,
) -> RebuildResult:
    """Rebuilds the missing snapshots with the executors of ``session``, as ``snaprebuild rebuild --engine spark`` does.

    Args:
        session: its executors need this package and its dependencies (``session.ship_code`` sends the package).
        source: directories, partition directories, or any above them, which all executors reach by the same path.
        out: where the snapshots go; None for beside the segments.
        boundaries: ``missing`` or ``all``.
        replay_from: ``auto``, ``window`` or ``log-start``.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        check_crc: compute the checksum of every batch.
        drop_expired: leave expired entries out.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for Kafka's default.
        dry_run: write nothing.
        receipt: file on the driver that will list what was written; None leaves none.
        effects: directory, or ``s3://bucket/prefix``, that keeps what closed segments gave, so that the next run reads only new ones.

    Raises:
        UsageError: nothing to read from, or ``out`` or ``effects`` is no directory.
        RefusedError: one of them lies in a broker's directory, or the receipt may not be where it is wanted.
        StorageError: the receipt cannot be written, or an object store tells nothing.
    """
    request = Request(
        paths=(source,) if isinstance(source, str) else tuple(source),
        out=out,
        boundaries=boundaries,
        replay_from=replay_from,
        topics=tuple(topics),
        partitions=tuple(sorted(partitions)),
        check_crc=check_crc,
        drop_expired=drop_expired,
        as_of_ms=int(time.time() * 1000) if as_of_ms is None else as_of_ms,
        expiration_ms=expiration_ms,
    )
    plan = make_plan(request)
    kept = None if receipt is None else Receipt(receipt, plan)
    kept_effects = None if effects is None else Effects.at(effects, request.s3)
    if kept_effects is not None:
        kept_effects.prepare(partition.source for partition in plan.partitions)
    return in_process.rebuild(plan, engine=SparkEngine(session, effects=kept_effects), dry_run=dry_run, receipt=kept)
