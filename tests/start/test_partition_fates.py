"""The fate of a partition by the state of its directory. Expected values: what brokers did with these states (docs: "Is this broker safe to
start?"); ``tests/broker`` compares with Kafka's own classes."""

import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from log_dirs import batch, batch_positions, cut, make_log_dir, snapshot_name
from sentences import METADATA_LOG_ENDS
from stopped_broker import BASES, END, KRAFT, append, last_segment, made

from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.broker.broker_facts import read_broker_facts
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.partition_facts import FactsReader
from snaprebuild.broker.partition_fates import partition_fates
from snaprebuild.broker.releases import parse_release
from snaprebuild.broker.start_facts import Assignment, RemoteStorage, Shutdown
from snaprebuild.findings import Severity
from snaprebuild.storage.log_dir import find_partitions


def fates(
    directory: Path,
    release: str | None = "4.3.1",
    remote_storage: RemoteStorage = RemoteStorage.UNKNOWN,
    *,
    clean: bool = True,
) -> list[Fate]:
    (log_dir,) = find_partitions([str(directory.parent)]).log_dirs
    (partition,) = log_dir.partitions
    broker = read_broker_facts([log_dir.state], None, None if release is None else parse_release(release))
    reader = FactsReader(partition, log_dir.state, Shutdown.CLEAN if clean else Shutdown.UNCLEAN)
    return partition_fates(reader.read(remote_storage), broker)


def kinds(directory: Path, release: str | None = "4.3.1", *, clean: bool = True) -> list[FateKind]:
    return [fate.kind for fate in fates(directory, release, clean=clean)]


# ------------------------------------------------------------------------------------------------------------ health


@pytest.mark.parametrize("kraft", [True, False])
@pytest.mark.parametrize("release", ["2.8.2", "3.6.2", "3.7.0", "3.9.2", "4.3.1", None])
def test_a_healthy_partition_has_no_fate(tmp_path: Path, release: str | None, *, kraft: bool) -> None:
    assert kinds(made(tmp_path, kraft=kraft), release) == []


def _log_end_in_an_empty_segment(directory: Path) -> None:
    for ending in (".log", ".index", ".timeindex"):
        (directory / f"{END:020d}{ending}").write_bytes(b"")


def _records_deleted(directory: Path) -> None:
    """The epochs begin at the log start, which is inside the second segment."""
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 15\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 15\n")


def _torn_last_batch(directory: Path) -> None:
    """A broker reads over it, and the log ends where its checkpoints say."""
    append(last_segment(directory), batch(END)[:40])


def _foreign_bytes_too_short_for_a_batch(directory: Path) -> None:
    append(last_segment(directory), bytes(17))


def _upgraded_format(directory: Path) -> None:
    """Batches of format 1 have no leader epoch, and those of format 2 after them have."""
    old = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 1_000, -1, 0)
    (directory / f"{0:020d}.log").write_bytes(old)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")


def _cut_transaction_index(directory: Path) -> None:
    """A rest shorter than an entry is ignored, and a first byte above 127 passes."""
    (directory / f"{10:020d}.txnindex").write_bytes(b"\xff" + struct.pack(">bqqqq", 0, 7, 11, 12, 11) + bytes(20))


@pytest.mark.parametrize(
    "change",
    [
        *(_log_end_in_an_empty_segment, _records_deleted, _torn_last_batch, _foreign_bytes_too_short_for_a_batch, _upgraded_format),
        _cut_transaction_index,
    ],
)
def test_healthy_forms_have_no_fate(tmp_path: Path, change: Callable[[Path], None]) -> None:
    directory = made(tmp_path)
    change(directory)
    assert kinds(directory) == []


def test_an_unclean_stop_that_loses_nothing_is_a_note(tmp_path: Path) -> None:
    directory = made(tmp_path, clean=False)
    (fate,) = fates(directory, clean=False)
    assert (fate.kind, fate.kind.severity, fate.kind.holds_broker) == (FateKind.RECOVERED, Severity.NOTE, False)
    assert fate.size_bytes == last_segment(directory).stat().st_size, "from the segment of the recovery point on"


def test_a_new_partition_has_no_fate(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "logs")
    (root / "orders-0").mkdir()
    assert kinds(root / "orders-0", "3.9.2") == []


