"""A partition replayed in chunks shows what it shows as a whole, wherever a chunk ends and whatever goes wrong in one."""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from engine_results import outcomes_of
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import EMPTY_SNAPSHOT, all_bytes, batch, make_log_dir, snapshot_name, write_partition
from make_partition import Shape, make_partition
from manifests import FIXTURES
from msgspec.structs import replace
from plans import make_plan
from simulated_broker import EXPIRATION_MS
from test_any_packing import write_aged_log
from without_spark import WithoutSpark

from snaprebuild.errors import StorageError
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask
from snaprebuild.snapshots.engine.segment_reader import read_segment
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.rebuild.task import RebuildJob
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import PartitionVerdict, verify
from snaprebuild.spark import chunks, job, replay_tasks, summary_rows
from snaprebuild.spark.chunks import END, ChunkPlan, RowRange
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.partition_jobs import Chunk, SummaryStream, chunk_starts, composed, run_chunk
from snaprebuild.spark.replay_tasks import Division
from snaprebuild.spark.summary_rows import (
    WHOLE,
    WITHHELD,
    JobRow,
    batches_of,
    outcomes,
    rows_of_error,
    rows_of_job,
    table_of,
    with_sizes,
)
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA
from snaprebuild.storage.thread_pool import ThreadPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

NOW_MS = 1_795_270_000_000
TRANSACTIONAL = 0x10


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(1, 60))
def test_where_chunks_begin(sizes: list[int], target: int) -> None:
    starts = chunk_starts(sizes, target)
    assert starts[0] == 0
    assert sorted(set(starts)) == list(starts)
    found = [sizes[start:stop] for start, stop in zip(starts, (*starts[1:], len(sizes)), strict=True)]
    assert [size for chunk in found for size in chunk] == sizes
    for chunk in found[:-1]:
        assert sum(chunk) >= target > sum(chunk[:-1])


