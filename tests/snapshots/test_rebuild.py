"""Rebuilding, in this process: workers give the bytes that one process gives, evidence decides, and nothing moves meanwhile unseen."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from log_dirs import (
    EMPTY_SNAPSHOT,
    all_bytes,
    batch,
    copy_of,
    make_log_dir,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    truth,
    write_partition,
)
from manifests import FIXTURES, bundled, partition_fixtures
from plans import planned

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.errors import BusyError, ReadFailedError
from snaprebuild.findings import Finding, Severity, exit_code_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.destination import rebuilt_snapshot
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.snapshots.destination.rebuilt_snapshot import RebuiltSnapshot
from snaprebuild.snapshots.destination.snapshot_writers import OutWriter
from snaprebuild.snapshots.engine import schedule, worker_pool
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_each, read_segment
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildOutcome, RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.rebuild.task import WRITERS, RebuildJob, RebuildTask
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local import publish, record_lock
from snaprebuild.storage.local import store as local_store
from snaprebuild.storage.local.broker_lock import lock_holder

BUNDLED = sorted({each.fixture for each in partition_fixtures()})


SAME_NAMES = {"tiered-local", "txn-state4", "kafka4-compacted", "kafka4-mixed", "kraft-metadata-moved"}


def rebuilt(*paths: object, jobs: int | None = 1, **options: object) -> RebuildResult:
    return rebuild(planned(*paths, **options), Run(jobs=jobs))


def test_workers_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bundled directories at once, which are fifty partitions, by one process and by really used workers."""
    # Those with the same partition names would go to other places, which makes no difference here.
    paths = [bundled(fixture) for fixture in BUNDLED if fixture not in SAME_NAMES]
    options = {"boundaries": "all", "replay_from": "log-start"}
    one = rebuilt(*paths, out=str(tmp_path / "one"), **options)
    pools = []
    pool = worker_pool.ProcessPoolExecutor

    def counted(*arguments: object, **named: object) -> object:
        pools.append(arguments)
        return pool(*arguments, **named)

    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(worker_pool, "ProcessPoolExecutor", counted)
    two = rebuilt(*paths, out=str(tmp_path / "two"), jobs=2, **options)
    assert pools == [(2,)]
    assert all_bytes(tmp_path / "one") == all_bytes(tmp_path / "two")
    assert len(all_bytes(tmp_path / "two")) > 60
    reported = [
        [
            (each.offset, each.action, each.snapshot_class, each.reasons)
            for partition in result.partitions
            for each in partition.boundaries
        ]
        for result in (one, two)
    ]
    assert reported[0] == reported[1]
    assert [finding.code for finding in one.findings] == [finding.code for finding in two.findings]


def test_a_segment_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boundaries below it are written, the finding names the file, and no other partition is affected."""
    logs = copy_of("kafka27-mixed", tmp_path)
    bad = str(logs / "mixed-0" / f"{2181:020d}.log")

    def fails_at_2181(task: ReadTask) -> tuple[SegmentSummary, ...]:
        if task.path == bad:
            raise ReadFailedError("Input/output error", path=bad)
        return read_segment(task)

    monkeypatch.setattr(schedule, "read_group", partial(read_each, fails_at_2181))
    result = rebuilt(logs)
    assert exit_code_of(result.findings) == 5
    assert [(each.code, each.path) for each in result.findings if each.severity is Severity.STORAGE] == [("storage-failed", bad)]
    expected = truth("kafka27-mixed", "mixed-0")
    left = (7045, 7637, 8231)
    assert snapshots_in(logs / "mixed-0") == {offset: expected[offset] for offset in expected if offset <= 2181 or offset in left}
    assert snapshots_in(logs / "logappend-0") == truth("kafka27-mixed", "logappend-0")


# --- another run writes the same file -----------------------------------------------------------------------------------------


class OtherRun:
    """Another run in the middle of a file: it has the lock, and a few bytes are written.

    Args:
        out: directory of the partition.
        data: what it writes for the boundary 583.
    """

    def __init__(self, out: Path, data: bytes) -> None:
        out.mkdir(parents=True)
        self.path = out / f"{snapshot_name(583)}.tmp"
        self.data = data
        self.file = self.path.open("xb", buffering=0)
        record_lock.take(self.file.fileno())
        self.file.write(data[:7])

    def end(self, how: str) -> None:
        """It is done, or killed."""
        self.file.write(self.data[7:])
        if how == "done":
            self.path.rename(self.path.with_suffix(""))
        self.file.close()


def ends_when_met(other: OtherRun, how: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The other run ends the first time that ours has to wait. Returns the names that were waited for."""
    met: list[str] = []
    create = local_store.create_file

    def creating(directory: str, name: str, *arguments: object, **named: object) -> None:
        try:
            create(directory, name, *arguments, **named)  # type: ignore[arg-type]
        except BusyError:
            if not met:
                other.end(how)
            met.append(name)
            raise

    monkeypatch.setattr(local_store, "create_file", creating)
    return met


MIXED = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"


