"""``snaprebuild.records`` against a consumer that reads record by record: on bundled and on generated directories."""

import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from generated_logs import GeneratedDirectory, generate
from log_dirs import batch, write_partition
from manifests import FIXTURES
from slow_consumer import SlowRecord, slow_log

from formats.partition.checkpoint_file import read_offset_checkpoint
from formats.partition.producer_snapshot import read_entries
from snaprebuild.consume import partition_read, survey
from snaprebuild.consume.arrow_batches import decoded_header_key
from snaprebuild.consume.log_pieces import LogPiece, blocks_of
from snaprebuild.consume.partition_plan import plan_partition
from snaprebuild.consume.record_query import RecordQuery
from snaprebuild.consume.record_source import open_record_source
from snaprebuild.library.record_stream import records
from snaprebuild.snapshots.run import Run

ISOLATIONS = ("read_committed", "read_uncommitted", "all")
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers", "producer_id", "sequence", "transaction", "control")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

QUICK = ("kafka27-compacted", "kafka4-compacted", "kafka27-moved-start", "magicup")
LONG = ("kafka27-mixed", "kafka4-mixed", "kafka27-killed", "magic0", "magic1")


def expected_row(each: SlowRecord) -> dict[str, Any]:
    record = each.record
    header = each.header
    kind = -1 if header.magic == 0 else int(header.is_log_append_time)
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": None if record.timestamp == -1 else EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": kind,
        "headers": [{"key": decoded_header_key(name.key), "value": name.value} for name in record.headers] or None,
        "producer_id": header.producer_id,
        "sequence": record.sequence,
        "transaction": each.transaction,
        "control": header.is_control,
    }


def rows_of(stream: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    return rows


def checkpointed(log_dir: Path, name: str, partition: str, otherwise: int) -> int:
    path = log_dir / name
    entries = read_offset_checkpoint(path.read_bytes()) if path.exists() else []
    return {f"{each.topic}-{each.partition}": each.offset for each in entries}.get(partition, otherwise)


def open_at_first_segment(partition: Path) -> dict[int, int]:
    first = min(int(path.stem) for path in partition.glob("*.log"))
    snapshot = partition / f"{first:020d}.snapshot"
    if not first or not snapshot.exists():
        return {}
    entries = read_entries(snapshot.read_bytes())
    return {
        int(each["producer_id"]): int(each["current_txn_first_offset"]) for each in entries if each["current_txn_first_offset"] >= 0
    }


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(each, marks=pytest.mark.full) for each in LONG)])
def test_bundled_directories_are_read_as_record_by_record(name: str) -> None:
    logs = FIXTURES / name / "logs"
    seen = 0
    for partition in sorted(path for path in logs.iterdir() if path.is_dir() and any(path.glob("*.log"))):
        topic, _, number = partition.name.rpartition("-")
        high_watermark = checkpointed(logs, "replication-offset-checkpoint", partition.name, 1 << 62)
        slow = slow_log(partition, high_watermark, open_at_first_segment(partition))
        first = min(int(path.stem) for path in partition.glob("*.log"))
        start = max(checkpointed(logs, "log-start-offset-checkpoint", partition.name, 0), first)
        for isolation in ISOLATIONS:
            stream = records(logs, assign={topic: [int(number)]}, isolation=isolation, columns=COLUMNS)
            expected = [expected_row(each) for each in slow.of(isolation, start, high_watermark)]
            assert rows_of(stream) == expected
            seen += len(expected)
    assert seen > 100


def generated(seed: int, tmp_path: Path) -> GeneratedDirectory:
    return generate(seed, tmp_path / str(seed))


@pytest.mark.parametrize(
    "seeds",
    [range(30), pytest.param(range(30, 160), marks=pytest.mark.full), pytest.param(range(160, 400), marks=pytest.mark.night)],
)
def test_generated_directories_are_read_as_record_by_record(seeds: range, tmp_path: Path) -> None:
    """Each isolation, and ranges that begin and end in the middle of batches and transactions."""
    seen = Counter[str]()
    for seed in seeds:
        log = generated(seed, tmp_path)
        slow = slow_log(log.partition, log.high_watermark, log.open_before)
        bounds = [(log.log_start, log.high_watermark)]
        third = (log.high_watermark - log.log_start) // 3
        bounds.append((log.log_start + third, log.high_watermark - third))
        for isolation in ISOLATIONS:
            for start, end in bounds:
                stream = records(
                    log.path,
                    isolation=isolation,
                    columns=COLUMNS,
                    starting_offsets={"orders": {0: start}},
                    ending_offsets={"orders": {0: end}},
                )
                expected = [expected_row(each) for each in slow.of(isolation, start, end)]
                assert rows_of(stream) == expected, f"seed {seed}, {isolation}, {start} to {end}"
                seen.update(f"{isolation} {row['transaction']}" for row in expected)
    assert set(seen) == {
        f"{isolation} {each}"
        for isolation in ISOLATIONS
        for each in ("none", "committed", "aborted", "open")
        if isolation != "read_committed" or each not in ("aborted", "open")
    }


def test_headers_of_rolled_segments_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are kept up to a number of bytes. Those of the active segment never are, because a broker may cut it meanwhile."""
    read: list[bool] = []

    def watched(piece: LogPiece, *arguments: Any, **options: Any) -> Any:
        read.append(piece.is_last)
        return blocks_of(piece, *arguments, **options)

    def rows_and_reads(kept_bytes: int) -> tuple[list[dict[str, Any]], int]:
        read.clear()
        monkeypatch.setattr(survey, "KEPT_BYTES", kept_bytes)
        stream = records(FIXTURES / "kafka4-mixed", topics="mixed", columns=COLUMNS, isolation="all")
        rows = rows_of(stream)
        assert read.count(True) == 1
        return rows, len(read)

    monkeypatch.setattr(partition_read, "blocks_of", watched)
    rows, reads = rows_and_reads(survey.KEPT_BYTES)
    assert reads == 1
    segments = len(list((FIXTURES / "kafka4-mixed" / "logs" / "mixed-0").glob("*.log")))
    assert rows_and_reads(0) == (rows, segments)
    some_rows, some_reads = rows_and_reads(100_000)
    assert some_rows == rows
    assert 1 < some_reads < segments


def test_kept_headers_of_many_small_segments_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block takes some KiB, however few its rows are."""
    count = 1_000
    monkeypatch.setattr(survey, "KEPT_BYTES", 1 << 20)
    write_partition(tmp_path / "orders-0", {each: batch(each) for each in range(count)})
    query = RecordQuery(columns=("offset",))
    (log,) = open_record_source([str(tmp_path)], query, Run()).logs
    tracemalloc.start()
    try:
        plan = plan_partition(log, query)
        with_headers, _ = tracemalloc.get_traced_memory()
        assert 100 < len(plan.headers) < count
        plan.headers.clear()
        without, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert with_headers - without < 2 * survey.KEPT_BYTES


def test_a_stream_of_arrow() -> None:
    """Whatever takes one reads the records, each time anew."""
    stream = records(FIXTURES / "kafka4-mixed", topics="mixed")
    assert pa.table(stream) == pa.table(stream) == pa.Table.from_batches(list(stream), stream.schema)
