"""The scheduler: order, limits for each device, failures of tasks and of workers. Worker processes are real here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import _ExecutorManagerThread
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from dying_reads import dies_whatever_it_reads, dies_where_marked, mark, runs_out_of_memory
from log_dirs import batch, write_partition
from manifests import REPOSITORY
from recorded_tasks import RecordedTask
from sentences import CHANGED_SINCE_LISTED
from simulated_broker import listed

from snaprebuild.errors import ChangedFileError, GoneFileError, ReadFailedError, StorageError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine import partition_task, schedule, worker_pool
from snaprebuild.snapshots.engine.schedule import allowed_processors, default_jobs, run_tasks
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_segment
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.io_limits import block_device
from snaprebuild.storage.io_limits.block_device import READERS_VARIABLE
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io
from snaprebuild.storage.partition_dir import PartitionDir


def partition(tmp_path: Path, name: str, segments: int = 6) -> PartitionDir:
    return listed(write_partition(tmp_path / name, {offset: batch(offset, payload_bytes=100) for offset in range(segments)}))


class Threads(ThreadPoolExecutor):
    """In place of worker processes: they are ready at once."""

    _processes = None
    _executor_manager_thread = threading.main_thread()

    def __init__(self, jobs: int, **_options: object) -> None:
        super().__init__(jobs)


@pytest.fixture(params=["here", "pool"])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Work is done one after the other, or always by a pool."""
    if request.param == "pool":
        monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(worker_pool, "ProcessPoolExecutor", Threads)
        return 2
    return 1


def test_results_come_in_order(anywhere: int, tmp_path: Path) -> None:
    works = [RecordedTask(partition(tmp_path, f"t-{number}", 3 + number)) for number in range(5)]
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [list(range(3 + number)) for number in range(5)]
    assert [work.finished for work in works] == [1] * 5
    assert [work.error for work in works] == [None] * 5


def test_works_may_ask_for_more(anywhere: int, tmp_path: Path) -> None:
    works = [RecordedTask(partition(tmp_path, "t-0", 3), [range(3)] * 3), RecordedTask(partition(tmp_path, "t-1", 2))]
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [[0, 1, 2] * 3, [0, 1]]
    assert [work.finished for work in works] == [1, 1]


def test_a_work_may_have_enough(anywhere: int, tmp_path: Path) -> None:
    works = [RecordedTask(partition(tmp_path, "t-0"), [range(6)] * 5, stop_after=2), RecordedTask(partition(tmp_path, "t-1"))]
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [[0, 1], [0, 1, 2, 3, 4, 5]]
    assert [work.finished for work in works] == [1, 1]


def test_pieces_are_taken_one_by_one(anywhere: int, tmp_path: Path) -> None:
    """And no more of them once it is enough."""
    segments = {0: b"".join(map(batch, range(4))), 4: b"".join(map(batch, range(4, 9)))}
    directory = listed(write_partition(tmp_path / "t-0", segments))
    works = [RecordedTask(directory, cuts=(1, 2, 6), stop_after=enough) for enough in (None, 2, 4)]
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [[0, 0, 0, 4, 4], [0, 0], [0, 0, 0, 4]]
    assert [work.finished for work in works] == [1, 1, 1]


def test_nothing_to_do(anywhere: int, tmp_path: Path) -> None:
    run_tasks([], Run(jobs=anywhere))
    work = RecordedTask(partition(tmp_path, "t-0"), [])
    run_tasks([work], Run(jobs=anywhere))
    assert (work.taken, work.finished) == ([], 1)


