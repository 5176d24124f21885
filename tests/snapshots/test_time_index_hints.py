"""The time indexes decide where the window begins, and nothing vouches for them: cut at any entry, they cost reading, never a producer."""

import struct
from pathlib import Path

import pytest
from log_dirs import batch, make_log_dir
from plans import make_plan
from snapshot_by_grammar import build_snapshot

from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.log_facts import largest_timestamp_hint, window_index
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, open_source

NOW = 1_800_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
OLD, RECENT = NOW - 3 * DAY, NOW - HOUR


def partition(directory: Path, entries_kept: int) -> None:
    """Producer 7 wrote an hour ago into the second segment, whose time index keeps this many of its entries, and again at the end."""
    directory.mkdir()
    segments = {
        0: ([(7, 0, OLD), (8, 0, OLD)], [(OLD, 1)]),
        10: ([(8, 1, OLD), (7, 1, RECENT)], [(OLD, 0), (RECENT, 1)][:entries_kept]),
        20: ([(9, 0, RECENT)], [(RECENT, 0)]),
        30: ([(9, 1, RECENT), (7, 2, RECENT)], [(RECENT, 1)]),
    }
    bases = sorted(segments)
    for base, (batches, index) in segments.items():
        following = next((each for each in bases if each > base), None)
        data = b"".join(
            batch(base + at, producer_id=producer, sequence=sequence, timestamp=timestamp)
            for at, (producer, sequence, timestamp) in enumerate(batches)
        )
        if following is not None:  # no gap below the next segment
            end = base + len(batches)
            data += batch(end, count=following - end, timestamp=OLD)
        (directory / f"{base:020}.log").write_bytes(data)
        (directory / f"{base:020}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in index))
        (directory / f"{base:020}.index").write_bytes(b"")
    witness = [ProducerEntry(7, 0, 2, 31, 0, RECENT), ProducerEntry(8, 0, 1, 10, 0, OLD), ProducerEntry(9, 0, 1, 30, 0, RECENT)]
    (directory / f"{32:020}.snapshot").write_bytes(build_snapshot(witness))


@pytest.mark.parametrize("entries_kept", [0, 1, 2])
def test_a_cut_time_index_costs_reading_and_no_producer(entries_kept: int, tmp_path: Path) -> None:
    partition(tmp_path / "t-0", entries_kept)
    out = tmp_path / "out"
    request = RebuildRequest((str(tmp_path / "t-0"),), out=str(out), offset_from=30, offset_to=30, as_of_ms=NOW, expiration_ms=DAY)
    result = rebuild(make_plan(request), Run(jobs=1))
    assert exit_code_of(result.findings) == 0
    found = {entry.producer_id: entry for entry in parse_snapshot((out / "t-0" / f"{30:020}.snapshot").read_bytes())}
    assert found[7] == ProducerEntry(7, 0, 1, 11, 0, RECENT), "an hour old, so a broker must know it"
    assert found[9] == ProducerEntry(9, 0, 0, 20, 0, RECENT)


# --- after an unclean stop ------------------------------------------------------------------------------------------------


def in_log_dir(tmp_path: Path, recovery_point: int | None, *, clean: bool) -> Path:
    """The partition above, the index of its segment at 10 cut, so that it looks old, in a log directory of a broker."""
    points = {} if recovery_point is None else {"t-0": recovery_point}
    logs = make_log_dir(tmp_path / "logs", clean=clean, recovery_points=points)
    partition(logs / "t-0", 1)
    return logs


def only(path: Path) -> PartitionSource:
    (found,) = open_source([str(path)]).partitions
    return found


@pytest.mark.parametrize(
    ("recovery_point", "window"),
    [
        (32, 2),  # everything was flushed
        (20, 2),  # the segment at 10 ends here, and is not recovered
        (19, 1),
        (11, 1),
        (10, 1),
        (9, 0),
        (None, 0),  # a broker takes 0 for a partition that the checkpoint does not name
    ],
)
def test_above_the_recovery_point_of_an_unclean_stop_no_index_is_believed(
    recovery_point: int | None, window: int, tmp_path: Path
) -> None:
    source = only(in_log_dir(tmp_path, recovery_point, clean=False))
    assert window_index(source, Clock(NOW, DAY)) == window
    below = 0 if recovery_point is None else recovery_point
    hints = [largest_timestamp_hint(source, index) for index in range(3)]
    assert hints == [hint if end <= below else None for hint, end in ((OLD, 10), (OLD, 20), (RECENT, 30))]


@pytest.mark.parametrize("recovery_point", [32, 19, 9, None])
def test_after_a_clean_stop_every_index_is_believed(recovery_point: int | None, tmp_path: Path) -> None:
    source = only(in_log_dir(tmp_path, recovery_point, clean=True))
    assert window_index(source, Clock(NOW, DAY)) == 2


def test_of_a_copy_without_the_files_of_a_broker_nothing_is_known(tmp_path: Path) -> None:
    partition(tmp_path / "t-0", 1)
    assert window_index(only(tmp_path / "t-0"), Clock(NOW, DAY)) == 2


@pytest.mark.parametrize("clean", [False, True])
def test_a_time_index_that_a_crash_cut(clean: bool, tmp_path: Path) -> None:
    """The window alone, so that no later evidence makes up for it. After a clean stop the index is believed, and nothing is claimed."""
    logs, out = in_log_dir(tmp_path, 12, clean=clean), tmp_path / "out"
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\n")
    request = RebuildRequest(
        (),
        server_properties=str(properties),
        out=str(out),
        boundaries="all",
        replay_from="window",
        offset_from=30,
        offset_to=30,
        as_of_ms=NOW,
        expiration_ms=DAY,
    )
    plan = make_plan(request)
    assert plan.partitions[0].retention_frees_ms == (RECENT + plan.retention_ms if clean else None)
    (boundary,) = rebuild(plan, Run(jobs=1)).partitions[0].boundaries
    found = {entry.producer_id: entry for entry in parse_snapshot((out / "t-0" / f"{30:020}.snapshot").read_bytes())}
    assert found[9] == ProducerEntry(9, 0, 0, 20, 0, RECENT)
    if clean:
        assert 7 not in found
        assert not boundary.snapshot_class.is_allowed_in_place
    else:
        assert found[7] == ProducerEntry(7, 0, 1, 11, 0, RECENT), "an hour old, so a broker must know it"
