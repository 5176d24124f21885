"""Scan, asked directly: real directories, and each thing that can stand in a partition directory and should not."""

import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from command import live_broker
from log_dirs import EMPTY_SNAPSHOT, copy_of, make_log_dir, remove_snapshots, snapshot_bytes, snapshot_name, truth
from manifests import FIXTURES, PartitionFixture

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import Severity
from snaprebuild.replay.broker_start import SnapshotOrigin
from snaprebuild.snapshots.scan.result import AtNextStart, PartitionScan, ScanResult, Shutdown, SnapshotStatus
from snaprebuild.snapshots.scan.scan import scan
from snaprebuild.snapshots.scan.upload_preflight import Blocker, FreedBy
from snaprebuild.snapshots.source.source import Selection, open_source
from snaprebuild.storage.log_dir import read_leader_epochs
from snaprebuild.storage.partition_dir import PartitionDir

DAY_MS = 86_400_000

# Bases of mixed-0 in kafka27-mixed (2.7.2, stopped with SIGTERM), its log end, and the snapshots that the broker left.
BASES = (0, 583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390, 7045, 7637)
LOG_END = 8231
LEFT = (7045, 7637, 8231)


def scanned(*paths: Path, topics: tuple[str, ...] = ()) -> ScanResult:
    return scan(open_source([str(path) for path in paths], None, Selection(topics=topics)))


def only(result: ScanResult) -> PartitionScan:
    (partition,) = result.partitions
    return partition


def codes(result: ScanResult, severity: Severity | None = None) -> set[str]:
    return {finding.code for finding in result.findings if severity is None or finding.severity is severity}


def message(result: ScanResult, code: str) -> str:
    return "; ".join(finding.message for finding in result.findings if finding.code == code)


def states(partition: PartitionScan) -> dict[int, str]:
    return {boundary.offset: boundary.state.value for boundary in partition.boundaries}


def offsets_of(partition: PartitionScan, state: SnapshotStatus) -> list[int]:
    return [boundary.offset for boundary in partition.boundaries if boundary.state is state]