@pytest.mark.parametrize(
    ("written", "ends", "action", "code"),
    [("same", "done", "equal", 0), ("other", "done", "kept", 1), ("same", "killed", "written", 0)],
)
def test_another_run_writes_the_same_file(
    written: str, ends: str, action: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, and what it leaves is compared; where it is killed, the file is ours to write."""
    right = truth("kafka27-mixed", "mixed-0")[583]
    data = snapshot_bytes(sorted(right, key=lambda entry: -entry.producer_id)) if written == "same" else EMPTY_SNAPSHOT
    met = ends_when_met(OtherRun(tmp_path / "out" / "mixed-0", data), ends, monkeypatch)
    result = rebuilt(MIXED, out=str(tmp_path / "out"), boundaries="all", replay_from="log-start", as_of_ms=0)
    assert set(met) == {snapshot_name(583)}
    actions = {each.offset: each.action for each in result.partitions[0].boundaries}
    assert actions.pop(583) == action
    assert set(actions.values()) == {"written"}
    assert exit_code_of(result.findings) == code
    found = snapshots_in(tmp_path / "out" / "mixed-0")
    assert found[583] == (right if written == "same" else frozenset())
    assert not list(tmp_path.rglob("*.tmp"))


def test_another_run_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is waited for so long and no longer; all others are written."""
    monkeypatch.setattr(rebuilt_snapshot, "BUSY_SECONDS_MAX", 0.3)
    other = OtherRun(tmp_path / "out" / "mixed-0", b"never to be whole")
    result = rebuilt(MIXED, out=str(tmp_path / "out"), boundaries="all", replay_from="log-start", as_of_ms=0)
    actions = {each.offset: each.action for each in result.partitions[0].boundaries}
    assert actions.pop(583) == "failed"
    assert set(actions.values()) == {"written"}
    assert [finding.code for finding in result.findings if finding.severity is Severity.STORAGE] == ["storage-failed"]
    assert "another run writes this file now" in result.findings[0].message
    assert other.path.read_bytes() == b"never t"
    other.file.close()


# --- evidence --------------------------------------------------------------------------------------------------------------


BEGUN_SECONDS_MAX = 120.0
"""A busy machine may start a thread late."""


def test_an_interrupt_leaves_no_writer_without_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written in threads, which an interrupt does not reach: they end first, then the log directory is let go."""
    logs = copy_of("kafka27-mixed", tmp_path)
    held = []
    has_begun = threading.Event()
    create = local_store.create_file

    def slow(*arguments: object, **named: object) -> None:
        has_begun.set()
        time.sleep(0.2)
        held.append(lock_holder(logs))
        create(*arguments, **named)  # type: ignore[arg-type]

    def interrupt(result: object, size_bytes: int) -> None:
        assert has_begun.wait(BEGUN_SECONDS_MAX)
        raise KeyboardInterrupt

    monkeypatch.setattr(local_store, "create_file", slow)
    with pytest.raises(KeyboardInterrupt):
        rebuild(planned(logs), Run(jobs=1), progress=interrupt)
    assert held
    assert None not in held
    assert lock_holder(logs) is None


def test_an_epoch_that_went_down_is_not_proven(tmp_path: Path) -> None:
    """Kafka's own two replay paths may differ there; --allow-unproven writes what the fold batch by batch gives."""
    logs = make_log_dir(tmp_path / "logs")
    first = batch(0, producer_id=7, epoch=5) + batch(1, producer_id=7, epoch=3, sequence=9)
    write_partition(logs / "t-0", {0: first, 2: batch(2, producer_id=8)})
    refused = rebuilt(logs)
    assert {each.action for each in refused.partitions[0].boundaries} == {"refused"}
    assert {finding.code for finding in refused.findings if finding.severity is not Severity.NOTE} == {"unproven-boundary"}
    assert exit_code_of(refused.findings) == 1
    rebuilt(logs, allow_unproven=True)
    assert snapshots_in(logs / "t-0") == {
        2: {ProducerEntry(7, 3, 9, 1, 0, 1000)},
        3: {ProducerEntry(7, 3, 9, 1, 0, 1000), ProducerEntry(8, 0, 0, 2, 0, 1000)},
    }


# --- while it runs ---------------------------------------------------------------------------------------------------------


def append_to_a_segment(logs: Path) -> None:
    with (logs / "mixed-0" / f"{1151:020d}.log").open("ab") as file:
        file.write(b"x")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda logs: (logs / "mixed-0" / snapshot_name(1151)).write_bytes(EMPTY_SNAPSHOT), "segments or snapshots changed"),
        (append_to_a_segment, "segments or snapshots changed"),
        # A broker ran meanwhile.
        (lambda logs: (logs / ".kafka_cleanshutdown").unlink(), "the broker's files changed"),
    ],
    ids=["snapshot", "segment", "broker"],
)
def test_what_changes_between_plan_and_lock_is_refused(change: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = planned(logs)
    change(logs)
    before = all_bytes(logs / "mixed-0")
    result = rebuild(plan, Run(jobs=1))
    assert exit_code_of(result.findings) == 3
    assert any(f"{says} since the plan was made" in finding.message for finding in result.findings)
    assert all_bytes(logs / "mixed-0") == before
    if "segments" in says:
        assert snapshots_in(logs / "logappend-0") == truth("kafka27-mixed", "logappend-0")


def test_a_snapshot_that_appears_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look under the lock and the link: the other boundaries are written all the same."""
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = planned(logs)
    monkeypatch.setattr("snaprebuild.snapshots.rebuild.run._check_unchanged", lambda _plan: None)
    (logs / "mixed-0" / snapshot_name(1151)).write_bytes(EMPTY_SNAPSHOT)
    result = rebuild(plan, Run(jobs=1))
    assert exit_code_of(result.findings) == 3
    assert any(
        finding.offset == 1151 and "appeared while the snapshot was rebuilt" in finding.message for finding in result.findings
    )
    assert snapshots_in(logs / "mixed-0") == {**truth("kafka27-mixed", "mixed-0"), 1151: frozenset()}


def test_the_lock_file_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker from 3.8 on removes the file when it stops; the next one makes another: nothing is written any more."""
    logs = copy_of("kafka27-mixed", tmp_path)
    create = publish.create_file
    written = []

    def create_and_replace(directory: object, name: str, *arguments: object, **named: object) -> None:
        create(directory, name, *arguments, **named)  # type: ignore[arg-type]
        written.append(name)
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).replace(logs / ".lock")

    monkeypatch.setattr(local_store, "create_file", create_and_replace)
    result = rebuild(planned(logs), Run(jobs=1))
    assert exit_code_of(result.findings) == 3
    assert 1 <= len(written) <= WRITERS, "those that were on their way"
    assert len(list(logs.rglob("*.snapshot"))) == 9 + len(written)


