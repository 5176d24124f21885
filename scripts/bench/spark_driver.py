#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Memory of the driver for a rebuild on Spark of very many segments: listed, planned, and after each wave.

The driver is the real one, with Spark on this machine, and so is the planning. The object store is made up: it lists objects that do not
exist, and has the end of the last segment of each partition. Tasks neither read nor replay: their results are like those of a dry run.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import crc32c
import pyarrow as pa
from spark_memory import children_of

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildOutcome
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.spark import job, read_rows, replay_tasks, summary_rows
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, ObjectStatus

HERE = Path(__file__).resolve().parent
ROOT = "s3://fleet/logs"
AS_OF_MS = 1_700_000_000_000
OFFSETS = 1000
"""Offsets of a segment."""
FLEET = "SNAPREBUILD_BENCH_FLEET"
"""Variable with the number of partitions, that of segments in each, and the listed bytes of a segment."""


def batch_at(offset: int) -> bytes:
    """A batch of one producer, whose checksum does not depend on the offset."""
    checked = struct.pack(">hiqqqhii", 0, OFFSETS - 1, AS_OF_MS, AS_OF_MS, 7, 0, 0, OFFSETS) + b"\0" * 9
    return struct.pack(">qiibI", offset, 9 + len(checked), 0, 2, crc32c.crc32c(checked)) + checked


class LastBatch:
    """An object that has nothing but a batch at its end."""

    def __init__(self, location: str, size_bytes: int) -> None:
        self.name = location
        self.size_bytes = size_bytes
        self.identity = FileIdentity(size_bytes, AS_OF_MS * 10**6, 0, "e")
        self._batch = batch_at(int(Path(location).stem))

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fills a buffer; ``SegmentBytes.read_into`` describes it."""
        count = max(min(len(buffer), self.size_bytes - position), 0)
        start = position - (self.size_bytes - len(self._batch))
        buffer[:count] = self._batch[start : start + count] if start >= 0 else bytes(count)
        return count

    def will_stop_at(self, position_bytes: int) -> None:
        """Nothing is fetched ahead."""

    def check_unchanged(self) -> None:
        """Does nothing: a made-up object never changes."""

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> LastBatch:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class MadeUpStore:
    """The methods of ``S3Store`` that a rebuild calls."""

    is_local = False

    def __init__(self, partitions: int, segments: int, size_bytes: int) -> None:
        self.partitions = partitions
        self.segments = segments
        self.size_bytes = size_bytes

    def for_file(self, location: str) -> MadeUpStore:
        """Gives the store itself, which contains only numbers."""
        return self

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """Four objects for each segment, and nothing that a broker keeps next to partitions."""
        kinds = (("index", 8), ("log", self.size_bytes), ("timeindex", 12), ("txnindex", 0))
        for number in range(self.partitions):
            for segment in range(self.segments):
                for kind, size in kinds:
                    name = f"topic-{number // 100:05d}-{number % 100}/{segment * OFFSETS:020d}.{kind}"
                    yield name, ObjectStatus(size, AS_OF_MS * 10**6, f'"{number:08x}{segment:08x}{size:016x}"')

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """An index leads to the last batch; there is no other small object."""
        return struct.pack(">ii", 0, self.size_bytes - len(batch_at(0))) if location.endswith(".index") else None

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """The last entry of a time index."""
        return 12, struct.pack(">qi", AS_OF_MS, 0)[-count:]

    def open_bytes(self, location: str, *_: object, **__: object) -> LastBatch:
        """A segment."""
        return LastBatch(location, self.size_bytes)


def read_nothing(batches: Iterable[Any], **_: object) -> Iterator[Any]:
    """In place of ``read_tasks.read_segments``: the jobs, and no summaries."""
    rows = [row for batch in batches for row in read_rows.rows_of(batch) if row.job is not None]
    sent = [{**each, "slot": row.replayed_by} for row in rows for each in summary_rows.rows_of_job(row.partition, row.job)]
    yield from summary_rows.batches_of(sent)


def results_of(batches: Iterable[Any]) -> Iterator[Any]:
    """In place of ``replay_tasks.run_jobs``: results as they would be, with one producer at each boundary."""
    for arrived in replay_tasks._jobs(batches):
        rebuild_job = arrived.unpickled()
        done = RebuildOutcome(read_bytes=1, replay_reason=rebuild_job.plan.replay_reason)
        for boundary in rebuild_job.plan.boundaries:
            path = f"{rebuild_job.plan.target}/{boundary.offset:020d}.snapshot"
            reasons = ("every batch from offset 0 was replayed",)
            result = BoundaryResult(
                boundary.offset, boundary.is_log_end, BoundaryAction.WOULD_WRITE, SnapshotClass.EXACT, reasons, 1, path
            )
            done.boundaries.append(result)
        row = replay_tasks._result(arrived.partition, arrived.base_offset, pickle.dumps(done), None)
        yield pa.RecordBatch.from_pylist([row], schema=replay_tasks.RESULT_SCHEMA)


def install() -> None:
    """Puts the made-up store in place of the real one, in this process."""
    store = MadeUpStore(*map(int, os.environ[FLEET].split()))
    for name in ("list_below", "read_small", "read_end", "open_bytes"):
        setattr(S3Store, name, _called(getattr(store, name)))
    for name in ("present", "names_in"):
        setattr(S3Store, name, lambda *_: frozenset())
    job.read_segments = read_nothing
    replay_tasks.run_jobs = results_of


class _called:  # noqa: N801
    """A function in place of a method of a class: it is called without the object."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, *_: object) -> Callable[..., Any]:
        return self._method


