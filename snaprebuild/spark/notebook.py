"""`scan`, `plan`, `rebuild` and `verify` for a Spark session that runs already: in a notebook, or in a job of your own."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace
from pyspark.sql import SparkSession

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots import verify as verify_in_process
from snaprebuild.snapshots.plan.plan_file import load_plan
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild import run as in_process
from snaprebuild.snapshots.rebuild.result import RebuildResult
from snaprebuild.snapshots.rebuild.result_table import result_file, write_results
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.scan import scan as scan_in_process
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.result import ScanResult
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.snapshots.verify import VerifyResult
from snaprebuild.spark.effect_files import EffectCache
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import is_remote, ship_code
from snaprebuild.storage.io_limits.policy import current_limits, limited_io
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["plan", "rebuild", "scan", "verify"]

Path = str | os.PathLike[str]
"""A directory or ``s3://BUCKET/PREFIX``, which the driver and all executors reach by the same name."""


def rebuild(
    session: SparkSession,
    source: Path | Sequence[Path] = (),
    *,
    plan: Plan | Path | None = None,
    server_properties: Path | None = None,
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    out: Path | None = None,
    boundaries: str = "missing",
    replay_from: str = "auto",
    set_aside: bool = False,
    check_crc: bool = True,
    drop_expired: bool = False,
    allow_unproven: bool = False,
    accept_topic_id_zero: bool = False,
    kafka_release: str | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    metadata: Path | None = None,
    s3: S3Settings = USUAL_S3,
    dry_run: bool = False,
    receipt: Path | None = None,
    cache: Path | None = None,
    results: Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    max_read_rate: int | None = None,
) -> RebuildResult:
    """Rebuilds the missing snapshots with the executors of ``session``, as ``snaprebuild rebuild --engine spark`` does.

    The arguments are the options of that command, with the same checks.

    Args:
        session: its executors need the dependencies of this package; its code is sent to them.
        source: directories, partition directories, or any above them, which all executors reach by the same path; also ``s3://``.
        plan: the result of the function ``plan``, or the file of a saved plan; it is carried out with the options with which it was
            made.
        server_properties: configuration of a broker, on the driver: all its ``log.dirs`` are read, with its expiration and retention.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        offset_from: least boundary, inclusive; None for no bound.
        offset_to: greatest boundary, inclusive; None for no bound.
        out: directory of the snapshots; None for next to the segments.
        boundaries: ``missing`` or ``all``.
        replay_from: ``auto``, ``window`` or ``log-start``.
        set_aside: replace snapshots that are proven wrong.
        check_crc: compute the checksum of every batch.
        drop_expired: leave expired entries out.
        allow_unproven: also write UNPROVEN ones next to the segments.
        accept_topic_id_zero: also write those of topics without an id, which Kafka would upload under topic id zero.
        kafka_release: that starts the broker next, such as ``4.3.1``; None for all that are possible.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for that of ``server_properties``, else Kafka's default.
        metadata: metadata log of the cluster, which shows whether replicas may be written to; None for each broker's own.
        s3: how object stores are reached, and the limits of the run.
        dry_run: write nothing.
        receipt: file on the driver that lists the written files; None for no receipt.
        cache: directory, or ``s3://bucket/prefix``, for the effects of rolled segments, so that the next run reads only new ones.
        results: file on the driver for a row of each boundary, JSON lines or ``.parquet``; it must not exist.
        progress: called with a topic-partition and the bytes that were read since the last call, by a thread of its own.
        max_read_rate: bytes that all tasks together may read in a second from files; None for any number.

    Raises:
        UsageError: nothing to read from, an option makes no sense or does not go with ``plan``, or ``out`` or ``cache`` is no directory.
        RefusedError: one of them is in a broker's directory, a limit is used up, or the receipt may not be written there.
        StorageError: the receipt cannot be written, or an object store does not answer.
    """
    engine = _engine(session, progress)
    table = None if results is None else result_file(os.fspath(results))
    request = RebuildRequest(
        paths=_paths(source),
        server_properties=_text(server_properties),
        topics=tuple(topics),
        partitions=tuple(partitions),
        offset_from=offset_from,
        offset_to=offset_to,
        out=_text(out),
        boundaries=boundaries,
        replay_from=replay_from,
        set_aside=set_aside,
        check_crc=check_crc,
        drop_expired=drop_expired,
        allow_unproven=allow_unproven,
        accept_topic_id_zero=accept_topic_id_zero,
        kafka_release=kafka_release,
        as_of_ms=0 if as_of_ms is None else as_of_ms,
        expiration_ms=expiration_ms,
        metadata=_text(metadata),
        s3=s3,
    )
    if max_read_rate is not None and max_read_rate < 1:
        raise UsageError(f"max_read_rate: expected 1 or more, found {max_read_rate}")
    reading = current_limits().io
    if max_read_rate is not None:
        reading = replace(reading, bytes_per_second=max_read_rate)
    with limited_io(reading):
        if plan is None:
            now = int(time.time() * 1000) if as_of_ms is None else as_of_ms
            current_plan = make_plan(replace(request, as_of_ms=now).checked(), judge_plans, parallel_map=engine.parallel_map)
        elif request != RebuildRequest(paths=()):
            raise UsageError("a plan has its own source and options: do not give them again with the plan")
        else:
            current_plan = plan if isinstance(plan, Plan) else load_plan(os.fspath(plan), judge_plans)
        if current_plan.request.destination.installed_later:
            raise UsageError("the plan stages on the disks of the broker, with processes of its machine: not with Spark")
        written = None if receipt is None or dry_run else Receipt(os.fspath(receipt), current_plan)
        engine = _with_cache(engine, cache, [partition.source for partition in current_plan.partitions], current_plan.request.s3)
        result = in_process.rebuild(current_plan, Run(engine=engine), dry_run=dry_run, receipt=written)
    if table is not None:
        write_results(result, table)
    return result