def mixed_alone(fixture: str, place: Path) -> Path:
    """mixed-0 of a bundled directory, without the other partitions beside it."""
    root = copy_of(fixture, place)
    for name in ("deleted-0", "logappend-0", "plain-0"):
        shutil.rmtree(root / name)
    return root / "mixed-0"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Of 2.7.2, with 12 of 15 snapshots missing."""
    return mixed_alone("kafka27-mixed", tmp_path)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """Of 4.3.1, which lacks nothing."""
    return mixed_alone("kafka4-mixed", tmp_path)


# ------------------------------------------------------------------------------------------------------------ real directories


def test_two_seven_lacks_twelve_and_all_but_the_last_two_closed_segments_are_blocked() -> None:
    result = scanned(FIXTURES / "kafka27-mixed", topics=("mixed",))
    partition = only(result)
    assert [boundary.offset for boundary in partition.boundaries] == [*BASES[1:], LOG_END]
    assert offsets_of(partition, SnapshotStatus.MISSING) == list(BASES[1:13])
    assert offsets_of(partition, SnapshotStatus.PRESENT) == list(LEFT)
    assert partition.boundaries[-1].is_log_end
    assert [boundary.is_log_end for boundary in partition.boundaries].count(True) == 1
    assert [(each.base_offset, each.next_base_offset) for each in partition.blocked] == list(pairwise(BASES[:13]))
    assert {each.blockers for each in partition.blocked} == {(Blocker.MISSING_SNAPSHOT,)}
    closed = [(FIXTURES / f"kafka27-mixed/logs/mixed-0/{base:020d}.log").stat().st_size for base in BASES[:-1]]
    assert (partition.stuck_bytes, partition.stuck_bytes_after_rebuild) == (sum(closed), 0)
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
    assert all(not partition.source.can_be_tiered and not partition.blocked for partition in result.partitions)
    assert (result.totals.missing, result.totals.not_needed) == (0, 4)
    assert {partition.source.topic_kind.value for partition in result.partitions} == {"ordinary", "internal", "cluster_metadata"}


def test_segments_before_the_first_leader_epoch_never_go_up() -> None:
    result = scanned(FIXTURES / "magicup")  # its first leader epoch begins at 2481
    partition = only(result)
    without = [each.next_base_offset for each in partition.blocked if Blocker.NO_LEADER_EPOCHS in each.blockers]
    assert without == [617, 1354, 1976]
    assert [each.next_base_offset for each in partition.blocked] == [617, 1354, 1976, 2537]
    assert partition.stuck_bytes == partition.stuck_bytes_after_rebuild > 0
    assert Blocker.NO_LEADER_EPOCHS.freed_by is FreedBy.RETENTION


def test_follower_that_lost_its_state_in_the_bootstrap_is_suspected() -> None:
    result = scanned(FIXTURES / "follower-lost-state/node2", topics=("payments",))
    assert [(finding.code, finding.offset) for finding in result.findings if finding.severity] == [("suspect-snapshot", 561)]
    assert only(result).source.is_tiered


def test_killed_broker_that_deleted_segments_since_its_last_checkpoint_is_not_tiered(mixed: Path) -> None:
    """Its log start offset of a minute ago lies below the segments that are left, as it does where the data is in the tier."""
    root = mixed.parent
    (root / ".kafka_cleanshutdown").unlink()
    (root / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 100\n")
    (mixed / f"{0:020d}.log").unlink()
    (mixed / snapshot_name(583)).write_bytes(EMPTY_SNAPSHOT)
    for epochs, is_tiered, log_start, fate in (("0 100", True, 100, AtNextStart.KEPT), ("0 583", False, 583, AtNextStart.REMOVED)):
        (mixed / "leader-epoch-checkpoint").write_text(f"0\n1\n{epochs}\n")
        partition = only(result := scanned(root))
        assert (partition.source.is_tiered, partition.source.log_start_offset) == (is_tiered, log_start)
        assert dict(partition.other_snapshots)[583] is fate
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
    assert not only(result).blocked
    assert result.exit_code == 0


# ------------------------------------------------------------------------------------------------------------ false empties


def make_false_empties(directory: Path) -> None:
    """What 4.3.1 left of this log after a clean stop without any snapshot, at the last two bases and the log end."""
    for offset in LEFT:
        (directory / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)


def suspects(result: ScanResult) -> list[int | None]:
    return sorted(finding.offset or 0 for finding in result.findings if finding.code == "suspect-snapshot")


def test_clean_stop_without_snapshots_will_give_empty_ones(mixed: Path) -> None:
    remove_snapshots(mixed)
    result = scanned(mixed.parent)
    partition = only(result)
    assert offsets_of(partition, SnapshotStatus.MISSING) == [*BASES[1:], LOG_END]
    assert partition.next_start is not None
    assert partition.next_start.written_empty == LEFT
    assert codes(result, Severity.FINDING) == {"missing-snapshots", "empty-at-next-start"}
    # The broker sees a snapshot behind the last two closed segments: they would go up, with an empty one.
    assert [each.next_base_offset for each in partition.blocked] == list(BASES[1:13])


def test_empty_snapshots_above_aborted_transactions_are_suspect(mixed: Path) -> None:
    make_false_empties(mixed)
    written = max(entry.timestamp for entry in truth("kafka27-mixed", "mixed-0")[LOG_END])
    for offset in LEFT:
        os.utime(mixed / snapshot_name(offset), ns=(written * 1_000_000,) * 2)
    assert suspects(scanned(mixed.parent)) == list(LEFT)


def test_empty_snapshots_of_a_log_that_was_idle_for_days_are_not_suspect(mixed: Path) -> None:
    remove_snapshots(mixed)
    (mixed / snapshot_name(LOG_END)).write_bytes(EMPTY_SNAPSHOT)
    times = [entry.timestamp for entries in truth("kafka27-mixed", "mixed-0").values() for entry in entries]
    written = max(times) + DAY_MS
    os.utime(mixed / snapshot_name(LOG_END), ns=(written * 1_000_000,) * 2)
    result = scanned(mixed.parent)
    assert suspects(result) == []
    assert "only-empty-snapshots" in codes(result, Severity.NOTE)


def test_empty_snapshot_between_full_ones_is_suspect_at_any_age(healthy: Path) -> None:
    for path in (healthy / snapshot_name(4142), healthy / snapshot_name(7875)):
        path.write_bytes(EMPTY_SNAPSHOT)
        os.utime(path, (4_000_000_000,) * 2)
    told = message(scanned(healthy.parent), "suspect-snapshot")
    assert told.count("had not expired") == 2, "they were written before the segments behind them"
    for path in healthy.glob("*.timeindex"):
        path.write_bytes(b"")
    result = scanned(healthy.parent)
    assert set(suspects(result)) == {4142, 7875}
    by_offset = {boundary.offset: boundary for boundary in only(result).boundaries}
    for offset in (4142, 7875):
        assert by_offset[offset].state is SnapshotStatus.SUSPECT
        assert "which is below it" in by_offset[offset].why[0]


def test_empty_log_end_snapshot_above_a_full_one_is_suspect(healthy: Path) -> None:
    newest = max(entry.timestamp for entry in truth("kafka4-mixed", "mixed-0")[7875])
    path = healthy / snapshot_name(8334)
    path.write_bytes(EMPTY_SNAPSHOT)
    os.utime(path, ns=((newest + DAY_MS - 1) * 1_000_000,) * 2)
    assert suspects(scanned(healthy.parent)) == [8334]
    for segment in healthy.glob("*.txnindex"):
        segment.unlink()
    os.utime(path, ns=((newest + DAY_MS) * 1_000_000,) * 2)
    assert suspects(scanned(healthy.parent)) == []


def test_empty_snapshots_of_message_format_0_and_1_are_not_suspect() -> None:
    for fixture in ("magic0", "magic1", "magicup"):
        assert suspects(scanned(FIXTURES / fixture)) == []
    assert suspects(scanned(FIXTURES / "kafka27-killed")) == []


# ------------------------------------------------------------------------------------------------------------ wrong entries

ENTRY = ProducerEntry(7, 0, 9, 99, 4, 5000, 3, -1)


def test_entries_that_cannot_be_true_are_suspect(healthy: Path) -> None:
    (healthy / snapshot_name(687)).write_bytes(snapshot_bytes([replace(ENTRY, last_offset=687)]))
    result = scanned(healthy.parent)
    assert "at or above" in message(result, "suspect-snapshot")
    assert states(only(result))[687] == "suspect"
    assert result.exit_code == 1


def test_snapshot_that_does_not_parse_is_corrupt_and_stops_nothing(healthy: Path) -> None:
    path = healthy / snapshot_name(687)
    path.write_bytes(path.read_bytes()[:-1])
    result = scanned(healthy.parent)
    (found,) = [finding for finding in result.findings if finding.severity]
    assert (found.code, found.offset) == ("corrupt-snapshot", 687)
    assert os.path.basename(found.path) not in found.message, "the path is shown once"
    assert states(only(result)) == {
        offset: "corrupt" if offset == 687 else "present" for offset in truth("kafka4-mixed", "mixed-0")
    }
    # A broker looks at the newest only: the others stay, and go up as they are.
    assert only(result).next_start is not None
    assert (687, SnapshotOrigin.KEPT) in only(result).next_start.after  # type: ignore[union-attr]
    assert (result.exit_code, result.totals.corrupt) == (1, 1)


def test_corrupt_snapshots_that_the_broker_loads_are_removed(healthy: Path) -> None:
    for offset in (7350, 7875, 8334):
        (healthy / snapshot_name(offset)).write_bytes(b"")
    partition = only(scanned(healthy.parent))
    assert partition.next_start is not None
    assert partition.next_start.corrupt == (7350, 7875, 8334)
    # It replays from 6776 and writes the last two bases and the log end.
    assert partition.next_start.rebuilt == (7350, 7875, 8334)
    assert not partition.blocked


# ------------------------------------------------------------------------------------------------------------ segments and names


def test_empty_last_segment_has_its_boundary_at_its_base(healthy: Path) -> None:
    for ending in (".log", ".index", ".timeindex"):
        (healthy / f"{8334:020d}{ending}").write_bytes(b"")
    partition = only(scanned(healthy.parent))
    assert (partition.log_end.offset, partition.log_end.known_by) == (8334, "the last segment is empty")
    assert [boundary.offset for boundary in partition.boundaries] == list(truth("kafka4-mixed", "mixed-0"))
    assert partition.boundaries[-1].is_log_end
    assert not partition.blocked


def test_log_without_data_has_no_boundary(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "logs", recovery_points={"t-0": 0})
    (root / "t-0").mkdir()
    (root / "t-0" / f"{0:020d}.log").write_bytes(b"")
    result = scanned(root)
    assert only(result).boundaries == ()
    assert only(result).log_end.offset == 0
    assert result.exit_code == 0


def test_partition_without_segments_is_a_note(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "logs")
    (root / "t-0").mkdir()
    result = scanned(root)
    assert codes(result) == {"no-segment"}
    assert only(result).boundaries == ()
    assert result.exit_code == 0


def test_segment_lost_from_the_middle_leaves_its_indexes(healthy: Path) -> None:
    (healthy / f"{4142:020d}.log").unlink()
    result = scanned(healthy.parent)
    lone = {Path(finding.path).name for finding in result.findings if finding.code == "index-without-segment"}
    assert lone == {path.name for path in healthy.glob(f"{4142:020d}.*index")}
    assert {f"{4142:020d}.index", f"{4142:020d}.timeindex"} <= lone
    assert "4142" in message(result, "stray-snapshots")
    assert 4142 not in states(only(result))
    assert result.exit_code == 1


def test_a_closed_segment_without_a_byte(healthy: Path) -> None:
    """Only the log cleaner leaves one in health, and the broker's last segment is empty where it has just begun."""
    for base in (4142, 7875):
        os.truncate(healthy / f"{base:020d}.log", 0)
    (finding,) = [each for each in scanned(healthy.parent).findings if each.code == "empty-segment"]
    assert (finding.severity, finding.offset) == (Severity.FINDING, 4142)
    assert finding.message.startswith("1 closed segment without a byte (4142)")
    (healthy.parent / "cleaner-offset-checkpoint").write_text("0\n1\nmixed 0 7875\n")
    assert "empty-segment" not in codes(scanned(healthy.parent))