# -------------------------------------------------------------------------------------------------------------------------- memory


class Memory:
    """Anonymous memory of this process and of its Java, MiB: the most since the last ``shown``."""

    def __init__(self) -> None:
        self._most = [0, 0]
        self._began = time.perf_counter()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.05)

    def _look(self) -> list[int]:
        java = next((child for child in children_of(os.getpid()) if b"java" in _read(child, "cmdline")[:64]), None)
        sizes = [_anonymous(os.getpid()), 0 if java is None else _anonymous(java)]
        self._most = [max(pair) for pair in zip(self._most, sizes, strict=True)]
        return sizes

    def shown(self, phase: str) -> None:
        """Prints what is held at the end of a phase, and the most during it."""
        gc.collect()
        now = self._look()[0]
        most = self._most
        self._most = [0, 0]
        print(f"{phase:24}{time.perf_counter() - self._began:>9.0f} s{now:>9} MiB{most[0]:>9} MiB{most[1]:>9} MiB", flush=True)
        self._began = time.perf_counter()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it ended


def _anonymous(pid: int) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"RssAnon:"):
            return int(line.split()[1]) >> 10
    return 0


class WatchedEngine(SparkEngine):
    """Shows the memory after each wave."""

    memory: ClassVar[Memory]

    def _run_wave(self, wave: list[Any]) -> None:
        SparkEngine._run_wave(self, wave)
        self.memory.shown(f"a wave of {sum(len(first) for _, first in wave):,}")


def main() -> None:
    """Prints the memory by phase."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("segments", type=int, nargs="?", default=1_000_000, help="of all partitions (1000000)")
    parser.add_argument("--of-a-partition", type=int, default=10, help="segments of a partition (10)")
    parser.add_argument(
        "--segment-mib", type=int, default=64, help="listed size of a segment, which decides the number of tasks (64)"
    )
    parser.add_argument("--phases", choices=("plan", "all"), default="all", help="stop after the plan (all)")
    arguments = parser.parse_args()
    partitions = arguments.segments // arguments.of_a_partition
    os.environ[FLEET] = f"{partitions} {arguments.of_a_partition} {arguments.segment_mib << 20}"
    os.environ["PYTHONPATH"] = os.pathsep.join((str(HERE), str(HERE.parents[1])))
    install()
    memory = WatchedEngine.memory = Memory()
    print(f"{arguments.segments:,} segments of {partitions:,} partitions; {' ' * 3}held    most  most of Java")
    memory.shown("begun")
    open_source((ROOT,))
    memory.shown("listed, and dropped")
    conf = {"spark.python.daemon.module": Path(__file__).stem}
    with opened_session("local[2]", conf) as session:
        engine = WatchedEngine(session, chunk_bytes=sys.maxsize)  # each partition is one task, which the stand-in knows
        session.range(1).count()
        memory.shown("session")
        request = RebuildRequest((ROOT,), out="s3://fleet/out", boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
        plan = make_plan(request, judge_plans, parallel_map=engine.parallel_map)
        memory.shown("listed and planned")
        if arguments.phases == "plan":
            return
        result = rebuild(plan, Run(engine=engine), dry_run=True)
        memory.shown("at the end")
        done = Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)
        print(f"boundaries: {dict(done)}; findings: {len(result.findings)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["pyspark.worker"]:  # the program that starts the workers of Spark
        from pyspark.daemon import manager

        install()
        manager()  # type: ignore[no-untyped-call]
    else:
        import spark_driver  # so that tasks find what is sent to them by the name of the module

        spark_driver.main()
