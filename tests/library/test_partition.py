"""``Partition``: one listing, one reading of each segment, and for each rolled segment what the single functions give."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from log_dirs import batch as batch_of
from log_dirs import copy_of, entries_in, flip, make_log_dir, snapshot_name, tree, truth, write_partition
from manifests import FIXTURES, PartitionFixture

from snaprebuild import (
    EnsuredSnapshot,
    Origin,
    Partition,
    ReplayOptions,
    SnapshotClass,
    SnapshotRefusedError,
    UploadRefusedError,
    UsageError,
    ensure_snapshot,
    prepare_upload,
)
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_segment

EARLY = ReplayOptions(as_of_ms=0)
"""As of a time when nothing had expired."""

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
    assert (partition.path, partition.topic, partition.partition) == (str(MIXED), "mixed", 0)
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
    """The same snapshot, class and reasons as ``ensure_snapshot`` alone, or the same refusal; also where a window is replayed."""
    directory = partition_fixture.directory
    if partition_fixture.partition == "__cluster_metadata-0":
        return
    newest = max((each.max_timestamp for each in partition_fixture.segments), default=0)
    options = ReplayOptions(as_of_ms=newest, expiration_ms=1000)
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
        with pytest.raises(UsageError, match="expected 0 or more, found max_bytes=None and timeout_s=-1"):
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
