"""One run: what the command line, or a caller of the library, decides once, and each step of the work takes; and the record of the run."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from formats.broker.broker_files import Properties
from snaprebuild.errors import LockUnknownError
from snaprebuild.published import Natural, Part, RunRecord
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.shell_words import program_command
from snaprebuild.snapshots.source.broker_properties import read_server_properties
from snaprebuild.storage.io_limits.policy import RunLimits, current_limits
from snaprebuild.storage.local.broker_lock import lock_holder
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.partition_task import Engine

__all__ = [
    "NO_CACHE_HITS",
    "CacheHits",
    "Invocation",
    "Run",
    "RunFacts",
    "current_time_ms",
    "run_record",
]


@dataclass(slots=True)
class RunFacts:
    """Facts that are read where they are needed first, and are the same for the rest of a run.

    A broker may start or stop meanwhile. Therefore nothing is written on the word of a fact: what writes in place takes the lock itself.
    After all segments were read, which may take hours, a lock that was free is asked for once more (``forget_free_locks``).
    """

    _properties: dict[str, Properties] = field(default_factory=dict)
    _holders: dict[str, int | LockUnknownError | None] = field(default_factory=dict)

    def properties(self, path: str) -> Properties:
        """The configuration of a broker (``server.properties``).

        Raises:
            UsageError: it is absent or does not parse.
        """
        place = os.path.abspath(path)
        if place not in self._properties:
            self._properties[place] = read_server_properties(path)
        return self._properties[place]

    def properties_if_given(self, path: str | None) -> Properties | None:
        """``properties``; None without a path."""
        if path is None:
            return None
        return self.properties(path)

    def holder(self, log_dir: str) -> int | None:
        """The process that holds a log directory, as ``lock_holder``; None when it is free.

        Raises:
            LockUnknownError: it is unknown.
        """
        if log_dir not in self._holders:
            try:
                self._holders[log_dir] = lock_holder(log_dir)
            except LockUnknownError as error:
                self._holders[log_dir] = error
        holder = self._holders[log_dir]
        if isinstance(holder, LockUnknownError):
            raise holder
        return holder

    def forget_free_locks(self) -> None:
        """The next question about a log directory that was free reads its lock again: a broker may have started since."""
        self._holders = {log_dir: holder for log_dir, holder in self._holders.items() if holder is not None}


def _now() -> Clock:
    return Clock(current_time_ms(), DEFAULT_EXPIRATION_MS)


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


# ---------------------------------------------------------------------------------------------------- the record of a run


def current_time_ms() -> int:
    """The time of the clock of this host, ms since 1970."""
    return int(time.time() * 1000)


class Invocation(msgspec.Struct, frozen=True):
    """One run of the command, or one call of the library: its documents and its receipt have one moment and one command line.

    Attributes:
        command: quoted for a shell.
        began_ms: ms since 1970.
    """

    command: str
    began_ms: int

    @classmethod
    def now(cls, command: str) -> Invocation:
        """One that begins now."""
        return cls(command, current_time_ms())

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside the block all records of this thread are of this invocation."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Invocation | None] = ContextVar("invocation", default=None)


def run_record(log_dirs: Iterable[LogDirState] = ()) -> RunRecord:
    """The record of this run.

    Args:
        log_dirs: that were read; their ``meta.properties`` name the cluster.
    """
    clusters = {state.meta.cluster_id for state in log_dirs if state.meta is not None and state.meta.cluster_id is not None}
    invocation = _current.get() or Invocation(program_command(sys.argv[1:]), _started_ms())
    return RunRecord(
        at_ms=invocation.began_ms,
        host=socket.gethostname(),
        command=invocation.command,
        cluster_ids=tuple(sorted(clusters)),
    )


@functools.cache
def _started_ms() -> int:
    """One moment for all copies of the document that a command makes."""
    return current_time_ms()


class CacheHits(Part, frozen=True):
    """Segments that were not read, because the cache of an earlier run has their effects."""

    segments: Natural = 0
    size_bytes: Natural = 0

    def with_segment(self, size_bytes: int) -> CacheHits:
        """The hits with one segment of this size more."""
        return CacheHits(segments=self.segments + 1, size_bytes=self.size_bytes + size_bytes)

    def __add__(self, other: CacheHits) -> CacheHits:
        return CacheHits(segments=self.segments + other.segments, size_bytes=self.size_bytes + other.size_bytes)


NO_CACHE_HITS = CacheHits()
