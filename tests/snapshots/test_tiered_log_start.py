"""A log that begins in remote storage, below its first segment on disk: its disk does not show what is between, and no one may guess.

The directories are those of a leader and of a follower that forgot its producers; Kafka's answers over the whole log are in the manifest.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from command import in_json
from log_dirs import EMPTY_SNAPSHOT, Entries, entries_in, remove_snapshots, snapshot_bytes, snapshot_name, snapshots_in, tree
from manifests import FIXTURES
from msgspec.structs import replace
from plans import make_plan
from simulated_broker import listed

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild import Origin, ReplayOptions, SnapshotClass, SnapshotRefusedError, Validity, ensure_snapshot, validate_snapshot
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayCheckpoint, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import read_segment, read_tasks
from snaprebuild.snapshots.plan.plan_request import RebuildRequest

SOURCE = FIXTURES / "follower-lost-state"
MANIFEST = json.loads((SOURCE / "manifest.json").read_text())
LATER = (508, 561, 624, 676, 727, 790, 833)
AS_OF_MS = 1_795_266_500_000
AT = ReplayOptions(as_of_ms=AS_OF_MS)
DAY_MS = 86_400_000


def kafkas(node: str) -> dict[int, Entries]:
    """Entries in the broker's own files."""
    found = MANIFEST[node]["snapshots"]
    return {int(Path(name).stem): frozenset(ProducerEntry(**entry) for entry in about["entries"]) for name, about in found.items()}


RIGHT = kafkas("leader")


@pytest.fixture
def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Path(shutil.copytree(SOURCE / "node1", tmp_path / "node1"))


def planned(leader: Path, *options: object) -> set[str]:
    """The classes that a plan holds out."""
    run = in_json("plan", leader, "--topic", "payments", *options)
    return {each["expected_class"] for each in run.partition("payments-0")["boundaries"]}


def put(path: Path, offset: int, data: bytes) -> None:
    (path / snapshot_name(offset)).write_bytes(data)


def test_without_a_proven_first_snapshot_nothing_goes_in_place(leader: Path, tmp_path: Path) -> None:
    payments = leader / "payments-0"
    remove_snapshots(payments, *LATER)
    assert planned(leader) == {"UNPROVEN"}, "no later snapshot is there that could confirm the first"
    (payments / snapshot_name(456)).rename(tmp_path / "first")
    assert planned(leader) == {"UNPROVEN"}
    assert planned(leader, "--replay-from", "log-start", "--out", tmp_path / "out") == {"EXACT_FROM_LOG_START"}
    (tmp_path / "first").rename(payments / snapshot_name(456))
    before = tree(leader)
    for verb in ("before-start", "rebuild"):
        run = in_json(verb, leader, "--topic", "payments")
        assert run.exit_code == 1, run.stderr
        assert set(tree(leader)) - set(before) <= {".lock"}
        assert set(snapshots_in(payments)) == {456}
    run = in_json("rebuild", leader, "--topic", "payments", "--replay-from", "log-start")
    assert (run.exit_code, set(snapshots_in(payments))) == (1, {456})
    out = tmp_path / "out"
    run = in_json("rebuild", leader, "--topic", "payments", "--out", out, "--replay-from", "log-start")
    assert (run.exit_code, set(snapshots_in(out / "payments-0"))) == (0, set(LATER))
    run = in_json("rebuild", leader, "--topic", "payments", "--out", tmp_path / "unproven")
    assert run.exit_code == 1
    classes = {each["class"] for each in run.partition("payments-0")["boundaries"]}
    assert classes == {"UNPROVEN"}


def test_on_a_confirmed_first_snapshot_everything_is_exact(leader: Path) -> None:
    payments = leader / "payments-0"
    remove_snapshots(payments, 508)
    assert planned(leader) == {"EXACT"}, "the best that there can be, if another one confirms the first"
    assert in_json("before-start", leader).exit_code == 0
    assert snapshots_in(payments) == RIGHT


@pytest.mark.parametrize(("gone", "asked"), [((456,), 508), (LATER, 833)])
def test_the_door_refuses_what_the_disk_does_not_prove(gone: tuple[int, ...], asked: int, leader: Path) -> None:
    payments = leader / "payments-0"
    remove_snapshots(payments, *gone)
    for mode in ("auto", "window", "log-start"):
        with pytest.raises(SnapshotRefusedError, match="it would be UNPROVEN: the log begins at 0 in remote storage") as refused:
            ensure_snapshot(payments, asked, options=dataclasses.replace(AT, replay_from=mode))
        assert "below 456" in str(refused.value)
    found = validate_snapshot(payments, snapshot_bytes(RIGHT[asked]), asked, options=AT)
    assert (found.validity, found.snapshot_class) == (Validity.UNPROVEN, SnapshotClass.UNPROVEN)


