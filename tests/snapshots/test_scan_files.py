"""Reports of scan about each thing that can be in a partition directory and should not, or is missing there."""

import os
import shutil
from pathlib import Path

import pytest
from log_dirs import EMPTY_SNAPSHOT, make_log_dir, snapshot_name, truth
from scan_results import BASES, codes, message, offsets_of, only, scanned, states
from sentences import BELOW_LOG_START

from snaprebuild.findings import Severity
from snaprebuild.replay.broker_start import SnapshotOrigin
from snaprebuild.snapshots.scan.scan_result import AtNextStart, SnapshotStatus, StraySnapshot
from snaprebuild.snapshots.scan.upload_preflight import Blocker


def test_empty_last_segment_has_its_boundary_at_its_base(healthy: Path) -> None:
    for ending in (".log", ".index", ".timeindex"):
        (healthy / f"{8334:020d}{ending}").write_bytes(b"")
    partition = only(scanned(healthy.parent))
    assert (partition.log_end.offset, partition.log_end.source) == (8334, "the last segment is empty")
    assert [boundary.offset for boundary in partition.boundaries] == list(truth("kafka4-mixed", "mixed-0"))
    assert partition.boundaries[-1].is_log_end
    assert not partition.blocked_segments


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


def test_a_rolled_segment_without_a_byte(healthy: Path) -> None:
    """Only the log cleaner leaves one in health, and the broker's last segment is empty where it has just begun."""
    for base in (4142, 7875):
        os.truncate(healthy / f"{base:020d}.log", 0)
    (finding,) = [each for each in scanned(healthy.parent).findings if each.code == "empty-segment"]
    assert (finding.severity, finding.offset) == (Severity.FINDING, 4142)
    assert finding.message.startswith("1 rolled segment without a byte (4142)")
    (healthy.parent / "cleaner-offset-checkpoint").write_text("0\n1\nmixed 0 7875\n")
    assert "empty-segment" not in codes(scanned(healthy.parent))


def test_a_log_that_ends_below_its_log_start(healthy: Path) -> None:
    """A broker deletes it: after the start nothing of it is left but an empty snapshot at the log start."""
    checkpoint = healthy.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nmixed 0 8334\n")
    assert "log-start-above-log-end" not in codes(scanned(healthy.parent)), "all records deleted, as by DeleteRecords"
    checkpoint.write_text("0\n1\nmixed 0 8335\n")
    result = scanned(healthy.parent)
    (finding,) = [each for each in result.findings if each.code == "log-start-above-log-end"]
    assert (finding.severity, finding.offset) == (Severity.DAMAGED, 8334)
    assert finding.message.startswith(f"the log ends {BELOW_LOG_START}(8334 < 8335): the start leaves an empty log")
    partition = only(result)
    assert partition.next_start is not None
    assert partition.next_start.after == ((8335, SnapshotOrigin.EMPTY),)
    (healthy.parent / ".kafka_cleanshutdown").unlink()
    (finding,) = [each for each in scanned(healthy.parent).findings if each.code == "log-start-above-log-end"]
    assert finding.severity is Severity.DAMAGED, "the same after a kill"


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
    assert (finding.severity, finding.path) == (Severity.DAMAGED, str(log_dir))
    assert finding.message.startswith(
        "a directory that is no partition (a\nb, lost+found, mixed-0.bak and 1 more): the broker does not start"
    )
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
    assert {each.base_offset: each.blockers for each in partition.blocked_segments if each.base_offset in (687, 5737)} == {
        687: (Blocker.MISSING_TIME_INDEX,),
        5737: (Blocker.MISSING_OFFSET_INDEX,),
    }
    # The recovery of 5737 drops what is above it; the broker writes the last two bases again, and 6776 stays away.
    assert [each.next_base_offset for each in partition.blocked_segments if Blocker.SNAPSHOT_REMOVED_AT_START in each.blockers] == [
        6776
    ]
    assert partition.stuck_bytes == sum((healthy / f"{base:020d}.log").stat().st_size for base in (687, *BASES_4[2:-1]))
    assert partition.stuck_bytes_after_rebuild == 0
    assert {"missing-offset-index", "missing-time-index", "removed-at-next-start"} <= codes(result, Severity.FINDING)


BASES_4 = (0, 687, 1231, 1805, 2430, 3017, 3586, 4142, 4710, 5223, 5737, 6261, 6776, 7350, 7875)


def test_segment_of_two_gibibytes_never_goes_up(healthy: Path) -> None:
    os.truncate(healthy / f"{687:020d}.log", 2**31)
    os.truncate(healthy / f"{1231:020d}.log", 2**31 - 1)
    partition = only(scanned(healthy.parent))
    assert [(each.base_offset, each.blockers) for each in partition.blocked_segments] == [(687, (Blocker.SEGMENT_TOO_LARGE,))]
    rest = sum((healthy / f"{base:020d}.log").stat().st_size for base in BASES_4[1:-1])
    assert partition.stuck_bytes == partition.stuck_bytes_after_rebuild == rest


@pytest.mark.parametrize(
    ("path", "text", "code", "blocked"),
    [
        ("mixed-0/leader-epoch-checkpoint", None, "leader-epochs-lost", 14),
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
    assert codes(result, Severity.DAMAGED) == {code}
    assert len(only(result).blocked_segments) == blocked
    assert only(result).log_end.offset == 8334
    assert (only(result).log_end.source == "the last snapshot of a clean stop") is (code == "unreadable-broker-file")


def test_boundaries_below_the_log_start_are_not_due(mixed: Path) -> None:
    (mixed.parent / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 2596\n")
    partition = only(scanned(mixed.parent))
    assert offsets_of(partition, SnapshotStatus.NOT_DUE) == [583, 1151, 1662, 2181, 2596]
    assert offsets_of(partition, SnapshotStatus.MISSING) == list(BASES[6:13])
    assert partition.blocked_segments[0].base_offset == 2596
    # A segment that ends at the log start is no candidate, whatever it lacks.
    (mixed / "leader-epoch-checkpoint").unlink()
    assert only(scanned(mixed.parent)).blocked_segments[0].base_offset == 2596


def test_snapshot_of_an_earlier_log_end_is_a_note(healthy: Path) -> None:
    shutil.copy(healthy / snapshot_name(4142), healthy / snapshot_name(4500))
    result = scanned(healthy.parent)
    assert only(result).other_snapshots == (StraySnapshot(4500, AtNextStart.REMOVED),)
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
    assert (result.exit_code, result.totals.misnamed) == (4 if "Exception" in says else 1, 1)


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
    assert [each.blockers for each in only(result).blocked_segments] == [(Blocker.IRREGULAR_SNAPSHOT,)]
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
    assert ("unreadable-by-broker" in codes(result, Severity.DAMAGED)) == (not may_read)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_snapshot_that_no_one_may_read(healthy: Path) -> None:
    (healthy / snapshot_name(687)).chmod(0)
    result = scanned(healthy.parent)
    assert codes(result, Severity.DAMAGED) == {"unreadable-by-broker"}
    assert states(only(result))[687] == "unreadable"
