"""Verifying, in this process: workers or none, every bundled partition, and faults that are reported and stop nothing."""

import os
import stat
from pathlib import Path

import pytest
from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, make_log_dir, snapshot_bytes, snapshot_name, write_partition
from manifests import FIXTURES, PartitionFixture
from other_process import live_broker
from sentences import BELOW_LOG_START, BELOW_SNAPSHOT, RETRY_OF_SEQUENCE

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine import crosscheck, schedule
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.boundary_needs import boundary_needs
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import VerifyResult, verify
from snaprebuild.storage import log_dir

CLOCK = Clock(1_795_261_244_275, 86_400_000)


def verified(path: object, jobs: int = 1, **options: object) -> VerifyResult:
    return verify(open_source([str(path)]), Run(clock=CLOCK, jobs=jobs), **options)  # type: ignore[arg-type]


def test_what_is_missing_in_every_bundled_partition(partition_fixture: PartitionFixture) -> None:
    (verdict,) = verified(partition_fixture.directory).partitions
    present = {int(path.stem) for path in partition_fixture.directory.glob("*.snapshot")}
    assert [each.offset for each in verdict.outcome.snapshots] == sorted(present)
    absent = {each.snapshot_offset for each in partition_fixture.segments} - present
    assert set(verdict.missing) <= absent
    needs = boundary_needs(verdict.source, max(each.snapshot_offset for each in partition_fixture.segments))
    assert verdict.needs == needs
    assert not any(each.comparison.proven_wrong for each in verdict.outcome.snapshots)
    assert (
        verdict.outcome.read_bytes == sum(part.bytes for part in partition_fixture.segments)
        or partition_fixture.fixture == "damaged"
    )


