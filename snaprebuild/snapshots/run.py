"""One run: what the command line, or a caller of the library, decides once, and each step of the work takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.source.run_facts import RunFacts
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.partition_task import Engine

__all__ = ["Run"]


def _now() -> Clock:
    return Clock(int(time.time() * 1000), DEFAULT_EXPIRATION_MS)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a verb, or one call of the library.

    Limits of reading, the umask and the server of workers are of the process, not of a run: see ``docs/internals/architecture.md``.

    Attributes:
        clock: when producers expire: now, by Kafka's default, where nothing else is asked for. A plan has a clock of its own, which it is
            saved with.
        jobs: worker processes; None for as many as processors, or as disks if those are more.
        engine: reads and replays in place of worker processes of this machine; None for these.
        deadline: nothing of a segment is read once ``time.monotonic()`` is past it; None for none.
        stores: how object stores are reached.
        facts: what is read once in a run.
    """

    clock: Clock = msgspec.field(default_factory=_now)
    jobs: int | None = None
    engine: Engine | None = None
    deadline: float | None = None
    stores: S3Settings = USUAL_S3
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