# ------------------------------------------------------------------------------------------------------------ the end of the log


def test_a_lost_end_after_a_clean_stop(tmp_path: Path) -> None:
    directory = made(tmp_path)
    for path in (*directory.glob(f"{20:020d}.*"), directory / snapshot_name(END)):
        path.unlink()
    (fate,) = fates(directory)
    assert (fate.kind, fate.detail) == (FateKind.END_LOST, "20, its checkpoints say 30")
    assert fate.kind.severity is Severity.DAMAGED
    assert fate.kind.holds_broker


def test_a_cut_last_segment_below_its_own_snapshot(tmp_path: Path) -> None:
    """The snapshot at the end and the recovery point agree, and the segment does not."""
    directory = made(tmp_path)
    cut(last_segment(directory), len(batch(20)) * 4)
    assert kinds(directory) == [FateKind.END_LOST]
    assert kinds(directory, clean=False)[0] is FateKind.CATCHES_UP


def test_bytes_that_a_recovery_cuts_below_the_high_watermark(tmp_path: Path) -> None:
    directory = made(tmp_path, clean=False)
    path = last_segment(directory)
    size = path.stat().st_size
    cut(path, len(batch(20)) * 4)
    append(path, bytes(size - path.stat().st_size))
    first, *_ = fates(directory, clean=False)
    assert (first.kind, first.detail) == (FateKind.RECORDS_CUT, "24 to 30")


def test_zeros_after_a_clean_stop_fail_the_first_start(tmp_path: Path) -> None:
    directory = made(tmp_path)
    append(last_segment(directory), bytes(4096))
    (fate,) = fates(directory)
    assert (fate.kind, fate.detail) == (FateKind.FAILS_ONCE, "4096 bytes after offset 30")
    assert "Found record size 0" in fate.log_line
    assert kinds(directory, clean=False) == [FateKind.RECOVERED], "a recovery cuts them"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_is_marked_for_deletion_is_not_read_to_its_end(tmp_path: Path, *, is_clean: bool) -> None:
    """Zeros, a lost end and a missing index do no harm; its small files are read."""
    directory = made(tmp_path, clean=is_clean)
    deleted = directory.rename(directory.parent / f"orders-0.{'a' * 32}-delete")
    append(last_segment(deleted), bytes(4096))
    assert kinds(deleted, clean=is_clean) == []
    for path in (*deleted.glob(f"{20:020d}.*"), deleted / f"{0:020d}.index", deleted / "leader-epoch-checkpoint"):
        path.unlink()
    assert kinds(deleted, clean=is_clean) == []
    (deleted / "partition.metadata").write_bytes(b"")
    assert kinds(deleted, clean=is_clean) == [FateKind.NO_START]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("keeps_indexes", [True, False])
def test_a_log_without_a_segment(tmp_path: Path, *, is_clean: bool, keeps_indexes: bool) -> None:
    directory = made(tmp_path, clean=is_clean)
    for path in directory.glob("*.log" if keeps_indexes else "0*"):
        path.unlink()
    (fate,) = fates(directory, clean=is_clean)
    assert (fate.kind, fate.detail) == (FateKind.EMPTIED, "high watermark 30")


