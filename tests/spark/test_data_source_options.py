"""The data sources: options, paths, and what is no empty answer."""

import base64
from pathlib import Path

import pyspark
import pytest
from faulty_store import faulty_store
from log_dirs import (
    batch,
    make_log_dir,
    snapshot_name,
    write_partition,
)
from manifests import FIXTURES
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType
from source_rows import damaged, entries, headers, reader_of, rows_of, three
from spark_filters import EqualTo

from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.spark import header_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.data_sources import BatchHeaders, KafkaRecords, ProducerSnapshots
from snaprebuild.storage.s3 import listing as s3_listing

pytestmark = pytest.mark.full


def test_a_mistyped_place_is_no_empty_answer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        headers(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no topic matches 'c' \(3 partitions found\); topics: a, b$"):
        headers(three(tmp_path), topics="c")


def test_nothing_is_an_answer_where_nothing_is(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "broker")
    assert headers(root) == entries(root) == headers(root, topics="a") == []
    write_partition(root / "a-0", {0: b""})
    (root / "b-0").mkdir()
    assert headers(root) == headers(root, mode="PERMISSIVE") == []
    reader = reader_of(BatchHeaders, three(tmp_path / "other"), pushFilters="true")
    reader.pushFilters([EqualTo(("topic",), "c")])
    assert rows_of(reader) == []
    assert len(reader.partitions()) == 1


def test_filters_of_a_release_that_passes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option would change nothing, and nobody would see it."""
    monkeypatch.undo()
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    for source in (BatchHeaders, ProducerSnapshots, KafkaRecords):
        with pytest.raises(UsageError, match=r"^option pushFilters needs Spark 4\.1 or newer, and this is 4\.0\.5$"):
            reader_of(source, three(tmp_path / source.name()), pushFilters="true")
        reader_of(source, three(tmp_path / f"{source.name()}-without"))


def test_objects_are_reached_as_options_say(tmp_path: Path) -> None:
    """Nothing of the environment leads to this store."""
    logs, key = FIXTURES / "kafka27-mixed" / "logs" / "logappend-0", tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    with faulty_store() as store:
        store.objects = {f"b/logs/logappend-0/{path.name}": path.read_bytes() for path in logs.iterdir()}
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true"}
        for source in (BatchHeaders, ProducerSnapshots):
            here = rows_of(reader_of(source, logs))
            assert len(here) > 20
            reader = reader_of(source, path="s3://b/logs", s3Anonymous="true", s3SseCKeyFile=str(key), **options)
            assert rows_of(reader) == [{**row, "directory": "s3://b/logs/logappend-0"} for row in here]
        assert not [headers for _, _, headers in store.seen if "authorization" in headers]
        sent = {
            headers.get("x-amz-server-side-encryption-customer-key") for _, path, headers in store.seen if path.endswith(".log")
        }
        assert sent == {base64.b64encode(key.read_bytes()).decode()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a"}, r"option topic is not known: columns, topics, partitions.*are; did you mean 'topics'\?$"),
        ({"checkcrcs": "a"}, r"option checkcrcs is not known: .*; did you mean 'checkCrc'\?$"),
        ({"offsets": "1:2"}, r"option offsets is not known: .*; did you mean 'offsetTo'\?$"),
        ({"zzz": "a"}, "option zzz is not known: columns, topics, partitions"),
        ({"mode": "skip"}, "option mode: expected one of FAILFAST, PERMISSIVE, DROPMALFORMED, found 'skip'$"),
        ({"mode": "permisive"}, r"found 'permisive'; did you mean 'PERMISSIVE'\?$"),
        ({"columns": "topic,colour"}, "option columns: expected some of topic, .*, found 'colour'$"),
        (
            {"columns": "producerid"},
            r"option columns: expected some of topic, .*, found 'producerid'; did you mean 'producer_id'\?$",
        ),
        ({"offsetFrom": "-1"}, "option offsetFrom: expected a number, 0 or more, found '-1'"),
        ({"partitions": "0,x"}, "option partitions: expected a number, 0 or more, found 'x'"),
        ({"numPartitions": "0"}, "option numPartitions: expected 1 or more, found 0"),
        ({"pushFilters": "1"}, "option pushFilters: expected true or false, found '1'"),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        headers(FIXTURES / "kafka27-mixed", **options)


def test_malformed_rows_are_dropped_where_that_is_asked_for(tmp_path: Path) -> None:
    damaged(tmp_path)
    (tmp_path / "a-0" / snapshot_name(10)).write_bytes(b"\0\1damaged")
    write_partition(tmp_path / "a-7.0123456789abcdef0123456789abcdef-stray", {0: batch(0)})
    for source in (BatchHeaders, ProducerSnapshots):
        permissive, dropped = (rows_of(reader_of(source, tmp_path, mode=mode)) for mode in ("permissive", "dropMalformed"))
        assert [row for row in permissive if row["error"] is None] == dropped
        assert len(permissive) == len(dropped) + 2


@pytest.mark.parametrize(
    ("pattern", "topics"), [("{}/{a,b}-[0]", "ab"), ("file://{}/b*", "b"), ("file:{}/*", "aab"), ("{}", "aab")]
)
def test_paths_as_spark_takes_them(pattern: str, topics: str, tmp_path: Path) -> None:
    three(tmp_path)
    with faulty_store() as store:
        store.objects = {f"b/x/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*.log")}
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true", "s3Anonymous": "true", "columns": "topic, directory"}
        places = {pattern.replace("{}", str(tmp_path))}
        if not pattern.startswith("file"):
            places |= {pattern.replace("{}", f"{scheme}://b/x") for scheme in ("s3", "s3a")}
        for place in places:
            rows = rows_of(reader_of(BatchHeaders, path=place, **options))
            assert "".join(sorted(directory["topic"] for directory in {row["directory"]: row for row in rows}.values())) == topics


def test_what_does_not_exist_is_reported_when_the_query_is_analysed(tmp_path: Path) -> None:
    with faulty_store() as store:
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true", "s3Anonymous": "true"}
        for path in (f"{tmp_path}/none", f"{tmp_path}/*.log", "s3://b/none", "s3a://b/none/*"):
            with pytest.raises(UsageError, match="does not exist"):
                BatchHeaders(CaseInsensitiveDict(path=path, **options)).schema()
    with pytest.raises(UsageError, match=r"hdfs: is not read"):
        BatchHeaders(CaseInsensitiveDict(path="hdfs://name/logs")).schema()


@pytest.mark.parametrize("source", [BatchHeaders, KafkaRecords, ProducerSnapshots])
def test_a_listing_that_is_too_long_names_no_option_that_is_none(
    source: type[BatchHeaders], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_listing, "KEYS_MAX", 1)
    with faulty_store() as store:
        store.objects = {f"b/logs/t-0/{offset:020d}.log": b"" for offset in range(3)}
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true", "s3Anonymous": "true"}
        with pytest.raises(RefusedError, match=r"answers for one listing: select fewer$"):
            rows_of(reader_of(source, "s3://b/logs", **options))


@pytest.mark.parametrize("source", [BatchHeaders, KafkaRecords, ProducerSnapshots])
def test_a_stream_is_refused_whichever_offset_spark_asks_for_first(source: type[BatchHeaders]) -> None:
    """Spark 4.0 asks for the latest one, and later releases for the initial one."""
    stream = source(CaseInsensitiveDict(path=str(FIXTURES))).streamReader(StructType())
    for offset in (stream.initialOffset, stream.latestOffset):
        with pytest.raises(UsageError, match=f"{source.name()} is batch only"):
            offset()


def test_a_path_is_needed() -> None:
    with pytest.raises(UsageError, match=r"load\(PATH\)"):
        BatchHeaders(CaseInsensitiveDict()).schema()
    assert BatchHeaders(CaseInsensitiveDict(path=str(FIXTURES), CHECKCRC="false")).schema() == ddl(header_rows.SCHEMA)