def test_a_log_that_ends_below_its_log_start(healthy: Path) -> None:
    """A broker deletes it: nothing of it is left behind the start but an empty snapshot at the log start."""
    checkpoint = healthy.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nmixed 0 8334\n")
    assert "log-start-above-log-end" not in codes(scanned(healthy.parent)), "all records deleted, as by DeleteRecords"
    checkpoint.write_text("0\n1\nmixed 0 8335\n")
    result = scanned(healthy.parent)
    (finding,) = [each for each in result.findings if each.code == "log-start-above-log-end"]
    assert (finding.severity, finding.offset) == (Severity.FINDING, 8335)
    assert "the log ends at 8334, below its log start offset 8335" in finding.message
    partition = only(result)
    assert partition.next_start is not None
    assert partition.next_start.after == ((8335, SnapshotOrigin.EMPTY),)


def test_directories_that_no_partition_is_named_like(healthy: Path) -> None:
    """The broker throws at the first one (``LocalLog.parseTopicPartitionName``), whatever is in it."""
    log_dir = healthy.parent
    for name in ("remote-log-index-cache", "__cluster_metadata-0", "odd name-3", f"mixed-9.{'0' * 32}-delete"):
        (log_dir / name).mkdir()
    assert "foreign-directory" not in codes(scanned(log_dir))
    for name in ("lost+found", "mixed-0.bak", "a\nb", "z"):
        (log_dir / name).mkdir()
    (log_dir / "file.bak").write_bytes(b"")
    (finding,) = [each for each in scanned(log_dir).findings if each.code == "foreign-directory"]
    assert (finding.severity, finding.path) == (Severity.FINDING, str(log_dir))
    assert "4 directories with a name that no partition has (a\nb, lost+found, mixed-0.bak and 1 more)" in finding.message
    bare = log_dir.with_name("bare")
    bare.mkdir()
    shutil.copytree(healthy, bare / "mixed-0")
    (bare / "other").mkdir()
    assert "foreign-directory" not in codes(scanned(bare)), "no broker's directory"