def plan(session: SparkSession, source: Path | Sequence[Path], *, s3: S3Settings = USUAL_S3, **options: Any) -> Plan:
    """What ``rebuild`` with the same options would do.

    Args:
        session: of Spark.
        source: directories or ``s3://BUCKET/PREFIX``, one or several.
        s3: how object stores are reached.
        options: options of ``rebuild`` that select what is rebuilt (fields of ``RebuildRequest``).

    Raises:
        UsageError, RefusedError: as ``rebuild``.
    """
    engine = _engine(session)
    texts = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    texts |= {name: tuple(texts[name]) for name in ("topics", "partitions") if name in texts}
    texts.setdefault("as_of_ms", int(time.time() * 1000))
    return make_plan(RebuildRequest(paths=_paths(source), s3=s3, **texts).checked(), judge_plans, parallel_map=engine.parallel_map)


def scan(
    session: SparkSession,
    source: Path | Sequence[Path],
    *,
    server_properties: Path | None = None,
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    s3: S3Settings = USUAL_S3,
) -> ScanResult:
    """Missing and suspect snapshots, as ``snaprebuild scan`` finds them. The arguments are those of ``rebuild``.

    Raises:
        UsageError: nothing to read from.
        StorageError: the job failed.
    """
    engine = _engine(session)
    selection = Selection(tuple(topics), frozenset(partitions))
    opened = open_source(_paths(source), _text(server_properties), selection, Run(stores=s3))
    return with_next_start(scan_in_process.scan_source(opened, engine.parallel_map), opened.properties)


def verify(
    session: SparkSession,
    source: Path | Sequence[Path],
    *,
    server_properties: Path | None = None,
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    check_crc: bool = True,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    s3: S3Settings = USUAL_S3,
    cache: Path | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> VerifyResult:
    """Compares each snapshot with a replay, as ``snaprebuild verify`` does. The arguments are those of ``rebuild``.

    Raises:
        UsageError: nothing to read from.
        RefusedError: a limit is used up, or ``cache`` is in a broker's directory.
    """
    selection = Selection(tuple(topics), frozenset(partitions), offset_from, offset_to)
    engine = _engine(session, progress)
    opened = open_source(_paths(source), _text(server_properties), selection, Run(stores=s3))
    engine = _with_cache(engine, cache, opened.partitions, s3)
    now = int(time.time() * 1000) if as_of_ms is None else as_of_ms
    clock = Clock(now, expiration_ms or opened.expiration_ms or DEFAULT_EXPIRATION_MS)
    run = Run(clock=clock, engine=engine, stores=s3, facts=opened.facts)
    return verify_in_process.verify(opened, run, selection=selection, check_crc=check_crc)


def _engine(session: SparkSession, progress: Callable[[str, int], None] | None = None) -> SparkEngine:
    """The engine of a session, whose executors get the code."""
    if is_remote(session):
        raise RefusedError(
            "the engine needs the driver's own session, and this is one of Spark Connect: only `register` and its data "
            "sources work there; run this where the driver runs, or `snaprebuild --engine spark`"
        )
    ship_code(session)
    return SparkEngine(session, progress)


def _with_cache(engine: SparkEngine, cache: Path | None, partitions: Sequence[PartitionSource], stores: S3Settings) -> SparkEngine:
    if cache is None:
        return engine
    effects = EffectCache.at(os.fspath(cache), stores)
    effects.prepare(partitions)
    return dataclasses.replace(engine, cache=effects)


def _paths(source: Path | Sequence[Path]) -> tuple[str, ...]:
    return (os.fspath(source),) if isinstance(source, str | os.PathLike) else tuple(os.fspath(each) for each in source)


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)
