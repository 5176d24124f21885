"""``ensure_snapshot``: what an uploader gets, and what it is refused."""

import errno
import itertools
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    copy_of,
    entries_in,
    flip,
    make_log_dir,
    remove_snapshots,
    snapshot_name,
    tree,
    truth,
    write_partition,
)
from manifests import FIXTURES, REPOSITORY, PartitionFixture, partition_fixtures
from plans import make_plan
from sentences import WOULD_DISTURB

import snaprebuild
from formats.limits import SEGMENT_BYTES_MAX
from snaprebuild import (
    Origin,
    Partition,
    ReadFailedError,
    ReplayOptions,
    SnapshotClass,
    SnapshotRefusedError,
    UsageError,
    ensure_snapshot,
    validate_snapshot,
)
from snaprebuild.snapshots import ensure_snapshot as ensure_snapshot_module
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.ensure_snapshot import OneBoundaryTask
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.storage import log_dir
from snaprebuild.storage.local import segment_file

EARLY = ReplayOptions(as_of_ms=0)
"""A time at which nothing had expired."""

METADATA = "__cluster_metadata-0"
"""Not a partition of a topic: the library refuses it."""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A copy of one partition of Kafka 2.7, of 15 segments."""
    return copy_of("kafka27-mixed", tmp_path) / "mixed-0"


def test_every_boundary_of_every_bundled_partition(partition_fixture: PartitionFixture) -> None:
    """Kafka's own classes say what is right. Without the files of a broker around it, as with them."""
    directory = partition_fixture.directory
    if partition_fixture.partition == METADATA:
        with pytest.raises(UsageError, match="is the metadata log of the cluster"):
            ensure_snapshot(directory, partition_fixture.segments[0].snapshot_offset)
        return
    before = tree(directory)
    for segment in partition_fixture.segments:
        if segment.snapshot_offset == 0:
            continue
        ensured = ensure_snapshot(
            directory,
            segment.snapshot_offset,
            options=replace(EARLY, replay_from="log-start", allow_unproven=True, allow_unsound=True),
        )
        assert entries_in(ensured.data) == segment.entries
        assert (ensured.offset, ensured.entries) == (segment.snapshot_offset, len(segment.entries))
        if ensured.origin is Origin.ON_DISK:
            assert ensured.path is not None
            assert Path(ensured.path).read_bytes() == ensured.data
        else:
            assert ensured.path is None
    assert tree(directory) == before


def test_the_file_on_disk_where_it_is_proven_right(tmp_path: Path) -> None:
    mixed = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    offset = sorted(truth("kafka4-mixed", "mixed-0"))[2]
    right = ensure_snapshot(mixed, offset, options=EARLY)
    assert (right.origin, right.snapshot_class) == (Origin.ON_DISK, SnapshotClass.EXACT)
    assert right.data == (mixed / snapshot_name(offset)).read_bytes()
    for wrong, said in ((EMPTY_SNAPSHOT, "false empty"), (b"torn", "expected at least 10 bytes, found 4 bytes")):
        (mixed / snapshot_name(offset)).write_bytes(wrong)
        rebuilt = ensure_snapshot(mixed, offset, options=EARLY)
        assert (rebuilt.origin, rebuilt.path) == (Origin.REBUILT, None)
        assert entries_in(rebuilt.data) == truth("kafka4-mixed", "mixed-0")[offset]
        assert rebuilt.reasons[-1].startswith("the file on disk is not taken: ")
        assert said in rebuilt.reasons[-1]


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    mixed = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    offset = min(truth("kafka4-mixed", "mixed-0"))
    path = mixed / snapshot_name(offset)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises((SnapshotRefusedError, snaprebuild.ReadFailedError)):
        ensure_snapshot(mixed, offset, options=EARLY)


def test_no_unsound_one_without_being_asked(mixed: Path) -> None:
    flip(mixed / f"{2181:020d}.log", 61 + 20)
    assert ensure_snapshot(mixed, 2181, options=EARLY).snapshot_class is SnapshotClass.EXACT
    for options in (EARLY, replace(EARLY, allow_unproven=True)):
        with pytest.raises(SnapshotRefusedError, match="it would be UNSOUND") as refused:
            ensure_snapshot(mixed, 2596, options=options)
        assert refused.value.snapshot_class == "UNSOUND"
        assert "the checksum of the batch" in refused.value.reasons[0]
        assert refused.value.read_bytes > 0
        assert refused.value.exit_code == 3
    assert ensure_snapshot(mixed, 2596, options=replace(EARLY, allow_unsound=True)).snapshot_class is SnapshotClass.UNSOUND
    assert ensure_snapshot(mixed, 2596, options=replace(EARLY, check_crc=False)).snapshot_class is SnapshotClass.EXACT


