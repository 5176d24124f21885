"""The data sources as Spark reads them, and the questions of ``scripts/demo/spark_questions.py``."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from command import in_json_process
from event_logs import new_tasks, overlap
from header_engines import reference_headers
from log_dirs import batch, batch_positions, copy_of, make_log_dir, snapshots_in, tree, truth, write_partition
from make_partition import Shape, make_partition
from manifests import FIXTURES, REPOSITORY, partition_fixtures
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from slow_consumer import ABORTED, SlowRecord, slow_log
from waiting import SECONDS_MAX

from formats.log.batch_headers import BytesSegment
from snaprebuild.errors import UsageError
from snaprebuild.spark import register
from snaprebuild.spark import session as session_module
from snaprebuild.spark.data_sources import WITH_FILTERS, BatchHeaders, ProducerSnapshots
from snaprebuild.spark.packing import release_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MIXED = FIXTURES / "kafka27-mixed" / "logs"
TIERED = FIXTURES / "tiered-local"


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def batches(sql: SparkSession, *paths: Path, **options: str) -> DataFrame:
    return sql.read.format("kafka_batch_headers").options(**options).load([str(path) for path in paths])


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: [(value is None, str(value)) for value in row.values()])


def test_spark_gets_what_the_readers_give(sql: SparkSession) -> None:
    """Every column of every row of some partitions; ``test_data_sources.py`` compares those of all with the grammar."""
    paths = [str(each.directory) for each in partition_fixtures() if each.fixture in ("kafka4-mixed", "magicup", "txn-state4")]
    for source, tasks in ((BatchHeaders, "7"), (ProducerSnapshots, "3")):
        frame = sql.read.format(source.name()).option("numPartitions", tasks).load(paths)
        assert frame.rdd.getNumPartitions() == int(tasks)
        reader = source(CaseInsensitiveDict(paths=json.dumps(paths))).reader(from_arrow_schema(source.whole))
        own = pa.Table.from_batches(rows for task in reader.partitions() for rows in reader.read(task))
        assert in_order(frame.toArrow()) == in_order(own)


CONDITIONS = (
    "topic <> 'mixed' AND partition IN (0, 3)",
    "topic LIKE '%end' OR last_offset < 10",
    "NOT (topic = 'plain') AND segment_base_offset > 500 AND is_control",
    "topic <=> 'deleted' AND coordinator_epoch IS NOT NULL AND last_offset <> 3",
)
"""Conditions of which Spark gives the reader all, none, or a part; ``test_pushed_filters.py`` asks each kind."""


@pytest.fixture
def pushdown(sql: SparkSession) -> Iterator[None]:
    """Spark's setting without which it refuses readers that take filters."""
    if release_of(pyspark.__version__) < WITH_FILTERS:
        pytest.skip(f"NOT RUN: Spark {pyspark.__version__} passes no filters")
    setting = "spark.sql.python.filterPushdown.enabled"
    before = sql.conf.get(setting)
    sql.conf.set(setting, "true")
    yield
    sql.conf.set(setting, before or "false")


def test_filters_change_no_answer(sql: SparkSession, pushdown: None) -> None:
    """By default also not those of the next query of the same DataFrame, or of another part of the same query."""
    columns = (
        "topic, partition, directory, segment_base_offset, base_offset, last_offset, is_control, crc_ok, coordinator_epoch, error"
    )
    frame = batches(sql, MIXED, columns=columns)
    # Of a table in memory, Spark evaluates all conditions itself.
    whole = sql.createDataFrame(frame.toArrow())
    for condition in CONDITIONS:
        expected = in_order(whole.where(condition).toArrow())
        assert in_order(frame.where(condition).toArrow()) == expected, condition
        once = batches(sql, MIXED, columns=columns, pushFilters="true").where(condition)
        assert in_order(once.toArrow()) == expected, condition
    both = frame.where("topic = 'plain'").union(frame.where("topic = 'mixed'")).union(frame)
    assert both.count() == 136 + 3301 + 4697


