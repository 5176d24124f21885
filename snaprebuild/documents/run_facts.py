"""When, where and how a document was made."""

from __future__ import annotations

import functools
import shlex
import socket
import sys
import time
from collections.abc import Iterable

import msgspec

from snaprebuild.documents.common import Run
from snaprebuild.storage.log_dir import LogDirState

__all__ = ["run_json", "run_of"]


def run_of(log_dirs: Iterable[LogDirState] = ()) -> Run:
    """The facts of this run.

    Args:
        log_dirs: that were read; their ``meta.properties`` name the cluster.
    """
    clusters = {state.meta.cluster_id for state in log_dirs if state.meta is not None and state.meta.cluster_id is not None}
    return Run(
        at_ms=_started_ms(),
        host=socket.gethostname(),
        command=shlex.join(["snaprebuild", *sys.argv[1:]]),
        cluster_ids=sorted(clusters),
    )


def run_json(log_dirs: Iterable[LogDirState]) -> dict[str, object]:
    """``run_of`` as plain values."""
    return msgspec.structs.asdict(run_of(log_dirs))


@functools.cache
def _started_ms() -> int:
    """The same moment for all copies of the document that a run makes."""
    return time.time_ns() // 1_000_000
