"""Preflight: what becomes of each rolled segment, what a leader tries next, and what is known of the last stable offset."""

import shutil
from itertools import pairwise, product
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, remove_snapshots, snapshot_name, truth
from manifests import FIXTURES, bundled
from plans import make_plan
from scan_results import preflighted, rolled_segments
from sentences import NEXT_ATTEMPT, NOTHING_UPLOADED_BEFORE, OF_A_CLEAN_STOP

from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_result import PartitionScan
from snaprebuild.snapshots.scan.upload_attempts import copy_outcomes, ways_to_stop
from snaprebuild.snapshots.scan.upload_preflight import Blocker, NextAttempt
from snaprebuild.snapshots.source.source import open_source

BASES = (0, 583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390, 7045, 7637)
"""Base offsets of mixed-0 of kafka27-mixed; its log end is 8231."""

OPEN_FROM = 6913
"""A transaction hangs there: brokers of 3.6.2, 3.9.2 and 4.3.1 uploaded the twelve segments below it, after a rebuild, and no more."""

NOW_MS = 1_795_270_000_000
NULL_POINTER, ILLEGAL = "java.lang.NullPointerException", "java.lang.IllegalArgumentException"
UNTIL, FROM, ALL = "3.6.0 to 3.7.0", "3.7.1 to 4.4", "3.6.0 to 4.4"


def stable_at(offset: int) -> int:
    """The last stable offset as Kafka's own classes had it at a boundary."""
    opened = [entry.current_txn_first_offset for entry in truth("kafka27-mixed", "mixed-0")[offset]]
    return min((first for first in opened if first >= 0), default=offset)


def attempt(partition: PartitionScan) -> NextAttempt:
    assert partition.preflight.next_attempt is not None
    return partition.preflight.next_attempt


