"""The ``Run`` of a verb: the facts that its command reads once, and when producers expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from snaprebuild.cli.options.common import S3Options, as_of_ms
from snaprebuild.cli.runs.stores import stores_of
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.run import Run, RunFacts

if TYPE_CHECKING:  # a verb that reads no segments loads no engine
    from snaprebuild.snapshots.engine.partition_task import Engine

__all__ = ["clock_at", "command_run", "run_facts", "run_of"]

_FACTS = "snaprebuild.facts"


def run_of(s3: S3Options, *, clock: Clock | None = None, jobs: int | None = None, engine: Engine | None = None) -> Run:
    """The run of a verb with the facts and the stores of its command.

    Args:
        s3: how object stores are reached.
        clock: when producers expire; None for now, by Kafka's default.
        jobs: value of ``--jobs``.
        engine: that reads; None for worker processes of this machine.

    Raises:
        UsageError: ``stores_of`` raises it.
    """
    run = replace(command_run(jobs=jobs, engine=engine), stores=stores_of(s3))
    return run if clock is None else replace(run, clock=clock)


def command_run(*, jobs: int | None = None, engine: Engine | None = None, deadline: float | None = None) -> Run:
    """The run of a verb with the facts of its command, and the stores of the environment.

    Args:
        jobs: value of ``--jobs``.
        engine: that reads; None for worker processes of this machine.
        deadline: a ``time.monotonic()`` after which nothing of a segment is read; None for none.
    """
    return Run(jobs=jobs, engine=engine, deadline=deadline, facts=run_facts())


def clock_at(as_of: str | None, expiration_ms: int | None) -> Clock:
    """The moment of ``--as-of``, and an expiration, ms; None for Kafka's default.

    Raises:
        UsageError: ``--as-of`` is no moment.
    """
    return Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)


def run_facts() -> RunFacts:
    """The facts that the command of this process reads once: ``server.properties``, and who holds each log directory."""
    ctx = click.get_current_context(silent=True)
    facts: RunFacts = RunFacts() if ctx is None else ctx.meta.setdefault(_FACTS, RunFacts())
    return facts
