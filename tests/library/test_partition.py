"""``Partition``: one listing, one reading of each segment, and for each rolled segment what the single functions give."""

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from log_dirs import batch as batch_of
from log_dirs import copy_of, entries_in, flip, make_log_dir, snapshot_name, tree, truth, write_partition
from manifests import FIXTURES, PartitionFixture, partition_fixtures

from snaprebuild import (
    EnsuredSnapshot,
    LogDir,
    Origin,
    Partition,
    ReplayOptions,
    SnapshotClass,
    SnapshotRefusedError,
    UploadRefusedError,
    UsageError,
    Validity,
    ensure_snapshot,
    prepare_upload,
    validate_snapshot,
)
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_segment

EARLY = ReplayOptions(as_of_ms=0)
"""A time at which nothing had expired."""

MIXED = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
TOPIC_ID = "pnG54XS0SyKCbPV6BzO-OQ"


@contextmanager
def counted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Counter[str], list[str]]]:
    """How often each segment is read, and the listings of the directory."""
    reads: Counter[str] = Counter()
    listings: list[str] = []
    scandir = os.scandir

    def read(task: ReadTask) -> Pieces:
        reads[os.path.basename(task.path)] += 1
        return read_segment(task)

    def listed(path: Any = ".") -> Any:
        if os.fspath(path) == str(directory):
            listings.append(str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(schedule, "read_group", partial(read_each, read))
        patch.setattr(os, "scandir", listed)
        yield reads, listings


def alone(directory: Path, offset: int, options: ReplayOptions) -> EnsuredSnapshot | str:
    try:
        return replace(ensure_snapshot(directory, offset, options=options), read_bytes=0, path=None)
    except SnapshotRefusedError as error:
        return error.message


def test_what_a_segment_shows() -> None:
    bases = sorted(int(path.stem) for path in MIXED.glob("*.log"))
    with Partition(MIXED) as partition:
        segments = partition.rolled_segments()
    assert (partition.path, partition.topic, partition.partition, partition.topic_partition) == (str(MIXED), "mixed", 0, "mixed-0")
    assert [(each.base_offset, each.next_base_offset) for each in segments] == list(itertools.pairwise(bases))
    for each in segments:
        path = MIXED / f"{each.base_offset:020d}.log"
        assert (each.log_path, each.size_bytes) == (str(path), path.stat().st_size)
        for found, ending in (
            (each.offset_index_path, "index"),
            (each.time_index_path, "timeindex"),
            (each.transaction_index_path, "txnindex"),
        ):
            index = path.with_suffix(f".{ending}")
            assert found == (str(index) if index.exists() else None)
        assert each.has_snapshot == (MIXED / snapshot_name(each.next_base_offset)).exists()
    assert {each.has_snapshot for each in segments} == {True, False}
    assert {each.transaction_index_path is None for each in segments} == {True, False}


def test_a_partition_is_a_collection_of_its_rolled_segments() -> None:
    partition = Partition(MIXED)
    assert tuple(partition) == partition.rolled_segments()
    assert len(partition) == len(list(MIXED.glob("*.log"))) - 1
    assert repr(partition) == f"Partition('{MIXED}', 14 rolled segments)"
    assert repr(next(iter(partition))) == f"Segment('{MIXED}/{0:020d}.log', offsets 0 to 582)"
    empty = Partition(MIXED.parent / "plain-0")
    assert (len(empty), list(empty)) == (0, [])


def test_the_partitions_of_a_log_directory() -> None:
    """Each is as if it were named itself, and a directory above gives those of all log directories."""
    logs = LogDir(MIXED.parent, EARLY)
    names = ["deleted-0", "logappend-0", "mixed-0", "plain-0"]
    assert [f"{each.topic}-{each.partition}" for each in logs] == names
    assert (len(logs), repr(logs)) == (4, f"LogDir('{MIXED.parent}', 4 partitions)")
    assert not [each for each in logs.findings if each.severity != "note"]
    for partition in logs:
        alone = Partition(MIXED.parent / f"{partition.topic}-{partition.partition}", EARLY)
        assert (partition.path, partition.options) == (alone.path, EARLY)
        for one, other in zip(partition, alone, strict=True):
            assert replace(one, _partition=alone) == other
            assert one.snapshot().data == other.snapshot().data
    assert [each.path for each in LogDir(MIXED.parent.parent)] == [each.path for each in logs]
    assert [each.path for each in LogDir(MIXED)] == [str(MIXED)]


def test_what_a_log_directory_leaves_out(tmp_path: Path) -> None:
    """The metadata log of the cluster is no partition of a topic; what a broker deletes is a finding."""
    logs = make_log_dir(tmp_path / "logs")
    for name in ("t-0", f"t-1.{'0' * 32}-delete", "__cluster_metadata-0"):
        write_partition(logs / name, {0: batch_of(0, producer_id=7, sequence=0), 1: batch_of(1, producer_id=7, sequence=1)})
    found = LogDir(logs)
    assert [each.path for each in found] == [str(logs / "t-0")]
    assert [each.path for each in found.findings if each.code == "delete-directory"] == [str(logs / f"t-1.{'0' * 32}-delete")]
    with pytest.raises(UsageError, match="does not exist"):
        LogDir(tmp_path / "nowhere")


@pytest.mark.parametrize("fixture", ["kafka27-mixed", "kafka27-killed", "kafka4-mixed"])
def test_the_offsets_of_a_log(fixture: str) -> None:
    """The log end is where Kafka's own classes saw the last batch end. A replay gives the last stable offset.

    After a kill the small files do not show it.
    """
    manifests = {each.directory: each for each in partition_fixtures() if each.fixture == fixture}
    logs = FIXTURES / fixture / "logs"
    document = in_json("inspect transactions", logs, "--as-of", "0").document
    stable = {each["path"]: each["last_stable_offset"] for each in document["partitions"]}
    known = 0
    for partition in LogDir(logs):
        last = manifests[Path(partition.path)].segments[-1]
        assert partition.log_end_offset == last.snapshot_offset or last.snapshot_offset is None
        assert partition.log_start_offset <= partition.log_end_offset
        if partition.last_stable_offset is not None:
            assert partition.last_stable_offset == stable[partition.path]
            known += 1
    assert known == (0 if fixture == "kafka27-killed" else len(LogDir(logs)))


def test_paths_of_bytes(tmp_path: Path) -> None:
    """A name need not be text."""
    logs = os.fsencode(tmp_path) + b"/odd-\xff"
    shutil.copytree(os.fsencode(MIXED.parent), logs)
    directory = logs + b"/mixed-0"
    with Partition(directory, EARLY) as partition:
        first = next(iter(partition))
        data = first.snapshot().data
    assert os.fsencode(partition.path) == directory
    assert [os.fsencode(each.path) for each in LogDir(logs) if each.topic == "mixed"] == [directory]
    out = os.fsencode(tmp_path) + b"/out"
    os.mkdir(out)
    assert ensure_snapshot(directory, 583, options=EARLY, out=out).data == data
    assert os.listdir(out) == [snapshot_name(583).encode()]
    assert validate_snapshot(directory, Path(os.fsdecode(out)) / snapshot_name(583), 583, options=EARLY).validity is Validity.EQUAL
    assert prepare_upload(os.fsencode(first.log_path), options=EARLY, topic_id=TOPIC_ID).snapshot.data == data


def test_one_listing_and_one_reading_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    before, expected = tree(MIXED), truth("kafka27-mixed", "mixed-0")
    with counted(MIXED, monkeypatch) as (reads, listings), Partition(MIXED, EARLY) as partition:
        segments = 2 * list(partition.rolled_segments())
        random.Random(1).shuffle(segments)
        read = 0
        for segment in segments:
            snapshot = segment.snapshot()
            assert (snapshot.offset, snapshot.snapshot_class) == (segment.next_base_offset, SnapshotClass.EXACT)
            assert entries_in(snapshot.data) == expected[segment.next_base_offset]
            assert (snapshot.origin is Origin.ON_DISK) == segment.has_snapshot
            read += snapshot.read_bytes
    rolled = {os.path.basename(segment.log_path) for segment in segments}
    assert rolled <= set(reads)
    assert set(reads.values()) == {1}
    assert read == sum((MIXED / name).stat().st_size for name in reads)
    assert len(listings) == 1
    assert tree(MIXED) == before


def test_every_bundled_partition_in_any_order(partition_fixture: PartitionFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot, class and reasons equal those of ``ensure_snapshot`` alone, or the refusal does; also where a window is
    replayed."""
    directory = partition_fixture.directory
    if partition_fixture.partition == "__cluster_metadata-0":
        with pytest.raises(UsageError, match="is the metadata log of the cluster"):
            Partition(directory, EARLY)
        return
    newest = max((each.max_timestamp for each in partition_fixture.segments), default=0)
    options = ReplayOptions(as_of_ms=max(newest, 0), expiration_ms=1000)
    offsets = [each.snapshot_offset for each in partition_fixture.segments if each.snapshot_offset]
    expected = {offset: alone(directory, offset, options) for offset in offsets}
    with counted(directory, monkeypatch) as (reads, listings), Partition(directory, options) as partition:
        segments = list(partition.rolled_segments())
        for segment in (*reversed(segments), *segments):
            try:
                found: EnsuredSnapshot | str = replace(segment.snapshot(), read_bytes=0, path=None)
            except SnapshotRefusedError as error:
                found = error.message
            wanted = expected[segment.next_base_offset]
            if isinstance(found, EnsuredSnapshot) and isinstance(wanted, EnsuredSnapshot) and found != wanted:
                # What an earlier call read proves more than a window does.
                assert found.data == wanted.data or found.snapshot_class is SnapshotClass.EXACT
            else:
                assert found == wanted
    assert set(reads.values()) <= {1}
    assert len(listings) == 1


def test_damage_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    flip(mixed / f"{2181:020d}.log", 61 + 20)
    with counted(mixed, monkeypatch) as (reads, _), Partition(mixed, EARLY) as partition:
        sound, unsound = partition.rolled_segments()[:4], partition.rolled_segments()[4:]
        assert [segment.snapshot().offset for segment in sound][-1] == 2181
        for segment in (*unsound, *unsound):
            with pytest.raises(SnapshotRefusedError, match="it would be UNSOUND"):
                segment.snapshot()
    assert set(reads.values()) == {1}


def test_limits_and_what_was_read_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(MIXED, monkeypatch) as (reads, _), Partition(MIXED, EARLY) as partition:
        first, second, third = partition.rolled_segments()[:3]
        with pytest.raises(SnapshotRefusedError, match="the deadline has passed"):
            second.snapshot(timeout_s=0)
        for call in (second.prepare_upload, lambda **limit: prepare_upload(second.log_path, options=EARLY, **limit)):
            with pytest.raises(SnapshotRefusedError, match="the deadline has passed"):
                call(topic_id=TOPIC_ID, timeout_s=0)
        with pytest.raises(SnapshotRefusedError, match=f"max_bytes is {first.size_bytes}"):
            second.snapshot(max_bytes=first.size_bytes)
        assert not reads
        first.snapshot()
        assert second.snapshot(max_bytes=second.size_bytes).read_bytes == second.size_bytes
        assert first.snapshot(max_bytes=0, timeout_s=60).read_bytes == 0
        with pytest.raises(UsageError, match="timeout_s: expected 0 or more, found -1"):
            third.snapshot(timeout_s=-1)


def test_what_the_log_start_passed_is_left_out(tmp_path: Path) -> None:
    """A broker uploads no segment whose records are all deleted."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {base: batch_of(base, producer_id=7, sequence=base) for base in range(4)})
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    with Partition(logs / "t-0") as partition:
        assert [each.base_offset for each in partition.rolled_segments()] == [2]


def test_everything_for_an_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(MIXED, monkeypatch) as (reads, listings), Partition(MIXED, EARLY) as partition:
        *segments, open_transaction, _ = partition.rolled_segments()
        uploads = [segment.prepare_upload(topic_id=TOPIC_ID) for segment in segments]
        with pytest.raises(UploadRefusedError) as refused:
            open_transaction.prepare_upload(topic_id=TOPIC_ID)
    assert refused.value.reason == "above-last-stable-offset"
    assert (set(reads.values()), len(listings)) == ({1}, 1)
    for segment, upload in zip(segments, uploads, strict=True):
        single = prepare_upload(segment.log_path, options=EARLY, topic_id=TOPIC_ID)
        assert replace(upload, snapshot=replace(upload.snapshot, read_bytes=single.snapshot.read_bytes)) == single


@pytest.mark.parametrize("options", [{"allow_unsound": True}, {"check_crc": False}, {"replay_from": "log-start"}])
def test_nothing_weaker_than_a_broker_uploads(options: dict[str, Any]) -> None:
    weaker = ReplayOptions(**options)
    segment = Partition(MIXED, weaker).rolled_segments()[0]
    for call in (segment.prepare_upload, lambda: prepare_upload(segment.log_path, options=weaker)):
        with pytest.raises(UsageError, match="prepare_upload takes neither allow_unsound"):
            call()


def test_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(MIXED, monkeypatch) as (reads, _), Partition(MIXED, EARLY) as partition:
        segments = list(partition.rolled_segments()) * 2
        random.Random(2).shuffle(segments)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda segment: segment.snapshot().data, segments))
    expected = truth("kafka27-mixed", "mixed-0")
    assert [entries_in(data) for data in found] == [expected[segment.next_base_offset] for segment in segments]
    assert set(reads.values()) == {1}
