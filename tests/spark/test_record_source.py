"""``kafka_records``: the rows of ``snaprebuild.records``, in one task or in many, in SQL and in a session of Connect.

What a reader does is asked of the reader itself, as Spark's Python workers call it; a few tests ask Spark.
"""

from __future__ import annotations

import datetime
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import spark_filters
from command import run_process
from manifests import FIXTURES, REPOSITORY
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from spark_filters import EqualTo, GreaterThanOrEqual, LessThan

from snaprebuild.consume.record_query import TimeBounds
from snaprebuild.errors import ReadFailedError, SnaprebuildError, StorageError, UsageError
from snaprebuild.library.record_stream import records
from snaprebuild.spark import packing, record_options, record_tasks, register
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.data_sources import KafkaRecords
from snaprebuild.spark.option_names import OPTION_OF, with_option_names
from snaprebuild.spark.pushed_filters import time_bounds
from snaprebuild.storage.io_limits.policy import IoLimits, RunLimits, current_limits

if TYPE_CHECKING:
    from connect_server import ConnectServer
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.full

MIXED = FIXTURES / "kafka27-mixed" / "logs"
TIERED = FIXTURES / "tiered-local"
PLUGIN = FIXTURES / "aiven-layout"
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "transaction")


def reader_of(*paths: Path, **options: str) -> Any:
    made = KafkaRecords(CaseInsensitiveDict(options | {"paths": json.dumps([str(path) for path in paths])}))
    names = re.findall(r"`(\w+)` ", made.schema())
    return made.reader(from_arrow_schema(pa.schema([KafkaRecords.whole.field(name) for name in names])))


def rows_of(reader: Any) -> list[dict[str, Any]]:
    return [row for task in reader.partitions() for rows in reader.read(task) for row in rows.to_pylist()]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"] or "", row["partition"] or 0, row["offset"] or -1))


def own(*paths: Path, **options: Any) -> list[dict[str, Any]]:
    stream = records(paths, columns=COLUMNS, **options)
    return in_order(pa.Table.from_batches(list(stream), stream.schema).to_pylist())


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "all"])
def test_the_rows_are_those_of_the_function(isolation: str) -> None:
    reader = reader_of(MIXED, isolation=isolation, columns=",".join(COLUMNS), numPartitions="3")
    assert len(reader.partitions()) == 3
    assert in_order(rows_of(reader)) == own(MIXED, isolation=isolation)


