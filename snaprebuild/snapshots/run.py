"""One run: what the command line, or a caller of the library, decides once, and each step of the work takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.source.run_facts import RunFacts
from snaprebuild.storage.io_limits.policy import RunLimits, current_limits
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.partition_task import Engine

__all__ = ["Run"]


def _now() -> Clock:
    return Clock(int(time.time() * 1000), DEFAULT_EXPIRATION_MS)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a verb, or one call of the library.

    What is of the process and not of a run has its reasons in ``docs/internals/architecture.md``.

    Attributes:
        clock: when producers expire: now, by Kafka's default, where nothing else is asked for. A plan has a clock of its own, which it is
            saved with.
        jobs: worker processes; None for as many as processors, or as disks if those are more.
        engine: reads and replays in place of worker processes of this machine; None for these.
        deadline: nothing of a segment is read once ``time.monotonic()`` is past it; None for none.
        limits: how segments are read, and the budget of bytes a second; without it those of the work that this thread does.
        stores: how object stores are reached, with the limits of requests and bytes.
        facts: what is read once in a run.
    """

    clock: Clock = msgspec.field(default_factory=_now)
    jobs: int | None = None
    engine: Engine | None = None
    deadline: float | None = None
    limits: RunLimits = msgspec.field(default_factory=current_limits)
    stores: S3Settings = USUAL_S3
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