def test_a_failing_task_does_not_stop_the_others(anywhere: int, tmp_path: Path) -> None:
    works = [RecordedTask(partition(tmp_path, f"t-{number}")) for number in range(3)]
    (tmp_path / "t-1" / f"{2:020d}.log").unlink()
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [list(range(6)), [0, 1], list(range(6))]
    assert isinstance(works[1].error, GoneFileError)
    assert works[1].error.path == str(tmp_path / "t-1" / f"{2:020d}.log")
    assert [work.finished for work in works] == [1, 0, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_segment_that_changed_is_refused(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grown in the middle of the log, or replaced. The last segment of a live broker may grow, and may not shrink."""
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 1 << 30 if jobs == 1 else 0)
    works = [RecordedTask(partition(tmp_path, name)) for name in ("grown-0", "replaced-0", "appended-0", "cut-0")]
    with (tmp_path / "grown-0" / f"{2:020d}.log").open("ab") as file:
        file.write(b"\0")
    replaced = tmp_path / "replaced-0" / f"{2:020d}.log"
    data = replaced.read_bytes()
    (tmp_path / "keeps the inode").hardlink_to(replaced)
    replaced.unlink()
    replaced.write_bytes(data)
    with (tmp_path / "appended-0" / f"{5:020d}.log").open("ab") as file:
        file.write(batch(6))
    os.truncate(tmp_path / "cut-0" / f"{5:020d}.log", 10)
    run_tasks(works, Run(jobs=jobs))
    assert [len(work.taken) for work in works] == [2, 2, 6, 5]
    assert [type(work.error) for work in works] == [ChangedFileError, GoneFileError, type(None), ChangedFileError]
    assert CHANGED_SINCE_LISTED in str(works[0].error)


def test_a_failure_while_taking(anywhere: int, tmp_path: Path) -> None:
    works = [RecordedTask(partition(tmp_path, "t-0"), refuse_at=2), RecordedTask(partition(tmp_path, "t-1"))]
    run_tasks(works, Run(jobs=anywhere))
    assert [work.taken for work in works] == [[0, 1], list(range(6))]
    assert str(works[0].error) == "no space"
    assert (works[0].finished, works[1].finished) == (0, 1)


def test_a_failure_while_asking_for_tasks(anywhere: int, tmp_path: Path) -> None:
    work = RecordedTask(partition(tmp_path, "t-0"))

    def tasks() -> list[ReadTask]:
        raise ReadFailedError("no listing")

    work.tasks = tasks  # type: ignore[method-assign]
    run_tasks([work], Run(jobs=anywhere))
    assert str(work.error) == "no listing"


# --- workers ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[ReadTask], SegmentSummary]], None]:
    """Workers, always, which read in a way of their own."""

    def install(read: Callable[[ReadTask], SegmentSummary]) -> None:
        monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(schedule, "read_group", partial(read_each, read))

    return install


def test_a_worker_that_is_killed_once_costs_nothing_but_time(
    tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a spinning disk, whose only reader it was: another one takes its place."""
    dying(dies_where_marked)
    monkeypatch.setattr(block_device, "is_rotational", lambda _device: True)
    works = [RecordedTask(partition(tmp_path, f"t-{number}", 20), [range(20)] * 2) for number in range(2)]
    mark(tmp_path / "t-0", 0, 1)
    # A second worker dies later, when all is well again; what was in flight together with the first must not be meant.
    read_isolated = worker_pool.WorkerPool._read_isolated
    deaths = []

    def then_mark_another(pool: worker_pool.WorkerPool, workers: ProcessPoolExecutor) -> bool:
        had_isolated = bool(pool.retry_isolated)
        is_read = read_isolated(pool, workers)
        if had_isolated:
            deaths.append(is_read)
            if len(deaths) == 1:
                mark(tmp_path / "t-0", 19, 1)
        return is_read

    monkeypatch.setattr(worker_pool.WorkerPool, "_read_isolated", then_mark_another)
    run_tasks(works, Run(jobs=2))
    assert [work.taken for work in works] == [list(range(20)) * 2] * 2
    assert [(work.finished, work.error) for work in works] == [(1, None)] * 2
    assert not list(tmp_path.rglob("*.dies.*")), "each of them killed a worker"
    assert deaths == [True, True]


def test_segments_that_kill_every_worker_fail_their_partitions_alone(
    tmp_path: Path, dying: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """At the same time and one after the other: the partition that caused it is reported, and no other."""
    dying(dies_where_marked)
    works = [RecordedTask(partition(tmp_path, f"t-{number}", 6)) for number in range(4)]
    guilty = {1: 0, 2: 3}
    for number, base_offset in guilty.items():
        mark(tmp_path / f"t-{number}", base_offset, 2)
    run_tasks(works, Run(jobs=3))
    assert [work.taken for work in works] == [list(range(guilty.get(number, 6))) for number in range(4)]
    assert [work.finished for work in works] == [1, 0, 0, 1]
    for number, base_offset in guilty.items():
        error = works[number].error
        assert isinstance(error, StorageError)
        assert (error.exit_code, error.path) == (5, str(tmp_path / f"t-{number}" / f"{base_offset:020d}.log"))
        assert "a worker process died while it read this file" in str(error)
    assert (works[0].error, works[3].error) == (None, None)
    assert "are read once more, one at a time" in caplog.text


def test_a_worker_that_the_executor_does_not_end(
    tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was just being started when another died: the executor waits for it, and it for work (seen with CPython 3.11)."""
    dying(dies_where_marked)
    shut_down = _ExecutorManagerThread.shutdown_workers

    def only_whole(manager: _ExecutorManagerThread) -> None:
        executor = manager.executor_reference()
        if executor is None or not executor._broken:
            shut_down(manager)

    monkeypatch.setattr(_ExecutorManagerThread, "shutdown_workers", only_whole)
    monkeypatch.setattr(ForkServerProcess, "terminate", lambda _: None)
    works = [RecordedTask(partition(tmp_path, f"t-{number}", 6)) for number in range(4)]
    mark(tmp_path / "t-1", 3, 2)
    hung = threading.Event()

    def let_go() -> None:
        hung.set()
        for worker in multiprocessing.active_children():
            worker.kill()

    watchdog = threading.Timer(120, let_go)
    watchdog.start()
    try:
        run_tasks(works, Run(jobs=3))
    finally:
        watchdog.cancel()
        watchdog.join()
    assert not hung.is_set()
    assert [work.taken for work in works] == [list(range(3 if number == 1 else 6)) for number in range(4)]


def test_workers_that_die_whatever_they_read(tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """No one waits for ever: a thousand partitions are not tried one by one where no worker can live."""
    monkeypatch.setattr(worker_pool, "LOST_MAX", 1)
    dying(dies_whatever_it_reads)
    works = [RecordedTask(partition(tmp_path, f"t-{number}", 2)) for number in range(12)]
    run_tasks(works, Run(jobs=2))
    assert all(isinstance(work.error, StorageError) and not work.finished and not work.taken for work in works)
    assert "die whatever they read" in str(works[-1].error)
    assert len(list(tmp_path.rglob("*.tried"))) < 12


def test_a_worker_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(schedule, "read_group", partial(read_each, runs_out_of_memory))
    works = [RecordedTask(partition(tmp_path, f"t-{number}")) for number in range(3)]
    run_tasks(works, Run(jobs=2))
    assert [work.taken for work in works] == [list(range(6)), [0, 1, 2], list(range(6))]
    assert "out of memory" in str(works[1].error)


TOGETHER_SECONDS_MAX = 120.0
"""A busy machine may start a thread late."""


class Readers:
    """In place of the pool: threads that read slowly, and count who reads from which device at the same time.

    Args:
        device_of: the device of a task.
        seconds: how long a read takes at least.
        until: each read takes until this was true once, however slow the machine is.
    """

    def __init__(
        self, device_of: Callable[[ReadTask], int], seconds: Callable[[ReadTask], float], until: Callable[[Readers], bool]
    ) -> None:
        self.device_of = device_of
        self.seconds = seconds
        self.until = until
        self.is_over = False
        self.now: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.together: set[frozenset[int]] = set()
        self.submitted: list[ReadTask] = []
        self.unfinished = 0
        self.most_unfinished = 0
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)

    _processes = None
    _executor_manager_thread = threading.main_thread()

    def __call__(self, jobs: int, **_options: object) -> Readers:
        self.threads = ThreadPoolExecutor(jobs)  # which takes them in the order of submission
        return self

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.shutdown()

    def shutdown(self, **_options: object) -> None:
        pass

    def submit(self, _read: object, tasks: list[ReadTask]) -> Future[list[Pieces]]:
        (task,) = tasks
        self.submitted.append(task)
        with self.lock:
            self.unfinished += 1
            self.most_unfinished = max(self.most_unfinished, self.unfinished)
        return self.threads.submit(self._read, task)

    def _read(self, task: ReadTask) -> list[Pieces]:
        device = self.device_of(task)
        with self.lock:
            self.now[device] += 1
            self.most[device] = max(self.most[device], self.now[device])
            self.together.add(frozenset(each for each, count in self.now.items() if count))
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.is_over or self.until(self), TOGETHER_SECONDS_MAX)
            self.is_over = True
            self.changed.notify_all()
        time.sleep(self.seconds(task))
        pieces = read_segment(task)
        with self.lock:
            self.now[device] -= 1
            self.unfinished -= 1
        return [pieces]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Readers]]:
    def install(
        seconds: Callable[[ReadTask], float],
        rotational: frozenset[int] = frozenset(),
        until: Callable[[Readers], bool] = lambda _pool: True,
    ) -> Readers:
        made = Readers(lambda task: int(Path(task.path).parent.parent.name), seconds, until)
        monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(worker_pool, "ProcessPoolExecutor", made)
        monkeypatch.setattr(partition_task, "GROUP_SEGMENTS_MAX", 1)
        monkeypatch.setattr(block_device, "is_rotational", lambda device: device in rotational)
        return made

    return install  # type: ignore[return-value]


def works_on(tmp_path: Path, devices: int, partitions: int, segments: int) -> list[RecordedTask]:
    return [
        RecordedTask(partition(tmp_path / str(device), f"t-{number}", segments), device=device)
        for device in range(devices)
        for number in range(partitions)
    ]


def test_a_spinning_disk_has_one_reader_and_two_disks_work_at_once(tmp_path: Path, readers: Callable[..., Readers]) -> None:
    pool = readers(lambda _task: 0.005, frozenset({0, 1}), lambda pool: frozenset({0, 1}) in pool.together)
    works = works_on(tmp_path, 2, 3, 4)
    run_tasks(works, Run(jobs=8))
    assert pool.most == {0: 1, 1: 1}
    assert frozenset({0, 1}) in pool.together
    assert all(work.taken == [0, 1, 2, 3] for work in works)


def test_no_disk_is_idle_while_another_has_many_readers(tmp_path: Path, readers: Callable[..., Readers]) -> None:
    """Twelve quick disks: each has a reader from the beginning, and none is thrashed by all of them."""
    pool = readers(lambda _task: 0.02, until=lambda pool: frozenset(range(12)) in pool.together)
    works = works_on(tmp_path, 12, 2, 8)
    run_tasks(works, Run(jobs=12))
    first = [int(Path(task.path).parent.parent.name) for task in pool.submitted[:12]]
    assert sorted(first) == list(range(12))
    assert frozenset(range(12)) in pool.together
    assert all(work.taken == list(range(8)) for work in works)


def test_what_is_in_flight_is_bounded(tmp_path: Path, readers: Callable[..., Readers]) -> None:
    """The first segment of a long partition is slow: the others are not read far ahead, whose results would pile up."""
    ahead: list[int] = []
    pool = readers(lambda task: 0.4 if task.base_offset == 0 else 0.0)
    work = RecordedTask(partition(tmp_path / "0", "t-0", 60))
    take = work.take

    def taking(summary: SegmentSummary) -> bool:
        if summary.base_offset == 0:
            ahead.append(len(pool.submitted))
        return take(summary)

    work.take = taking  # type: ignore[method-assign]
    run_tasks([work], Run(jobs=3))
    assert work.taken == list(range(60))
    assert ahead[0] <= 2 * 3
    assert pool.most_unfinished <= 2 * 3


# --- small things ----------------------------------------------------------------------------------------------------------


def test_jobs_when_no_one_says() -> None:
    processors = min(len(os.sched_getaffinity(0)), allowed_processors())
    assert default_jobs(1) == processors
    assert default_jobs(processors + 10) == processors + 10


@pytest.mark.parametrize(
    ("inner", "outer", "allowed"),
    [("150000 100000", "max 100000", 2), ("max 100000", "50000 100000", 1), ("400000 100000", "300000 100000", 3)],
)
def test_no_more_processors_than_the_control_groups_allow(tmp_path: Path, inner: str, outer: str, allowed: int) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n0::/broker/start\n")
    group = tmp_path / "groups" / "broker" / "start"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(inner + "\n")
    (group.parent / "cpu.max").write_text(outer + "\n")
    (tmp_path / "cpu.max").write_text("100000 100000\n")  # above all of them
    assert allowed_processors(tmp_path / "groups", own) == allowed


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert allowed_processors(tmp_path, own) >= 1 << 20
    for text in ("0::/\n", "0::/gone\n", "3:cpu:/old\n", ""):
        own.write_text(text)
        assert allowed_processors(tmp_path, own) >= 1 << 20


@pytest.mark.parametrize(
    ("option", "variable", "jobs", "most"), [(3, None, 8, 3), (3, None, 2, 2), (3, None, None, 3), (None, "2", 8, 2)]
)
def test_how_many_read_a_disk(
    option: int | None,
    variable: str | None,
    jobs: int | None,
    most: int,
    tmp_path: Path,
    readers: Callable[..., Readers],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run or the environment decides. Without --jobs enough are started to read all disks."""
    monkeypatch.setattr(schedule, "default_jobs", lambda _: 1)
    if variable is not None:
        monkeypatch.setenv(READERS_VARIABLE, variable)
    pool = readers(lambda _task: 0.005, frozenset({0}), lambda pool: pool.most[0] >= most)
    with limited_io(IoLimits(readers_per_disk=option)):
        run_tasks(works_on(tmp_path, 1, 3, 4), Run(jobs=jobs))
    assert pool.most == {0: most}


def test_small_work_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pool(*_: object, **__: object) -> object:
        raise AssertionError

    monkeypatch.setattr(worker_pool, "ProcessPoolExecutor", no_pool)
    work = RecordedTask(partition(tmp_path, "t-0"))
    run_tasks([work], Run(jobs=8))
    assert work.taken == list(range(6))


PDEATHSIG = "import ctypes, signal; found = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(found)); print(found.value)"
"""``PR_GET_PDEATHSIG``."""


@pytest.mark.parametrize(("begin", "number"), [("", 0), ("from multiprocessing.forkserver import main; ", signal.SIGKILL)])
def test_only_a_fork_server_ends_with_its_parent(begin: str, number: int) -> None:
    script = f"{begin}import snaprebuild.snapshots.engine.worker_start; {PDEATHSIG}"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert int(done.stdout) == number
