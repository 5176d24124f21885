"""The verbs ``plan``, ``rebuild`` and ``stage``."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from snaprebuild.cli.engine_choice import EngineChoice, engine_of
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
    check_directories,
    check_paths,
    command_run,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.engine import CachingEngine, EngineName, EngineOptions
from snaprebuild.cli.options.io_limits import Load, LoadAlone
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.options.metadata import Metadata, check_metadata
from snaprebuild.cli.options.rebuild import AcceptTopicIdZero, Crc, CrcOption, DryRun, SetAside
from snaprebuild.cli.result import given_words, shown
from snaprebuild.cli.streams import bytes_progress, print_on_stderr
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import Plan
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest

__all__ = ["plan", "rebuild", "stage"]


class Boundaries(StrEnum):
    """The boundaries that get a snapshot."""

    MISSING = "missing"
    ALL = "all"


class ReplayStart(StrEnum):
    """Where a replay begins: the values of ``snapshots.engine.partition_replay.ReplayFrom``, which would import numpy for a help text."""

    AUTO = "auto"
    WINDOW = "window"
    LOG_START = "log-start"


Out = Annotated[
    str | None,
    option(
        "--out",
        metavar="DIR",
        short="Write to DIR/<topic-partition>/ instead; the log directories are not changed",
        details="DIR is outside of them.",
        default="next to the segments",
    ),
]
BoundariesOption = Annotated[
    Boundaries,
    option(
        "--boundaries",
        short="missing: boundaries without a snapshot",
        details="all: every boundary; in place, existing snapshots are compared and kept; with --out, `do not use` is written too.",
        default="missing",
    ),
]
ReplayFromOption = Annotated[
    ReplayStart,
    option(
        "--replay-from",
        short="auto: one expiration back, and further as evidence needs",
        details="window: never further. Risk: more unproven snapshots. log-start: the first segment on disk.",
        default="auto",
    ),
]
DropExpired = Annotated[
    bool,
    option(
        "--drop-expired/--keep-expired",
        short="Leave out entries of producers that have expired at --as-of, or keep them",
        details="Risk of leaving them out: an --as-of in the future drops live producers.",
        default="keep them, as Kafka does",
    ),
]
AllowUnproven = Annotated[
    bool,
    option(
        "--allow-unproven",
        short="Write unproven snapshots in place too",
        risk="an open transaction may be forgotten",
        default="only with --out",
    ),
]
Save = Annotated[
    str | None,
    option(
        "--save",
        metavar="FILE",
        short="Save the plan for `rebuild --plan FILE` or `stage --plan FILE`; an older plan is replaced",
        default="none",
    ),
]
SavedPlan = Annotated[
    str | None,
    option(
        "--plan",
        metavar="FILE",
        short="Carry out exactly this saved plan, or refuse",
        default="none",
    ),
]
StageTo = Annotated[
    list[str] | None,
    option(
        "--to",
        metavar="DIR",
        short="Staging directory of `stage`, on the file system of the log directory and outside of it; repeatable, one "
        "per file system",
        default="none; `stage` needs one",
    ),
]
BrokerRunning = Annotated[
    bool,
    option(
        "--broker-running",
        short="Write while a broker of 2.8 or newer runs; rolled segments only",
        details="Segments must be below the recovery point. Brokers of 2.7 or older delete such files, and are refused if "
        "the release is known.",
        default="refuse",
    ),
]
Results = Annotated[
    str | None,
    option(
        "--results",
        metavar="FILE",
        short="Write a row for each boundary to FILE: JSON lines (.jsonl, .json) or Parquet (.parquet); in a directory, a "
        "new Parquet file",
        details="Never replaced.",
        default="none",
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
    ) -> RebuildRequest:
        """The request that the options make.

        Args:
            s3: how object stores are reached.
            to_dir: ``--out``.
            stage: ``--to``.
            broker_running: ``--broker-running``.

        Raises:
            UsageError: an option makes no sense.
        """
        from snaprebuild.snapshots.plan.plan_request import RebuildRequest

        selection = selection_of(self.topic, self.partition, self.offsets)
        check_directories(self.paths, server_properties=self.server_properties, out=to_dir)
        check_metadata(self.metadata)
        release_of(self.kafka_release)
        return RebuildRequest(
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
) -> View:
    """Reads only: shows what `rebuild` would write, from where it would replay and why, and what that costs.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. The plan is that of `rebuild` with the same options, or of `stage` with --to. It reads the end of the last segment of
    each partition, and a sample that shows the speed. Exit code 1 if a wanted boundary is not planned, or if the next start of the
    broker does harm, as `scan` shows it.
    """
    from snaprebuild.cli.render.rebuild import RebuildPlanView
    from snaprebuild.cluster.judged_plan import judged_plan
    from snaprebuild.snapshots.plan.plan_file import save_plan
    from snaprebuild.snapshots.rebuild.rehearsal import rehearsed

    out.begin({"--save": save})
    request = options.request(s3, to_dir=directory, stage=to, broker_running=broker_running)
    if to and engine.engine is EngineName.SPARK:
        if given_options(["engine"]):
            raise UsageError("--to builds on the disks of the broker, with processes of its machine: not with --engine spark")
        engine = EngineOptions()
    with engine_of(engine) as chosen:
        planned = judged_plan(request, command_run(), measure_rate=True, parallel_map=chosen.planning())
    if save is not None:
        save_plan(planned, save)
    return RebuildPlanView(rehearsed(planned), _request_words(), save)


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
) -> View:
    """WRITES the missing snapshots into log directories. Never replaces an existing file.

    Stop the broker first. PATH is a partition directory, a log directory, or any directory above them; several may be named. The
    snapshots take effect when the broker next starts. Broker still running? Use `stage` now and `install` after the stop. Exit code 1
    if a wanted snapshot is not written, or if the next start does harm.
    """
    from snaprebuild.cli.render.rebuild import RebuildView
    from snaprebuild.cluster.judged_plan import rebuild_findings
    from snaprebuild.snapshots.rebuild import rebuild as rebuilding
    from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path

    results_file = _begin(out, plan, results, {"--receipt": receipt})
    facts = run_facts()
    with engine_of(engine) as chosen:
        if plan is None:
            request = options.request(s3, to_dir=directory, broker_running=broker_running)
            planned = _new_plan(request, chosen)
        else:
            _check_only_plan(options, has_destination=directory is not None or broker_running)
            planned = _saved_plan(plan, is_staged=False)
        chosen.keep_effects((partition.source for partition in planned.partitions), planned.request.s3)
        written = Receipt(receipt or default_receipt_path(planned.request.destination.receipt_directory), planned)
        try:
            with bytes_progress("replaying", planned.min_read_bytes) as progress:
                run = command_run(jobs=jobs, engine=chosen.reading(planned.min_read_bytes, progress))
                result = rebuilding.rebuild(planned, run, dry_run=dry_run, receipt=written, progress=progress)
        except BaseException:
            if written.is_there:
                print_on_stderr(f"receipt of what was written: {shown(written.path)} (`snaprebuild undo` takes it back)")
            raise
    return RebuildView(result, rebuild_findings(result, facts), _request_words(), cache=chosen.cache, results_file=results_file)


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
) -> View:
    """WRITES missing snapshots to a staging directory while the broker runs. Log directories are not changed.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. After the stop of the broker,
    `install DIR/plan.jsonl` links the snapshots. Run it again later: only segments that were rolled since are replayed. Exit code 1 if
    a wanted snapshot is not staged, or if the next start does harm.
    """
    from snaprebuild.cli.render.rebuild import RebuildView
    from snaprebuild.cluster.judged_plan import rebuild_findings
    from snaprebuild.snapshots import stage as staging

    results_file = _begin(out, plan, results, {})
    facts = run_facts()
    with engine_of(EngineOptions()) as here:
        if plan is None:
            if not to:
                raise UsageError("--to is missing: name a directory on the file system of the log directory, outside of it")
            planned = _new_plan(options.request(s3, stage=to), here)
        else:
            _check_only_plan(options, has_destination=bool(to))
            planned = _saved_plan(plan, is_staged=True)
    with (
        staging.resumed(planned, dry_run=dry_run) as (planned, before),
        bytes_progress("replaying", planned.min_read_bytes) as progress,
    ):
        result = staging.stage(planned, before, command_run(jobs=jobs), dry_run=dry_run, progress=progress)
    return RebuildView(result, rebuild_findings(result, facts), _request_words(), results_file=results_file)


def _new_plan(request: RebuildRequest, engine: EngineChoice) -> Plan:
    from snaprebuild.cluster.judged_plan import judged_plan

    return judged_plan(request, command_run(), parallel_map=engine.planning())


def _saved_plan(path: str, *, is_staged: bool) -> Plan:
    """The saved plan, made again from the disk as it is now.

    Raises:
        UsageError: it is one of the other verb, or no plan.
        RefusedError: the disk has changed.
    """
    from snaprebuild.cluster.judged_plan import load_judged_plan

    planned = load_judged_plan(path, command_run())
    if planned.request.destination.installed_later != is_staged:
        other = "rebuild" if is_staged else "stage"
        raise UsageError(f"the plan is one of `{other}`: run snaprebuild {other} --plan {shlex.quote(path)}", path=path)
    return planned


def _check_only_plan(options: RequestOptions, *, has_destination: bool) -> None:
    """Makes sure that no option of the request goes with a saved plan.

    Raises:
        UsageError: one does.
    """
    if options != RequestOptions() or has_destination or given_options(S3Options.__struct_fields__):
        raise UsageError(
            "--plan carries the selection and the target from when it was made: only --dry-run, --receipt, --jobs, --engine, --master, "
            "--cache, settings of load and Spark, and output options go with it"
        )


def _begin(out: OutputOptions, plan: str | None, results: str | None, documents: dict[str, str | None]) -> str | None:
    """Checks the files that a run writes; returns that of ``--results``.

    Raises:
        UsageError: a path is empty, or no such file can be made.
    """
    from snaprebuild.cli.file_kinds import SAVED_PLAN, check_file
    from snaprebuild.snapshots.rebuild.result_table import result_file

    check_paths(None, plan=plan)
    if plan is not None:
        check_file(plan, SAVED_PLAN)
    if results == "":
        raise UsageError("--results: the path is empty")
    table = None if results is None else result_file(results)
    out.begin({**documents, "--results": table}, plan=plan)
    return table


def _request_words() -> list[str]:
    """The words of the command line that give the request, or the saved plan."""
    return given_words(*RequestOptions.__struct_fields__, "directory", "broker_running", "to", "plan", "engine", "master")