def test_a_log_that_ends_below_its_start(tmp_path: Path) -> None:
    directory = made(tmp_path)
    for start in (31, 5_000):
        (directory.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
        assert kinds(directory) == [FateKind.EMPTIED]
        first, *_ = fates(directory, clean=False)
        assert (first.kind, first.severity, first.holds_broker) == (FateKind.EMPTIED, Severity.DAMAGED, True)


def test_a_crash_after_all_records_were_deleted_is_a_note(tmp_path: Path) -> None:
    """Unflushed bytes are below the log start, which is the high watermark."""
    directory = made(tmp_path, clean=False)
    cut(last_segment(directory), len(batch(20)) * 4)
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 30\n")
    found = fates(directory, clean=False)
    assert [fate.kind for fate in found] == [FateKind.EMPTIED, FateKind.RECOVERED]
    assert {fate.severity for fate in found} == {Severity.NOTE}
    assert not any(fate.holds_broker for fate in found)


# ------------------------------------------------------------------------------------------------------------ indexes


def transaction(last_offset: int, first_byte: int = 0) -> bytes:
    return struct.pack(">Bbqqqq", first_byte, 0, 7, last_offset, last_offset, last_offset)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(34), [FateKind.SNAPSHOTS_REMOVED]),
        (transaction(5), [FateKind.SNAPSHOTS_REMOVED]),
        (transaction(12) + transaction(5), [FateKind.SNAPSHOTS_REMOVED]),
        (transaction(12), []),
        (transaction(12, 1), [FateKind.NO_START]),
        (transaction(12, 127), [FateKind.NO_START]),
        (transaction(12, 128), []),
        (transaction(5) + transaction(12, 1), [FateKind.SNAPSHOTS_REMOVED]),
    ],
)
def test_transaction_indexes(tmp_path: Path, data: bytes, expected: list[FateKind]) -> None:
    directory = made(tmp_path)
    (directory / f"{10:020d}.txnindex").write_bytes(data)
    found = fates(directory)
    assert [fate.kind for fate in found] == expected
    assert all(fate.removed_snapshots == 2 for fate in found if fate.kind is FateKind.SNAPSHOTS_REMOVED), "20 and 30"
    (directory / f"{10:020d}.index").unlink()
    assert kinds(directory) == [FateKind.SNAPSHOTS_REMOVED], "the check runs only where an .index is"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (transaction(12, 128), [FateKind.NO_START]),
        (b"\0\1" + transaction(12)[2:], [FateKind.NO_START]),
        (transaction(12) + transaction(13, 128), [FateKind.NO_START]),
        (transaction(5) + transaction(12, 128), [FateKind.SNAPSHOTS_REMOVED]),
        (transaction(12), []),
    ],
)
def test_two_bytes_of_a_transaction_version_from_4_4_on(tmp_path: Path, data: bytes, expected: list[FateKind]) -> None:
    directory = made(tmp_path)
    (directory / f"{10:020d}.txnindex").write_bytes(data)
    assert kinds(directory, "4.4.0") == expected
    assert FateKind.NO_START not in kinds(directory, "4.3.1")
    assert [fate.releases for fate in fates(directory, None)] == (
        ["4.4.0"] if expected == [FateKind.NO_START] else [None] * len(expected)
    )


@pytest.mark.parametrize("release", ["2.8.2", "3.2.0", "3.2.1", "4.4.0"])
def test_a_directory_goes_offline_from_3_2_1_on(tmp_path: Path, release: str) -> None:
    directory = made(tmp_path)
    (directory / "leader-epoch-checkpoint").write_text("rubbish")
    assert kinds(directory, release) == [FateKind.NO_START if release < "3.2.1" else FateKind.OFFLINE]


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_directory_in_the_place_of_a_small_file(tmp_path: Path, name: str) -> None:
    directory = made(tmp_path)
    (directory / name).unlink()
    (directory / name).mkdir()
    assert kinds(directory, "2.8.2") == [FateKind.NO_START]
    assert kinds(directory, "4.4.0") == [FateKind.OFFLINE]


def test_a_missing_offset_index(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (directory / f"{0:020d}.index").unlink()
    (fate,) = fates(directory)
    assert (fate.kind, fate.removed_snapshots, fate.kind.holds_broker) == (FateKind.SNAPSHOTS_REMOVED, 3, False)


# ------------------------------------------------------------------------------------------------------------ partition.metadata


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", FateKind.NO_START),
        ("version: 0\n", FateKind.NO_START),
        ("version: 0\ntopic_id: rubbish", FateKind.NO_START),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", FateKind.OFFLINE),
        ("rubbish\nrubbish", FateKind.OFFLINE),
        ("version: x\ntopic_id: jbhM2bicRN6uA2U4lwDEMw", FateKind.OFFLINE),
        ("version: 7\nid: jbhM2bicRN6uA2U4lwDEMw\nmore", None),
    ],
)
@pytest.mark.parametrize("release", ["2.8.2", "3.9.0", "4.3.1"])
def test_contents_of_partition_metadata(tmp_path: Path, text: str, expected: FateKind | None, release: str) -> None:
    directory = made(tmp_path)
    (directory / "partition.metadata").write_text(text)
    is_exit = expected is FateKind.OFFLINE and release == "2.8.2"
    assert kinds(directory, release) == ([] if expected is None else [FateKind.NO_START if is_exit else expected])


