"""``rebuild --results``: a row for each boundary, as JSON lines and as Parquet, in a file of its own."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from documents import validator_of
from log_dirs import copy_of, make_log_dir, snapshot_name, tree
from manifests import FIXTURES
from plans import make_plan
from sentences import NOT_REPLACED

from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild import results_file
from snaprebuild.snapshots.rebuild.results_file import result_file, write_results
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.storage.local.document_file import new_file

PARQUET = pytest.mark.full
"""Needs pyarrow, which is installed only with the extra `spark`."""

LOGS = tuple(FIXTURES / name for name in ("kafka27-mixed", "damaged/logs", "kafka4-compacted"))
OPTIONS = ("--as-of", "1795270000000", "--replay-from", "log-start")


def expected(run: Run) -> list[dict[str, Any]]:
    """The rows that the document gives."""
    names = ("offset", "is_log_end", "action", "class", "reasons", "entries")
    return [
        {
            "path": partition["path"],
            "topic_partition": partition["topic_partition"],
            "read_bytes": partition["read_bytes"],
            "elapsed_seconds": partition["elapsed_seconds"],
            **{name: boundary[name] for name in names},
        }
        for partition in run.document["partitions"]
        for boundary in partition["boundaries"]
    ]


@pytest.mark.parametrize("ending", ["jsonl", pytest.param("parquet", marks=PARQUET)])
def test_the_rows(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"results.{ending}"
    run = in_json("rebuild", *LOGS, "--boundaries", "all", "--out", tmp_path / "out", "--results", file, *OPTIONS)
    assert run.exit_code == 4, "one directory is damaged"
    if ending == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(file)
        assert table.schema.metadata[b"schema"] == b"snaprebuild.results/2"
        assert table.schema.field("reasons").type == pa.list_(pa.field("element", pa.string(), nullable=False))
        assert [str(table.schema.field(name).type) for name in ("offset", "entries", "elapsed_seconds")] == [
            "int64",
            "int64",
            "double",
        ]
        rows = table.to_pylist()
        validator = validator_of("results")
        assert set(table.column_names) == set(validator.schema["properties"])
        nullable = {name for name in table.column_names if table.schema.field(name).nullable}
        assert nullable == {"class", "entries"}
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        validator_of("results").validate(row)
    assert rows == expected(run)
    assert len(rows) > 30
    assert {row["action"] for row in rows} == {"written"}
    assert len({row["class"] for row in rows}) > 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()].count(file.name) == len(list(tmp_path.glob("*results*"))) == 1


@PARQUET
def test_many_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(results_file, "ROWS_PER_GROUP", 5)
    result = rebuild(
        make_plan(RebuildRequest((str(FIXTURES / "kafka27-mixed"),), out=str(tmp_path / "out"), as_of_ms=0)), dry_run=True
    )
    for name in ("a.parquet", "a.jsonl"):
        write_results(result, str(tmp_path / name))
    file = pq.ParquetFile(tmp_path / "a.parquet")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert file.read().to_pylist() == rows
    assert file.num_row_groups == -(-len(rows) // 5) > 2
    empty = type(result)(result.plan, (), dry_run=True)
    for name in ("b.parquet", "b.jsonl"):
        write_results(empty, str(tmp_path / name))
    assert pq.read_table(tmp_path / "b.parquet").to_pylist() == []
    assert (tmp_path / "b.jsonl").read_bytes() == b""


@PARQUET
def test_a_directory_gets_a_new_file_each_time(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "tables").mkdir()
    for _ in range(2):
        run = snaprebuild("rebuild", FIXTURES / "magic0", "--dry-run", "--results", tmp_path / "tables", *OPTIONS)
        assert run.exit_code == 0, run.stderr
    files = list((tmp_path / "tables").iterdir())
    assert len(files) == 2
    assert pq.read_table(tmp_path / "tables").num_rows == 2 * pq.read_table(files[0]).num_rows > 0


@pytest.mark.parametrize("name", ["taken.jsonl", pytest.param("taken.parquet", marks=PARQUET)])
def test_what_is_there_is_not_replaced(name: str, tmp_path: Path) -> None:
    """Asked before anything is read, and again when the table is there."""
    file = tmp_path / name
    file.write_bytes(b"mine")
    line = ("rebuild", FIXTURES / "magic0", "--out", tmp_path / "out", "--results", file, *OPTIONS)
    run = snaprebuild(*line)
    assert (run.exit_code, run.stdout) == (3, "")
    assert NOT_REPLACED in run.stderr
    assert not (tmp_path / "out").exists()
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    assert snaprebuild(*line).exit_code == 3
    result = rebuild(make_plan(RebuildRequest((str(FIXTURES / "magic0"),), out=str(tmp_path / "out"))), dry_run=True)
    with pytest.raises(RefusedError, match="is not replaced"):
        write_results(result, str(file))
    file.unlink()

    def overtaken() -> None:
        with new_file(str(file)) as writing:
            writing.write(b"ours")
            file.write_bytes(b"theirs")

    with pytest.raises(RefusedError, match="is not replaced"):
        overtaken()
    assert file.read_bytes() == b"theirs"
    assert {path.name for path in tmp_path.iterdir()} <= {name, "out"}, "no temporary file stays"


def test_where_a_table_may_not_go(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(tmp_path)
    for place, exit_code in (
        (logs / "results.jsonl", 3),
        (logs / "mixed-0" / "results.jsonl", 3),
        (tmp_path / snapshot_name(5), 2),
        (tmp_path / "results.csv", 2),
        (tmp_path / "results", 2),
        (tmp_path / "nowhere" / "results.jsonl", 2),
        ("s3://bucket/results.jsonl", 2),
        ("", 2),
    ):
        run = snaprebuild("rebuild", logs, "--dry-run", "--results", place, *OPTIONS)
        assert (run.exit_code, run.stdout) == (exit_code, ""), place
    same = snaprebuild("rebuild", logs, "--dry-run", "--results", tmp_path / "a.json", "--save-json", tmp_path / "a.json", *OPTIONS)
    assert same.exit_code == 2
    assert tree(tmp_path) == before


@PARQUET
def test_where_a_parquet_table_may_not_go(tmp_path: Path) -> None:
    """A directory as the place means Parquet."""
    logs, broker = copy_of("kafka27-mixed", tmp_path), make_log_dir(tmp_path / "broker")
    before = tree(tmp_path)
    for place in (logs / "mixed-0" / "results.parquet", logs / "mixed-0", broker):
        run = snaprebuild("rebuild", logs, "--dry-run", "--results", place, *OPTIONS)
        assert (run.exit_code, run.stdout) == (3, ""), place
    assert tree(tmp_path) == before


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency of the package: JSON lines need nothing, and Parquet says what it needs."""
    monkeypatch.setattr(results_file.importlib.util, "find_spec", lambda _: None)
    assert result_file(str(tmp_path / "a.jsonl")) == str(tmp_path / "a.jsonl")
    for place in (tmp_path / "a.parquet", tmp_path):
        with pytest.raises(UsageError, match=r"Parquet needs pyarrow \(pip install pyarrow\)"):
            result_file(str(place))
