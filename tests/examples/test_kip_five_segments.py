"""The example that the proposal to rebuild snapshots gives: five segments, a window of fifteen minutes, and a producer that retries.

Segments of 1 GB are filled at 5 MB/s, producers expire after 15 minutes. Producer 1 wrote into the first segments only. When the partition
moves to a broker that starts from the snapshot of the last closed segment, producer 1 repeats its last batch, because the answer was lost.
With the rebuilt snapshot the broker knows the batch; with an empty file in its place (which satisfies the upload just as well) the batch
stands in the log twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import in_json
from log_dirs import batch, make_log_dir, snapshots_in, write_partition

from formats.partition.producer_snapshot import ProducerEntry

SEGMENT_BYTES = 1 << 30
RATE_BYTES_PER_SECOND = 5 << 20
EXPIRATION_MS = 15 * 60 * 1000
SEGMENT_MS = SEGMENT_BYTES * 1000 // RATE_BYTES_PER_SECOND

START_MS = 1_700_000_000_000
SEGMENTS = 5
BATCHES = 10
"""In each segment; one record each, so that segment n begins at offset 10 n."""

END_MS = START_MS + SEGMENTS * SEGMENT_MS


# ---------------------------------------------------------------------------------------------------------------- the partition


def producer_of(number: int) -> int:
    """Producer 1 writes the second segment; 2 writes all of them, and one more in each."""
    segment, place = divmod(number, BATCHES)
    if segment == 1 and place < 4:
        return 1
    return 2 if place % 2 else 10 + segment


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Five segments in the time that 5 GB take, at a hundred-millionth of the size; the last one is still open."""
    sequences: dict[int, int] = {}
    segments = dict.fromkeys((10 * n for n in range(SEGMENTS)), b"")
    for number in range(SEGMENTS * BATCHES):
        producer = producer_of(number)
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        timestamp = START_MS + (number + 1) * SEGMENT_MS // BATCHES
        segments[number // BATCHES * BATCHES] += batch(number, producer_id=producer, sequence=sequence, timestamp=timestamp)
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "orders-0", segments)
    return logs


def state_at(boundary: int) -> set[ProducerEntry]:
    """By hand: the last batch of each producer below the boundary."""
    last: dict[int, tuple[int, int]] = {}
    for number in range(boundary):
        producer = producer_of(number)
        last[producer] = (last.get(producer, (-1, 0))[0] + 1, number)
    return {
        ProducerEntry(producer, 0, sequence, offset, 0, START_MS + (offset + 1) * SEGMENT_MS // BATCHES)
        for producer, (sequence, offset) in last.items()
    }


def test_the_window_covers_what_can_still_matter(log_dir: Path) -> None:
    """1 GB at 5 MB/s is 204 s a segment, so that fifteen minutes are 4.4 segments: a window of five."""
    assert SEGMENT_MS // 1000 == 204
    assert round(EXPIRATION_MS / SEGMENT_MS, 1) == 4.4

    def begins(as_of_ms: int) -> int:
        options = ("--expiration-ms", EXPIRATION_MS, "--as-of", as_of_ms, "--replay-from", "window", "--boundaries", "all")
        (partition,) = in_json("plan", log_dir, *options).document["partitions"]
        return int(partition["replay_from_offset"])

    assert begins(END_MS + SEGMENT_MS) == 0, "without time indexes nothing is known to be old"
    for segment in range(SEGMENTS):
        largest = START_MS + (segment + 1) * SEGMENT_MS
        entry = largest.to_bytes(8, "big") + (BATCHES - 1).to_bytes(4, "big")
        (log_dir / "orders-0" / f"{segment * BATCHES:020d}.timeindex").write_bytes(entry)
    assert (begins(END_MS), begins(END_MS + SEGMENT_MS)) == (0, 10)


def test_the_retried_batch_of_producer_1(log_dir: Path) -> None:
    """A broker compares a batch with sequence and offset of the newest one, which the snapshot has and an empty file does not."""
    run = in_json("rebuild", log_dir, "--expiration-ms", EXPIRATION_MS, "--as-of", END_MS)
    assert run.exit_code == 0
    found = snapshots_in(log_dir / "orders-0")
    assert found == {boundary: state_at(boundary) for boundary in (10, 20, 30, 40, 50)}
    (last,) = [entry for entry in found[40] if entry.producer_id == 1]
    assert (last.last_sequence, last.last_offset) == (3, 13), "it is in the second segment, four segments' time ago or less"
