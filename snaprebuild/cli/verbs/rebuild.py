"""The verbs ``plan`` and ``rebuild``: one plan value, shown or carried out."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

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
from snaprebuild.cli.options.engine import EffectsOption, EngineName, EngineOption, Master, SparkConf, engine_of
from snaprebuild.cli.options.io_limits import Load, LoadAlone
from snaprebuild.cli.options.metadata import Metadata, check_metadata
from snaprebuild.cli.options.rebuild import Crc, CrcOption, DryRun, SetAside
from snaprebuild.cli.streams import tell
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import Request

__all__ = ["plan", "rebuild"]


class Boundaries(StrEnum):
    """Which boundaries are wanted."""

    MISSING = "missing"
    ALL = "all"


class ReplayStart(StrEnum):
    """Twin of ``snapshots.engine.partition_replay.ReplayFrom``, which would import numpy for a help text."""

    AUTO = "auto"
    WINDOW = "window"
    LOG_START = "log-start"


Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write to DIR/<topic-partition>/ and nothing into the log directories; DIR lies outside of them. "
        "Default: beside the segments.",
    ),
]
BoundariesOption = Annotated[
    Boundaries,
    typer.Option(
        "--boundaries",
        show_default=False,
        help="missing: those without a snapshot. all: every one; in place, what is there is compared and kept. Default: missing.",
    ),
]
ReplayFromOption = Annotated[
    ReplayStart,
    typer.Option(
        "--replay-from",
        show_default=False,
        help="auto: where the expiration begins, and further back as evidence asks. window: never further back. "
        "Risk: more UNPROVEN ones. log-start: the first segment on disk. Default: auto.",
    ),
]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired/--keep-expired",
        show_default=False,
        help="Leave out, or write, entries of producers that have expired at --as-of. Default: write them, as Kafka does. Risk of "
        "leaving them out: an --as-of in the future drops producers that are alive.",
    ),
]
AllowUnproven = Annotated[
    bool,
    typer.Option(
        "--allow-unproven",
        help="Write UNPROVEN snapshots in place, too. Risk: an open transaction may be forgotten. Default: only with --out.",
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Save the plan for `rebuild --plan FILE`; an older plan there is replaced. Default: none.",
    ),
]
SavedPlan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Carry out a saved plan, with the options it was made with; refused when the disk has moved on. Default: none.",
    ),
]
Stage = Annotated[
    list[str] | None,
    typer.Option(
        "--stage",
        metavar="DIR",
        help="While the broker runs, build the snapshots in DIR and nothing in the log directories; `install DIR/plan.jsonl` links them "
        "while it is stopped. DIR lies on the same file system, outside of every log directory; repeatable, one for each file system. "
        "Default: beside the segments.",
    ),
]
BrokerRunning = Annotated[
    bool,
    typer.Option(
        "--broker-running",
        help="Write beside a running broker of 2.8 or newer: of closed segments below the recovery point only. They count from its next "
        "start on. One of 2.7 or older, which deletes them, is refused where its release can be told. Default: refused while it runs.",
    ),
]
Results = Annotated[
    str | None,
    typer.Option(
        "--results",
        metavar="FILE",
        help="Write a row for each boundary to FILE, too: JSON lines where it ends with .jsonl or .json, Parquet with .parquet; "
        "in a directory, a new Parquet file. Never replaced. Default: none.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """The options that both verbs take: each field is one, and they make a request."""

    paths: Paths = None
    server_properties: ServerProperties = None
    out: Out = None
    stage: Stage = None
    broker_running: BrokerRunning = False
    boundaries: BoundariesOption = Boundaries.MISSING
    replay_from: ReplayFromOption = ReplayStart.AUTO
    set_aside: SetAside = False
    crc: CrcOption = Crc.CHECK
    drop_expired: DropExpired = False
    allow_unproven: AllowUnproven = False
    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    metadata: Metadata = None
    topic: Topic = None
    partition: Partition = None
    offsets: Offset = None

    def request(self, s3: S3Options) -> Request:
        """What is asked for.

        Raises:
            UsageError: an option makes no sense.
        """
        from snaprebuild.snapshots.plan.plan_model import Request

        selection = selection_of(self.topic, self.partition, self.offsets)
        check_paths(self.paths, server_properties=self.server_properties, out=self.out)
        check_metadata(self.metadata)
        return Request(
            paths=tuple(self.paths or ()),
            server_properties=self.server_properties,
            topics=selection.topics,
            partitions=tuple(selection.partitions),
            offset_from=selection.offset_from,
            offset_to=selection.offset_to,
            out=self.out,
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
            stage=tuple(self.stage or ()),
            broker_running=self.broker_running,
        ).checked()


def _check_engine(request: Request, engine: EngineName) -> None:
    """What is staged lies on the disks of one broker, which the executors of a job do not have.

    Raises:
        UsageError: it is to be staged by Spark.
    """
    if request.stage and engine is EngineName.SPARK:
        raise UsageError("--stage builds on the disks of the broker, with processes of its machine: not with --engine spark")


@verb(LoadAlone)
def plan(
    *,
    asked: Asked,
    save: Save = None,
    engine: EngineOption = EngineName.PROCESS,
    master: Master = None,
    conf: SparkConf = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows what `rebuild` would write, from where it would replay and why, and what that costs.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. The plan is that of `rebuild` with the same options. Of the segments it reads the end of each last one, and a sample
    that tells the speed. Exit code 1 when a wanted boundary is not planned.
    """
    from snaprebuild.cli.render.rebuild import plan_document, print_plan
    from snaprebuild.snapshots.plan.plan_file import save_plan
    from snaprebuild.snapshots.plan.planner import make_plan
    from snaprebuild.snapshots.staging.resume import from_what_is_staged, staged_before

    out.begin({"--save": save})
    request = asked.request(s3)
    _check_engine(request, engine)
    with engine_of(engine, master, conf=conf) as chosen:
        made = make_plan(request, measure_rate=True, each=chosen.planning())
    if save is not None:
        save_plan(made, save)
        tell(f"saved: snaprebuild rebuild --plan {shlex.quote(save)} carries it out")
    made = from_what_is_staged(made, staged_before(made.request))
    return Result(("plan", 1), lambda: plan_document(made), made.findings, lambda: print_plan(made))


