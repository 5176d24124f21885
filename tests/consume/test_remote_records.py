"""Records of remote storage, alone and below the log on disk: the whole log on disk is the reference."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from generated_logs import write_checkpoints
from log_dirs import TRANSACTIONAL, batch, marker, snapshot_bytes, snapshot_name, write_partition
from manifests import FIXTURES
from slow_consumer import slow_log
from tiers import Copy, copied, write_tier

from formats.partition.producer_snapshot import ProducerEntry
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


def test_the_id_of_a_directory_is_not_overridden(tmp_path: Path) -> None:
    """The directory is of another topic than the copies, whose id is given."""
    logs = cut_log(tmp_path)
    (logs / "mixed-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(UsageError, match="is of the topic AAAAAAAAAAAAAAAAAAAAAQ, and the topic ArVkN0FsREySYiqNvr4hUw is asked"):
        read(logs, remote=TIERED / "remote", topic_ids={"mixed": "ArVkN0FsREySYiqNvr4hUw"})


@pytest.mark.parametrize("topic", ["mixed", "mixde"])
def test_an_id_that_the_store_lacks(topic: str) -> None:
    with pytest.raises(UsageError, match=f"has no topic {topic} with the id AAAAAAAAAAAAAAAAAAAAAQ"):
        read(remote=TIERED / "remote", topic_ids={topic: "AAAAAAAAAAAAAAAAAAAAAQ"})


def test_a_directory_without_segments_hides_no_copy(tmp_path: Path) -> None:
    """A disk was lost: the directory is there, and its segments are not."""
    logs = cut_log(tmp_path, 1 << 60)
    stream = read(logs, remote=TIERED / "remote")
    assert rows_of(stream) == rows_of(read(remote=TIERED / "remote")) != []
    notes = [each.message for each in stream.findings if each.code == "records-of-remote-storage"]
    assert any("has no segment" in each for each in notes)


def test_copies_above_the_end_of_the_disk_are_named(tmp_path: Path) -> None:
    logs = Path(shutil.copytree(TIERED / "logs", tmp_path / "logs"))
    for path in (logs / "mixed-0").iterdir():
        if path.stem.isdecimal() and int(path.stem) >= 2181:
            path.unlink()
    stream = read(logs, remote=TIERED / "remote", isolation="read_uncommitted", fail_on_data_loss=False)
    rows_of(stream)
    end = json.loads((TIERED / "manifest.json").read_text())["highest_remote_offset"]
    (found,) = [each for each in stream.findings if each.code == "records-above-log-end"]
    assert f"copies up to offset {end}, and the log on disk ends at 2181" in found.message


# --- copies that overlap: after a change of leader the next one uploads segments with other bounds -----------------------------


def overlapping(store: Path, starts: tuple[int, int, int]) -> None:
    """Two copies that each have two segments, so that both have the middle one."""
    first, second, third = (next(store.rglob(f"{start:020d}-*.log")) for start in starts)
    middle = second.read_bytes()
    first.write_bytes(first.read_bytes() + middle)
    second.write_bytes(middle + third.read_bytes())
    for path in store.rglob(f"{starts[2]:020d}-*"):
        path.unlink()


@pytest.mark.parametrize("starts", [(0, 583, 1151), (583, 1151, 1662)])
@pytest.mark.parametrize("has_disk", [True, False])
def test_a_copy_that_overlaps_the_next_one(has_disk: bool, starts: tuple[int, int, int], tmp_path: Path) -> None:
    logs, store = cut_log(tmp_path), store_of(tmp_path)
    overlapping(store, starts)
    stream = read(*((logs,) if has_disk else ()), remote=store, isolation="all")
    reference = read(TIERED / "logs", isolation="all") if has_disk else read(remote=TIERED / "remote", isolation="all")
    assert rows_of(stream) == rows_of(reference)
    assert [(each.start_offset, each.missing_offsets) for each in stream.partitions] == [(0, 0)]


def test_a_copy_is_read_only_as_far_as_its_leader_was_followed(tmp_path: Path) -> None:
    """The first copy has offsets 8 to 14 of epoch 0. The log has epoch 1 from 8 on, of which offsets 8 and 9 are in no copy.

    The transaction of offset 3 was aborted in epoch 0, which the log lost, and committed in epoch 1.
    """

    def segment(first: int, end: int, epoch: int) -> bytes:
        special = {
            3: batch(3, producer_id=7, attributes=TRANSACTIONAL),
            9: marker(9, 7, commit=False),
            12: marker(12, 7, commit=True),
        }
        batches = (special.get(offset) or batch(offset) for offset in range(first, end))
        return b"".join(each[:12] + epoch.to_bytes(4, "big") + each[16:] for each in batches)

    copies = [
        Copy(0, segment(0, 15, 0), ((0, 0),), b""),
        Copy(10, segment(10, 20, 1), ((0, 0), (1, 8)), b""),
    ]
    store = write_tier(tmp_path / "remote", "orders", 0, copies)
    stream = records(remote=store, isolation="all", columns=("offset",), fail_on_data_loss=False)
    assert [row["offset"] for row in rows_of(stream)] == [*range(8), *range(10, 20)]
    assert [each.missing_offsets for each in stream.partitions] == [2]
    outcomes = records(remote=store, isolation="read_uncommitted", columns=("offset", "transaction"), fail_on_data_loss=False)
    assert {row["offset"]: row["transaction"] for row in rows_of(outcomes)}[3] == "committed"


def test_a_transaction_from_below_the_copies_is_open(tmp_path: Path) -> None:
    """The producer snapshot at the first segment on disk has it; no copy that is left does."""
    store = write_tier(tmp_path / "remote", "orders", 0, [Copy(5, b"".join(map(batch, range(5, 10))), ((0, 0),), b"")])
    logs = tmp_path / "logs"
    logs.mkdir()
    write_checkpoints(logs, log_start=5, high_watermark=13)
    partition = write_partition(logs / "orders-0", {10: b"".join(map(batch, range(10, 13)))})
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    entries = [ProducerEntry(producer, 0, 0, first, 0, 1_760_000_000_000, -1, first) for producer, first in ((7, 3), (8, 6))]
    for entry in entries:
        (partition / snapshot_name(10)).write_bytes(snapshot_bytes([entry]))
        stream = records(logs, remote=store, columns=("offset",))
        is_below = entry.producer_id == 7
        assert [row["offset"] for row in rows_of(stream)] == ([] if is_below else list(range(5, 13)))
        assert ("records-end-at-transaction" in {each.code for each in stream.findings}) is is_below


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


TOPICS_OF_A_NAME = {"XPzo9l4OTeGpfK3T7ClDuA": "kafka27-mixed", "pUdI2_H3STObO0yyg8HJBA": "kafka4-mixed"}
"""The logs from which the plugin copied the topics called logappend, by topic id."""


def test_several_topics_of_a_name(tmp_path: Path) -> None:
    """Each is read by its id alone, and below a log on disk by the id of that log."""
    store = AIVEN / "plain" / "store"
    with pytest.raises(UsageError, match="has copies of several topics called logappend: name the id of one, of "):
        records(remote=store)
    options: dict[str, Any] = {"isolation": "all", "columns": COLUMNS, "fail_on_data_loss": False}
    for topic_id, name in TOPICS_OF_A_NAME.items():
        stream = records(remote=store, assign={"logappend": [0]}, topic_ids={"logappend": topic_id}, **options)
        rows = rows_of(stream)
        whole = rows_of(records(FIXTURES / name / "logs", topics="logappend", **options))
        begin = rows[0]["offset"]
        end = rows[-1]["offset"] + 1
        assert rows == [row for row in whole if begin <= row["offset"] < end]
    logs = Path(shutil.copytree(FIXTURES / "kafka4-mixed" / "logs", tmp_path / "logs"))
    for path in (logs / "logappend-0").iterdir():
        if path.stem.isdecimal() and int(path.stem) < end:
            path.unlink()
    stream = records(logs, topics="logappend", remote=store, **options)
    assert rows_of(stream) == [row for row in whole if begin <= row["offset"]]


@pytest.mark.parametrize("store", [TIERED / "remote", AIVEN / "encrypted" / "store"])
def test_a_store_is_no_log_directory(store: Path) -> None:
    with pytest.raises(UsageError, match="is remote storage, and no log directory: name it with remote"):
        records(store)


def test_what_belongs_to_remote_storage_needs_it() -> None:
    with pytest.raises(UsageError, match="name it with remote"):
        read(TIERED / "logs", key_prefix="x/")
    with pytest.raises(RefusedError, match="private_key"):
        rows_of(records(remote=AIVEN / "encrypted" / "store"))
