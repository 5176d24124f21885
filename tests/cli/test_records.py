"""``inspect records``: the records of partitions as lines, as JSON, and as files of Parquet with a manifest."""

import base64
import datetime
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command import in_json, snaprebuild
from documents import check
from log_dirs import batch, record, varint, write_partition, write_segment
from manifests import FIXTURES, REPOSITORY

import snaprebuild as library
from snaprebuild.consume import partition_result
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_plan import RecordPlan, plan_partition
from snaprebuild.consume.record_query import RecordQuery

MIXED = FIXTURES / "kafka4-mixed"
TRANSACTIONS = FIXTURES / "txn-state4"
END_OF_MIXED = 7040
"""The last stable offset: a transaction is open there."""


def expected(**arguments: Any) -> dict[str, list[Any]]:
    """The columns that the library reads: consumers of Kafka are its judge (tests/consume)."""
    return library.records(MIXED, fail_on_data_loss=False, **arguments).reader().read_all().to_pydict()


def shown(*arguments: object) -> tuple[int, dict[str, Any]]:
    run = in_json("inspect records", *arguments)
    return run.exit_code, run.document


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A partition with one batch of awkward values."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    values = (b"text", b'{"a": [1, 2]}', b"\xff\xfe", b"two\nlines")
    records = [record(value, key=b"k", offset_delta=delta) for delta, value in enumerate(values)]
    nulls = b"\0\0" + varint(len(values)) + varint(-1) + varint(-1) + b"\0"
    write_segment(directory, batch(0, count=len(values) + 1, records=[*records, varint(len(nulls)) + nulls]))
    return directory


def test_offsets_times_and_sizes_are_those_of_the_reader() -> None:
    columns = expected(topics="mixed", columns=["offset", "timestamp", "key", "value"])
    code, document = shown(MIXED, "--topic", "mixed", "--limit", 1_000_000)
    (partition,) = document["partitions"]
    records = document["shown_records"]
    assert code == 1
    assert [each["code"] for each in document["findings"]] == ["records-end-at-transaction"]
    assert [each["offset"] for each in records] == columns["offset"]
    assert [each["value_bytes"] for each in records] == [None if each is None else len(each) for each in columns["value"]]
    assert [each["key_bytes"] for each in records] == [None if each is None else len(each) for each in columns["key"]]
    assert [each["timestamp_ms"] for each in records] == [round(each.timestamp() * 1000) for each in columns["timestamp"]]
    assert all(each["key"] is each["value"] is None for each in records)
    assert (partition["records"], partition["end_offset"], partition["is_whole"]) == (len(records), END_OF_MIXED, True)
    assert (partition["first_offset"], partition["last_offset"]) == (records[0]["offset"], records[-1]["offset"])
    assert (document["is_limited"], document["not_read"]) == (False, [])
    assert partition["aborted_batches"] > 0