def test_states_are_composed_only_where_a_snapshot_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log with transactions, aborted ones among them: their indexes are judged without."""
    partition = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    kept = sorted(partition.glob("*.snapshot"))[3]
    for path in set(partition.glob("*.snapshot")) - {kept}:
        path.unlink()
    composed, total = [], RunningEffect.total
    monkeypatch.setattr(RunningEffect, "total", lambda running: composed.append(running) or total(running))
    (verdict,) = verified(partition).partitions
    assert [each.offset for each in verdict.outcome.snapshots] == [int(kept.stem)]
    assert verdict.outcome.snapshots[0].comparison.status.value == "equal"
    assert len(verdict.missing) > 5
    assert len(set(map(id, composed))) == 1
    assert not verdict.findings


def test_workers_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one = verified(FIXTURES / "kafka27-compacted")
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    two = verified(FIXTURES / "kafka27-compacted", jobs=2)
    assert [(p.outcome.snapshots, p.missing, p.findings) for p in one.partitions] == [
        (p.outcome.snapshots, p.missing, p.findings) for p in two.partitions
    ]
    assert sum(len(partition.outcome.snapshots) for partition in two.partitions) == 12


def test_a_snapshot_at_the_first_offset_is_judged_by_none(tmp_path: Path) -> None:
    """Nothing can prove or contradict its entries of deleted data. Impossible entries are another matter."""
    partition = write_partition(make_log_dir(tmp_path / "logs") / "t-0", {10: batch(10, producer_id=7, timestamp=CLOCK.as_of_ms)})
    entry = ProducerEntry(9, 0, 4, 8, 4, CLOCK.as_of_ms)
    for entries, status in (((entry,), "unverifiable"), ((), "unverifiable"), ((ProducerEntry(9, 0, 4, 10, 4, 5),), "corrupt")):
        (partition / snapshot_name(10)).write_bytes(snapshot_bytes(entries))
        (verdict,) = verified(partition).partitions
        (snapshot,) = verdict.outcome.snapshots
        assert snapshot.comparison.status.value == status
        assert snapshot.snapshot_class is None


def test_a_snapshot_that_cannot_be_read_is_no_corrupt_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    stray = logs / "mixed-0" / snapshot_name(600)
    stray.write_bytes(EMPTY_SNAPSHOT)
    unreadable = {str(stray), str(logs / "mixed-0" / snapshot_name(7045))}
    opened = log_dir.os.open

    def open_some(path: str, *arguments: object, **named: object) -> int:
        if path in unreadable:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(log_dir.os, "open", open_some)
    result = verified(logs)
    assert exit_code_of(result.findings) == 5
    assert {finding.path for finding in result.findings} == unreadable
    (mixed,) = [each for each in result.partitions if each.source.directory.topic_partition == "mixed-0"]
    assert {each.offset: each.comparison.status.value for each in mixed.outcome.snapshots} == {7637: "equal", 8231: "equal"}


def test_a_segment_that_vanishes(tmp_path: Path) -> None:
    """The partition is listed again, and what is there now is judged: a log with a gap."""
    logs = copy_of("kafka4-mixed", tmp_path)
    source = open_source([str(logs)])
    (logs / "mixed-0" / f"{2430:020d}.log").unlink()
    result = verify(source, Run(clock=CLOCK, jobs=1))
    assert exit_code_of(result.findings) == 1
    assert [(finding.code, finding.offset) for finding in result.findings] == [("unsound-boundary", 3017)]
    by_name = {each.source.directory.topic_partition: each for each in result.partitions}
    statuses = {each.offset: each.comparison.status.value for each in by_name["mixed-0"].outcome.snapshots}
    assert all(status == ("equal" if offset <= 2430 else "unverifiable") for offset, status in statuses.items())
    assert len(statuses) == 15
    assert {each.comparison.status.value for each in by_name["logappend-0"].outcome.snapshots} == {"equal"}


def test_partitions_without_a_segment(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    (logs / "none-0").mkdir()
    irregular = logs / "odd-0"
    irregular.mkdir()
    (irregular / f"{0:020d}.log").mkdir()
    (irregular / snapshot_name(0)).write_bytes(EMPTY_SNAPSHOT)
    result = verified(logs)
    assert exit_code_of(result.findings) == 5
    assert [finding.path for finding in result.findings] == [str(irregular / f"{0:020d}.log")]


# --- limits ----------------------------------------------------------------------------------------------------------------


def test_a_run_lists_the_first_differences_and_counts_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three partitions of four producers each, two of them not in the snapshots: six differences, of which five may be listed."""
    monkeypatch.setattr(crosscheck, "DIFFERENCES_OF_A_RUN_MAX", 5)
    logs = make_log_dir(tmp_path / "logs")
    entries = [ProducerEntry(producer, 0, 0, producer, 0, CLOCK.as_of_ms) for producer in range(4)]
    data = b"".join(batch(producer, producer_id=producer, timestamp=CLOCK.as_of_ms) for producer in range(4))
    for number in range(3):
        partition = write_partition(logs / f"t-{number}", {0: data})
        (partition / snapshot_name(4)).write_bytes(snapshot_bytes(entries[2:]))
    result = verified(logs)
    comparisons = [partition.outcome.snapshots[0].comparison for partition in result.partitions]
    assert [[each.producer_id for each in comparison.differences] for comparison in comparisons] == [[0, 1], [0, 1], [0]]
    assert {(comparison.difference_count, comparison.certain_count) for comparison in comparisons} == {(2, 2)}
    assert result.differences_not_listed == 1
    wrong = [finding.message for finding in result.findings if finding.code == "wrong-snapshot"]
    assert len(wrong) == 3
    assert all(f"producer 0: {RETRY_OF_SEQUENCE}0" in message for message in wrong), "told whether it is listed or not"


# --- a log that ends below its snapshots -----------------------------------------------------------------------------------


def shortened(root: Path, *, clean: bool = True) -> Path:
    """A log that ended at 8231, where its snapshot is, without its last segment, which began at 7637."""
    logs = copy_of("kafka27-mixed", root)
    if not clean:
        (logs / ".kafka_cleanshutdown").unlink()
    for path in (logs / "mixed-0").glob(f"{7637:020d}.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    return logs


def test_a_log_that_lost_its_tail(tmp_path: Path) -> None:
    result = verified(shortened(tmp_path))
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.offset) == ("snapshot-above-log-end", Severity.FINDING, 8231)
    assert f"the log ends at 7637, {BELOW_SNAPSHOT}8231: the log lost its tail" in finding.message
    (mixed,) = [each for each in result.partitions if each.source.directory.topic_partition == "mixed-0"]
    verdicts = {each.offset: each.comparison for each in mixed.outcome.snapshots}
    assert verdicts[7637].status.value == "equal", "at the log end itself there is nothing to say"
    assert (verdicts[8231].status.value, verdicts[8231].reason) == ("unverifiable", "is above the log end 7637")


def test_a_crashed_broker_may_leave_a_snapshot_above_its_log_end(tmp_path: Path) -> None:
    """Segments are synced after the snapshot, if at all."""
    (finding,) = verified(shortened(tmp_path, clean=False)).findings
    assert (finding.code, finding.severity) == ("snapshot-above-log-end", Severity.NOTE)
    assert "its broker did not stop cleanly" in finding.message