def plan_of(logs: Path, out: Path) -> Plan:
    return make_plan(RebuildRequest((str(logs),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=NOW_MS))


def rebuilt(plan: Plan) -> PartitionResult:
    """Rebuilds one partition in chunks of one segment. The result must be that of the whole."""
    engine = WithoutSpark(1, chunk_bytes=1)
    found, expected = (rebuild(plan, Run(jobs=1, engine=each), dry_run=True) for each in (engine, None))
    assert engine.chunks == len(plan.partitions[0].source.directory.segments) - 1
    assert outcomes_of(found) == outcomes_of(expected)
    return found.partitions[0]


def judged(logs: Path) -> PartitionVerdict:
    """Verifies one partition in chunks of one segment. The result must be that of the whole."""
    source, clock = open_source([str(logs)]), make_plan(RebuildRequest((str(logs),), as_of_ms=NOW_MS)).clock
    found, expected = (verify(source, Run(clock=clock, jobs=1, engine=each)) for each in (WithoutSpark(1, chunk_bytes=1), None))
    assert found == expected
    return found.partitions[0]


@pytest.mark.parametrize("replay_from", ["auto", "window"])
def test_a_replay_that_waits_for_a_later_snapshot_is_not_split(tmp_path: Path, replay_from: str) -> None:
    """One task replays it, with the result of a run on one machine."""
    case = write_aged_log(8, make_log_dir(tmp_path / "logs") / "t-0")
    request = RebuildRequest((str(tmp_path / "logs"),), boundaries="all", as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS)
    plan = make_plan(replace(request, offset_from=case.first_wanted, out=str(tmp_path / "out"), replay_from=replay_from))
    engine = WithoutSpark(1, chunk_bytes=1)
    found, expected = (rebuild(plan, Run(jobs=1, engine=each), dry_run=True) for each in (engine, None))
    assert outcomes_of(found) == outcomes_of(expected)
    assert engine.chunks == 0


def test_a_batch_on_which_kafka_throws(tmp_path: Path) -> None:
    """The transaction that is open comes from another chunk. Nothing above is made, and all of it is reported once."""
    logs = make_log_dir(tmp_path / "logs")
    segments = {0: batch(0, producer_id=7, attributes=TRANSACTIONAL), 1: batch(1), 2: batch(2, producer_id=9)}
    segments |= {3: batch(3, producer_id=7, sequence=1), 4: batch(4), 5: batch(5)}
    directory = write_partition(logs / "t-0", segments)
    found = rebuilt(plan_of(logs, tmp_path / "out"))
    expected = {offset: BoundaryAction.WOULD_WRITE if offset < 4 else BoundaryAction.FAILED for offset in range(1, 7)}
    assert {each.offset: each.action for each in found.boundaries} == expected
    (damaged,) = [each for each in found.findings if each.code == "damaged-segment"]
    assert damaged.offset == 3
    assert "InvalidTxnStateException" in damaged.message
    for offset in (2, 4, 6, 9):
        (directory / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    verdict = judged(logs)
    assert [(each.offset, each.comparison.status.value) for each in verdict.outcome.snapshots[1:]] == [
        (offset, "unverifiable") for offset in (4, 6, 9)
    ]
    assert [each.code for each in verdict.findings].count("damaged-segment") == 1


def test_a_chunk_that_cannot_be_composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replayed all the same; where those after it would begin is unknown."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {at: batch(at, producer_id=at) for at in range(6)})

    def fails(job: Job, indices: range, stream: SummaryStream) -> Iterator[object]:
        if indices.start == 2:
            raise MemoryError
        return composed(job, indices, stream)

    monkeypatch.setattr(replay_tasks, "composed", fails)
    (found,) = rebuild(plan_of(logs, tmp_path / "out"), Run(engine=WithoutSpark(1, chunk_bytes=1)), dry_run=True).partitions
    assert [each.action for each in found.boundaries] == [BoundaryAction.WOULD_WRITE] * 3 + [BoundaryAction.FAILED] * 3
    assert [(each.code, each.message) for each in found.findings if each.offset is None] == [("out-of-memory", "out of memory")]
    assert [each.reasons for each in found.boundaries[3:]] == [("out of memory",)] * 3


def test_a_chunk_that_cannot_be_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {at: batch(at, producer_id=at) for at in range(4)})

    def fails(job: Job, chunk: Chunk, stream: SummaryStream) -> object:
        if chunk.start == 2:
            raise MemoryError
        return run_chunk(job, chunk, stream)

    monkeypatch.setattr(replay_tasks, "run_chunk", fails)
    (found,) = rebuild(plan_of(logs, tmp_path / "out"), Run(engine=WithoutSpark(1, chunk_bytes=1)), dry_run=True).partitions
    assert [each.action for each in found.boundaries] == [
        BoundaryAction.WOULD_WRITE,
        BoundaryAction.WOULD_WRITE,
        BoundaryAction.FAILED,
        BoundaryAction.WOULD_WRITE,
    ]
    assert [each.code for each in found.findings] == ["out-of-memory", "boundary-not-reached"]


# ------------------------------------------------------------------------------------------------------------------------ states


def begun(tmp_path: Path, producers: int) -> list[pa.RecordBatch]:
    """The rows of the jobs of two chunks, the second of which begins after this many producers."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: b"".join(batch(at, producer_id=at) for at in range(producers)), producers: batch(producers)})
    plan = plan_of(logs, tmp_path / "out")
    job = RebuildJob(plan.partitions[0], plan.request, plan.clock, True, frozenset(), None)
    division = Division(job, (0, 1), (WHOLE, producers), 2)
    (task,) = job.read_tasks([0])
    rows = [*rows_of_job(0, pickle.dumps(division)), *summary_rows.rows_of_pieces(0, read_segment(task))]
    total = list(replay_tasks.compose_chunks([table_of(rows)]))
    return list(replay_tasks.begin_chunks([table_of(list(rows_of_job(0, pickle.dumps(division)))), *total]))


def test_a_state_crosses_in_rows_that_are_not_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_rows, "PART_PRODUCERS", 16)
    table = pa.Table.from_batches(begun(tmp_path, 1000))
    cells = [cell for cell in table.column("job").to_pylist() if cell is not None]
    assert len(cells) == 2
    assert max(map(len, cells)) < 10_000
    sizes = [len(row["effect_producer_id"]) for row in summary_rows._rows(table.to_batches())]
    assert sizes == [0, *[16] * 62, 8]


def test_a_state_of_which_a_part_is_missing_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_rows, "PART_PRODUCERS", 16)
    rows = pa.Table.from_batches(begun(tmp_path, 100)).filter(pc.field("part") != 3)
    *_, last = replay_tasks.run_jobs(rows.to_batches())
    assert str(pickle.loads(last.column("done")[-1].as_py())) == "84 of 100 producers of the state before a chunk arrived"


# ------------------------------------------------------------------------------------------------------------------------- Spark


@pytest.mark.night
@pytest.mark.spark
def test_bundled_directories_in_chunks(spark: SparkSession, tmp_path: Path) -> None:
    """Rebuilt and verified; ``test_any_packing.py`` cuts all of them in every way."""
    places = tuple(str(FIXTURES / name / "logs") for name in ("kafka27-mixed", "txn-state4", "damaged"))
    results, files = [], []
    for name, engine in (("own", None), ("spark", SparkEngine(spark, chunk_bytes=1))):
        out = tmp_path / name
        plan = make_plan(RebuildRequest(places, out=str(out), boundaries="all", replay_from="log-start", as_of_ms=NOW_MS))
        result = rebuild(plan, Run(jobs=1, engine=engine))
        boundaries = [[(each.offset, each.action, each.reasons) for each in one.boundaries] for one in result.partitions]
        rest = [{name: value for name, value in each.items() if name != "boundaries"} for each in outcomes_of(result)]
        results.append((boundaries, rest, verify(open_source(places), Run(clock=plan.clock, jobs=1, engine=engine))))
        files.append(all_bytes(out))
    assert results[0] == results[1]
    assert files[0] == files[1]
    assert len(files[0]) > 30


@pytest.mark.spark
@pytest.mark.parametrize("written_out", [0, 32])
def test_pieces_go_to_the_tasks_that_they_were_packed_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, written_out: int
) -> None:
    """One that is as large as all others together has a task of its own, and rows of partitions that ended go nowhere."""
    from pyspark.sql import functions as sql

    monkeypatch.setattr(chunks, "PIECES_WRITTEN_OUT", written_out)
    pieces = [RowRange(0, WHOLE, 50, 70), RowRange(0, 50, END, 10), RowRange(1, WHOLE, END, 30), RowRange(2, WHOLE, END, 30)]
    rows = [row for number in range(4) for at in (0, 49, 50, 51) for row in rows_of_job(number, b"", at)]
    frame = chunks.data_frame(spark, pa.Table.from_batches([table_of(rows)]))
    placed = chunks._placed(spark, frame, pieces, 2).rows.select("partition", "base_offset", sql.spark_partition_id().alias("task"))
    tasks: dict[int, set[tuple[int, int]]] = {}
    for row in placed.collect():
        tasks.setdefault(row.task, set()).add((row.partition, row.base_offset))
    others = {(number, at) for number in (1, 2) for at in (0, 49, 50, 51)} | {(0, 50), (0, 51)}
    assert sorted(tasks.values(), key=len) == [{(0, 0), (0, 49)}, others]


@pytest.mark.spark
@pytest.mark.usefixtures("as_large")
def test_a_replay_that_goes_back_beside_one_in_chunks(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of its first round are there in the second one; those of the other partition are not wanted any more."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(8, logs / "t-0")
    write_partition(logs / "u-0", {at: batch(at, producer_id=at, timestamp=case.as_of_ms) for at in range(4)})
    request = RebuildRequest(
        (str(logs),), boundaries="all", as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS, out=str(tmp_path / "out")
    )
    request = replace(request, offset_from=case.first_wanted)
    found, expected = (
        rebuild(make_plan(request), Run(jobs=1, engine=engine), dry_run=True)
        for engine in (SparkEngine(spark, chunk_bytes=1), None)
    )
    assert outcomes_of(found) == outcomes_of(expected)
    assert "extended back" in found.partitions[0].outcome.replay_reason


@pytest.mark.spark
@pytest.mark.usefixtures("as_large")
@pytest.mark.parametrize(("chunk_bytes", "frames"), [(chunks.CHUNK_BYTES, 0), (1, 1)])
def test_rows_are_kept_only_where_they_are_needed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, frames: int
) -> None:
    kept: list[object] = []
    frame_of_spark = type(spark.range(1))
    persist = frame_of_spark.persist
    monkeypatch.setattr(frame_of_spark, "persist", lambda frame, *more: kept.append(frame) or persist(frame, *more))
    plan = plan_of(FIXTURES / "kafka27-mixed", tmp_path)
    rebuild(plan, Run(engine=SparkEngine(spark, chunk_bytes=chunk_bytes)), dry_run=True)
    assert len(kept) == frames
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@pytest.mark.spark
@pytest.mark.usefixtures("as_large")
def test_a_large_partition_with_few_rows_is_one_query(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes may have very many rows. How many they have is known to the task that replays, which then does the whole."""
    logs = tmp_path / "logs"
    make_partition(logs / "t-0", Shape(2048, 1 << 20, segment_bytes=256 << 10, producers=10))

    def fails(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(job, "run_replays", fails)
    plan = plan_of(logs, tmp_path / "out")
    source = plan.partitions[0].source
    of_bytes = sum(chunks.SEGMENT_BYTES + 2 * each.log.identity.size_bytes for each in source.directory.segments)
    engine = SparkEngine(spark, chunk_bytes=of_bytes - 1)
    found, expected = (rebuild(plan, Run(jobs=1, engine=each), dry_run=True) for each in (engine, None))
    assert outcomes_of(found) == outcomes_of(expected)


@pytest.mark.spark
@pytest.mark.parametrize(("large", "queries"), [(0, 1), (2, 3), (3, 4)])
def test_results_come_by_their_bytes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, large: int, queries: int) -> None:
    """Small ones in one query. Another one asks for sizes; of the large ones 16 bytes come at once."""
    monkeypatch.setattr(chunks, "PARTITIONS_AT_ONCE", 0)
    monkeypatch.setattr(chunks, "COLLECT_BYTES", 16)
    done = {number: bytes(8 if number < large else number % 2) for number in range(8)}
    rows = spark.createDataFrame(list(done.items()), "partition int, done binary")
    asked: list[object] = []
    collect = type(rows).collect
    monkeypatch.setattr(type(rows), "collect", lambda frame: asked.append(frame) or collect(frame))
    found = [tuple(row) for row in chunks.collected(rows, len(done), OUTCOME_SCHEMA)]
    assert sorted(found) == sorted(done.items())
    assert len(asked) == queries
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@pytest.mark.spark
def test_results_of_changing_sizes_come_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that is lost takes kept rows with it, and those that are computed again have other times in them."""
    monkeypatch.setattr(chunks, "PARTITIONS_AT_ONCE", 0)
    monkeypatch.setattr(chunks, "COLLECT_BYTES", 64)

    def results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            numbers = each.column(0).to_pylist()
            done = [os.urandom(random.randrange(4)) for _ in numbers]
            yield pa.RecordBatch.from_pydict({"partition": numbers, "done": done}, schema=OUTCOME_SCHEMA)

    rows = spark.range(32).selectExpr("CAST(id AS INT) AS partition").mapInArrow(results, "partition int, done binary")
    monkeypatch.setattr(type(rows), "persist", lambda frame: frame)
    found = [row.partition for row in chunks.collected(rows, 32, OUTCOME_SCHEMA)]
    assert sorted(found) == list(range(32))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 300)), max_size=40),
    st.dictionaries(st.integers(0, 3), st.integers(100, 1000)),
    st.integers(1, 7),
    st.randoms(),
)
def test_the_sizes_of_rows_precede_the_job(
    rows: list[tuple[int, int, int]], sent_bytes_max: dict[int, int], tasks: int, random: random.Random
) -> None:
    """Whatever task reads which row: the task that replays a partition gets the sizes of all rows of it, and whether some are withheld."""
    dealt: list[list[summary_rows.Row]] = [[] for _ in range(tasks)]
    for number in range(4):
        dealt[random.randrange(tasks)] += rows_of_job(number, b"job of %d" % number)
    for piece, (number, base_offset, size) in enumerate(rows):
        dealt[random.randrange(tasks)] += rows_of_error(number, base_offset, piece, StorageError("x" * size))
    read = [pa.Table.from_batches(with_sizes(batches_of(each), sent_bytes_max), summary_rows.SCHEMA) for each in dealt]
    expected: dict[int, Counter[int]] = defaultdict(Counter)
    for table in read:
        sent: Counter[tuple[int, int]] = Counter()
        for row in table.filter(pc.field("piece") >= 0).to_pylist():
            at = row["partition"], row["base_offset"]
            if row["partition"] in sent_bytes_max:
                expected[at[0]][at[1]] += len(row["contents"])
            sent[at] += len(row["contents"]) if row["slot"] != WITHHELD else 0
        assert all(size <= sent_bytes_max.get(number, size) for (number, _), size in sent.items())
    whole = pa.concat_tables(read).sort_by([(key, "ascending") for key in summary_rows.KEYS])
    withheld = set(whole.filter(pc.field("slot") == WITHHELD)["partition"].to_pylist())
    arrived = {number: row for number, _, row in outcomes(whole.to_batches()) if isinstance(row, JobRow)}
    assert {number: row.job for number, row in arrived.items()} == {number: b"job of %d" % number for number in range(4)}
    assert {number: row.sizes.rows_bytes for number, row in arrived.items()} == {number: expected[number] for number in range(4)}
    assert {number for number, row in arrived.items() if row.sizes.has_withheld} == withheld


class Whole(Job):
    """A job that cannot be split."""

    def started(
        self, replay: PartitionReplay | None = None, threads: ThreadPool | None = None
    ) -> AbstractContextManager[PartitionTask]:
        raise AssertionError


def test_a_replay_that_may_go_back_is_not_split(tmp_path: Path) -> None:
    """The sizes of rows are of one round: a partition of two rounds would have some that nobody counted."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(8, logs / "t-0")
    reached = set()
    for mode in ("auto", "window", "log-start"):
        for first_wanted in (*case.bases, case.first_wanted):
            request = RebuildRequest(
                (str(logs),), boundaries="all", replay_from=mode, as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS
            )
            plan = make_plan(replace(request, out=str(tmp_path / "out"), offset_from=first_wanted))
            if not plan.partitions[0].boundaries:
                continue
            rebuild_job = RebuildJob(plan.partitions[0], plan.request, plan.clock, True, frozenset(), None)
            tasks = rebuild_job.read_tasks(range(len(case.bases)))
            reached.add((mode, chunks.may_go_back(rebuild_job), chunks.is_splittable(rebuild_job, tasks, 1)))
    assert reached >= {("auto", True, False), ("auto", False, True), ("window", False, False), ("log-start", False, True)}
    assert not [mode for mode, goes_back, is_split in reached if goes_back and is_split]


def test_the_cut_of_a_round(tmp_path: Path) -> None:
    """By the rows, not by the segments; a job that cannot be divided stays whole, however large it is."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {at: batch(at) for at in range(4)})
    plan = plan_of(logs, tmp_path / "out")
    job = RebuildJob(plan.partitions[0], plan.request, plan.clock, True, frozenset(), None)
    tasks = job.read_tasks(range(4))
    rows = {(number, at): size for number in (5, 6) for at, size in enumerate((1, 1 << 30, 1, 1))}
    cut = ChunkPlan.of({5: job, 6: Whole()}, {5: tasks, 6: tasks}, rows, 1 << 28, 8)
    assert [(each.partition, each.low, each.high) for each in cut.pieces] == [(5, WHOLE, 2), (5, 2, END), (6, WHOLE, END)]
    assert {number: division.starts for number, division in cut.divisions.items()} == {5: (0, 2)}
    assert sum(each.size_bytes for each in cut.pieces[:2]) == cut.pieces[2].size_bytes
