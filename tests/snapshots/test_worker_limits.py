"""Workers for which a limit leaves no room: the run ends with a message, and waits for none of them."""

import errno
import re
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import _ExecutorManagerThread
from multiprocessing.queues import Queue
from pathlib import Path
from unittest import mock

import pytest
from log_dirs import batch, write_partition
from recorded_tasks import RecordedTask
from sentences import WORKERS_CANNOT_START
from simulated_broker import listed

from snaprebuild.errors import OutOfMemoryError, StorageError
from snaprebuild.snapshots.engine import schedule, worker_pool
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.run import Run


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("target", "error"),
    [
        (Queue, RuntimeError("can't start new thread")),
        (_ExecutorManagerThread, RuntimeError("can't start new thread")),
        (ProcessPoolExecutor, OSError(errno.EMFILE, "Too many open files")),
        (ProcessPoolExecutor, EOFError("unexpected EOF")),
    ],
    ids=["in a thread of the executor", "thread", "open file", "server"],
)
def test_where_there_is_no_room_for_workers(
    target: type, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of threads, processes or open files leaves no room. A thread of the executor that has ended answers no more."""
    method = {Queue: "_start_thread", _ExecutorManagerThread: "start"}.get(target, "_spawn_process")
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(worker_pool, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(target, method, mock.Mock(side_effect=error))
    directory = listed(write_partition(tmp_path / "t-0", {offset: batch(offset) for offset in range(6)}))
    task = RecordedTask(directory)
    try:
        run_tasks([task], Run(jobs=2))
    except (StorageError, OutOfMemoryError) as raised:
        kind = type(raised)
        text = str(raised)
    else:  # from Python 3.13 on this ends the executor, as the death of a worker does
        assert target is Queue
        assert isinstance(task.error, StorageError)
        return
    assert kind is (OutOfMemoryError if isinstance(error, RuntimeError) else StorageError)
    assert re.fullmatch(rf"{WORKERS_CANNOT_START}.*; --jobs 1 starts none", text)