@pytest.mark.parametrize("part_bytes", [1 << 14, 1 << 16, 1 << 18])
def test_a_split_partition_has_each_record_once(part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are split where their offset indexes say, and at any other offset it would be the same."""
    monkeypatch.setattr(record_tasks, "source_part_bytes", lambda *_: part_bytes)
    reader = reader_of(MIXED, columns=",".join(COLUMNS), isolation="read_uncommitted")
    parts = [plan for task in reader.partitions() for plan in task.value.plans]
    assert len(parts) > 4
    assert in_order(rows_of(reader)) == own(MIXED, isolation="read_uncommitted")
    committed = reader_of(MIXED, columns=",".join(COLUMNS))
    assert in_order(rows_of(committed)) == own(MIXED)


def test_filters_leave_parts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_tasks, "source_part_bytes", lambda *_: 1 << 16)

    def planned(*filters: Any) -> set[tuple[str, int, int]]:
        reader = reader_of(MIXED, pushFilters="true", isolation="read_uncommitted")
        assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them for each row"
        return {(plan.log.topic, plan.start, plan.end) for task in reader.partitions() for plan in task.value.plans}

    everything = planned()
    some = planned(EqualTo(("topic",), "mixed"), GreaterThanOrEqual(("offset",), 3000), LessThan(("offset",), 3001))
    assert some == {(topic, start, end) for topic, start, end in everything if topic == "mixed" and start <= 3000 < end}
    assert len(some) == 1
    assert planned(spark_filters.Not(EqualTo(("topic",), "mixed"))) == {each for each in everything if each[0] != "mixed"}


def moment(time_us: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_us)


def test_filters_on_timestamps_leave_batches_out() -> None:
    """No row that passes them is lost, and few others are made; gaps are still noticed."""
    whole = own(MIXED, isolation="read_uncommitted")
    times = sorted(row["timestamp"] for row in whole)
    middle = times[len(times) * 3 // 4]

    def left(*filters: Any, source: Path = MIXED, **options: str) -> list[dict[str, Any]]:
        reader = reader_of(source, pushFilters="true", isolation="read_uncommitted", columns=",".join(COLUMNS), **options)
        reader.pushFilters(list(filters))
        return in_order(rows_of(reader))

    newer = left(GreaterThanOrEqual(("timestamp",), middle))
    assert [row for row in newer if row["timestamp"] >= middle] == [row for row in whole if row["timestamp"] >= middle]
    assert len(newer) < len(whole) // 2
    older = left(LessThan(("timestamp",), middle))
    assert [row for row in older if row["timestamp"] < middle] == [row for row in whole if row["timestamp"] < middle]
    appended = [row for row in older if row["topic"] == "logappend"]
    assert all(row["timestamp"] <= middle for row in appended)
    one = left(EqualTo(("timestamp",), middle))
    assert [row for row in one if row["timestamp"] == middle] == [row for row in whole if row["timestamp"] == middle]
    assert left(spark_filters.Not(EqualTo(("timestamp",), middle))) == whole
    with pytest.raises(ReadFailedError, match="are in no batch"):
        left(GreaterThanOrEqual(("timestamp",), moment(2**52)), source=FIXTURES / "damaged" / "gap")


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([GreaterThanOrEqual(("timestamp",), moment(1_500_001)), LessThan(("timestamp",), moment(2_500_001))], (1500, 2501)),
        ([spark_filters.In(("timestamp",), (moment(3000), moment(9000)))], (3, 9)),
        ([spark_filters.In(("timestamp",), (moment(3000), None)), GreaterThanOrEqual(("offset",), 7)], (3, 3)),
        ([spark_filters.EqualNullSafe(("timestamp",), None), spark_filters.IsNotNull(("timestamp",))], (None, None)),
        ([EqualTo(("timestamp",), datetime.datetime(2026, 1, 1)), GreaterThanOrEqual(("timestamp",), 5)], (None, None)),
    ],
)
def test_bounds_of_filters(filters: list[Any], bounds: tuple[int | None, int | None]) -> None:
    assert time_bounds(filters, "timestamp") == TimeBounds(*bounds)


def test_findings_are_rows_where_damage_is() -> None:
    """A transaction hangs, and no checkpoint has a high watermark: what is left out, or not certain, is said in rows."""
    rows = rows_of(reader_of(MIXED, subscribe="mixed", mode="PERMISSIVE", columns="topic,partition,offset"))
    (said,) = [row for row in rows if row["error"] is not None]
    assert (said["topic"], said["partition"], said["offset"]) == ("mixed", 0, None)
    assert said["error"].startswith("records-end-at-transaction: producer ")
    gap = FIXTURES / "damaged" / "gap"
    lost = rows_of(reader_of(gap, isolation="read_uncommitted", mode="PERMISSIVE", failOnDataLoss="false", columns="offset"))
    assert any("records-lost: " in (row["error"] or "") for row in lost)


def test_what_is_known_of_a_log_is_said_while_spark_plans(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(MIXED / "mixed-0", tmp_path / "mixed-0")
    reader_of(tmp_path).partitions()
    assert "records-without-high-watermark" in caplog.text


def test_remote_storage(tmp_path: Path) -> None:
    columns = ",".join(COLUMNS)
    reader = reader_of(columns=columns, remote=str(TIERED / "remote"), metadataLog=str(TIERED / "logs"))
    assert in_order(rows_of(reader)) == own(remote=TIERED / "remote", metadata_log=TIERED / "logs")
    with pytest.raises(UsageError, match="option keyPrefix is of remote storage"):
        reader_of(MIXED, keyPrefix="x")


OPTIONS = {
    "an unknown one": ({"kafka.bootstrap.servers": "x:9092"}, "option kafka.bootstrap.servers is not known"),
    "two selections": ({"subscribe": "mixed", "subscribePattern": "m.*"}, "select topics in one way"),
    "an end as start": ({"startingOffsets": "latest"}, "option startingOffsets: expected earliest, or offsets"),
    "a start as end": ({"endingOffsets": '{"mixed":{"0":-2}}'}, r"option endingOffsets: expected an offset or -1 \(latest\)"),
    "no JSON": ({"assign": "mixed"}, "option assign: expected JSON"),
    "an isolation": ({"isolation": "serializable"}, "option isolation: expected one of read_committed"),
    "a mode": ({"mode": "fail"}, "option mode: expected one of FAILFAST"),
    "a column": ({"columns": "offset, valeu"}, "did you mean 'value'"),
    "no times": ({"startingOffsetsByTimestamp": "yesterday"}, "option startingOffsetsByTimestamp: expected times by topic"),
    "a time below 0": ({"endingOffsetsByTimestamp": '{"mixed":{"0":-1}}'}, "option endingOffsetsByTimestamp: expected 0"),
    "no number": ({"startingTimestamp": "yesterday"}, "option startingTimestamp: expected a number"),
    "no name": ({"subscribe": ""}, "option subscribe: expected names of topics"),
    "commas alone": ({"topics": " , "}, "option topics: expected names of topics"),
    "backwards": ({"startingTimestamp": "1760000000001", "endingTimestamp": "1760000000000"}, "ends before"),
    "an expression": ({"subscribePattern": "("}, "is no regular expression"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options_are_refused(name: str) -> None:
    options, message = OPTIONS[name]
    with pytest.raises(UsageError, match=message):
        reader_of(MIXED, **options)


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("place", ["logs", "remote"])
def test_a_task_needs_the_directory_of_the_driver(tmp_path: Path, place: str, mode: str) -> None:
    """Also with a mode that leaves out what cannot be read: otherwise a host without the share would have no rows."""
    files = shutil.copytree(MIXED if place == "logs" else TIERED, tmp_path / "files")
    paths, options = (
        ((files,), {}) if place == "logs" else ((), {"remote": str(files / "remote"), "metadataLog": str(files / "logs")})
    )
    reader = reader_of(*paths, mode=mode, **options)
    tasks = reader.partitions()
    assert [rows for task in tasks for rows in reader.read(task)]
    files.rename(tmp_path / "elsewhere")
    for task in tasks:
        with pytest.raises(StorageError, match="does not have this directory of the driver"):
            list(reader.read(task))


def test_a_timestamp_counts_before_offsets() -> None:
    """Spark's Kafka source has this order: one for all partitions, then those of each partition, then offsets, which are not even
    looked at."""
    rows = [row for row in own(MIXED) if row["topic"] == "logappend"]
    milliseconds = [int(row["timestamp"].timestamp() * 1000) for row in rows]
    early, late = milliseconds[len(rows) // 3], milliseconds[len(rows) * 2 // 3]
    expected = own(MIXED, topics="logappend", starting_timestamp=early, ending_timestamp=late)
    each = {"startingOffsetsByTimestamp": early, "endingOffsetsByTimestamp": late}
    by_partition = {name: json.dumps({"logappend": {"0": moment}}) for name, moment in each.items()}
    wide = {name: json.dumps({"logappend": {"0": milliseconds[0]}}) for name in each}
    ignored = {"startingOffsets": "latest", "endingOffsets": "none"}
    for options in (
        {"startingTimestamp": str(early), "endingTimestamp": str(late), **ignored, **wide},
        {**by_partition, **ignored},
    ):
        found = in_order(rows_of(reader_of(MIXED, subscribe="logappend", columns=",".join(COLUMNS), **options)))
        assert found == expected != []
        assert len(found) < len(rows)
    reversed_times = {"startingOffsetsByTimestamp": by_partition["endingOffsetsByTimestamp"], "endingTimestamp": str(early)}
    with pytest.raises(UsageError, match=f"the range of logappend-0 begins at {late} ms and ends before, at {early} ms"):
        rows_of(reader_of(MIXED, subscribe="logappend", **reversed_times))
    with pytest.raises(UsageError, match="startingOffsetsByTimestamp: lacks plain-0, which is selected"):
        reader_of(MIXED, subscribe="logappend,plain", startingOffsetsByTimestamp='{"logappend":{"0":5}}').partitions()


def test_names_that_select_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="no topic 'mixd'; did you mean 'mixed'"):
        reader_of(MIXED, subscribe="mixd").partitions()
    with pytest.raises(UsageError, match="no partition mixed-7"):
        reader_of(MIXED, assign='{"mixed":[0,7]}').partitions()
    with pytest.raises(UsageError, match="startingOffsets: lacks plain-0, which is selected"):
        reader_of(MIXED, subscribe="mixed,plain", startingOffsets='{"mixed":{"0":5}}').partitions()


def test_what_a_user_reads_has_the_names_of_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The function has the same sentences, with the names of its arguments: in errors, in rows about damage and in the log."""
    arguments = {name for name in inspect.signature(records).parameters if "_" in name}
    assert arguments - OPTION_OF.keys() == {"server_properties"}, "no option of this source"
    for name in sorted(arguments & OPTION_OF.keys()):
        assert with_option_names(f"without {name} the rest is read") == f"without {OPTION_OF[name]} the rest is read"
    topic = {"subscribe": "mixed", "columns": "offset,error"}
    refusals = {
        "failOnDataLoss": reader_of(MIXED, startingOffsets='{"mixed":{"0":99999999}}', **topic),
        "startingOffsetsByTimestampStrategy='latest'": reader_of(MIXED, startingTimestamp="9999999999999", **topic),
        "privateKey": reader_of(remote=str(PLUGIN / "encrypted" / "store")),
    }
    for name, reader in refusals.items():
        with pytest.raises(SnaprebuildError, match=rf"\b{name}") as raised:
            rows_of(reader)
        assert not arguments & set(re.findall(r"\w+", str(raised.value)))
    log = Path(shutil.copytree(MIXED / "mixed-0", tmp_path / "mixed-0"))
    sorted(log.glob("*.log"))[1].unlink()
    with pytest.raises(ReadFailedError, match="without failOnDataLoss the rest is read"):
        rows_of(reader_of(tmp_path))
    errors = [row["error"] for row in rows_of(reader_of(tmp_path, mode="PERMISSIVE", **topic)) if row["error"]]
    assert any("without failOnDataLoss the rest is read" in each for each in errors)
    assert "without failOnDataLoss the rest is read" in caplog.text


def test_one_of_several_topics_of_a_name() -> None:
    """The plugin copied the topic of this id from the log."""
    options = {
        "assign": '{"logappend":[0]}',
        "isolation": "all",
        "columns": ",".join(COLUMNS),
        "remote": str(PLUGIN / "plain" / "store"),
    }
    with pytest.raises(UsageError, match="has copies of several topics called logappend: name the id of one, of "):
        reader_of(**options).partitions()
    rows = in_order(rows_of(reader_of(**options, topicIds='{"logappend":"XPzo9l4OTeGpfK3T7ClDuA"}')))
    begin = rows[0]["offset"]
    end = rows[-1]["offset"]
    assert rows == [row for row in own(MIXED, topics="logappend", isolation="all") if begin <= row["offset"] <= end]


def test_tasks_share_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the driver keeps it while it plans; what a caller does between two batches is not limited."""
    rates: list[int | None] = []

    class Watched(RunLimits):
        def wait_to_read(self, count: int) -> None:
            rates.append(self.io.bytes_per_second)

    monkeypatch.setattr(record_tasks, "RunLimits", Watched)
    monkeypatch.setattr(record_tasks, "source_part_bytes", lambda *_: 1 << 16)
    reader = reader_of(MIXED, numPartitions="4", maxReadRate="4000000000")
    with Watched(IoLimits(bytes_per_second=4_000_000_000)).active():  # whose copy is that of the driver
        tasks = reader.partitions()
    assert set(rates) == {4_000_000_000}
    rates.clear()
    for task in tasks:
        for _ in reader.read(task):
            assert current_limits().io.bytes_per_second is None
    assert (len(tasks), set(rates)) == (4, {1_000_000_000})


def test_a_rate_is_shared_by_few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has an equal part of the rate. With many more tasks than cores, those that run would stay far below it."""
    for module in (record_tasks, packing):
        monkeypatch.setattr(module, "source_part_bytes", lambda *_: 1 << 16)
    assert len(reader_of(MIXED).partitions()) > packing.RATED_TASKS
    tasks = reader_of(MIXED, maxReadRate="4000000000").partitions()
    assert [task.value.limits.bytes_per_second for task in tasks] == [4_000_000_000 // packing.RATED_TASKS] * packing.RATED_TASKS


ATTEMPTS = """
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        from snaprebuild.spark.task_services import attempts_of_task
        yield (attempts_of_task(),)

class Attempts(DataSource):
    def schema(self):
        return "attempts int"

    def reader(self, schema):
        return Reader()

settings = {"spark.ui.enabled": "false", "spark.speculation": "TRUE"}
session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
session.dataSource.register(Attempts)
print(session.read.format("Attempts").load().collect())
"""


@pytest.mark.spark
def test_a_second_attempt_has_its_share_of_a_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With speculation it may read while the first one does. A task learns of the setting of its session from Spark."""
    (tmp_path / "attempts.py").write_text(ATTEMPTS)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    run = run_process(sys.executable, tmp_path / "attempts.py", cwd=REPOSITORY, env=environment, timeout=600)
    assert run.stdout == "[Row(attempts=2)]\n", run.stderr
    rates: list[int | None] = []

    class Watched(RunLimits):
        def wait_to_read(self, count: int) -> None:
            rates.append(self.io.bytes_per_second)

    monkeypatch.setattr(record_tasks, "RunLimits", Watched)
    reader = reader_of(MIXED, numPartitions="1", maxReadRate="4000000000")
    (task,) = reader.partitions()
    for attempts in (1, 2):
        monkeypatch.setattr(record_tasks, "attempts_of_task", lambda attempts=attempts: attempts)
        rates.clear()
        assert list(reader.read(task))
        assert set(rates) == {4_000_000_000 // attempts}


@pytest.mark.parametrize("name", record_options.REFUSED)
def test_limits_that_tasks_cannot_share(name: str) -> None:
    with pytest.raises(UsageError, match=f"^option {name}: "):
        reader_of(MIXED, **{name: "5"})
    with pytest.raises(UsageError, match="option maxReadRate: expected 1 or more, found 0"):
        reader_of(MIXED, maxReadRate="0")


WITHOUT_PANDAS = """
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from snaprebuild.spark.data_sources import BatchHeaders, KafkaRecords, ProducerSnapshots
for source in (BatchHeaders, KafkaRecords, ProducerSnapshots):
    reader = source(CaseInsensitiveDict(path=sys.argv[1], mode="PERMISSIVE")).reader(from_arrow_schema(source.whole))
    assert sum(len(rows) for task in reader.partitions() for rows in reader.read(task))
assert "pandas" not in sys.modules
"""


def test_no_process_imports_pandas() -> None:
    """Spark starts one for each plan of a query, and pyarrow imports pandas where it makes an array of Python values."""
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, FIXTURES / "damaged"], check=True)


def test_a_pattern_matches_a_part_of_a_name() -> None:
    """Spark's Kafka source 4.2 reads the topic alpha with the pattern lph."""
    topics = {row["topic"] for row in rows_of(reader_of(MIXED, subscribePattern="ixe|ogap"))}
    assert topics == {"mixed", "logappend"}


def test_headers_are_on_request() -> None:
    plain = KafkaRecords(CaseInsensitiveDict(path=str(MIXED))).schema()
    assert "headers" not in plain
    assert (
        "`headers` array<struct<key:string,value:binary>>"
        in KafkaRecords(CaseInsensitiveDict(path=str(MIXED), includeHeaders="true")).schema()
    )
    assert ddl(KafkaRecords.whole).startswith("`key` binary, `value` binary, `topic` string")


def test_the_schema_is_that_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "reference" / "spark-sql.md").read_text()
    part = page.split("## kafka_records\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \| ([A-Z][\w<>:,]+) \|", part, re.MULTILINE)
    assert ", ".join(f"`{name}` {kind.lower()}" for name, kind in documented) == ddl(KafkaRecords.whole)


def test_damage_is_a_row_where_that_is_asked_for() -> None:
    damaged = FIXTURES / "damaged" / "logs" / "bad-crc-0"
    with pytest.raises(Exception, match="checksum of a batch"):
        rows_of(reader_of(damaged, isolation="read_uncommitted"))
    rows = rows_of(reader_of(damaged, isolation="read_uncommitted", mode="PERMISSIVE", columns="offset,position_bytes"))
    errors = [row for row in rows if row["error"] is not None]
    assert [(row["offset"], row["position_bytes"]) for row in errors] == [(None, 6730)]
    left = rows_of(reader_of(damaged, isolation="read_uncommitted", mode="DROPMALFORMED"))
    assert len(left) == len(rows) - 1


def test_gaps_end_the_query() -> None:
    gap = FIXTURES / "damaged" / "gap"
    with pytest.raises(ReadFailedError, match="are in no batch"):
        rows_of(reader_of(gap, isolation="read_uncommitted"))
    assert rows_of(reader_of(gap, isolation="read_uncommitted", failOnDataLoss="false"))


# ------------------------------------------------------------------------------------------------------------------- in Spark


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def in_spark(sql: SparkSession, *paths: Path, **options: str) -> DataFrame:
    return sql.read.format("kafka_records").options(**options).load([str(path) for path in paths])


@pytest.mark.spark
def test_spark_gets_the_rows(sql: SparkSession) -> None:
    frame = in_spark(sql, MIXED, columns=",".join(COLUMNS), numPartitions="3")
    assert frame.rdd.getNumPartitions() == 3
    assert in_order(frame.toArrow().to_pylist()) == own(MIXED)
    sql.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW r USING kafka_records OPTIONS (path '{MIXED}', subscribe 'plain', includeHeaders 'true')"
    )
    row = sql.sql("select count(*) as n, max(offset) as most from r").first()
    assert row is not None
    assert (row.n, row.most) == (559, 558)


