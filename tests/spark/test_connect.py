"""The data sources in a session of Spark Connect, with a real server."""

import json
from typing import TYPE_CHECKING

import pytest
from manifests import FIXTURES, partition_fixtures

if TYPE_CHECKING:
    from connect_server import ConnectServer

pytestmark = [pytest.mark.full, pytest.mark.spark]

LOGS = FIXTURES / "kafka27-mixed" / "logs"
BATCHES = sum(segment.batches for each in partition_fixtures() if each.fixture == "kafka27-mixed" for segment in each.segments)
"""By Kafka's own classes."""

DATA_SOURCES = """
import json
import sys
import snaprebuild
from pyspark.sql import SparkSession
from snaprebuild.spark import register

session = SparkSession.builder.getOrCreate()
register(session)


def codes(batches):
    import pyarrow as pa
    import snaprebuild

    for each in batches:
        yield pa.RecordBatch.from_pylist([{"at": snaprebuild.__file__}] * each.num_rows)


found = {"session": type(session).__module__}
batches = session.read.format("kafka_batch_headers").load(sys.argv[1])
found["batches"] = batches.count()
found["errors"] = batches.where("error is not null or not crc_ok").count()
session.sql(f"CREATE TEMPORARY VIEW b USING kafka_batch_headers OPTIONS (path '{sys.argv[1]}', topics 'mixed')")
found["of a view"] = session.sql("select count(*) as n from b where topic = 'mixed'").first().n
snapshots = session.read.format("kafka_producer_snapshot").load(sys.argv[1])
found["snapshots"] = sorted({f"{row.topic}-{row.partition}/{row.snapshot_offset:020}.snapshot" for row in snapshots.collect()})
found["code"] = sorted({row.at for row in session.range(2).mapInArrow(codes, "at string").collect()})
scanned = snaprebuild.scan(sys.argv[1])
found["result"] = [row.asDict() for row in scanned.toDF(session).collect()] == scanned.rows() != []
print(json.dumps(found))
"""


def test_the_data_sources(connect_server: "ConnectServer") -> None:
    """Their code is sent by `register`."""
    run = connect_server.run(DATA_SOURCES, LOGS)
    assert run.exit_code == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["session"].startswith("pyspark.sql.connect")
    assert (found["batches"], found["errors"]) == (BATCHES, 0)
    of_mixed = [each for each in partition_fixtures() if each.fixture == "kafka27-mixed" and each.partition.startswith("mixed-")]
    assert found["of a view"] == sum(segment.batches for each in of_mixed for segment in each.segments) > 0
    assert found["snapshots"] == sorted(str(path.relative_to(LOGS)) for path in LOGS.glob("*/*.snapshot"))
    assert all(".zip/snaprebuild/" in each for each in found["code"]), "the code that was sent"
    assert found["result"] is True
