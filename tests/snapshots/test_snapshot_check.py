"""The snapshots of a partition looked at without its log: what each says by itself, however many are looked at together."""

import os
import random
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from budgets import FEWER_EXAMPLES, each_seed
from log_dirs import EMPTY_SNAPSHOT, snapshot_bytes, snapshot_name
from simulated_broker import listed

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.snapshots.scan import snapshot_check
from snaprebuild.snapshots.scan.snapshot_check import NOTHING, ReadOutcome, SnapshotFile, check_snapshots


def checked(directory: Path) -> list[SnapshotFile]:
    return check_snapshots(listed(directory), [], 1000, may_lack_data=True, is_bootstrapped=False)


def said_of(offset: int, entries: Sequence[ProducerEntry]) -> tuple[object, ...]:
    """The right statements about a file, entry by entry."""
    opened = [entry.current_txn_first_offset for entry in entries if entry.current_txn_first_offset >= 0]
    last = [entry.last_offset for entry in entries if entry.last_offset >= 0]
    why = [
        reason
        for reason, holds in (
            ("at or above the file's own", any(at >= offset for at in opened + last)),
            ("a producer id is there twice", len({entry.producer_id for entry in entries}) < len(entries)),
            ("two open transactions begin at the same offset", len(set(opened)) < len(opened)),
        )
        if holds
    ]
    newest = max((entry.timestamp for entry in entries), default=-1)
    return len(entries), why, min([*opened, *last], default=NOTHING), newest, min(opened, default=None)


def said(snapshot: SnapshotFile) -> tuple[object, ...]:
    reasons = ("at or above the file's own", "a producer id is there twice", "two open transactions begin at the same offset")
    why = [next(reason for reason in reasons if reason in each.text) for each in snapshot.suspicions]
    return snapshot.entries, why, snapshot.least_offset, snapshot.newest_timestamp_ms, snapshot.first_open_offset


def any_entries(rng: random.Random) -> list[ProducerEntry]:
    """Mostly such as a snapshot can hold; extreme values too."""
    count = rng.choice((0, 1, 2, 3, 9))
    producers = rng.sample((-(2**63), -1, *range(20), 2**63 - 1), count)
    firsts = rng.sample(range(60), count)
    entries = [
        ProducerEntry(
            producer,
            timestamp=rng.choice((-1, 5, 1000, 2**62)),
            last_offset=rng.choice((-1, rng.randrange(100))),
            current_txn_first_offset=rng.choice((-1, first)),
        )
        for producer, first in zip(producers, firsts, strict=True)
    ]
    if entries and rng.random() < 0.2:
        entries.insert(rng.randrange(len(entries)), ProducerEntry(rng.choice(entries).producer_id))
    if entries and rng.random() < 0.2:
        entries.append(ProducerEntry(77, current_txn_first_offset=rng.choice(entries).current_txn_first_offset))
    return entries


def test_what_is_said_of_each_file_whatever_is_looked_at_together(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()

    @each_seed(FEWER_EXAMPLES)
    def holds(seed: int) -> None:
        rng = random.Random(~seed)
        files = {offset: any_entries(rng) for offset in rng.sample(range(50, 150), rng.randrange(6))}
        directory = tmp_path / "t-0"
        directory.mkdir()
        try:
            for offset, entries in files.items():
                (directory / snapshot_name(offset)).write_bytes(snapshot_bytes(entries))
            torn = rng.sample(sorted(files), min(len(files), rng.choice((0, 0, 1))))
            for offset in torn:
                (directory / snapshot_name(offset)).write_bytes(b"torn")
            expected = {offset: said_of(offset, entries) for offset, entries in files.items() if offset not in torn}
            for batch_bytes in (1, 47, 200, 1 << 20):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(snapshot_check, "BATCH_BYTES", batch_bytes)
                    found = checked(directory)
                assert [each.offset for each in found] == sorted(files)
                assert {each.offset: said(each) for each in found if each.parses} == expected
                assert [each.offset for each in found if each.outcome is ReadOutcome.CORRUPT] == torn
        finally:
            shutil.rmtree(directory)
        for _, why, *_ in expected.values():
            reached.update(why)  # type: ignore[arg-type]
            reached["nothing"] += not why

    holds()
    assert len(reached) == 4
    assert min(reached.values()) >= FEWER_EXAMPLES * 0.05


def moments(directory: Path, files: Mapping[int, Sequence[ProducerEntry]]) -> dict[int, int | None]:
    """From when each suspect snapshot is harmless, if it lacks only the producers that raise the suspicion; the limit is 1,000 ms."""
    directory.mkdir()
    for offset, entries in files.items():
        path = directory / snapshot_name(offset)
        path.write_bytes(snapshot_bytes(entries) if entries else EMPTY_SNAPSHOT)
        os.utime(path, ns=(10_000 * 10**6, 10_000 * 10**6))  # written at 10,000 ms
    found = check_snapshots(listed(directory), sorted(files), 1000, may_lack_data=False, is_bootstrapped=False)
    return {each.offset: each.expired_from_ms for each in found if each.is_suspect}


def test_from_when_an_empty_snapshot_lacks_expired_producers_only(tmp_path: Path) -> None:
    """A broker drops a producer that has expired when it loads a snapshot, but none with an open transaction."""
    young = ProducerEntry(7, last_offset=5, timestamp=9_800)
    open_below = ProducerEntry(7, last_offset=5, timestamp=9_800, current_txn_first_offset=5)
    open_above = ProducerEntry(8, last_offset=25, timestamp=9_900, current_txn_first_offset=21)
    assert moments(tmp_path / "a-0", {10: [young], 20: []}) == {20: 10_800}
    assert moments(tmp_path / "b-0", {10: [open_below], 20: []}) == {20: None}
    # Of a later snapshot, what is below the empty one was there when that was written.
    assert moments(tmp_path / "c-0", {20: [], 30: [young]}) == {20: 11_000}
    assert moments(tmp_path / "d-0", {20: [], 30: [young, open_above]}) == {20: 11_000}
    assert moments(tmp_path / "e-0", {20: [], 30: [open_below]}) == {20: None}
    # Both suspicions, of which one never ends.
    assert moments(tmp_path / "f-0", {10: [young], 20: [], 30: [open_below]}) == {20: None}
    # No fault of time.
    assert moments(tmp_path / "g-0", {20: [ProducerEntry(7, last_offset=20, timestamp=9_800)]}) == {20: None}


@pytest.mark.full
def test_memory_does_not_grow_with_the_count_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 46 KB in batches of 512 KiB: four times the files need the same memory, but for one small value each."""
    monkeypatch.setattr(snapshot_check, "BATCH_BYTES", 512 << 10)
    data = snapshot_bytes(ProducerEntry(producer, 0, 0, producer, 0, 1000) for producer in range(1000))
    peaks = []
    for count in (50, 200):
        directory = tmp_path / f"t-{count}"
        directory.mkdir()
        for number in range(count):
            (directory / snapshot_name(10_000 + number)).write_bytes(data)
        (directory / snapshot_name(1)).write_bytes(EMPTY_SNAPSHOT)
        tracemalloc.start()
        try:
            found = checked(directory)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert [each.entries for each in found] == [0] + [1000] * count
    assert peaks[1] < peaks[0] + 150 * 2000
    assert peaks[1] < 5 * (512 << 10), "the bytes, and some columns of them"
