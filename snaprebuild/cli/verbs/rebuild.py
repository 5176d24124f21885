"""The verbs ``plan``, ``rebuild`` and ``stage``: one plan value, shown or carried out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Offset,
    Partition,
    Paths,
    ReceiptFile,
    S3Options,
    ServerProperties,
    Topic,
    as_of_ms,
    check_paths,
    selection_of,
)
from snaprebuild.cli.options.engine import CachingEngine, EngineName, EngineOptions, engine_of
from snaprebuild.cli.options.io_limits import Load, LoadAlone
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of, release_words
from snaprebuild.cli.options.metadata import Metadata, check_metadata
from snaprebuild.cli.options.rebuild import AcceptTopicIdZero, Crc, CrcOption, DryRun, SetAside
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.verb_command import given_options
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cli.options.engine import EngineChoice
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan, Request
    from snaprebuild.snapshots.rebuild.result import RebuildResult

__all__ = ["plan", "rebuild", "stage"]

NOT_PLANNED = frozenset({"not-known-to-be-due"})
"""Codes of findings that the text of a plan names."""


class Boundaries(StrEnum):
    """Which boundaries are wanted."""

    MISSING = "missing"
    ALL = "all"


class ReplayStart(StrEnum):
    """The same as ``snapshots.engine.partition_replay.ReplayFrom``, which would import numpy for a help text."""

    AUTO = "auto"
    WINDOW = "window"
    LOG_START = "log-start"


Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write to DIR/<topic-partition>/ instead; the log directories are not changed. DIR is outside of them. "
        "Default: next to the segments.",
    ),
]
BoundariesOption = Annotated[
    Boundaries,
    typer.Option(
        "--boundaries",
        show_default=False,
        help="missing: boundaries without a snapshot. all: every boundary; in place, existing snapshots are compared and "
        "kept; with --out, `do not use` is written too. Default: missing.",
    ),
]
ReplayFromOption = Annotated[
    ReplayStart,
    typer.Option(
        "--replay-from",
        show_default=False,
        help="auto: one expiration back, and further as evidence needs. window: never further. Risk: more unproven "
        "snapshots. log-start: the first segment on disk. Default: auto.",
    ),
]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired/--keep-expired",
        show_default=False,
        help="Leave out entries of producers that have expired at --as-of, or keep them. Risk of leaving them out: an "
        "--as-of in the future drops live producers. Default: keep them, as Kafka does.",
    ),
]
AllowUnproven = Annotated[
    bool,
    typer.Option(
        "--allow-unproven",
        help="Write unproven snapshots in place too. Risk: an open transaction may be forgotten. Default: only with --out.",
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Save the plan for `rebuild --plan FILE` or `stage --plan FILE`; an older plan is replaced. Default: none.",
    ),
]
SavedPlan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Carry out exactly this saved plan, or refuse. Default: none.",
    ),
]
StageTo = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="DIR",
        help="Staging directory of `stage`, on the file system of the log directory and outside of it; repeatable, one per "
        "file system. Default: none; `stage` needs one.",
    ),
]
BrokerRunning = Annotated[
    bool,
    typer.Option(
        "--broker-running",
        help="Write while a broker of 2.8 or newer runs; rolled segments only. Segments must be below the recovery point. "
        "Brokers of 2.7 or older delete such files, and are refused if the release is known. Default: refuse.",
    ),
]
Results = Annotated[
    str | None,
    typer.Option(
        "--results",
        metavar="FILE",
        help="Write a row for each boundary to FILE: JSON lines (.jsonl, .json) or Parquet (.parquet); in a directory, a "
        "new Parquet file. Never replaced. Default: none.",
    ),
]


class RequestOptions(msgspec.Struct, frozen=True):
    """The options that all three verbs take. ``request`` makes the request of them: what its members mean is described there."""

    paths: Paths = None
    server_properties: ServerProperties = None
    boundaries: BoundariesOption = Boundaries.MISSING
    replay_from: ReplayFromOption = ReplayStart.AUTO
    set_aside: SetAside = False
    crc: CrcOption = Crc.CHECK
    drop_expired: DropExpired = False
    allow_unproven: AllowUnproven = False
    accept_topic_id_zero: AcceptTopicIdZero = False
    kafka_release: KafkaRelease = None
    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    metadata: Metadata = None
    topic: Topic = None
    partition: Partition = None
    offsets: Offset = None

    def request(
        self, s3: S3Options, *, to_dir: str | None = None, stage: list[str] | None = None, broker_running: bool = False
    ) -> Request:
        """The request that the options make.

        Args:
            s3: how object stores are reached.
            to_dir: ``--out``.
            stage: ``--to``.
            broker_running: ``--broker-running``.

        Raises:
            UsageError: an option makes no sense.
        """
        from snaprebuild.snapshots.plan.plan_model import Request

        selection = selection_of(self.topic, self.partition, self.offsets)
        check_paths(self.paths, server_properties=self.server_properties, out=to_dir)
        check_metadata(self.metadata)
        release_of(self.kafka_release)
        return Request(
            paths=tuple(self.paths or ()),
            server_properties=self.server_properties,
            topics=selection.topics,
            partitions=tuple(selection.partitions),
            offset_from=selection.offset_from,
            offset_to=selection.offset_to,
            out=to_dir,
            boundaries=self.boundaries.value,
            replay_from=self.replay_from.value,
            set_aside=self.set_aside,
            check_crc=self.crc is Crc.CHECK,
            drop_expired=self.drop_expired,
            allow_unproven=self.allow_unproven,
            as_of_ms=as_of_ms(self.as_of),
            expiration_ms=self.expiration_ms,
            metadata=self.metadata,
            s3=s3.settings(),
            stage=tuple(stage or ()),
            broker_running=broker_running,
            accept_topic_id_zero=self.accept_topic_id_zero,
            kafka_release=self.kafka_release,
        ).checked()


@verb(LoadAlone, collects=False)
def plan(
    *,
    options: RequestOptions,
    directory: Out = None,
    to: StageTo = None,
    broker_running: BrokerRunning = False,
    save: Save = None,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows what `rebuild` would write, from where it would replay and why, and what that costs.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. The plan is that of `rebuild` with the same options, or of `stage` with --to. It reads the end of the last segment of
    each partition, and a sample that shows the speed. Exit code 1 if a wanted boundary is not planned, or if the next start of the
    broker does harm, as `scan` shows it.
    """
    from snaprebuild.cli.render.readiness import print_readiness_notes
    from snaprebuild.cli.render.rebuild import plan_answer, plan_document, print_plan
    from snaprebuild.cluster.source_check.plan_gate import judge_plans, judge_start
    from snaprebuild.snapshots.plan.plan_file import save_plan
    from snaprebuild.snapshots.plan.planner import make_plan
    from snaprebuild.snapshots.rebuild.preflight import with_preflight, without_blocked
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.staging.resume import check_staging, earlier_staged_plan, resume_staging

    out.begin({"--save": save})
    request = options.request(s3, to_dir=directory, stage=to, broker_running=broker_running)
    if to and engine.engine is EngineName.SPARK:
        if given_options(["engine"]):
            raise UsageError("--to builds on the disks of the broker, with processes of its machine: not with --engine spark")
        engine = EngineOptions()
    with engine_of(engine) as chosen:
        run = Run(facts=run_facts())
        made = make_plan(request, judge_plans, run, measure_rate=True, parallel_map=chosen.planning(), judge_start=judge_start)
    if save is not None:
        save_plan(made, save)
    made = with_preflight(made, is_rehearsal=True)
    check_staging(made)
    before = earlier_staged_plan(made.request)
    if before is not None:
        made = with_preflight(resume_staging(made, before), is_rehearsal=True)
    made = without_blocked(made)

    def show() -> None:
        print_plan(made)
        print_readiness_notes(made)

    return Result(
        lambda: plan_document(made),
        made.findings,
        show,
        in_table=NOT_PLANNED,
        answer=lambda: _with_reasons(plan_answer(made, _request_words(), save), made.partitions, made),
    )