def test_filters_keep_files_closed(sql: SparkSession, pushdown: None, tmp_path: Path) -> None:
    """All segments but one are spoilt: a query that needs the others fails, and one that does not never looks at them."""
    root = copy_of("kafka27-mixed", tmp_path)
    good = root / "mixed-0" / "00000000000000002596.log"
    for path in root.rglob("*.log"):
        if path != good:
            path.write_bytes(b"\x01" * 200)
    frame = batches(sql, root, pushFilters="true").where("topic = 'mixed' AND base_offset >= 2596 AND base_offset < 3089")
    assert frame.count() == len(batch_positions(good))
    options = {"topics": "mixed", "offsetFrom": "2596", "offsetTo": "3088"}
    assert batches(sql, root, **options).count() == len(batch_positions(good))
    with pytest.raises(Exception, match=rf"{re.escape(str(root))}/mixed-0/00000000000000003089\.log, byte \d+: ") as caught:
        batches(sql, root, **options | {"offsetTo": "3089"}).count()
    assert type(caught.value).__module__.startswith("pyspark.errors")


def test_one_segment_is_read_by_several_tasks_at_once(sql: SparkSession, event_log: Path, tmp_path: Path) -> None:
    """Spark's own log shows when the tasks of a query ran. The last third of the index is wrong."""
    shape = Shape(batch_bytes=4 << 10, total_bytes=64 << 20, segment_bytes=64 << 20)
    make_partition(tmp_path / "a-0", shape)
    (index,) = tmp_path.rglob("*.index")
    entries = np.frombuffer(index.read_bytes(), dtype=">i4").reshape(-1, 2).copy()
    lies = entries[:, 1] > 40 << 20
    entries[lies, 1] += 1
    index.write_bytes(entries.tobytes())
    expected = batches(sql, tmp_path, splitSegments="false", checkCrc="false").select("position_bytes", "crc").toArrow()
    split = batches(sql, tmp_path, numPartitions="4", checkCrc="false").select("position_bytes", "crc")
    assert split.rdd.getNumPartitions() == 4
    with new_tasks(sql, event_log) as ended:
        found = split.toArrow()
    assert found.sort_by("position_bytes").equals(expected.sort_by("position_bytes"))
    assert expected.num_rows > 10_000
    reading = [each for each in ended if each["Task Metrics"]["Input Metrics"]["Records Read"]]
    assert len(reading) == 3, "one joint does not hold"
    assert overlap(reading), reading


def test_in_plain_sql(sql: SparkSession) -> None:
    sql.sql(f"CREATE OR REPLACE TEMPORARY VIEW plain USING kafka_batch_headers OPTIONS (path '{MIXED}', topics 'plain')")
    ((count, schema_count),) = sql.sql("SELECT count(*), count(DISTINCT topic) FROM plain WHERE topic = 'plain'").collect()
    assert (count, schema_count) == (136, 1)
    assert not sql.sql("SELECT * FROM plain WHERE topic = 'mixed'").collect()
    with pytest.raises(Exception, match="option colour is not known"):
        batches(sql, MIXED, colour="red")


def test_a_schema_of_the_query(sql: SparkSession) -> None:
    frame = sql.read.schema("base_offset BIGINT, topic STRING").format("kafka_batch_headers").load(f"{MIXED}/p*")
    assert frame.columns == ["base_offset", "topic"]
    assert {row.topic for row in frame.collect()} == {"plain"}
    assert frame.count() == 136
    with pytest.raises(Exception, match="have the types `magic` tinyint"):
        sql.read.schema("magic INT").format("kafka_batch_headers").load(str(MIXED)).count()


def test_each_query_of_a_view_lists_the_directories(sql: SparkSession, tmp_path: Path) -> None:
    """Spark plans a view once. Segments and partitions appear and go between two queries."""
    write_partition(tmp_path / "a-0", {0: batch(0), 10: batch(10)})
    frame = batches(sql, tmp_path)
    frame.createOrReplaceTempView("of_frame")
    sql.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_sql USING kafka_batch_headers OPTIONS (path '{tmp_path}')")

    def check(*expected: int) -> None:
        for again in (frame, *(sql.sql(f"SELECT base_offset FROM {view}") for view in ("of_frame", "of_sql"))):
            assert sorted(row.base_offset for row in again.select("base_offset").collect()) == list(expected)

    check(0, 10)
    write_partition(tmp_path / "a-0", {20: batch(20), 30: batch(30)})
    write_partition(tmp_path / "b-0", {40: batch(40)})
    (tmp_path / "a-0" / f"{0:020d}.log").unlink()
    check(10, 20, 30, 40)


