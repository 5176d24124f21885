"""Scan, asked directly: real directories, those that change while they are read, and several at once."""

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, make_log_dir, remove_snapshots, snapshot_name, write_partition
from manifests import FIXTURES, PartitionFixture
from other_process import live_broker
from scan_results import BASES, LEFT, LOG_END, codes, message, offsets_of, only, scanned, states
from sentences import CHANGED_WHILE_READ, DELETED_MEANWHILE

from snaprebuild.findings import Severity
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_result import AtNextStart, Shutdown, SnapshotStatus
from snaprebuild.snapshots.scan.upload_preflight import Blocker, FreedBy
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.log_dir import read_leader_epochs
from snaprebuild.storage.partition_dir import PartitionDir

# ------------------------------------------------------------------------------------------------------------ real directories


def test_two_seven_lacks_twelve_and_all_but_the_last_two_rolled_segments_are_blocked() -> None:
    result = scanned(FIXTURES / "kafka27-mixed", topics=("mixed",))
    partition = only(result)
    assert [boundary.offset for boundary in partition.boundaries] == [*BASES[1:], LOG_END]
    assert offsets_of(partition, SnapshotStatus.MISSING) == list(BASES[1:13])
    assert offsets_of(partition, SnapshotStatus.PRESENT) == list(LEFT)
    assert partition.boundaries[-1].is_log_end
    assert [boundary.is_log_end for boundary in partition.boundaries].count(True) == 1
    assert [(each.base_offset, each.next_base_offset) for each in partition.blocked_segments] == list(pairwise(BASES[:13]))
    assert {each.blockers for each in partition.blocked_segments} == {(Blocker.MISSING_SNAPSHOT,)}
    rolled = [(FIXTURES / f"kafka27-mixed/logs/mixed-0/{base:020d}.log").stat().st_size for base in BASES[:-1]]
    assert (partition.stuck_bytes, partition.stuck_bytes_after_rebuild) == (sum(rolled), 0)
    assert codes(result, Severity.FINDING) == {"missing-snapshots"}
    assert result.exit_code == 1


def test_boundaries_are_the_offsets_of_the_manifest(partition_fixture: PartitionFixture) -> None:
    partition = only(scanned(partition_fixture.directory))
    expected = [segment.snapshot_offset for segment in partition_fixture.segments]
    if partition.log_end.offset is None:
        assert partition.log_end.at_least <= expected.pop()
    assert [boundary.offset for boundary in partition.boundaries] == expected