def test_a_running_broker_may_have_changed_the_log_below_a_snapshot(tmp_path: Path) -> None:
    """It has no marker of a clean stop, and did not crash."""
    logs = shortened(tmp_path, clean=False)
    with live_broker(logs):
        (finding,) = [each for each in verified(logs).findings if each.code == "snapshot-above-log-end"]
    assert finding.severity is Severity.NOTE
    assert "its broker runs" in finding.message


def test_a_log_that_ends_below_its_log_start(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    for start, is_clean, high_watermark, severity in (
        (8231, True, 8231, None),
        (8232, True, 8231, Severity.DAMAGED),
        (8232, False, 8231, Severity.DAMAGED),
        (8232, False, 8232, Severity.NOTE),
    ):
        (logs / "replication-offset-checkpoint").write_text(f"0\n1\nmixed 0 {high_watermark}\n")
        (logs / "log-start-offset-checkpoint").write_text(f"0\n1\nmixed 0 {start}\n")
        if not is_clean:
            (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        found = [each for each in verified(logs).findings if each.code == "log-start-above-log-end"]
        assert [each.severity for each in found] == ([] if severity is None else [severity])
        assert all((each.offset, Path(each.path).name) == (8232, "mixed-0") for each in found)
        assert all(f"the log ends at 8231, {BELOW_LOG_START}8232" in each.message for each in found)


def test_several_snapshots_above_the_log_end(tmp_path: Path) -> None:
    """Nothing shows how the broker of a bare copy stopped; without any segment everything is gone."""
    partition = tmp_path / "t-0"
    write_partition(partition, {0: batch(0, producer_id=7, timestamp=CLOCK.as_of_ms)})
    for offset in (1, 5, 9):
        (partition / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    result = verified(partition)
    assert {finding.code for finding in result.findings} == {"wrong-snapshot", "snapshot-above-log-end"}
    (finding,) = [each for each in result.findings if each.code == "snapshot-above-log-end"]
    assert f"the log ends at 1, {BELOW_SNAPSHOT}9 and 1 more" in finding.message
    assert finding.severity is Severity.FINDING
    selected = verified(partition, selection=Selection(offset_to=5)).findings
    assert f"{BELOW_SNAPSHOT}5:" in next(each.message for each in selected if each.code == finding.code)
    assert all(each.code != finding.code for each in verified(partition, selection=Selection(offset_to=4)).findings)
    (partition / f"{0:020d}.log").unlink()
    (finding,) = verified(partition).findings
    assert f"the log ends at 0, {BELOW_SNAPSHOT}9 and 2 more" in finding.message


def test_progress_and_selection() -> None:
    reported: list[tuple[str, int]] = []
    result = verified(
        FIXTURES / "kafka27-mixed" / "logs" / "mixed-0",
        selection=Selection(offset_to=7045),
        progress=lambda name, size_bytes: reported.append((name, size_bytes)),
    )
    assert [each.offset for each in result.partitions[0].outcome.snapshots] == [7045]
    assert {name for name, _ in reported} == {"mixed-0"}
    sizes = [path.stat().st_size for path in sorted((FIXTURES / "kafka27-mixed" / "logs" / "mixed-0").glob("*.log"))]
    assert [size for _, size in reported] == sizes


def test_progress_of_segments_that_are_cut() -> None:
    reported: list[int] = []
    directory = FIXTURES / "kafka27-compacted" / "logs" / "compacted-0"
    verified(directory, progress=lambda _, size_bytes: reported.append(size_bytes))
    assert len(reported) > 10
    assert sum(reported) == sum(path.stat().st_size for path in directory.glob("*.log"))


@pytest.mark.parametrize("kind", ["pipe", "link", "socket", "directory"])
def test_what_is_no_file_under_the_name_of_a_snapshot(kind: str, tmp_path: Path) -> None:
    """Named as `scan` names it. Without it, the result would be as if the snapshot were not there."""
    logs = copy_of("kafka4-mixed", tmp_path)
    path = sorted((logs / "mixed-0").glob("*.snapshot"))[1]
    path.unlink()
    make = {
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("/dev/null"),
        "socket": lambda: os.mknod(path, stat.S_IFSOCK | 0o600),
        "directory": path.mkdir,
    }
    make[kind]()
    run = snaprebuild("verify", logs)
    assert run.exit_code == 1
    assert f"{path}: is not a regular file" in run.stderr
    assert "not-a-regular-file" not in snaprebuild("verify", FIXTURES / "kafka4-mixed").stderr
