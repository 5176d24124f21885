"""When, where and how a document or a receipt was made, and what its run did not have to read."""

from __future__ import annotations

import contextlib
import functools
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

import msgspec

from snaprebuild.published import Natural, Part, RunRecord
from snaprebuild.shell_words import program_command
from snaprebuild.storage.log_dir import LogDirState

__all__ = ["NO_CACHE_HITS", "CacheHits", "Invocation", "current_time_ms", "run_record"]


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
