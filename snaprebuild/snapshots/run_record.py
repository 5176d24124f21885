"""When, where and how a document or a receipt was made, and what its run did not have to read."""

from __future__ import annotations

import functools
import shlex
import socket
import sys
import time
from collections.abc import Iterable

from snaprebuild.published import Natural, Part, RunRecord
from snaprebuild.storage.log_dir import LogDirState

__all__ = [
    "NO_CACHE_HITS",
    "CacheHits",
    "run_record",
]


def run_record(log_dirs: Iterable[LogDirState] = ()) -> RunRecord:
    """The record of this run.

    Args:
        log_dirs: that were read; their ``meta.properties`` name the cluster.
    """
    clusters = {state.meta.cluster_id for state in log_dirs if state.meta is not None and state.meta.cluster_id is not None}
    return RunRecord(
        at_ms=_started_ms(),
        host=socket.gethostname(),
        command=shlex.join(["snaprebuild", *sys.argv[1:]]),
        cluster_ids=tuple(sorted(clusters)),
    )


@functools.cache
def _started_ms() -> int:
    """One moment for all copies of the document that a run makes."""
    return time.time_ns() // 1_000_000


class CacheHits(Part, frozen=True):
    """Segments that were not read, because the cache of an earlier run has their effects."""

    segments: Natural = 0
    size_bytes: Natural = 0

    def with_segment(self, size_bytes: int) -> CacheHits:
        """With one segment of this size more."""
        return CacheHits(segments=self.segments + 1, size_bytes=self.size_bytes + size_bytes)

    def __add__(self, other: CacheHits) -> CacheHits:
        return CacheHits(segments=self.segments + other.segments, size_bytes=self.size_bytes + other.size_bytes)


NO_CACHE_HITS = CacheHits()