def test_tables_of_a_catalog(sql: SparkSession, tmp_path: Path) -> None:
    """Spark gives the options of a table to its creation, and not to its queries."""
    write_partition(tmp_path / "a-0", {0: batch(0), 10: batch(10)})
    write_partition(tmp_path / "b-0", {0: batch(0)})
    try:
        sql.sql(f"CREATE TABLE by_path USING kafka_batch_headers OPTIONS (path '{tmp_path}', topics 'a')")
        sql.sql(f"CREATE TABLE by_location USING kafka_batch_headers LOCATION '{tmp_path}'")
        for name, count in (("by_path", 2), ("by_location", 3)):
            assert sql.table(name).count() == count
            assert sql.sql(f"SELECT count(DISTINCT topic) FROM {name}").collect()[0][0] == count - 1
        write_partition(tmp_path / "a-0", {20: batch(20)})
        assert sql.sql("SELECT * FROM by_path").count() == 3
        with pytest.raises(Exception, match="does not exist"):
            sql.sql(f"CREATE TABLE by_nothing USING kafka_batch_headers LOCATION '{tmp_path}/none'")
        sql.sql(f"CREATE TABLE some USING kafka_batch_headers OPTIONS (path '{tmp_path}', columns 'topic, magic')")
        assert sql.table("some").columns == ["topic", "magic"]
        # Spark gives the queries of such a table neither its options nor its path.
        sql.sql(f"CREATE TABLE by_list (topic STRING) USING kafka_batch_headers LOCATION '{tmp_path}'")
        with pytest.raises(Exception, match="CREATE TABLE gets its columns from OPTIONS"):
            sql.table("by_list").count()
    finally:
        for name in ("by_path", "by_location", "some", "by_list"):
            sql.sql(f"DROP TABLE IF EXISTS {name}")


def test_spark_before_4_is_reported() -> None:
    class Old:
        version = "3.5.6"

    with pytest.raises(UsageError, match=r"need Spark 4\.0 or newer, and this is 3\.5\.6"):
        register(Old())  # type: ignore[arg-type]


class FindsSources:
    """A session of Spark 4.0, which found the data sources of an installed package, and refuses to register others of their names."""

    version = "4.0.5"

    def __init__(self, condition: str) -> None:
        """Refuses with this condition."""
        self.condition = condition
        self.refused: list[str] = []

    @property
    def dataSource(self) -> FindsSources:  # noqa: N802  as Spark names it
        """Where sources are registered."""
        return self

    def register(self, source: type[BatchHeaders]) -> None:
        """Refuses."""
        self.refused.append(source.name())
        raise AnalysisException("refused", errorClass=self.condition)