@pytest.mark.parametrize("later_ms", [0, DAY_MS + 1])
def test_a_false_empty_later_snapshot_is_no_evidence(later_ms: int, leader: Path) -> None:
    """The log contradicts it, so it does not speak against the first one: neither now, nor once its producers have expired."""
    put(leader / "payments-0", 508, EMPTY_SNAPSHOT)
    ensured = ensure_snapshot(leader / "payments-0", 561, options=dataclasses.replace(AT, as_of_ms=AS_OF_MS + later_ms))
    assert entries_in(ensured.data) == RIGHT[561]
    assert ensured.snapshot_class is SnapshotClass.EXACT


@pytest.mark.parametrize("offset", [508, 676, 833])
def test_the_door_gives_what_the_first_snapshot_proves(offset: int, leader: Path) -> None:
    payments = leader / "payments-0"
    ensured = ensure_snapshot(payments, offset, options=AT)
    assert (ensured.origin, ensured.snapshot_class) == (Origin.ON_DISK, SnapshotClass.EXACT)
    assert entries_in(ensured.data) == RIGHT[offset]
    remove_snapshots(payments, offset)
    if offset != max(LATER):
        ensured = ensure_snapshot(payments, offset, options=AT)
        assert (ensured.origin, entries_in(ensured.data)) == (Origin.REBUILT, RIGHT[offset])


@pytest.mark.parametrize("offset", sorted(set(kafkas("follower")) - {561}))
def test_a_forgetful_follower_is_not_believed(offset: int) -> None:
    """Its own files all agree with each other, and none is right."""
    payments = SOURCE / "node2" / "payments-0"
    with pytest.raises(SnapshotRefusedError, match="below 561"):
        ensure_snapshot(payments, offset, options=AT)
    own = validate_snapshot(payments, payments / snapshot_name(offset), offset, options=AT)
    assert own.validity is Validity.UNPROVEN
    right = validate_snapshot(payments, snapshot_bytes(RIGHT[offset]), offset, options=AT)
    assert right.validity is Validity.UNPROVEN


def test_the_file_of_the_broker_is_not_passed_over_for_less(leader: Path) -> None:
    """Without the files around it nothing shows that the log begins in remote storage. The file on disk knows more than the replay does."""
    (leader / "log-start-offset-checkpoint").unlink()
    payments = leader / "payments-0"
    remove_snapshots(payments, 456)
    taken = ensure_snapshot(payments, 508, options=AT)
    assert (taken.origin, taken.snapshot_class) == (Origin.ON_DISK, SnapshotClass.EXACT_FROM_LOG_START)
    assert entries_in(taken.data) == RIGHT[508]


def test_a_part_of_the_replay_knows_no_more_than_all_of_it(leader: Path) -> None:
    """A caller that replays a large partition in parts, here two, on one machine or many."""
    remove_snapshots(leader / "payments-0")
    (partition,) = make_plan(RebuildRequest(paths=(str(leader),), topics=("payments",), as_of_ms=AS_OF_MS)).partitions
    assert partition.source.remote_from == 0
    directory = listed(leader / "payments-0")
    whole = PartitionReplay(
        directory=directory,
        mode=ReplayFrom.AUTO,
        clock=Clock(AS_OF_MS, DAY_MS),
        window_index=0,
        stop_index=7,
        first_wanted=508,
        known_end=833,
        remote_from=0,
    )
    assert whole.hands_out_at_once()
    classes: dict[int, SnapshotClass] = {}
    point: ReplayCheckpoint | None = None
    for stop in (3, 7):
        part = whole.part(stop, point)
        indices = part.begin()
        for index, task in zip(indices, read_tasks(directory, indices, check_crc=True), strict=True):
            for summary in read_segment(task):
                for state in part.take(index, summary):
                    classes[state.offset] = state.judgement.snapshot_class
                    point = part.checkpoint(state)
    assert classes == dict.fromkeys(LATER, SnapshotClass.UNPROVEN)
    on_disk = replace(whole, remote_from=None).part(7, None)
    (task, *_) = read_tasks(directory, on_disk.begin()[:1], check_crc=True)
    (state,) = [state for summary in read_segment(task) for state in on_disk.take(0, summary)]
    assert state.judgement.snapshot_class is SnapshotClass.EXACT_FROM_LOG_START