@pytest.mark.parametrize(
    ("release", "expected", "of_releases"),
    [
        ("3.2.3", [], []),
        ("3.6.1", [], []),
        ("3.6.2", [], []),
        ("3.7.0", [FateKind.NO_START], [None]),
        ("3.7.1", [FateKind.STRAY], [None]),
        ("3.9.0", [FateKind.STRAY], [None]),
        ("4.3.1", [FateKind.STRAY], [None]),
        (None, [FateKind.NO_START, FateKind.STRAY], ["3.7.0", "3.7.1 to 4.4.0"]),
    ],
)
def test_a_missing_topic_id_by_release(
    tmp_path: Path, release: str | None, expected: list[FateKind], of_releases: list[str | None]
) -> None:
    directory = made(tmp_path)
    (directory / "partition.metadata").unlink()
    found = fates(directory, release)
    assert [fate.kind for fate in found] == expected
    assert [fate.releases for fate in found] == of_releases, "a directory id is written from 3.7 on"
    for path in directory.glob("*.log"):
        path.write_bytes(b"")
    assert kinds(made(tmp_path / "zookeeper", kraft=False), release) == [], "with ZooKeeper no log is a stray"


def test_an_empty_log_without_a_topic_id_is_a_note(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "logs")
    (root / "meta.properties").write_text(KRAFT)
    directory = root / "orders-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"")
    assert kinds(directory) == [FateKind.OLD_REPLICA]
    assert FateKind.OLD_REPLICA.severity is Severity.NOTE


TOPIC = "jbhM2bicRN6uA2U4lwDEMw"
OTHER_TOPIC = "gm2mFj46QE-Snp46ULzMsA"


def assigned_fates(directory: Path, release: str, assignment: Assignment) -> list[Fate]:
    (log_dir,) = find_partitions([str(directory.parent)]).log_dirs
    (partition,) = log_dir.partitions
    broker = read_broker_facts([log_dir.state], None, parse_release(release))
    facts = FactsReader(partition, log_dir.state, Shutdown.CLEAN).read()
    return partition_fates(msgspec.structs.replace(facts, assignment=assignment), broker)


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        ("3.2.3", None),
        ("3.3.2", FateKind.STRAY_DELETED),
        ("3.6.1", FateKind.STRAY_DELETED),
        ("3.6.2", FateKind.STRAY_DELETED),
        ("3.7.0", FateKind.STRAY),
        ("3.9.1", FateKind.STRAY),
        ("4.3.1", FateKind.STRAY),
    ],
)
@pytest.mark.parametrize(
    ("topic", "is_replica", "is_current"),
    [(OTHER_TOPIC, True, True), (None, False, False), (TOPIC, False, False), (TOPIC, False, True), (TOPIC, True, False)],
)
def test_a_log_that_is_not_assigned_by_release(
    tmp_path: Path, release: str, kind: FateKind | None, topic: str | None, *, is_replica: bool, is_current: bool
) -> None:
    topic_id = None if topic is None else uuid_from_text(topic)
    assignment = Assignment(topic_id=topic_id, is_replica=is_replica, is_current=is_current, age=f"{METADATA_LOG_ENDS}7")
    is_assigned = topic == TOPIC and is_replica
    is_moved = topic == TOPIC and not is_replica and is_current
    expected = None if is_assigned else FateKind.OLD_REPLICA if is_moved and kind is not None else kind
    found = assigned_fates(made(tmp_path), release, assignment)
    assert [fate.kind for fate in found] == ([] if expected is None else [expected])
    assert all(fate.age == f"{METADATA_LOG_ENDS}7" for fate in found)