def test_data_sources_that_spark_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another error of Spark is raised."""
    monkeypatch.setattr(session_module, "ship_code", lambda _: None)
    monkeypatch.setattr(session_module, "is_remote", lambda _: True)
    session = FindsSources("DATA_SOURCE_ALREADY_EXISTS")
    register(session)  # type: ignore[arg-type]
    assert session.refused == ["kafka_batch_headers", "kafka_records", "kafka_producer_snapshot"]
    with pytest.raises(AnalysisException):
        register(FindsSources("DATA_SOURCE_NOT_FOUND"))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------- questions

AS_OF = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
AS_OF_MS = int(AS_OF.timestamp() * 1000)
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def questions() -> Any:
    import spark_questions

    return spark_questions


def tables(text: str) -> list[list[dict[str, str]]]:
    """Tables as Spark prints them."""
    found: list[list[dict[str, str]]] = []
    for block in re.findall(r"^(?:[|+].*\n)+", text, re.MULTILINE):
        names, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line[0] == "|"]
        found.append([dict(zip(names, row, strict=True)) for row in rows])
    return found


def test_the_questions_are_answered(sql: SparkSession, questions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    questions.ask(sql, [str(MIXED)], {"as_of_ms": AS_OF_MS, "expiration_ms": DAY_MS, "late_after_ms": 1_200_000})
    printed = capsys.readouterr().out
    days, hanging, forgotten = tables(printed)

    producers: dict[tuple[str, str], set[int]] = defaultdict(set)
    counts: Counter[tuple[str, str]] = Counter()
    for path in MIXED.rglob("*.log"):
        for header in reference_headers(BytesSegment(path.read_bytes()))[0]:
            if header.producer_id >= 0 and not header.is_control:
                day = datetime.datetime.fromtimestamp(header.max_timestamp / 1000, datetime.UTC).date().isoformat()
                producers[day, path.parent.name.rpartition("-")[0]].add(header.producer_id)
                counts[day, path.parent.name.rpartition("-")[0]] += 1
    assert {(row["day"], row["topic"]): (int(row["producers"]), int(row["batches"])) for row in days} == {
        key: (len(ids), counts[key]) for key, ids in producers.items()
    }

    run = in_json_process("inspect transactions", MIXED, "--as-of", AS_OF.isoformat())
    late = {
        (partition["topic_partition"], each["producer_id"], each["first_offset"])
        for partition in run.document["partitions"]
        for each in partition["open"]
        if each["is_late"]
    }
    assert {(f"{row['topic']}-{row['partition']}", int(row["producer_id"]), int(row["first_offset"])) for row in hanging} == late
    assert len(late) == 4

    # What Kafka's own classes have at each boundary, compared with the broker's snapshots.
    expected = {}
    for partition in ("deleted-0", "logappend-0", "mixed-0", "plain-0"):
        present = snapshots_in(MIXED / partition)
        for boundary, known in truth("kafka27-mixed", partition).items():
            alive = {each.producer_id for each in known if each.timestamp > AS_OF_MS - DAY_MS}
            lost = alive - {each.producer_id for each in present.get(boundary, ())}
            if lost:
                expected[partition, boundary] = (len(alive), len(lost))
    reported = {(f"{row['topic']}-{row['partition']}", int(row["boundary"])): row for row in forgotten}
    assert {key: (int(row["producers"]), int(row["forgotten"])) for key, row in reported.items()} == expected
    assert len(expected) > 10
    assert {row["snapshot"] for row in forgotten} == {"missing"}

    shown = (REPOSITORY / "docs" / "examples" / "spark-questions.txt").read_text()
    assert printed.strip() in shown, "docs/examples/spark-questions.txt shows what scripts/demo/spark_questions.py prints"


def test_a_transaction_hangs_since_its_last_batch(
    sql: SparkSession, questions: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The clock of a producer may go back: brokers judge by the time of the last batch, whatever the times before it are."""
    hour_ms = 3_600_000
    newest, last = (value - value % 1000 for value in (AS_OF_MS - 60_000, AS_OF_MS - hour_ms))
    times = {7: (last, last), 8: (newest, last), 9: (last, newest)}
    written = [(producer, sequence, each[sequence]) for sequence in (0, 1) for producer, each in times.items()]
    data = b"".join(
        batch(offset, producer_id=producer, sequence=sequence, timestamp=time, attributes=0x10)
        for offset, (producer, sequence, time) in enumerate(written)
    )
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: data})
    questions.ask(sql, [str(logs)], {"as_of_ms": AS_OF_MS, "expiration_ms": DAY_MS, "late_after_ms": 1_200_000})
    _, hanging, _ = tables(capsys.readouterr().out)
    shown = {int(row["producer_id"]): (int(row["first_offset"]), row["since"], row["last_batch"]) for row in hanging}

    def text(time_ms: int) -> str:
        return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")

    assert shown == {7: (0, text(last), text(last)), 8: (1, text(newest), text(last))}
    run = in_json_process("inspect transactions", logs, "--as-of", AS_OF.isoformat())
    (partition,) = run.document["partitions"]
    late = {each["producer_id"]: each["last_ms"] for each in partition["open"] if each["is_late"]}
    assert late == {7: last, 8: last}