def test_missing_indexes_block_their_segment_until_the_broker_starts(healthy: Path) -> None:
    (healthy / f"{5737:020d}.index").unlink()
    (healthy / f"{687:020d}.timeindex").unlink()
    result = scanned(healthy.parent)
    partition = only(result)
    assert {each.base_offset: each.blockers for each in partition.blocked if each.base_offset in (687, 5737)} == {
        687: (Blocker.MISSING_TIME_INDEX,),
        5737: (Blocker.MISSING_OFFSET_INDEX,),
    }
    # The recovery of 5737 drops what lies above it; the broker writes the last two bases again, and 6776 stays away.
    assert [each.next_base_offset for each in partition.blocked if Blocker.SNAPSHOT_REMOVED_AT_START in each.blockers] == [6776]
    assert partition.stuck_bytes == sum((healthy / f"{base:020d}.log").stat().st_size for base in (687, *BASES_4[2:-1]))
    assert partition.stuck_bytes_after_rebuild == 0
    assert {"missing-offset-index", "missing-time-index", "removed-at-next-start"} <= codes(result, Severity.FINDING)


BASES_4 = (0, 687, 1231, 1805, 2430, 3017, 3586, 4142, 4710, 5223, 5737, 6261, 6776, 7350, 7875)


def test_segment_of_two_gibibytes_never_goes_up(healthy: Path) -> None:
    os.truncate(healthy / f"{687:020d}.log", 2**31)
    os.truncate(healthy / f"{1231:020d}.log", 2**31 - 1)
    partition = only(scanned(healthy.parent))
    assert [(each.base_offset, each.blockers) for each in partition.blocked] == [(687, (Blocker.SEGMENT_TOO_LARGE,))]
    rest = sum((healthy / f"{base:020d}.log").stat().st_size for base in BASES_4[1:-1])
    assert partition.stuck_bytes == partition.stuck_bytes_after_rebuild == rest