def outcomes(partition: PartitionScan) -> list[tuple[str, str | None, bool]]:
    return [(each.versions, each.exception, each.announces) for each in attempt(partition).outcomes]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """mixed-0 of 2.7.2 after a clean stop; 12 snapshots are missing."""
    return copy_of("kafka27-mixed", tmp_path) / "mixed-0"


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the log directory with mixed-0 rebuilt."""
    logs = copy_of("kafka27-mixed", tmp_path_factory.mktemp("rebuilt"))
    rebuild(make_plan(RebuildRequest((str(logs / "mixed-0"),), as_of_ms=NOW_MS)), Run(jobs=1))
    return logs


@pytest.fixture
def whole(rebuilt: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(rebuilt, tmp_path / "whole")) / "mixed-0"


def test_a_directory_of_two_seven(mixed: Path) -> None:
    partition = preflighted(mixed)
    assert rolled_segments(partition) == [(0, 6390, "blocked"), (6390, 7637, "waits")]
    first = partition.preflight.rolled_segments[0]
    assert (first.segments, first.blockers) == (12, (Blocker.MISSING_SNAPSHOT,))
    assert first.size_bytes == sum((mixed / f"{base:020d}.log").stat().st_size for base in BASES[:12])
    assert (attempt(partition).base_offset, attempt(partition).next_base_offset, attempt(partition).fails) == (0, 583, True)
    # Seen on 3.6.2 (no record in __remote_log_metadata), and on 3.9.2 and 4.3.1 (one more with each exception).
    assert outcomes(partition) == [(UNTIL, NULL_POINTER, False), (FROM, NULL_POINTER, True)]
    logged = 'Cannot invoke "java.io.File.toPath()" because "producerStateSnapshotFile" is null'
    assert [each.message for each in attempt(partition).outcomes] == [None, logged]
    bound = partition.preflight.bound
    assert (bound.exact, bound.at_least, bound.source) == (OPEN_FROM, OPEN_FROM, OF_A_CLEAN_STOP)


def test_after_the_rebuild_it_goes_up_as_far_as_brokers_went(whole: Path) -> None:
    partition = preflighted(whole)
    assert rolled_segments(partition) == [(0, 6390, "uploadable"), (6390, 7637, "waits")]
    assert outcomes(partition) == [(ALL, None, True)]
    assert not attempt(partition).fails
    assert sum(run.segments for run in partition.preflight.rolled_segments) == 14


def test_one_that_is_missing_in_the_middle(whole: Path) -> None:
    (whole / snapshot_name(2596)).unlink()
    partition = preflighted(whole)
    assert rolled_segments(partition) == [
        (0, 2181, "uploadable"),
        (2181, 2596, "blocked"),
        (2596, 6390, "after-blocked"),
        (6390, 7637, "waits"),
    ]
    # A leader that uploaded nothing yet begins at the first one, and reaches this one after those of 0, 583, 1151 and 1662.
    assert (attempt(partition).base_offset, attempt(partition).fails, attempt(partition).uploads_before) == (2181, True, 4)
    assert attempt(partition).assumes == (NOTHING_UPLOADED_BEFORE,)
    assert f"{NEXT_ATTEMPT}2181 of mixed-0 after 4 uploads." in snaprebuild("scan", whole).stdout
    (document,) = in_json("scan", whole).document["partitions"]
    assert document["upload"]["next_attempt"]["uploads_before"] == 4
    (whole.parent / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 0\n")  # as where remote storage is on
    partition = preflighted(whole)
    assert partition.source.is_tiered
    assert (attempt(partition).base_offset, attempt(partition).fails, attempt(partition).uploads_before) == (2181, True, 0)
    assert attempt(partition).assumes == ("remote storage is on: everything below was uploaded before, and this was not",)


@pytest.mark.parametrize("data", [b"", EMPTY_SNAPSHOT], ids=["corrupt", "false empty"])
def test_a_bad_snapshot_stops_nothing_and_is_reported(whole: Path, data: bytes) -> None:
    (whole / snapshot_name(583)).write_bytes(data)
    partition = preflighted(whole)
    assert rolled_segments(partition)[0] == (0, 583, "uploadable-with-bad-snapshot")
    assert rolled_segments(partition)[1] == (583, 6390, "uploadable")
    assert outcomes(partition) == [(ALL, None, True)]


def test_without_any_snapshot_the_broker_writes_empty_ones_and_nothing_is_known(mixed: Path) -> None:
    """The trap that was seen on 4.3.1: after a start without any snapshot it uploads beyond the last stable offset."""
    remove_snapshots(mixed)
    partition = preflighted(mixed)
    assert rolled_segments(partition) == [(0, 6390, "blocked"), (6390, 7637, "after-blocked")]
    bound = partition.preflight.bound
    assert (bound.exact, bound.at_least, bound.source) == (None, 0, None)
    assert attempt(partition).assumes == (
        NOTHING_UPLOADED_BEFORE,
        "it is below the last stable offset, which these files do not show",
    )


def test_what_the_high_watermark_holds_back(whole: Path) -> None:
    (whole.parent / "replication-offset-checkpoint").write_text("0\n1\nmixed 0 1662\n")
    partition = preflighted(whole)
    bound = partition.preflight.bound
    # A transaction that ended after 1662 is not known to be replicated, so that those that were open there count.
    seen = stable_at(1662)
    assert seen < 1662
    assert (bound.exact, bound.at_least, bound.at_most) == (None, seen, 1662)
    certain = max(base for base in BASES if base <= seen)
    expected = [(0, certain, "uploadable"), (certain, 1662, "not-known"), (1662, 7637, "waits")]
    assert rolled_segments(partition) == [run for run in expected if run[0] != run[1]]
    (whole.parent / "replication-offset-checkpoint").write_text("0\n1\nmixed 0 582\n")
    partition = preflighted(whole)
    assert rolled_segments(partition) == [(0, 7637, "waits")]
    assert partition.preflight.next_attempt is None


def test_after_a_crash_the_last_stable_offset_is_known_from_below(whole: Path) -> None:
    (whole.parent / ".kafka_cleanshutdown").unlink()
    (whole / snapshot_name(8231)).unlink()
    partition = preflighted(whole)
    bound = partition.preflight.bound
    # The newest snapshot of a segment knows of the transaction from 6913 on.
    assert (bound.exact, bound.at_least, bound.source) == (None, OPEN_FROM, "the snapshot at 7637, below the high watermark")
    assert rolled_segments(partition) == [(0, 6390, "uploadable"), (6390, 7637, "not-known")]
    for offset in (7637, 7045, 6390):
        (whole / snapshot_name(offset)).write_bytes(b"")
    assert preflighted(whole).preflight.bound.at_least == stable_at(5821)


def test_a_blocked_one_above_the_last_stable_offset_is_not_tried(whole: Path) -> None:
    """It waits first; the ones below go up."""
    (whole / snapshot_name(7637)).unlink()
    partition = preflighted(whole)
    assert rolled_segments(partition)[0] == (0, 6390, "uploadable")
    assert (attempt(partition).base_offset, attempt(partition).fails, attempt(partition).uploads_before) == (0, False, 0)


def test_segments_without_leader_epochs(whole: Path) -> None:
    epochs = whole / "leader-epoch-checkpoint"
    epochs.write_text("0\n1\n0 1151\n")
    partition = preflighted(whole)
    assert rolled_segments(partition)[0] == (0, 1151, "blocked")
    assert outcomes(partition) == [(ALL, ILLEGAL, False)]
    (whole / snapshot_name(583)).unlink()
    assert outcomes(preflighted(whole)) == [(UNTIL, NULL_POINTER, False), (FROM, ILLEGAL, False)]


def test_a_snapshot_that_is_no_file_is_none(whole: Path) -> None:
    (whole / snapshot_name(583)).unlink()
    (whole / snapshot_name(583)).mkdir()
    assert outcomes(preflighted(whole)) == [(UNTIL, NULL_POINTER, False), (FROM, NULL_POINTER, True)]


@pytest.mark.parametrize("fixture", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_every_rolled_segment_is_reported_once(fixture: str) -> None:
    """In order and without holes, with all bytes; the table and the document say it."""
    if not any((bundled(fixture)).rglob("*.log")):
        assert fixture in ("aiven-layout", "kraft-leftover-registrations", "kraft-unknown-contents", "tiered-contradictions")
        return
    for partition in scan_source(open_source([str(bundled(fixture))])).partitions:
        segments = partition.source.directory.segments
        rolled = [
            (segment.base_offset, following.base_offset, segment.size_bytes)
            for segment, following in pairwise(segments)
            if following.base_offset > partition.source.log_start_offset and partition.source.can_be_tiered
        ]
        found = partition.preflight.rolled_segments
        assert sum(run.segments for run in found) == len(rolled)
        assert sum(run.size_bytes for run in found) == sum(size for *_, size in rolled)
        assert [run.base_offset for run in found][:1] == [base for base, *_ in rolled][:1]
        assert all(one.next_base_offset == other.base_offset for one, other in pairwise(found))
        assert sum(run.segments for run in found if run.blockers) == len(partition.blocked_segments)


def test_the_document_shows_what_stops_the_attempts(mixed: Path) -> None:
    document = in_json("scan", mixed).document
    (partition,) = document["partitions"]
    assert partition["upload"]["next_attempt"]["outcomes"][0] == {
        "versions": UNTIL,
        "exception": NULL_POINTER,
        "message": None,
        "thrown_in": "ProducerStateManager.fetchSnapshot",
        "announces": False,
    }
    assert [run["state"] for run in partition["upload"]["rolled_segments"]] == ["blocked", "waits"]
    assert document["upload_attempts"]["ways_to_stop"][0]["setting"] == "topic: remote.log.copy.disable=true"
    assert any("remote.copy.lag.ms" in each for each in document["upload_attempts"]["not_looked_at"])


def test_the_table_shows_it_in_words(mixed: Path) -> None:
    reported = snaprebuild("scan", mixed.parent, "-v").stdout
    assert f"    {NEXT_ATTEMPT}0 of mixed-0.\n      3.6.0 to 3.7.0: NullPointerException" in reported
    assert "To stop the attempts until the restart: set remote.log.copy.disable=true for the topic (3.9 and" in reported
    assert f"  2 rolled segments, 6390 to 7637: waits\n  last stable offset: 6913, by {OF_A_CLEAN_STOP}\n" in reported
    shutil.copytree(FIXTURES / "kafka4-mixed" / "logs", mixed.parent.parent / "healthy")
    assert "next attempt" not in snaprebuild("scan", mixed.parent.parent / "healthy").stdout


# --- what becomes of an attempt, by what brokers logged, in the order in which the code throws --------------------------------------

# Has a snapshot, has leader epochs, is too large: then what 3.6.2 and what 3.9.2 and 4.3.1 do, with whether a STARTED record is left.
# Without a snapshot: seen (22 exceptions of 3.6.2 and no such record; 13 of 3.9.2 and 13 records). Without epochs: the constructor of the
# record throws, which happens before the record is sent, and since 3.7.1 before the missing file is looked at.
TABLE = {
    (True, True, False): (None, True, None, True),
    (False, True, False): (NULL_POINTER, False, NULL_POINTER, True),
    (True, False, False): (ILLEGAL, False, ILLEGAL, False),
    (False, False, False): (NULL_POINTER, False, ILLEGAL, False),
}
TOO_LARGE = ("org.apache.kafka.common.KafkaException", False, "org.apache.kafka.common.KafkaException", False)


@pytest.mark.parametrize("case", list(product((True, False), repeat=3)), ids=str)
def test_an_attempt_in_each_case(case: tuple[bool, bool, bool]) -> None:
    has_snapshot, has_leader_epochs, is_too_large = case
    found = copy_outcomes(has_snapshot=has_snapshot, has_leader_epochs=has_leader_epochs, is_too_large=is_too_large)
    assert [each.versions for each in found] in (["3.6.0 to 4.4"], ["3.6.0 to 3.7.0", "3.7.1 to 4.4"])
    old, new = found[0], found[-1]
    expected = TOO_LARGE if is_too_large else TABLE[case]
    assert (old.exception, old.announces, new.exception, new.announces) == expected
    for outcome in found:
        assert (outcome.thrown_in is None) == (outcome.exception is None)


def test_the_best_way_to_stop_comes_first() -> None:
    first, *others = ways_to_stop()
    assert first.setting == "topic: remote.log.copy.disable=true"
    assert any("DELETES" in each.effect for each in others), "the one that costs data says so"
