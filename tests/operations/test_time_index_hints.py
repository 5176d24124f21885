"""The time indexes decide where the window begins, and nothing vouches for them: cut at any entry, they cost reading, never a producer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from formats.producer_snapshot import ProducerEntry, build_snapshot, parse_snapshot
from formats.record_batch import BatchHeader, Record, build_record_batch
from snaprebuild.operations.findings import exit_code_of
from snaprebuild.operations.plan import Request, make_plan
from snaprebuild.operations.rebuild import rebuild

NOW = 1_800_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
OLD, RECENT = NOW - 3 * DAY, NOW - HOUR


def data(offset: int, producer_id: int, sequence: int, timestamp: int) -> bytes:
    header = BatchHeader(offset, 0, 0, 2, 0, 0, 0, timestamp, timestamp, producer_id, 0, sequence, 1)
    return build_record_batch(header, [Record(0, 0, None, b"x")])


def filler(offset: int, following: int) -> bytes:
    """A batch without a producer that reaches to the next segment."""
    count = following - offset
    header = BatchHeader(offset, 0, 0, 2, 0, 0, count - 1, OLD, OLD, -1, -1, -1, count)
    return build_record_batch(header, [Record(0, delta, None, b"") for delta in range(count)])


def partition(directory: Path, entries_kept: int) -> None:
    """Producer 7 wrote an hour ago into the second segment, whose time index keeps so many of its entries, and again at the end."""
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
        data_of = [data(base + at, *batch) for at, batch in enumerate(batches)]
        if following is not None:  # no gap below the next segment
            data_of.append(filler(base + len(batches), following))
        (directory / f"{base:020}.log").write_bytes(b"".join(data_of))
        (directory / f"{base:020}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in index))
        (directory / f"{base:020}.index").write_bytes(b"")
    witness = [ProducerEntry(7, 0, 2, 31, 0, RECENT), ProducerEntry(8, 0, 1, 10, 0, OLD), ProducerEntry(9, 0, 1, 30, 0, RECENT)]
    (directory / f"{32:020}.snapshot").write_bytes(build_snapshot(witness))


@pytest.mark.parametrize("entries_kept", [0, 1, 2])
def test_a_cut_time_index_costs_reading_and_no_producer(entries_kept: int, tmp_path: Path) -> None:
    partition(tmp_path / "t-0", entries_kept)
    out = tmp_path / "out"
    request = Request((str(tmp_path / "t-0"),), out=str(out), offset_from=30, offset_to=30, as_of_ms=NOW, expiration_ms=DAY)
    result = rebuild(make_plan(request), jobs=1)
    assert exit_code_of(result.findings) == 0
    found = {entry.producer_id: entry for entry in parse_snapshot((out / "t-0" / f"{30:020}.snapshot").read_bytes())}
    assert found[7] == ProducerEntry(7, 0, 1, 11, 0, RECENT), "an hour old, so a broker must know it"
    assert found[9] == ProducerEntry(9, 0, 0, 20, 0, RECENT)