@pytest.mark.parametrize(
    ("path", "text", "code", "blocked"),
    [
        ("mixed-0/leader-epoch-checkpoint", None, "no-leader-epochs", 14),
        ("mixed-0/leader-epoch-checkpoint", "0\n5\n0 0\n", "unreadable-leader-epochs", 0),
        # The snapshot of the clean stop still shows where the log ends.
        ("recovery-point-offset-checkpoint", "rubbish", "unreadable-broker-file", 0),
    ],
)
def test_files_of_the_broker_that_are_missing_or_damaged(
    healthy: Path, path: str, text: str | None, code: str, blocked: int
) -> None:
    (healthy.parent / path).unlink()
    if text is not None:
        (healthy.parent / path).write_text(text)
    result = scanned(healthy.parent)
    assert codes(result, Severity.FINDING) == {code}
    assert len(only(result).blocked) == blocked
    assert only(result).log_end.offset == 8334
    assert (only(result).log_end.known_by == "the last snapshot of a clean stop") is (code == "unreadable-broker-file")


def test_boundaries_below_the_log_start_are_not_due(mixed: Path) -> None:
    (mixed.parent / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 2596\n")
    partition = only(scanned(mixed.parent))
    assert offsets_of(partition, SnapshotStatus.NOT_DUE) == [583, 1151, 1662, 2181, 2596]
    assert offsets_of(partition, SnapshotStatus.MISSING) == list(BASES[6:13])
    assert partition.blocked[0].base_offset == 2596
    # A segment that ends at the log start is no candidate, whatever it lacks.
    (mixed / "leader-epoch-checkpoint").unlink()
    assert only(scanned(mixed.parent)).blocked[0].base_offset == 2596


def test_snapshot_of_an_earlier_log_end_is_a_note(healthy: Path) -> None:
    shutil.copy(healthy / snapshot_name(4142), healthy / snapshot_name(4500))
    result = scanned(healthy.parent)
    assert only(result).other_snapshots == ((4500, AtNextStart.REMOVED),)
    assert codes(result, Severity.NOTE) == {"stray-snapshots", "above-last-stable-offset"}
    assert (result.exit_code, result.totals.stray) == (0, 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x.snapshot", "NumberFormatException"),
        ("00000000000000000687-report.snapshot", "NumberFormatException"),
        ("4500.snapshot", "offset 4500"),
        ("backup.log", "NumberFormatException"),
    ],
)
def test_name_that_kafka_stumbles_over(healthy: Path, name: str, says: str) -> None:
    (healthy / name).write_bytes(EMPTY_SNAPSHOT)
    result = scanned(healthy.parent)
    (found,) = [finding for finding in result.findings if finding.code == "misnamed-file"]
    assert (Path(found.path).name, says in found.message) == (name, True)
    assert (result.exit_code, result.totals.misnamed) == (1, 1)


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_snapshot_that_is_no_regular_file(healthy: Path, kind: str) -> None:
    path = healthy / snapshot_name(687)
    path.rename(healthy.parent.parent / "elsewhere")
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(healthy.parent.parent / "elsewhere")
    else:
        os.mkfifo(path)
    result = scanned(healthy.parent)
    assert states(only(result))[687] == "irregular"
    assert [each.blockers for each in only(result).blocked] == [(Blocker.IRREGULAR_SNAPSHOT,)]
    assert codes(result, Severity.FINDING) == {"not-a-regular-file", "irregular-snapshot", "missing-snapshots"}