def test_topics_that_never_go_up_have_notes_only(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    topics = {"__transaction_state-1": "txn-state", "compacted-0": "kafka4-compacted", "__cluster_metadata-0": "kraft-metadata"}
    for name, fixture in topics.items():
        shutil.copytree(FIXTURES / fixture / "logs" / name, root / name)
        remove_snapshots(root / name)
    make_log_dir(root, cleaner_offset_checkpoint="0\n1\ncompacted 0 1411\n")
    result = scanned(root)
    assert result.exit_code == 0
    assert "missing-snapshots" not in codes(result)
    assert all(not partition.source.can_be_tiered and not partition.blocked_segments for partition in result.partitions)
    assert (result.totals.missing, result.totals.not_needed) == (0, 4)
    assert {partition.source.topic_kind.value for partition in result.partitions} == {"ordinary", "internal", "cluster_metadata"}


def test_segments_before_the_first_leader_epoch_never_go_up() -> None:
    result = scanned(FIXTURES / "magicup")  # its first leader epoch begins at 2481
    partition = only(result)
    without = [each.next_base_offset for each in partition.blocked_segments if Blocker.NO_LEADER_EPOCHS in each.blockers]
    assert without == [617, 1354, 1976]
    assert [each.next_base_offset for each in partition.blocked_segments] == [617, 1354, 1976, 2537]
    assert partition.stuck_bytes == partition.stuck_bytes_after_rebuild > 0
    assert Blocker.NO_LEADER_EPOCHS.freed_by is FreedBy.RETENTION


def test_follower_that_lost_its_state_in_the_bootstrap_is_suspected() -> None:
    result = scanned(FIXTURES / "follower-lost-state/node2", topics=("payments",))
    assert [(finding.code, finding.offset) for finding in result.findings if finding.severity] == [("suspect-snapshot", 561)]
    assert only(result).source.is_tiered


def test_killed_broker_that_deleted_segments_since_its_last_checkpoint_is_not_tiered(mixed: Path) -> None:
    """Its log start offset of a minute ago is below the segments that are left, as it is where the data is in the tier."""
    root = mixed.parent
    (root / ".kafka_cleanshutdown").unlink()
    (root / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 100\n")
    (mixed / f"{0:020d}.log").unlink()
    (mixed / snapshot_name(583)).write_bytes(EMPTY_SNAPSHOT)
    for epochs, is_tiered, log_start, fate in (("0 100", True, 100, AtNextStart.KEPT), ("0 583", False, 583, AtNextStart.REMOVED)):
        (mixed / "leader-epoch-checkpoint").write_text(f"0\n1\n{epochs}\n")
        partition = only(result := scanned(root))
        assert (partition.source.is_tiered, partition.source.log_start_offset) == (is_tiered, log_start)
        assert [each.at_next_start for each in partition.other_snapshots if each.offset == 583] == [fate]
        assert ("already-tiered" in codes(result, Severity.NOTE)) == is_tiered


def test_killed_broker_regenerates_what_lies_above_its_recovery_point() -> None:
    result = scanned(FIXTURES / "kafka27-killed", topics=("k-magicup",))  # its recovery point is 2516
    assert offsets_of(only(result), SnapshotStatus.MISSING) == [407, 810, 1239]
    assert [log_dir.shutdown for log_dir in result.log_dirs] == [Shutdown.UNCLEAN]
    assert only(result).log_end.offset is None
    fates = {boundary.offset: boundary.at_next_start for boundary in only(result).boundaries}
    assert fates[407] is AtNextStart.ABSENT
    assert fates[2516] is AtNextStart.KEPT
    assert fates[3321] is AtNextStart.REBUILT


def test_missing_above_the_recovery_point_is_the_brokers_own_work(tmp_path: Path) -> None:
    root = copy_of("kafka27-killed", tmp_path)
    remove_snapshots(root / "k-mixed-0")  # its recovery point is 0
    result = scanned(root / "k-mixed-0")
    assert set(states(only(result)).values()) == {"regenerated"}
    assert not only(result).blocked_segments
    assert result.exit_code == 0


# ------------------------------------------------------------------------------------------------------- next to a running broker


def test_retention_between_the_listing_and_the_leader_epochs(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``UnifiedLog.deleteSegments`` has this order: the files are renamed, then the leader epochs are cut off."""
    calls = []

    def after_retention(directory: PartitionDir) -> object:
        if not calls:
            for path in [*healthy.glob(f"{0:020d}.*")]:
                path.rename(f"{path}.deleted")
            (healthy / "leader-epoch-checkpoint").write_text("0\n1\n0 687\n")
        calls.append(directory.segments[0].base_offset)
        return read_leader_epochs(directory)

    monkeypatch.setattr("snaprebuild.broker.partition_facts.read_leader_epochs", after_retention)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert calls == [0, 687]
    assert codes(result, Severity.FINDING) == set()
    assert result.exit_code == 0
    assert not only(result).blocked_segments


def test_a_partition_that_changes_all_the_time(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def and_changes(directory: PartitionDir) -> object:
        looks.append(directory)
        (healthy / f"{len(looks):020d}.timeindex").write_bytes(b"")
        (healthy / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {directory.segments[1 + len(looks) % 2].base_offset}\n")
        return read_leader_epochs(directory)

    monkeypatch.setattr("snaprebuild.broker.partition_facts.read_leader_epochs", and_changes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert len(looks) == 5
    assert codes(result, Severity.FINDING) == set(), "what may not be so is not told"
    assert f"{CHANGED_WHILE_READ}, 5 times" in message(result, "busy-log")
    assert codes(result, Severity.NOTE) >= {"busy-log"}, "no failure of the storage"
    assert (result.exit_code, result.totals.unread) == (1, 1)
    assert codes(scanned(healthy.parent), Severity.DAMAGED) >= {"leader-epochs-lost"}, "without a broker one look tells"
    assert len(looks) == 6


def test_what_is_wrong_in_a_partition_that_changes_all_the_time(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def and_changes(directory: PartitionDir) -> object:
        looks.append(directory)
        (healthy / f"{len(looks):020d}.timeindex").write_bytes(b"")
        return read_leader_epochs(directory)

    (healthy / snapshot_name(687)).unlink()
    monkeypatch.setattr("snaprebuild.broker.partition_facts.read_leader_epochs", and_changes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert len(looks) == 2
    assert codes(result, Severity.FINDING) == {"missing-snapshots"}


def test_a_last_segment_that_is_truncated_after_it_was_listed(tmp_path: Path) -> None:
    """In a copy, of which no broker is seen: it is listed again, and nothing else is affected."""
    for name in ("t-0", "u-0"):
        write_partition(tmp_path / name, {0: batch(0), 1: batch(1) + batch(2)})
    source = open_source([str(tmp_path)])
    os.truncate(tmp_path / "t-0" / f"{1:020d}.log", len(batch(1)))
    result = scan_source(source)
    assert {each.source.directory.topic_partition: each.log_end.offset for each in result.partitions} == {"t-0": 2, "u-0": 3}


def test_a_partition_that_goes_away(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def and_goes(directory: PartitionDir) -> object:
        if directory.segments:
            healthy.rename(f"{healthy}.0123456789abcdef0123456789abcdef-delete")
        return None

    monkeypatch.setattr("snaprebuild.broker.partition_facts.read_leader_epochs", and_goes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert codes(result, Severity.FINDING) == set()
    assert (result.exit_code, DELETED_MEANWHILE in message(result, "gone-meanwhile")) == (0, True)


# ------------------------------------------------------------------------------------------------------------ log directories


def test_several_log_directories_are_summed_each_and_by_topic(tmp_path: Path) -> None:
    one, two = copy_of("kafka27-mixed", tmp_path), copy_of("kafka4-mixed", tmp_path)
    result = scanned(one, two)
    assert [(log_dir.state.path, log_dir.totals.missing) for log_dir in result.log_dirs] == [(str(one), 14), (str(two), 0)]
    assert (result.topics["mixed"].partitions, result.topics["mixed"].missing, result.topics["logappend"].missing) == (2, 12, 2)
    assert result.totals.missing == 14
    assert result.totals.size_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert result.partitions[0].source.directory.path == str(one / "mixed-0")


def test_copy_without_broker_files_shows_nothing_of_the_next_start(healthy: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(healthy, tmp_path / "bare" / "mixed-0"))
    (bare / snapshot_name(687)).unlink()
    result = scanned(bare.parent)
    partition = only(result)
    assert [log_dir.shutdown for log_dir in result.log_dirs] == [Shutdown.UNKNOWN]
    assert (partition.next_start, partition.log_end.offset, partition.log_end.source) == (
        None,
        8334,
        "the end of the last segment",
    )
    assert {boundary.at_next_start for boundary in partition.boundaries} == {None}
    assert [each.next_base_offset for each in partition.blocked_segments] == [687]


def test_an_empty_log_directory_is_clean_and_a_wrong_path_is_not(tmp_path: Path) -> None:
    result = scanned(tmp_path)
    assert (result.partitions, result.exit_code, [finding.code for finding in result.findings]) == ((), 1, ["nothing-found"])
    (tmp_path / "meta.properties").write_text("version=0\n")
    result = scanned(tmp_path)
    assert (result.partitions, result.exit_code, result.totals.partitions) == ((), 0, 0)