@pytest.mark.parametrize(("limit", "at_once"), [(1, {1}), (1 << 30, set(range(2, WRITERS + 1)))])
def test_states_that_wait_to_be_written_are_few_where_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, at_once: set[int]
) -> None:
    monkeypatch.setattr("snaprebuild.snapshots.rebuild.task.PENDING_BYTES_MAX", limit)
    write = OutWriter.write
    writing: set[int] = set()
    most = [0]
    is_met = threading.Event()

    def slow(writer: OutWriter, snapshot: RebuiltSnapshot) -> BoundaryResult:
        writing.add(snapshot.boundary.offset)
        most[0] = max(most[0], len(writing))
        if most[0] >= min(at_once):
            is_met.set()
        is_met.wait(120)  # a busy machine may begin the second one late
        time.sleep(0.02)
        try:
            return write(writer, snapshot)
        finally:
            writing.discard(snapshot.boundary.offset)

    monkeypatch.setattr(OutWriter, "write", slow)
    directory = write_partition(make_log_dir(tmp_path / "logs") / "t-0", {at: batch(at, producer_id=at) for at in range(30)})
    rebuilt(directory, out=str(tmp_path / "out"), boundaries="all")
    assert sorted(snapshots_in(tmp_path / "out" / "t-0")) == list(range(1, 31))
    assert most[0] in at_once


def test_owner_and_mode_follow_the_segment_that_ends_there(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / f"{583:020d}.log").chmod(0o600)
    if os.getuid() == 0:
        os.chown(logs / "mixed-0" / f"{583:020d}.log", 4711, 4712)
    rebuilt(logs)
    for offset, base in ((583, 0), (1151, 583), (1662, 1151)):
        snapshot = (logs / "mixed-0" / snapshot_name(offset)).stat()
        segment = (logs / "mixed-0" / f"{base:020d}.log").stat()
        assert (snapshot.st_mode, snapshot.st_uid, snapshot.st_gid) == (segment.st_mode, segment.st_uid, segment.st_gid)


def test_progress_is_reported_of_every_segment(tmp_path: Path) -> None:
    reported: dict[str, int] = {}

    def progress(name: str, size_bytes: int) -> None:
        reported[name] = reported.get(name, 0) + size_bytes

    plan = planned(FIXTURES / "kafka27-mixed", out=str(tmp_path), boundaries="all")
    rebuild(plan, Run(jobs=1), progress=progress)
    sizes = {name: sum(p.stat().st_size for p in (FIXTURES / "kafka27-mixed" / "logs" / name).glob("*.log")) for name in reported}
    assert reported == sizes
    assert len(reported) == 4
    assert sum(reported.values()) == plan.min_read_bytes


def test_findings_of_an_earlier_listing_stay_in_the_result_of_another_process(tmp_path: Path) -> None:
    """Snapshots that could not be written before a broker deleted a segment are not forgotten."""
    plan = planned(MIXED, out=str(tmp_path / "out"), boundaries="all")
    (partition,) = plan.partitions
    earlier, found = (Finding(code, Severity.STORAGE, "/p", "no") for code in ("storage-failed", "bad-checksum"))
    result = PartitionResult(partition, RebuildOutcome([earlier]))
    job = RebuildJob(partition, plan.request, plan.clock, True, frozenset(), None)
    with ThreadPoolExecutor(1) as writers:
        RebuildTask(job, result, writers, lambda _offset, _comparison: None).adopt(RebuildOutcome([found]))
    assert result.findings == [earlier, found]