@pytest.mark.spark
def test_what_only_reads_refuses_the_rest(sql: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="kafka_records only reads: nothing can be written with it"):
        sql.range(1).write.format("kafka_records").mode("append").save(str(tmp_path))
    stream = sql.readStream.format("kafka_records").load(str(MIXED)).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=r"kafka_records is batch only: use spark\.read instead of spark\.readStream"):
        query.awaitTermination()


CONNECT = """
import json
import sys
from pyspark.sql import SparkSession
from snaprebuild.spark import register

session = SparkSession.builder.getOrCreate()
register(session)
frame = session.read.format("kafka_records").option("subscribe", "mixed").load(sys.argv[1])
session.sql(f"CREATE TEMPORARY VIEW r USING kafka_records OPTIONS (path '{sys.argv[1]}', assign '{{\\"mixed\\":[0]}}')")
found = {"session": type(session).__module__, "rows": frame.count()}
found["of a view"] = session.sql("select count(*) as n from r where value is not null").first().n
print(json.dumps(found))
"""


@pytest.mark.spark
def test_a_session_of_connect(connect_server: ConnectServer) -> None:
    run = connect_server.run(CONNECT, MIXED)
    assert run.exit_code == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["session"].startswith("pyspark.sql.connect"), sys.version
    rows = own(MIXED, topics="mixed")
    assert (found["rows"], found["of a view"]) == (len(rows), sum(row["value"] is not None for row in rows))
