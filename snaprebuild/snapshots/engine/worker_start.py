"""The start of a worker process, and of the server that forks workers. It imports little, so that a worker soon ends with its parent.

The fork server imports it first: from then on the kernel kills the server when the process that started it ends. Without that, the server
notices the end only after it has loaded all that workers need. Other processes import it to no effect.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker, spawn
from typing import TYPE_CHECKING, Any

from snaprebuild.storage.local.process_settings import end_with_parent, ignore_deprecations

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from snaprebuild.storage.io_limits.policy import SharedIoLimits
    from snaprebuild.storage.s3.request_limits import SharedCounts

__all__ = ["IN_PROCESS_BYTES_MAX", "begin_worker", "interrupts_later", "parent_of_workers", "start_server", "without_main_module"]

IN_PROCESS_BYTES_MAX = 96 << 20
"""Starting workers costs some tenths of a second, in which one process reads about this much."""

_STARTING = threading.Lock()
"""Held while a worker is started: two threads must not change the same function of Python at once."""

PRELOADED = (
    "snaprebuild.snapshots.engine.worker_start",
    "snaprebuild.snapshots.engine.segment_reader",
    "concurrent.futures.process",
    "multiprocessing.popen_forkserver",
)
"""Modules that the fork server imports: what is absent here, each worker loads. The first one ends it with the process that started it."""


def start_server() -> None:
    """Starts the server that forks workers of this machine, if it does not run.

    It reads nothing. Its memory is bounded as that of this process is now, perhaps long after it was started.

    Raises:
        RefusedError: its socket has no place outside of log directories.
    """
    from snaprebuild.storage.local.temporary_directory import choose_temporary_directory

    choose_temporary_directory()
    # The kernel watches the thread that starts the server, and only the main thread lives as long as its process.
    is_main = threading.current_thread() is threading.main_thread()
    forkserver.set_forkserver_preload(list(PRELOADED if is_main else PRELOADED[1:]))
    resource_tracker.ensure_running()  # it lets interrupts through again, so not inside the block
    with interrupts_later():
        forkserver.ensure_running()
    # There is no public way to the process ids of the server and of the tracker; tests/test_private_members.py finds a change of Python.
    for pid in (forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid):  # type: ignore[attr-defined]
        if pid is not None:  # the second one may be that of a process above
            resource.prlimit(pid, resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA))


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Interrupts of this thread wait meanwhile, also in processes that are started here, until these say otherwise.

    The interrupt of a terminal reaches all processes, and is ours to answer.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Workers that are started inside do not load the main module of this process.

    Python loads it in each worker, for functions that are defined there. A script that calls the library outside of
    ``if __name__ == "__main__":`` would run again, in each of them. Workers call functions of this package only.
    """
    with _STARTING:
        usual = spawn.get_preparation_data

        def prepared(name: str) -> dict[str, Any]:
            data = usual(name)
            return {key: value for key, value in data.items() if key not in ("init_main_from_name", "init_main_from_path")}

        spawn.get_preparation_data = prepared
        try:
            yield
        finally:
            spawn.get_preparation_data = usual


def parent_of_workers(context: BaseContext) -> int:
    """Process id of the process that starts workers: the fork server, which must run, or this one."""
    if context.get_start_method() == "spawn":
        return os.getpid()
    return int(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]  # no public way, as above


def begin_worker(parent: int, counts: SharedCounts, shared: SharedIoLimits) -> None:
    """In a worker: it only reads, so it may end at any moment and prints nothing then. Limits of the run apply to it, too.

    The fork server ends when no process holds the write end of its pipe, and then the kernel kills its workers. Python gives each worker a
    copy of that write end, which would keep all of them alive after the death of the process that wants their results.

    Args:
        parent: from ``parent_of_workers``.
        counts: from ``Meters.share``.
        shared: from ``RunLimits.share``.
    """
    # There is no public way to this end of the pipe.
    if (alive := forkserver._forkserver._forkserver_alive_fd) is not None:  # type: ignore[attr-defined]
        os.close(alive)
        forkserver._forkserver._forkserver_alive_fd = None  # type: ignore[attr-defined]
    end_with_parent(parent)
    gc.freeze()
    gc.enable()
    from snaprebuild.storage.io_limits.policy import current_limits
    from snaprebuild.storage.s3.request_limits import meters

    # No core file next to the segments.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    meters.adopt(counts)
    current_limits().adopt(shared)


if getattr(sys.modules["__main__"], "main", None) is forkserver.main:
    ignore_deprecations()
    end_with_parent(os.getppid())
    gc.disable()  # what the server loads stays, and looking at it takes time; `begin_worker` turns the collector on again
