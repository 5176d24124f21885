"""The verbs ``plan`` and ``rebuild``: one plan value, shown or carried out."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprebuild.cli.options import (
    AsOf,
    ExpirationMs,
    Jobs,
    Offset,
    OutputFormat,
    OutputOption,
    Partition,
    Paths,
    Report,
    ServerProperties,
    Topic,
    Verbose,
    as_of_ms,
    selection_of,
)
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.operations.plan import Request

__all__ = ["plan", "rebuild"]


class Boundaries(StrEnum):
    """Which boundaries are wanted."""

    MISSING = "missing"
    ALL = "all"


class ReplayStart(StrEnum):
    """Twin of ``operations.replay_partition.ReplayFrom``, which would import numpy for a help text."""

    AUTO = "auto"
    WINDOW = "window"
    LOG_START = "log-start"


class Crc(StrEnum):
    """Whether checksums are computed."""

    CHECK = "check"
    SKIP = "skip"


Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Write to DIR/<topic-partition>/ instead of into the log directories.")
]
BoundariesOption = Annotated[Boundaries, typer.Option("--boundaries", help="Those without a snapshot, or all.")]
ReplayFromOption = Annotated[
    ReplayStart,
    typer.Option(
        "--replay-from",
        help="auto: the window, and further back as evidence asks. window: never before the window. log-start: the first segment on disk.",
    ),
]
SetAside = Annotated[
    bool,
    typer.Option(
        "--set-aside",
        help="Replace proven wrong snapshots; the old file is renamed. Risk: a later start can no longer fall back on it.",
    ),
]
CrcOption = Annotated[
    Crc, typer.Option("--crc", help="skip reads headers only. Risk: damaged batches are replayed as if they were whole.")
]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired/--keep-expired", help="Leave out entries that a load at --as-of drops. Kafka itself writes them (default)."
    ),
]
AllowUnproven = Annotated[
    bool, typer.Option("--allow-unproven", help="Write UNPROVEN snapshots in place. Risk: an open transaction may be forgotten.")
]


@dataclass(frozen=True)
class Asked:
    """The options that both verbs take: each field is one, and they make a request."""

    paths: Paths = None
    server_properties: ServerProperties = None
    out: Out = None
    boundaries: BoundariesOption = Boundaries.MISSING
    replay_from: ReplayFromOption = ReplayStart.AUTO
    set_aside: SetAside = False
    crc: CrcOption = Crc.CHECK
    drop_expired: DropExpired = False
    allow_unproven: AllowUnproven = False
    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    topic: Topic = None
    partition: Partition = None
    offsets: Offset = None

    def request(self) -> Request:
        """What is asked for.

        Raises:
            UsageError: an option makes no sense.
        """
        from snaprebuild.operations.plan import Request

        selection = selection_of(self.topic, self.partition, self.offsets)
        if not all(self.paths or ()) or "" in (self.out, self.server_properties):
            raise UsageError("a path is empty")
        return Request(
            paths=tuple(os.path.abspath(path) for path in self.paths or ()),
            server_properties=None if self.server_properties is None else os.path.abspath(self.server_properties),
            topics=selection.topics,
            partitions=tuple(sorted(selection.partitions)),
            offset_from=selection.offset_from,
            offset_to=selection.offset_to,
            out=None if self.out is None else os.path.abspath(self.out),
            boundaries=self.boundaries.value,
            replay_from=self.replay_from.value,
            set_aside=self.set_aside,
            check_crc=self.crc is Crc.CHECK,
            drop_expired=self.drop_expired,
            allow_unproven=self.allow_unproven,
            as_of_ms=as_of_ms(self.as_of),
            expiration_ms=self.expiration_ms,
        )


def _takes_what_is_asked(verb: Callable[..., None]) -> Callable[..., None]:
    """Gives a verb the options of ``Asked`` before its own: typer reads them from the signature."""
    asked = inspect.signature(Asked, eval_str=True).parameters
    _, *own = inspect.signature(verb, eval_str=True).parameters.values()

    @functools.wraps(verb)
    def with_options(**options: Any) -> None:
        verb(Asked(**{name: options.pop(name) for name in asked}), **options)

    with_options.__signature__ = inspect.Signature([*asked.values(), *own])  # type: ignore[attr-defined]
    return with_options


@_takes_what_is_asked
def plan(
    asked: Asked,
    save: Annotated[str | None, typer.Option("--save", metavar="FILE", help="Save the plan for `rebuild --plan FILE`.")] = None,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: shows what `rebuild` would write, from where it would replay and why, and what that costs."""
    from snaprebuild.cli.rebuild_output import plan_document, print_plan
    from snaprebuild.cli.result import begin, leave
    from snaprebuild.operations.plan import make_plan
    from snaprebuild.operations.saved_plan import save_plan

    begin(verbose, report, save)
    made = make_plan(asked.request(), measure_rate=True)
    if save is not None:
        save_plan(made, save)
    leave(
        plan_document(made),
        made.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: print_plan(made),
        report=report,
        notes=verbose > 0,
    )


@_takes_what_is_asked
def rebuild(
    asked: Asked,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="Carry out a saved plan; refused when the disk moved on.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Replay and judge, write nothing.")] = False,
    jobs: Jobs = None,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """WRITES snapshots that are missing, into the log directories or to --out; an existing file is never replaced."""
    from snaprebuild.cli.progress import progress_of
    from snaprebuild.cli.rebuild_output import print_rebuild, rebuild_document
    from snaprebuild.cli.result import begin, leave
    from snaprebuild.operations.plan import make_plan
    from snaprebuild.operations.rebuild import rebuild as carry_out
    from snaprebuild.operations.saved_plan import load_plan

    begin(verbose, report)
    if plan is not None and asked != Asked():
        raise UsageError(
            "--plan carries what was asked for when it was made: only --dry-run, --jobs and options of the output go with it"
        )
    made = make_plan(asked.request()) if plan is None else load_plan(plan)
    with progress_of(made) as progress:
        result = carry_out(made, jobs=jobs, dry_run=dry_run, progress=progress)
    leave(
        rebuild_document(result),
        result.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: print_rebuild(result),
        report=report,
        notes=verbose > 0,
    )