@verb(Load)
def rebuild(
    *,
    options: RequestOptions,
    directory: Out = None,
    broker_running: BrokerRunning = False,
    plan: SavedPlan = None,
    dry_run: DryRun = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    engine: CachingEngine,
    results: Results = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """WRITES the missing snapshots into log directories. Never replaces an existing file.

    Stop the broker first. PATH is a partition directory, a log directory, or any directory above them; several may be named. The
    snapshots take effect when the broker next starts. Broker still running? Use `stage` now and `install` after the stop. Exit code 1
    if a wanted snapshot is not written, or if the next start does harm.
    """
    from snaprebuild.cli.result import shown
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.snapshots.rebuild.rebuild import rebuild as carry_out
    from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
    from snaprebuild.snapshots.run import Run

    table = _begin(out, plan, results, {"--receipt": receipt})
    with engine_of(engine) as chosen:
        asks = {"to_dir": directory, "broker_running": broker_running}
        made = _plan_of(plan, options, s3, asks, chosen, is_staged=False)
        chosen.keep_effects((partition.source for partition in made.partitions), made.request.s3)
        kept = Receipt(receipt or default_receipt_path(made.request.destination.receipt_directory), made)
        try:
            with bytes_progress("replaying", made.bytes_least) as progress:
                run = Run(facts=run_facts(), jobs=jobs, engine=chosen.reading(made.bytes_least, progress))
                result = carry_out(made, run, dry_run=dry_run, receipt=kept, progress=progress)
        except BaseException:
            if kept.is_there:
                print_on_stderr(f"receipt of what was written: {shown(kept.path)} (`snaprebuild undo` takes it back)")
            raise
    return _result(result, chosen.cache, table)


@verb(Load)
def stage(
    *,
    options: RequestOptions,
    to: StageTo = None,
    plan: SavedPlan = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    results: Results = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """WRITES missing snapshots to a staging directory while the broker runs. Log directories are not changed.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. After the stop of the broker,
    `install DIR/plan.jsonl` links the snapshots. Run it again later: only segments that were rolled since are replayed. Exit code 1 if
    a wanted snapshot is not staged, or if the next start does harm.
    """
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.snapshots.rebuild.preflight import with_preflight
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.stage import stage as build
    from snaprebuild.snapshots.staging.resume import resume_staging, staging

    table = _begin(out, plan, results, {})
    with engine_of(EngineOptions()) as here, ExitStack() as held:
        made = with_preflight(_plan_of(plan, options, s3, {"stage": to}, here, is_staged=True))
        before = held.enter_context(staging(made, dry_run=dry_run))
        made = resume_staging(made, before)
        with bytes_progress("replaying", made.bytes_least) as progress:
            result = build(made, before, Run(facts=run_facts(), jobs=jobs), dry_run=dry_run, progress=progress)
    return _result(result, None, table)


def _plan_of(
    saved: str | None, options: RequestOptions, s3: S3Options, asks: dict[str, Any], engine: EngineChoice, *, is_staged: bool
) -> Plan:
    """The saved plan, or a new one.

    Raises:
        UsageError: options of the request go with a saved plan, the plan is one of the other verb, or nothing says where to stage.
    """
    from snaprebuild.cluster.source_check.plan_gate import judge_plans, judge_start
    from snaprebuild.snapshots.plan.plan_file import load_plan
    from snaprebuild.snapshots.plan.planner import make_plan
    from snaprebuild.snapshots.run import Run

    if saved is None:
        if is_staged and not asks["stage"]:
            raise UsageError("--to is missing: name a directory on the file system of the log directory, outside of it")
        request = options.request(s3, **asks)
        return make_plan(request, judge_plans, Run(facts=run_facts()), parallel_map=engine.planning(), judge_start=judge_start)
    if options != RequestOptions() or any(asks.values()) or given_options(S3Options.__struct_fields__):
        raise UsageError(
            "--plan carries the selection and the target from when it was made: only --dry-run, --receipt, --jobs, --engine, --master, "
            "--cache, settings of load and Spark, and output options go with it"
        )
    made = load_plan(saved, judge_plans, judge_start, Run(facts=run_facts()))
    if made.request.destination.installed_later != is_staged:
        other = "rebuild" if is_staged else "stage"
        raise UsageError(f"the plan is one of `{other}`: run snaprebuild {other} --plan {shlex.quote(saved)}", path=saved)
    return made


def _begin(out: OutputOptions, plan: str | None, results: str | None, documents: dict[str, str | None]) -> str | None:
    """Checks the files that a run writes; returns that of ``--results``.

    Raises:
        UsageError: a path is empty, or no such file can be made.
    """
    from snaprebuild.snapshots.rebuild.result_table import result_file

    check_paths(None, plan=plan)
    if results == "":
        raise UsageError("--results: the path is empty")
    table = None if results is None else result_file(results)
    out.begin({**documents, "--results": table}, plan=plan)
    return table


def _request_words() -> list[str]:
    """The words of the command line that give the request, or the saved plan."""
    from snaprebuild.cli.result import given_words

    return given_words(*RequestOptions.__struct_fields__, "directory", "broker_running", "to", "plan", "engine", "master")


def _result(result: RebuildResult, effects: str | None, table: str | None) -> Result:
    from snaprebuild.cli.render.readiness import print_readiness_notes
    from snaprebuild.cli.render.rebuild import print_rebuild, rebuild_answer, rebuild_document
    from snaprebuild.snapshots.rebuild.result_table import write_results

    def show() -> None:
        print_rebuild(result)
        print_readiness_notes(result.plan)

    return Result(
        lambda: rebuild_document(result, effects),
        (*result.findings, *_producer_ids(result)),
        show,
        in_table=NOT_PLANNED,
        write=None if table is None else lambda: write_results(result, table),
        answer=lambda: _with_reasons(
            rebuild_answer(result, _request_words()), [each.plan for each in result.partitions], result.plan
        ),
    )


def _producer_ids(result: RebuildResult) -> list[Finding]:
    """Producers of batches above the newest snapshots whose ids the cluster has yet to give out; `scan` compares the snapshots.

    The metadata logs are read after the segments: they have the ids of all producers that wrote before.
    """
    later = {each.path: each.outcome.later_producers for each in result.partitions}
    if not any(later.values()):
        return []
    import numpy as np

    from formats.partition.producer_snapshot import ENTRY_DTYPE
    from snaprebuild.cluster.scan_producer_ids import producer_id_findings
    from snaprebuild.snapshots.source.source import Source

    request = result.plan.request
    properties = None if request.server_properties is None else run_facts().properties(request.server_properties)
    partitions = tuple(each.plan.source for each in result.partitions if each.outcome.later_producers)
    entries = {path: np.frombuffer(data, ENTRY_DTYPE) for path, data in later.items() if data}
    source = Source(partitions, (), result.plan.clock.expiration_ms, properties)
    return producer_id_findings(source, int(time.time() * 1000), partitions, entries)


def _with_reasons(answer: tuple[str, list[str]], plans: Sequence[PartitionPlan], plan: Plan) -> tuple[str, list[str]]:
    """An answer, preceded by what the next start does, or by topics without an id."""
    from snaprebuild.cli.render.readiness import answer_with_refusal
    from snaprebuild.cli.render.rebuild import request_words
    from snaprebuild.cli.render.unsafe_start import answer_with_fate

    request = plan.request
    answer = answer_with_refusal(answer, (each.source for each in plans), request)
    selected = [*request_words(request), *release_words(request.kafka_release)]
    return answer_with_fate(answer, plans, selected, plan.fates)