def test_the_questions_about_records_are_answered(sql: SparkSession, questions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The expected answers are of a consumer that reads record by record."""
    begin, until = (int(datetime.datetime.fromisoformat(f"2026-11-21T11:11:{second}Z").timestamp() * 1000) for second in (40, 42))
    parameters = {"topic": "mixed", "from_ms": begin, "until_ms": until}
    questions.ask_of_records(sql, [str(TIERED / "logs")], str(TIERED / "remote"), parameters)
    printed = capsys.readouterr().out
    writers, aborted, lost = tables(printed)
    rows = slow_log(TIERED / "logs" / "mixed-0", 1 << 62).of("read_uncommitted", 0, 1 << 62)

    by_producer: dict[int, list[SlowRecord]] = defaultdict(list)
    for row in rows:
        if begin <= row.record.timestamp < until:
            by_producer[row.header.producer_id].append(row)
    assert {int(row["producer_id"]): (int(row["records"]), int(row["aborted"]), int(row["first_offset"])) for row in writers} == {
        producer: (len(own), sum(each.transaction == ABORTED for each in own), own[0].record.offset)
        for producer, own in by_producer.items()
    }

    by_key: dict[bytes, list[SlowRecord]] = defaultdict(list)
    for row in rows:
        if row.record.key is not None:
            by_key[row.record.key].append(row)
    only_aborted = {key: len(own) for key, own in by_key.items() if all(each.transaction == ABORTED for each in own)}
    assert {bytes.fromhex(row["key_in_hex"]): int(row["records"]) for row in aborted} == only_aborted != {}

    end = json.loads((TIERED / "manifest.json").read_text())["highest_remote_offset"] + 1
    above = [row.record for row in rows if row.record.offset >= end]
    size_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in above)
    (only,) = lost
    assert (int(only["end_of_tier"]), int(only["records"]), int(only["bytes"])) == (end, len(above), size_bytes)

    shown = (REPOSITORY / "docs" / "examples" / "spark-questions.txt").read_text()
    assert printed.strip() in shown, "docs/examples/spark-questions.txt shows what scripts/demo/spark_questions.py prints"


def streamed(sql: SparkSession, path: str, place: Path) -> None:
    """Spark gives the Python of a stream 10 s to start and connect (``PythonWorkerFactory``), and no setting changes that.

    A busy machine may need longer. Until then no code of a data source has run, so it is tried again.
    """
    deadline = time.monotonic() + SECONDS_MAX
    for attempt in itertools.count():
        stream = sql.readStream.format("kafka_batch_headers").load(path).writeStream.format("noop")
        try:
            stream.option("checkpointLocation", str(place / str(attempt))).start().awaitTermination(SECONDS_MAX)
        except Exception as error:
            if "Python worker failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return


REFUSED: dict[str, tuple[Callable[[SparkSession, str, Path], object], str]] = {
    "readStream": (streamed, "UsageError: kafka_batch_headers is batch only: use spark.read instead of spark.readStream"),
    "write": (
        lambda sql, path, _: sql.range(1).write.format("kafka_batch_headers").mode("append").save(path),
        "UsageError: kafka_batch_headers only reads: nothing can be written with it",
    ),
    "overwrite": (
        lambda sql, path, _: sql.range(1).write.format("kafka_producer_snapshot").mode("overwrite").save(path),
        "UsageError: kafka_producer_snapshot only reads: nothing can be written with it",
    ),
    "insert": (
        lambda sql, path, _: [
            sql.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING kafka_batch_headers OPTIONS (path '{path}')"),
            sql.sql("INSERT INTO here SELECT * FROM here"),
        ],
        "UsageError: kafka_batch_headers only reads: nothing can be written with it",
    ),
    "no such path": (
        lambda sql, path, _: sql.read.format("kafka_batch_headers").load(f"{path}/nowhere"),
        "UsageError: {path}/nowhere: does not exist",
    ),
    "no such topic": (
        lambda sql, path, _: sql.read.format("kafka_batch_headers").option("topics", "mixd").load(path).count(),
        "UsageError: {path}: no topic matches 'mixd' (4 partitions found); did you mean 'mixed'?",
    ),
    "no such option": (
        lambda sql, path, _: sql.read.format("kafka_producer_snapshot").option("topcs", "mixed").load(path),
        "did you mean 'topics'?",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_one_line_below_one_frame_of_ours(what: str, sql: SparkSession, tmp_path: Path) -> None:
    """Spark shows a traceback before each error of a Python data source."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    call, reported = REFUSED[what]
    with pytest.raises(Exception, match=r"PYTHON(_STREAMING)?_DATA_SOURCE") as caught:
        call(sql, str(logs), tmp_path / "checkpoint")
    text = str(caught.value)
    (line,) = [each for each in text.splitlines() if "UsageError: " in each]
    assert reported.format(path=logs) in line
    assert text.count("/snaprebuild/spark/") == 1
    assert "During handling" not in text
    assert tree(logs) == before