def test_left_overs_are_notes(healthy: Path) -> None:
    (healthy / f"{687:020d}.snapshot.tmp").write_bytes(b"half")
    (healthy / f"{0:020d}.log.deleted").write_bytes(b"")
    (healthy / "inside").mkdir()
    result = scanned(healthy.parent)
    assert {"left-over-temporary", "left-over-deleted", "sub-directory"} <= codes(result, Severity.NOTE)
    assert result.exit_code == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "may_read"),
    [
        (1000, 1000, 0o644, True),
        (1000, 1000, 0o200, False),
        (0, 0, 0o600, False),
        (0, 1000, 0o640, True),
        (0, 1000, 0o604, False),
        (0, 0, 0o644, True),
    ],
)
def test_files_that_the_broker_may_not_read(healthy: Path, owner: int, group: int, mode: int, may_read: bool) -> None:
    for path in healthy.iterdir():
        os.chown(path, 1000, 1000)
    path = healthy / snapshot_name(687)
    os.chown(path, owner, group)
    path.chmod(mode)
    result = scanned(healthy.parent)
    assert ("unreadable-by-broker" in codes(result, Severity.FINDING)) == (not may_read)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_snapshot_that_no_one_may_read(healthy: Path) -> None:
    (healthy / snapshot_name(687)).chmod(0)
    result = scanned(healthy.parent)
    assert codes(result, Severity.FINDING) == {"unreadable-by-broker"}
    assert states(only(result))[687] == "unreadable"


