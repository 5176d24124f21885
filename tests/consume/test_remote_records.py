"""Records of remote storage, alone and below the log on disk: the whole log on disk is the reference."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from manifests import FIXTURES
from slow_consumer import slow_log
from tiers import copied

from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.library.record_stream import RecordStream, records

TIERED = FIXTURES / "tiered-local"
FIRST_ON_DISK = 3664
COLUMNS = ("offset", "key", "value", "timestamp", "transaction")


def rows_of(stream: RecordStream) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    return rows


def cut_log(tmp_path: Path, first: int = FIRST_ON_DISK) -> Path:
    """The log directory without the segments below an offset, as retention leaves it."""
    logs = Path(shutil.copytree(TIERED / "logs", tmp_path / "logs"))
    for path in (logs / "mixed-0").iterdir():
        if path.stem.isdecimal() and int(path.stem) < first:
            path.unlink()
    return logs


def store_of(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TIERED / "remote", tmp_path / "remote"))


def read(*source: Path, **options: Any) -> RecordStream:
    return records(source, topics="mixed", columns=COLUMNS, **options)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "all"])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_copies_below_the_disk_are_the_log(isolation: str, has_metadata: bool, tmp_path: Path) -> None:
    logs = cut_log(tmp_path)
    metadata = (TIERED / "logs",) if has_metadata else ()
    stream = read(logs, remote=TIERED / "remote", metadata_log=metadata, isolation=isolation)
    assert rows_of(stream) == rows_of(read(TIERED / "logs", isolation=isolation))
    (partition,) = stream.partitions
    assert (partition.start_offset, partition.missing_offsets) == (0, 0)
    codes = {finding.code for finding in stream.findings}
    assert ("tier-unverified" in codes) is not has_metadata


def test_a_range_may_be_in_remote_storage_alone(tmp_path: Path) -> None:
    """The transactions of the range may end on the disk."""
    offsets = {"starting_offsets": {"mixed": {0: 1000}}, "ending_offsets": {"mixed": {0: 3000}}}
    stream = read(cut_log(tmp_path), remote=TIERED / "remote", **offsets)
    whole = [row for row in rows_of(read(TIERED / "logs")) if 1000 <= row["offset"] < 3000]
    assert rows_of(stream) == whole != []


def test_remote_storage_alone() -> None:
    """Up to the end of the newest copy; the last transactions may have their markers above it."""
    stream = read(remote=TIERED / "remote", isolation="read_uncommitted")
    end = json.loads((TIERED / "manifest.json").read_text())["highest_remote_offset"] + 1
    slow = slow_log(TIERED / "logs" / "mixed-0", end)
    assert [(row["offset"], row["value"], row["transaction"]) for row in rows_of(stream)] == [
        (each.record.offset, each.record.value, each.transaction) for each in slow.of("read_uncommitted", 0, end)
    ]
    assert [(each.start_offset, each.end_offset) for each in stream.partitions] == [(0, end)]
    committed = rows_of(read(remote=TIERED / "remote"))
    assert [row["offset"] for row in committed] == [each.record.offset for each in slow.of("read_committed", 0, end)]


def test_a_copy_that_is_there_twice_is_read_once(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for path in sorted(store.rglob("00000000000000001662-*")):
        copied(path, "A")
    assert rows_of(read(cut_log(tmp_path), remote=store)) == rows_of(read(TIERED / "logs"))


def test_a_lost_copy_is_a_loss(tmp_path: Path) -> None:
    """With a metadata log it is known which copy it was."""
    logs, store = cut_log(tmp_path), store_of(tmp_path)
    for path in store.rglob("00000000000000001662-*"):
        path.unlink()
    with pytest.raises(ReadFailedError, match="copy EvUJ6AlvQ7qWqdCwxT059Q: its objects are not there"):
        rows_of(read(logs, remote=store, metadata_log=TIERED / "logs"))
    with pytest.raises(ReadFailedError, match="offsets 1662 to 2180 of mixed-0 are in no batch"):
        rows_of(read(logs, remote=store))
    expected = [row["offset"] for row in rows_of(read(TIERED / "logs", isolation="all")) if not 1662 <= row["offset"] < 2181]
    for options in ({}, {"metadata_log": TIERED / "logs"}):
        stream = read(logs, remote=store, fail_on_data_loss=False, isolation="all", **options)
        assert [row["offset"] for row in rows_of(stream)] == expected
        assert "records-lost" in {finding.code for finding in stream.findings}
        assert [each.missing_offsets for each in stream.partitions] == [2181 - 1662]


def test_the_disk_alone_has_not_the_whole_log(tmp_path: Path) -> None:
    """Its log start offset is below its first segment."""
    with pytest.raises(ReadFailedError, match="offsets 0 to 3663 of mixed-0 are in no batch"):
        rows_of(read(cut_log(tmp_path)))


def test_another_topic_of_the_name_is_no_copy(tmp_path: Path) -> None:
    logs = cut_log(tmp_path)
    (logs / "mixed-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(ReadFailedError, match="offsets 0 to 3663"):
        rows_of(read(logs, remote=TIERED / "remote"))


AIVEN = FIXTURES / "aiven-layout"


@pytest.mark.parametrize("name", ["encrypted-zstd", "zstd-one-chunk"])
def test_copies_of_the_plugin(name: str) -> None:
    """Decrypted and decompressed: every offset once, and the values of whole records."""
    stream = records(
        remote=AIVEN / name / "store", private_key=str(AIVEN / "keys" / "key1.private.pem"), isolation="all", columns=COLUMNS
    )
    rows = rows_of(stream)
    for each in stream.partitions:
        assert (each.records, each.missing_offsets) == (each.end_offset - each.start_offset, 0)
    assert len(rows) == sum(each.records for each in stream.partitions) > 100


def test_a_gap_between_copies_is_a_loss() -> None:
    """The store has copies of some segments only."""
    store = AIVEN / "zstd-heuristic" / "store"
    with pytest.raises(ReadFailedError, match="offsets 1805 to 3585 of mixed-0 are in no batch"):
        rows_of(records(remote=store, isolation="all"))
    stream = records(remote=store, fail_on_data_loss=False, isolation="all", columns=COLUMNS)
    offsets = [row["offset"] for row in rows_of(stream)]
    assert offsets == sorted(set(offsets))
    assert [(each.end_offset - 1, each.missing_offsets) for each in stream.partitions] == [(offsets[-1], 3586 - 1805)]


def test_one_of_several_topics_of_a_name() -> None:
    store = AIVEN / "plain" / "store"
    with pytest.raises(UsageError, match="has copies of several topics called logappend: name the id of one, of "):
        records(remote=store)
    read_by_id = [
        records(remote=store, assign={"logappend": [0]}, isolation="all", columns=COLUMNS, topic_ids={"logappend": each})
        for each in ("XPzo9l4OTeGpfK3T7ClDuA", "pUdI2_H3STObO0yyg8HJBA")
    ]
    (one,), (other,) = (
        [(each.source, each.records) for each in stream.partitions] for stream in read_by_id if rows_of(stream) is not None
    )
    assert one[0] != other[0]
    assert min(one[1], other[1]) > 0


@pytest.mark.parametrize("store", [TIERED / "remote", AIVEN / "encrypted" / "store"])
def test_a_store_is_no_log_directory(store: Path) -> None:
    with pytest.raises(UsageError, match="is remote storage, and no log directory: name it with remote"):
        records(store)


def test_what_belongs_to_remote_storage_needs_it() -> None:
    with pytest.raises(UsageError, match="name it with remote"):
        read(TIERED / "logs", key_prefix="x/")
    with pytest.raises(RefusedError, match="private_key"):
        rows_of(records(remote=AIVEN / "encrypted" / "store"))
