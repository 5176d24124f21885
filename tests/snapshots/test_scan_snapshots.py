"""Reports of scan about snapshots that are there: empty ones, impossible entries, damaged bytes."""

import os
from pathlib import Path

from log_dirs import EMPTY_SNAPSHOT, remove_snapshots, snapshot_bytes, snapshot_name, truth
from manifests import FIXTURES
from msgspec.structs import replace
from scan_results import BASES, DAY_MS, LEFT, LOG_END, codes, message, offsets_of, only, scanned, states

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import Severity
from snaprebuild.replay.broker_start import SnapshotOrigin
from snaprebuild.snapshots.scan.scan_result import ScanResult, SnapshotStatus

# ------------------------------------------------------------------------------------------------------------ false empties


def make_false_empties(directory: Path) -> None:
    """Writes the empty snapshots that 4.3.1 left of this log after a clean stop without any snapshot: at the last two bases and the
    log end."""
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
    # The broker sees a snapshot at the end of the last two rolled segments: they would be uploaded, with an empty one.
    assert [each.next_base_offset for each in partition.blocked_segments] == list(BASES[1:13])


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
    reported = message(scanned(healthy.parent), "suspect-snapshot")
    assert reported.count("had not expired") == 2, "they were written before the segments after them"
    for path in healthy.glob("*.timeindex"):
        path.write_bytes(b"")
    result = scanned(healthy.parent)
    assert set(suspects(result)) == {4142, 7875}
    by_offset = {boundary.offset: boundary for boundary in only(result).boundaries}
    for offset in (4142, 7875):
        assert by_offset[offset].state is SnapshotStatus.SUSPECT
        assert "which is below it" in by_offset[offset].reasons[0]


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
    assert not partition.blocked_segments
