"""When, where and how a document or a receipt was made."""

from __future__ import annotations

import functools
import shlex
import socket
import sys
import time
from collections.abc import Iterable

from snaprebuild.published import RunRecord
from snaprebuild.storage.log_dir import LogDirState

__all__ = ["run_record"]


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