@verb(Load)
def rebuild(
    *,
    asked: Asked,
    plan: SavedPlan = None,
    dry_run: DryRun = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    engine: EngineOption = EngineName.PROCESS,
    master: Master = None,
    conf: SparkConf = None,
    effects: EffectsOption = None,
    results: Results = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """WRITES snapshots that are missing, into the log directories or to --out; an existing file is never replaced.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. Stop the broker first:
    while it runs, only --stage, --broker-running, --out and --dry-run work. The snapshots take effect when it next starts. Exit
    code 1 when a wanted snapshot is not written.
    """
    from snaprebuild.cli.progress import bytes_progress
    from snaprebuild.cli.render.rebuild import print_rebuild, rebuild_document
    from snaprebuild.cli.result import shown
    from snaprebuild.snapshots.plan.plan_file import load_plan
    from snaprebuild.snapshots.plan.planner import make_plan
    from snaprebuild.snapshots.rebuild.rebuild import rebuild as carry_out
    from snaprebuild.snapshots.rebuild.result_table import result_file, write_results
    from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
    from snaprebuild.snapshots.staging.resume import from_what_is_staged, staging
    from snaprebuild.snapshots.staging.stage import stage

    check_paths(None, plan=plan)
    if results == "":
        raise UsageError("--results: the path is empty")
    table = None if results is None else result_file(results)
    out.begin({"--receipt": receipt, "--results": table}, plan=plan)
    if plan is not None and (asked, s3) != (Asked(), S3Options()):
        raise UsageError(
            "--plan carries what was asked for when it was made: only --dry-run, --receipt, --jobs, --engine, --master, --conf, --effects, "
            "options of how it reads and of the output go with it"
        )
    with engine_of(engine, master, effects, conf) as chosen, ExitStack() as held:
        if plan is None:
            request = asked.request(s3)
            _check_engine(request, engine)
            made = make_plan(request, each=chosen.planning())
        else:
            made = load_plan(plan)
            _check_engine(made.request, engine)
        is_staged = bool(made.request.stage)
        if is_staged and receipt is not None:
            raise UsageError("--receipt: what is staged is told by its plan; `install` leaves a receipt")
        before = held.enter_context(staging(made, dry_run=dry_run))
        made = from_what_is_staged(made, before)
        chosen.keep_effects((partition.source for partition in made.partitions), made.request.s3)
        kept = (
            None if dry_run or is_staged else Receipt(default_receipt_path(made.request.out) if receipt is None else receipt, made)
        )
        try:
            with bytes_progress("replaying", made.bytes_least) as progress:
                if is_staged:
                    result = stage(made, before, jobs=jobs, dry_run=dry_run, progress=progress)
                else:
                    reader = chosen.reading(made.bytes_least, progress)
                    result = carry_out(made, jobs=jobs, engine=reader, dry_run=dry_run, receipt=kept, progress=progress)
        except BaseException:
            if kept is not None and kept.is_there:
                tell(f"receipt of what was written: {shown(kept.path)} (`snaprebuild undo` takes it back)")
            raise
    return Result(
        ("rebuild", 1),
        lambda: rebuild_document(result, effects),
        result.findings,
        lambda: print_rebuild(result),
        write=None if table is None else lambda: write_results(result, table),
    )