# ------------------------------------------------------------------------------------------------------- next to a running broker


def test_retention_between_the_listing_and_the_leader_epochs(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``UnifiedLog.deleteSegments`` goes: the files are renamed, then the leader epochs are cut off."""
    calls = []

    def after_retention(directory: PartitionDir) -> object:
        if not calls:
            for path in [*healthy.glob(f"{0:020d}.*")]:
                path.rename(f"{path}.deleted")
            (healthy / "leader-epoch-checkpoint").write_text("0\n1\n0 687\n")
        calls.append(directory.segments[0].base_offset)
        return read_leader_epochs(directory)

    monkeypatch.setattr("snaprebuild.snapshots.scan.partition.read_leader_epochs", after_retention)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert calls == [0, 687]
    assert codes(result, Severity.FINDING) == set()
    assert result.exit_code == 0
    assert not only(result).blocked


def test_a_partition_that_changes_all_the_time(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def and_changes(directory: PartitionDir) -> object:
        looks.append(directory)
        (healthy / f"{len(looks):020d}.timeindex").write_bytes(b"")
        (healthy / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {directory.segments[1 + len(looks) % 2].base_offset}\n")
        return read_leader_epochs(directory)

    monkeypatch.setattr("snaprebuild.snapshots.scan.partition.read_leader_epochs", and_changes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert len(looks) == 5
    assert codes(result, Severity.FINDING) == set(), "what may not be so is not told"
    assert "changed while it was read, 5 times" in message(result, "busy-log")
    assert codes(result, Severity.NOTE) >= {"busy-log"}, "no failure of the storage"
    assert (result.exit_code, result.totals.unread) == (1, 1)
    assert codes(scanned(healthy.parent), Severity.FINDING) >= {"no-leader-epochs"}, "without a broker one look tells"
    assert len(looks) == 6


def test_what_is_wrong_in_a_partition_that_changes_all_the_time(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def and_changes(directory: PartitionDir) -> object:
        looks.append(directory)
        (healthy / f"{len(looks):020d}.timeindex").write_bytes(b"")
        return read_leader_epochs(directory)

    (healthy / snapshot_name(687)).unlink()
    monkeypatch.setattr("snaprebuild.snapshots.scan.partition.read_leader_epochs", and_changes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert len(looks) == 2
    assert codes(result, Severity.FINDING) == {"missing-snapshots"}


def test_a_partition_that_goes_away(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def and_goes(directory: PartitionDir) -> object:
        if directory.segments:
            healthy.rename(f"{healthy}.0123456789abcdef0123456789abcdef-delete")
        return None

    monkeypatch.setattr("snaprebuild.snapshots.scan.partition.read_leader_epochs", and_goes)
    with live_broker(healthy.parent):
        result = scanned(healthy.parent)
    assert codes(result, Severity.FINDING) == set()
    assert (result.exit_code, "was deleted or moved" in message(result, "gone-meanwhile")) == (0, True)


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
    assert (partition.next_start, partition.log_end.offset, partition.log_end.known_by) == (
        None,
        8334,
        "the end of the last segment",
    )
    assert {boundary.at_next_start for boundary in partition.boundaries} == {None}
    assert [each.next_base_offset for each in partition.blocked] == [687]


def test_an_empty_log_directory_is_clean_and_a_wrong_path_is_not(tmp_path: Path) -> None:
    result = scanned(tmp_path)
    assert (result.partitions, result.exit_code, [finding.code for finding in result.findings]) == ((), 1, ["nothing-found"])
    (tmp_path / "meta.properties").write_text("version=0\n")
    result = scanned(tmp_path)
    assert (result.partitions, result.exit_code, result.totals.partitions) == ((), 0, 0)