@pytest.mark.parametrize("is_current", [True, False])
def test_another_replica_in_sync_lets_a_broker_start(tmp_path: Path, *, is_current: bool) -> None:
    """If the image is newer than the last batch; and nothing helps a broker that does not start."""
    directory = made(tmp_path)
    assignment = Assignment(topic_id=uuid_from_text(TOPIC), is_replica=True, is_current=is_current, in_sync=(2,))
    cut(last_segment(directory), len(batch(20)) * 4)
    (fate,) = assigned_fates(directory, "4.3.1", assignment)
    assert (fate.kind, fate.holds_broker) == (FateKind.END_LOST, not is_current)
    (directory / "partition.metadata").write_bytes(b"")
    (fate,) = assigned_fates(directory, "4.3.1", assignment)
    assert (fate.kind, fate.holds_broker) == (FateKind.NO_START, True)


# ------------------------------------------------------------------------------------------------------------ leader epochs


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n", None, "0\n1\n7 20\n"])
def test_leader_epochs_that_are_gone(tmp_path: Path, text: str | None) -> None:
    directory = made(tmp_path)
    path = directory / "leader-epoch-checkpoint"
    path.unlink()
    if text is not None:
        path.write_text(text)
    for storage, kind in (
        (RemoteStorage.ON, FateKind.LEADING_DELETES_REMOTE),
        (RemoteStorage.UNKNOWN, FateKind.LEADING_DELETES_REMOTE),
        (RemoteStorage.OFF, FateKind.NO_LEADER_EPOCHS),
    ):
        (fate,) = fates(directory, remote_storage=storage)
        assert fate.kind is kind
        assert ("below 7" in fate.detail) == (text is not None and "7 20" in text)


def test_remote_epochs_below_the_first_segment_that_are_cut(tmp_path: Path) -> None:
    """The log start is in remote storage, and the epochs of a clean stop begin above it."""
    directory = made(tmp_path)
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 10\n")
    assert kinds(directory) == []
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n3 10\n")
    assert kinds(directory) == [FateKind.LEADING_DELETES_REMOTE]


def test_epochs_of_a_killed_broker_may_begin_above_its_checkpointed_log_start(tmp_path: Path) -> None:
    """The log start is checkpointed once a minute, after the epochs below it were removed."""
    directory = made(tmp_path, clean=False)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 20\n")
    assert kinds(directory, clean=False) == [FateKind.RECOVERED]


def test_a_log_of_format_1_alone_has_no_epochs(tmp_path: Path) -> None:
    directory = made(tmp_path)
    old = [struct.pack(">qiIbbqii", offset, 22, 0, 1, 0, 1_000, -1, 0) for offset in range(30)]
    for base in BASES:
        (directory / f"{base:020d}.log").write_bytes(b"".join(old[base : base + 10]))
    (directory / "leader-epoch-checkpoint").unlink()
    assert kinds(directory) == []


def test_a_malformed_checkpoint_of_epochs(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\nrubbish\n")
    assert kinds(directory) == [FateKind.OFFLINE]


@pytest.mark.parametrize("index_shift", [None, 0, 5], ids=["no-index", "index", "wrong-index"])
@pytest.mark.parametrize(
    ("lines", "is_lost"),
    [("3 15", True), ("0 12\n3 15", False), ("3 17", False), ("0 0\n3 15", False)],
    ids=["cut", "log-start-in-the-oldest-epoch", "log-start-in-the-newest-epoch", "whole"],
)
def test_epochs_that_begin_late_after_a_kill(tmp_path: Path, lines: str, index_shift: int | None, *, is_lost: bool) -> None:
    """Epoch 3 begins at 15. A log start that a killed broker did not write is in the middle of an epoch: that is normal."""
    directory = made(tmp_path, clean=False)
    for base in BASES[1:]:
        path = directory / f"{base:020d}.log"
        data = bytearray(path.read_bytes())
        positions = batch_positions(path)
        for offset, position in enumerate(positions, base):
            data[position + 12 : position + 16] = struct.pack(">i", 3 if offset >= 15 else 0)
        path.write_bytes(data)
        if index_shift is not None:
            entries = [struct.pack(">ii", at, positions[at] + index_shift) for at in (2, 4, 8)]
            path.with_suffix(".index").write_bytes(b"".join(entries) + bytes(16))
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{lines.count(chr(10)) + 1}\n{lines}\n")
    found = kinds(directory, clean=False)
    assert (FateKind.LEADING_DELETES_REMOTE in found) == is_lost, found
    assert kinds(directory) == ([FateKind.LEADING_DELETES_REMOTE] if lines != "0 0\n3 15" else [])