def test_nothing_above_what_a_broker_throws_at(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    poison = batch(1, producer_id=7, sequence=1)
    segments = {0: batch(0, producer_id=7, attributes=0x10), 1: poison, 2: batch(2, producer_id=8)}
    write_partition(logs / "t-0", segments)
    assert ensure_snapshot(logs / "t-0", 1).entries == 1
    with pytest.raises(SnapshotRefusedError, match="InvalidTxnStateException"):
        ensure_snapshot(logs / "t-0", 2, options=ReplayOptions(allow_unsound=True))


def test_a_limit_on_bytes(mixed: Path) -> None:
    sizes = [path.stat().st_size for path in sorted(mixed.glob("*.log"))][:3]
    offset = sorted(truth("kafka27-mixed", "mixed-0"))[2]
    whole = ensure_snapshot(mixed, offset, options=EARLY, max_bytes=sum(sizes))
    assert whole.read_bytes == sum(sizes)
    with pytest.raises(SnapshotRefusedError, match=f"{sum(sizes)} bytes .* max_bytes is {sum(sizes) - 1}") as refused:
        ensure_snapshot(mixed, offset, options=EARLY, max_bytes=sum(sizes) - 1)
    assert refused.value.read_bytes == 0
    with pytest.raises(SnapshotRefusedError, match="max_bytes is 0"):
        ensure_snapshot(mixed, 8231, max_bytes=0)


@pytest.mark.parametrize("offset", [1151, 8231])
def test_a_deadline(offset: int, mixed: Path) -> None:
    with pytest.raises(SnapshotRefusedError, match="the deadline has passed") as refused:
        ensure_snapshot(mixed, offset, timeout_s=0)
    assert refused.value.read_bytes == 0
    assert ensure_snapshot(mixed, offset, timeout_s=3600).offset == offset


def test_a_deadline_in_the_middle(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked before each block, so that no segment is read after it."""
    first = sorted(mixed.glob("*.log"))[0].stat().st_size
    ticks = itertools.chain((0.0, 0.0), itertools.repeat(math.inf))
    monkeypatch.setattr(segment_file, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with pytest.raises(SnapshotRefusedError, match="the deadline has passed") as refused:
        ensure_snapshot(mixed, 1662, options=EARLY, timeout_s=3600)
    assert first <= refused.value.read_bytes < sum(path.stat().st_size for path in mixed.glob("*.log"))


@pytest.mark.parametrize("offset", [1, 2], ids=["rolled", "log end"])
def test_a_deadline_in_a_segment_of_zeros(offset: int, tmp_path: Path) -> None:
    """Zeros after the first batch, as many as a segment has room for: a hole takes no space on the device, and a while to read."""
    directory = write_partition(tmp_path / "t-0", {0: batch(0, producer_id=7), 1: batch(1, producer_id=7, sequence=1)})
    segment = directory / f"{offset - 1:020d}.log"
    os.truncate(segment, SEGMENT_BYTES_MAX)
    began = time.monotonic()
    with pytest.raises(SnapshotRefusedError, match="the deadline has passed") as refused:
        ensure_snapshot(directory, offset, timeout_s=0.05)
    assert 0.05 <= time.monotonic() - began < 120
    assert refused.value.read_bytes == 0, "of whole segments"
    with pytest.raises(SnapshotRefusedError, match=f"{SEGMENT_BYTES_MAX} bytes|{SEGMENT_BYTES_MAX + 70} bytes"):
        ensure_snapshot(directory, offset, max_bytes=1 << 30)
    os.truncate(segment, 1 << 40)  # hours, for what no broker opens
    with pytest.raises(SnapshotRefusedError, match="length of a batch: expected at least 14, found 0"):
        ensure_snapshot(directory, offset, timeout_s=3600)


def test_out(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = tree(mixed)
    ensured, again = (ensure_snapshot(mixed, 1151, options=EARLY, out=out) for _ in range(2))
    assert ensured == again
    assert ensured.path == str(out / snapshot_name(1151))
    assert (out / snapshot_name(1151)).read_bytes() == ensured.data
    assert [path.name for path in out.iterdir()] == [snapshot_name(1151)]
    (out / snapshot_name(583)).write_bytes(EMPTY_SNAPSHOT)
    with pytest.raises(SnapshotRefusedError, match="another file of this name is there"):
        ensure_snapshot(mixed, 583, options=EARLY, out=out)
    for inside in (mixed, mixed / "out", mixed.parent, mixed.parent / "out"):
        with pytest.raises(SnapshotRefusedError, match="leads into"):
            ensure_snapshot(mixed, 583, options=EARLY, out=inside)
    assert tree(mixed) == before


# --- one boundary after the other -------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("replay_from", "as_of_ms"), [("auto", None), ("log-start", 0)])
def test_a_walk_gets_what_a_whole_replay_gives(replay_from: str, as_of_ms: int | None, partition_fixture: PartitionFixture) -> None:
    """In every field but what was read. From the log start each segment is read once, and Kafka's classes say what is right."""
    if partition_fixture.partition == METADATA:
        return
    after, whole, read = None, None, 0
    options = ReplayOptions(as_of_ms=as_of_ms, replay_from=replay_from, allow_unproven=True, allow_unsound=True)
    begins_at_0 = partition_fixture.segments[0].base_offset == 0
    may_be_unsound = any(each in partition_fixture.partition for each in ("compacted", "__", "bad-crc"))
    for segment in (each for each in partition_fixture.segments if each.snapshot_offset > 0):
        arguments = (partition_fixture.directory, segment.snapshot_offset)
        whole = ensure_snapshot(*arguments, options=options)
        onward = ensure_snapshot(*arguments, after=after, options=options)
        if as_of_ms == 0:
            assert replace(onward, read_bytes=0) == replace(whole, read_bytes=0)
            assert not begins_at_0 or entries_in(whole.data) == segment.entries
            assert not begins_at_0 or may_be_unsound or whole.snapshot_class is SnapshotClass.EXACT
        else:  # a window proves less than what the walk has read
            assert onward.data == whole.data or onward.snapshot_class in (SnapshotClass.EXACT, SnapshotClass.EXACT_FROM_LOG_START)
        after, read = onward, read + onward.read_bytes
    if replay_from == "log-start" and whole is not None:
        assert read == whole.read_bytes


def test_a_walk_reads_only_what_is_new(mixed: Path) -> None:
    sizes = {int(path.stem): path.stat().st_size for path in mixed.glob("*.log")}
    onward = ensure_snapshot(mixed, 1662, options=EARLY, after=ensure_snapshot(mixed, 583, options=EARLY))
    assert onward.read_bytes == sizes[583] + sizes[1151]
    assert ensure_snapshot(mixed, 1151, options=EARLY, after=onward).read_bytes == sizes[0] + sizes[583], "it lies not below"
    assert ensure_snapshot(mixed, 8231, options=EARLY).point is None
    limit = sizes[1662]
    assert ensure_snapshot(mixed, 2181, after=onward, options=EARLY, max_bytes=limit).entries == len(
        truth("kafka27-mixed", "mixed-0")[2181]
    )
    with pytest.raises(SnapshotRefusedError, match="max_bytes is"):
        ensure_snapshot(mixed, 2181, options=EARLY, max_bytes=limit)


def test_a_walk_survives_retention(mixed: Path) -> None:
    """A walk keeps its results when the log start moves past them."""
    after = ensure_snapshot(mixed, 1662, options=EARLY)
    (mixed / f"{0:020d}.log").unlink()
    onward = ensure_snapshot(mixed, 2181, options=EARLY, after=after)
    assert (onward.snapshot_class, entries_in(onward.data)) == (SnapshotClass.EXACT, truth("kafka27-mixed", "mixed-0")[2181])
    assert ensure_snapshot(mixed, 2181, options=EARLY).snapshot_class is SnapshotClass.EXACT_FROM_LOG_START


def test_a_partition_that_is_deleted_during_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone, and no wrong path was named."""
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    remove_snapshots(mixed)

    def run_behind_deletion(works: list[OneBoundaryTask], run: Run) -> None:
        shutil.rmtree(mixed, ignore_errors=True)
        schedule.run_tasks(works, run)

    monkeypatch.setattr(ensure_snapshot_module, "run_tasks", run_behind_deletion)
    with pytest.raises(SnapshotRefusedError) as caught:
        ensure_snapshot(mixed, 8231, options=replace(EARLY, replay_from="log-start"))
    assert caught.value.message == "the partition was deleted or moved during the replay"
    assert caught.value.reason is snaprebuild.RefusalReason.GONE


def test_a_refused_directory_is_named_as_the_argument(tmp_path: Path) -> None:
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    with pytest.raises(SnapshotRefusedError, match=rf"^\S+: out leads into \S+, where its files {WOULD_DISTURB}"):
        ensure_snapshot(mixed, 8231, out=mixed / "x")


def test_a_segment_that_retention_deletes_during_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is listed again: the answer is that of the log without the segment; a boundary that went with it is refused."""
    bases = sorted(truth("kafka27-mixed", "mixed-0"))

    def deleted(directory: Path, count: int) -> None:
        for segment in sorted(directory.glob("*.log"))[:count]:
            for path in directory.glob(f"{segment.stem}.*"):
                path.unlink()

    def ensured(directory: Path, offset: int) -> snaprebuild.EnsuredSnapshot:
        return ensure_snapshot(directory, offset, options=replace(EARLY, replay_from="log-start"))

    before, meanwhile = (copy_of("kafka27-mixed", tmp_path / name) / "mixed-0" for name in ("before", "meanwhile"))
    for mixed in (before, meanwhile):
        remove_snapshots(mixed)
    deleted(before, 2)
    expected = replace(ensured(before, bases[-2]), path=None)
    runs: list[Run] = []

    def run_behind_retention(works: list[OneBoundaryTask], run: Run) -> None:
        if not runs:
            deleted(meanwhile, 2)
        runs.append(run)
        schedule.run_tasks(works, run)

    monkeypatch.setattr(ensure_snapshot_module, "run_tasks", run_behind_retention)
    assert replace(ensured(meanwhile, bases[-2]), path=None) == expected
    assert len(runs) == 2
    runs.clear()
    with pytest.raises(SnapshotRefusedError, match="a segment was deleted during the replay"):
        ensured(meanwhile, int(sorted(meanwhile.glob("*.log"))[1].stem))


def test_a_walk_begins_anew_where_the_log_is_another_one(tmp_path: Path) -> None:
    """A follower cut its log, and got other batches from a new leader."""
    directory = tmp_path / "t-0"
    segments = {base: batch(base, producer_id=7, sequence=base) for base in range(4)}
    write_partition(directory, segments)
    after = ensure_snapshot(directory, 2, options=EARLY)
    assert ensure_snapshot(directory, 3, options=EARLY, after=after).read_bytes == len(segments[2])
    for base in (1, 2, 3):
        (directory / f"{base:020d}.log").unlink()
    write_partition(directory, {base: batch(base, producer_id=8, sequence=base) for base in (1, 2, 3)})
    anew = ensure_snapshot(directory, 3, options=EARLY, after=after)
    assert {entry.producer_id for entry in entries_in(anew.data)} == {7, 8}
    assert anew.read_bytes == sum(map(len, segments.values())) - len(segments[3])
    assert anew == ensure_snapshot(directory, 3, options=EARLY)
    # Nor is another partition this one.
    other = write_partition(tmp_path / "t-1", {base: batch(base, producer_id=9) for base in range(4)})
    assert ensure_snapshot(other, 3, options=EARLY, after=after) == ensure_snapshot(other, 3, options=EARLY)


def test_damage_is_not_forgotten_on_the_way(mixed: Path) -> None:
    flip(mixed / f"{583:020d}.log", 61 + 20)
    after = ensure_snapshot(mixed, 1151, options=replace(EARLY, allow_unsound=True))
    with pytest.raises(SnapshotRefusedError, match="it would be UNSOUND"):
        ensure_snapshot(mixed, 1662, options=EARLY, after=after)


def test_a_walk_from_the_snapshot_at_the_first_offset(tmp_path: Path) -> None:
    """It is trusted because a later one confirms it; what the replay saw after a boundary to learn that is not part of that boundary."""
    directory = tmp_path / "t-0"
    log = {0: batch(0, producer_id=9), **{base: batch(base, producer_id=7, sequence=base, payload_bytes=9) for base in range(1, 7)}}
    write_partition(directory, log)
    whole = {base: ensure_snapshot(directory, base, options=EARLY).data for base in range(1, 7)}
    for base in (2, 5):
        (directory / snapshot_name(base)).write_bytes(whole[base])
    for base in (0, 1):
        (directory / f"{base:020d}.log").unlink()
    flip(directory / f"{5:020d}.log", len(log[5]) - 2)
    after = ensure_snapshot(directory, 3, options=EARLY)
    read = sum(len(log[base]) for base in range(2, 7))
    assert after.read_bytes == read, "the whole log judges the first snapshot, whichever boundary is wanted"
    onward = ensure_snapshot(directory, 4, options=EARLY, after=after)
    assert (onward.data, onward.snapshot_class, onward.read_bytes) == (whole[4], SnapshotClass.EXACT, read)
    assert {entry.producer_id for entry in entries_in(onward.data)} == {7, 9}


# --- one code path ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("fixture", "replay_from"),
    [("kafka27-mixed", "auto"), ("kafka27-mixed", "window"), ("magicup", "auto"), ("follower-lost-state", "log-start")],
)
def test_it_gives_what_rebuild_writes(fixture: str, replay_from: str, tmp_path: Path) -> None:
    """For each boundary asked for by itself, with a window that spares most of the log: the same entries and class."""
    newest = {each.directory: max(one.max_timestamp for one in each.segments) for each in partition_fixtures()}
    compared = 0
    for path in sorted((FIXTURES / fixture).rglob("*-[0-9]/*.log")):
        directory, base = path.parent, int(path.stem)
        if directory.name.startswith("__") or path == min(directory.glob("*.log")):
            continue
        clock = {"as_of_ms": newest.get(directory, 0), "expiration_ms": 1000}
        only = {"boundaries": "all", "replay_from": replay_from, "offset_from": base, "offset_to": base}
        out = tmp_path / directory.parent.name / directory.name / path.stem
        (boundary,) = (
            rebuild(make_plan(RebuildRequest((str(directory),), out=str(out), **only, **clock)), Run(jobs=1))
            .partitions[0]
            .boundaries
        )
        assert boundary.path is not None
        options = ReplayOptions(replay_from=replay_from, **clock)
        ensured = ensure_snapshot(directory, base, options=replace(options, allow_unproven=True, allow_unsound=True))
        if ensured.origin is Origin.REBUILT:
            compared += 1
            assert ensured.data == Path(boundary.path).read_bytes()
            # With --out "log-start" is used as it is given; no one uploads what lacks the producers of remote storage.
            is_less = (fixture, replay_from) == ("follower-lost-state", "log-start")
            assert ensured.snapshot_class is (SnapshotClass.UNPROVEN if is_less else boundary.snapshot_class)
            settled = (SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE, SnapshotClass.UNPROVEN)
            if ensured.snapshot_class in settled and "in remote storage" not in ensured.reasons[0]:
                assert ensured.point is None, "what a window lacks is settled for all of it at once"
        if ensured.read_bytes:  # not below a window
            with pytest.raises(SnapshotRefusedError, match="max_bytes is"):
                ensure_snapshot(directory, base, options=options, max_bytes=ensured.read_bytes - 1)
    assert compared or fixture != "kafka27-mixed"


@pytest.mark.parametrize(
    ("directory", "offset", "options", "said"),
    [
        ("nowhere-0", 1151, {}, "does not exist"),
        ("mixed-0", 0, {}, "neither the base offset"),
        ("mixed-0", 1152, {}, "neither the base offset"),
        ("mixed-0", 8230, {}, "nor the log end, which is 8231"),
        ("mixed-0", 1151, {"max_bytes": -1}, "max_bytes: expected 0 or more, found -1"),
        ("mixed-0", 1151, {"timeout_s": -0.5}, "timeout_s: expected 0 or more, found -0.5"),
    ],
)
def test_what_makes_no_sense(directory: str, offset: int, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ensure_snapshot(FIXTURES / "kafka27-mixed" / "logs" / directory, offset, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replay_from": "nowhere"}, "replay_from: expected auto, window, log-start, found"),
        ({"jobs": 0}, "jobs: expected a number from 1 to 1024, found 0"),
        ({"expiration_ms": 0}, "expiration_ms: expected 1 or more, found 0"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ReplayOptions(**options)


EXPECTED = "expected the directory of one partition of a topic, <topic>-<partition>"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere-0", f"does not exist: {EXPECTED}"),
        ("kafka27-mixed/logs/meta.properties", f"is no directory: {EXPECTED}"),
        ("kafka27-mixed/logs", f"{EXPECTED}, found 4 partitions below it (deleted-0, logappend-0, mixed-0 and 1 more)"),
        ("kafka27-mixed", f"{EXPECTED}, found 4 partitions below it"),
        ("aiven-layout", f"{EXPECTED}, found no segment in it"),
        ("kraft-metadata-moved/logs/__cluster_metadata-0", f"is the metadata log of the cluster: {EXPECTED}"),
    ],
)
def test_a_wrong_directory(name: str, said: str) -> None:
    """The documented error names what is expected and what was found, whichever function is called."""
    directory = FIXTURES / name
    for call in (Partition, lambda path: ensure_snapshot(path, 1151), lambda path: validate_snapshot(path, EMPTY_SNAPSHOT, 1151)):
        with pytest.raises(UsageError) as refused:
            call(directory)
        assert str(refused.value).startswith(f"{directory}: {said}")


def test_a_directory_that_cannot_be_read(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def denied(path: str, _: str) -> list[os.DirEntry[str]]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(log_dir, "entries_of", denied)
    with pytest.raises(ReadFailedError, match="cannot be listed: Permission denied"):
        Partition(mixed)


def test_a_directory_that_a_broker_deletes_is_refused(mixed: Path) -> None:
    doomed = mixed.rename(mixed.with_name(f"mixed-0.{'0' * 32}-delete"))
    with pytest.raises(SnapshotRefusedError, match="will delete"):
        ensure_snapshot(doomed, 1151)


def test_it_configures_nothing_and_starts_nothing() -> None:
    code = f"""
import logging, multiprocessing, sys, threading
from snaprebuild import ensure_snapshot
ensure_snapshot({str(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0")!r}, 1151)
assert not logging.getLogger().handlers and not logging.getLogger("snaprebuild").handlers
assert threading.active_count() == 1 and not multiprocessing.active_children()
assert not {{"typer", "rich", "click", "boto3"}} & {{name.split(".")[0] for name in sys.modules}}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def uploader(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts" / "demo" / "upload_segments.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)


TOPIC_ID = "pnG54XS0SyKCbPV6BzO-OQ"


@pytest.mark.full
def test_the_example_uploader(mixed: Path, tmp_path: Path) -> None:
    """Into a directory; ``scripts/demo/tier`` has it write into a bucket."""
    target = tmp_path / "tier"
    done = uploader(mixed, target, TOPIC_ID, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # Brokers of 3.6.2, 3.9.2 and 4.3.1 uploaded these, too: a transaction hangs from 6913 on.
    segments = sorted(mixed.glob("*.log"))[:13]
    assert done.stdout.count("rebuilt, EXACT") == 12
    assert "00000000000000006390.log: waits: " in done.stdout
    expected = truth("kafka27-mixed", "mixed-0")
    there = {path.name: path.read_bytes() for path in target.iterdir()}
    names = set()
    for segment, following in itertools.pairwise(segments):
        endings = [each for each in (".log", ".index", ".timeindex", ".txnindex") if segment.with_suffix(each).exists()]
        names |= {f"{segment.stem}{each}" for each in (*endings, ".snapshot", ".leader_epoch_checkpoint")}
        for each in endings:
            assert there[f"{segment.stem}{each}"] == segment.with_suffix(each).read_bytes()
        assert entries_in(there[f"{segment.stem}.snapshot"]) == expected[int(following.stem)]
        assert there[f"{segment.stem}.leader_epoch_checkpoint"].startswith(b"0\n")
    assert set(there) == names
    flip(mixed / f"{2181:020d}.log", 61 + 20)
    again = uploader(mixed, tmp_path / "again", TOPIC_ID, cwd=tmp_path)
    assert (again.returncode, again.stdout.count("\n")) == (1, 4)
    assert "00000000000000002181.log: not uploaded: " in again.stderr
    assert len(list((tmp_path / "again").glob("*.log"))) == 4
    for wrong in ((mixed,), (tmp_path / "nowhere", target)):
        asked = uploader(*wrong, cwd=tmp_path)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert "usage: scripts/demo/upload_segments.py" in asked.stderr