def test_nothing_of_keys_and_values_is_printed_without_a_format(log: Path) -> None:
    for arguments in ((log,), (log, "--output", "json"), (log, "--key-format", "text")):
        run = snaprebuild("inspect records", *arguments)
        assert "lines" not in run.text
        assert ("personal data" in run.stderr) == ("--key-format" in arguments)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("text", ["text", '{"a": [1, 2]}', "base64://4=", "two\nlines", None]),
        ("hex", ["74657874", b'{"a": [1, 2]}'.hex(), "fffe", b"two\nlines".hex(), None]),
        ("base64", ["dGV4dA==", "eyJhIjogWzEsIDJdfQ==", "//4=", "dHdvCmxpbmVz", None]),
        ("json", ["base64:dGV4dA==", '{"a": [1, 2]}', "base64://4=", "base64:dHdvCmxpbmVz", None]),
    ],
)
def test_forms_of_values(form: str, values: list[str | None], log: Path) -> None:
    run = in_json("inspect records", log, "--value-format", form)
    assert [each["value"] for each in run.document["shown_records"]] == values
    assert run.stderr.count("are data of the owners of orders") == 1
    lines = snaprebuild("inspect records", log, "--value-format", form).stdout.splitlines()
    assert lines[lines.index("orders-0:") + 1 :][-len(values) :][0].startswith(" 0 ")
    assert len(lines) == lines.index("orders-0:") + 1 + len(values)
    assert all(line.isprintable() for line in lines)
    assert lines[-1].endswith(" null")


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        ('{"a":1,"a":2}', True),
        ("12345678901234567890.123456789012345678901234567890", True),
        ("1e999", True),
        ("9" * 5000, False),  # Python's parser refuses it; nothing is lost in base64
        ("NaN", False),
        ("[-Infinity]", False),
        ("\ufeff1", False),
    ],
)
def test_json_is_shown_as_it_is_written(value: str, is_json: bool, tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_segment(directory, batch(0, records=[record(value.encode())]))
    (shown_record,) = in_json("inspect records", directory, "--value-format", "json").document["shown_records"]
    expected_text = value if is_json else f"base64:{base64.b64encode(value.encode()).decode()}"
    assert shown_record["value"] == expected_text


def test_a_range_of_offsets_and_of_times() -> None:
    _, document = shown(MIXED, "--topic-partition", "mixed-0", "--from", 100, "--until", 120, "--isolation", "all")
    assert [each["offset"] for each in document["shown_records"]] == list(range(100, 120))
    assert {each["transaction"] for each in document["shown_records"]} <= {"none", "committed", "aborted", "open"}
    _, some = shown(MIXED, "--topic", "mixed", "--from", 100, "--until", 400, "--isolation", "all", "--limit", 300)
    first, last = some["shown_records"][50], some["shown_records"][-50]
    assert first["timestamp_ms"] < last["timestamp_ms"]
    begin, end = (_time_of(each["timestamp_ms"]) for each in (first, last))
    _, by_time = shown(MIXED, "--topic", "mixed", "--from", begin, "--until", end, "--isolation", "all", "--limit", 5000)
    offsets = [each["offset"] for each in by_time["shown_records"]]
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    assert by_time["shown_records"][0]["timestamp_ms"] >= first["timestamp_ms"]
    assert offsets[0] <= first["offset"]
    assert all(each["timestamp_ms"] < last["timestamp_ms"] for each in by_time["shown_records"])
    code, nothing = shown(MIXED, "--topic", "mixed", "--from", "2200-01-01", "--isolation", "all")
    assert (code, nothing["shown_records"]) == (0, [])


def _time_of(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat()


def test_offsets_that_are_not_there_are_a_finding() -> None:
    code, document = shown(MIXED, "--topic", "deleted", "--from", 0, "--until", 500, "--isolation", "read_uncommitted")
    assert code == 1
    assert [each["code"] for each in document["findings"]] == ["records-lost"]
    assert document["shown_records"][0]["offset"] == 454


def test_a_limit_is_said() -> None:
    _, document = shown(MIXED, "--limit", 3)
    assert len(document["shown_records"]) == 3
    assert document["is_limited"]
    assert document["partitions"][0]["is_whole"] is False
    assert "mixed-0" in document["not_read"]
    text = snaprebuild("inspect records", MIXED, "--limit", 3).stdout
    assert "--limit 3: there may be more records. Not read: logappend-0" in text
    _, usual = shown(MIXED, "--topic", "mixed")
    assert len(usual["shown_records"]) == 100


# --- Kafka's own topics ----------------------------------------------------------------------------------------------------


def test_kafkas_own_topics_are_read_with_an_option_only() -> None:
    _, document = shown(TRANSACTIONS)
    assert not any(each["topic"].startswith("__") for each in document["partitions"])
    for selection in (("--topic", "__consumer_offsets"), ("--topic-partition", "__consumer_offsets-0")):
        run = in_json("inspect records", TRANSACTIONS, *selection)
        assert (run.exit_code, run.document["shown_records"]) == (1, [])
        (finding,) = run.document["findings"]
        assert finding["code"] == "nothing-found"
        assert "--internal-topics" in finding["message"]
        _, allowed = shown(TRANSACTIONS, *selection, "--internal-topics")
        assert {each["topic"] for each in allowed["partitions"]} == {"__consumer_offsets"}
        assert allowed["shown_records"]


# --- Parquet ---------------------------------------------------------------------------------------------------------------


def test_files_of_parquet_have_every_record(tmp_path: Path) -> None:
    out = tmp_path / "export"
    run = in_json("inspect records", MIXED, "--out", out)
    assert run.exit_code == 1
    assert "personal data" in run.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    check(manifest)
    assert manifest == run.document
    assert manifest["shown_records"] == []
    for partition in manifest["partitions"]:
        name = partition["topic_partition"]
        first, last = partition["first_offset"], partition["last_offset"]
        assert partition["file"]["path"] == f"{name}/{first:020d}-{last:020d}.parquet"
        file = out / partition["file"]["path"]
        assert file.stat().st_size == partition["file"]["size_bytes"]
        found = pq.read_table(file).to_pydict()
        assert found == expected(assign={partition["topic"]: [partition["partition"]]})
        assert len(found["offset"]) == partition["records"]
    assert len(manifest["partitions"]) == 4
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert sorted(each.suffix for each in out.rglob("*") if each.is_file()) == [".json", *[".parquet"] * 4]


def test_an_export_may_be_limited(tmp_path: Path) -> None:
    out = tmp_path / "export"
    _, document = shown(MIXED, "--topic", "mixed", "--out", out, "--limit", 7, "--isolation", "all")
    (partition,) = document["partitions"]
    table = pq.read_table(out / partition["file"]["path"])
    assert table["offset"].to_pylist() == list(range(7)) == list(range(partition["records"]))
    assert set(table.schema.names) >= {"key", "value", "headers", "transaction", "control"}
    assert (partition["is_whole"], document["is_limited"]) == (False, True)


def test_a_directory_that_is_there_is_not_touched(tmp_path: Path) -> None:
    out = tmp_path / "export"
    out.mkdir()
    run = snaprebuild("inspect records", MIXED, "--out", out)
    assert (run.exit_code, run.stdout) == (3, "")
    assert "already exists" in run.stderr
    assert not list(out.iterdir())


def test_no_export_is_written_into_a_log_directory(tmp_path: Path) -> None:
    logs = shutil.copytree(MIXED / "logs", tmp_path / "logs")
    before = sorted(logs.rglob("*"))
    run = snaprebuild("inspect records", logs, "--out", logs / "export")
    assert run.exit_code == 3
    assert sorted(logs.rglob("*")) == before


def test_a_partition_without_a_record_has_no_file(tmp_path: Path) -> None:
    out = tmp_path / "export"
    code, document = shown(MIXED, "--topic", "mixed", "--from", "2200-01-01", "--isolation", "all", "--out", out)
    (partition,) = document["partitions"]
    assert (code, partition["file"], partition["first_offset"]) == (0, None, -1)
    assert [each.name for each in out.iterdir()] == ["manifest.json"]


# --- damage and mistakes ---------------------------------------------------------------------------------------------------


def test_damage_is_a_finding_and_the_rest_is_shown(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    good, bad = batch(0, records=[record(b"secret")]), bytearray(batch(1, records=[record(b"secret")]))
    bad[-1] ^= 1
    write_segment(directory, good, bytes(bad), batch(2, records=[record(b"secret")]))
    run = in_json("inspect records", directory)
    assert run.exit_code == 4
    assert [each["offset"] for each in run.document["shown_records"]] == [0, 2]
    assert run.document["partitions"][0]["damaged_batches"] == 1
    assert run.document["partitions"][0]["is_whole"] is False
    assert "secret" not in run.text


@pytest.mark.parametrize("is_export", [False, True])
def test_an_error_while_reading_leaves_a_partition_that_is_not_whole(
    is_export: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes a segment between the plan and the read."""
    directory = tmp_path / "logs" / "orders-0"
    write_partition(directory, {0: batch(0) + batch(1), 2: batch(2)})

    def plan(log: ChosenLog, query: RecordQuery) -> RecordPlan:
        planned = plan_partition(log, query)
        (directory / "00000000000000000002.log").unlink()
        return planned

    monkeypatch.setattr(partition_result, "plan_partition", plan)
    code, document = shown(tmp_path / "logs", *(("--out", tmp_path / "export") if is_export else ()))
    (partition,) = document["partitions"]
    assert code != 0
    assert (partition["records"], partition["is_whole"]) == (2, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", "x"), "expected an offset, or a time"),
        (("--from", "10", "--until", "5"), "--until is before --from"),
        (("--limit", "0"), "from 1 to"),
        (("--limit", "1000001"), "at most 1000000 records are shown"),
        (("--out", "{}/export", "--value-format", "text"), "does not go with --out"),
        (("--out", "s3://bucket/x"), "is a directory of this machine"),
        (("--value-format", "avro"), "'text', 'hex', 'base64', 'json'"),
    ],
)
def test_mistakes(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    run = snaprebuild("inspect records", MIXED, *(each.format(tmp_path) for each in options))
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.stderr


def test_without_pyarrow_the_extra_is_named() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; sys.argv = sys.argv[1:]; from snaprebuild.cli.main import main; main()"
    command = [sys.executable, "-c", script, "snaprebuild", "inspect", "records", str(MIXED)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "pip install pyarrow" in run.stderr
